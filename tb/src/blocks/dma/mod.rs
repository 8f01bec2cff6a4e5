//! Bench of the data-movement engine.

pub mod axi;
pub mod bench;
pub mod memory;
pub mod reference;
