//! Codes into FP32 values: always exact.

use super::dispatch::{Kernel, dispatch};
use crate::error::NumericError;
use crate::flags::Flags;
use crate::format::{FloatFormat, Format, Specials};
use crate::ops::convert;
use crate::round::Mode;

/// The FP32 value of every code of a format of at most 8 bits. Codes wrap at the format's width.
#[derive(Clone, Debug)]
pub struct DecodeTable {
    values: Box<[f32; 256]>,
    /// The same by arithmetic, where the format allows it: what many codes are decoded by.
    narrow: Option<Narrow>,
}

impl DecodeTable {
    /// Fills the table from the core. Wider formats than 8 bits keep their low 8 bits only: use the 16-bit functions.
    pub fn new(format: impl Into<Format>) -> DecodeTable {
        let format = format.into();
        let value = |code| convert(format, FloatFormat::FP32.into(), code as u32, Mode::IEEE, &mut Flags::default());
        let narrow = match format {
            Format::Float(format) => Narrow::new(format),
            _ => None,
        };
        DecodeTable { values: Box::new(std::array::from_fn(|code| f32::from_bits(value(code)))), narrow }
    }

    /// The value of one code; a NaN is canonical.
    #[inline(always)]
    pub fn value(&self, code: u8) -> f32 {
        self.values[code as usize]
    }

    /// The values of many.
    ///
    /// # Errors
    /// `Length` if the slices differ in length.
    pub fn decode_slice(&self, codes: &[u8], values: &mut [f32]) -> Result<(), NumericError> {
        same_length(codes.len(), values.len())?;
        match self.narrow {
            Some(narrow) => dispatch(Decode { codes, values, decode: move |code| narrow.value(code) }),
            None => dispatch(Decode { codes, values, decode: |code| self.value(code) }),
        }
        Ok(())
    }
}

/// A format of at most 8 bits, decoded without branches or tables, so that a loop over codes vectorises.
#[derive(Clone, Copy, Debug)]
pub struct Narrow {
    /// Bits of a magnitude.
    magnitude: u32,
    /// From a code's sign to FP32's.
    sign: u32,
    sign_shift: u32,
    /// From the fraction's place to FP32's.
    shift: u32,
    /// What FP32's exponent has more, in FP32's place.
    rebias: u32,
    /// Smallest normal magnitude, and the value of the last place below it.
    normal: u32,
    step: f32,
    /// Smallest magnitudes that are infinite, and that are NaN.
    infinite: u32,
    nan: u32,
}

impl Narrow {
    /// `None` for a format of more than 8 bits, one without zero, and one whose normal numbers are subnormal in FP32.
    pub fn new(format: FloatFormat) -> Option<Narrow> {
        if format.width() > 8 || format.specials() == Specials::Scale || format.emin() < -126 {
            return None;
        }
        let magnitude = format.code_mask() & !format.sign_mask();
        let above = 1 << 8;
        let infinite = format.infinity().unwrap_or(above);
        let nan = match format.specials() {
            Specials::Ieee => infinite + 1,
            Specials::LastIsNan => magnitude,
            Specials::None | Specials::Scale => above,
        };
        let fraction = format.frac_bits();
        let step = 2f64.powi(1 - format.bias() - fraction as i32) as f32;
        let sign = format.sign_mask();
        Some(Narrow {
            magnitude,
            sign,
            sign_shift: 32 - format.width(),
            shift: 23 - fraction,
            rebias: ((127 - format.bias()) << 23) as u32,
            normal: 1 << fraction,
            step,
            infinite,
            nan,
        })
    }

    /// The value of one code, exactly; a NaN is canonical.
    #[inline(always)]
    pub fn value(&self, code: u8) -> f32 {
        let magnitude = code as u32 & self.magnitude;
        let normal = (magnitude << self.shift).wrapping_add(self.rebias);
        let subnormal = (magnitude as i32 as f32 * self.step).to_bits();
        let bits = if magnitude < self.normal { subnormal } else { normal };
        let bits = if magnitude >= self.infinite { 0x7f80_0000 } else { bits };
        let bits = bits | (code as u32 & self.sign) << self.sign_shift;
        f32::from_bits(if magnitude >= self.nan { 0x7fc0_0000 } else { bits })
    }
}

/// BF16 is the top half of an FP32. NaNs become canonical.
#[inline(always)]
pub fn decode_bf16(code: u16) -> f32 {
    super::canonical(f32::from_bits((code as u32) << 16))
}

