//! `magpie run`: a language model answers a prompt on the whole NPU.

use crate::run::{At, Generated, Generation, Report, Setup, cache, compare, config, generate, rerun, source, timeline};
use crate::verify::grouped;
use anyhow::{Context, bail};
use clap::Args as ClapArgs;
use host::{Options, Sampling, Session, Source};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A language model answers a prompt on the whole NPU, every bit and every cycle counted.
///
/// The text comes as it is made, then the figures: time to first token (arrival to first token), time per output token ((last −
/// first) / (n − 1)), cycles by engine, use of the array, DRAM bytes by what they are.
#[derive(ClapArgs)]
#[command(
    after_help = "Examples:\n  magpie run --prompt \"In the beginning\"\n  magpie run smollm2 --prompt \"What is an NPU?\" --chat\n  \
    magpie run smollm2 --format q4_1 --kv lossless --config edge --prompt \"Once upon a time\"\n  magpie run --format int8 --kv standard \
    --prompt \"And God said\" --eval golden/models/kjv-1m/heldout.txt\n  magpie run --prompt \"And God said\" --wave gate.fst --at 0.gate.0   then: gtkwave gate.fst"
)]
pub struct Args {
    /// `kjv-1m`, `smollm2` (after `make smollm2`), a GGUF file, or a Hugging Face folder.
    #[arg(default_value = "kjv-1m")]
    model: String,
    /// The prompt; given several times, a batch.
    #[arg(short, long)]
    prompt: Vec<String>,
    /// Wrap each prompt as a question to an instructed model (ChatML).
    #[arg(long)]
    chat: bool,
    /// New tokens at most.
    #[arg(short = 'n', long, default_value_t = 64)]
    tokens: usize,
    /// bf16; int8, e4m3, e5m2, ffp8, ffp8:S-E-F with /channel or /32; q4_0, q4_1, q8_0 as stored.
    #[arg(short, long, default_value = "bf16")]
    format: host::Format,
    /// How the cache stores its tiles: raw, lossless, near-lossless, standard, low, lowest, fixed, mean, qpN, slotN.
    #[arg(long, default_value = "lossless", value_name = "MODE")]
    kv: String,
    /// The model's calibration file for lossy modes (`magpie kv calibrate`); kjv-1m brings its own.
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// edge, default, big, or a TOML file.
    #[arg(short, long, default_value = "default", value_name = "CONFIG")]
    config: String,
    /// Tokens of a prefill chunk; smaller where the scratchpad asks for it.
    #[arg(long, default_value_t = 128)]
    chunk: usize,
    /// Context window, at most the model's.
    #[arg(long)]
    context: Option<usize>,
    /// Cut a prompt past the window: its last tokens stay.
    #[arg(long)]
    truncate: bool,
    /// Copies of a single prompt, run side by side.
    #[arg(short, long)]
    batch: Option<usize>,
    /// What logits are divided by before a draw; 0: always the likeliest token.
    #[arg(long, default_value_t = 0.7)]
    temperature: f64,
    /// Draw from so many of the likeliest tokens; 0: all.
    #[arg(long, default_value_t = 0)]
    top_k: usize,
    /// Draw from the likeliest tokens that reach this probability together.
    #[arg(long, default_value_t = 0.9)]
    top_p: f64,
    /// Of the draws.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Compare the logits of a text with the f32 reference's: KL, top-1, perplexity.
    #[arg(long, value_name = "FILE")]
    eval: Vec<PathBuf>,
    /// Tokens of each such text.
    #[arg(long, default_value_t = 384)]
    eval_tokens: usize,
    /// Positions at its start that are not compared.
    #[arg(long, default_value_t = 64)]
    eval_skip: usize,
    /// The figures as JSON instead of text and tables.
    #[arg(long)]
    json: bool,
    /// A timeline for Perfetto (ui.perfetto.dev) or chrome://tracing.
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
    /// The commands as an assembler lists them; `-`: to standard output.
    #[arg(long, value_name = "FILE")]
    listing: Option<PathBuf>,
    /// Run one command of the prompt once more on the cycle engine, hold its bits and cycles to the run's, and write the waveform
    /// (.vcd or .fst) of its engine.
    #[arg(long, value_name = "FILE", requires = "at")]
    wave: Option<PathBuf>,
    /// That command: layer, step (as listings and timelines name it) and its place among the layer's commands of this step.
    #[arg(long, value_name = "LAYER.STEP.PLACE", requires = "wave")]
    at: Option<At>,
}

