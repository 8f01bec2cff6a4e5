//! The KV path's shell: one of its three ways at a time.

mod decode;
mod encode;
mod raw;

use super::Ports;
use super::rotate::{Place, Rotate};
use crate::exec::{counted, placed};
use crate::isa::{Op, Tokens};
use crate::memory::Scratch;
use crate::{Config, Fault, Kv};
use ::nkz::TOKENS;
use ::nkz::clocked::TableRam;
use decode::DecodeShell;
use encode::EncodeShell;
use raw::RawShell;
use rtl::{Format, Visitor};

/// What the engine runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    #[default]
    Encode,
    Decode,
    Raw,
}

const WAYS: [Way; 3] = [Way::Encode, Way::Decode, Way::Raw];

/// Encoder, decoders, rotate unit.
#[derive(Clone, Debug)]
pub(super) struct NkzShell {
    way: Way,
    encode: EncodeShell,
    decode: DecodeShell,
    raw: RawShell,
    rotate: Rotate,
}

/// The static tables, a word a column block: the order of the streams of one sequence, then of the blocks.
fn tables(kv: &Kv) -> TableRam {
    let blocks = kv.widths().len();
    let streams = kv.setup().layers * kv.setup().heads * 2;
    let mut ram = TableRam::new(if kv.setup().tables.is_empty() { 0 } else { streams * blocks });
    for stream in 0..streams {
        for block in 0..blocks {
            if let Some(lines) = kv.lines(stream, block) {
                ram.write(stream * blocks + block, lines);
            }
        }
    }
    ram
}

/// The table memory's word of a column block; `None` without calibration.
fn table(kv: &Kv, stream: usize, block: usize) -> Option<u32> {
    let streams = kv.setup().layers * kv.setup().heads * 2;
    (!kv.setup().tables.is_empty()).then(|| (stream % streams * kv.widths().len() + block) as u32)
}

/// Checks where tokens go.
fn tokens_placed(scratch: &Scratch, tokens: &Tokens, count: usize, width: usize) -> Result<(), Fault> {
    let (rows, len) = if tokens.transposed { (width, count) } else { (count, width) };
    placed(scratch, "to", tokens.to, rows, 2 * len)
}

impl NkzShell {
    pub(super) fn new(config: &Config, kv: &Kv) -> Self {
        let tables = tables(kv);
        Self {
            way: Way::Encode,
            encode: EncodeShell::new(tables.clone()),
            decode: DecodeShell::new(config, kv, &tables),
            raw: RawShell::new(config, kv),
            rotate: Rotate::new(config, kv),
        }
    }

    pub(super) fn start(&mut self, op: &Op, ports: &mut Ports<'_>) -> Result<(), Fault> {
        let (kv, scratch) = (&mut *ports.kv, &ports.memory.scratch);
        match op {
            Op::KvEncode { stream, tile, from, to } => {
                placed(scratch, "from", *from, TOKENS, 2 * kv.setup().head_dim)?;
                self.way = Way::Encode;
                self.encode.start(kv, *stream, *tile, *from, *to)
            }
            Op::KvDecode { stream, first, tiles, from, tokens } => {
                let head_dim = kv.setup().head_dim;
                if *tiles > 0 {
                    tokens_placed(scratch, tokens, *tiles as usize * TOKENS, head_dim)?;
                }
                self.way = Way::Decode;
                let position = first.wrapping_mul(TOKENS as u32);
                self.rotate.begin(Place { tokens: *tokens, width: head_dim as u32, position });
                self.decode.start(kv, *stream, (*first, *tiles), *from)
            }
            Op::KvRaw { rows, width, position, from, tokens } => {
                let (count, len) = (counted("rows", *rows)?, counted("width", *width)?);
                placed(scratch, "from", *from, count, 2 * len)?;
                tokens_placed(scratch, tokens, count, len)?;
                self.way = Way::Raw;
                self.rotate.begin(Place { tokens: *tokens, width: *width, position: *position });
                self.raw.start(*from, count, len, tokens.rotated);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn done(&self) -> bool {
        match self.way {
            Way::Encode => self.encode.done(),
            Way::Decode => self.decode.done() && self.rotate.empty(),
            Way::Raw => self.raw.done() && self.rotate.empty(),
        }
    }

    pub(super) fn clock(&mut self, ports: &mut Ports<'_>) -> Result<(), Fault> {
        let (kv, scratch) = (&mut *ports.kv, &mut ports.memory.scratch);
        match self.way {
            Way::Encode => self.encode.clock(kv, scratch),
            Way::Decode => {
                self.decode.clock(kv, scratch)?;
                self.rotate.clock(kv, scratch, |decoder| self.decode.row(decoder))
            }
            Way::Raw => {
                self.raw.clock(scratch)?;
                self.rotate.clock(kv, scratch, |lane| self.raw.rows().filter(|_| lane == 0))
            }
        }
    }

    pub(super) fn reset(&mut self) {
        self.way = Way::Encode;
        self.encode.reset();
        self.decode.reset();
        self.raw.reset();
        self.rotate.reset();
    }

    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        let mut way = self.way as u8;
        v.reg("way_q", 2, Format::Enum(&["ENCODE", "DECODE", "RAW"]), &mut way);
        self.way = WAYS[usize::from(way).min(2)];
        v.scope("encode", |v| self.encode.visit(v));
        v.scope("decode", |v| self.decode.visit(v));
        v.scope("raw", |v| self.raw.visit(v));
        v.scope("rotate", |v| self.rotate.visit(v));
    }
}
