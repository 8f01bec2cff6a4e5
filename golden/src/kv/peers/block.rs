//! Codecs that take each token's row in blocks of neighbouring channels.

use crate::Result;
use crate::float16::round_f16;
use crate::kv::{Stream, TileCodec};
use crate::minifloat::{E2M1, E4M3, floor_log2};

/// Runs `block` over every `size` values of every row of `tile`; it returns the bits of its scale.
fn blocks(
    tile: &mut [f32],
    head_dim: usize,
    size: usize,
    code_bits: usize,
    block: impl Fn(&mut [f32]) -> usize,
) -> usize {
    let mut bits = tile.len() * code_bits;
    for row in tile.chunks_mut(head_dim.max(1)) {
        bits += row.chunks_mut(size).map(&block).sum::<usize>();
    }
    bits
}

fn largest(block: &[f32]) -> f32 {
    block.iter().fold(0.0, |m, x| m.max(x.abs()))
}

/// llama.cpp's `q8_0` cache.
#[derive(Clone, Copy, Debug)]
pub struct Q8_0 {
    /// Channels a head.
    pub head_dim: usize,
}

impl TileCodec for Q8_0 {
    fn name(&self) -> String {
        "q8_0".into()
    }

    fn round_trip(&mut self, _: Stream, _: usize, tile: &mut [f32]) -> Result<usize> {
        Ok(blocks(tile, self.head_dim, 32, 8, |block| {
            let d = largest(block) / 127.0;
            let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
            let stored = round_f16(d);
            block.iter_mut().for_each(|x| *x = (*x * inverse).round() * stored);
            16
        }))
    }
}

/// llama.cpp's `q4_0` cache: the scale takes the sign that gives the largest value the code −8.
#[derive(Clone, Copy, Debug)]
pub struct Q4_0 {
    /// Channels a head.
    pub head_dim: usize,
}

impl TileCodec for Q4_0 {
    fn name(&self) -> String {
        "q4_0".into()
    }

    fn round_trip(&mut self, _: Stream, _: usize, tile: &mut [f32]) -> Result<usize> {
        Ok(blocks(tile, self.head_dim, 32, 4, |block| {
            let extreme = block.iter().fold(0f32, |m, &x| if x.abs() > m.abs() { x } else { m });
            let d = extreme / -8.0;
            let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
            let stored = round_f16(d);
            block.iter_mut().for_each(|x| *x = ((*x * inverse + 8.5).trunc().clamp(0.0, 15.0) - 8.0) * stored);
            16
        }))
    }
}

/// E4M3 without a scale.
#[derive(Clone, Copy, Debug)]
pub struct Fp8;

impl TileCodec for Fp8 {
    fn name(&self) -> String {
        "fp8".into()
    }

    fn round_trip(&mut self, _: Stream, _: usize, tile: &mut [f32]) -> Result<usize> {
        tile.iter_mut().for_each(|x| *x = E4M3.round(*x));
        Ok(8 * tile.len())
    }
}

/// OCP MXFP4: the scale is the power of two of the block's largest value, less E2M1's largest exponent 2.
#[derive(Clone, Copy, Debug)]
pub struct MxFp4 {
    /// Channels a head.
    pub head_dim: usize,
}

impl TileCodec for MxFp4 {
    fn name(&self) -> String {
        "mxfp4".into()
    }

    fn round_trip(&mut self, _: Stream, _: usize, tile: &mut [f32]) -> Result<usize> {
        Ok(blocks(tile, self.head_dim, 32, 4, |block| {
            let scale = 2f32.powi((floor_log2(f64::from(largest(block))) - 2).clamp(-126, 127));
            block.iter_mut().for_each(|x| *x = E2M1.round(*x / scale) * scale);
            8
        }))
    }
}

/// NVFP4: a block's scale is its largest value over 6, in E4M3 units of a tile's FP32 scale (largest value / (448 · 6)).
#[derive(Clone, Copy, Debug)]
pub struct NvFp4 {
    /// Channels a head.
    pub head_dim: usize,
}

impl TileCodec for NvFp4 {
    fn name(&self) -> String {
        "nvfp4".into()
    }

    fn round_trip(&mut self, _: Stream, _: usize, tile: &mut [f32]) -> Result<usize> {
        let tile_scale = largest(tile) / (448.0 * 6.0);
        if tile_scale == 0.0 {
            tile.fill(0.0);
        }
        let bits = blocks(tile, self.head_dim, 16, 4, |block| {
            let scale = E4M3.round(largest(block) / 6.0 / tile_scale) * tile_scale;
            block.iter_mut().for_each(|x| *x = if scale > 0.0 { E2M1.round(*x / scale) * scale } else { 0.0 });
            8
        });
        Ok(bits + 32)
    }
}
