//! The single rounder: every operation ends here, and rounds nowhere else.

use crate::exact::{Exact, Unpacked};
use crate::flags::Flags;
use crate::format::{FloatFormat, Format, IntFormat, Specials};

/// How a result between two numbers is rounded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Rounding {
    /// To nearest, a tie to the even code.
    #[default]
    NearestEven,
    /// Toward zero.
    TowardZero,
}

/// What a result beyond the largest finite number becomes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Overflow {
    /// The largest finite number of the same sign, infinities too.
    Saturate,
    /// The format's own rule: infinity, or NaN where there is none (E4M3, E8M0); a finite number that is rounded
    /// toward zero ends at the largest finite one (IEEE 754 §7.4). Formats that have neither infinity nor NaN, and
    /// integers, can only saturate.
    Own,
}

/// Rounding and overflow together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mode {
    /// Between two numbers.
    pub rounding: Rounding,
    /// Beyond the last number.
    pub overflow: Overflow,
}

impl Mode {
    /// To nearest even, by the format's own rule: IEEE's default.
    pub const IEEE: Mode = Mode { rounding: Rounding::NearestEven, overflow: Overflow::Own };
    /// To nearest even, saturating.
    pub const SATURATE: Mode = Mode { rounding: Rounding::NearestEven, overflow: Overflow::Saturate };

    /// To nearest even, with the overflow rule that `format` has by default: 8 bits and less saturate.
    pub const fn default_of(format: Format) -> Mode {
        if format.saturates_by_default() { Mode::SATURATE } else { Mode::IEEE }
    }
}

/// `sig` without its last `shift` bits: the part kept, and what the rest amounts to.
struct Cut {
    kept: u128,
    rest: Rest,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    Zero,
    BelowHalf,
    Half,
    AboveHalf,
}

fn cut(sig: u128, shift: i32) -> Cut {
    if shift <= 0 {
        return Cut { kept: sig << -shift, rest: Rest::Zero };
    }
    if shift > 128 {
        return Cut { kept: 0, rest: if sig == 0 { Rest::Zero } else { Rest::BelowHalf } };
    }
    let half = 1u128 << (shift - 1);
    let (kept, lost) = if shift == 128 { (0, sig) } else { (sig >> shift, sig & (half | (half - 1))) };
    let rest = match lost {
        0 => Rest::Zero,
        lost if lost < half => Rest::BelowHalf,
        lost if lost == half => Rest::Half,
        _ => Rest::AboveHalf,
    };
    Cut { kept, rest }
}

impl Rounding {
    /// Does a number whose kept part has the code parity `odd` go up?
    const fn goes_up(self, rest: Rest, odd: bool) -> bool {
        match self {
            Rounding::NearestEven => matches!(rest, Rest::AboveHalf) || matches!(rest, Rest::Half) && odd,
            Rounding::TowardZero => false,
        }
    }
}

impl FloatFormat {
    /// Rounds an exact number into a code: the one place where precision is lost.
    ///
    /// Underflow is detected after rounding: the result, rounded as if the exponent had no lower end, lies below the
    /// smallest normal number, and is inexact. A format without exponent bits is fixed-point and never underflows.
    pub fn round(self, x: Exact, mode: Mode, flags: &mut Flags) -> u32 {
        let scale = self.specials() == Specials::Scale;
        if x.is_zero() {
            // E8M0 has no zero: its smallest number is the nearest.
            *flags |= if scale { Flags::UNDERFLOW | Flags::INEXACT } else { Flags::NONE };
            return self.with_sign(0, x.negative);
        }
        if x.negative && scale {
            *flags |= Flags::INVALID;
            return self.code_mask();
        }
        let frac = self.frac_bits() as i32;
        let step = self.emin() - frac; // exponent of the smallest step
        // Far outside the format the sticky bit is all that matters; clamping keeps the shifts in range.
        let top = x.top().clamp(self.emin() - frac - 4, self.emin() + (1 << self.exp_bits()) + 1);
        let x = Exact { exp: top - (x.top().wrapping_sub(x.exp)), ..x };
        let lsb = (top - frac).max(step); // exponent of the result's last bit

        let Cut { kept, rest } = cut(x.sig, lsb - x.exp);
        // Codes of one sign count upward without gaps, so exponent and fraction are one integer and a carry out of
        // the fraction bumps the exponent by itself. E8M0 starts at 2^emin instead of zero: one code less.
        let first = scale as i64;
        let below = (((lsb - step) as i64) << frac) + kept as i64 - first;
        let up = mode.rounding.goes_up(rest, below & 1 == 1);
        let code = below + up as i64;
        let inexact = rest != Rest::Zero || code < 0;

        if x.negative && !self.signed() && code > 0 {
            *flags |= Flags::INVALID;
            return 0;
        }
        if code > self.max_finite() as i64 {
            *flags |= Flags::OVERFLOW | Flags::INEXACT;
            return self.overflowed(x.negative, mode);
        }
        if inexact {
            *flags |= Flags::INEXACT;
            if self.tiny(x, top, mode.rounding) {
                *flags |= Flags::UNDERFLOW;
            }
        }
        self.with_sign(code.max(0) as u32, x.negative)
    }

