//! Sums through the output stage into the scratchpad.

use super::Row;
use super::walk::{Lines, Walk};
use crate::Fault;
use crate::exec::MatmulShape;
use crate::isa::Operands;
use crate::memory::Scratch;
use ::mvp::{Activation, Column, Columns, Job, Output, OutputJob, OutputStage, OutputStageIn, ResultRow};
use numeric::FloatFormat;
use rtl::{Format, Module, Payload, Stream, Visitor};

/// The output stage, what feeds it the columns' scales, and where its rows go.
#[derive(Clone, Debug)]
pub(super) struct Results {
    stage: OutputStage,
    /// q and v of GEMV; of GEMM 0.
    outputs: usize,
    vectors: usize,
    /// Scales of the columns that come next, and whether they stand.
    columns: Columns,
    columns_valid: bool,
    /// Their panel, or their beat.
    panel: u32,
    block: u32,
    /// The row that is written next: M-block, n-panel and row, or the beat in `row`.
    at: Walk,
    /// Rows in the stage, 2 bits: without any, and none to come in, it stands still.
    inside: u8,
    /// Columns are on their way into the stage.
    settles: bool,
}

impl Results {
    pub(super) fn gemm(config: ::mvp::Config) -> Self {
        Self::new(config, 0, 0)
    }

    pub(super) fn gemv(config: ::mvp::Config, outputs: usize, vectors: usize) -> Self {
        Self::new(::mvp::Config { cols: outputs * vectors, ..config }, outputs, vectors)
    }

    fn new(config: ::mvp::Config, outputs: usize, vectors: usize) -> Self {
        Self {
            stage: OutputStage::new(config),
            outputs,
            vectors,
            columns: Columns(vec![Column::default(); config.cols]),
            columns_valid: false,
            panel: 0,
            block: 0,
            at: Walk::default(),
            inside: 0,
            settles: false,
        }
    }

    pub(super) fn start(&mut self) {
        (self.columns_valid, self.panel, self.block) = (false, 0, 0);
        (self.at, self.inside, self.settles) = (Walk::default(), 0, false);
    }

    /// A row of sums will be taken.
    pub(super) fn row_ready(&self) -> bool {
        self.stage.out().row_ready
    }

    /// The last row of Y is on offer, and written on this cycle's edge.
    pub(super) fn ends(&self) -> bool {
        let y = self.stage.out().y;
        y.valid && y.data.end
    }

    fn job(&self, shape: &MatmulShape) -> OutputJob {
        let MatmulShape { m, n, k, command, .. } = *shape;
        let format = if command.y_bf16 { FloatFormat::BF16 } else { FloatFormat::FP32 };
        let output = Output {
            x_zero: 0,
            rescale: matches!(command.operands, Operands::PerChannel(_)),
            add_offset: false,
            activation: Activation::None,
            format: format.into(),
            y_zero: 0,
        };
        // In GEMV every beat of sums has columns of its own.
        let job = match self.vectors {
            0 => Job { m, n, k },
            vectors => Job { m: 1, n: shape.beats() * self.outputs * vectors, k },
        };
        OutputJob { job, output }
    }

    /// Reads the scales of the next panel, or of the next beat's outputs times those of the vectors.
    fn read(&mut self, shape: &MatmulShape, scratch: &Scratch) -> Result<(), Fault> {
        let p = &shape.command;
        if !matches!(p.operands, Operands::PerChannel(_)) {
            self.columns.0.fill(Column::default());
            return Ok(());
        }
        let fp32 = |base: u32, index: usize| -> Result<f32, Fault> {
            let bytes = scratch.read(base as usize + 4 * index, 4)?;
            Ok(f32::from_bits(bytes.first_chunk().map_or(0, |&b| u32::from_le_bytes(b))))
        };
        if self.vectors == 0 {
            let first = self.panel as usize * shape.config.cols;
            for (column, n) in self.columns.0.iter_mut().zip(first..shape.n) {
                column.scale = fp32(p.w_scales, n)?;
            }
            return Ok(());
        }
        let first = self.panel as usize * self.outputs;
        for (columns, n) in self.columns.0.chunks_mut(self.vectors).zip(first..shape.n) {
            let scale = fp32(p.w_scales, n)?;
            for (u, column) in columns.iter_mut().enumerate() {
                column.scale = fp32(p.x_scales, u)? * scale;
            }
        }
        Ok(())
    }

