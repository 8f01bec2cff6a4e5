//! The matrix-vector mode: bits of GEMM and of the exact core, cycles of the closed form, at the corners of K and N, stalled or not.

use super::{
    CONTEXT, computed,
    driver::{self, Held, Operands, Rates, Source},
    formats::{self, Draw, NAMES},
    reference,
};
use crate::{verify::Case, wave::Tracer};
use anyhow::ensure;
use mvp::{
    Array, Beat, Beats, Config, Counters, Gemv, GemvIn, GemvJob, GemvShape, Job, OutRow, Processor, gemv_cycles,
};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rtl::{Image, Layout, Module, Stream};

/// K against the array: 1, R − 1, R, R + 1, 3·R·C + 5, in values of the datapath's k-steps.
const KS: [&str; 5] = ["1", "R-1", "R", "R+1", "3RC+5"];
/// N against a beat.
const NS: [&str; 5] = ["1", "q-1", "q", "q+1", "1000"];
/// Each format with each K; N, the number of vectors, scales and stalls go round.
pub(super) const DIRECTED: usize = NAMES.len() * KS.len() * NS.len();

/// Each format plain and grouped, reset once or twice.
pub(super) const RESETS: usize = 2 * NAMES.len();

/// What a job did.
pub struct Finished {
    /// v × N, row by row: INT32 or the bits of FP32.
    pub y: Vec<i32>,
    cycle_of: Vec<u64>,
    /// The processor's counters.
    pub counters: Counters,
    /// Σx of each vector.
    pub row_sums: Vec<i32>,
    /// The rows as they came: a beat's q outputs of v vectors each.
    pub rows: Vec<OutRow>,
    /// Its sticky overflow flag.
    pub overflow: bool,
}

/// The chunks in the order in which both operands arrive: panels of D beats, chunks of k.
fn chunks(shape: GemvShape, job: GemvJob) -> Vec<(std::ops::Range<usize>, usize)> {
    let (beats, depth) = (job.n.div_ceil(shape.outputs), shape.config.depth);
    let panel = |p: usize| p * depth..((p + 1) * depth).min(beats);
    let of = |p| (0..shape.config.k_tiles(job.k)).map(move |chunk| (panel(p), chunk));
    (0..beats.div_ceil(depth)).flat_map(of).collect()
}

/// A chunk of each vector.
fn vectors_of(source: Source, v: usize, chunk: usize) -> Beats {
    let mut beats = vec![Beat::row(source.config); v];
    beats.iter_mut().enumerate().for_each(|(u, beat)| source.row(u, chunk, beat));
    Beats(beats)
}

/// The chunks of all vectors in the order in which the processor takes them.
pub(super) fn chunks_of_x(
    shape: GemvShape,
    job: GemvJob,
    operands: &Operands,
    rng: &mut Xoshiro256PlusPlus,
) -> Vec<Beats> {
    let (config, v) = (shape.config, shape.vectors);
    let source = Source { config, job: Job { m: v, n: job.n, k: job.k }, operands, padding: rng.random::<i8>().into() };
    chunks(shape, job).into_iter().map(|(_, chunk)| vectors_of(source, v, chunk)).collect()
}

/// q rows of W; those past N repeat the last, and must not matter.
fn outputs_of(source: Source, q: usize, beat: usize, chunk: usize) -> Beats {
    let mut beats = vec![Beat::column(source.config); q];
    let last = source.job.n - 1;
    beats.iter_mut().enumerate().for_each(|(j, row)| source.column((beat * q + j).min(last), chunk, row));
    Beats(beats)
}

