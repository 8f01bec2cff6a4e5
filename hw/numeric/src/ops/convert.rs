use crate::flags::Flags;
use crate::format::Format;
use crate::round::Mode;

/// Converts a code of any format into any other, with one rounding. NaN becomes the canonical NaN; a signalling one
/// raises invalid.
///
/// ```
/// use numeric::{Flags, FloatFormat, Mode, convert};
/// let mut flags = Flags::NONE;
/// // 464 lies half-way between 448, the largest E4M3, and the NaN after it: the tie goes to the even code, 448.
/// let code = convert(FloatFormat::FP32.into(), FloatFormat::E4M3.into(), 464f32.to_bits(), Mode::IEEE, &mut flags);
/// assert_eq!((code, flags), (0x7e, Flags::INEXACT));
/// ```
pub fn convert(from: Format, to: Format, code: u32, mode: Mode, flags: &mut Flags) -> u32 {
    to.pack(from.unpack(code), mode, flags)
}
