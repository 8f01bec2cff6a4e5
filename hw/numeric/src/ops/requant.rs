use super::convert::convert;
use super::mul::mul;
use crate::error::NumericError;
use crate::exact::{Exact, Unpacked};
use crate::flags::Flags;
use crate::format::{FloatFormat, Format, IntFormat};
use crate::round::{Mode, Rounding};

/// Requantises an INT32 accumulator by an FP32 scale, as ONNX's QLinear operators: acc → FP32 (nearest even), × `scale`
/// (FP32, nearest even), → integer (half to even), + `zero_point`, saturate to `to` (INT4, INT8 or UINT8). Returns the
/// code.
///
/// Flags: inexact where any step rounded; invalid where the result saturates or `scale` is a NaN (which gives the zero
/// point) or infinite.
pub fn requant_onnx(acc: i32, scale: u32, zero_point: i32, to: IntFormat, flags: &mut Flags) -> u32 {
    let acc = convert(IntFormat::INT32.into(), FloatFormat::FP32.into(), acc as u32, Mode::IEEE, flags);
    let scaled = mul(FloatFormat::FP32, acc, scale, Mode::IEEE, flags);
    // Wide enough for any sum with a zero point that can come back into range.
    let whole = convert(FloatFormat::FP32.into(), Format::Int(IntFormat::INT32), scaled, Mode::SATURATE, flags);
    saturate(whole as i32 as i64 + zero_point as i64, to, flags)
}

/// A real factor as fixed-point: `multiplier` × 2^(`shift` − 31), `multiplier` in 2^30..2^31 (or 0), as TFLite
/// stores it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FixedScale {
    multiplier: i32,
    shift: i32,
}

impl FixedScale {
    /// From its two fields: `multiplier` ≥ 0, `shift` −31..=30 (positive to the left).
    ///
    /// # Errors
    /// `FixedScale`, naming the field, if one is out of range.
    pub fn new(multiplier: i32, shift: i32) -> Result<FixedScale, NumericError> {
        if multiplier < 0 {
            let (got, max) = (multiplier as i64, i32::MAX as i64);
            return Err(NumericError::FixedScale { what: "multiplier", got, min: 0, max });
        }
        if !(-31..=30).contains(&shift) {
            return Err(NumericError::FixedScale { what: "shift", got: shift as i64, min: -31, max: 30 });
        }
        Ok(FixedScale { multiplier, shift })
    }

    /// From an FP32 scale, exactly: its 24 bits fit in the multiplier's 31. Zero and anything below 2^−32 give zero,
    /// as in TFLite.
    ///
    /// # Errors
    /// `ScaleRange` for a negative, infinite or NaN scale, or one of 2^30 or more.
    pub fn from_f32(scale: u32) -> Result<FixedScale, NumericError> {
        match FloatFormat::FP32.unpack(scale) {
            Unpacked::Finite(x) if x.is_zero() || !x.negative && x.top() < -32 => FixedScale::new(0, 0),
            Unpacked::Finite(x @ Exact { negative: false, .. }) if x.top() < 30 => {
                let multiplier = (x.sig << x.sig.leading_zeros()) >> 97; // 31 bits, the top one set
                FixedScale::new(multiplier as i32, x.top() + 1) // x = 0.1… × 2^shift
            }
            _ => Err(NumericError::ScaleRange { scale: f32::from_bits(scale) }),
        }
    }

    /// The multiplier, 31 bits.
    pub const fn multiplier(self) -> i32 {
        self.multiplier
    }

    /// The shift, 6 bits signed, positive to the left.
    pub const fn shift(self) -> i32 {
        self.shift
    }
}

/// Requantises an INT32 accumulator by a fixed-point factor, as gemmlowp and TFLite: shift left (saturating), the high
/// half of the doubled product (nearest, ties away from zero for positive and toward +∞ for negative products:
/// gemmlowp's SaturatingRoundingDoublingHighMul), shift right (nearest, ties away from zero: RoundingDivideByPOT),
/// + `zero_point`, saturate to `to`. Two roundings, and that is the rule.
///
/// Flags: invalid where the left shift or the result saturates. The rule's own roundings are not reported.
pub fn requant_fixed(acc: i32, scale: FixedScale, zero_point: i32, to: IntFormat, flags: &mut Flags) -> u32 {
    let shifted = (acc as i64) << scale.shift.max(0);
    let shifted = saturate(shifted, IntFormat::INT32, flags) as i32;
    let high = doubling_high_mul(shifted, scale.multiplier);
    let scaled = divide_by_power_of_two(high, (-scale.shift).max(0));
    saturate(scaled as i64 + zero_point as i64, to, flags)
}

/// ⌊2ab / 2^32⌉, as gemmlowp's SaturatingRoundingDoublingHighMul. `b` is never negative here, so its one overflow
/// (both −2^31) cannot arise.
fn doubling_high_mul(a: i32, b: i32) -> i32 {
    let product = a as i64 * b as i64;
    let nudge = if product >= 0 { 1 << 30 } else { 1 - (1 << 30) };
    ((product + nudge) / (1 << 31)) as i32 // the division truncates toward zero
}

/// x / 2^`by`, to nearest, ties away from zero: gemmlowp's RoundingDivideByPOT. `by` 0..=31.
fn divide_by_power_of_two(x: i32, by: i32) -> i32 {
    let mask = (1i64 << by) - 1;
    let remainder = x as i64 & mask;
    let threshold = (mask >> 1) + (x < 0) as i64;
    (x >> by.min(31)) + (remainder > threshold) as i32
}

fn saturate(value: i64, to: IntFormat, flags: &mut Flags) -> u32 {
    to.pack(Unpacked::Finite(Exact::from_int(value, to.lsb())), Rounding::NearestEven, flags)
}
