//! The cycle engine against Verilator on the SystemVerilog twin: feeder, array, deskew and accumulator on one stimulus, every register
//! clocked, one thread each; results are held equal. And the same with a waveform.

use anyhow::{Context, bail, ensure};
use mvp::{Config, Datapath as Format, WestRow};
use numeric::FloatFormat;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rtl::Module;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use tb::cosim::{Cycle, Datapath, MODULES, Tiles, operands, schedule};
use tb::ratio::{PAIRS, Ratio, Target, compare};
use tb::wave::{Trace, TraceOptions};

/// Tiles that are replayed.
const WINDOW: usize = 4;
/// Fewest cycles of a run without a trace.
const LEAST: usize = 200_000;
/// Cycles of a traced run.
const TRACED: usize = 4_000;
/// Runs of the engine that are timed as one where nothing is traced: a single one is over before a clock that drifts has settled.
const RUNS: usize = 10;

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A record a cycle, as array.cpp reads it.
fn bytes(config: Config, cycles: &[Cycle]) -> Vec<u8> {
    let mut out = Vec::new();
    let width = config.datapath.act_width() as usize / 8;
    for Cycle { reset, enable, rows, tag } in cycles {
        rows.iter().for_each(|w| out.extend(&w.act.to_le_bytes()[..width]));
        rows.iter().for_each(|w| out.extend(&w.weight.to_le_bytes()[..width]));
        let bits: [fn(&WestRow) -> bool; 4] = [|w| w.valid, |w| w.swap, |w| w.load, |w| w.keep];
        for bit in bits {
            out.extend(rows.chunks(8).map(|rows| rows.iter().rev().fold(0, |byte, w| byte << 1 | u8::from(bit(w)))));
        }
        out.extend([tag.valid, tag.first, tag.last, tag.end].map(u8::from));
        out.extend(tag.address.to_le_bytes());
        out.extend(tag.lanes.to_le_bytes());
        out.extend([enable, reset].map(|&bit| u8::from(bit)));
    }
    out
}

