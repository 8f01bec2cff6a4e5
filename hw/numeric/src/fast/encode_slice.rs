//! The encoder's inner loop: finite values in chunks, without a branch between them.
//!
//! A magic number of the value's own exponent (or the smallest normal one) makes the adder round at the format's last
//! bit; what stands in the sum's low bits is the significand, and the code is that plus the exponent's distance from the
//! smallest, since codes of one sign count upward without gaps. A chunk with an infinity, a NaN or a negative number
//! for an unsigned format is done again one by one.

use super::dispatch::Kernel;
use super::encode::{CodeWord, Encoder};
use crate::flags::Flags;
use crate::format::FloatFormat;
use crate::round::{Mode, Overflow, Rounding};

/// Values between two looks at the flags.
const CHUNK: usize = 128;
const INFINITY: u32 = 0x7f80_0000;

/// The loop's constants; magnitudes are FP32 bits without the sign.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hot {
    /// The bits of a value that may be set in a finite one: without the sign where the format has one.
    magnitude: u32,
    /// A magnitude past every finite number, to which larger ones are cut.
    beyond: u32,
    /// What the largest code that is given stands for: cutting magnitudes to it caps their codes.
    limit: u32,
    /// The smallest normal number.
    min_normal: u32,
    /// 23 − f, and the same in FP32's exponent field.
    drop: u32,
    lift: u32,
    /// What the exponent of a subnormal number's sum adds to its code.
    offset: u32,
    /// The smallest magnitude that is not tiny after rounding.
    not_tiny: u32,
    /// Code of the largest finite number, and the largest code that is given.
    max_finite: u32,
    cap: u32,
    sign: u32,
    sign_drop: u32,
    /// The format has FP32's own exponents: rounding is integer addition, subnormals included.
    same_exponents: bool,
}

impl Hot {
    /// `None` where the magic numbers would leave FP32; without a fraction, where the sum's last bit is not the
    /// code's; and with one of more than 10 bits.
    pub(super) fn new(format: FloatFormat, mode: Mode, not_tiny: u32) -> Option<Hot> {
        let frac = format.frac_bits() as i32;
        // The exponent of the number past the largest finite one, were there one more code.
        let codes = format.max_finite() as i32 + 1;
        let past = if format.exp_bits() == 0 { format.emin() } else { format.emin() - 1 + (codes >> frac) };
        let same_exponents = format.exp_bits() == 8 && format.bias() == 127;
        // The significand must fit below the sum's exponent once that is moved down.
        let fits = (1..=10).contains(&frac);
        if past + 1 + 23 - frac > 127 && !same_exponents || !fits {
            return None;
        }
        let power = |exponent: i32| ((exponent + 127) as u32) << 23;
        // Own overflow ends one code past the largest finite number: infinity, or E4M3's NaN.
        let own = mode == Mode { rounding: Rounding::NearestEven, overflow: Overflow::Own };
        let has_next = format.canonical_nan().is_some();
        let cap = format.max_finite() + (own && has_next) as u32;
        let limit = match (cap >> frac) as i32 {
            _ if same_exponents => cap << (23 - frac),
            binade if binade == 0 || format.exp_bits() == 0 => {
                ((f64::from(cap) * 2f64.powi(format.emin() - frac)) as f32).to_bits()
            }
            binade => power(format.emin() - 1 + binade) | (cap & ((1 << frac) - 1)) << (23 - frac),
        };
        let (drop, lift) = (23 - format.frac_bits(), (23 - format.frac_bits()) << 23);
        Some(Hot {
            magnitude: if format.signed() { 0x7fff_ffff } else { u32::MAX },
            beyond: if same_exponents { INFINITY } else { power(past + 1) },
            limit,
            min_normal: power(format.emin()),
            drop,
            lift,
            offset: (power(format.emin()) + lift) >> drop,
            not_tiny,
            max_finite: format.max_finite(),
            cap,
            sign: format.sign_mask(),
            sign_drop: 32 - format.width(),
            same_exponents,
        })
    }

    /// The magnitude's code before it is capped, and the value that it stands for; any number for a magnitude past
    /// `beyond`.
    #[inline(always)]
    fn code<const TOWARD_ZERO: bool, const SAME_EXPONENTS: bool>(&self, magnitude: u32) -> (u32, f32) {
        if SAME_EXPONENTS {
            let half = if TOWARD_ZERO { 0 } else { (1 << (self.drop - 1)) - 1 + (magnitude >> self.drop & 1) };
            let code = (magnitude + half) >> self.drop;
            return (code, f32::from_bits(code << self.drop));
        }
        let exponent = (magnitude & INFINITY).max(self.min_normal);
        let magic = f32::from_bits(exponent + self.lift);
        let sum = f32::from_bits(magnitude) + magic;
        let back = sum - magic;
        let significand = sum.to_bits() & 0x007f_ffff;
        let code = (sum.to_bits() >> self.drop).wrapping_add(significand).wrapping_sub(self.offset);
        let too_far = TOWARD_ZERO & (back > f32::from_bits(magnitude));
        (code.wrapping_sub(too_far as u32), back)
    }

