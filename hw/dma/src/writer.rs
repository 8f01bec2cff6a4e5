use crate::align::Hold;
use crate::{AxiAddress, Beat, Builder, BusFault, Config, Response, Run, TICKETS, WriteBeat};
use rtl::{Fifo, FifoIn, Format, Module, Payload, Stream, Visitor};

/// Write bursts whose data wait behind the one being sent.
pub const WRITE_BURSTS: usize = 4;

/// The write half of the back end: runs become bursts on AW, the stream becomes beats on W, B is counted.
///
/// Data never go before their address: a burst reaches the data side on the edge that AW takes it.
#[derive(Clone, Debug)]
pub struct Writer {
    bus_bytes: u32,
    builder: Builder,
    aw: Fifo<Run>,
    /// Bursts whose data are still to be sent.
    bursts: Fifo<Run>,
    /// Bursts whose response is still to come.
    in_flight: Fifo<Run>,
    hold: Hold,
    /// Bytes of the burst that are sent, 13 bits.
    done: u32,
    /// A read error lies before the bytes held: strobes stay low to the job's end.
    poison: bool,
    w: Fifo<WriteBeat>,
    /// First bus error of the job.
    fault: BusFault,
    status: Fifo<BusFault>,
    block_written: bool,
}

/// Inputs of the [`Writer`].
pub struct WriterIn<'a> {
    /// A run on offer.
    pub run: Stream<&'a Run>,
    /// A beat of the stream.
    pub beat: Stream<&'a Beat>,
    /// AWREADY.
    pub aw_ready: bool,
    /// WREADY.
    pub w_ready: bool,
    /// The B channel.
    pub b: Stream<Response>,
    /// The completion unit takes a job's write status.
    pub status_pop: bool,
}

/// Outputs of the [`Writer`].
pub struct WriterOut<'a> {
    /// A run would be taken.
    pub run_ready: bool,
    /// A beat would be taken.
    pub beat_ready: bool,
    /// The AW channel.
    pub aw: Stream<AxiAddress>,
    /// The W channel.
    pub w: Stream<&'a WriteBeat>,
    /// BREADY.
    pub b_ready: bool,
    /// The write status of the oldest job whose writes are all answered.
    pub status: Stream<&'a BusFault>,
    /// An ordered job's block is written, and there are more.
    pub block_written: bool,
}

/// What the next beat of a write burst carries: first lane, and bytes.
pub fn write_lanes(run: &Run, done: u32, bus_bytes: u32) -> (u32, u32) {
    let lane = (((run.address >> 1) + u64::from(done)) % u64::from(bus_bytes)) as u32;
    (lane, (bus_bytes - lane).min((run.nibbles / 2) as u32 - done))
}

impl Writer {
    /// Idle.
    pub fn new(config: &Config) -> Self {
        Self {
            bus_bytes: config.bus_bytes,
            builder: Builder::default(),
            aw: Fifo::new(2, Run::default()),
            bursts: Fifo::new(WRITE_BURSTS, Run::default()),
            in_flight: Fifo::new(config.writes_in_flight, Run::default()),
            hold: Hold::default(),
            done: 0,
            poison: false,
            w: Fifo::new(2, WriteBeat::default()),
            fault: BusFault::default(),
            status: Fifo::new(TICKETS, BusFault::default()),
            block_written: false,
        }
    }

    /// The data side could send if it had the bytes: the burst, its next lane and the bytes wanted.
    fn wants(&self) -> Option<(Run, u32, u32)> {
        let head = self.bursts.out().head;
        (head.valid && self.w.out().ready).then(|| {
            let (lane, bytes) = write_lanes(head.data, self.done, self.bus_bytes);
            (*head.data, lane, bytes)
        })
    }

    fn beat_ready(&self) -> bool {
        self.wants().is_some_and(|(_, _, bytes)| self.hold.nibbles / 2 < bytes)
    }

