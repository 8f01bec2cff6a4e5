use crate::{Address, Crc};
use rtl::{Format as Look, Name, Payload, Visitor};

/// A word of a stored tile. Payload words come first, in order; the header, word 0, is the last beat, for it holds the CRC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WordBeat {
    /// Where the word belongs in the tile, 10 bits.
    pub index: u16,
    /// 64 bits.
    pub data: u64,
}

impl Payload for WordBeat {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        v.scope(name, |v| {
            v.reg("index_q", 10, Look::Unsigned, &mut self.index);
            v.reg("data_q", 64, Look::Hex, &mut self.data);
        });
    }
}

/// Gathers pieces of up to 64 bits into words, and their CRC. A piece a cycle goes in; it completes at most one word.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Merger {
    /// 64 bits: what no word has taken yet.
    rest: u64,
    /// 6 bits.
    held: u32,
    /// 10 bits: words given, so the last one's index.
    pub(crate) words: u16,
    /// 16 bits.
    pub(crate) crc: u16,
}

impl Merger {
    /// Empty, before the tile at `address`.
    pub(crate) fn new(address: &Address) -> Self {
        Self { crc: address.seed().value(), ..Self::default() }
    }

    /// Bits that no word has taken yet.
    pub(crate) fn held(&self) -> u32 {
        self.held
    }

    /// Whether a piece of `width` bits completes a word.
    pub(crate) fn completes(&self, width: u32) -> bool {
        self.held + width >= 64
    }

    /// Takes the low `width` bits (1..=64) of `piece`, whose other bits are ignored, and gives the word that is complete.
    pub(crate) fn take(&mut self, piece: u64, width: u32) -> Option<WordBeat> {
        let wide = u128::from(self.rest) | u128::from(piece & rtl::mask(width)) << self.held;
        let held = self.held + width;
        if held < 64 {
            (self.rest, self.held) = (wide as u64, held);
            return None;
        }
        (self.rest, self.held) = ((wide >> 64) as u64, held - 64);
        self.words += 1;
        self.crc = Crc::new(self.crc).over(&(wide as u64).to_le_bytes()).value();
        Some(WordBeat { index: self.words, data: wide as u64 })
    }

    pub(crate) fn visit(&mut self, v: &mut impl Visitor) {
        v.scope("merger", |v| {
            v.reg("rest_q", 64, Look::Hex, &mut self.rest);
            v.reg("held_q", 6, Look::Unsigned, &mut self.held);
            v.reg("words_q", 10, Look::Unsigned, &mut self.words);
            v.reg("crc_q", 16, Look::Hex, &mut self.crc);
        });
    }
}