/// The twin, compiled, with its stimulus in memory.
struct Twin {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Twin {
    fn new(config: Config, cycles: &[Cycle], traced: bool) -> anyhow::Result<Self> {
        let Config { rows, cols, depth, datapath, .. } = config;
        let name = format!("{rows}x{cols}-{datapath}{}", if traced { "-traced" } else { "" });
        let folder = root().join("target/bench-array").join(name);
        std::fs::create_dir_all(&folder)?;
        let stimulus = folder.join("stimulus.bin");
        std::fs::write(&stimulus, bytes(config, cycles))?;
        let float = u8::from(datapath.is_float());
        let mut build = Command::new("verilator");
        build.args(["--cc", "--exe", "--build", "-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert"]);
        // Only what runs every cycle is worth the compiler's time.
        build.args(["-MAKEFLAGS", "OPT_FAST='-O3 -march=native'", "--top-module", "mvp_datapath", "-Wno-fatal"]);
        build.args([format!("-GROWS={rows}"), format!("-GCOLS={cols}"), format!("-GDEPTH={depth}")]);
        build.arg(format!("-GFLOAT={float}")).arg("-Mdir").arg(&folder);
        if traced {
            build.arg("--trace");
        }
        build.args(MODULES.map(|file| root().join("hw/sv").join(file)));
        build.arg(root().join("tb/benches/array.cpp").canonicalize()?);
        let done = build.output().context("verilator cannot be run")?;
        ensure!(done.status.success(), "verilator failed: {}", String::from_utf8_lossy(&done.stderr));
        let mut child = Command::new(folder.join("Vmvp_datapath"))
            .arg(stimulus)
            .args([rows, datapath.act_width() as usize, cols].map(|n| n.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = (input, output) else { bail!("the twin has no pipes") };
        Ok(Self { child, input, output: BufReader::new(output) })
    }

    /// Sends a command and gives back the digest of the results.
    fn ask(&mut self, command: &str) -> anyhow::Result<u64> {
        writeln!(self.input, "{command}")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(u64::from_str_radix(line.trim(), 16)?)
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// FNV-1a over the results.
struct Digest(u64);

impl Digest {
    fn add(&mut self, engine: &Datapath, cycle: &Cycle) {
        if let Some(row) = engine.out().row.filter(|_| cycle.enable) {
            row.values.iter().for_each(|&sum| self.0 = (self.0 ^ u64::from(sum as u32)).wrapping_mul(0x100_0000_01b3));
        }
    }
}

fn run(config: Config, cycles: &[Cycle], times: usize) -> u64 {
    let mut engine = Datapath::new(config);
    let mut digest = Digest(0xcbf2_9ce4_8422_2325);
    for cycle in (0..times).flat_map(|_| cycles) {
        engine.clock(cycle);
        digest.add(&engine, cycle);
    }
    digest.0
}

fn run_traced(config: Config, cycles: &[Cycle], path: &Path) -> anyhow::Result<u64> {
    let mut engine = Datapath::new(config);
    let mut digest = Digest(0xcbf2_9ce4_8422_2325);
    let mut trace = Trace::create(path, "dut", &TraceOptions::default())?;
    for (n, cycle) in cycles.iter().enumerate() {
        trace.sample(n as u64, &mut engine)?;
        engine.clock(cycle);
        digest.add(&engine, cycle);
    }
    trace.finish()?;
    Ok(digest.0)
}

/// What a comparison is called: `size` is M, N and K.
fn name(side: usize, format: Format, [m, n, k]: [usize; 3], traced: bool) -> String {
    format!("{}{format} {side}x{side}, {m}×{k}×{n}", if traced { "traced, " } else { "" })
}

/// Removes a file if it is there: writing over one that is costs more on some file systems than a new one does.
fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
}

/// One comparison, towards a target.
fn measure(
    name: &str,
    side: usize,
    format: Format,
    (size, target): ([usize; 3], f64),
    traced: bool,
) -> anyhow::Result<Ratio> {
    let config = Config { rows: side, cols: side, datapath: format, ..Config::default() }.checked()?;
    let [m, n, k] = size;
    // A few tiles, again and again, so that the stimulus stays in a cache and the figures are the engines'.
    let window = (k / side).min(WINDOW);
    let tiles = n / side * (k / side);
    let mut times = tiles / window;
    let tiles = Tiles { m, panels: 1, tiles: window, last_depth: side, last_lanes: side as u16 };
    let mut cycles = schedule(config, &tiles, operands(config, &mut Xoshiro256PlusPlus::seed_from_u64(1)));
    if traced {
        cycles = cycles.iter().cycle().take(TRACED).cloned().collect();
        times = 1;
    }
    // The whole product, and again where it is short.
    times *= LEAST.div_ceil(times * cycles.len()).min(if traced { 1 } else { usize::MAX });
    let mut twin = Twin::new(config, &cycles, traced)?;
    let (ours, theirs) = ["ours.vcd", "theirs.vcd"].map(|f| root().join("target/bench-array").join(f)).into();
    let command = if traced { format!("trace {} {}", theirs.display(), cycles.len()) } else { format!("run {times}") };
    let digest = twin.ask(&command)?;
    ensure!(digest == run(config, &cycles, times), "the twin and the engine give different results");
    let work = (times * cycles.len()) as f64;
    let runs = if traced { 1 } else { RUNS };
    let mut engine = || {
        remove(&ours);
        for _ in 0..runs {
            let got = if traced { run_traced(config, &cycles, &ours).ok() } else { Some(run(config, &cycles, times)) };
            assert_eq!(got, Some(digest), "the engine's results change");
        }
        runs as f64 * work
    };
    let mut peer = || {
        remove(&theirs);
        assert_eq!(twin.ask(&command).ok(), Some(digest), "the twin's results change");
        work
    };
    let target = Target::AtLeast(target);
    Ok(compare(name, "cycles", ("cycle engine", &mut engine), ("Verilator", &mut peer), PAIRS, target))
}

fn main() -> anyhow::Result<()> {
    if Command::new("verilator").arg("--version").output().is_err() {
        println!(
            "array: Verilator is not installed, nothing is compared. Debian and Ubuntu: apt-get install verilator g++; \
             macOS: brew install verilator"
        );
        return Ok(());
    }
    // `cargo bench --bench array -- 8x8`: only the rows whose name holds one of the words.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    println!("{}", Ratio::header());
    let bf16 = Format::float(FloatFormat::BF16);
    for (side, format, size, target, traced) in [
        (8, Format::Int8, [256; 3], 8.0, false),
        (16, Format::Int8, [256; 3], 15.0, false),
        (32, Format::Int8, [256; 3], 25.0, false),
        (8, bf16, [256; 3], 100.0, false),
        (16, Format::Int8, [256; 3], 5.0, true),
    ] {
        let name = name(side, format, size, traced);
        if words.is_empty() || words.iter().any(|word| name.contains(word.as_str())) {
            println!("{}", measure(&name, side, format, (size, target), traced)?);
        }
    }
    Ok(())
}
