//! `magpie vector`: one operation of the vector unit on a user's own rows, its cycles and its bits.

use crate::blocks::vector::driver::{Bench, Operands, Results, transaction};
use crate::cmd::save_npy;
use crate::npy::{Dtype, Npy};
use crate::out;
use crate::verify::grouped;
use crate::wave::{Trace, TraceOptions};
use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use numeric::{FloatFormat, Format};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vector::{Algorithm, Command, Config, Function, Masking, Op, Pairing, Ramp, cycles};

/// Most values of an operand.
const MAX_VALUES: usize = 1 << 26;

/// Runs one operation of the vector unit over rows, on both engines, and compares them.
///
/// Rows are FP32 values from a NumPy file or from a seed; they enter the unit in --format and leave it in --out-format.
/// Exit code 0: done. 1: the engines differed. 2: the command could not be carried out.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
EXAMPLES
  magpie vector softmax --shape 9x4096                     attention weights of a decode step: both engines, cycles
  magpie vector softmax --shape 9x4096 --online --out-format bf16
  magpie vector rmsnorm --a x.npy --b weight.npy --out y.npy
  magpie vector rope --a q.npy --position 17 --base 100000 --pairing interleaved --out y.npy
  magpie vector quantise --a x.npy --group 32 --out-format int8 --out codes.npy --scalars scales.npy
  magpie vector exp --a x.npy --out y.npy --engine transaction
  magpie vector rmsnorm --shape 2x64 --lanes 8 --wave v.vcd   then: gtkwave v.vcd

  python3 -c \"import numpy as n; n.save('x', n.linspace(-9, 9, 4000, dtype='float32').reshape(4, 1000))\"
  magpie vector silu --a x.npy --out y.npy
  python3 -c \"import numpy as n; x, y = n.load('x.npy').astype(float), n.load('y.npy'); print(abs(y - x / (1 + n.exp(-x))).max())\"")]
pub struct Args {
    /// What to do
    #[arg(value_enum)]
    operation: Operation,
    /// The rows (.npy, <f4); of more than one dimension, the last is the row
    #[arg(long, value_name = "FILE")]
    a: Option<PathBuf>,
    /// The second operand (.npy, <f4): as the first, of rmsnorm one row; of softmax a mask, 0 leaves out
    #[arg(long, value_name = "FILE")]
    b: Option<PathBuf>,
    /// Rows and their length, where --a is not given
    #[arg(long, value_name = "ROWSxLEN", conflicts_with = "a")]
    shape: Option<String>,
    /// Seed of operands that no file gives: values of −8..8
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// FP32 lanes: 8, 16, 32 or 64
    #[arg(long, default_value_t = 32)]
    lanes: usize,
    /// Format in which rows enter: fp32 bf16 fp16 e4m3 e5m2 int8 int4 uint8 ffp8:s,e,f,bias …
    #[arg(long, default_value = "fp32", value_name = "FORMAT")]
    format: String,
    /// Format in which results leave [default: fp32; of quantise int8]
    #[arg(long, value_name = "FORMAT")]
    out_format: Option<String>,
    /// Values that share a scale (quantise) or a magnitude (absmax): a power of two from 8 up [default: the row]
    #[arg(long, value_name = "G")]
    group: Option<usize>,
    /// Of rmsnorm [default: 1e-5]
    #[arg(long)]
    epsilon: Option<f32>,
    /// What scores are multiplied by (softmax), or values (scale) [default: 1]
    #[arg(long, allow_negative_numbers = true)]
    factor: Option<f32>,
    /// Two passes over the row instead of three (softmax)
    #[arg(long)]
    online: bool,
    /// Entries that count in row 0 (softmax); one more in each row after it
    #[arg(long, value_name = "N")]
    causal: Option<usize>,
    /// Position of row 0 (rope); one more in each row after it [default: 0]
    #[arg(long)]
    position: Option<usize>,
    /// θ (rope): pair i of d/2 turns by θ^(−2i/d) a position [default: 10000]
    #[arg(long, allow_negative_numbers = true)]
    base: Option<f64>,
    /// Which values turn together (rope): i and i + d/2, or 2i and 2i + 1 [default: halves]
    #[arg(long, value_enum)]
    pairing: Option<Pairs>,
    /// Clock every register, compute directly, or do both and compare
    #[arg(long, value_enum, default_value = "both")]
    engine: Engine,
    /// Write the results (.npy): <f4 of fp32, <f2 of fp16, else codes; of argmax the indices
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write scales, magnitudes or largest values (.npy, <f4)
    #[arg(long, value_name = "FILE")]
    scalars: Option<PathBuf>,
    /// Write a waveform of the clocked run, .vcd or .fst
    #[arg(long, value_name = "FILE")]
    wave: Option<PathBuf>,
    /// Counters as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Operation {
    Convert,
    Exp,
    Reciprocal,
    Rsqrt,
    Sin,
    Cos,
    Sigmoid,
    Silu,
    Add,
    Multiply,
    Scale,
    Swiglu,
    Rmsnorm,
    Softmax,
    Rope,
    Argmax,
    Absmax,
    Quantise,
}

