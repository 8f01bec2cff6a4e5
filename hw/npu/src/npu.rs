//! The NPU as transactions: commands start and end in the cycles in which they do in the clocked machine, and carry out their work at
//! once. Engines share nothing but tokens and banks, and a command holds its banks alone, so the order of starts is the order of effects.

use crate::csr::Csr;
use crate::exec::{self, Machine, footprint};
use crate::isa::{Command, Engine, TOKENS, listing};
use crate::{Config, Counters, EngineCounters, Fault, Kv, KvSetup, Memory, RunError, Scratch, SetupError, Work};
use std::collections::VecDeque;

/// A command's stay on its engine, for timelines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which.
    pub engine: Engine,
    /// Its place in the program.
    pub command: usize,
    /// Its tag.
    pub tag: u32,
    /// First cycle.
    pub start: u64,
    /// First cycle after it.
    pub end: u64,
    /// Cycles that it stood at the head of its idle engine's queue before that: for tokens of other engines, then for banks.
    pub waits: Waits,
}

/// Cycles that an engine did not start the head of its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Tokens were missing.
    pub tokens: u64,
    /// A bank of the scratchpad was taken.
    pub banks: u64,
}

impl Waits {
    /// Of an engine's counters.
    pub(crate) fn of(counters: &EngineCounters) -> Self {
        Self { tokens: counters.waits_tokens, banks: counters.waits_banks }
    }

    /// What has come since `before`, which becomes the present state.
    pub(crate) fn since(self, before: &mut Self) -> Self {
        let before = std::mem::replace(before, self);
        Self { tokens: self.tokens.wrapping_sub(before.tokens), banks: self.banks.wrapping_sub(before.banks) }
    }
}

/// What a program did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Cycles from the doorbell to the end of the last command.
    pub cycles: u64,
    /// What it counted.
    pub counters: Counters,
    /// Each command's stay, in the order of their starts; empty unless asked for.
    pub spans: Vec<Span>,
}

/// A command of the processor or the vector unit, with the scratchpad around it: all that it depends on, and all that it does.
#[derive(Clone, Debug)]
pub struct Caught {
    /// Its place in its program.
    pub number: usize,
    /// The command.
    pub command: Command,
    /// The scratchpad as it started.
    pub before: Scratch,
    /// The scratchpad with its results.
    pub after: Scratch,
}

/// Which command is to be caught.
#[derive(Clone, Debug)]
struct Watch {
    tag: u32,
    /// Commands of this tag in the programs to come that pass before it; none once its program has come.
    left: Option<usize>,
    /// Its number in the program under way, if that is its program.
    number: Option<usize>,
    caught: Option<Box<Caught>>,
}

impl Watch {
    /// Looks for the command in a program that is about to run.
    fn aim(&mut self, program: &[Command]) {
        let tagged: Vec<usize> = (0..program.len()).filter(|&n| program[n].tag == self.tag).collect();
        self.number = self.left.and_then(|left| tagged.get(left).copied());
        self.left = self.left.and_then(|left| left.checked_sub(tagged.len()));
    }
}

/// A command on its engine.
#[derive(Clone, Copy, Debug)]
struct Running {
    number: usize,
    /// The edge on which it ends.
    end: u64,
    banks: u64,
    signal: u32,
}

/// An engine's queue and what it runs.
#[derive(Clone, Debug, Default)]
struct Lane {
    queue: VecDeque<usize>,
    running: Option<Running>,
    /// The engine's waits at its last start.
    waits: Waits,
}

/// Why a lane does not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Busy,
    Idle,
    WaitsTokens,
    WaitsBanks,
}

/// An NPU: memories, engines, counters.
pub struct Npu {
    machine: Machine,
    tokens: [u16; TOKENS],
    counters: Counters,
    cycle: u64,
    record: bool,
    watch: Option<Watch>,
    pub(crate) csr: Csr,
}

