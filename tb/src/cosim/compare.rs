use super::{CosimError, Datapath, Stimulus, twin_path};
use rtl::{FaultInjector, Module, Name, Signal, Visitor};
use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// Time units of one cycle in the twin's dump; the rising edge comes half-way.
const CYCLE: u64 = 10;

/// One register in one cycle whose bits differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Cycle, counted from 0.
    pub cycle: usize,
    /// Path in the engine.
    pub path: String,
    /// The engine's bits.
    pub engine: u64,
    /// The twin's, most significant first, with x where unknown.
    pub twin: String,
}

/// What a comparison found.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Registers and outputs compared in every cycle.
    pub signals: usize,
    /// One of them whose value steers what follows: what a control run flips. The stages inside a float element are not such, for the
    /// engine works them out from operands.
    pub steering: usize,
    /// Cycles compared.
    pub cycles: usize,
    /// Values compared.
    pub compared: u64,
    /// Values that differ.
    pub mismatches: u64,
    /// The first of them.
    pub first: Option<Mismatch>,
}

/// A value of the dump. Bits that are x or z are unknown.
#[derive(Clone, Debug, Default)]
struct Wire {
    value: u64,
    unknown: u64,
}

/// The dump, cycle by cycle.
struct Dump {
    parser: vcd::Parser<BufReader<File>>,
    /// Values by slot.
    wires: Vec<Wire>,
    slots: HashMap<vcd::IdCode, usize>,
    /// Paths below `dut`, to slots.
    paths: HashMap<String, usize>,
    /// A time stamp that belongs to a later cycle.
    next: u64,
    ended: bool,
}

impl Dump {
    fn open(path: &Path) -> Result<Self, CosimError> {
        let error = |reason| CosimError::File { path: path.into(), reason };
        let mut parser = vcd::Parser::new(BufReader::new(File::open(path).map_err(error)?));
        let header = parser.parse_header().map_err(error)?;
        let mut this =
            Self { parser, wires: Vec::new(), slots: HashMap::new(), paths: HashMap::new(), next: 0, ended: false };
        this.collect("", &header.items);
        Ok(this)
    }

    fn collect(&mut self, prefix: &str, items: &[vcd::ScopeItem]) {
        for item in items {
            match item {
                vcd::ScopeItem::Scope(scope) => {
                    // Paths count from the device under test.
                    let path = if scope.identifier == "dut" {
                        String::new()
                    } else {
                        format!("{prefix}{}.", scope.identifier)
                    };
                    self.collect(&path, &scope.items);
                }
                vcd::ScopeItem::Var(var) => {
                    let fresh = self.slots.len();
                    let slot = *self.slots.entry(var.code).or_insert(fresh);
                    if slot == fresh {
                        self.wires.push(Wire { value: 0, unknown: u64::MAX });
                    }
                    self.paths.insert(format!("{prefix}{}", var.reference), slot);
                }
                _ => {}
            }
        }
    }

    /// Applies all changes before time `end`. False when the dump has none left.
    fn advance(&mut self, end: u64, path: &Path) -> Result<bool, CosimError> {
        if self.next >= end {
            return Ok(true);
        }
        for command in self.parser.by_ref() {
            let (code, wire) = match command.map_err(|reason| CosimError::File { path: path.into(), reason })? {
                vcd::Command::Timestamp(time) => {
                    self.next = time;
                    if time >= end {
                        return Ok(true);
                    }
                    continue;
                }
                vcd::Command::ChangeScalar(code, bit) => (code, wire([bit].into_iter())),
                vcd::Command::ChangeVector(code, vector) => (code, wire(vector.iter())),
                _ => continue,
            };
            if let Some(&slot) = self.slots.get(&code) {
                self.wires[slot] = wire;
            }
        }
        let had_more = !self.ended;
        self.ended = true;
        Ok(had_more)
    }
}

/// The low 64 bits; a vector that is cut short and starts unknown is unknown to the left (IEEE 1364-2005, 18.2.1).
fn wire(bits: impl Iterator<Item = vcd::Value>) -> Wire {
    let mut wire = Wire::default();
    for (i, bit) in bits.enumerate() {
        let unknown = matches!(bit, vcd::Value::X | vcd::Value::Z);
        if i == 0 && unknown {
            wire.unknown = u64::MAX;
        }
        wire.value = wire.value << 1 | u64::from(bit == vcd::Value::V1);
        wire.unknown = wire.unknown << 1 | u64::from(unknown);
    }
    wire
}

/// Paths on the first walk, values on each.
#[derive(Default)]
struct Walk {
    scope: Vec<Name>,
    declare: bool,
    signals: Vec<(String, u32)>,
    values: Vec<u64>,
}

impl Visitor for Walk {
    fn enter(&mut self, name: Name) -> bool {
        // Row sums and scales, which the twin does not have.
        let has_twin = name.to_string() != "side";
        if has_twin {
            self.scope.push(name);
        }
        has_twin
    }
    fn leave(&mut self) {
        self.scope.pop();
    }
    fn signal(&mut self, signal: Signal, value: u64) -> u64 {
        if self.declare {
            let scopes: String = self.scope.iter().map(|s| format!("{s}.")).collect();
            self.signals.push((format!("{scopes}{}", signal.name), signal.width));
        }
        self.values.push(value);
        value
    }
}

