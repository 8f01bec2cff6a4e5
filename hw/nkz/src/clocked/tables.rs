use crate::{CHANNELS, Channel};
use rtl::{Format, Role, Signal, Visitor};

/// The static tables of the streams that an engine serves: a word of 64 lines (52 bits each) a column block. It is written before
/// the engine starts and keeps its contents over a reset.
#[derive(Clone, Debug, Default)]
pub struct TableRam {
    lines: Vec<Channel>,
}

impl TableRam {
    /// A memory of `words` words of zero lines.
    pub fn new(words: usize) -> Self {
        Self { lines: vec![Channel::default(); words * CHANNELS] }
    }

    /// Writes the lines of one column block; lanes past `lines` keep what they hold.
    ///
    /// # Panics
    /// If the word or a lane does not exist.
    pub fn write(&mut self, word: usize, lines: &[Channel]) {
        self.lines[word * CHANNELS..][..lines.len()].copy_from_slice(lines);
    }

    /// The first `width` lines of a word; `None` for a word that does not exist.
    pub(crate) fn read(&self, word: u32, width: usize) -> Option<&[Channel]> {
        let first = word as usize * CHANNELS;
        self.lines.get(first..first + width)
    }

    pub(crate) fn visit(&mut self, v: &mut impl Visitor) {
        let signal = Signal { name: "tables".into(), width: 52, format: Format::Hex, role: Role::Register };
        if v.memory(signal, self.lines.len()) {
            for line in &mut self.lines {
                *line = Channel::unpack(v.word(line.pack()));
            }
        }
    }
}
