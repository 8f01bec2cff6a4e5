//! Which bytes of the scratchpad a command reads and writes.

use npu::isa::{Block, Op, Operands, RowOp, Rows, Tokens, Vector};
use npu::nkz::TOKENS;
use std::ops::Range;

/// Spans of the scratchpad.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Read.
    pub reads: Vec<Range<u32>>,
    /// Written.
    pub writes: Vec<Range<u32>>,
}

fn span(rows: Rows, count: u32, bytes: u32) -> Range<u32> {
    rows.base..rows.base + (count.max(1) - 1) * rows.pitch + bytes
}

fn plain(base: u32, bytes: u32) -> Range<u32> {
    base..base + bytes
}

/// Spans of an operation, chains apart. `tile`: channels of a head; `load`: most bytes of a tile range, or of an encoded tile.
pub(crate) fn effects(op: &Op, tile: usize, load: u32) -> Effects {
    let row = 2 * tile as u32;
    let out = |tokens: &Tokens, count: u32, width: u32| match tokens.transposed {
        true => span(tokens.to, width, 2 * count),
        false => span(tokens.to, count, 2 * width),
    };
    let (reads, writes) = match op {
        Op::Dma { .. } => (vec![], vec![]),
        Op::KvLoad { to, .. } => (vec![], vec![plain(*to, load)]),
        Op::KvStore { from, .. } => (vec![plain(*from, load)], vec![]),
        Op::KvEncode { from, to, .. } => (vec![span(*from, TOKENS as u32, row)], vec![plain(*to, load)]),
        Op::KvDecode { tiles, from, tokens, .. } => {
            (vec![plain(*from, load)], vec![out(tokens, tiles * TOKENS as u32, tile as u32)])
        }
        Op::KvRaw { rows, width, from, tokens, .. } => {
            (vec![span(*from, *rows, 2 * width)], vec![out(tokens, *rows, *width)])
        }
        Op::Matmul(p) => {
            let groups = |group: usize| p.k.div_ceil(group as u32);
            let (x, w, w_rows, scales) = match p.operands {
                Operands::Float(f) => {
                    let bytes = f.width().div_ceil(8);
                    (p.k * bytes, p.n * bytes, p.k, [0, 0])
                }
                Operands::PerChannel(_) => (p.k, p.n, p.k, [4 * p.m, 4 * p.n]),
                Operands::PerGroup { group, .. } => {
                    let groups = groups(usize::from(group));
                    (p.k, p.n, p.k, [4 * p.m * groups, 4 * groups * p.n])
                }
                Operands::Stored(block) => {
                    let groups = groups(Block::VALUES);
                    (p.k, p.n * block.bytes() as u32, groups, [4 * p.m * groups, 0])
                }
            };
            let mut reads = vec![span(p.x, p.m, x), span(p.w, w_rows, w)];
            let places = [p.x_scales, p.w_scales];
            reads.extend(places.iter().zip(scales).filter(|(_, n)| *n > 0).map(|(&base, n)| plain(base, n)));
            (reads, vec![span(p.y, p.m, p.n * if p.y_bf16 { 2 } else { 4 })])
        }
        Op::Vector(r) => return row_effects(r),
    };
    Effects { reads, writes }
}

fn row_effects(r: &RowOp) -> Effects {
    let fp32 = |place| span(place, r.rows, 4 * r.len);
    let bf16 = |place| span(place, r.rows, 2 * r.len);
    let mut reads = vec![if r.op == Vector::ToFp32 { bf16(r.x) } else { fp32(r.x) }];
    let writes = match r.op {
        Vector::RmsNorm { weight, bf16: narrow, .. } => {
            reads.push(plain(weight, 4 * r.len));
            vec![if narrow { bf16(r.y) } else { fp32(r.y) }]
        }
        Vector::Quantize { group, scales, .. } => {
            let groups = if group == 0 { 1 } else { r.len.div_ceil(u32::from(group)) };
            vec![span(r.y, r.rows, r.len), span(scales, r.rows, 4 * groups)]
        }
        Vector::SwiGlu { up: b } | Vector::Add { b } => {
            reads.push(fp32(b));
            vec![fp32(r.y)]
        }
        Vector::Softmax { .. } | Vector::Rope { .. } | Vector::ToBf16 => vec![bf16(r.y)],
        Vector::Argmax => vec![span(r.y, r.rows, 4)],
        Vector::ToFp32 => vec![fp32(r.y)],
    };
    Effects { reads, writes }
}
