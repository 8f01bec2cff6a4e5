//! The five steps of the float MAC, each a pure function from one pipeline register to the next.
//!
//! ```text
//!   a ─┐            product p            hi ─────┐
//!   b ─┴ unpack ───────────────► align ──────────┴ add ──► normalise ──► round ──► FP32, flags
//!   c ─── unpack ──────────────►         lo, sticky
//! ```
//!
//! Widths: P = precision of a + precision of b (16 for BF16, 22 for FP16, 8 for E4M3, 6 for E5M2); the aligned window
//! is W = P + 27 bits, so that whichever of product and addend has the smaller exponent may lose bits only where they
//! cannot be more than a sticky bit to the rounding.

use crate::exact::{Unpacked, shift_right_jam};
use crate::flags::Flags;
use crate::format::FloatFormat;

/// FP32's precision, exponent of its smallest normal number, and bias.
const P32: u32 = 24;
pub(super) const EMIN: i32 = -126;
const BIAS: i32 = 127;
/// An exponent below every other: what a zero is aligned by. 11 bits signed.
const ZERO_EXP: i32 = -1024;
/// The canonical NaN.
const NAN: u32 = 0x7fc0_0000;
const INFINITY: u32 = 0x7f80_0000;

/// Results that are known before any arithmetic, carried past it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Bypass {
    /// None: the arithmetic counts.
    #[default]
    No,
    /// NaN.
    Nan,
    /// +∞.
    PlusInfinity,
    /// −∞.
    MinusInfinity,
}

impl Bypass {
    pub(super) const NAMES: &[&str] = &["no", "nan", "plus_inf", "minus_inf"];
}

/// After unpack: the product, exact, and the addend; both normalised to a top exponent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Unpack {
    /// Sign of the product.
    pub(super) p_sign: bool,
    /// Weight of the product's bit P − 1, 11 bits signed.
    pub(super) p_exp: i32,
    /// The product, P bits, its leading one in bit P − 1 or P − 2 unless it is zero.
    pub(super) p_sig: u64,
    /// Sign of the addend.
    pub(super) c_sign: bool,
    /// Weight of the addend's bit 23, 11 bits signed.
    pub(super) c_exp: i32,
    /// The addend, 24 bits, its leading one in bit 23 unless it is zero.
    pub(super) c_sig: u32,
    pub(super) bypass: Bypass,
    pub(super) invalid: bool,
}

/// After align: both terms in one window of W bits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Align {
    /// Sign of the term with the larger exponent.
    pub(super) hi_sign: bool,
    /// The terms have different signs: subtract.
    pub(super) subtract: bool,
    /// Weight of the window's top bit W − 1, 11 bits signed.
    pub(super) exp: i32,
    /// The term with the larger exponent, W bits.
    pub(super) hi: u128,
    /// The other, shifted right, W bits.
    pub(super) lo: u128,
    /// Ones were shifted out of `lo`.
    pub(super) sticky: bool,
    pub(super) bypass: Bypass,
    pub(super) invalid: bool,
}

/// After add: the magnitude of the sum, with the sticky bit as its last.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Sum {
    pub(super) sign: bool,
    /// Weight of the window's top bit, which is bit W of `sum`: bit W + 1 is the carry. 11 bits signed.
    pub(super) exp: i32,
    /// W + 2 bits: carry, window, sticky.
    pub(super) sum: u128,
    pub(super) bypass: Bypass,
    pub(super) invalid: bool,
}

/// After normalise: a significand ready to be rounded.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Normal {
    pub(super) sign: bool,
    /// Weight of bit 23 of `sig`, 11 bits signed; never below −126.
    pub(super) exp: i32,
    /// 24 bits; bit 23 is 0 in a subnormal.
    pub(super) sig: u32,
    /// The first bit below `sig`.
    pub(super) guard: bool,
    /// Any one below the guard bit.
    pub(super) sticky: bool,
    /// Below the smallest normal number even after rounding to full precision.
    pub(super) tiny: bool,
    pub(super) bypass: Bypass,
    pub(super) invalid: bool,
}

