//! The formats: a float is (sign, exponent bits, fraction bits, bias, special values), an integer is (width, sign,
//! weight of its last bit). Everything else follows from these few numbers.

use std::fmt;
use std::str::FromStr;

use crate::NumericError;

/// Which codes of a float format are no numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Specials {
    /// IEEE 754: exponent all ones is infinity (fraction 0) or NaN (fraction not 0; quiet if its top bit is 1).
    Ieee,
    /// OCP E4M3: the last code of each sign is NaN, there is no infinity.
    LastIsNan,
    /// FFP8, FP6, FP4: every code is a finite number.
    None,
    /// E8M0: a bare exponent. Code 0 is 2^−bias, not zero; the last code is NaN.
    Scale,
}

/// A binary float of at most 32 bits: sign, exponent, fraction from the top.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FloatFormat {
    signed: bool,
    exp_bits: u8,
    frac_bits: u8,
    bias: i16,
    specials: Specials,
}

impl FloatFormat {
    /// IEEE 754 binary32, 1-8-23.
    pub const FP32: FloatFormat = FloatFormat::new(true, 8, 23, 127, Specials::Ieee);
    /// IEEE 754 binary16, 1-5-10.
    pub const FP16: FloatFormat = FloatFormat::new(true, 5, 10, 15, Specials::Ieee);
    /// bfloat16, 1-8-7: the top half of an FP32, IEEE rules.
    pub const BF16: FloatFormat = FloatFormat::new(true, 8, 7, 127, Specials::Ieee);
    /// OCP OFP8 E4M3: no infinity, S.1111.111 is NaN, max 448.
    pub const E4M3: FloatFormat = FloatFormat::new(true, 4, 3, 7, Specials::LastIsNan);
    /// OCP OFP8 E5M2: IEEE rules, max 57,344.
    pub const E5M2: FloatFormat = FloatFormat::new(true, 5, 2, 15, Specials::Ieee);
    /// OCP MX FP6 E2M3, max 7.5.
    pub const E2M3: FloatFormat = FloatFormat::new(true, 2, 3, 1, Specials::None);
    /// OCP MX FP6 E3M2, max 28.
    pub const E3M2: FloatFormat = FloatFormat::new(true, 3, 2, 3, Specials::None);
    /// OCP MX FP4 E2M1, max 6.
    pub const E2M1: FloatFormat = FloatFormat::new(true, 2, 1, 1, Specials::None);
    /// OCP MX scale E8M0: 2^(code − 127), 0xFF is NaN.
    pub const E8M0: FloatFormat = FloatFormat::new(false, 8, 0, 127, Specials::Scale);

    const fn new(signed: bool, exp_bits: u8, frac_bits: u8, bias: i16, specials: Specials) -> FloatFormat {
        FloatFormat { signed, exp_bits, frac_bits, bias, specials }
    }

    /// The flexible 8-bit float (arXiv 2104.07329): `signed` or not, `exp_bits` 0..=7, the fraction takes the rest of
    /// the 8 bits; subnormals, no infinity, no NaN.
    ///
    /// # Errors
    /// `Ffp8Syntax` if more than 7 exponent bits are asked for; `Ffp8Bias`, naming the range there is, if some code
    /// would not be exact in FP32.
    pub fn ffp8(signed: bool, exp_bits: u32, bias: i32) -> Result<FloatFormat, NumericError> {
        if exp_bits > 7 {
            let text = format!("ffp8:{},{exp_bits},…,{bias}", signed as u8);
            return Err(NumericError::Ffp8Syntax { text });
        }
        let frac_bits = 8 - signed as u32 - exp_bits;
        let range = FloatFormat::ffp8_bias_range(signed, exp_bits);
        if !range.contains(&bias) {
            let (min, max) = (*range.start(), *range.end());
            return Err(NumericError::Ffp8Bias { exp_bits, frac_bits, bias, min, max });
        }
        Ok(FloatFormat::new(signed, exp_bits as u8, frac_bits as u8, bias as i16, Specials::None))
    }

    /// The bias that a split has where none is named: 2^(e − 1) − 1, as IEEE 754 has it; −1 without exponent bits.
    pub const fn ffp8_bias(exp_bits: u32) -> i32 {
        (1 << exp_bits >> 1) - 1
    }

    /// The biases for which every code of the split is exact in FP32: its smallest step is at least 2^−149 and its
    /// largest number below 2^128. `exp_bits` is 0..=7.
    pub fn ffp8_bias_range(signed: bool, exp_bits: u32) -> std::ops::RangeInclusive<i32> {
        let frac_bits = 8 - signed as i32 - exp_bits as i32;
        // The top code's leading bit weighs 2^(2^e − 1 − bias), with e = 0 it weighs 2^−bias.
        let top_at_bias_0 = (1 << exp_bits) - 1;
        top_at_bias_0 - 127..=1 - frac_bits + 149
    }

    /// Has it a sign bit?
    pub const fn signed(self) -> bool {
        self.signed
    }