    /// Sends one beat if the bytes are there; the bool says that the burst is done.
    fn send(&mut self) -> Option<(WriteBeat, bool)> {
        let (run, lane, bytes) = self.wants()?;
        if self.hold.nibbles / 2 < bytes {
            return None;
        }
        let mut beat = WriteBeat::default();
        let (from, count) = (lane as usize, bytes as usize);
        beat.data[from..from + count].copy_from_slice(&self.hold.bytes()[..count]);
        beat.strobe = if self.poison { 0 } else { rtl::mask(bytes) << lane };
        self.hold.drop(bytes);
        self.done += bytes;
        beat.last = u64::from(self.done) == run.nibbles / 2;
        if beat.last {
            self.done = 0;
            self.poison &= !run.job_end;
        }
        Some((beat, beat.last))
    }

    fn address_valid(&self) -> bool {
        self.aw.out().head.valid && self.bursts.out().ready && self.in_flight.out().ready
    }
}

impl Module for Writer {
    type In<'a> = WriterIn<'a>;
    type Out<'a> = WriterOut<'a>;

    fn out(&self) -> WriterOut<'_> {
        let aw = self.aw.out();
        WriterOut {
            run_ready: aw.ready && self.builder.hungry(self.bus_bytes),
            beat_ready: self.beat_ready(),
            aw: Stream { valid: self.address_valid(), data: AxiAddress::of(aw.head.data, self.bus_bytes) },
            w: self.w.out().head,
            b_ready: true,
            status: self.status.out().head,
            block_written: self.block_written,
        }
    }

    fn clock(&mut self, i: &WriterIn<'_>) {
        // Data: at most one beat of the stream in, one beat of W out.
        if i.beat.fires(self.beat_ready()) {
            self.hold.append(&i.beat.data.data, 0, 2 * u32::from(i.beat.data.count));
            self.poison |= i.beat.data.poison;
        }
        let sent = self.send();
        let (beat, burst_done) = sent.unwrap_or_default();
        self.w.clock(&FifoIn { push: Stream { valid: sent.is_some(), data: &beat }, pop: i.w_ready });

        // Responses.
        let answered = i.b.valid && self.in_flight.out().head.valid;
        let oldest = *self.in_flight.out().head.data;
        if answered && i.b.data != Response::Okay && !self.fault.raised() {
            self.fault = BusFault { response: i.b.data, address: oldest.address >> 1 };
        }
        let job_end = answered && oldest.job_end;
        let fault = self.fault;
        self.status.clock(&FifoIn { push: Stream { valid: job_end, data: &fault }, pop: i.status_pop });
        if job_end {
            self.fault = BusFault::default();
        }
        self.block_written = answered && oldest.block_end;

        // Addresses.
        let head = *self.aw.out().head.data;
        let fires = self.address_valid() && i.aw_ready;
        let push = Stream { valid: fires, data: &head };
        self.bursts.clock(&FifoIn { push, pop: burst_done });
        self.in_flight.clock(&FifoIn { push, pop: answered });
        let mut burst = None;
        if self.aw.out().ready {
            let build = self.builder.step(i.run.valid.then_some(i.run.data), self.bus_bytes);
            self.builder.apply(&build);
            burst = build.emit;
        }
        let run = burst.unwrap_or_default();
        self.aw.clock(&FifoIn { push: Stream { valid: burst.is_some(), data: &run }, pop: fires });
    }

    fn reset(&mut self) {
        self.builder = Builder::default();
        self.aw.reset();
        self.bursts.reset();
        self.in_flight.reset();
        self.w.reset();
        self.status.reset();
        self.hold.nibbles = 0;
        (self.done, self.poison, self.block_written) = (0, false, false);
        self.fault = BusFault::default();
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        v.scope("builder", |v| self.builder.visit(v));
        v.scope("aw", |v| self.aw.visit(v));
        v.scope("bursts", |v| self.bursts.visit(v));
        v.scope("in_flight", |v| self.in_flight.visit(v));
        v.scope("hold", |v| self.hold.visit(v));
        v.reg("done_q", 13, Format::Unsigned, &mut self.done);
        v.reg("poison_q", 1, Format::Unsigned, &mut self.poison);
        v.scope("w", |v| self.w.visit(v));
        self.fault.visit("fault".into(), v);
        v.scope("status", |v| self.status.visit(v));
        v.reg("block_written_q", 1, Format::Unsigned, &mut self.block_written);
    }
}
