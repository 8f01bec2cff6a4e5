use crate::Bits;
use std::fmt;

/// How a viewer should read a signal's bits.
#[derive(Clone, Copy, Debug)]
pub enum Format {
    /// An unsigned number (or a single bit).
    Unsigned,
    /// Two's complement.
    Signed,
    /// A code without a value: addresses, packed fields.
    Hex,
    /// A number format; the function gives the value of a code, for a real-valued shadow signal.
    Real(fn(u64) -> f64),
    /// A state: code `i` is called `names[i]`.
    Enum(&'static [&'static str]),
}

/// What a signal is to its module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// State, written on the clock edge. A visitor may replace its value.
    Register,
    /// A wire, computed from registers. Values that a visitor returns for it are ignored.
    Wire,
}

/// Position of a signal or scope among its like.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Index {
    /// The only one.
    None,
    /// One of a row.
    One(u32),
    /// One of a mesh: row, column.
    Two(u32, u32),
}

/// A name with up to two indices, built without allocation: `("pe", 3, 5)` reads `pe_3_5`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Name {
    /// Letters, digits and underscores: what every waveform viewer takes.
    pub base: &'static str,
    /// Where it stands among its like.
    pub index: Index,
}

impl Name {
    /// The same name for lane `i` of a vector: `x` gives `x_3`; a name with an index keeps it as the first.
    pub fn at(self, i: usize) -> Self {
        let i = i as u32;
        let index = match self.index {
            Index::None => Index::One(i),
            Index::One(a) | Index::Two(a, _) => Index::Two(a, i),
        };
        Self { base: self.base, index }
    }
}

impl From<&'static str> for Name {
    fn from(base: &'static str) -> Self {
        Self { base, index: Index::None }
    }
}

impl From<(&'static str, usize)> for Name {
    fn from((base, i): (&'static str, usize)) -> Self {
        Self { base, index: Index::One(i as u32) }
    }
}

impl From<(&'static str, usize, usize)> for Name {
    fn from((base, i, j): (&'static str, usize, usize)) -> Self {
        Self { base, index: Index::Two(i as u32, j as u32) }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Index::None => f.write_str(self.base),
            Index::One(i) => write!(f, "{}_{i}", self.base),
            Index::Two(i, j) => write!(f, "{}_{i}_{j}", self.base),
        }
    }
}

/// The declaration of a signal, repeated on every visit; a visitor that has seen it goes by order of arrival.
#[derive(Clone, Copy, Debug)]
pub struct Signal {
    /// Its name within the scope.
    pub name: Name,
    /// Bits, 1..=64.
    pub width: u32,
    /// How to read them.
    pub format: Format,
    /// Register or wire.
    pub role: Role,
}

/// What walks over a module's signals.
///
/// The first walk over a model declares its scopes and signals; later walks show the same ones in the same order, so a
/// visitor keeps a counter and never looks at a name again. Two models with the same walk can be compared signal for signal.
pub trait Visitor {
    /// Enters a scope. On `false` the body is skipped and [`leave`](Visitor::leave) is not called; a scope that was
    /// skipped on the first walk must be skipped on all later ones.
    fn enter(&mut self, name: Name) -> bool;

    /// Leaves the scope entered last.
    fn leave(&mut self);

    /// Shows a signal whose low `width` bits are `value` (the rest is zero); returns the bits that a register shall hold from now on.
    fn signal(&mut self, signal: Signal, value: u64) -> u64;

    /// Asks whether the visitor wants `words` words of a memory, shown next by [`word`](Visitor::word). Waveforms do not.
    fn memory(&mut self, signal: Signal, words: usize) -> bool {
        let _ = (signal, words);
        false
    }

    /// Shows one lane of a memory word and returns the bits that it shall hold.
    fn word(&mut self, value: u64) -> u64 {
        value
    }

    /// Walks `body` inside a scope.
    #[inline]
    fn scope(&mut self, name: impl Into<Name>, body: impl FnOnce(&mut Self))
    where
        Self: Sized,
    {
        if self.enter(name.into()) {
            body(self);
            self.leave();
        }
    }

    /// Shows a register of `width` bits. Registers end in `_q`.
    #[inline(always)]
    fn reg<T: Bits>(&mut self, name: impl Into<Name>, width: u32, format: Format, value: &mut T)
    where
        Self: Sized,
    {
        let old = value.to_bits() & crate::mask(width);
        let new = self.signal(Signal { name: name.into(), width, format, role: Role::Register }, old);
        if new != old {
            *value = T::from_bits(new, width);
        }
    }

    /// Shows a wire of `width` bits.
    #[inline]
    fn wire<T: Bits>(&mut self, name: impl Into<Name>, width: u32, format: Format, value: T)
    where
        Self: Sized,
    {
        let signal = Signal { name: name.into(), width, format, role: Role::Wire };
        self.signal(signal, value.to_bits() & crate::mask(width));
    }
}