impl Operation {
    /// As the command line has it.
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |v| v.get_name().to_string())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Pairs {
    Halves,
    Interleaved,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Engine {
    Cycle,
    Transaction,
    Both,
}

impl Args {
    fn op(&self) -> Op {
        let mask = match self.causal {
            Some(first) => Masking::Count(Ramp::from(first)),
            None if self.b.is_some() => Masking::Stream,
            None => Masking::None,
        };
        let algorithm = if self.online { Algorithm::Online } else { Algorithm::ThreePass };
        let pairing = match self.pairing {
            Some(Pairs::Interleaved) => Pairing::Interleaved,
            Some(Pairs::Halves) | None => Pairing::Halves,
        };
        let factor = self.factor.unwrap_or(1.0);
        match self.operation {
            Operation::Convert => Op::Convert,
            Operation::Exp => Op::Function(Function::Exp),
            Operation::Reciprocal => Op::Function(Function::Reciprocal),
            Operation::Rsqrt => Op::Function(Function::Rsqrt),
            Operation::Sin => Op::Function(Function::Sin),
            Operation::Cos => Op::Function(Function::Cos),
            Operation::Sigmoid => Op::Function(Function::Sigmoid),
            Operation::Silu => Op::Function(Function::Silu),
            Operation::Add => Op::Add,
            Operation::Multiply => Op::Multiply,
            Operation::Scale => Op::Scale { factor },
            Operation::Swiglu => Op::SwiGlu,
            Operation::Rmsnorm => Op::RmsNorm { epsilon: self.epsilon.unwrap_or(1e-5) },
            Operation::Softmax => Op::Softmax { algorithm, scale: factor, mask },
            Operation::Rope => Op::Rope { pairing, positions: Ramp::from(self.position.unwrap_or(0)) },
            Operation::Argmax => Op::ArgMax,
            Operation::Absmax => Op::AbsMax { group: self.group },
            Operation::Quantise => Op::Quantise { group: self.group },
        }
    }

    /// Refuses options that the operation would not look at, and values that mean nothing.
    fn check(&self) -> anyhow::Result<()> {
        use Operation::{Absmax, Quantise, Rmsnorm, Rope, Scale, Softmax};
        let options: [(&str, bool, &[Operation]); 8] = [
            ("--group", self.group.is_some(), &[Quantise, Absmax]),
            ("--epsilon", self.epsilon.is_some(), &[Rmsnorm]),
            ("--factor", self.factor.is_some(), &[Softmax, Scale]),
            ("--online", self.online, &[Softmax]),
            ("--causal", self.causal.is_some(), &[Softmax]),
            ("--position", self.position.is_some(), &[Rope]),
            ("--base", self.base.is_some(), &[Rope]),
            ("--pairing", self.pairing.is_some(), &[Rope]),
        ];
        for (option, given, operations) in options {
            if given && !operations.contains(&self.operation) {
                let names: Vec<_> = operations.iter().map(|o| o.name()).collect();
                bail!("{option} is of {}: {} does not look at it", names.join(" and "), self.operation.name());
            }
        }
        if let Some(base) = self.base.filter(|base| !(base.is_finite() && *base > 0.0)) {
            bail!("--base {base}: must be a finite number above 0");
        }
        if let Some(epsilon) = self.epsilon.filter(|epsilon| !(epsilon.is_finite() && *epsilon >= 0.0)) {
            bail!("--epsilon {epsilon}: must be a finite number, 0 at least");
        }
        if self.wave.is_some() && self.engine == Engine::Transaction {
            bail!("--wave shows the clocked run: take --engine cycle or both");
        }
        Ok(())
    }

    /// Rows and length.
    fn shape(&self) -> anyhow::Result<(usize, usize)> {
        let text = self.shape.as_deref().context("give the rows by --a FILE, or their shape by --shape ROWSxLEN")?;
        let parsed = text.split_once('x').and_then(|(r, l)| Some((r.parse().ok()?, l.parse().ok()?)));
        parsed.with_context(|| format!("--shape {text}: rows and their length, such as 9x4096"))
    }

    /// Codes of an operand in the unit's format.
    fn codes(&self, values: &[f32], format: Format) -> anyhow::Result<Vec<u32>> {
        let mut codes = vec![0u32; values.len()];
        vector::transaction::encode(format, values, &mut codes, &mut numeric::Flags::default())?;
        codes.iter_mut().for_each(|code| *code &= format.code_mask());
        Ok(codes)
    }
}

/// FP32 values of a file, and their shape.
fn load(option: &str, path: &Path) -> anyhow::Result<(Vec<usize>, Vec<f32>)> {
    let context = || format!("--{option} {}", path.display());
    let npy = Npy::read(path).with_context(context)?;
    npy.expect_type(&[Dtype::F32], "<f4").with_context(context)?;
    let values = npy.words(f32::from_le_bytes);
    Ok((npy.shape, values))
}

/// Runs the command.
///
/// # Errors
/// Files that cannot be read or do not fit, and what the unit would refuse.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.check()?;
    let config = Config::new(args.lanes)?;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(args.seed);
    let mut random = |n: usize| -> Vec<f32> { (0..n).map(|_| rng.random_range(-8f32..8.0)).collect() };
    let (shape, x) = match &args.a {
        Some(path) => load("a", path)?,
        None => {
            let (rows, len) = args.shape()?;
            let n = rows.checked_mul(len).filter(|n| *n <= MAX_VALUES);
            let n = n.with_context(|| format!("{rows} rows of {len} values: at most {MAX_VALUES} values"))?;
            (vec![rows, len], random(n))
        }
    };
    let len = shape.last().copied().unwrap_or(1);
    let rows = x.len() / len.max(1);
    let a: Format = args.format.parse()?;
    let default = if args.operation == Operation::Quantise { "int8" } else { "fp32" };
    let y: Format = args.out_format.as_deref().unwrap_or(default).parse()?;
    let command = Command { op: args.op(), len, rows, a, b: a, y };
    command.check(&config)?;
    let wants_b = command.reads_b() && args.operation != Operation::Rope;
    if args.b.is_some() && !wants_b {
        bail!("--b: {} has one operand", command.op.name().to_lowercase());
    }
    let second_len = if args.operation == Operation::Rmsnorm { len } else { x.len() };
    let second = match &args.b {
        Some(path) => {
            let (shape, values) = load("b", path)?;
            ensure!(values.len() == second_len, "--b has shape {shape:?}, but {second_len} values are needed");
            values
        }
        None if wants_b => random(second_len),
        None => Vec::new(),
    };
    let operands = Operands { a: args.codes(&x, a)?, b: args.codes(&second, a)? };
    let half = len / 2;
    let frequencies: Vec<f32> = match args.operation {
        Operation::Rope => {
            let base = args.base.unwrap_or(10_000.0);
            (0..half).map(|i| base.powf(-(i as f64) / half as f64) as f32).collect()
        }
        _ => Vec::new(),
    };

    for (option, path) in [("--out", &args.out), ("--scalars", &args.scalars)] {
        path.iter().try_for_each(|path| out::probe_file(option, path))?;
    }
    let files = [("--out", &args.out), ("--scalars", &args.scalars), ("--wave", &args.wave)];
    out::distinct(files.map(|(option, path)| (option, path.as_deref())))?;
    let clocked = if args.engine == Engine::Transaction {
        None
    } else {
        Some(clock(args, config, &command, &operands, &frequencies)?)
    };
    let direct = match args.engine {
        Engine::Cycle => None,
        _ => Some(transaction(&config, &command, &operands, &frequencies)?),
    };
    let closed = cycles(&config, &command);
    let differ = match (&clocked, &direct) {
        (Some((got, edges)), Some((want, _))) => got != want || *edges != closed,
        _ => false,
    };
    let results = clocked.map(|(results, _)| results).or(direct.map(|(results, _)| results)).unwrap_or_default();
    write(args, &shape, &command, &results)?;
    report(args, &command, &config, closed, differ);
    Ok(if differ { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The clocked run: its results and its edges.
fn clock(
    args: &Args,
    config: Config,
    command: &Command,
    operands: &Operands,
    frequencies: &[f32],
) -> anyhow::Result<(Results, u64)> {
    let mut bench = Bench::new(config)?;
    if !frequencies.is_empty() {
        bench.load(frequencies, &mut ())?;
    }
    let mut trace = match &args.wave {
        Some(path) => Some(Trace::create(path, "vector", &TraceOptions::default())?),
        None => None,
    };
    let ran = bench.traced(command, operands, None, &mut trace)?;
    if let Some(trace) = trace {
        trace.finish()?;
    }
    ensure!(ran.broken.is_empty(), "{}", ran.broken.join("; "));
    Ok((ran.results, ran.edges))
}

fn write(args: &Args, shape: &[usize], command: &Command, results: &Results) -> anyhow::Result<()> {
    let words = |codes: &[u32]| codes.iter().flat_map(|c| c.to_le_bytes()).collect::<Vec<u8>>();
    if let Some(path) = &args.out {
        let codes = &results.codes;
        let npy = match command.y {
            _ if command.op == Op::ArgMax => Npy { dtype: Dtype::I32, shape: vec![codes.len()], data: words(codes) },
            Format::Float(FloatFormat::FP32) => Npy { dtype: Dtype::F32, shape: shape.to_vec(), data: words(codes) },
            Format::Int(i) if i.width() == 32 => Npy { dtype: Dtype::I32, shape: shape.to_vec(), data: words(codes) },
            y if y.width() == 16 => {
                let dtype = if y == Format::Float(FloatFormat::FP16) { Dtype::F16 } else { Dtype::U16 };
                let data = codes.iter().flat_map(|c| (*c as u16).to_le_bytes()).collect();
                Npy { dtype, shape: shape.to_vec(), data }
            }
            Format::Int(i) if i.signed() => {
                let data = codes.iter().map(|c| i.value(*c) as u8).collect();
                Npy { dtype: Dtype::I8, shape: shape.to_vec(), data }
            }
            _ => Npy { dtype: Dtype::U8, shape: shape.to_vec(), data: codes.iter().map(|c| *c as u8).collect() },
        };
        ensure!(!codes.is_empty(), "--out: {} gives scalars only (--scalars FILE)", command.op.name().to_lowercase());
        save_npy("--out", path, &npy)?;
    }
    if let Some(path) = &args.scalars {
        ensure!(!results.scalars.is_empty(), "--scalars: {} gives none", command.op.name().to_lowercase());
        let shape = vec![command.rows, results.scalars.len() / command.rows];
        save_npy("--scalars", path, &Npy { dtype: Dtype::F32, shape, data: words(&results.scalars) })?;
    }
    Ok(())
}

fn report(args: &Args, command: &Command, config: &Config, closed: u64, differ: bool) {
    let (rows, len) = (command.rows, command.len);
    let values = (rows * len) as f64;
    let name = args.operation.name();
    let engines = match args.engine {
        Engine::Cycle => "cycle engine",
        Engine::Transaction => "transaction engine",
        Engine::Both if differ => "both engines: THEY DIFFER",
        Engine::Both => "both engines: same bits, same cycles",
    };
    if args.json {
        let json = serde_json::json!({
            "operation": name, "rows": rows, "len": len, "lanes": config.lanes, "cycles": closed,
            "values_per_cycle": values / closed as f64, "engines_agree": (args.engine == Engine::Both).then_some(!differ),
        });
        outln!("{json:#}");
    } else {
        outln!("{name} of {rows} x {len}, {} lanes, {} -> {}", config.lanes, command.a, command.y);
        outln!("  {engines}");
        outln!("  cycles            {}", grouped(closed));
        outln!("  values a cycle    {:.2} of {}", values / closed as f64, config.lanes);
    }
}
