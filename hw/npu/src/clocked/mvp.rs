//! The matrix-vector processor's shell: streamers from the scratchpad, the array as a command's mode bits make it, the output stage,
//! and the writes of Y.

mod feed;
mod results;
mod walk;

use super::Ports;
use crate::exec::{MatmulShape, vectors};
use crate::isa::{Matmul, Mode, Op};
use crate::memory::Scratch;
use crate::{Config, Fault};
use ::mvp::{Array, Beat, Beats, Gemv, GemvIn, GemvJob, GemvShape, Job, OutRow, Processor, ProcessorIn};
use feed::{Feed, Lines};
use results::Results;
use rtl::{Format, Module, Stream, Visitor};

/// The array under one setting of its mode bits. What differs between the two modes is wiring; the registers here are those of each.
#[derive(Clone, Debug)]
enum Unit {
    /// Weights stand still.
    Gemm { unit: Box<Processor<Array>>, x: Feed<Beat>, w: Feed<Beat> },
    /// X stands still.
    Gemv { unit: Box<Gemv>, x: Feed<Beats>, w: Feed<Beats> },
}

/// What the mode bits select.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Setting {
    mode: Mode,
    config: ::mvp::Config,
    /// GEMV: vectors side by side; GEMM: 0.
    vectors: usize,
}

/// A setting's registers.
#[derive(Clone, Debug)]
struct Configured {
    setting: Setting,
    unit: Unit,
    results: Results,
}

/// The shell. Settings that programs have used are kept, in the order in which they came; one is active at a time.
#[derive(Clone, Debug)]
pub(super) struct MvpShell {
    settings: Vec<Configured>,
    active: usize,
    /// The command's fields, decoded.
    shape: Option<MatmulShape>,
    /// Cycles of the command so far up to the job's start: 2 bits.
    age: u8,
}

impl Configured {
    fn new(config: &Config, setting: Setting) -> Result<Self, Fault> {
        let Setting { mode, config: mvp, vectors } = setting;
        let port = config.array.port_bytes as u64;
        let (unit, results) = match mode {
            Mode::Gemm => {
                let (row, column) = (Beat::row(mvp), Beat::column(mvp));
                let unit = Box::new(Processor::new(mvp.checked()?));
                let x = Feed::new(Lines::Rows, row, None);
                (Unit::Gemm { unit, x, w: Feed::new(Lines::Columns, column, Some(port)) }, Results::gemm(mvp))
            }
            Mode::Gemv => {
                let outputs = mvp.cols / vectors;
                let unit = Box::new(Gemv::new(GemvShape { config: mvp, outputs, vectors }.checked()?)?);
                let rows = Beats(vec![Beat::row(mvp); vectors]);
                let columns = Beats(vec![Beat::column(mvp); outputs]);
                let x = Feed::new(Lines::Chunks, rows, None);
                let w = Feed::new(Lines::Outputs, columns, Some(port));
                (Unit::Gemv { unit, x, w }, Results::gemv(mvp, outputs, vectors))
            }
        };
        Ok(Self { setting, unit, results })
    }

    fn start(&mut self) {
        match &mut self.unit {
            Unit::Gemm { x, w, .. } => {
                x.start();
                w.start();
            }
            Unit::Gemv { x, w, .. } => {
                x.start();
                w.start();
            }
        }
        self.results.start();
    }

    /// The edge. From the results back to the operands: each part is clocked before those whose wires it reads.
    fn clock(&mut self, shape: &MatmulShape, starts: bool, scratch: &mut Scratch) -> Result<(), Fault> {
        let MatmulShape { m, n, k, .. } = *shape;
        let row_ready = self.results.row_ready();
        match &mut self.unit {
            Unit::Gemm { unit, x, w } => {
                let out = unit.out();
                let (x_ready, w_ready) = (out.x_ready, out.w_ready);
                self.results.clock(shape, starts, out.y, scratch)?;
                let start = starts.then_some(Job { m, n, k });
                unit.clock(&ProcessorIn { start, x: x.out(), w: w.out(), ready: row_ready });
                x.clock(shape, x_ready, scratch)?;
                w.clock(shape, w_ready, scratch)
            }
            Unit::Gemv { unit, x, w } => {
                let out = unit.out();
                let (x_ready, w_ready) = (out.x_ready, out.w_ready);
                self.results.clock(shape, starts, out.y, scratch)?;
                let start = starts.then_some(GemvJob { n, k });
                unit.clock(&GemvIn { start, x: x.out(), w: w.out(), ready: row_ready });
                x.clock(shape, x_ready, scratch)?;
                w.clock(shape, w_ready, scratch)
            }
        }
    }

