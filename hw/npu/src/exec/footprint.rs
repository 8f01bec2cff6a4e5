//! Which banks a command works in: known before it starts, from its fields and the KV index alone.

use super::counted;
use crate::isa::{Block, Op, Operands, RowOp, Rows, Tokens, Vector};
use crate::memory::Scratch;
use crate::{Fault, Kv};
use nkz::TOKENS;
use std::ops::Range;

/// Banks that a command holds while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footprint {
    /// Bit by bit.
    pub banks: u64,
    /// Ports of the engine that share the worst bank, at least 1: the engine advances in one of so many cycles.
    pub conflict: u64,
}

/// The bytes from the first to the last of `count` rows.
fn span(rows: Rows, count: usize, bytes: usize) -> Range<usize> {
    let base = rows.base as usize;
    match count {
        0 => base..base,
        _ => base..base.saturating_add((count - 1).saturating_mul(rows.pitch as usize)).saturating_add(bytes),
    }
}

fn plain(base: u32, bytes: usize) -> Range<usize> {
    span(Rows { base, pitch: 0 }, 1, bytes)
}

/// Banks and conflicts of an operation.
pub(crate) fn footprint(op: &Op, kv: &Kv, scratch: &Scratch) -> Result<Footprint, Fault> {
    if let Op::Dma { banks, .. } = op {
        return Ok(Footprint { banks: *banks, conflict: 1 });
    }
    let ports = ports(op, kv)?;
    let masks = ports.iter().map(|ranges| ranges.iter().fold(0, |mask, range| mask | scratch.banks(range)));
    let mut sharing = [0u64; 64];
    let mut banks = 0u64;
    for mask in masks {
        banks |= mask;
        (0..64).filter(|bank| mask >> bank & 1 == 1).for_each(|bank| sharing[bank] += 1);
    }
    Ok(Footprint { banks, conflict: sharing.into_iter().max().unwrap_or(1).max(1) })
}

/// The ranges behind each port of the engine. An operand's scales come through its own port, beside its values.
fn ports(op: &Op, kv: &Kv) -> Result<Vec<Vec<Range<usize>>>, Fault> {
    let tile = kv.setup().head_dim * 2;
    let out = |tokens: &Tokens, count: usize, width: usize| match tokens.transposed {
        true => vec![span(tokens.to, width, 2 * count)],
        false => vec![span(tokens.to, count, 2 * width)],
    };
    Ok(match op {
        Op::Dma { .. } => Vec::new(),
        Op::KvLoad { stream, first, tiles, to } => {
            let (_, bytes) = kv.span(kv.at(*stream)?, *first, *tiles)?;
            vec![vec![plain(*to, bytes)]]
        }
        Op::KvStore { stream, tile, from } => {
            let (_, bytes) = kv.span(kv.at(*stream)?, *tile, 1)?;
            vec![vec![plain(*from, bytes)]]
        }
        Op::Matmul(p) => {
            let (m, n, k) = (counted("m", p.m)?, counted("n", p.n)?, counted("k", p.k)?);
            let mut x = vec![];
            let mut w = vec![];
            match p.operands {
                Operands::Float(f) => {
                    let bytes = f.width().div_ceil(8) as usize;
                    x.push(span(p.x, m, k * bytes));
                    w.push(span(p.w, k, n * bytes));
                }
                Operands::PerChannel(_) => {
                    x.extend([span(p.x, m, k), plain(p.x_scales, 4 * m)]);
                    w.extend([span(p.w, k, n), plain(p.w_scales, 4 * n)]);
                }
                Operands::PerGroup { group, .. } => {
                    let groups = k.div_ceil(usize::from(group));
                    x.extend([span(p.x, m, k), plain(p.x_scales, 4 * m * groups)]);
                    w.extend([span(p.w, k, n), plain(p.w_scales, 4 * groups * n)]);
                }
                Operands::Stored(block) => {
                    let groups = k.div_ceil(Block::VALUES);
                    x.extend([span(p.x, m, k), plain(p.x_scales, 4 * m * groups)]);
                    w.push(span(p.w, groups, n * block.bytes()));
                }
            }
            vec![x, w, vec![span(p.y, m, n * if p.y_bf16 { 2 } else { 4 })]]
        }
        Op::Vector(r) => row_ports(r)?,
        Op::KvEncode { from, to, .. } => {
            vec![vec![span(*from, TOKENS, tile)], vec![plain(*to, kv.setup().tile_bytes())]]
        }
        Op::KvDecode { stream, first, tiles, from, tokens } => {
            let (_, bytes) = kv.span(kv.at(*stream)?, *first, *tiles)?;
            vec![vec![plain(*from, bytes)], out(tokens, *tiles as usize * TOKENS, kv.setup().head_dim)]
        }
        Op::KvRaw { rows, width, from, tokens, .. } => {
            let (rows, width) = (counted("rows", *rows)?, counted("width", *width)?);
            vec![vec![span(*from, rows, 2 * width)], out(tokens, rows, width)]
        }
    })
}

