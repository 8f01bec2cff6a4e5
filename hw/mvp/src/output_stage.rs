use crate::{Activation, Column, Config, Job, OutRow, Output, RowInfo};
use numeric::Flags;
use rtl::{Format, Module, Name, Payload, SkidBuffer, SkidIn, Stream, Visitor};

/// C columns' parameters, as the output stage takes them: one beat an n-panel of each M-block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Columns(pub Vec<Column>);

impl Payload for Columns {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        for (c, column) in self.0.iter_mut().enumerate() {
            v.scope(name.at(c), |v| {
                v.reg("weight_sum_q", 32, Format::Signed, &mut column.weight_sum);
                v.reg("w_zero_q", 8, Format::Signed, &mut column.w_zero);
                v.reg("bias_q", 32, Format::Signed, &mut column.bias);
                crate::beat::float(v, "scale_q", &mut column.scale);
                crate::beat::float(v, "offset_q", &mut column.offset);
            });
        }
    }
}

/// A row of Y in the output's format.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResultRow {
    /// C codes, in the low bits; those past `lanes` mean nothing.
    pub codes: Vec<u32>,
    /// Columns that count, 9 bits.
    pub lanes: u16,
    /// Last row of the job.
    pub end: bool,
}

impl Payload for ResultRow {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        v.scope(name, |v| {
            v.reg("lanes_q", 9, Format::Unsigned, &mut self.lanes);
            v.reg("end_q", 1, Format::Unsigned, &mut self.end);
            self.codes.visit("code_q".into(), v);
        });
    }
}

/// Names of the activations, in the order of their codes.
const ACTIVATIONS: [&str; 3] = ["NONE", "RELU", "CLAMP"];

/// What the stage does for a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutputJob {
    /// The shape of the product.
    pub job: Job,
    /// The same for all of Y.
    pub output: Output,
}

impl OutputJob {
    fn visit(&mut self, v: &mut impl Visitor) {
        let Job { m, n, k } = &mut self.job;
        for (name, count) in [("m_q", m), ("n_q", n), ("k_q", k)] {
            let mut word = *count as u32;
            v.reg(name, 32, Format::Unsigned, &mut word);
            *count = word as usize;
        }
        let Output { x_zero, rescale, add_offset, activation, y_zero, .. } = &mut self.output;
        v.reg("x_zero_q", 8, Format::Signed, x_zero);
        v.reg("rescale_q", 1, Format::Unsigned, rescale);
        v.reg("add_offset_q", 1, Format::Unsigned, add_offset);
        v.reg("y_zero_q", 32, Format::Signed, y_zero);
        let (mut code, mut low, mut high) = match *activation {
            Activation::None => (0u8, 0.0, 0.0),
            Activation::Relu => (1, 0.0, 0.0),
            Activation::Clamp { low, high } => (2, low, high),
        };
        v.reg("activation_q", 2, Format::Enum(&ACTIVATIONS), &mut code);
        crate::beat::float(v, "low_q", &mut low);
        crate::beat::float(v, "high_q", &mut high);
        *activation = match code {
            0 => Activation::None,
            1 => Activation::Relu,
            _ => Activation::Clamp { low, high },
        };
    }
}

/// Wires into an [`OutputStage`].
#[derive(Clone, Copy, Debug)]
pub struct OutputStageIn<'a> {
    /// A job; taken while the stage is idle.
    pub start: Option<OutputJob>,
    /// Sums, from the processor's `y`.
    pub row: Stream<&'a OutRow>,
    /// Parameters of the columns of the next n-panel, in the order of the panels, for every M-block again.
    pub columns: Stream<&'a Columns>,
    /// The consumer takes a row of Y.
    pub ready: bool,
}

/// Wires out of an [`OutputStage`].
pub struct OutputStageOut<'a> {
    /// No job is under way; results may still stand in the buffer.
    pub idle: bool,
    /// A row of sums will be taken.
    pub row_ready: bool,
    /// Column parameters will be taken.
    pub columns_ready: bool,
    /// Rows of Y.
    pub y: Stream<&'a ResultRow>,
    /// What conversion raised; sticky until reset.
    pub flags: Flags,
}

/// Sums over all of k into Y: zero-point correction, bias, scale and activation in the first stage, conversion in the second.
///
/// A row an edge. A row taken on one edge stands at the output two edges later: one register between the stages, one in the skid buffer
/// that cuts the path to the consumer. Between two jobs the stage takes no rows for two edges.
///
/// With group scales the sums carry their rows' scales already, so that of the row counts as 1.
#[derive(Clone, Debug)]
pub struct OutputStage {
    config: Config,
    /// The job under way or the last one. Its format of Y selects wires and is the one part that no register of the walk shows.
    task: OutputJob,
    busy: bool,
    incoming: SkidBuffer<Columns>,
    /// Of the panel whose rows are taken.
    columns: Columns,
    loaded: bool,
    /// Rows of the panel taken, panels of the block taken, blocks taken.
    row: u32,
    panel: u32,
    block: u32,
    /// After the first stage: INT32 or the bits of FP32.
    scaled: ResultRow,
    valid: bool,
    out: SkidBuffer<ResultRow>,
    flags: Flags,
}

