use crate::counters::{Counters, Missing};
use crate::{
    Accumulator, AccumulatorIn, Beat, Config, Datapath, Deskew, Feeder, Job, OutRow, Scales, Sequencer, Side, Step,
    SystolicArray, Tag, WestEdge, WestRow,
};
use rtl::{Fifo, FifoIn, Module, Payload, SkidBuffer, SkidIn, SramFault, Stream, Visitor};

/// Wires into a [`Processor`].
#[derive(Clone, Copy, Debug)]
pub struct ProcessorIn<'a> {
    /// A job; taken if the processor is idle.
    pub start: Option<Job>,
    /// A row of R activations; lanes past the tile's k are ignored.
    pub x: Stream<&'a Beat>,
    /// A column of R weights; of each tile the last valid column first. Lanes past the tile's k mean nothing.
    pub w: Stream<&'a Beat>,
    /// The consumer takes a row of results.
    pub ready: bool,
}

/// Wires out of a [`Processor`].
pub struct ProcessorOut<'a> {
    /// No job is under way; results may still stand in the FIFO.
    pub idle: bool,
    /// An activation row will be taken.
    pub x_ready: bool,
    /// A weight column will be taken.
    pub w_ready: bool,
    /// Results: for each M-block, for each n-tile, row by row.
    pub y: Stream<&'a OutRow>,
    /// Counters of the job that runs or ran last.
    pub counters: Counters,
    /// A sum left 32 bits; sticky until reset.
    pub overflow: bool,
    /// The accumulator read a row that it never wrote: never in a sound design.
    pub fault: Option<SramFault>,
}

/// The GEMM datapath: sequencer, feeder, array, deskew, accumulator and output FIFO.
///
/// Generic over the array, so that the mesh and the fast array run in the same surroundings. A missing operand or a full
/// output FIFO freezes everything for that edge: stalls change the time, never a bit.
#[derive(Clone, Debug)]
pub struct Processor<A> {
    config: Config,
    x: SkidBuffer<Beat>,
    w: SkidBuffer<Beat>,
    sequencer: Sequencer,
    feeder: Feeder,
    array: A,
    deskew: Deskew,
    /// RL + C − 1 stages; a ring, `tag_at` the oldest.
    tags: Vec<Tag>,
    /// Row sums and scales, beside the tags.
    sides: Vec<Side>,
    tag_at: usize,
    /// With group scales: those of the tile that is being loaded, and of the tiles between there and the accumulator.
    scales: Option<ScaleQueue>,
    accumulator: Accumulator,
    output: Fifo<OutRow>,
    counters: Counters,
    wires: Wires,
}

/// Scales of the tiles in flight.
#[derive(Clone, Debug)]
struct ScaleQueue {
    /// Filled as columns enter.
    loading: Scales,
    tiles: Fifo<Scales>,
}

impl ScaleQueue {
    /// Room for all tiles between the load and the accumulator: they follow each other every max(C, A) edges at most.
    fn new(config: Config) -> Self {
        let path = config.rows * config.mac_latency() + config.cols - 1;
        let tiles = path / config.cols.max(config.accumulator_latency()) + 3;
        Self { loading: Scales::blank(config.cols), tiles: Fifo::new(tiles, Scales::blank(config.cols)) }
    }

    /// The edge: `column` enters, which is the tile's last if it is column 0; `pop`, the oldest tile has reached the accumulator.
    fn clock(&mut self, column: Option<(usize, &Beat)>, pop: bool) {
        if let Some((c, beat)) = column {
            (self.loading.scale[c], self.loading.minimum[c]) = (beat.scale, beat.minimum);
        }
        let push = Stream { valid: column.is_some_and(|(c, _)| c == 0), data: &self.loading };
        self.tiles.clock(&FifoIn { push, pop });
    }
}

/// Wires of one cycle that are too wide to copy about: scratch, not state.
#[derive(Clone, Debug)]
struct Wires {
    input: Vec<WestRow>,
    sum: OutRow,
}

impl<A: SystolicArray> Processor<A> {
    /// A processor, reset.
    pub fn new(config: Config) -> Self {
        let Config { rows, cols, depth, .. } = config;
        let latency = config.mac_latency();
        Self {
            config,
            x: SkidBuffer::new(Beat::row(config)),
            w: SkidBuffer::new(Beat::column(config)),
            sequencer: Sequencer::new(config),
            feeder: Feeder::new(config),
            array: A::new(config),
            deskew: Deskew::new(cols),
            tags: vec![Tag::default(); rows * latency + cols - 1],
            sides: vec![Side::default(); rows * latency + cols - 1],
            scales: config.group.map(|_| ScaleQueue::new(config)),
            tag_at: 0,
            accumulator: Accumulator::new(config),
            output: Fifo::new(depth, OutRow::blank(cols)),
            counters: Counters::default(),
            wires: Wires { input: vec![WestRow::default(); rows], sum: OutRow::blank(cols) },
        }
    }

    /// Its shape.
    pub fn config(&self) -> Config {
        self.config
    }

