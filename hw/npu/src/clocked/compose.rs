//! The descriptors of a KV command, one after the other, a bus beat a cycle into the control RAM.

use crate::exec::{CONTROL_REGION, DRAM_REGION, KV, SCRATCHPAD_REGION, linear};
use crate::kv::{COMPOSE_BYTES, control};
use crate::{Fault, Kv, Memory};
use ::dma::{Descriptor, Element, INDEX_ENTRIES, IndexList, Side, WIRE_BYTES};
use nkz::PAGE;
use rtl::{Format, Visitor};

/// Bytes of the control RAM from descriptor to descriptor.
const SLOT: usize = WIRE_BYTES.next_multiple_of(64);

/// Walks a span of a stream's space and composes what moves it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Composer {
    /// Stream, 32 bits.
    stream: u32,
    /// Towards the scratchpad.
    load: bool,
    /// Byte of the stream's space from which on nothing has been composed yet, and the span's end: 64 bits each.
    at: u64,
    end: u64,
    /// Byte of the scratchpad, 64 bits.
    local: u64,
    /// Descriptors composed, 8 bits, and beats of the present one written, 8 bits.
    number: u8,
    beat: u8,
}

impl Composer {
    pub(super) fn new(stream: usize, load: bool, span: (usize, usize), local: u32) -> Self {
        let (start, bytes) = (span.0 as u64, span.1 as u64);
        Self { stream: stream as u32, load, at: start, end: start + bytes, local: u64::from(local), ..Self::default() }
    }

    /// Nothing is left to compose.
    pub(super) fn done(&self) -> bool {
        self.at == self.end
    }

    /// The present descriptor, and the bytes that it moves.
    fn job(&self, kv: &Kv, memory: &Memory) -> (Descriptor, u64) {
        let stream = self.stream as usize;
        let page_bytes = PAGE as u64;
        let within = self.at % page_bytes;
        let whole = if within == 0 { (self.end - self.at) / page_bytes } else { 0 };
        let run = whole.min(u64::from(INDEX_ENTRIES));
        let local = linear(SCRATCHPAD_REGION, self.local);
        if run >= 2 && self.load {
            let page = (self.at / page_bytes) as usize;
            let index = IndexList {
                region: CONTROL_REGION,
                offset: (kv.table(stream) + 4 * page) as u64,
                dimension: 1,
                bound: kv.page_count(),
            };
            let strides = [0, PAGE as i64, 1];
            let descriptor = Descriptor {
                element: Element::B1,
                counts: [1, run as u32, PAGE as u32],
                source: Side { strides, index: Some(index), ..linear(DRAM_REGION, kv.setup().pages) },
                destination: Side { strides, ..local },
                wide_index: true,
                ..Descriptor::default()
            };
            return (descriptor, run * page_bytes);
        }
        let bytes = (self.end - self.at).min(page_bytes - within);
        let page = kv.page(memory, stream, (self.at / page_bytes) as usize);
        let remote = linear(DRAM_REGION, kv.setup().pages + page * page_bytes + within);
        let (source, destination) = if self.load { (remote, local) } else { (local, remote) };
        let counts = [1, 1, bytes as u32];
        (Descriptor { element: Element::B1, counts, source, destination, ..Descriptor::default() }, bytes)
    }

    /// The edge: writes a beat, and steps to the next descriptor behind the last one.
    pub(super) fn clock(&mut self, bus: usize, kv: &Kv, memory: &mut Memory) -> Result<(), Fault> {
        let (mut job, bytes) = self.job(kv, memory);
        let number = usize::from(self.number);
        let at = SLOT * number;
        if at + SLOT > COMPOSE_BYTES {
            let cause = "the pages are scattered over more pieces than the control RAM holds descriptors".into();
            return Err(Fault::Dma { number, cause });
        }
        job.tag = KV as u32;
        job.link = (self.at + bytes < self.end).then(|| control(at + SLOT));
        let beat = bus * usize::from(self.beat);
        memory.control[at + beat..][..bus].copy_from_slice(&job.encode()[beat..][..bus]);
        self.beat += 1;
        if bus * usize::from(self.beat) == WIRE_BYTES {
            self.beat = 0;
            self.number += 1;
            self.at += bytes;
            self.local += bytes;
        }
        Ok(())
    }

    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        v.reg("stream_q", 32, Format::Unsigned, &mut self.stream);
        v.reg("load_q", 1, Format::Unsigned, &mut self.load);
        v.reg("at_q", 64, Format::Hex, &mut self.at);
        v.reg("end_q", 64, Format::Hex, &mut self.end);
        v.reg("local_q", 64, Format::Hex, &mut self.local);
        v.reg("descriptor_q", 8, Format::Unsigned, &mut self.number);
        v.reg("beat_q", 8, Format::Unsigned, &mut self.beat);
    }
}
