//! The fields of each command in their order on the wire: one description that is written, read, listed and documented.

use super::{Block, Codes, Command, Matmul, Mode, Op, Operands, RowOp, Rows, Stream, Tokens, Vector};
use numeric::FloatFormat;

/// Goes through a command's fields. Each is shown with its name, its width in bytes (1, 2, 4 or 8) and its value; what is
/// returned takes its place.
pub trait Fields {
    /// One field.
    fn field(&mut self, name: &'static str, bytes: usize, value: u64) -> u64;
}

/// A command that means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} = {value:#x} has no meaning")]
pub struct IsaError {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
}

/// Codes of the operations.
pub(super) const OPCODES: [(u8, &str); 8] = [
    (1, "dma"),
    (2, "kv.load"),
    (3, "kv.store"),
    (4, "matmul"),
    (5, "vector"),
    (6, "kv.encode"),
    (7, "kv.decode"),
    (8, "kv.raw"),
];

/// Codes of the row operations.
pub(super) const ROW_OPS: [&str; 9] =
    ["rms_norm", "quantize", "softmax", "rope", "swiglu", "add", "to_bf16", "to_fp32", "argmax"];

pub(super) fn opcode(op: &Op) -> u8 {
    match op {
        Op::Dma { .. } => 1,
        Op::KvLoad { .. } => 2,
        Op::KvStore { .. } => 3,
        Op::Matmul(_) => 4,
        Op::Vector(_) => 5,
        Op::KvEncode { .. } => 6,
        Op::KvDecode { .. } => 7,
        Op::KvRaw { .. } => 8,
    }
}

/// An operation of the code with all fields zero, for a reader to fill.
pub(super) fn blank(opcode: u8) -> Result<Op, IsaError> {
    let (stream, tokens, rows) = (Stream::default(), Tokens::default(), Rows::default());
    Ok(match opcode {
        1 => Op::Dma { chain: 0, banks: 0 },
        2 => Op::KvLoad { stream, first: 0, tiles: 0, to: 0 },
        3 => Op::KvStore { stream, tile: 0, from: 0 },
        4 => Op::Matmul(Matmul {
            mode: Mode::Gemm,
            operands: Operands::Float(FloatFormat::BF16),
            m: 0,
            n: 0,
            k: 0,
            x: rows,
            x_scales: 0,
            w: rows,
            w_scales: 0,
            y: rows,
            y_bf16: false,
        }),
        5 => Op::Vector(RowOp { op: Vector::ToBf16, rows: 0, len: 0, x: rows, y: rows }),
        6 => Op::KvEncode { stream, tile: 0, from: rows, to: 0 },
        7 => Op::KvDecode { stream, first: 0, tiles: 0, from: 0, tokens },
        8 => Op::KvRaw { rows: 0, width: 0, position: 0, from: rows, tokens },
        _ => return Err(IsaError { field: "opcode", value: u64::from(opcode) }),
    })
}

/// Typed views of [`Fields`].
struct Walk<'a, F: Fields>(&'a mut F);

