use crate::field::{Field, Refusal};
use serde::{Deserialize, Serialize};

/// Bytes of a descriptor on the wire.
pub const WIRE_BYTES: usize = 192;
/// Alignment of a descriptor in memory, bytes.
pub const WIRE_ALIGN: u64 = 64;
/// The only version of the wire format.
pub const VERSION: u8 = 1;
/// Entries of each index SRAM: the longest index list of one descriptor.
pub const INDEX_ENTRIES: u32 = 4096;
/// Region registers.
pub const REGIONS: usize = 16;
/// Bits of a byte address.
pub const ADDRESS_BITS: u32 = 48;

/// Size of an element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    /// Packed 4-bit integers, low nibble first. Offsets and strides then count nibbles.
    Int4,
    /// 1 byte.
    #[default]
    B1,
    /// 2 bytes.
    B2,
    /// 4 bytes.
    B4,
    /// 8 bytes.
    B8,
}

impl Element {
    /// All of them, smallest first.
    pub const ALL: [Self; 5] = [Self::Int4, Self::B1, Self::B2, Self::B4, Self::B8];

    /// Size in nibbles: 1, 2, 4, 8 or 16.
    pub const fn nibbles(self) -> u32 {
        match self {
            Self::Int4 => 1,
            Self::B1 => 2,
            Self::B2 => 4,
            Self::B4 => 8,
            Self::B8 => 16,
        }
    }

    /// Nibbles in one unit of an offset or stride: 1 for INT4, whose units are nibbles, else 2.
    pub const fn unit(self) -> u32 {
        match self {
            Self::Int4 => 1,
            _ => 2,
        }
    }

    /// Distance of neighbouring elements in units of offsets and strides.
    pub const fn step(self) -> i64 {
        (self.nibbles() / self.unit()) as i64
    }

    /// Side of a transposer tile, in elements: 64 (1 and 2 bytes) or 32 (4 and 8 bytes).
    pub const fn tile(self) -> u32 {
        match self {
            Self::B4 | Self::B8 => 32,
            _ => 64,
        }
    }

    /// Wire code: the size in bytes, 0 for INT4.
    pub const fn code(self) -> u8 {
        match self {
            Self::Int4 => 0,
            other => (other.nibbles() / 2) as u8,
        }
    }

    /// The element of a wire code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|e| e.code() == code)
    }
}

/// How elements travel from source to destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Remap {
    /// In element order, as one stream of bytes.
    #[default]
    Direct,
    /// Through the transposer, tile by tile: the source is read along dimension 2, the destination written along dimension 1.
    Transpose,
}

/// An index list: it replaces the coordinate of one dimension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexList {
    /// Region that holds the list, 4 bits.
    pub region: u8,
    /// Byte offset of entry 0 in the region, 48 bits.
    pub offset: u64,
    /// Dimension whose coordinate i becomes `list[i]`, 0..=2.
    pub dimension: u8,
    /// Every index must be below this, 32 bits.
    pub bound: u32,
}

/// One side of a move: where element (i, j, k) lies.
///
/// Address = region base + offset + i'·strides\[0\] + j'·strides\[1\] + k'·strides\[2\], where a coordinate with an index
/// list is looked up in it first. Units are bytes, nibbles for INT4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Side {
    /// Region, 4 bits.
    pub region: u8,
    /// Offset of element (0, 0, 0) from the region's base: signed 49 bits.
    #[serde(default)]
    pub offset: i64,
    /// Signed distances of neighbours, 49 bits; zero repeats.
    pub strides: [i64; 3],
    /// The index list, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<IndexList>,
}

/// What the source gives outside a box of coordinates: the fill value. Inside, it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// First coordinate inside, per dimension.
    pub lo: [u32; 3],
    /// First coordinate past it; at most the count.
    pub hi: [u32; 3],
    /// The element to give outside, in the low bits.
    #[serde(default)]
    pub fill: u64,
}

/// One job of the engine: a nest of three loops that moves one element a step.
///
/// Element order is lexicographic in (i0, i1, i2), dimension 2 fastest; with [`Remap::Transpose`] it goes tile by tile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Descriptor {
    /// Element size.
    pub element: Element,
    /// Direct or through the transposer.
    #[serde(default)]
    pub remap: Remap,
    /// Elements along each dimension, outermost first, 32 bits each. A zero moves nothing.
    pub counts: [u32; 3],
    /// Where elements come from.
    pub source: Side,
    /// Where they go.
    pub destination: Side,
    /// The window, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// Index entries are signed 32-bit, not unsigned 16-bit.
    #[serde(default)]
    pub wide_index: bool,
    /// Out-of-range indices become the nearest valid one instead of refusing the job.
    #[serde(default)]
    pub clamp: bool,
    /// Returned in the completion, 32 bits.
    #[serde(default)]
    pub tag: u32,
    /// Byte address of the next descriptor, a multiple of 64 in a region that may be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<u64>,
}

