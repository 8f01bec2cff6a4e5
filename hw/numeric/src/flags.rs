//! The sticky status flags.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// Status flags, 5 bits wide, placed as RISC-V's `fflags`: NV OF DZ UF NX from bit 4 down (DZ stays 0: nothing here
/// divides). They are sticky: an operator ORs into the register that it is given and never clears it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Flags(u8);

impl Flags {
    /// No flag raised.
    pub const NONE: Flags = Flags(0);
    /// The result was rounded (IEEE 754 §7.6).
    pub const INEXACT: Flags = Flags(1);
    /// Tiny after rounding, and inexact (IEEE 754 §7.5).
    pub const UNDERFLOW: Flags = Flags(2);
    /// The rounded magnitude exceeds the largest finite number (IEEE 754 §7.4).
    pub const OVERFLOW: Flags = Flags(4);
    /// No useful result: ∞ × 0, ∞ − ∞, a signalling NaN, an integer out of range, a NaN into a format that has none, a
    /// negative number into an unsigned format (IEEE 754 §7.2).
    pub const INVALID: Flags = Flags(16);

    /// The register's value, bits 4..0.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Flags from a register's value; bits that name no flag are dropped.
    pub const fn from_bits(bits: u8) -> Flags {
        Flags(bits & 0b10111)
    }

    /// Are all flags of `other` raised here?
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both together, usable in constants.
    pub const fn union(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// The names of the raised flags, worst first.
    pub fn names(self) -> Vec<&'static str> {
        const NAMES: [(Flags, &str); 4] = [
            (Flags::INVALID, "invalid"),
            (Flags::OVERFLOW, "overflow"),
            (Flags::UNDERFLOW, "underflow"),
            (Flags::INEXACT, "inexact"),
        ];
        NAMES.iter().filter(|(flag, _)| self.contains(*flag)).map(|(_, name)| *name).collect()
    }
}

impl BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        self.union(other)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Flags) {
        *self = self.union(other);
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.names();
        if names.is_empty() { f.write_str("none") } else { f.write_str(&names.join(" ")) }
    }
}
