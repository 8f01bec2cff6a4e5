//! The clocked unit against the transaction engine: bits, edges and flags.

use super::driver::{Bench, Operands, codes, transaction};
use crate::verify::Case;
use numeric::Format;
use rand::RngExt;
use rtl::Module;
use vector::{Algorithm, Command, Config, Function, Masking, Op, Pairing, Ramp, cycles};

/// Cycles written before and after the first cycle of a failing case's trace.
const CONTEXT: u64 = 3_000;
/// Names of the operations in the plan.
const OPS: [&str; 14] = [
    "convert",
    "function",
    "add",
    "multiply",
    "scale",
    "swiglu",
    "rmsnorm",
    "softmax",
    "online",
    "rope_halves",
    "rope_interleaved",
    "argmax",
    "absmax",
    "quantise",
];
const LENGTHS: [&str; 3] = ["below", "at", "above"];
const STALLS: [&str; 2] = ["none", "some"];
const VALUES: [&str; 2] = ["ordinary", "special"];

/// Every class once.
pub(super) const DIRECTED: usize = OPS.len() * LENGTHS.len() * STALLS.len() * VALUES.len();

/// The operation of a name, with random parameters.
fn operation(case: &mut Case, name: &str, len: usize) -> Op {
    let rng = &mut case.rng;
    let ramp = Ramp { first: rng.random_range(0..100), every: rng.random_range(1..4), wrap: rng.random_range(1..6) };
    let mask = match rng.random_range(0..3) {
        0 => Masking::None,
        1 => Masking::Count(Ramp { first: rng.random_range(0..=len), ..ramp }),
        _ => Masking::Stream,
    };
    let scale = rng.random_range(-1.0..2.0);
    let groups: Vec<usize> = [8, 16, 32, 64].into_iter().filter(|g| len.is_multiple_of(*g)).collect();
    let group =
        if groups.is_empty() || rng.random_bool(0.3) { None } else { Some(groups[rng.random_range(0..groups.len())]) };
    match name {
        "convert" => Op::Convert,
        "function" => Op::Function(Function::ALL[rng.random_range(0..7)]),
        "add" => Op::Add,
        "multiply" => Op::Multiply,
        "scale" => Op::Scale { factor: scale },
        "swiglu" => Op::SwiGlu,
        "rmsnorm" => Op::RmsNorm { epsilon: 1e-5 },
        "softmax" => Op::Softmax { algorithm: Algorithm::ThreePass, scale, mask },
        "online" => Op::Softmax { algorithm: Algorithm::Online, scale, mask },
        "rope_halves" => Op::Rope { pairing: Pairing::Halves, positions: ramp },
        "rope_interleaved" => Op::Rope { pairing: Pairing::Interleaved, positions: ramp },
        "argmax" => Op::ArgMax,
        "absmax" => Op::AbsMax { group },
        _ => Op::Quantise { group },
    }
}

pub(super) fn engines(case: &mut Case) -> anyhow::Result<()> {
    let pick = if case.random.is_none() { case.index } else { case.rng.random_range(0..DIRECTED) };
    let name = OPS[pick % OPS.len()];
    let length = LENGTHS[pick / OPS.len() % 3];
    let stalls = STALLS[pick / OPS.len() / 3 % 2];
    let values = VALUES[pick / OPS.len() / 6];
    let lanes = 8usize << case.rng.random_range(0..if case.random.is_none() { 1 } else { 4 });
    let config = Config::new(lanes)?;
    let len = match length {
        "below" => 2 * case.rng.random_range(1..lanes / 2),
        "at" => lanes,
        _ => lanes + 2 * case.rng.random_range(1..2 * lanes),
    };
    let formats = ["fp32", "bf16", "fp16", "int8", "e4m3", "e5m2", "ffp8:1,3,4,5", "int4"];
    let mut format = || -> anyhow::Result<Format> { Ok(formats[case.rng.random_range(0..formats.len())].parse()?) };
    let (a, b, y) = (format()?, format()?, format()?);
    let rows = case.rng.random_range(1..8);
    let op = operation(case, name, len);
    let b = if matches!(op, Op::Rope { .. }) { a } else { b };
    let command = Command { op, len, rows, a, b, y };
    case.label(format!("{name} {rows}x{len} on {lanes} lanes"));
    case.cover("command", &[("op", name), ("len", length), ("stalls", stalls), ("values", values)]);
    compare(case, config, &command, values == "special", stalls == "some")
}