impl<F: Fields> Walk<'_, F> {
    fn u8(&mut self, name: &'static str, value: u8) -> u8 {
        self.0.field(name, 1, u64::from(value)) as u8
    }

    fn u16(&mut self, name: &'static str, value: u16) -> u16 {
        self.0.field(name, 2, u64::from(value)) as u16
    }

    fn u32(&mut self, name: &'static str, value: u32) -> u32 {
        self.0.field(name, 4, u64::from(value)) as u32
    }

    fn flag(&mut self, name: &'static str, value: bool) -> Result<bool, IsaError> {
        match self.u8(name, u8::from(value)) {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(IsaError { field: name, value: u64::from(other) }),
        }
    }

    fn rows(&mut self, base: &'static str, pitch: &'static str, r: Rows) -> Rows {
        Rows { base: self.u32(base, r.base), pitch: self.u32(pitch, r.pitch) }
    }

    fn stream(&mut self, s: Stream) -> Result<Stream, IsaError> {
        Ok(Stream {
            sequence: self.u8("sequence", s.sequence),
            layer: self.u8("layer", s.layer),
            head: self.u8("head", s.head),
            value: self.flag("value", s.value)?,
        })
    }

    fn tokens(&mut self, t: Tokens) -> Result<Tokens, IsaError> {
        Ok(Tokens {
            to: self.rows("to", "to_pitch", t.to),
            transposed: self.flag("transposed", t.transposed)?,
            rotated: self.flag("rotated", t.rotated)?,
        })
    }

    /// A format code: kind in bits 0..8 (0 INT8, 1 BF16, 2 FP16, 3 E4M3, 4 E5M2, 5 FFP8), of FFP8 its sign in bit 8, its exponent
    /// bits in 12..16, its bias in 16..32.
    fn format(&mut self, name: &'static str, format: Option<FloatFormat>) -> Result<Option<FloatFormat>, IsaError> {
        const KINDS: [FloatFormat; 4] = [FloatFormat::BF16, FloatFormat::FP16, FloatFormat::E4M3, FloatFormat::E5M2];
        let code = match format {
            None => 0,
            Some(f) => match KINDS.iter().position(|k| *k == f) {
                Some(at) => at as u32 + 1,
                None => 5 | u32::from(f.signed()) << 8 | f.exp_bits() << 12 | u32::from(f.bias() as i16 as u16) << 16,
            },
        };
        let code = self.u32(name, code);
        let wrong = IsaError { field: name, value: u64::from(code) };
        match code {
            0 => Ok(None),
            1..=4 => Ok(Some(KINDS[code as usize - 1])),
            _ if code & 0xeff == 5 => {
                let ffp8 =
                    FloatFormat::ffp8(code >> 8 & 1 == 1, code >> 12 & 15, i32::from((code >> 16) as u16 as i16));
                ffp8.map(Some).map_err(|_| wrong)
            }
            _ => Err(wrong),
        }
    }

    fn operands(&mut self, o: Operands) -> Result<Operands, IsaError> {
        let (kind, format, group) = match o {
            Operands::Float(f) => (0, Some(f), 0),
            Operands::PerChannel(f) => (1, f, 0),
            Operands::PerGroup { format, group } => (2, format, group),
            Operands::Stored(Block::Q40) => (3, None, 0),
            Operands::Stored(Block::Q41) => (4, None, 0),
            Operands::Stored(Block::Q80) => (5, None, 0),
        };
        let kind = self.u8("operands", kind);
        let format = self.format("format", format)?;
        let group = self.u16("group", group);
        let bytes = |f: Option<FloatFormat>| f.is_none_or(|f| f.width() == 8);
        let wrong = |field, value| Err(IsaError { field, value });
        match (kind, format) {
            (0, Some(f)) => Ok(Operands::Float(f)),
            (1, f) if bytes(f) => Ok(Operands::PerChannel(f)),
            (2, f) if bytes(f) && group == 0 => wrong("group", 0),
            (2, f) if bytes(f) => Ok(Operands::PerGroup { format: f, group }),
            (3, _) => Ok(Operands::Stored(Block::Q40)),
            (4, _) => Ok(Operands::Stored(Block::Q41)),
            (5, _) => Ok(Operands::Stored(Block::Q80)),
            _ => wrong("operands", u64::from(kind)),
        }
    }

    fn matmul(&mut self, p: Matmul) -> Result<Matmul, IsaError> {
        let mode = match self.flag("gemv", p.mode == Mode::Gemv)? {
            true => Mode::Gemv,
            false => Mode::Gemm,
        };
        Ok(Matmul {
            mode,
            y_bf16: self.flag("y_bf16", p.y_bf16)?,
            operands: self.operands(p.operands)?,
            m: self.u32("m", p.m),
            n: self.u32("n", p.n),
            k: self.u32("k", p.k),
            x: self.rows("x", "x_pitch", p.x),
            x_scales: self.u32("x_scales", p.x_scales),
            w: self.rows("w", "w_pitch", p.w),
            w_scales: self.u32("w_scales", p.w_scales),
            y: self.rows("y", "y_pitch", p.y),
        })
    }

    fn row_op(&mut self, r: RowOp) -> Result<RowOp, IsaError> {
        let code = r.op.code();
        let new = usize::from(self.u8("row_op", code as u8));
        let (rows, len) = (self.u32("rows", r.rows), self.u32("len", r.len));
        let (x, y) = (self.rows("x", "x_pitch", r.x), self.rows("y", "y_pitch", r.y));
        // A reader starts from a blank operation, whose fields are zero.
        let old = if new == code { r.op } else { blank_row_op(new)? };
        Ok(RowOp { op: self.row_fields(old)?, rows, len, x, y })
    }

    fn row_fields(&mut self, op: Vector) -> Result<Vector, IsaError> {
        Ok(match op {
            Vector::RmsNorm { weight, epsilon, bf16 } => Vector::RmsNorm {
                weight: self.u32("weight", weight),
                epsilon: self.u32("epsilon", epsilon),
                bf16: self.flag("bf16", bf16)?,
            },
            Vector::Quantize { codes, group, scales } => {
                let format = match codes {
                    Codes::Int8 => None,
                    Codes::Float(f) => Some(f),
                };
                let codes = match self.format("format", format)? {
                    None => Codes::Int8,
                    Some(f) if f.width() == 8 => Codes::Float(f),
                    Some(f) => return Err(IsaError { field: "format", value: u64::from(f.width()) }),
                };
                Vector::Quantize {
                    codes,
                    group: self.u16("group", group),
                    scales: self.rows("scales", "scales_pitch", scales),
                }
            }
            Vector::Softmax { scale, visible, step } => Vector::Softmax {
                scale: self.u32("scale", scale),
                visible: self.u32("visible", visible),
                step: self.u8("step", step),
            },
            Vector::Rope { position, step } => {
                Vector::Rope { position: self.u32("position", position), step: self.u8("step", step) }
            }
            Vector::SwiGlu { up } => Vector::SwiGlu { up: self.rows("up", "up_pitch", up) },
            Vector::Add { b } => Vector::Add { b: self.rows("b", "b_pitch", b) },
            same @ (Vector::ToBf16 | Vector::ToFp32 | Vector::Argmax) => same,
        })
    }
}