const FLAG_SOURCE_INDEX: u8 = 1;
const FLAG_DESTINATION_INDEX: u8 = 2;
const FLAG_WIDE_INDEX: u8 = 4;
const FLAG_CLAMP: u8 = 8;
const FLAG_WINDOW: u8 = 16;
const FLAG_LINK: u8 = 32;
const FLAGS: u8 = 63;

fn put(wire: &mut [u8], field: Field, bytes: &[u8]) {
    wire[usize::from(field.0)..][..bytes.len()].copy_from_slice(bytes);
}

fn get<const N: usize>(wire: &[u8; WIRE_BYTES], field: Field) -> [u8; N] {
    std::array::from_fn(|i| wire[usize::from(field.0) + i])
}

fn u32s(wire: &[u8; WIRE_BYTES], field: impl Fn(usize) -> Field) -> [u32; 3] {
    std::array::from_fn(|d| u32::from_le_bytes(get(wire, field(d))))
}

impl Descriptor {
    /// Elements in all.
    pub fn elements(&self) -> u128 {
        self.counts.iter().map(|&c| u128::from(c)).product()
    }

    /// The wire bytes, little endian; docs/dma.md has the table.
    pub fn encode(&self) -> [u8; WIRE_BYTES] {
        let mut w = [0; WIRE_BYTES];
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        let flags = flag(self.source.index.is_some(), FLAG_SOURCE_INDEX)
            | flag(self.destination.index.is_some(), FLAG_DESTINATION_INDEX)
            | flag(self.wide_index, FLAG_WIDE_INDEX)
            | flag(self.clamp, FLAG_CLAMP)
            | flag(self.window.is_some(), FLAG_WINDOW)
            | flag(self.link.is_some(), FLAG_LINK);
        put(&mut w, Field::VERSION, &[VERSION]);
        put(&mut w, Field::ELEMENT, &[self.element.code()]);
        put(&mut w, Field::REMAP, &[u8::from(self.remap == Remap::Transpose)]);
        put(&mut w, Field::FLAGS, &[flags]);
        put(&mut w, Field::TAG, &self.tag.to_le_bytes());
        put(&mut w, Field::LINK, &self.link.unwrap_or(0).to_le_bytes());
        for d in 0..3 {
            put(&mut w, Field::count(d), &self.counts[d].to_le_bytes());
        }
        for (s, side) in [&self.source, &self.destination].into_iter().enumerate() {
            put(&mut w, Field::region(s), &[side.region]);
            put(&mut w, Field::offset(s), &side.offset.to_le_bytes());
            for d in 0..3 {
                put(&mut w, Field::stride(s, d), &side.strides[d].to_le_bytes());
            }
            if let Some(index) = &side.index {
                put(&mut w, Field::index_region(s), &[index.region]);
                put(&mut w, Field::index_dimension(s), &[index.dimension]);
                put(&mut w, Field::index_offset(s), &index.offset.to_le_bytes());
                put(&mut w, Field::index_bound(s), &index.bound.to_le_bytes());
            }
        }
        if let Some(window) = &self.window {
            put(&mut w, Field::FILL, &window.fill.to_le_bytes());
            for d in 0..3 {
                put(&mut w, Field::window_lo(d), &window.lo[d].to_le_bytes());
                put(&mut w, Field::window_hi(d), &window.hi[d].to_le_bytes());
            }
        }
        w
    }

