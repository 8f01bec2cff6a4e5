use crate::{Format, Module, Payload, Stream, Visitor};

/// A synchronous first-in first-out queue of `depth` entries, full rate, first word falls through to a registered output.
///
/// Ready while not full; latency from push to valid: one edge. A pop in the same cycle does not make a full FIFO ready:
/// `ready` is a function of state alone.
#[derive(Clone, Debug)]
pub struct Fifo<T> {
    slots: Vec<T>,
    /// ⌈log2 depth⌉ bits.
    read: u32,
    /// ⌈log2 depth⌉ bits.
    write: u32,
    /// ⌈log2 (depth + 1)⌉ bits.
    level: u32,
}

/// Inputs of a [`Fifo`].
pub struct FifoIn<'a, T> {
    /// The beat on offer; taken if the FIFO is ready.
    pub push: Stream<&'a T>,
    /// The consumer is ready; takes the head if there is one.
    pub pop: bool,
}

/// Outputs of a [`Fifo`].
pub struct FifoOut<'a, T> {
    /// Room for one more.
    pub ready: bool,
    /// The oldest entry.
    pub head: Stream<&'a T>,
    /// Entries held, 0..=depth.
    pub level: usize,
}

impl<T: Payload> Fifo<T> {
    /// An empty FIFO; every slot starts as `blank`, which also fixes the width of vector payloads.
    ///
    /// # Panics
    /// If `depth` is zero.
    pub fn new(depth: usize, blank: T) -> Self {
        assert!(depth > 0, "a FIFO needs at least one entry");
        Self { slots: vec![blank; depth], read: 0, write: 0, level: 0 }
    }

    fn next(&self, pointer: u32) -> u32 {
        if pointer as usize + 1 == self.slots.len() { 0 } else { pointer + 1 }
    }
}

impl<T: Payload> Module for Fifo<T> {
    type In<'a> = FifoIn<'a, T>;
    type Out<'a> = FifoOut<'a, T>;

    fn out(&self) -> FifoOut<'_, T> {
        FifoOut {
            ready: (self.level as usize) < self.slots.len(),
            head: Stream { valid: self.level > 0, data: &self.slots[self.read as usize] },
            level: self.level as usize,
        }
    }

    fn clock(&mut self, i: &FifoIn<'_, T>) {
        let (push, pop) = {
            let out = self.out();
            (i.push.fires(out.ready), out.head.fires(i.pop))
        };
        if push {
            self.slots[self.write as usize].clone_from(i.push.data);
            self.write = self.next(self.write);
        }
        if pop {
            self.read = self.next(self.read);
        }
        self.level = self.level + u32::from(push) - u32::from(pop);
    }

    fn reset(&mut self) {
        (self.read, self.write, self.level) = (0, 0, 0);
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        let pointer = usize::BITS - (self.slots.len() - 1).leading_zeros();
        let level = usize::BITS - self.slots.len().leading_zeros();
        v.reg("read_q", pointer.max(1), Format::Unsigned, &mut self.read);
        v.reg("write_q", pointer.max(1), Format::Unsigned, &mut self.write);
        v.reg("level_q", level, Format::Unsigned, &mut self.level);
        for (i, slot) in self.slots.iter_mut().enumerate() {
            slot.visit(("slot_q", i).into(), v);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn behaves_as_a_bounded_queue_at_full_rate() {
        for depth in [1, 2, 3, 5] {
            let mut fifo = Fifo::new(depth, 0u32);
            let mut model = VecDeque::new();
            let mut state = 1u32;
            for n in 0..10_000u32 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let (offer, pop) = (state >> 30 & 1 == 1, state >> 29 & 1 == 1);
                let out = fifo.out();
                assert_eq!((out.ready, out.level), (model.len() < depth, model.len()));
                assert_eq!(out.head.valid.then_some(*out.head.data), model.front().copied());
                let push = offer && out.ready;
                if pop {
                    model.pop_front();
                }
                if push {
                    model.push_back(n);
                }
                fifo.clock(&FifoIn { push: Stream { valid: offer, data: &n }, pop });
            }
        }
    }

    #[test]
    fn reset_empties() {
        let mut fifo = Fifo::new(2, 0u8);
        fifo.clock(&FifoIn { push: Stream::offer(&7), pop: false });
        assert!(fifo.out().head.valid);
        fifo.reset();
        assert!(!fifo.out().head.valid && fifo.out().ready);
    }
}
