//! GEMM on any array: shapes, extremes, stalls, the hazard window, reset, overflow and refusals.

use super::{
    CONTEXT,
    driver::{self, Finished, Operands, Rates},
    formats::{self, Draw},
};
use crate::verify::Case;
use mvp::{Array, Beat, Config, GemmError, Job, Mesh, Processor, ProcessorIn, SystolicArray, gemm, gemm_cycles};
use rand::RngExt;
use rtl::{Image, Layout, Module, Stream};

/// Arrays of the directed shapes: every kind of the plan's `array` bins.
const ARRAYS: [(usize, usize); 6] = [(1, 1), (4, 4), (2, 7), (7, 2), (16, 16), (64, 64)];
/// A dimension against the array's side: names of the plan's bins.
const SIZES: [&str; 5] = ["one", "below", "at", "above", "far"];
/// The directed shapes: M, N, K each in five classes, on each array.
pub(super) const SHAPES: usize = ARRAYS.len() * 125;
/// Extremes: pairs of operand values, on two arrays.
pub(super) const EXTREMES: usize = 2 * PAIRS.len();
/// M around max(C, A) on square, wide and tall arrays.
pub(super) const HAZARDS: usize = 4 * 4;
/// Sums that stay just inside 32 bits and that leave them, upwards and downwards.
pub(super) const OVERFLOWS: usize = 4;

/// Operands whose products are the largest of each sign.
const PAIRS: [(i8, i8); 4] = [(-128, -128), (-128, 127), (127, -128), (127, 127)];

/// A size of the given class for an array of `side`; a class that does not exist there gives its neighbour.
fn size(class: &str, side: usize, rng: &mut impl RngExt) -> usize {
    match class {
        "one" => 1,
        "below" => side.saturating_sub(1).max(1),
        "at" => side,
        "above" => side + 1,
        _ => 3 * side + rng.random_range(0..side + 3),
    }
}

/// The class that a size really has.
fn class(size: usize, side: usize) -> &'static str {
    match size {
        1 => "one",
        s if s < side => "below",
        s if s == side => "at",
        s if s == side + 1 => "above",
        _ => "far",
    }
}

fn array_class(config: Config) -> &'static str {
    match (config.rows, config.cols) {
        (1, 1) => "1x1",
        (r, c) if r.max(c) >= 64 => "large",
        (r, c) if r < c => "wide",
        (r, c) if r > c => "tall",
        _ => "square",
    }
}

/// Operands that reach the corners of INT8 often.
fn operand(n: usize, rng: &mut impl RngExt) -> Vec<i8> {
    let corners = [-128, -127, -1, 0, 1, 127];
    (0..n).map(|_| if rng.random_bool(0.3) { corners[rng.random_range(0..6)] } else { rng.random() }).collect()
}

fn run<A: SystolicArray>(
    case: &mut Case,
    config: Config,
    job: Job,
    x: &[i8],
    w: &[i8],
    rates: Rates,
) -> anyhow::Result<Finished> {
    let mut processor = Processor::<A>::new(config);
    let mut probe = case.probe("mvp", CONTEXT)?;
    let finished = driver::run(&mut processor, job, &Operands::int8(x, w), rates, &mut case.rng, &mut probe);
    probe.finish()?;
    finished
}

/// Golden's integer product, which takes W by output channel.
fn reference(job: Job, x: &[i8], w: &[i8]) -> anyhow::Result<Vec<i32>> {
    let transposed: Vec<i8> = (0..w.len()).map(|i| w[i % job.k * job.n + i / job.k]).collect();
    Ok(golden::matmul_nt_i8_wrapping(x, &transposed, job.m, job.k, job.n)?)
}

