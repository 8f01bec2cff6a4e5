//! Drives a clocked processor through one job: feeds its streams, takes its results, watches its ports.

use crate::{verify::Case, wave::Tracer};
use anyhow::ensure;
use mvp::{Beat, Code, Config, Counters, Job, OutRow, Processor, ProcessorIn, SystolicArray, Tile};
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
    /// Y, M × N, row by row: INT32 or the bits of FP32.
    pub y: Vec<i32>,
    /// The rows as they came.
    pub rows: Vec<OutRow>,
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
            tiles.extend((0..config.k_tiles(job.k)).map(|chunk| Tile { block, panel, chunk }));
        }
    }
    tiles
}

/// The operands of a job, one code a value.
#[derive(Clone, Debug, Default)]
pub struct Operands {
    /// X, M × K, row by row.
    pub x: Vec<Code>,
    /// W, K × N, row by row.
    pub w: Vec<Code>,
    /// With group scales: those of X, M × groups. Else of the rows, M, or none.
    pub x_scales: Vec<f32>,
    /// With group scales: those of W, groups × N.
    pub w_scales: Vec<f32>,
    /// With group scales: the minima of W, groups × N, or none.
    pub w_minima: Vec<f32>,
}

impl Operands {
    /// Plain INT8.
    pub fn int8(x: &[i8], w: &[i8]) -> Self {
        let codes = |v: &[i8]| v.iter().map(|&v| v.into()).collect();
        Self { x: codes(x), w: codes(w), ..Self::default() }
    }
}

/// Beats of a product's operands: what the ports carry for a row or a column of a k-tile.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// R, the datapath and the groups.
    pub config: Config,
    /// The shape of the product.
    pub job: Job,
    /// Its operands.
    pub operands: &'a Operands,
    /// What lanes past the tile carry: anything, so that a design that reads them is found out.
    pub padding: Code,
}

impl Source<'_> {
    fn fill(&self, chunk: usize, code: impl Fn(usize) -> Code, beat: &mut Beat) {
        let range = self.config.k_range(self.job.k, chunk);
        let code = |k: usize| if k < range.end { code(k) } else { self.padding };
        for (r, lane) in beat.codes.iter_mut().enumerate() {
            *lane = match self.config.datapath.steps() {
                1 => code(range.start + r),
                _ => {
                    let k = range.start + 2 * r;
                    Code::from_le_bytes([code(k) as u8, code(k + 1) as u8])
                }
            };
        }
    }

    fn group(&self, chunk: usize) -> usize {
        self.config.group.map_or(0, |g| self.config.k_range(self.job.k, chunk).start / g)
    }

    /// Row m of X in k-tile `chunk`.
    pub fn row(&self, m: usize, chunk: usize, beat: &mut Beat) {
        self.fill(chunk, |k| self.operands.x[m * self.job.k + k], beat);
        let groups = self.config.group.map_or(1, |g| self.job.k.div_ceil(g));
        beat.scale = self.operands.x_scales.get(m * groups + self.group(chunk)).copied().unwrap_or(1.0);
    }

    /// Column n of W in k-tile `chunk`.
    pub fn column(&self, n: usize, chunk: usize, beat: &mut Beat) {
        self.fill(chunk, |k| self.operands.w[k * self.job.n + n], beat);
        let at = self.group(chunk) * self.job.n + n;
        beat.scale = self.operands.w_scales.get(at).copied().unwrap_or(1.0);
        beat.minimum = self.operands.w_minima.get(at).copied().unwrap_or(0.0);
    }
}

/// Makes the rows of X while the processor takes them, in place of a matrix.
pub trait Rows {
    /// The row to offer next: row `m` of k-tile `chunk`. Lanes past the tile may be left as they are.
    fn fill(&mut self, m: usize, chunk: usize, beat: &mut Beat);
    /// It was taken.
    fn taken(&mut self);
}

/// Which operand [`Beats`] feeds.
#[derive(Clone, Copy, PartialEq)]
enum Port {
    X,
    W,
}

/// Beats of one operand, in the order in which the processor takes them.
struct Beats<'a> {
    config: Config,
    job: Job,
    port: Port,
    source: Source<'a>,
    rows: Option<&'a mut dyn Rows>,
    tiles: Vec<Tile>,
    tile: usize,
    beat: usize,
    data: Beat,
}

