//! The output stage: bias, scale, zero points, activation, conversion, from files and options.

use super::operands::per_column;
use super::{Matrix, Ran, Setup, Side};
use crate::npy::{Dtype, Npy, NpyError};
use anyhow::{Context, bail};
use mvp::{Activation, Column, Job, Output, RowInfo, column_sums, finish, row_sums};
use numeric::{Flags, FloatFormat, Format, IntFormat};
use std::path::Path;

/// What is done with the sums.
pub struct Finish {
    /// The same for every value.
    pub output: Output,
    /// N columns, without their sums of weights.
    pub columns: Vec<Column>,
}

fn read(option: &str, path: &Path) -> anyhow::Result<Npy> {
    Npy::read(path).with_context(|| format!("--{option} {}", path.display()))
}

/// Zero points of an operand, in the array's own range.
fn zero_points(option: &str, path: &Path, side: Side, n: usize) -> anyhow::Result<Vec<i32>> {
    let npy = read(option, path)?;
    let values = || {
        let (dtype, wants) = if side.is_unsigned() { (Dtype::U8, "|u1") } else { (Dtype::I8, "|i1") };
        npy.expect_type(&[dtype], wants)?;
        let value = |&v: &u8| if side.is_unsigned() { i32::from(v) } else { i32::from(v as i8) };
        per_column(&npy, npy.data.iter().map(value).collect(), n)
    };
    let values: Vec<i32> = values().with_context(|| format!("--{option} {}", path.display()))?;
    Ok(values.into_iter().map(|z| z - side.shift()).collect())
}

/// Y of one job or of several.
#[derive(Debug, Default)]
pub struct Finished {
    /// Codes in the low bits, row by row.
    pub codes: Vec<u32>,
    /// Of the conversion into the result's format.
    pub flags: Flags,
    /// Results whose sum with zero points and bias left 32 bits and wrapped.
    pub wrapped: u64,
}

impl Finish {
    /// Reads the files for `n` columns.
    ///
    /// # Errors
    /// A file that is torn or of another type or shape; options that do not go with the formats.
    pub fn new(setup: &Setup<'_>, n: usize) -> anyhow::Result<Self> {
        let (o, float) = (setup.options, setup.config.sums_float());
        let mut output = Output::raw(float);
        let mut columns = vec![Column { w_zero: -setup.b.shift(), ..Column::default() }; n];
        output.x_zero = -setup.a.shift();
        if float && let Some(path) = o.zero_point.as_ref().or(o.b_zero_point.as_ref()) {
            bail!("{}: a zero point belongs to int8 and uint8, not to {}", path.display(), setup.config.datapath);
        }
        if let Some(path) = &o.zero_point {
            output.x_zero = zero_points("zero-point", path, setup.a, 1)?[0];
        }
        if let Some(path) = &o.b_zero_point {
            let zeros = zero_points("b-zero-point", path, setup.b, n)?;
            columns.iter_mut().zip(zeros).for_each(|(column, zero)| column.w_zero = zero);
        }
        if let Some(path) = &o.bias {
            let npy = read("bias", path)?;
            bias(&npy, float, &mut output, &mut columns).with_context(|| format!("--bias {}", path.display()))?;
        }
        if let Some(path) = &o.scale {
            let npy = read("scale", path)?;
            let scales = npy.expect_type(&[Dtype::F32], "<f4");
            let scales = scales.and_then(|()| per_column(&npy, npy.words(f32::from_le_bytes), n));
            let scales = scales.with_context(|| format!("--scale {}", path.display()))?;
            columns.iter_mut().zip(scales).for_each(|(column, scale)| column.scale = scale);
            output.rescale = true;
        }
        if o.relu {
            output.activation = Activation::Relu;
        }
        if output.rescale || output.add_offset {
            output.format = Format::Float(FloatFormat::FP32);
        }
        if let Some(name) = &o.out_format {
            output.format = name.parse()?;
        }
        dtype(output.format)?;
        output.y_zero = o.out_zero_point;
        let range = match output.format {
            Format::Int(IntFormat::INT8) => -128..=127,
            Format::Int(IntFormat::UINT8) => 0..=255,
            _ => 0..=0,
        };
        if !range.contains(&output.y_zero) {
            let (low, high) = range.into_inner();
            bail!("--out-zero-point {}: of a result in {} it lies in {low}..={high}", output.y_zero, output.format);
        }
        Ok(Self { output, columns })
    }

