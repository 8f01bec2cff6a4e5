//! One job on either engine.

use super::{Matrix, Setup};
use crate::blocks::mvp::driver::{self, Operands, Rates};
use crate::wave::{Tracer, WaveError};
use anyhow::bail;
use mvp::{Array, Computed, Config, Counters, Job, Processor, Sums, gemm_cycles, gemm_cycles_no_overlap, sums};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rtl::Module;

/// Most tiles of a clocked job.
const MAX_TILES: u128 = 1 << 22;

/// What runs a product.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Clocks every register
    Cycle,
    /// Computes bits and cycles directly
    Transaction,
    /// Runs both; exit code 1 if they differ in a bit or a cycle
    Both,
}

/// What a job left.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// M × N sums.
    pub sums: Sums,
    /// Some INT32 sum left 32 bits.
    pub overflow: bool,
    /// Where the cycles went.
    pub counters: Counters,
}

/// The machine that runs the jobs of one command, one after the other.
pub struct Machine<T> {
    engine: Engine,
    no_overlap: bool,
    config: Config,
    processor: Processor<Array>,
    trace: Offset<T>,
    /// The engines differed somewhere.
    pub differ: bool,
}

/// A trace whose cycles go on where the job before ended.
struct Offset<T> {
    trace: T,
    base: u64,
    next: u64,
}

impl<T: Tracer> Tracer for Offset<T> {
    fn sample<M: Module>(&mut self, cycle: u64, module: &mut M) -> Result<(), WaveError> {
        self.next = self.base + cycle + 1;
        self.trace.sample(self.base + cycle, module)
    }
}

impl<T: Tracer> Machine<T> {
    /// A machine, reset.
    pub fn new(setup: &Setup<'_>, trace: T) -> Self {
        Self {
            engine: setup.engine,
            no_overlap: setup.options.no_overlap,
            config: setup.config,
            processor: Processor::new(setup.config),
            trace: Offset { trace, base: 0, next: 0 },
            differ: false,
        }
    }

    /// X[M, K] · W[K, N].
    ///
    /// # Errors
    /// A job that cannot be run, is too long to be clocked, or whose waveform cannot be written.
    pub fn run(&mut self, job: Job, x: &Matrix, w: &Matrix) -> anyhow::Result<Ran> {
        match self.engine {
            Engine::Cycle => self.clocked(job, x, w),
            Engine::Transaction => self.computed(job, x, w),
            Engine::Both => {
                let (clocked, computed) = (self.clocked(job, x, w)?, self.computed(job, x, w)?);
                let bits = |ran: &Ran, i| ran.sums.bits(i);
                let same = (0..job.m * job.n).all(|i| bits(&clocked, i) == bits(&computed, i));
                self.differ |= !same || clocked.counters != computed.counters || clocked.overflow != computed.overflow;
                Ok(clocked)
            }
        }
    }

    /// Every register, edge by edge.
    fn clocked(&mut self, job: Job, x: &Matrix, w: &Matrix) -> anyhow::Result<Ran> {
        let job = job.checked()?;
        let config = self.config;
        let tiles = [job.m.div_ceil(config.depth), job.n.div_ceil(config.cols), config.k_tiles(job.k)];
        if tiles.iter().map(|&t| t as u128).product::<u128>() > MAX_TILES {
            bail!(
                "more than {MAX_TILES} tiles: clocking them takes hours; a larger --array or --engine transaction does not"
            )
        }
        let operands = Operands { x: x.clocked(), w: w.clocked(), ..Operands::default() };
        job.check_operands(operands.x.len(), operands.w.len())?;
        self.trace.base = self.trace.next;
        // Lanes past the tile carry what this generator draws; nothing else is random with all ports always ready.
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(0);
        let ran = driver::run(&mut self.processor, job, &operands, Rates::FULL, &mut rng, &mut self.trace)?;
        let sums = match config.sums_float() {
            true => Sums::Fp32(ran.y.iter().map(|&bits| f32::from_bits(bits as u32)).collect()),
            false => Sums::Int32(ran.y),
        };
        Ok(Ran { sums, overflow: ran.overflow, counters: ran.counters })
    }

    /// Bits and counters by the closed forms.
    fn computed(&self, job: Job, x: &Matrix, w: &Matrix) -> anyhow::Result<Ran> {
        let Computed { sums, overflow, .. } = sums(self.config, job, x.codes(), w.codes())?;
        let counters = if self.no_overlap { without_overlap(self.config, job) } else { overlapped(self.config, job) };
        Ok(Ran { sums, overflow, counters })
    }

    /// Gives the trace back.
    pub fn into_trace(self) -> T {
        self.trace.trace
    }
}

/// M·N·K, and edges on which a row enters: each row of X once with every tile.
fn work(config: Config, job: Job) -> (u64, u64) {
    let [m, n, k] = [job.m, job.n, job.k].map(|v| v as u64);
    (m * n * k, m * job.n.div_ceil(config.cols) as u64 * config.k_tiles(job.k) as u64)
}

/// The processor's counters without stalls: after the last row comes the drain of R·L + (C − 1) + A edges, and every other edge
/// without a row waits for weights.
fn overlapped(config: Config, job: Job) -> Counters {
    let (active, rows) = work(config, job);
    let cycles = gemm_cycles(config, job);
    let drain = (config.rows * config.mac_latency() + config.cols - 1 + config.accumulator_latency()) as u64;
    Counters { cycles, active, exposed: cycles - rows - drain, drain, ..Counters::default() }
}

/// As SCALE-Sim counts: the C edges of every load are exposed, the rest is drain.
fn without_overlap(config: Config, job: Job) -> Counters {
    let (active, rows) = work(config, job);
    let cycles = gemm_cycles_no_overlap(config, job);
    let exposed = rows / job.m as u64 * job.m.div_ceil(config.depth) as u64 * config.cols as u64;
    Counters { cycles, active, exposed, drain: cycles - rows - exposed, ..Counters::default() }
}
