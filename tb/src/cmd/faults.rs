//! `magpie faults`: puts faults into the registers and looks which checkers notice.

use crate::{
    blocks,
    cmd::meter::Meter,
    out,
    verify::{self, inject},
};
use anyhow::bail;
use std::{path::PathBuf, process::ExitCode};

/// Flips and sticks bits of every block's registers while its own tests run, and reports which checker notices.
///
/// Each fault ends as detected (by the block's own bench), escaped (an output changed and the bench was silent: a hole),
/// latent (outputs right, state differs at the end) or masked (both right). Then each checker is switched off in turn: the fault that
/// it alone had noticed must go unnoticed, or the checker counts for nothing.
///
/// Exit code 0: in every block some faults changed an output, and the bench noticed at least 95 % of those (of a single fault: it did not
/// escape). 1: not so. 2: the command could not be carried out.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
EXAMPLES
  magpie faults --samples 100                     a quick look at every block
  magpie faults --block dma --samples 1000 --json dma.json
  magpie faults --block dma --sample 17           one fault again, with what the checkers said")]
pub struct Args {
    /// Only this block
    #[arg(long)]
    block: Option<String>,
    /// Faults a block
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    samples: u32,
    /// Only this fault
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    /// Seed of the faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Worker threads; default: one a core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Write figures, checkers and escaped faults as JSON ("-": to standard output, with nothing else there)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Least share of output-changing faults that a block's bench must notice, percent.
const LEAST: f64 = 95.0;

/// The commit of the tree in which the command runs.
fn revision() -> String {
    let git = std::process::Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let text = git.ok().filter(|o| o.status.success()).map(|o| String::from_utf8_lossy(&o.stdout).trim().to_string());
    text.unwrap_or_else(|| "an unknown commit".into())
}

/// Runs the command.
///
/// # Errors
/// An unknown block, one without clocked designs, a report that cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (plans, tests) = (blocks::plans()?, blocks::tests());
    let known: Vec<&str> = plans.iter().map(|p| p.block.as_str()).collect();
    if let Some(block) = &args.block
        && !known.contains(&block.as_str())
    {
        bail!("no block `{block}`: there are {}", known.join(", "));
    }
    out::probe([("--json", args.json.as_deref())])?;
    let threads = args.threads.map_or_else(super::verify::cores, usize::from);
    let campaign = inject::Campaign { samples: args.samples as usize, seed: args.seed, only: args.sample, threads };
    // Designs with a fault panic as a matter of course; each panic is a finding, not news.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut results = Vec::new();
    for block in known.iter().filter(|b| args.block.as_deref().is_none_or(|only| only == **b)) {
        results.extend(inject::inject(&plans, &tests, block, &campaign, &Meter::new("faults", "faults")));
    }
    std::panic::set_hook(hook);
    if results.is_empty() {
        bail!("no test of this block shows a clocked design to a probe");
    }
    if let Some(path) = &args.json {
        let command = format!("magpie faults --samples {} --seed {}", args.samples, args.seed);
        out::save(path, &format!("{:#}\n", verify::inject::json(&results, &command, &revision())))?;
    }
    if !args.json.as_deref().is_some_and(out::is_stdout) {
        out!("{}", verify::inject::summary(&results, args.sample.is_some()));
    }
    let shown = |b: &inject::BlockFaults| match args.sample {
        Some(_) => b.escaped == 0,
        None => b.detection.is_some_and(|share| share >= LEAST),
    };
    for b in results.iter().filter(|b| args.sample.is_none() && b.detection.is_none()) {
        eprintln!(
            "magpie: {}: none of {} faults changed an output, so nothing is shown: take more --samples",
            b.block, b.faults
        );
    }
    Ok(if results.iter().all(shown) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
