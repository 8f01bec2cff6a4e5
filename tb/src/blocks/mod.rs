//! The benches, one folder a block, and the registry that `magpie verify` runs.

pub mod dma;
pub mod mvp;
pub mod nkz;
pub mod npu;
pub mod numeric;
pub mod rtl;
pub mod vector;

use crate::verify::{Plan, Test};

/// The testplans, in the order in which they are reported.
const PLANS: &[&str] = &[
    include_str!("../../testplan/rtl.toml"),
    include_str!("../../testplan/numeric.toml"),
    include_str!("../../testplan/mvp.toml"),
    include_str!("../../testplan/dma.toml"),
    include_str!("../../testplan/nkz.toml"),
    include_str!("../../testplan/vector.toml"),
    include_str!("../../testplan/npu.toml"),
];

/// All testplans.
///
/// # Errors
/// Names the line of a plan that does not parse.
pub fn plans() -> anyhow::Result<Vec<Plan>> {
    PLANS.iter().map(|text| Ok(Plan::parse(text)?)).collect()
}

/// All tests of all blocks.
pub fn tests() -> Vec<Test> {
    [rtl::TESTS, numeric::TESTS, mvp::TESTS, dma::TESTS, nkz::TESTS, vector::TESTS, npu::TESTS].concat()
}
