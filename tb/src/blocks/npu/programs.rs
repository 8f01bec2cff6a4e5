//! Small programs in which all engines work side by side, on both engines: every start, end, bit and count.

use crate::verify::Case;
use crate::wave::Tracer;
use npu::clocked::{self, Session};
use npu::dma::{Descriptor, Element, IndexList, Side};
use npu::isa::{
    Block, Codes, Command, Engine, Matmul, Mode, Op, Operands, RowOp, Rows, Stream, TOKENS, Tokens, Vector,
};
use npu::nkz::{self, Channel};
use npu::{Config, Counters, KvSetup, Npu, Report, RunError, SCRATCHPAD_REGION};
use numeric::FloatFormat;
use rand::RngExt;

/// Every class of the plan's group `program` once.
pub(super) const DIRECTED: usize = 11;
/// Cycles written before and after the first cycle of a failing case's trace.
const CONTEXT: u64 = 3_000;
/// Cycles without a start or an end after which the machine hangs.
const PATIENCE: u64 = 200_000;
/// Bytes of DRAM that count as output: data, chains, results and the first pages.
const SHOWN: u64 = PAGES + 8192;
/// Bytes of a bank.
const BANK: u32 = 4096;
// Where chains and indices lie in DRAM, where results go, and where the pages begin.
const CHAINS: u64 = 0x8000;
const INDICES: u64 = 0x9000;
const RESULTS: u64 = 0xa000;
const PAGES: u64 = 0x1_0000;

const OPERANDS: [(&str, Operands); 11] = [
    ("bf16", Operands::Float(FloatFormat::BF16)),
    ("fp16", Operands::Float(FloatFormat::FP16)),
    ("e4m3", Operands::Float(FloatFormat::E4M3)),
    ("int8/channel", Operands::PerChannel(None)),
    ("e5m2/channel", Operands::PerChannel(Some(FloatFormat::E5M2))),
    ("int8/32", Operands::PerGroup { format: None, group: 32 }),
    ("int8/3", Operands::PerGroup { format: None, group: 3 }),
    ("e4m3/16", Operands::PerGroup { format: Some(FloatFormat::E4M3), group: 16 }),
    ("q4_0", Operands::Stored(Block::Q40)),
    ("q4_1", Operands::Stored(Block::Q41)),
    ("q8_0", Operands::Stored(Block::Q80)),
];
const ROW_OPS: [&str; 10] =
    ["rmsnorm", "int8", "e4m3", "softmax", "rope", "swiglu", "add", "to_bf16", "to_fp32", "argmax"];
const CACHES: [(&str, nkz::Mode); 6] = [
    ("raw", nkz::Mode::Raw),
    ("lossless", nkz::Mode::Lossless),
    ("entropy", nkz::Mode::Entropy { qp: 6 }),
    ("fixed", nkz::Mode::Fixed { qp: 3 }),
    ("slot", nkz::Mode::Slot { bytes: 512 }),
    ("mean", nkz::Mode::Mean),
];
const LOADS: [&str; 4] = ["plain", "strided", "gathered", "transposed"];

/// First byte of a bank.
fn bank(number: u32) -> u32 {
    number * BANK
}

