//! Bench of the whole NPU.

mod archive;
mod cycle;
mod model;
mod programs;

use crate::verify::Test;

/// The tests of this block.
pub const TESTS: &[Test] = &[
    Test::new("npu", "matrix", model::MATRIX, 0, model::matrix).exhaustive(),
    Test::new("npu", "cut", 3, 9, model::cut),
    Test::new("npu", "batch", 1, 3, model::batch),
    Test::new("npu", "timing", 1, 6, model::timing),
    Test::new("npu", "whole", cycle::MODELS, 4, cycle::whole),
    Test::new("npu", "programs", programs::DIRECTED, 49, programs::programs),
    Test::new("npu", "archive", archive::CASES, 0, archive::archive),
];
