//! An AXI4 memory: bytes, latency, back-pressure and faults.

use dma::{AxiAddress, Lanes, MAX_BUS, PortIn, PortOut, ReadBeat, Response, WriteBeat};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rtl::Stream;
use std::collections::VecDeque;
use std::ops::Range;

/// How a memory answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Cycles from the AR handshake to the first beat on R, and from the last W handshake to B: lowest and highest.
    pub latency: (u64, u64),
    /// Chance that an address or data channel is not ready in a cycle.
    pub busy: f64,
    /// Chance that a beat on R or B comes a cycle later.
    pub gap: f64,
    /// Read bytes are sampled when the address arrives, not when the beat leaves: the other end of what a memory may do.
    pub sample_early: bool,
}

impl Timing {
    /// Always ready, always the same latency.
    pub const fn fixed(latency: u64) -> Self {
        Self { latency: (latency, latency), busy: 0.0, gap: 0.0, sample_early: false }
    }

    /// Always the same: what the transaction engine predicts.
    pub fn is_fixed(&self) -> bool {
        self.latency.0 == self.latency.1 && self.busy == 0.0 && self.gap == 0.0
    }
}

/// Addresses that fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRange {
    /// Byte addresses.
    pub bytes: Range<u64>,
    /// Reads fail.
    pub reads: bool,
    /// Writes fail.
    pub writes: bool,
    /// With this response.
    pub response: Response,
}

struct Read {
    address: AxiAddress,
    beat: u16,
    ready_at: u64,
    early: Vec<Lanes>,
}

struct Write {
    address: AxiAddress,
    beat: u16,
    response: Response,
}

/// The memory. What lies outside its bytes answers DECERR.
pub struct Memory {
    /// Address of the first byte.
    pub base: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Addresses that fail.
    pub bad: Vec<BadRange>,
    timing: Timing,
    bus: u64,
    rng: Xoshiro256PlusPlus,
    cycle: u64,
    reads: VecDeque<Read>,
    writes: VecDeque<Write>,
    responses: VecDeque<(u64, Response)>,
    r: Stream<ReadBeat>,
    b: Stream<Response>,
    ready: [bool; 3],
}

impl Memory {
    /// A memory that holds `bytes` from address `base` on.
    pub fn new(base: u64, bytes: Vec<u8>, bus_bytes: u32, timing: Timing, rng: Xoshiro256PlusPlus) -> Self {
        let mut memory = Self {
            base,
            bytes,
            bad: Vec::new(),
            timing,
            bus: u64::from(bus_bytes),
            rng,
            cycle: 0,
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            responses: VecDeque::new(),
            r: Stream::default(),
            b: Stream::default(),
            ready: [true; 3],
        };
        memory.draw();
        memory
    }

    fn draw(&mut self) {
        if self.timing.busy > 0.0 {
            self.ready = std::array::from_fn(|_| !self.rng.random_bool(self.timing.busy));
        }
    }

    fn latency(&mut self) -> u64 {
        let (low, high) = self.timing.latency;
        if low == high { low } else { self.rng.random_range(low..=high) }
    }

