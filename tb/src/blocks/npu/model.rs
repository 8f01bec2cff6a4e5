//! The built-in model on the NPU: against the reference, and against itself.

use crate::formats::{ideal, rounded};
use crate::kv::{Calibration, NkzCache};
use crate::run::{cache, judge};
use crate::verify::Case;
use golden::Tensor;
use golden::kv::KvShape;
use golden::operands::Operands;
use host::{Format, Logits, Options, Session, Source};
use nkz::{Cache, CacheConfig, TOKENS};
use npu::Config;
use rand::{Rng, RngExt};
use std::sync::OnceLock;

/// Formats, and the largest mean divergence that each may have with a cache without loss (nats): about twice what was measured. A lossy
/// cache, which both sides have, makes whole steps of small differences: it may have twice that.
const FORMATS: [(&str, f64); 11] = [
    ("bf16", 1e-4),
    ("int8/channel", 3e-3),
    ("int8/32", 1.5e-3),
    ("e4m3/channel", 2e-2),
    ("e4m3/32", 2e-2),
    ("e5m2/32", 7e-2),
    ("ffp8/channel", 2.5e-3),
    ("ffp8/32", 1.5e-3),
    ("q4_0", 1.2e-1),
    ("q4_1", 1e-1),
    ("q8_0", 1.5e-3),
];

/// How much of the divergence that rounding the operands costs by itself the machine may come to. Two roundings of the same size are
/// as far from each other as from the reference once their steps no longer agree, so the measured ratios scatter around 1: 0.92 to 1.23.
const ADDED: f64 = 1.5;

/// Modes of the cache: the name of the bin, and that of the mode.
const MODES: [(&str, &str); 9] = [
    ("raw", "raw"),
    ("lossless", "lossless"),
    ("near-lossless", "near-lossless"),
    ("standard", "standard"),
    ("low", "low"),
    ("lowest", "lowest"),
    ("fixed", "fixed"),
    ("mean", "mean"),
    ("slot", "slot384"),
];

/// Cases of the matrix.
pub(super) const MATRIX: usize = FORMATS.len() * MODES.len();

/// Tokens of the matrix's text, and positions left out at its start.
const LENGTH: usize = 96;
const SKIP: usize = 16;

fn source() -> anyhow::Result<&'static Source> {
    static SOURCE: OnceLock<Source> = OnceLock::new();
    match SOURCE.get() {
        Some(source) => Ok(source),
        None => {
            let source = Source::builtin()?;
            Ok(SOURCE.get_or_init(|| source))
        }
    }
}

fn ids(source: &Source, count: usize) -> anyhow::Result<Vec<u32>> {
    let text = crate::run::HELD_OUT;
    let ids = source.llm().tokenizer.encode(&text[..16 * count])?;
    anyhow::ensure!(ids.len() >= count, "{} tokens for {count}", ids.len());
    Ok(ids[..count].to_vec())
}

fn session(config: Config, format: &str, mode: &str, change: impl FnOnce(&mut Options)) -> anyhow::Result<Session> {
    let source = source()?;
    let mut options =
        Options { format: format.parse::<Format>()?, cache: cache(mode, source, None)?, ..Options::new(config) };
    change(&mut options);
    Ok(Session::new(source, &options)?)
}

/// The reference's logits with the same cache.
fn reference(source: &Source, mode: &str, ids: &[u32]) -> anyhow::Result<Tensor> {
    let llm = source.llm();
    let shape = KvShape::from(llm.model.config());
    let mode = crate::kv::mode(mode, shape.head_dim)?;
    let config = CacheConfig {
        sequences: 1,
        layers: shape.layers,
        heads: shape.heads,
        head_dim: shape.head_dim,
        keys: mode,
        values: mode,
        pages: 4096,
        overflow: 0,
        tables: Calibration::builtin(shape)?.lines,
    };
    let mut cache = NkzCache::new(shape, Cache::new(config)?);
    Ok(llm.model.forward(ids, &mut cache, &mut (), golden::Logits::All)?)
}

