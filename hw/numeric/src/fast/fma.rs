//! FP32 a × b + c with one rounding, on machines with and without an FMA instruction.

use super::dispatch::{Kernel, dispatch};

/// Every NaN becomes 0x7FC00000. NaNs stay NaNs through a chain of additions, so one call at its end is enough.
#[inline(always)]
pub fn canonical(x: f32) -> f32 {
    if x.is_nan() { f32::from_bits(0x7fc0_0000) } else { x }
}

/// a × b + c with one rounding, the instruction if `FMA` says that there is one (as [`Kernel::run`] is told). NaN
/// results carry whatever payload the host gives: see [`canonical`].
#[inline(always)]
pub fn fma<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { fma_portable(a, b, c) }
}

/// a × b + c with one rounding, from binary64 arithmetic alone.
///
/// The product of two 24-bit significands is exact in binary64's 53 bits. The sum is not, and rounding it to nearest
/// and then to FP32 would round twice. So it is rounded to odd: where the addition lost something (Knuth's two-sum
/// finds what, exactly), the last bit is made odd, which no later tie can mistake (Boldo and Melquiond, *Emulation of
/// FMA and correctly rounded sums: proved algorithms using rounding to odd*, 2008; 53 ≥ 24 + 2 bits).
#[inline(always)]
pub fn fma_portable(a: f32, b: f32, c: f32) -> f32 {
    let product = a as f64 * b as f64;
    let c = c as f64;
    let sum = product + c;
    let from_c = sum - product;
    let lost = (product - (sum - from_c)) + (c - from_c);
    let bits = sum.to_bits();
    // An even last bit moves one step toward what was lost; `lost` is NaN where the sum is not finite.
    let inexact = (lost > 0.0) | (lost < 0.0);
    let step = if (lost > 0.0) == (sum > 0.0) { 1 } else { u64::MAX };
    let odd = if inexact & (bits & 1 == 0) { bits.wrapping_add(step) } else { bits };
    f64::from_bits(odd) as f32
}

struct FmaSlice<'a> {
    a: &'a [f32],
    b: &'a [f32],
    acc: &'a mut [f32],
}

impl Kernel for FmaSlice<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for ((acc, a), b) in self.acc.iter_mut().zip(self.a).zip(self.b) {
            *acc = canonical(fma::<FMA>(*a, *b, *acc));
        }
    }
}

/// The fast MAC over vectors: acc\[i\] = a\[i\] × b\[i\] + acc\[i\], canonical NaNs. `a` and `b` hold the operands'
/// values, exact in FP32 whatever their format; the shortest slice ends it.
pub fn fma_slice(a: &[f32], b: &[f32], acc: &mut [f32]) {
    dispatch(FmaSlice { a, b, acc });
}
