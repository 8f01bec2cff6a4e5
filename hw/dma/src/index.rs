use crate::ListPlan;
use crate::beat::Beat;
use rtl::{Format, Visitor};

/// An index that is out of range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BadIndex {
    /// There is one.
    pub valid: bool,
    /// The first: position in the list, 12 bits.
    pub position: u32,
    /// Its value.
    pub value: i64,
}

impl BadIndex {
    pub(crate) fn visit(&mut self, v: &mut impl Visitor) {
        v.scope("bad_index", |v| {
            v.reg("valid_q", 1, Format::Unsigned, &mut self.valid);
            v.reg("position_q", 12, Format::Unsigned, &mut self.position);
            v.reg("value_q", 32, Format::Signed, &mut self.value);
        });
    }
}

/// Checks the entries of one packed beat side by side (a comparator an entry), clamps them if asked to.
///
/// `first` is the position of the beat's first entry. Returns the SRAM word and the first entry that is out of range.
pub(crate) fn check_beat(beat: &Beat, list: &ListPlan, wide: bool, clamp: bool, first: u32) -> ([u64; 8], BadIndex) {
    let width = if wide { 4 } else { 2 };
    let mut bytes = beat.data;
    let mut bad = BadIndex::default();
    for (i, entry) in bytes[..usize::from(beat.count)].chunks_exact_mut(width).enumerate() {
        let value = if wide {
            i64::from(i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]))
        } else {
            i64::from(u16::from_le_bytes([entry[0], entry[1]]))
        };
        if (0..i64::from(list.bound)).contains(&value) {
            continue;
        }
        let nearest = if value < 0 { 0 } else { list.bound - 1 };
        entry.copy_from_slice(&nearest.to_le_bytes()[..width]);
        if !clamp && !bad.valid {
            bad = BadIndex { valid: true, position: first + i as u32, value };
        }
    }
    let word = std::array::from_fn(|l| u64::from_le_bytes(std::array::from_fn(|b| bytes[8 * l + b])));
    (word, bad)
}
