use crate::exact::{Exact, Unpacked};
use crate::flags::Flags;
use crate::format::FloatFormat;
use crate::round::Mode;

/// The exact product of two values: at most 48 significand bits for FP32 operands. ∞ × 0 raises invalid.
pub fn product(x: Unpacked, y: Unpacked, flags: &mut Flags) -> Unpacked {
    use Unpacked::{Finite, Infinite, Nan};
    match (x, y) {
        (Nan { signaling }, other) | (other, Nan { signaling }) => {
            if signaling || matches!(other, Nan { signaling: true }) {
                *flags |= Flags::INVALID;
            }
            Nan { signaling: false }
        }
        (Infinite { negative }, Infinite { negative: other }) => Infinite { negative: negative != other },
        (Infinite { .. }, Finite(zero)) | (Finite(zero), Infinite { .. }) if zero.is_zero() => {
            *flags |= Flags::INVALID;
            Nan { signaling: false }
        }
        (Infinite { negative }, Finite(y)) | (Finite(y), Infinite { negative }) => {
            Infinite { negative: negative != y.negative }
        }
        (Finite(x), Finite(y)) => {
            Finite(Exact { negative: x.negative != y.negative, exp: x.exp + y.exp, sig: x.sig * y.sig })
        }
    }
}

/// Multiplies two codes of one float format, with one rounding.
pub fn mul(format: FloatFormat, a: u32, b: u32, mode: Mode, flags: &mut Flags) -> u32 {
    let exact = product(format.unpack(a), format.unpack(b), flags);
    format.pack(exact, mode, flags)
}