    /// Width of the exponent field.
    pub const fn exp_bits(self) -> u32 {
        self.exp_bits as u32
    }

    /// Width of the fraction field.
    pub const fn frac_bits(self) -> u32 {
        self.frac_bits as u32
    }

    /// The exponent bias.
    pub const fn bias(self) -> i32 {
        self.bias as i32
    }

    /// Which codes are no numbers.
    pub const fn specials(self) -> Specials {
        self.specials
    }

    /// Bits of a code.
    pub const fn width(self) -> u32 {
        self.signed as u32 + self.exp_bits as u32 + self.frac_bits as u32
    }

    /// Bits of a significand, the hidden one included.
    pub const fn precision(self) -> u32 {
        self.frac_bits as u32 + 1
    }

    /// Exponent of the smallest normal number (E8M0: of its smallest number).
    pub const fn emin(self) -> i32 {
        match self.specials {
            Specials::Scale => -(self.bias as i32),
            _ => 1 - self.bias as i32,
        }
    }

    /// All code bits set.
    pub const fn code_mask(self) -> u32 {
        u32::MAX >> (32 - self.width())
    }

    /// The sign bit's place in a code; 0 where there is none.
    pub const fn sign_mask(self) -> u32 {
        if self.signed { 1 << (self.width() - 1) } else { 0 }
    }

    /// The code of the largest finite number.
    pub const fn max_finite(self) -> u32 {
        let magnitudes = self.code_mask() & !self.sign_mask();
        match self.specials {
            Specials::Ieee => self.infinity_magnitude() - 1,
            Specials::LastIsNan | Specials::Scale => magnitudes - 1,
            Specials::None => magnitudes,
        }
    }

    /// The code of the smallest positive normal number.
    pub const fn min_normal(self) -> u32 {
        match self.specials {
            Specials::Scale => 0,
            _ => 1 << self.frac_bits,
        }
    }

    /// The code of +∞, where there is one.
    pub const fn infinity(self) -> Option<u32> {
        match self.specials {
            Specials::Ieee => Some(self.infinity_magnitude()),
            _ => None,
        }
    }

    /// The code of the canonical NaN, where there is one: positive, quiet, no payload (FP32: 0x7FC00000).
    pub const fn canonical_nan(self) -> Option<u32> {
        match self.specials {
            Specials::Ieee => Some(self.infinity_magnitude() | 1 << (self.frac_bits - 1)),
            Specials::LastIsNan | Specials::Scale => Some(self.code_mask() & !self.sign_mask()),
            Specials::None => None,
        }
    }

    const fn infinity_magnitude(self) -> u32 {
        ((1 << self.exp_bits) - 1) << self.frac_bits
    }
}

/// An integer of at most 32 bits, two's complement where signed, whose last bit weighs 2^`lsb`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IntFormat {
    signed: bool,
    width: u8,
    lsb: i8,
}

impl IntFormat {
    /// 4 bits, −8..=7.
    pub const INT4: IntFormat = IntFormat { signed: true, width: 4, lsb: 0 };
    /// 8 bits, −128..=127.
    pub const INT8: IntFormat = IntFormat { signed: true, width: 8, lsb: 0 };
    /// 8 bits, 0..=255.
    pub const UINT8: IntFormat = IntFormat { signed: false, width: 8, lsb: 0 };
    /// 32 bits.
    pub const INT32: IntFormat = IntFormat { signed: true, width: 32, lsb: 0 };
    /// The element of OCP MXINT8: 8 bits in steps of 2^−6, −2..=1.984375.
    pub const MXINT8: IntFormat = IntFormat { signed: true, width: 8, lsb: -6 };

    /// Is it two's complement?
    pub const fn signed(self) -> bool {
        self.signed
    }

    /// Bits of a code.
    pub const fn width(self) -> u32 {
        self.width as u32
    }

    /// Exponent of the last bit's weight.
    pub const fn lsb(self) -> i32 {
        self.lsb as i32
    }

    /// All code bits set.
    pub const fn code_mask(self) -> u32 {
        u32::MAX >> (32 - self.width as u32)
    }

    /// The least value, in units of the last bit.
    pub const fn min(self) -> i64 {
        if self.signed { -(1 << (self.width - 1)) } else { 0 }
    }

    /// The greatest value, in units of the last bit.
    pub const fn max(self) -> i64 {
        (1 << (self.width - self.signed as u8)) - 1
    }

    /// The integer behind a code, in units of the last bit; bits above the width are ignored.
    pub const fn value(self, code: u32) -> i64 {
        let unused = 64 - self.width as u32;
        let top = (code as u64) << unused;
        if self.signed { top as i64 >> unused } else { (top >> unused) as i64 }
    }
}

/// Any number format of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Format {
    /// A binary float.
    Float(FloatFormat),
    /// An integer or fixed-point number.
    Int(IntFormat),
}

