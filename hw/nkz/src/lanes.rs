//! The entropy coder: eight lanes of range asymmetric numeral systems with a state of 13 bits.
//!
//! A lane decodes the symbols of its channels, token by token. State x is 4,096..=8,191; its low 10 bits are a slot,
//! the slot names the symbol, and x becomes f · ⌊x / 1024⌋ + (slot − start), which is shifted left until it is 4,096
//! or more again; the bits shifted in come from the stream, as do the symbol's raw bits after them. The multiplier is 3 × 10
//! bits wide, for ⌊x / 1024⌋ is 4..=7. The encoder runs backwards: shift right until 4f ≤ x < 8f, then divide by f: a
//! quotient of 3 bits, so two compare-and-subtract steps below the leading one.

use crate::bits::Stack;
use crate::{Cause, Directory, LANES, TOTAL_BITS, Table, bits};

/// A lane's state between symbols lies in LOW..2·LOW; the encoder starts, and so the decoder must end, at LOW.
pub(crate) const LOW: u32 = 1 << 12;
/// Bits that store a state: its leading one is known.
pub(crate) const STATE_BITS: u32 = 12;
/// Bits of a state above the slot.
const QUOTIENT_BITS: u32 = STATE_BITS - TOTAL_BITS;
/// Longest symbol: 10 bits of the state and 16 raw ones.
pub(crate) const SYMBOL_MAX: usize = 26;
/// Room for a lane of a full tile: 256 symbols and the state, in words of 64 bits.
pub(crate) const LANE_WORDS: usize = (256 * SYMBOL_MAX + STATE_BITS as usize).div_ceil(64);

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
    let next = ((shifted / frequency) << TOTAL_BITS) + start + shifted % frequency;
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
    pub(crate) stacks: [Stack; LANES],
}

impl LaneEncoder {
    pub(crate) fn new() -> Self {
        Self { states: [LOW; LANES], stacks: std::array::from_fn(|_| Stack::new(LANE_WORDS)) }
    }

    pub(crate) fn clear(&mut self) {
        self.states = [LOW; LANES];
        self.stacks.iter_mut().for_each(Stack::clear);
    }

    /// Codes the value that its lane decodes just before those coded so far.
    #[inline]
    pub(crate) fn push(&mut self, lane: usize, table: &Table, value: i32) {
        let (state, bits, width) = encode_step(table, value, self.states[lane]);
        self.states[lane] = state;
        self.stacks[lane].push(bits, width);
    }

    /// Puts the states before the lanes' bits: the lanes are complete.
    pub(crate) fn close(&mut self) {
        for (stack, state) in self.stacks.iter_mut().zip(self.states) {
            stack.push(state - LOW, STATE_BITS);
        }
    }

    pub(crate) fn directory(&self) -> Directory {
        Directory { lanes: std::array::from_fn(|lane| self.stacks[lane].len() as u16) }
    }

    /// Bits of all lanes.
    pub(crate) fn len(&self) -> usize {
        self.stacks.iter().map(Stack::len).sum()
    }
}

/// Where the lanes of a payload lie: the first bit of each and, last, the end of the payload.
pub(crate) fn lane_starts(directory: &Directory, first: usize, end: usize) -> Result<[usize; LANES + 1], Cause> {
    let mut starts = [first; LANES + 1];
    for lane in 0..7 {
        starts[lane + 1] = starts[lane] + usize::from(directory.lanes[lane]);
    }
    starts[LANES] = end;
    if starts.windows(2).any(|w| w[0] + STATE_BITS as usize > w[1]) {
        return Err(Cause::Directory);
    }
    Ok(starts)
}

/// Checks where the lanes stopped: each at the next one's start and in the state [`LOW`], the last before `end` by
/// zeros: less than a word of them, but in a `slot`.
pub(crate) fn check_ends(
    bytes: &[u8],
    starts: &[usize; LANES + 1],
    positions: &[usize; LANES],
    states: &[u32; LANES],
    slot: bool,
) -> Result<(), Cause> {
    if (0..7).any(|lane| positions[lane] != starts[lane + 1]) {
        return Err(Cause::Lane);
    }
    let (last, end) = (positions[7], starts[LANES]);
    if last > end || (!slot && end - last >= 64) {
        return Err(Cause::Lane);
    }
    if states.iter().any(|&x| x != LOW) {
        return Err(Cause::State);
    }
    if (last..end).any(|bit| bytes[bit / 8] >> (bit % 8) & 1 == 1) {
        return Err(Cause::Padding);
    }
    Ok(())
}

/// Decodes `tokens` × `width` values, row by row, channel c of each row by `tables[c]` from lane c mod 8. `bytes` is the
/// payload; `starts` says where its lanes lie. Takes the same time whatever the bytes say.
pub(crate) fn decode(
    bytes: &[u8],
    starts: &[usize; LANES + 1],
    tables: &[&Table],
    tokens: usize,
    slot: bool,
    mut put: impl FnMut(usize, usize, i32),
) -> Result<(), Cause> {
    let mut positions: [usize; LANES] = std::array::from_fn(|lane| starts[lane] + STATE_BITS as usize);
    let mut states: [u32; LANES] = std::array::from_fn(|lane| LOW | bits::peek(bytes, starts[lane]) & (LOW - 1));
    for token in 0..tokens {
        for (group, eight) in tables.chunks_exact(LANES).enumerate() {
            for lane in 0..LANES {
                let window = bits::peek(bytes, positions[lane]);
                let (value, state, used) = decode_step(eight[lane], states[lane], window);
                states[lane] = state;
                positions[lane] += used as usize;
                put(token, group * LANES + lane, value);
            }
        }
    }
    check_ends(bytes, starts, &positions, &states, slot)
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