    /// E4M3's own overflow is a NaN, and a NaN has no sign here.
    fn overflow_keeps_sign(&self, format: FloatFormat) -> bool {
        self.cap == self.max_finite || Some(self.cap) != format.canonical_nan()
    }
}

pub(super) struct Encode<'a, T, const TOWARD_ZERO: bool> {
    pub(super) encoder: &'a Encoder,
    pub(super) hot: &'a Hot,
    pub(super) values: &'a [f32],
    pub(super) codes: &'a mut [T],
    pub(super) flags: &'a mut Flags,
}

impl<T: CodeWord, const TOWARD_ZERO: bool> Kernel for Encode<'_, T, TOWARD_ZERO> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        if self.hot.same_exponents { self.chunks::<true>() } else { self.chunks::<false>() }
    }
}

impl<T: CodeWord, const TOWARD_ZERO: bool> Encode<'_, T, TOWARD_ZERO> {
    #[inline(always)]
    fn chunks<const SAME_EXPONENTS: bool>(self) {
        const ROUNDED: Flags = Flags::INEXACT.union(Flags::UNDERFLOW);
        let hot = *self.hot;
        let signed_overflow = hot.overflow_keeps_sign(self.encoder.format());
        for (values, codes) in self.values.chunks(CHUNK).zip(self.codes.chunks_mut(CHUNK)) {
            // Flags are sticky: what is raised already need not be looked for again.
            let unseen = !self.flags.contains(ROUNDED);
            let seen = if unseen {
                convert::<T, TOWARD_ZERO, SAME_EXPONENTS, true>(&hot, values, codes)
            } else {
                convert::<T, TOWARD_ZERO, SAME_EXPONENTS, false>(&hot, values, codes)
            };
            // Codes grow with the magnitude, so the largest one tells of overflow.
            let (largest_code, _) = hot.code::<TOWARD_ZERO, SAME_EXPONENTS>(seen.largest.min(hot.beyond));
            let over = largest_code > hot.max_finite;
            if seen.largest >= INFINITY || over && !signed_overflow {
                self.encoder.encode_each(values, codes, self.flags);
                continue;
            }
            if over {
                *self.flags |= Flags::OVERFLOW | Flags::INEXACT;
            }
            let may_underflow = seen.smallest_less_one.saturating_add(1) < hot.not_tiny;
            if unseen && (may_underflow || !self.flags.contains(Flags::INEXACT)) {
                *self.flags |= rounded::<TOWARD_ZERO, SAME_EXPONENTS>(&hot, values);
            }
        }
    }
}

/// What a chunk held.
struct Seen {
    /// Its largest magnitude.
    largest: u32,
    /// The smallest magnitude that is not zero, less one; only looked for on demand.
    smallest_less_one: u32,
}

#[inline(always)]
fn convert<T: CodeWord, const TOWARD_ZERO: bool, const SAME_EXPONENTS: bool, const SMALLEST: bool>(
    hot: &Hot,
    values: &[f32],
    codes: &mut [T],
) -> Seen {
    let (mut largest, mut smallest) = (0, u32::MAX);
    for (value, code) in values.iter().zip(codes) {
        let bits = value.to_bits();
        let magnitude = bits & hot.magnitude;
        largest = largest.max(magnitude);
        if SMALLEST {
            smallest = smallest.min(magnitude.wrapping_sub(1));
        }
        let (code_of_cut, _) = hot.code::<TOWARD_ZERO, SAME_EXPONENTS>(magnitude.min(hot.limit));
        *code = T::truncate(code_of_cut | bits >> hot.sign_drop & hot.sign);
    }
    Seen { largest, smallest_less_one: smallest }
}

/// Which of inexact and underflow some finite values raise.
#[inline(always)]
fn rounded<const TOWARD_ZERO: bool, const SAME_EXPONENTS: bool>(hot: &Hot, values: &[f32]) -> Flags {
    let (mut inexact, mut underflow) = (0, 0);
    for value in values {
        let magnitude = value.to_bits() & hot.magnitude;
        let (_, back) = hot.code::<TOWARD_ZERO, SAME_EXPONENTS>(magnitude.min(hot.beyond));
        let lost = (back != f32::from_bits(magnitude)) as u32;
        inexact |= lost;
        underflow |= lost & (magnitude < hot.not_tiny) as u32;
    }
    let raised = |any: u32, flag: Flags| if any == 0 { Flags::NONE } else { flag };
    raised(inexact, Flags::INEXACT) | raised(underflow, Flags::UNDERFLOW)
}
