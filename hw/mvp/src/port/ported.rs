use super::{PortError, PortShape, WeightPort, WeightPortIn, Word};
use crate::{Beats, Gemv, GemvIn, GemvJob, GemvOut};
use rtl::{Module, Stream, Visitor};

/// Wires into a [`PortedGemv`].
#[derive(Clone, Copy, Debug)]
pub struct PortedGemvIn<'a> {
    /// A job; taken if none is under way.
    pub start: Option<GemvJob>,
    /// As for [`Gemv`].
    pub x: Stream<&'a Beats>,
    /// P stored bytes.
    pub word: Stream<&'a Word>,
    /// The consumer takes a row of results.
    pub ready: bool,
}

/// Wires out of a [`PortedGemv`].
pub struct PortedGemvOut<'a> {
    /// Neither the port nor the processor has a job; results may still stand in the FIFO.
    pub idle: bool,
    /// A word will be taken.
    pub word_ready: bool,
    /// Of the processor; its `w_ready` goes to the port.
    pub gemv: GemvOut<'a>,
}

/// The matrix-vector processor behind its weight port.
#[derive(Clone, Debug)]
pub struct PortedGemv {
    port: WeightPort,
    gemv: Gemv,
}

impl PortedGemv {
    /// Both parts, reset.
    ///
    /// # Errors
    /// If the shape cannot be built.
    pub fn new(shape: PortShape) -> Result<Self, PortError> {
        Ok(Self { port: WeightPort::new(shape)?, gemv: Gemv::new(shape.gemv)? })
    }

    /// Its shape.
    pub fn shape(&self) -> PortShape {
        self.port.shape()
    }
}

impl Module for PortedGemv {
    type In<'a> = PortedGemvIn<'a>;
    type Out<'a> = PortedGemvOut<'a>;

    fn out(&self) -> PortedGemvOut<'_> {
        let (port, gemv) = (self.port.out(), self.gemv.out());
        PortedGemvOut { idle: port.idle && gemv.idle, word_ready: port.ready, gemv }
    }

    fn clock(&mut self, i: &PortedGemvIn<'_>) {
        let port = self.port.out();
        let (gemv_idle, w_ready) = (self.gemv.out().idle, self.gemv.out().w_ready);
        let start = i.start.filter(|_| port.idle && gemv_idle);
        let w = Stream { valid: port.w.valid, data: &port.w.data };
        self.gemv.clock(&GemvIn { start, x: i.x, w, ready: i.ready });
        self.port.clock(&WeightPortIn { start, word: i.word, ready: w_ready });
    }

    fn reset(&mut self) {
        self.port.reset();
        self.gemv.reset();
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        v.scope("port", |v| self.port.visit(v));
        v.scope("gemv", |v| self.gemv.visit(v));
    }
}