    /// Y of a job. `columns` are those of the job.
    pub fn apply(
        &self,
        setup: &Setup<'_>,
        job: Job,
        ran: &Ran,
        (x, w): (&Matrix, &Matrix),
        columns: &[Column],
    ) -> Finished {
        let (Some(x), Some(w)) = (x.ints(), w.ints()) else {
            let (codes, flags) = finish(setup.config, job, &ran.sums, &self.output, &[], columns);
            return Finished { codes, flags, wrapped: 0 };
        };
        let rows: Vec<RowInfo> =
            row_sums(job, x).into_iter().map(|sum| RowInfo { sum, ..RowInfo::default() }).collect();
        let sums = column_sums(job, w).into_iter();
        let columns: Vec<Column> =
            sums.zip(columns).map(|(weight_sum, &column)| Column { weight_sum, ..column }).collect();
        let exact = |i: usize| {
            let acc = ran.sums.bits(i) as i32;
            self.output.exact(acc, job.k, &rows[i / job.n], &columns[i % job.n])
        };
        let wrapped = (0..job.m * job.n).filter(|&i| i32::try_from(exact(i)).is_err()).count() as u64;
        let (codes, flags) = finish(setup.config, job, &ran.sums, &self.output, &rows, &columns);
        Finished { codes, flags, wrapped }
    }

    /// The result as a file holds it.
    ///
    /// # Errors
    /// A format that no file holds.
    pub fn npy(&self, shape: &[usize], codes: &[u32]) -> anyhow::Result<Npy> {
        let dtype = dtype(self.output.format)?;
        let data = codes.iter().flat_map(|code| code.to_le_bytes().into_iter().take(dtype.bytes())).collect();
        Ok(Npy { dtype, shape: shape.to_vec(), data })
    }
}

/// Bias: INT32 before the scale, FP32 after it.
fn bias(npy: &Npy, float: bool, output: &mut Output, columns: &mut [Column]) -> Result<(), NpyError> {
    let n = columns.len();
    if float {
        npy.expect_type(&[Dtype::F32], "<f4")?;
    } else {
        npy.expect_type(&[Dtype::I32, Dtype::F32], "<i4 or <f4")?;
    }
    if npy.dtype == Dtype::I32 {
        let values = per_column(npy, npy.words(i32::from_le_bytes), n)?;
        columns.iter_mut().zip(values).for_each(|(column, bias)| column.bias = bias);
    } else {
        let values = per_column(npy, npy.words(f32::from_le_bytes), n)?;
        columns.iter_mut().zip(values).for_each(|(column, offset)| column.offset = offset);
        output.add_offset = true;
    }
    Ok(())
}

/// The type of a result in a file.
fn dtype(format: Format) -> anyhow::Result<Dtype> {
    Ok(match format {
        Format::Int(IntFormat::INT32) => Dtype::I32,
        Format::Int(IntFormat::INT8) => Dtype::I8,
        Format::Int(IntFormat::UINT8) => Dtype::U8,
        Format::Float(FloatFormat::FP32) => Dtype::F32,
        Format::Float(FloatFormat::FP16) => Dtype::F16,
        Format::Float(FloatFormat::BF16) => Dtype::U16,
        Format::Float(f) if f.width() == 8 && f != FloatFormat::E8M0 => Dtype::U8,
        other => {
            bail!("--out-format {other}: results leave as int32, int8, uint8, fp32, bf16, fp16, e4m3, e5m2 or ffp8")
        }
    })
}
