use crate::{SystolicArray, WestEdge, WestRow};
use rtl::{Bits, Format, Module, Visitor};
use std::borrow::Cow;

/// Words of a [`Train`]: 256 columns.
const WORDS: usize = 4;
/// Edges that an activation window slides before it is moved back.
const SLIDE: usize = 1024;

/// One bit a column on its way east: the valid, swap and load registers of a row. Bit c stands in column c.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Train([u64; WORDS]);

impl Train {
    /// All bits below `cols`.
    fn full(cols: usize) -> Self {
        Self(std::array::from_fn(|w| rtl::mask(cols.saturating_sub(w * 64).min(64) as u32)))
    }

    /// Moves one column east; what leaves the last column is cut by `full`.
    fn shift(&mut self, west: bool, full: &Self) {
        let mut carry = u64::from(west);
        for (word, full) in self.0.iter_mut().zip(full.0) {
            let out = *word >> 63;
            *word = (*word << 1 | carry) & full;
            carry = out;
        }
    }

    fn get(&self, c: usize) -> bool {
        self.0[c / 64] >> (c % 64) & 1 == 1
    }

    fn set(&mut self, c: usize, bit: bool) {
        self.0[c / 64] = self.0[c / 64] & !(1 << (c % 64)) | u64::from(bit) << (c % 64);
    }

    fn none(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// Columns whose bit is set, west to east.
    fn columns(self) -> impl DoubleEndedIterator<Item = usize> {
        (0..WORDS * 64).filter(move |&c| self.get(c))
    }

    /// `Some(n)` if exactly the columns 0..n are set.
    fn prefix(&self) -> Option<usize> {
        let n = self.0.iter().map(|w| w.count_ones() as usize).sum();
        (*self == Self::full(n)).then_some(n)
    }
}

/// The registers of one row of elements, a vector a kind.
#[derive(Clone, Debug)]
struct Row {
    /// The activation registers are `acts[head..head + C]`: pushing one in the west and moving the head is the shift east.
    acts: Vec<i16>,
    head: usize,
    weights: Vec<i16>,
    shadows: Vec<i16>,
    valid: Train,
    swap: Train,
    load: Train,
}

/// The same array as [`Mesh`](crate::Mesh), register for register, as vectors updated in place: the fast cycle engine.
///
/// Rows are clocked from the south up, so that each reads the partial sums of the row above before they change.
#[derive(Clone, Debug)]
pub struct Array {
    cols: usize,
    full: Train,
    rows: Vec<Row>,
    /// Row by row, after one row of zeros that enters the array from the north.
    psums: Vec<i32>,
}

/// South = north + act · weight, lane by lane. A function of its own over plain slices, so that the compiler vectorises it.
fn multiply_accumulate(south: &mut [i32], north: &[i32], acts: &[i16], weights: &[i16]) {
    for (((s, &n), &a), &w) in south.iter_mut().zip(north).zip(acts).zip(weights) {
        *s = n.wrapping_add(i32::from(a) * i32::from(w));
    }
}

impl Row {
    fn new(cols: usize) -> Self {
        Self {
            acts: vec![0; cols + SLIDE],
            head: SLIDE,
            weights: vec![0; cols],
            shadows: vec![0; cols],
            valid: Train::default(),
            swap: Train::default(),
            load: Train::default(),
        }
    }

    fn push(&mut self, act: i8) {
        if self.head == 0 {
            let cols = self.weights.len();
            self.acts.copy_within(0..cols, SLIDE);
            self.head = SLIDE;
        }
        self.head -= 1;
        self.acts[self.head] = act.into();
    }

    /// The edge of all registers but the partial sums.
    fn shift(&mut self, west: &WestRow, full: &Train) {
        self.push(west.act);
        self.valid.shift(west.valid, full);
        self.swap.shift(west.swap, full);
        for c in self.swap.columns_if_any() {
            self.weights[c] = self.shadows[c];
        }
        self.load.shift(west.load, full);
        if !west.keep {
            self.load.0[0] &= 1;
            self.load.0[1..].fill(0);
        }
        if !self.load.none() {
            self.shift_shadows(west.weight);
        }
    }

    fn shift_shadows(&mut self, west: i8) {
        match self.load.prefix() {
            Some(n) => self.shadows.copy_within(..n - 1, 1),
            None => self.load.columns().rev().filter(|&c| c > 0).for_each(|c| self.shadows[c] = self.shadows[c - 1]),
        }
        if self.load.get(0) {
            self.shadows[0] = west.into();
        }
    }
}

impl Train {
    /// [`columns`](Train::columns), with a quick way out: a row sees a swap on one edge in many.
    fn columns_if_any(self) -> impl Iterator<Item = usize> {
        (!self.none()).then(|| self.columns()).into_iter().flatten()
    }
}

impl SystolicArray for Array {
    fn new(rows: usize, cols: usize) -> Self {
        let row = Row::new(cols);
        Self { cols, full: Train::full(cols), rows: vec![row; rows], psums: vec![0; (rows + 1) * cols] }
    }
}

impl Module for Array {
    type In<'a> = WestEdge<'a>;
    type Out<'a> = Cow<'a, [i32]>;

