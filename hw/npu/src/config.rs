//! Sizes of an NPU, read from TOML.

use serde::{Deserialize, Serialize};

/// The array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Array {
    /// R, 1..=256.
    pub rows: usize,
    /// C, 1..=256.
    pub cols: usize,
    /// D: accumulator rows, 2..=65,536.
    pub depth: usize,
    /// L of a float element.
    pub mac_stages: usize,
    /// A of the FP32 accumulator.
    pub adder_stages: usize,
    /// P: stored bytes a cycle through the weight port.
    pub port_bytes: usize,
}

impl Default for Array {
    fn default() -> Self {
        Self { rows: 32, cols: 32, depth: 1024, mac_stages: 4, adder_stages: 4, port_bytes: 512 }
    }
}

/// The memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Dram {
    /// Bytes a cycle, the width of the port: 8, 16, 32 or 64.
    pub bytes_per_cycle: u32,
    /// Cycles from a read's address to its first beat where its row is open.
    pub hit_latency: u64,
    /// The same where another row is open, or none.
    pub miss_latency: u64,
    /// Cycles from the last beat of a write to its response.
    pub write_latency: u64,
    /// Bytes of a row, a power of two.
    pub row_bytes: u64,
    /// Banks with an open row each, a power of two; consecutive rows lie in consecutive banks.
    pub banks: usize,
    /// Bytes in all.
    pub bytes: u64,
    /// Read bursts in flight.
    pub reads_in_flight: usize,
}

impl Default for Dram {
    fn default() -> Self {
        Self {
            bytes_per_cycle: 64,
            hit_latency: 60,
            miss_latency: 100,
            write_latency: 60,
            row_bytes: 2048,
            banks: 16,
            bytes: 8 << 30,
            reads_in_flight: 128,
        }
    }
}

/// The scratchpad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scratchpad {
    /// Bytes in all.
    pub bytes: u32,
    /// Banks of one port each, side by side in the address space: 2..=64.
    pub banks: u32,
}

impl Default for Scratchpad {
    fn default() -> Self {
        Self { bytes: 8 << 20, banks: 32 }
    }
}

/// The KV path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Codec {
    /// E: decoder engines side by side, 1..=64.
    pub decoders: usize,
    /// v: values a cycle of a decoder, 8 or 16.
    pub values: usize,
}

impl Default for Codec {
    fn default() -> Self {
        Self { decoders: 16, values: 16 }
    }
}

/// An NPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Clock in MHz.
    pub clock_mhz: f64,
    /// The array.
    pub array: Array,
    /// The memory.
    pub dram: Dram,
    /// The scratchpad.
    pub scratchpad: Scratchpad,
    /// Lanes of the vector unit: a power of two, 8..=64.
    pub vector_lanes: usize,
    /// The KV path.
    pub codec: Codec,
    /// Commands that each engine's queue holds, 1..=1,024.
    pub queue_depth: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            clock_mhz: 1000.0,
            array: Array::default(),
            dram: Dram::default(),
            scratchpad: Scratchpad::default(),
            vector_lanes: 32,
            codec: Codec::default(),
            queue_depth: 8,
        }
    }
}

/// A configuration that cannot be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// Not TOML, or not these fields.
    #[error("{0}")]
    Toml(String),
    /// A value out of range.
    #[error("{field} = {value}: {rule}")]
    Field {
        /// Its name in the file.
        field: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        rule: &'static str,
    },
}

/// The configurations that come with the project: name and text.
pub const PRESETS: [(&str, &str); 3] = [
    ("edge", include_str!("../configs/edge.toml")),
    ("default", include_str!("../configs/default.toml")),
    ("big", include_str!("../configs/big.toml")),
];

impl Config {
    /// One of [`PRESETS`].
    pub fn preset(name: &str) -> Option<Self> {
        let (_, text) = PRESETS.iter().find(|(n, _)| *n == name)?;
        Self::from_toml(text).ok()
    }

