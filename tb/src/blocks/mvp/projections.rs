//! The main job: every projection of the built-in model on a real prompt, through the clocked array, against golden.

use super::{
    CONTEXT,
    driver::{self, Operands, Rates},
};
use crate::verify::Case;
use anyhow::{Context, ensure};
use golden::{Logits, Projected, Projection, Tensor};
use host::quantize_rows;
use mvp::{Array, Config, Job, Processor};
use std::sync::OnceLock;

/// 7 projections of 5 layers and the head.
pub(super) const CASES: usize = 7 * 5 + 1;
/// Tokens of the prompt.
const TOKENS: usize = 96;
/// Rows and columns of the array.
const SIDE: usize = 16;
/// A bound that is never used to more than this share is too loose to show anything.
const LEAST_RATIO: f64 = 0.01;

/// Operands and result of one projection in golden's forward pass.
struct Recorded {
    name: String,
    projection: Projection,
    input: Tensor,
    weight: Tensor,
    output: Tensor,
}

/// Runs the prompt through golden once and keeps what each projection saw.
fn record() -> anyhow::Result<Vec<Recorded>> {
    let llm = golden::builtin()?;
    let text = crate::run::HELD_OUT;
    let mut ids = llm.tokenizer.encode(&text[..2_000])?;
    ensure!(ids.len() >= TOKENS, "the prompt has only {} tokens", ids.len());
    ids.truncate(TOKENS);
    let mut records = Vec::new();
    let mut observer = |p: &Projected<'_>, output: &mut Tensor| {
        let layer = p.layer.map_or(String::new(), |l| format!("layers.{l}."));
        records.push(Recorded {
            name: format!("{layer}{}", p.projection.name()),
            projection: p.projection,
            input: p.input.clone(),
            weight: p.linear.weight.clone(),
            output: output.clone(),
        });
        Ok(())
    };
    llm.model.forward(&ids, &mut llm.cache(), &mut observer, Logits::All)?;
    Ok(records)
}

fn recorded(index: usize) -> anyhow::Result<&'static Recorded> {
    static RECORDS: OnceLock<anyhow::Result<Vec<Recorded>>> = OnceLock::new();
    let records = RECORDS.get_or_init(record).as_ref().map_err(|e| anyhow::anyhow!("{e:#}"))?;
    ensure!(records.len() == CASES, "golden ran {} projections, not {CASES}", records.len());
    records.get(index).context("no such projection")
}

/// One projection: quantise, run on the array, compare bits with an integer product and values with golden's f32.
pub(super) fn projection(case: &mut Case) -> anyhow::Result<()> {
    let record = recorded(case.index)?;
    let [n, k] = record.projection.shape(golden::builtin()?.model.config());
    let (job, config) = (Job { m: TOKENS, n, k }, Config::new(SIDE, SIDE)?);
    case.label(format!("{} [{TOKENS}, {k}] x [{k}, {n}]", record.name));
    case.equal(
        "shape of the operands",
        (vec![TOKENS, k], vec![n, k]),
        (record.input.shape().into(), record.weight.shape().into()),
    );

    let x = quantize_rows(record.input.data(), k);
    let w = quantize_rows(record.weight.data(), k);
    let columns: Vec<i8> = (0..k * n).map(|i| w.codes[i % n * k + i / n]).collect();
    let mut processor = Processor::<Array>::new(config);
    let mut probe = case.probe("mvp", CONTEXT)?;
    let operands = Operands::int8(&x.codes, &columns);
    let run = driver::run(&mut processor, job, &operands, Rates::FULL, &mut case.rng, &mut probe);
    probe.finish()?;
    let run = run?;
    case.cycles(run.counters.cycles);
    driver::check_sides(case, config, job, &operands, &run);
    driver::check_edges(case, config, job, Rates::FULL, run.counters);

    let expected = golden::matmul_nt_i8(&x.codes, &w.codes, TOKENS, k, n)?;
    let got: Vec<i64> = run.y.iter().map(|&y| y.into()).collect();
    if !case.equal_slices("Y (INT32)", &expected, &got)
        && let Some(first) = expected.iter().zip(&got).position(|(e, g)| e != g)
    {
        case.mismatch_at(run.cycle_of[first]);
    }
    case.measure("int32_compared", expected.len() as f64);
    against_golden(case, record, &run.y, &x.scales, &w.scales)
}

/// Holds the dequantised result within the bound that docs/mvp.md derives from the two steps and f32's own rounding.
fn against_golden(case: &mut Case, record: &Recorded, y: &[i32], sx: &[f32], sw: &[f32]) -> anyhow::Result<()> {
    let (n, k) = (sw.len(), record.input.columns());
    let absolute = |t: &Tensor| -> Vec<f64> {
        (0..t.rows()).map(|r| t.row(r).iter().map(|&v| f64::from(v.abs())).sum()).collect()
    };
    let (sum_x, sum_w) = (absolute(&record.input), absolute(&record.weight));
    let (mut signal, mut noise, mut worst) = (0f64, 0f64, 0f64);
    for (m, sx) in sx.iter().map(|&s| f64::from(s)).enumerate() {
        let rounding = |sw: f64, n: usize| {
            let exact: f64 =
                record.input.row(m).iter().zip(record.weight.row(n)).map(|(a, b)| f64::from((a * b).abs())).sum();
            let quantised = sx / 2.0 * sum_w[n] + sw / 2.0 * (sum_x[m] + k as f64 * sx / 2.0);
            quantised * (1.0 + 2f64.powi(-20)) + (k + 1) as f64 * 2f64.powi(-24) * exact
        };
        for (c, sw) in sw.iter().map(|&s| f64::from(s)).enumerate() {
            let reference = f64::from(record.output.row(m)[c]);
            let error = (f64::from(y[m * n + c]) * sx * sw - reference).abs();
            let bound = rounding(sw, c);
            case.within(format_args!("{} [{m}, {c}]", record.name), error, bound);
            worst = worst.max(error / bound);
            signal += reference * reference;
            noise += error * error;
        }
    }
    case.measure("f32_compared", (sx.len() * sw.len()) as f64);
    case.measure("error_to_bound", worst);
    case.measure("snr_db", 10.0 * (signal / noise).log10());
    case.check(worst > LEAST_RATIO, format_args!("the bound is too loose: only {worst:.4} of it is ever used"));
    Ok(())
}
