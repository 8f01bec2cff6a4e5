//! The output stage behind the processor's sums, held against the definitions that its formulas come from: products of operands less
//! their zero points, and ONNX's rule for quantised results.

use super::{
    CONTEXT,
    driver::{self, Held, Operands, Rates},
    formats::{self, Draw},
    gemv,
};
use crate::{verify::Case, wave::Tracer};
use anyhow::ensure;
use mvp::{
    Activation, Array, Code, Column, Columns, Config, Datapath, Gemv, GemvJob, GemvShape, Job, OutRow, Output,
    OutputJob, OutputStage, OutputStageIn, Processor, ResultRow,
};
use numeric::{Flags, FloatFormat, Format, IntFormat};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rtl::{Module, Stream};

/// What the sums come from: names of the plan's `sums` bins.
const SUMS: [&str; 4] = ["int8", "uint8", "bf16", "grouped"];
/// Formats of Y.
const RESULTS: [&str; 5] = ["int32", "int8", "uint8", "bf16", "fp32"];
const ACTIVATIONS: [&str; 3] = ["none", "relu", "clamp"];
/// Each kind of sum with each format and each activation.
pub(super) const DIRECTED: usize = SUMS.len() * RESULTS.len() * ACTIVATIONS.len();

/// A job with all that the stage takes, and what it must make of it.
struct Work {
    task: OutputJob,
    rows: Vec<OutRow>,
    columns: Vec<Columns>,
    /// The same product in the matrix-vector mode.
    streamed: Streamed,
    expected: Vec<u32>,
    /// A NaN, or a value out of range, is converted to an integer (IEEE 754 §5.8).
    invalid: bool,
}

/// M vectors at once, an output a beat, behind a stage of M columns.
struct Streamed {
    task: OutputJob,
    rows: Vec<OutRow>,
    columns: Vec<Columns>,
}

/// In the matrix-vector mode each row of results is a panel of its own, M columns wide: column u is vector u of an output. What belongs to
/// a vector enters with the columns: −z_w·Σx in the bias, its scale in the scale.
fn streamed(
    config: Config,
    work: (&OutputJob, &Operands, &[Column]),
    rng: &mut Xoshiro256PlusPlus,
) -> anyhow::Result<Streamed> {
    let (task, operands, columns) = work;
    let Job { m, n, k } = task.job;
    let shape = GemvShape { config: Config { cols: m, ..config }, outputs: 1, vectors: m };
    let run = gemv::run(&mut Gemv::new(shape)?, GemvJob { n, k }, operands, Rates::FULL, rng, ())?;
    let per_vector = |column: &Column| -> Vec<Column> {
        (0..m)
            .map(|u| Column {
                bias: column.bias - column.w_zero * run.row_sums.get(u).copied().unwrap_or(0),
                scale: match config.group {
                    Some(_) => column.scale,
                    None => column.scale * operands.x_scales.get(u).copied().unwrap_or(1.0),
                },
                ..*column
            })
            .collect()
    };
    let columns = columns.iter().map(|column| Columns(per_vector(column))).collect();
    let task = OutputJob { job: Job { m: 1, n: n * m, k }, output: task.output };
    Ok(Streamed { task, rows: run.rows, columns })
}

fn result_format(name: &str) -> Format {
    match name {
        "int32" => Format::Int(IntFormat::INT32),
        "int8" => Format::Int(IntFormat::INT8),
        "uint8" => Format::Int(IntFormat::UINT8),
        "bf16" => Format::Float(FloatFormat::BF16),
        _ => Format::Float(FloatFormat::FP32),
    }
}

/// Steps after the sum, as a plain program: each in FP64, which holds every product of two FP32 values exactly and lets a sum of two be
/// rounded twice without harm, and back to FP32.
fn after_sum(sum: f32, output: &Output, row_scale: f32, column: &Column) -> f32 {
    let fp32 = |v: f64| v as f32;
    let mut v = sum;
    if output.rescale {
        let scale = fp32(f64::from(row_scale) * f64::from(column.scale));
        v = fp32(f64::from(v) * f64::from(scale));
    }
    if output.add_offset {
        v = fp32(f64::from(v) + f64::from(column.offset));
    }
    match output.activation {
        _ if v.is_nan() => v,
        Activation::None => v,
        Activation::Relu => {
            if v > 0.0 {
                v
            } else {
                0.0
            }
        }
        Activation::Clamp { low, high } => v.max(low).min(high),
    }
}

