//! Products with scales per group along k: a tile's partial sums enter the FP32 sums by one fused multiply-add (two where a stored
//! minimum counts), tile after tile. Columns are independent and share vector registers; none changes its order.

use super::float::Decode;
use crate::simd::{self, Pair, pair};
use crate::{Config, GemmError, Job};
use numeric::fast::{Kernel, canonical, dispatch, fma};
use std::ops::Range;

/// Rows of Y in a block.
const ROWS: usize = simd::BLOCK_ROWS;
/// Columns of Y in a block.
const COLS: usize = simd::BLOCK_COLS;
/// Columns of Y in a strip of the vector product.
const STRIP: usize = simd::STRIP;
/// Packed words along k that are made at a time.
const PACKED: usize = 256;
/// Up to so many rows of X the weights are used as they lie; from more it pays to pack them.
const UNPACKED_ROWS: usize = 3;

/// Scales of a product's ⌈K/g⌉ groups along k, FP32.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupScales<'a> {
    /// s_x\[m, group\], M × groups, row by row.
    pub x: &'a [f32],
    /// s_w\[group, n\], groups × N, row by row.
    pub w: &'a [f32],
    /// min\[group, n\], groups × N, or none; integers only. A weight is s_w·q + min.
    pub minima: &'a [f32],
}

impl GroupScales<'_> {
    /// Checks the sizes against the job.
    pub(super) fn check(&self, job: Job, group: usize, is_float: bool) -> Result<(), GemmError> {
        let groups = job.k.div_ceil(group);
        let wants = [
            ("scales of X", self.x.len(), job.m * groups),
            ("scales of W", self.w.len(), groups * job.n),
            ("minima of W", self.minima.len(), if self.minima.is_empty() { 0 } else { groups * job.n }),
        ];
        if let Some((what, got, expected)) = wants.into_iter().find(|(_, got, expected)| got != expected) {
            return Err(GemmError::Scales { what, got, expected, group });
        }
        if is_float && !self.minima.is_empty() {
            return Err(GemmError::Minima);
        }
        Ok(())
    }
}

/// How a datapath makes the partial sums of one tile.
pub(super) trait Partial: Copy {
    /// A value of X.
    type X: Copy + Default;
    /// A code of W.
    type W: Copy + Default;
    /// k-steps of X in one word.
    type Act: Copy + Default;
    /// k-steps of W in one word.
    type Weight: Copy + Default;
    /// k-steps in a word, 1 or 2.
    const STEPS: usize;
    /// Packs k-steps, the lower first; a second one that does not exist is zero.
    fn act(x: [Self::X; 2]) -> Self::Act;
    /// The same for W.
    fn weight(self, w: [Self::W; 2]) -> Self::Weight;
    /// A block's sums over a tile.
    fn block<const FMA: bool>(x: &[[Self::Act; ROWS]], w: &[[Self::Weight; COLS]]) -> [[f32; COLS]; ROWS];
    /// A strip's sums over a tile from codes as they lie: column `at` and on, of rows of `n`.
    fn strip<const FMA: bool>(self, x: &[Self::X], w: &[Self::W], n: usize, at: usize) -> [f32; STRIP];
    /// Column `at`'s sum over a tile.
    fn column<const FMA: bool>(self, x: &[Self::X], w: &[Self::W], n: usize, at: usize) -> f32;
    /// Σx.
    fn sum(x: &[Self::X]) -> f32;
}

/// INT8 × INT8 or INT4: exact in 32 bits, and in FP32, since a tile has at most 512 products.
#[derive(Clone, Copy)]
pub(super) struct Integers;

impl Partial for Integers {
    type X = i8;
    type W = i8;
    type Act = Pair;
    type Weight = Pair;
    const STEPS: usize = 2;

    #[inline(always)]
    fn act([low, high]: [i8; 2]) -> Pair {
        pair(low, high)
    }

    #[inline(always)]
    fn weight(self, [low, high]: [i8; 2]) -> Pair {
        pair(low, high)
    }

