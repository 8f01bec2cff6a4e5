//! Operands: from a file or from a seed, as the codes that enter the array.

use crate::npy::{Dtype, Npy, NpyError};
use anyhow::{Context, bail};
use mvp::{Code, Codes};
use numeric::fast::Encoder;
use numeric::{Flags, FloatFormat, Format, IntFormat, Mode, Overflow};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::path::Path;

/// How an operand is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Side {
    /// `a` or `b`: its option.
    pub name: &'static str,
    /// As the caller has it; UINT8 enters as x ⊕ 0x80.
    pub format: Format,
}

/// Codes of an operand, row by row.
#[derive(Clone, Debug, PartialEq)]
pub enum Matrix {
    /// INT8, or INT4 one a byte.
    Int(Vec<i8>),
    /// A float of up to 8 bits.
    Bits8(Vec<u8>),
    /// BF16 or FP16.
    Bits16(Vec<u16>),
}

/// What became of the values of a file on their way into a format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Losses {
    /// Values in the file.
    pub values: u64,
    /// Finite values that the format does not have, and whose neighbour it has.
    pub rounded: u64,
    /// Values beyond the largest finite one, which stands for them; infinities among them.
    pub saturated: u64,
    /// Finite values beyond the largest finite one that became infinite or NaN.
    pub overflowed: u64,
    /// NaNs in a format without one: zero stands for them.
    pub nan_lost: u64,
    /// Negative values in a format without a sign: zero stands for them.
    pub negative_lost: u64,
}

impl Losses {
    /// What a report says; nothing if nothing was lost.
    pub fn text(&self) -> Option<String> {
        let Self { values, rounded, saturated, overflowed, nan_lost, negative_lost } = *self;
        let counts = [
            (rounded, "rounded"),
            (saturated, "saturated"),
            (overflowed, "became infinite or NaN"),
            (nan_lost, "NaN became zero"),
            (negative_lost, "negative became zero"),
        ];
        let counts: Vec<String> =
            counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        (!counts.is_empty()).then(|| format!("of {values} values {}", counts.join(", ")))
    }
}

/// An operand.
#[derive(Clone, Debug)]
pub struct Operand {
    /// As the file has it.
    pub shape: Vec<usize>,
    /// Its codes.
    pub matrix: Matrix,
    /// Of a file of values that were converted.
    pub read: Option<Losses>,
}

impl Matrix {
    /// For the transaction engine.
    pub fn codes(&self) -> Codes<'_> {
        match self {
            Matrix::Int(codes) => Codes::Int(codes),
            Matrix::Bits8(codes) => Codes::Bits8(codes),
            Matrix::Bits16(codes) => Codes::Bits16(codes),
        }
    }

    /// For the clocked processor: one code a value, sign-extended from its width.
    pub fn clocked(&self) -> Vec<Code> {
        match self {
            Matrix::Int(codes) => codes.iter().map(|&c| c.into()).collect(),
            Matrix::Bits8(codes) => codes.iter().map(|&c| (c as i8).into()).collect(),
            Matrix::Bits16(codes) => codes.iter().map(|&c| c as Code).collect(),
        }
    }

    /// The integers, of an integer operand.
    pub fn ints(&self) -> Option<&[i8]> {
        if let Matrix::Int(codes) = self { Some(codes) } else { None }
    }
}

impl Side {
    /// The format inside the array.
    pub fn inside(&self) -> Format {
        if self.is_unsigned() { Format::Int(IntFormat::INT8) } else { self.format }
    }

    /// UINT8.
    pub fn is_unsigned(&self) -> bool {
        self.format == Format::Int(IntFormat::UINT8)
    }

    /// What zero points of this operand are moved by on their way in.
    pub fn shift(&self) -> i32 {
        if self.is_unsigned() { 128 } else { 0 }
    }

    /// `n` codes from a generator: integers of the whole range, floats of −1..1 rounded once.
    pub fn generate(&self, n: usize, seed: u64) -> Matrix {
        // A and B differ with one seed.
        let rng = &mut Xoshiro256PlusPlus::seed_from_u64(seed ^ u64::from(self.name.as_bytes()[0]) << 56);
        match self.inside() {
            Format::Int(IntFormat::INT4) => Matrix::Int((0..n).map(|_| rng.random_range(-8..8)).collect()),
            Format::Int(_) => Matrix::Int((0..n).map(|_| rng.random()).collect()),
            Format::Float(format) => round(format, (0..n).map(|_| rng.random_range(-1.0f32..1.0))).0,
        }
    }

    /// The operand of a file.
    ///
    /// # Errors
    /// If the file is torn, no `.npy` file, of another type or in Fortran order, or a code is none of the format's.
    pub fn load(&self, path: &Path) -> anyhow::Result<Operand> {
        let context = || format!("--{} {}", self.name, path.display());
        let npy = Npy::read(path).with_context(context)?;
        let (matrix, read) = self.codes(&npy).with_context(context)?;
        Ok(Operand { shape: npy.shape, matrix, read })
    }

