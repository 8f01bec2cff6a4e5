//! σ(x) = E/(1 + E) or 1/(1 + E), E = e^−|x| ≤ 1, which loses nothing at either end; silu(x) = x·σ(x).

use super::exp::exp;
use super::reciprocal::reciprocal;
use super::{EXP, Lane, RECIPROCAL, Step};

/// x → σ(x).
pub(crate) const SIGMOID: &[Step] = &chained::<20>([
    &[fold::<false>],
    EXP,
    &[denominator::<false>],
    RECIPROCAL,
    &[numerator::<false>, product::<false>],
]);

/// x → x·σ(x).
pub(crate) const SILU: &[Step] =
    &chained::<20>([&[fold::<false>], EXP, &[denominator::<false>], RECIPROCAL, &[weight::<false>, product::<false>]]);

/// Five lists in one.
const fn chained<const N: usize>(lists: [&[Step]; 5]) -> [Step; N] {
    let mut all: [Step; N] = [fold::<false>; N];
    let (mut list, mut at) = (0, 0);
    while list < lists.len() {
        let mut i = 0;
        while i < lists[list].len() {
            all[at] = lists[list][i];
            (at, i) = (at + 1, i + 1);
        }
        list += 1;
    }
    assert!(at == N, "every place is taken");
    all
}

/// a := σ(x). Uses b, c, d and k.
#[inline(always)]
pub(crate) fn sigmoid<const FMA: bool>(l: &mut Lane) {
    part::<FMA>(l);
    numerator::<FMA>(l);
    product::<FMA>(l);
}

/// a := x·σ(x). Uses b, c, d and k.
#[inline(always)]
pub(crate) fn silu<const FMA: bool>(l: &mut Lane) {
    part::<FMA>(l);
    weight::<FMA>(l);
    product::<FMA>(l);
}

#[inline(always)]
fn part<const FMA: bool>(l: &mut Lane) {
    fold::<FMA>(l);
    exp::<FMA>(l);
    denominator::<FMA>(l);
    reciprocal::<FMA>(l);
}

#[inline(always)]
fn fold<const FMA: bool>(l: &mut Lane) {
    l.a = -l.x.abs();
}

#[inline(always)]
fn denominator<const FMA: bool>(l: &mut Lane) {
    l.d = l.a;
    l.a += 1.0;
}

#[inline(always)]
fn numerator<const FMA: bool>(l: &mut Lane) {
    l.d = if l.x < 0.0 { l.d } else { 1.0 };
}

/// x·E below zero, x above: −∞ · 0 is NaN, as in x·σ(x).
#[inline(always)]
fn weight<const FMA: bool>(l: &mut Lane) {
    l.d = l.x * if l.x < 0.0 { l.d } else { 1.0 };
}

#[inline(always)]
fn product<const FMA: bool>(l: &mut Lane) {
    l.a *= l.d;
}
