use crate::{Codes, Computed, Config, ConfigError, Datapath, Job, JobError, Sums, sums};

/// What the transaction engine computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GemmResult {
    /// Y, M × N, row by row.
    pub y: Vec<i32>,
    /// Some sum over k-tiles left 32 bits.
    pub overflow: bool,
    /// Cycles that the clocked processor takes with operands and room always at hand.
    pub cycles: u64,
}

/// Why a job cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum GemmError {
    /// The processor cannot be built.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The job does not fit.
    #[error(transparent)]
    Job(#[from] JobError),
    /// An operand's codes are not those of the datapath.
    #[error("{name} does not fit the {datapath} datapath: it takes {wants}")]
    Codes {
        /// `X` or `W`.
        name: char,
        /// What the datapath takes.
        wants: &'static str,
        /// The datapath.
        datapath: Datapath,
    },
    /// The configuration has group scales, but none were given.
    #[error("the configuration has group scales, but none were given: use the function that takes them, or no group")]
    GroupScales,
    /// Scales were given, but the configuration has no groups.
    #[error("group scales were given, but the configuration has no group")]
    NoGroup,
    /// The wrong number of group scales.
    #[error("{got} {what}, but groups of {group} values need {expected}")]
    Scales {
        /// Which scales.
        what: &'static str,
        /// Scales given.
        got: usize,
        /// Scales needed.
        expected: usize,
        /// g.
        group: usize,
    },
    /// Minima for float weights.
    #[error("minima belong to integer weights: the float datapath adds none")]
    Minima,
}

/// Cycles of a job without stalls:
/// C + Σ over all tiles but the last of max(M_f, C, A) + M_last + R·L + (C − 1) + A.
///
/// docs/mvp.md derives it.
pub fn gemm_cycles(config: Config, job: Job) -> u64 {
    let [r, c, l, a] = [config.rows, config.cols, config.mac_latency(), config.accumulator_latency()].map(|v| v as u64);
    let (m, depth) = (job.m as u64, config.depth as u64);
    let tiles = job.n.div_ceil(config.cols) as u64 * config.k_tiles(job.k) as u64;
    let blocks = m.div_ceil(depth);
    let last = m - (blocks - 1) * depth;
    let between = (blocks - 1) * tiles * depth.max(c).max(a) + (tiles - 1) * last.max(c).max(a);
    c + between + last + r * l + (c - 1) + a
}

/// The transaction engine: the bits and the cycle count of [`Processor`](crate::Processor) without clocking it.
///
/// `x` is M × K, `w` is K × N, both row by row.
///
/// # Errors
/// If the configuration cannot be built or the operands do not have the job's shape.
pub fn gemm(config: Config, job: Job, x: &[i8], w: &[i8]) -> Result<GemmResult, GemmError> {
    let Computed { sums, overflow, cycles } = sums(config, job, Codes::Int(x), Codes::Int(w))?;
    match sums {
        Sums::Int32(y) => Ok(GemmResult { y, overflow, cycles }),
        Sums::Fp32(_) => Err(GemmError::Codes { name: 'X', wants: "float codes", datapath: config.datapath }),
    }
}