impl<'a> Beats<'a> {
    fn new(
        config: Config,
        job: Job,
        port: Port,
        operands: &'a Operands,
        rows: Option<&'a mut dyn Rows>,
        padding: i8,
    ) -> Self {
        let data = if port == Port::X { Beat::row(config) } else { Beat::column(config) };
        let source = Source { config, job, operands, padding: padding.into() };
        let mut beats = Self { config, job, port, source, rows, tiles: tiles(config, job), tile: 0, beat: 0, data };
        beats.fill();
        beats
    }

    fn rows(&self, tile: &Tile) -> usize {
        (self.job.m - tile.block * self.config.depth).min(self.config.depth)
    }

    fn cols(&self, tile: &Tile) -> usize {
        (self.job.n - tile.panel * self.config.cols).min(self.config.cols)
    }

    fn fill(&mut self) {
        let Some(tile) = self.tiles.get(self.tile).copied() else { return };
        match self.port {
            Port::X => {
                let m = tile.block * self.config.depth + self.beat;
                match &mut self.rows {
                    Some(rows) => rows.fill(m, tile.chunk, &mut self.data),
                    None => self.source.row(m, tile.chunk, &mut self.data),
                }
            }
            Port::W => {
                let n = tile.panel * self.config.cols + self.cols(&tile) - 1 - self.beat;
                self.source.column(n, tile.chunk, &mut self.data);
            }
        }
    }

    fn next(&mut self) {
        if let Some(rows) = &mut self.rows {
            rows.taken();
        }
        let tile = &self.tiles[self.tile];
        let beats = if self.port == Port::X { self.rows(tile) } else { self.cols(tile) };
        self.beat += 1;
        if self.beat == beats {
            (self.tile, self.beat) = (self.tile + 1, 0);
        }
        self.fill();
    }

    fn left(&self) -> bool {
        self.tile < self.tiles.len()
    }
}

/// What a consumer that was not ready must find unchanged on the next edge.
#[derive(Default)]
pub struct Held<T>(Option<T>);

impl<T: Clone + PartialEq> Held<T> {
    /// Looks at one edge of the stream called `name`.
    ///
    /// # Errors
    /// The breach, as the tracer has it.
    pub fn look(
        &mut self,
        name: &str,
        stream: Stream<&T>,
        ready: bool,
        cycle: u64,
        tracer: &mut impl Tracer,
    ) -> anyhow::Result<()> {
        if self.0.as_ref().is_some_and(|held| !stream.valid || stream.data != held) {
            tracer.breach(&format_args!("{name} stable: changed or withdrawn while not ready in cycle {cycle}"))?;
        }
        self.0 = (stream.valid && !ready).then(|| stream.data.clone());
        Ok(())
    }
}

/// Puts arriving rows where they belong and holds the port to its rules.
struct Collector {
    order: Vec<(usize, usize)>,
    received: usize,
    held: Held<OutRow>,
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
            rows: Vec::new(),
            cycle_of: vec![0; job.m * job.n],
            counters: Counters::default(),
            overflow: false,
        };
        Self { order, received: 0, held: Held::default(), finished: blank }
    }

    fn take(
        &mut self,
        (job, cols, sums): (Job, usize, bool),
        y: Stream<&OutRow>,
        ready: bool,
        cycle: u64,
        tracer: &mut impl Tracer,
    ) -> anyhow::Result<()> {
        self.held.look("row", y, ready, cycle, tracer)?;
        if !y.fires(ready) {
            return Ok(());
        }
        let Some(&(m, n)) = self.order.get(self.received) else {
            return tracer.breach(&format_args!("row count: one after the last in cycle {cycle}"));
        };
        let lanes = cols.min(job.n - n);
        tracer.output(cycle, &(y.data.lanes, y.data.end, &y.data.values[..lanes], sums.then_some(y.data.side)));
        if usize::from(y.data.lanes) != lanes {
            tracer.breach(&format_args!("row lanes: {}, not {lanes}, in cycle {cycle}", y.data.lanes))?;
        }
        self.received += 1;
        if y.data.end != (self.received == self.order.len()) {
            tracer.breach(&format_args!("row end: the flag stands on the wrong row in cycle {cycle}"))?;
        }
        let at = m * job.n + n..m * job.n + n + lanes;
        self.finished.y[at.clone()].copy_from_slice(&y.data.values[..lanes]);
        self.finished.cycle_of[at].fill(cycle);
        self.finished.rows.push(y.data.clone());
        Ok(())
    }
}

