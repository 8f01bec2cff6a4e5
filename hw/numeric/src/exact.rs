//! The exact unpacked form, between a code and the rounder.

use crate::format::{FloatFormat, Format, IntFormat, Specials};

/// A finite number taken apart without loss: (−1)^`negative` × `sig` × 2^`exp`. `sig` may hold its lost low bits as
/// one sticky bit in its own bit 0; it is then far wider than any format's precision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exact {
    /// The sign; zero has one too.
    pub negative: bool,
    /// Exponent of the significand's bit 0.
    pub exp: i32,
    /// The significand, an integer, not normalised.
    pub sig: u128,
}

/// What a code means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unpacked {
    /// Not a number; `signaling` raises invalid wherever it is used.
    Nan {
        /// IEEE formats: the fraction's top bit is 0.
        signaling: bool,
    },
    /// An infinity.
    Infinite {
        /// Its sign.
        negative: bool,
    },
    /// A number.
    Finite(Exact),
}

impl Exact {
    /// Zero with a sign.
    pub const fn zero(negative: bool) -> Exact {
        Exact { negative, exp: 0, sig: 0 }
    }

    /// An integer times 2^`exp`.
    pub const fn from_int(value: i64, exp: i32) -> Exact {
        Exact { negative: value < 0, exp, sig: value.unsigned_abs() as u128 }
    }

    /// Is it a zero of either sign?
    pub const fn is_zero(self) -> bool {
        self.sig == 0
    }

    /// Exponent of the leading one. Zero has none; it gets `i32::MIN`.
    pub const fn top(self) -> i32 {
        if self.sig == 0 { i32::MIN } else { self.exp.saturating_add(127 - self.sig.leading_zeros() as i32) }
    }
}

/// Shifts right; ones that fall out stick in bit 0.
pub(crate) const fn shift_right_jam(sig: u128, by: u32) -> u128 {
    if by >= 128 {
        return (sig != 0) as u128;
    }
    (sig >> by) | ((sig & ((1 << by) - 1)) != 0) as u128
}

impl FloatFormat {
    /// Takes a code apart, exactly. Bits above the width are ignored.
    pub const fn unpack(self, code: u32) -> Unpacked {
        let code = code & self.code_mask();
        let negative = code & self.sign_mask() != 0;
        let magnitude = code & !self.sign_mask();
        let fraction = magnitude & ((1 << self.frac_bits()) - 1);
        let exponent = magnitude >> self.frac_bits();
        if magnitude > self.max_finite() {
            return match self.specials() {
                Specials::Ieee if fraction == 0 => Unpacked::Infinite { negative },
                Specials::Ieee => Unpacked::Nan { signaling: fraction >> (self.frac_bits() - 1) == 0 },
                _ => Unpacked::Nan { signaling: false },
            };
        }
        let step = self.emin() - self.frac_bits() as i32;
        Unpacked::Finite(match self.specials() {
            Specials::Scale => Exact { negative, exp: step + exponent as i32, sig: 1 },
            // Subnormals and zero: no hidden bit, the exponent of the smallest normal.
            _ if exponent == 0 => Exact { negative, exp: step, sig: fraction as u128 },
            _ => {
                let sig = (fraction | 1 << self.frac_bits()) as u128;
                Exact { negative, exp: step + exponent as i32 - 1, sig }
            }
        })
    }
}

impl IntFormat {
    /// Takes a code apart, exactly. Bits above the width are ignored.
    pub const fn unpack(self, code: u32) -> Unpacked {
        Unpacked::Finite(Exact::from_int(self.value(code), self.lsb()))
    }
}

impl Format {
    /// Takes a code apart, exactly. Bits above the width are ignored.
    pub const fn unpack(self, code: u32) -> Unpacked {
        match self {
            Format::Float(f) => f.unpack(code),
            Format::Int(i) => i.unpack(code),
        }
    }
}
