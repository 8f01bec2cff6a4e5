//! The elementary functions against the standard library's in binary64.

use crate::verify::Case;
use rand::RngExt;
use vector::{Function, transaction as engine};

/// The exact value, as binary64 gives it.
fn oracle(f: Function, x: f64) -> f64 {
    match f {
        Function::Exp => x.exp(),
        Function::Reciprocal => 1.0 / x,
        Function::Rsqrt if x == 0.0 => 1.0 / x,
        Function::Rsqrt => 1.0 / x.sqrt(),
        Function::Sin => x.sin(),
        Function::Cos => x.cos(),
        Function::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Function::Silu => x / (1.0 + (-x).exp()),
    }
}

/// The worst figures of docs/vector.md: BF16 units, FP32 units where promised, and the largest absolute error of sine and cosine.
fn documented(f: Function) -> (f64, Option<f64>, Option<f64>) {
    match f {
        Function::Exp => (0.501, Some(1.01), None),
        Function::Reciprocal => (0.501, Some(0.77), None),
        Function::Rsqrt => (0.501, Some(0.52), None),
        Function::Sin | Function::Cos => (0.501, None, Some(6.2e-8)),
        Function::Sigmoid => (0.501, Some(3.2), None),
        Function::Silu => (0.501, None, None),
    }
}

/// |y − exact| in units in the last place of a format with FP32's exponents; an infinity counts as the number after the largest.
fn units(y: f64, exact: f64, fraction: i32) -> f64 {
    let limit = 2f64.powi(128);
    let (y, exact) = (y.clamp(-limit, limit), exact.clamp(-limit, limit));
    let exponent = (exact.abs().log2().floor() as i32).clamp(-126, 127);
    (y - exact).abs() / 2f64.powi(exponent - fraction)
}

/// To BF16, to nearest even.
fn to_bf16(x: f32) -> f64 {
    let bits = x.to_bits();
    f64::from(f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000))
}

/// Calls `judge(x, y, exact)` where there is a value; elsewhere the result must be the NaN.
fn each(case: &mut Case, f: Function, x: &[f32], mut judge: impl FnMut(f32, f32, f64)) -> anyhow::Result<()> {
    let mut y = vec![0.0; x.len()];
    engine::function(f, x, &mut y)?;
    let (mut agreed, angle) = (0, matches!(f, Function::Sin | Function::Cos));
    for (&x, &y) in x.iter().zip(&y) {
        let exact = oracle(f, x.into());
        if exact.is_nan() || angle && x.abs() > 262_144.0 {
            agreed += u64::from(y.to_bits() == 0x7fc0_0000);
            if y.to_bits() != 0x7fc0_0000 {
                case.differed(format_args!("{}({x:e}) = {y:e}, no NaN", f.name()));
            }
        } else {
            judge(x, y, exact);
        }
    }
    case.agreed(agreed);
    Ok(())
}

/// All BF16 inputs.
pub(super) fn bf16(case: &mut Case) -> anyhow::Result<()> {
    let f = Function::ALL[case.index];
    case.label(f.name());
    let x: Vec<f32> = (0..=u16::MAX).map(|code| f32::from_bits(u32::from(code) << 16)).collect();
    let (limit, mut worst, mut inside, mut outside) = (documented(f).0, 0f64, 0, Vec::new());
    each(case, f, &x, |x, y, exact| {
        let error = units(to_bf16(y), exact, 7);
        worst = worst.max(error);
        if error <= limit { inside += 1 } else { outside.push((x, error)) }
    })?;
    case.agreed(inside);
    outside.iter().for_each(|(x, error)| case.differed(format_args!("{}({x:e}): {error} units of BF16", f.name())));
    case.measure(format!("{}_bf16_ulp", f.name()), worst);
    case.stands_for(1 << 16);
    Ok(())
}

/// Some 8,000 values in each binade of FP32, subnormals included.
pub(super) fn binades(case: &mut Case) -> anyhow::Result<()> {
    let f = Function::ALL[case.index];
    case.label(f.name());
    let x: Vec<f32> = (0..=u32::MAX).step_by(1_021).map(f32::from_bits).collect();
    let (_, limit, absolute) = documented(f);
    let (mut worst, mut off, mut compared, mut outside) = (0f64, 0f64, 0, Vec::new());
    each(case, f, &x, |x, y, exact| {
        let error = units(y.into(), exact, 23);
        let distance = (f64::from(y) - exact).abs();
        worst = worst.max(error);
        off = if distance.is_finite() { off.max(distance) } else { off };
        let fits = limit.is_none_or(|limit| error <= limit) && absolute.is_none_or(|absolute| distance <= absolute);
        // Between the limits of BF16 and FP32 lies silu's tail, whose exponential is subnormal.
        if fits { compared += 1 } else { outside.push((x, error)) }
    })?;
    case.agreed(compared);
    outside.iter().for_each(|(x, error)| case.differed(format_args!("{}({x:e}): {error} units of FP32", f.name())));
    case.measure(format!("{}_fp32_ulp", f.name()), worst);
    if absolute.is_some() {
        case.measure(format!("{}_absolute", f.name()), off);
    }
    case.stands_for(x.len() as u64);
    Ok(())
}

/// RoPE's angles: positions up to 131,072 at frequencies from 1 down, the product exact.
pub(super) fn angles(case: &mut Case) -> anyhow::Result<()> {
    let position = match case.index {
        0 => 0,
        1 => 1,
        2 => 131_072,
        3 => 131_071,
        _ => case.rng.random_range(0..131_072),
    };
    let frequencies: Vec<f32> = (0..256).map(|i| 1e4f64.powf(-f64::from(i) / 256.0) as f32).collect();
    let (mut sin, mut cos) = ([0f32; 256], [0f32; 256]);
    engine::sin_cos(position, &frequencies, &mut sin, &mut cos)?;
    for ((f, sin), cos) in frequencies.iter().zip(&sin).zip(&cos) {
        let angle = position as f64 * f64::from(*f);
        case.within("sin", (f64::from(*sin) - angle.sin()).abs(), 6.2e-8);
        case.within("cos", (f64::from(*cos) - angle.cos()).abs(), 6.2e-8);
    }
    Ok(())
}