/// What rides beside each row of INT32 sums: Σa over all of k, and the row's scale.
pub fn check_sides(case: &mut Case<'_>, config: Config, job: Job, operands: &Operands, run: &Finished) {
    if !sums_are_int(config) {
        return;
    }
    let order = Collector::new(config, job).order;
    let expected = order.iter().map(|&(m, _)| {
        let sum: i32 = operands.x[m * job.k..(m + 1) * job.k].iter().map(|&x| i32::from(x)).sum();
        (sum, operands.x_scales.get(m).copied().unwrap_or(1.0))
    });
    let expected: Vec<_> = expected.collect();
    let got: Vec<_> = run.rows.iter().map(|row| (row.side.sum, row.side.scale)).collect();
    case.equal_slices("row sums and scales", &expected, &got);
}

/// Every edge of a job has a cause; without stalls they are those of the closed form, and so are their number and the work done.
pub fn check_edges(case: &mut Case<'_>, config: Config, job: Job, rates: Rates, c: Counters) {
    let rows: usize = tiles(config, job).iter().map(|t| (job.m - t.block * config.depth).min(config.depth)).sum();
    let drain = config.rows * config.mac_latency() + config.cols - 1 + config.accumulator_latency();
    case.equal("cycles", mvp::gemm_cycles(config, job), c.unstalled());
    case.equal("edges with a row or exposed", c.unstalled(), rows as u64 + c.exposed + c.drain);
    case.equal("edges of the drain", drain as u64, c.drain);
    case.equal("multiply-accumulates", (job.m * job.n * job.k) as u64, c.active);
    if rates == Rates::FULL {
        case.equal("stalls", (0, 0, 0), (c.starved_x, c.starved_w, c.blocked));
    }
}

/// The accumulator adds in INT32, with row sums beside.
fn sums_are_int(config: Config) -> bool {
    !config.datapath.is_float() && config.group.is_none()
}

/// Runs one job from start to the last result.
///
/// # Errors
/// A broken handshake, rows that are too many, too few or misplaced, a memory fault, a hang, a waveform that cannot be written.
pub fn run<A: SystolicArray>(
    processor: &mut Processor<A>,
    job: Job,
    operands: &Operands,
    rates: Rates,
    rng: &mut Xoshiro256PlusPlus,
    tracer: impl Tracer,
) -> anyhow::Result<Finished> {
    run_rows(processor, job, operands, None, rates, rng, tracer)
}

/// The same; X comes from `rows` where they are given.
///
/// # Errors
/// As for [`run`].
pub fn run_rows<'a, A: SystolicArray>(
    processor: &mut Processor<A>,
    job: Job,
    operands: &'a Operands,
    rows: Option<&'a mut dyn Rows>,
    rates: Rates,
    rng: &mut Xoshiro256PlusPlus,
    mut tracer: impl Tracer,
) -> anyhow::Result<Finished> {
    let config = processor.config();
    let mut xs = Beats::new(config, job, Port::X, operands, rows, rng.random());
    let mut ws = Beats::new(config, job, Port::W, operands, None, rng.random());
    let mut collector = Collector::new(config, job);
    let slowest = rates.x.min(rates.w).min(rates.y);
    let patience = 1_000 + (mvp::gemm_cycles(config, job) as f64 * 20.0 / slowest) as u64;
    let (mut offer_x, mut offer_w) = (false, false);
    for cycle in 0.. {
        ensure!(cycle < patience, "hang: the job is not done after {patience} cycles");
        tracer.sample(cycle, processor)?;
        // An offer once made stands until it is taken.
        offer_x = xs.left() && (offer_x || rng.random_bool(rates.x));
        offer_w = ws.left() && (offer_w || rng.random_bool(rates.w));
        let ready = rng.random_bool(rates.y);
        let out = processor.out();
        collector.take((job, config.cols, sums_are_int(config)), out.y, ready, cycle, &mut tracer)?;
        if let Some(fault) = out.fault {
            tracer.breach(&format_args!("accumulator memory: {fault} in cycle {cycle}"))?;
        }
        if collector.received == collector.order.len() && out.idle {
            if xs.left() || ws.left() {
                tracer.breach(&"operands left: the job is done without them")?;
            }
            tracer.output(cycle, &(out.counters, out.overflow));
            let done = Finished { counters: out.counters, overflow: out.overflow, ..collector.finished };
            tracer.rest(processor);
            return Ok(done);
        }
        let (x_fires, w_fires) = (offer_x && out.x_ready, offer_w && out.w_ready);
        processor.clock(&ProcessorIn {
            start: (cycle == 0).then_some(job),
            x: Stream { valid: offer_x, data: &xs.data },
            w: Stream { valid: offer_w, data: &ws.data },
            ready,
        });
        if x_fires {
            xs.next();
            offer_x = false;
        }
        if w_fires {
            ws.next();
            offer_w = false;
        }
    }
    unreachable!("the loop ends by a return")
}
