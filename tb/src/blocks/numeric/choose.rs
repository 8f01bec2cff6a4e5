//! The chooser of flexible formats.

use super::reference::{Reference, Value};
use crate::verify::Case;
use numeric::{FloatFormat, Mode, choose_ffp8};
use rand::RngExt;

/// Mean squared error by the table search, all values, no shortcuts.
fn mse(format: FloatFormat, values: &[f32]) -> anyhow::Result<f64> {
    let nearest = Reference::new(format.into())?;
    let table = super::reference::values(format.into())?;
    let mut error = 0.0;
    for x in values {
        let (code, _, _) = nearest.convert(Value { x: *x as f64, signaling: false }, Mode::SATURATE);
        error += (table[code as usize].x - *x as f64).powi(2);
    }
    Ok(error / values.len() as f64)
}

/// Test: on tensors of several distributions, no format of any sign, split and bias has a smaller error than the one
/// chosen, and its error is what was promised.
pub(super) fn chooser(case: &mut Case) -> anyhow::Result<()> {
    let kind = ["normal", "relu", "uniform", "wide", "outliers", "one value"][case.index % 6];
    case.label(kind);
    let scale = 2f32.powi(case.rng.random_range(-100..100));
    let count = if kind == "one value" { 1 } else { 200 };
    let values: Vec<f32> = (0..count)
        .map(|i| {
            let normal = (0..12).map(|_| case.rng.random::<f32>()).sum::<f32>() - 6.0;
            scale
                * match kind {
                    "relu" => normal.max(0.0),
                    "uniform" => case.rng.random_range(-1.0..1.0),
                    "wide" => normal * 2f32.powf(case.rng.random_range(-20.0..20.0)),
                    "outliers" if i % 50 == 0 => normal * 100.0,
                    _ => normal,
                }
        })
        .collect();
    let choice = choose_ffp8(&values)?;
    let promised = mse(choice.format, &values)?;
    case.within("the promised error", (choice.mse - promised).abs(), 1e-12 * promised);
    if kind == "relu" {
        case.check(!choice.format.signed(), format_args!("{} spends a sign bit on nothing", choice.format));
    }
    let mut candidates = 0;
    for signed in [false, true] {
        for exp_bits in 0..=7 {
            for bias in FloatFormat::ffp8_bias_range(signed, exp_bits) {
                let error = mse(FloatFormat::ffp8(signed, exp_bits, bias)?, &values)?;
                candidates += 1;
                if error < choice.mse * (1.0 - 1e-12) {
                    case.differed(format_args!(
                        "ffp8 s {signed} e {exp_bits} bias {bias} has error {error:e}, {} has {:e}",
                        choice.format, choice.mse
                    ));
                }
            }
        }
    }
    case.stands_for(candidates);
    case.agreed(candidates);
    Ok(())
}
