use crate::Datapath;
use numeric::{FloatFormat, Specials};

/// Largest number of rows or columns.
const MAX_SIDE: usize = 256;
/// Smallest accumulator, in rows: the output FIFO is as deep, and one entry would run at half rate.
const MIN_DEPTH: usize = 2;
/// Largest accumulator, in rows.
const MAX_DEPTH: usize = 65_536;
/// Largest M, N or K of a job: the width of its registers.
const MAX_COUNT: u64 = u32::MAX as u64;
/// Most pipeline stages of a float multiply-accumulate or of the FP32 accumulator.
const MAX_STAGES: usize = 16;

/// The shape and the datapath of a processor, fixed when it is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// R: rows of elements, 1..=256; a tile is R k-steps deep, or 2R with INT4 weights.
    pub rows: usize,
    /// C: columns of elements, the n of a tile, 1..=256.
    pub cols: usize,
    /// D: rows of the accumulator and of the output FIFO, 2..=65,536: a FIFO of one entry runs at half rate.
    pub depth: usize,
    /// What an element multiplies.
    pub datapath: Datapath,
    /// L of a float element, 1..=16; an integer one has L = 1.
    pub mac_stages: usize,
    /// A of an FP32 accumulator, 1..=16; an INT32 one has A = 1.
    pub adder_stages: usize,
    /// g: operands carry a scale per g values along k, and the accumulator sums in FP32; a tile never crosses a group.
    pub group: Option<usize>,
}

impl Default for Config {
    /// 32×32, INT8, 1,024 accumulator rows, no group scales; L = A = 4 where sums are FP32.
    fn default() -> Self {
        Self { rows: 32, cols: 32, depth: 1024, datapath: Datapath::Int8, mac_stages: 4, adder_stages: 4, group: None }
    }
}

/// A configuration that cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Rows or columns out of range.
    #[error("an array of {rows}×{cols}: rows and columns must each lie in 1..={MAX_SIDE}")]
    Side {
        /// R.
        rows: usize,
        /// C.
        cols: usize,
    },
    /// Accumulator depth out of range.
    #[error(
        "an accumulator of {0} rows: it must have {MIN_DEPTH}..={MAX_DEPTH}; the output FIFO is as deep, and one row would halve its rate"
    )]
    Depth(usize),
    /// Pipeline stages out of range.
    #[error("{unit} of {stages} stages: it must have 1..={MAX_STAGES}")]
    Stages {
        /// `a multiply-accumulate` or `an accumulator`.
        unit: &'static str,
        /// Stages asked for.
        stages: usize,
    },
    /// Matrix-vector columns that the array does not have.
    #[error("{outputs} outputs of {vectors} vectors: both must be at least 1 and their product at most C = {cols}")]
    Columns {
        /// q.
        outputs: usize,
        /// v.
        vectors: usize,
        /// C.
        cols: usize,
    },
    /// A group of no values.
    #[error("scales per 0 values along k: a group has at least one")]
    Group,
    /// A format that no element multiplies.
    #[error("{0} is no operand of a float element: operands have at most 16 bits and a zero")]
    Operand(FloatFormat),
}

/// A matrix product Y[M, N] = X[M, K] · W[K, N].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Rows of X and Y.
    pub m: usize,
    /// Columns of W and Y.
    pub n: usize,
    /// Columns of X, rows of W.
    pub k: usize,
}

/// A job that cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// A dimension is zero or wider than its register.
    #[error("{name} = {value}: M, N and K must each lie in 1..={MAX_COUNT}")]
    Count {
        /// Which dimension.
        name: char,
        /// Its value.
        value: usize,
    },
    /// An operand has the wrong number of values.
    #[error("{name} has {got} values, but {m}×{k}×{n} (M×K×N) needs {expected}", m = job.m, k = job.k, n = job.n)]
    Operand {
        /// `X` or `W`.
        name: char,
        /// Values given.
        got: usize,
        /// Values needed.
        expected: usize,
        /// The job.
        job: Job,
    },
}

impl Config {
    /// An array of R×C with the default accumulator of 1,024 rows.
    ///
    /// # Errors
    /// If a side is 0 or more than 256.
    pub fn new(rows: usize, cols: usize) -> Result<Self, ConfigError> {
        Self { rows, cols, ..Self::default() }.checked()
    }

