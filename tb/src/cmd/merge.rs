//! `magpie merge`: the results of shards as those of one run.

use crate::{
    blocks,
    cmd::verify::Reports,
    verify::{self, Results},
};
use anyhow::{Context, bail};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Puts the results of all shards of a run together, and reports them as `verify` does.
///
/// Exit code 0: everything planned ran, compared at least one value and agreed. 1: something did not. 2: the results are not those of
/// one whole run, or cannot be read.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
EXAMPLE
  for i in 1 2 3; do magpie verify --shard $i/3 --results shards/$i.json; done
  magpie merge shards --html report.html")]
pub struct Args {
    /// Files of `magpie verify --results`, or folders of them
    #[arg(required = true, value_name = "FILE OR FOLDER")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    reports: Reports,
}

/// The file itself, or the .json files of a folder, by name.
fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.into()]);
    }
    let entries = std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut found: Vec<PathBuf> = entries.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    found.retain(|p| p.extension().is_some_and(|e| e == "json"));
    found.sort();
    if found.is_empty() {
        bail!("{} holds no .json file", path.display());
    }
    Ok(found)
}

/// Runs the command.
///
/// # Errors
/// Files that cannot be read or are not the shards of one run; a report that cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.reports.probe()?;
    let mut parts = Vec::new();
    for path in &args.paths {
        for file in files(path)? {
            // A shard that was broken off leaves its file empty; it is missing.
            if std::fs::metadata(&file).is_ok_and(|m| m.is_file() && m.len() == 0) {
                continue;
            }
            let results = Results::read(&file)?;
            parts.push((file, results));
        }
    }
    let plans = blocks::plans()?;
    let run = verify::assemble(&plans, &blocks::tests(), &Results::merge(parts)?);
    args.reports.write(&plans, &run)?;
    Ok(if run.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
