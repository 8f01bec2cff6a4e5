//! What stands behind the DMA's AXI port: the memories' controllers.

use crate::exec::OpenRows;
use crate::memory::SCRATCHPAD_BASE;
use crate::{Config, Fault, Memory};
use ::dma::{AxiAddress, Latency, PortOut, ReadBeat, Response};
use rtl::{Format, Payload, Stream, Visitor};

/// A burst that was asked for, or a response that is due.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    /// Cycle in which it may be shown, 64 bits.
    due: u64,
    /// Its next beat's first byte.
    address: u64,
    /// Beats left, 9 bits.
    beats: u16,
    response: Response,
}

impl Pending {
    fn visit(&mut self, v: &mut impl Visitor) {
        v.reg("due_q", 64, Format::Unsigned, &mut self.due);
        v.reg("address_q", 48, Format::Hex, &mut self.address);
        v.reg("beats_q", 9, Format::Unsigned, &mut self.beats);
        let mut code = self.response.code();
        v.reg("resp_q", 2, Format::Unsigned, &mut code);
        self.response = Response::from_code(code);
    }
}

/// A ring of what is pending, the oldest first; an entry is seen on the edge that enters it.
#[derive(Clone, Debug)]
struct Ring {
    slots: Vec<Pending>,
    read: u32,
    level: u32,
}

impl Ring {
    fn new(depth: usize) -> Self {
        Self { slots: vec![Pending::default(); depth], read: 0, level: 0 }
    }

    fn push(&mut self, item: Pending) {
        debug_assert!((self.level as usize) < self.slots.len(), "the engine keeps to its bursts in flight");
        let at = (self.read as usize + self.level as usize) % self.slots.len();
        self.slots[at] = item;
        self.level += 1;
    }

    fn front(&mut self) -> Option<&mut Pending> {
        (self.level > 0).then(|| &mut self.slots[self.read as usize])
    }

    fn pop(&mut self) {
        self.read = (self.read + 1) % self.slots.len() as u32;
        self.level -= 1;
    }

    fn reset(&mut self) {
        (self.read, self.level) = (0, 0);
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        v.reg("read_q", 16, Format::Unsigned, &mut self.read);
        v.reg("level_q", 16, Format::Unsigned, &mut self.level);
        self.slots.iter_mut().enumerate().for_each(|(i, slot)| v.scope(("slot", i), |v| slot.visit(v)));
    }
}

/// The slave: takes every address and every beat at once, answers reads and writes each in their order, after the memory's latency.
#[derive(Clone, Debug)]
pub(super) struct Slave {
    bus: u64,
    rows: OpenRows,
    /// Cycles since reset, 64 bits.
    now: u64,
    reads: Ring,
    /// When the last read burst is due: none overtakes it.
    read_due: u64,
    r: ReadBeat,
    r_valid: bool,
    writes: Ring,
    responses: Ring,
    write_due: u64,
    b: Response,
    b_valid: bool,
    /// Banks of the scratchpad that the command holds.
    held: u64,
}

impl Slave {
    pub(super) fn new(config: &Config) -> Self {
        let port = crate::exec::port(config);
        // A burst more than the engine has in flight: the one that enters while the oldest leaves.
        let (reads, writes) = (port.reads_in_flight + 1, port.writes_in_flight + 1);
        Self {
            bus: u64::from(port.bus_bytes),
            rows: OpenRows::new(config),
            now: 0,
            reads: Ring::new(reads),
            read_due: 0,
            r: ReadBeat::default(),
            r_valid: false,
            writes: Ring::new(writes),
            responses: Ring::new(writes),
            write_due: 0,
            b: Response::Okay,
            b_valid: false,
            held: 0,
        }
    }

    /// A command begins: all rows are closed, and it holds banks.
    pub(super) fn begin(&mut self, held: u64) {
        self.rows.close();
        self.held = held;
    }

    /// The wires of R and B; every address and every beat of W is taken.
    pub(super) fn wires(&self) -> (Stream<ReadBeat>, Stream<Response>) {
        (Stream { valid: self.r_valid, data: self.r }, Stream { valid: self.b_valid, data: self.b })
    }

