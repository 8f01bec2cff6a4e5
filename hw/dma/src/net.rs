mod write;

use crate::align::{Hold, fill_beat};
use crate::completion::Ticket;
use crate::reader::Bite;
use crate::timed::{Timed, Unit};
use crate::{
    AxiAddress, Beat, Builder, BusFault, CHUNK_BYTES, COMPLETIONS, Completion, Config, Context, Control, Kind, Lanes,
    Latency, Plan, ReadBeat, Response, Run, Stalls, TICKETS, Traffic, Transposer, WRITE_BURSTS, WRITE_JOBS,
};
use std::collections::VecDeque;

/// What the transaction engine moves bytes in.
pub trait Bytes {
    /// Fills `lanes` from byte address `address` on; the response of the beat.
    fn read(&mut self, address: u64, lanes: &mut [u8]) -> Response;
    /// Writes the bytes whose strobe bit is set; the response of the beat.
    fn write(&mut self, address: u64, lanes: &[u8], strobe: u64) -> Response;
}

/// A write burst and what the bus said of it so far.
#[derive(Clone, Copy, Debug)]
struct Sent {
    address: u64,
    strobe: u64,
    data: Lanes,
    last: bool,
}

/// Everything behind the front end, as processes between timed FIFOs.
///
/// A process fires at the latest of: the cycle after it fired last, the cycle that sees its inputs, the cycle that has
/// room for its outputs. All of them decide by the order of their inputs alone, never by when those arrive, so that the
/// times are a function of the job and the latency, whatever the order in which this program works them out.
pub(crate) struct Net<L> {
    bus: u32,
    latency: L,
    pub(crate) read: Unit,
    pub(crate) write: Unit,
    pub(crate) write_jobs: Timed<Plan>,
    /// Read side.
    builder: Builder,
    built: u64,
    /// Runs of the front end; they and those of the address unit never meet.
    pub(crate) control_run: Option<(u64, Run)>,
    pub(crate) control_taken: u64,
    ar: Timed<AxiAddress>,
    in_flight: Timed<Run>,
    ar_next: u64,
    /// Bursts in the memory: when the first beat can be there, address, beats left.
    open: VecDeque<(u64, u64, u16)>,
    open_ready: u64,
    r_next: u64,
    r: Timed<ReadBeat>,
    hold: Hold,
    done: u32,
    flush: Option<Run>,
    fault: BusFault,
    aligned: u64,
    contexts: VecDeque<Context>,
    packed: Timed<Beat>,
    /// Descriptor and index beats with the cycle in which the front end has stored them.
    pub(crate) control: VecDeque<(u64, Control)>,
    read_status: VecDeque<(u64, BusFault)>,
    /// Transposer and stream buffer.
    transposer: Transposer,
    popped: u64,
    /// Cycle in which each buffer can be filled again; tiles that are full, with the cycle that sees them so.
    free: [u64; 2],
    full: VecDeque<u64>,
    filling: usize,
    draining: usize,
    loaded: u64,
    out: Option<(u64, Beat)>,
    out_free: u64,
    stream: Timed<Beat>,
    /// Write side.
    write_builder: Builder,
    write_built: u64,
    aw: Timed<Run>,
    aw_next: u64,
    bursts: Timed<Run>,
    write_in_flight: Timed<Run>,
    write_hold: Hold,
    write_done: u32,
    poison: bool,
    sent: u64,
    w: Timed<Sent>,
    w_next: u64,
    response: Response,
    responses: VecDeque<(u64, Response)>,
    response_ready: u64,
    b_next: u64,
    write_fault: BusFault,
    write_status: VecDeque<(u64, BusFault)>,
    /// Completion.
    pub(crate) tickets: Timed<Ticket>,
    completed: u64,
    completions: Timed<()>,
    host: u64,
    /// Cycle in which the host takes each completion.
    pub(crate) finished: Vec<(u64, Completion)>,
    /// Cycle that sees the last completion counted.
    pub(crate) retired: u64,
    first_ar: Option<u64>,
    pub(crate) traffic: Traffic,
    /// Cycles in which a write burst waited for data.
    write_starved: u64,
}