    /// The next panel's columns come on the edge that takes those before them.
    fn next_columns(&mut self, shape: &MatmulShape, scratch: &Scratch) -> Result<(), Fault> {
        let (panels, blocks) = match self.vectors {
            0 => (shape.n.div_ceil(shape.config.cols), shape.m.div_ceil(shape.config.depth)),
            _ => (shape.beats(), 1),
        };
        self.columns_valid = (self.block as usize) < blocks;
        if !self.columns_valid {
            return Ok(());
        }
        self.read(shape, scratch)?;
        self.panel += 1;
        if self.panel as usize == panels {
            (self.panel, self.block) = (0, self.block + 1);
        }
        Ok(())
    }

    /// Writes a row of Y.
    fn write(&mut self, shape: &MatmulShape, row: &ResultRow, scratch: &mut Scratch) -> Result<(), Fault> {
        let p = &shape.command;
        let width = if p.y_bf16 { 2 } else { 4 };
        let mut put = |address: usize, codes: &mut dyn Iterator<Item = u32>, count: usize| -> Result<(), Fault> {
            let bytes = scratch.write(address, count * width)?;
            bytes
                .chunks_exact_mut(width)
                .zip(codes)
                .for_each(|(b, code)| b.copy_from_slice(&code.to_le_bytes()[..width]));
            Ok(())
        };
        let (base, pitch, lanes) = (p.y.base as usize, p.y.pitch as usize, usize::from(row.lanes));
        if self.vectors == 0 {
            let m = self.at.block as usize * shape.config.depth + self.at.slot as usize;
            let address = base + m * pitch + self.at.panel as usize * shape.config.cols * width;
            put(address, &mut row.codes[..lanes].iter().copied(), lanes)?;
            let rows = Lines::Rows.slots(shape, &self.at);
            self.at.slot += 1;
            if self.at.slot as usize == rows {
                (self.at.slot, self.at.panel) = (0, self.at.panel + 1);
                if self.at.panel as usize == shape.n.div_ceil(shape.config.cols) {
                    (self.at.panel, self.at.block) = (0, self.at.block + 1);
                }
            }
            return Ok(());
        }
        let first = self.at.slot as usize * self.outputs;
        for u in 0..self.vectors {
            let codes = row.codes[..lanes].iter().skip(u).step_by(self.vectors).copied();
            put(base + u * pitch + first * width, &mut codes.into_iter(), lanes / self.vectors)?;
        }
        self.at.slot += 1;
        Ok(())
    }

    /// The edge.
    pub(super) fn clock(
        &mut self,
        shape: &MatmulShape,
        starts: bool,
        row: Row<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let out = self.stage.out();
        let takes = self.columns_valid && out.columns_ready;
        let (row_ready, y) = (out.row_ready, out.y.valid.then(|| out.y.data.clone()));
        if starts || row.valid || takes || self.settles || self.inside > 0 {
            let columns = Stream { valid: self.columns_valid, data: &self.columns };
            let start = starts.then(|| self.job(shape));
            self.stage.clock(&OutputStageIn { start, row, columns, ready: true });
        }
        self.settles = takes;
        self.inside = self.inside + u8::from(row.fires(row_ready)) - u8::from(y.is_some());
        if starts || takes {
            self.next_columns(shape, scratch)?;
        }
        if let Some(y) = y {
            self.write(shape, &y, scratch)?;
        }
        Ok(())
    }

    pub(super) fn reset(&mut self) {
        self.stage.reset();
        self.columns.0.fill(Column::default());
        self.start();
    }

    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        self.columns.visit("columns".into(), v);
        v.reg("columns_valid_q", 1, Format::Unsigned, &mut self.columns_valid);
        v.reg("columns_panel_q", 32, Format::Unsigned, &mut self.panel);
        v.reg("columns_block_q", 32, Format::Unsigned, &mut self.block);
        v.scope("row", |v| self.at.visit(v));
        v.reg("inside_q", 2, Format::Unsigned, &mut self.inside);
        v.reg("settles_q", 1, Format::Unsigned, &mut self.settles);
        v.scope("stage", |v| self.stage.visit(v));
    }
}
