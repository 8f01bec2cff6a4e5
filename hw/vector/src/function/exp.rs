//! e^x = 2^⌊k/32⌋ · 2^(k mod 32 / 32) · e^r, k = x · 32/ln 2 to nearest, |r| ≤ ln 2 / 64: a table of 32 and a cubic.

use super::tables::POWER;
use super::{Lane, MAGIC, chain, power};
use numeric::fast::fma;

/// Beyond these every result is an infinity or zero.
const HIGHEST: f32 = 89.5;
const LOWEST: f32 = -105.0;
/// 32/ln 2.
const PER_UNIT: f32 = f32::from_bits(0x4238_aa3b);
/// ln 2 / 32 in two parts.
const STEP_HIGH: f32 = f32::from_bits(0x3cb1_7218);
const STEP_LOW: f32 = f32::from_bits(0xae82_e308);

chain! {
    /// a := e^a. Uses b, c and k.
    exp, EXP = [clamp, count, whole, rest_high, rest_low, third, second, first, join, scale]
}

#[inline(always)]
fn clamp<const FMA: bool>(l: &mut Lane) {
    // Comparisons that are false for a NaN let it through.
    let a = if l.a > HIGHEST { HIGHEST } else { l.a };
    l.a = if a < LOWEST { LOWEST } else { a };
}

#[inline(always)]
fn count<const FMA: bool>(l: &mut Lane) {
    l.b = fma::<FMA>(l.a, PER_UNIT, MAGIC);
}

#[inline(always)]
fn whole<const FMA: bool>(l: &mut Lane) {
    l.k = l.b.to_bits().wrapping_sub(MAGIC.to_bits()) as i32;
    l.c = l.b - MAGIC;
}

/// Exact: the difference fits 24 bits.
#[inline(always)]
fn rest_high<const FMA: bool>(l: &mut Lane) {
    l.a = fma::<FMA>(-l.c, STEP_HIGH, l.a);
}

#[inline(always)]
fn rest_low<const FMA: bool>(l: &mut Lane) {
    l.a = fma::<FMA>(-l.c, STEP_LOW, l.a);
}

#[inline(always)]
fn third<const FMA: bool>(l: &mut Lane) {
    l.b = fma::<FMA>(l.a, 1.0 / 6.0, 0.5);
}

#[inline(always)]
fn second<const FMA: bool>(l: &mut Lane) {
    l.b = fma::<FMA>(l.b, l.a, 1.0);
}

#[inline(always)]
fn first<const FMA: bool>(l: &mut Lane) {
    l.b *= l.a;
}

/// T + T·(e^r − 1), T = 2^(k mod 32 / 32) with half of the exponent.
#[inline(always)]
fn join<const FMA: bool>(l: &mut Lane) {
    let half = (l.k >> 6) << 23;
    let t = f32::from_bits(POWER[(l.k & 31) as usize].wrapping_add(half as u32));
    l.a = fma::<FMA>(t, l.b, t);
}

/// The other half: the only step that can overflow or round into the subnormals.
#[inline(always)]
fn scale<const FMA: bool>(l: &mut Lane) {
    let n = l.k >> 5;
    // Of a NaN, k is any number; the exponent stays inside its field.
    l.a *= power((n - (n >> 1)).clamp(-126, 127));
}
