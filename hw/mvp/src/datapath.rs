use numeric::{FloatFormat, Format};
use std::fmt;

/// What an element multiplies and in what it sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datapath {
    /// INT8 × INT8 → INT32, one k-step an edge, L = 1. UINT8 enters as x ⊕ 0x80 with zero point −128.
    Int8,
    /// INT8 × INT4 → INT32, two k-steps an edge, L = 1: a code is a pair of values, the lower k in the lower byte.
    Int4,
    /// Float × float → FP32 by fused multiply-add, one k-step an edge, L stages: BF16, FP16, E4M3, E5M2, FFP8 in any pairing.
    Float {
        /// Format of X.
        act: FloatFormat,
        /// Format of W.
        weight: FloatFormat,
    },
}

impl Datapath {
    /// Both operands in one float format.
    pub const fn float(format: FloatFormat) -> Self {
        Self::Float { act: format, weight: format }
    }

    /// The datapath for operands of the given formats.
    ///
    /// `None` if no element multiplies them.
    pub fn of(act: Format, weight: Format) -> Option<Self> {
        match (act, weight) {
            (Format::Float(act), Format::Float(weight)) => Some(Self::Float { act, weight }),
            (Format::Int(a), Format::Int(w)) if a.width() == 8 && a.lsb() == 0 => match w.width() {
                8 if w.lsb() == 0 => Some(Self::Int8),
                4 => Some(Self::Int4),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether partial sums are FP32.
    pub const fn is_float(&self) -> bool {
        matches!(self, Self::Float { .. })
    }

    /// k-steps an edge: 2 with INT4 weights.
    pub const fn steps(&self) -> usize {
        if matches!(self, Self::Int4) { 2 } else { 1 }
    }

    /// Bits of an activation register: 8 or 16.
    pub const fn act_width(&self) -> u32 {
        match self {
            Self::Int8 => 8,
            Self::Int4 => 16,
            Self::Float { act, .. } => act.width(),
        }
    }

    /// Bits of a weight register. INT4 pairs are held sign-extended to a byte each, as the registers must hold INT8 pairs in GEMV.
    pub const fn weight_width(&self) -> u32 {
        match self {
            Self::Int8 => 8,
            Self::Int4 => 16,
            Self::Float { weight, .. } => weight.width(),
        }
    }
}

impl fmt::Display for Datapath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int8 => f.pad("int8"),
            Self::Int4 => f.pad("int8 x int4"),
            Self::Float { act, weight } if act == weight => act.fmt(f),
            Self::Float { act, weight } => write!(f, "{act} x {weight}"),
        }
    }
}
