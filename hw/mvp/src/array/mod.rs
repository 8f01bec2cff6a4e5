mod engine;
#[cfg(test)]
mod tests;
mod visit;

use crate::lanes::{Bf16, Coded, Floats, Int8, Pairs};
use crate::{Config, Datapath, SystolicArray, WestEdge};
use engine::{Edge, Engine};
use numeric::FloatFormat;
use numeric::fast::dispatch;
use rtl::{Module, Visitor};
use std::borrow::Cow;

/// The same array as [`Mesh`](crate::Mesh), register for register, as vectors updated in place: the fast cycle engine.
///
/// A float element's inner stage registers are not kept: they are functions of operands that the windows still hold, and are worked out
/// when a visitor asks. What a visitor writes into those alone is therefore lost; faults are injected into the mesh.
#[derive(Clone, Debug)]
pub struct Array(Any);

/// Engines by datapath, and by the words that 256 columns and 15 stages need at most.
#[derive(Clone, Debug)]
enum Any {
    Int8(Box<Engine<Coded<Int8>, 1>>),
    Int8Wide(Box<Engine<Coded<Int8>, 5>>),
    Pairs(Box<Engine<Pairs, 1>>),
    PairsWide(Box<Engine<Pairs, 5>>),
    Bf16(Box<Engine<Coded<Bf16>, 1>>),
    Bf16Wide(Box<Engine<Coded<Bf16>, 5>>),
    Floats(Box<Engine<Floats, 1>>),
    FloatsWide(Box<Engine<Floats, 5>>),
}

macro_rules! on_engine {
    ($any:expr, $engine:ident => $body:expr) => {
        match $any {
            Any::Int8($engine) => $body,
            Any::Int8Wide($engine) => $body,
            Any::Pairs($engine) => $body,
            Any::PairsWide($engine) => $body,
            Any::Bf16($engine) => $body,
            Any::Bf16Wide($engine) => $body,
            Any::Floats($engine) => $body,
            Any::FloatsWide($engine) => $body,
        }
    };
}

impl SystolicArray for Array {
    fn new(config: Config) -> Self {
        const BF16: Datapath = Datapath::float(FloatFormat::BF16);
        let wide = config.cols + config.mac_latency() - 1 > 64;
        Self(match (config.datapath, wide) {
            (Datapath::Int8, false) => Any::Int8(Engine::boxed(config, Coded::new())),
            (Datapath::Int8, true) => Any::Int8Wide(Engine::boxed(config, Coded::new())),
            (Datapath::Int4, false) => Any::Pairs(Engine::boxed(config, Pairs)),
            (Datapath::Int4, true) => Any::PairsWide(Engine::boxed(config, Pairs)),
            (BF16, false) => Any::Bf16(Engine::boxed(config, Coded::new())),
            (BF16, true) => Any::Bf16Wide(Engine::boxed(config, Coded::new())),
            (Datapath::Float { act, weight }, false) => Any::Floats(Engine::boxed(config, Floats::new(act, weight))),
            (Datapath::Float { act, weight }, true) => Any::FloatsWide(Engine::boxed(config, Floats::new(act, weight))),
        })
    }
}

impl Module for Array {
    type In<'a> = WestEdge<'a>;
    type Out<'a> = Cow<'a, [i32]>;

    #[inline]
    fn out(&self) -> Cow<'_, [i32]> {
        Cow::Borrowed(on_engine!(&self.0, engine => engine.south()))
    }

    #[inline]
    fn clock(&mut self, i: &WestEdge<'_>) {
        if i.enable {
            on_engine!(&mut self.0, engine => dispatch(Edge { engine, rows: i.rows }));
        }
    }

    fn reset(&mut self) {
        on_engine!(&mut self.0, engine => engine.reset());
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        on_engine!(&mut self.0, engine => engine.visit(v));
    }
}
