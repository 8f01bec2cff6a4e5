//! The inner loops of the integer product, for AVX2 and without it: the only `unsafe` of this crate, and why it is sound.
//!
//! `VPMADDWD` multiplies pairs of 16-bit values and adds the two products, so a pair of k-steps is one instruction for eight columns.
//! Sums wrap at 32 bits in both forms, and addition modulo 2³² has no order, so both give the same bits.
//! The intrinsics are safe inside a function that is compiled for AVX2; calling such a function is not, because the machine may lack
//! it. Each call below stands behind the detection of that very feature.
#![allow(unsafe_code)]

/// Rows of Y in a block.
pub(crate) const BLOCK_ROWS: usize = 6;
/// Columns of Y in a block.
pub(crate) const BLOCK_COLS: usize = 16;
/// Columns of Y in a strip of the vector product.
pub(crate) const STRIP: usize = 64;

/// Two k-steps of an operand: the lower k in the low half, each sign-extended to 16 bits.
pub(crate) type Pair = i32;

/// Packs two k-steps.
#[inline(always)]
pub(crate) fn pair(low: i8, high: i8) -> Pair {
    i32::from(low) & 0xffff | i32::from(high) << 16
}

/// The product of two pairs: low·low + high·high, at most 2·2¹⁴.
#[inline(always)]
fn dot(a: Pair, b: Pair) -> i32 {
    i32::from(a as i16) * i32::from(b as i16) + (a >> 16) * (b >> 16)
}

/// `y[r][c]` += Σ over all pairs of `x[·][r]` · `w[·][c]`, wrapping.
#[inline]
pub(crate) fn block(x: &[[Pair; BLOCK_ROWS]], w: &[[Pair; BLOCK_COLS]], y: &mut [[i32; BLOCK_COLS]; BLOCK_ROWS]) {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: AVX2, which `avx2::block` is compiled for, has just been found.
        return unsafe { avx2::block(x, w, y) };
    }
    block_portable(x, w, y);
}

fn block_portable(x: &[[Pair; BLOCK_ROWS]], w: &[[Pair; BLOCK_COLS]], y: &mut [[i32; BLOCK_COLS]; BLOCK_ROWS]) {
    for (x, w) in x.iter().zip(w) {
        for (y, &x) in y.iter_mut().zip(x) {
            for (y, &w) in y.iter_mut().zip(w) {
                *y = y.wrapping_add(dot(x, w));
            }
        }
    }
}

/// `y[c]` += Σ over all pairs of `x[p]` · rows 2p and 2p + 1 of `w`, whose rows of `stride` values hold column c of the strip at
/// `at` + c; wrapping. `w` ends no earlier than the strip in its last row.
#[inline]
pub(crate) fn strip(x: &[Pair], w: &[i8], stride: usize, at: usize, y: &mut [i32; STRIP]) {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: AVX2, which `avx2::strip` is compiled for, has just been found.
        return unsafe { avx2::strip(x, w, stride, at, y) };
    }
    strip_portable(x, w, stride, at, y);
}

/// The strip in the two rows of pair `p`.
#[inline(always)]
fn rows_of(w: &[i8], stride: usize, at: usize, p: usize) -> [&[i8]; 2] {
    [2 * p, 2 * p + 1].map(|k| &w[k * stride + at..][..STRIP])
}

