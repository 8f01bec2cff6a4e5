//! BF16 to code and back, in integers: subtract the mean, divide by a step through a reciprocal, and the way back.

use crate::Channel;

/// step(e) = STEP[e mod 8] · 2^(⌊e/8⌋ − 16): eighth octaves, 2^16 · 2^(i/8) rounded.
pub const STEP: [i64; 8] = [65_536, 71_468, 77_936, 84_990, 92_682, 101_070, 110_218, 120_194];
/// 2^34 / STEP rounded: the reciprocals, 19 bits.
pub const RECIPROCAL: [i64; 8] = [262_144, 240_385, 220_436, 202_140, 185_364, 169_980, 155_872, 142_934];
/// Largest magnitude of a residual, 24 bits with its sign.
pub const RESIDUAL_MAX: i64 = (1 << 23) - 1;
/// Largest magnitude of an entropy-coded code.
pub const CODE_MAX: i32 = 32_767;
/// Largest magnitude of a fixed-length code.
pub const FIXED_MAX: i32 = 7;

/// A BF16 number taken apart: mantissa · 2^exponent. Infinities and NaN are not taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts {
    /// Signed, 9 bits.
    mantissa: i64,
    /// −133..=120.
    exponent: i32,
}

/// Whether a BF16 pattern is an infinity or NaN.
#[inline]
pub(crate) fn is_special(x: u16) -> bool {
    x & 0x7f80 == 0x7f80
}

#[inline]
fn parts(x: u16) -> Parts {
    let biased = i32::from(x >> 7 & 0xff);
    let magnitude = i64::from(x & 0x7f) | i64::from(biased != 0) << 7;
    Parts { mantissa: if x >> 15 == 1 { -magnitude } else { magnitude }, exponent: biased.max(1) - 134 }
}

/// The exact sum of two numbers of up to 34 bits, or, where their exponents lie more than 60 apart, the larger with a
/// last unit that stands for the smaller: rounding to 40 bits or fewer cannot tell the difference.
#[inline]
fn sum(a: Parts, b: Parts) -> (i128, i32) {
    let (high, low) = if a.exponent >= b.exponent { (a, b) } else { (b, a) };
    let apart = high.exponent - low.exponent;
    if high.mantissa == 0 {
        (i128::from(low.mantissa), low.exponent)
    } else if apart <= 60 {
        ((i128::from(high.mantissa) << apart) + i128::from(low.mantissa), low.exponent)
    } else {
        ((i128::from(high.mantissa) << 44) + i128::from(low.mantissa.signum()), high.exponent - 44)
    }
}

/// `value` · 2^−`shift`, rounded half to even; a negative shift is exact and saturates at 2^100.
#[inline]
fn round_shift(value: i128, shift: i32) -> i128 {
    match shift {
        _ if value == 0 => 0,
        i32::MIN..-60 => value.signum() << 100,
        -60..=0 => value << -shift,
        1..=120 => {
            let floor = value >> shift;
            let rest = value - (floor << shift);
            let half = 1i128 << (shift - 1);
            floor + i128::from(rest > half || (rest == half && floor & 1 == 1))
        }
        _ => 0,
    }
}

/// The least normal number of BF16, 2^−126.
const SMALLEST: f64 = power(-126);
/// 2^127: from here on a sum might round past the largest number.
const LARGEST: f64 = power(127);

/// 2^n for n of a normal double.
const fn power(n: i32) -> f64 {
    f64::from_bits(((n + 1023) as u64) << 52)
}

/// A BF16 number as a double, exactly.
#[inline]
fn double(x: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(x) << 16))
}

/// How one channel is quantised at one QP.
#[derive(Clone, Copy, Debug)]
pub struct Quantiser {
    mean: Parts,
    mean_bits: u16,
    /// ⌊e/8⌋.
    octave: i32,
    step: i64,
    reciprocal: i64,
    /// The mean, the step and 1 / unit as doubles.
    mean_double: f64,
    step_double: f64,
    per_unit: f64,
    /// Whether doubles hold mean + code · step exactly, for every code.
    exact: bool,
}

impl Quantiser {
    /// The quantiser with the step index `e` = 2 · static step + QP around the BF16 pattern `mean`, which must be finite.
    pub fn new(mean: u16, e: i32) -> Self {
        let (fraction, octave) = (e.rem_euclid(8) as usize, e.div_euclid(8));
        let parts = parts(mean);
        Self {
            mean: parts,
            mean_bits: mean,
            octave,
            step: STEP[fraction],
            reciprocal: RECIPROCAL[fraction],
            mean_double: double(mean),
            step_double: STEP[fraction] as f64 * power(octave - 16),
            per_unit: power(8 - octave),
            // Products have 33 bits and means 8.
            exact: (parts.exponent - octave + 16).abs() <= 19,
        }
    }

