use rtl::{Format, Module, Visitor};

/// The INT8 × INT8 → INT32 processing element, weight-stationary.
///
/// ```text
///                psum_in (32)
///                    │
///   act_in (8) ──►[act_q]──► act_out        psum_q ← psum_in + act_in · weight, where valid_in
///   valid, swap ─►[..._q]──►                weight ← shadow_q on the edge that swap arrives
///   weight_in (8)►[shadow_q]► weight_out    shadow_q ← weight_in while load arrives and keep is high
///   load ────────►[load_q]──►
///                    │
///                [psum_q] (32)
///                    ▼
/// ```
///
/// Latency: one edge in every direction. On the edge of a swap the product already uses the new weight, and the value
/// swapped in is the shadow as it was before that edge, so the next tile's load may begin on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pe {
    /// Active weight, INT8.
    weight: i8,
    /// The next tile's weight, INT8; also the link of the weight chain.
    shadow: i8,
    /// Activation on its way east, INT8.
    act: i8,
    /// The activation counts.
    valid: bool,
    /// First activation of a tile.
    swap: bool,
    /// The neighbour to the east may shift on the next edge.
    load: bool,
    /// Partial sum on its way south, INT32.
    psum: i32,
}

/// Wires into a [`Pe`].
#[derive(Clone, Copy, Debug, Default)]
pub struct PeIn {
    /// Clock enable; low freezes every register.
    pub enable: bool,
    /// Activation from the west, INT8.
    pub act: i8,
    /// The activation counts; a PE that is not valid passes the partial sum through untouched.
    pub valid: bool,
    /// Take the shadow weight with this activation.
    pub swap: bool,
    /// Weight from the west, INT8.
    pub weight: i8,
    /// From the western neighbour: it shifted on the last edge.
    pub load: bool,
    /// Row-wide: the load that is under way goes on. Low on the first edge of a load and between loads; tied high on column 0.
    pub keep: bool,
    /// Partial sum from the north, INT32.
    pub psum: i32,
}

/// Wires out of a [`Pe`]: its registers.
#[derive(Clone, Copy, Debug)]
pub struct PeOut {
    /// Activation to the east.
    pub act: i8,
    /// Valid to the east.
    pub valid: bool,
    /// Swap to the east.
    pub swap: bool,
    /// Weight to the east.
    pub weight: i8,
    /// Load to the east.
    pub load: bool,
    /// Partial sum to the south.
    pub psum: i32,
}

impl Module for Pe {
    type In<'a> = PeIn;
    type Out<'a> = PeOut;

    fn out(&self) -> PeOut {
        let Self { shadow, act, valid, swap, load, psum, .. } = *self;
        PeOut { act, valid, swap, weight: shadow, load, psum }
    }

    fn clock(&mut self, i: &PeIn) {
        if !i.enable {
            return;
        }
        let weight = if i.swap { self.shadow } else { self.weight };
        let product = i32::from(i.act) * i32::from(weight);
        let shift = i.load && i.keep;
        *self = Self {
            weight,
            shadow: if shift { i.weight } else { self.shadow },
            act: i.act,
            valid: i.valid,
            swap: i.swap,
            load: shift,
            psum: if i.valid { i.psum.wrapping_add(product) } else { i.psum },
        };
    }

    fn reset(&mut self) {
        *self = Self::default();
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        v.reg("act_q", 8, Format::Signed, &mut self.act);
        v.reg("valid_q", 1, Format::Unsigned, &mut self.valid);
        v.reg("swap_q", 1, Format::Unsigned, &mut self.swap);
        v.reg("weight_q", 8, Format::Signed, &mut self.weight);
        v.reg("shadow_q", 8, Format::Signed, &mut self.shadow);
        v.reg("load_q", 1, Format::Unsigned, &mut self.load);
        v.reg("psum_q", 32, Format::Signed, &mut self.psum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle() -> PeIn {
        PeIn { enable: true, ..PeIn::default() }
    }

    fn loaded(weight: i8) -> Pe {
        let mut pe = Pe::default();
        pe.clock(&PeIn { weight, load: true, keep: true, ..idle() });
        pe
    }

    #[test]
    fn every_product_of_two_operands() {
        for weight in i8::MIN..=i8::MAX {
            let mut pe = loaded(weight);
            for act in i8::MIN..=i8::MAX {
                pe.clock(&PeIn { act, valid: true, swap: act == i8::MIN, psum: 1 << 20, ..idle() });
                assert_eq!(pe.out().psum, (1 << 20) + i32::from(act) * i32::from(weight));
            }
        }
    }

    #[test]
    fn swap_takes_the_shadow_as_it_was_before_the_edge() {
        let mut pe = loaded(3);
        pe.clock(&PeIn { act: 2, valid: true, swap: true, weight: 99, load: true, keep: true, ..idle() });
        assert_eq!((pe.out().psum, pe.out().weight), (6, 99));
        pe.clock(&PeIn { act: 2, valid: true, ..idle() });
        assert_eq!(pe.out().psum, 6, "the new shadow waits for its swap");
    }

    #[test]
    fn an_invalid_activation_leaves_the_sum_and_no_enable_leaves_all() {
        let mut pe = loaded(3);
        pe.clock(&PeIn { act: 5, valid: false, swap: true, psum: -7, ..idle() });
        assert_eq!(pe.out().psum, -7);
        let before = pe;
        pe.clock(&PeIn { enable: false, act: 1, valid: true, swap: true, weight: 1, load: true, keep: true, psum: 9 });
        assert_eq!(pe, before);
    }
}
