//! Codecs that rotate each token's row first, which spreads outliers over all channels.

use crate::Result;
use crate::float16::round_f16;
use crate::kv::{Stream, TileCodec};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// The normalised Hadamard transform in place, its own inverse, on the largest powers of two that make up the row
/// (80 = 64 + 16).
fn hadamard(row: &mut [f32]) {
    let mut rest = row;
    while !rest.is_empty() {
        let size = 1 << rest.len().ilog2();
        let (block, after) = rest.split_at_mut(size);
        let mut half = 1;
        while half < size {
            for pair in block.chunks_exact_mut(2 * half) {
                let (low, high) = pair.split_at_mut(half);
                low.iter_mut().zip(high).for_each(|(a, b)| (*a, *b) = (*a + *b, *a - *b));
            }
            half *= 2;
        }
        block.iter_mut().for_each(|x| *x /= (size as f32).sqrt());
        rest = after;
    }
}

/// A codec behind a Hadamard rotation.
#[derive(Clone, Copy, Debug)]
pub struct Hadamard<C> {
    /// Channels a head.
    pub head_dim: usize,
    /// The codec of the rotated rows.
    pub codec: C,
}

impl<C: TileCodec> TileCodec for Hadamard<C> {
    fn name(&self) -> String {
        format!("{}+hadamard", self.codec.name())
    }

    fn tokens(&self) -> usize {
        self.codec.tokens()
    }

    fn round_trip(&mut self, stream: Stream, first: usize, tile: &mut [f32]) -> Result<usize> {
        tile.chunks_mut(self.head_dim.max(1)).for_each(hadamard);
        let bits = self.codec.round_trip(stream, first, tile)?;
        tile.chunks_mut(self.head_dim.max(1)).for_each(hadamard);
        Ok(bits)
    }
}

/// Rotation by random signs and Hadamard, the norm apart, then the levels that are best for a Gaussian (TurboQuant's
/// first stage, arXiv 2504.19874: after a random rotation every coordinate is nearly Gaussian of variance norm²/d).
#[derive(Clone, Debug)]
pub struct TurboQuant {
    bits: u32,
    signs: Vec<f32>,
    /// Ascending, for variance 1.
    levels: Vec<f32>,
}

impl TurboQuant {
    /// With `bits` a value (1..=8) and a rotation drawn from a fixed seed.
    pub fn new(bits: u32, head_dim: usize) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let signs = (0..head_dim).map(|_| if rng.next_u64() >> 63 == 0 { 1.0 } else { -1.0 }).collect();
        Self { bits, signs, levels: gaussian_levels(1 << bits.clamp(1, 8)) }
    }

    fn sign(&self, row: &mut [f32]) {
        row.iter_mut().zip(&self.signs).for_each(|(x, s)| *x *= s);
    }
}

impl TileCodec for TurboQuant {
    fn name(&self) -> String {
        format!("turboquant{}", self.bits)
    }

    fn round_trip(&mut self, _: Stream, _: usize, tile: &mut [f32]) -> Result<usize> {
        let d = self.signs.len().max(1);
        for row in tile.chunks_mut(d) {
            self.sign(row);
            hadamard(row);
            let norm = row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
            let deviation = round_f16(norm as f32) / (d as f32).sqrt();
            for x in row.iter_mut() {
                let scaled = if deviation > 0.0 { *x / deviation } else { 0.0 };
                let above = self.levels.partition_point(|&l| l < scaled).clamp(1, self.levels.len() - 1);
                let (low, high) = (self.levels[above - 1], self.levels[above]);
                *x = deviation * if scaled - low <= high - scaled { low } else { high };
            }
            hadamard(row);
            self.sign(row);
        }
        Ok(self.bits as usize * tile.len() + 16 * tile.len().div_ceil(d))
    }
}

/// Lloyd–Max levels of a Gaussian of variance 1: each the mean of its cell, each border halfway between two.
fn gaussian_levels(n: usize) -> Vec<f32> {
    let density = |x: f64| (-x * x / 2.0).exp();
    // A cell's mean is (φ(a) − φ(b)) / ∫φ, the integral by Simpson's rule. Beyond ±8 lies nothing.
    let mean = |a: f64, b: f64| {
        let h = (b - a) / 32.0;
        let weight = |i: u32| if i == 0 || i == 32 { 1.0 } else { f64::from(2 + 2 * (i % 2)) };
        let integral: f64 = (0..=32).map(|i| weight(i) * density(a + h * f64::from(i))).sum::<f64>() * h / 3.0;
        (density(a) - density(b)) / integral
    };
    let mut levels: Vec<f64> = (0..n).map(|i| 6.0 * (i as f64 + 0.5) / n as f64 - 3.0).collect();
    for _ in 0..600 {
        let borders: Vec<f64> = levels.windows(2).map(|l| (l[0] + l[1]) / 2.0).collect();
        let ends = [-8.0].into_iter().chain(borders).chain([8.0]).collect::<Vec<f64>>();
        levels = ends.windows(2).map(|e| mean(e[0], e[1])).collect();
    }
    levels.into_iter().map(|l| l as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hadamard_is_its_own_inverse_and_keeps_the_norm() {
        for n in [1usize, 2, 64, 80, 96] {
            let row: Vec<f32> = (0..n).map(|i| (i as f32 * 0.7).sin()).collect();
            let mut r = row.clone();
            hadamard(&mut r);
            let norm = |x: &[f32]| x.iter().map(|v| v * v).sum::<f32>();
            assert!((norm(&r) - norm(&row)).abs() < 1e-4);
            hadamard(&mut r);
            assert!(r.iter().zip(&row).all(|(a, b)| (a - b).abs() < 1e-5));
        }
        let mut one = [1.0, 0.0, 0.0, 0.0];
        hadamard(&mut one);
        assert_eq!(one, [0.5; 4]);
    }

    #[test]
    fn levels_are_those_of_the_literature() {
        // Max, "Quantizing for minimum distortion" (1960), Table I: N = 4 and N = 8.
        let close = |found: Vec<f32>, want: &[f32]| {
            let half = found.len() / 2;
            assert!(found[half..].iter().zip(want).all(|(a, b)| (a - b).abs() < 2e-3), "{found:?}");
            assert!(found[..half].iter().rev().zip(want).all(|(a, b)| (a + b).abs() < 2e-3), "{found:?}");
        };
        close(gaussian_levels(4), &[0.4528, 1.510]);
        close(gaussian_levels(8), &[0.2451, 0.7560, 1.344, 2.152]);
        close(gaussian_levels(16), &[0.1284, 0.3881, 0.6568, 0.9424, 1.256, 1.618, 2.069, 2.733]);
    }
}
