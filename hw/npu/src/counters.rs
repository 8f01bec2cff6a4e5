//! What an NPU counts.

use crate::isa::Engine;
use rtl::{Format, Visitor};
use serde::Serialize;

/// What one command cost, beside its bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Cycles from the start's edge to the end's.
    pub cycles: u64,
    /// Of them, lost to banks that the command's own operands share.
    pub conflicts: u64,
    /// Multiply-accumulates.
    pub macs: u64,
    /// Cycles in which the array waited for the weight port.
    pub port_stall: u64,
    /// Bytes read from DRAM, by what was asked for.
    pub dram_read: u64,
    /// Bytes written to DRAM.
    pub dram_written: u64,
    /// What they are.
    pub kind: usize,
}

impl Work {
    /// A command of `cycles` in which its engine moves; where `conflict` of its operands share a bank, that is one in so many.
    pub(crate) fn of(cycles: u64, conflict: u64) -> Self {
        let conflicts = (conflict - 1) * cycles;
        Self { cycles: cycles + conflicts, conflicts, ..Self::default() }
    }
}

/// Counters of an engine, 48 bits each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EngineCounters {
    /// Commands done.
    pub commands: u64,
    /// Cycles in which a command ran.
    pub busy: u64,
    /// Of them, lost to operands of one command in one bank.
    pub conflicts: u64,
    /// Cycles in which the queue's head waited for tokens.
    pub waits_tokens: u64,
    /// Cycles in which the queue's head had its tokens and waited for banks that other engines held.
    pub waits_banks: u64,
    /// Cycles in which the queue was empty.
    pub idle: u64,
}

/// Bytes by what they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ByKind {
    /// Activations, ids, logits.
    pub activations: u64,
    /// Weights and their scales.
    pub weights: u64,
    /// The KV cache.
    pub kv: u64,
}

impl EngineCounters {
    pub(crate) fn visit(&mut self, v: &mut impl Visitor) {
        let fields = [
            ("commands_q", &mut self.commands),
            ("busy_q", &mut self.busy),
            ("conflicts_q", &mut self.conflicts),
            ("waits_tokens_q", &mut self.waits_tokens),
            ("waits_banks_q", &mut self.waits_banks),
            ("idle_q", &mut self.idle),
        ];
        fields.into_iter().for_each(|(name, value)| v.reg(name, 48, Format::Unsigned, value));
    }
}

impl ByKind {
    fn add(&mut self, kind: usize, bytes: u64) {
        match kind {
            crate::WEIGHTS => self.weights += bytes,
            crate::KV => self.kv += bytes,
            _ => self.activations += bytes,
        }
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.activations + self.weights + self.kv
    }
}

/// The counters of an NPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Cycles in which a program ran.
    pub cycles: u64,
    /// Cycles in which the dispatcher waited for room in a queue.
    pub dispatch_stalls: u64,
    /// By engine, in the order of [`Engine::ALL`].
    pub engines: [EngineCounters; 4],
    /// Multiply-accumulates of the array.
    pub macs: u64,
    /// Cycles in which the array waited for the weight port.
    pub port_stalls: u64,
    /// Useful bytes read from DRAM.
    pub dram_read: ByKind,
    /// Useful bytes written to DRAM.
    pub dram_written: ByKind,
    /// Bytes of BF16 that encoded tiles stand for.
    pub kv_raw: u64,
    /// Bytes that they take, rounded up to units.
    pub kv_stored: u64,
}

impl Counters {
    pub(crate) fn count(&mut self, engine: Engine, work: &Work) {
        let e = &mut self.engines[engine as usize];
        e.commands += 1;
        e.conflicts += work.conflicts;
        self.macs += work.macs;
        self.port_stalls += work.port_stall;
        self.dram_read.add(work.kind, work.dram_read);
        self.dram_written.add(work.kind, work.dram_written);
    }

    /// Shows the counters that belong to no engine.
    pub(crate) fn visit(&mut self, v: &mut impl Visitor) {
        let fields = [
            ("cycles_q", &mut self.cycles),
            ("dispatch_stalls_q", &mut self.dispatch_stalls),
            ("macs_q", &mut self.macs),
            ("port_stalls_q", &mut self.port_stalls),
        ];
        fields.into_iter().for_each(|(name, value)| v.reg(name, 48, Format::Unsigned, value));
    }

    /// An engine's.
    pub fn engine(&self, engine: Engine) -> &EngineCounters {
        &self.engines[engine as usize]
    }

    /// What was counted since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let mut engines = self.engines;
        for (e, b) in engines.iter_mut().zip(&before.engines) {
            e.commands -= b.commands;
            e.busy -= b.busy;
            e.conflicts -= b.conflicts;
            e.waits_tokens -= b.waits_tokens;
            e.waits_banks -= b.waits_banks;
            e.idle -= b.idle;
        }
        let kinds = |a: &ByKind, b: &ByKind| ByKind {
            activations: a.activations - b.activations,
            weights: a.weights - b.weights,
            kv: a.kv - b.kv,
        };
        Self {
            cycles: self.cycles - before.cycles,
            dispatch_stalls: self.dispatch_stalls - before.dispatch_stalls,
            engines,
            macs: self.macs - before.macs,
            port_stalls: self.port_stalls - before.port_stalls,
            dram_read: kinds(&self.dram_read, &before.dram_read),
            dram_written: kinds(&self.dram_written, &before.dram_written),
            kv_raw: self.kv_raw - before.kv_raw,
            kv_stored: self.kv_stored - before.kv_stored,
        }
    }
}
