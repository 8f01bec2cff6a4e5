use crate::align::{Hold, fill_beat};
use crate::beat::Beat;
use crate::{AxiAddress, Builder, BusFault, Config, Kind, ReadBeat, Run, TICKETS};
use rtl::{Fifo, FifoIn, Format, Module, Name, Payload, Stream, Visitor};

/// What the read side must know of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Fill value, 64 bits.
    pub fill: u64,
    /// Nibbles an element, 5 bits.
    pub element: u8,
    /// Goes through the transposer.
    pub tiled: bool,
    /// Runs block by block.
    pub ordered: bool,
}

impl Context {
    /// The context of a job.
    pub fn of(plan: &crate::Plan) -> Self {
        Self { fill: plan.fill, element: plan.element, tiled: plan.tiled, ordered: plan.ordered }
    }
}

impl Payload for Context {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        v.scope(name, |v| {
            v.reg("fill_q", 64, Format::Hex, &mut self.fill);
            v.reg("element_q", 5, Format::Unsigned, &mut self.element);
            v.reg("tiled_q", 1, Format::Unsigned, &mut self.tiled);
            v.reg("ordered_q", 1, Format::Unsigned, &mut self.ordered);
        });
    }
}

/// Bytes for the front end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Control {
    /// A beat stands; the front end always takes it.
    pub valid: bool,
    /// Of an index list; else of a descriptor.
    pub index: bool,
    /// The packed bytes.
    pub beat: Beat,
    /// A bus error in the run so far.
    pub fault: BusFault,
}

impl Control {
    fn visit(&mut self, v: &mut impl Visitor) {
        v.scope("control", |v| {
            v.reg("valid_q", 1, Format::Unsigned, &mut self.valid);
            v.reg("index_q", 1, Format::Unsigned, &mut self.index);
            self.beat.visit("beat".into(), v);
            self.fault.visit("fault".into(), v);
        });
    }
}

/// The read half of the back end: runs become bursts on AR, beats on R become a packed stream.
///
/// Up to `reads_in_flight` bursts are open. The realigner takes a beat a cycle and gives at most one packed beat.
#[derive(Clone, Debug)]
pub struct Reader {
    bus_bytes: u32,
    builder: Builder,
    ar: Fifo<AxiAddress>,
    in_flight: Fifo<Run>,
    r: Fifo<ReadBeat>,
    contexts: Fifo<Context>,
    hold: Hold,
    /// Nibbles of the oldest burst that are done, 14 bits.
    done: u32,
    /// The hold is to be emptied, with the flags of `flush_run`.
    flush: bool,
    flush_run: Run,
    /// First bus error of the job or control run.
    fault: BusFault,
    packed: Fifo<Beat>,
    control: Control,
    status: Fifo<BusFault>,
    block_read: bool,
}

/// Inputs of the [`Reader`].
pub struct ReaderIn<'a> {
    /// A run on offer.
    pub run: Stream<&'a Run>,
    /// A job's context, pushed at dispatch.
    pub context: Option<&'a Context>,
    /// ARREADY.
    pub ar_ready: bool,
    /// The R channel.
    pub r: Stream<&'a ReadBeat>,
    /// A packed beat of a tiled job would be taken.
    pub ready_tiled: bool,
    /// A packed beat of a direct job would be taken.
    pub ready_direct: bool,
    /// The completion unit takes a job's read status.
    pub status_pop: bool,
}

/// Outputs of the [`Reader`].
pub struct ReaderOut<'a> {
    /// A run would be taken.
    pub run_ready: bool,
    /// A context would be taken.
    pub context_ready: bool,
    /// The AR channel.
    pub ar: Stream<AxiAddress>,
    /// RREADY.
    pub r_ready: bool,
    /// The packed stream.
    pub beat: Stream<&'a Beat>,
    /// Bytes for the front end.
    pub control: &'a Control,
    /// The read status of the oldest job that is read.
    pub status: Stream<&'a BusFault>,
    /// An ordered job's block has been read.
    pub block_read: bool,
    /// No more bursts can be opened although one waits.
    pub full: bool,
    /// The realigner waits for the memory.
    pub starved: bool,
}

