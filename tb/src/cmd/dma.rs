//! `magpie dma`: runs descriptors on the data-movement engine.

mod rules;

use crate::blocks::dma::bench::{self, Bench, Scenario};
use crate::blocks::dma::memory::Timing;
use crate::blocks::dma::{reference::Image, vectors};
use crate::wave::{Trace, TraceOptions};
use crate::{input, out};
use anyhow::{Context, bail};
use dma::{Completion, Config, Descriptor, JobError, Preset, REGIONS, Region, Report, WIRE_ALIGN, chain};
use serde::Deserialize;
use std::{fs, path::PathBuf, process::ExitCode};

/// Runs a file of jobs on the data-movement engine: memory image in, memory image and counters out.
///
/// Exit code 0: every job was done. 1: one was refused or met a bus error. 2: the command could not be carried out.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
THE FILE (TOML; JSON by its ending .json)
  [engine]                      sizes, all optional: bus_bytes = 64, reads_in_flight = 128, writes_in_flight = 128
  latency = 100                 cycles from AR to R and from the last W to B, 1 to 100000 (before any [table])

  [[region]]                    number 0, 1, ... in order of appearance; a job may touch nothing else
  base = 0x0000
  bytes = 0x8000
  access = \"r\"                  r, w or rw

  [[job]]                       a preset ...
  preset = \"gather_rows\"        copy2d copy3d gather_rows gather_planes scatter_rows scatter_planes permute im2col
  element = \"b2\"                interleave deinterleave broadcast fill kv_pages; element: int4 b1 b2 b4 b8
  shape = [64, 128]
  source = { region = 0, offset = 0 }
  ...
  [[job]]                       ... or a descriptor, field by field
  element = \"b1\"
  counts = [1, 16, 64]
  source = { region = 0, strides = [0, 256, 1] }
  destination = { region = 1, strides = [0, 64, 1] }

  Jobs run in order, as one chain. The image lies at address 0. docs/dma.md
  has the table of presets and fields; tb/examples/dma has files to start from.

EXAMPLE
  head -c 65536 /dev/urandom >in.bin
  magpie dma tb/examples/dma/gather.toml --memory in.bin --out out.bin")]
pub struct Args {
    /// The jobs
    file: PathBuf,
    /// Memory image before
    #[arg(long, value_name = "FILE")]
    memory: PathBuf,
    /// Memory image after; as long as the one before
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Use the transaction engine: the same bytes, cycles and counters, many times faster
    #[arg(long)]
    fast: bool,
    /// Write a waveform of the run (.vcd or .fst)
    #[arg(long, value_name = "FILE", conflicts_with = "fast")]
    trace: Option<PathBuf>,
    /// Write stimulus and expected outputs as $readmemh files
    #[arg(long, value_name = "DIR")]
    vectors: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    engine: Config,
    #[serde(default = "latency")]
    latency: u64,
    #[serde(default)]
    region: Vec<RegionEntry>,
    #[serde(default)]
    job: Vec<toml::Table>,
}

fn latency() -> u64 {
    100
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegionEntry {
    base: u64,
    bytes: u64,
    access: Access,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Access {
    R,
    W,
    Rw,
}

/// Largest memory image, bytes.
const MAX_IMAGE: u64 = 1 << 30;
/// Largest file of jobs, bytes.
const MAX_JOBS: u64 = 1 << 26;
/// Longest latency, cycles.
const MAX_LATENCY: u64 = 100_000;

/// A descriptor's place in the file.
#[derive(Clone, Copy)]
struct Job {
    number: usize,
    preset: Option<&'static str>,
    /// The file gives its tag, so the report shows it.
    tagged: bool,
}

impl std::fmt::Display for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.number)?;
        self.preset.map_or(Ok(()), |name| write!(f, " {name}"))
    }
}

/// What a run gives, for the reports.
struct Done {
    jobs: Vec<(Job, Descriptor)>,
    /// Those that a job may touch.
    regions: Vec<Region>,
    config: Config,
    report: Report,
}

impl Done {
    /// What the field that a job was refused for has to be.
    fn rule(&self, job: usize, completion: &Completion) -> Option<String> {
        match (self.jobs.get(job), completion.result()) {
            (Some((_, d)), Err(JobError::Refused(refusal))) => rules::broken(d, &self.regions, &self.config, refusal),
            _ => None,
        }
    }
}

