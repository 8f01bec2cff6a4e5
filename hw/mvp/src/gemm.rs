use crate::{Config, ConfigError, Job, JobError};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GemmError {
    /// The processor cannot be built.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The job does not fit.
    #[error(transparent)]
    Job(#[from] JobError),
}

/// Cycles of a job without stalls:
/// C + Σ over all tiles but the last of max(M_f, C, A) + M_last + R·L + (C − 1) + A.
///
/// docs/mvp.md derives it.
pub fn gemm_cycles(config: Config, job: Job) -> u64 {
    let [r, c, l, a] = [config.rows, config.cols, config.mac_latency(), config.accumulator_latency()].map(|v| v as u64);
    let (m, depth) = (job.m as u64, config.depth as u64);
    let tiles = job.n.div_ceil(config.cols) as u64 * job.k.div_ceil(config.rows) as u64;
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
    let (config, job) = (config.checked()?, job.checked()?);
    job.check_operands(x.len(), w.len())?;
    let mut y = vec![0i32; job.m * job.n];
    let mut partial = vec![0i32; job.n];
    let mut overflow = false;
    for (x, y) in x.chunks_exact(job.k).zip(y.chunks_exact_mut(job.n)) {
        for (tile, (x, w)) in x.chunks(config.rows).zip(w.chunks(config.rows * job.n)).enumerate() {
            partial.fill(0);
            for (&a, w) in x.iter().zip(w.chunks_exact(job.n)) {
                for (p, &w) in partial.iter_mut().zip(w) {
                    *p += i32::from(a) * i32::from(w);
                }
            }
            for (sum, &p) in y.iter_mut().zip(&partial) {
                let (next, carry) = sum.overflowing_add(p);
                overflow |= carry && tile > 0;
                *sum = next;
            }
        }
    }
    Ok(GemmResult { y, overflow, cycles: gemm_cycles(config, job) })
}
