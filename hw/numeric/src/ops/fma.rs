use super::add::sum;
use super::mul::product;
use crate::flags::Flags;
use crate::format::FloatFormat;
use crate::round::Mode;

/// Fused multiply-add into FP32: a × b + c with one rounding to nearest even (IEEE 754 fusedMultiplyAdd). `a` and `b`
/// are codes of their formats, `c` and the result FP32; every NaN result is 0x7FC00000.
///
/// ∞ × 0 raises invalid even where `c` is a quiet NaN (RISC-V's choice among those that IEEE 754 §7.2 leaves open).
///
/// ```
/// use numeric::{Flags, FloatFormat, fma};
/// let (e4m3, bf16) = (FloatFormat::E4M3, FloatFormat::BF16);
/// let mut flags = Flags::NONE;
/// // 1.5 × 2 + 1 = 4
/// assert_eq!(fma(e4m3, 0x3c, bf16, 0x4000, 1f32.to_bits(), &mut flags), 4f32.to_bits());
/// assert_eq!(flags, Flags::NONE);
/// ```
pub fn fma(a_format: FloatFormat, a: u32, b_format: FloatFormat, b: u32, c: u32, flags: &mut Flags) -> u32 {
    let product = product(a_format.unpack(a), b_format.unpack(b), flags);
    let sum = sum(product, FloatFormat::FP32.unpack(c), flags);
    FloatFormat::FP32.pack(sum, Mode::IEEE, flags)
}
