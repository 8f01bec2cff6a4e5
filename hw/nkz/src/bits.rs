//! Bit streams: bit i is bit i mod 8 of byte i / 8, a field's least significant bit comes first.

/// Reads up to 32 bits at `position`; bits past the end of `bytes` read as zero. The fast path of the software engine.
#[inline]
pub(crate) fn peek(bytes: &[u8], position: usize) -> u32 {
    let byte = position / 8;
    let word = match bytes.get(byte..byte + 8) {
        Some(eight) => u64::from_le_bytes(eight.try_into().unwrap_or_default()),
        None => {
            let rest = bytes.get(byte..).unwrap_or_default();
            rest.iter().rev().fold(0, |word, &b| word << 8 | u64::from(b))
        }
    };
    (word >> (position % 8)) as u32
}

/// A stream while it is made: last symbol first, so from the top of the room downwards.
#[derive(Clone, Debug)]
pub(crate) struct Stack {
    words: Vec<u64>,
    /// Bits not yet used; the stream begins here. 16 bits.
    free: u32,
}

impl Stack {
    /// Empty, with room for `words` words of 64 bits.
    pub(crate) fn new(words: usize) -> Self {
        Self { words: vec![0; words], free: 64 * words as u32 }
    }

    /// Forgets all bits.
    pub(crate) fn clear(&mut self) {
        let used = self.free as usize / 64;
        self.words[used..].fill(0);
        self.free = 64 * self.words.len() as u32;
    }

    /// Bits held.
    pub(crate) fn len(&self) -> usize {
        64 * self.words.len() - self.free as usize
    }

    /// Puts the low `width` bits of `value` (0..=32; the rest is zero) before all bits so far.
    #[inline]
    pub(crate) fn push(&mut self, value: u32, width: u32) {
        self.free -= width;
        let (word, shift) = (self.free as usize / 64, self.free % 64);
        let wide = u128::from(value) << shift;
        if width > 0 {
            self.words[word] |= wide as u64;
            if shift + width > 64 {
                self.words[word + 1] |= (wide >> 64) as u64;
            }
        }
    }

    /// Appends all bits to whole bytes, zeros to the end of the last.
    pub(crate) fn append_to(&self, bytes: &mut Vec<u8>) {
        let end = bytes.len() + self.len().div_ceil(8);
        for at in (0..self.len()).step_by(64) {
            bytes.extend(self.word(at).to_le_bytes());
        }
        bytes.truncate(end);
    }

    /// 64 bits from bit `at` on, zero past the end.
    pub(crate) fn word(&self, at: usize) -> u64 {
        let from = self.free as usize + at;
        let (word, shift) = (from / 64, from % 64);
        let get = |i: usize| self.words.get(i).copied().unwrap_or(0);
        if shift == 0 { get(word) } else { get(word) >> shift | get(word + 1) << (64 - shift) }
    }

    /// Shows the words and the pointer.
    pub(crate) fn visit(&mut self, name: rtl::Name, v: &mut impl rtl::Visitor) {
        v.reg(name, 16, rtl::Format::Unsigned, &mut self.free);
        let signal = rtl::Signal { name, width: 64, format: rtl::Format::Hex, role: rtl::Role::Register };
        if v.memory(signal, self.words.len()) {
            self.words.iter_mut().for_each(|word| *word = v.word(*word));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_pushed_is_read_back(fields in proptest::collection::vec((any::<u32>(), 0u32..=32), 0..80), skip in 0usize..20) {
            let mut stack = Stack::new(50);
            let cut = |v: u32, w: u32| (u64::from(v) & rtl::mask(w)) as u32;
            for &(v, w) in fields.iter().rev() {
                stack.push(cut(v, w), w);
            }
            let mut bytes = vec![0; skip];
            stack.append_to(&mut bytes);
            let mut at = 8 * skip;
            for &(v, w) in &fields {
                prop_assert_eq!(cut(peek(&bytes, at), w), cut(v, w));
                prop_assert_eq!(cut(stack.word(at - 8 * skip) as u32, w), cut(v, w));
                at += w as usize;
            }
            prop_assert_eq!(bytes.len(), at.div_ceil(8));
        }
    }
}
