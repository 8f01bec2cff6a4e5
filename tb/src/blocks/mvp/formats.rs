//! Every datapath, with and without group scales, with any pipeline depth: bits against the exact core, cycles against the closed form,
//! values against FP64 within the bound of the order.

use super::driver::{self, Operands, Rates};
use super::{CONTEXT, computed, reference};
use crate::verify::Case;
use mvp::{Array, Code, Config, Datapath, Job, Processor, gemm_cycles};
use numeric::fast::Encoder;
use numeric::{Flags, FloatFormat, Format, Mode};
use rand::{Rng, RngExt};

/// Names of the plan's `format` bins.
pub(super) const NAMES: [&str; 9] = ["int8", "int4", "bf16", "fp16", "e4m3", "e5m2", "ffp8", "ffp8-unsigned", "mixed"];
/// Each format plain and with group scales, M around the hazard window for L = 1, 4 and one more.
pub(super) const DIRECTED: usize = NAMES.len() * 2 * WINDOW.len();
/// Each format on each array with each class of shape.
pub(super) const ARRAYS: usize = NAMES.len() * SIDES.len() * CLASSES.len();
/// Arrays, the smallest and the largest among them: names of the plan's `array` bins.
const SIDES: [(&str, usize, usize); 5] =
    [("1x1", 1, 1), ("tall", 24, 5), ("wide", 5, 24), ("square", 16, 16), ("64x64", 64, 64)];
/// A dimension against the array's side.
const CLASSES: [&str; 4] = ["below", "at", "above", "far"];

/// M against max(C, A).
const WINDOW: [&str; 4] = ["1", "max-1", "max", "max+1"];

/// The datapath of a name.
pub(super) fn datapath(name: &str) -> anyhow::Result<Datapath> {
    Ok(match name {
        "int8" => Datapath::Int8,
        "int4" => Datapath::Int4,
        "ffp8" => Datapath::float(FloatFormat::ffp8(true, 2, 1)?),
        "ffp8-unsigned" => {
            Datapath::Float { act: FloatFormat::ffp8(true, 3, 3)?, weight: FloatFormat::ffp8(false, 3, 2)? }
        }
        "mixed" => Datapath::Float { act: FloatFormat::BF16, weight: FloatFormat::E4M3 },
        name => Datapath::float(name.parse()?),
    })
}

/// What the codes of a case are drawn from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Draw {
    /// Numbers around one.
    Near,
    /// Any code: subnormals, the largest, infinities and NaNs.
    Any,
}

fn code_of(format: FloatFormat, value: f32) -> Code {
    let code = Encoder::new(format, Mode::default_of(format.into())).encode(value, &mut Flags::default());
    if format.width() <= 8 { Code::from(code as u8 as i8) } else { code as Code }
}

fn float_codes(format: FloatFormat, n: usize, draw: Draw, rng: &mut impl Rng) -> Vec<Code> {
    (0..n)
        .map(|_| match draw {
            Draw::Any if format.width() <= 8 => rng.random::<i8>().into(),
            Draw::Any => rng.random(),
            Draw::Near => code_of(format, rng.random_range(-2.0f32..2.0)),
        })
        .collect()
}

/// Operands of a job: integers of full range with many corners, floats as drawn; scales where the configuration has groups.
pub(super) fn operands(config: Config, job: Job, draw: Draw, rng: &mut impl Rng) -> Operands {
    let ints = |n: usize, low: i8, high: i8, rng: &mut dyn FnMut() -> (bool, i8)| -> Vec<Code> {
        (0..n)
            .map(|i| match rng() {
                (true, _) => if i % 2 == 0 { low } else { high }.into(),
                (false, v) => i16::from(v).rem_euclid(i16::from(high) - i16::from(low) + 1) + i16::from(low),
            })
            .collect()
    };
    let mut int = || (rng.random_bool(0.2), rng.random::<i8>());
    let (x, w) = match config.datapath {
        Datapath::Int8 => (ints(job.m * job.k, -128, 127, &mut int), ints(job.k * job.n, -128, 127, &mut int)),
        Datapath::Int4 => (ints(job.m * job.k, -128, 127, &mut int), ints(job.k * job.n, -8, 7, &mut int)),
        Datapath::Float { act, weight } => {
            (float_codes(act, job.m * job.k, draw, rng), float_codes(weight, job.k * job.n, draw, rng))
        }
    };
    let mut operands = Operands { x, w, ..Operands::default() };
    if let Some(g) = config.group {
        let groups = job.k.div_ceil(g);
        let mut scales = |n: usize, low: f32| -> Vec<f32> { (0..n).map(|_| rng.random_range(low..2.0)).collect() };
        operands.x_scales = scales(job.m * groups, 0.01);
        operands.w_scales = scales(groups * job.n, 0.01);
        operands.w_minima = scales(groups * job.n, -2.0);
    }
    operands
}

