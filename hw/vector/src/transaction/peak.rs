use super::reduce::{fold, larger, tree};
use crate::VectorError;
use crate::config::MAX_LEN;
use numeric::fast::{Kernel, dispatch};

/// Where a row is largest.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Peak {
    /// Place of the first value that no other exceeds; 0 if there is none.
    pub index: u32,
    /// The value; the canonical NaN of a row of NaNs.
    pub value: f32,
}

struct Largest<'a>(&'a [f32]);

impl Kernel for Largest<'_> {
    type Out = f32;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> f32 {
        tree(fold(self.0, [f32::NEG_INFINITY; 128], larger), larger)
    }
}

/// The first of the largest values. NaN never wins, −0 equals +0.
///
/// # Errors
/// If the row is empty or longer than [`MAX_LEN`].
pub fn argmax(row: &[f32]) -> Result<Peak, VectorError> {
    if !(1..=MAX_LEN).contains(&row.len()) {
        return Err(VectorError::RowLength(row.len()));
    }
    let largest = dispatch(Largest(row));
    // No order of comparisons changes which value it is, so it may be looked for afterwards.
    let peak = row.iter().position(|x| *x == largest).map(|i| Peak { index: i as u32, value: row[i] });
    Ok(peak.unwrap_or(Peak { index: 0, value: f32::from_bits(0x7fc0_0000) }))
}
