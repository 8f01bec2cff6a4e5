//! Choosing a flexible format for a tensor.

use crate::error::NumericError;
use crate::exact::Unpacked;
use crate::fast::{DecodeTable, Encoder};
use crate::flags::Flags;
use crate::format::FloatFormat;
use crate::round::Mode;

/// A flexible format and what it does to the tensor that it was chosen for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ffp8Choice {
    /// The format.
    pub format: FloatFormat,
    /// Mean squared error of the tensor's finite values, rounded to nearest even and saturated.
    pub mse: f64,
}

/// The flexible 8-bit float with the least mean squared error over a tensor, after its authors' method (Huang, Chen
/// and Huang, arXiv 2104.07329: sign bit, split and bias follow the tensor's own magnitudes and distribution).
///
/// Every sign, split and bias is a candidate, so the choice is the best there is and not the best of a sample. A tie
/// goes to the unsigned format, then to fewer exponent bits, then to the bias closest to the one that just covers the
/// largest magnitude. Values that are not finite are left out.
///
/// # Errors
/// `NothingToChooseFrom` if no value is finite.
pub fn choose_ffp8(values: &[f32]) -> Result<Ffp8Choice, NumericError> {
    let finite: Vec<f32> = values.iter().copied().filter(|x| x.is_finite()).collect();
    let largest = finite.iter().map(|x| x.abs()).max_by(f32::total_cmp).ok_or(NumericError::NothingToChooseFrom)?;
    // A sign bit that no value needs only costs a fraction bit: the unsigned split holds every number of the signed.
    let any_negative = finite.iter().any(|x| *x < 0.0);
    let signs: &[bool] = if any_negative { &[false, true] } else { &[false] };

    let mut best = Err(NumericError::NothingToChooseFrom);
    let mut least = f64::INFINITY;
    for &signed in signs {
        for exp_bits in 0..=7 {
            for bias in biases(signed, exp_bits, largest) {
                let format = FloatFormat::ffp8(signed, exp_bits, bias)?;
                if let Some(error) = squared_error_below(least, format, &finite) {
                    least = error;
                    best = Ok(Ffp8Choice { format, mse: error / finite.len() as f64 });
                }
            }
        }
    }
    best
}

/// Every bias of a split, the one whose top binade is `largest`'s first, then outward on both sides.
fn biases(signed: bool, exp_bits: u32, largest: f32) -> impl Iterator<Item = i32> {
    let range = FloatFormat::ffp8_bias_range(signed, exp_bits);
    let top = match FloatFormat::FP32.unpack(largest.to_bits()) {
        Unpacked::Finite(x) if !x.is_zero() => x.top(),
        _ => 0,
    };
    let covering = ((1 << exp_bits) - 1 - top).clamp(*range.start(), *range.end());
    let span = range.end() - range.start();
    let outward = std::iter::once(0).chain((1..=span).flat_map(|d| [d, -d]));
    outward.map(move |d| covering + d).filter(move |bias| range.contains(bias))
}

/// The summed squared error of a tensor in a format, if it is below `limit`; gives up as soon as it is not.
fn squared_error_below(limit: f64, format: FloatFormat, values: &[f32]) -> Option<f64> {
    let encoder = Encoder::new(format, Mode::SATURATE);
    let table = DecodeTable::new(format);
    let mut error = 0.0;
    for chunk in values.chunks(64) {
        for value in chunk {
            let code = encoder.encode(*value, &mut Flags::default());
            error += (table.value(code as u8) as f64 - *value as f64).powi(2);
        }
        if error >= limit {
            return None;
        }
    }
    (error < limit).then_some(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_of_a_formats_own_numbers_is_met_exactly() {
        for (signed, exp_bits, bias) in [(true, 4, 9), (false, 3, 20), (true, 0, -3), (false, 7, 63), (true, 2, 140)] {
            let format = FloatFormat::ffp8(signed, exp_bits, bias).unwrap();
            let table = DecodeTable::new(format);
            let values: Vec<f32> = (0..=255).map(|code| table.value(code)).collect();
            assert_eq!(choose_ffp8(&values), Ok(Ffp8Choice { format, mse: 0.0 }));
        }
    }

    #[test]
    fn what_is_not_finite_does_not_count() {
        assert_eq!(choose_ffp8(&[f32::NAN, f32::INFINITY]), Err(NumericError::NothingToChooseFrom));
        let choice = choose_ffp8(&[f32::NAN, 0.5, -1.0]).unwrap();
        assert_eq!(choice.mse, 0.0);
        assert!(choice.format.signed());
    }
}
