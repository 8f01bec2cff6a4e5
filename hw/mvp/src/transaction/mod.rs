//! The transaction engine: the bits and the cycle count of the clocked processor without clocking it.
//!
//! Integer sums have one value modulo 2³², whatever their order, so only the overflow flag needs the specified one, and only where K
//! is long enough for a sum to leave 32 bits. Float sums are made in the specified order, column beside column.

mod float;
mod integer;
mod no_overlap;
#[cfg(test)]
mod tests;

pub use no_overlap::gemm_cycles_no_overlap;

use crate::{Column, Config, Datapath, GemmError, Job, Output, RowInfo, gemm_cycles};
use float::{Bf16, Decode, Fp16};
use numeric::fast::{DecodeTable, decode_bf16_slice, decode_fp16_slice};
use numeric::{Flags, FloatFormat};

/// The longest K whose sums cannot leave 32 bits: K·2¹⁴ < 2³¹.
const SAFE_K: usize = (1 << 17) - 1;

/// An operand's codes, row by row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Codes<'a> {
    /// INT8, or INT4 one a byte: −8..=7. UINT8 enters as x ⊕ 0x80.
    Int(&'a [i8]),
    /// A float format of up to 8 bits, one a byte.
    Bits8(&'a [u8]),
    /// BF16 or FP16.
    Bits16(&'a [u16]),
}

impl Codes<'_> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Codes::Int(codes) => codes.len(),
            Codes::Bits8(codes) => codes.len(),
            Codes::Bits16(codes) => codes.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What the accumulator holds at the end: M × N sums over all of k, row by row.
#[derive(Clone, Debug, PartialEq)]
pub enum Sums {
    /// Of an integer datapath.
    Int32(Vec<i32>),
    /// Of a float datapath; a NaN is 0x7FC00000.
    Fp32(Vec<f32>),
}

impl Sums {
    /// The bits of sum `i`.
    pub fn bits(&self, i: usize) -> u32 {
        match self {
            Sums::Int32(sums) => sums[i] as u32,
            Sums::Fp32(sums) => sums[i].to_bits(),
        }
    }
}

/// What a job computes, before the output stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Computed {
    /// Y, M × N.
    pub sums: Sums,
    /// Some INT32 sum over k-tiles left 32 bits.
    pub overflow: bool,
    /// Cycles that the clocked processor takes with operands and room always at hand.
    pub cycles: u64,
}

/// X[M, K] · W[K, N] in the configuration's datapath.
///
/// # Errors
/// If the configuration cannot be built, if the operands do not have the job's shape or are not codes of the datapath, or if
/// the configuration has group scales, which this function is not given.
pub fn sums(config: Config, job: Job, x: Codes<'_>, w: Codes<'_>) -> Result<Computed, GemmError> {
    let (config, job) = (config.checked()?, job.checked()?);
    job.check_operands(x.len(), w.len())?;
    let cycles = gemm_cycles(config, job);
    if config.group.is_some() {
        return Err(GemmError::GroupScales);
    }
    let wrong = |name, wants| GemmError::Codes { name, wants, datapath: config.datapath };
    match config.datapath {
        Datapath::Int8 | Datapath::Int4 => {
            let (Codes::Int(x), Codes::Int(w)) = (x, w) else {
                let name = if matches!(x, Codes::Int(_)) { 'W' } else { 'X' };
                return Err(wrong(name, "integers"));
            };
            if config.datapath == Datapath::Int4 && !w.iter().all(|w| (-8..8).contains(w)) {
                return Err(wrong('W', "integers in -8..=7"));
            }
            let (y, overflow) = integer_sums(config, job, x, w);
            Ok(Computed { sums: Sums::Int32(y), overflow, cycles })
        }
        Datapath::Float { act, weight } => {
            let x = values(act, x).ok_or_else(|| wrong('X', code_word(act)))?;
            let y = float_sums(config, job, &x, weight, w).ok_or_else(|| wrong('W', code_word(weight)))?;
            Ok(Computed { sums: Sums::Fp32(y), overflow: false, cycles })
        }
    }
}

fn integer_sums(config: Config, job: Job, x: &[i8], w: &[i8]) -> (Vec<i32>, bool) {
    let mut y = vec![0; job.m * job.n];
    if job.k <= SAFE_K {
        integer::product(job, 0..job.k, x, w, &mut y);
        return (y, false);
    }
    let mut overflow = false;
    let mut partial = vec![0; y.len()];
    for tile in 0..config.k_tiles(job.k) {
        partial.fill(0);
        integer::product(job, config.k_range(job.k, tile), x, w, &mut partial);
        for (y, &partial) in y.iter_mut().zip(&partial) {
            let (sum, carry) = y.overflowing_add(partial);
            (*y, overflow) = (sum, overflow | carry);
        }
    }
    (y, overflow)
}

/// What holds a code of the format.
fn code_word(format: FloatFormat) -> &'static str {
    match format {
        FloatFormat::BF16 | FloatFormat::FP16 => "16-bit codes",
        _ => "8-bit codes",
    }
}

