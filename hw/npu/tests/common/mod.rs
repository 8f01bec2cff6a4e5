//! A small NPU and what its tests do to it. Every test has a part of it to itself.
#![allow(dead_code)]

pub(crate) mod both;

use npu::dma::{Descriptor, Element, Side};
use npu::isa::{Command, Op};
use npu::nkz::Mode;
use npu::{Config, KvSetup, Npu, SCRATCHPAD_REGION, Scratchpad};

/// 16 banks of 64 KiB, an 8×8 array.
pub(crate) fn config() -> Config {
    let mut config = Config { scratchpad: Scratchpad { bytes: 1 << 20, banks: 16 }, ..Config::default() };
    (config.array.rows, config.array.cols) = (8, 8);
    config
}

/// First byte of a bank.
pub(crate) fn bank(number: u32) -> u32 {
    number << 16
}

/// One sequence, two layers, two heads of 16 channels, stored raw.
pub(crate) fn setup(mode: Mode) -> KvSetup {
    KvSetup {
        sequences: 1,
        layers: 2,
        heads: 2,
        head_dim: 16,
        keys: mode,
        values: mode,
        tables: Vec::new(),
        context: 256,
        pages: 1 << 20,
        frequencies: (0..8).map(|i| 10_000f32.powf(-f32::from(i as u8) / 8.0)).collect(),
        interleaved: false,
    }
}

/// A small NPU.
pub(crate) fn small() -> Npu {
    Npu::new(config(), setup(Mode::Raw)).unwrap()
}

/// A command that waits and signals.
pub(crate) fn command(wait: u32, signal: u32, op: Op) -> Command {
    Command { wait, signal, tag: 0, op }
}

/// Writes a one-piece descriptor at `at` of DRAM.
pub(crate) fn move_bytes(npu: &mut Npu, at: u64, bytes: u32, source: (u8, u64), destination: (u8, u64)) {
    let side = |(region, offset): (u8, u64)| Side { region, offset: offset as i64, strides: [0, 0, 1], index: None };
    let descriptor = Descriptor {
        element: Element::B1,
        counts: [1, 1, bytes],
        source: side(source),
        destination: side(destination),
        ..Descriptor::default()
    };
    npu.memory_mut().dram.write(at, &descriptor.encode()).unwrap();
}

/// Loads `bytes` from DRAM into the scratchpad.
pub(crate) fn load(npu: &mut Npu, at: u64, bytes: u32, from: u64, to: u32) -> Op {
    move_bytes(npu, at, bytes, (0, from), (SCRATCHPAD_REGION, u64::from(to)));
    Op::Dma { chain: at, banks: u64::MAX >> 48 }
}
