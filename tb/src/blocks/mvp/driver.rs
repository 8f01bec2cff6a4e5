//! Drives a clocked processor through one job: feeds its streams, takes its results, watches its ports.

use crate::wave::Tracer;
use anyhow::{bail, ensure};
use mvp::{Config, Counters, Job, OutRow, Processor, ProcessorIn, SystolicArray, Tile};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rtl::{Module, Stream};

/// How often each port moves, as probabilities an edge; 1 is always.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// An activation row is on offer.
    pub x: f64,
    /// A weight column is on offer.
    pub w: f64,
    /// The consumer is ready.
    pub y: f64,
}

impl Rates {
    /// No stalls at all.
    pub const FULL: Self = Self { x: 1.0, w: 1.0, y: 1.0 };
}

/// What a job did.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Y, M × N, row by row.
    pub y: Vec<i32>,
    /// For each value of Y the cycle in which it was handed over.
    pub cycle_of: Vec<u64>,
    /// The processor's counters.
    pub counters: Counters,
    /// Its sticky overflow flag.
    pub overflow: bool,
}

/// The order in which the processor walks tiles, written down once more: M-blocks, n-tiles, k-tiles.
pub fn tiles(config: Config, job: Job) -> Vec<Tile> {
    let mut tiles = Vec::new();
    for block in 0..job.m.div_ceil(config.depth) {
        for panel in 0..job.n.div_ceil(config.cols) {
            tiles.extend((0..job.k.div_ceil(config.rows)).map(|chunk| Tile { block, panel, chunk }));
        }
    }
    tiles
}

/// Beats of one operand, in the order in which the processor takes them.
struct Beats<'a> {
    config: Config,
    job: Job,
    operand: &'a [i8],
    tiles: Vec<Tile>,
    tile: usize,
    beat: usize,
    /// What lanes past K carry: anything, so that a design that reads them is found out.
    padding: i8,
    lanes: Vec<i8>,
}

impl<'a> Beats<'a> {
    fn new(config: Config, job: Job, operand: &'a [i8], padding: i8) -> Self {
        Self { config, job, operand, tiles: tiles(config, job), tile: 0, beat: 0, padding, lanes: vec![0; config.rows] }
    }

    /// The lanes of the current beat; `at` gives the operand's index of (beat within its tile, k).
    fn fill(&mut self, at: impl Fn(&Job, usize) -> usize) {
        let Some(tile) = self.tiles.get(self.tile) else { return };
        for (r, lane) in self.lanes.iter_mut().enumerate() {
            let k = tile.chunk * self.config.rows + r;
            *lane = if k < self.job.k { self.operand[at(&self.job, k)] } else { self.padding };
        }
    }

    fn fill_x(&mut self) {
        let Some(tile) = self.tiles.get(self.tile) else { return };
        let m = tile.block * self.config.depth + self.beat;
        self.fill(|job, k| m * job.k + k);
    }

    fn fill_w(&mut self) {
        let Some(tile) = self.tiles.get(self.tile) else { return };
        let n = tile.panel * self.config.cols + self.cols(tile) - 1 - self.beat;
        self.fill(|job, k| k * job.n + n);
    }

    fn rows(&self, tile: &Tile) -> usize {
        (self.job.m - tile.block * self.config.depth).min(self.config.depth)
    }

    fn cols(&self, tile: &Tile) -> usize {
        (self.job.n - tile.panel * self.config.cols).min(self.config.cols)
    }

    fn next(&mut self, beats_of_tile: usize) {
        self.beat += 1;
        if self.beat == beats_of_tile {
            (self.tile, self.beat) = (self.tile + 1, 0);
        }
    }

    fn next_x(&mut self) {
        self.next(self.rows(&self.tiles[self.tile]));
        self.fill_x();
    }

    fn next_w(&mut self) {
        self.next(self.cols(&self.tiles[self.tile]));
        self.fill_w();
    }

    fn left(&self) -> bool {
        self.tile < self.tiles.len()
    }
}

/// Puts arriving rows where they belong and holds the port to its rules.
struct Collector {
    order: Vec<(usize, usize)>,
    received: usize,
    held: Option<OutRow>,
    finished: Finished,
}

