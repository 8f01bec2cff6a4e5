use crate::Config;
use rtl::{Format, Module, Name, Payload, Sram, SramFault, SramIn, SramWrite, Visitor, WriteMode};

/// What the accumulator shall do with a row of partial sums; travels beside the array, RL + C − 1 edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// A row is there.
    pub valid: bool,
    /// First k-tile: nothing to add to.
    pub first: bool,
    /// Last k-tile: the sum is a result.
    pub last: bool,
    /// Last row of the job.
    pub end: bool,
    /// Accumulator row, 16 bits.
    pub address: u16,
    /// Columns that count, 9 bits.
    pub lanes: u16,
}

impl Tag {
    /// Shows the tag as registers of stage `i`.
    pub(crate) fn visit(&mut self, i: usize, v: &mut impl Visitor) {
        v.reg(("valid_q", i), 1, Format::Unsigned, &mut self.valid);
        v.reg(("first_q", i), 1, Format::Unsigned, &mut self.first);
        v.reg(("last_q", i), 1, Format::Unsigned, &mut self.last);
        v.reg(("end_q", i), 1, Format::Unsigned, &mut self.end);
        v.reg(("address_q", i), 16, Format::Unsigned, &mut self.address);
        v.reg(("lanes_q", i), 9, Format::Unsigned, &mut self.lanes);
    }
}

/// A row of results: up to C values of one row of Y.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutRow {
    /// C values, INT32; those past `lanes` mean nothing.
    pub values: Vec<i32>,
    /// Columns that count, 9 bits.
    pub lanes: u16,
    /// Last row of the job.
    pub end: bool,
}

impl OutRow {
    /// An empty row of `cols` columns.
    pub fn blank(cols: usize) -> Self {
        Self { values: vec![0; cols], lanes: 0, end: false }
    }
}

impl Payload for OutRow {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        v.scope(name, |v| {
            v.reg("lanes_q", 9, Format::Unsigned, &mut self.lanes);
            v.reg("end_q", 1, Format::Unsigned, &mut self.end);
            self.values.visit("y_q".into(), v);
        });
    }
}

/// Wires into an [`Accumulator`].
#[derive(Clone, Copy, Debug)]
pub struct AccumulatorIn<'a> {
    /// Clock enable.
    pub enable: bool,
    /// What to do with the row.
    pub tag: Tag,
    /// The deskewed southern edge, INT32.
    pub row: &'a [i32],
}

/// Sums over k-tiles: a memory of D rows × C × 32 bits and an adder a column.
///
/// An edge reads the old sum and registers the row; the next writes their sum back (A = 1), past the memory if the row is read again
/// on that very edge. The sum over the last k-tile is not written but handed on, so the memory is free for the next block at once.
#[derive(Clone, Debug)]
pub struct Accumulator {
    memory: Sram<i32>,
    tag: Tag,
    row: Vec<i32>,
    /// Some sum left 32 bits; sticky until reset.
    overflow: bool,
}

impl Accumulator {
    /// An accumulator of the configuration's depth and width.
    pub fn new(config: Config) -> Self {
        let memory = Sram::new(config.depth, config.cols, WriteMode::WriteFirst);
        Self { memory, tag: Tag::default(), row: vec![0; config.cols], overflow: false }
    }

    /// Whether a finished row stands at the output; it is computed by [`sum`](Accumulator::sum).
    pub fn offers(&self) -> bool {
        self.tag.valid && self.tag.last
    }

    /// The adders' wires.
    pub fn sum(&self, out: &mut OutRow) {
        out.values.clone_from(&self.row);
        if !self.tag.first {
            for (sum, old) in out.values.iter_mut().zip(self.memory.out().data) {
                *sum = sum.wrapping_add(*old);
            }
        }
        (out.lanes, out.end) = (self.tag.lanes, self.tag.end);
    }

    /// Whether a sum of a column that counts has left 32 bits since reset.
    pub fn overflow(&self) -> bool {
        self.overflow
    }

    /// The first misuse of the memory since reset.
    pub fn fault(&self) -> Option<SramFault> {
        self.memory.out().fault
    }

    /// The edge; `sum` is what [`sum`](Accumulator::sum) gives in this cycle.
    pub fn clock(&mut self, i: &AccumulatorIn<'_>, sum: &OutRow) {
        if !i.enable {
            return;
        }
        if self.tag.valid && !self.tag.first {
            let old = &self.memory.out().data[..usize::from(self.tag.lanes)];
            self.overflow |= old.iter().zip(&self.row).any(|(a, b)| a.checked_add(*b).is_none());
        }
        let write = (self.tag.valid && !self.tag.last)
            .then_some(SramWrite { address: self.tag.address.into(), data: sum.values.as_slice() });
        let read = (i.tag.valid && !i.tag.first).then_some(i.tag.address.into());
        self.memory.clock(&SramIn { read, write });
        self.tag = i.tag;
        self.row.copy_from_slice(i.row);
    }

    /// Clears the registers; the memory keeps its contents.
    pub fn reset(&mut self) {
        self.memory.reset();
        self.tag = Tag::default();
        self.row.fill(0);
        self.overflow = false;
    }

    /// Shows the registers.
    pub fn visit(&mut self, v: &mut impl Visitor) {
        v.scope("tag", |v| self.tag.visit(0, v));
        self.row.visit("row_q".into(), v);
        v.reg("overflow_q", 1, Format::Unsigned, &mut self.overflow);
        v.scope("memory", |v| self.memory.visit(v));
    }
}
