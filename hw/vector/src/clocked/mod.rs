//! The unit with every register clocked.

mod lanes;
mod port;
mod reducer;
mod sequencer;
mod unit;

pub use port::{Counters, OperandBeat, ResultBeat, UnitIn, UnitOut};
pub use unit::VectorUnit;
