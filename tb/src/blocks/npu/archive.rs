//! Programs that once failed, for ever: one file each, under tb/regressions/npu.

use super::programs::compare;
use crate::verify::Case;
use anyhow::Context;
use npu::dma::{Descriptor, Element, Side};
use npu::isa::{COMMAND_BYTES, Command};
use npu::{Config, KvSetup, Npu, SCRATCHPAD_REGION, nkz};
use serde::Deserialize;

const FILES: [(&str, &str); 2] = [
    ("depth-one", include_str!("../../../regressions/npu/depth-one.toml")),
    ("chain-of-a-load", include_str!("../../../regressions/npu/chain-of-a-load.toml")),
];
pub(super) const CASES: usize = FILES.len();

/// A file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Failure {
    /// What went wrong, for the report.
    what: String,
    /// Fields of the configuration that matter.
    config: Config,
    chains: Vec<Chain>,
    /// Programs behind each other; a command is its wire bytes in hexadecimal, without the zeros at its end.
    programs: Vec<Vec<String>>,
}

/// A move of some bytes of DRAM into the scratchpad.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Chain {
    at: u64,
    from: i64,
    to: i64,
    bytes: u32,
}

fn command(hex: &str) -> anyhow::Result<Command> {
    let mut bytes = [0; COMMAND_BYTES];
    for (i, byte) in bytes.iter_mut().enumerate().take(hex.len() / 2) {
        *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16)?;
    }
    Command::decode(&bytes).map_err(|error| anyhow::anyhow!("{error:?}"))
}

/// Both engines carry it out alike, to its end or to the same error.
pub(super) fn archive(case: &mut Case) -> anyhow::Result<()> {
    let (name, text) = FILES[case.index];
    let failure: Failure = toml::from_str(text).with_context(|| format!("tb/regressions/npu/{name}.toml"))?;
    case.label(format!("{name}: {}", failure.what));
    let setup = KvSetup {
        sequences: 1,
        layers: 2,
        heads: 2,
        head_dim: 16,
        keys: nkz::Mode::Raw,
        values: nkz::Mode::Raw,
        tables: Vec::new(),
        context: 256,
        pages: 1 << 20,
        frequencies: (0..8).map(|i| 10f32.powf(-(i as f32) / 2.0)).collect(),
        interleaved: false,
    };
    let mut npu = Npu::new(failure.config, setup)?;
    let memory = npu.memory_mut();
    let pattern: Vec<u8> = (0..1 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 26) as u8).collect();
    memory.dram.write(0, &pattern)?;
    let size = memory.scratch.size();
    memory.scratch.write(0, size)?.fill(0);
    for Chain { at, from, to, bytes } in failure.chains {
        let side = |region, offset| Side { region, offset, strides: [0, 0, 1], index: None };
        let (source, destination) = (side(0, from), side(SCRATCHPAD_REGION, to));
        let job =
            Descriptor { element: Element::B1, counts: [1, 1, bytes], source, destination, ..Descriptor::default() };
        memory.dram.write(at, &job.encode())?;
    }
    let program = |program: &Vec<String>| program.iter().map(|hex| command(hex)).collect::<anyhow::Result<Vec<_>>>();
    let programs = failure.programs.iter().map(program).collect::<anyhow::Result<Vec<_>>>()?;
    compare(case, &mut npu, &programs)
}
