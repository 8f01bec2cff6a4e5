use crate::VectorError;
use crate::function::{Lane, reciprocal};
use numeric::{Exact, Flags, FloatFormat, Format, IntFormat, Mode, Unpacked, convert};

/// How a format is quantised into: what a row's largest magnitude becomes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Quantum {
    /// FP32 nearest to 1/max; `None` for formats of 16 bits and more, which are converted as they are, with scale 1.
    pub(crate) per_largest: Option<f32>,
}

impl Quantum {
    /// Of a format: max is its largest number (127 of INT8, 7 of INT4: the lowest code is not used).
    pub(crate) fn new(format: Format) -> Result<Quantum, VectorError> {
        if format.width() > 8 {
            return Ok(Quantum { per_largest: None });
        }
        let largest = largest(format);
        if !(2f64.powi(-64)..=2f64.powi(64)).contains(&largest) {
            return Err(VectorError::Unscaled { format, largest });
        }
        Ok(Quantum { per_largest: Some((1.0 / largest) as f32) })
    }

    /// The scale and what values are multiplied by, of a largest finite magnitude: scale = fl(largest · fl(1/max)) and its
    /// [`reciprocal`]. A scale below the smallest normal number counts as no value at all: scale 1, factor 0, every code zero.
    #[inline(always)]
    pub(crate) fn scale<const FMA: bool>(self, largest: f32) -> (f32, f32) {
        let Some(per_largest) = self.per_largest else { return (1.0, 1.0) };
        let mut l = Lane { a: largest, s: per_largest, ..Lane::default() };
        scale::<FMA>(&mut l);
        reciprocal::<FMA>(&mut l);
        guard::<FMA>(&mut l);
        (l.x, l.a)
    }
}

/// The scale, kept in x.
#[inline(always)]
pub(crate) fn scale<const FMA: bool>(l: &mut Lane) {
    l.a *= l.s;
    l.x = l.a;
}

/// No scale below the smallest normal number.
#[inline(always)]
pub(crate) fn guard<const FMA: bool>(l: &mut Lane) {
    (l.x, l.a) = if l.x < f32::MIN_POSITIVE { (1.0, 0.0) } else { (l.x, l.a) };
}

/// The format's largest number.
fn largest(format: Format) -> f64 {
    let code = match format {
        Format::Float(f) => f.max_finite(),
        Format::Int(i) => i.max() as u32,
    };
    match format.unpack(code) {
        Unpacked::Finite(Exact { sig, exp, .. }) => sig as f64 * 2f64.powi(exp),
        _ => f64::NAN,
    }
}

/// A value into a code, saturating: to nearest even, a NaN to the format's own or zero with the invalid flag. The lowest code of a
/// signed integer is not used, so that codes are symmetric.
pub(crate) fn quantised(format: Format, x: f32, flags: &mut Flags) -> u32 {
    let mode = if format.width() > 8 { Mode::IEEE } else { Mode::SATURATE };
    let code = convert(FloatFormat::FP32.into(), format, x.to_bits(), mode, flags);
    match format {
        Format::Int(i) if i.signed() && i.width() <= 8 && i.value(code) == i.min() => lowest_but_one(i),
        _ => code,
    }
}

fn lowest_but_one(format: IntFormat) -> u32 {
    (format.min() + 1) as u32 & format.code_mask()
}