    /// A beat of the scratchpad must lie in a bank that the command holds.
    fn guard(&self, memory: &Memory, address: u64) -> Result<(), Fault> {
        if !(SCRATCHPAD_BASE..2 * SCRATCHPAD_BASE).contains(&address) {
            return Ok(());
        }
        let at = (address - SCRATCHPAD_BASE) as usize;
        let touched = memory.scratch.banks(&(at..at + 1));
        if touched & !self.held == 0 { Ok(()) } else { Err(Fault::Banks { touched, held: self.held }) }
    }

    fn write(&mut self, port: &PortOut<'_>, memory: &mut Memory) -> Result<(), Fault> {
        let Some(burst) = self.writes.front() else { return Ok(()) };
        let Pending { address, beats, .. } = *burst;
        let start = address / self.bus * self.bus;
        let beat = port.w.data;
        self.guard(memory, start)?;
        let response = memory.store(start, &beat.data[..self.bus as usize], beat.strobe);
        if let Some(burst) = self.writes.front() {
            (burst.address, burst.beats) = (start + self.bus, beats - 1);
            if response != Response::Okay {
                burst.response = response;
            }
            if beats == 1 {
                let response = burst.response;
                self.writes.pop();
                self.write_due = self.write_due.max(self.now + self.rows.write(start));
                self.responses.push(Pending { due: self.write_due, response, ..Pending::default() });
            }
        }
        Ok(())
    }

    /// Puts the next beat of the oldest read into the register.
    fn present(&mut self, memory: &mut Memory) -> Result<(), Fault> {
        let Some(burst) = self.reads.front().copied() else { return Ok(()) };
        let start = burst.address / self.bus * self.bus;
        let first = (burst.address - start) as usize;
        self.guard(memory, start)?;
        self.r = ReadBeat { last: burst.beats == 1, ..ReadBeat::default() };
        self.r.response = memory.load(burst.address, &mut self.r.data[first..self.bus as usize]);
        self.r_valid = true;
        match self.reads.front() {
            Some(left) if burst.beats > 1 => (left.address, left.beats) = (start + self.bus, burst.beats - 1),
            _ => self.reads.pop(),
        }
        Ok(())
    }

    /// The edge.
    pub(super) fn clock(&mut self, port: &PortOut<'_>, memory: &mut Memory) -> Result<(), Fault> {
        self.r_valid &= !port.r_ready;
        self.b_valid &= !port.b_ready;
        if port.w.valid {
            self.write(port, memory)?;
        }
        if port.aw.valid {
            let AxiAddress { address, beats, .. } = port.aw.data;
            self.writes.push(Pending { address, beats, ..Pending::default() });
        }
        if port.ar.valid {
            let AxiAddress { address, beats, .. } = port.ar.data;
            self.read_due = self.read_due.max(self.now + self.rows.read(address));
            self.reads.push(Pending { due: self.read_due, address, beats, response: Response::Okay });
        }
        self.now += 1;
        let now = self.now;
        let due = |ring: &mut Ring| ring.front().is_some_and(|front| front.due <= now);
        if !self.b_valid && due(&mut self.responses) {
            self.b = self.responses.front().map_or(Response::Okay, |front| front.response);
            self.b_valid = true;
            self.responses.pop();
        }
        if !self.r_valid && due(&mut self.reads) {
            self.present(memory)?;
        }
        Ok(())
    }

    pub(super) fn reset(&mut self) {
        self.reads.reset();
        self.writes.reset();
        self.responses.reset();
        self.rows.close();
        (self.now, self.read_due, self.write_due, self.held) = (0, 0, 0, 0);
        (self.r_valid, self.b_valid) = (false, false);
    }

    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        v.reg("now_q", 64, Format::Unsigned, &mut self.now);
        v.reg("held_q", 64, Format::Hex, &mut self.held);
        v.scope("rows", |v| self.rows.visit(v));
        v.scope("reads", |v| self.reads.visit(v));
        v.reg("read_due_q", 64, Format::Unsigned, &mut self.read_due);
        v.reg("r_valid_q", 1, Format::Unsigned, &mut self.r_valid);
        self.r.visit("r".into(), v);
        v.scope("writes", |v| self.writes.visit(v));
        v.scope("responses", |v| self.responses.visit(v));
        v.reg("write_due_q", 64, Format::Unsigned, &mut self.write_due);
        v.reg("b_valid_q", 1, Format::Unsigned, &mut self.b_valid);
        let mut code = self.b.code();
        v.reg("b_q", 2, Format::Unsigned, &mut code);
        self.b = Response::from_code(code);
    }
}
