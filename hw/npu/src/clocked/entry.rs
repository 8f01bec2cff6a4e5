//! A command in a register.

use crate::isa::{Command, Op};
use rtl::{Format, Name, Payload, Visitor};

/// A command and the number that the dispatcher gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// 32 bits: commands dispatched before it since reset.
    pub number: u32,
    /// The 96 bytes of its wire form.
    pub command: Command,
}

impl Default for Entry {
    fn default() -> Self {
        Self { number: 0, command: Command { wait: 0, signal: 0, tag: 0, op: Op::Dma { chain: 0, banks: 0 } } }
    }
}

impl Payload for Entry {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        v.scope(name, |v| {
            v.reg("number_q", 32, Format::Unsigned, &mut self.number);
            let old = self.command.encode();
            let mut new = old;
            for (i, word) in new.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let mut bits = u64::from_le_bytes(*word);
                v.reg(("command_q", i), 64, Format::Hex, &mut bits);
                *word = bits.to_le_bytes();
            }
            if new != old
                && let Ok(command) = Command::decode(&new)
            {
                self.command = command;
            }
        });
    }
}