/// The result: FP32, and the flags that this operation raises.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MacResult {
    /// FP32, 32 bits.
    pub value: u32,
    /// 5 bits, not sticky.
    pub flags: Flags,
}

/// One operand after its unpacker: a leading-zero count normalises subnormals.
struct Operand {
    sign: bool,
    /// Weight of the significand's top bit.
    exp: i32,
    /// `precision` bits.
    sig: u32,
    nan: bool,
    signaling: bool,
    infinite: bool,
}

impl Operand {
    fn of(format: FloatFormat, code: u32) -> Operand {
        let none = Operand { sign: false, exp: ZERO_EXP, sig: 0, nan: false, signaling: false, infinite: false };
        match format.unpack(code) {
            Unpacked::Nan { signaling } => Operand { nan: true, signaling, ..none },
            Unpacked::Infinite { negative } => Operand { sign: negative, infinite: true, ..none },
            Unpacked::Finite(x) if x.is_zero() => Operand { sign: x.negative, ..none },
            Unpacked::Finite(x) => {
                let sig = x.sig as u32;
                let up = format.precision() - (32 - sig.leading_zeros());
                let exp = x.exp + format.frac_bits() as i32 - up as i32;
                Operand { sign: x.negative, exp, sig: sig << up, ..none }
            }
        }
    }

    fn zero(&self) -> bool {
        self.sig == 0 && !self.nan && !self.infinite
    }
}

/// Step 1: unpack the operands, multiply the significands, and see which results need no arithmetic.
pub(super) fn unpack(a_format: FloatFormat, a: u32, b_format: FloatFormat, b: u32, c: u32) -> Unpack {
    let (a, b, c) = (Operand::of(a_format, a), Operand::of(b_format, b), Operand::of(FloatFormat::FP32, c));
    let p_sign = a.sign != b.sign;
    let zero = a.zero() || b.zero();
    let p_infinite = a.infinite || b.infinite;
    let zero_times_infinity = p_infinite && zero;
    let opposite_infinities = p_infinite && c.infinite && p_sign != c.sign;
    let nan = a.nan || b.nan || c.nan;
    let invalid = a.signaling
        || b.signaling
        || c.signaling
        || zero_times_infinity && !a.nan && !b.nan
        || opposite_infinities && !nan;
    let bypass = match () {
        () if nan || zero_times_infinity || opposite_infinities => Bypass::Nan,
        () if p_infinite || c.infinite => {
            let sign = if p_infinite { p_sign } else { c.sign };
            if sign { Bypass::MinusInfinity } else { Bypass::PlusInfinity }
        }
        () => Bypass::No,
    };
    let p_sig = a.sig as u64 * b.sig as u64;
    // Nothing to align in a zero, an infinity or a NaN; their exponents' sum would not fit 11 bits.
    let p_exp = if p_sig == 0 { ZERO_EXP } else { a.exp + b.exp + 1 };
    Unpack { p_sign, p_exp, p_sig, c_sign: c.sign, c_exp: c.exp, c_sig: c.sig, bypass, invalid }
}

/// Step 1 without operands: a product of nothing, with the addend's sign so that even −0 passes.
pub(super) fn pass(c: u32) -> Unpack {
    let c = Operand::of(FloatFormat::FP32, c);
    let bypass = match () {
        () if c.nan => Bypass::Nan,
        () if c.infinite && c.sign => Bypass::MinusInfinity,
        () if c.infinite => Bypass::PlusInfinity,
        () => Bypass::No,
    };
    let (p_sign, p_exp, p_sig) = (c.sign, ZERO_EXP, 0);
    Unpack { p_sign, p_exp, p_sig, c_sign: c.sign, c_exp: c.exp, c_sig: c.sig, bypass, invalid: false }
}