pub(super) fn matrix(case: &mut Case) -> anyhow::Result<()> {
    let (format, bound) = FORMATS[case.index / MODES.len()];
    let (bin, mode) = MODES[case.index % MODES.len()];
    case.label(format!("{format}, {bin}"));
    case.cover("matrix", &[("format", format), ("kv", bin)]);
    let source = source()?;
    let ids = ids(source, LENGTH)?;
    let mut session = session(Config::default(), format, mode, |_| {})?;
    let answer = session.prefill(0, &ids, Logits::All)?;
    case.cycles(answer.cycles);
    let found = judge(&reference(source, mode, &ids)?, &answer.logits, &ids, SKIP)?;
    let lossless = matches!(bin, "raw" | "lossless");
    case.within(format_args!("{format}, {bin}: mean KL"), found.kl, if lossless { bound } else { 2.0 * bound });
    case.check(found.kl > 0.0, "the reference is in f32, the NPU is not");
    if bin == "lossless" {
        if let Some(operands) = ideal(session.format(), source) {
            let alone = rounded(source, &Operands::new(operands, &source.llm().model), &ids)?;
            let cost = judge(&source.llm().logits(&ids)?, &alone, &ids, SKIP)?.kl;
            let apart = judge(&alone, &answer.logits, &ids, SKIP)?.kl;
            case.within(format_args!("{format}: mean KL, beside the operands alone"), found.kl, ADDED * cost);
            case.within(format_args!("{format}: mean KL from the operands alone"), apart, cost);
            case.measure(format!("{}_alone_kl", format.replace('/', "_")), cost);
        }
        case.measure(format!("{}_kl", format.replace('/', "_")), found.kl);
        case.measure(format!("{}_top1", format.replace('/', "_")), found.top1);
    }
    Ok(())
}

/// Logits of a text given to a session piece by piece; pieces of one token are decode steps.
fn pieces(
    case: &mut Case,
    session: &mut Session,
    config: &str,
    ids: &[u32],
    cuts: &[usize],
) -> anyhow::Result<Vec<u32>> {
    let (mut out, mut at) = (Vec::new(), 0);
    for &n in cuts {
        let part = &ids[at..at + n];
        let (answer, pass) = match n {
            1 => (session.decode(&[(0, part[0])])?, "decode"),
            _ => (session.prefill(0, part, Logits::All)?, "prefill"),
        };
        let place = |position: usize| if position.is_multiple_of(TOKENS) { "border" } else { "inside" };
        case.cover("piece", &[("start", place(at)), ("end", place(at + n)), ("pass", pass), ("config", config)]);
        case.cycles(answer.cycles);
        out.extend(answer.logits.data().iter().map(|v| v.to_bits()));
        at += n;
    }
    Ok(out)
}

pub(super) fn cut(case: &mut Case) -> anyhow::Result<()> {
    let (name, format, mode) = match case.random {
        None => (["edge", "default", "big"][case.index], ["bf16", "int8/32", "q4_1"][case.index], "standard"),
        Some(_) => {
            let pick = |case: &mut Case, n: usize| case.rng.random_range(0..n);
            (
                ["edge", "default", "big"][pick(case, 3)],
                FORMATS[pick(case, FORMATS.len())].0,
                MODES[pick(case, MODES.len())].1,
            )
        }
    };
    let config = Config::preset(name).ok_or_else(|| anyhow::anyhow!("no configuration {name}"))?;
    let length = 101;
    let ids = ids(source()?, length)?;
    // One piece; all the ways to begin and end in a tile; then whatever comes.
    let mut cuts = vec![32, 1, 30, 1, 31, 1, 5];
    if case.random.is_some() {
        cuts.clear();
        let mut left = length;
        while left > 0 {
            let n = if case.rng.random::<bool>() { 1 } else { case.rng.random_range(1..=left.min(70)) };
            cuts.push(n);
            left -= n;
        }
    }
    case.label(format!("{name}, {format}, {mode}, {cuts:?}"));
    let chunk = 32 * (1 + case.rng.next_u32() as usize % 4);
    let mut whole = session(config.clone(), format, mode, |_| {})?;
    let mut parts = session(config, format, mode, |options| options.chunk = chunk)?;
    let want = pieces(case, &mut whole, name, &ids, &[length])?;
    let got = pieces(case, &mut parts, name, &ids, &cuts)?;
    case.equal_slices("logits", &want, &got);
    Ok(())
}

