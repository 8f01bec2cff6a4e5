//! Raw rows: out of the scratchpad as fast as all decoders' output lanes carry values.

use crate::isa::Rows;
use crate::memory::Scratch;
use crate::{Config, Fault, Kv};
use rtl::{Format, Visitor};

/// Reads values in their order, and hands them to the rotate unit: at once, or, where they are rotated, in whole heads.
#[derive(Clone, Debug)]
pub(super) struct RawShell {
    /// Values a cycle.
    rate: usize,
    head_dim: usize,
    from: Rows,
    /// Values of a row, and in all: 32 and 57 bits.
    width: u32,
    total: u64,
    /// Values read, 57 bits.
    read: u64,
    rotated: bool,
    /// The read register: what came on the last edge, behind the values of a head that is not complete; 16 bits of count each.
    values: Vec<u16>,
    count: u16,
    /// Values of the register that go on.
    whole: u16,
}

impl RawShell {
    pub(super) fn new(config: &Config, kv: &Kv) -> Self {
        let (rate, head_dim) = (config.codec.decoders * config.codec.values, kv.setup().head_dim);
        Self {
            rate,
            head_dim,
            from: Rows::default(),
            width: 0,
            total: 0,
            read: 0,
            rotated: false,
            values: vec![0; rate + head_dim],
            count: 0,
            whole: 0,
        }
    }

    pub(super) fn start(&mut self, from: Rows, rows: usize, width: usize, rotated: bool) {
        (self.from, self.width, self.total) = (from, width as u32, (rows * width) as u64);
        (self.read, self.rotated, self.count, self.whole) = (0, rotated, 0, 0);
    }

    /// All values have been read.
    pub(super) fn done(&self) -> bool {
        self.read == self.total
    }

    /// The wires to the rotate unit: what this edge completes.
    pub(super) fn rows(&self) -> Option<(u64, &[u16])> {
        let first = self.read - u64::from(self.count);
        (self.whole > 0).then(|| (first, &self.values[..usize::from(self.whole)]))
    }

    /// The edge: values that went on make room, those of the next cycle's share come in.
    pub(super) fn clock(&mut self, scratch: &Scratch) -> Result<(), Fault> {
        let (whole, count) = (usize::from(self.whole), usize::from(self.count));
        self.values.copy_within(whole..count, 0);
        let mut held = count - whole;
        let take = (self.total - self.read).min(self.rate as u64);
        let end = self.read + take;
        while self.read < end {
            let (row, channel) = (self.read / u64::from(self.width), self.read % u64::from(self.width));
            let part = (end - self.read).min(u64::from(self.width) - channel) as usize;
            let address = u64::from(self.from.base) + row * u64::from(self.from.pitch) + 2 * channel;
            let bytes = scratch.read(address as usize, 2 * part)?;
            let into = &mut self.values[held..held + part];
            into.iter_mut().zip(bytes.as_chunks::<2>().0).for_each(|(x, b)| *x = u16::from_le_bytes(*b));
            held += part;
            self.read += part as u64;
        }
        self.count = held as u16;
        self.whole = if self.rotated { held - held % self.head_dim } else { held } as u16;
        Ok(())
    }

    pub(super) fn reset(&mut self) {
        (self.from, self.width, self.total, self.read) = (Rows::default(), 0, 0, 0);
        (self.rotated, self.count, self.whole) = (false, 0, 0);
        self.values.fill(0);
    }

    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        v.reg("from_q", 32, Format::Hex, &mut self.from.base);
        v.reg("from_pitch_q", 32, Format::Hex, &mut self.from.pitch);
        v.reg("width_q", 32, Format::Unsigned, &mut self.width);
        v.reg("total_q", 57, Format::Unsigned, &mut self.total);
        v.reg("read_q", 57, Format::Unsigned, &mut self.read);
        v.reg("rotated_q", 1, Format::Unsigned, &mut self.rotated);
        v.reg("count_q", 16, Format::Unsigned, &mut self.count);
        v.reg("whole_q", 16, Format::Unsigned, &mut self.whole);
        self.values.iter_mut().enumerate().for_each(|(l, x)| v.reg(("value_q", l), 16, Format::Hex, x));
    }
}
