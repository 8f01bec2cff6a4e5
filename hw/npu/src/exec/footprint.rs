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
