use crate::{Config, Scales, Side};
use numeric::fast::{canonical, fma_slice};
use rtl::{Format, Module, Name, Payload, Sram, SramFault, SramIn, SramWrite, Visitor, WriteMode, copy_lanes};

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

/// A row of sums: up to C values of one row of X·W.
#[derive(Debug, Default, PartialEq)]
pub struct OutRow {
    /// C values, INT32 or the bits of FP32; those past `lanes` mean nothing.
    pub values: Vec<i32>,
    /// Columns that count, 9 bits.
    pub lanes: u16,
    /// Last row of the job.
    pub end: bool,
    /// Σa of the row over all of k (INT32 sums only), and the scale that came with its last tile.
    pub side: Side,
}

impl Clone for OutRow {
    fn clone(&self) -> Self {
        Self { values: self.values.clone(), ..*self }
    }

    /// Into the lanes that are there: a FIFO takes a row in every cycle.
    fn clone_from(&mut self, source: &Self) {
        let mut values = std::mem::take(&mut self.values);
        values.resize(source.values.len(), 0);
        copy_lanes(&mut values, &source.values);
        *self = Self { values, ..*source };
    }
}

impl OutRow {
    /// An empty row of `cols` columns.
    pub fn blank(cols: usize) -> Self {
        Self { values: vec![0; cols], lanes: 0, end: false, side: Side::default() }
    }
}

impl Payload for OutRow {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        v.scope(name, |v| {
            v.reg("lanes_q", 9, Format::Unsigned, &mut self.lanes);
            v.reg("end_q", 1, Format::Unsigned, &mut self.end);
            self.values.visit("y_q".into(), v);
            v.scope("side", |v| {
                v.reg("sum_q", 32, Format::Signed, &mut self.side.sum);
                crate::beat::float(v, "scale_q", &mut self.side.scale);
            });
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
    /// The deskewed southern edge: INT32 or the bits of FP32.
    pub row: &'a [i32],
    /// What rode beside the row.
    pub side: Side,
    /// With group scales, on the first row of a tile: the tile's.
    pub scales: Option<&'a Scales>,
}

/// A row on its way through the adders.
#[derive(Clone, Debug)]
struct Stage {
    tag: Tag,
    side: Side,
    values: Vec<i32>,
}

impl Stage {
    fn blank(cols: usize) -> Self {
        Self { tag: Tag::default(), side: Side::default(), values: vec![0; cols] }
    }
}

/// Sums over k-tiles: a memory of D rows × C × 32 bits and an adder a column.
///
/// An edge reads the old sum and registers the row; A edges later their sum is written back, past the memory if the row is read
/// again on that very edge. The sum over the last k-tile is not written but handed on, so the memory is free for the next block at once.
///
/// INT32 wraps, A = 1. FP32 adds with one rounding; the A − 1 registers after the adder are its pipeline, which synthesis moves into it.
/// With group scales a sum is fma(s_a·s_w, partial, old), old = +0 in the first tile; integer partials are exact in FP32, and a
/// second step adds fma(s_a·minimum, Σa, ·).
#[derive(Clone, Debug)]
pub struct Accumulator {
    config: Config,
    memory: Sram<i32>,
    /// Σa, summed like a column (INT32 sums only).
    row_sums: Sram<i32>,
    entry: Stage,
    scales: Scales,
    /// The A − 1 stages after the adder: a ring, `oldest` the one whose sum is done.
    pipeline: Vec<Stage>,
    oldest: usize,
    /// Some sum left 32 bits; sticky until reset.
    overflow: bool,
}

impl Accumulator {
    /// An accumulator of the configuration's depth and width.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            memory: Sram::new(config.depth, config.cols, WriteMode::WriteFirst),
            row_sums: Sram::new(config.depth, 1, WriteMode::WriteFirst),
            entry: Stage::blank(config.cols),
            scales: Scales::blank(config.cols),
            pipeline: vec![Stage::blank(config.cols); config.accumulator_latency() - 1],
            oldest: 0,
            overflow: false,
        }
    }

    /// The same for columns that belong to different rows of X, each with a Σa of its own.
    pub(crate) fn with_column_sums(mut self) -> Self {
        self.scales = Scales::of_columns(self.config.cols);
        self
    }

    #[inline]
    fn last_stage(&self) -> &Stage {
        self.pipeline.get(self.oldest).unwrap_or(&self.entry)
    }

    /// Whether a finished row stands at the output; it is computed by [`sum`](Accumulator::sum).
    #[inline]
    pub fn offers(&self) -> bool {
        self.last_stage().tag.valid && self.last_stage().tag.last
    }

    /// The wires out of the last stage.
    #[inline]
    pub fn sum(&self, out: &mut OutRow) {
        let stage = self.last_stage();
        out.side = stage.side;
        out.values.resize(self.config.cols, 0);
        if self.pipeline.is_empty() {
            self.add(&mut out.values);
            out.side.sum = self.add_row_sum();
        } else {
            copy_lanes(&mut out.values, &stage.values);
        }
        (out.lanes, out.end) = (stage.tag.lanes, stage.tag.end);
    }

