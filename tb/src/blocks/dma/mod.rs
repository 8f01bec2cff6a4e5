//! Bench of the data-movement engine.

pub mod axi;
pub mod bench;
mod efficiency;
mod faults;
mod judge;
pub mod memory;
mod onnx;
mod presets;
pub mod random;
pub mod reference;
pub mod refuse;
mod rules;
mod second;
pub mod stimulus;
pub mod vectors;

use crate::verify::Test;

/// The tests of this block.
pub const TESTS: &[Test] = &[
    Test::new("dma", "presets", presets::CASES, 140, presets::presets),
    Test::new("dma", "chains", 0, 500, random::chains),
    Test::new("dma", "engines", 0, 300, random::engines),
    Test::new("dma", "order", random::ORDERS.len(), 60, random::order),
    Test::new("dma", "indices", random::INDICES.len(), 60, random::indices),
    Test::new("dma", "refusals", refuse::CASES, 0, refuse::refusals),
    Test::new("dma", "hostile", 0, 100, refuse::hostile),
    Test::new("dma", "errors", faults::ERRORS, 60, faults::errors),
    Test::new("dma", "reset", 0, 40, faults::reset),
    Test::new("dma", "rules", rules::CASES, 0, rules::rules),
    Test::new("dma", "onnx", onnx::CASES, 0, onnx::onnx),
    Test::new("dma", "efficiency", efficiency::CASES, 0, efficiency::efficiency),
];