/// One command on both engines.
fn compare(case: &mut Case, config: Config, command: &Command, special: bool, stalled: bool) -> anyhow::Result<()> {
    command.check(&config)?;
    let n = command.len * command.rows;
    let b = if matches!(command.op, Op::RmsNorm { .. }) { command.len } else { n };
    let mut operands =
        Operands { a: codes(&mut case.rng, command.a, n, special)?, b: codes(&mut case.rng, command.b, b, special)? };
    if matches!(command.op, Op::Softmax { mask: Masking::Stream, .. }) {
        for code in &mut operands.b {
            *code *= u32::from(case.rng.random_bool(0.7));
        }
    }
    let half = command.len / 2;
    let frequencies: Vec<f32> = (0..half).map(|i| 1e4f32.powf(-(i as f32) / half as f32)).collect();
    let mut bench = Bench::new(config)?;
    let mut probe = case.probe("vector", CONTEXT)?;
    if matches!(command.op, Op::Rope { .. }) {
        let ran = bench.load(&frequencies, &mut probe)?;
        case.equal(
            "edges of the frequencies' load",
            cycles(&config, &Command::new(Op::LoadFrequencies, half, 1)),
            ran.edges,
        );
    }
    let (want, flags) = transaction(&config, command, &operands, &frequencies)?;
    let seed = stalled.then(|| case.rng.random());
    let ran = bench.traced(command, &operands, seed, &mut probe)?;
    probe.finish()?;
    case.cycles(ran.edges);
    case.equal_slices("codes", &want.codes, &ran.results.codes);
    case.equal_slices("scalars", &want.scalars, &ran.results.scalars);
    case.equal("flags", flags, bench.unit.out().flags);
    let edges = cycles(&config, command);
    if !case.equal("edges less stalls", edges, ran.counters.unstalled()) {
        case.mismatch_at(ran.edges);
    }
    case.equal("busy edges", ran.edges, ran.counters.busy);
    case.check(stalled || ran.edges == edges, "edges beyond the closed form without a stall");
    case.check(ran.broken.is_empty(), ran.broken.join("; "));
    Ok(())
}

/// More rows than a batch takes, and rows as long as the row buffer.
pub(super) fn batches(case: &mut Case) -> anyhow::Result<()> {
    let scale = 0.125;
    let (op, y) = [
        (Op::Softmax { algorithm: Algorithm::Online, scale, mask: Masking::None }, "bf16"),
        (Op::Softmax { algorithm: Algorithm::ThreePass, scale, mask: Masking::None }, "fp32"),
        (Op::Quantise { group: None }, "int8"),
        (Op::RmsNorm { epsilon: 1e-5 }, "fp32"),
    ][case.index];
    for (len, rows) in [(30_000, 3), (vector::MAX_LEN, 1), (65, 130)] {
        let command = Command::new(op, len, rows).into_format(y.parse::<Format>()?);
        compare(case, Config::new(64)?, &command, false, false)?;
    }
    Ok(())
}

/// A reset in the middle of a command, twice, then a clean run.
pub(super) fn reset(case: &mut Case) -> anyhow::Result<()> {
    let config = Config::new(8)?;
    let op = [
        Op::Softmax { algorithm: Algorithm::Online, scale: 1.0, mask: Masking::None },
        Op::RmsNorm { epsilon: 1e-5 },
        Op::SwiGlu,
    ][case.index];
    let command = Command::new(op, 50, 9);
    let n = if matches!(op, Op::RmsNorm { .. }) { 50 } else { 450 };
    let operands =
        Operands { a: codes(&mut case.rng, command.a, 450, false)?, b: codes(&mut case.rng, command.b, n, false)? };
    let (want, _) = transaction(&config, &command, &operands, &[])?;
    let mut bench = Bench::new(config)?;
    let mut probe = case.probe("vector", CONTEXT)?;
    for edges in [40, 150] {
        bench.interrupt(&command, edges, &mut probe)?;
    }
    let ran = bench.traced(&command, &operands, None, &mut probe)?;
    probe.finish()?;
    case.equal_slices("codes after two resets", &want.codes, &ran.results.codes);
    case.equal("edges after two resets", cycles(&config, &command), ran.edges);
    case.check(ran.broken.is_empty(), ran.broken.join("; "));
    Ok(())
}