    /// The entropy coder's quantiser of a channel at `qp`.
    pub fn entropy(channel: &Channel, qp: u8) -> Self {
        Self::new(channel.mean, 2 * i32::from(channel.step) + i32::from(qp))
    }

    /// The fixed-length quantiser of a channel at `qp`.
    pub fn fixed(channel: &Channel, qp: u8) -> Self {
        Self::new(channel.mean, 2 * i32::from(channel.fixed_step) + i32::from(qp))
    }

    /// The residual of a finite `x`, 24 bits: x − mean rounded half to even to the unit 2^(⌊e/8⌋ − 8), clamped.
    #[inline]
    pub fn residual(&self, x: u16) -> i32 {
        // Doubles hold the difference exactly where both numbers lie close, as nearly always.
        let apart = i32::from(x >> 7 & 0xff).max(1) - self.mean.exponent - 134;
        if apart.abs() <= 40 {
            let limit = RESIDUAL_MAX as f64;
            let value = ((double(x) - self.mean_double) * self.per_unit).clamp(-limit, limit);
            // Where a double's last bit counts 1, adding rounds half to even.
            const ONES: f64 = 1.5 * (1u64 << 52) as f64;
            return ((value + ONES) - ONES) as i32;
        }
        let (x, mean, unit) = (parts(x), self.mean, self.octave - 8);
        let (value, exponent) = sum(x, Parts { mantissa: -mean.mantissa, ..mean });
        let limit = i128::from(RESIDUAL_MAX);
        round_shift(value, unit - exponent).clamp(-limit, limit) as i32
    }

    /// The code of a finite `x`, −32,768..=32,768: residual times reciprocal, rounded half away from zero. A residual at its
    /// limit may stand for any number beyond and has the code ±32,768, one more than an entropy-coded tile holds.
    #[inline]
    pub fn code(&self, x: u16) -> i32 {
        let residual = i64::from(self.residual(x));
        let magnitude = match residual.abs() {
            RESIDUAL_MAX => CODE_MAX + 1,
            inside => ((inside * self.reciprocal + (1 << 25)) >> 26) as i32,
        };
        if residual < 0 { -magnitude } else { magnitude }
    }

    /// The value of a code: mean + code · step exactly, rounded once to BF16, half to even; the largest finite number
    /// where it would overflow.
    #[inline]
    pub fn rebuild(&self, code: i32) -> u16 {
        if code == 0 {
            return self.mean_bits;
        }
        if self.exact {
            let value = self.mean_double + f64::from(code) * self.step_double;
            // A normal number of BF16, and none that rounds past the largest.
            let magnitude = value.abs();
            if (SMALLEST..LARGEST).contains(&magnitude) {
                let bits = magnitude.to_bits();
                let rounded = (bits + (1 << 44) - 1 + (bits >> 45 & 1)) >> 45;
                return (rounded - (896 << 7)) as u16 | u16::from(value < 0.0) << 15;
            }
        }
        let product = Parts { mantissa: i64::from(code) * self.step, exponent: self.octave - 16 };
        let apart = product.exponent - self.mean.exponent;
        if apart.abs() <= 24 {
            let low = product.exponent.min(self.mean.exponent);
            let lift = |p: Parts| p.mantissa << (p.exponent - low);
            let value = lift(product) + lift(self.mean);
            return round_bf16(value < 0, u128::from(value.unsigned_abs()), low);
        }
        let (value, exponent) = sum(product, self.mean);
        round_bf16(value < 0, value.unsigned_abs(), exponent)
    }
}

