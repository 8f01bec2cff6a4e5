//! `magpie run`: a language model answers a prompt on the whole NPU.

use crate::out;
use crate::run::{
    At, End, Generated, Generation, Report, Setup, cache, compare, config, generate, line, listing, read_text, rerun,
    source, timeline, window,
};
use crate::verify::grouped;
use crate::wave::Trace;
use anyhow::{Context, bail};
use clap::Args as ClapArgs;
use host::{Options, Recorded, Sampler, Sampling, Session, Source};
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
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
    /// How the cache stores its tiles: raw, lossless, near-lossless, standard, low, lowest, fixed, mean, qpN (N from 0 to 63), slotN (N bytes a tile of 32
    /// tokens and up to 64 channels, a multiple of 8 from 40 on; slot384 is 3 bits a value for heads of 32 channels, slot768 for those of 64).
    #[arg(long, default_value = "lossless", value_name = "MODE")]
    kv: String,
    /// The model's calibration file for lossy modes (`magpie kv calibrate`); kjv-1m brings its own.
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// edge, default, big, or a TOML file.
    #[arg(short, long, default_value = "default", value_name = "CONFIG")]
    config: String,
    /// Tokens of a prefill chunk; smaller where the scratchpad asks for it.
    #[arg(long, default_value_t = 128, value_parser = positive)]
    chunk: usize,
    /// Context window, at most the model's.
    #[arg(long)]
    context: Option<usize>,
    /// Cut a prompt past the window: its last tokens stay.
    #[arg(long)]
    truncate: bool,
    /// Copies of a single prompt, run side by side.
    #[arg(short, long, value_parser = positive)]
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
    /// A timeline for Perfetto (ui.perfetto.dev) or chrome://tracing; `-`: to standard output, with nothing else there.
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
    /// The commands as an assembler lists them, each with its number in its program and its name for --at; `-`: to standard output,
    /// with nothing else there.
    #[arg(long, value_name = "FILE")]
    listing: Option<PathBuf>,
    /// Run one command of the prompt once more on the cycle engine, hold its bits and cycles to the run's, and write the waveform
    /// of its engine: .fst, or .vcd, which is several times as large (200 MB against 50 for 314 cycles of a 32 x 32 array).
    #[arg(long, value_name = "FILE", requires = "at")]
    wave: Option<PathBuf>,
    /// That command by its name in the listing: layer, step, and place among the commands of this layer and step in all passes. The
    /// array and the vector unit can be clocked alone.
    #[arg(long, value_name = "LAYER.STEP.PLACE", requires = "wave")]
    at: Option<At>,
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be 1 at least".into()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

impl Args {
    fn sampling(&self) -> Sampling {
        let Self { temperature, top_k, top_p, seed, .. } = *self;
        Sampling { temperature, top_k, top_p, seed }
    }

    /// Refuses before the run what would stop it or its reports later.
    fn check(&self) -> anyhow::Result<()> {
        if self.prompt.is_empty() && self.eval.is_empty() {
            bail!("nothing to do: give a --prompt TEXT, or texts to --eval");
        }
        if self.batch.is_some() && self.prompt.len() != 1 {
            bail!("--batch repeats a single --prompt");
        }
        if self.prompt.is_empty() && (self.timeline.is_some() || self.listing.is_some() || self.wave.is_some()) {
            bail!("--timeline, --listing and --wave show a prompt's run: give a --prompt TEXT");
        }
        Sampler::new(self.sampling())?;
        let json = self.json.then_some(Path::new("-"));
        out::probe([
            ("--json", json),
            ("--timeline", self.timeline.as_deref()),
            ("--listing", self.listing.as_deref()),
        ])?;
        if let Some(path) = &self.wave {
            Trace::check_name(path)?;
            out::probe_file("--wave", path)?;
        }
        out::distinct([
            ("--timeline", self.timeline.as_deref()),
            ("--listing", self.listing.as_deref()),
            ("--wave", self.wave.as_deref()),
        ])?;
        Ok(())
    }

    /// Where the text and the tables go: to standard error if a report has standard output.
    fn screen(&self) -> Screen {
        match [&self.timeline, &self.listing].into_iter().flatten().any(|path| out::is_stdout(path)) {
            true => Screen::Error,
            false => Screen::Output,
        }
    }
}

