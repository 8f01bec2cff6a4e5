//! ggml's storage types: what a block holds and what it means.

use crate::float16::{bf16_to_f32, f16_to_f32};

/// How values are stored. Quantised types come in blocks of 32 values along a row:
///
/// | type | bytes | layout | value j |
/// |---|---|---|---|
/// | Q4_0 | 18 | d FP16, 16 bytes of nibbles | d · (q − 8) |
/// | Q4_1 | 20 | d FP16, m FP16, 16 bytes of nibbles | d · q + m |
/// | Q8_0 | 34 | d FP16, 32 signed bytes | d · q |
///
/// Value j < 16 is byte j's low nibble, value j + 16 its high one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockType {
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// 1-8-7.
    Bf16,
    /// 4 bits with a scale.
    Q4_0,
    /// 4 bits with a scale and a minimum.
    Q4_1,
    /// 8 bits with a scale.
    Q8_0,
}

impl BlockType {
    /// The type of ggml's code, if it is one of these.
    pub fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            8 => Self::Q8_0,
            30 => Self::Bf16,
            _ => return None,
        })
    }

    /// Values a block.
    pub fn values(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q8_0 => 32,
        }
    }

    /// Bytes a block.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q8_0 => 34,
        }
    }

    /// The values of whole blocks; a torn block at the end is left out. d · q is exact in f32, so d · q + m rounds once.
    pub fn decode(self, bytes: &[u8]) -> Vec<f32> {
        let mut out = Vec::with_capacity(bytes.len() / self.bytes() * self.values());
        let half = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]);
        for block in bytes.chunks_exact(self.bytes()) {
            match self {
                Self::F32 => out.push(f32::from_le_bytes([block[0], block[1], block[2], block[3]])),
                Self::F16 => out.push(f16_to_f32(half(block))),
                Self::Bf16 => out.push(bf16_to_f32(half(block))),
                Self::Q4_0 => {
                    let d = f16_to_f32(half(block));
                    out.extend(nibbles(&block[2..]).map(|q| d * (q - 8.0)));
                }
                Self::Q4_1 => {
                    let (d, m) = (f16_to_f32(half(block)), f16_to_f32(half(&block[2..])));
                    out.extend(nibbles(&block[4..]).map(|q| d * q + m));
                }
                Self::Q8_0 => {
                    let d = f16_to_f32(half(block));
                    out.extend(block[2..].iter().map(|&q| d * f32::from(q as i8)));
                }
            }
        }
        out
    }
}

/// All low nibbles, then all high ones.
fn nibbles(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.iter().map(|b| b & 15).chain(bytes.iter().map(|b| b >> 4)).map(f32::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_blocks() {
        // d = 0.5 (FP16 0x3800), m = -2 (0xC000); byte j holds j low and 15 - j high.
        let nibbles: Vec<u8> = (0..16).map(|j| j | (15 - j) << 4).collect();
        let q = |j: usize| if j < 16 { j as f32 } else { 31.0 - j as f32 };
        let want = |f: &dyn Fn(f32) -> f32| (0..32).map(|j| f(q(j))).collect::<Vec<_>>();
        let block = [&[0x00, 0x38][..], &nibbles].concat();
        assert_eq!(BlockType::Q4_0.decode(&block), want(&|q| 0.5 * (q - 8.0)));
        let block = [&[0x00, 0x38, 0x00, 0xC0][..], &nibbles].concat();
        assert_eq!(BlockType::Q4_1.decode(&block), want(&|q| 0.5 * q - 2.0));
        let bytes: Vec<u8> = (0..32).map(|j| (j * 8 - 128) as i8 as u8).collect();
        let block = [&[0x00, 0x38][..], &bytes].concat();
        assert_eq!(BlockType::Q8_0.decode(&block), (0..32).map(|j| j as f32 * 4.0 - 64.0).collect::<Vec<_>>());
        assert_eq!(BlockType::Bf16.decode(&[0x80, 0x3F, 1]), [1.0], "a torn value is left out");
        assert_eq!(BlockType::F32.decode(&2.5f32.to_le_bytes()), [2.5]);
        assert_eq!(BlockType::F16.decode(&[0x00, 0x3C]), [1.0]);
    }
}