/// A small machine of random sizes.
fn machine(case: &mut Case, mode: nkz::Mode) -> (Config, KvSetup) {
    let mut pick = |choices: &[u64]| choices[case.rng.random_range(0..choices.len())];
    let mut config = Config::default();
    let a = &mut config.array;
    (a.rows, a.cols, a.depth) = (pick(&[1, 3, 4, 8]) as usize, pick(&[8, 9, 12]) as usize, pick(&[2, 5, 16]) as usize);
    (a.mac_stages, a.adder_stages) = (pick(&[1, 4]) as usize, pick(&[1, 3, 4]) as usize);
    a.port_bytes = pick(&[1, 7, 16, 64]) as usize;
    let d = &mut config.dram;
    (d.hit_latency, d.miss_latency, d.write_latency) = (pick(&[1, 12, 40]), pick(&[40, 60]), pick(&[1, 20]));
    (d.bytes_per_cycle, d.reads_in_flight, d.bytes) = (pick(&[8, 16, 64]) as u32, pick(&[1, 4, 16]) as usize, 1 << 20);
    (config.scratchpad.bytes, config.scratchpad.banks) = (16 * BANK, 16);
    (config.codec.decoders, config.codec.values) = (pick(&[1, 2, 3]) as usize, pick(&[8, 16]) as usize);
    (config.vector_lanes, config.queue_depth) = (pick(&[8, 16, 32]) as usize, pick(&[1, 2, 5]) as usize);
    let head_dim = pick(&[8, 16]) as usize;
    let line = |i: usize| Channel {
        mean: 0x3d00 + i as u16,
        step: (i % 5) as i8 + 20,
        spread: (i % 7) as i8 + 10,
        fixed_step: 30,
        exponent: 124,
        exponent_table: (i % 3) as u8 + 1,
    };
    let setup = KvSetup {
        sequences: 1,
        layers: 1,
        heads: 1,
        head_dim,
        keys: mode,
        values: mode,
        tables: (0..2 * head_dim).map(line).collect(),
        context: 64,
        pages: PAGES,
        frequencies: (0..head_dim / 2).map(|i| 10f32.powf(-(i as f32))).collect(),
        interleaved: pick(&[0, 1]) == 1,
    };
    (config, setup)
}

/// A move between DRAM and a bank; it fills the bank where it is a load.
fn chain(memory: &mut npu::Memory, number: u64, kind: &str, dram: u64, to: u32, store: bool) -> Result<Op, npu::Fault> {
    let side = |region, offset: u64, strides| Side { region, offset: offset as i64, strides, index: None };
    let local = |strides| side(SCRATCHPAD_REGION, u64::from(bank(to)), strides);
    let (element, counts, far, near) = match kind {
        "plain" => (Element::B1, [1, 1, BANK], side(0, dram, [0, 0, 1]), local([0, 0, 1])),
        "strided" => (Element::B1, [1, 16, 256], side(0, dram + 1, [0, 333, 1]), local([0, 256, 1])),
        "gathered" => {
            let index = Some(IndexList { region: 0, offset: INDICES, dimension: 1, bound: 16 });
            (Element::B1, [1, 16, 256], Side { index, ..side(0, dram, [0, 256, 1]) }, local([0, 256, 1]))
        }
        _ => (Element::B2, [1, 32, 64], side(0, dram, [0, 2, 64]), local([0, 128, 2])),
    };
    let (source, destination) = if store { (near, far) } else { (far, near) };
    let at = CHAINS + 256 * number;
    let job = Descriptor { element, counts, source, destination, ..Descriptor::default() };
    memory.dram.write(at, &job.encode())?;
    Ok(Op::Dma { chain: at, banks: 1 << to })
}

fn row_op(case: &mut Case, name: &str, p: &Matmul, head_dim: u32) -> RowOp {
    let (rows, mut len) = (p.m, p.n);
    let second = Rows { base: bank(0), pitch: 256 };
    let group = [0, 8][case.rng.random_range(0..2)];
    let step = case.rng.random_range(0..2);
    let quantize = |codes| Vector::Quantize { codes, group, scales: Rows::packed(bank(4), 64) };
    let op = match name {
        "rmsnorm" => Vector::RmsNorm { weight: second.base, epsilon: 1e-5f32.to_bits(), bf16: step == 1 },
        "int8" => quantize(Codes::Int8),
        "e4m3" => quantize(Codes::Float(FloatFormat::E4M3)),
        "softmax" => Vector::Softmax { scale: 0.7f32.to_bits(), visible: case.rng.random_range(0..2 * len), step },
        "rope" => Vector::Rope { position: case.rng.random_range(0..100), step },
        "swiglu" => Vector::SwiGlu { up: second },
        "add" => Vector::Add { b: second },
        "to_bf16" => Vector::ToBf16,
        "to_fp32" => Vector::ToFp32,
        _ => Vector::Argmax,
    };
    if let Vector::Quantize { group: 8, .. } = op {
        len = len / 8 * 8;
    }
    if let Vector::Rope { .. } = op {
        len = head_dim;
    }
    RowOp { op, rows, len, x: p.y, y: Rows { base: bank(3), pitch: 256 } }
}

