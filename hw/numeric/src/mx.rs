//! OCP microscaling (MX v1.0): blocks of 32 elements that share one E8M0 scale. Storage only: blocks are expanded at
//! the port, and no operator works on them.

use crate::exact::{Exact, Unpacked};
use crate::flags::Flags;
use crate::format::{FloatFormat, Format, IntFormat};
use crate::ops::product;
use crate::round::Mode;

/// Elements in a block.
pub const MX_BLOCK: usize = 32;

/// One of the concrete MX formats.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MxFormat {
    element: Format,
}

impl MxFormat {
    /// MXFP8 with E4M3 elements.
    pub const FP8_E4M3: MxFormat = MxFormat { element: Format::Float(FloatFormat::E4M3) };
    /// MXFP8 with E5M2 elements.
    pub const FP8_E5M2: MxFormat = MxFormat { element: Format::Float(FloatFormat::E5M2) };
    /// MXFP6 with E2M3 elements.
    pub const FP6_E2M3: MxFormat = MxFormat { element: Format::Float(FloatFormat::E2M3) };
    /// MXFP6 with E3M2 elements.
    pub const FP6_E3M2: MxFormat = MxFormat { element: Format::Float(FloatFormat::E3M2) };
    /// MXFP4, E2M1 elements.
    pub const FP4: MxFormat = MxFormat { element: Format::Float(FloatFormat::E2M1) };
    /// MXINT8: elements of 8 bits in steps of 2^−6.
    pub const INT8: MxFormat = MxFormat { element: Format::Int(IntFormat::MXINT8) };

    /// All six, with their names.
    pub const ALL: [(&'static str, MxFormat); 6] = [
        ("mxfp8-e4m3", MxFormat::FP8_E4M3),
        ("mxfp8-e5m2", MxFormat::FP8_E5M2),
        ("mxfp6-e2m3", MxFormat::FP6_E2M3),
        ("mxfp6-e3m2", MxFormat::FP6_E3M2),
        ("mxfp4", MxFormat::FP4),
        ("mxint8", MxFormat::INT8),
    ];

    /// The elements' format.
    pub const fn element(self) -> Format {
        self.element
    }

    /// Bytes of a stored block: the scale and the packed elements.
    pub const fn block_bytes(self) -> usize {
        1 + MX_BLOCK * self.element.width() as usize / 8
    }

    /// One element, exactly: scale × element. A NaN scale makes every element NaN.
    pub fn value(self, scale: u8, code: u8, flags: &mut Flags) -> Unpacked {
        product(FloatFormat::E8M0.unpack(scale as u32), self.element.unpack(code as u32), flags)
    }

    /// Expands a block into codes of `to`, each rounded once from the exact scale × element.
    pub fn expand(
        self,
        scale: u8,
        codes: &[u8; MX_BLOCK],
        to: FloatFormat,
        mode: Mode,
        flags: &mut Flags,
    ) -> [u32; MX_BLOCK] {
        codes.map(|code| to.pack(self.value(scale, code, flags), mode, flags))
    }

    /// Quantises 32 FP32 codes into a scale and element codes by the rule of MX v1.0 §6.3: the scale is the greatest
    /// power of two not above the largest magnitude, divided by the elements' largest power of two; elements saturate.
    /// The scale is clamped to E8M0's range (a block of zeros gets the smallest). A block that holds a NaN or an
    /// infinity becomes a NaN scale with zero elements, and raises invalid.
    pub fn quantise(self, values: &[u32; MX_BLOCK], flags: &mut Flags) -> (u8, [u8; MX_BLOCK]) {
        let mut numbers = [Exact::zero(false); MX_BLOCK];
        for (number, code) in numbers.iter_mut().zip(values) {
            match FloatFormat::FP32.unpack(*code) {
                Unpacked::Finite(x) => *number = x,
                _ => {
                    *flags |= Flags::INVALID;
                    return (0xff, [0; MX_BLOCK]);
                }
            }
        }
        let largest = numbers.iter().map(|x| x.top()).max().unwrap_or(i32::MIN);
        let exponent = largest.saturating_sub(self.largest_exponent()).clamp(-127, 127);
        let codes = numbers.map(|x| {
            let scaled = Exact { exp: x.exp - exponent, ..x };
            self.element.pack(Unpacked::Finite(scaled), Mode::SATURATE, flags) as u8
        });
        ((exponent + 127) as u8, codes)
    }

    /// Exponent of the largest power of two among the elements (MX v1.0: emax).
    fn largest_exponent(self) -> i32 {
        let largest = match self.element {
            Format::Float(f) => f.max_finite(),
            Format::Int(i) => i.max() as u32,
        };
        match self.element.unpack(largest) {
            Unpacked::Finite(x) => x.top(),
            _ => 0,
        }
    }
}
