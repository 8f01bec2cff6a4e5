use crate::{Format, Module, Visitor};

/// A nest of `D` loops over an affine address: outermost first.
///
/// Address of index (i_0, …, i_{D−1}): `base + Σ i_d · strides[d]`, wrapping in 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loops<const D: usize> {
    /// Address of index (0, …, 0).
    pub base: i64,
    /// Iterations of each loop; a zero anywhere means no address at all.
    pub counts: [u32; D],
    /// Signed distance of neighbours; zero repeats.
    pub strides: [i64; D],
}

/// Inputs of an [`AddressGenerator`].
pub struct AddressIn<'a, const D: usize> {
    /// Loads a nest; the first address stands after the edge. Drops whatever was left of the one before.
    pub start: Option<&'a Loops<D>>,
    /// Takes the current address and goes on to the next.
    pub step: bool,
}

/// Outputs of an [`AddressGenerator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressOut<const D: usize> {
    /// An address stands.
    pub valid: bool,
    /// The address.
    pub address: i64,
    /// Its index, outermost first.
    pub index: [u32; D],
    /// Loop `d` is in its last iteration.
    pub last: [bool; D],
}

impl<const D: usize> AddressOut<D> {
    /// This is the last address of the nest.
    pub fn done(&self) -> bool {
        self.valid && self.last.iter().all(|&l| l)
    }
}

/// The N-dimensional address generator: one address a cycle, one adder a loop, no multiplier.
///
/// Each loop keeps the address at which its current iteration began; a step adds one stride to the innermost loop that
/// has iterations left and restarts all loops inside it there.
#[derive(Clone, Debug)]
pub struct AddressGenerator<const D: usize> {
    loops: Loops<D>,
    /// Address of the current iteration of each loop, 64 bits.
    at: [i64; D],
    /// 32 bits each.
    index: [u32; D],
    valid: bool,
}

impl<const D: usize> Default for AddressGenerator<D> {
    fn default() -> Self {
        let loops = Loops { base: 0, counts: [0; D], strides: [0; D] };
        Self { loops, at: [0; D], index: [0; D], valid: false }
    }
}

impl<const D: usize> Module for AddressGenerator<D> {
    type In<'a> = AddressIn<'a, D>;
    type Out<'a> = AddressOut<D>;

    fn out(&self) -> AddressOut<D> {
        AddressOut {
            valid: self.valid,
            address: self.at.last().copied().unwrap_or(self.loops.base),
            index: self.index,
            last: std::array::from_fn(|d| self.index[d] + 1 >= self.loops.counts[d]),
        }
    }

    fn clock(&mut self, i: &AddressIn<'_, D>) {
        if let Some(loops) = i.start {
            self.loops = *loops;
            self.at = [loops.base; D];
            self.index = [0; D];
            self.valid = loops.counts.iter().all(|&c| c > 0);
        } else if i.step && self.valid {
            let last = self.out().last;
            match (0..D).rev().find(|&d| !last[d]) {
                Some(d) => {
                    let address = self.at[d].wrapping_add(self.loops.strides[d]);
                    self.index[d] += 1;
                    self.index[d + 1..].fill(0);
                    self.at[d..].fill(address);
                }
                None => self.valid = false,
            }
        }
    }

    fn reset(&mut self) {
        *self = Self::default();
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        v.reg("valid_q", 1, Format::Unsigned, &mut self.valid);
        v.reg("base_q", 64, Format::Hex, &mut self.loops.base);
        for d in 0..D {
            v.reg(("index_q", d), 32, Format::Unsigned, &mut self.index[d]);
            v.reg(("address_q", d), 64, Format::Hex, &mut self.at[d]);
            v.reg(("count_q", d), 32, Format::Unsigned, &mut self.loops.counts[d]);
            v.reg(("stride_q", d), 64, Format::Signed, &mut self.loops.strides[d]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn walks_the_affine_nest(
            base in -1000i64..1000,
            counts in prop::array::uniform3(0u32..5),
            strides in prop::array::uniform3(-300i64..300),
        ) {
            let mut agu = AddressGenerator::<3>::default();
            agu.clock(&AddressIn { start: Some(&Loops { base, counts, strides }), step: false });
            for i in 0..counts[0] {
                for j in 0..counts[1] {
                    for k in 0..counts[2] {
                        let out = agu.out();
                        prop_assert!(out.valid);
                        prop_assert_eq!(out.index, [i, j, k]);
                        let address = base + strides[0] * i64::from(i) + strides[1] * i64::from(j) + strides[2] * i64::from(k);
                        prop_assert_eq!(out.address, address);
                        prop_assert_eq!(out.done(), [i, j, k] == counts.map(|c| c - 1));
                        agu.clock(&AddressIn { start: None, step: false }); // a stall changes nothing
                        prop_assert_eq!(agu.out(), out);
                        let image = crate::Image::of(&mut agu);
                        agu.reset();
                        prop_assert!(!agu.out().valid);
                        image.restore(&mut agu); // nor do reset and putting back
                        prop_assert_eq!(agu.out(), out);
                        agu.clock(&AddressIn { start: None, step: true });
                    }
                }
            }
            prop_assert!(!agu.out().valid);
        }
    }
}
