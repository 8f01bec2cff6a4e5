//! The whole NPU: memory, queues and engines; docs/npu.md describes it.

pub mod clocked;
mod config;
mod counters;
pub mod csr;
mod exec;
mod fault;
pub mod isa;
mod kv;
mod memory;
mod npu;
pub mod resources;

pub use config::{Array, Codec, Config, ConfigError, Dram, PRESETS, Scratchpad};
pub use counters::{ByKind, Counters, EngineCounters};
pub use exec::{
    ACTIVATIONS, CONTROL_REGION, DRAM_REGION, KV, OpenRows, SCRATCHPAD_REGION, WEIGHTS, peak_macs, port, regions,
};
pub use fault::{Fault, RunError, SetupError};
pub use kv::{Kv, KvSetup};
pub use memory::{CONTROL_BASE, DramBytes, Memory, SCRATCHPAD_BASE, Scratch};
pub use npu::{Caught, Npu, Report, Span, Waits};

pub(crate) use counters::Work;

// What the host needs to describe its commands with.
pub use ::{dma, mvp, nkz, numeric, vector};