fn strip_portable(x: &[Pair], w: &[i8], stride: usize, at: usize, y: &mut [i32; STRIP]) {
    for (p, &x) in x.iter().enumerate() {
        let [low, high] = rows_of(w, stride, at, p);
        for ((y, &low), &high) in y.iter_mut().zip(low).zip(high) {
            *y = y.wrapping_add(dot(x, pair(low, high)));
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{BLOCK_COLS, BLOCK_ROWS, Pair, STRIP, rows_of};
    use std::arch::x86_64::*;

    /// Eight lanes of 32 bits; the compiler makes one load of it.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(v: &[i32]) -> __m256i {
        _mm256_setr_epi32(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7])
    }

    /// `y` += `v`, eight lanes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn add_to(y: &mut [i32], v: __m256i) {
        let sum = _mm256_add_epi32(load(y), v);
        y[..8].copy_from_slice(&[
            _mm256_extract_epi32::<0>(sum),
            _mm256_extract_epi32::<1>(sum),
            _mm256_extract_epi32::<2>(sum),
            _mm256_extract_epi32::<3>(sum),
            _mm256_extract_epi32::<4>(sum),
            _mm256_extract_epi32::<5>(sum),
            _mm256_extract_epi32::<6>(sum),
            _mm256_extract_epi32::<7>(sum),
        ]);
    }

    /// Sixteen bytes; the compiler makes one load of it.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn load_bytes(v: &[i8; 16]) -> __m128i {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *v;
        _mm_setr_epi8(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn multiply_add(sum: __m256i, x: __m256i, w: __m256i) -> __m256i {
        _mm256_add_epi32(sum, _mm256_madd_epi16(x, w))
    }

    /// Twelve sums, two weights and an activation: sixteen registers less one for the product.
    #[target_feature(enable = "avx2")]
    pub(super) fn block(x: &[[Pair; BLOCK_ROWS]], w: &[[Pair; BLOCK_COLS]], y: &mut [[i32; BLOCK_COLS]; BLOCK_ROWS]) {
        let mut sums = [[_mm256_setzero_si256(); 2]; BLOCK_ROWS];
        for (x, w) in x.iter().zip(w) {
            let (left, right) = (load(&w[..8]), load(&w[8..]));
            for (sum, &x) in sums.iter_mut().zip(x) {
                let x = _mm256_set1_epi32(x);
                *sum = [multiply_add(sum[0], x, left), multiply_add(sum[1], x, right)];
            }
        }
        for (y, [left, right]) in y.iter_mut().zip(sums) {
            add_to(&mut y[..8], left);
            add_to(&mut y[8..], right);
        }
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn strip(x: &[Pair], w: &[i8], stride: usize, at: usize, y: &mut [i32; STRIP]) {
        let mut sums = [[_mm256_setzero_si256(); 2]; STRIP / 16];
        for (p, &x) in x.iter().enumerate() {
            let x = _mm256_set1_epi32(x);
            let [low, high] = rows_of(w, stride, at, p).map(|row| row.as_chunks::<16>().0);
            for ((sum, low), high) in sums.iter_mut().zip(low).zip(high) {
                let (low, high) = (load_bytes(low), load_bytes(high));
                let left = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(low, high));
                let right = _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(low, high));
                *sum = [multiply_add(sum[0], x, left), multiply_add(sum[1], x, right)];
            }
        }
        for (y, [left, right]) in y.as_chunks_mut::<16>().0.iter_mut().zip(sums) {
            add_to(&mut y[..8], left);
            add_to(&mut y[8..], right);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_machine_s_form_and_the_portable_one_agree(
            x in prop::collection::vec(any::<[[i8; 2]; BLOCK_ROWS]>(), 0..40),
            seed in any::<i8>(),
            y in any::<i32>(),
        ) {
            let x: Vec<_> = x.iter().map(|row| row.map(|[a, b]| pair(a, b))).collect();
            let code = |i: usize| (i as i8).wrapping_mul(seed | 1).wrapping_add((i >> 3) as i8);
            let w: Vec<[Pair; BLOCK_COLS]> = (0..x.len())
                .map(|p| std::array::from_fn(|c| pair(code(37 * p + c), code(59 * p + 7 * c + 1))))
                .collect();
            let (mut a, mut b) = ([[y; BLOCK_COLS]; BLOCK_ROWS], [[y; BLOCK_COLS]; BLOCK_ROWS]);
            block(&x, &w, &mut a);
            block_portable(&x, &w, &mut b);
            prop_assert_eq!(a, b);

            let (stride, at) = (STRIP + 9, 5);
            let w: Vec<i8> = (0..2 * x.len() * stride).map(code).collect();
            let x: Vec<Pair> = x.iter().map(|row| row[0]).collect();
            let (mut a, mut b) = ([y; STRIP], [y; STRIP]);
            strip(&x, &w, stride, at, &mut a);
            strip_portable(&x, &w, stride, at, &mut b);
            prop_assert_eq!(a, b);
        }
    }
}
