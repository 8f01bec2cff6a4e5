//! Runs chains of descriptors on an engine beside a memory, with all checkers on.

use super::axi::{Checker, Cycle, Violation};
use super::memory::{BadRange, Memory, Timing};
use super::reference::Image;
use crate::wave::Tracer;
use dma::{Bytes, Completion, Config, Counters, Dma, DmaIn, Region, Report, Response, Transaction};
use rand::RngExt;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rtl::{Module, Stream};

/// A memory, regions and doorbells: everything that decides what shall happen.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The engine's sizes.
    pub config: Config,
    /// Region registers.
    pub regions: Vec<Region>,
    /// The memory before.
    pub image: Image,
    /// Addresses of chains.
    pub doorbells: Vec<u64>,
    /// Addresses that fail.
    pub bad: Vec<BadRange>,
    /// The memory's behaviour.
    pub timing: Timing,
    /// Chance that the host does not take a completion in a cycle.
    pub host_busy: f64,
    /// Seed of latency and back-pressure.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The memory after.
    pub bytes: Vec<u8>,
    /// Completions with the cycle in which the host took them.
    pub completions: Vec<(u64, Completion)>,
    /// The engine's counters.
    pub counters: Counters,
    /// What the port's checker counted of the same: all traffic, and the stalls `ar`, `aw` and `w`.
    pub port: Counters,
    /// Cycles until everything was quiet.
    pub cycles: u64,
    /// Broken rules of the port.
    pub violations: Vec<Violation>,
    /// Error responses seen on the port.
    pub bus_errors: u64,
    /// Transfers seen on the port.
    pub transfers: u64,
    /// The engine never came to rest.
    pub hung: bool,
    /// Misuse of an SRAM.
    pub fault: Option<rtl::SramFault>,
}

impl Ran {
    /// The completions without their cycles.
    pub fn outcomes(&self) -> Vec<Completion> {
        self.completions.iter().map(|c| c.1).collect()
    }
}

/// A running engine with its memory.
pub struct Bench {
    /// The engine.
    pub dma: Dma,
    /// The memory.
    pub memory: Memory,
    /// The port's checker.
    pub checker: Checker,
    doorbells: Vec<u64>,
    rung: usize,
    host_busy: f64,
    rng: Xoshiro256PlusPlus,
    completions: Vec<(u64, Completion)>,
    cycle: u64,
    /// Cycles without a transfer on any channel.
    silent: u64,
    /// So many of them are a hang.
    patience: u64,
}

/// Cycles without any transfer, beyond twice the memory's latency, after which an engine that is not idle counts as hung.
const HUNG: u64 = 20_000;

impl Bench {
    /// At reset.
    ///
    /// # Errors
    /// If the configuration cannot be built.
    pub fn new(s: &Scenario) -> anyhow::Result<Self> {
        let mut dma = Dma::new(&s.config)?;
        for (number, region) in s.regions.iter().enumerate() {
            dma.set_region(number, *region);
        }
        let rng = Xoshiro256PlusPlus::seed_from_u64(s.seed);
        let (bus, bytes) = (s.config.bus_bytes, s.image.bytes.clone());
        let mut memory = Memory::new(s.image.base, bytes, bus, s.timing, Xoshiro256PlusPlus::seed_from_u64(!s.seed));
        memory.bad.clone_from(&s.bad);
        Ok(Self {
            dma,
            memory,
            checker: Checker::new(bus, s.config.reads_in_flight, s.config.writes_in_flight, &s.regions),
            doorbells: s.doorbells.clone(),
            rung: 0,
            host_busy: s.host_busy,
            rng,
            completions: Vec::new(),
            cycle: 0,
            silent: 0,
            patience: HUNG.saturating_add(s.timing.latency.1.saturating_mul(2)),
        })
    }

    /// One cycle; returns what was on the port.
    pub fn step(&mut self) -> Cycle {
        let completion_ready = self.host_busy == 0.0 || !self.rng.random_bool(self.host_busy);
        let out = self.dma.out();
        let wires = self.memory.out();
        let cycle = Cycle::of(&out.port, &wires);
        self.checker.observe(&cycle);
        if out.completion.fires(completion_ready) {
            self.completions.push((self.cycle, *out.completion.data));
        }
        let doorbell = self.doorbells.get(self.rung).map_or(Stream::idle(0), |&d| Stream::offer(d));
        let rings = doorbell.fires(out.doorbell_ready);
        let moved = [
            cycle.ar.0.fires(cycle.ar.1),
            cycle.r.0.fires(cycle.r.1),
            cycle.aw.0.fires(cycle.aw.1),
            cycle.w.0.fires(cycle.w.1),
            cycle.b.0.fires(cycle.b.1),
        ];
        self.silent = if moved.contains(&true) { 0 } else { self.silent + 1 };
        self.dma.clock(&DmaIn { doorbell, port: cycle_in(&cycle), completion_ready });
        self.memory.clock(&cycle_out(&cycle));
        self.rung += usize::from(rings);
        self.cycle += 1;
        cycle
    }

    /// Everything rung, done and answered.
    pub fn quiet(&self) -> bool {
        self.rung == self.doorbells.len() && self.dma.out().idle && self.memory.quiet()
    }

    /// Nothing has moved for so long that nothing will.
    pub fn hung(&self) -> bool {
        self.silent >= self.patience
    }

    /// Cycles so far.
    pub fn cycle(&self) -> u64 {
        self.cycle
    }

