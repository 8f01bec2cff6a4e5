//! Row operations.

use super::{Machine, counted, fp32, placed, put_rows, rows};
use crate::isa::{Codes, RowOp, Vector};
use crate::memory::Scratch;
use crate::{Fault, Kv, Work};
use numeric::{Flags, FloatFormat, Format, IntFormat};
use std::borrow::Cow;
use vector::transaction as unit;
use vector::{Algorithm, Command, Masking, Op, Pairing, Ramp, cycles};

/// Cycles of the shell around the unit: the one in which the first operands are read, the one in which the unit takes the command.
const AROUND: u64 = 2;

const BF16: Format = Format::Float(FloatFormat::BF16);

fn ramp(first: u32, step: u8) -> Result<Ramp, Fault> {
    match step {
        0 => Ok(Ramp::constant(first as usize)),
        1 => Ok(Ramp::from(first as usize)),
        _ => Err(Fault::Field { field: "step", value: u64::from(step), rule: "must be 0 or 1" }),
    }
}

pub(crate) fn format(codes: Codes) -> Format {
    match codes {
        Codes::Int8 => Format::Int(IntFormat::INT8),
        Codes::Float(format) => Format::Float(format),
    }
}

pub(crate) fn pairing(interleaved: bool) -> Pairing {
    if interleaved { Pairing::Interleaved } else { Pairing::Halves }
}

/// The unit's command for a row operation.
pub(crate) fn unit_command(kv: &Kv, r: &RowOp) -> Result<Command, Fault> {
    let (rows, len) = (counted("rows", r.rows)?, counted("len", r.len)?);
    let new = |op| Command::new(op, len, rows);
    Ok(match r.op {
        Vector::RmsNorm { epsilon, bf16, .. } => {
            let command = new(Op::RmsNorm { epsilon: f32::from_bits(epsilon) });
            if bf16 { command.into_format(BF16) } else { command }
        }
        Vector::Quantize { codes, group, .. } => {
            let group = (group != 0).then_some(usize::from(group));
            new(Op::Quantise { group }).into_format(format(codes))
        }
        Vector::Softmax { scale, visible, step } => {
            let mask = Masking::Count(ramp(visible, step)?);
            let scale = f32::from_bits(scale);
            new(Op::Softmax { algorithm: Algorithm::ThreePass, scale, mask }).into_format(BF16)
        }
        Vector::Rope { position, step } => {
            let setup = kv.setup();
            let d = setup.head_dim;
            if !len.is_multiple_of(d) {
                let rule = "must be a multiple of the head dimension";
                return Err(Fault::Field { field: "len", value: len as u64, rule });
            }
            let heads = len / d;
            let positions = Ramp { every: heads, ..ramp(position, step)? };
            let op = Op::Rope { pairing: pairing(setup.interleaved), positions };
            Command::new(op, d, rows * heads).into_format(BF16)
        }
        Vector::SwiGlu { .. } => new(Op::SwiGlu),
        Vector::Add { .. } => new(Op::Add),
        Vector::ToBf16 => new(Op::Convert).into_format(BF16),
        Vector::ToFp32 => new(Op::Convert).from_format(BF16),
        Vector::Argmax => new(Op::ArgMax),
    })
}

/// Checks where the rows lie.
pub(crate) fn placed_rows(scratch: &Scratch, command: &Command, r: &RowOp) -> Result<(), Fault> {
    let (count, len) = (r.rows as usize, r.len as usize);
    let width = |format: Format| (format.width().div_ceil(8)) as usize * len;
    placed(scratch, "x", r.x, count, width(command.a))?;
    match r.op {
        Vector::SwiGlu { up } => placed(scratch, "up", up, count, 4 * len)?,
        Vector::Add { b } => placed(scratch, "b", b, count, 4 * len)?,
        Vector::Quantize { group, scales, .. } => {
            let groups = if group == 0 { 1 } else { len / usize::from(group) };
            placed(scratch, "scales", scales, count, 4 * groups)?;
        }
        Vector::Argmax => return placed(scratch, "y", r.y, count, 4),
        _ => {}
    }
    placed(scratch, "y", r.y, count, width(command.y))
}

