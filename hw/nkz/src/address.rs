use crate::{Crc, Error};

/// Tokens of a full tile.
pub const TOKENS: usize = 32;
/// Channels of a full column block.
pub const CHANNELS: usize = 64;
/// Lanes of the entropy coder; channel c belongs to lane c mod 8.
pub const LANES: usize = 8;

/// Key or value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Keys, before RoPE.
    #[default]
    Key,
    /// Values.
    Value,
}

/// Where a tile belongs, whatever the page that holds it: the seed of its CRC, so that a tile fetched for another
/// place is found out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Address {
    /// Sequence, 16 bits; also in the header.
    pub sequence: u16,
    /// Layer, 16 bits.
    pub layer: u16,
    /// KV head, 16 bits.
    pub head: u16,
    /// Key or value.
    pub kind: Kind,
    /// Column block of 64 channels, 7 bits.
    pub block: u8,
    /// Tile: token / 32, 32 bits.
    pub tile: u32,
}

impl Address {
    /// The 12 bytes that seed the CRC: sequence, layer, head and tile little-endian, then block · 2 + kind, then zero.
    pub fn bytes(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..2].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.layer.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.head.to_le_bytes());
        bytes[6..10].copy_from_slice(&self.tile.to_le_bytes());
        bytes[10] = self.block << 1 | self.kind as u8;
        bytes
    }

    /// The CRC register that a tile at this address starts from.
    pub fn seed(&self) -> Crc {
        Crc::new(0xFFFF).over(&self.bytes())
    }
}

/// The column blocks of a head: widths of 64 and a last one of what remains.
///
/// # Errors
/// A head dimension that is no multiple of 8, or outside 8..=8,192.
pub fn column_blocks(head_dim: usize) -> Result<impl ExactSizeIterator<Item = usize> + Clone, Error> {
    if head_dim == 0 || !head_dim.is_multiple_of(LANES) || head_dim > 128 * CHANNELS {
        return Err(Error::HeadDimension(head_dim));
    }
    Ok((0..head_dim.div_ceil(CHANNELS)).map(move |block| CHANNELS.min(head_dim - block * CHANNELS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_cut_in_blocks() {
        let blocks = |d| column_blocks(d).map(|b| b.collect::<Vec<_>>());
        assert_eq!(blocks(32).unwrap(), [32]);
        assert_eq!(blocks(80).unwrap(), [64, 16]);
        assert_eq!(blocks(256).unwrap(), [64; 4]);
        for bad in [0, 4, 60, 8200] {
            assert!(matches!(blocks(bad), Err(Error::HeadDimension(d)) if d == bad));
        }
    }

    #[test]
    fn every_field_moves_the_seed() {
        let a = Address::default();
        for b in [
            Address { sequence: 1, ..a },
            Address { layer: 1, ..a },
            Address { head: 1, ..a },
            Address { kind: Kind::Value, ..a },
            Address { block: 1, ..a },
            Address { tile: 1, ..a },
        ] {
            assert_ne!(a.seed(), b.seed());
        }
    }
}
