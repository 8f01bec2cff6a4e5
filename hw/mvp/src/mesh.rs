use crate::{Code, Config, Pe, PeIn};
use rtl::{Module, Visitor};
use std::borrow::Cow;

/// The wires that enter one row of the array from the west.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WestRow {
    /// Activation.
    pub act: Code,
    /// It counts.
    pub valid: bool,
    /// It is the first of its tile.
    pub swap: bool,
    /// Weight.
    pub weight: Code,
    /// The weight enters column 0.
    pub load: bool,
    /// The load goes on: columns 1 and up may shift.
    pub keep: bool,
}

/// All wires into an array, rows already skewed.
#[derive(Clone, Copy, Debug)]
pub struct WestEdge<'a> {
    /// Clock enable of the whole array.
    pub enable: bool,
    /// One entry a row.
    pub rows: &'a [WestRow],
}

/// An R×C array by its boundary: [`Mesh`], which shows the hardware, and [`Array`](crate::Array), which runs fast.
///
/// Both have the same registers under the same names: `row_R.pe_C.*`. The output is the southern edge, one partial sum a column,
/// INT32 or the bits of an FP32.
pub trait SystolicArray: 'static + for<'a> Module<In<'a> = WestEdge<'a>, Out<'a> = Cow<'a, [i32]>> {
    /// An array of the configuration's elements, reset.
    fn new(config: Config) -> Self;
}

/// The array as what it is: a mesh of [`Pe`]s.
#[derive(Clone, Debug)]
pub struct Mesh {
    cols: usize,
    /// Row by row.
    pes: Vec<Pe>,
}

impl SystolicArray for Mesh {
    fn new(config: Config) -> Self {
        Self { cols: config.cols, pes: vec![Pe::new(config); config.rows * config.cols] }
    }
}

impl Module for Mesh {
    type In<'a> = WestEdge<'a>;
    type Out<'a> = Cow<'a, [i32]>;

    fn out(&self) -> Cow<'_, [i32]> {
        let south = &self.pes[self.pes.len() - self.cols..];
        south.iter().map(|pe| pe.out().psum).collect()
    }

    fn clock(&mut self, i: &WestEdge<'_>) {
        // South-east first: an element is clocked before the neighbours whose outputs it reads.
        for r in (0..i.rows.len()).rev() {
            let west = i.rows[r];
            for c in (0..self.cols).rev() {
                let psum = if r == 0 { 0 } else { self.pes[(r - 1) * self.cols + c].out().psum };
                let wires = if c == 0 {
                    let WestRow { act, valid, swap, weight, load, .. } = west;
                    PeIn { enable: i.enable, act, valid, swap, weight, load, keep: true, psum }
                } else {
                    let w = self.pes[r * self.cols + c - 1].out();
                    PeIn {
                        enable: i.enable,
                        act: w.act,
                        valid: w.valid,
                        swap: w.swap,
                        weight: w.weight,
                        load: w.load,
                        keep: west.keep,
                        psum,
                    }
                };
                self.pes[r * self.cols + c].clock(&wires);
            }
        }
    }

    fn reset(&mut self) {
        self.pes.iter_mut().for_each(Pe::reset);
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        for (r, row) in self.pes.chunks_mut(self.cols).enumerate() {
            v.scope(("row", r), |v| {
                for (c, pe) in row.iter_mut().enumerate() {
                    v.scope(("pe", c), |v| pe.visit(v));
                }
            });
        }
    }
}
