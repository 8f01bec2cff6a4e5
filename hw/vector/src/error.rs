use crate::config::{MAX_FREQUENCIES, MAX_LEN};
use numeric::Format;

/// What the unit cannot be built for or told to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum VectorError {
    /// A number of lanes that no unit has.
    #[error("{0} lanes: a vector unit has 8, 16, 32 or 64")]
    Lanes(usize),
    /// A row without values or longer than the row buffer.
    #[error("rows of {0} values: they have 1..={MAX_LEN}")]
    RowLength(usize),
    /// More rows than the counter takes.
    #[error("{0} rows: at least 1 and at most 2^32 − 1")]
    Rows(usize),
    /// Operands of different sizes.
    #[error("{what} has {got} values, but {want} are needed")]
    Length {
        /// Which operand.
        what: &'static str,
        /// Its values.
        got: usize,
        /// Values that the others ask for.
        want: usize,
    },
    /// An operand that is no whole number of rows.
    #[error("{values} values are no rows of {len}")]
    Ragged {
        /// Values given.
        values: usize,
        /// Values of a row.
        len: usize,
    },
    /// A group that the reduction tree cannot cut out.
    #[error(
        "groups of {group} in rows of {len}: a group is a power of two from 8 up that divides the row; leave it out for one scale a row"
    )]
    Group {
        /// Values of a group.
        group: usize,
        /// Values of a row.
        len: usize,
    },
    /// A format whose values have no useful scale.
    #[error(
        "{format}: no scales, its largest number {largest:e} lies outside 2^−64..2^64 (formats of 16 bits and more need none)"
    )]
    Unscaled {
        /// The format.
        format: Format,
        /// Its largest number.
        largest: f64,
    },
    /// A format whose codes do not fit the words given.
    #[error("{format} codes have {width} bits, the words given {word}")]
    Word {
        /// The format.
        format: Format,
        /// Its width.
        width: u32,
        /// Bits of a word.
        word: u32,
    },
    /// Rows of RoPE that are no pairs, or too long for the frequency memory.
    #[error("RoPE on rows of {0} values: an even number up to {max}", max = 2 * MAX_FREQUENCIES)]
    Head(usize),
    /// A ramp that repeats nothing.
    #[error("a ramp that steps every {every} rows and wraps after {wrap}: both are at least 1")]
    Ramp {
        /// Rows of the same value.
        every: usize,
        /// Values before it starts again.
        wrap: usize,
    },
    /// A position that FP32 does not hold exactly.
    #[error("position {0}: at most 2^24")]
    Position(usize),
    /// A parameter that is no number, or out of range.
    #[error("{what} = {value}: {wants}")]
    Parameter {
        /// Which one.
        what: &'static str,
        /// Its value.
        value: f32,
        /// What it must be.
        wants: &'static str,
    },
}

/// The first error unless `got` is `want`.
pub(crate) fn same(what: &'static str, got: usize, want: usize) -> Result<(), VectorError> {
    if got == want { Ok(()) } else { Err(VectorError::Length { what, got, want }) }
}

/// How many rows of `len` values there are.
pub(crate) fn rows(values: usize, len: usize) -> Result<usize, VectorError> {
    if !(1..=MAX_LEN).contains(&len) {
        return Err(VectorError::RowLength(len));
    }
    if !values.is_multiple_of(len) {
        return Err(VectorError::Ragged { values, len });
    }
    Ok(values / len)
}
