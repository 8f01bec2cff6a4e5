//! The matrix-vector mode: x stands still, W streams.

mod columns;

use crate::counters::{Counters, Missing};
use crate::{
    Accumulator, AccumulatorIn, Beat, Beats, Code, Config, ConfigError, Datapath, Job, JobError, OutRow, Scales,
    Sequencer, Side, Step, Tag, gemm_cycles,
};
use columns::{Columns, Feed};
use rtl::{Fifo, FifoIn, Format, Module, Payload, SkidBuffer, SkidIn, SramFault, Stream, Visitor};

/// How a matrix-vector job uses the columns: q outputs of v vectors side by side, q·v ≤ C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemvShape {
    /// R, the datapath and the accumulator; `cols` is C.
    pub config: Config,
    /// q: rows of W a beat.
    pub outputs: usize,
    /// v: vectors at once.
    pub vectors: usize,
}

/// A product y = W·x for v vectors: N outputs of K products each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemvJob {
    /// Rows of W.
    pub n: usize,
    /// Columns of W, length of x.
    pub k: usize,
}

impl GemvJob {
    /// The same job, if it can be run.
    ///
    /// # Errors
    /// If a dimension is zero or wider than its register.
    pub fn checked(self) -> Result<Self, JobError> {
        Job { m: 1, n: self.n, k: self.k }.checked()?;
        Ok(self)
    }
}

impl GemvShape {
    /// The same shape, if it can be built.
    ///
    /// # Errors
    /// Names the field that is out of range.
    pub fn checked(self) -> Result<Self, ConfigError> {
        let cols = self.config.checked()?.cols;
        let (outputs, vectors) = (self.outputs, self.vectors);
        let lanes = outputs.saturating_mul(vectors);
        if lanes == 0 || lanes > cols { Err(ConfigError::Columns { outputs, vectors, cols }) } else { Ok(self) }
    }

    /// Columns in use: output j of vector u is column j·v + u.
    pub const fn lanes(&self) -> usize {
        self.outputs * self.vectors
    }

    /// What the sequencer walks: beats of q rows stream past one stationary chunk of x, as M rows past a column of weights.
    fn walk(&self, job: GemvJob) -> (Config, Job) {
        (Config { cols: 1, ..self.config }, Job { m: job.n.div_ceil(self.outputs), n: 1, k: job.k })
    }
}

/// Cycles of a matrix-vector job without stalls: 1 + Σ over all tiles but the last of max(B_f, A) + B_last + R·L + A, B_f the beats of
/// q rows that pass over chunk f. Where a panel has at least A beats: 1 + ⌈N/q⌉·⌈K/R⌉ + R·L + A.
///
/// It is the closed form of a GEMM on one column; docs/mvp.md derives it.
pub fn gemv_cycles(shape: GemvShape, job: GemvJob) -> u64 {
    let (config, walk) = shape.walk(job);
    gemm_cycles(config, walk)
}

/// Wires into a [`Gemv`].
#[derive(Clone, Copy, Debug)]
pub struct GemvIn<'a> {
    /// A job; taken if none is under way.
    pub start: Option<GemvJob>,
    /// A chunk of each of the v vectors, R codes each, with its scale where the configuration has groups. Lanes past the chunk are ignored.
    pub x: Stream<&'a Beats>,
    /// q rows of W's chunk, R codes each; scale and minimum of their group. Rows past N and lanes past the chunk are ignored.
    pub w: Stream<&'a Beats>,
    /// The consumer takes a row of results.
    pub ready: bool,
}

/// Wires out of a [`Gemv`].
pub struct GemvOut<'a> {
    /// No job is under way; results may still stand in the FIFO.
    pub idle: bool,
    /// A chunk of the vectors will be taken.
    pub x_ready: bool,
    /// A beat of W will be taken.
    pub w_ready: bool,
    /// Results: a beat's q outputs of v vectors a row.
    pub y: Stream<&'a OutRow>,
    /// Counters of the job that runs or ran last.
    pub counters: Counters,
    /// Σx of each vector over the chunks loaded (integers only): all of k once the job is done.
    pub row_sums: &'a [i32],
    /// A sum left 32 bits; sticky until reset.
    pub overflow: bool,
    /// Misuse of the accumulator's memory: never in a sound design.
    pub fault: Option<SramFault>,
}

