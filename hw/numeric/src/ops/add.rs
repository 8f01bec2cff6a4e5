use crate::exact::{Exact, Unpacked, shift_right_jam};
use crate::flags::Flags;
use crate::format::FloatFormat;
use crate::round::Mode;

/// The sum of two exact numbers of at most 64 significand bits each: exact, or, where they lie too far apart for 128
/// bits, with the lost bits of the smaller one as a sticky bit. A sum that cancels is +0 (IEEE 754 §6.3, both of our
/// roundings).
fn sum_exact(x: Exact, y: Exact) -> Exact {
    if x.is_zero() && y.is_zero() {
        return Exact::zero(x.negative && y.negative);
    }
    if x.is_zero() || y.is_zero() {
        return if x.is_zero() { y } else { x };
    }
    let (high, low) = if x.exp >= y.exp { (x, y) } else { (y, x) };
    // Shift the coarser one up as far as a carry allows, the finer one down by what is left.
    let apart = high.exp.abs_diff(low.exp);
    let up = apart.min(high.sig.leading_zeros() - 1);
    let high_sig = high.sig << up;
    let low_sig = shift_right_jam(low.sig, apart - up);
    let exp = high.exp - up as i32;
    if high.negative == low.negative {
        return Exact { negative: high.negative, exp, sig: high_sig + low_sig };
    }
    match high_sig.cmp(&low_sig) {
        std::cmp::Ordering::Equal => Exact::zero(false),
        std::cmp::Ordering::Greater => Exact { negative: high.negative, exp, sig: high_sig - low_sig },
        std::cmp::Ordering::Less => Exact { negative: low.negative, exp, sig: low_sig - high_sig },
    }
}

/// The sum of two values. ∞ − ∞ raises invalid.
pub(crate) fn sum(x: Unpacked, y: Unpacked, flags: &mut Flags) -> Unpacked {
    use Unpacked::{Finite, Infinite, Nan};
    match (x, y) {
        (Nan { signaling }, other) | (other, Nan { signaling }) => {
            if signaling || matches!(other, Nan { signaling: true }) {
                *flags |= Flags::INVALID;
            }
            Nan { signaling: false }
        }
        (Infinite { negative }, Infinite { negative: other }) if negative != other => {
            *flags |= Flags::INVALID;
            Nan { signaling: false }
        }
        (Infinite { negative }, _) | (_, Infinite { negative }) => Infinite { negative },
        (Finite(x), Finite(y)) => Finite(sum_exact(x, y)),
    }
}

/// Adds two codes of one float format, with one rounding.
pub fn add(format: FloatFormat, a: u32, b: u32, mode: Mode, flags: &mut Flags) -> u32 {
    let sum = sum(format.unpack(a), format.unpack(b), flags);
    format.pack(sum, mode, flags)
}
