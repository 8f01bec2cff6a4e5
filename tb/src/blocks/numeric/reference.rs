//! A second way to convert: the target's numbers in a table, the nearest one by search. It shares no arithmetic with
//! the core: values are FP64 (every number of every format is one, and so is every midpoint that is looked at), flags
//! follow from their definitions.

use super::tables;
use numeric::{Flags, FloatFormat, Format, IntFormat, Mode, Overflow, Rounding, Specials};

/// What a code means, in FP64.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    /// The number, an infinity, or NaN.
    pub x: f64,
    /// A signalling NaN.
    pub signaling: bool,
}

/// Where a result lay between its neighbours, as coverage names it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Place {
    /// On a number.
    Exact,
    /// Nearer to the smaller one.
    BelowHalf,
    /// In the middle, the even code below.
    TieDown,
    /// In the middle, the even code above.
    TieUp,
    /// Nearer to the larger one.
    AboveHalf,
    /// Past the last number.
    Beyond,
    /// No number.
    Special,
}

impl Place {
    /// The bin's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Place::Exact => "exact",
            Place::BelowHalf => "below_half",
            Place::TieDown => "tie_down",
            Place::TieUp => "tie_up",
            Place::AboveHalf => "above_half",
            Place::Beyond => "beyond",
            Place::Special => "special",
        }
    }
}

/// A format by its table.
#[derive(Debug)]
pub(super) struct Reference {
    format: Format,
    /// Magnitudes of the codes 0..=largest finite, rising; empty for FP32 and integers.
    magnitudes: Vec<f64>,
}

/// Values of every code of a format of at most 16 bits: from the libraries' tables where there is one, by the
/// definition's formula in FP64 elsewhere.
pub(super) fn values(format: Format) -> anyhow::Result<Vec<Value>> {
    let name = format.to_string();
    if format.width() <= 8 && !name.starts_with("ffp8") {
        let words = tables::decoded(&name)?;
        return Ok((0..).zip(words).map(|(code, w)| with_signaling(format, code, f32::from_bits(w) as f64)).collect());
    }
    Ok((0..=format.code_mask()).map(|code| with_signaling(format, code, formula(format, code))).collect())
}

fn with_signaling(format: Format, code: u32, x: f64) -> Value {
    let quiet_bit = match format {
        Format::Float(f) if f.specials() == Specials::Ieee => 1 << (f.frac_bits() - 1),
        _ => 0,
    };
    Value { x, signaling: x.is_nan() && quiet_bit != 0 && code & quiet_bit == 0 }
}

/// (−1)^s · 2^(max(E, 1) − bias) · (hidden + F / 2^f), and IEEE's special values.
fn formula(format: Format, code: u32) -> f64 {
    let f = match format {
        Format::Int(i) => return i.value(code) as f64 * 2f64.powi(i.lsb()),
        Format::Float(f) => f,
    };
    let fraction = f64::from(code & ((1 << f.frac_bits()) - 1)) / f64::from(1u32 << f.frac_bits());
    let exponent = code >> f.frac_bits() & ((1u64 << f.exp_bits()) - 1) as u32;
    let sign = if f.signed() && code >> (f.width() - 1) & 1 == 1 { -1.0 } else { 1.0 };
    if f.specials() == Specials::Ieee && exponent == (1 << f.exp_bits()) - 1 {
        return if fraction == 0.0 { sign * f64::INFINITY } else { f64::NAN };
    }
    let hidden = if exponent == 0 { 0.0 } else { 1.0 };
    sign * 2f64.powi(exponent.max(1) as i32 - f.bias()) * (hidden + fraction)
}

/// The value of one code of FP32 or INT32; narrower formats go by [`values`].
pub(super) fn wide_value(format: Format, code: u32) -> Value {
    let x = match format {
        Format::Float(_) => f32::from_bits(code) as f64,
        Format::Int(_) => code as i32 as f64,
    };
    with_signaling(format, code, x)
}

impl Reference {
    /// The table of a format.
    pub(super) fn new(format: Format) -> anyhow::Result<Reference> {
        let magnitudes = match format {
            Format::Float(f) if f.width() <= 16 => {
                values(format)?.iter().take(f.max_finite() as usize + 1).map(|v| v.x).collect()
            }
            _ => Vec::new(),
        };
        Ok(Reference { format, magnitudes })
    }

    /// Code, flags and place of a converted value.
    pub(super) fn convert(&self, value: Value, mode: Mode) -> (u32, Flags, Place) {
        match self.format {
            Format::Int(i) => int(i, value, mode.rounding),
            Format::Float(f) if f == FloatFormat::FP32 => fp32(value, mode),
            Format::Float(f) => self.float(f, value, mode),
        }
    }

    fn float(&self, f: FloatFormat, value: Value, mode: Mode) -> (u32, Flags, Place) {
        let x = value.x;
        let nan = f.canonical_nan();
        if x.is_nan() {
            let invalid = value.signaling || nan.is_none();
            return (nan.unwrap_or(0), if invalid { Flags::INVALID } else { Flags::NONE }, Place::Special);
        }
        let negative = x.is_sign_negative() && x != 0.0;
        let signed_zero = x == 0.0 && x.is_sign_negative() && f.signed();
        let sign = if (negative || signed_zero) && f.signed() { 1 << (f.width() - 1) } else { 0 };
        if x.is_infinite() {
            if negative && !f.signed() {
                return (nan.unwrap_or(0), Flags::INVALID, Place::Special);
            }
            return match (f.infinity(), mode.overflow) {
                (Some(infinity), Overflow::Own) => (infinity | sign, Flags::NONE, Place::Special),
                _ => self.beyond(f, sign, Mode { rounding: Rounding::NearestEven, ..mode }, Place::Special),
            };
        }
        if f.specials() == Specials::Scale && negative {
            return (0xff, Flags::INVALID, Place::Special);
        }
        let (code, place) = self.nearest(f, x.abs(), mode.rounding);
        if negative && !f.signed() && code > 0 {
            return (0, Flags::INVALID, Place::Special);
        }
        let Some(result) = self.magnitudes.get(code) else {
            return self.beyond(f, sign, mode, Place::Beyond);
        };
        let mut flags = Flags::NONE;
        if *result != x.abs() {
            flags |= Flags::INEXACT;
            if tiny(f, x.abs(), mode.rounding) {
                flags |= Flags::UNDERFLOW;
            }
        }
        (code as u32 | sign, flags, place)
    }