/// Where people read.
#[derive(Clone, Copy)]
enum Screen {
    Output,
    Error,
}

impl Screen {
    fn show(self, text: fmt::Arguments<'_>) {
        match self {
            Self::Output => {
                out::write(text);
                out::flush();
            }
            Self::Error => eprint!("{text}"),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// Files that cannot be read or written, formats and caches that the model or the NPU does not have, a prompt past the window.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.check()?;
    let mut source = source(&args.model)?;
    if !matches!(args.format, host::Format::Stored(_)) {
        source.forget_blocks();
    }
    let window = window(args.context, &source)?;
    let prompts = prompts(args, &source, window)?;
    let texts = evaluations(args, &source, window)?;
    let mut session = session(args, &source, prompts.len(), window)?;
    if args.timeline.is_some() || args.listing.is_some() {
        session.record();
    }
    idle_rows(session.format(), session.config().array.rows).iter().for_each(|note| eprintln!("{note}"));
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
    let (made, answers) = answer(args, &source, &mut session, &prompts)?;
    let mut report = Report::new(setup, &session, &prompts, &made, answers);
    // Whatever fails from here on, the figures are there.
    let written = reports(args, &source, &mut session, &texts, &mut report);
    if args.json {
        outln!("{}", report.json()?);
    } else {
        args.screen().show(format_args!("{}", report.tables()));
    }
    written?;
    Ok(ExitCode::SUCCESS)
}

/// What was asked for beside the figures: recordings, a command clocked again, texts compared.
fn reports(
    args: &Args,
    source: &Source,
    session: &mut Session,
    texts: &[(String, Vec<u32>)],
    report: &mut Report,
) -> anyhow::Result<()> {
    let passes = session.recording();
    let clock = session.config().clock_mhz;
    args.timeline.iter().try_for_each(|path| save(path, passes, &|passes, out| timeline(passes, clock, out)))?;
    args.listing.iter().try_for_each(|path| save(path, passes, &listing))?;
    if let (Some(at), Some(path)) = (&args.at, &args.wave) {
        let ran = rerun(session, at, path)?;
        eprintln!(
            "{}: {} cycles on the cycle engine, the run's bits in the run's cycles; {}: {} bytes",
            line(ran.number, &at.to_string(), &ran.command).trim_start(),
            grouped(ran.cycles),
            path.display(),
            grouped(ran.bytes)
        );
    }
    for (name, ids) in texts {
        report.evaluated(name.clone(), compare(session, source.llm(), ids, args.eval_skip)?);
    }
    Ok(())
}

type Writer<'a> = &'a dyn Fn(&[Recorded], &mut dyn Write) -> io::Result<()>;

/// Writes the passes of a run to a file; `-`: to standard output.
fn save(path: &Path, passes: &[Recorded], write: Writer<'_>) -> anyhow::Result<()> {
    let name = || format!("cannot write {}", path.display());
    let mut out: Box<dyn Write> = match out::is_stdout(path) {
        true => Box::new(BufWriter::new(io::stdout())),
        false => Box::new(BufWriter::new(File::create(path).with_context(name)?)),
    };
    write(passes, &mut out).and_then(|()| out.flush()).with_context(name)
}

/// What begins a turn in ChatML.
const TURN: &str = "<|im_start|>";

/// Whether a model has a token for the beginning of a turn.
fn knows_chat(source: &Source) -> anyhow::Result<bool> {
    let tokenizer = &source.llm().tokenizer;
    // Some tokenizers put tokens of their own around every text.
    Ok(tokenizer.encode(TURN)?.len() == tokenizer.encode("")?.len() + 1)
}

/// Token ids of the prompts, within the window.
fn prompts(args: &Args, source: &Source, window: usize) -> anyhow::Result<Vec<Vec<u32>>> {
    let mut prompts = Vec::new();
    if args.chat && !knows_chat(source)? {
        eprintln!(
            "magpie: note: {} has no token {TURN}: it was not instructed by ChatML, and reads the marks of --chat as plain text",
            source.llm().name
        );
    }
    for text in &args.prompt {
        let chat = || format!("{TURN}user\n{text}<|im_end|>\n{TURN}assistant\n");
        let mut ids = source.llm().tokenizer.encode(&if args.chat { chat() } else { text.clone() })?;
        if ids.is_empty() {
            bail!("the prompt is empty: it has no tokens to begin from");
        }
        if ids.len() > window {
            if !args.truncate {
                let error = host::Error::Context { held: 0, added: ids.len(), window };
                return Err(error).context("the prompt does not fit");
            }
            // Room for the answer, where the window has it.
            let keep = window.saturating_sub(args.tokens).max(window / 2).max(1);
            ids.drain(..ids.len() - keep);
        }
        prompts.push(ids);
    }
    let copies = prompts.len() * args.batch.unwrap_or(1);
    Ok(prompts.into_iter().cycle().take(copies).collect())
}

/// Names and tokens of the texts to compare.
fn evaluations(args: &Args, source: &Source, window: usize) -> anyhow::Result<Vec<(String, Vec<u32>)>> {
    let (want, skip) = (args.eval_tokens, args.eval_skip);
    let mut texts = Vec::new();
    for path in &args.eval {
        let ids = source.llm().tokenizer.encode(&read_text(path)?)?;
        let have = ids.len();
        if have < want || want <= skip + 1 {
            bail!(
                "{}: {have} tokens; {want} are asked for, {skip} of them skipped: see --eval-tokens and --eval-skip",
                path.display()
            );
        }
        if want > window {
            bail!("--eval-tokens {want}: the context window is {window}");
        }
        let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into());
        texts.push((name, ids[..want].to_vec()));
    }
    Ok(texts)
}

fn session(args: &Args, source: &Source, sequences: usize, window: usize) -> anyhow::Result<Session> {
    let options = Options {
        config: config(&args.config)?,
        format: args.format,
        cache: cache(&args.kv, source, args.calibration.as_deref())?,
        sequences: sequences.max(1),
        chunk: args.chunk,
        context: window,
        stretch: false,
    };
    Ok(Session::new(source, &options)?)
}

/// What to say where scales per group leave rows of the array idle.
pub(super) fn idle_rows(format: host::Format, rows: usize) -> Option<String> {
    let group = format.group()?;
    let used = group as f64 / group.div_ceil(rows) as f64;
    (used < rows as f64).then(|| {
        format!(
            "magpie: note: {format} has scales per {group} values, and no tile of k crosses a group: its products use {used} of the array's {rows} rows"
        )
    })
}

/// Generates, and shows a single text as it comes.
fn answer(
    args: &Args,
    source: &Source,
    session: &mut Session,
    prompts: &[Vec<u32>],
) -> anyhow::Result<(Generated, Vec<String>)> {
    let job = Generation {
        prompts: prompts.to_vec(),
        tokens: args.tokens,
        ends: source.llm().ends.clone(),
        sampling: args.sampling(),
    };
    let screen = args.screen();
    let live = !args.json && prompts.len() == 1;
    let mut texts = vec![String::new(); prompts.len()];
    let mut show = |sequence: usize, text: &str| {
        texts[sequence].push_str(text);
        if live {
            screen.show(format_args!("{text}"));
        }
    };
    if live && !args.chat {
        show(0, &args.prompt[0]);
    }
    let made = generate(session, &source.llm().tokenizer, &job, &mut show);
    if live {
        // What follows, an error too, begins on a line of its own.
        screen.show(format_args!("\n\n"));
    }
    let made = made?;
    if !live && !args.json {
        for (i, text) in texts.iter().enumerate() {
            screen.show(format_args!("[{i}] {text}\n\n"));
        }
    }
    for (i, ids) in made.ids.iter().enumerate().filter(|(i, _)| made.ends[*i] == End::Window) {
        let (window, which) = (session.context(), if prompts.len() == 1 { String::new() } else { format!("[{i}] ") });
        eprintln!(
            "magpie: {which}the context window of {window} tokens is full: {} new ones of the {} asked for",
            ids.len(),
            args.tokens
        );
    }
    Ok((made, texts))
}
