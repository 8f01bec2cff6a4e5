use crate::{
    BackEnd, BackIn, Completion, Context, FrontEnd, FrontIn, IndexWrite, MidEnd, MidIn, PortIn, PortOut, Region, State,
};
use rtl::{Format, Module, Stream, Visitor};
use serde::{Deserialize, Serialize};

/// Sizes of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Bus width in bytes: 8, 16, 32 or 64.
    pub bus_bytes: u32,
    /// Read bursts in flight.
    pub reads_in_flight: usize,
    /// Write bursts in flight.
    pub writes_in_flight: usize,
    /// Most bytes that one job may write: a larger one is refused (the watchdog against descriptors that never end).
    pub job_bytes: u32,
    /// Most descriptors that one doorbell may start.
    pub chain_limit: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { bus_bytes: 64, reads_in_flight: 128, writes_in_flight: 128, job_bytes: u32::MAX, chain_limit: 65_535 }
    }
}

/// What crossed the port: counters of 48 bits, cleared by reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Cycles from the first AR to the last B, both counted.
    pub cycles: u64,
    /// Bursts on AR.
    pub read_bursts: u64,
    /// Beats on R.
    pub read_beats: u64,
    /// Bursts on AW.
    pub write_bursts: u64,
    /// Beats on W.
    pub write_beats: u64,
    /// Bytes written, by the strobes.
    pub useful_bytes: u64,
}

impl Traffic {
    /// Useful bytes written / (bus bytes × cycles); zero before anything was written.
    pub fn efficiency(&self, bus_bytes: u32) -> f64 {
        match self.cycles {
            0 => 0.0,
            cycles => self.useful_bytes as f64 / (cycles as f64 * f64::from(bus_bytes)),
        }
    }

    /// Bytes that crossed the bus both ways, whole beats.
    pub fn bus_bytes(&self, bus_bytes: u32) -> u64 {
        (self.read_beats + self.write_beats) * u64::from(bus_bytes)
    }
}

/// Cycles lost, by cause: counters of 48 bits. Causes overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stalls {
    /// AR waited for ready.
    pub ar: u64,
    /// AW waited for ready.
    pub aw: u64,
    /// W waited for ready.
    pub w: u64,
    /// No read burst could be opened: all in flight.
    pub reads_full: u64,
    /// The read side waited for R.
    pub read_data: u64,
    /// A write burst waited for data.
    pub write_data: u64,
    /// The front end waited for a descriptor.
    pub descriptor: u64,
    /// The front end waited for an index list.
    pub index: u64,
    /// The front end waited for earlier jobs to finish reading, or writing what comes next.
    pub order: u64,
}

/// The performance counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// What crossed the port.
    pub traffic: Traffic,
    /// Cycles lost.
    pub stalls: Stalls,
}

impl Counters {
    fn visit(&mut self, v: &mut impl Visitor) {
        let (t, s) = (&mut self.traffic, &mut self.stalls);
        let fields: [(&'static str, &mut u64); 15] = [
            ("cycles_q", &mut t.cycles),
            ("read_bursts_q", &mut t.read_bursts),
            ("read_beats_q", &mut t.read_beats),
            ("write_bursts_q", &mut t.write_bursts),
            ("write_beats_q", &mut t.write_beats),
            ("useful_bytes_q", &mut t.useful_bytes),
            ("stall_ar_q", &mut s.ar),
            ("stall_aw_q", &mut s.aw),
            ("stall_w_q", &mut s.w),
            ("stall_reads_full_q", &mut s.reads_full),
            ("stall_read_data_q", &mut s.read_data),
            ("stall_write_data_q", &mut s.write_data),
            ("stall_descriptor_q", &mut s.descriptor),
            ("stall_index_q", &mut s.index),
            ("stall_order_q", &mut s.order),
        ];
        for (name, value) in fields {
            v.reg(name, 48, Format::Unsigned, value);
        }
    }
}

/// The engine, register by register.
#[derive(Clone, Debug)]
pub struct Dma {
    front: FrontEnd,
    mid: MidEnd,
    back: BackEnd,
    counters: Counters,
    /// Cycles since the first AR, 48 bits; zero before it.
    running: u64,
}

/// Inputs of a [`Dma`].
pub struct DmaIn<'a> {
    /// Address of a chain's first descriptor.
    pub doorbell: Stream<u64>,
    /// The memory.
    pub port: PortIn<'a>,
    /// The host takes a completion.
    pub completion_ready: bool,
}

/// Outputs of a [`Dma`].
pub struct DmaOut<'a> {
    /// A doorbell would be taken.
    pub doorbell_ready: bool,
    /// The memory.
    pub port: PortOut<'a>,
    /// The oldest completion that the host has not taken.
    pub completion: Stream<&'a Completion>,
    /// No chain, no job, no completion.
    pub idle: bool,
}

impl Dma {
    /// Idle, all regions closed.
    ///
    /// # Errors
    /// [`crate::ConfigError`] if a size is out of range.
    pub fn new(config: &Config) -> Result<Self, crate::ConfigError> {
        config.check()?;
        Ok(Self {
            front: FrontEnd::new(config),
            mid: MidEnd::new(config),
            back: BackEnd::new(config),
            counters: Counters::default(),
            running: 0,
        })
    }