    fn out(&self) -> Cow<'_, [i32]> {
        Cow::Borrowed(&self.psums[self.psums.len() - self.cols..])
    }

    fn clock(&mut self, i: &WestEdge<'_>) {
        if !i.enable {
            return;
        }
        let cols = self.cols;
        for (r, (row, west)) in self.rows.iter_mut().zip(i.rows).enumerate().rev() {
            row.shift(west, &self.full);
            let (north, south) = self.psums[r * cols..(r + 2) * cols].split_at_mut(cols);
            let acts = &row.acts[row.head..row.head + cols];
            if row.valid == self.full {
                multiply_accumulate(south, north, acts, &row.weights);
            } else {
                south.copy_from_slice(north);
                for c in row.valid.columns_if_any() {
                    south[c] = north[c].wrapping_add(i32::from(acts[c]) * i32::from(row.weights[c]));
                }
            }
        }
    }

    fn reset(&mut self) {
        *self = Self::new(self.rows.len(), self.cols);
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        for (r, row) in self.rows.iter_mut().enumerate() {
            let psums = &mut self.psums[(r + 1) * self.cols..(r + 2) * self.cols];
            v.scope(("row", r), |v| {
                for c in 0..psums.len() {
                    v.scope(("pe", c), |v| row.visit_element(c, &mut psums[c], v));
                }
            });
        }
    }
}

impl Row {
    fn visit_element(&mut self, c: usize, psum: &mut i32, v: &mut impl Visitor) {
        fn bit(v: &mut impl Visitor, name: &'static str, train: &mut Train, c: usize) {
            let mut value = train.get(c);
            v.reg(name, bool::WIDTH, Format::Unsigned, &mut value);
            train.set(c, value);
        }
        v.reg("act_q", 8, Format::Signed, &mut self.acts[self.head + c]);
        bit(v, "valid_q", &mut self.valid, c);
        bit(v, "swap_q", &mut self.swap, c);
        v.reg("weight_q", 8, Format::Signed, &mut self.weights[c]);
        v.reg("shadow_q", 8, Format::Signed, &mut self.shadows[c]);
        bit(v, "load_q", &mut self.load, c);
        v.reg("psum_q", 32, Format::Signed, psum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mesh;
    use proptest::prelude::*;
    use rtl::{Image, Layout};

    /// Any wires at all, protocol or not: the two must agree on every input.
    fn west() -> impl Strategy<Value = WestRow> {
        (any::<[i8; 2]>(), any::<[bool; 2]>(), prop::bool::weighted(0.2), prop::bool::weighted(0.8))
            .prop_map(|([act, weight], [valid, load], swap, keep)| WestRow { act, valid, swap, weight, load, keep })
    }

    fn stimulus() -> impl Strategy<Value = (usize, usize, Vec<(bool, Vec<WestRow>)>)> {
        let cols = prop_oneof![1usize..10, 60usize..70, Just(128), Just(256)];
        (1usize..6, cols).prop_flat_map(|(rows, cols)| {
            let cycle = (prop::bool::weighted(0.9), prop::collection::vec(west(), rows));
            (Just(rows), Just(cols), prop::collection::vec(cycle, 1..80))
        })
    }

    proptest! {
        #[test]
        fn equals_the_mesh_register_for_register_every_cycle((rows, cols, cycles) in stimulus()) {
            let (mut mesh, mut array) = (Mesh::new(rows, cols), Array::new(rows, cols));
            let paths = Layout::of(&mut mesh).paths;
            prop_assert_eq!(&paths, &Layout::of(&mut array).paths);
            for (t, (enable, west)) in cycles.iter().enumerate() {
                let edge = WestEdge { enable: *enable, rows: west };
                mesh.clock(&edge);
                array.clock(&edge);
                prop_assert_eq!(mesh.out(), array.out());
                let differences = Image::of(&mut mesh).differences(&Image::of(&mut array));
                let first = differences.first().map(|d| (&paths[d.signal].path, d));
                prop_assert!(first.is_none(), "cycle {}: {:?}", t, first);
            }
        }
    }

    #[test]
    fn a_long_run_slides_its_windows_back() {
        let (mut mesh, mut array) = (Mesh::new(2, 3), Array::new(2, 3));
        for t in 0..3 * SLIDE as i32 {
            let row = WestRow {
                act: t as i8,
                valid: true,
                swap: t % 7 == 0,
                weight: (t * 3) as i8,
                load: t % 2 == 0,
                keep: true,
            };
            let edge = WestEdge { enable: true, rows: &[row, row] };
            mesh.clock(&edge);
            array.clock(&edge);
            assert_eq!(mesh.out(), array.out(), "cycle {t}");
        }
        assert_eq!(Image::of(&mut mesh), Image::of(&mut array));
    }
}
