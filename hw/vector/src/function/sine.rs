//! sin and cos of an angle in two parts, c + d: k = c · 32/π to nearest, r = c + d − k·π/32, |r| ≤ 0.06; a table of sin at 64 points
//! of the circle, the Taylor polynomials of sin r (to r⁵) and cos r − 1 (to r⁴), and the addition theorems.

use super::tables::SINE as TABLE;
use super::{Lane, MAGIC, chain};
use numeric::fast::fma;

/// The largest angle, radians: 2^18. Its k is below 2^22, where adding [`MAGIC`] still rounds to a whole number.
pub(crate) const LIMIT: f32 = 262_144.0;

/// 32/π.
const PER_UNIT: f32 = f32::from_bits(0x4122_f983);
/// π/32 in three parts.
const STEP: [f32; 3] = [f32::from_bits(0x3dc9_0fdb), f32::from_bits(0xb13b_bd2e), f32::from_bits(0xa4f7_2ced)];

chain! {
    /// c + d := x.
    value_angle, ANGLE = [whole_angle]
}
chain! {
    /// c + d := s·b, exactly.
    product_angle, PRODUCT_ANGLE = [angle_high, angle_low]
}
chain! {
    /// a := sin(c + d), b := cos(c + d). Uses c, d and k.
    sine_cosine, SINE_COSINE = [
        count, whole, rest_high, rest_middle, rest_low, rest_part, square, sine_fifth, sine_third, sine_rest,
        cosine_fourth, cosine_rest, sine_cross, sine_inner, sine_outer, cosine_cross, cosine_inner, cosine_outer,
    ]
}
chain! {
    /// a := b, the cosine.
    cosine, COSINE = [take_cosine]
}

#[inline(always)]
fn whole_angle<const FMA: bool>(l: &mut Lane) {
    (l.c, l.d) = (l.x, 0.0);
}

#[inline(always)]
fn angle_high<const FMA: bool>(l: &mut Lane) {
    l.c = l.s * l.b;
}

/// What the product lost: exact.
#[inline(always)]
fn angle_low<const FMA: bool>(l: &mut Lane) {
    l.d = fma::<FMA>(l.s, l.b, -l.c);
}

/// Beyond the limit, an angle is no number.
#[inline(always)]
fn count<const FMA: bool>(l: &mut Lane) {
    l.c = if l.c.abs() <= LIMIT { l.c } else { f32::NAN };
    l.b = fma::<FMA>(l.c, PER_UNIT, MAGIC);
}

#[inline(always)]
fn whole<const FMA: bool>(l: &mut Lane) {
    l.k = l.b.to_bits() as i32;
    l.a = l.b - MAGIC;
}

/// Exact: the difference fits 24 bits.
#[inline(always)]
fn rest_high<const FMA: bool>(l: &mut Lane) {
    l.c = fma::<FMA>(-l.a, STEP[0], l.c);
}

#[inline(always)]
fn rest_middle<const FMA: bool>(l: &mut Lane) {
    l.c = fma::<FMA>(-l.a, STEP[1], l.c);
}

#[inline(always)]
fn rest_low<const FMA: bool>(l: &mut Lane) {
    l.c = fma::<FMA>(-l.a, STEP[2], l.c);
}

#[inline(always)]
fn rest_part<const FMA: bool>(l: &mut Lane) {
    l.c += l.d;
}

#[inline(always)]
fn square<const FMA: bool>(l: &mut Lane) {
    l.d = l.c * l.c;
}

#[inline(always)]
fn sine_fifth<const FMA: bool>(l: &mut Lane) {
    l.a = fma::<FMA>(l.d, 1.0 / 120.0, -1.0 / 6.0);
}

#[inline(always)]
fn sine_third<const FMA: bool>(l: &mut Lane) {
    l.a *= l.d;
}

#[inline(always)]
fn sine_rest<const FMA: bool>(l: &mut Lane) {
    l.c = fma::<FMA>(l.a, l.c, l.c);
}

#[inline(always)]
fn cosine_fourth<const FMA: bool>(l: &mut Lane) {
    l.a = fma::<FMA>(l.d, 1.0 / 24.0, -0.5);
}

#[inline(always)]
fn cosine_rest<const FMA: bool>(l: &mut Lane) {
    l.d *= l.a;
}

/// sin of k/64 of the circle.
#[inline(always)]
fn table(k: i32) -> f32 {
    f32::from_bits(TABLE[(k & 63) as usize])
}

#[inline(always)]
fn sine_cross<const FMA: bool>(l: &mut Lane) {
    l.a = table(l.k) * l.d;
}

#[inline(always)]
fn sine_inner<const FMA: bool>(l: &mut Lane) {
    l.a = fma::<FMA>(table(l.k.wrapping_add(16)), l.c, l.a);
}

#[inline(always)]
fn sine_outer<const FMA: bool>(l: &mut Lane) {
    l.a += table(l.k);
}

#[inline(always)]
fn cosine_cross<const FMA: bool>(l: &mut Lane) {
    l.b = table(l.k.wrapping_add(16)) * l.d;
}

#[inline(always)]
fn cosine_inner<const FMA: bool>(l: &mut Lane) {
    l.b = fma::<FMA>(-table(l.k), l.c, l.b);
}

#[inline(always)]
fn cosine_outer<const FMA: bool>(l: &mut Lane) {
    l.b += table(l.k.wrapping_add(16));
}

#[inline(always)]
fn take_cosine<const FMA: bool>(l: &mut Lane) {
    l.a = l.b;
}