    /// Multiply-accumulates done, and cycles lost to the weight port, of the job.
    fn counted(&self) -> (u64, u64) {
        let counters = match &self.unit {
            Unit::Gemm { unit, .. } => unit.out().counters,
            Unit::Gemv { unit, .. } => unit.out().counters,
        };
        (counters.active, counters.starved_w)
    }

    fn reset(&mut self) {
        match &mut self.unit {
            Unit::Gemm { unit, x, w } => {
                unit.reset();
                x.reset();
                w.reset();
            }
            Unit::Gemv { unit, x, w } => {
                unit.reset();
                x.reset();
                w.reset();
            }
        }
        self.results.reset();
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        match &mut self.unit {
            Unit::Gemm { unit, x, w } => {
                v.scope("x", |v| x.visit(v));
                v.scope("w", |v| w.visit(v));
                v.scope("gemm", |v| unit.visit(v));
            }
            Unit::Gemv { unit, x, w } => {
                v.scope("x", |v| x.visit(v));
                v.scope("w", |v| w.visit(v));
                v.scope("gemv", |v| unit.visit(v));
            }
        }
        v.scope("results", |v| self.results.visit(v));
    }
}

impl MvpShell {
    pub(super) fn new() -> Self {
        Self { settings: Vec::new(), active: 0, shape: None, age: 0 }
    }

    /// The place of a product's setting, which is made if it is new.
    pub(super) fn configure(&mut self, config: &Config, p: &Matmul) -> Result<usize, Fault> {
        let mvp = crate::exec::processor(config, p.operands);
        let setting = Setting { mode: p.mode, config: mvp, vectors: vectors(p, &mvp)? };
        if let Some(at) = self.settings.iter().position(|c| c.setting == setting) {
            return Ok(at);
        }
        self.settings.push(Configured::new(config, setting)?);
        Ok(self.settings.len() - 1)
    }

    pub(super) fn start(&mut self, op: &Op, ports: &mut Ports<'_>) -> Result<(), Fault> {
        let Op::Matmul(p) = op else { return Ok(()) };
        self.shape = Some(MatmulShape::checked(ports.config, p, &ports.memory.scratch)?);
        self.active = self.configure(ports.config, p)?;
        self.age = 0;
        self.settings[self.active].start();
        Ok(())
    }

    /// The last row of Y is written.
    pub(super) fn done(&self) -> bool {
        self.settings.get(self.active).is_some_and(|c| c.results.ends())
    }

    /// What the job that is done has counted.
    pub(super) fn counted(&self) -> (u64, u64) {
        self.settings.get(self.active).map_or((0, 0), Configured::counted)
    }

    pub(super) fn clock(&mut self, ports: &mut Ports<'_>) -> Result<(), Fault> {
        let starts = self.age == 1;
        self.age = (self.age + 1).min(2);
        match (self.settings.get_mut(self.active), &self.shape) {
            (Some(configured), Some(shape)) => configured.clock(shape, starts, &mut ports.memory.scratch),
            _ => Ok(()),
        }
    }

    pub(super) fn reset(&mut self) {
        self.settings.iter_mut().for_each(Configured::reset);
        (self.active, self.shape, self.age) = (0, None, 0);
    }

    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        let mut active = self.active as u32;
        v.reg("setting_q", 8, Format::Unsigned, &mut active);
        self.active = active as usize;
        v.reg("age_q", 2, Format::Unsigned, &mut self.age);
        self.settings.iter_mut().enumerate().for_each(|(i, c)| v.scope(("setting", i), |v| c.visit(v)));
    }
}

/// A row of sums on its way to the output stage.
type Row<'a> = Stream<&'a OutRow>;