    /// Writes region register `number`, 0..16.
    ///
    /// # Panics
    /// If there is no such register.
    pub fn set_region(&mut self, number: usize, region: Region) {
        self.front.set_region(number, region);
    }

    /// The performance counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The first misuse of an index SRAM since reset.
    pub fn fault(&self) -> Option<rtl::SramFault> {
        self.mid.fault()
    }

    fn count(&mut self, i: &DmaIn<'_>) {
        let (back, state) = (self.back.out(), self.front.out().state);
        let port = back.port;
        let waits = back.stream_ready && !self.mid.out().stream.valid;
        let Counters { traffic: c, stalls } = &mut self.counters;
        let ar = port.ar.fires(i.port.ar_ready);
        if self.running > 0 || ar {
            self.running += 1;
        }
        if i.port.b.fires(port.b_ready) {
            c.cycles = self.running;
        }
        c.read_bursts += u64::from(ar);
        c.read_beats += u64::from(i.port.r.fires(port.r_ready));
        c.write_bursts += u64::from(port.aw.fires(i.port.aw_ready));
        if port.w.fires(i.port.w_ready) {
            c.write_beats += 1;
            c.useful_bytes += u64::from(port.w.data.strobe.count_ones());
        }
        stalls.ar += u64::from(port.ar.valid && !i.port.ar_ready);
        stalls.aw += u64::from(port.aw.valid && !i.port.aw_ready);
        stalls.w += u64::from(port.w.valid && !i.port.w_ready);
        stalls.reads_full += u64::from(back.reads_full);
        stalls.read_data += u64::from(back.read_starved);
        stalls.write_data += u64::from(waits);
        stalls.descriptor += u64::from(state == State::Receive);
        stalls.index += u64::from(state == State::ListReceive);
        stalls.order += u64::from(matches!(state, State::Fetch | State::Settle | State::List | State::Hazard));
    }
}

impl Module for Dma {
    type In<'a> = DmaIn<'a>;
    type Out<'a> = DmaOut<'a>;

    fn out(&self) -> DmaOut<'_> {
        let (front, back) = (self.front.out(), self.back.out());
        DmaOut {
            doorbell_ready: front.doorbell_ready,
            port: back.port,
            completion: back.completion,
            idle: front.idle && back.idle,
        }
    }

    fn clock(&mut self, i: &DmaIn<'_>) {
        self.count(i);
        // All wires first. What a child drives for one that is clocked after it is copied off its registers.
        let (front, mid, back) = (self.front.out(), self.mid.out(), self.back.out());
        let front_run = front.run;
        let moves = front.plan.is_some();
        let dispatch_ready = back.ticket_ready && (!moves || mid.job_ready);
        let dispatch = front.ticket.valid && dispatch_ready;
        let ticket = dispatch.then_some(*front.ticket.data);
        let plan = front.plan.filter(|_| dispatch).copied();
        let context = plan.as_ref().map(Context::of);
        let mut word = [0; 8];
        let index = front.index.map(|w| {
            word[..w.data.len()].copy_from_slice(w.data);
            (w.side, w.address, w.data.len())
        });
        // The front end asks only while the mid end's read side is idle, so the two never meet.
        let mid_run = Stream { valid: mid.read_run.valid, data: *mid.read_run.data };
        let read_run = if front_run.valid { front_run } else { mid_run };
        let write_run = Stream { valid: mid.write_run.valid, data: *mid.write_run.data };
        let stream = Stream { valid: mid.stream.valid, data: *mid.stream.data };
        let (ready_tiled, ready_direct) = (mid.ready_tiled, mid.ready_direct);

        self.front.clock(&FrontIn {
            doorbell: i.doorbell,
            run_ready: back.read_ready,
            control: back.control,
            read_idle: mid.read_idle && !mid_run.valid,
            write_idle: mid.write_idle,
            dispatch_ready,
            retired: back.retired,
        });
        self.mid.clock(&MidIn {
            job: plan.as_ref(),
            index: index.map(|(side, address, lanes)| IndexWrite { side, address, data: &word[..lanes] }),
            beat: back.packed,
            read_pop: back.read_ready && !front_run.valid,
            write_pop: back.write_ready,
            stream_pop: back.stream_ready,
            block_read: back.block_read,
            block_written: back.block_written,
        });
        self.back.clock(&BackIn {
            read_run: Stream { valid: read_run.valid, data: &read_run.data },
            write_run: Stream { valid: write_run.valid, data: &write_run.data },
            stream: Stream { valid: stream.valid, data: &stream.data },
            ready_tiled,
            ready_direct,
            ticket: ticket.as_ref(),
            context: context.as_ref(),
            port: i.port,
            completion_ready: i.completion_ready,
        });
    }

    fn reset(&mut self) {
        self.front.reset();
        self.mid.reset();
        self.back.reset();
        (self.counters, self.running) = (Counters::default(), 0);
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        v.scope("front", |v| self.front.visit(v));
        v.scope("mid", |v| self.mid.visit(v));
        v.scope("back", |v| self.back.visit(v));
        v.reg("running_q", 48, Format::Unsigned, &mut self.running);
        v.scope("counters", |v| self.counters.visit(v));
    }
}