/// Runs one job from start to the last result.
///
/// # Errors
/// A broken handshake, rows that are too many, too few or misplaced, a memory fault, a hang, a waveform that cannot be written.
pub fn run(
    gemv: &mut Gemv,
    job: GemvJob,
    operands: &Operands,
    rates: Rates,
    rng: &mut Xoshiro256PlusPlus,
    mut tracer: impl Tracer,
) -> anyhow::Result<Finished> {
    let shape = gemv.shape();
    let (config, q, v) = (shape.config, shape.outputs, shape.vectors);
    // The product as GEMM has it: v rows of X, N columns of W.
    let source = Source { config, job: Job { m: v, n: job.n, k: job.k }, operands, padding: rng.random::<i8>().into() };
    let order = chunks(shape, job);
    let mut xs = order.iter().map(|&(_, chunk)| vectors_of(source, v, chunk));
    let mut ws = order.iter().flat_map(|(panel, chunk)| panel.clone().map(move |beat| (beat, *chunk)));
    let mut next_w = || {
        let (beat, chunk) = ws.next()?;
        Some(outputs_of(source, q, beat, chunk))
    };
    let (mut x, mut w) = (xs.next(), next_w());
    let nothing = Beats::default();
    let mut done = Finished {
        y: vec![0; v * job.n],
        cycle_of: vec![0; v * job.n],
        counters: Counters::default(),
        row_sums: Vec::new(),
        rows: Vec::new(),
        overflow: false,
    };
    let (mut received, mut held) = (0, Held::<OutRow>::default());
    let slowest = rates.x.min(rates.w).min(rates.y);
    let patience = 1_000 + (gemv_cycles(shape, job) as f64 * 20.0 / slowest) as u64;
    let (mut offer_x, mut offer_w) = (false, false);
    for cycle in 0.. {
        ensure!(cycle < patience, "hang: the job is not done after {patience} cycles");
        tracer.sample(cycle, gemv)?;
        offer_x = x.is_some() && (offer_x || rng.random_bool(rates.x));
        offer_w = w.is_some() && (offer_w || rng.random_bool(rates.w));
        let ready = rng.random_bool(rates.y);
        let out = gemv.out();
        if let Some(fault) = out.fault {
            tracer.breach(&format_args!("accumulator memory: {fault} in cycle {cycle}"))?;
        }
        held.look("row", out.y, ready, cycle, &mut tracer)?;
        if out.y.fires(ready) {
            let first = received * q;
            if first >= job.n {
                tracer.breach(&format_args!("row count: one after the last in cycle {cycle}"))?;
            }
            let outputs = q.min(job.n.saturating_sub(first));
            tracer.output(cycle, &(out.y.data.lanes, out.y.data.end, &out.y.data.values[..outputs * v]));
            if usize::from(out.y.data.lanes) != outputs * v {
                tracer.breach(&format_args!("row lanes: {} in cycle {cycle}", out.y.data.lanes))?;
            }
            received += 1;
            if out.y.data.end != (received * q >= job.n) {
                tracer.breach(&format_args!("row end: the flag stands on the wrong row in cycle {cycle}"))?;
            }
            for (j, u) in (0..outputs).flat_map(|j| (0..v).map(move |u| (j, u))) {
                done.y[u * job.n + first + j] = out.y.data.values[j * v + u];
                done.cycle_of[u * job.n + first + j] = cycle;
            }
            done.rows.push(out.y.data.clone());
        }
        if received * q >= job.n && out.idle {
            if x.is_some() || w.is_some() {
                tracer.breach(&"operands left: the job is done without them")?;
            }
            let row_sums = (!config.datapath.is_float()).then_some(out.row_sums);
            tracer.output(cycle, &(out.counters, row_sums, out.overflow));
            (done.counters, done.row_sums, done.overflow) = (out.counters, out.row_sums.to_vec(), out.overflow);
            tracer.rest(gemv);
            return Ok(done);
        }
        let (x_fires, w_fires) = (offer_x && out.x_ready, offer_w && out.w_ready);
        gemv.clock(&GemvIn {
            start: (cycle == 0).then_some(job),
            x: Stream { valid: offer_x, data: x.as_ref().unwrap_or(&nothing) },
            w: Stream { valid: offer_w, data: w.as_ref().unwrap_or(&nothing) },
            ready,
        });
        if x_fires {
            (x, offer_x) = (xs.next(), false);
        }
        if w_fires {
            (w, offer_w) = (next_w(), false);
        }
    }
    unreachable!("the loop ends by a return")
}

/// The size of a class that has the given name.
fn size(class: &str, unit: usize, far: usize) -> usize {
    match class {
        "1" => 1,
        "R-1" | "q-1" => unit.saturating_sub(1).max(1),
        "R" | "q" => unit,
        "R+1" | "q+1" => unit + 1,
        _ => far,
    }
}