/// Both engines and golden's integer product must agree; the clocked one must keep its closed form when nothing stalls.
fn check(case: &mut Case, config: Config, job: Job, x: &[i8], w: &[i8], rates: Rates) -> anyhow::Result<Finished> {
    let run = run::<Array>(case, config, job, x, w, rates)?;
    let expected = reference(job, x, w)?;
    if !case.equal_slices("Y", &expected, &run.y)
        && let Some(first) = expected.iter().zip(&run.y).position(|(e, g)| e != g)
    {
        case.mismatch_at(run.cycle_of[first]);
    }
    driver::check_sides(case, config, job, &Operands::int8(x, w), &run);
    let transaction = gemm(config, job, x, w)?;
    case.equal_slices("Y of the transaction engine", &run.y, &transaction.y);
    case.equal("overflow", transaction.overflow, run.overflow);
    let c = run.counters;
    case.equal("cycles of the transaction engine", transaction.cycles, c.unstalled());
    driver::check_edges(case, config, job, rates, c);
    case.cycles(c.cycles);
    Ok(run)
}

/// Every class of M, N and K on every kind of array, with and without stalls.
pub(super) fn shapes(case: &mut Case) -> anyhow::Result<()> {
    let (config, job) = match case.random {
        None => {
            let (rows, cols) = ARRAYS[case.index / 125];
            let config = Config::new(rows, cols)?;
            let [m, n, k] = [case.index / 25 % 5, case.index / 5 % 5, case.index % 5].map(|i| SIZES[i]);
            let rng = &mut case.rng;
            (config, Job { m: size(m, cols, rng), n: size(n, cols, rng), k: size(k, rows, rng) })
        }
        Some(_) => {
            let rng = &mut case.rng;
            let mut side = || if rng.random_bool(0.02) { rng.random_range(100..=256) } else { rng.random_range(1..20) };
            let config = Config { rows: side(), cols: side(), ..Config::default() };
            let depth = if rng.random_bool(0.5) { rng.random_range(2..40) } else { 1024 };
            let job = Job { m: rng.random_range(1..70), n: rng.random_range(1..70), k: rng.random_range(1..70) };
            (Config { depth, ..config }.checked()?, job)
        }
    };
    let stall = ["none", "x", "w", "y", "all"][case.rng.random_range(0..5)];
    let slow = case.rng.random_range(0.1..0.9);
    let rate = |port: &str| if stall == port || stall == "all" { slow } else { 1.0 };
    let rates = Rates { x: rate("x"), w: rate("w"), y: rate("y") };
    let (x, w) = (operand(job.m * job.k, &mut case.rng), operand(job.k * job.n, &mut case.rng));
    check(case, config, job, &x, &w, rates)?;
    let classes = [
        ("array", array_class(config)),
        ("m", class(job.m, config.cols)),
        ("n", class(job.n, config.cols)),
        ("k", class(job.k, config.rows)),
        ("blocks", if job.m > config.depth { "many" } else { "one" }),
        ("stall", stall),
    ];
    case.cover("gemm", &classes);
    Ok(())
}

/// All operands at the ends of INT8 with K = 4,096: the largest sums of each sign, exactly.
pub(super) fn extremes(case: &mut Case) -> anyhow::Result<()> {
    let (a, b) = PAIRS[case.index % PAIRS.len()];
    let side = [16, 5][case.index / PAIRS.len()];
    let job = Job { m: 17, n: 18, k: 4096 };
    case.label(format!("{a} x {b}, K = 4096, {side}x{side}"));
    let (x, w) = (vec![a; job.m * job.k], vec![b; job.k * job.n]);
    let run = check(case, Config::new(side, side)?, job, &x, &w, Rates::FULL)?;
    case.equal_slices("the closed form", &vec![4096 * i32::from(a) * i32::from(b); job.m * job.n], &run.y);
    Ok(())
}

/// M at, beside and far below max(C, A), where a load that is early by one edge corrupts the tile before it.
pub(super) fn hazard_window(case: &mut Case) -> anyhow::Result<()> {
    let (rows, cols): (usize, usize) = [(32, 32), (8, 24), (24, 8), (3, 1)][case.index / 4];
    let m = [1, cols.saturating_sub(1).max(1), cols, cols + 1][case.index % 4];
    let job = Job { m, n: 2 * cols + 1, k: 4 * rows };
    case.label(format!("M = {m} on {rows}x{cols}"));
    let (x, w) = (operand(job.m * job.k, &mut case.rng), operand(job.k * job.n, &mut case.rng));
    let config = Config::new(rows, cols)?;
    check(case, config, job, &x, &w, Rates::FULL)?;
    case.cover("hazard", &[("m", ["1", "max-1", "max", "max+1"][case.index % 4])]);
    Ok(())
}

