//! The unit with every register clocked.

mod lanes;
mod port;
mod reducer;
mod sequencer;
mod unit;

pub use lanes::MAX_STEPS;
pub use port::{Counters, OperandBeat, ResultBeat, UnitIn, UnitOut};
pub use unit::VectorUnit;
