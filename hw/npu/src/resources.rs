//! What a configuration is made of: bits counted on the clocked blocks themselves.

use crate::{Config, ConfigError, KvSetup, port};
use mvp::Datapath;
use numeric::FloatFormat;
use rtl::{Module, Name, Role, Signal, Visitor};
use serde::{Deserialize, Serialize};

/// A part of the chip.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// Multipliers: of the array 8 × 8 bits (the significands of BF16 and the integers share them), of the vector unit 24 × 24, one a step of each lane.
    pub multipliers: u64,
    /// Bits of registers.
    pub register_bits: u64,
    /// Bits of memories.
    pub sram_bits: u64,
}

/// Counts what a module shows.
#[derive(Default)]
struct Census {
    registers: u64,
    memories: u64,
}

impl Visitor for Census {
    fn enter(&mut self, _: Name) -> bool {
        true
    }

    fn leave(&mut self) {}

    fn signal(&mut self, signal: Signal, value: u64) -> u64 {
        if signal.role == Role::Register {
            self.registers += u64::from(signal.width);
        }
        value
    }

    fn memory(&mut self, signal: Signal, words: usize) -> bool {
        self.memories += u64::from(signal.width) * words as u64;
        false
    }
}

fn part(name: &'static str, multipliers: u64, count: u64, module: &mut impl Module) -> Part {
    let mut census = Census::default();
    module.visit(&mut census);
    Part { name, multipliers, register_bits: count * census.registers, sram_bits: count * census.memories }
}

fn memory(name: &'static str, bits: u64) -> Part {
    Part { name, multipliers: 0, register_bits: 0, sram_bits: bits }
}

/// The parts of an NPU, with the KV path set up for a model. The array is counted in BF16, the widest of its modes.
pub fn parts(config: &Config, kv: &KvSetup) -> Vec<Part> {
    let a = &config.array;
    let array = mvp::Config {
        rows: a.rows,
        cols: a.cols,
        depth: a.depth,
        datapath: Datapath::float(FloatFormat::BF16),
        mac_stages: a.mac_stages,
        adder_stages: a.adder_stages,
        group: Some(32),
    };
    let mut parts = vec![part("mvp", (a.rows * a.cols) as u64, 1, &mut mvp::Processor::<mvp::Array>::new(array))];
    // A configuration that was checked gives sizes that the blocks take.
    if let Ok(mut engine) = dma::Dma::new(&port(config)) {
        parts.push(part("dma", 0, 1, &mut engine));
    }
    if let Ok(mut unit) = vector::VectorUnit::new(vector::Config { lanes: config.vector_lanes }) {
        parts.push(part("vector", (config.vector_lanes * vector::MAX_STEPS) as u64, 1, &mut unit));
    }
    let tables = || nkz::clocked::TableRam::new(1);
    let decoders = config.codec.decoders as u64;
    parts.push(part("nkz encoder", 0, 1, &mut nkz::clocked::TileEncoder::new(tables())));
    let mut decoder = nkz::clocked::Decoder::new(tables(), config.codec.values / nkz::LANES);
    parts.push(part("nkz decoders", 0, decoders, &mut decoder));
    let lines = (kv.layers * kv.heads * 2 * kv.head_dim) as u64;
    parts.push(memory("nkz static tables", lines * 64));
    let blocks = kv.head_dim.div_ceil(nkz::CHANNELS);
    let lines = (kv.context / nkz::TOKENS * blocks).div_ceil(nkz::IndexLine::TILES) * kv.streams();
    parts.push(memory("kv index", (8 * nkz::IndexLine::BYTES * lines) as u64));
    parts.push(memory("block tables", (kv.streams() * kv.pages_per_stream() * 32) as u64));
    parts.push(memory("scratchpad", 8 * u64::from(config.scratchpad.bytes)));
    parts
}

/// Picojoules of what the counters count: a user's table, in TOML.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Energy {
    /// A multiply-accumulate of the array.
    pub mac: f64,
    /// A byte from or to DRAM.
    pub dram_byte: f64,
    /// A cycle in which the vector unit runs.
    pub vector_cycle: f64,
    /// A cycle in which the codec runs.
    pub nkz_cycle: f64,
    /// Any cycle: clock tree and leakage.
    pub cycle: f64,
}