impl Npu {
    /// An NPU with empty memories.
    ///
    /// # Errors
    /// A configuration that cannot be built, or a KV path that does not fit it.
    pub fn new(config: Config, setup: KvSetup) -> Result<Self, SetupError> {
        let (memory, kv) = set_up(&config, setup)?;
        let machine = Machine::new(config, memory, kv);
        let (tokens, counters, csr) = ([0; TOKENS], Counters::default(), Csr::default());
        Ok(Self { machine, tokens, counters, cycle: 0, record: false, watch: None, csr })
    }

    /// What it was built from.
    pub fn config(&self) -> &Config {
        &self.machine.config
    }

    /// The KV path's state.
    pub fn kv(&self) -> &Kv {
        &self.machine.kv
    }

    /// The memories, which the host may read and write between programs.
    pub fn memory(&self) -> &Memory {
        &self.machine.memory
    }

    /// The memories.
    pub fn memory_mut(&mut self) -> &mut Memory {
        &mut self.machine.memory
    }

    /// Counters since the NPU was made.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Cycles since the NPU was made in which a program ran.
    pub fn cycle(&self) -> u64 {
        self.cycle
    }

    /// Whether reports carry every command's span.
    pub fn record(&mut self, on: bool) {
        self.record = on;
    }

    /// Keeps the command of place `place`, from 0, among those with this tag in the programs that run from here on, if it is one of
    /// the processor or of the vector unit.
    pub fn catch(&mut self, tag: u32, place: usize) {
        self.watch = Some(Watch { tag, left: Some(place), number: None, caught: None });
    }

    /// The command that [`Npu::catch`] asked for, once it has started.
    pub fn caught(&self) -> Option<&Caught> {
        self.watch.as_ref()?.caught.as_deref()
    }

    pub(crate) fn machine_mut(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// Forgets a sequence: its tiles leave the index.
    pub fn forget(&mut self, sequence: usize) {
        self.machine.kv.forget(sequence);
    }

    /// Runs a program from the doorbell until every command has ended.
    ///
    /// # Errors
    /// The first command that fails, or a deadlock with the state of every queue. The token counters are cleared after either.
    pub fn run(&mut self, program: &[Command]) -> Result<Report, RunError> {
        if let Some(watch) = &mut self.watch {
            watch.aim(program);
        }
        let before = self.counters;
        let (kv_raw, kv_stored) = (self.machine.kv.raw_bytes, self.machine.kv.stored_bytes);
        let lanes = self.counters.engines.map(|counters| Lane { waits: Waits::of(&counters), ..Lane::default() });
        let mut run = Run { npu: self, program, lanes, next: 0, t: 0, spans: Vec::new() };
        let result = run.finish();
        let (spans, cycles) = (std::mem::take(&mut run.spans), run.t);
        self.counters.cycles += cycles;
        self.counters.kv_raw += self.machine.kv.raw_bytes - kv_raw;
        self.counters.kv_stored += self.machine.kv.stored_bytes - kv_stored;
        self.cycle += cycles;
        if let Err(error) = result {
            self.tokens = [0; TOKENS];
            return Err(error);
        }
        Ok(Report { cycles, counters: self.counters.since(&before), spans })
    }
}

/// Empty memories and the KV path of a machine.
pub(crate) fn set_up(config: &Config, setup: KvSetup) -> Result<(Memory, Kv), SetupError> {
    config.check()?;
    let (end, size) = (setup.pages.saturating_add(setup.page_bytes()), config.dram.bytes);
    let kv = Kv::new(setup)?;
    if end > size {
        return Err(SetupError::PagesEnd { end, size });
    }
    let mut memory = Memory::new(config, kv.control_bytes());
    kv.fill_tables(&mut memory);
    Ok((memory, kv))
}

/// A program under way. `t` is the present cycle, the first being the one in which the doorbell is seen.
struct Run<'a> {
    npu: &'a mut Npu,
    program: &'a [Command],
    lanes: [Lane; 4],
    /// Next command of the dispatcher.
    next: usize,
    t: u64,
    spans: Vec<Span>,
}