/// Least and greatest value of an integer format.
fn range(format: &str) -> Option<(f64, f64)> {
    match format {
        "int8" => Some((-128.0, 127.0)),
        "uint8" => Some((0.0, 255.0)),
        "int32" => Some((f64::from(i32::MIN), f64::from(i32::MAX))),
        _ => None,
    }
}

/// The code of `v` in the low bits: ONNX's rule for integers, saturate(round to even(v) + zero point); the upper half of an FP32,
/// rounded to even, for BF16.
fn code(v: f32, format: &str, y_zero: i32) -> u32 {
    let Some((low, high)) = range(format) else {
        return match (format, v.is_nan()) {
            ("bf16", true) => 0x7fc0,
            ("bf16", false) => (v.to_bits() + 0x7fff + (v.to_bits() >> 16 & 1)) >> 16,
            (_, true) => 0x7fc0_0000,
            (_, false) => v.to_bits(),
        };
    };
    let whole = if v.is_nan() { 0.0 } else { f64::from(v).round_ties_even() };
    let code = (whole + f64::from(y_zero)).clamp(low, high) as i64 as u32;
    if format == "int32" { code } else { code & 0xff }
}

/// −0 and +0 are one value to `max` and `min`; the stage keeps what it was given unless it is less or greater.
fn same_zero(format: &str, code: u32) -> u32 {
    match format {
        "fp32" if code == 0x8000_0000 => 0,
        "bf16" if code == 0x8000 => 0,
        _ => code,
    }
}

/// A job on the clocked processor, and what its output stage must give.
fn work(case: &mut Case, config: Config, sums: &str, format: &str, activation: &str) -> anyhow::Result<Work> {
    let rng = &mut case.rng;
    let job = Job { m: rng.random_range(1..14), n: rng.random_range(1..3 * config.cols), k: rng.random_range(1..40) };
    let draw = if rng.random_bool(0.3) { Draw::Any } else { Draw::Near };
    let mut operands = formats::operands(config, job, draw, rng);
    let integer = matches!(sums, "int8" | "uint8");
    let unsigned = sums == "uint8";
    // UINT8 data are drawn as what they are and enter as x ^ 0x80; all zero points lie in the data's own range.
    let own = |code: &mut Code| {
        if unsigned {
            let value = *code as u8;
            *code = Code::from((value ^ 0x80) as i8);
            i64::from(value)
        } else {
            i64::from(*code)
        }
    };
    let [x, w] = [&mut operands.x, &mut operands.w].map(|codes| codes.iter_mut().map(own).collect::<Vec<i64>>());
    let shift = if unsigned { 128 } else { 0 };
    let mut zero = || if integer { rng.random_range(-128..=127) + shift } else { 0 };
    let x_zero: i32 = zero();
    let w_zeros: Vec<i32> = (0..job.n).map(|_| zero()).collect();
    let per_row = config.group.is_none() && rng.random();
    if per_row {
        operands.x_scales = (0..job.m).map(|_| rng.random_range(0.1..4.0)).collect();
    }
    let rescale = rng.random_bool(0.8) || format == "uint8";
    let y_zero = match format {
        "int8" => rng.random_range(-128..=127),
        "uint8" => rng.random_range(0..=255),
        _ => 0,
    };
    let activation = match activation {
        "none" => Activation::None,
        "relu" => Activation::Relu,
        _ => Activation::Clamp { low: rng.random_range(-20.0..0.5), high: rng.random_range(0.5..40.0) },
    };
    let format_of_y = result_format(format);
    let output =
        Output { x_zero: x_zero - shift, rescale, add_offset: rng.random(), activation, format: format_of_y, y_zero };
    // Powers of two bring ties to the rounding; the spread of exponents reaches saturation.
    let ties = rng.random();
    let columns: Vec<Column> = (0..job.n)
        .map(|n| Column {
            weight_sum: (0..job.k).map(|k| i32::from(operands.w[k * job.n + n])).sum::<i32>() * i32::from(integer),
            w_zero: w_zeros[n] - shift,
            bias: if integer { rng.random_range(-5000..5000) } else { 0 },
            scale: 2f32.powi(rng.random_range(-13..1)) * if ties { 1.0 } else { rng.random_range(1.0..2.0) },
            offset: rng.random_range(-8..8) as f32 * 0.5,
        })
        .collect();
    let run = driver::run(&mut Processor::<Array>::new(config), job, &operands, Rates::FULL, rng, ())?;
    let raw = integer
        && !output.rescale
        && !output.add_offset
        && format == "int32"
        && !matches!(activation, Activation::Clamp { .. });
    let mut invalid = false;
    let mut expected = Vec::new();
    for (m, n) in (0..job.m).flat_map(|m| (0..job.n).map(move |n| (m, n))) {
        let sum = if integer {
            let products =
                (0..job.k).map(|k| (x[m * job.k + k] - i64::from(x_zero)) * (w[k * job.n + n] - i64::from(w_zeros[n])));
            let sum = products.sum::<i64>() + i64::from(columns[n].bias);
            if raw {
                expected.push(if activation == Activation::Relu { sum.max(0) } else { sum } as u32);
                continue;
            }
            sum as f32
        } else {
            f32::from_bits(run.y[m * job.n + n] as u32)
        };
        let row_scale = if per_row { operands.x_scales[m] } else { 1.0 };
        let v = after_sum(sum, &output, row_scale, &columns[n]);
        invalid |= range(format)
            .is_some_and(|(low, high)| !(low..=high).contains(&(f64::from(v).round_ties_even() + f64::from(y_zero))));
        expected.push(code(v, format, y_zero));
    }
    let task = OutputJob { job, output };
    let streamed = streamed(config, (&task, &operands, &columns), &mut case.rng)?;
    let blocks = job.m.div_ceil(config.depth);
    let panels = columns.chunks(config.cols).map(|panel| {
        let mut panel = panel.to_vec();
        panel.resize(config.cols, Column::default());
        Columns(panel)
    });
    let columns = std::iter::repeat_n(panels.collect::<Vec<_>>(), blocks).flatten().collect();
    Ok(Work { task, rows: run.rows, columns, streamed, expected, invalid })
}