    /// Reads wire bytes.
    ///
    /// # Errors
    /// The first field whose code has no meaning: version, element, remap, flags, a dimension, a reserved byte that is not zero.
    pub fn decode(wire: &[u8; WIRE_BYTES]) -> Result<Self, Refusal> {
        let byte = |field: Field| wire[usize::from(field.0)];
        let refuse = |field: Field| Refusal { field, value: u64::from(byte(field)) };
        if byte(Field::VERSION) != VERSION {
            return Err(refuse(Field::VERSION));
        }
        let element = Element::from_code(byte(Field::ELEMENT)).ok_or(refuse(Field::ELEMENT))?;
        let remap = match byte(Field::REMAP) {
            0 => Remap::Direct,
            1 => Remap::Transpose,
            _ => return Err(refuse(Field::REMAP)),
        };
        let flags = byte(Field::FLAGS);
        if flags & !FLAGS != 0 {
            return Err(refuse(Field::FLAGS));
        }
        if let Some(i) = Field::reserved().find(|&i| wire[i] != 0) {
            return Err(Refusal { field: Field(i as u8), value: u64::from(wire[i]) });
        }
        let side = |s: usize, indexed: u8| -> Result<Side, Refusal> {
            let index = if flags & indexed == 0 {
                None
            } else if byte(Field::index_dimension(s)) > 2 {
                return Err(refuse(Field::index_dimension(s)));
            } else {
                Some(IndexList {
                    region: byte(Field::index_region(s)),
                    offset: u64::from_le_bytes(get(wire, Field::index_offset(s))),
                    dimension: byte(Field::index_dimension(s)),
                    bound: u32::from_le_bytes(get(wire, Field::index_bound(s))),
                })
            };
            Ok(Side {
                region: byte(Field::region(s)),
                offset: i64::from_le_bytes(get(wire, Field::offset(s))),
                strides: std::array::from_fn(|d| i64::from_le_bytes(get(wire, Field::stride(s, d)))),
                index,
            })
        };
        Ok(Self {
            element,
            remap,
            counts: u32s(wire, Field::count),
            source: side(0, FLAG_SOURCE_INDEX)?,
            destination: side(1, FLAG_DESTINATION_INDEX)?,
            window: (flags & FLAG_WINDOW != 0).then(|| Window {
                lo: u32s(wire, Field::window_lo),
                hi: u32s(wire, Field::window_hi),
                fill: u64::from_le_bytes(get(wire, Field::FILL)),
            }),
            wide_index: flags & FLAG_WIDE_INDEX != 0,
            clamp: flags & FLAG_CLAMP != 0,
            tag: Self::wire_tag(wire),
            link: Self::wire_link(wire),
        })
    }

    /// The tag of a descriptor that may not decode.
    pub(crate) fn wire_tag(wire: &[u8; WIRE_BYTES]) -> u32 {
        u32::from_le_bytes(get(wire, Field::TAG))
    }

    /// The link of a descriptor that may not decode in other fields.
    pub(crate) fn wire_link(wire: &[u8; WIRE_BYTES]) -> Option<u64> {
        let flags = wire[usize::from(Field::FLAGS.0)];
        (flags & FLAG_LINK != 0).then(|| u64::from_le_bytes(get(wire, Field::LINK)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list() -> impl Strategy<Value = Option<IndexList>> {
        prop::option::of(
            (0u8..16, any::<u64>(), 0u8..3, any::<u32>()).prop_map(|(region, offset, dimension, bound)| IndexList {
                region,
                offset,
                dimension,
                bound,
            }),
        )
    }

    fn side() -> impl Strategy<Value = Side> {
        (0u8..16, any::<i64>(), any::<[i64; 3]>(), list()).prop_map(|(region, offset, strides, index)| Side {
            region,
            offset,
            strides,
            index,
        })
    }

    prop_compose! {
        /// Any descriptor that the wire can carry.
        pub(crate) fn descriptor()(
            element in prop::sample::select(Element::ALL.to_vec()),
            transpose in any::<bool>(),
            counts in any::<[u32; 3]>(),
            source in side(),
            destination in side(),
            window in prop::option::of(any::<([u32; 3], [u32; 3], u64)>()),
            (wide_index, clamp, tag) in any::<(bool, bool, u32)>(),
            link in prop::option::of(any::<u64>()),
        ) -> Descriptor {
            Descriptor {
                element,
                remap: if transpose { Remap::Transpose } else { Remap::Direct },
                counts, source, destination,
                window: window.map(|(lo, hi, fill)| Window { lo, hi, fill }),
                wide_index, clamp, tag, link,
            }
        }
    }

    proptest! {
        #[test]
        fn the_wire_carries_every_descriptor(d in descriptor()) {
            prop_assert_eq!(Descriptor::decode(&d.encode()), Ok(d));
        }

        #[test]
        fn each_reserved_bit_is_refused_by_its_byte(d in descriptor(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let i = *at.get(&Field::reserved().collect::<Vec<_>>());
            let mut wire = d.encode();
            wire[i] |= 1 << bit;
            prop_assert_eq!(Descriptor::decode(&wire), Err(Refusal { field: Field(i as u8), value: 1 << bit }));
        }
    }
}
