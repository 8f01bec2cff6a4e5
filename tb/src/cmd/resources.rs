//! `magpie resources`: what an NPU is made of, and what a run costs in energy.

use crate::run::{HELD_OUT, cache, config, source, window};
use crate::verify::grouped;
use anyhow::Context;
use comfy_table::{Table, presets::ASCII_MARKDOWN};
use host::{Logits, Options, Session, Source};
use npu::resources::{Energy, NOT_COUNTED, Part, parts};
use npu::{Config, Counters};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Multipliers, register bits and memory bits of a configuration, counted on the clocked blocks; with a table of picojoules, the
/// energy of a run.
///
/// FIFOs and tables of more than 16 words count as memories. What is left out is listed below the table. The KV path's memories depend on the model, the sequences and the window. The array is counted as built for all formats: the format
/// of the products matters to the energy alone.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
A TABLE OF PICOJOULES (TOML; the figures are yours: a process, a memory, a year)
  mac = 0.5           a multiply-accumulate of the array
  dram_byte = 32.0    a byte from or to DRAM
  vector_cycle = 300  a cycle of the vector unit at work
  nkz_cycle = 120     a cycle of the codec at work
  cycle = 800         any cycle: clock tree, leakage

EXAMPLES
  magpie resources --config big
  magpie resources smollm2 --format int8 --kv lossless --energy pj.toml")]
pub struct Args {
    /// kjv-1m, smollm2, a GGUF file, or a Hugging Face folder
    #[arg(default_value = "kjv-1m")]
    model: String,
    /// edge, default, big, or a TOML file
    #[arg(short, long, default_value = "default", value_name = "CONFIG")]
    config: String,
    /// Sequences at once
    #[arg(long, default_value_t = 1)]
    sequences: usize,
    /// Context window, at most the model's
    #[arg(long)]
    context: Option<usize>,
    /// Format of the products, for --energy
    #[arg(short, long, default_value = "bf16")]
    format: host::Format,
    /// Mode of the cache
    #[arg(long, default_value = "lossless", value_name = "MODE")]
    kv: String,
    /// The model's calibration file, for lossy modes
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Table of picojoules: prints the energy of a prompt and of the tokens after it
    #[arg(long, value_name = "FILE")]
    energy: Option<PathBuf>,
    /// Tokens of that prompt
    #[arg(long, default_value_t = 128)]
    prompt_tokens: usize,
    /// Tokens after it
    #[arg(long, default_value_t = 8)]
    tokens: usize,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// Files that cannot be read or are refused, a model that the NPU cannot hold.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let energy = match &args.energy {
        None => None,
        Some(path) => Some(Energy::from_toml(&crate::input::text(path)?).with_context(|| path.display().to_string())?),
    };
    let source = source(&args.model)?;
    let config = config(&args.config)?;
    let options = Options {
        format: args.format,
        cache: cache(&args.kv, &source, args.calibration.as_deref())?,
        sequences: args.sequences,
        context: window(args.context, &source)?,
        ..Options::new(config.clone())
    };
    let mut session = Session::new(&source, &options)?;
    let parts = parts(&config, session.kv_setup());
    let phases = match energy {
        None => None,
        Some(energy) => Some((energy, phases(args, &source, &mut session)?)),
    };
    if args.json {
        let joules = |energy: &Energy, c: &Counters, over: f64| {
            let parts = energy.joules(c).map(|(name, joules)| (name.to_string(), json!(joules / over)));
            parts.into_iter().collect::<serde_json::Map<_, _>>()
        };
        let energy = phases.as_ref().map(|(energy, [prefill, decode])| {
            json!({
                "prompt_tokens": args.prompt_tokens,
                "joules_of_prompt": joules(energy, prefill, 1.0),
                "tokens": args.tokens,
                "joules_per_token": joules(energy, decode, args.tokens.max(1) as f64),
            })
        });
        outln!("{:#}", json!({ "config": args.config, "parts": parts, "not_counted": NOT_COUNTED, "energy": energy }));
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(["part", "multipliers", "register bits", "memory bits"]);
    for part in &parts {
        let multipliers = part.multipliers.map(|m| format!("{0} of {1} x {1} bits", grouped(m.count), m.bits));
        table.add_row([
            part.name.into(),
            multipliers.unwrap_or_else(|| "-".into()),
            grouped(part.register_bits),
            grouped(part.sram_bits),
        ]);
    }
    let sum = |f: fn(&Part) -> u64| grouped(parts.iter().map(f).sum());
    table.add_row(["all".into(), String::new(), sum(|p| p.register_bits), sum(|p| p.sram_bits)]);
    outln!("{table}\n\nNot counted: {}.", NOT_COUNTED.join("; "));
    if args.format != host::Format::Bf16 && phases.is_none() {
        eprintln!(
            "magpie: note: the array is built for all formats; --format {} changes the --energy of a run alone",
            args.format
        );
    }
    if let Some((energy, [prefill, decode])) = phases {
        outln!("\n{}", energy_table(args, &config, &energy, [&prefill, &decode]));
    }
    Ok(ExitCode::SUCCESS)
}

/// Counters of a prompt, and of the tokens after it.
fn phases(args: &Args, source: &Source, session: &mut Session) -> anyhow::Result<[Counters; 2]> {
    let ids = source.llm().tokenizer.encode(HELD_OUT)?;
    let ids = ids.get(..args.prompt_tokens.max(1)).context("--prompt-tokens: more than the built-in text has")?;
    let answer = session.prefill(0, ids, Logits::Last)?;
    let prefill = *session.counters();
    let mut token = golden::argmax(answer.logits.row(0)) as u32;
    for _ in 0..args.tokens {
        token = golden::argmax(session.decode(&[(0, token)])?.logits.row(0)) as u32;
    }
    Ok([prefill, session.counters().since(&prefill)])
}

/// Joules in a unit that suits them.
fn energy_of(joules: f64) -> String {
    match joules {
        0.0 => "0".into(),
        j if j < 1e-6 => format!("{:.3} nJ", j * 1e9),
        j if j < 1e-3 => format!("{:.3} µJ", j * 1e6),
        j if j < 1.0 => format!("{:.3} mJ", j * 1e3),
        j => format!("{j:.3} J"),
    }
}

fn energy_table(args: &Args, config: &Config, energy: &Energy, [prefill, decode]: [&Counters; 2]) -> Table {
    let mut table = Table::new();
    let decoded = format!("a token after it ({})", args.tokens);
    table.load_style(ASCII_MARKDOWN).set_header(["energy", &format!("prompt of {}", args.prompt_tokens), &decoded]);
    let tokens = args.tokens.max(1) as f64;
    let columns = [(energy.joules(prefill), 1.0), (energy.joules(decode), tokens)];
    for i in 0..columns[0].0.len() {
        let cells = columns.iter().map(|(joules, over)| energy_of(joules[i].1 / over));
        table.add_row(std::iter::once(columns[0].0[i].0.to_string()).chain(cells));
    }
    let all = |joules: &[(&str, f64)]| joules.iter().map(|(_, j)| j).sum::<f64>();
    let sums = columns.iter().map(|(joules, over)| energy_of(all(joules) / over));
    table.add_row(std::iter::once("all".to_string()).chain(sums));
    let seconds = |c: &Counters| c.cycles as f64 / (config.clock_mhz * 1e6);
    let watts = [prefill, decode].map(|c| all(&energy.joules(c)) / seconds(c).max(f64::MIN_POSITIVE));
    table.add_row(std::iter::once("power".to_string()).chain(watts.map(|w| format!("{w:.3} W"))));
    table
}
