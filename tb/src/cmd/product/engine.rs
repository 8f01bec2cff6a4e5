//! One job on either engine.

use super::{Matrix, Setup};
use crate::blocks::mvp::driver::{self, Operands, Rates};
use crate::blocks::mvp::gemv;
use crate::wave::{Trace, Tracer, WaveError};
use anyhow::bail;
use mvp::{
    Array, Computed, Config, Counters, Gemv, GemvJob, GemvShape, Job, Processor, Sums, gemm_cycles,
    gemm_cycles_no_overlap, sums,
};
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

/// The jobs of one command, together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Jobs run.
    pub jobs: usize,
    /// Summed over the jobs, which follow each other.
    pub counters: Counters,
    /// Some INT32 sum left 32 bits.
    pub overflow: bool,
    /// The engines differed somewhere.
    pub differ: bool,
}

/// The machine that runs the jobs of one command, one after the other.
pub struct Machine {
    engine: Engine,
    no_overlap: bool,
    config: Config,
    rates: Rates,
    seed: u64,
    trace: Offset,
    tally: Tally,
}

/// A trace whose cycles go on where the job before ended.
struct Offset {
    trace: Option<Trace>,
    base: u64,
    next: u64,
}

impl Tracer for Offset {
    fn sample<M: Module>(&mut self, cycle: u64, module: &mut M) -> Result<(), WaveError> {
        self.next = self.base + cycle + 1;
        self.trace.sample(self.base + cycle, module)
    }
}

/// A processor of either mode.
pub enum Mode {
    /// Weights stand still, rows of X pass.
    Gemm(Box<Processor<Array>>),
    /// v vectors stand still, weights pass.
    Gemv(Box<Gemv>),
}

impl Machine {
    /// A machine that has run nothing.
    ///
    /// # Errors
    /// If the waveform cannot be created.
    pub fn new(setup: &Setup<'_>) -> anyhow::Result<Self> {
        Ok(Self {
            engine: setup.engine,
            no_overlap: setup.options.no_overlap,
            config: setup.config,
            rates: setup.rates,
            seed: setup.options.seed,
            trace: Offset { trace: setup.options.trace()?, base: 0, next: 0 },
            tally: Tally::default(),
        })
    }

    /// X[M, K] · W[K, N], where M is v in the matrix-vector mode.
    ///
    /// # Errors
    /// A job that cannot be run, is too long to be clocked, or whose waveform cannot be written.
    pub fn run(&mut self, mode: &mut Mode, job: Job, x: &Matrix, w: &Matrix) -> anyhow::Result<Ran> {
        let ran = match self.engine {
            Engine::Cycle => self.clocked(mode, job, x, w)?,
            Engine::Transaction => self.computed(mode, job, x, w)?,
            Engine::Both => {
                let (clocked, computed) = (self.clocked(mode, job, x, w)?, self.computed(mode, job, x, w)?);
                let same = (0..job.m * job.n).all(|i| clocked.sums.bits(i) == computed.sums.bits(i));
                let equal = clocked.counters == computed.counters && clocked.overflow == computed.overflow;
                self.tally.differ |= !(same && equal);
                clocked
            }
        };
        self.tally.add(&ran);
        Ok(ran)
    }

    /// Every register, edge by edge.
    fn clocked(&mut self, mode: &mut Mode, job: Job, x: &Matrix, w: &Matrix) -> anyhow::Result<Ran> {
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
        // Lanes past the tile carry what this generator draws, and ports stand still by it.
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let (y, overflow, counters) = match mode {
            Mode::Gemm(processor) => {
                // The driver ends while the last row still stands at the output.
                processor.reset();
                let ran = driver::run(processor, job, &operands, self.rates, &mut rng, &mut self.trace)?;
                (ran.y, ran.overflow, ran.counters)
            }
            Mode::Gemv(processor) => {
                let job = GemvJob { n: job.n, k: job.k };
                let ran = gemv::run(processor, job, &operands, self.rates, &mut rng, &mut self.trace)?;
                (ran.y, ran.overflow, ran.counters)
            }
        };
        let sums = match config.sums_float() {
            true => Sums::Fp32(y.iter().map(|&bits| f32::from_bits(bits as u32)).collect()),
            false => Sums::Int32(y),
        };
        Ok(Ran { sums, overflow, counters })
    }

    /// Bits and counters by the closed forms.
    fn computed(&self, mode: &Mode, job: Job, x: &Matrix, w: &Matrix) -> anyhow::Result<Ran> {
        let Computed { sums, overflow, .. } = sums(self.config, job, x.codes(), w.codes())?;
        let counters = match mode {
            Mode::Gemm(_) if self.no_overlap => without_overlap(self.config, job),
            Mode::Gemm(_) => overlapped(self.config, job),
            Mode::Gemv(gemv) => streamed(gemv.shape(), job),
        };
        Ok(Ran { sums, overflow, counters })
    }

    /// Completes the waveform.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(self) -> anyhow::Result<Tally> {
        if let Some(trace) = self.trace.trace {
            trace.finish()?;
        }
        Ok(self.tally)
    }
}

impl Tally {
    fn add(&mut self, ran: &Ran) {
        self.jobs += 1;
        self.overflow |= ran.overflow;
        let (t, c) = (&mut self.counters, &ran.counters);
        t.cycles += c.cycles;
        t.active += c.active;
        t.exposed += c.exposed;
        t.drain += c.drain;
        t.starved_x += c.starved_x;
        t.starved_w += c.starved_w;
        t.blocked += c.blocked;
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

/// The matrix-vector mode: ⌈N/q⌉ beats pass over each chunk, as rows pass over a column of weights.
fn streamed(shape: GemvShape, job: Job) -> Counters {
    let walk = Job { m: job.n.div_ceil(shape.outputs), n: 1, k: job.k };
    let counters = overlapped(Config { cols: 1, ..shape.config }, walk);
    Counters { active: (job.m * job.n * job.k) as u64, ..counters }
}

/// As SCALE-Sim counts: the C edges of every load are exposed, the rest is drain.
fn without_overlap(config: Config, job: Job) -> Counters {
    let (active, rows) = work(config, job);
    let cycles = gemm_cycles_no_overlap(config, job);
    let exposed = rows / job.m as u64 * job.m.div_ceil(config.depth) as u64 * config.cols as u64;
    Counters { cycles, active, exposed, drain: cycles - rows - exposed, ..Counters::default() }
}
