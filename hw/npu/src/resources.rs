//! What a configuration is made of: bits counted on the clocked blocks themselves.

use crate::isa::Engine;
use crate::{Config, ConfigError, KvSetup, clocked, port};
use mvp::Datapath;
use numeric::FloatFormat;
use rtl::{Format, Index, Module, Name, Role, Signal, Visitor};
use serde::{Deserialize, Serialize};

/// Multipliers of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Multipliers {
    /// How many.
    pub count: u64,
    /// Bits of either operand.
    pub bits: u32,
}

/// A part of the chip.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// Of the array one of 8 × 8 bits an element (the significands of BF16 and the integers share it), of the vector unit one of 24 × 24 a step of
    /// each lane. None where they are not counted, see [`NOT_COUNTED`].
    pub multipliers: Option<Multipliers>,
    /// Bits of registers.
    pub register_bits: u64,
    /// Bits of memories: those that a block shows as such, and FIFOs and tables of more than 16 words.
    pub sram_bits: u64,
}

/// What the parts leave out.
pub const NOT_COUNTED: [&str; 5] = [
    "multipliers of the DMA's address generation and of the codec",
    "the array's second multiplier an element for INT4 pairs, and a column's for the scales of groups",
    "the output stage and the matrix-vector mode's own registers",
    "the weight port with its gearbox, and the scratchpad's bank switches",
    "the rotate unit",
];

/// Fewest words of a FIFO or table that count as a memory.
const MEMORY_WORDS: usize = 17;
/// Names of the words of FIFOs and of the vector unit's scalar store and frequency memory.
const WORDS: [&str; 3] = ["slot_q", "word", "frequency_q"];

/// Words of one FIFO or table.
#[derive(Clone, Copy, Default)]
struct Words {
    count: usize,
    bits: u64,
}

/// Counts what a module shows.
#[derive(Default)]
struct Census {
    registers: u64,
    memories: u64,
    /// A scope entered: its words, if it is none itself.
    scopes: Vec<Option<Words>>,
    /// Byte lanes of a bus that are built, of the 64 of a beat; all where it is 0.
    bus_bytes: usize,
}

impl Census {
    fn of(module: &mut impl Module, bus_bytes: usize) -> Self {
        let mut census = Self { scopes: vec![Some(Words::default())], bus_bytes, ..Self::default() };
        module.visit(&mut census);
        census.leave();
        census
    }

    /// Adds to the words of the scope that holds them.
    fn word(&mut self, count: usize, bits: u64) {
        if let Some(words) = self.scopes.iter_mut().rev().flatten().next() {
            words.count += count;
            words.bits += bits;
        }
    }

    /// Whether a signal belongs to a lane that a narrow bus does not have. A beat shows its bytes eight a signal.
    fn absent(&self, signal: &Signal) -> bool {
        let lane = matches!((signal.width, signal.format, signal.name.index), (64, Format::Hex, Index::One(i)) if 8 * i as usize >= self.bus_bytes);
        self.bus_bytes > 0 && lane
    }
}

impl Visitor for Census {
    fn enter(&mut self, name: Name) -> bool {
        let within = self.scopes.last().is_some_and(Option::is_none);
        let word = WORDS.contains(&name.base) && name.index != Index::None;
        if word && !within {
            self.word(1, 0);
        }
        self.scopes.push((!word && !within).then(Words::default));
        true
    }

    fn leave(&mut self) {
        if let Some(Some(words)) = self.scopes.pop() {
            match words.count >= MEMORY_WORDS {
                true => self.memories += words.bits,
                false => self.registers += words.bits,
            }
        }
    }

    fn signal(&mut self, signal: Signal, value: u64) -> u64 {
        if signal.role != Role::Register || self.absent(&signal) {
            return value;
        }
        let bits = u64::from(signal.width);
        let within = self.scopes.last().is_some_and(Option::is_none);
        if within {
            self.word(0, bits);
        } else if WORDS.contains(&signal.name.base) && signal.name.index != Index::None {
            self.word(1, bits);
        } else {
            self.registers += bits;
        }
        value
    }

    fn memory(&mut self, signal: Signal, words: usize) -> bool {
        self.memories += u64::from(signal.width) * words as u64;
        false
    }
}

/// The registers of an NPU beside its engines: dispatcher, queues, tokens, who runs, counters.
#[derive(Default)]
struct Control {
    registers: u64,
    depth: usize,
}

