//! The cycle engine: all blocks of the NPU clocked together.
//!
//! ```text
//!  command ─► dispatcher ─┬► queue ─► DMA shell ──── AXI ──► memory slave: DRAM, scratchpad, control RAM
//!             (one a      ├► queue ─► MVP shell ──── GEMM or GEMV array, output stage
//!              cycle)     ├► queue ─► vector shell ─ vector unit
//!                         └► queue ─► NKZ shell ──── encoder, decoders, rotate unit
//!                               ▲ heads
//!                 32 token counters, bank locks: who starts
//! ```
//!
//! [`Npu`] gives the bits of the transaction engine ([`crate::Npu`]) on the same edges; docs/npu.md says what each shell does in
//! which cycle. The scratchpad, the control RAM and the KV index are memories and survive reset; DRAM lies outside the chip.

mod compose;
mod dma;
mod entry;
mod grant;
mod mvp;
mod nkz;
mod rotate;
mod run;
mod slave;
mod vector;

pub use run::Session;

use crate::isa::{Command, Engine, Op};
use crate::{Config, Counters, Fault, Kv, KvSetup, Memory, SetupError};
use entry::Entry;
use grant::{Claim, State, Tokens, grant};
use rtl::{Fifo, FifoIn, Format, Module, Payload, Stream, Visitor};

/// Engines.
const ENGINES: usize = Engine::ALL.len();

/// What the shells share: the memories and the sizes.
struct Ports<'a> {
    config: &'a Config,
    memory: &'a mut Memory,
    kv: &'a mut Kv,
}

/// An engine's side of the queue: what it runs.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    busy: bool,
    entry: Entry,
    /// Banks that it holds, a bit each.
    banks: u64,
    /// Its operands' ports that share the worst bank, 8 bits: the engine moves in one of so many cycles.
    conflict: u8,
    /// Which of them this is, 8 bits.
    phase: u8,
}

impl Lane {
    fn visit(&mut self, v: &mut impl Visitor) {
        v.reg("busy_q", 1, Format::Unsigned, &mut self.busy);
        self.entry.visit("running".into(), v);
        v.reg("banks_q", 64, Format::Hex, &mut self.banks);
        v.reg("conflict_q", 8, Format::Unsigned, &mut self.conflict);
        v.reg("phase_q", 8, Format::Unsigned, &mut self.phase);
    }
}

/// The engines behind the queues.
#[derive(Clone, Debug)]
struct Shells {
    dma: dma::DmaShell,
    mvp: mvp::MvpShell,
    vector: vector::VectorShell,
    nkz: nkz::NkzShell,
}

impl Shells {
    /// The edge on which a command enters.
    fn start(&mut self, engine: Engine, command: &Command, banks: u64, ports: &mut Ports<'_>) -> Result<(), Fault> {
        match engine {
            Engine::Dma => self.dma.start(&command.op, banks, ports),
            Engine::Mvp => self.mvp.start(&command.op, ports),
            Engine::Nkz => self.nkz.start(&command.op, ports),
            Engine::Vector => self.vector.start(&command.op, ports),
        }
    }

    /// Whether this cycle, if enabled, is a command's last.
    fn done(&self, engine: Engine) -> bool {
        match engine {
            Engine::Dma => self.dma.done(),
            Engine::Mvp => self.mvp.done(),
            Engine::Nkz => self.nkz.done(),
            Engine::Vector => self.vector.done(),
        }
    }

    /// An enabled edge of a busy engine.
    fn clock(&mut self, engine: Engine, ports: &mut Ports<'_>) -> Result<(), Fault> {
        match engine {
            Engine::Dma => self.dma.clock(ports),
            Engine::Mvp => self.mvp.clock(ports),
            Engine::Nkz => self.nkz.clock(ports),
            Engine::Vector => self.vector.clock(ports),
        }
    }
}

/// The NPU, register by register.
#[derive(Clone, Debug)]
pub struct Npu {
    config: Config,
    memory: Memory,
    kv: Kv,
    queues: [Fifo<Entry>; ENGINES],
    /// 32 bits: commands dispatched.
    dispatched: u32,
    tokens: Tokens,
    lanes: [Lane; ENGINES],
    shells: Shells,
    counters: Counters,
    /// Sticky until reset: the number of the command that failed, and why. The machine stands still from there on.
    fault: Option<(u32, Fault)>,
}