/// Three chains of commands that depend on each other: a product with a row operation behind it, a tile through the cache, raw tokens.
fn program(case: &mut Case, memory: &mut npu::Memory, setup: &KvSetup) -> anyhow::Result<Vec<Command>> {
    let mut of = |n: usize| if case.random.is_none() { case.index % n } else { case.rng.random_range(0..n) };
    let ((format, operands), row, load) = (OPERANDS[of(11)], ROW_OPS[of(10)], LOADS[of(4)]);
    let mode = [Mode::Gemm, Mode::Gemv][of(2)];
    case.cover("program", &[("operands", format), ("row_op", row), ("load", load)]);
    let head_dim = setup.head_dim as u32;
    let k = if matches!(operands, Operands::Stored(_)) { 32 } else { case.rng.random_range(1..=32) };
    let (m, n) = (case.rng.random_range(1..8), 16 + case.rng.random_range(0..8));
    let y = Rows { base: bank(2), pitch: 256 };
    let product = Matmul {
        mode,
        operands,
        m,
        n,
        k,
        x: Rows { base: bank(0), pitch: 128 },
        x_scales: bank(0) + 2048,
        w: Rows { base: bank(1), pitch: if matches!(operands, Operands::Stored(_)) { 1024 } else { 64 } },
        w_scales: bank(1) + 3072,
        y,
        y_bf16: false,
    };
    let row = row_op(case, row, &product, head_dim);
    let stream = Stream { value: case.rng.random(), ..Stream::default() };
    let from = Rows::packed(bank(5), 2 * head_dim);
    let decoded = Tokens { to: Rows::packed(bank(8), 64), transposed: case.rng.random(), rotated: case.rng.random() };
    let raw = Tokens { to: Rows::packed(bank(10), 128), ..decoded };
    let position = case.rng.random_range(0..100);
    let mut chain = |number, kind, dram, to, store| chain(memory, number, kind, dram, to, store);
    let chains = [
        vec![
            chain(0, load, 0, 0, false)?,
            chain(1, "plain", 4096, 1, false)?,
            Op::Matmul(product),
            // What the row operation leaves untouched of the bank that is stored.
            chain(5, "plain", 2048, 3, false)?,
            Op::Vector(row),
            chain(2, "plain", RESULTS, 3, true)?,
        ],
        vec![
            chain(3, "plain", 512, 5, false)?,
            Op::KvEncode { stream, tile: 0, from, to: bank(6) },
            Op::KvStore { stream, tile: 0, from: bank(6) },
            Op::KvLoad { stream, first: 0, tiles: 1, to: bank(7) },
            Op::KvDecode { stream, first: 0, tiles: 1, from: bank(7), tokens: decoded },
        ],
        vec![
            chain(4, "plain", 1024, 9, false)?,
            Op::KvRaw { rows: 20, width: head_dim, position, from: Rows::packed(bank(9), 64), tokens: raw },
        ],
    ];
    // A random merge; each command waits for the one before it in its chain, over a counter of their own.
    let mut next = [0; 3];
    let mut program = Vec::new();
    while let Some(c) =
        Some(case.rng.random_range(0..3)).filter(|_| next.iter().zip(&chains).any(|(n, c)| *n < c.len()))
    {
        let Some(op) = chains[c].get(next[c]) else { continue };
        let token = |n: usize| 1u32 << ((8 * c + n) % TOKENS);
        let wait = if next[c] > 0 { token(next[c] - 1) } else { 0 };
        let signal = if next[c] + 1 < chains[c].len() { token(next[c]) } else { 0 };
        program.push(Command { wait, signal, tag: c as u32, op: *op });
        next[c] += 1;
    }
    Ok(program)
}

/// What both engines count; bytes of the KV path are compared with the index.
fn shared(counters: Counters) -> Counters {
    let Counters { cycles, dispatch_stalls, engines, macs, port_stalls, .. } = counters;
    Counters { cycles, dispatch_stalls, engines, macs, port_stalls, ..Counters::default() }
}

