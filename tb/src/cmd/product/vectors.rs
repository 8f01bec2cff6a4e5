//! `--vectors`: a product as stimulus and expected outputs, cycle by cycle, for somebody else's RTL.

use crate::cosim::{Cycle, Datapath, Place, Stimulus, Tiles, schedule};
use anyhow::{Context, bail, ensure};
use mvp::{Code, Config, Datapath as Format, Job};
use numeric::FloatFormat;
use rtl::Module;
use std::fmt::Write;
use std::path::Path;

/// What stands in the folder, and how to use it.
fn readme(dir: &Path, config: Config) -> String {
    let Config { rows, cols, .. } = config;
    let dir = dir.display();
    format!("\
Vectors of the matrix-vector processor's datapath (feeder, array, deskew, accumulator), for $readmemh. One word a cycle.

stimulus.hex    inputs in the cycle, from bit 0 up: act (8 or 16 bits a row), valid, swap (a bit a row each), weight (as act), load, keep
                (a bit a row each), tag_valid, tag_first, tag_last, tag_end, tag_address 16, tag_lanes 9, enable, rst. Row 0 lowest
expected.hex    outputs before the rising edge, from bit 0 up: sum_out (32 bits a column, column 0 lowest), lanes_out 9, end_out, offers.
                Only offers counts where it is 0; columns past lanes_out never count
shape.hex       ROWS, COLS, DEPTH, FLOAT (0: INT8 into INT32, 1: BF16 into FP32 with L = A = 4), cycles: 32 bits each
mvp_vectors.sv  reads all this, drives a module with the ports of hw/sv/mvp_datapath.sv and checks it

With Icarus Verilog, from the folder that holds hw/sv (put your own files in the place of hw/sv/mvp_*.sv):
  iverilog -g2012 -s mvp_vectors -P mvp_vectors.ROWS={rows} -P mvp_vectors.COLS={cols} -o check {dir}/mvp_vectors.sv hw/sv/mvp_*.sv
  vvp check +vectors={dir}
")
}

/// Wires of the job's schedule, with its own operands.
fn cycles(config: Config, job: Job, x: &[Code], w: &[Code]) -> Vec<Cycle> {
    let Config { rows, cols, .. } = config;
    let tiles = job.k.div_ceil(rows);
    let panels = job.n.div_ceil(cols);
    let shape = Tiles {
        m: job.m,
        panels,
        tiles,
        last_depth: job.k - (tiles - 1) * rows,
        last_lanes: (job.n - (panels - 1) * cols) as u16,
    };
    schedule(config, &shape, |place| match place {
        Place::Act { tile, row, lane } => x[row * job.k + tile % tiles * rows + lane],
        Place::Weight { tile, column, lane } => {
            let (k, n) = (tile % tiles * rows + lane, tile / tiles * cols + column);
            if k < job.k && n < job.n { w[k * job.n + n] } else { 0 }
        }
    })
}

/// Writes the files of a product whose sums, INT32 or the bits of FP32, are `y`.
///
/// # Errors
/// A datapath or a size that the twin does not have; a folder or file that cannot be written; results that are not `y`.
pub fn write(dir: &Path, config: Config, job: Job, (x, w): (&[Code], &[Code]), y: &[u32]) -> anyhow::Result<()> {
    let float = match config.datapath {
        Format::Int8 => 0,
        d if d == Format::float(FloatFormat::BF16) && (config.mac_stages, config.adder_stages) == (4, 4) => 1,
        other => bail!("--vectors: the SystemVerilog twin has int8, and bf16 with 4 stages, not {other}"),
    };
    if job.m > config.depth {
        bail!("--vectors: {} rows do not fit the accumulator; --depth {} holds them", job.m, job.m)
    }
    let mut cycles = cycles(config, job, x, w);
    let reset = Cycle { reset: true, enable: false, ..cycles[0].clone() };
    cycles.insert(0, reset);
    let mut engine = Datapath::new(config);
    let (mut expected, mut rows) = (String::new(), 0);
    let panels = job.n.div_ceil(config.cols);
    for cycle in &cycles {
        engine.clock(cycle);
        let Some(row) = engine.out() else {
            let _ = writeln!(expected, "0");
            continue;
        };
        let (m, panel) = (rows % job.m, rows / job.m);
        ensure!(panel < panels, "the datapath gives a row too many");
        let from = m * job.n + panel * config.cols;
        let count = usize::from(row.lanes);
        let same = row.values[..count].iter().zip(&y[from..]).all(|(&sum, &y)| sum as u32 == y);
        ensure!(same, "row {m} of n-tile {panel} is not the product's");
        rows += 1;
        // A digit of offers and end, then lanes in 9 bits on top of whole words of sums.
        let top = 1u32 << 10 | u32::from(row.end) << 9 | u32::from(row.lanes);
        let _ = write!(expected, "{top:x}");
        row.values.iter().rev().for_each(|sum| {
            let _ = write!(expected, "{:08x}", *sum as u32);
        });
        expected.push('\n');
    }
    ensure!(rows == job.m * panels, "the datapath gave {rows} rows, not {}", job.m * panels);
    let cycle_count = cycles.len();
    let shape = [config.rows, config.cols, config.depth, float, cycle_count];
    let shape = shape.map(|n| format!("{n:08x}\n")).concat();
    let stimulus = Stimulus { config, cycles }.hex();
    let reader = include_str!("vectors.sv").to_string();
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
    for (name, text) in [
        ("README", readme(dir, config)),
        ("stimulus.hex", stimulus),
        ("expected.hex", expected),
        ("shape.hex", shape),
        ("mvp_vectors.sv", reader),
    ] {
        let path = dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    eprintln!(
        "magpie: wrote {} cycles of vectors into {}; its README has the simulator's command line",
        cycle_count,
        dir.display()
    );
    Ok(())
}