    /// Is the inexact `x`, with its leading one at 2^`top`, below the smallest normal number after rounding to full
    /// precision?
    fn tiny(self, x: Exact, top: i32, rounding: Rounding) -> bool {
        if self.exp_bits() == 0 || top >= self.emin() {
            return false;
        }
        if top < self.emin() - 1 {
            return true;
        }
        // Just below: it is tiny unless all of its leading bits are ones and it rounds up to 2^emin.
        let Cut { kept, rest } = cut(x.sig, top - self.frac_bits() as i32 - x.exp);
        let all_ones = kept + 1 == 1 << self.precision();
        let odd = self.frac_bits() > 0; // all ones end in a one; a lone hidden bit is the even code 0
        !(all_ones && rounding.goes_up(rest, odd))
    }

    /// The code for a magnitude that came out beyond the largest finite number.
    fn overflowed(self, negative: bool, mode: Mode) -> u32 {
        let magnitude = match (mode.overflow, mode.rounding) {
            (Overflow::Own, Rounding::NearestEven) => match (self.infinity(), self.canonical_nan()) {
                (Some(infinity), _) => infinity,
                (None, Some(nan)) => return nan,
                (None, None) => self.max_finite(),
            },
            _ => self.max_finite(),
        };
        self.with_sign(magnitude, negative)
    }

    const fn with_sign(self, magnitude: u32, negative: bool) -> u32 {
        if negative { magnitude | self.sign_mask() } else { magnitude }
    }

    /// Any value into a code: numbers are rounded, the rest goes by the format's rules. A signalling NaN raises
    /// invalid; so does any NaN into a format without one, which gives zero.
    pub fn pack(self, x: Unpacked, mode: Mode, flags: &mut Flags) -> u32 {
        match x {
            Unpacked::Finite(x) => self.round(x, mode, flags),
            Unpacked::Nan { signaling } => {
                if signaling || self.canonical_nan().is_none() {
                    *flags |= Flags::INVALID;
                }
                self.canonical_nan().unwrap_or(0)
            }
            Unpacked::Infinite { negative } => self.pack_infinity(negative, mode.overflow, flags),
        }
    }

    fn pack_infinity(self, negative: bool, overflow: Overflow, flags: &mut Flags) -> u32 {
        if negative && !self.signed() {
            *flags |= Flags::INVALID;
            return self.canonical_nan().unwrap_or(0);
        }
        if let (Some(infinity), Overflow::Own) = (self.infinity(), overflow) {
            return self.with_sign(infinity, negative);
        }
        *flags |= Flags::OVERFLOW | Flags::INEXACT;
        self.overflowed(negative, Mode { rounding: Rounding::NearestEven, overflow })
    }
}

impl IntFormat {
    /// Any value into a code: rounded to a whole number of last bits, then saturated. Out of range raises invalid and
    /// not inexact (IEEE 754 §5.8); a NaN raises invalid and gives zero.
    pub fn pack(self, x: Unpacked, rounding: Rounding, flags: &mut Flags) -> u32 {
        let x = match x {
            Unpacked::Finite(x) => x,
            Unpacked::Nan { .. } => {
                *flags |= Flags::INVALID;
                return 0;
            }
            Unpacked::Infinite { negative } => {
                *flags |= Flags::INVALID;
                return (if negative { self.min() } else { self.max() }) as u32 & self.code_mask();
            }
        };
        if x.is_zero() {
            return 0;
        }
        // 2^40 is out of range in every format, and keeps the shift below in 128 bits.
        let value = if x.top() - self.lsb() > 40 {
            1 << 40
        } else {
            let Cut { kept, rest } = cut(x.sig, self.lsb().saturating_sub(x.exp));
            let value = kept as i64 + rounding.goes_up(rest, kept & 1 == 1) as i64;
            let in_range = (self.min()..=self.max()).contains(&if x.negative { -value } else { value });
            if rest != Rest::Zero && in_range {
                *flags |= Flags::INEXACT;
            }
            value
        };
        let value = if x.negative { -value } else { value };
        let saturated = value.clamp(self.min(), self.max());
        if saturated != value {
            *flags |= Flags::INVALID;
        }
        saturated as u32 & self.code_mask()
    }
}

impl Format {
    /// Any value into a code of this format.
    pub fn pack(self, x: Unpacked, mode: Mode, flags: &mut Flags) -> u32 {
        match self {
            Format::Float(f) => f.pack(x, mode, flags),
            Format::Int(i) => i.pack(x, mode.rounding, flags),
        }
    }
}
