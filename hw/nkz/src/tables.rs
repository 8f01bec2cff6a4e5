use crate::frequencies::{CODES, EXPONENTS};
use std::sync::LazyLock;

/// log2 of the sum of a table's frequencies.
pub const TOTAL_BITS: u32 = 10;
/// The sum of a table's frequencies.
pub const TOTAL: u32 = 1 << TOTAL_BITS;
/// Fraction bits of [`Table::cost`].
pub const COST_BITS: u32 = 5;
/// Bits of a quantiser code after the escape symbol.
pub(crate) const ESCAPED_CODE_BITS: u32 = 16;
/// Bits of an exponent after the escape symbol.
pub(crate) const ESCAPED_EXPONENT_BITS: u32 = 8;

/// A table as it is written down: symbol `i < 2·reach + 1` stands for the values whose high part is `i − reach`, the
/// last symbol is the escape.
#[derive(Debug)]
pub(crate) struct Shape {
    /// Low bits of a value that stay raw, 0..=4.
    pub(crate) low: u32,
    /// Largest high part with a symbol of its own, 1..=15.
    pub(crate) reach: i32,
    /// 2·reach + 2 counts of at least one, their sum [`TOTAL`].
    pub(crate) frequencies: &'static [u16],
}

/// One line of the decoder's table: what a slot of the state says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slot {
    /// Symbol, 5 bits.
    pub(crate) symbol: u8,
    /// Its frequency, 1..=1023.
    pub(crate) frequency: u16,
    /// Slot less the symbol's first slot, below the frequency.
    pub(crate) rank: u16,
}

/// An entropy table as the lanes use it.
#[derive(Debug)]
pub struct Table {
    /// Low bits of a value that stay raw.
    pub(crate) low: u32,
    /// Largest high part with a symbol of its own.
    pub(crate) reach: i32,
    /// Raw bits after the escape symbol.
    pub(crate) escaped: u32,
    /// First slot of each symbol and, last, [`TOTAL`].
    pub(crate) starts: Vec<u16>,
    /// Length of each symbol with its raw bits, in 1/32 bit.
    costs: Vec<u16>,
    /// A line for each of the [`TOTAL`] slots: a ROM here, comparators against `starts` in silicon.
    pub(crate) slots: Box<[Slot; TOTAL as usize]>,
    /// [`Table::cost`] of the values within ±[`NEAR`], from −NEAR up.
    near: Box<[u16; 2 * NEAR as usize]>,
}

/// Values whose costs are at hand.
const NEAR: i32 = 128;

impl Table {
    fn new(shape: &Shape, escaped: u32) -> Self {
        let mut table = Self {
            low: shape.low,
            reach: shape.reach,
            escaped,
            starts: vec![0],
            costs: Vec::new(),
            slots: Box::new([Slot::default(); TOTAL as usize]),
            near: Box::new([0; 2 * NEAR as usize]),
        };
        let mut first = 0;
        let escape = shape.frequencies.len() - 1;
        for (symbol, &frequency) in shape.frequencies.iter().enumerate() {
            let raw = if symbol == escape { escaped } else { shape.low };
            table.costs.push((cost(u32::from(frequency)) + (raw << COST_BITS)) as u16);
            for (slot, rank) in table.slots[first..].iter_mut().zip(0..frequency) {
                *slot = Slot { symbol: symbol as u8, frequency, rank };
            }
            first += usize::from(frequency);
            table.starts.push(first as u16);
        }
        table.near = Box::new(std::array::from_fn(|i| table.costs[table.symbol(i as i32 - NEAR)]));
        table
    }

    /// The symbol of `value`: its high part's, or the escape.
    #[inline]
    pub(crate) fn symbol(&self, value: i32) -> usize {
        let high = value >> self.low;
        if high.abs() <= self.reach { (high + self.reach) as usize } else { self.escape() }
    }

    /// The escape symbol, the last.
    #[inline]
    pub(crate) fn escape(&self) -> usize {
        2 * self.reach as usize + 1
    }

    /// The symbols' frequencies, the escape's last.
    pub fn frequencies(&self) -> impl Iterator<Item = u16> {
        self.starts.windows(2).map(|w| w[1] - w[0])
    }

    /// Ideal length of `value` in 1/32 bit, rounded: what the encoder compares tables and steps by.
    #[inline]
    pub fn cost(&self, value: i32) -> u32 {
        match self.near.get((value + NEAR) as usize) {
            Some(&cost) => cost.into(),
            None => u32::from(self.costs[self.symbol(value)]),
        }
    }
}

/// −log2(frequency / TOTAL) in 1/32 bit, rounded half up: by repeated squaring, integers alone.
fn cost(frequency: u32) -> u32 {
    let whole = frequency.ilog2();
    // The mantissa, 1.0..2.0 with 30 fraction bits; one bit more than is kept, for the rounding.
    let mut mantissa = u64::from(frequency) << (30 - whole);
    let mut log = whole << (COST_BITS + 1);
    for bit in (0..=COST_BITS).rev() {
        mantissa = (mantissa * mantissa) >> 30;
        if mantissa >> 31 == 1 {
            log |= 1 << bit;
            mantissa >>= 1;
        }
    }
    // What was cut off the logarithm makes an odd difference at most its half: down is nearest.
    ((TOTAL_BITS << (COST_BITS + 1)) - log) / 2
}

/// The 16 tables of quantiser codes: table i fits a spread of 2^(−2.5 + i/2) steps.
pub fn code_tables() -> &'static [Table; 16] {
    static TABLES: LazyLock<[Table; 16]> =
        LazyLock::new(|| std::array::from_fn(|i| Table::new(&CODES[i], ESCAPED_CODE_BITS)));
    &TABLES
}

/// The 16 tables of BF16 exponents: table i fits a mean of `RATIOS[i / 2]` standard deviations.
pub fn exponent_tables() -> &'static [Table; 16] {
    static TABLES: LazyLock<[Table; 16]> =
        LazyLock::new(|| std::array::from_fn(|i| Table::new(&EXPONENTS[i], ESCAPED_EXPONENT_BITS)));
    &TABLES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_fills_the_slots() {
        for table in code_tables().iter().chain(exponent_tables()) {
            assert_eq!(table.starts.last(), Some(&(TOTAL as u16)));
            assert_eq!(table.starts.len(), table.escape() + 2);
            assert!(table.starts.windows(2).all(|w| w[0] < w[1]));
        }
    }

    #[test]
    fn costs_are_logarithms() {
        for f in 1..TOTAL {
            let exact = 32.0 * (f64::from(TOTAL) / f64::from(f)).log2();
            assert!((f64::from(cost(f)) - exact).abs() <= 0.501, "{f}");
        }
    }
}
