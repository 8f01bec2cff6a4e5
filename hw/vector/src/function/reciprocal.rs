//! 1/x = 2^−E · T/(1 − e), x = m·2^E, T a table's guess at 1/m to 12 bits, e = 1 − m·T, |e| ≤ 2^−6.9: a cubic in e.

use super::tables::RECIPROCAL as TABLE;
use super::{Lane, chain, power};
use numeric::fast::fma;

pub(super) const MIN_NORMAL: f32 = f32::MIN_POSITIVE;
pub(super) const FRACTION: u32 = 0x007f_ffff;
const ONE: u32 = 0x3f80_0000;

chain! {
    /// a := 1/a. Uses b, c and k.
    reciprocal, RECIPROCAL = [normalise, miss, square, cube, join, scale]
}

/// Subnormal numbers get 2^24 more; k notes it.
#[inline(always)]
pub(super) fn normalise<const FMA: bool>(l: &mut Lane) {
    let tiny = l.a.abs() < MIN_NORMAL;
    l.k = if tiny { 24 } else { 0 };
    l.a *= if tiny { 16_777_216.0 } else { 1.0 };
}

#[inline(always)]
fn guess(a: f32) -> f32 {
    f32::from_bits(TABLE[(a.to_bits() >> 17 & 63) as usize])
}

#[inline(always)]
fn miss<const FMA: bool>(l: &mut Lane) {
    let bits = l.a.to_bits();
    let m = f32::from_bits(bits & FRACTION | ONE);
    l.k += 127 - (bits >> 23 & 255) as i32; // −E
    l.b = fma::<FMA>(-m, guess(l.a), 1.0);
}

#[inline(always)]
fn square<const FMA: bool>(l: &mut Lane) {
    l.c = fma::<FMA>(l.b, l.b, l.b);
}

/// e + e² + e³.
#[inline(always)]
fn cube<const FMA: bool>(l: &mut Lane) {
    l.c = fma::<FMA>(l.c, l.b, l.b);
}

/// T + T·(e + e² + e³), T with the sign and half of the exponent.
#[inline(always)]
fn join<const FMA: bool>(l: &mut Lane) {
    let half = (l.k >> 1) << 23;
    let t = guess(l.a).to_bits().wrapping_add(half as u32) | l.a.to_bits() & 0x8000_0000;
    l.b = fma::<FMA>(f32::from_bits(t), l.c, f32::from_bits(t));
}

/// The other half of the exponent, and what is no number: 1/0 = ∞, 1/∞ = 0, with the sign; a NaN stays.
#[inline(always)]
fn scale<const FMA: bool>(l: &mut Lane) {
    let (magnitude, sign) = (l.a.abs(), l.a.to_bits() & 0x8000_0000);
    let value = l.b * power(l.k - (l.k >> 1));
    let value = if magnitude == 0.0 { f32::from_bits(0x7f80_0000 | sign) } else { value };
    let value = if magnitude == f32::INFINITY { f32::from_bits(sign) } else { value };
    l.a = if l.a.is_nan() { l.a } else { value };
}
