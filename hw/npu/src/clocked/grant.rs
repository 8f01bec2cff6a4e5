//! Who starts: the token counters and the bank locks.

use super::entry::Entry;
use crate::exec::{Footprint, footprint};
use crate::isa::{Engine, TOKENS};
use crate::{Fault, Kv, Memory};
use rtl::{Format, Visitor};

/// The 32 token counters, 16 bits each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tokens(pub [u16; TOKENS]);

/// The counters that a mask names.
fn named(mask: u32) -> impl Iterator<Item = usize> {
    (0..TOKENS).filter(move |t| mask >> t & 1 == 1)
}

impl Tokens {
    /// Counters of the mask that hold nothing.
    pub(super) fn missing(&self, mask: u32) -> impl Iterator<Item = usize> {
        named(mask).filter(|&t| self.0[t] == 0)
    }

    fn take(&mut self, mask: u32) {
        named(mask).for_each(|t| self.0[t] -= 1);
    }

    /// Adds a token to each counter of the mask.
    ///
    /// # Errors
    /// A counter that is full.
    pub(super) fn add(&mut self, mask: u32) -> Result<(), Fault> {
        for t in named(mask) {
            self.0[t] = self.0[t].checked_add(1).ok_or(Fault::Tokens(t as u32))?;
        }
        Ok(())
    }

    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        self.0.iter_mut().enumerate().for_each(|(t, count)| v.reg(("token_q", t), 16, Format::Unsigned, count));
    }
}

/// What an engine does in a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Runs a command.
    Busy,
    /// Its queue is empty.
    Empty,
    /// Its head waits for tokens.
    WaitsTokens,
    /// Its head waits for banks that another engine holds.
    WaitsBanks,
    /// Its head starts on this cycle's edge.
    Starts(Footprint),
}

/// An engine as the arbiter sees it.
#[derive(Clone, Copy)]
pub(super) struct Claim<'a> {
    /// Banks that it holds, while it is busy.
    pub busy: Option<u64>,
    /// The head of its queue.
    pub head: Option<&'a Entry>,
}

/// The arbiter: a function of registers alone. Lower engine numbers take tokens and banks first. Gives the tokens that stay, too.
pub(super) fn grant(
    claims: [Claim<'_>; Engine::ALL.len()],
    mut tokens: Tokens,
    kv: &Kv,
    memory: &Memory,
) -> Result<([State; Engine::ALL.len()], Tokens), (u32, Fault)> {
    let mut held = claims.iter().filter_map(|claim| claim.busy).fold(0, |mask, banks| mask | banks);
    let mut states = [State::Empty; Engine::ALL.len()];
    for (state, claim) in states.iter_mut().zip(claims) {
        *state = match (claim.busy, claim.head) {
            (Some(_), _) => State::Busy,
            (None, None) => State::Empty,
            (None, Some(head)) if tokens.missing(head.command.wait).next().is_some() => State::WaitsTokens,
            (None, Some(head)) => {
                let footprint =
                    footprint(&head.command.op, kv, &memory.scratch).map_err(|fault| (head.number, fault))?;
                if held & footprint.banks == 0 {
                    held |= footprint.banks;
                    tokens.take(head.command.wait);
                    State::Starts(footprint)
                } else {
                    State::WaitsBanks
                }
            }
        };
    }
    Ok((states, tokens))
}