/// Runs jobs one behind the other, rows and parameters of the next on offer while the last one drains. Results and the cycles between
/// the first row taken and the last result handed over.
fn run(
    stage: &mut OutputStage,
    config: Config,
    works: &[Task],
    (rows, columns): (&[&OutRow], &[&Columns]),
    rates: Rates,
    rng: &mut Xoshiro256PlusPlus,
    mut tracer: impl Tracer,
) -> anyhow::Result<(Vec<Vec<u32>>, u64)> {
    let mut results: Vec<Vec<u32>> = works.iter().map(|work| vec![0; work.size]).collect();
    let (mut started, mut row, mut column, mut received, mut finished) = (0, 0, 0, 0, 0);
    let (mut offer_row, mut offer_column, mut held) = (false, false, Held::<ResultRow>::default());
    let mut first = None;
    for cycle in 0.. {
        ensure!(cycle < 1_000 + 400 * rows.len() as u64, "hang: the stage is not done after {cycle} cycles");
        tracer.sample(cycle, stage)?;
        offer_row = row < rows.len() && (offer_row || rng.random_bool(rates.x));
        offer_column = column < columns.len() && (offer_column || rng.random_bool(rates.w));
        let ready = rng.random_bool(rates.y);
        let out = stage.out();
        held.look("result", out.y, ready, cycle, &mut tracer)?;
        if out.y.fires(ready) {
            let Job { m, n, .. } = works[finished].task.job;
            // The rows come as the processor's: M-blocks, panels, rows of the block.
            let panels = n.div_ceil(config.cols);
            let block = received / (panels * config.depth);
            let in_block = (m - block * config.depth).min(config.depth);
            let within = received - block * panels * config.depth;
            let (panel, r) = (within / in_block, block * config.depth + within % in_block);
            let at = r * n + panel * config.cols;
            let lanes = config.cols.min(n - panel * config.cols);
            tracer.output(cycle, &(out.y.data.lanes, out.y.data.end, &out.y.data.codes[..lanes]));
            if usize::from(out.y.data.lanes) != lanes {
                tracer.breach(&format_args!("result lanes: {} in cycle {cycle}", out.y.data.lanes))?;
            }
            results[finished][at..at + lanes].copy_from_slice(&out.y.data.codes[..lanes]);
            received += 1;
            let end = received == works[finished].rows;
            if out.y.data.end != end {
                tracer.breach(&format_args!("result end: the flag stands on the wrong row in cycle {cycle}"))?;
            }
            if end {
                (finished, received) = (finished + 1, 0);
            }
        }
        if finished == works.len() {
            tracer.output(cycle, &out.flags);
            tracer.rest(stage);
            return Ok((results, cycle - first.unwrap_or(cycle) + 1));
        }
        let start = if out.idle { works.get(started).map(|work| work.task) } else { None };
        let (takes_row, takes_column) = (offer_row && out.row_ready, offer_column && out.columns_ready);
        first = first.or(takes_row.then_some(cycle));
        let last_row = *rows.last().unwrap_or(&rows[0]);
        stage.clock(&OutputStageIn {
            start,
            row: Stream { valid: offer_row, data: rows.get(row).copied().unwrap_or(last_row) },
            columns: Stream { valid: offer_column, data: columns.get(column).copied().unwrap_or(columns[0]) },
            ready,
        });
        started += usize::from(start.is_some());
        (row, column) = (row + usize::from(takes_row), column + usize::from(takes_column));
        (offer_row, offer_column) = (offer_row && !takes_row, offer_column && !takes_column);
    }
    unreachable!("the loop ends by a return")
}

