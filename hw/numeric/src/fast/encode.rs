//! FP32 values into codes, rounded once, with flags.

use super::decode::same_length;
use super::dispatch::dispatch;
use super::encode_slice::{Encode, Hot};
use crate::error::NumericError;
use crate::exact::{Exact, Unpacked};
use crate::flags::Flags;
use crate::format::{FloatFormat, Specials};
use crate::round::{Mode, Overflow, Rounding};

const INFINITY: u32 = 0x7f80_0000;

/// A word that holds codes.
pub trait CodeWord: Copy {
    /// The low bits of a code.
    fn truncate(code: u32) -> Self;
}

impl CodeWord for u8 {
    #[inline(always)]
    fn truncate(code: u32) -> u8 {
        code as u8
    }
}

impl CodeWord for u16 {
    #[inline(always)]
    fn truncate(code: u32) -> u16 {
        code as u16
    }
}

impl CodeWord for u32 {
    #[inline(always)]
    fn truncate(code: u32) -> u32 {
        code
    }
}

impl CodeWord for i8 {
    #[inline(always)]
    fn truncate(code: u32) -> i8 {
        code as i8
    }
}

impl CodeWord for i32 {
    #[inline(always)]
    fn truncate(code: u32) -> i32 {
        code as i32
    }
}

/// Converts FP32 into one float format of at most 16 bits, in one mode: integer and float tricks without branches
/// where the format allows them, the core elsewhere (E8M0, and flexible formats with an extreme bias).
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    format: FloatFormat,
    mode: Mode,
    tricks: Option<Tricks>,
    hot: Option<Hot>,
}

/// The numbers that the branch-free form works with; magnitudes are FP32 bits without the sign.
#[derive(Clone, Copy, Debug)]
struct Tricks {
    /// Fraction bits that FP32 has more: 23 − f.
    drop: u32,
    /// What the exponents' biases differ by, in FP32's exponent field (modulo 2^32).
    rebias: u32,
    /// 2^(emin − f + 23): adding it to a subnormal rounds the sum's last bit to the format's smallest step.
    magic: f32,
    /// The smallest normal number.
    min_normal: u32,
    /// The smallest magnitude that is not tiny after rounding.
    not_tiny: u32,
    /// The code of the largest finite number.
    max_finite: u32,
    /// Code for a finite number beyond it, and for infinity.
    over: u32,
    infinity: u32,
    /// Flags of an infinite input.
    infinity_flags: u32,
    /// Sign bits that a code beyond the finite ones keeps: none if it is NaN.
    over_sign: u32,
    infinity_sign: u32,
    nan: u32,
    nan_flags: u32,
    /// The sign bit's place, 0 in an unsigned format.
    sign: u32,
    /// How far FP32's sign bit is above it.
    sign_drop: u32,
}

impl Encoder {
    /// An encoder for `format`; beyond 16 bits it only repeats the core.
    pub fn new(format: FloatFormat, mode: Mode) -> Encoder {
        let frac = format.frac_bits() as i32;
        let magic_exponent = format.emin() - frac + 23;
        let usable = format.width() <= 16
            && format.specials() != Specials::Scale
            && format.emin() >= -126
            && (-126..=127).contains(&magic_exponent);
        let tricks = usable.then(|| Tricks::new(format, mode, magic_exponent));
        Encoder { format, mode, tricks, hot: tricks.and_then(|t| Hot::new(format, mode, t.not_tiny)) }
    }

    /// The format converted into.
    pub fn format(&self) -> FloatFormat {
        self.format
    }

    /// One value, as [`convert`](crate::convert) gives it from FP32.
    pub fn encode(&self, x: f32, flags: &mut Flags) -> u32 {
        match (&self.tricks, self.mode.rounding) {
            (Some(tricks), Rounding::NearestEven) => {
                let (code, raised) = tricks.encode::<false>(x);
                *flags |= Flags::from_bits(raised as u8);
                code
            }
            (Some(tricks), Rounding::TowardZero) => {
                let (code, raised) = tricks.encode::<true>(x);
                *flags |= Flags::from_bits(raised as u8);
                code
            }
            (None, _) => self.format.pack(FloatFormat::FP32.unpack(x.to_bits()), self.mode, flags),
        }
    }

    /// Many values into bytes or 16-bit words.
    ///
    /// # Errors
    /// `Length` if the slices differ in length.
    pub fn encode_slice<T: CodeWord>(
        &self,
        values: &[f32],
        codes: &mut [T],
        flags: &mut Flags,
    ) -> Result<(), NumericError> {
        same_length(values.len(), codes.len())?;
        let toward_zero = self.mode.rounding == Rounding::TowardZero;
        match &self.hot {
            Some(hot) if toward_zero => dispatch(Encode::<T, true> { encoder: self, hot, values, codes, flags }),
            Some(hot) => dispatch(Encode::<T, false> { encoder: self, hot, values, codes, flags }),
            None => self.encode_each(values, codes, flags),
        }
        Ok(())
    }

