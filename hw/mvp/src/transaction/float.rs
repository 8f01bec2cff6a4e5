//! Float × float → FP32 in the specified order: within a tile s = fma(x, w, s) from +0, k ascending; then the tiles' sums one after
//! the other. Columns are independent, so they share a vector register without touching the order of any of them.

use crate::Job;
use numeric::fast::{DecodeTable, Kernel, canonical, decode_bf16, decode_fp16, dispatch, fma};
use std::ops::Range;

/// Rows of Y in a block.
const BLOCK_ROWS: usize = 6;
/// Columns of Y in a block.
const BLOCK_COLS: usize = 16;
/// Columns of Y in a strip of the vector product.
const STRIP: usize = 32;
/// k-steps that are packed at a time, rounded to whole tiles.
const PACKED: usize = 256;
/// Up to so many rows of X the weights are used as they lie; from more it pays to pack them.
const UNPACKED_ROWS: usize = 2;

/// Codes into FP32 values, exactly.
pub(super) trait Decode: Copy {
    /// A word that holds a code.
    type Code: Copy + Default;
    /// Its value.
    fn value(self, code: Self::Code) -> f32;
}

/// BF16.
#[derive(Clone, Copy)]
pub(super) struct Bf16;

impl Decode for Bf16 {
    type Code = u16;
    #[inline(always)]
    fn value(self, code: u16) -> f32 {
        decode_bf16(code)
    }
}

/// FP16.
#[derive(Clone, Copy)]
pub(super) struct Fp16;

impl Decode for Fp16 {
    type Code = u16;
    #[inline(always)]
    fn value(self, code: u16) -> f32 {
        decode_fp16(code)
    }
}

/// Formats of up to 8 bits, by arithmetic that the compiler vectorises.
pub(super) use numeric::fast::Narrow;

impl Decode for Narrow {
    type Code = u8;
    #[inline(always)]
    fn value(self, code: u8) -> f32 {
        Narrow::value(&self, code)
    }
}

/// The same by table.
impl Decode for &DecodeTable {
    type Code = u8;
    #[inline(always)]
    fn value(self, code: u8) -> f32 {
        DecodeTable::value(self, code)
    }
}

/// Y[M, N] = X[:, k] · W[k, :] over tiles of `depth`; `x` is M × K values, `w` K × N codes. A NaN result is canonical.
pub(super) fn product<D: Decode>(
    job: Job,
    k: Range<usize>,
    depth: usize,
    x: &[f32],
    (w, decode): (&[D::Code], D),
    y: &mut [f32],
) {
    // −0 + s is s, whatever s: the first tile's sum enters as it is.
    y.fill(-0.0);
    if job.m <= UNPACKED_ROWS {
        dispatch(Vectors { job, k, depth, x, w, decode, y });
    } else {
        dispatch(Blocks { job, k, depth, x, w, decode, y });
    }
}

/// Many rows: blocks of Y from packed panels.
struct Blocks<'a, D: Decode> {
    job: Job,
    k: Range<usize>,
    depth: usize,
    x: &'a [f32],
    w: &'a [D::Code],
    decode: D,
    y: &'a mut [f32],
}

impl<D: Decode> Kernel for Blocks<'_, D> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { job, k, depth, x, w, decode, y } = self;
        let packed = depth * (PACKED / depth).max(1);
        let mut acts = vec![[0f32; BLOCK_ROWS]; job.m.div_ceil(BLOCK_ROWS) * packed];
        let mut weights = vec![[0f32; BLOCK_COLS]; packed];
        for start in k.clone().step_by(packed) {
            let k = start..(start + packed).min(k.end);
            for (x, acts) in x.chunks(BLOCK_ROWS * job.k).zip(acts.chunks_exact_mut(packed)) {
                for (r, x) in x.chunks_exact(job.k).enumerate() {
                    for (act, &x) in acts.iter_mut().zip(&x[k.clone()]) {
                        act[r] = x;
                    }
                }
            }
            for n in (0..job.n).step_by(BLOCK_COLS) {
                let n = n..(n + BLOCK_COLS).min(job.n);
                for (k, weights) in k.clone().zip(&mut weights) {
                    for (weight, &code) in weights.iter_mut().zip(&w[k * job.n..][n.clone()]) {
                        *weight = decode.value(code);
                    }
                }
                for (acts, y) in acts.chunks_exact(packed).zip(y.chunks_mut(BLOCK_ROWS * job.n)) {
                    let mut sums = [[0f32; BLOCK_COLS]; BLOCK_ROWS];
                    for (sums, y) in sums.iter_mut().zip(y.chunks_exact(job.n)) {
                        sums[..n.len()].copy_from_slice(&y[n.clone()]);
                    }
                    block::<FMA>(depth, &acts[..k.len()], &weights[..k.len()], &mut sums);
                    for (sums, y) in sums.iter().zip(y.chunks_exact_mut(job.n)) {
                        y[n.clone()].copy_from_slice(&sums[..n.len()]);
                    }
                }
            }
        }
        y.iter_mut().for_each(|y| *y = canonical(*y));
    }
}

/// Adds tile after tile to a block of sums.
#[inline(always)]
fn block<const FMA: bool>(
    depth: usize,
    x: &[[f32; BLOCK_ROWS]],
    w: &[[f32; BLOCK_COLS]],
    sums: &mut [[f32; BLOCK_COLS]; BLOCK_ROWS],
) {
    for (x, w) in x.chunks(depth).zip(w.chunks(depth)) {
        let mut tile = [[0f32; BLOCK_COLS]; BLOCK_ROWS];
        for (x, w) in x.iter().zip(w) {
            for r in 0..BLOCK_ROWS {
                for c in 0..BLOCK_COLS {
                    tile[r][c] = fma::<FMA>(x[r], w[c], tile[r][c]);
                }
            }
        }
        for r in 0..BLOCK_ROWS {
            for c in 0..BLOCK_COLS {
                sums[r][c] += tile[r][c];
            }
        }
    }
}

/// Few rows: strips of Y from the codes as they lie.
struct Vectors<'a, D: Decode> {
    job: Job,
    k: Range<usize>,
    depth: usize,
    x: &'a [f32],
    w: &'a [D::Code],
    decode: D,
    y: &'a mut [f32],
}

impl<D: Decode> Kernel for Vectors<'_, D> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { job, k, depth, x, w, decode, y } = self;
        for (x, y) in x.chunks_exact(job.k).zip(y.chunks_exact_mut(job.n)) {
            let (strips, rest) = y.as_chunks_mut::<STRIP>();
            let from = job.n - rest.len();
            for tile in k.clone().step_by(depth) {
                let k = tile..(tile + depth).min(k.end);
                for (i, y) in strips.iter_mut().enumerate() {
                    let mut sums = [0f32; STRIP];
                    for (&x, w) in x[k.clone()].iter().zip(w[k.start * job.n..].chunks(job.n)) {
                        let w: &[D::Code; STRIP] = &w[i * STRIP..].as_chunks().0[0];
                        for (sum, &w) in sums.iter_mut().zip(w) {
                            *sum = fma::<FMA>(x, decode.value(w), *sum);
                        }
                    }
                    for (y, sum) in y.iter_mut().zip(&sums) {
                        *y += sum;
                    }
                }
                for (c, y) in rest.iter_mut().enumerate() {
                    let column = x[k.clone()].iter().zip(k.clone());
                    *y += column.fold(0.0, |sum, (&x, k)| fma::<FMA>(x, decode.value(w[k * job.n + from + c]), sum));
                }
            }
            y.iter_mut().for_each(|y| *y = canonical(*y));
        }
    }
}