    #[inline(always)]
    fn block<const FMA: bool>(x: &[[Pair; ROWS]], w: &[[Pair; COLS]]) -> [[f32; COLS]; ROWS] {
        let mut sums = [[0; COLS]; ROWS];
        simd::block(x, w, &mut sums);
        sums.map(|row| row.map(|sum| sum as f32))
    }

    #[inline(always)]
    fn strip<const FMA: bool>(self, x: &[i8], w: &[i8], n: usize, at: usize) -> [f32; STRIP] {
        let mut pairs = [0; PACKED];
        let (whole, odd) = x.as_chunks::<2>();
        pairs.iter_mut().zip(whole).for_each(|(pair, &[low, high])| *pair = Self::act([low, high]));
        let mut sums = [0; STRIP];
        simd::strip(&pairs[..whole.len()], w, n, at, &mut sums);
        if let [x] = odd {
            let row = &w[2 * whole.len() * n + at..][..STRIP];
            sums.iter_mut().zip(row).for_each(|(sum, &w)| *sum += i32::from(*x) * i32::from(w));
        }
        sums.map(|sum| sum as f32)
    }

    #[inline(always)]
    fn column<const FMA: bool>(self, x: &[i8], w: &[i8], n: usize, at: usize) -> f32 {
        x.iter().zip(w[at..].iter().step_by(n)).map(|(&x, &w)| i32::from(x) * i32::from(w)).sum::<i32>() as f32
    }

    #[inline(always)]
    fn sum(x: &[i8]) -> f32 {
        x.iter().map(|&x| i32::from(x)).sum::<i32>() as f32
    }
}

/// Float × float: s = fma(x, w, s) from +0, k ascending.
#[derive(Clone, Copy)]
pub(super) struct Floats<D>(pub(super) D);

impl<D: Decode> Partial for Floats<D> {
    type X = f32;
    type W = D::Code;
    type Act = f32;
    type Weight = f32;
    const STEPS: usize = 1;

    #[inline(always)]
    fn act([x, _]: [f32; 2]) -> f32 {
        x
    }

    #[inline(always)]
    fn weight(self, [w, _]: [D::Code; 2]) -> f32 {
        self.0.value(w)
    }

    #[inline(always)]
    fn block<const FMA: bool>(x: &[[f32; ROWS]], w: &[[f32; COLS]]) -> [[f32; COLS]; ROWS] {
        let mut sums = [[0f32; COLS]; ROWS];
        for (x, w) in x.iter().zip(w) {
            for r in 0..ROWS {
                for c in 0..COLS {
                    sums[r][c] = fma::<FMA>(x[r], w[c], sums[r][c]);
                }
            }
        }
        sums
    }

    #[inline(always)]
    fn strip<const FMA: bool>(self, x: &[f32], w: &[D::Code], n: usize, at: usize) -> [f32; STRIP] {
        let mut sums = [0f32; STRIP];
        for (&x, w) in x.iter().zip(w.chunks(n)) {
            let w: &[D::Code; STRIP] = &w[at..].as_chunks().0[0];
            for (sum, &w) in sums.iter_mut().zip(w) {
                *sum = fma::<FMA>(x, self.0.value(w), *sum);
            }
        }
        sums
    }

    #[inline(always)]
    fn column<const FMA: bool>(self, x: &[f32], w: &[D::Code], n: usize, at: usize) -> f32 {
        x.iter().zip(w[at..].iter().step_by(n)).fold(0.0, |sum, (&x, &w)| fma::<FMA>(x, self.0.value(w), sum))
    }

    #[inline(always)]
    fn sum(_: &[f32]) -> f32 {
        0.0
    }
}