impl<L: Latency> Net<L> {
    pub(crate) fn new(config: &Config, latency: L) -> Self {
        Self {
            bus: config.bus_bytes,
            latency,
            read: Unit::new(false),
            write: Unit::new(true),
            write_jobs: Timed::new(WRITE_JOBS),
            builder: Builder::default(),
            built: 0,
            control_run: None,
            control_taken: 0,
            ar: Timed::new(2),
            in_flight: Timed::new(config.reads_in_flight),
            ar_next: 0,
            open: VecDeque::new(),
            open_ready: 0,
            r_next: 0,
            r: Timed::new(2),
            hold: Hold::default(),
            done: 0,
            flush: None,
            fault: BusFault::default(),
            aligned: 0,
            contexts: VecDeque::new(),
            packed: Timed::new(2),
            control: VecDeque::new(),
            read_status: VecDeque::new(),
            transposer: Transposer::new(config.bus_bytes),
            popped: 0,
            free: [0; 2],
            full: VecDeque::new(),
            filling: 0,
            draining: 0,
            loaded: 0,
            out: None,
            out_free: 0,
            stream: Timed::new(CHUNK_BYTES / config.bus_bytes as usize),
            write_builder: Builder::default(),
            write_built: 0,
            aw: Timed::new(2),
            aw_next: 0,
            bursts: Timed::new(WRITE_BURSTS),
            write_in_flight: Timed::new(config.writes_in_flight),
            write_hold: Hold::default(),
            write_done: 0,
            poison: false,
            sent: 0,
            w: Timed::new(2),
            w_next: 0,
            response: Response::Okay,
            responses: VecDeque::new(),
            response_ready: 0,
            b_next: 0,
            write_fault: BusFault::default(),
            write_status: VecDeque::new(),
            tickets: Timed::new(TICKETS),
            completed: 0,
            completions: Timed::new(COMPLETIONS),
            host: 0,
            finished: Vec::new(),
            retired: 0,
            first_ar: None,
            traffic: Traffic::default(),
            write_starved: 0,
        }
    }

    /// Hands a job over in cycle `t`.
    pub(crate) fn dispatch(&mut self, t: u64, ticket: Ticket, plan: Option<&Plan>) {
        self.tickets.push(t, ticket);
        if let Some(plan) = plan {
            self.read.load(t, plan);
            self.write_jobs.push(t, *plan);
            self.contexts.push_back(Context::of(plan));
        }
    }

    /// First cycle in which the read side has walked everything and its queue is empty.
    pub(crate) fn read_idle(&self) -> Option<u64> {
        let idle = self.read.idle()?;
        (self.read.runs.items.is_empty()).then(|| idle.max(self.read.runs.free.back().copied().unwrap_or(0)))
    }

    /// First cycle in which the write side has walked everything.
    pub(crate) fn write_idle(&self) -> Option<u64> {
        self.write_jobs.items.is_empty().then(|| self.write.idle())?
    }

    /// Stalls behind the front end, once everything is done. The memory is always ready, so no channel waits for it; and a beat
    /// of R always belongs to a burst in flight, so the reads starve in the other cycles of those bursts.
    pub(crate) fn stalls(&self) -> Stalls {
        Stalls {
            reads_full: self.in_flight.full(),
            read_data: self.in_flight.held() - self.r.held(),
            write_data: self.write_starved,
            ..Stalls::default()
        }
    }

    /// Works out all that follows from what is known.
    pub(crate) fn pump(&mut self, memory: &mut impl Bytes) {
        loop {
            let moved = [
                self.read.fire(),
                self.build(),
                self.addresses(),
                self.beats(memory),
                self.align(),
                self.transpose(),
                self.write_walk(),
                self.write_build(),
                self.write_addresses(),
                self.send(),
                self.deliver(memory),
                self.answers(),
                self.complete(),
            ];
            if !moved.contains(&true) {
                return;
            }
        }
    }

    fn build(&mut self) -> bool {
        let mut moved = false;
        while let (Some(ar), Some(slot)) = (self.ar.room(), self.in_flight.room()) {
            let mut t = (self.built + 1).max(ar).max(slot);
            let hungry = self.builder.hungry(self.bus);
            let offer = match self.control_run {
                Some((seen, run)) => Some((seen, run)),
                None => self.read.runs.head().map(|(seen, run)| (seen, *run)),
            };
            if hungry {
                let Some((seen, _)) = offer else { return moved };
                t = t.max(seen);
            }
            let build = self.builder.step(offer.as_ref().map(|o| &o.1).filter(|_| hungry), self.bus);
            self.builder.apply(&build);
            if build.consume {
                if self.control_run.take().is_some() {
                    self.control_taken = t;
                } else {
                    self.read.runs.pop(t);
                }
            }
            if let Some(run) = build.emit {
                self.in_flight.push(t, run);
                if run.kind != Kind::Fill {
                    self.ar.push(t, AxiAddress::of(&run, self.bus));
                }
            }
            self.built = t;
            moved = true;
        }
        moved
    }

    /// The AR channel of a memory that is always ready.
    fn addresses(&mut self) -> bool {
        let mut moved = false;
        while let Some((seen, &address)) = self.ar.head() {
            let t = self.ar_next.max(seen);
            self.ar_next = t + 1;
            self.ar.pop(t);
            self.open_ready = self.open_ready.max(t + self.latency.read(address.address));
            self.open.push_back((self.open_ready, address.address, address.beats));
            self.first_ar.get_or_insert(t);
            self.traffic.read_bursts += 1;
            moved = true;
        }
        moved
    }