/// The whole processor around the mesh and around the fast array: the same registers after every edge.
pub(super) fn mesh(case: &mut Case) -> anyhow::Result<()> {
    let rng = &mut case.rng;
    let config = Config {
        rows: rng.random_range(1..7),
        cols: rng.random_range(1..7),
        depth: rng.random_range(2..9),
        datapath: formats::datapath(formats::NAMES[case.index % formats::NAMES.len()])?,
        mac_stages: rng.random_range(1..6),
        adder_stages: rng.random_range(1..6),
        group: rng.random_bool(0.3).then_some(8),
    };
    let job = Job { m: rng.random_range(1..20), n: rng.random_range(1..20), k: rng.random_range(1..20) };
    let draw = if rng.random() { Draw::Near } else { Draw::Any };
    let operands = formats::operands(config, job, draw, rng);
    let rates = if case.index.is_multiple_of(2) { Rates::FULL } else { Rates { x: 0.7, w: 0.7, y: 0.6 } };
    let mut images = Vec::new();
    let seed = case.rng.clone();
    let mut keep = Recorder(|image| images.push(image));
    let on_mesh =
        driver::run(&mut Processor::<Mesh>::new(config), job, &operands, rates, &mut seed.clone(), &mut keep)?;
    if case.trace_request().is_some() {
        let mut probe = case.probe("mvp", CONTEXT)?;
        driver::run(&mut Processor::<Mesh>::new(config), job, &operands, rates, &mut seed.clone(), &mut probe)?;
        probe.finish()?;
    }
    case.equal_slices("Y of the mesh", &super::reference::product(config, job, &operands), &on_mesh.y);
    let paths = Layout::of(&mut Processor::<Mesh>::new(config)).paths;
    let mut cycle = 0;
    let mut compare = Recorder(|image: Image| {
        let differences = images.get(cycle).map(|expected: &Image| expected.differences(&image));
        match differences.as_deref() {
            Some([]) => case.agreed(paths.len() as u64),
            Some([first, ..]) => {
                case.differed(format_args!("cycle {cycle}: {}: {first:?}", paths[first.signal].path));
                case.mismatch_at(cycle as u64);
            }
            None => case.differed(format_args!("cycle {cycle}: the fast array still runs")),
        }
        cycle += 1;
    });
    let on_array =
        driver::run(&mut Processor::<Array>::new(config), job, &operands, rates, &mut seed.clone(), &mut compare)?;
    case.equal("cycles", images.len(), cycle);
    case.cycles(cycle as u64);
    case.equal_slices("Y", &on_mesh.y, &on_array.y);
    Ok(())
}

/// A tracer that takes an image of the whole state every cycle.
struct Recorder<F>(F);

impl<F: FnMut(Image)> crate::wave::Tracer for &mut Recorder<F> {
    fn sample<M: Module>(&mut self, _: u64, module: &mut M) -> Result<(), crate::wave::WaveError> {
        (self.0)(Image::of(module));
        Ok(())
    }
}

