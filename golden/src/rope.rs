//! Rotary position embedding (Su et al., arXiv 2104.09864) in both layouts.

use crate::{Config, Pairing};
use std::sync::OnceLock;

/// Positions whose sines are made together, when one of them is first needed.
const BLOCK: usize = 256;

/// Rotates head rows by their position: pair i of d/2 turns by `position · θ^(−2i/d)`.
#[derive(Debug)]
pub struct Rope {
    pairing: Pairing,
    /// θ^(−2i/d), one a pair.
    frequencies: Vec<f64>,
    /// [block][position in block][pair] (sin, cos): computed in f64, rounded once to f32.
    blocks: Vec<OnceLock<Vec<(f32, f32)>>>,
}

impl Rope {
    /// Tables for the heads, base and context window of `config`; filled as positions are used.
    pub fn new(config: &Config) -> Self {
        let d = config.head_dim as f64;
        Self {
            pairing: config.pairing,
            frequencies: (0..config.head_dim / 2).map(|i| config.rope_base.powf(-2.0 * i as f64 / d)).collect(),
            blocks: (0..config.context.div_ceil(BLOCK)).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Rotates one head's row of d channels in place.
    ///
    /// # Panics
    /// If `position` lies a whole block past the context window.
    pub fn rotate(&self, row: &mut [f32], position: usize) {
        self.turn_at(row, position, 1.0);
    }

    /// The inverse of [`Rope::rotate`], which is also how a gradient passes through it.
    ///
    /// # Panics
    /// As [`Rope::rotate`].
    pub fn rotate_back(&self, row: &mut [f32], position: usize) {
        self.turn_at(row, position, -1.0);
    }

    fn turn_at(&self, row: &mut [f32], position: usize, direction: f32) {
        let half = self.frequencies.len();
        let block = self.blocks[position / BLOCK].get_or_init(|| self.block(position / BLOCK));
        let angles = &block[position % BLOCK * half..][..half];
        turn(self.pairing, row, angles.iter().map(|&(sin, cos)| (direction * sin, cos)));
    }

    fn block(&self, index: usize) -> Vec<(f32, f32)> {
        (index * BLOCK..(index + 1) * BLOCK)
            .flat_map(|p| self.frequencies.iter().map(move |f| (p as f64 * f).sin_cos()))
            .map(|(sin, cos)| (sin as f32, cos as f32))
            .collect()
    }
}

/// Rotates the pairs of a row by (sin, cos), one a pair.
pub fn turn(pairing: Pairing, row: &mut [f32], angles: impl Iterator<Item = (f32, f32)>) {
    match pairing {
        Pairing::Halves => {
            let (low, high) = row.split_at_mut(row.len() / 2);
            for ((a, b), (sin, cos)) in low.iter_mut().zip(high).zip(angles) {
                (*a, *b) = turned(*a, *b, sin, cos);
            }
        }
        Pairing::Interleaved => {
            for (pair, (sin, cos)) in row.chunks_exact_mut(2).zip(angles) {
                (pair[0], pair[1]) = turned(pair[0], pair[1], sin, cos);
            }
        }
    }
}

fn turned(a: f32, b: f32, sin: f32, cos: f32) -> (f32, f32) {
    (a * cos - b * sin, b * cos + a * sin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope(pairing: Pairing) -> Rope {
        let mut c = Config::from_json("config.json", crate::BUILTIN_CONFIG).unwrap();
        (c.head_dim, c.pairing) = (8, pairing);
        Rope::new(&c)
    }

    #[test]
    fn pairs_turn_by_their_own_frequency() {
        for (pairing, partner) in [(Pairing::Halves, 4usize), (Pairing::Interleaved, 1)] {
            let first = |pair: usize| if pairing == Pairing::Halves { pair } else { 2 * pair };
            for pair in 0..4 {
                let mut row = [0f32; 8];
                row[first(pair)] = 1.0;
                rope(pairing).rotate(&mut row, 300);
                let angle = 300.0 * 1e4f64.powf(-(pair as f64) / 4.0);
                assert!((f64::from(row[first(pair)]) - angle.cos()).abs() < 1e-7);
                assert!((f64::from(row[first(pair) + partner]) - angle.sin()).abs() < 1e-7);
                assert_eq!(row.iter().filter(|v| **v != 0.0).count(), 2);
            }
        }
    }

    #[test]
    fn position_zero_is_identity_and_back_undoes() {
        let row: Vec<f32> = (0..8).map(|i| i as f32 - 3.5).collect();
        for pairing in [Pairing::Halves, Pairing::Interleaved] {
            let mut r = row.clone();
            rope(pairing).rotate(&mut r, 0);
            assert_eq!(r, row);
            rope(pairing).rotate(&mut r, 77);
            rope(pairing).rotate_back(&mut r, 77);
            assert!(r.iter().zip(&row).all(|(a, b)| (a - b).abs() < 1e-6));
        }
    }
}