/// The FP64 value of a code, from the format's definition.
fn value(format: FloatFormat, code: Code) -> f64 {
    let bits = numeric::convert(
        Format::Float(format),
        FloatFormat::FP32.into(),
        code as u32,
        Mode::IEEE,
        &mut Flags::default(),
    );
    f64::from(f32::from_bits(bits))
}

/// Holds plain float sums against FP64: K fused multiply-adds and the additions between tiles each round once, so
/// |error| ≤ ((1 + u)^(K + tiles) − 1)·Σ|x·w| + (K + tiles)·2⁻¹⁵⁰, u = 2⁻²⁴.
fn against_f64(case: &mut Case, config: Config, job: Job, operands: &Operands, y: &[i32]) {
    let Datapath::Float { act, weight } = config.datapath else { return };
    let roundings = (job.k + config.k_tiles(job.k)) as i32;
    let growth = (1.0 + 2f64.powi(-24)).powi(roundings) - 1.0;
    for (i, &got) in y.iter().enumerate() {
        let (m, n) = (i / job.n, i % job.n);
        let products =
            (0..job.k).map(|k| value(act, operands.x[m * job.k + k]) * value(weight, operands.w[k * job.n + n]));
        let (exact, size) = products.fold((0.0, 0.0), |(sum, size), p: f64| (sum + p, size + p.abs()));
        let error = (f64::from(f32::from_bits(got as u32)) - exact).abs();
        // FP64's own sum errs by at most K·2⁻⁵³ of the same size.
        let own = f64::from(roundings) * (size * 2f64.powi(-53) + 2f64.powi(-150));
        case.within(format_args!("Y[{m}, {n}] against FP64"), error, growth * size + own);
    }
}

/// Every format on arrays from 1×1 to 64×64. The classes of M, N and K go round, so that each meets each array; every value against the
/// transaction engine, and those of the corners and some within against the exact core.
pub(super) fn arrays(case: &mut Case) -> anyhow::Result<()> {
    let index = case.index;
    let (name, (array, rows, cols)) = (NAMES[index % NAMES.len()], SIDES[index / NAMES.len() % SIDES.len()]);
    let round = index / NAMES.len() / SIDES.len();
    let classes = [0, 1, 2].map(|i| CLASSES[(round + i * (1 + index % 3)) % CLASSES.len()]);
    let datapath = datapath(name)?;
    let grouped = index.is_multiple_of(3);
    let stall = ["none", "x", "w", "y", "all"][index % 5];
    let group = grouped.then_some(32);
    let config = Config { rows, cols, datapath, group, ..Config::default() }.checked()?;
    let deep = rows * datapath.steps();
    let mut size = |class: &str, side: usize| match class {
        "below" => (side - 1).max(1),
        "at" => side,
        "above" => side + 1,
        _ => 2 * side + case.rng.random_range(1..=side),
    };
    let job = Job { m: size(classes[0], cols), n: size(classes[1], cols), k: size(classes[2], deep) };
    let rate = |port: &str| if stall == port || stall == "all" { 0.7 } else { 1.0 };
    let rates = Rates { x: rate("x"), w: rate("w"), y: rate("y") };
    case.label(format!("{name} {rows}x{cols} group {group:?} {job:?}"));
    let operands = operands(config, job, Draw::Near, &mut case.rng);
    let run = driver::run(&mut Processor::<Array>::new(config), job, &operands, rates, &mut case.rng, ())?;
    let engine = computed::product(config, job, &operands)?;
    computed::agree(case, &engine, gemm_cycles(config, job), &run.y, run.overflow, run.counters);
    case.equal("multiply-accumulates", (job.m * job.n * job.k) as u64, run.counters.active);
    let mut places = vec![(0, 0), (0, job.n - 1), (job.m - 1, 0), (job.m - 1, job.n - 1)];
    places.extend((0..60).map(|_| (case.rng.random_range(0..job.m), case.rng.random_range(0..job.n))));
    let some: Vec<i32> = places.iter().map(|&(m, n)| run.y[m * job.n + n]).collect();
    let exact: Vec<i32> = places.iter().map(|&(m, n)| reference::element(config, job, &operands, m, n)).collect();
    case.equal_slices("Y by the exact core", &exact, &some);
    case.cycles(run.counters.cycles);
    let [m, n, k] = classes;
    case.cover("arrays", &[("format", name), ("array", array), ("m", m), ("n", n), ("k", k), ("stall", stall)]);
    Ok(())
}