    /// The R channel.
    fn beats(&mut self, memory: &mut impl Bytes) -> bool {
        let mut moved = false;
        while let (Some(room), Some(&(ready, address, left))) = (self.r.room(), self.open.front()) {
            let t = ready.max(self.r_next).max(room);
            let mut beat = ReadBeat { last: left == 1, ..ReadBeat::default() };
            let bus = u64::from(self.bus);
            let start = address / bus * bus;
            let first = (address - start) as usize;
            beat.response = memory.read(address, &mut beat.data[first..bus as usize]);
            self.r.push(t, beat);
            self.r_next = t + 1;
            self.traffic.read_beats += 1;
            if left == 1 {
                self.open.pop_front();
            } else if let Some(front) = self.open.front_mut() {
                (front.1, front.2) = (start + bus, left - 1);
            }
            moved = true;
        }
        moved
    }

    fn align(&mut self) -> bool {
        let mut moved = false;
        loop {
            let (seen, run) = match (&self.flush, self.in_flight.head()) {
                (Some(run), _) => (0, *run),
                (None, Some((seen, run))) => (seen, *run),
                (None, None) => return moved,
            };
            let reads = self.flush.is_none() && run.kind != Kind::Fill;
            let mut t = (self.aligned + 1).max(seen);
            if reads {
                let Some((seen, _)) = self.r.head() else { return moved };
                t = t.max(seen);
            }
            if !run.kind.control() {
                let Some(room) = self.packed.room() else { return moved };
                t = t.max(room);
            }
            let context = self.contexts.front().copied().unwrap_or_default();
            let mut burst_done = false;
            if self.flush.is_none() {
                let bite = Bite::of(&run, self.done, self.bus);
                if let (true, Some((_, beat))) = (reads, self.r.head()) {
                    if beat.response != Response::Okay && !self.fault.raised() {
                        let address = (run.address + u64::from(self.done)) >> 1;
                        self.fault = BusFault { response: beat.response, address };
                    }
                    self.hold.append(&beat.data, bite.from, bite.count);
                    self.r.pop(t);
                } else {
                    self.hold.append(&fill_beat(context.fill, context.element), 0, bite.count);
                }
                burst_done = bite.last;
                self.done = if bite.last { 0 } else { self.done + bite.count };
                if burst_done {
                    self.in_flight.pop(t);
                }
            }
            self.emit(t, &run, burst_done, &context);
            self.aligned = t;
            moved = true;
        }
    }

    /// What leaves the realigner in cycle `t`.
    fn emit(&mut self, t: u64, run: &Run, burst_done: bool, context: &Context) {
        let bus = 2 * self.bus;
        let end = self.flush.take().is_some() || burst_done && run.stop;
        if self.hold.nibbles < bus && !end {
            return;
        }
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
        self.flush = (end && !flags).then_some(*run);
        if run.kind.control() {
            let control = Control { valid: true, index: run.kind == Kind::Index, beat, fault: self.fault };
            self.control.push_back((t + 2, control));
            if flags {
                self.fault = BusFault::default();
            }
            return;
        }
        self.packed.push(t, beat);
        if context.ordered && beat.block_end {
            self.write.tokens.push_back(t + 2);
        }
        if beat.job_end {
            self.read_status.push_back((t + 1, std::mem::take(&mut self.fault)));
            self.contexts.pop_front();
        }
    }

    fn transpose(&mut self) -> bool {
        let mut moved = false;
        loop {
            // The output register moves on to the stream buffer.
            if let (Some((seen, beat)), Some(room)) = (self.out, self.stream.room()) {
                let t = seen.max(room);
                self.stream.push(t, beat);
                self.out_free = t;
                self.out = None;
                moved = true;
            }
            let head = self.packed.head().map(|(seen, beat)| (seen, beat.tiled));
            if let Some((seen, true)) = head
                && self.full.len() < 2
            {
                let t = (self.popped + 1).max(seen).max(self.free[self.filling]);
                if let Some((_, beat)) = self.packed.head() {
                    self.transposer.write(beat);
                    if beat.block_end {
                        self.full.push_back(t + 1);
                        self.filling ^= 1;
                    }
                }
                self.packed.pop(t);
                self.popped = t;
                moved = true;
                continue;
            }
            if self.out.is_some() {
                return moved;
            }
            if let Some(&seen) = self.full.front() {
                let t = (self.loaded + 1).max(seen).max(self.out_free);
                let beat = self.transposer.read();
                if beat.block_end {
                    self.full.pop_front();
                    self.free[self.draining] = t + 1;
                    self.draining ^= 1;
                }
                self.out = Some((t + 1, beat));
                self.loaded = t;
            } else if let Some((seen, false)) = head {
                let t = (self.loaded + 1).max(seen).max(self.out_free);
                if let Some((_, beat)) = self.packed.head() {
                    self.out = Some((t + 1, *beat));
                }
                self.packed.pop(t);
                (self.loaded, self.popped) = (t, t);
            } else {
                return moved;
            }
            moved = true;
        }
    }
}