    /// The western edge before the skew. Lanes that do not count are gated to zero.
    fn west_input(&mut self, step: &Step) {
        let (x, w) = (&self.x.out().head.data.codes, &self.w.out().head.data.codes);
        let (lanes, loads) = (step.row.unwrap_or(0), step.load && !step.masked);
        for (r, ((wires, &x), &w)) in self.wires.input.iter_mut().zip(x).zip(w).enumerate() {
            let valid = r < lanes;
            *wires = WestRow {
                act: if valid { x } else { 0 },
                valid,
                swap: step.swap,
                weight: if loads { w } else { 0 },
                load: step.load,
                keep: step.keep,
            };
        }
        if let Some(lanes) = step.row.filter(|_| step.odd) {
            let code = &mut self.wires.input[lanes - 1].act;
            *code = i16::from(*code as i8) & 0xff;
        }
    }

    /// The row-sum unit: Σa over the lanes of the row that enters, and the row's scale.
    fn side(&self) -> Side {
        let acts = self.wires.input.iter().map(|wires| wires.act);
        let sum = match self.config.datapath {
            Datapath::Int8 => acts.map(i32::from).sum(),
            Datapath::Int4 => acts.flat_map(|act| act.to_le_bytes()).map(|byte| i32::from(byte as i8)).sum(),
            Datapath::Float { .. } => 0,
        };
        Side { sum, scale: self.x.out().head.data.scale }
    }
}

impl<A: SystolicArray> Module for Processor<A> {
    type In<'a> = ProcessorIn<'a>;
    type Out<'a> = ProcessorOut<'a>;

    fn out(&self) -> ProcessorOut<'_> {
        ProcessorOut {
            idle: self.sequencer.idle(),
            x_ready: self.x.out().ready,
            w_ready: self.w.out().ready,
            y: self.output.out().head,
            counters: self.counters,
            overflow: self.accumulator.overflow(),
            fault: self.accumulator.fault(),
        }
    }

    fn clock(&mut self, i: &ProcessorIn<'_>) {
        let step = self.sequencer.step();
        let wants_w = step.load && !step.masked;
        let offers = self.accumulator.offers();
        let missing = Missing {
            x: step.row.is_some() && !self.x.out().head.valid,
            w: wants_w && !self.w.out().head.valid,
            room: offers && !self.output.out().ready,
        };
        let enable = step.busy && missing.nothing();

        self.west_input(&step);
        self.accumulator.sum(&mut self.wires.sum);

        // From the output back to the inputs: each part is clocked before those whose outputs it reads.
        let push = Stream { valid: offers && enable, data: &self.wires.sum };
        self.output.clock(&FifoIn { push, pop: i.ready });
        let south = self.array.out();
        let row = self.deskew.row(&south);
        let (tag, side) = (self.tags[self.tag_at], self.sides[self.tag_at]);
        let new_tile = tag.valid && tag.address == 0;
        let scales = self.scales.as_ref().filter(|_| new_tile).map(|queue| queue.tiles.out().head.data);
        self.accumulator.clock(&AccumulatorIn { enable, tag, row, side, scales }, &self.wires.sum);
        self.deskew.clock(enable, &south);
        drop(south);
        self.array.clock(&WestEdge { enable, rows: self.feeder.west(&self.wires.input) });
        self.feeder.clock(enable, &self.wires.input);
        if enable {
            self.tags[self.tag_at] = step.tag;
            self.sides[self.tag_at] = if step.row.is_some() { self.side() } else { Side::default() };
            self.tag_at = if self.tag_at + 1 == self.tags.len() { 0 } else { self.tag_at + 1 };
        }
        if let Some(queue) = self.scales.as_mut().filter(|_| enable) {
            let head = self.w.out().head.data;
            let masked = Beat::default();
            queue.clock(step.column.map(|c| (c, if step.masked { &masked } else { head })), new_tile);
        }
        if !step.busy && i.start.is_some() {
            self.counters = Counters::default();
        }
        self.counters.count(&step, step.active, missing);
        self.sequencer.clock(i.start, enable);
        self.x.clock(&SkidIn { push: i.x, ready: enable && step.row.is_some() });
        self.w.clock(&SkidIn { push: i.w, ready: enable && wants_w });
    }

    fn reset(&mut self) {
        self.x.reset();
        self.w.reset();
        self.sequencer.reset();
        self.feeder.reset();
        self.array.reset();
        self.deskew.reset();
        self.tags.fill(Tag::default());
        self.sides.fill(Side::default());
        if self.scales.is_some() {
            self.scales = Some(ScaleQueue::new(self.config));
        }
        self.accumulator.reset();
        self.output.reset();
        self.counters = Counters::default();
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        v.scope("x_skid", |v| self.x.visit(v));
        v.scope("w_skid", |v| self.w.visit(v));
        v.scope("sequencer", |v| self.sequencer.visit(v));
        v.scope("feeder", |v| self.feeder.visit(v));
        v.scope("array", |v| self.array.visit(v));
        v.scope("deskew", |v| self.deskew.visit(v));
        v.scope("tags", |v| {
            let stages = self.tags.len();
            for i in 0..stages {
                self.tags[(self.tag_at + stages - 1 - i) % stages].visit(i, v);
            }
        });
        v.scope("sides", |v| {
            let stages = self.sides.len();
            for i in 0..stages {
                self.sides[(self.tag_at + stages - 1 - i) % stages].visit(i, v);
            }
        });
        if let Some(queue) = &mut self.scales {
            queue.loading.visit("loading".into(), v);
            v.scope("scales", |v| queue.tiles.visit(v));
        }
        v.scope("accumulator", |v| self.accumulator.visit(v));
        v.scope("accumulator_side", |v| self.accumulator.visit_side(v));
        v.scope("output", |v| self.output.visit(v));
        v.scope("counters", |v| self.counters.visit(v));
    }
}
