//! Bench of the vector unit: elementary functions against binary64, operations against a plain reference with derived bounds, and the
//! clocked unit against the transaction engine.

pub(crate) mod driver;
mod engines;
mod functions;
mod onnx;
mod operations;
mod reference;

use crate::verify::Test;

/// The tests of this block.
pub const TESTS: &[Test] = &[
    Test::new("vector", "bf16", 7, 0, functions::bf16).exhaustive(),
    Test::new("vector", "binades", 7, 0, functions::binades),
    Test::new("vector", "angles", 4, 4, functions::angles),
    Test::new("vector", "engines", engines::DIRECTED, 200, engines::engines),
    Test::new("vector", "batches", 4, 0, engines::batches),
    Test::new("vector", "reset", 3, 0, engines::reset),
    Test::new("vector", "rmsnorm", 2, 40, operations::rms_norm),
    Test::new("vector", "softmax", 8, 80, operations::softmax),
    Test::new("vector", "rope", 4, 40, operations::rope),
    Test::new("vector", "gates", 1, 20, operations::gates),
    Test::new("vector", "argmax", 1, 40, operations::argmax),
    Test::new("vector", "quantise", 6, 60, operations::quantise),
    Test::new("vector", "ties", 2, 0, operations::ties),
    Test::new("vector", "formats", 14, 0, operations::formats),
    Test::new("vector", "onnx", onnx::CASES, 0, onnx::node),
];
