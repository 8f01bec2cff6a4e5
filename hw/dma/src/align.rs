use crate::beat::{Lanes, visit_lanes};
use rtl::{Format, Visitor};

/// The realigner's register: bytes of two beats, filled nibble by nibble from one end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    low: Lanes,
    high: Lanes,
    /// Nibbles held, 8 bits.
    pub nibbles: u32,
}

impl Default for Hold {
    fn default() -> Self {
        Self { low: [0; 64], high: [0; 64], nibbles: 0 }
    }
}

impl Hold {
    /// Appends nibbles `[from, from + count)` of `source`.
    pub(crate) fn append(&mut self, source: &Lanes, from: u32, count: u32) {
        let at = self.nibbles;
        if (from | count | at) & 1 == 0 {
            let (at, from, count) = ((at / 2) as usize, (from / 2) as usize, (count / 2) as usize);
            let low = count.min(64usize.saturating_sub(at));
            if low > 0 {
                self.low[at..at + low].copy_from_slice(&source[from..from + low]);
            }
            if count > low {
                let at = at + low - 64;
                self.high[at..at + count - low].copy_from_slice(&source[from + low..from + count]);
            }
        } else {
            for i in 0..count {
                let nibble = source[((from + i) / 2) as usize] >> (4 * ((from + i) % 2)) & 0xf;
                let to = at + i;
                let byte = if to < 128 { &mut self.low[to as usize / 2] } else { &mut self.high[to as usize / 2 - 64] };
                *byte = if to.is_multiple_of(2) { nibble } else { *byte & 0xf | nibble << 4 };
            }
        }
        self.nibbles += count;
    }

    /// The bytes held, oldest first.
    pub(crate) fn bytes(&self) -> &Lanes {
        &self.low
    }

    /// Drops the oldest `bytes` (at most 64).
    pub(crate) fn drop(&mut self, bytes: u32) {
        let n = bytes as usize;
        if n < 64 {
            self.low.copy_within(n.., 0);
            self.low[64 - n..].copy_from_slice(&self.high[..n]);
            self.high.copy_within(n.., 0);
        } else {
            self.low = self.high;
        }
        self.nibbles -= 2 * bytes;
    }

    pub(crate) fn visit(&mut self, v: &mut impl Visitor) {
        v.reg("nibbles_q", 9, Format::Unsigned, &mut self.nibbles);
        visit_lanes("hold_low_q", &mut self.low, v);
        visit_lanes("hold_high_q", &mut self.high, v);
    }
}

/// A beat of fill values: the element's pattern over and over.
pub(crate) fn fill_beat(value: u64, element_nibbles: u8) -> Lanes {
    let value = match element_nibbles {
        1 => (value & 0xf) * 0x11,
        _ => value,
    };
    let size = (element_nibbles / 2).max(1);
    std::array::from_fn(|i| (value >> (8 * (i as u32 % u32::from(size)))) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn appends_and_drops_like_a_queue_of_nibbles(
            steps in prop::collection::vec((any::<[u8; 32]>(), 0u32..64, 0u32..64, any::<bool>()), 1..40),
        ) {
            let (mut hold, mut model) = (Hold::default(), std::collections::VecDeque::new());
            for (bytes, from, count, even) in steps {
                let (from, count) = if even { (from & !1, count & !1) } else { (from, count) };
                let count = count.min(64 - from).min(256 - model.len() as u32);
                let mut source = [0; 64];
                source[..32].copy_from_slice(&bytes);
                hold.append(&source, from, count);
                model.extend((from..from + count).map(|i| source[i as usize / 2] >> (4 * (i % 2)) & 0xf));
                let drop = (model.len() / 3).min(64);
                let held: Vec<u8> = model.iter().take(2 * drop).copied().collect();
                let got: Vec<u8> = hold.bytes()[..drop].iter().flat_map(|b| [b & 0xf, b >> 4]).collect();
                prop_assert_eq!(held, got);
                hold.drop(drop as u32);
                model.drain(..2 * drop);
                prop_assert_eq!(hold.nibbles as usize, model.len());
            }
        }
    }
}
