//! The entropy coder: eight lanes of range asymmetric numeral systems with a state of 13 bits, and one stream for all.
//!
//! A lane decodes the symbols of its channels, token by token; lanes take their bits from the stream in turn. State x is 4,096..=8,191; its low 10 bits are a slot,
//! the slot names the symbol, and x becomes f · ⌊x / 1024⌋ + (slot − start), which is shifted left until it is 4,096
//! or more again; the bits shifted in come from the stream, as do the symbol's raw bits after them. The multiplier is 3 × 10
//! bits wide, for ⌊x / 1024⌋ is 4..=7. The encoder runs backwards: shift right until 4f ≤ x < 8f, then divide by f: a
//! quotient of 3 bits, so two compare-and-subtract steps below the leading one.

use crate::bits::Stack;
use crate::{Cause, LANES, TOTAL_BITS, Table, bits};

/// A lane's state between symbols lies in LOW..2·LOW; the encoder starts, and so the decoder must end, at LOW.
pub(crate) const LOW: u32 = 1 << 12;
/// Bits that store a state: its leading one is known.
pub(crate) const STATE_BITS: u32 = 12;
/// Bits of a state above the slot.
const QUOTIENT_BITS: u32 = STATE_BITS - TOTAL_BITS;
/// Longest symbol: 10 bits of the state and 16 raw ones.
pub(crate) const SYMBOL_MAX: usize = 26;
/// Bits of the states before the stream's first symbol.
pub(crate) const STATES_BITS: usize = LANES * STATE_BITS as usize;
/// Room for a full tile: 2,048 symbols and the states, in words of 64 bits.
pub(crate) const STREAM_WORDS: usize = (2048 * SYMBOL_MAX + STATES_BITS).div_ceil(64);

/// The state after coding `value`, with the bits that go to the stream: (state, bits, width).
#[inline]
pub(crate) fn encode_step(table: &Table, value: i32, state: u32) -> (u32, u32, u32) {
    let symbol = table.symbol(value);
    let start = u32::from(table.starts[symbol]);
    let frequency = u32::from(table.starts[symbol + 1]) - start;
    let raw = if symbol == table.escape() { table.escaped } else { table.low };
    // Shift until the quotient has its 3 bits; the guess from the lengths is one short at most.
    let mut shift = (state.ilog2() - QUOTIENT_BITS).saturating_sub(frequency.ilog2() + 1);
    shift += u32::from(state >> shift >= frequency << (QUOTIENT_BITS + 1));
    let shifted = state >> shift;
    // 4 to 7 times the frequency: two comparisons, as in hardware.
    let mut quotient = 4 + 2 * u32::from(shifted >= 6 * frequency);
    quotient += u32::from(shifted >= (quotient + 1) * frequency);
    let next = (quotient << TOTAL_BITS) + start + shifted - quotient * frequency;
    let bits = state & ((1 << shift) - 1) | (value as u32 & ((1 << raw) - 1)) << shift;
    (next, bits, shift + raw)
}

/// One symbol: (value, next state, bits used) from a window of the lane's next 32 bits.
#[inline]
pub(crate) fn decode_step(table: &Table, state: u32, window: u32) -> (i32, u32, u32) {
    let slot = table.slots[(state & ((1 << TOTAL_BITS) - 1)) as usize];
    let small = u32::from(slot.frequency) * (state >> TOTAL_BITS) + u32::from(slot.rank);
    let shift = small.leading_zeros() - LOW.leading_zeros();
    let next = small << shift | window & ((1 << shift) - 1);
    let rest = window >> shift;
    if usize::from(slot.symbol) == table.escape() {
        // Sign-extended; an exponent's consumer takes the low 8 bits.
        let spare = 32 - table.escaped;
        (((rest << spare) as i32) >> spare, next, shift + table.escaped)
    } else {
        let high = i32::from(slot.symbol) - table.reach;
        (high << table.low | (rest & ((1 << table.low) - 1)) as i32, next, shift + table.low)
    }
}