impl Run<'_> {
    fn finish(&mut self) -> Result<(), RunError> {
        while self.next < self.program.len() || self.lanes.iter().any(|l| l.running.is_some() || !l.queue.is_empty()) {
            let states = self.states()?;
            let (moved, stalled) = self.edge(&states)?;
            // Nothing changes until a command ends, unless something moved on this edge.
            let next = match moved {
                true => self.t + 1,
                false => match self.lanes.iter().filter_map(|l| Some(l.running?.end)).min() {
                    Some(end) => end,
                    None => return Err(RunError::Deadlock { cycle: self.t, state: self.dump() }),
                },
            };
            self.account(&states, next - self.t);
            self.npu.counters.dispatch_stalls += if stalled { next - self.t } else { 0 };
            self.t = next;
        }
        Ok(())
    }

    /// What each lane does in this cycle, from registers alone; of the lanes that could start, earlier ones take their tokens and banks first.
    fn states(&mut self) -> Result<[State; 4], RunError> {
        let mut held = self.lanes.iter().filter_map(|l| l.running).fold(0, |mask, r| mask | r.banks);
        let mut tokens = self.npu.tokens;
        let mut states = [State::Idle; 4];
        for (e, state) in states.iter_mut().enumerate() {
            let lane = &self.lanes[e];
            if lane.running.is_some() {
                *state = State::Busy;
                continue;
            }
            let Some(&number) = lane.queue.front() else { continue };
            let command = &self.program[number];
            let waits = || (0..TOKENS).filter(|t| command.wait >> t & 1 == 1);
            if waits().any(|t| tokens[t] == 0) {
                *state = State::WaitsTokens;
                continue;
            }
            let machine = &self.npu.machine;
            let footprint = footprint(&command.op, &machine.kv, &machine.memory.scratch)
                .map_err(|fault| self.fails(number, fault))?;
            *state = if held & footprint.banks == 0 { State::Idle } else { State::WaitsBanks };
            if *state == State::Idle {
                held |= footprint.banks;
                waits().for_each(|t| tokens[t] -= 1);
            }
        }
        Ok(states)
    }

    /// The edge at the end of this cycle: ends, starts, one dispatch. All from the state before it. Gives whether anything moved, and
    /// whether the dispatcher found no room.
    fn edge(&mut self, states: &[State; 4]) -> Result<(bool, bool), RunError> {
        let mut moved = false;
        // The dispatcher looks at the queues before anything leaves them.
        let dispatched = self.program.get(self.next).map(|c| c.op.engine() as usize);
        let room = dispatched.is_some_and(|e| self.lanes[e].queue.len() < self.npu.machine.config.queue_depth);
        let mut signals = Vec::new();
        for e in 0..4 {
            if let Some(running) = self.lanes[e].running
                && running.end == self.t
            {
                self.lanes[e].running = None;
                signals.push((running.number, running.signal));
                moved = true;
            }
        }
        for (e, state) in states.iter().enumerate() {
            if *state == State::Idle
                && let Some(number) = self.lanes[e].queue.pop_front()
            {
                self.start(e, number)?;
                moved = true;
            }
        }
        for (number, signal) in signals {
            exec::finish(&self.program[number].op, &mut self.npu.machine.kv);
            self.signal(number, signal)?;
        }
        if let Some(e) = dispatched.filter(|_| room) {
            self.lanes[e].queue.push_back(self.next);
            self.next += 1;
            moved = true;
        }
        Ok((moved, dispatched.is_some() && !room))
    }

    fn start(&mut self, e: usize, number: usize) -> Result<(), RunError> {
        let command = &self.program[number];
        for t in (0..TOKENS).filter(|t| command.wait >> t & 1 == 1) {
            self.npu.tokens[t] -= 1;
        }
        let engine = Engine::ALL[e];
        let watched = self.npu.watch.as_ref().is_some_and(|w| w.number == Some(number));
        let before = (watched && matches!(engine, Engine::Mvp | Engine::Vector))
            .then(|| self.npu.machine.memory.scratch.clone());
        let machine = &mut self.npu.machine;
        let done = footprint(&command.op, &machine.kv, &machine.memory.scratch)
            .and_then(|footprint| Ok((footprint.banks, machine.execute(&command.op, footprint.conflict)?)));
        let (banks, work): (u64, Work) = done.map_err(|fault| self.fails(number, fault))?;
        if let (Some(before), Some(watch)) = (before, &mut self.npu.watch) {
            let after = self.npu.machine.memory.scratch.clone();
            watch.caught = Some(Box::new(Caught { number, command: *command, before, after }));
        }
        self.npu.counters.count(engine, &work);
        let (start, end) = (self.t + 1, self.t + work.cycles.max(1));
        self.lanes[e].running = Some(Running { number, end, banks, signal: command.signal });
        if self.npu.record {
            let waits = Waits::of(&self.npu.counters.engines[e]).since(&mut self.lanes[e].waits);
            self.spans.push(Span { engine, command: number, tag: command.tag, start, end: end + 1, waits });
        }
        Ok(())
    }

    fn signal(&mut self, number: usize, signal: u32) -> Result<(), RunError> {
        for t in (0..TOKENS).filter(|t| signal >> t & 1 == 1) {
            match self.npu.tokens[t].checked_add(1) {
                Some(tokens) => self.npu.tokens[t] = tokens,
                None => return Err(self.fails(number, Fault::Tokens(t as u32))),
            }
        }
        Ok(())
    }

    fn account(&mut self, states: &[State; 4], cycles: u64) {
        for (e, state) in states.iter().enumerate() {
            let counters = &mut self.npu.counters.engines[e];
            match state {
                State::Busy => counters.busy += cycles,
                State::Idle => counters.idle += cycles,
                State::WaitsTokens => counters.waits_tokens += cycles,
                State::WaitsBanks => counters.waits_banks += cycles,
            }
        }
    }

    fn fails(&self, number: usize, fault: Fault) -> RunError {
        RunError::Command { number, listing: listing(number, &self.program[number]).trim().into(), fault }
    }

    fn dump(&self) -> String {
        let queue = |lane: &Lane| Waiting { running: None, held: lane.queue.len(), head: lane.queue.front().copied() };
        dump(self.program, &self.lanes.each_ref().map(queue), &self.npu.tokens, self.next)
    }
}