/// Wires into an [`Npu`].
#[derive(Clone, Copy, Debug)]
pub struct NpuIn<'a> {
    /// The program's next command; taken if its engine's queue is ready.
    pub command: Stream<&'a Command>,
}

/// Wires out of an [`Npu`].
#[derive(Clone, Copy, Debug)]
pub struct NpuOut<'a> {
    /// Queues with room, in the order of [`Engine::ALL`].
    pub ready: [bool; ENGINES],
    /// Nothing waits and nothing runs.
    pub idle: bool,
    /// Number of the command that each engine runs.
    pub running: [Option<u32>; ENGINES],
    /// The command that failed, and why.
    pub fault: Option<&'a (u32, Fault)>,
}

impl Npu {
    /// A machine with empty memories, reset.
    ///
    /// # Errors
    /// A configuration that cannot be built, or a KV path that does not fit it.
    pub fn new(config: Config, setup: KvSetup) -> Result<Self, SetupError> {
        let (memory, kv) = crate::npu::set_up(&config, setup)?;
        let shells = Shells {
            dma: dma::DmaShell::new(&config, &kv),
            mvp: mvp::MvpShell::new(),
            vector: vector::VectorShell::new(&config, &kv),
            nkz: nkz::NkzShell::new(&config, &kv),
        };
        let queue = Fifo::new(config.queue_depth, Entry::default());
        Ok(Self {
            queues: std::array::from_fn(|_| queue.clone()),
            dispatched: 0,
            tokens: Tokens::default(),
            lanes: [Lane::default(); ENGINES],
            shells,
            counters: Counters::default(),
            fault: None,
            config,
            memory,
            kv,
        })
    }

    /// What it was built from.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The memories, which the host may read and write while nothing runs.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The memories.
    pub fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// The KV path's state.
    pub fn kv(&self) -> &Kv {
        &self.kv
    }

    /// Counters since reset. Bytes of DRAM by kind are the transaction engine's alone.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Forgets a sequence: its tiles leave the index.
    pub fn forget(&mut self, sequence: usize) {
        self.kv.forget(sequence);
    }

    /// Makes the settings of the array that a program uses, so that the first walk over the registers shows them.
    ///
    /// # Errors
    /// A product that the array does not take.
    pub fn prepare(&mut self, program: &[Command]) -> Result<(), Fault> {
        for command in program {
            if let Op::Matmul(p) = &command.op {
                self.shells.mvp.configure(&self.config, p)?;
            }
        }
        Ok(())
    }

    fn claims(&self) -> [Claim<'_>; ENGINES] {
        std::array::from_fn(|e| {
            let head = self.queues[e].out().head;
            let lane = &self.lanes[e];
            Claim { busy: lane.busy.then_some(lane.banks), head: head.valid.then_some(head.data) }
        })
    }

    /// The edge of the busy engines. Gives those whose command ends.
    fn engines(&mut self) -> [bool; ENGINES] {
        let mut ends = [false; ENGINES];
        for (e, engine) in Engine::ALL.into_iter().enumerate() {
            let lane = &mut self.lanes[e];
            if !lane.busy {
                continue;
            }
            if lane.phase + 1 < lane.conflict {
                lane.phase += 1;
                self.counters.engines[e].conflicts += 1;
                continue;
            }
            lane.phase = 0;
            ends[e] = self.shells.done(engine);
            if ends[e] && engine == Engine::Mvp {
                let (macs, stalls) = self.shells.mvp.counted();
                self.counters.macs += macs;
                self.counters.port_stalls += stalls;
            }
            let mut ports = Ports { config: &self.config, memory: &mut self.memory, kv: &mut self.kv };
            if let Err(fault) = self.shells.clock(engine, &mut ports) {
                self.fault.get_or_insert((lane.entry.number, fault));
            }
        }
        ends
    }

    /// The edge on which queue heads become running commands.
    fn starts(&mut self, states: &[State; ENGINES]) {
        for (e, engine) in Engine::ALL.into_iter().enumerate() {
            let State::Starts(footprint) = states[e] else { continue };
            let entry = *self.queues[e].out().head.data;
            let (banks, conflict) = (footprint.banks, footprint.conflict as u8);
            self.lanes[e] = Lane { busy: true, entry, banks, conflict, phase: 0 };
            self.counters.engines[e].commands += 1;
            let mut ports = Ports { config: &self.config, memory: &mut self.memory, kv: &mut self.kv };
            if let Err(fault) = self.shells.start(engine, &entry.command, banks, &mut ports) {
                self.fault.get_or_insert((entry.number, fault));
            }
        }
    }