impl Vector {
    /// Its code on the wire.
    pub(super) const fn code(&self) -> usize {
        match self {
            Vector::RmsNorm { .. } => 0,
            Vector::Quantize { .. } => 1,
            Vector::Softmax { .. } => 2,
            Vector::Rope { .. } => 3,
            Vector::SwiGlu { .. } => 4,
            Vector::Add { .. } => 5,
            Vector::ToBf16 => 6,
            Vector::ToFp32 => 7,
            Vector::Argmax => 8,
        }
    }
}

fn blank_row_op(code: usize) -> Result<Vector, IsaError> {
    let rows = Rows::default();
    Ok(match code {
        0 => Vector::RmsNorm { weight: 0, epsilon: 0, bf16: false },
        1 => Vector::Quantize { codes: Codes::Int8, group: 0, scales: rows },
        2 => Vector::Softmax { scale: 0, visible: 0, step: 0 },
        3 => Vector::Rope { position: 0, step: 0 },
        4 => Vector::SwiGlu { up: rows },
        5 => Vector::Add { b: rows },
        6 => Vector::ToBf16,
        7 => Vector::ToFp32,
        8 => Vector::Argmax,
        _ => return Err(IsaError { field: "row_op", value: code as u64 }),
    })
}

impl Command {
    /// Shows every field behind the opcode in its order on the wire, and gives the command of what was returned.
    ///
    /// # Errors
    /// A value that has no meaning.
    pub fn fields(self, fields: &mut impl Fields) -> Result<Self, IsaError> {
        let mut w = Walk(fields);
        let (tag, wait, signal) = (w.u32("tag", self.tag), w.u32("wait", self.wait), w.u32("signal", self.signal));
        let op = match self.op {
            Op::Dma { chain, banks } => {
                Op::Dma { chain: w.0.field("chain", 8, chain), banks: w.0.field("banks", 8, banks) }
            }
            Op::KvLoad { stream, first, tiles, to } => Op::KvLoad {
                stream: w.stream(stream)?,
                first: w.u32("first", first),
                tiles: w.u32("tiles", tiles),
                to: w.u32("to", to),
            },
            Op::KvStore { stream, tile, from } => {
                Op::KvStore { stream: w.stream(stream)?, tile: w.u32("tile", tile), from: w.u32("from", from) }
            }
            Op::Matmul(p) => Op::Matmul(w.matmul(p)?),
            Op::Vector(r) => Op::Vector(w.row_op(r)?),
            Op::KvEncode { stream, tile, from, to } => Op::KvEncode {
                stream: w.stream(stream)?,
                tile: w.u32("tile", tile),
                from: w.rows("from", "from_pitch", from),
                to: w.u32("to", to),
            },
            Op::KvDecode { stream, first, tiles, from, tokens } => Op::KvDecode {
                stream: w.stream(stream)?,
                first: w.u32("first", first),
                tiles: w.u32("tiles", tiles),
                from: w.u32("from", from),
                tokens: w.tokens(tokens)?,
            },
            Op::KvRaw { rows, width, position, from, tokens } => Op::KvRaw {
                rows: w.u32("rows", rows),
                width: w.u32("width", width),
                position: w.u32("position", position),
                from: w.rows("from", "from_pitch", from),
                tokens: w.tokens(tokens)?,
            },
        };
        Ok(Self { wait, signal, tag, op })
    }
}