    /// Reads and checks a configuration; fields that are left out have the default's values.
    ///
    /// # Errors
    /// What is wrong, by the field's name.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text).map_err(|e| ConfigError::Toml(e.to_string().trim_end().into()))?;
        config.check()?;
        Ok(config)
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let rule = |ok: bool, field, value: &dyn ToString, rule| match ok {
            true => Ok(()),
            false => Err(ConfigError::Field { field, value: value.to_string(), rule }),
        };
        let (a, d, s) = (&self.array, &self.dram, &self.scratchpad);
        rule(self.clock_mhz.is_finite() && self.clock_mhz > 0.0, "clock_mhz", &self.clock_mhz, "must be positive")?;
        rule((1..=256).contains(&a.rows), "array.rows", &a.rows, "must lie in 1..=256")?;
        rule((1..=256).contains(&a.cols), "array.cols", &a.cols, "must lie in 1..=256")?;
        let depth = "must lie in 2..=65536: the output FIFO has as many rows, and one row would halve its rate";
        rule((2..=65_536).contains(&a.depth), "array.depth", &a.depth, depth)?;
        rule((1..=16).contains(&a.mac_stages), "array.mac_stages", &a.mac_stages, "must lie in 1..=16")?;
        rule((1..=16).contains(&a.adder_stages), "array.adder_stages", &a.adder_stages, "must lie in 1..=16")?;
        rule((1..=65_536).contains(&a.port_bytes), "array.port_bytes", &a.port_bytes, "must lie in 1..=65536")?;
        let widths = "must be 8, 16, 32 or 64: it is the width of the memory port";
        rule([8, 16, 32, 64].contains(&d.bytes_per_cycle), "dram.bytes_per_cycle", &d.bytes_per_cycle, widths)?;
        let latency = "must lie in 1..=100000 cycles";
        let latencies = [
            ("dram.hit_latency", d.hit_latency),
            ("dram.miss_latency", d.miss_latency),
            ("dram.write_latency", d.write_latency),
        ];
        for (field, value) in latencies {
            rule((1..=100_000).contains(&value), field, &value, latency)?;
        }
        rule(
            d.row_bytes.is_power_of_two() && (64..=1 << 20).contains(&d.row_bytes),
            "dram.row_bytes",
            &d.row_bytes,
            "must be a power of two, 64..=1048576",
        )?;
        rule(
            d.banks.is_power_of_two() && d.banks <= 1024,
            "dram.banks",
            &d.banks,
            "must be a power of two up to 1024",
        )?;
        rule((1 << 16..=1 << 40).contains(&d.bytes), "dram.bytes", &d.bytes, "must lie in 65536..=2^40")?;
        rule(
            (1..=1024).contains(&d.reads_in_flight),
            "dram.reads_in_flight",
            &d.reads_in_flight,
            "must lie in 1..=1024",
        )?;
        rule((2..=64).contains(&s.banks), "scratchpad.banks", &s.banks, "must lie in 2..=64")?;
        rule(
            s.bytes <= 1 << 30 && s.bytes > 0 && s.bytes.is_multiple_of(64 * s.banks),
            "scratchpad.bytes / scratchpad.banks",
            &format_args!("{} / {}", s.bytes, s.banks),
            "each bank must have a multiple of 64 bytes, all of them 2^30 at most",
        )?;
        rule(
            self.vector_lanes.is_power_of_two() && (8..=64).contains(&self.vector_lanes),
            "vector_lanes",
            &self.vector_lanes,
            "must be 8, 16, 32 or 64",
        )?;
        let codec = &self.codec;
        rule((1..=64).contains(&codec.decoders), "codec.decoders", &codec.decoders, "must lie in 1..=64")?;
        rule([8, 16].contains(&codec.values), "codec.values", &codec.values, "must be 8 or 16")?;
        rule((1..=1024).contains(&self.queue_depth), "queue_depth", &self.queue_depth, "must lie in 1..=1024")
    }

    /// Bytes of a scratchpad bank.
    pub fn bank_bytes(&self) -> u32 {
        self.scratchpad.bytes / self.scratchpad.banks
    }
}