impl Format {
    /// Every format with a name of its own; FFP8 is a family and named by its parameters.
    pub const NAMED: [(&'static str, Format); 14] = [
        ("int4", Format::Int(IntFormat::INT4)),
        ("int8", Format::Int(IntFormat::INT8)),
        ("uint8", Format::Int(IntFormat::UINT8)),
        ("int32", Format::Int(IntFormat::INT32)),
        ("mxint8", Format::Int(IntFormat::MXINT8)),
        ("e2m1", Format::Float(FloatFormat::E2M1)),
        ("e2m3", Format::Float(FloatFormat::E2M3)),
        ("e3m2", Format::Float(FloatFormat::E3M2)),
        ("e4m3", Format::Float(FloatFormat::E4M3)),
        ("e5m2", Format::Float(FloatFormat::E5M2)),
        ("e8m0", Format::Float(FloatFormat::E8M0)),
        ("bf16", Format::Float(FloatFormat::BF16)),
        ("fp16", Format::Float(FloatFormat::FP16)),
        ("fp32", Format::Float(FloatFormat::FP32)),
    ];

    /// Bits of a code.
    pub const fn width(self) -> u32 {
        match self {
            Format::Float(f) => f.width(),
            Format::Int(i) => i.width(),
        }
    }

    /// All code bits set.
    pub const fn code_mask(self) -> u32 {
        u32::MAX >> (32 - self.width())
    }

    /// The code, if the format has it.
    ///
    /// # Errors
    /// `CodeTooWide` if a bit above the width is set.
    pub fn check_code(self, code: u64) -> Result<u32, NumericError> {
        let max = self.code_mask();
        if code > max as u64 {
            return Err(NumericError::CodeTooWide { code, format: self.to_string(), width: self.width(), max });
        }
        Ok(code as u32)
    }

    /// Does it overflow by saturation unless told otherwise? 8-bit formats and smaller, and integers, do.
    pub const fn saturates_by_default(self) -> bool {
        match self {
            Format::Float(f) => f.width() <= 8,
            Format::Int(_) => true,
        }
    }
}

impl From<FloatFormat> for Format {
    fn from(f: FloatFormat) -> Format {
        Format::Float(f)
    }
}

impl From<IntFormat> for Format {
    fn from(i: IntFormat) -> Format {
        Format::Int(i)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (Format::NAMED.iter().find(|(_, named)| named == self), self) {
            (Some((name, _)), _) => out.pad(name),
            (None, Format::Float(f)) => {
                out.pad(&format!("ffp8:{},{},{},{}", f.signed as u8, f.exp_bits, f.frac_bits, f.bias))
            }
            (None, Format::Int(i)) => out.pad(&format!("int{}", i.width)),
        }
    }
}

impl fmt::Display for FloatFormat {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        Format::Float(*self).fmt(out)
    }
}

impl FromStr for Format {
    type Err = NumericError;

    /// Reads a name of [`Format::NAMED`] (case does not matter; `fp8-e4m3`, `fp6-e2m3`, `fp4-e2m1` and the like too) or
    /// `ffp8:s,e,f,bias`, or `ffp8:s-e-f` with the bias of [`FloatFormat::ffp8_bias`].
    fn from_str(name: &str) -> Result<Format, NumericError> {
        let lower = name.trim().to_ascii_lowercase();
        if let Some(fields) = lower.strip_prefix("ffp8:") {
            return parse_ffp8(name, fields).map(Format::Float);
        }
        let short = ["fp8-", "fp6-", "fp4-"].iter().find_map(|p| lower.strip_prefix(p)).unwrap_or(&lower);
        let named = Format::NAMED.iter().find(|(known, _)| *known == short);
        named.map(|(_, format)| *format).ok_or_else(|| {
            let known: Vec<&str> = Format::NAMED.iter().map(|(known, _)| *known).collect();
            NumericError::UnknownFormat {
                name: name.to_string(),
                known: known.join(", ") + " and ffp8:s,e,f,bias (or ffp8:s-e-f)",
            }
        })
    }
}

fn parse_ffp8(text: &str, fields: &str) -> Result<FloatFormat, NumericError> {
    let numbers = |separator| -> Option<Vec<i32>> { fields.split(separator).map(|n| n.trim().parse().ok()).collect() };
    match numbers(',').or_else(|| numbers('-')).as_deref() {
        Some(&[s @ 0..=1, e @ 0..=7, f, bias]) if s + e + f == 8 && fields.contains(',') => {
            FloatFormat::ffp8(s == 1, e as u32, bias)
        }
        Some(&[s @ 0..=1, e @ 0..=7, f]) if s + e + f == 8 && !fields.contains(',') => {
            FloatFormat::ffp8(s == 1, e as u32, FloatFormat::ffp8_bias(e as u32))
        }
        _ => Err(NumericError::Ffp8Syntax { text: text.to_string() }),
    }
}

impl FromStr for FloatFormat {
    type Err = NumericError;

    /// As [`Format::from_str`], floats only.
    fn from_str(name: &str) -> Result<FloatFormat, NumericError> {
        match name.parse()? {
            Format::Float(f) => Ok(f),
            Format::Int(_) => Err(NumericError::NotAnOperand { format: name.to_string() }),
        }
    }
}