    /// One by one, whatever the values are.
    pub(super) fn encode_each<T: CodeWord>(&self, values: &[f32], codes: &mut [T], flags: &mut Flags) {
        for (code, value) in codes.iter_mut().zip(values) {
            *code = T::truncate(self.encode(*value, flags));
        }
    }
}

impl Tricks {
    fn new(format: FloatFormat, mode: Mode, magic_exponent: i32) -> Tricks {
        let drop = 23 - format.frac_bits();
        let power = |exponent: i32| ((exponent + 127) as u32) << 23;
        // All p + 1 leading bits ones, just below the smallest normal number, round up to it; a lone hidden bit is
        // an even code, so there the tie stays below.
        let p = format.precision() as i32;
        let last_tie = Exact { negative: false, exp: format.emin() - p - 1, sig: (1 << (p + 1)) - 1 };
        let tie = FloatFormat::FP32.pack(Unpacked::Finite(last_tie), Mode::IEEE, &mut Flags::default());
        let min_normal = power(format.emin());
        let not_tiny = match mode.rounding {
            _ if format.exp_bits() == 0 => 0,
            Rounding::NearestEven => tie + (format.frac_bits() == 0) as u32,
            Rounding::TowardZero => min_normal,
        };
        let mut infinity_flags = Flags::default();
        let mut nan_flags = Flags::default();
        let infinity = format.pack(Unpacked::Infinite { negative: false }, mode, &mut infinity_flags);
        let nan = format.pack(Unpacked::Nan { signaling: false }, mode, &mut nan_flags);
        let over = match (mode.overflow, mode.rounding) {
            (Overflow::Own, Rounding::NearestEven) => infinity,
            _ => format.max_finite(),
        };
        let sign_unless_nan = |code| if Some(code) == format.canonical_nan() { 0 } else { format.sign_mask() };
        Tricks {
            drop,
            rebias: ((127 - format.bias()) as u32) << 23,
            magic: f32::from_bits(power(magic_exponent)),
            min_normal,
            not_tiny,
            max_finite: format.max_finite(),
            over,
            infinity,
            infinity_flags: infinity_flags.bits() as u32,
            over_sign: sign_unless_nan(over),
            infinity_sign: sign_unless_nan(infinity),
            nan,
            nan_flags: nan_flags.bits() as u32,
            sign: format.sign_mask(),
            sign_drop: 32 - format.width(),
        }
    }

    /// The code and the flags' bits.
    #[inline(always)]
    fn encode<const TOWARD_ZERO: bool>(&self, x: f32) -> (u32, u32) {
        const INEXACT: u32 = Flags::INEXACT.bits() as u32;
        const UNDERFLOW: u32 = Flags::UNDERFLOW.bits() as u32;
        const OVERFLOW: u32 = Flags::OVERFLOW.union(Flags::INEXACT).bits() as u32;
        const INVALID: u32 = Flags::INVALID.bits() as u32;
        let bits = x.to_bits();
        let abs = bits & 0x7fff_ffff;

        // Normal numbers: move to the format's bias, add just under half of what is dropped (a tie goes up if odd).
        let moved = abs.wrapping_sub(self.rebias);
        let half = if TOWARD_ZERO { 0 } else { (1 << (self.drop - 1)) - 1 + (moved >> self.drop & 1) };
        let normal = moved.wrapping_add(half) >> self.drop;
        let normal_lost = moved & ((1 << self.drop) - 1) != 0;

        // Subnormal ones: the adder rounds at the magic number's last bit, which is the format's smallest step.
        let sum = f32::from_bits(abs) + self.magic;
        let back = sum - self.magic;
        let too_far = TOWARD_ZERO & (back > f32::from_bits(abs));
        let subnormal = (sum.to_bits() - self.magic.to_bits()).wrapping_sub(too_far as u32);
        let subnormal_lost = back != f32::from_bits(abs);

        let is_normal = abs >= self.min_normal;
        let code = if is_normal { normal } else { subnormal };
        let lost = if is_normal { normal_lost } else { subnormal_lost };
        let mut flags = if lost { INEXACT } else { 0 };
        flags |= if lost & (abs < self.not_tiny) { UNDERFLOW } else { 0 };

        let over = code as i32 > self.max_finite as i32;
        flags = if over { OVERFLOW } else { flags };
        let mut sign = if over { self.over_sign } else { self.sign };
        let code = if over { self.over } else { code };
        let is_infinity = abs == INFINITY;
        flags = if is_infinity { self.infinity_flags } else { flags };
        sign = if is_infinity { self.infinity_sign } else { sign };
        let code = if is_infinity { self.infinity } else { code };

        // Without a sign bit a negative number that does not round to zero is invalid, and zero.
        let negative = bits as i32 >> 31 != 0;
        let unsigned_negative = negative & (self.sign == 0) & (code != 0);
        flags = if unsigned_negative { INVALID } else { flags };
        let code = if unsigned_negative { 0 } else { code | bits >> self.sign_drop & sign };

        let is_nan = abs > INFINITY;
        let signaling = is_nan & (abs & 0x0040_0000 == 0);
        flags = if is_nan { self.nan_flags } else { flags };
        flags |= if signaling { INVALID } else { 0 };
        (if is_nan { self.nan } else { code }, flags)
    }
}
