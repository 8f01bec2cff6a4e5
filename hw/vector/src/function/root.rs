//! 1/√x = 2^−E · T/√(1 − e), x = m·4^E, 1 ≤ m < 4, T a table's guess at 1/√m to 12 bits, e = 1 − m·T², |e| ≤ 2^−6.8: a cubic in e.

use super::reciprocal::{FRACTION, normalise};
use super::tables::ROOT as TABLE;
use super::{Lane, chain};
use numeric::fast::fma;

chain! {
    /// a := 1/√a. Uses b, c and k.
    root, ROOT = [normalise, miss, third, second, first, join]
}

/// The exponent's last bit (1: even, since the bias is odd) and the top of the fraction.
#[inline(always)]
fn guess(a: f32) -> f32 {
    f32::from_bits(TABLE[((a.to_bits() >> 17 & 127) ^ 64) as usize])
}

/// T has 12 bits, so its square is exact.
#[inline(always)]
fn miss<const FMA: bool>(l: &mut Lane) {
    let bits = l.a.to_bits();
    let even = bits >> 23 & 1;
    let m = f32::from_bits(bits & FRACTION | (128 - even) << 23);
    l.k = ((bits >> 23 & 255) as i32 - 127 - l.k) >> 1; // E, rounded down
    let t = guess(l.a);
    l.b = fma::<FMA>(-m, t * t, 1.0);
}

#[inline(always)]
fn third<const FMA: bool>(l: &mut Lane) {
    l.c = fma::<FMA>(l.b, 0.3125, 0.375);
}

#[inline(always)]
fn second<const FMA: bool>(l: &mut Lane) {
    l.c = fma::<FMA>(l.c, l.b, 0.5);
}

#[inline(always)]
fn first<const FMA: bool>(l: &mut Lane) {
    l.c *= l.b;
}

/// T·2^−E · (1 + e/2 + 3e²/8 + 5e³/16), and what is no number: 1/√±0 = ±∞, 1/√∞ = 0, NaN for less than zero.
#[inline(always)]
fn join<const FMA: bool>(l: &mut Lane) {
    let (a, sign) = (l.a, l.a.to_bits() & 0x8000_0000);
    let t = f32::from_bits(guess(a).to_bits().wrapping_sub((l.k << 23) as u32));
    let value = fma::<FMA>(t, l.c, t);
    let value = if a < 0.0 { f32::NAN } else { value };
    let value = if a == 0.0 { f32::from_bits(0x7f80_0000 | sign) } else { value };
    let value = if a == f32::INFINITY { 0.0 } else { value };
    l.a = if a.is_nan() { a } else { value };
}