/// The matrix-vector processor.
///
/// q·v columns of R elements, each with its own western feed: chunk by chunk, x\[k\] is broadcast into the shadow registers of row k, and
/// rows of W pass over it, one row of W a column. So every output is made by the same elements in the same order as in GEMM, and has
/// the same bits. The elements' two operands change places; products do not mind.
#[derive(Clone, Debug)]
pub struct Gemv {
    shape: GemvShape,
    /// N of the job under way.
    n: usize,
    x: SkidBuffer<Beats>,
    w: SkidBuffer<Beats>,
    sequencer: Sequencer,
    columns: Columns,
    /// R·L stages beside the columns: what the accumulator shall do, and the scales of each column. A ring, `tag_at` the oldest.
    tags: Vec<(Tag, Scales)>,
    tag_at: usize,
    /// Scale and Σx of the chunk that stands, by vector.
    active: Vec<Side>,
    /// Of the chunk loaded behind it.
    shadow: Vec<Side>,
    row_sums: Vec<i32>,
    accumulator: Accumulator,
    output: Fifo<OutRow>,
    counters: Counters,
    /// The accumulator's wires: scratch, not state.
    sum: OutRow,
}

impl Gemv {
    /// A processor of the shape, reset.
    ///
    /// # Errors
    /// If the shape cannot be built.
    pub fn new(shape: GemvShape) -> Result<Self, ConfigError> {
        let config = shape.checked()?.config;
        let lanes = shape.lanes();
        Ok(Self {
            shape,
            n: 1,
            x: SkidBuffer::new(Beats(vec![Beat::row(config); shape.vectors])),
            w: SkidBuffer::new(Beats(vec![Beat::column(config); shape.outputs])),
            sequencer: Sequencer::new(Config { cols: 1, ..config }),
            columns: Columns::new(shape),
            tags: vec![(Tag::default(), Scales::of_columns(lanes)); config.rows * config.mac_latency()],
            tag_at: 0,
            active: vec![Side::default(); shape.vectors],
            shadow: vec![Side::default(); shape.vectors],
            row_sums: vec![0; shape.vectors],
            accumulator: Accumulator::new(Config { cols: lanes, ..config }).with_column_sums(),
            output: Fifo::new(config.depth, OutRow::blank(lanes)),
            counters: Counters::default(),
            sum: OutRow::blank(lanes),
        })
    }

    /// Its shape.
    pub fn shape(&self) -> GemvShape {
        self.shape
    }

    /// The chunk's codes with lanes past it, and the upper half of a lone k-step of a pair, gated to zero.
    fn gated(&self, codes: &[Code], values: usize) -> Vec<Code> {
        let steps = self.shape.config.datapath.steps();
        let mut codes = codes.to_vec();
        codes[values.div_ceil(steps)..].fill(0);
        if !values.is_multiple_of(steps) {
            codes[values / steps] &= 0xff;
        }
        codes
    }

    /// The row-sum unit.
    fn code_sum(&self, codes: &[Code]) -> i32 {
        match self.shape.config.datapath {
            Datapath::Int8 => codes.iter().map(|&code| i32::from(code)).sum(),
            Datapath::Int4 => codes.iter().flat_map(|code| code.to_le_bytes()).map(|byte| i32::from(byte as i8)).sum(),
            Datapath::Float { .. } => 0,
        }
    }

    /// A chunk of x enters: its codes into the feed, its sum and scale beside them.
    fn load(&mut self, feed: &mut Feed) {
        let Some(tile) = self.sequencer.loading() else { return };
        let (values, vectors) = (self.sequencer.values(tile), self.shape.vectors);
        let beats = self.x.out().head.data.0.iter();
        let chunk: Vec<_> = beats.map(|beat| (self.gated(&beat.codes, values), beat.scale)).collect();
        for (u, (codes, scale)) in chunk.into_iter().enumerate() {
            let sum = self.code_sum(&codes);
            self.shadow[u] = Side { sum, scale };
            if tile.block == 0 {
                self.row_sums[u] = self.row_sums[u].wrapping_add(sum);
            }
            codes.into_iter().enumerate().for_each(|(r, code)| feed.x[r * vectors + u] = code);
        }
    }

    /// A beat of W enters: its codes into the feed; fl(s_w·s_x) and the minimum likewise beside them.
    fn stream(&self, feed: &mut Feed, scales: &mut Scales) {
        let (q, v) = (self.shape.outputs, self.shape.vectors);
        let values = self.sequencer.values(self.sequencer.tile());
        for (j, beat) in self.w.out().head.data.0.iter().enumerate() {
            let codes = self.gated(&beat.codes, values);
            codes.into_iter().enumerate().for_each(|(r, code)| feed.w[r * q + j] = code);
            for (u, side) in self.active.iter().enumerate() {
                let c = j * v + u;
                (scales.scale[c], scales.minimum[c]) = (side.scale * beat.scale, side.scale * beat.minimum);
                scales.sums[c] = side.sum;
            }
        }
    }

