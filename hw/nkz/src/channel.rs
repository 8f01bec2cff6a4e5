/// The reference exponent and table of a lossless tile without static tables: one table for every channel.
pub const PLAIN_TABLE: u8 = 0;

/// The static tables' line of one channel, loaded with the weights: 52 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channel {
    /// BF16, finite: what is subtracted.
    pub mean: u16,
    /// Signed 8 bits: the step at QP 0 in quarter octaves, entropy-coded modes.
    pub step: i8,
    /// Signed 8 bits: the spread of the residual in steps at QP 0, quarter octaves above 2^(−2.5).
    pub spread: i8,
    /// Signed 8 bits: the step at QP 0 in quarter octaves, fixed-length mode.
    pub fixed_step: i8,
    /// 8 bits: the biased exponent that the lossless mode codes differences from.
    pub exponent: u8,
    /// 4 bits: the lossless mode's table.
    pub exponent_table: u8,
}

impl Channel {
    /// Bits of a line.
    pub const BITS: usize = 52;

    /// The 52 bits, fields from bit 0 up in the order of the structure.
    pub fn pack(&self) -> u64 {
        u64::from(self.mean)
            | u64::from(self.step as u8) << 16
            | u64::from(self.spread as u8) << 24
            | u64::from(self.fixed_step as u8) << 32
            | u64::from(self.exponent) << 40
            | u64::from(self.exponent_table & 15) << 48
    }

    /// Reads the 52 bits.
    pub fn unpack(bits: u64) -> Self {
        Self {
            mean: bits as u16,
            step: (bits >> 16) as i8,
            spread: (bits >> 24) as i8,
            fixed_step: (bits >> 32) as i8,
            exponent: (bits >> 40) as u8,
            exponent_table: (bits >> 48) as u8 & 15,
        }
    }

    /// The number of the entropy table at `qp` with the tile's table offset −2..=1.
    #[inline]
    pub fn table(&self, qp: u8, offset: i32) -> usize {
        (((2 * i32::from(self.spread) - i32::from(qp)) >> 2) + offset).clamp(0, 15) as usize
    }
}
