//! The transaction engine: the bits and the cycle count of the clocked processor without clocking it.
//!
//! Integer sums have one value modulo 2³², whatever their order, so only the overflow flag needs the specified one, and only where K
//! is long enough for a sum to leave 32 bits. Float sums are made in the specified order, column beside column.

mod float;
mod grouped;
mod integer;
mod no_overlap;
#[cfg(test)]
mod tests;

pub use grouped::GroupScales;
pub use no_overlap::gemm_cycles_no_overlap;

use crate::{Column, Config, Datapath, GemmError, Job, Output, RowInfo, gemm_cycles};
use float::{Bf16, Decode, Fp16, Narrow};
use grouped::{Floats, Integers};
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
/// the configuration has group scales, which [`grouped_sums`] takes.
pub fn sums(config: Config, job: Job, x: Codes<'_>, w: Codes<'_>) -> Result<Computed, GemmError> {
    let (config, job) = (config.checked()?, job.checked()?);
    if config.group.is_some() {
        return Err(GemmError::GroupScales);
    }
    let cycles = gemm_cycles(config, job);
    match operands(config, job, x, w)? {
        Operands::Integers(x, w) => {
            let (y, overflow) = integer_sums(config, job, x, w);
            Ok(Computed { sums: Sums::Int32(y), overflow, cycles })
        }
        Operands::Floats(x, w) => {
            let y = w.plain(config, job, &x);
            Ok(Computed { sums: Sums::Fp32(y), overflow: false, cycles })
        }
    }
}

/// X[M, K] · W[K, N] with scales per group along k, in FP32:
/// acc = fma(fl(s_x·s_w), partial, acc) for each tile, then, for integers, acc = fma(fl(s_x·min), Σx, acc).
///
/// # Errors
/// As for [`sums`]; if the configuration has no groups, or the scales are not as many as the job has groups, rows and columns; if
/// minima are given to a float datapath.
pub fn grouped_sums(
    config: Config,
    job: Job,
    x: Codes<'_>,
    w: Codes<'_>,
    scales: GroupScales<'_>,
) -> Result<Computed, GemmError> {
    let (config, job) = (config.checked()?, job.checked()?);
    let Some(group) = config.group else { return Err(GemmError::NoGroup) };
    scales.check(job, group, config.datapath.is_float())?;
    let y = match operands(config, job, x, w)? {
        Operands::Integers(x, w) => grouped::product(config, job, Integers, (x, w), scales),
        Operands::Floats(x, w) => w.grouped(config, job, &x, scales),
    };
    Ok(Computed { sums: Sums::Fp32(y), overflow: false, cycles: gemm_cycles(config, job) })
}

/// Operands of the datapath's kind: X decoded, W as it lies.
enum Operands<'a> {
    Integers(&'a [i8], &'a [i8]),
    Floats(Vec<f32>, Weights<'a>),
}

fn operands<'a>(config: Config, job: Job, x: Codes<'a>, w: Codes<'a>) -> Result<Operands<'a>, GemmError> {
    job.check_operands(x.len(), w.len())?;
    let wrong = |name, wants| GemmError::Codes { name, wants, datapath: config.datapath };
    match config.datapath {
        Datapath::Int8 | Datapath::Int4 => {
            let (Codes::Int(x), Codes::Int(w)) = (x, w) else {
                let name = if matches!(x, Codes::Int(_)) { 'W' } else { 'X' };
                return Err(wrong(name, "integers"));
            };
            // Without an early exit, so that the machine's vectors do it.
            let too_wide = |w: &[i8]| w.iter().fold(false, |wide, w| wide | !(-8..8).contains(w));
            if config.datapath == Datapath::Int4 && too_wide(w) {
                return Err(wrong('W', "integers in -8..=7"));
            }
            Ok(Operands::Integers(x, w))
        }
        Datapath::Float { act, weight } => {
            let x = values(act, x).ok_or_else(|| wrong('X', code_word(act)))?;
            let w = Weights::of(weight, w).ok_or_else(|| wrong('W', code_word(weight)))?;
            Ok(Operands::Floats(x, w))
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

/// Codes of W with what decodes them.
enum Weights<'a> {
    Bf16(&'a [u16]),
    Fp16(&'a [u16]),
    Narrow(&'a [u8], Narrow),
    /// Formats whose normal numbers reach below those of FP32.
    Table(&'a [u8], DecodeTable),
}

impl<'a> Weights<'a> {
    /// `None` if the codes are of another width.
    fn of(format: FloatFormat, codes: Codes<'a>) -> Option<Self> {
        match (format, codes) {
            (FloatFormat::BF16, Codes::Bits16(w)) => Some(Self::Bf16(w)),
            (FloatFormat::FP16, Codes::Bits16(w)) => Some(Self::Fp16(w)),
            (FloatFormat::BF16 | FloatFormat::FP16, _) => None,
            (_, Codes::Bits8(w)) => Some(match Narrow::new(format) {
                Some(decode) => Self::Narrow(w, decode),
                None => Self::Table(w, DecodeTable::new(format)),
            }),
            _ => None,
        }
    }

    fn plain(&self, config: Config, job: Job, x: &[f32]) -> Vec<f32> {
        fn product<D: Decode>(config: Config, job: Job, x: &[f32], w: &[D::Code], decode: D) -> Vec<f32> {
            let mut y = vec![0.0; job.m * job.n];
            float::product(job, 0..job.k, config.tile_depth(), x, (w, decode), &mut y);
            y
        }
        match self {
            Self::Bf16(w) => product(config, job, x, w, Bf16),
            Self::Fp16(w) => product(config, job, x, w, Fp16),
            Self::Narrow(w, decode) => product(config, job, x, w, *decode),
            Self::Table(w, table) => product(config, job, x, w, table),
        }
    }

    fn grouped(&self, config: Config, job: Job, x: &[f32], scales: GroupScales<'_>) -> Vec<f32> {
        match self {
            Self::Bf16(w) => grouped::product(config, job, Floats(Bf16), (x, w), scales),
            Self::Fp16(w) => grouped::product(config, job, Floats(Fp16), (x, w), scales),
            Self::Narrow(w, decode) => grouped::product(config, job, Floats(*decode), (x, w), scales),
            Self::Table(w, table) => grouped::product(config, job, Floats(table), (x, w), scales),
        }
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