/// FP16 into FP32, without branches. NaNs become canonical.
#[inline(always)]
pub fn decode_fp16(code: u16) -> f32 {
    const EXPONENT: u32 = 0x7c00 << 13;
    let code = code as u32;
    let magnitude = (code & 0x7fff) << 13;
    let exponent = magnitude & EXPONENT;
    let normal = magnitude + FP16_REBIAS;
    // A subnormal gets the hidden one of 2^−14, which the subtraction takes away again, normalising on its way.
    let one = f32::from_bits(FP16_REBIAS + (1 << 23));
    let subnormal = (f32::from_bits(normal + (1 << 23)) - one).to_bits();
    let special = if magnitude > EXPONENT { 0x7fc0_0000 } else { 0x7f80_0000 };
    let bits = if exponent == 0 { subnormal } else { normal };
    let bits = if exponent == EXPONENT { special } else { bits };
    let sign = if magnitude > EXPONENT { 0 } else { (code & 0x8000) << 16 };
    f32::from_bits(bits | sign)
}

/// Codes between two looks for infinities and NaNs.
const CHUNK: usize = 128;

/// FP16 in chunks; those with an infinity or a NaN are done again with all cases.
struct DecodeFp16<'a> {
    codes: &'a [u16],
    values: &'a mut [f32],
}

impl Kernel for DecodeFp16<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (codes, values) in self.codes.chunks(CHUNK).zip(self.values.chunks_mut(CHUNK)) {
            let mut largest = 0;
            for (value, code) in values.iter_mut().zip(codes) {
                let code = *code as u32;
                let magnitude = code & 0x7fff;
                largest = largest.max(magnitude);
                let normal = (magnitude << 13) + FP16_REBIAS;
                let one = f32::from_bits(FP16_REBIAS + (1 << 23));
                let subnormal = (f32::from_bits(normal + (1 << 23)) - one).to_bits();
                let bits = if magnitude < 0x400 { subnormal } else { normal };
                *value = f32::from_bits(bits | (code & 0x8000) << 16);
            }
            if largest >= 0x7c00 {
                for (value, code) in values.iter_mut().zip(codes) {
                    *value = decode_fp16(*code);
                }
            }
        }
    }
}

/// What FP32's exponent has more than FP16's, in FP32's place.
const FP16_REBIAS: u32 = (127 - 15) << 23;

struct Decode<'a, C, F> {
    codes: &'a [C],
    values: &'a mut [f32],
    decode: F,
}

impl<C: Copy, F: Fn(C) -> f32> Kernel for Decode<'_, C, F> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (value, code) in self.values.iter_mut().zip(self.codes) {
            *value = (self.decode)(*code);
        }
    }
}

/// BF16 codes into FP32 values.
///
/// # Errors
/// `Length` if the slices differ in length.
pub fn decode_bf16_slice(codes: &[u16], values: &mut [f32]) -> Result<(), NumericError> {
    same_length(codes.len(), values.len())?;
    dispatch(Decode { codes, values, decode: |code| decode_bf16(code) });
    Ok(())
}

/// FP16 codes into FP32 values.
///
/// # Errors
/// `Length` if the slices differ in length.
pub fn decode_fp16_slice(codes: &[u16], values: &mut [f32]) -> Result<(), NumericError> {
    same_length(codes.len(), values.len())?;
    dispatch(DecodeFp16 { codes, values });
    Ok(())
}

pub(super) fn same_length(want: usize, got: usize) -> Result<(), NumericError> {
    if got == want { Ok(()) } else { Err(NumericError::Length { what: "output", got, want }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_formats_decode_as_their_tables() {
        let named = [FloatFormat::E4M3, FloatFormat::E5M2, FloatFormat::E2M3, FloatFormat::E3M2, FloatFormat::E2M1];
        let splits = (0..8).flat_map(|exp| [false, true].map(|signed| (signed, exp)));
        let flexible = splits.flat_map(|(signed, exp)| {
            let biases = FloatFormat::ffp8_bias_range(signed, exp);
            biases.filter_map(move |bias| FloatFormat::ffp8(signed, exp, bias).ok())
        });
        let mut decoded = 0;
        for format in named.into_iter().chain(flexible) {
            let table = DecodeTable::new(format);
            let Some(narrow) = Narrow::new(format) else {
                assert!(format.emin() < -126, "{format}");
                continue;
            };
            for code in 0..=255 {
                assert_eq!(narrow.value(code).to_bits(), table.value(code).to_bits(), "{format}, code {code:#04x}");
                decoded += 1;
            }
        }
        assert!(decoded > 256 * 1_000, "only {decoded} codes");
        assert!(Narrow::new(FloatFormat::BF16).is_none() && Narrow::new(FloatFormat::E8M0).is_none());
    }
}