/// Y[M, N] in FP32, canonical. `config` has groups, and all sizes fit.
pub(super) fn product<P: Partial>(
    config: Config,
    job: Job,
    partial: P,
    (x, w): (&[P::X], &[P::W]),
    scales: GroupScales<'_>,
) -> Vec<f32> {
    let group = config.group.unwrap_or(job.k);
    let tiles = (0..config.k_tiles(job.k)).map(|tile| config.k_range(job.k, tile));
    let tiles = tiles.map(|k| Tile { group: k.start / group, words: k.len().div_ceil(P::STEPS), k }).collect();
    // A minimum of zero adds fma(s_x·0, Σx, ·): nothing where s_x is finite, since a sum of integers is never −0.
    let zeros = if scales.minima.is_empty() && !scales.x.iter().all(|s| s.is_finite()) {
        vec![0.0; scales.w.len()]
    } else {
        Vec::new()
    };
    let minima = if zeros.is_empty() { scales.minima } else { &zeros };
    let scales = GroupScales { minima: if P::STEPS == 2 { minima } else { &[] }, ..scales };
    let mut y = vec![0.0; job.m * job.n];
    let work = Work { job, groups: job.k.div_ceil(group), tiles, partial, x, w, scales, y: &mut y };
    if job.m <= UNPACKED_ROWS {
        dispatch(Vectors(work))
    } else {
        dispatch(Blocks(work))
    }
    y.iter_mut().for_each(|y| *y = canonical(*y));
    y
}

/// A tile: its k, its group, and the words that it takes when packed.
struct Tile {
    k: Range<usize>,
    group: usize,
    words: usize,
}

/// All that a kernel works on.
struct Work<'a, P: Partial> {
    job: Job,
    groups: usize,
    tiles: Vec<Tile>,
    partial: P,
    x: &'a [P::X],
    w: &'a [P::W],
    scales: GroupScales<'a>,
    y: &'a mut [f32],
}

/// acc = fma(fl(x · w), by, acc), column by column.
#[inline(always)]
fn join<const FMA: bool, const N: usize>(acc: &mut [f32; N], x: f32, w: &[f32; N], by: &[f32; N]) {
    for c in 0..N {
        acc[c] = fma::<FMA>(x * w[c], by[c], acc[c]);
    }
}

/// Columns `n` of row `r` in a matrix of `cols`, zeros past its end.
#[inline(always)]
fn columns<T: Copy + Default>(v: &[T], r: usize, cols: usize, n: &Range<usize>) -> [T; COLS] {
    let mut out = [T::default(); COLS];
    out[..n.len()].copy_from_slice(&v[r * cols..][n.clone()]);
    out
}

/// Many rows: blocks of Y from packed panels.
struct Blocks<'a, P: Partial>(Work<'a, P>);

/// What belongs to one tile and the rows of a block: scales, and Σx.
#[derive(Clone, Copy, Default)]
struct RowScales {
    scale: [f32; ROWS],
    sum: [f32; ROWS],
}