/// An engine as the watchdog sees it; commands by their places in the program.
pub(crate) struct Waiting {
    pub(crate) running: Option<usize>,
    /// Commands in the queue.
    pub(crate) held: usize,
    pub(crate) head: Option<usize>,
}

/// What the watchdog says of a machine that stands still.
pub(crate) fn dump(program: &[Command], engines: &[Waiting; 4], tokens: &[u16; TOKENS], next: usize) -> String {
    let shown = |number: usize| listing(number, &program[number]).trim().to_string();
    let mut lines = Vec::new();
    for (engine, waiting) in Engine::ALL.iter().zip(engines) {
        let name = engine.name();
        if let Some(number) = waiting.running {
            lines.push(format!("{name} runs {}", shown(number)));
        }
        match waiting.head {
            Some(number) => {
                let wait = program[number].wait;
                let missing = (0..TOKENS).filter(|&t| wait >> t & 1 == 1 && tokens[t] == 0);
                let missing: Vec<_> = missing.map(|t| format!("t{t}")).collect();
                let waits = if missing.is_empty() { "banks".into() } else { missing.join(", ") };
                lines.push(format!("{name} holds {}, its head waits for {waits}: {}", waiting.held, shown(number)));
            }
            None => lines.push(format!("{name}'s queue is empty")),
        }
    }
    lines.push(match next < program.len() {
        true => format!("the dispatcher waits for room for {}", shown(next)),
        false => "the dispatcher is done".into(),
    });
    lines.join("; ")
}
