//! `magpie sweep`: what a design choice does to TTFT, TPOT, traffic and use of the array.

use super::meter::Meter;
use super::run::idle_rows;
use crate::out;
use crate::sweep::{Grid, Line, Point, Study, Table, key, names, plots};
use crate::verify::Progress;
use anyhow::{Context, bail};
use comfy_table::presets::ASCII_MARKDOWN;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Measures a model on every point of a grid of designs: a table (CSV), plots (SVG), and the gains on standard output.
///
/// A sweep that was stopped goes on where it was: figures that the table holds are not measured again. They are known by a digest of all that they follow
/// from: another model, prompt, configuration or calibration is another point.
///
/// How long: a point takes the simulation of its prompt and of `decode_tokens` tokens at each context. SmolLM2-135M needs a second of a core for some 300
/// tokens of a prompt; a decoded token a twentieth of a second at short contexts, two seconds at 32,768. Contexts past the prompt are filled by
/// tiles of the prompt, which is fast.
///
/// Exit code 0: every point was measured. 2: some could not be (the reasons are on stderr, and the figures of the others in the table), or none.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
A SWEEP FILE (every combination of the lists is measured; what is left out is one value, the default's)
  model = \"smollm2\"                   kjv-1m, smollm2, a GGUF file or a folder
  text = \"prompt.txt\"                 the prompt is its beginning [a text that comes with Magpie]
  prompt_tokens = 128                 TTFT is that of this prompt; a multiple of 32
  decode_tokens = 4                   TPOT is the mean of so many tokens
  context = [512, 4096, 32768]        TPOT is measured with so many tokens held; multiples of 32
  array = [\"32x32\", \"64x64\"]          rows x columns, up to 256 each
  bandwidth = [32, 64]                DRAM bytes a cycle: 8, 16, 32 or 64
  decoders = [1, 16]                  decoder engines of the cache, up to 64
  format = [\"bf16\", \"int8\"]
  kv = [\"raw\", \"lossless\"]            as magpie run --kv takes them; slotN: N bytes a tile
  calibration = \"my.calibration\"      for lossy modes; kjv-1m and smollm2 bring their own
  config = [\"default\"]                edge, default, big, or TOML files

The first point of the lists is the baseline: gains are against it, at the same context.

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
    let study = Study::new(&grid, &source)?;
    let mut keys = Vec::new();
    let mut notes = Vec::new();
    for point in &points {
        let digest = study.digest(point).with_context(|| point.to_string())?;
        let key = |&context: &usize| key(&grid.model, point, grid.prompt_tokens, &digest, context);
        keys.push(point.contexts.iter().map(key).collect::<Vec<_>>());
        let note = idle_rows(point.format.parse()?, point.npu.array.rows);
        notes.extend(note.filter(|note| !notes.contains(note)));
    }
    let out = args.out.clone().unwrap_or_else(|| args.file.with_extension("csv"));
    let table = Table::open(&out)?;
    notes.iter().for_each(|note| eprintln!("{note}"));

    // Contexts of each point that the table lacks, with their keys.
    let lacking = |(point, keys): (&Point, &Vec<Vec<String>>)| {
        let pairs = point.contexts.iter().zip(keys).filter(|(_, key)| !table.knows(key));
        let (contexts, keys): (Vec<usize>, Vec<_>) = pairs.map(|(&context, key)| (context, key.clone())).unzip();
        (!contexts.is_empty()).then(|| (Point { contexts, ..point.clone() }, keys))
    };
    let open: Vec<(Point, Vec<Vec<String>>)> = points.iter().zip(&keys).filter_map(lacking).collect();
    let figures: usize = open.iter().map(|(point, _)| point.contexts.len()).sum();
    let threads = args.threads.map_or_else(super::verify::cores, usize::from);
    let meter = Meter::new("sweep", "figures");
    let (next, done, table, failed) =
        (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(table), Mutex::new(Vec::new()));
    let work = || {
        while let Some((point, keys)) = open.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut keys = keys.iter();
            let measured = study.measure(point, &mut |measured| {
                let key = keys.next().cloned().context("a figure more than contexts")?;
                lock(&table).add(key, point, &measured)?;
                meter.tick(done.fetch_add(1, Ordering::Relaxed) + 1, figures, &point.to_string());
                Ok(())
            });
            if let Err(error) = measured {
                lock(&failed).push(format!("{point}: {error:#}"));
            }
        }
    };
    std::thread::scope(|scope| (0..threads.min(open.len())).for_each(|_| drop(scope.spawn(work))));

    let lines = lock(&table).of(&keys.concat());
    let failed = failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !lines.is_empty() {
        outln!("{}\n", gains(&lines));
        outln!("{}: {} figures, {} of them new", out.display(), lines.len(), done.into_inner());
        let stem = out.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
        for (name, svg) in plots(&lines)? {
            let path = out.with_file_name(format!("{stem}-{name}"));
            out::save(&path, &svg)?;
            outln!("{}", path.display());
        }
    }
    if !failed.is_empty() {
        bail!("{} of {} points could not be measured:\n  {}", failed.len(), points.len(), failed.join("\n  "));
    }
    Ok(ExitCode::SUCCESS)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// TTFT and TPOT of each line, and how many times as fast it is as the first line of its context.
fn gains(lines: &[Line]) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header([
        "design",
        "tokens held",
        "TTFT ms",
        "faster",
        "TPOT ms",
        "faster",
        "tokens/s",
        "array used, prefill %",
    ]);
    let name = names(lines);
    for line in lines {
        let baseline = lines.iter().find(|l| l.text("context") == line.text("context")).unwrap_or(line);
        let faster = |column: &str| format!("{:.2}x", baseline.number(column) / line.number(column));
        table.add_row([
            name(line),
            line.text("context").into(),
            format!("{:.3}", line.number("ttft_ms")),
            faster("ttft_ms"),
            format!("{:.3}", line.number("tpot_ms")),
            faster("tpot_ms"),
            format!("{:.1}", line.number("tokens_per_second")),
            format!("{:.1}", 100.0 * line.number("prefill_utilisation")),
        ]);
    }
    table
}
