//! KIVI (Liu et al., arXiv 2402.02750): asymmetric integers, K grouped per channel along tokens, V per token along channels.

use crate::Result;
use crate::float16::round_f16;
use crate::kv::{Kind, Stream, TILE, TileCodec};

/// KIVI with `bits` a code and groups of `group` values.
#[derive(Clone, Copy, Debug)]
pub struct Kivi {
    /// Bits a code, 1..=8.
    pub bits: u32,
    /// Values that share a scale and a minimum: tokens for K (a multiple of 32), channels for V.
    pub group: usize,
    /// Channels a head.
    pub head_dim: usize,
}

impl Kivi {
    /// Quantises one group, given by its indices in `tile`, and returns its bits.
    fn code(&self, tile: &mut [f32], indices: impl Iterator<Item = usize> + Clone) -> usize {
        let values = || indices.clone().map(|i| tile[i]);
        let low = values().fold(f32::INFINITY, f32::min);
        let high = values().fold(f32::NEG_INFINITY, f32::max);
        let top = ((1u32 << self.bits) - 1) as f32;
        let (minimum, scale) = (round_f16(low), round_f16((high - low) / top));
        let mut bits = 32;
        for i in indices {
            let code = if scale > 0.0 { ((tile[i] - minimum) / scale).round_ties_even().clamp(0.0, top) } else { 0.0 };
            tile[i] = code * scale + minimum;
            bits += self.bits as usize;
        }
        bits
    }
}

impl TileCodec for Kivi {
    fn name(&self) -> String {
        format!("kivi{}", self.bits)
    }

    fn tokens(&self) -> usize {
        self.group.next_multiple_of(TILE)
    }

    fn round_trip(&mut self, stream: Stream, _: usize, tile: &mut [f32]) -> Result<usize> {
        let d = self.head_dim.max(1);
        let tokens = tile.len() / d;
        let mut bits = 0;
        if stream.kind == Kind::K {
            for channel in 0..d {
                for first in (0..tokens).step_by(self.group) {
                    let group = (first..tokens.min(first + self.group)).map(move |t| t * d + channel);
                    bits += self.code(tile, group);
                }
            }
        } else {
            for token in 0..tokens {
                for first in (0..d).step_by(self.group) {
                    bits += self.code(tile, token * d + first..token * d + d.min(first + self.group));
                }
            }
        }
        Ok(bits)
    }
}
