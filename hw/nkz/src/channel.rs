/// The reference exponent and table of a lossless tile without static tables: one table for every channel.
pub const PLAIN_TABLE: u8 = 0;

/// The static tables' line of one channel, loaded with the weights: 56 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channel {
    /// BF16, finite: what is subtracted.
    pub mean: u16,
    /// Signed 8 bits: the step's index at QP 0, entropy-coded modes.
    pub step: i8,
    /// Signed 8 bits: the spread of the residual in steps at QP 0, quarter octaves above 2^(−2.5).
    pub spread: i8,
    /// Signed 8 bits: the step's index at QP 0, fixed-length mode.
    pub fixed_step: i8,
    /// 8 bits: the biased exponent that the lossless mode codes differences from.
    pub exponent: u8,
    /// 4 bits: the lossless mode's table.
    pub exponent_table: u8,
}

impl Channel {
    /// Bits of a line.
    pub const BITS: usize = 52;

    /// The number of the entropy table at `qp` with the tile's table offset −2..=1.
    #[inline]
    pub fn table(&self, qp: u8, offset: i32) -> usize {
        (((i32::from(self.spread) - i32::from(qp)) >> 1) + offset).clamp(0, 15) as usize
    }
}