impl Machine {
    pub(super) fn row_op(&mut self, r: &RowOp, conflict: u64) -> Result<Work, Fault> {
        let config = vector::Config::new(self.config.vector_lanes)?;
        let command = unit_command(&self.kv, r)?;
        command.check(&config)?;
        let cycles = cycles(&config, &command);
        placed_rows(&self.memory.scratch, &command, r)?;
        self.compute(&config, &command, r)?;
        Ok(Work::of(AROUND + cycles, conflict))
    }

    fn compute(&mut self, config: &vector::Config, command: &Command, r: &RowOp) -> Result<(), Fault> {
        let (count, len) = (r.rows as usize, r.len as usize);
        let scratch = &self.memory.scratch;
        if r.op == Vector::ToFp32 {
            let x: Cow<'_, [u16]> = rows(scratch, r.x, count, len)?;
            let mut y = vec![0f32; x.len()];
            unit::decode(BF16, &x, &mut y)?;
            return put_rows(&mut self.memory.scratch, r.y, len, &y);
        }
        let x: Cow<'_, [f32]> = rows(scratch, r.x, count, len)?;
        let mut y = vec![0f32; x.len()];
        match r.op {
            Vector::RmsNorm { weight, epsilon, .. } => {
                let weight = fp32(scratch, "weight", weight, len)?;
                unit::rms_norm(config, &x, weight, f32::from_bits(epsilon), &mut y)?;
            }
            Vector::Quantize { codes, group, scales } => {
                let group = (group != 0).then_some(usize::from(group));
                let groups = group.map_or(1, |g| len / g);
                let mut bytes = vec![0u8; x.len()];
                let mut s = vec![0f32; count * groups];
                unit::quantise(format(codes), len, group, &x, &mut bytes, &mut s, &mut Flags::default())?;
                put_rows(&mut self.memory.scratch, r.y, len, &bytes)?;
                return put_rows(&mut self.memory.scratch, scales, groups, &s);
            }
            Vector::Softmax { scale, visible, step } => {
                let mask = unit::Mask::Count(ramp(visible, step)?);
                unit::softmax(config, Algorithm::ThreePass, len, f32::from_bits(scale), mask, &x, &mut y)?;
            }
            Vector::Rope { .. } => {
                let Op::Rope { pairing, positions } = command.op else { return Ok(()) };
                unit::rope(pairing, positions, &self.kv.setup().frequencies, &x, &mut y)?;
            }
            Vector::SwiGlu { up } => {
                let up: Cow<'_, [f32]> = rows(scratch, up, count, len)?;
                unit::swiglu(&x, &up, &mut y)?;
            }
            Vector::Add { b } => {
                let b: Cow<'_, [f32]> = rows(scratch, b, count, len)?;
                unit::add(&x, &b, &mut y)?;
            }
            Vector::Argmax => {
                let peaks: Result<Vec<u32>, _> = x.chunks_exact(len).map(|row| Ok(unit::argmax(row)?.index)).collect();
                let peaks = peaks.map_err(|e: vector::VectorError| Fault::Vector(e))?;
                return put_rows(&mut self.memory.scratch, r.y, 1, &peaks);
            }
            Vector::ToBf16 => y.copy_from_slice(&x),
            Vector::ToFp32 => {}
        }
        if command.y == BF16 {
            let mut codes = vec![0u16; y.len()];
            unit::encode(BF16, &y, &mut codes, &mut Flags::default())?;
            return put_rows(&mut self.memory.scratch, r.y, len, &codes);
        }
        put_rows(&mut self.memory.scratch, r.y, len, &y)
    }
}
