//! States of the front end.

/// What the front end is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Waits for a doorbell.
    #[default]
    Idle,
    /// Waits until the descriptor may be fetched.
    Fetch,
    /// Asks for it.
    FetchPush,
    /// Waits for its bytes.
    Receive,
    /// One dimension of the checks a cycle.
    Check,
    /// Decides.
    Verdict,
    /// Waits until the read side has walked the job before.
    Settle,
    /// Asks for the next descriptor.
    PrefetchPush,
    /// Waits until an index list may be fetched.
    List,
    /// Asks for it.
    ListPush,
    /// Waits for its entries.
    ListReceive,
    /// Waits until the source may be read.
    Hazard,
    /// Hands the job on.
    Dispatch,
    /// Goes on to the next descriptor.
    Next,
}

/// In the order of their codes.
pub(crate) const STATES: [State; 14] = [
    State::Idle,
    State::Fetch,
    State::FetchPush,
    State::Receive,
    State::Check,
    State::Verdict,
    State::Settle,
    State::PrefetchPush,
    State::List,
    State::ListPush,
    State::ListReceive,
    State::Hazard,
    State::Dispatch,
    State::Next,
];

/// Their names in a waveform, in the same order.
pub(crate) const STATE_NAMES: &[&str] = &[
    "idle",
    "fetch",
    "fetch_push",
    "receive",
    "check",
    "verdict",
    "settle",
    "prefetch_push",
    "list",
    "list_push",
    "list_receive",
    "hazard",
    "dispatch",
    "next",
];
