use crate::{INDEX_ENTRIES, Phase, Plan, Run, Segment, Walk};
use rtl::{Fifo, FifoIn, Format, Module, Payload, Stream, Visitor};

/// Entries of the queue behind an address unit.
pub const RUN_QUEUE: usize = 4;

/// The address unit of one side: walks a job's loops, adds the index, queues runs.
///
/// Two stages: the first takes the loop's segment and starts the look-up in the index SRAM, the second multiplies the
/// index by its stride, adds, and pushes. One run a cycle. An ordered job stops at the end of each block: the read side
/// until the block is written, the write side before it until the block is read.
#[derive(Clone, Debug)]
pub struct AddressUnit {
    write: bool,
    bus_bytes: u32,
    walk: Walk,
    /// The next segment begins a block (write side), or the last one ended one (read side): a token is needed to go on.
    gated: bool,
    /// Tokens at hand, 2 bits.
    tokens: u8,
    /// Second stage.
    segment: Segment,
    segment_valid: bool,
    queue: Fifo<Run>,
}

/// Inputs of an [`AddressUnit`].
pub struct AddressUnitIn<'a> {
    /// A job, taken when [`AddressUnitOut::idle`].
    pub job: Option<&'a Plan>,
    /// The word of the index SRAM read last.
    pub index_word: &'a [u64],
    /// A block has been read (write side) or written (read side).
    pub token: bool,
    /// The consumer takes the head.
    pub pop: bool,
}

/// Outputs of an [`AddressUnit`].
pub struct AddressUnitOut<'a> {
    /// No job and nothing in the pipeline (the queue may hold runs).
    pub idle: bool,
    /// Index SRAM word to read in this cycle.
    pub index_read: Option<usize>,
    /// The oldest run.
    pub head: Stream<&'a Run>,
}

/// The entry of an index list that `coordinate` selects, from its SRAM word.
pub(crate) fn index_entry(word: &[u64], coordinate: u32, wide: bool, bus_bytes: u32) -> i64 {
    let width = if wide { 4 } else { 2 };
    let byte = (coordinate * width) % bus_bytes;
    let lane = word[(byte / 8) as usize] >> (8 * (byte % 8));
    // Checked entries are not negative.
    (lane & rtl::mask(8 * width)) as i64
}

/// SRAM word that holds the entry.
pub(crate) fn index_word(coordinate: u32, wide: bool, bus_bytes: u32) -> usize {
    (coordinate * if wide { 4 } else { 2 } / bus_bytes) as usize
}

/// Words of an index SRAM.
pub(crate) fn index_depth(bus_bytes: u32) -> usize {
    (INDEX_ENTRIES * 4 / bus_bytes) as usize
}

impl AddressUnit {
    /// The unit of the read or the write side.
    pub fn new(write: bool, bus_bytes: u32) -> Self {
        Self {
            write,
            bus_bytes,
            walk: Walk::new(write),
            gated: false,
            tokens: 0,
            segment: Segment::default(),
            segment_valid: false,
            queue: Fifo::new(RUN_QUEUE, Run::default()),
        }
    }

    /// The second stage pushes in this cycle.
    fn push(&self) -> bool {
        self.segment_valid && self.queue.out().ready
    }

    /// The first stage moves in this cycle.
    fn take(&self) -> bool {
        self.walk.phase() == Phase::Run && (!self.segment_valid || self.push()) && (!self.gated || self.tokens > 0)
    }

    fn run(&self, index_word: &[u64]) -> Run {
        let plan = self.walk.plan();
        let side = if self.write { &plan.write } else { &plan.read };
        let s = &self.segment;
        let offset = if side.indexed && !s.fill {
            let entry = index_entry(index_word, s.coordinate, plan.wide_index, self.bus_bytes);
            entry.wrapping_mul(side.index_stride)
        } else {
            0
        };
        if self.write { Run::write(s, offset, plan.ordered) } else { Run::read(s, offset, plan.tiled) }
    }
}

impl Module for AddressUnit {
    type In<'a> = AddressUnitIn<'a>;
    type Out<'a> = AddressUnitOut<'a>;

    fn out(&self) -> AddressUnitOut<'_> {
        let plan = self.walk.plan();
        let side = if self.write { &plan.write } else { &plan.read };
        let index_read = (side.indexed && self.take())
            .then(|| index_word(self.walk.segment().coordinate, plan.wide_index, self.bus_bytes));
        AddressUnitOut {
            idle: self.walk.phase() == Phase::Idle && !self.segment_valid,
            index_read,
            head: self.queue.out().head,
        }
    }

    fn clock(&mut self, i: &AddressUnitIn<'_>) {
        let (push, take, idle) = (self.push(), self.take(), self.out().idle);
        let run = self.run(i.index_word);
        self.queue.clock(&FifoIn { push: Stream { valid: push, data: &run }, pop: i.pop });
        let used = take && self.gated;
        if push {
            self.segment_valid = false;
        }
        match self.walk.phase() {
            Phase::Idle => {
                if let (true, Some(plan)) = (idle, i.job) {
                    self.walk.load(plan);
                    self.gated = self.write && plan.ordered;
                }
            }
            Phase::Prime => self.walk.prime(),
            Phase::Run if take => {
                self.segment = self.walk.segment();
                self.segment_valid = true;
                self.gated = self.walk.plan().ordered && self.segment.block_end && !self.segment.job_end;
                self.walk.advance(&self.segment);
            }
            Phase::Run => {}
        }
        self.tokens = self.tokens + u8::from(i.token) - u8::from(used);
    }

    fn reset(&mut self) {
        self.walk.reset();
        (self.gated, self.tokens, self.segment_valid) = (false, 0, false);
        self.queue.reset();
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        v.scope("walk", |v| self.walk.visit(v));
        v.reg("gated_q", 1, Format::Unsigned, &mut self.gated);
        v.reg("tokens_q", 2, Format::Unsigned, &mut self.tokens);
        v.reg("segment_valid_q", 1, Format::Unsigned, &mut self.segment_valid);
        self.segment.visit("segment".into(), v);
        v.scope("queue", |v| self.queue.visit(v));
    }
}

impl Payload for Segment {
    fn visit(&mut self, name: rtl::Name, v: &mut impl Visitor) {
        v.scope(name, |v| {
            v.reg("address_q", 50, Format::Hex, &mut self.address);
            v.reg("nibbles_q", 33, Format::Unsigned, &mut self.nibbles);
            v.reg("fill_q", 1, Format::Unsigned, &mut self.fill);
            v.reg("coordinate_q", 32, Format::Unsigned, &mut self.coordinate);
            v.reg("row_end_q", 1, Format::Unsigned, &mut self.row_end);
            v.reg("block_end_q", 1, Format::Unsigned, &mut self.block_end);
            v.reg("job_end_q", 1, Format::Unsigned, &mut self.job_end);
        });
    }
}
