//! Bench of the matrix-vector processor.

mod computed;
mod conv;
pub mod driver;
mod formats;
mod gemm;
pub mod gemv;
mod onnx;
mod output;
mod port;
mod projections;
pub mod reference;
mod scalesim;
mod utilisation;

use crate::verify::Test;

/// The tests of this block.
pub const TESTS: &[Test] = &[
    Test::new("mvp", "projections", projections::CASES, 0, projections::projection),
    Test::new("mvp", "shapes", gemm::SHAPES, 150, gemm::shapes),
    Test::new("mvp", "onnx", onnx::CASES, 0, onnx::node),
    Test::new("mvp", "scalesim", scalesim::SHAPES, 0, scalesim::shape),
    Test::new("mvp", "formats", formats::DIRECTED, 800, formats::formats),
    Test::new("mvp", "arrays", formats::ARRAYS, 0, formats::arrays),
    Test::new("mvp", "conv", conv::DIRECTED, 200, conv::conv),
    Test::new("mvp", "gemv", gemv::DIRECTED, 400, gemv::gemv),
    Test::new("mvp", "gemv_reset", gemv::RESETS, 0, gemv::reset),
    Test::new("mvp", "port", port::DIRECTED, 400, port::port),
    Test::new("mvp", "port_refusals", 1, 0, port::refusals),
    Test::new("mvp", "output", output::DIRECTED, 600, output::output),
    Test::new("mvp", "utilisation", utilisation::CASES, 0, utilisation::utilisation),
    Test::new("mvp", "extremes", gemm::EXTREMES, 0, gemm::extremes),
    Test::new("mvp", "hazard_window", gemm::HAZARDS, 0, gemm::hazard_window),
    Test::new("mvp", "mesh", 18, 20, gemm::mesh),
    Test::new("mvp", "reset", 2, 10, gemm::reset),
    Test::new("mvp", "overflow", gemm::OVERFLOWS, 0, gemm::overflow),
    Test::new("mvp", "refusals", 1, 0, gemm::refusals),
];

/// Cycles written before and after the first mismatch.
const CONTEXT: u64 = 400;