impl OutputStage {
    /// A stage for the configuration's columns and sums, reset.
    pub fn new(config: Config) -> Self {
        let columns = Columns(vec![Column::default(); config.cols]);
        let blank = ResultRow { codes: vec![0; config.cols], ..ResultRow::default() };
        Self {
            config,
            task: OutputJob { job: Job { m: 1, n: 1, k: 1 }, output: Output::raw(config.sums_float()) },
            busy: false,
            incoming: SkidBuffer::new(columns.clone()),
            columns,
            loaded: false,
            row: 0,
            panel: 0,
            block: 0,
            scaled: blank.clone(),
            valid: false,
            out: SkidBuffer::new(blank),
            flags: Flags::NONE,
        }
    }

    /// The first stage's wires.
    fn scale(&self, row: &OutRow) -> ResultRow {
        let scale = if self.config.group.is_some() { 1.0 } else { row.side.scale };
        let info = RowInfo { sum: row.side.sum, scale };
        let (float, OutputJob { job, output }) = (self.config.sums_float(), self.task);
        let codes = row
            .values
            .iter()
            .zip(&self.columns.0)
            .map(|(&acc, column)| output.before_conversion(acc as u32, float, job.k, &info, column));
        ResultRow { codes: codes.collect(), lanes: row.lanes, end: row.end }
    }

    /// The second stage's wires, and what they raise in the columns that count.
    fn convert(&self) -> (ResultRow, Flags) {
        let mut flags = Flags::NONE;
        let mut row = self.scaled.clone();
        if !self.task.output.is_raw_int32(self.config.sums_float()) {
            for code in &mut row.codes[..usize::from(self.scaled.lanes)] {
                *code = self.task.output.convert(f32::from_bits(*code), &mut flags);
            }
        }
        (row, flags)
    }

    /// Counts a row taken. Whether it was its panel's last.
    fn count(&mut self) -> bool {
        let (depth, Job { m, n, .. }) = (self.config.depth, self.task.job);
        self.row += 1;
        if (self.row as usize) < (m - self.block as usize * depth).min(depth) {
            return false;
        }
        self.row = 0;
        self.panel += 1;
        if self.panel as usize == n.div_ceil(self.config.cols) {
            (self.panel, self.block) = (0, self.block + 1);
        }
        true
    }
}

impl Module for OutputStage {
    type In<'a> = OutputStageIn<'a>;
    type Out<'a> = OutputStageOut<'a>;

    fn out(&self) -> OutputStageOut<'_> {
        // Rows behind the job's last one belong to the next job, whose parameters are not here yet.
        let open = self.busy && !(self.valid && self.scaled.end);
        OutputStageOut {
            idle: !self.busy,
            row_ready: open && self.loaded && self.out.out().ready,
            columns_ready: self.incoming.out().ready,
            y: self.out.out().head,
            flags: self.flags,
        }
    }

    fn clock(&mut self, i: &OutputStageIn<'_>) {
        let OutputStageOut { idle, row_ready, .. } = self.out();
        let advance = self.out.out().ready;
        let take = i.row.fires(row_ready);
        let (converted, raised) = self.convert();
        let push = Stream { valid: self.valid && advance, data: &converted };
        if push.valid {
            self.flags |= raised;
        }
        self.out.clock(&SkidIn { push, ready: i.ready });
        if advance {
            self.busy &= !(self.valid && self.scaled.end);
            self.valid = take;
            if take {
                self.scaled = self.scale(i.row.data);
            }
        }
        let wants = !self.loaded || take && self.count();
        if idle && let Some(task) = i.start {
            (self.task, self.busy) = (task, true);
            (self.row, self.panel, self.block) = (0, 0, 0);
        }
        let head = self.incoming.out().head;
        if wants {
            self.loaded = head.valid;
            if head.valid {
                self.columns.clone_from(head.data);
            }
        }
        self.incoming.clock(&SkidIn { push: i.columns, ready: wants });
    }

    fn reset(&mut self) {
        *self = Self::new(self.config);
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        v.scope("incoming", |v| self.incoming.visit(v));
        v.reg("busy_q", 1, Format::Unsigned, &mut self.busy);
        self.task.visit(v);
        self.columns.visit("column".into(), v);
        v.reg("loaded_q", 1, Format::Unsigned, &mut self.loaded);
        v.reg("row_q", 32, Format::Unsigned, &mut self.row);
        v.reg("panel_q", 32, Format::Unsigned, &mut self.panel);
        v.reg("block_q", 32, Format::Unsigned, &mut self.block);
        v.reg("valid_q", 1, Format::Unsigned, &mut self.valid);
        self.scaled.visit("scaled".into(), v);
        v.scope("out", |v| self.out.visit(v));
        let mut flags = self.flags.bits();
        v.reg("flags_q", 5, Format::Hex, &mut flags);
        self.flags = Flags::from_bits(flags);
    }
}
