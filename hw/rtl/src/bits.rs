use crate::{Format, Name, Visitor};

/// The low `width` bits set. `width` is at most 64.
#[inline]
pub const fn mask(width: u32) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

/// Copies a word of lanes, as `copy_from_slice` does; for the lengths that arrays have most often without a call, which for so few bytes
/// takes longer than the copy.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy_lanes<T: Copy>(to: &mut [T], from: &[T]) {
    fn sized<T: Copy, const N: usize>(to: &mut [T], from: &[T]) -> Option<()> {
        let (to, from): (&mut [T; N], &[T; N]) = (to.try_into().ok()?, from.try_into().ok()?);
        *to = *from;
        Some(())
    }
    let done = match from.len() {
        1 => sized::<T, 1>(to, from),
        8 => sized::<T, 8>(to, from),
        16 => sized::<T, 16>(to, from),
        32 => sized::<T, 32>(to, from),
        _ => None,
    };
    if done.is_none() {
        to.copy_from_slice(from);
    }
}

/// A value that a register of up to 64 bits holds.
pub trait Bits: Copy + Default + PartialEq + 'static {
    /// Bits of the storage type: the width of a register that says nothing else.
    const WIDTH: u32;
    /// True where the storage type is two's complement.
    const SIGNED: bool;
    /// The value's two's complement bits, extended to 64.
    fn to_bits(self) -> u64;
    /// The value of the low `width` bits, sign-extended where the type is signed.
    fn from_bits(bits: u64, width: u32) -> Self;
}

macro_rules! integer_bits {
    ($($t:ty: $signed:literal),*) => {$(
        impl Bits for $t {
            const WIDTH: u32 = <$t>::BITS;
            const SIGNED: bool = $signed;
            #[inline]
            fn to_bits(self) -> u64 {
                self as u64
            }
            #[inline]
            fn from_bits(bits: u64, width: u32) -> Self {
                let spare = 64 - width.min(64);
                if $signed { (((bits << spare) as i64) >> spare) as $t } else { (bits & mask(width)) as $t }
            }
        }
        impl Payload for $t {
            fn visit(&mut self, name: Name, v: &mut impl Visitor) {
                v.reg(name, Self::WIDTH, if $signed { Format::Signed } else { Format::Unsigned }, self);
            }
        }
    )*};
}

integer_bits!(u8: false, u16: false, u32: false, u64: false, i8: true, i16: true, i32: true, i64: true);

impl Bits for bool {
    const WIDTH: u32 = 1;
    const SIGNED: bool = false;
    #[inline]
    fn to_bits(self) -> u64 {
        self as u64
    }
    #[inline]
    fn from_bits(bits: u64, _: u32) -> Self {
        bits & 1 == 1
    }
}

impl Payload for bool {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        v.reg(name, 1, Format::Unsigned, self);
    }
}

/// What a stream carries and a FIFO stores: one or more named fields.
pub trait Payload: Clone + Default + 'static {
    /// Shows the payload's fields as registers; `name` is the register that holds it.
    fn visit(&mut self, name: Name, v: &mut impl Visitor);
}

impl<T: Payload> Payload for Vec<T> {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        for (lane, value) in self.iter_mut().enumerate() {
            value.visit(name.at(lane), v);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_signed_registers_extend_their_sign() {
        assert_eq!(i16::from_bits(0x80, 8), -128);
        assert_eq!(i32::from_bits((-1i32).to_bits() & mask(24), 24), -1);
        assert_eq!(u16::from_bits(0xfff, 8), 0xff);
        assert_eq!(u64::from_bits(u64::MAX, 64), u64::MAX);
        assert_eq!(i64::from_bits(u64::MAX, 64), -1);
    }
}
