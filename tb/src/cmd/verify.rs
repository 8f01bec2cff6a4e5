//! `magpie verify`: runs the testplan.

use crate::{
    blocks,
    cmd::meter::Meter,
    out,
    verify::{self, Options, Plan, Run, Selection},
};
use anyhow::{Context, bail};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Runs the testplan and holds every block against its reference.
///
/// Exit code 0: everything planned ran, compared at least one value and agreed. 1: something did not. 2: the command could not be carried out.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Run only every N-th case, from the I-th on; `magpie merge` puts the results of all N together
    #[arg(long, value_name = "I/N", value_parser = shard, requires = "results")]
    shard: Option<(usize, usize)>,
    /// Write what was found, for `magpie merge`
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Print the testplan and end
    #[arg(long)]
    list: bool,
    /// Worker threads; default: one a core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    #[command(flatten)]
    reports: Reports,
    /// Folder for the waveforms of failing cases
    #[arg(long, default_value = "report/waves", value_name = "DIR")]
    waves: PathBuf,
    /// Write stimulus and expected outputs of the selected cases as $readmemh files, a folder a case (blocks: dma)
    #[arg(long, value_name = "DIR")]
    vectors: Option<PathBuf>,
}

/// How a run is reported.
#[derive(clap::Args, Debug)]
pub(crate) struct Reports {
    /// Write the report as one HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the run as JSON ("-": to standard output, with nothing else there)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Reports {
    fn files(&self) -> [(&'static str, Option<&Path>); 3] {
        [("--html", self.html.as_deref()), ("--junit", self.junit.as_deref()), ("--json", self.json.as_deref())]
    }

    /// Finds out before a long run whether its reports can be written.
    pub(crate) fn probe(&self) -> anyhow::Result<()> {
        out::probe(self.files())
    }

    /// Writes them, and the summary to standard output unless a report goes there.
    pub(crate) fn write(&self, plans: &[Plan], run: &Run) -> anyhow::Result<()> {
        if let Some(path) = &self.json {
            out::save(path, &format!("{:#}\n", verify::json(run)))?;
        }
        if let Some(path) = &self.junit {
            out::save(path, &verify::junit(run))?;
        }
        if let Some(path) = &self.html {
            out::save(path, &verify::html(plans, run)?)?;
        }
        let taken = self.files().iter().any(|(_, path)| path.is_some_and(out::is_stdout));
        if !taken {
            out!("{}", verify::summary(run));
        }
        Ok(())
    }
}

/// `3/8`: the third of eight shards.
fn shard(text: &str) -> Result<(usize, usize), String> {
    let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    match parts {
        Some((i, n)) if (1..=n).contains(&i) => Ok((i, n)),
        _ => Err("a shard is I/N with 1 <= I <= N, such as 3/8".into()),
    }
}

/// Cores of this machine, as many as this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs the command.
///
/// # Errors
/// An unknown block or point, a bad factor, a report that cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (plans, tests, selection) = (blocks::plans()?, blocks::tests(), &args.selection);
    if let Some(block) = &selection.block
        && !plans.iter().any(|p| p.block == *block)
    {
        let known: Vec<_> = plans.iter().map(|p| p.block.as_str()).collect();
        bail!("no block `{block}`: there are {}", known.join(", "));
    }
    if let Some(point) = &selection.point
        && !plans
            .iter()
            .any(|plan| plan.points.iter().any(|p| p.id == *point || format!("{}.{}", plan.block, p.id) == *point))
    {
        bail!("no point `{point}` in the testplan: `magpie verify --list` prints all");
    }
    if !(selection.cases > 0.0 && selection.cases <= 1e6) {
        bail!("--cases {}: the factor must lie above 0 and at most at 1,000,000", selection.cases);
    }
    if args.list {
        let plans: Vec<_> =
            plans.into_iter().filter(|p| selection.block.as_deref().is_none_or(|b| b == p.block)).collect();
        out!("{}", verify::listing(&plans));
        return Ok(ExitCode::SUCCESS);
    }
    args.reports.probe()?;
    if let Some(path) = &args.results {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("--results: cannot make {}", folder.display()))?;
        }
        out::probe_file("--results", path)?;
    }
    out::distinct(args.reports.files().into_iter().chain([("--results", args.results.as_deref())]))?;
    let threads = args.threads.map_or_else(cores, usize::from);
    let options = Options {
        selection: args.selection.clone(),
        shard: args.shard.unwrap_or((1, 1)),
        threads,
        waves: args.waves.clone(),
        vectors: args.vectors.clone(),
    };
    let results = verify::execute(&plans, &tests, &options, &Meter::new("verify", "cases"));
    if let Some(path) = &args.results {
        out::save(path, &serde_json::to_string(&results)?)?;
    }
    let result = verify::assemble(&plans, &tests, &results);
    if let Some(dir) = &args.vectors {
        let folders: u64 = result.points().map(|p| p.total.vectors).sum();
        if folders == 0 {
            bail!("--vectors: no selected case writes vectors; `--point dma.presets` has some");
        }
        eprintln!("verify: vectors of {folders} scenarios in {}", dir.display());
    }
    args.reports.write(&plans, &result)?;
    Ok(if result.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