/// Step 2: bring both terms to the larger exponent. `p_bits` is P.
pub(super) fn align(i: &Unpack, p_bits: u32) -> Align {
    let window = window(p_bits);
    let p = (i.p_sig as u128) << (window - p_bits);
    let c = (i.c_sig as u128) << (window - P32);
    let p_leads = i.p_exp >= i.c_exp;
    let (hi, lo) = if p_leads { (p, c) } else { (c, p) };
    let distance = i.p_exp.abs_diff(i.c_exp).min(window + 1);
    let kept = lo >> distance;
    Align {
        hi_sign: if p_leads { i.p_sign } else { i.c_sign },
        subtract: i.p_sign != i.c_sign,
        exp: i.p_exp.max(i.c_exp),
        hi,
        lo: kept,
        sticky: kept << distance != lo,
        bypass: i.bypass,
        invalid: i.invalid,
    }
}

/// Step 3: one adder; a negative difference is turned round.
pub(super) fn add(i: &Align) -> Sum {
    let hi = i.hi << 1;
    let lo = i.lo << 1 | i.sticky as u128;
    let (sum, turned) = match (i.subtract, hi >= lo) {
        (false, _) => (hi + lo, false),
        (true, true) => (hi - lo, false),
        (true, false) => (lo - hi, true),
    };
    // A difference of nothing is +0; zeros of one sign keep it.
    let sign = if i.subtract && sum == 0 { false } else { i.hi_sign != turned };
    Sum { sign, exp: i.exp, sum, bypass: i.bypass, invalid: i.invalid }
}

/// Step 4: shift the leading one to the top, but no further than the smallest exponent allows.
pub(super) fn normalise(i: &Sum, p_bits: u32) -> Normal {
    let width = window(p_bits) + 2;
    // The leading one's distance from the carry bit, and the exponent that it gives.
    let zeros = i.sum.leading_zeros() - (128 - width);
    let (full, exp) = match i.sum {
        0 => (0, EMIN),
        sum => (sum << zeros, i.exp + 1 - zeros as i32), // leading one in bit width − 1
    };
    let below = (EMIN - exp).max(0) as u32;
    // Just below the smallest normal number, a significand whose first 25 bits are ones rounds up to it.
    let top25 = full >> (width - P32 - 1);
    let rounds_to_normal = exp == EMIN - 1 && top25 == (1 << (P32 + 1)) - 1;
    let shifted = shift_right_jam(full, below);
    let (sig, rest) = (shifted >> (width - P32), shifted << (128 - width + P32));
    Normal {
        sign: i.sign,
        exp: exp.max(EMIN),
        sig: sig as u32,
        guard: rest >> 127 == 1,
        sticky: rest << 1 != 0,
        tiny: exp < EMIN && !rounds_to_normal,
        bypass: i.bypass,
        invalid: i.invalid,
    }
}

/// Step 5: round to nearest even and put the FP32 together.
pub(super) fn round(i: &Normal) -> MacResult {
    let invalid = if i.invalid { Flags::INVALID } else { Flags::NONE };
    let value = match i.bypass {
        Bypass::Nan => NAN,
        Bypass::PlusInfinity => INFINITY,
        Bypass::MinusInfinity => INFINITY | 1 << 31,
        Bypass::No => return round_number(i),
    };
    MacResult { value, flags: invalid }
}

fn round_number(i: &Normal) -> MacResult {
    let sign = (i.sign as u32) << 31;
    let up = i.guard && (i.sticky || i.sig & 1 == 1);
    // Exponent field and fraction are one number: the hidden one of a normal significand adds 1 to the field, and so
    // does a carry.
    let code = (((i.exp + BIAS - 1) as u32) << (P32 - 1)) + i.sig + up as u32;
    if code >= INFINITY || i.exp > BIAS {
        return MacResult { value: sign | INFINITY, flags: Flags::OVERFLOW | Flags::INEXACT };
    }
    let flags = match (i.guard || i.sticky, i.tiny) {
        (false, _) => Flags::NONE,
        (true, false) => Flags::INEXACT,
        (true, true) => Flags::INEXACT | Flags::UNDERFLOW,
    };
    MacResult { value: sign | code, flags }
}

/// W, the width of the aligned window.
pub(super) const fn window(p_bits: u32) -> u32 {
    p_bits + 27
}