impl Collector {
    fn new(config: Config, job: Job) -> Self {
        let mut order = Vec::new();
        for block in 0..job.m.div_ceil(config.depth) {
            for panel in 0..job.n.div_ceil(config.cols) {
                let rows = block * config.depth..((block + 1) * config.depth).min(job.m);
                order.extend(rows.map(|m| (m, panel * config.cols)));
            }
        }
        let blank = Finished {
            y: vec![0; job.m * job.n],
            cycle_of: vec![0; job.m * job.n],
            counters: Counters::default(),
            overflow: false,
        };
        Self { order, received: 0, held: None, finished: blank }
    }

    fn take(&mut self, job: Job, cols: usize, y: Stream<&OutRow>, ready: bool, cycle: u64) -> anyhow::Result<()> {
        if let Some(held) = &self.held {
            ensure!(
                y.valid && y.data == held,
                "cycle {cycle}: a row on offer changed or was withdrawn while not ready"
            );
        }
        self.held = (y.valid && !ready).then(|| y.data.clone());
        if !y.fires(ready) {
            return Ok(());
        }
        let Some(&(m, n)) = self.order.get(self.received) else { bail!("cycle {cycle}: a row after the last") };
        let lanes = cols.min(job.n - n);
        ensure!(usize::from(y.data.lanes) == lanes, "cycle {cycle}: {} lanes, not {lanes}", y.data.lanes);
        self.received += 1;
        ensure!(
            y.data.end == (self.received == self.order.len()),
            "cycle {cycle}: the end flag stands on the wrong row"
        );
        let at = m * job.n + n..m * job.n + n + lanes;
        self.finished.y[at.clone()].copy_from_slice(&y.data.values[..lanes]);
        self.finished.cycle_of[at].fill(cycle);
        Ok(())
    }
}

/// Runs one job from start to the last result. `x` is M × K, `w` is K × N.
///
/// # Errors
/// A broken handshake, rows that are too many, too few or misplaced, a memory fault, a hang, a waveform that cannot be written.
pub fn run<A: SystolicArray>(
    processor: &mut Processor<A>,
    job: Job,
    (x, w): (&[i8], &[i8]),
    rates: Rates,
    rng: &mut Xoshiro256PlusPlus,
    mut tracer: impl Tracer,
) -> anyhow::Result<Finished> {
    let config = processor.config();
    let mut xs = Beats::new(config, job, x, rng.random());
    let mut ws = Beats::new(config, job, w, rng.random());
    xs.fill_x();
    ws.fill_w();
    let mut collector = Collector::new(config, job);
    let slowest = rates.x.min(rates.w).min(rates.y);
    let patience = 1_000 + (mvp::gemm_cycles(config, job) as f64 * 20.0 / slowest) as u64;
    let (mut offer_x, mut offer_w) = (false, false);
    for cycle in 0.. {
        ensure!(cycle < patience, "the job hangs: not done after {patience} cycles");
        tracer.sample(cycle, processor)?;
        // An offer once made stands until it is taken.
        offer_x = xs.left() && (offer_x || rng.random_bool(rates.x));
        offer_w = ws.left() && (offer_w || rng.random_bool(rates.w));
        let ready = rng.random_bool(rates.y);
        let out = processor.out();
        collector.take(job, config.cols, out.y, ready, cycle)?;
        if let Some(fault) = out.fault {
            bail!("cycle {cycle}: the accumulator misused its memory: {fault}");
        }
        if collector.received == collector.order.len() && out.idle {
            ensure!(!xs.left() && !ws.left(), "done with operands left over");
            return Ok(Finished { counters: out.counters, overflow: out.overflow, ..collector.finished });
        }
        let (x_fires, w_fires) = (offer_x && out.x_ready, offer_w && out.w_ready);
        processor.clock(&ProcessorIn {
            start: (cycle == 0).then_some(job),
            x: Stream { valid: offer_x, data: &xs.lanes },
            w: Stream { valid: offer_w, data: &ws.lanes },
            ready,
        });
        if x_fires {
            xs.next_x();
            offer_x = false;
        }
        if w_fires {
            ws.next_w();
            offer_w = false;
        }
    }
    unreachable!("the loop ends by a return")
}
