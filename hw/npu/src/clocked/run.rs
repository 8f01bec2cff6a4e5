//! The host's side: programs from the doorbell to the end, and the watchdog.

use super::entry::Entry;
use super::{Npu, NpuIn};
use crate::isa::{Command, Engine, listing};
use crate::npu::{Waiting, Waits, dump};
use crate::{Report, RunError, Span};
use rtl::{Module, Stream};

/// Cycles without a start or an end after which a machine that is busy is taken to hang. The longest command that a scratchpad of
/// 2^30 bytes allows is far shorter.
const PATIENCE: u64 = 1 << 34;

/// A program on its way into a machine: what the host keeps.
pub struct Session<'a> {
    program: &'a [Command],
    next: usize,
    /// The dispatcher's number of the program's first command.
    base: u32,
    cycle: u64,
    /// Cycle of the last start or end, and cycles after it from which on the machine is taken to hang.
    moved: u64,
    patience: u64,
    running: [Option<usize>; 4],
    /// Each engine's waits at its last start.
    waits: [Waits; 4],
    /// Each command's stay, in the order of their starts.
    pub spans: Vec<Span>,
}

impl<'a> Session<'a> {
    /// A program for a machine that is idle.
    pub fn new(npu: &Npu, program: &'a [Command]) -> Self {
        let waits = npu.counters.engines.map(|counters| Waits::of(&counters));
        let (base, running, spans) = (npu.dispatched, [None; 4], Vec::new());
        Self { program, next: 0, base, cycle: 0, moved: 0, patience: PATIENCE, running, waits, spans }
    }

    /// The same with a watchdog that waits `cycles` for the next start or end.
    pub fn with_patience(self, cycles: u64) -> Self {
        Self { patience: cycles, ..self }
    }

    /// Cycles so far.
    pub fn cycle(&self) -> u64 {
        self.cycle
    }

    fn place(&self, number: u32) -> usize {
        number.wrapping_sub(self.base) as usize
    }

    /// Clocks the machine once. Gives `false`, and clocks nothing, once the last command has ended.
    ///
    /// # Errors
    /// The first command that fails, or a deadlock with the state of every queue.
    pub fn step(&mut self, npu: &mut Npu) -> Result<bool, RunError> {
        let out = npu.out();
        if let Some((number, fault)) = out.fault {
            let number = self.place(*number);
            let listing = listing(number, &self.program[number]).trim().into();
            return Err(RunError::Command { number, listing, fault: fault.clone() });
        }
        let running = out.running.map(|number| number.map(|number| self.place(number)));
        if running != self.running {
            self.moved = self.cycle;
        }
        for (e, engine) in Engine::ALL.into_iter().enumerate() {
            match (self.running[e], running[e]) {
                (None, Some(command)) => {
                    let (tag, start, end) = (self.program[command].tag, self.cycle, self.cycle);
                    let waits = Waits::of(&npu.counters.engines[e]).since(&mut self.waits[e]);
                    self.spans.push(Span { engine, command, tag, start, end, waits });
                }
                (Some(command), None) => {
                    if let Some(span) = self.spans.iter_mut().rev().find(|span| span.command == command) {
                        span.end = self.cycle;
                    }
                }
                _ => {}
            }
        }
        self.running = running;
        let Some(command) = self.program.get(self.next) else {
            if out.idle {
                return Ok(false);
            }
            return self.clock(npu, Stream { valid: false, data: &Entry::default().command });
        };
        self.clock(npu, Stream::offer(command))
    }

    fn clock(&mut self, npu: &mut Npu, command: Stream<&Command>) -> Result<bool, RunError> {
        let (before, free) = (npu.dispatched, [None; 4]);
        npu.clock(&NpuIn { command });
        let out = npu.out();
        // Without a command that runs, starts or is dispatched, no register changes any more.
        let stands = out.running == free && self.running == free.map(|_: Option<u32>| None) && npu.dispatched == before;
        if stands && !out.idle && out.fault.is_none() || self.cycle - self.moved > self.patience {
            return Err(RunError::Deadlock { cycle: self.cycle, state: self.dump(npu) });
        }
        self.next += usize::from(npu.dispatched != before);
        self.cycle += 1;
        Ok(true)
    }

    /// What the watchdog sees.
    fn dump(&self, npu: &Npu) -> String {
        let waiting = |e: usize| {
            let out = npu.queues[e].out();
            let head = out.head.valid.then(|| self.place(out.head.data.number));
            Waiting { running: self.running[e], held: out.level, head }
        };
        dump(self.program, &std::array::from_fn(waiting), &npu.tokens.0, self.next)
    }
}

impl Npu {
    /// Runs a program from the doorbell until every command has ended. Bytes of DRAM by kind are not counted here.
    ///
    /// # Errors
    /// The first command that fails, or a deadlock with the state of every queue. The machine is reset after either.
    pub fn run(&mut self, program: &[Command]) -> Result<Report, RunError> {
        let before = self.counters;
        let (raw, stored) = (self.kv.raw_bytes, self.kv.stored_bytes);
        let mut session = Session::new(self, program);
        loop {
            match session.step(self) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.reset();
                    return Err(error);
                }
            }
        }
        let mut counters = self.counters.since(&before);
        counters.kv_raw = self.kv.raw_bytes - raw;
        counters.kv_stored = self.kv.stored_bytes - stored;
        Ok(Report { cycles: session.cycle, counters, spans: session.spans })
    }
}
