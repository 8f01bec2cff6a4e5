//! Codes and values as an engineer reads them.

use numeric::{Exact, Flags, FloatFormat, Format, Unpacked};
use serde_json::{Value, json};

/// A code of a format and all that can be said of it.
pub(super) struct Shown {
    format: Format,
    code: u32,
    flags: Flags,
}

impl Shown {
    pub(super) fn new(format: Format, code: u32, flags: Flags) -> Shown {
        Shown { format, code, flags }
    }

    /// `0x7e`, as wide as the format.
    pub(super) fn hex(&self) -> String {
        format!("{:#0width$x}", self.code, width = 2 + self.format.width().div_ceil(4) as usize)
    }

    /// The fields in binary, `0 1111 110`; an integer's bits together.
    pub(super) fn fields(&self) -> String {
        let bits = format!("{:0width$b}", self.code, width = self.format.width() as usize);
        let Format::Float(f) = self.format else { return bits };
        let (sign, rest) = bits.split_at(f.signed() as usize);
        let (exponent, fraction) = rest.split_at(f.exp_bits() as usize);
        [sign, exponent, fraction].into_iter().filter(|field| !field.is_empty()).collect::<Vec<_>>().join(" ")
    }

    fn value(&self) -> Unpacked {
        self.format.unpack(self.code)
    }

    /// What kind of number it is.
    pub(super) fn class(&self) -> &'static str {
        let small = |f: FloatFormat| self.code & !f.sign_mask() & f.code_mask() < f.min_normal();
        match (self.value(), self.format) {
            (Unpacked::Nan { signaling: true }, _) => "signalling NaN",
            (Unpacked::Nan { .. }, _) => "NaN",
            (Unpacked::Infinite { .. }, _) => "infinity",
            (Unpacked::Finite(x), _) if x.is_zero() => "zero",
            (Unpacked::Finite(_), Format::Int(_)) => "integer",
            (Unpacked::Finite(_), Format::Float(f)) if small(f) => "subnormal",
            (Unpacked::Finite(_), Format::Float(_)) => "normal",
        }
    }

    /// The value in decimal, every digit.
    pub(super) fn decimal(&self) -> String {
        match self.value() {
            Unpacked::Nan { .. } => "nan".into(),
            Unpacked::Infinite { negative } => if negative { "-inf" } else { "inf" }.into(),
            Unpacked::Finite(x) => {
                // 2^−149 has 149 decimals; FP64 holds every code's value, and prints it exactly.
                let text = format!("{:.149}", as_f64(x));
                text.trim_end_matches('0').trim_end_matches('.').to_string()
            }
        }
    }

    /// The value as a hexadecimal float.
    pub(super) fn hex_float(&self) -> String {
        match self.value() {
            Unpacked::Finite(x) => hex_float(x),
            _ => self.decimal(),
        }
    }

    pub(super) fn line(&self) -> String {
        let flags = if self.flags == Flags::NONE { String::new() } else { format!("  flags: {}", self.flags) };
        format!(
            "{} {}  [{}]  {}  = {} = {}{flags}",
            self.format,
            self.hex(),
            self.fields(),
            self.class(),
            self.decimal(),
            self.hex_float()
        )
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "format": self.format.to_string(), "code": self.hex(), "fields": self.fields(), "class": self.class(),
            "value": self.decimal(), "hex_float": self.hex_float(), "flags": self.flags.names(),
        })
    }
}

/// The value of a code, which is exact in FP64.
fn as_f64(x: Exact) -> f64 {
    let magnitude = x.sig as f64 * 2f64.powi(x.exp);
    if x.negative { -magnitude } else { magnitude }
}

fn hex_float(x: Exact) -> String {
    let sign = if x.negative { "-" } else { "" };
    if x.is_zero() {
        return format!("{sign}0x0p+0");
    }
    let fraction = (x.sig << x.sig.leading_zeros()) << 1; // the leading one falls out
    let digits = format!("{fraction:032x}");
    let digits = digits.trim_end_matches('0');
    let point = if digits.is_empty() { "" } else { "." };
    format!("{sign}0x1{point}{digits}p{:+}", x.top())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(format: FloatFormat, code: u32) -> String {
        Shown::new(format.into(), code, Flags::NONE).line()
    }

    #[test]
    fn codes_are_shown_with_fields_and_exact_values() {
        assert_eq!(shown(FloatFormat::E4M3, 0x7e), "e4m3 0x7e  [0 1111 110]  normal  = 448 = 0x1.cp+8");
        assert_eq!(
            shown(FloatFormat::E5M2, 0x81),
            "e5m2 0x81  [1 00000 01]  subnormal  = -0.0000152587890625 = -0x1p-16"
        );
        assert_eq!(shown(FloatFormat::FP16, 0xfc00), "fp16 0xfc00  [1 11111 0000000000]  infinity  = -inf = -inf");
        assert_eq!(shown(FloatFormat::E8M0, 0x7f), "e8m0 0x7f  [01111111]  normal  = 1 = 0x1p+0");
        assert_eq!(
            shown(FloatFormat::FP32, 0x8000_0000),
            "fp32 0x80000000  [1 00000000 00000000000000000000000]  zero  = -0 = -0x0p+0"
        );
        let smallest = Shown::new(FloatFormat::FP32.into(), 1, Flags::NONE);
        assert!(smallest.decimal().ends_with("125") && smallest.decimal().len() == 151);
    }
}