/// The operand's values; `None` if its codes are of another width.
fn values(format: FloatFormat, codes: Codes<'_>) -> Option<Vec<f32>> {
    let mut values = vec![0.0; codes.len()];
    match (format, codes) {
        (FloatFormat::BF16, Codes::Bits16(codes)) => decode_bf16_slice(codes, &mut values),
        (FloatFormat::FP16, Codes::Bits16(codes)) => decode_fp16_slice(codes, &mut values),
        (FloatFormat::BF16 | FloatFormat::FP16, _) => return None,
        (_, Codes::Bits8(codes)) => DecodeTable::new(format).decode_slice(codes, &mut values),
        _ => return None,
    }
    .ok()?;
    Some(values)
}

fn float_sums(config: Config, job: Job, x: &[f32], format: FloatFormat, w: Codes<'_>) -> Option<Vec<f32>> {
    fn product<D: Decode>(config: Config, job: Job, x: &[f32], w: &[D::Code], decode: D) -> Vec<f32> {
        let mut y = vec![0.0; job.m * job.n];
        float::product(job, 0..job.k, config.tile_depth(), x, (w, decode), &mut y);
        y
    }
    match (format, w) {
        (FloatFormat::BF16, Codes::Bits16(w)) => Some(product(config, job, x, w, Bf16)),
        (FloatFormat::FP16, Codes::Bits16(w)) => Some(product(config, job, x, w, Fp16)),
        (FloatFormat::BF16 | FloatFormat::FP16, _) => None,
        (_, Codes::Bits8(w)) => Some(product(config, job, x, w, &DecodeTable::new(format))),
        _ => None,
    }
}

/// The output stage over all of Y: codes of the output's format in the low bits, row by row, and the flags of their conversion.
///
/// `rows` and `columns` may be empty, where the defaults of [`RowInfo`] and [`Column`] hold.
pub fn finish(
    config: Config,
    job: Job,
    sums: &Sums,
    output: &Output,
    rows: &[RowInfo],
    columns: &[Column],
) -> (Vec<u32>, Flags) {
    let mut flags = Flags::default();
    let mut y = Vec::with_capacity(job.m * job.n);
    for m in 0..job.m {
        let row = rows.get(m).copied().unwrap_or_default();
        for n in 0..job.n {
            let column = columns.get(n).copied().unwrap_or_default();
            y.push(output.apply(sums.bits(m * job.n + n), config.sums_float(), job.k, &row, &column, &mut flags));
        }
    }
    (y, flags)
}

/// Σa of every row of X, as the row-sum unit makes it.
pub fn row_sums(job: Job, x: &[i8]) -> Vec<i32> {
    x.chunks_exact(job.k).map(|row| row.iter().map(|&v| i32::from(v)).sum()).collect()
}

/// Σw of every column of W, as it is loaded with the weights.
pub fn column_sums(job: Job, w: &[i8]) -> Vec<i32> {
    let mut sums = vec![0i32; job.n];
    for row in w.chunks_exact(job.n) {
        for (sum, &w) in sums.iter_mut().zip(row) {
            *sum = sum.wrapping_add(w.into());
        }
    }
    sums
}