    /// Reset of engine and memory in the middle of whatever goes on; doorbells not yet rung are dropped.
    pub fn reset(&mut self) {
        let mut cycle = Cycle::of(&self.dma.out().port, &self.memory.out());
        cycle.reset = true;
        self.checker.observe(&cycle);
        self.dma.reset();
        self.memory.reset();
        self.rung = self.doorbells.len();
        self.completions.clear();
    }

    /// Rings further doorbells.
    pub fn ring(&mut self, doorbells: &[u64]) {
        self.doorbells.extend_from_slice(doorbells);
    }

    /// Runs until quiet.
    pub fn run(&mut self) -> Ran {
        while !self.quiet() && !self.hung() {
            self.step();
        }
        self.settle()
    }

    /// The same, with a tracer that sees every cycle and what leaves the engine.
    ///
    /// # Errors
    /// Those of the tracer.
    pub fn run_traced(&mut self, tracer: &mut impl Tracer) -> anyhow::Result<Ran> {
        while !self.quiet() && !self.hung() {
            let (cycle, completed) = (self.cycle, self.completions.len());
            tracer.sample(cycle, &mut self.dma)?;
            let wires = self.step();
            for (name, (address, ready)) in [("AR", wires.ar), ("AW", wires.aw)] {
                if address.fires(ready) {
                    tracer.output(cycle, &(name, address.data));
                }
            }
            if wires.w.0.fires(wires.w.1) {
                let beat = &wires.w.0.data;
                let strobed = beat.data.iter().enumerate().filter(|(lane, _)| beat.strobe >> lane & 1 == 1);
                tracer.output(cycle, &(beat.strobe, beat.last, strobed.map(|l| l.1).collect::<Vec<_>>()));
            }
            for (_, completion) in &self.completions[completed..] {
                tracer.output(cycle, completion);
            }
        }
        tracer.output(self.cycle, self.dma.counters());
        tracer.rest(&mut self.dma);
        Ok(self.settle())
    }

    fn settle(&mut self) -> Ran {
        let hung = !self.quiet();
        for _ in 0..4 {
            self.step();
        }
        self.checker.finish();
        Ran {
            bytes: self.memory.bytes.clone(),
            completions: std::mem::take(&mut self.completions),
            counters: *self.dma.counters(),
            port: self.checker.counted,
            cycles: self.cycle,
            violations: self.checker.violations.clone(),
            bus_errors: self.checker.errors,
            transfers: self.checker.beats,
            hung,
            fault: self.dma.fault(),
        }
    }
}

fn cycle_in(c: &Cycle) -> dma::PortIn<'_> {
    dma::PortIn {
        ar_ready: c.ar.1,
        r: Stream { valid: c.r.0.valid, data: &c.r.0.data },
        aw_ready: c.aw.1,
        w_ready: c.w.1,
        b: c.b.0,
    }
}

fn cycle_out(c: &Cycle) -> dma::PortOut<'_> {
    dma::PortOut {
        ar: c.ar.0,
        r_ready: c.r.1,
        aw: c.aw.0,
        w: Stream { valid: c.w.0.valid, data: &c.w.0.data },
        b_ready: c.b.1,
    }
}

/// Runs a scenario on the cycle engine.
///
/// # Errors
/// If the configuration cannot be built.
pub fn run(s: &Scenario) -> anyhow::Result<Ran> {
    Ok(Bench::new(s)?.run())
}

/// The bytes of a scenario, for the transaction engine.
pub struct Flat<'a> {
    /// The bytes.
    pub image: Image,
    bad: &'a [BadRange],
}

impl Flat<'_> {
    fn at(&self, address: u64) -> Option<usize> {
        address.checked_sub(self.image.base).map(|a| a as usize).filter(|&a| a < self.image.bytes.len())
    }

    fn response(&self, address: u64, write: bool) -> Response {
        let hit = |f: &&BadRange| (if write { f.writes } else { f.reads }) && f.bytes.contains(&address);
        match self.at(address) {
            None => Response::DecodeError,
            Some(_) => self.bad.iter().find(hit).map_or(Response::Okay, |f| f.response),
        }
    }
}

impl Bytes for Flat<'_> {
    fn read(&mut self, address: u64, lanes: &mut [u8]) -> Response {
        if let Some(at) = self.at(address) {
            let count = lanes.len().min(self.image.bytes.len() - at);
            lanes[..count].copy_from_slice(&self.image.bytes[at..at + count]);
        }
        self.response(address, false)
    }

    fn write(&mut self, address: u64, lanes: &[u8], strobe: u64) -> Response {
        let mut response = Response::Okay;
        for (lane, byte) in lanes.iter().enumerate().filter(|(lane, _)| strobe >> lane & 1 == 1) {
            let address = address + lane as u64;
            match (self.response(address, true), self.at(address)) {
                (Response::Okay, Some(at)) => self.image.bytes[at] = *byte,
                (fault, _) => response = fault,
            }
        }
        response
    }
}

/// Runs a scenario on the transaction engine; the memory's latency must be fixed.
///
/// # Errors
/// If the configuration cannot be built.
pub fn predict(s: &Scenario) -> anyhow::Result<(Vec<u8>, Report)> {
    let mut engine = Transaction::new(&s.config, s.timing.latency.0)?;
    for (number, region) in s.regions.iter().enumerate() {
        engine.set_region(number, *region);
    }
    let mut flat = Flat { image: s.image.clone(), bad: &s.bad };
    let report = engine.run(&mut flat, &s.doorbells);
    Ok((flat.image.bytes, report))
}
