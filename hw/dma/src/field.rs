use std::fmt;
use thiserror::Error;

/// A field of the descriptor, by its byte offset on the wire: the number that the status register shows.
///
/// Side 0 is the source, side 1 the destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Field(pub u8);

impl Field {
    /// Format version.
    pub const VERSION: Self = Self(0);
    /// Element size code.
    pub const ELEMENT: Self = Self(1);
    /// Remap code.
    pub const REMAP: Self = Self(2);
    /// Flags.
    pub const FLAGS: Self = Self(3);
    /// Tag.
    pub const TAG: Self = Self(12);
    /// Address of the next descriptor.
    pub const LINK: Self = Self(16);
    /// Fill value.
    pub const FILL: Self = Self(24);

    /// Region number of a side.
    pub const fn region(side: usize) -> Self {
        Self(4 + side as u8)
    }
    /// Region number of a side's index list.
    pub const fn index_region(side: usize) -> Self {
        Self(6 + side as u8)
    }
    /// Dimension of a side's index list.
    pub const fn index_dimension(side: usize) -> Self {
        Self(8 + side as u8)
    }
    /// Count of a dimension.
    pub const fn count(dimension: usize) -> Self {
        Self(32 + 4 * dimension as u8)
    }
    /// Offset of a side.
    pub const fn offset(side: usize) -> Self {
        Self(48 + 32 * side as u8)
    }
    /// Stride of a side and dimension.
    pub const fn stride(side: usize, dimension: usize) -> Self {
        Self(56 + 32 * side as u8 + 8 * dimension as u8)
    }
    /// Offset of a side's index list.
    pub const fn index_offset(side: usize) -> Self {
        Self(112 + 8 * side as u8)
    }
    /// First coordinate inside the window.
    pub const fn window_lo(dimension: usize) -> Self {
        Self(128 + 4 * dimension as u8)
    }
    /// First coordinate past the window.
    pub const fn window_hi(dimension: usize) -> Self {
        Self(140 + 4 * dimension as u8)
    }
    /// Bound of a side's indices.
    pub const fn index_bound(side: usize) -> Self {
        Self(152 + 4 * side as u8)
    }

    /// Bytes that must be zero.
    pub fn reserved() -> impl Iterator<Item = usize> {
        (10..12).chain(44..48).chain(160..crate::WIRE_BYTES)
    }

    /// The field's name, as docs and the serde form have it.
    pub fn name(self) -> &'static str {
        match self.0 {
            0 => "version",
            1 => "element",
            2 => "remap",
            3 => "flags",
            4 => "source.region",
            5 => "destination.region",
            6 => "source.index.region",
            7 => "destination.index.region",
            8 => "source.index.dimension",
            9 => "destination.index.dimension",
            12..16 => "tag",
            16..24 => "link",
            24..32 => "window.fill",
            32..36 => "counts[0]",
            36..40 => "counts[1]",
            40..44 => "counts[2]",
            48..56 => "source.offset",
            56..64 => "source.strides[0]",
            64..72 => "source.strides[1]",
            72..80 => "source.strides[2]",
            80..88 => "destination.offset",
            88..96 => "destination.strides[0]",
            96..104 => "destination.strides[1]",
            104..112 => "destination.strides[2]",
            112..120 => "source.index.offset",
            120..128 => "destination.index.offset",
            128..132 => "window.lo[0]",
            132..136 => "window.lo[1]",
            136..140 => "window.lo[2]",
            140..144 => "window.hi[0]",
            144..148 => "window.hi[1]",
            148..152 => "window.hi[2]",
            152..156 => "source.index.bound",
            156..160 => "destination.index.bound",
            _ => "reserved",
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a descriptor is refused: the field and the value that is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Error)]
#[error("{field} = {value:#x} is refused")]
pub struct Refusal {
    /// The field.
    pub field: Field,
    /// Its value; for an offset, the lowest or highest byte offset in the region that the job would touch (two's
    /// complement); for a bad index, the index.
    pub value: u64,
}
