//! Bench of the number formats and operators: against other people's libraries where there is one, against a table
//! search and the host's own arithmetic everywhere.

mod choose;
mod convert;
mod mx;
mod operators;
mod pipeline;
mod reference;
mod requant;
pub mod softfloat;
pub mod stimulus;
mod tables;

use crate::verify::Test;
use numeric::Format;

/// Named formats of at most 16 bits.
const NARROW: usize = 12;

/// The tests of this block.
pub const TESTS: &[Test] = &[
    Test::new("numeric", "identity", NARROW + convert::SPLITS, 0, convert::identity).exhaustive(),
    Test::new("numeric", "identity_wide", 1, 2, convert::identity_wide),
    Test::new("numeric", "decode", NARROW + convert::SPLITS, 0, convert::decode).exhaustive(),
    Test::new("numeric", "libraries", 2 * NARROW, 0, convert::libraries).exhaustive(),
    Test::new("numeric", "libraries_fp32", NARROW, 0, convert::libraries_fp32),
    Test::new("numeric", "libraries_ffp8", convert::SPLITS, 0, convert::libraries_ffp8).exhaustive(),
    Test::new("numeric", "pairs", NARROW * Format::NAMED.len(), 0, convert::pairs).exhaustive(),
    Test::new("numeric", "pairs_ffp8", convert::SPLITS, 0, convert::pairs_ffp8).exhaustive(),
    Test::new("numeric", "wide", 2 * Format::NAMED.len() + convert::SPLITS, 44, convert::wide),
    Test::new("numeric", "refusals", 1, 0, convert::refusals),
    Test::new("numeric", "products", 25, 0, operators::products).exhaustive(),
    Test::new("numeric", "add_mul_fp32", 1, 39, operators::add_mul_fp32),
    Test::new("numeric", "add_mul_16", 2, 8, operators::add_mul_16),
    Test::new("numeric", "fma_e4m3", 256, 0, operators::fma_e4m3).exhaustive(),
    Test::new("numeric", "fma_e5m2", 256, 0, operators::fma_e5m2).exhaustive(),
    Test::new("numeric", "fma_pairs", 80, 0, operators::fma_pairs),
    Test::new("numeric", "fma_fp32", 0, 100, operators::fma_fp32),
    Test::new("numeric", "softfloat", softfloat::OPERATIONS.len(), 0, softfloat::vectors),
    Test::new("numeric", "mac_pipeline", 24, 40, pipeline::mac_pipeline),
    Test::new("numeric", "mac_registers", 8, 8, pipeline::mac_registers),
    Test::new("numeric", "int_accumulate", 4, 0, operators::int_accumulate),
    Test::new("numeric", "requant_onnx_runtime", 1, 0, requant::onnx_runtime),
    Test::new("numeric", "requant_onnx_rule", 3, 12, requant::onnx_rule),
    Test::new("numeric", "requant_gemmlowp", 1, 0, requant::gemmlowp),
    Test::new("numeric", "requant_fixed_rule", 3, 12, requant::fixed_rule),
    Test::new("numeric", "mx_blocks", 6, 0, mx::blocks),
    Test::new("numeric", "mx_expansion", 6, 0, mx::expansion).exhaustive(),
    Test::new("numeric", "packing", 1, 4, mx::packing),
    Test::new("numeric", "chooser", 6, 6, choose::chooser),
];

/// A number as its hexadecimal digits, for messages.
fn hex(word: u64) -> String {
    format!("{word:#x}")
}
