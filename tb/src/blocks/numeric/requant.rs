//! Requantisation by both rules.

use super::stimulus;
use crate::verify::Case;
use anyhow::Context;
use numeric::{FixedScale, Flags, IntFormat, requant_fixed, requant_onnx};
use rand::RngExt;

const ONNX: &str = include_str!("../../../data/numeric/requant_onnx.txt");
const FIXED: &str = include_str!("../../../data/numeric/requant_fixed.txt");

const TARGETS: [(&str, IntFormat); 3] =
    [("int8", IntFormat::INT8), ("uint8", IntFormat::UINT8), ("int4", IntFormat::INT4)];

fn fields<const N: usize>(line: &str) -> anyhow::Result<[&str; N]> {
    let fields: Vec<&str> = line.split(' ').collect();
    fields.try_into().ok().with_context(|| format!("`{line}` has not {N} fields"))
}

/// Test: what ONNX Runtime's QLinearMatMul made of accumulators.
pub(super) fn onnx_runtime(case: &mut Case) -> anyhow::Result<()> {
    case.stands_for(ONNX.lines().count() as u64);
    for line in ONNX.lines() {
        let [kind, acc, scale, zero_point, want] = fields(line)?;
        let to = if kind == "int8" { IntFormat::INT8 } else { IntFormat::UINT8 };
        let (acc, zero_point) = (acc.parse()?, zero_point.parse()?);
        let code = requant_onnx(acc, u32::from_str_radix(scale, 16)?, zero_point, to, &mut Flags::default());
        case.equal(line, want.parse::<i64>()?, to.value(code));
    }
    Ok(())
}

/// Test: the ONNX rule in the host's arithmetic, on any accumulator, scale and zero point.
pub(super) fn onnx_rule(case: &mut Case) -> anyhow::Result<()> {
    const CASES: u64 = 20_000;
    let (name, to) = TARGETS[case.index % TARGETS.len()];
    case.label(format!("int32 → {name}"));
    for _ in 0..CASES {
        let acc = stimulus::int32(&mut case.rng);
        let near = 60.0 / (acc as f32).abs().max(1.0);
        let scale = f32::from_bits(match case.rng.random_range(0..3) {
            0 => (near * case.rng.random_range(0.01..4.0f32)).to_bits(),
            1 => near.to_bits() & 0x7f80_0000, // a power of two: ties
            _ => stimulus::fp32(&mut case.rng, near.to_bits()),
        });
        let zero_point = case.rng.random_range(to.min()..=to.max()) as i32;
        let scaled = acc as f32 * scale;
        let whole = scaled.round_ties_even() as i64; // saturates far out; a NaN gives 0
        let want = whole.saturating_add(zero_point as i64).clamp(to.min(), to.max());
        let mut flags = Flags::NONE;
        let got = to.value(requant_onnx(acc, scale.to_bits(), zero_point, to, &mut flags));
        let saturated = whole.saturating_add(zero_point as i64) != want;
        let invalid = flags.contains(Flags::INVALID) == (saturated || scaled.is_nan());
        if got != want || !invalid {
            case.differed(format_args!(
                "{acc} × {scale:e} + {zero_point} → {name}: expected {want}, got {got} ({flags})"
            ));
        }
    }
    case.stands_for(CASES);
    case.agreed(CASES);
    Ok(())
}

/// Test: what gemmlowp made of accumulators (before zero point and saturation).
pub(super) fn gemmlowp(case: &mut Case) -> anyhow::Result<()> {
    case.stands_for(FIXED.lines().count() as u64);
    for line in FIXED.lines() {
        let [acc, multiplier, shift, want] = fields(line)?;
        let scale = FixedScale::new(multiplier.parse()?, shift.parse()?)?;
        let code = requant_fixed(acc.parse()?, scale, 0, IntFormat::INT32, &mut Flags::default());
        case.equal(line, want.parse::<i32>()?, code as i32);
    }
    Ok(())
}

/// Test: the fixed-point rule from exact integers: saturate, round twice, saturate; scales from FP32 are met exactly.
pub(super) fn fixed_rule(case: &mut Case) -> anyhow::Result<()> {
    const CASES: u64 = 20_000;
    let (name, to) = TARGETS[case.index % TARGETS.len()];
    case.label(format!("int32 → {name}"));
    // Nearest of n / d for d > 0; a tie goes up, or away from zero.
    let nearest = |n: i128, d: i128, away: bool| match n {
        n if away && n < 0 => -((-2 * n + d) / (2 * d)),
        n => (2 * n + d).div_euclid(2 * d),
    };
    for _ in 0..CASES {
        let acc = stimulus::int32(&mut case.rng);
        let shift = case.rng.random_range(-31..=12);
        let multiplier = if case.rng.random_bool(0.3) { 1 << 30 } else { case.rng.random_range(1 << 30..=i32::MAX) };
        let scale = FixedScale::new(multiplier, shift)?;
        let shifted = ((acc as i128) << shift.max(0)).clamp(i32::MIN as i128, i32::MAX as i128);
        let high = nearest(shifted * multiplier as i128, 1 << 31, false);
        let scaled = nearest(high, 1 << (-shift).max(0), true);
        let zero_point = case.rng.random_range(to.min()..=to.max()) as i32;
        let want = (scaled as i64 + zero_point as i64).clamp(to.min(), to.max());
        let got = to.value(requant_fixed(acc, scale, zero_point, to, &mut Flags::default()));
        if got != want {
            case.differed(format_args!("{acc}, {scale:?}, zero point {zero_point}: expected {want}, got {got}"));
        }
        let real = f32::from_bits(case.rng.random_range(0x2f80_0000..0x4e80_0000)); // 2^−32..2^30
        let fixed = FixedScale::from_f32(real.to_bits())?;
        let back = f64::from(fixed.multiplier()) * 2f64.powi(fixed.shift() - 31);
        if back != real as f64 {
            case.differed(format_args!("{real:e} as fixed-point is {fixed:?} = {back:e}"));
        }
    }
    for refused in [-1.0f32, f32::NAN, f32::INFINITY, 1.1e9] {
        case.check(FixedScale::from_f32(refused.to_bits()).is_err(), format_args!("{refused} was taken as a scale"));
    }
    case.check(FixedScale::new(-1, 0).is_err() && FixedScale::new(1, 31).is_err(), "a bad field was taken");
    case.stands_for(CASES);
    case.agreed(CASES);
    Ok(())
}
