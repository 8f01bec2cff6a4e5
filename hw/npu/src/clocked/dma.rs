//! The DMA engine with what rings its doorbell and what stands behind its port.

use super::Ports;
use super::compose::Composer;
use super::slave::Slave;
use crate::exec::{port, regions};
use crate::isa::Op;
use crate::kv::control;
use crate::{Config, Fault, Kv};
use ::dma::{Dma, DmaIn, PortIn};
use rtl::{Format, Module, Stream, Visitor};

/// Where a command stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Descriptors are composed.
    Compose,
    /// The doorbell rings.
    Ring,
    /// Descriptors are carried out.
    Run,
    /// There was nothing to do, or all is done.
    #[default]
    Done,
}

const PHASES: [Phase; 4] = [Phase::Compose, Phase::Ring, Phase::Run, Phase::Done];

/// The shell: a command is a chain, which a KV command composes first, a bus beat a cycle. It ends in the cycle that sees the engine idle.
///
/// The edge that starts a command resets the engine: no chain waits for what an earlier one has long written. The region registers are
/// strapped to the memory map.
#[derive(Clone, Debug)]
pub(super) struct DmaShell {
    engine: Dma,
    slave: Slave,
    composer: Composer,
    phase: Phase,
    /// Address of the first descriptor.
    bell: u64,
    /// Completions taken, 16 bits.
    completed: u16,
}

impl DmaShell {
    pub(super) fn new(config: &Config, kv: &Kv) -> Self {
        // A configuration that was checked has sizes that the engine takes.
        let mut engine = match Dma::new(&port(config)) {
            Ok(engine) => engine,
            Err(error) => unreachable!("{error}"),
        };
        for (number, region) in regions(config, kv.control_bytes()).into_iter().enumerate() {
            engine.set_region(number, region);
        }
        let (slave, composer) = (Slave::new(config), Composer::default());
        Self { engine, slave, composer, phase: Phase::Done, bell: 0, completed: 0 }
    }

    pub(super) fn start(&mut self, op: &Op, banks: u64, ports: &mut Ports<'_>) -> Result<(), Fault> {
        let kv = &ports.kv;
        let span = |stream, first, tiles| kv.at(stream).and_then(|at| Ok((at, kv.span(at, first, tiles)?)));
        self.engine.reset();
        self.slave.begin(banks);
        self.completed = 0;
        let (composer, bell) = match *op {
            Op::KvLoad { stream, first, tiles, to } => {
                let (at, span) = span(stream, first, tiles)?;
                (Composer::new(at, true, span, to), control(0))
            }
            Op::KvStore { stream, tile, from } => {
                let (at, span) = span(stream, tile, 1)?;
                (Composer::new(at, false, span, from), control(0))
            }
            Op::Dma { chain, .. } => {
                (self.bell, self.phase) = (chain, Phase::Ring);
                return Ok(());
            }
            _ => return Ok(()),
        };
        (self.composer, self.bell) = (composer, bell);
        self.phase = if composer.done() { Phase::Done } else { Phase::Compose };
        Ok(())
    }

    pub(super) fn done(&self) -> bool {
        self.phase == Phase::Done || self.phase == Phase::Run && self.completed > 0 && self.engine.out().idle
    }

    pub(super) fn clock(&mut self, ports: &mut Ports<'_>) -> Result<(), Fault> {
        match self.phase {
            Phase::Done => return Ok(()),
            Phase::Compose => {
                let bus = ports.config.dram.bytes_per_cycle as usize;
                self.composer.clock(bus, ports.kv, ports.memory)?;
                if self.composer.done() {
                    self.phase = Phase::Ring;
                }
                return Ok(());
            }
            Phase::Ring | Phase::Run => {}
        }
        let out = self.engine.out();
        let finished = self.done();
        let completion = out.completion.valid.then_some(*out.completion.data);
        let doorbell = Stream { valid: self.phase == Phase::Ring, data: self.bell };
        let rung = doorbell.fires(out.doorbell_ready);
        // The slave is clocked first; what it drove in this cycle is copied off its registers.
        let (r, b) = self.slave.wires();
        self.slave.clock(&out.port, ports.memory)?;
        let r = Stream { valid: r.valid, data: &r.data };
        let port = PortIn { ar_ready: true, r, aw_ready: true, w_ready: true, b };
        self.engine.clock(&DmaIn { doorbell, port, completion_ready: true });
        if rung {
            self.phase = Phase::Run;
        }
        if finished {
            self.phase = Phase::Done;
        }
        if let Some(completion) = completion {
            let number = usize::from(self.completed);
            self.completed += 1;
            completion.result().map_err(|cause| Fault::Dma { number, cause: cause.to_string() })?;
        }
        Ok(())
    }

    pub(super) fn reset(&mut self) {
        self.engine.reset();
        self.slave.reset();
        (self.composer, self.phase, self.bell, self.completed) = (Composer::default(), Phase::Done, 0, 0);
    }

    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        let mut phase = self.phase as u8;
        v.reg("phase_q", 2, Format::Enum(&["COMPOSE", "RING", "RUN", "DONE"]), &mut phase);
        self.phase = PHASES[usize::from(phase & 3)];
        v.reg("bell_q", 48, Format::Hex, &mut self.bell);
        v.reg("completed_q", 16, Format::Unsigned, &mut self.completed);
        v.scope("composer", |v| self.composer.visit(v));
        v.scope("engine", |v| self.engine.visit(v));
        v.scope("slave", |v| self.slave.visit(v));
    }
}