/// What the realigner does in a cycle: how much of the oldest burst it takes, and from which nibble of the beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bite {
    /// First nibble of the beat.
    pub from: u32,
    /// Nibbles.
    pub count: u32,
    /// The burst is done.
    pub last: bool,
}

impl Bite {
    /// The next beat of a burst of which `done` nibbles are done.
    pub fn of(run: &Run, done: u32, bus_bytes: u32) -> Self {
        let bus = 2 * bus_bytes;
        let from = if run.kind == Kind::Fill { 0 } else { ((run.address + u64::from(done)) % u64::from(bus)) as u32 };
        let left = run.nibbles as u32 - done;
        let count = left.min(bus - from);
        Self { from, count, last: count == left }
    }
}

impl Reader {
    /// Idle.
    pub fn new(config: &Config) -> Self {
        Self {
            bus_bytes: config.bus_bytes,
            builder: Builder::default(),
            ar: Fifo::new(2, AxiAddress::default()),
            in_flight: Fifo::new(config.reads_in_flight, Run::default()),
            r: Fifo::new(2, ReadBeat::default()),
            contexts: Fifo::new(TICKETS, Context::default()),
            hold: Hold::default(),
            done: 0,
            flush: false,
            flush_run: Run::default(),
            fault: BusFault::default(),
            packed: Fifo::new(2, Beat::default()),
            control: Control::default(),
            status: Fifo::new(TICKETS, BusFault::default()),
            block_read: false,
        }
    }

    fn room(&self) -> bool {
        self.ar.out().ready && self.in_flight.out().ready
    }

    /// The realigner can move: (the run it works on, whether it takes a beat of R).
    fn moves(&self) -> Option<(Run, bool)> {
        let (head, r) = (self.in_flight.out().head, self.r.out().head.valid);
        let run = if self.flush { self.flush_run } else { *head.data };
        let reads = !self.flush && run.kind != Kind::Fill;
        let able = self.flush || head.valid && (r || !reads);
        (able && (run.kind.control() || self.packed.out().ready)).then_some((run, reads))
    }

    /// Appends the next beat of `run`; returns the packed beat that leaves, if one does, and whether the burst is done.
    fn align(&mut self, run: &Run, reads: bool, context: &Context) -> (Option<Beat>, bool) {
        let mut burst_done = false;
        if !self.flush {
            let bite = Bite::of(run, self.done, self.bus_bytes);
            if reads {
                let beat = self.r.out().head.data;
                if beat.response != crate::Response::Okay && !self.fault.raised() {
                    let address = (run.address + u64::from(self.done)) >> 1;
                    self.fault = BusFault { response: beat.response, address };
                }
                self.hold.append(&beat.data, bite.from, bite.count);
            } else {
                self.hold.append(&fill_beat(context.fill, context.element), 0, bite.count);
            }
            burst_done = bite.last;
            self.done = if bite.last { 0 } else { self.done + bite.count };
        }
        let bus = 2 * self.bus_bytes;
        let end = self.flush || burst_done && run.stop;
        let beat = if self.hold.nibbles >= bus || end {
            let count = self.hold.nibbles.min(bus) / 2;
            let flags = end && self.hold.nibbles <= bus;
            let beat = Beat {
                data: *self.hold.bytes(),
                count: count as u8,
                row_end: flags,
                block_end: flags && run.block_end,
                job_end: flags && run.job_end,
                tiled: context.tiled && !run.kind.control(),
                element: context.element,
                poison: self.fault.raised(),
            };
            self.hold.drop(count);
            self.flush = end && !flags;
            self.flush_run = *run;
            Some(beat)
        } else {
            None
        };
        (beat, burst_done)
    }
}

impl Module for Reader {
    type In<'a> = ReaderIn<'a>;
    type Out<'a> = ReaderOut<'a>;