/// Runs the program on the clocked machine, in the sight of `tracer`, whose cycles begin with `first`.
fn clock(
    machine: &mut clocked::Npu,
    program: &[Command],
    first: u64,
    tracer: &mut impl Tracer,
) -> anyhow::Result<Report> {
    let before = *machine.counters();
    let mut session = Session::new(machine, program).with_patience(PATIENCE);
    let mut told = 0;
    loop {
        let cycle = first + session.cycle();
        tracer.sample(cycle, machine)?;
        let goes = session.step(machine)?;
        for span in &session.spans[told..] {
            tracer.output(cycle, &(span.engine, span.command));
        }
        told = session.spans.len();
        if !goes {
            break;
        }
    }
    let report = Report { cycles: session.cycle(), counters: machine.counters().since(&before), spans: session.spans };
    // What the host can read when the doorbell's program has ended.
    let dram = &machine.memory().dram;
    let size = dram.size().min(SHOWN) as usize;
    tracer.output(first + report.cycles, &dram.read(0, size)?);
    tracer.output(first + report.cycles, &(machine.counters(), &report.spans));
    tracer.rest(machine);
    Ok(report)
}

/// Runs programs behind each other on both engines, the transaction engine being given with all that they read in its memories.
pub(super) fn compare(case: &mut Case, transaction: &mut Npu, programs: &[Vec<Command>]) -> anyhow::Result<()> {
    transaction.record(true);
    let mut machine = clocked::Npu::new(transaction.config().clone(), transaction.kv().setup().clone())?;
    machine.memory_mut().clone_from(transaction.memory());
    machine.prepare(&programs.concat())?;
    let mut probe = case.probe("npu", CONTEXT)?;
    let mut first = 0;
    for program in programs {
        let expected = transaction.run(program);
        let found = clock(&mut machine, program, first, &mut probe);
        let (expected, found) = match (expected, found) {
            (Ok(expected), Ok(found)) => (expected, found),
            (Err(expected), Err(found)) => {
                case.equal("error", Some(&expected), found.downcast_ref());
                break;
            }
            (Ok(_), Err(error)) => {
                let deadlock = matches!(error.downcast_ref(), Some(RunError::Deadlock { .. }));
                case.differed(format_args!("{}: {error}", if deadlock { "deadlock" } else { "command refused" }));
                break;
            }
            (Err(error), Ok(_)) => {
                case.differed(format_args!("refused by the transaction engine alone: {error}"));
                break;
            }
        };
        case.cycles(expected.cycles);
        first += found.cycles + 1;
        for engine in Engine::ALL {
            let of = |report: &Report| report.spans.iter().filter(|s| s.engine == engine).copied().collect::<Vec<_>>();
            case.equal_slices("starts and ends", &of(&expected), &of(&found));
        }
        case.equal("cycles", expected.cycles, found.cycles);
        case.equal("counters", shared(expected.counters), shared(found.counters));
        case.equal("memories", None, transaction.memory().difference(machine.memory()));
        case.check(transaction.kv() == machine.kv(), "the KV index differs");
    }
    probe.finish()?;
    Ok(())
}

/// One program on both engines.
pub(super) fn programs(case: &mut Case) -> anyhow::Result<()> {
    let pick = if case.random.is_none() { case.index % 6 } else { case.rng.random_range(0..6) };
    let (cache, mode) = CACHES[pick];
    let (config, setup) = machine(case, mode);
    case.cover("program", &[("kv", cache)]);
    let mut transaction = Npu::new(config, setup.clone())?;
    // BF16 of moderate size, whatever it is read as.
    let noise: Vec<u8> = (0..PAGES / 2)
        .map(|_| 0x3e00 + case.rng.random_range(0..0x200u16) + 0x8000 * case.rng.random_range(0..2))
        .flat_map(u16::to_le_bytes)
        .collect();
    let memory = transaction.memory_mut();
    memory.dram.write(0, &noise)?;
    // The pages' first bytes are there from the start, so that a read of the whole range shows them.
    memory.dram.write(PAGES, &[0; 8192])?;
    let indices: Vec<u8> = (0..16).flat_map(|_| case.rng.random_range(0..16u16).to_le_bytes()).collect();
    memory.dram.write(INDICES, &indices)?;
    let program = program(case, memory, &setup)?;
    case.label(format!("{} commands, {cache}", program.len()));
    compare(case, &mut transaction, &[program])?;
    let stored = transaction.memory().dram.read(RESULTS, BANK as usize)?.unwrap_or_default();
    case.check(stored != &noise[RESULTS as usize..][..BANK as usize], "the program stored nothing");
    Ok(())
}
