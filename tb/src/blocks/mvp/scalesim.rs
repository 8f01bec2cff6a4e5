//! Cycle counts of SCALE-Sim 3, weight-stationary; `tb/data/scalesim/make.py` made the table.

use crate::verify::Case;
use anyhow::ensure;
use mvp::{Config, Job, gemm_cycles_no_overlap};
use serde::Deserialize;

/// The entries of the table.
pub(super) const SHAPES: usize = 30;

#[derive(Deserialize)]
struct File {
    table: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    rows: usize,
    cols: usize,
    m: usize,
    n: usize,
    k: usize,
    cycles: u64,
}

/// One entry. SCALE-Sim reports the index of the last cycle, counted from 0, hence one less than their number; it loads R rows of
/// weights from the north where this array loads C columns from the west; and its sums end at the array, 1 + A edges before ours.
pub(super) fn shape(case: &mut Case) -> anyhow::Result<()> {
    let file: File = serde_json::from_str(include_str!("../../../data/scalesim/cycles.json"))?;
    ensure!(file.table.len() == SHAPES, "{} shapes in the file, not {SHAPES}", file.table.len());
    let Entry { rows, cols, m, n, k, cycles } = file.table[case.index];
    case.label(format!("{m}x{k}x{n} on {rows}x{cols}"));
    let (config, job) = (Config { rows, cols, ..Config::default() }.checked()?, Job { m, n, k }.checked()?);
    ensure!(m <= config.depth, "the table holds single M-blocks");
    let loads = (n.div_ceil(cols) * k.div_ceil(rows)) as u64;
    let ours = gemm_cycles_no_overlap(config, job) - (1 + config.accumulator_latency() as u64);
    case.equal("cycles without the loads", cycles + 1 - loads * rows as u64, ours - loads * cols as u64);
    if rows == cols {
        case.equal("cycles", cycles + 1, ours);
    }
    Ok(())
}
