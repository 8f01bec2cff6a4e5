//! Berkeley SoftFloat: sampled results and flags, committed; with the `softfloat` feature the library itself.

use crate::verify::Case;
use anyhow::{Context, bail};
use numeric::{Flags, FloatFormat, Format, IntFormat, MacConfig, Mode, Overflow, Rounding, add, convert, fma, mul};

const VECTORS: &str = include_str!("../../../data/numeric/softfloat.txt");

const TOWARD_ZERO: Mode = Mode { rounding: Rounding::TowardZero, overflow: Overflow::Own };

/// An operation that SoftFloat and the core both do: its name, its operands' formats, and whether it is rounded toward zero.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// As in softfloat.txt.
    pub name: &'static str,
    /// Formats of the operands, in order.
    pub operands: &'static [Format],
    /// Rounding.
    pub mode: Mode,
}

const FP32: Format = Format::Float(FloatFormat::FP32);
const FP16: Format = Format::Float(FloatFormat::FP16);
const BF16: Format = Format::Float(FloatFormat::BF16);
const INT32: Format = Format::Int(IntFormat::INT32);

const fn op(name: &'static str, operands: &'static [Format], mode: Mode) -> Operation {
    Operation { name, operands, mode }
}

/// Everything that is compared with SoftFloat.
pub const OPERATIONS: &[Operation] = &[
    op("f32_add", &[FP32, FP32], Mode::IEEE),
    op("f32_add_rtz", &[FP32, FP32], TOWARD_ZERO),
    op("f32_mul", &[FP32, FP32], Mode::IEEE),
    op("f32_mul_rtz", &[FP32, FP32], TOWARD_ZERO),
    op("f32_fma", &[FP32, FP32, FP32], Mode::IEEE),
    op("f16_add", &[FP16, FP16], Mode::IEEE),
    op("f16_mul", &[FP16, FP16], Mode::IEEE),
    op("f16_fma_f32", &[FP16, FP16, FP32], Mode::IEEE),
    op("bf16_fma_f32", &[BF16, BF16, FP32], Mode::IEEE),
    op("f32_to_f16", &[FP32], Mode::IEEE),
    op("f32_to_f16_rtz", &[FP32], TOWARD_ZERO),
    op("f16_to_f32", &[FP16], Mode::IEEE),
    op("f32_to_i32", &[FP32], Mode::IEEE),
    op("f32_to_i32_rtz", &[FP32], TOWARD_ZERO),
    op("i32_to_f32", &[INT32], Mode::IEEE),
    op("i32_to_f32_rtz", &[INT32], TOWARD_ZERO),
    op("i32_to_f16", &[INT32], Mode::IEEE),
];

impl Operation {
    /// Result and flags by the core.
    pub fn core(&self, x: &[u32]) -> anyhow::Result<(u32, Flags)> {
        let mut flags = Flags::NONE;
        let float = |i: usize| match self.operands[i] {
            Format::Float(f) => Ok(f),
            Format::Int(_) => bail!("{}: operand {i} is an integer", self.name),
        };
        let base = self.name.trim_end_matches("_rtz");
        let result = match (base, x) {
            ("f32_add" | "f16_add", [a, b]) => add(float(0)?, *a, *b, self.mode, &mut flags),
            ("f32_mul" | "f16_mul", [a, b]) => mul(float(0)?, *a, *b, self.mode, &mut flags),
            ("f32_fma" | "f16_fma_f32" | "bf16_fma_f32", [a, b, c]) => {
                fma(float(0)?, *a, float(1)?, *b, *c, &mut flags)
            }
            (name, [a]) => {
                let to = match name.split("_to_").nth(1) {
                    Some("f16") => FP16,
                    Some("bf16") => BF16,
                    Some("f32") => FP32,
                    Some("i32") => INT32,
                    _ => bail!("no operation is called {name}"),
                };
                convert(self.operands[0], to, *a, self.mode, &mut flags)
            }
            (name, _) => bail!("{name} takes {} operands, not {}", self.operands.len(), x.len()),
        };
        Ok((result, flags))
    }

    /// Result and flags of the MAC in hardware steps, where the operation is a multiply-add.
    pub fn steps(&self, x: &[u32]) -> anyhow::Result<Option<(u32, Flags)>> {
        let (&[Format::Float(a), Format::Float(b), _], &[x, y, z]) = (self.operands, x) else {
            return Ok(None);
        };
        let result = MacConfig::new(a, b, 4)?.compute(x, y, z);
        Ok(Some((result.value, result.flags)))
    }

    /// Holds the core, and the hardware steps where there are any, against what SoftFloat gave.
    pub fn check(&self, case: &mut Case, x: &[u32], want: (u32, Flags)) -> anyhow::Result<()> {
        // A NaN becomes the integer 0 here and 2^31 − 1 in RISC-V's SoftFloat; docs/numeric.md says why.
        let nan_to_int = self.name.starts_with("f32_to_i32") && f32::from_bits(x[0]).is_nan();
        let want = if nan_to_int { (0, want.1) } else { want };
        let got = self.core(x)?;
        if got != want {
            case.differed(format_args!(
                "{} {x:08x?}: expected {:08x} ({}), got {:08x} ({})",
                self.name, want.0, want.1, got.0, got.1
            ));
        }
        if let Some(steps) = self.steps(x)?
            && steps != want
        {
            case.differed(format_args!(
                "{} {x:08x?}, steps: expected {:08x} ({}), got {:08x} ({})",
                self.name, want.0, want.1, steps.0, steps.1
            ));
        }
        case.agreed(1);
        Ok(())
    }
}

/// Test: the committed vectors of one operation.
pub fn vectors(case: &mut Case) -> anyhow::Result<()> {
    let operation = OPERATIONS[case.index];
    case.label(operation.name);
    let mut count = 0;
    for line in VECTORS.lines().filter_map(|line| line.strip_prefix(operation.name)?.strip_prefix(' ')) {
        let words = line.split(' ').map(|w| u32::from_str_radix(w, 16)).collect::<Result<Vec<_>, _>>();
        let words = words.with_context(|| format!("softfloat.txt: `{line}`"))?;
        let [operands @ .., result, flags] = words.as_slice() else { bail!("softfloat.txt: `{line}`") };
        operation.check(case, operands, (*result, Flags::from_bits(*flags as u8)))?;
        count += 1;
    }
    case.stands_for(count);
    Ok(())
}
