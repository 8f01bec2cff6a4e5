/// Largest number of rows or columns.
const MAX_SIDE: usize = 256;
/// Largest accumulator, in rows.
const MAX_DEPTH: usize = 65_536;
/// Largest M, N or K of a job: the width of its registers.
const MAX_COUNT: u64 = u32::MAX as u64;

/// The shape of a processor, fixed when it is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// R: rows of elements, the k of a tile, 1..=256.
    pub rows: usize,
    /// C: columns of elements, the n of a tile, 1..=256.
    pub cols: usize,
    /// D: rows of the accumulator and of the output FIFO, 1..=65,536.
    pub depth: usize,
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
    #[error("an accumulator of {0} rows: it must have 1..={MAX_DEPTH}")]
    Depth(usize),
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
        Self { rows, cols, depth: 1024 }.checked()
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
        if !(1..=MAX_DEPTH).contains(&self.depth) {
            return Err(ConfigError::Depth(self.depth));
        }
        Ok(self)
    }

    /// L: edges from an element's inputs to its partial sum. 1 for integers.
    pub const fn mac_latency(&self) -> usize {
        1
    }

    /// A: edges from the accumulator's read to its write. 1 for integers.
    pub const fn accumulator_latency(&self) -> usize {
        1
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