fn row_ports(r: &RowOp) -> Result<Vec<Vec<Range<usize>>>, Fault> {
    let (rows, len) = (counted("rows", r.rows)?, counted("len", r.len)?);
    let fp32 = |place| span(place, rows, 4 * len);
    let bf16 = |place| span(place, rows, 2 * len);
    let a = match r.op {
        Vector::ToFp32 => bf16(r.x),
        _ => fp32(r.x),
    };
    let b = match r.op {
        Vector::RmsNorm { weight, .. } => vec![plain(weight, 4 * len)],
        Vector::SwiGlu { up } => vec![fp32(up)],
        Vector::Add { b } => vec![fp32(b)],
        _ => vec![],
    };
    let y = match r.op {
        Vector::RmsNorm { bf16: true, .. } | Vector::Softmax { .. } | Vector::Rope { .. } | Vector::ToBf16 => {
            vec![bf16(r.y)]
        }
        Vector::Quantize { group, scales, .. } => {
            let groups = if group == 0 { 1 } else { len.div_ceil(usize::from(group)) };
            vec![span(r.y, rows, len), span(scales, rows, 4 * groups)]
        }
        Vector::Argmax => vec![span(r.y, rows, 4)],
        _ => vec![fp32(r.y)],
    };
    Ok(vec![vec![a], b, y])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Codes, Matmul, Mode as Product, Stream};
    use crate::{Config, KvSetup, Memory};
    use numeric::FloatFormat;

    const BANK: u32 = 1 << 16;

    fn machine() -> (Memory, Kv) {
        let setup = KvSetup {
            sequences: 1,
            layers: 1,
            heads: 1,
            head_dim: 16,
            keys: nkz::Mode::Raw,
            values: nkz::Mode::Raw,
            tables: Vec::new(),
            context: 64,
            pages: 1 << 20,
            frequencies: vec![1.0; 8],
            interleaved: false,
        };
        let scratchpad = crate::Scratchpad { bytes: 16 * BANK, banks: 16 };
        crate::npu::set_up(&Config { scratchpad, ..Config::default() }, setup).unwrap()
    }

    /// Holds what an operation asks for to `bytes` of each of its ranges, which begin so that the last byte is the last of banks
    /// 0, 2, 4 … in turn, or the first of the one behind it.
    fn holds(name: &str, bytes: &[u32], op: impl Fn(&dyn Fn(usize) -> u32) -> Op) {
        let (memory, kv) = machine();
        for over in [0, 1] {
            let place = |range: usize| (2 * range as u32 + 1) * BANK - bytes[range] + over;
            let found = footprint(&op(&place), &kv, &memory.scratch).unwrap();
            let banks = (0..bytes.len()).fold(0, |mask, range| mask | (1 + 2 * u64::from(over)) << (2 * range));
            assert_eq!(found, Footprint { banks, conflict: 1 }, "{name}, {over} bytes over the edge");
        }
    }

    fn rows(base: u32, pitch: u32) -> Rows {
        Rows { base, pitch }
    }

    #[test]
    fn a_product_holds_the_bytes_of_its_operands() {
        let product = |operands, k, y_bf16, at: &dyn Fn(usize) -> u32| {
            let (x, w, y) = (rows(at(0), 200), rows(at(1), 20), rows(at(2), 40));
            let (x_scales, w_scales) = (at(3), at(4));
            Op::Matmul(Matmul { mode: Product::Gemm, operands, m: 3, n: 5, k, x, x_scales, w, w_scales, y, y_bf16 })
        };
        let float = Operands::Float(FloatFormat::BF16);
        holds("BF16", &[400 + 140, 69 * 20 + 10, 80 + 20], |at| product(float, 70, false, &|i| at(i % 3)));
        let float = Operands::Float(FloatFormat::E4M3);
        holds("E4M3", &[400 + 70, 69 * 20 + 5, 80 + 10], |at| product(float, 70, true, &|i| at(i % 3)));
        let per_channel = Operands::PerChannel(None);
        holds("INT8", &[470, 69 * 20 + 5, 100, 12, 20], |at| product(per_channel, 70, false, at));
        let per_group = Operands::PerGroup { format: None, group: 32 };
        holds("INT8 by groups", &[470, 69 * 20 + 5, 100, 36, 60], |at| product(per_group, 70, false, at));
        let stored = |at: &dyn Fn(usize) -> u32| product(Operands::Stored(Block::Q41), 64, false, at);
        holds("Q4_1", &[464, 20 + 5 * 20, 100, 24], |at| stored(&|i| if i < 4 { at(i) } else { 0 }));
    }

    #[test]
    fn a_row_operation_holds_the_bytes_of_its_rows() {
        let (fp32, bf16) = (128 + 40, 128 + 20);
        let row = |op, at: &dyn Fn(usize) -> u32| {
            Op::Vector(RowOp { op, rows: 3, len: 10, x: rows(at(0), 64), y: rows(at(1), 64) })
        };
        let norm = |at: &dyn Fn(usize) -> u32, bf16| row(Vector::RmsNorm { weight: at(2), epsilon: 0, bf16 }, at);
        holds("RMSNorm", &[fp32, fp32, 40], |at| norm(at, false));
        holds("RMSNorm to BF16", &[fp32, bf16, 40], |at| norm(at, true));
        holds("softmax", &[fp32, bf16], |at| row(Vector::Softmax { scale: 0, visible: 1, step: 0 }, at));
        holds("RoPE", &[fp32, bf16], |at| row(Vector::Rope { position: 0, step: 0 }, at));
        holds("to BF16", &[fp32, bf16], |at| row(Vector::ToBf16, at));
        holds("to FP32", &[bf16, fp32], |at| row(Vector::ToFp32, at));
        holds("SwiGLU", &[fp32, fp32, fp32], |at| row(Vector::SwiGlu { up: rows(at(2), 64) }, at));
        holds("add", &[fp32, fp32, fp32], |at| row(Vector::Add { b: rows(at(2), 64) }, at));
        holds("argmax", &[fp32, 128 + 4], |at| row(Vector::Argmax, at));
        for (group, scales) in [(0, 4), (4, 12)] {
            let op =
                |at: &dyn Fn(usize) -> u32| Vector::Quantize { codes: Codes::Int8, group, scales: rows(at(2), 16) };
            holds("quantise", &[fp32, 128 + 10, 32 + scales], |at| row(op(at), at));
        }
    }

    #[test]
    fn a_kv_operation_holds_the_bytes_of_its_tiles() {
        let stream = Stream::default();
        holds("encode", &[31 * 64 + 32, 1056], |at| Op::KvEncode { stream, tile: 0, from: rows(at(0), 64), to: at(1) });
        for (transposed, bytes) in [(false, 4 * 64 + 32), (true, 15 * 64 + 10)] {
            let tokens = |to| Tokens { to: rows(to, 64), transposed, rotated: false };
            let raw =
                |from, to| Op::KvRaw { rows: 5, width: 16, position: 0, from: rows(from, 64), tokens: tokens(to) };
            holds("raw rows", &[4 * 64 + 32, bytes], |at| raw(at(0), at(1)));
        }
    }

    #[test]
    fn ports_that_share_a_bank_conflict() {
        let (memory, kv) = machine();
        for (up, y, conflict) in [(1, 2, 1), (0, 2, 2), (0, 0, 3)] {
            let at = |bank: u32| rows(bank * BANK, 64);
            let op = RowOp { op: Vector::SwiGlu { up: at(up) }, rows: 3, len: 10, x: at(0), y: at(y) };
            assert_eq!(footprint(&Op::Vector(op), &kv, &memory.scratch).unwrap().conflict, conflict);
        }
    }
}
