//! `magpie cosim`: the SystemVerilog twins against the cycle engine.

use crate::cosim::{CosimError, MAX_CYCLES, Outcome, Simulator, Stimulus, compare};
use anyhow::{Context, bail};
use mvp::{Config, Datapath};
use numeric::FloatFormat;
use rtl::FaultInjector;
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs the SystemVerilog twins of hw/sv in Verilator and Icarus and compares every register of every processing element,
/// feeder, deskew and accumulator with the cycle engine's in every cycle.
///
/// Exit code 0: no difference, and the control run (one bit flipped) was found out. 1: otherwise. 2: the tools are missing or failed.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Shapes of the array
    #[arg(long, value_name = "RxC", value_delimiter = ',', default_value = "1x1,3x5,8x8,16x4")]
    array: Vec<String>,
    /// Datapaths: int8, bf16
    #[arg(long, value_name = "FORMAT", value_delimiter = ',', default_value = "int8,bf16")]
    format: Vec<String>,
    /// Cycles of each shape
    #[arg(long, default_value_t = 4000)]
    cycles: usize,
    /// Seed of the stimulus
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this simulator: verilator or icarus
    #[arg(long)]
    simulator: Option<String>,
    /// Folder for builds and dumps
    #[arg(long, default_value = "report/cosim", value_name = "DIR")]
    out: PathBuf,
    /// Folder of the twins
    #[arg(long, default_value = "hw/sv", value_name = "DIR")]
    sources: PathBuf,
}

/// D of the twin: small, so that rows are summed again and again.
const DEPTH: usize = 16;

/// Runs the command.
///
/// # Errors
/// Bad arguments; a simulator that is missing or fails.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let simulators = match args.simulator.as_deref() {
        None => vec![Simulator::Verilator, Simulator::Icarus],
        Some("verilator") => vec![Simulator::Verilator],
        Some("icarus") => vec![Simulator::Icarus],
        Some(other) => bail!("no simulator `{other}`: there are verilator and icarus"),
    };
    if !(8..=MAX_CYCLES).contains(&args.cycles) {
        bail!("--cycles {}: between 8 and {MAX_CYCLES}", args.cycles);
    }
    if !args.sources.join("mvp_pe.sv").exists() {
        bail!("no twins in {}: run from the repository's root, or give --sources", args.sources.display());
    }
    let mut sound = true;
    for (shape, format) in args.array.iter().flat_map(|shape| args.format.iter().map(move |format| (shape, format))) {
        let (rows, cols) = parse(shape)?;
        let datapath = match format.as_str() {
            "int8" => Datapath::Int8,
            "bf16" => Datapath::float(FloatFormat::BF16),
            other => bail!("--format {other}: the twins are int8 and bf16"),
        };
        let config = Config { rows, cols, depth: DEPTH, datapath, ..Config::default() }.checked()?;
        let stimulus = Stimulus::new(config, args.cycles, args.seed);
        let shape = format!("{shape}-{format}");
        let folder = args.out.join(&shape);
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let vectors = folder.join("stimulus.hex");
        std::fs::write(&vectors, stimulus.hex()).with_context(|| format!("cannot write {}", vectors.display()))?;
        for &simulator in &simulators {
            let build = simulator.build(&args.sources, &folder, &stimulus)?;
            let dump = folder.join(simulator.name().to_lowercase()).with_extension("vcd");
            build.run(&vectors, args.cycles, &dump)?;
            let outcome = compare(&stimulus, &dump, None)?;
            sound &= report(&shape, simulator, &outcome) & control(&stimulus, &dump, &outcome)?;
        }
    }
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn parse(shape: &str) -> anyhow::Result<(usize, usize)> {
    let sides = shape.split_once('x').and_then(|(r, c)| Some((r.parse().ok()?, c.parse().ok()?)));
    match sides {
        Some((r @ 1..=64, c @ 1..=64)) => Ok((r, c)),
        _ => bail!("--array {shape}: ROWSxCOLS, each 1 to 64, as in 8x8"),
    }
}

fn report(shape: &str, simulator: Simulator, outcome: &Outcome) -> bool {
    let Outcome { signals, cycles, compared, mismatches, first, .. } = outcome;
    outln!(
        "{shape:>10} {:<9} {signals:>5} registers x {cycles} cycles: {compared} values compared, {mismatches} differ",
        simulator.name()
    );
    if let Some(m) = first {
        outln!(
            "       first in cycle {}: {} is {:#x} in the engine, {} in the twin",
            m.cycle,
            m.path,
            m.engine,
            m.twin
        );
    }
    *compared > 0 && *mismatches == 0
}

/// Flips the top bit of one register half-way: the comparison must name that register and cycle.
fn control(stimulus: &Stimulus, dump: &std::path::Path, clean: &Outcome) -> Result<bool, CosimError> {
    let cycle = stimulus.cycles.len() / 2 + 1;
    let fault = FaultInjector { signal: clean.steering, mask: 1, stuck: None };
    let outcome = compare(stimulus, dump, Some((cycle, fault)))?;
    let found = outcome.first.as_ref().is_some_and(|m| m.cycle == cycle);
    match outcome.first {
        Some(m) if found => outln!("       control: one bit flipped in {}, reported in cycle {}", m.path, m.cycle),
        _ => outln!("       control: one bit flipped in cycle {cycle} and NOT reported"),
    }
    Ok(found)
}