    /// The same configuration, if it can be built.
    ///
    /// # Errors
    /// Names the field that is out of range.
    pub fn checked(self) -> Result<Self, ConfigError> {
        let side = 1..=MAX_SIDE;
        if !side.contains(&self.rows) || !side.contains(&self.cols) {
            return Err(ConfigError::Side { rows: self.rows, cols: self.cols });
        }
        if !(MIN_DEPTH..=MAX_DEPTH).contains(&self.depth) {
            return Err(ConfigError::Depth(self.depth));
        }
        for (unit, stages) in [("a multiply-accumulate", self.mac_stages), ("an accumulator", self.adder_stages)] {
            if !(1..=MAX_STAGES).contains(&stages) {
                return Err(ConfigError::Stages { unit, stages });
            }
        }
        if self.group == Some(0) {
            return Err(ConfigError::Group);
        }
        if let Datapath::Float { act, weight } = self.datapath
            && let Some(format) = [act, weight].into_iter().find(|f| f.width() > 16 || f.specials() == Specials::Scale)
        {
            return Err(ConfigError::Operand(format));
        }
        Ok(self)
    }

    /// L: edges from an element's inputs to its partial sum. 1 for integers.
    pub const fn mac_latency(&self) -> usize {
        if self.datapath.is_float() { self.mac_stages } else { 1 }
    }

    /// Whether sums over k-tiles are FP32: float elements, or group scales.
    pub const fn sums_float(&self) -> bool {
        self.datapath.is_float() || self.group.is_some()
    }

    /// A: edges from the accumulator's read to its write. 1 for INT32 sums.
    pub const fn accumulator_latency(&self) -> usize {
        if self.sums_float() { self.adder_stages } else { 1 }
    }

    /// Values along k that a full tile holds: R × steps, or g where a group is shorter.
    pub fn tile_depth(&self) -> usize {
        let full = self.rows * self.datapath.steps();
        self.group.map_or(full, |g| g.min(full))
    }

    /// k-tiles of a job: every group is cut into tiles of [`tile_depth`](Config::tile_depth), the last one of a group may be shorter.
    pub fn k_tiles(&self, k: usize) -> usize {
        let depth = self.tile_depth();
        let group = self.group.unwrap_or(k);
        k / group * group.div_ceil(depth) + (k % group).div_ceil(depth)
    }

    /// The k of tile `chunk`, which is below [`k_tiles`](Config::k_tiles).
    pub fn k_range(&self, k: usize, chunk: usize) -> std::ops::Range<usize> {
        let depth = self.tile_depth();
        let group = self.group.unwrap_or(k).min(k);
        let tiles = group.div_ceil(depth);
        let (start, end) = (chunk / tiles * group, (chunk / tiles * group + group).min(k));
        let from = start + chunk % tiles * depth;
        from..(from + depth).min(end)
    }
}

impl Job {
    /// The same job, if its counts fit the registers.
    ///
    /// # Errors
    /// Names the dimension that is zero or too large.
    pub fn checked(self) -> Result<Self, JobError> {
        for (name, value) in [('M', self.m), ('N', self.n), ('K', self.k)] {
            if value == 0 || value as u64 > MAX_COUNT {
                return Err(JobError::Count { name, value });
            }
        }
        Ok(self)
    }

    /// Checks that operands have the job's shape.
    ///
    /// # Errors
    /// Names the operand and both sizes.
    pub fn check_operands(self, x: usize, w: usize) -> Result<(), JobError> {
        for (name, got, expected) in [('X', x, self.m * self.k), ('W', w, self.k * self.n)] {
            if got != expected {
                return Err(JobError::Operand { name, got, expected, job: self });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_k_once_and_never_cross_a_group() {
        for (rows, datapath) in [(1, Datapath::Int8), (4, Datapath::Int8), (4, Datapath::Int4), (16, Datapath::Int4)] {
            for group in [None, Some(1), Some(3), Some(8), Some(32)] {
                let config = Config { rows, datapath, group, ..Config::default() };
                for k in 1..100 {
                    let mut next = 0;
                    for chunk in 0..config.k_tiles(k) {
                        let range = config.k_range(k, chunk);
                        assert!(range.start == next && !range.is_empty() && range.len() <= rows * datapath.steps());
                        let group = group.unwrap_or(k);
                        assert_eq!(range.start / group, (range.end - 1) / group, "{config:?}, K = {k}");
                        next = range.end;
                    }
                    assert_eq!(next, k, "{config:?}");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_built_is_refused() {
        let good = Config::default();
        for bad in [
            Config { depth: 0, ..good },
            Config { depth: 1, ..good },
            Config { depth: MAX_DEPTH + 1, ..good },
            Config { mac_stages: 0, ..good },
            Config { adder_stages: 17, ..good },
            Config { group: Some(0), ..good },
            Config { datapath: Datapath::float(FloatFormat::FP32), ..good },
        ] {
            assert!(bad.checked().is_err(), "{bad:?}");
        }
        assert_eq!(Config { depth: MIN_DEPTH, ..good }.checked().map(|c| c.depth), Ok(MIN_DEPTH));
    }
}