/// Every format, plain and grouped, in and out of the hazard window, stalled and not.
pub(super) fn formats(case: &mut Case) -> anyhow::Result<()> {
    let directed = case.random.is_none();
    let index = case.index;
    let rng = &mut case.rng;
    let (name, grouped, window) = match directed {
        true => (NAMES[index / 8], index / 4 % 2 == 1, Some(WINDOW[index % 4])),
        false => (NAMES[rng.random_range(0..NAMES.len())], rng.random(), None),
    };
    let datapath = datapath(name)?;
    let stages = [1, 4, rng.random_range(2..7)];
    let (l, a) =
        if directed { (stages[index % 3], stages[index / 3 % 3]) } else { (stages[2], rng.random_range(1..7)) };
    let group = grouped.then(|| [1, 5, 8, 32][rng.random_range(0..4)]);
    let (rows, cols) = (rng.random_range(1..12), rng.random_range(1..12));
    let depth = if rng.random_bool(0.3) { rng.random_range(2..20) } else { 1024 };
    let config = Config { rows, cols, depth, datapath, mac_stages: l, adder_stages: a, group }.checked()?;
    let least = cols.max(config.accumulator_latency());
    let m = match window {
        Some("1") => 1,
        Some("max-1") => least.saturating_sub(1).max(1),
        Some("max") => least,
        Some(_) => least + 1,
        None => rng.random_range(1..40),
    };
    let job = Job { m, n: rng.random_range(1..3 * cols + 2), k: rng.random_range(1..60) };
    let draw = if rng.random() { Draw::Near } else { Draw::Any };
    let stall = ["none", "x", "w", "y", "all"][rng.random_range(0..5)];
    let slow = rng.random_range(0.2..0.9);
    let rate = |port: &str| if stall == port || stall == "all" { slow } else { 1.0 };
    let rates = Rates { x: rate("x"), w: rate("w"), y: rate("y") };
    case.label(format!("{name} {rows}x{cols} L={l} A={a} group {group:?} {job:?}"));

    let operands = operands(config, job, draw, &mut case.rng);
    let mut processor = Processor::<Array>::new(config);
    let mut probe = case.probe("mvp", CONTEXT)?;
    let run = driver::run(&mut processor, job, &operands, rates, &mut case.rng, &mut probe);
    probe.finish()?;
    let run = run?;
    let expected = reference::product(config, job, &operands);
    if !case.equal_slices("Y", &expected, &run.y)
        && let Some(first) = expected.iter().zip(&run.y).position(|(e, g)| e != g)
    {
        case.mismatch_at(run.cycle_of[first]);
    }
    driver::check_sides(case, config, job, &operands, &run);
    let c = run.counters;
    let engine = computed::product(config, job, &operands)?;
    computed::agree(case, &engine, engine.cycles, &run.y, run.overflow, c);
    driver::check_edges(case, config, job, rates, c);
    if !grouped && draw == Draw::Near {
        against_f64(case, config, job, &operands, &run.y);
    }
    case.cycles(c.cycles);
    let mode = if grouped { "grouped" } else { "plain" };
    case.cover("formats", &[("format", name), ("mode", mode), ("stall", stall)]);
    if let Some(window) = window {
        let depth = |n: usize| {
            if n == 1 {
                "1"
            } else if n == 4 {
                "4"
            } else {
                "other"
            }
        };
        let (l, a) = (depth(config.mac_latency()), depth(config.accumulator_latency()));
        case.cover("window", &[("m", window), ("l", l), ("a", a)]);
    }
    Ok(())
}
