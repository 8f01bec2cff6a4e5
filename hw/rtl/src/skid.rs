use crate::{Format, Module, Payload, Stream, Visitor};

/// Cuts a valid/ready path in both directions at full rate: two entries, registered valid, data and ready.
///
/// Latency one edge. The second entry (the skid) takes the beat that is already under way when the consumer stops.
#[derive(Clone, Debug)]
pub struct SkidBuffer<T> {
    head: T,
    skid: T,
    head_valid: bool,
    skid_valid: bool,
}

/// Inputs of a [`SkidBuffer`].
pub struct SkidIn<'a, T> {
    /// From the producer.
    pub push: Stream<&'a T>,
    /// From the consumer.
    pub ready: bool,
}

/// Outputs of a [`SkidBuffer`].
pub struct SkidOut<'a, T> {
    /// To the producer.
    pub ready: bool,
    /// To the consumer.
    pub head: Stream<&'a T>,
}

impl<T: Payload> SkidBuffer<T> {
    /// An empty buffer; `blank` fixes the width of vector payloads.
    pub fn new(blank: T) -> Self {
        Self { head: blank.clone(), skid: blank, head_valid: false, skid_valid: false }
    }
}

impl<T: Payload> Module for SkidBuffer<T> {
    type In<'a> = SkidIn<'a, T>;
    type Out<'a> = SkidOut<'a, T>;

    fn out(&self) -> SkidOut<'_, T> {
        SkidOut { ready: !self.skid_valid, head: Stream { valid: self.head_valid, data: &self.head } }
    }

    fn clock(&mut self, i: &SkidIn<'_, T>) {
        let take = i.push.fires(!self.skid_valid);
        let advance = i.ready || !self.head_valid;
        if advance {
            if self.skid_valid {
                self.head.clone_from(&self.skid);
            } else if take {
                self.head.clone_from(i.push.data);
            }
            self.head_valid = self.skid_valid || take;
            self.skid_valid = false;
        } else if take {
            self.skid.clone_from(i.push.data);
            self.skid_valid = true;
        }
    }

    fn reset(&mut self) {
        (self.head_valid, self.skid_valid) = (false, false);
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        v.reg("head_valid_q", 1, Format::Unsigned, &mut self.head_valid);
        self.head.visit("head_q".into(), v);
        v.reg("skid_valid_q", 1, Format::Unsigned, &mut self.skid_valid);
        self.skid.visit("skid_q".into(), v);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_and_full_rate() {
        let mut skid = SkidBuffer::new(0u32);
        let (mut sent, mut got, mut state) = (0u32, 0u32, 7u32);
        for cycle in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (offer, ready) = if cycle < 10_000 { (true, true) } else { (state >> 31 == 1, state >> 30 & 1 == 1) };
            let out = skid.out();
            if out.head.fires(ready) {
                assert_eq!(*out.head.data, got);
                got += 1;
            }
            let fires = offer && out.ready;
            skid.clock(&SkidIn { push: Stream { valid: offer, data: &sent }, ready });
            sent += u32::from(fires);
            if cycle == 9_999 {
                assert_eq!((sent, got), (10_000, 9_999), "one beat a cycle, one edge late");
            }
        }
        assert!(sent - got <= 2 && got > 12_000);
    }

    #[test]
    fn a_reset_empties_it() {
        let mut skid = SkidBuffer::new(0u32);
        for value in [1, 2] {
            skid.clock(&SkidIn { push: Stream::offer(&value), ready: false });
        }
        assert!(!skid.out().ready && skid.out().head.valid);
        skid.reset();
        assert!(skid.out().ready && !skid.out().head.valid);
    }
}