    /// The operand of a file if there is one, which must have that shape, else from the seed.
    ///
    /// # Errors
    /// [`NpyError::WrongShape`].
    pub fn matrix(&self, file: Option<Operand>, shape: &[usize], seed: u64) -> anyhow::Result<Operand> {
        let Some(operand) = file else {
            let matrix = self.generate(shape.iter().product(), seed);
            return Ok(Operand { shape: shape.to_vec(), matrix, read: None });
        };
        if operand.shape != shape {
            let error = NpyError::WrongShape { got: operand.shape, wants: format!("{shape:?}") };
            return Err(anyhow::Error::from(error).context(format!("--{}", self.name)));
        }
        Ok(operand)
    }

    fn codes(&self, npy: &Npy) -> anyhow::Result<(Matrix, Option<Losses>)> {
        use Dtype::*;
        let (types, wants): (&[Dtype], _) = match self.format {
            Format::Int(IntFormat::UINT8) => (&[U8], "|u1"),
            Format::Int(IntFormat::INT4) => (&[I8], "|i1, each in -8..=7"),
            Format::Int(_) => (&[I8], "|i1"),
            Format::Float(FloatFormat::FP16) => (&[F16, U16, F32], "<f2, <u2 (codes) or <f4 (rounded)"),
            Format::Float(f) if f.width() == 16 => (&[U16, Raw16, F32], "<u2 or |V2 (codes) or <f4 (rounded)"),
            Format::Float(_) => (&[U8, Raw8, F32], "|u1 or |V1 (codes) or <f4 (rounded)"),
        };
        npy.expect_type(types, wants)?;
        let floats = || npy.words(f32::from_le_bytes);
        let matrix = match (self.format, npy.dtype) {
            (Format::Float(format), F32) => {
                let (matrix, losses) = round(format, floats().into_iter());
                return Ok((matrix, Some(losses)));
            }
            (Format::Float(format), U16 | F16 | Raw16) if format.width() == 16 => {
                Matrix::Bits16(npy.words(u16::from_le_bytes))
            }
            (Format::Float(format), _) => {
                if let Some(code) = npy.data.iter().find(|&&c| u32::from(c) > Format::Float(format).code_mask()) {
                    bail!("code {code:#04x} is none of {format}, which has {} bits", format.width());
                }
                Matrix::Bits8(npy.data.clone())
            }
            (Format::Int(IntFormat::UINT8), _) => Matrix::Int(npy.data.iter().map(|&v| (v ^ 0x80) as i8).collect()),
            (Format::Int(format), _) => {
                let codes = npy.words(i8::from_le_bytes);
                if format == IntFormat::INT4
                    && let Some(code) = codes.iter().find(|c| !(-8..8).contains(*c))
                {
                    bail!("{code} is no INT4: values lie in -8..=7");
                }
                Matrix::Int(codes)
            }
        };
        Ok((matrix, None))
    }
}

/// Values in a format, each rounded once by its default overflow rule, and what that cost.
fn round(format: FloatFormat, values: impl Iterator<Item = f32>) -> (Matrix, Losses) {
    let mode = Mode::default_of(format.into());
    let encoder = Encoder::new(format, mode);
    let mut losses = Losses::default();
    let codes = values.map(|v| {
        let mut flags = Flags::default();
        let code = encoder.encode(v, &mut flags);
        losses.values += 1;
        if v.is_nan() {
            losses.nan_lost += u64::from(format.canonical_nan().is_none());
        } else if flags.contains(Flags::INVALID) {
            losses.negative_lost += 1;
        } else if flags.contains(Flags::OVERFLOW) || (v.is_infinite() && format.infinity().is_none()) {
            let saturates = mode.overflow == Overflow::Saturate;
            *(if saturates { &mut losses.saturated } else { &mut losses.overflowed }) += 1;
        } else if flags.contains(Flags::INEXACT) {
            losses.rounded += 1;
        }
        code
    });
    let matrix = if format.width() == 16 {
        Matrix::Bits16(codes.map(|c| c as u16).collect())
    } else {
        Matrix::Bits8(codes.map(|c| c as u8).collect())
    };
    (matrix, losses)
}

/// One value for each of `n` columns, from a file that has one or `n`.
///
/// # Errors
/// [`NpyError`] if the file is another array.
pub(super) fn per_column<T: Copy>(npy: &Npy, values: Vec<T>, n: usize) -> Result<Vec<T>, NpyError> {
    match (npy.shape.as_slice(), values.as_slice()) {
        ([] | [1], &[one]) => Ok(vec![one; n]),
        ([columns], _) if *columns == n => Ok(values),
        _ => Err(NpyError::WrongShape { got: npy.shape.clone(), wants: format!("one value, or [{n}]") }),
    }
}