/// Runs the command.
///
/// # Errors
/// Files that cannot be read or written, formats and caches that the model or the NPU does not have, a prompt past the window.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.prompt.is_empty() && args.eval.is_empty() {
        bail!("nothing to do: give a --prompt TEXT, or texts to --eval");
    }
    if args.batch.is_some() && args.prompt.len() != 1 {
        bail!("--batch repeats a single --prompt");
    }
    let mut source = source(&args.model)?;
    if !matches!(args.format, host::Format::Stored(_)) {
        source.forget_blocks();
    }
    let prompts = prompts(args, &source)?;
    let mut session = session(args, &source, prompts.len())?;
    if args.timeline.is_some() || args.listing.is_some() {
        session.record();
    }
    let setup = Setup {
        model: source.llm().name.clone(),
        format: session.format().to_string(),
        kv: args.kv.clone(),
        config: args.config.clone(),
        batch: prompts.len(),
    };
    if let Some(at) = &args.at {
        at.watch(&mut session);
    }
    let (made, texts) = answer(args, &source, &mut session, &prompts)?;
    let mut report = Report::new(setup, session.config(), &prompts, &made, texts);
    write_recording(args, &session)?;
    if let (Some(at), Some(path)) = (&args.at, &args.wave) {
        let ran = rerun(&session, at, path)?;
        let listing = npu::isa::listing(0, &ran.command);
        let (cycles, path) = (grouped(ran.cycles), path.display());
        eprintln!(
            "{}: {cycles} cycles on the cycle engine, the run's bits in the run's cycles; {path}",
            listing.trim()
        );
    }
    for path in &args.eval {
        let text = std::fs::read(path).with_context(|| path.display().to_string())?;
        let ids = source.llm().tokenizer.encode(&String::from_utf8_lossy(&text))?;
        if ids.len() < args.eval_tokens || args.eval_tokens <= args.eval_skip + 1 {
            let (have, want, skip) = (ids.len(), args.eval_tokens, args.eval_skip);
            bail!(
                "{}: {have} tokens; {want} are asked for, {skip} of them skipped: see --eval-tokens and --eval-skip",
                path.display()
            );
        }
        let comparison = compare(&mut session, source.llm(), &ids[..args.eval_tokens], args.eval_skip)?;
        let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into());
        report.evaluated(name, comparison);
    }
    if args.json {
        println!("{}", report.json()?);
    } else {
        print!("{}", report.tables());
    }
    Ok(ExitCode::SUCCESS)
}

/// Token ids of the prompts, within the window.
fn prompts(args: &Args, source: &Source) -> anyhow::Result<Vec<Vec<u32>>> {
    let window = args.context.unwrap_or(usize::MAX).min(source.config().context);
    let texts: Vec<&String> = match args.batch {
        Some(n) => args.prompt.iter().cycle().take(n * args.prompt.len()).collect(),
        None => args.prompt.iter().collect(),
    };
    let mut prompts = Vec::new();
    for text in texts {
        let chat = || format!("<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n");
        let mut ids = source.llm().tokenizer.encode(&if args.chat { chat() } else { text.clone() })?;
        if ids.is_empty() {
            bail!("the prompt is empty: it has no tokens to begin from");
        }
        if ids.len() > window {
            if !args.truncate {
                let error = host::Error::Context { held: 0, added: ids.len(), window };
                return Err(error.into());
            }
            // Room for the answer, where the window has it.
            let keep = window.saturating_sub(args.tokens).max(window / 2).max(1);
            ids.drain(..ids.len() - keep);
        }
        prompts.push(ids);
    }
    Ok(prompts)
}

fn session(args: &Args, source: &Source, sequences: usize) -> anyhow::Result<Session> {
    let options = Options {
        config: config(&args.config)?,
        format: args.format,
        cache: cache(&args.kv, source, args.calibration.as_deref())?,
        sequences: sequences.max(1),
        chunk: args.chunk,
        context: args.context.unwrap_or(usize::MAX),
        stretch: false,
    };
    Ok(Session::new(source, &options)?)
}

/// Generates, and shows a single text as it comes.
fn answer(
    args: &Args,
    source: &Source,
    session: &mut Session,
    prompts: &[Vec<u32>],
) -> anyhow::Result<(Generated, Vec<String>)> {
    let Args { temperature, top_k, top_p, seed, .. } = *args;
    let job = Generation {
        prompts: prompts.to_vec(),
        tokens: args.tokens,
        ends: source.llm().ends.clone(),
        sampling: Sampling { temperature, top_k, top_p, seed },
    };
    let mut out = std::io::stdout();
    let live = !args.json && prompts.len() == 1;
    let mut texts = vec![String::new(); prompts.len()];
    let mut failed = None;
    let mut show = |sequence: usize, text: &str| {
        texts[sequence].push_str(text);
        if live {
            let shown = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            failed = failed.take().or(shown.err());
        }
    };
    if live && !args.chat {
        show(0, &args.prompt[0]);
    }
    let made = generate(session, &source.llm().tokenizer, &job, &mut show)?;
    if let Some(error) = failed {
        return Err(error).context("standard output");
    }
    if live {
        println!("\n");
    } else if !args.json {
        for (i, text) in texts.iter().enumerate() {
            println!("[{i}] {text}\n");
        }
    }
    Ok((made, texts))
}

fn write_recording(args: &Args, session: &Session) -> anyhow::Result<()> {
    let Some(recording) = session.recording() else { return Ok(()) };
    let create = |path: &Path| File::create(path).map(BufWriter::new).with_context(|| path.display().to_string());
    if let Some(path) = &args.timeline {
        let mut out = create(path)?;
        timeline(recording, session.config().clock_mhz, &mut out)
            .and_then(|()| out.flush())
            .with_context(|| path.display().to_string())?;
    }
    if let Some(path) = &args.listing {
        let mut out: Box<dyn Write> = match path.to_str() {
            Some("-") => Box::new(BufWriter::new(std::io::stdout())),
            _ => Box::new(create(path)?),
        };
        for (i, program) in recording.programs.iter().enumerate() {
            let written = writeln!(out, "; program {i}: {} commands", program.len()).and_then(|()| {
                program.iter().enumerate().try_for_each(|(n, c)| writeln!(out, "{}", npu::isa::listing(n, c)))
            });
            written.and_then(|()| out.flush()).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}
