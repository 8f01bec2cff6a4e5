use crate::VectorError;

/// Edges of one FP32 step: the depth of the pipelined adder, multiplier and fused multiply-add. Accumulators therefore keep this
/// many partial results a lane.
pub const STEP_EDGES: usize = 4;

/// Longest row, in values: the row buffer's size, whatever the lanes.
pub const MAX_LEN: usize = 65_536;

/// Most rows that a pass of a multi-pass operation works on before the next pass.
pub const MAX_BATCH: usize = 64;

/// Words of the frequency memory: rows of RoPE have at most twice as many values.
pub const MAX_FREQUENCIES: usize = 256;

/// The shape of a vector unit, fixed when it is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// FP32 lanes: values of a beat. A power of two, 8..=64. Sums depend on it.
    pub lanes: usize,
}

impl Default for Config {
    /// 32 lanes.
    fn default() -> Self {
        Self { lanes: 32 }
    }
}

impl Config {
    /// A unit of so many lanes.
    ///
    /// # Errors
    /// If that is no power of two in 8..=64.
    pub fn new(lanes: usize) -> Result<Self, VectorError> {
        Self { lanes }.checked()
    }

    /// The same configuration, if it can be built.
    ///
    /// # Errors
    /// As [`Config::new`].
    pub fn checked(self) -> Result<Self, VectorError> {
        let fits = self.lanes.is_power_of_two() && (8..=64).contains(&self.lanes);
        if fits { Ok(self) } else { Err(VectorError::Lanes(self.lanes)) }
    }

    /// Beats of a row of `len` values.
    pub const fn beats(&self, len: usize) -> usize {
        len.div_ceil(self.lanes)
    }

    /// Words of the row buffer.
    pub const fn words(&self) -> usize {
        MAX_LEN / self.lanes
    }

    /// Levels of the adder tree over the lanes.
    pub const fn levels(&self) -> usize {
        self.lanes.trailing_zeros() as usize
    }

    /// Rows of `len` values that share the passes of a multi-pass operation: as many as the row buffer holds, at most [`MAX_BATCH`].
    pub const fn batch(&self, len: usize) -> usize {
        let fit = if len == 0 { MAX_BATCH } else { self.words() / self.beats(len) };
        if fit == 0 {
            1
        } else if fit < MAX_BATCH {
            fit
        } else {
            MAX_BATCH
        }
    }
}