impl Visitor for Control {
    fn enter(&mut self, name: Name) -> bool {
        let engine = Engine::ALL.iter().any(|engine| engine.name() == name.base);
        let entered = match self.depth {
            0 => engine || ["tokens", "counters"].contains(&name.base),
            1 => ["queue", "lane", "counters"].contains(&name.base),
            _ => true,
        };
        self.depth += usize::from(entered);
        entered
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }

    fn signal(&mut self, signal: Signal, value: u64) -> u64 {
        // Registers right below an engine's name are its shell's.
        if signal.role == Role::Register && self.depth != 1 {
            self.registers += u64::from(signal.width);
        }
        value
    }

    fn memory(&mut self, _: Signal, _: usize) -> bool {
        false
    }
}

fn part(name: &'static str, multipliers: Option<(usize, u32)>, count: u64, census: &Census) -> Part {
    let multipliers = multipliers.map(|(count, bits)| Multipliers { count: count as u64, bits });
    Part { name, multipliers, register_bits: count * census.registers, sram_bits: count * census.memories }
}

fn memory(name: &'static str, bits: u64) -> Part {
    Part { name, multipliers: None, register_bits: 0, sram_bits: bits }
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
    let processor = Census::of(&mut mvp::Processor::<mvp::Array>::new(array), 0);
    let mut parts = vec![part("mvp", Some((a.rows * a.cols, 8)), 1, &processor)];
    // A configuration that was checked gives sizes that the blocks take.
    if let Ok(mut engine) = dma::Dma::new(&port(config)) {
        parts.push(part("dma", None, 1, &Census::of(&mut engine, config.dram.bytes_per_cycle as usize)));
    }
    if let Ok(mut unit) = vector::VectorUnit::new(vector::Config { lanes: config.vector_lanes }) {
        let multipliers = config.vector_lanes * vector::MAX_STEPS;
        parts.push(part("vector", Some((multipliers, 24)), 1, &Census::of(&mut unit, 0)));
    }
    let tables = || nkz::clocked::TableRam::new(1);
    let decoders = config.codec.decoders as u64;
    let encoder = Census::of(&mut nkz::clocked::TileEncoder::new(tables()), 0);
    parts.push(part("nkz encoder", None, 1, &encoder));
    let mut decoder = nkz::clocked::Decoder::new(tables(), config.codec.values / nkz::LANES);
    parts.push(part("nkz decoders", None, decoders, &Census::of(&mut decoder, 0)));
    if let Ok(mut npu) = clocked::Npu::new(config.clone(), kv.clone()) {
        let mut control = Control::default();
        npu.visit(&mut control);
        parts.push(Part { name: "dispatch", multipliers: None, register_bits: control.registers, sram_bits: 0 });
    }
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
        let elements = (config.array.rows * config.array.cols) as u64;
        assert_eq!(part("mvp").multipliers, Some(Multipliers { count: elements, bits: 8 }));
        // Two operands of 16 bits and a sum of 32 at least, in each element.
        assert!((64 * elements..500 * elements).contains(&part("mvp").register_bits), "{:?}", part("mvp"));
        let lanes = (config.vector_lanes * vector::MAX_STEPS) as u64;
        assert_eq!(part("vector").multipliers, Some(Multipliers { count: lanes, bits: 24 }));
        // 8,192 scalars of three FP32 fields, 256 frequencies.
        assert!(part("vector").sram_bits >= 8192 * 96 + 256 * 32);
        assert!(part("dispatch").register_bits > 4 * 64, "four masks of banks");
        assert!(part("dma").sram_bits >= 2 * 8 * 8192, "the transposer");
        // The output FIFO is as deep as the accumulator: C sums, lanes, an end, and the row's two scales; then the accumulator itself.
        let with = |change: &dyn Fn(&mut Config)| {
            let mut config = config.clone();
            change(&mut config);
            super::parts(&config, &kv)
        };
        let deep = with(&|c| c.array.depth *= 2);
        assert_eq!(deep[0].register_bits - part("mvp").register_bits, 3, "two pointers and a level of one bit more");
        assert!(deep[0].sram_bits > 19 * part("mvp").sram_bits / 10);
        // A narrower bus has fewer lanes everywhere and the same 4 KiB between its sides.
        let narrow = with(&|c| c.dram.bytes_per_cycle = 8);
        let dma = narrow.iter().find(|p| p.name == "dma").unwrap();
        assert!(dma.register_bits < part("dma").register_bits, "{dma:?} {:?}", part("dma"));
        assert!(dma.sram_bits < part("dma").sram_bits * 11 / 10, "{dma:?} {:?}", part("dma"));
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