/// Runs the engine on the stimulus and holds all its registers against the dump, before each edge from the first reset on.
///
/// `fault` flips bits of the engine in one cycle: the control run, which must find a mismatch.
///
/// # Errors
/// The dump cannot be read, ends early, or lacks a register.
pub fn compare(stimulus: &Stimulus, dump: &Path, fault: Option<(usize, FaultInjector)>) -> Result<Outcome, CosimError> {
    let mut engine = Datapath::new(stimulus.config);
    let mut twin = Dump::open(dump)?;
    let mut walk = Walk { declare: true, ..Walk::default() };
    engine.visit(&mut walk);
    walk.declare = false;
    let slots = walk.signals.iter().map(|(path, _)| {
        let name = twin_path(path);
        twin.paths.get(&name).copied().ok_or_else(|| CosimError::NoTwin { path: path.clone(), twin: name })
    });
    let slots: Vec<usize> = slots.collect::<Result<_, _>>()?;
    let steers = |(path, _): &(String, u32)| path.starts_with("array.") && !path.contains(".mac.");
    let all: Vec<usize> = (0..slots.len()).filter(|&i| steers(&walk.signals[i])).collect();
    let steering = all.get(all.len() / 3).copied().unwrap_or_default();
    let mut outcome = Outcome { signals: slots.len(), steering, ..Outcome::default() };
    for (cycle, wires) in stimulus.cycles.iter().enumerate() {
        if let Some((_, fault)) = fault.filter(|(at, _)| *at == cycle) {
            fault.inject(&mut engine);
        }
        let more = twin.advance(cycle as u64 * CYCLE + CYCLE / 2, dump)?;
        if !more {
            return Err(CosimError::Short(cycle));
        }
        // Before the first reset the twin knows nothing.
        if cycle > 0 {
            walk.values.clear();
            engine.visit(&mut walk);
            outcome.cycles += 1;
            for (i, (&slot, &engine)) in slots.iter().zip(&walk.values).enumerate() {
                let mask = rtl::mask(walk.signals[i].1);
                let Wire { value, unknown } = twin.wires[slot];
                outcome.compared += 1;
                if (value ^ engine) & mask != 0 || unknown & mask != 0 {
                    outcome.mismatches += 1;
                    outcome.first.get_or_insert_with(|| {
                        let (path, width) = &walk.signals[i];
                        let digit = |b: u32| match (unknown >> b & 1, value >> b & 1) {
                            (1, _) => 'x',
                            (_, 1) => '1',
                            _ => '0',
                        };
                        Mismatch { cycle, path: path.clone(), engine, twin: (0..*width).rev().map(digit).collect() }
                    });
                }
            }
        }
        engine.clock(wires);
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mvp::Config;
    use std::path::PathBuf;
    use vcd::{TimescaleUnit, Value, VarType};

    /// Plays the twin: dumps the engine's own values under the twin's names; signal `unknown` is never given a value.
    fn dump(stimulus: &Stimulus, cycles: usize, unknown: Option<usize>) -> PathBuf {
        let mut engine = Datapath::new(stimulus.config);
        let mut walk = Walk { declare: true, ..Walk::default() };
        engine.visit(&mut walk);
        let mut out = vcd::Writer::new(Vec::new());
        out.timescale(1, TimescaleUnit::NS).unwrap();
        out.add_module("cosim_tb").unwrap();
        out.add_module("dut").unwrap();
        let declare =
            |(path, width): &(String, u32)| out.add_var(VarType::Reg, *width, &twin_path(path), None).unwrap();
        let codes: Vec<_> = walk.signals.iter().map(declare).collect();
        out.upscope().unwrap();
        out.upscope().unwrap();
        out.enddefinitions().unwrap();
        for (cycle, wires) in stimulus.cycles[..cycles].iter().enumerate() {
            let mut now = Walk::default();
            engine.visit(&mut now);
            out.timestamp((10 * cycle as u64).saturating_sub(5)).unwrap();
            for (i, (&code, &value)) in codes.iter().zip(&now.values).enumerate() {
                if unknown != Some(i) {
                    let width = walk.signals[i].1;
                    out.change_vector(code, (0..width).rev().map(|b| Value::from(value >> b & 1 == 1))).unwrap();
                }
            }
            engine.clock(wires);
        }
        let tag = unknown.map_or_else(String::new, |u| u.to_string());
        let path = std::env::temp_dir().join(format!("magpie-cosim-{}-{cycles}-{tag}.vcd", std::process::id()));
        std::fs::write(&path, out.writer()).unwrap();
        path
    }

    #[test]
    fn a_flipped_bit_an_unknown_and_a_short_dump_are_found() {
        let config = Config { rows: 2, cols: 3, depth: 16, ..Config::default() };
        let stimulus = Stimulus::new(config, 200, 3);
        let same = dump(&stimulus, 200, None);
        let clean = compare(&stimulus, &same, None).unwrap();
        assert_eq!((clean.mismatches, clean.cycles), (0, 199));
        assert_eq!(clean.compared, 199 * clean.signals as u64);
        assert!(clean.signals > 6 * 7, "all registers of all elements, and more");

        let fault = FaultInjector { signal: 20, mask: 1, stuck: None };
        let faulty = compare(&stimulus, &same, Some((77, fault))).unwrap();
        assert_eq!(faulty.first.map(|m| m.cycle), Some(77));

        let silent = dump(&stimulus, 200, Some(12));
        let unknown = compare(&stimulus, &silent, None).unwrap();
        assert_eq!(unknown.mismatches, 199);
        assert!(unknown.first.unwrap().twin.starts_with('x'));

        let short = dump(&stimulus, 150, None);
        assert!(matches!(compare(&stimulus, &short, None), Err(CosimError::Short(cycle)) if cycle > 149));

        let other = Stimulus::new(Config { rows: 3, ..config }, 200, 3);
        assert!(matches!(compare(&other, &same, None), Err(CosimError::NoTwin { .. })));
        [same, silent, short].iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }
}