    fn out(&self) -> ReaderOut<'_> {
        let (ar, packed) = (self.ar.out().head, self.packed.out().head);
        let hungry = self.builder.hungry(self.bus_bytes);
        ReaderOut {
            run_ready: hungry && self.room(),
            context_ready: self.contexts.out().ready,
            ar: Stream { valid: ar.valid, data: *ar.data },
            r_ready: self.r.out().ready,
            beat: packed,
            control: &self.control,
            status: self.status.out().head,
            block_read: self.block_read,
            full: !self.in_flight.out().ready,
            starved: self.in_flight.out().head.valid && !self.r.out().head.valid,
        }
    }

    fn clock(&mut self, i: &ReaderIn<'_>) {
        // Realigner: from the oldest burst and the oldest beat of R.
        let context = *self.contexts.out().head.data;
        let (mut burst_done, mut r_pop, mut leaves, mut control) = (false, false, None, false);
        if let Some((run, reads)) = self.moves() {
            let (beat, done) = self.align(&run, reads, &context);
            (burst_done, r_pop, leaves, control) = (done, reads, beat, run.kind.control());
            self.control.index = run.kind == Kind::Index;
        }
        self.control.valid = control && leaves.is_some();
        if let (true, Some(beat)) = (control, leaves) {
            self.control.beat = beat;
            self.control.fault = self.fault;
        }
        let fault = self.fault;
        if leaves.is_some_and(|b| b.row_end && control || b.job_end) {
            self.fault = BusFault::default();
        }
        let stream = leaves.filter(|_| !control);
        let job_end = stream.is_some_and(|b| b.job_end);
        self.block_read = context.ordered && stream.is_some_and(|b| b.block_end);

        let taken = self.packed.out().head;
        let pop = if taken.data.tiled { i.ready_tiled } else { i.ready_direct };
        let blank = Beat::default();
        self.packed.clock(&FifoIn { push: stream.as_ref().map_or(Stream::idle(&blank), Stream::offer), pop });
        self.status.clock(&FifoIn { push: Stream { valid: job_end, data: &fault }, pop: i.status_pop });
        let none = Context::default();
        let push = i.context.map_or(Stream::idle(&none), Stream::offer);
        self.contexts.clock(&FifoIn { push, pop: job_end });
        self.r.clock(&FifoIn { push: i.r, pop: r_pop });

        // Burst builder: at most one run in, one burst out.
        let mut burst = None;
        if self.room() {
            let build = self.builder.step(i.run.valid.then_some(i.run.data), self.bus_bytes);
            self.builder.apply(&build);
            burst = build.emit;
        }
        let run = burst.unwrap_or_default();
        let address = AxiAddress::of(&run, self.bus_bytes);
        let reads = burst.is_some() && run.kind != Kind::Fill;
        self.ar.clock(&FifoIn { push: Stream { valid: reads, data: &address }, pop: i.ar_ready });
        self.in_flight.clock(&FifoIn { push: Stream { valid: burst.is_some(), data: &run }, pop: burst_done });
    }

    fn reset(&mut self) {
        self.builder = Builder::default();
        self.ar.reset();
        self.in_flight.reset();
        self.r.reset();
        self.contexts.reset();
        self.packed.reset();
        self.status.reset();
        self.hold.nibbles = 0;
        (self.done, self.flush, self.block_read, self.control.valid) = (0, false, false, false);
        self.fault = BusFault::default();
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        v.scope("builder", |v| self.builder.visit(v));
        v.scope("ar", |v| self.ar.visit(v));
        v.scope("in_flight", |v| self.in_flight.visit(v));
        v.scope("r", |v| self.r.visit(v));
        v.scope("contexts", |v| self.contexts.visit(v));
        v.scope("hold", |v| self.hold.visit(v));
        v.reg("done_q", 14, Format::Unsigned, &mut self.done);
        v.reg("flush_q", 1, Format::Unsigned, &mut self.flush);
        self.flush_run.visit("flush_run".into(), v);
        self.fault.visit("fault".into(), v);
        v.scope("packed", |v| self.packed.visit(v));
        self.control.visit(v);
        v.scope("status", |v| self.status.visit(v));
        v.reg("block_read_q", 1, Format::Unsigned, &mut self.block_read);
    }
}
