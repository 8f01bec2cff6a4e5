//! Operands of presets: tensors and index lists.

use crate::Side;
use serde::{Deserialize, Serialize};

/// Where a tensor begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Region register.
    pub region: u8,
    /// Offset in it: bytes, nibbles for INT4.
    #[serde(default)]
    pub offset: i64,
}

impl Place {
    /// Offset `offset` in region `region`.
    pub const fn new(region: u8, offset: i64) -> Self {
        Self { region, offset }
    }

    /// As a side of a descriptor.
    pub(super) fn side(self, strides: [i64; 3]) -> Side {
        Side { region: self.region, offset: self.offset, strides, index: None }
    }
}

/// An index list of a preset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// Region register.
    pub region: u8,
    /// Byte offset of its first entry.
    #[serde(default)]
    pub offset: u64,
    /// Every index is below.
    pub bound: u32,
    /// Entries are signed 32-bit, not unsigned 16-bit.
    #[serde(default)]
    pub wide: bool,
    /// Out-of-range indices become the nearest valid one.
    #[serde(default)]
    pub clamp: bool,
}
