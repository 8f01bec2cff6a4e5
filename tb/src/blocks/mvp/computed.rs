//! The transaction engine on a case's operands, beside what a clocked run left.

use super::driver::Operands;
use crate::verify::Case;
use mvp::{Code, Codes, Computed, Config, Counters, Datapath, GemmError, GroupScales, Job, grouped_sums, sums};
use numeric::FloatFormat;

/// Codes in the words that the transaction engine takes.
enum Words {
    Int(Vec<i8>),
    Bits8(Vec<u8>),
    Bits16(Vec<u16>),
}

impl Words {
    fn new(format: Option<FloatFormat>, codes: &[Code]) -> Self {
        match format {
            None => Self::Int(codes.iter().map(|&c| c as i8).collect()),
            Some(f) if f.width() <= 8 => Self::Bits8(codes.iter().map(|&c| c as u8).collect()),
            Some(_) => Self::Bits16(codes.iter().map(|&c| c as u16).collect()),
        }
    }

    fn codes(&self) -> Codes<'_> {
        match self {
            Self::Int(codes) => Codes::Int(codes),
            Self::Bits8(codes) => Codes::Bits8(codes),
            Self::Bits16(codes) => Codes::Bits16(codes),
        }
    }
}

/// X · W without a clock, with group scales where the configuration has them.
///
/// # Errors
/// As the engine's.
pub(super) fn product(config: Config, job: Job, operands: &Operands) -> Result<Computed, GemmError> {
    let [act, weight] = match config.datapath {
        Datapath::Float { act, weight } => [Some(act), Some(weight)],
        Datapath::Int8 | Datapath::Int4 => [None; 2],
    };
    let (x, w) = (Words::new(act, &operands.x), Words::new(weight, &operands.w));
    if config.group.is_none() {
        return sums(config, job, x.codes(), w.codes());
    }
    let minima = if config.datapath.is_float() { &[] } else { operands.w_minima.as_slice() };
    let scales = GroupScales { x: &operands.x_scales, w: &operands.w_scales, minima };
    grouped_sums(config, job, x.codes(), w.codes(), scales)
}

/// Holds a clocked run's bits, overflow flag and cycles without stalls against the transaction engine's; `cycles` is what that engine
/// says of the mode.
pub(super) fn agree(case: &mut Case, computed: &Computed, cycles: u64, y: &[i32], overflow: bool, c: Counters) {
    let bits: Vec<i32> = (0..y.len()).map(|i| computed.sums.bits(i) as i32).collect();
    case.equal_slices("Y of the transaction engine", y, &bits);
    case.equal("overflow of the transaction engine", overflow, computed.overflow);
    case.equal("cycles of the transaction engine", cycles, c.unstalled());
}