pub(super) fn batch(case: &mut Case) -> anyhow::Result<()> {
    const SEQUENCES: usize = 3;
    let ids = ids(source()?, 200)?;
    let format = if case.random.is_none() { "bf16" } else { FORMATS[case.rng.random_range(0..FORMATS.len())].0 };
    let starts: Vec<usize> = (0..SEQUENCES).map(|s| 40 * s).collect();
    let prompts: Vec<usize> = (0..SEQUENCES).map(|s| 29 + s * (1 + case.rng.next_u32() as usize % 20)).collect();
    case.label(format!("{format}, prompts of {prompts:?}"));
    let mut together = session(Config::default(), format, "standard", |options| options.sequences = SEQUENCES)?;
    for (sequence, (&start, &n)) in starts.iter().zip(&prompts).enumerate() {
        together.prefill(sequence, &ids[start..start + n], Logits::Last)?;
    }
    let mut alone: Vec<Session> = Vec::new();
    for (&start, &n) in starts.iter().zip(&prompts) {
        let mut session = session(Config::default(), format, "standard", |_| {})?;
        session.prefill(0, &ids[start..start + n], Logits::Last)?;
        alone.push(session);
    }
    let weights = |session: &Session| session.counters().dram_read.weights;
    for step in 0..6 {
        let tokens: Vec<_> = (0..SEQUENCES).map(|s| (s, ids[starts[s] + prompts[s] + step])).collect();
        let before = [weights(&together), weights(&alone[0])];
        let answer = together.decode(&tokens)?;
        case.cycles(answer.cycles);
        for (row, &(sequence, id)) in tokens.iter().enumerate() {
            let single = alone[sequence].decode(&[(0, id)])?;
            let bits = |row: &[f32]| row.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            case.equal_slices("logits", &bits(single.logits.row(0)), &bits(answer.logits.row(row)));
        }
        case.equal("bytes of weights read", weights(&alone[0]) - before[1], weights(&together) - before[0]);
    }
    Ok(())
}

pub(super) fn timing(case: &mut Case) -> anyhow::Result<()> {
    let mut config = Config::default();
    if case.random.is_some() {
        config.dram.bytes_per_cycle = [8, 16, 32, 64][case.rng.random_range(0..4)];
        config.dram.hit_latency = case.rng.random_range(1..200);
        config.dram.miss_latency = config.dram.hit_latency + case.rng.random_range(0..400);
        config.dram.write_latency = case.rng.random_range(1..300);
        config.dram.reads_in_flight = case.rng.random_range(1..64);
        config.queue_depth = case.rng.random_range(1..6);
        config.array.port_bytes = [16, 64, 512][case.rng.random_range(0..3)];
        config.codec.decoders = case.rng.random_range(1..9);
    } else {
        config.queue_depth = 1;
    }
    case.label(format!("{:?}, queues of {}", config.dram, config.queue_depth));
    let ids = ids(source()?, 70)?;
    let mut logits = Vec::new();
    let mut cycles = Vec::new();
    for config in [Config::default(), config] {
        let mut session = session(config, "int8/32", "lossless", |_| {})?;
        let prompt = session.prefill(0, &ids[..69], Logits::All)?;
        let step = session.decode(&[(0, ids[69])])?;
        let all = prompt.logits.data().iter().chain(step.logits.data());
        logits.push(all.map(|v| v.to_bits()).collect::<Vec<_>>());
        cycles.push(prompt.cycles + step.cycles);
        case.cycles(prompt.cycles + step.cycles);
    }
    case.equal_slices("logits", &logits[0], &logits[1]);
    case.check(cycles[0] != cycles[1], "another machine takes another time");
    Ok(())
}