/// The stage behind the matrix-vector mode gives the same Y.
fn matrix_vector(case: &mut Case, config: Config, work: &Work, format: &str) -> anyhow::Result<()> {
    let Job { m, n, .. } = work.task.job;
    let streamed = &work.streamed;
    let config = Config { cols: m, depth: 1024, ..config };
    let mut stage = OutputStage::new(config);
    let (rows, columns) = (streamed.rows.iter().collect::<Vec<_>>(), streamed.columns.iter().collect::<Vec<_>>());
    let tasks = [Task { task: streamed.task, rows: rows.len(), size: m * n }];
    let (results, cycles) = run(&mut stage, config, &tasks, (&rows, &columns), Rates::FULL, &mut case.rng, ())?;
    // Row n of the stage holds output n of every vector.
    let turned: Vec<u32> = (0..m * n).map(|i| same_zero(format, results[0][i % n * m + i / n])).collect();
    let expected: Vec<u32> = work.expected.iter().map(|&c| same_zero(format, c)).collect();
    case.equal_slices("Y behind the matrix-vector mode", &expected, &turned);
    case.equal("cycles behind the matrix-vector mode", (n + 2) as u64, cycles);
    Ok(())
}

/// A job of the stage: how many rows it takes, how many values it gives.
struct Task {
    task: OutputJob,
    rows: usize,
    size: usize,
}

/// Two jobs, one behind the other.
pub(super) fn output(case: &mut Case) -> anyhow::Result<()> {
    let index = case.index;
    let rng = &mut case.rng;
    let (sums, format, activation) = (SUMS[index / 15 % 4], RESULTS[index / 3 % 5], ACTIVATIONS[index % 3]);
    let datapath = if sums == "bf16" { Datapath::float(FloatFormat::BF16) } else { Datapath::Int8 };
    let group = (sums == "grouped").then_some(8);
    let depth = if rng.random_bool(0.4) { rng.random_range(2..8) } else { 1024 };
    let (rows, cols) = (rng.random_range(1..9), rng.random_range(1..9));
    let config = Config { rows, cols, depth, datapath, group, ..Config::default() }.checked()?;
    let stall = ["none", "row", "columns", "y", "all"][rng.random_range(0..5)];
    let slow = rng.random_range(0.2..0.9);
    let rate = |port: &str| if stall == port || stall == "all" { slow } else { 1.0 };
    let rates = Rates { x: rate("row"), w: rate("columns"), y: rate("y") };
    case.label(format!("{sums} {rows}x{cols} D={depth} to {format}, {activation}"));

    let works = [work(case, config, sums, format, activation)?, work(case, config, sums, format, activation)?];
    let mut stage = OutputStage::new(config);
    let mut probe = case.probe("mvp", CONTEXT)?;
    let rows: Vec<&OutRow> = works.iter().flat_map(|work| &work.rows).collect();
    let columns: Vec<&Columns> = works.iter().flat_map(|work| &work.columns).collect();
    let tasks: Vec<Task> =
        works.iter().map(|work| Task { task: work.task, rows: work.rows.len(), size: work.expected.len() }).collect();
    let run = run(&mut stage, config, &tasks, (&rows, &columns), rates, &mut case.rng, &mut probe);
    probe.finish()?;
    let (results, cycles) = run?;
    for (work, result) in works.iter().zip(&results) {
        let [expected, got] =
            [&work.expected, result].map(|codes| codes.iter().map(|&c| same_zero(format, c)).collect::<Vec<_>>());
        case.equal_slices("Y", &expected, &got);
    }
    for work in &works {
        matrix_vector(case, config, work, format)?;
    }
    let flags: Flags = stage.out().flags;
    case.equal("invalid flag", works.iter().any(|work| work.invalid), flags.contains(Flags::INVALID));
    if stall == "none" {
        // A row an edge; the last one stands at the output two edges after it was taken, and two edges lie between the jobs.
        let rows: usize = works.iter().map(|work| work.rows.len()).sum();
        case.equal("cycles", (rows + 2 + 2) as u64, cycles);
    }
    case.cycles(cycles);
    case.cover("output", &[("sums", sums), ("format", format), ("activation", activation), ("stall", stall)]);
    Ok(())
}
