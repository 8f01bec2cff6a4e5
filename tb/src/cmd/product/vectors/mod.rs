//! `--vectors`: a product as stimulus and expected outputs, cycle by cycle, for somebody else's RTL.

mod parts;
mod readme;

use crate::cosim::{Datapath, Stimulus};
use anyhow::{Context, bail, ensure};
use mvp::{Code, Config, Datapath as Format, Job, OutRow};
use numeric::FloatFormat;
use parts::{Part, Product, Rows, parts};
use rtl::Module;
use std::fmt::Write;
use std::path::Path;

/// Whether row `taken` of a part is what it has to be.
fn fits(rows: &Rows, config: Config, taken: usize, row: &OutRow) -> bool {
    let count = usize::from(row.lanes);
    row.values[..count].iter().enumerate().all(|(c, &sum)| {
        let wanted = match rows {
            Rows::First(product) | Rows::All(product) => {
                let (m, panel) = (taken % product.job.m, taken / product.job.m);
                product.y.get(m * product.job.n + panel * config.cols + c).copied()
            }
            Rows::Zero => Some(0),
            Rows::Wrapped(adds) => {
                let weight = if c == 0 { 127 } else { 128 };
                Some((config.rows as u32 * 128 * weight).wrapping_mul(*adds))
            }
        };
        wanted == Some(sum as u32)
    })
}

/// The outputs before every edge, as `$readmemh` reads them, held against what each part's rows must be.
fn expected(config: Config, parts: &[Part]) -> anyhow::Result<String> {
    let mut engine = Datapath::new(config);
    let mut text = String::new();
    let blank = OutRow::blank(config.cols);
    for part in parts {
        let mut taken = 0;
        let mut overflow = false;
        for cycle in &part.cycles {
            engine.clock(cycle);
            let out = engine.out();
            overflow |= out.overflow && !cycle.reset;
            let row = out.row.unwrap_or(&blank);
            if out.row.is_some() && cycle.enable && !cycle.reset {
                ensure!(fits(&part.rows, config, taken, row), "{}: row {taken} is not what it must be", part.what);
                taken += 1;
            }
            // Three digits of overflow, offers, end and lanes on top of whole words of sums.
            let top = u32::from(out.overflow) << 11
                | u32::from(out.row.is_some()) << 10
                | u32::from(row.end) << 9
                | u32::from(row.lanes);
            let _ = write!(text, "{top:03x}");
            row.values.iter().rev().for_each(|sum| {
                let _ = write!(text, "{:08x}", *sum as u32);
            });
            text.push('\n');
        }
        match &part.rows {
            Rows::All(product) => {
                let rows = product.job.m * product.job.n.div_ceil(config.cols);
                ensure!(taken == rows, "the datapath gave {taken} rows, not {rows}");
            }
            Rows::Wrapped(_) => ensure!(taken == 1 && overflow, "no sum left 32 bits"),
            Rows::First(_) | Rows::Zero => {}
        }
        ensure!(overflow == matches!(part.rows, Rows::Wrapped(_)), "{}: overflow is {overflow}", part.what);
    }
    Ok(text)
}

/// Writes the files of a product whose sums, INT32 or the bits of FP32, are `y`.
///
/// # Errors
/// A datapath or a size that the twin does not have; a folder or file that cannot be written; results that are not `y`.
pub fn write(
    dir: &Path,
    config: Config,
    job: Job,
    (x, w): (&[Code], &[Code]),
    y: &[u32],
    seed: u64,
) -> anyhow::Result<()> {
    let float = match config.datapath {
        Format::Int8 => 0,
        d if d == Format::float(FloatFormat::BF16) && (config.mac_stages, config.adder_stages) == (4, 4) => 1,
        other => bail!("--vectors: the SystemVerilog twin has int8, and bf16 with 4 stages, not {other}"),
    };
    if job.m > config.depth {
        bail!("--vectors: {} rows do not fit the accumulator; --depth {} holds them", job.m, job.m)
    }
    let product = Product { job, x: x.to_vec(), w: w.to_vec(), y: y.to_vec() };
    let parts = parts(config, product, seed)?;
    let expected = expected(config, &parts)?;
    let readme = readme::readme(dir, config, &parts);
    let cycles: Vec<_> = parts.into_iter().flat_map(|part| part.cycles).collect();
    let cycle_count = cycles.len();
    let shape = [config.rows, config.cols, config.depth, float, cycle_count];
    let shape = shape.map(|n| format!("{n:08x}\n")).concat();
    let stimulus = Stimulus { config, cycles }.hex();
    let reader = include_str!("vectors.sv").to_string();
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
    for (name, text) in [
        ("README", readme),
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