    /// The edge on which commands end: their banks are free, their tokens stand, their tile is seen.
    fn ends(&mut self, ends: &[bool; ENGINES]) {
        for (lane, _) in self.lanes.iter_mut().zip(ends).filter(|(_, ends)| **ends) {
            lane.busy = false;
            let Entry { number, command } = lane.entry;
            crate::exec::finish(&command.op, &mut self.kv);
            if let Err(fault) = self.tokens.add(command.signal) {
                self.fault.get_or_insert((number, fault));
            }
        }
    }

    /// The edge of dispatcher and queues.
    fn dispatch(&mut self, command: Stream<&Command>, states: &[State; ENGINES]) {
        let engine = command.data.op.engine() as usize;
        let room = self.queues[engine].out().ready;
        let entry = Entry { number: self.dispatched, command: *command.data };
        for (e, queue) in self.queues.iter_mut().enumerate() {
            let push = Stream { valid: command.valid && e == engine, data: &entry };
            queue.clock(&FifoIn { push, pop: matches!(states[e], State::Starts(_)) });
        }
        self.dispatched = self.dispatched.wrapping_add(u32::from(command.fires(room)));
        self.counters.dispatch_stalls += u64::from(command.valid && !room);
    }

    fn count(&mut self, states: &[State; ENGINES]) {
        self.counters.cycles += 1;
        for (counters, state) in self.counters.engines.iter_mut().zip(states) {
            match state {
                State::Busy => counters.busy += 1,
                State::Empty | State::Starts(_) => counters.idle += 1,
                State::WaitsTokens => counters.waits_tokens += 1,
                State::WaitsBanks => counters.waits_banks += 1,
            }
        }
    }
}

impl Module for Npu {
    type In<'a> = NpuIn<'a>;
    type Out<'a> = NpuOut<'a>;

    fn out(&self) -> NpuOut<'_> {
        let ready = std::array::from_fn(|e| self.queues[e].out().ready);
        let running = self.lanes.map(|lane| lane.busy.then_some(lane.entry.number));
        let waits = self.queues.iter().any(|queue| queue.out().head.valid);
        let idle = !waits && running.iter().all(Option::is_none);
        NpuOut { ready, idle, running, fault: self.fault.as_ref() }
    }

    fn clock(&mut self, i: &NpuIn<'_>) {
        if self.fault.is_some() {
            return;
        }
        let (states, tokens) = match grant(self.claims(), self.tokens, &self.kv, &self.memory) {
            Ok(granted) => granted,
            Err(fault) => {
                self.fault = Some(fault);
                return;
            }
        };
        self.count(&states);
        let ends = self.engines();
        self.starts(&states);
        self.tokens = tokens;
        self.ends(&ends);
        self.dispatch(i.command, &states);
    }

    fn reset(&mut self) {
        self.queues.iter_mut().for_each(Module::reset);
        self.dispatched = 0;
        self.tokens = Tokens::default();
        self.lanes = [Lane::default(); ENGINES];
        self.shells.dma.reset();
        self.shells.mvp.reset();
        self.shells.vector.reset(&self.kv);
        self.shells.nkz.reset();
        self.counters = Counters::default();
        (self.kv.raw_bytes, self.kv.stored_bytes) = (0, 0);
        self.fault = None;
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        v.reg("dispatched_q", 32, Format::Unsigned, &mut self.dispatched);
        v.scope("tokens", |v| self.tokens.visit(v));
        for (e, engine) in Engine::ALL.into_iter().enumerate() {
            v.scope(engine.name(), |v| {
                v.scope("queue", |v| self.queues[e].visit(v));
                v.scope("lane", |v| self.lanes[e].visit(v));
                let counters = &mut self.counters.engines[e];
                v.scope("counters", |v| counters.visit(v));
                match engine {
                    Engine::Dma => self.shells.dma.visit(v),
                    Engine::Mvp => self.shells.mvp.visit(v),
                    Engine::Nkz => self.shells.nkz.visit(v),
                    Engine::Vector => self.shells.vector.visit(v),
                }
            });
        }
        v.scope("counters", |v| self.counters.visit(v));
        let mut failed = self.fault.is_some();
        v.reg("fault_q", 1, Format::Unsigned, &mut failed);
        v.scope("memory", |v| self.memory.visit(v));
        v.scope("index", |v| self.kv.visit(v));
    }
}