impl<P: Partial> Kernel for Blocks<'_, P> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Work { job, groups, tiles, partial, x, w, scales, y } = self.0;
        let blocks = job.m.div_ceil(ROWS);
        let mut rest = tiles.as_slice();
        while !rest.is_empty() {
            let mut words = 0;
            let fits = rest.iter().take_while(|tile| {
                words += tile.words;
                words <= PACKED
            });
            let (batch, later) = rest.split_at(fits.count().max(1));
            rest = later;
            let words: usize = batch.iter().map(|tile| tile.words).sum();
            let mut acts = vec![[P::Act::default(); ROWS]; blocks * words];
            let mut rows = vec![RowScales::default(); blocks * batch.len()];
            for (m, x) in x.chunks_exact(job.k).enumerate() {
                let (block, r) = (m / ROWS, m % ROWS);
                let mut acts = acts[block * words..][..words].iter_mut();
                for (tile, row) in batch.iter().zip(&mut rows[block * batch.len()..]) {
                    let x = &x[tile.k.clone()];
                    row.scale[r] = scales.x[m * groups + tile.group];
                    row.sum[r] = P::sum(x);
                    for (x, acts) in x.chunks(P::STEPS).zip(&mut acts) {
                        acts[r] = P::act([x[0], x.get(1).copied().unwrap_or_default()]);
                    }
                }
            }
            let mut weights = Vec::with_capacity(words);
            for n in (0..job.n).step_by(COLS) {
                let n = n..(n + COLS).min(job.n);
                weights.clear();
                for k in batch.iter().flat_map(|tile| tile.k.clone().step_by(P::STEPS).map(move |k| (k, tile.k.end))) {
                    let (k, end) = k;
                    let low = columns(w, k, job.n, &n);
                    let second = P::STEPS == 2 && k + 1 < end;
                    let high = if second { columns(w, k + 1, job.n, &n) } else { Default::default() };
                    weights.push(std::array::from_fn(|c| partial.weight([low[c], high[c]])));
                }
                for (b, y) in y.chunks_mut(ROWS * job.n).enumerate() {
                    let mut sums = [[0f32; COLS]; ROWS];
                    for (sums, y) in sums.iter_mut().zip(y.chunks_exact(job.n)) {
                        sums[..n.len()].copy_from_slice(&y[n.clone()]);
                    }
                    let (acts, rows) = (&acts[b * words..][..words], &rows[b * batch.len()..]);
                    let mut at = 0;
                    for (tile, row) in batch.iter().zip(rows) {
                        let span = at..at + tile.words;
                        let partial = P::block::<FMA>(&acts[span.clone()], &weights[span]);
                        at += tile.words;
                        let scale = columns(scales.w, tile.group, job.n, &n);
                        for r in 0..ROWS {
                            join::<FMA, COLS>(&mut sums[r], row.scale[r], &scale, &partial[r]);
                        }
                        if !scales.minima.is_empty() {
                            let minimum = columns(scales.minima, tile.group, job.n, &n);
                            for r in 0..ROWS {
                                join::<FMA, COLS>(&mut sums[r], row.scale[r], &minimum, &[row.sum[r]; COLS]);
                            }
                        }
                    }
                    for (sums, y) in sums.iter().zip(y.chunks_exact_mut(job.n)) {
                        y[n.clone()].copy_from_slice(&sums[..n.len()]);
                    }
                }
            }
        }
    }
}

/// Few rows: strips of Y from the codes as they lie.
struct Vectors<'a, P: Partial>(Work<'a, P>);

impl<P: Partial> Kernel for Vectors<'_, P> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Work { job, groups, tiles, partial, x, w, scales, y } = self.0;
        for (m, (x, y)) in x.chunks_exact(job.k).zip(y.chunks_exact_mut(job.n)).enumerate() {
            let (strips, rest) = y.as_chunks_mut::<STRIP>();
            let from = job.n - rest.len();
            for tile in &tiles {
                let (x, w) = (&x[tile.k.clone()], &w[tile.k.start * job.n..tile.k.end * job.n]);
                let (x_scale, sum) = (scales.x[m * groups + tile.group], P::sum(x));
                let of_tile = |v: &[f32]| -> Range<usize> {
                    if v.is_empty() { 0..0 } else { tile.group * job.n..(tile.group + 1) * job.n }
                };
                let (w_scales, minima) = (&scales.w[of_tile(scales.w)], &scales.minima[of_tile(scales.minima)]);
                let (w_strips, min_strips) = (w_scales.as_chunks::<STRIP>().0, minima.as_chunks::<STRIP>().0);
                for (i, (y, w_scale)) in strips.iter_mut().zip(w_strips).enumerate() {
                    let sums = partial.strip::<FMA>(x, w, job.n, i * STRIP);
                    join::<FMA, STRIP>(y, x_scale, w_scale, &sums);
                    if let Some(minimum) = min_strips.get(i) {
                        join::<FMA, STRIP>(y, x_scale, minimum, &[sum; STRIP]);
                    }
                }
                for (n, y) in (from..).zip(&mut *rest) {
                    *y = fma::<FMA>(x_scale * w_scales[n], partial.column::<FMA>(x, w, job.n, n), *y);
                    if let Some(minimum) = minima.get(n) {
                        *y = fma::<FMA>(x_scale * minimum, sum, *y);
                    }
                }
            }
        }
    }
}