/// The eight lanes of an encoder.
#[derive(Clone, Debug)]
pub(crate) struct LaneEncoder {
    pub(crate) states: [u32; LANES],
    pub(crate) stack: Stack,
}

impl LaneEncoder {
    pub(crate) fn new() -> Self {
        Self { states: [LOW; LANES], stack: Stack::new(STREAM_WORDS) }
    }

    pub(crate) fn clear(&mut self) {
        self.states = [LOW; LANES];
        self.stack.clear();
    }

    /// Codes the value that is decoded just before those coded so far.
    #[inline]
    pub(crate) fn push(&mut self, lane: usize, table: &Table, value: i32) {
        let (state, bits, width) = encode_step(table, value, self.states[lane]);
        self.states[lane] = state;
        self.stack.push(bits, width);
    }

    /// Puts the states before the symbols' bits, lane 0's first: the stream is complete.
    pub(crate) fn close(&mut self) {
        for state in self.states.into_iter().rev() {
            self.stack.push(state - LOW, STATE_BITS);
        }
    }
}

/// The states at the head of a stream that begins at bit `first`.
#[inline]
pub(crate) fn states(bytes: &[u8], first: usize) -> [u32; LANES] {
    std::array::from_fn(|lane| LOW | bits::peek(bytes, first + lane * STATE_BITS as usize) & (LOW - 1))
}

/// Checks where the stream stopped: before the end of the payload by zeros, less than a word of them but in a `slot`, and
/// with every lane in the state [`LOW`].
pub(crate) fn check_end(bytes: &[u8], position: usize, states: &[u32; LANES], slot: bool) -> Result<(), Cause> {
    let end = 8 * bytes.len();
    if position > end || (!slot && end - position >= 64) {
        return Err(Cause::Lane);
    }
    if states.iter().any(|&x| x != LOW) {
        return Err(Cause::State);
    }
    if (position..end).any(|bit| bytes[bit / 8] >> (bit % 8) & 1 == 1) {
        return Err(Cause::Padding);
    }
    Ok(())
}

/// Decodes `tokens` × `width` values, row by row, channel c of each row by `tables[c]` in lane c mod 8, from the stream that
/// begins at bit `first` of the payload. Takes the same time whatever the bytes say.
#[inline]
pub(crate) fn decode(
    bytes: &[u8],
    first: usize,
    tables: &[&Table],
    tokens: usize,
    slot: bool,
    mut put: impl FnMut(usize, usize, i32),
) -> Result<(), Cause> {
    let (mut position, mut states) = (first + STATES_BITS, states(bytes, first));
    for token in 0..tokens {
        for (group, eight) in tables.chunks_exact(LANES).enumerate() {
            for lane in 0..LANES {
                let (value, state, used) = decode_step(eight[lane], states[lane], bits::peek(bytes, position));
                states[lane] = state;
                position += used as usize;
                put(token, group * LANES + lane, value);
            }
        }
    }
    check_end(bytes, position, &states, slot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{code_tables, exponent_tables};
    use proptest::prelude::*;

    proptest! {
        /// One step back and one step forth, for every table, state and value.
        #[test]
        fn steps_invert(table in 0usize..16, state in LOW..2 * LOW, value in -32_768i32..=32_767) {
            for table in [&code_tables()[table], &exponent_tables()[table]] {
                let value = if table.escaped == 8 { value >> 8 } else { value };
                for value in [value, value >> 6, value >> 9] {
                    let (next, bits, width) = encode_step(table, value, state);
                    prop_assert!((LOW..2 * LOW).contains(&next));
                    prop_assert!(width as usize <= SYMBOL_MAX && u64::from(bits) <= rtl::mask(width));
                    prop_assert_eq!(decode_step(table, next, bits), (value, state, width));
                }
            }
        }

        /// What is decoded from any state encodes back to it: no two states mean the same.
        #[test]
        fn any_state_decodes(table in 0usize..16, state in LOW..2 * LOW, window: u32) {
            let (_, next, used) = decode_step(&code_tables()[table], state, window);
            prop_assert!((LOW..2 * LOW).contains(&next) && used as usize <= SYMBOL_MAX);
        }
    }
}
