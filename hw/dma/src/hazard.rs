//! What a chain's jobs owe each other, and the fetches that wait for it.

use crate::{Kind, Run, Span, TICKETS, WIRE_BYTES};
use rtl::Visitor;

/// What the last jobs may still be writing: the guard that makes a chain behave as one job after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct History {
    spans: [Span; TICKETS],
}

impl History {
    /// A job is dispatched.
    pub(crate) fn push(&mut self, destination: Span) {
        self.spans.rotate_right(1);
        self.spans[0] = destination;
    }

    /// Whether `span` meets what one of the last jobs writes.
    pub(crate) fn meets(&self, span: Span) -> bool {
        self.spans.iter().any(|s| s.meets(span))
    }

    /// Its registers.
    pub(crate) fn visit(&mut self, v: &mut impl Visitor) {
        for (i, span) in self.spans.iter_mut().enumerate() {
            span.visit(("history", i), v);
        }
    }
}

/// Bytes of a descriptor at `address`.
pub(crate) fn wire_span(address: u64) -> Span {
    Span { lo: address, hi: address.saturating_add(WIRE_BYTES as u64) }
}

/// The run that fetches `span`.
pub(crate) fn fetch(kind: Kind, span: Span) -> Run {
    let nibbles = 2 * (span.hi - span.lo);
    Run { address: 2 * span.lo, nibbles, kind, stop: true, ..Run::default() }
}