/// Both modes and the exact core on the same operands.
pub(super) fn gemv(case: &mut Case) -> anyhow::Result<()> {
    let (index, directed) = (case.index, case.random.is_none());
    let rng = &mut case.rng;
    let (name, k, n) = match directed {
        true => (NAMES[index / 25], Some(KS[index / 5 % 5]), Some(NS[index % 5])),
        false => (NAMES[rng.random_range(0..NAMES.len())], None, None),
    };
    let datapath = formats::datapath(name)?;
    let (l, a) = ([1, 4, rng.random_range(2..7)][index % 3], [1, 4, rng.random_range(2..7)][index / 3 % 3]);
    let (rows, cols) = (rng.random_range(2..9), rng.random_range(4..9));
    let group = rng.random_bool(0.4).then(|| [1, 5, 8, 32][rng.random_range(0..4)]);
    let depth = if rng.random_bool(0.3) { rng.random_range(2..12) } else { 1024 };
    let config = Config { rows, cols, depth, datapath, mac_stages: l, adder_stages: a, group };
    let vectors = rng.random_range(1..=cols.min(4));
    let outputs = if directed { cols / vectors } else { rng.random_range(1..=cols / vectors) };
    let shape = GemvShape { config, outputs, vectors }.checked()?;
    let deep = rows * datapath.steps();
    let (far_k, far_n) =
        if directed { (3 * deep * cols + 5, 1000) } else { (rng.random_range(1..60), rng.random_range(1..90)) };
    let job = GemvJob { k: size(k.unwrap_or(""), deep, far_k), n: size(n.unwrap_or(""), outputs, far_n) }.checked()?;
    let draw = if rng.random() { Draw::Near } else { Draw::Any };
    let stall = ["none", "x", "w", "y", "all"][rng.random_range(0..5)];
    let slow = rng.random_range(0.2..0.9);
    let rate = |port: &str| if stall == port || stall == "all" { slow } else { 1.0 };
    let rates = Rates { x: rate("x"), w: rate("w"), y: rate("y") };
    case.label(format!("{name} {rows}x{cols} q={outputs} v={vectors} L={l} A={a} D={depth} group {group:?} {job:?}"));

    let product = Job { m: vectors, n: job.n, k: job.k };
    let operands = formats::operands(config, product, draw, &mut case.rng);
    let mut processor = Gemv::new(shape)?;
    let mut probe = case.probe("mvp", CONTEXT)?;
    let run = run(&mut processor, job, &operands, rates, &mut case.rng, &mut probe);
    probe.finish()?;
    let run = run?;
    let expected = reference::product(config, product, &operands);
    if !case.equal_slices("y", &expected, &run.y)
        && let Some(first) = expected.iter().zip(&run.y).position(|(e, g)| e != g)
    {
        case.mismatch_at(run.cycle_of[first]);
    }
    let mut gemm = Processor::<Array>::new(config);
    let gemm = driver::run(&mut gemm, product, &operands, Rates::FULL, &mut case.rng, ())?;
    case.equal_slices("y against GEMM's", &gemm.y, &run.y);
    closed_form(case, shape, job, run.counters);
    let engine = computed::product(config, product, &operands)?;
    computed::agree(case, &engine, gemv_cycles(shape, job), &run.y, run.overflow, run.counters);
    if !datapath.is_float() {
        let sums: Vec<i32> = operands.x.chunks_exact(job.k).map(|x| x.iter().map(|&x| i32::from(x)).sum()).collect();
        case.equal_slices("row sums", &sums, &run.row_sums);
    }
    case.cycles(run.counters.cycles);
    let vectors = if vectors == 1 { "one" } else { "several" };
    let mode = if group.is_some() { "grouped" } else { "plain" };
    case.cover("gemv", &[("format", name), ("mode", mode), ("stall", stall), ("vectors", vectors)]);
    if let (Some(k), Some(n)) = (k, n) {
        case.cover("gemv_shape", &[("k", k), ("n", n)]);
    }
    Ok(())
}

/// The cycles without stalls are `gemv_cycles`, and, where the page's short form holds, that one as well.
fn closed_form(case: &mut Case, shape: GemvShape, job: GemvJob, c: Counters) {
    case.equal("cycles", gemv_cycles(shape, job), c.unstalled());
    let Config { rows, depth, .. } = shape.config;
    let (l, a) = (shape.config.mac_latency(), shape.config.accumulator_latency());
    let beats = job.n.div_ceil(shape.outputs);
    let tiles = shape.config.k_tiles(job.k);
    // Every panel but the last has D beats.
    if depth >= a && (beats - 1) % depth + 1 >= a {
        case.equal("cycles of the short form", (1 + beats * tiles + rows * l + a) as u64, c.unstalled());
    }
    case.equal("edges with a beat or exposed", c.unstalled(), (beats * tiles) as u64 + c.exposed + c.drain);
    case.equal("multiply-accumulates", (shape.vectors * job.n * job.k) as u64, c.active);
}

/// A reset in the middle of a job, or two in a row, leaves a processor whose registers are those of a new one, and that works like one.
pub(super) fn reset(case: &mut Case) -> anyhow::Result<()> {
    let name = NAMES[case.index % NAMES.len()];
    let group = (case.index >= NAMES.len()).then_some(4);
    let config = Config { rows: 3, cols: 4, depth: 4, datapath: formats::datapath(name)?, group, ..Config::default() };
    let shape = GemvShape { config, outputs: 2, vectors: 2 };
    let job = GemvJob { n: 11, k: 13 };
    case.label(format!("{name} group {group:?}"));
    let product = Job { m: 2, n: job.n, k: job.k };
    let operands = formats::operands(config, product, Draw::Near, &mut case.rng);
    let mut processor = Gemv::new(shape)?;
    let fresh = Image::of(&mut processor);
    let source = Source { config, job: product, operands: &operands, padding: 0 };
    let (x, w) = (vectors_of(source, 2, 0), outputs_of(source, 2, 0, 0));
    for cycle in 0..case.rng.random_range(3..60) {
        let [x, w] = [&x, &w].map(Stream::offer);
        processor.clock(&GemvIn { start: (cycle == 0).then_some(job), x, w, ready: cycle % 3 == 0 });
    }
    (0..=case.index % 2).for_each(|_| processor.reset());
    let paths = Layout::of(&mut processor).paths;
    // Memories and the data of empty queues survive; everything that steers must be as new.
    for d in fresh.differences(&Image::of(&mut processor)) {
        let path = &paths[d.signal].path;
        let kept = path.contains(".words") || path.contains("_skid.") || path.starts_with("output.slot_q");
        case.check(kept, format_args!("{path} is not reset: {d:?}"));
    }
    let run = run(&mut processor, job, &operands, Rates::FULL, &mut case.rng, ())?;
    case.equal_slices("y after a reset", &reference::product(config, product, &operands), &run.y);
    closed_form(case, shape, job, run.counters);
    case.cycles(run.counters.cycles);
    Ok(())
}
