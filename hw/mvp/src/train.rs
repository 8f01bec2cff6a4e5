/// One bit a column on its way east: the valid, swap and load registers of a row. Bit c stands in column c.
///
/// W words of 64 columns. Bits past the last column are the column's own history, for a pipeline's later stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Train<const W: usize>([u64; W]);

impl<const W: usize> Default for Train<W> {
    fn default() -> Self {
        Self([0; W])
    }
}

impl<const W: usize> Train<W> {
    /// All bits below `cols`.
    pub(crate) fn full(cols: usize) -> Self {
        Self(std::array::from_fn(|w| rtl::mask(cols.saturating_sub(w * 64).min(64) as u32)))
    }

    /// Moves one column east; what leaves `full` is cut.
    pub(crate) fn shift(&mut self, west: bool, full: &Self) {
        let mut carry = u64::from(west);
        for (word, full) in self.0.iter_mut().zip(full.0) {
            let out = *word >> 63;
            *word = (*word << 1 | carry) & full;
            carry = out;
        }
    }

    /// The bits that also stand in `mask`.
    pub(crate) fn and(&self, mask: &Self) -> Self {
        Self(std::array::from_fn(|w| self.0[w] & mask.0[w]))
    }

    pub(crate) fn get(&self, c: usize) -> bool {
        self.0[c / 64] >> (c % 64) & 1 == 1
    }

    pub(crate) fn set(&mut self, c: usize, bit: bool) {
        self.0[c / 64] = self.0[c / 64] & !(1 << (c % 64)) | u64::from(bit) << (c % 64);
    }

    pub(crate) fn none(&self) -> bool {
        self.0 == [0; W]
    }

    /// Keeps column 0's bit alone.
    pub(crate) fn keep_first(&mut self) {
        let first = self.0[0] & 1;
        *self = Self::default();
        self.0[0] = first;
    }

    /// Columns whose bit is set, west to east.
    #[inline]
    pub(crate) fn columns(mut self) -> impl Iterator<Item = usize> {
        let mut w = 0;
        std::iter::from_fn(move || {
            while w < W {
                let word = self.0[w];
                if word != 0 {
                    self.0[w] &= word - 1;
                    return Some(w * 64 + word.trailing_zeros() as usize);
                }
                w += 1;
            }
            None
        })
    }

    /// Columns whose bit is set, east to west.
    pub(crate) fn columns_from_the_east(self) -> impl Iterator<Item = usize> {
        (0..W * 64).rev().filter(move |&c| self.get(c))
    }

    /// The bits, 64 columns a word.
    pub(crate) fn words(&self) -> &[u64; W] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_those_that_are_set() {
        let mut train = Train::<2>::default();
        let set = [0, 1, 5, 62, 63, 64, 65, 100, 127];
        set.iter().for_each(|&c| train.set(c, true));
        assert_eq!(train.columns().collect::<Vec<_>>(), set);
        let mut from_the_east: Vec<_> = train.columns_from_the_east().collect();
        from_the_east.reverse();
        assert_eq!(from_the_east, set);
    }
}