    /// The wires of this cycle.
    pub fn out(&self) -> PortIn<'_> {
        PortIn {
            ar_ready: self.ready[0],
            r: Stream { valid: self.r.valid, data: &self.r.data },
            aw_ready: self.ready[1],
            w_ready: self.ready[2],
            b: self.b,
        }
    }

    fn fault(&self, bytes: Range<u64>, write: bool) -> Response {
        let end = self.base + self.bytes.len() as u64;
        if bytes.start < self.base || bytes.end > end {
            return Response::DecodeError;
        }
        let hit = |f: &&BadRange| {
            (if write { f.writes } else { f.reads }) && f.bytes.start < bytes.end && bytes.start < f.bytes.end
        };
        self.bad.iter().find(hit).map_or(Response::Okay, |f| f.response)
    }

    fn lanes(&self, start: u64) -> Lanes {
        let mut lanes = [0; MAX_BUS];
        for (lane, byte) in lanes.iter_mut().take(self.bus as usize).enumerate() {
            let at = (start + lane as u64).checked_sub(self.base).and_then(|a| self.bytes.get(a as usize));
            *byte = at.copied().unwrap_or(0xee);
        }
        lanes
    }

    /// Address of a beat, aligned to the bus.
    fn beat_address(&self, a: &AxiAddress, beat: u16) -> u64 {
        a.address / self.bus * self.bus + u64::from(beat) * self.bus
    }

    fn write(&mut self, beat: &WriteBeat) {
        let Some(write) = self.writes.front() else { return };
        let start = self.beat_address(&write.address, write.beat);
        for lane in 0..self.bus {
            if beat.strobe >> lane & 1 == 0 {
                continue;
            }
            let address = start + lane;
            let response = self.fault(address..address + 1, true);
            if response == Response::Okay {
                let at = (address - self.base) as usize;
                self.bytes[at] = beat.data[lane as usize];
            } else if let Some(write) = self.writes.front_mut() {
                write.response = response;
            }
        }
        let latency = self.latency();
        if let Some(write) = self.writes.front_mut() {
            write.beat += 1;
            if write.beat == write.address.beats {
                let response = write.response;
                self.writes.pop_front();
                let after = self.responses.back().map_or(0, |r| r.0);
                self.responses.push_back(((self.cycle + latency).max(after), response));
            }
        }
    }

    /// The edge that ends this cycle.
    pub fn clock(&mut self, port: &PortOut<'_>) {
        if self.r.fires(port.r_ready) {
            self.r.valid = false;
        }
        if self.b.fires(port.b_ready) {
            self.b.valid = false;
        }
        if port.w.fires(self.ready[2]) {
            self.write(port.w.data);
        }
        if port.aw.fires(self.ready[1]) {
            self.writes.push_back(Write { address: port.aw.data, beat: 0, response: Response::Okay });
        }
        if port.ar.fires(self.ready[0]) {
            let address = port.ar.data;
            let after = self.reads.back().map_or(0, |r| r.ready_at);
            let ready_at = (self.cycle + self.latency()).max(after);
            let early = if self.timing.sample_early {
                (0..address.beats).map(|b| self.lanes(self.beat_address(&address, b))).collect()
            } else {
                Vec::new()
            };
            self.reads.push_back(Read { address, beat: 0, ready_at, early });
        }
        self.cycle += 1;
        if !self.b.valid
            && self.responses.front().is_some_and(|r| r.0 <= self.cycle)
            && !(self.timing.gap > 0.0 && self.rng.random_bool(self.timing.gap))
            && let Some((_, response)) = self.responses.pop_front()
        {
            self.b = Stream::offer(response);
        }
        let due = self.reads.front().is_some_and(|r| r.ready_at <= self.cycle);
        if !self.r.valid && due && !(self.timing.gap > 0.0 && self.rng.random_bool(self.timing.gap)) {
            self.present();
        }
        self.draw();
    }

    /// Puts the next beat of the oldest read on R.
    fn present(&mut self) {
        let Some(read) = self.reads.front() else { return };
        let (address, beat) = (read.address, read.beat);
        let start = self.beat_address(&address, beat);
        let used = start.max(address.address)..start + self.bus;
        let early = read.early.get(usize::from(beat)).copied();
        let data = early.unwrap_or_else(|| self.lanes(start));
        // A beat may reach past the end of a fault-free range without touching it: only its first byte decides.
        let response = self.fault(used.start..used.start + 1, false);
        let last = beat + 1 == address.beats;
        self.r = Stream::offer(ReadBeat { data, response, last });
        if last {
            self.reads.pop_front();
        } else if let Some(read) = self.reads.front_mut() {
            read.beat += 1;
        }
    }

    /// Nothing is under way.
    pub fn quiet(&self) -> bool {
        let open = self.reads.is_empty() && self.writes.is_empty() && self.responses.is_empty();
        open && !self.r.valid && !self.b.valid
    }

    /// Reset: whatever is under way is forgotten, the bytes stay.
    pub fn reset(&mut self) {
        (self.reads, self.writes, self.responses) = Default::default();
        (self.r.valid, self.b.valid) = (false, false);
    }
}