/// Reset in the middle of a job, twice in a row, then a clean run as if nothing had been.
pub(super) fn reset(case: &mut Case) -> anyhow::Result<()> {
    let config = Config { rows: 4, cols: 5, depth: 16, ..Config::default() };
    let job = Job { m: 9, n: 11, k: 13 };
    let (x, w) = (operand(job.m * job.k, &mut case.rng), operand(job.k * job.n, &mut case.rng));
    let mut processor = Processor::<Array>::new(config);
    let fresh = Image::of(&mut processor);
    for _ in 0..2 {
        let cycles = case.rng.random_range(1..gemm_cycles(config, job));
        let (mut x_junk, mut w_junk) = (Beat::row(config), Beat::column(config));
        x_junk.codes.fill(case.rng.random::<i8>().into());
        w_junk.codes.clone_from(&x_junk.codes);
        for cycle in 0..cycles {
            processor.clock(&ProcessorIn {
                start: (cycle == 0).then_some(job),
                x: Stream::offer(&x_junk),
                w: Stream::offer(&w_junk),
                ready: cycle % 3 == 0,
            });
        }
        processor.reset();
        let out = processor.out();
        case.equal("idle, no results, no flags", (true, false, false), (out.idle, out.y.valid, out.overflow));
    }
    processor.reset();
    let paths = Layout::of(&mut processor).paths;
    // Memories and the data of empty queues survive; everything that steers must be as new.
    for d in fresh.differences(&Image::of(&mut processor)) {
        let path = &paths[d.signal].path;
        let kept = path.starts_with("accumulator.memory.words")
            || path.starts_with("accumulator_side.row_sums.words")
            || path.contains("_skid.")
            || path.starts_with("output.slot_q");
        case.check(kept, format_args!("{path} is not reset: {d:?}"));
    }
    let run = driver::run(&mut processor, job, &Operands::int8(&x, &w), Rates::FULL, &mut case.rng, ())?;
    case.equal_slices("Y after reset", &gemm(config, job, &x, &w)?.y, &run.y);
    case.equal("cycles after reset", gemm_cycles(config, job), run.counters.cycles);
    case.cycles(run.counters.cycles);
    Ok(())
}

/// The sticky overflow flag: sums one step inside 32 bits leave it down, one step outside raise it, and the sum wraps.
pub(super) fn overflow(case: &mut Case) -> anyhow::Result<()> {
    let config = Config::new(256, 1)?;
    // Products of −128·−128 = 2¹⁴: 2¹⁷ of them make 2³¹.
    let (count, product, flag) = [
        (131_071, (-128, -128), false),
        (131_072, (-128, -128), true),
        (132_104, (-128, 127), false),
        (132_105, (-128, 127), true),
    ][case.index];
    let job = Job { m: 1, n: 1, k: count };
    let (x, w) = (vec![product.0; count], vec![product.1; count]);
    let run = check(case, config, job, &x, &w, Rates::FULL)?;
    case.label(format!("{count} products of {} x {}", product.0, product.1));
    case.equal("flag", flag, run.overflow);
    let exact = count as i64 * i64::from(product.0) * i64::from(product.1);
    case.equal("the wrapped sum", exact as i32, run.y[0]);
    case.equal("the exact sum fits", !flag, i32::try_from(exact).is_ok());
    Ok(())
}

/// Shapes that cannot be built or run are refused by name.
pub(super) fn refusals(case: &mut Case) -> anyhow::Result<()> {
    for (rows, cols, depth) in [(0, 4, 1), (4, 0, 1), (257, 4, 1), (4, 257, 1), (4, 4, 0), (4, 4, 65_537)] {
        let refused = Config { rows, cols, depth, ..Config::default() }.checked();
        case.check(refused.is_err(), format_args!("{rows}x{cols}, depth {depth} was accepted"));
    }
    let config = Config::new(4, 4)?;
    for (m, n, k, name) in
        [(0, 1, 1, "M = 0"), (1, 0, 1, "N = 0"), (1, 1, 0, "K = 0"), (1 << 32, 1, 1, "M = 4294967296")]
    {
        let error = gemm(config, Job { m, n, k }, &[], &[]).err().map(|e| e.to_string()).unwrap_or_default();
        case.check(error.starts_with(name), format_args!("{m}x{n}x{k}: `{error}` does not name {name}"));
    }
    let error = gemm(config, Job { m: 2, n: 2, k: 2 }, &[1; 3], &[1; 4]);
    case.check(matches!(error, Err(GemmError::Job(_))), "a short operand was accepted");
    Ok(())
}