    /// Columns that count in the beat that enters.
    fn lanes(&self, tag: &Tag) -> usize {
        let (q, block) = (self.shape.outputs, self.sequencer.tile().block);
        let done = (block * self.shape.config.depth + usize::from(tag.address)) * q;
        (self.n - done).min(q) * self.shape.vectors
    }

    /// The edge of all that a stall freezes.
    fn advance(&mut self, step: &Step) {
        let mut feed = Feed { swap: step.swap, load: step.load, ..Feed::blank(self.shape) };
        let (mut tag, mut scales) = (step.tag, Scales::of_columns(self.shape.lanes()));
        if step.swap {
            self.active.clone_from(&self.shadow);
        }
        if let Some(count) = step.row {
            feed.valid = count as u16;
            tag.lanes = self.lanes(&tag) as u16;
            self.stream(&mut feed, &mut scales);
        }
        if step.load {
            self.load(&mut feed);
        }
        let (old, beside) = &self.tags[self.tag_at];
        let (row, side) = (self.columns.south(), Side { sum: 0, scale: 1.0 });
        let scales_now = old.valid.then_some(beside);
        self.accumulator
            .clock(&AccumulatorIn { enable: true, tag: *old, row: &row, side, scales: scales_now }, &self.sum);
        self.columns.clock(feed);
        self.tags[self.tag_at] = (tag, scales);
        self.tag_at = (self.tag_at + 1) % self.tags.len();
    }
}

impl Module for Gemv {
    type In<'a> = GemvIn<'a>;
    type Out<'a> = GemvOut<'a>;

    fn out(&self) -> GemvOut<'_> {
        GemvOut {
            idle: self.sequencer.idle(),
            x_ready: self.x.out().ready,
            w_ready: self.w.out().ready,
            y: self.output.out().head,
            counters: self.counters,
            row_sums: &self.row_sums,
            overflow: self.accumulator.overflow(),
            fault: self.accumulator.fault(),
        }
    }

    fn clock(&mut self, i: &GemvIn<'_>) {
        let step = self.sequencer.step();
        let offers = self.accumulator.offers();
        let missing = Missing {
            x: step.load && !self.x.out().head.valid,
            w: step.row.is_some() && !self.w.out().head.valid,
            room: offers && !self.output.out().ready,
        };
        let enable = step.busy && missing.nothing();
        self.accumulator.sum(&mut self.sum);
        self.output.clock(&FifoIn { push: Stream { valid: offers && enable, data: &self.sum }, pop: i.ready });
        if !step.busy
            && let Some(job) = i.start
        {
            (self.n, self.counters) = (job.n, Counters::default());
            self.row_sums.fill(0);
        }
        let lanes = if step.row.is_some() { self.lanes(&step.tag) } else { 0 };
        self.counters.count(&step, step.active * lanes, missing);
        if enable {
            self.advance(&step);
        }
        self.sequencer.clock(i.start.map(|job| self.shape.walk(job).1), enable);
        self.x.clock(&SkidIn { push: i.x, ready: enable && step.load });
        self.w.clock(&SkidIn { push: i.w, ready: enable && step.row.is_some() });
    }

    fn reset(&mut self) {
        self.n = 1;
        self.x.reset();
        self.w.reset();
        self.sequencer.reset();
        self.columns.reset();
        self.tags.fill((Tag::default(), Scales::of_columns(self.shape.lanes())));
        self.active.fill(Side::default());
        self.shadow.fill(Side::default());
        self.row_sums.fill(0);
        self.accumulator.reset();
        self.output.reset();
        self.counters = Counters::default();
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        v.scope("x_skid", |v| self.x.visit(v));
        v.scope("w_skid", |v| self.w.visit(v));
        v.scope("sequencer", |v| self.sequencer.visit(v));
        let mut n = self.n as u32;
        v.reg("n_q", 32, Format::Unsigned, &mut n);
        self.n = n as usize;
        v.scope("columns", |v| self.columns.visit(v));
        v.scope("tags", |v| {
            let stages = self.tags.len();
            for i in 0..stages {
                let (tag, scales) = &mut self.tags[(self.tag_at + stages - 1 - i) % stages];
                tag.visit(i, v);
                if self.shape.config.group.is_some() {
                    scales.visit(("scales", i).into(), v);
                }
            }
        });
        v.scope("active", |v| self.active.iter_mut().enumerate().for_each(|(u, side)| side.visit(u, v)));
        v.scope("shadow", |v| self.shadow.iter_mut().enumerate().for_each(|(u, side)| side.visit(u, v)));
        self.row_sums.visit("row_sum_q".into(), v);
        v.scope("accumulator", |v| self.accumulator.visit(v));
        v.scope("accumulator_side", |v| self.accumulator.visit_side(v));
        v.scope("output", |v| self.output.visit(v));
        v.scope("counters", |v| self.counters.visit(v));
    }
}