/// ±magnitude · 2^exponent rounded half to even to BF16, saturating; a zero is positive.
#[inline]
fn round_bf16(negative: bool, magnitude: u128, exponent: i32) -> u16 {
    if magnitude == 0 {
        return 0;
    }
    let top = magnitude.ilog2() as i32;
    // The unit of the result's mantissa: 8 bits below the leading one, or the subnormal unit.
    let unit = (top + exponent - 7).max(-133);
    let shift = unit - exponent;
    let rounded = if shift <= 0 { magnitude << -shift } else { round_shift(magnitude as i128, shift) as u128 };
    // `rounded` carries the hidden bit, so that adding the biased exponent less one also takes a carry along.
    let bits = ((unit + 133) as u128) * 128 + rounded;
    (bits.min(0x7f7f) as u16) | u16::from(negative) << 15
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(x: u16) -> f64 {
        f64::from(f32::from_bits(u32::from(x) << 16))
    }

    /// x − mean in units, by f64 where that is exact.
    fn exact_residual(x: u16, mean: u16, e: i32) -> f64 {
        let unit = 2f64.powi(e.div_euclid(8) - 8);
        ((value(x) - value(mean)) / unit).round_ties_even().clamp(-8_388_607.0, 8_388_607.0)
    }

    fn bf16(x: f64) -> u16 {
        // Through f32 with a sticky bit, so that only the second rounding counts.
        let near = x as f32;
        let bits = near.to_bits();
        let sticky = if f64::from(near) == x {
            bits
        } else if f64::from(near).abs() > x.abs() {
            (bits - 1) | 1
        } else {
            bits | 1
        };
        let upper = (sticky >> 16) as u16;
        let rest = sticky & 0xffff;
        let rounded = upper + u16::from(rest > 0x8000 || (rest == 0x8000 && upper & 1 == 1));
        if rounded & 0x7f80 == 0x7f80 { (rounded & 0x8000) | 0x7f7f } else { rounded }
    }

    fn finite() -> impl Strategy<Value = u16> {
        any::<u16>().prop_filter("finite", |&x| !is_special(x))
    }

    /// Numbers of everyday magnitude, so that the 64-bit paths are met.
    fn everyday() -> impl Strategy<Value = u16> {
        (0u16..2, 110u16..140, 0u16..128).prop_map(|(s, e, m)| s << 15 | e << 7 | m)
    }

    fn check(x: u16, mean: u16, e: i32) -> Result<(), TestCaseError> {
        let q = Quantiser::new(mean, e);
        let (xp, mp) = (parts(x), parts(mean));
        if (xp.exponent - mp.exponent).abs() <= 44 {
            prop_assert_eq!(f64::from(q.residual(x)), exact_residual(x, mean, e));
        }
        let code = q.code(x);
        let back = value(q.rebuild(code));
        let step = STEP[e.rem_euclid(8) as usize] as f64 * 2f64.powi(e.div_euclid(8) - 16);
        if i64::from(q.residual(x)).abs() < RESIDUAL_MAX {
            let octave = 2f64.powi(e.div_euclid(8));
            let ulp = 2f64.powi((parts(q.rebuild(code)).exponent).max(-133));
            let residual = (value(x) - value(mean)).abs();
            let bound = step / 2.0 * (1.0 + 2f64.powi(-15)) + residual * 2f64.powi(-18) + octave / 512.0 + ulp / 2.0;
            let saturated = q.rebuild(code) & 0x7fff == 0x7f7f;
            prop_assert!(saturated || (value(x) - back).abs() <= bound, "{x:#x} {mean:#x} {e}: {back} past {bound}");
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn any_numbers(x in finite(), mean in finite(), e in -256i32..319) {
            check(x, mean, e)?;
        }

        #[test]
        fn everyday_numbers(x in everyday(), mean in everyday(), e in -120i32..40) {
            check(x, mean, e)?;
        }

        /// Where f64 holds the sum exactly, rebuilding rounds it once.
        #[test]
        fn rebuilding_rounds_once(code in -32_767i32..=32_767, mean in everyday(), e in -120i32..40) {
            let step = STEP[e.rem_euclid(8) as usize] as f64 * 2f64.powi(e.div_euclid(8) - 16);
            prop_assert_eq!(Quantiser::new(mean, e).rebuild(code), bf16(value(mean) + f64::from(code) * step));
        }

        /// The wide path and the narrow path agree wherever both apply.
        #[test]
        fn both_paths_agree(x in everyday(), mean in everyday(), e in -120i32..40) {
            let q = Quantiser::new(mean, e);
            let (value, exponent) = sum(parts(x), Parts { mantissa: -q.mean.mantissa, ..q.mean });
            let limit = i128::from(RESIDUAL_MAX);
            let wide = round_shift(value, q.octave - 8 - exponent).clamp(-limit, limit);
            prop_assert_eq!(i128::from(q.residual(x)), wide);
        }
    }

    #[test]
    fn a_reciprocal_times_its_step_is_one_within_the_bound() {
        for (step, reciprocal) in STEP.iter().zip(RECIPROCAL) {
            let error = (step * reciprocal) as f64 / 2f64.powi(34) - 1.0;
            assert!(error.abs() < 2f64.powi(-18), "{error:e}");
        }
    }

    #[test]
    fn code_zero_is_the_mean_itself() {
        assert_eq!(Quantiser::new(0x8000, 0).rebuild(0), 0x8000);
    }

    /// However far apart they lie, the smaller number keeps its sign in the sum.
    #[test]
    fn the_smaller_of_two_numbers_is_never_lost() {
        let high = Parts { mantissa: 1 << 33, exponent: 90 };
        for (mantissa, exponent) in [(1i64, 20), (-1, 20), (3, -50), (-3, -50)] {
            let low = Parts { mantissa, exponent };
            for (value, shown) in [sum(high, low), sum(low, high)] {
                let alone = i128::from(high.mantissa) << (high.exponent - shown);
                assert_eq!((value - alone).signum(), i128::from(mantissa.signum()), "{mantissa} at {exponent}");
            }
        }
    }
}