    /// The adders' wires.
    fn add(&self, values: &mut [i32]) {
        let old = self.memory.out().data;
        let terms = values.iter_mut().zip(old.iter().zip(&self.entry.values));
        match (self.config.sums_float(), self.config.group.is_some()) {
            (true, true) => self.add_scaled(values, old),
            _ if self.entry.tag.first => copy_lanes(values, &self.entry.values),
            (false, _) => terms.for_each(|(sum, (old, new))| *sum = new.wrapping_add(*old)),
            (true, false) => terms.for_each(|(sum, (old, new))| {
                let [a, b] = [*old, *new].map(|bits| f32::from_bits(bits as u32));
                *sum = canonical(a + b).to_bits() as i32;
            }),
        }
    }

    fn add_scaled(&self, values: &mut [i32], old: &[i32]) {
        let Side { sum, scale } = self.entry.side;
        let is_float = self.config.datapath.is_float();
        let entry = &self.entry.values;
        let partial: Vec<f32> =
            entry.iter().map(|&v| if is_float { f32::from_bits(v as u32) } else { v as f32 }).collect();
        let first = self.entry.tag.first;
        let mut sums: Vec<f32> =
            old.iter().map(|&bits| if first { 0.0 } else { f32::from_bits(bits as u32) }).collect();
        let scaled = |by: &[f32]| -> Vec<f32> { by.iter().map(|s| scale * s).collect() };
        fma_slice(&scaled(&self.scales.scale), &partial, &mut sums);
        if !is_float {
            let row_sums: Vec<f32> = match self.scales.sums.as_slice() {
                [] => vec![sum as f32; sums.len()],
                own => own.iter().map(|&sum| sum as f32).collect(),
            };
            fma_slice(&scaled(&self.scales.minimum), &row_sums, &mut sums);
        }
        values.iter_mut().zip(sums).for_each(|(value, sum)| *value = sum.to_bits() as i32);
    }

    fn add_row_sum(&self) -> i32 {
        let old = if self.entry.tag.first { 0 } else { self.row_sums.out().data[0] };
        old.wrapping_add(self.entry.side.sum)
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
    #[inline]
    pub fn clock(&mut self, i: &AccumulatorIn<'_>, sum: &OutRow) {
        if !i.enable {
            return;
        }
        let sums_float = self.config.sums_float();
        if self.entry.tag.valid && !self.entry.tag.first && !sums_float {
            // Two's complement overflow: addends of one sign, a sum of the other.
            let lanes = usize::from(self.entry.tag.lanes);
            let terms = self.memory.out().data[..lanes].iter().zip(&self.entry.values);
            let signs = terms.fold(0, |signs, (a, b)| signs | (a ^ a.wrapping_add(*b)) & (b ^ a.wrapping_add(*b)));
            self.overflow |= signs < 0;
        }
        let done = self.last_stage().tag;
        let write = (done.valid && !done.last).then_some(done.address.into());
        let read = (i.tag.valid && !i.tag.first).then_some(i.tag.address.into());
        if !sums_float {
            let write = write.map(|address| SramWrite { address, data: std::slice::from_ref(&sum.side.sum) });
            self.row_sums.clock(&SramIn { read, write });
        }
        if !self.pipeline.is_empty() {
            // The stage that is done makes room for the newest.
            let mut values = std::mem::take(&mut self.pipeline[self.oldest].values);
            self.add(&mut values);
            self.pipeline[self.oldest] = Stage { tag: self.entry.tag, side: self.entry.side, values };
            self.oldest = if self.oldest + 1 == self.pipeline.len() { 0 } else { self.oldest + 1 };
        }
        let write = write.map(|address| SramWrite { address, data: sum.values.as_slice() });
        self.memory.clock(&SramIn { read, write });
        (self.entry.tag, self.entry.side) = (i.tag, i.side);
        copy_lanes(&mut self.entry.values, i.row);
        if let Some(scales) = i.scales {
            self.scales.clone_from(scales);
        }
    }

    /// Clears the registers; the memory keeps its contents.
    pub fn reset(&mut self) {
        let cols = self.config.cols;
        self.memory.reset();
        self.row_sums.reset();
        self.entry = Stage::blank(cols);
        self.scales = Scales { sums: vec![0; self.scales.sums.len()], ..Scales::blank(cols) };
        self.pipeline.fill(Stage::blank(cols));
        self.overflow = false;
    }

    /// Shows the registers.
    pub fn visit(&mut self, v: &mut impl Visitor) {
        v.scope("tag", |v| self.entry.tag.visit(0, v));
        self.entry.values.visit("row_q".into(), v);
        v.reg("overflow_q", 1, Format::Unsigned, &mut self.overflow);
        v.scope("memory", |v| self.memory.visit(v));
    }

    /// Shows the registers beside the columns' INT32 path: row sums and scales, and the FP32 adders' stages.
    pub fn visit_side(&mut self, v: &mut impl Visitor) {
        v.scope("side", |v| self.entry.side.visit(0, v));
        if !self.config.sums_float() {
            v.scope("row_sums", |v| self.row_sums.visit(v));
        }
        if self.config.group.is_some() {
            self.scales.visit("scales".into(), v);
        }
        for i in 0..self.pipeline.len() {
            let stages = self.pipeline.len();
            let stage = &mut self.pipeline[(self.oldest + stages - 1 - i) % stages];
            v.scope(("adder", i), |v| {
                stage.tag.visit(0, v);
                v.scope("side", |v| stage.side.visit(0, v));
                stage.values.visit("sum_q".into(), v);
            });
        }
    }
}
