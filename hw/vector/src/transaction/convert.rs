use crate::VectorError;
use crate::error::same;
use numeric::fast::{CodeWord, DecodeTable, Encoder, Kernel, canonical, decode_bf16, decode_fp16, dispatch};
use numeric::{Flags, FloatFormat, Format, Mode, Specials, convert};

/// A word that holds a code in its low bits; bits above the format's width are ignored, and written as zeros (as copies of the sign in
/// the signed words of an integer format).
pub trait Word: CodeWord {
    /// Its width.
    const BITS: u32;
    /// The code.
    fn code(self) -> u32;
}

macro_rules! words {
    ($($word:ty),+) => {
        $(impl Word for $word {
            const BITS: u32 = <$word>::BITS;
            #[inline(always)]
            fn code(self) -> u32 {
                self as u32
            }
        })+
    };
}
words!(u8, i8, u16, u32, i32);

pub(super) fn check_word<W: Word>(format: Format) -> Result<(), VectorError> {
    let width = format.width();
    if width <= W::BITS { Ok(()) } else { Err(VectorError::Word { format, width, word: W::BITS }) }
}

struct Map<'a, W, F> {
    codes: &'a [W],
    values: &'a mut [f32],
    value: F,
}

impl<W: Word, F: Fn(u32) -> f32> Kernel for Map<'_, W, F> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (value, code) in self.values.iter_mut().zip(self.codes) {
            *value = (self.value)(code.code());
        }
    }
}

/// Codes of any format into FP32: exact but for INT32, which rounds to nearest even. A NaN is 0x7FC00000.
///
/// # Errors
/// If the slices differ in length, or the format is wider than a word.
pub fn decode<W: Word>(format: Format, codes: &[W], values: &mut [f32]) -> Result<(), VectorError> {
    check_word::<W>(format)?;
    same("values", values.len(), codes.len())?;
    match format {
        Format::Float(FloatFormat::FP32) => {
            dispatch(Map { codes, values, value: |code| canonical(f32::from_bits(code)) });
        }
        Format::Float(FloatFormat::BF16) => {
            dispatch(Map { codes, values, value: |code| decode_bf16(code as u16) });
        }
        Format::Float(FloatFormat::FP16) => {
            dispatch(Map { codes, values, value: |code| decode_fp16(code as u16) });
        }
        _ if format.width() <= 8 => {
            let table = DecodeTable::new(format);
            let mask = format.code_mask();
            dispatch(Map { codes, values, value: |code| table.value((code & mask) as u8) });
        }
        _ => {
            let fp32 = FloatFormat::FP32.into();
            let value = |code| f32::from_bits(convert(format, fp32, code, Mode::IEEE, &mut Flags::default()));
            codes.iter().zip(values).for_each(|(code, out)| *out = value(code.code() & format.code_mask()));
        }
    }
    Ok(())
}

/// FP32 into codes of any format, to nearest even; formats of 8 bits and less saturate, the others follow IEEE 754.
///
/// # Errors
/// If the slices differ in length, or the format is wider than a word.
pub fn encode<W: Word>(format: Format, values: &[f32], codes: &mut [W], flags: &mut Flags) -> Result<(), VectorError> {
    check_word::<W>(format)?;
    same("codes", codes.len(), values.len())?;
    let mode = Mode::default_of(format);
    match format {
        Format::Float(f) if f.width() <= 16 && f.specials() != Specials::Scale => {
            let encoded = Encoder::new(f, mode).encode_slice(values, codes, flags);
            debug_assert!(encoded.is_ok(), "both have the values' length");
        }
        _ => {
            for (code, value) in codes.iter_mut().zip(values) {
                *code = word(format, convert(FloatFormat::FP32.into(), format, value.to_bits(), mode, flags));
            }
        }
    }
    Ok(())
}

/// A code in a word, an integer's sign carried on.
pub(super) fn word<W: Word>(format: Format, code: u32) -> W {
    match format {
        Format::Int(i) => W::truncate(i.value(code) as u32),
        Format::Float(_) => W::truncate(code),
    }
}
