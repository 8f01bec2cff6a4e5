use super::convert::{Word, check_word, word};
use super::reduce::{fold, larger, larger_magnitude, tree};
use crate::VectorError;
use crate::command::check_group;
use crate::error::{rows, same};
use crate::function::MAGIC;
use crate::quantum::{Quantum, quantised};
use numeric::fast::{Encoder, Kernel, canonical, dispatch};
use numeric::{Flags, Format, Mode, Specials};

struct Magnitude<'a>(&'a [f32]);

impl Kernel for Magnitude<'_> {
    type Out = f32;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> f32 {
        tree(fold(self.0, [0f32; 32], larger_magnitude), larger)
    }
}

/// The largest finite magnitude of each row of `len` values, or of each `group` of them; 0 where no value is finite.
///
/// # Errors
/// If the values are not rows of `len`, or the group does not divide a row.
pub fn absmax(len: usize, group: Option<usize>, x: &[f32], out: &mut [f32]) -> Result<(), VectorError> {
    rows(x.len(), len)?;
    check_group(group, len)?;
    let group = group.unwrap_or(len);
    same("out", out.len(), x.len() / group)?;
    for (x, out) in x.chunks_exact(group).zip(out) {
        *out = dispatch(Magnitude(x));
    }
    Ok(())
}

/// Codes and a scale for each row of `len` values, or each `group` of them: value ≈ code · scale.
///
/// With A the largest finite magnitude and max the format's largest number (127 of INT8, whose −128 is not used): scale =
/// fl(A · fl(1/max)), code = x · reciprocal(scale), rounded to FP32, then to the format, half to even, saturating. A scale below 2^−126
/// counts as none: scale 1, codes 0. ±∞ saturates; a NaN becomes the format's own, or 0 with the invalid flag. Formats of 16 bits and
/// more are converted as they are, with scale 1.
///
/// # Errors
/// If the values are not rows of `len`, a slice does not fit, or the format is wider than a word or takes no scale.
pub fn quantise<W: Word>(
    format: Format,
    len: usize,
    group: Option<usize>,
    x: &[f32],
    codes: &mut [W],
    scales: &mut [f32],
    flags: &mut Flags,
) -> Result<(), VectorError> {
    rows(x.len(), len)?;
    check_group(group, len)?;
    check_word::<W>(format)?;
    let quantum = Quantum::new(format)?;
    let group = group.unwrap_or(len);
    same("codes", codes.len(), x.len())?;
    same("scales", scales.len(), x.len() / group)?;
    let coder = Coder::new(format);
    // Float codes are made a row at a time: the encoder likes long slices.
    let mut scaled = vec![0f32; len];
    let each_row = x.chunks_exact(len).zip(codes.chunks_exact_mut(len)).zip(scales.chunks_exact_mut(len / group));
    for ((x, codes), scales) in each_row {
        let groups = x.chunks_exact(group).zip(codes.chunks_exact_mut(group)).zip(scales);
        for (((x, codes), scale), scaled) in groups.zip(scaled.chunks_exact_mut(group)) {
            let factor;
            (*scale, factor) = dispatch(Scales { quantum, x });
            match &coder {
                Coder::Float(_) => dispatch(Multiply { x, factor, scaled }),
                Coder::Whole(format) => wholes(*format, x, factor, codes, flags),
                Coder::Each(format) => each(*format, x, factor, codes, flags),
            }
        }
        if let Coder::Float(encoder) = &coder {
            let encoded = encoder.encode_slice(&scaled, codes, flags);
            debug_assert!(encoded.is_ok(), "both are a row");
        }
    }
    Ok(())
}

struct Scales<'a> {
    quantum: Quantum,
    x: &'a [f32],
}

impl Kernel for Scales<'_> {
    type Out = (f32, f32);

    #[inline(always)]
    fn run<const FMA: bool>(self) -> (f32, f32) {
        self.quantum.scale::<FMA>(Magnitude(self.x).run::<FMA>())
    }
}

/// How codes are made fast.
enum Coder {
    /// Of a float format of up to 16 bits.
    Float(Encoder),
    /// Of a signed integer that counts in ones; the format, for values that are no numbers.
    Whole(Format),
    /// One by one.
    Each(Format),
}

impl Coder {
    fn new(format: Format) -> Coder {
        match format {
            Format::Float(f) if f.width() <= 16 && f.specials() != Specials::Scale => {
                Coder::Float(Encoder::new(f, Mode::default_of(format)))
            }
            Format::Int(i) if i.signed() && i.lsb() == 0 && i.width() <= 8 => Coder::Whole(format),
            _ => Coder::Each(format),
        }
    }
}

fn wholes<W: Word>(format: Format, x: &[f32], factor: f32, codes: &mut [W], flags: &mut Flags) {
    let (finite, exact) = dispatch(Wholes { x, factor, codes });
    if !finite {
        each(format, x, factor, codes, flags);
    } else if !exact {
        *flags |= Flags::INEXACT;
    }
}

fn each<W: Word>(format: Format, x: &[f32], factor: f32, codes: &mut [W], flags: &mut Flags) {
    for (code, x) in codes.iter_mut().zip(x) {
        *code = word(format, quantised(format, x * factor, flags));
    }
}

struct Multiply<'a> {
    x: &'a [f32],
    factor: f32,
    scaled: &'a mut [f32],
}

impl Kernel for Multiply<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (scaled, x) in self.scaled.iter_mut().zip(self.x) {
            *scaled = canonical(x * self.factor);
        }
    }
}

struct Wholes<'a, W> {
    x: &'a [f32],
    factor: f32,
    codes: &'a mut [W],
}

impl<W: Word> Kernel for Wholes<'_, W> {
    /// All values were finite, all codes exact.
    type Out = (bool, bool);

    /// Finite values are at most their group's largest, so no code leaves the format and the adder's rounding is the only one.
    #[inline(always)]
    fn run<const FMA: bool>(self) -> (bool, bool) {
        let (mut largest, mut lost) = (0u32, 0u32);
        for (code, x) in self.codes.iter_mut().zip(self.x) {
            largest = largest.max(x.to_bits() & 0x7fff_ffff);
            let value = x * self.factor;
            let sum = value + MAGIC;
            lost |= u32::from(sum - MAGIC != value);
            *code = W::truncate(sum.to_bits().wrapping_sub(MAGIC.to_bits()));
        }
        (largest < f32::INFINITY.to_bits(), lost == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absmax_is_the_largest_finite_magnitude_of_each_group() {
        let x: Vec<f32> = (0..96).map(|i| ((i * 37 % 96) as f32 - 48.5) / 7.0).collect();
        for (group, size) in [(Some(32), 32), (None, 96)] {
            let mut out = vec![0.0; x.len() / size];
            absmax(96, group, &x, &mut out).unwrap();
            let want: Vec<f32> = x.chunks(size).map(|g| g.iter().map(|x| x.abs()).fold(0.0, f32::max)).collect();
            assert_eq!(out, want);
        }
        let mut out = [0.0];
        absmax(4, None, &[-3.0, f32::INFINITY, f32::NAN, 2.0], &mut out).unwrap();
        assert_eq!(out, [3.0]);
    }
}
