//! The steps of the operations around the elementary functions.

use crate::function::Lane;
use numeric::fast::fma;

/// a := x + y.
#[inline(always)]
pub(crate) fn add<const FMA: bool>(l: &mut Lane) {
    l.a = l.x + l.y;
}

/// a := a · y.
#[inline(always)]
pub(crate) fn multiply<const FMA: bool>(l: &mut Lane) {
    l.a *= l.y;
}

/// a := a · s.
#[inline(always)]
pub(crate) fn times_shared<const FMA: bool>(l: &mut Lane) {
    l.a *= l.s;
}

/// Of a sum of squares a: the mean, plus ε. s is FP32 nearest to 1/len, y is ε.
#[inline(always)]
pub(crate) fn mean<const FMA: bool>(l: &mut Lane) {
    l.a = fma::<FMA>(l.a, l.s, l.y);
}

/// a · s; −∞ where the entry does not count.
#[inline(always)]
pub(crate) fn scaled_score<const FMA: bool>(l: &mut Lane) {
    l.a = if l.on { l.a * l.s } else { f32::NEG_INFINITY };
}

/// a − s; −∞ stays what it is, whatever the maximum.
#[inline(always)]
pub(crate) fn below_maximum<const FMA: bool>(l: &mut Lane) {
    l.a = if l.a == f32::NEG_INFINITY { l.a } else { l.a - l.s };
}

/// −|a − b|, a score's distance from the running maximum b before it; −∞ for an entry that does not count.
#[inline(always)]
pub(crate) fn distance<const FMA: bool>(l: &mut Lane) {
    l.a = if l.a == f32::NEG_INFINITY { l.a } else { -(l.a - l.b).abs() };
}

/// a · s; a weight of zero stays zero, whatever s.
#[inline(always)]
pub(crate) fn weigh<const FMA: bool>(l: &mut Lane) {
    l.a = if l.a == 0.0 { 0.0 } else { l.a * l.s };
}

/// a · y, as [`weigh`].
#[inline(always)]
pub(crate) fn weigh_partner<const FMA: bool>(l: &mut Lane) {
    l.a = if l.a == 0.0 { 0.0 } else { l.a * l.y };
}

/// y · sin, less than nothing for the first of a pair.
#[inline(always)]
pub(crate) fn turn_partner<const FMA: bool>(l: &mut Lane) {
    l.c = l.y * if l.on { -l.a } else { l.a };
}

/// x · cos ∓ y · sin.
#[inline(always)]
pub(crate) fn turn<const FMA: bool>(l: &mut Lane) {
    l.a = fma::<FMA>(l.x, l.b, l.c);
}

/// Nothing: a register stage.
#[inline(always)]
pub(crate) fn hold<const FMA: bool>(_: &mut Lane) {}
