//! INT8 × INT8 → INT32, wrapping.

use crate::Job;
use crate::simd::{BLOCK_COLS, BLOCK_ROWS, Pair, STRIP, block, pair, strip};
use std::ops::Range;

/// k-pairs that are packed at a time: 16 KiB of weights, which stay in the first-level cache while all of X passes.
const PACKED: usize = 256;
/// Up to so many rows of X the weights are used as they lie; from more it pays to pack them.
const UNPACKED_ROWS: usize = 3;

/// `y` += X[:, k] · W[k, :], wrapping at 32 bits. `x` is M × K, `w` K × N and `y` M × N.
pub(super) fn product(job: Job, k: Range<usize>, x: &[i8], w: &[i8], y: &mut [i32]) {
    if job.m <= UNPACKED_ROWS {
        for (x, y) in x.chunks_exact(job.k).zip(y.chunks_exact_mut(job.n)) {
            vector(job.n, &x[k.clone()], &w[k.start * job.n..k.end * job.n], y);
        }
        return;
    }
    let blocks = job.m.div_ceil(BLOCK_ROWS);
    let mut acts = vec![[0; BLOCK_ROWS]; blocks * PACKED];
    let mut weights = vec![[0; BLOCK_COLS]; PACKED];
    for start in k.clone().step_by(2 * PACKED) {
        let k = start..(start + 2 * PACKED).min(k.end);
        let pairs = k.len().div_ceil(2);
        pack_x(job, k.clone(), x, &mut acts);
        for n in (0..job.n).step_by(BLOCK_COLS) {
            let n = n..(n + BLOCK_COLS).min(job.n);
            pack_w(job, k.clone(), n.clone(), w, &mut weights);
            for (acts, y) in acts.chunks_exact(PACKED).zip(y.chunks_mut(BLOCK_ROWS * job.n)) {
                let mut sums = [[0; BLOCK_COLS]; BLOCK_ROWS];
                block(&acts[..pairs], &weights[..pairs], &mut sums);
                for (y, sums) in y.chunks_exact_mut(job.n).zip(&sums) {
                    for (y, sum) in y[n.clone()].iter_mut().zip(sums) {
                        *y = y.wrapping_add(*sum);
                    }
                }
            }
        }
    }
}

/// X in blocks of rows, pairs of k side by side; an odd last k has zero beside it, and so have rows past M.
fn pack_x(job: Job, k: Range<usize>, x: &[i8], packed: &mut [[Pair; BLOCK_ROWS]]) {
    for (x, packed) in x.chunks(BLOCK_ROWS * job.k).zip(packed.chunks_exact_mut(PACKED)) {
        for (r, x) in x.chunks_exact(job.k).enumerate() {
            let (pairs, odd) = x[k.clone()].as_chunks::<2>();
            for (packed, &[a, b]) in packed.iter_mut().zip(pairs) {
                packed[r] = pair(a, b);
            }
            if let [last] = odd {
                packed[pairs.len()][r] = pair(*last, 0);
            }
        }
    }
}

/// A panel of columns of W, pairs of k side by side; an odd last k has zero beside it, and so have columns past N.
fn pack_w(job: Job, k: Range<usize>, n: Range<usize>, w: &[i8], packed: &mut [[Pair; BLOCK_COLS]]) {
    let panel = |k: usize| &w[k * job.n..][n.clone()];
    for (k_low, packed) in k.clone().step_by(2).zip(packed) {
        let low = panel(k_low);
        if k_low + 1 == k.end || low.len() < BLOCK_COLS {
            let high = if k_low + 1 < k.end { panel(k_low + 1) } else { &[] };
            *packed = std::array::from_fn(|c| pair(at(low, c), at(high, c)));
            continue;
        }
        for ((packed, &low), &high) in packed.iter_mut().zip(low).zip(panel(k_low + 1)) {
            *packed = pair(low, high);
        }
    }
}

fn at(v: &[i8], i: usize) -> i8 {
    v.get(i).copied().unwrap_or(0)
}

/// One row of Y: `w` is K × N.
fn vector(n: usize, x: &[i8], w: &[i8], y: &mut [i32]) {
    let (pairs, odd) = x.as_chunks::<2>();
    let pairs: Vec<Pair> = pairs.iter().map(|&[a, b]| pair(a, b)).collect();
    let (strips, rest) = y.as_chunks_mut::<STRIP>();
    for (i, y) in strips.iter_mut().enumerate() {
        strip(&pairs, w, n, i * STRIP, y);
    }
    let from = n - rest.len();
    // What the strips leave: columns past the last whole one, and the last row of an odd K.
    let left = |x: &[i8], w: &[i8], y: &mut [i32], from: usize| {
        for (&x, w) in x.iter().zip(w.chunks_exact(n)) {
            for (y, &w) in y.iter_mut().zip(&w[from..]) {
                *y = y.wrapping_add(i32::from(x) * i32::from(w));
            }
        }
    };
    left(&x[..2 * pairs.len()], w, rest, from);
    left(odd, &w[2 * pairs.len() * n..], y, 0);
}