impl Energy {
    /// Reads and checks a table.
    ///
    /// # Errors
    /// What is wrong, by the field's name.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let table: Self = toml::from_str(text).map_err(|e| ConfigError::Toml(e.to_string().trim_end().into()))?;
        let fields = [
            ("mac", table.mac),
            ("dram_byte", table.dram_byte),
            ("vector_cycle", table.vector_cycle),
            ("nkz_cycle", table.nkz_cycle),
            ("cycle", table.cycle),
        ];
        match fields.into_iter().find(|(_, value)| !(value.is_finite() && *value >= 0.0)) {
            None => Ok(table),
            Some((field, value)) => {
                let rule = "must be a number of picojoules, 0 or more";
                Err(ConfigError::Field { field, value: value.to_string(), rule })
            }
        }
    }

    /// Joules of what was counted, by cause.
    pub fn joules(&self, c: &crate::Counters) -> [(&'static str, f64); 5] {
        let bytes = c.dram_read.total() + c.dram_written.total();
        let busy = |engine| c.engine(engine).busy as f64;
        [
            ("macs", c.macs as f64 * self.mac * 1e-12),
            ("dram", bytes as f64 * self.dram_byte * 1e-12),
            ("vector", busy(crate::isa::Engine::Vector) * self.vector_cycle * 1e-12),
            ("nkz", busy(crate::isa::Engine::Nkz) * self.nkz_cycle * 1e-12),
            ("cycles", c.cycles as f64 * self.cycle * 1e-12),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Counters;
    use crate::counters::ByKind;

    #[test]
    fn parts_count_what_the_configuration_names() {
        let config = Config::default();
        let kv = KvSetup {
            sequences: 2,
            layers: 3,
            heads: 2,
            head_dim: 80,
            keys: nkz::Mode::Raw,
            values: nkz::Mode::Raw,
            tables: Vec::new(),
            context: 256,
            pages: 0,
            frequencies: vec![1.0; 40],
            interleaved: false,
        };
        let parts = parts(&config, &kv);
        let part = |name: &str| parts.iter().find(|p| p.name == name).unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(part("mvp").multipliers, (config.array.rows * config.array.cols) as u64);
        // Two operands of 16 bits and a sum of 32 at least, in each element.
        assert!(part("mvp").register_bits > 64 * part("mvp").multipliers);
        assert_eq!(part("vector").multipliers, (config.vector_lanes * vector::MAX_STEPS) as u64);
        assert!(part("dma").sram_bits >= 2 * 8 * 8192, "the transposer");
        let decoders = |decoders| {
            let config = Config { codec: crate::Codec { decoders, ..config.codec }, ..config.clone() };
            super::parts(&config, &kv).into_iter().find(|p| p.name == "nkz decoders").unwrap()
        };
        assert_eq!(decoders(3).register_bits, 3 * decoders(1).register_bits);
        assert_eq!(decoders(3).sram_bits, 3 * decoders(1).sram_bits);
        // A line of 64 bits a channel of each layer, head, K and V.
        assert_eq!(part("nkz static tables").sram_bits, 3 * 2 * 2 * 80 * 64);
        // 256 tokens of 80 channels are 8 tiles of two column blocks in each of 24 streams; a line holds some of their entries.
        let lines = (8 * 2u64).div_ceil(nkz::IndexLine::TILES as u64) * 24;
        assert_eq!(part("kv index").sram_bits, 8 * nkz::IndexLine::BYTES as u64 * lines);
        // 8 raw tiles of 4,128 and 1,056 bytes take 11 pages of 4 KiB.
        assert_eq!(part("block tables").sram_bits, 24 * 11 * 32);
        assert_eq!(part("scratchpad").sram_bits, 8 * u64::from(config.scratchpad.bytes));
    }

    #[test]
    fn energy_is_what_was_counted_times_the_table() {
        let table = Energy { mac: 2.0, dram_byte: 3.0, vector_cycle: 5.0, nkz_cycle: 7.0, cycle: 11.0 };
        let mut counters = Counters {
            cycles: 1000,
            macs: 10_000,
            dram_read: ByKind { activations: 1, weights: 20, kv: 300 },
            dram_written: ByKind { activations: 4000, weights: 0, kv: 50_000 },
            ..Counters::default()
        };
        counters.engines[crate::isa::Engine::Vector as usize].busy = 100;
        counters.engines[crate::isa::Engine::Nkz as usize].busy = 40;
        let picojoules = table.joules(&counters).map(|(cause, joules)| (cause, (joules * 1e12).round()));
        let expected =
            [("macs", 20_000.0), ("dram", 162_963.0), ("vector", 500.0), ("nkz", 280.0), ("cycles", 11_000.0)];
        assert_eq!(picojoules, expected);
    }
}
