use crate::walk::Phase;
use crate::{Plan, RUN_QUEUE, Run, Segment, Walk};
use std::collections::VecDeque;

/// A FIFO seen from outside time: when each entry is visible, and when each slot is free.
#[derive(Clone, Debug)]
pub(crate) struct Timed<T> {
    pub(crate) items: VecDeque<(u64, T)>,
    pub(crate) free: VecDeque<u64>,
    /// First cycle after the last push and after the last pop.
    pushed: u64,
    popped: u64,
    /// Cycles in which it was full, up to the last push; cycles in which it held something, up to the last pop.
    full: u64,
    held: u64,
}

impl<T> Timed<T> {
    pub(crate) fn new(depth: usize) -> Self {
        let free = std::iter::repeat_n(0, depth).collect();
        Self { items: VecDeque::new(), free, pushed: 0, popped: 0, full: 0, held: 0 }
    }

    /// First cycle in which a push is taken; `None` while the pop that makes room is not known.
    pub(crate) fn room(&self) -> Option<u64> {
        self.free.front().copied()
    }

    /// The oldest entry and the first cycle that sees it.
    pub(crate) fn head(&self) -> Option<(u64, &T)> {
        self.items.front().map(|(t, item)| (*t, item))
    }

    pub(crate) fn push(&mut self, t: u64, item: T) {
        self.full = self.full();
        self.pushed = t + 1;
        self.free.pop_front();
        self.items.push_back((t + 1, item));
    }

    pub(crate) fn pop(&mut self, t: u64) {
        if let Some((seen, _)) = self.items.pop_front() {
            self.held += t + 1 - self.popped.max(seen);
        }
        self.popped = t + 1;
        self.free.push_back(t + 1);
    }

    /// Cycles in which no push would have been taken: from each push that filled it to the pop that made room.
    pub(crate) fn full(&self) -> u64 {
        self.full + self.free.front().map_or(0, |free| free.saturating_sub(self.pushed))
    }

    /// Cycles in which there was an entry to take.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }
}

/// One side's address unit in time.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    walk: Walk,
    write: bool,
    /// First cycle in which the first stage can move again.
    next: u64,
    /// Cycle in which the second stage pushed last: it is free again in that cycle.
    pushed: u64,
    gated: bool,
    /// Cycles from which each token can be used.
    pub(crate) tokens: VecDeque<u64>,
    pub(crate) list: Vec<i64>,
    pub(crate) runs: Timed<Run>,
}

impl Unit {
    pub(crate) fn new(write: bool) -> Self {
        Self {
            walk: Walk::new(write),
            write,
            next: 0,
            pushed: 0,
            gated: false,
            tokens: VecDeque::new(),
            list: Vec::new(),
            runs: Timed::new(RUN_QUEUE),
        }
    }

    pub(crate) fn load(&mut self, t: u64, plan: &Plan) {
        self.walk.load(plan);
        self.gated = self.write && plan.ordered;
        self.next = t + 1;
    }

    fn run(&self, s: &Segment) -> Run {
        let plan = self.walk.plan();
        let side = if self.write { &plan.write } else { &plan.read };
        let offset =
            if side.indexed && !s.fill { self.list[s.coordinate as usize].wrapping_mul(side.index_stride) } else { 0 };
        if self.write { Run::write(s, offset, plan.ordered) } else { Run::read(s, offset, plan.tiled) }
    }

    /// Fires as often as it can.
    pub(crate) fn fire(&mut self) -> bool {
        let mut moved = false;
        loop {
            match self.walk.phase() {
                Phase::Idle => return moved,
                Phase::Prime => {
                    self.walk.prime();
                    self.next += 1;
                }
                Phase::Run => {
                    let Some(room) = self.runs.room() else { return moved };
                    let token = match self.gated {
                        true => match self.tokens.front() {
                            Some(&t) => t,
                            None => return moved,
                        },
                        false => 0,
                    };
                    let t = self.next.max(self.pushed).max(token);
                    if self.gated {
                        self.tokens.pop_front();
                    }
                    let segment = self.walk.segment();
                    let run = self.run(&segment);
                    self.pushed = (t + 1).max(room);
                    self.runs.push(self.pushed, run);
                    self.gated = self.walk.plan().ordered && segment.block_end && !segment.job_end;
                    self.walk.advance(&segment);
                    self.next = t + 1;
                }
            }
            moved = true;
        }
    }

    /// First cycle in which the unit is idle again, if it has walked all it was given.
    pub(crate) fn idle(&self) -> Option<u64> {
        (self.walk.phase() == Phase::Idle).then_some(self.pushed + 1)
    }
}