    /// The code of a magnitude; one past the table if it overflows.
    fn nearest(&self, f: FloatFormat, x: f64, rounding: Rounding) -> (usize, Place) {
        let above = self.magnitudes.partition_point(|m| *m <= x);
        if above == 0 {
            return (0, Place::AboveHalf); // E8M0 has no zero below its smallest number
        }
        let below = above - 1;
        let low = self.magnitudes[below];
        let high = self.magnitudes.get(above).copied().unwrap_or_else(|| match f.frac_bits() {
            0 => 2.0 * low,
            _ => low + (low - self.magnitudes[below - 1]),
        });
        if x >= high {
            return (above, Place::Beyond);
        }
        let even_below = below.is_multiple_of(2);
        let place = match x {
            _ if x == low => Place::Exact,
            _ if x + x < low + high => Place::BelowHalf,
            _ if x + x > low + high => Place::AboveHalf,
            _ if even_below => Place::TieDown,
            _ => Place::TieUp,
        };
        let up = rounding == Rounding::NearestEven && matches!(place, Place::TieUp | Place::AboveHalf);
        (below + up as usize, place)
    }

    fn beyond(&self, f: FloatFormat, sign: u32, mode: Mode, place: Place) -> (u32, Flags, Place) {
        let largest = self.magnitudes.len() as u32 - 1;
        let code = match (mode, f.infinity(), f.canonical_nan()) {
            (Mode { overflow: Overflow::Saturate, .. }, _, _) => largest | sign,
            (Mode { rounding: Rounding::TowardZero, .. }, _, _) => largest | sign,
            (_, Some(infinity), _) => infinity | sign,
            (_, None, Some(nan)) => nan,
            (_, None, None) => largest | sign,
        };
        (code, Flags::OVERFLOW | Flags::INEXACT, place)
    }
}

/// Underflow after rounding, by its definition: rounded to full precision, is the magnitude below 2^emin?
fn tiny(f: FloatFormat, x: f64, rounding: Rounding) -> bool {
    if f.exp_bits() == 0 {
        return false;
    }
    let min_normal = 2f64.powi(if f.specials() == Specials::Scale { -f.bias() } else { 1 - f.bias() });
    // The middle between 2^emin and the number of full precision below it.
    let middle = min_normal * (1.0 - 2f64.powi(-(f.frac_bits() as i32) - 2));
    match rounding {
        Rounding::TowardZero => x < min_normal,
        Rounding::NearestEven if f.frac_bits() == 0 => x <= middle,
        Rounding::NearestEven => x < middle,
    }
}

fn int(i: IntFormat, value: Value, rounding: Rounding) -> (u32, Flags, Place) {
    let (low, high) = (i.min() as f64, i.max() as f64);
    let code = |x: f64| x as i64 as u32 & i.code_mask();
    if value.x.is_nan() {
        return (0, Flags::INVALID, Place::Special);
    }
    let scaled = value.x * 2f64.powi(-i.lsb());
    let whole = if rounding == Rounding::NearestEven { scaled.round_ties_even() } else { scaled.trunc() };
    if whole < low || whole > high {
        let place = if scaled.is_infinite() { Place::Special } else { Place::Beyond };
        return (code(whole.clamp(low, high)), Flags::INVALID, place);
    }
    let rest = scaled.abs().fract();
    let place = match rest {
        0.0 => Place::Exact,
        r if r < 0.5 => Place::BelowHalf,
        r if r > 0.5 => Place::AboveHalf,
        _ if scaled.abs().trunc() % 2.0 == 0.0 => Place::TieDown,
        _ => Place::TieUp,
    };
    (code(whole), if rest == 0.0 { Flags::NONE } else { Flags::INEXACT }, place)
}

/// The host's own conversion from FP64, which rounds to nearest even; toward zero it is stepped back.
fn fp32(value: Value, mode: Mode) -> (u32, Flags, Place) {
    let x = value.x;
    if x.is_nan() {
        return (0x7fc0_0000, if value.signaling { Flags::INVALID } else { Flags::NONE }, Place::Special);
    }
    if x.is_infinite() && mode.overflow == Overflow::Saturate {
        let bits = f32::MAX.copysign(x as f32).to_bits();
        return (bits, Flags::OVERFLOW | Flags::INEXACT, Place::Special);
    }
    let nearest = x as f32;
    let exact = nearest as f64 == x;
    let down = if nearest.abs() as f64 > x.abs() { f32::from_bits(nearest.to_bits() - 1) } else { nearest };
    let result = if mode.rounding == Rounding::TowardZero { down } else { nearest };
    let up = f32::from_bits(down.to_bits() + 1);
    let place = match 2.0 * x.abs() - (down.abs() as f64 + up.abs() as f64) {
        _ if exact => Place::Exact,
        d if d < 0.0 => Place::BelowHalf,
        d if d > 0.0 => Place::AboveHalf,
        _ if down.to_bits() & 1 == 0 => Place::TieDown,
        _ => Place::TieUp,
    };
    (result.to_bits(), if exact { Flags::NONE } else { Flags::INEXACT }, place)
}