fn parse(args: &Args) -> anyhow::Result<(File, Vec<(Job, Descriptor)>)> {
    let shown = args.file.display();
    let bytes = input::read(&args.file, MAX_JOBS)?;
    let text = String::from_utf8(bytes).with_context(|| format!("{shown} is no text in UTF-8"))?;
    let json = args.file.extension().is_some_and(|e| e == "json");
    let file: File = if json {
        serde_json::from_str(&text).with_context(|| format!("{shown} is no file of jobs"))?
    } else {
        toml::from_str(&text).with_context(|| format!("{shown} is no file of jobs"))?
    };
    if !(1..=MAX_LATENCY).contains(&file.latency) {
        bail!("{shown}: latency = {}: from 1 to {MAX_LATENCY} cycles", file.latency);
    }
    if file.job.is_empty() {
        bail!("{shown} has no [[job]]: `magpie dma --help` shows one");
    }
    let mut jobs = Vec::new();
    for (n, table) in file.job.iter().enumerate() {
        let context = || format!("{shown}: job {n}");
        if table.contains_key("preset") {
            let preset: Preset = table.clone().try_into().with_context(context)?;
            let descriptors = preset.descriptors().with_context(context)?;
            let job = Job { number: n, preset: Some(preset.name()), tagged: false };
            jobs.extend(descriptors.into_iter().map(|d| (job, d)));
        } else {
            let descriptor: Descriptor = table.clone().try_into().with_context(context)?;
            if descriptor.link.is_some() {
                bail!("{shown}: job {n}: link: the jobs of a file are one chain, linked in their order; leave it out");
            }
            jobs.push((Job { number: n, preset: None, tagged: table.contains_key("tag") }, descriptor));
        }
    }
    for (place, (job, descriptor)) in jobs.iter_mut().enumerate() {
        if !job.tagged {
            descriptor.tag = place as u32;
        }
    }
    Ok((file, jobs))
}

/// Lays memory, regions and chain out.
fn scenario(args: &Args, file: &File, jobs: &[(Job, Descriptor)]) -> anyhow::Result<(Scenario, usize)> {
    let shown = args.memory.display();
    let mut bytes = input::read(&args.memory, MAX_IMAGE)?;
    let image = bytes.len();
    if file.region.len() >= REGIONS {
        bail!("{} regions; at most {} fit beside the one that holds the descriptors", file.region.len(), REGIONS - 1);
    }
    let mut regions = Vec::new();
    for (n, r) in file.region.iter().enumerate() {
        if r.base.checked_add(r.bytes).is_none_or(|end| end > 1 << dma::ADDRESS_BITS) {
            bail!(
                "region {n}: base {:#x} and {:#x} bytes pass the {} address bits",
                r.base,
                r.bytes,
                dma::ADDRESS_BITS
            );
        }
        if r.base + r.bytes > image as u64 {
            bail!(
                "region {n} ends at {:#x}, past the {image:#x} bytes of {shown}: give a larger image or a smaller region",
                r.base + r.bytes
            );
        }
        let (read, write) = (!matches!(r.access, Access::W), !matches!(r.access, Access::R));
        regions.push(Region { base: r.base, limit: r.base + r.bytes, read, write });
    }
    let at = (image as u64).next_multiple_of(WIRE_ALIGN);
    let descriptors: Vec<_> = jobs.iter().map(|j| j.1).collect();
    let wire = chain(&descriptors, at);
    bytes.resize(at as usize, 0);
    bytes.extend(&wire);
    regions.push(Region::read_only(at, wire.len() as u64));
    let scenario = Scenario {
        config: file.engine,
        regions,
        image: Image { base: 0, bytes },
        doorbells: vec![at],
        bad: Vec::new(),
        timing: Timing::fixed(file.latency),
        host_busy: 0.0,
        seed: 0,
    };
    Ok((scenario, image))
}

fn simulate(args: &Args, s: &Scenario) -> anyhow::Result<(Vec<u8>, Report)> {
    if args.fast {
        return bench::predict(s);
    }
    let mut bench = Bench::new(s)?;
    let ran = if let Some(path) = &args.trace {
        let mut trace = Trace::create(path, "dma", &TraceOptions::default())?;
        let ran = bench.run_traced(&mut trace);
        trace.finish()?;
        ran?
    } else {
        bench.run()
    };
    if ran.hung {
        bail!("the engine came to no end: a fault of the model");
    }
    Ok((ran.bytes, Report { completions: ran.completions, counters: ran.counters }))
}

