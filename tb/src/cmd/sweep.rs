//! `magpie sweep`: what a design choice does to TTFT, TPOT, traffic and use of the array.

use crate::sweep::{Grid, Point, Table, measure, plots, prompt};
use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Measures a model on every point of a grid of designs: a table (CSV) and plots (SVG).
///
/// A sweep that was stopped goes on where it was: figures that the table holds are not measured again.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
A SWEEP FILE (every combination of the lists is measured; what is left out is one value, the default's)
  model = \"smollm2\"                   kjv-1m, smollm2, a GGUF file or a folder
  prompt_tokens = 128                 TTFT is that of this prompt
  context = [512, 4096, 32768]        TPOT is measured with so many tokens held
  array = [\"32x32\", \"64x64\"]
  bandwidth = [32, 64]                DRAM bytes a cycle
  decoders = [1, 8]
  format = [\"bf16\", \"int8\"]
  kv = [\"raw\", \"lossless\"]
  config = [\"default\"]                edge, default, big, or TOML files

EXAMPLES
  magpie sweep sweeps/kjv.toml        writes sweeps/kjv.csv, sweeps/kjv-tpot.svg …
  magpie sweep sweeps/kjv.toml --out kjv.csv --threads 1")]
pub struct Args {
    /// The sweep
    file: PathBuf,
    /// The table; plots lie beside it [default: FILE with .csv]
    #[arg(long, value_name = "CSV")]
    out: Option<PathBuf>,
    /// Points measured side by side [default: one a core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

/// Runs the command.
///
/// # Errors
/// A sweep file that is refused, a model that cannot be loaded, a point that the machine cannot run, files that cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let grid = Grid::read(&args.file)?;
    let points = grid.points()?;
    let source = crate::run::source(&grid.model)?;
    let ids = prompt(&grid, &source)?;
    let out = args.out.clone().unwrap_or_else(|| args.file.with_extension("csv"));
    let table = Table::open(&out)?;
    let open: Vec<Point> = points
        .iter()
        .filter_map(|point| {
            let missing = |c: &usize| !table.knows(point, grid.prompt_tokens, *c);
            let contexts: Vec<_> = point.contexts.iter().copied().filter(missing).collect();
            (!contexts.is_empty()).then(|| Point { contexts, ..point.clone() })
        })
        .collect();
    let figures: usize = open.iter().map(|p| p.contexts.len()).sum();
    let bar = ProgressBar::new(figures as u64)
        .with_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} figures, {elapsed} gone, {eta} to go")?);
    let threads = match args.threads {
        Some(threads) => usize::from(threads),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let (next, table) = (AtomicUsize::new(0), Mutex::new(table));
    let work = || -> anyhow::Result<()> {
        while let Some(point) = open.get(next.fetch_add(1, Ordering::Relaxed)) {
            let what = || {
                format!(
                    "{} {}x{} {} {}",
                    point.config, point.npu.array.rows, point.npu.array.cols, point.format, point.kv
                )
            };
            measure(&grid, &source, &ids, point, &mut |measured| {
                bar.inc(1);
                let mut table = table.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                table.add(point, grid.prompt_tokens, &measured)
            })
            .with_context(what)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.min(open.len())).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    bar.finish_and_clear();
    let table = table.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    println!("{}: {} figures, {figures} of them new", out.display(), table.lines().len());
    let stem = out.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
    for (name, svg) in plots(table.lines())? {
        let path = out.with_file_name(format!("{stem}-{name}"));
        std::fs::write(&path, svg).with_context(|| path.display().to_string())?;
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}