/// Runs the command.
///
/// # Errors
/// A file that cannot be read, parsed or written; an engine or a region that cannot be built.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (file, jobs) = parse(args)?;
    file.engine.check()?;
    out::probe_file("--out", &args.out)?;
    let folder = args.vectors.as_deref();
    out::distinct([("--out", Some(args.out.as_path())), ("--trace", args.trace.as_deref()), ("--vectors", folder)])?;
    let (s, image) = scenario(args, &file, &jobs)?;
    let (bytes, report) = simulate(args, &s)?;
    fs::write(&args.out, &bytes[..image]).with_context(|| format!("cannot write {}", args.out.display()))?;
    if let Some(dir) = &args.vectors {
        let completions: Vec<_> = report.completions.iter().map(|c| c.1).collect();
        vectors::write(dir, &s, &vectors::Expected { bytes: &bytes, completions: &completions })?;
    }
    let result = Done { jobs, regions: s.regions, config: s.config, report };
    if args.json {
        outln!("{:#}", json(&result, file.engine.bus_bytes));
    } else {
        print(&result, file.engine.bus_bytes);
    }
    let failed = result.report.completions.iter().any(|c| c.1.result().is_err());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn json(r: &Done, bus: u32) -> serde_json::Value {
    // A chain completes in its order.
    let job = |(place, (cycle, c)): (usize, &(u64, Completion))| {
        let of = r.jobs.get(place);
        let error = c.result().err();
        let field = match error {
            Some(JobError::Refused(refusal)) => Some(refusal.field.name()),
            Some(JobError::BadIndex { field, .. }) => Some(field.name()),
            _ => None,
        };
        serde_json::json!({
            "job": of.map(|j| j.0.number),
            "preset": of.and_then(|j| j.0.preset),
            "tag": c.tag,
            "cycle": cycle,
            "outcome": format!("{:?}", c.outcome),
            "field": field,
            "error": error.map(|e| e.to_string()),
            "rule": r.rule(place, c),
        })
    };
    serde_json::json!({
        "jobs": r.report.completions.iter().enumerate().map(job).collect::<Vec<_>>(),
        "traffic": r.report.counters.traffic,
        "bytes_on_bus": r.report.counters.traffic.bus_bytes(bus),
        "efficiency": r.report.counters.traffic.efficiency(bus),
        "stalls": r.report.counters.stalls,
    })
}

fn print(r: &Done, bus: u32) {
    for (place, (cycle, c)) in r.report.completions.iter().enumerate() {
        let job = r.jobs.get(place).map(|j| j.0);
        let mut name = job.map_or_else(|| "?".into(), |job| job.to_string());
        if job.is_some_and(|job| job.tagged) {
            name += &format!(", tag {:#x}", c.tag);
        }
        match c.result() {
            Ok(()) => outln!("cycle {cycle:>8}  job {name}: done"),
            Err(e) => {
                let rule = r.rule(place, c).map_or_else(String::new, |rule| format!(" ({rule})"));
                outln!("cycle {cycle:>8}  job {name}: {e}{rule}");
            }
        }
    }
    let (t, s) = (&r.report.counters.traffic, &r.report.counters.stalls);
    outln!("{} cycles from the first AR to the last B, {:.1} % of the bus", t.cycles, 100.0 * t.efficiency(bus));
    outln!("read     {:>10} beats in {} bursts", t.read_beats, t.read_bursts);
    outln!(
        "written  {:>10} beats in {} bursts, {} bytes by the strobes",
        t.write_beats,
        t.write_bursts,
        t.useful_bytes
    );
    outln!(
        "cycles waiting: descriptor {}, index list {}, order {}, reads all in flight {}",
        s.descriptor,
        s.index,
        s.order,
        s.reads_full
    );
    outln!(
        "                read data {}, write data {}, AR {}, AW {}, W {}",
        s.read_data,
        s.write_data,
        s.ar,
        s.aw,
        s.w
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use dma::{IndexList, Kernel, List, Place, Side, Window};
    use serde::de::DeserializeOwned;

    const DOCS: &str = include_str!("../../../docs/dma.md");

    /// The names that serde says it would have taken.
    fn wanted(error: &str) -> Vec<String> {
        let (_, list) = error.split_once("expected").expect("the names follow");
        list.split('`').skip(1).step_by(2).map(String::from).collect()
    }

    fn fields<T: DeserializeOwned>() -> Vec<String> {
        let error = toml::from_str::<T>("no_such_field = 1").err().expect("no such field").to_string();
        wanted(&error)
    }

    #[test]
    fn every_preset_and_field_stands_in_the_documentation() {
        let preset = |name: &str| {
            let text = format!("preset = {name:?}\nno_such_field = 1\nelement = \"b1\"");
            wanted(&toml::from_str::<Preset>(&text).expect_err("no such field").to_string())
        };
        let presets = preset("no_such_preset");
        assert!(presets.len() == 13 && presets.contains(&"kv_pages".to_string()), "{presets:?}");
        for name in presets {
            let row = DOCS.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
            let row = row.unwrap_or_else(|| panic!("docs/dma.md has no row of `{name}`"));
            for field in preset(&name) {
                assert!(row.contains(&format!("`{field}`")), "{name}: docs/dma.md lacks `{field}`");
            }
        }
        for (place, fields) in [
            ("file", fields::<File>()),
            ("engine", fields::<Config>()),
            ("region", fields::<RegionEntry>()),
            ("descriptor", fields::<Descriptor>()),
            ("side", fields::<Side>()),
            ("index", fields::<IndexList>()),
            ("window", fields::<Window>()),
            ("place", fields::<Place>()),
            ("list", fields::<List>()),
            ("kernel", fields::<Kernel>()),
        ] {
            assert!(fields.len() > 1, "{place}: {fields:?}");
            for field in fields {
                let row = DOCS.lines().any(|line| line.starts_with(&format!("| {place} | `{field}`")));
                assert!(row, "docs/dma.md has no row `| {place} | `{field}``");
            }
        }
    }
}
