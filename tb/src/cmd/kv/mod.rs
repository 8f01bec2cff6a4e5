//! `magpie kv`: calibrate, encode, decode, inspect and evaluate the compressed KV cache.

mod stream;

use crate::cmd::meter::Meter;
use crate::kv::{self, Calibration, Setting, Source, Text};
use crate::out;
use crate::run::read_text;
use crate::verify::Progress;
use anyhow::bail;
use clap::{Args as ClapArgs, Subcommand};
use golden::kv::{KvShape, peers};
use nkz::Mode;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The compressed KV cache: calibrate a model, encode and decode a dump, measure what each codec loses.
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure a model and write the codec's static tables.
    Calibrate {
        /// `kjv-1m`, `smollm2` (after `make smollm2`), a GGUF file, or a Hugging Face folder.
        model: String,
        /// A text of the kind that the model will read.
        text: PathBuf,
        /// The calibration file to write.
        #[arg(short, long)]
        output: PathBuf,
        /// Tokens of a window.
        #[arg(long, default_value_t = 512)]
        window: usize,
        /// Windows at most.
        #[arg(long, default_value_t = 8)]
        windows: usize,
        /// Where the sensitivities come from.
        #[arg(long, value_enum, default_value = "reverse")]
        from: Source,
    },
    /// Write the KV cache that a model fills from a text as a plain dump (safetensors).
    Dump(stream::DumpArgs),
    /// Compress a plain dump.
    Encode(stream::EncodeArgs),
    /// Decompress to a plain dump.
    Decode(stream::DecodeArgs),
    /// Say what a compressed file, a dump or a calibration holds.
    Inspect(stream::InspectArgs),
    /// Measure bits, KL divergence, agreement and perplexity of every mode and of the peers.
    Eval(Eval),
}

#[derive(ClapArgs)]
struct Eval {
    /// `kjv-1m`, `smollm2` (after `make smollm2`), a GGUF file, or a Hugging Face folder.
    model: String,
    /// Texts that calibration never saw; each is cut at TOKENS.
    #[arg(required = true)]
    texts: Vec<PathBuf>,
    /// The model's calibration file; kjv-1m and smollm2 bring their own.
    #[arg(short, long)]
    calibration: Option<PathBuf>,
    /// Tokens of each text.
    #[arg(long, default_value_t = 1024)]
    tokens: usize,
    /// Positions left out at the start of each text.
    #[arg(long, default_value_t = 128)]
    skip: usize,
    /// Characters left out at the start of each text.
    #[arg(long, default_value_t = 0)]
    offset: usize,
    /// Also entropy-coded at these QPs.
    #[arg(long, value_delimiter = ',')]
    qp: Vec<u8>,
    /// Without the peers.
    #[arg(long)]
    alone: bool,
    /// Only the QPs named, no presets.
    #[arg(long)]
    only: bool,
    /// Threads.
    #[arg(long, default_value_t = std::thread::available_parallelism().map_or(1, usize::from))]
    threads: usize,
    /// Where to put the plot; `-`: to standard output, with nothing else there.
    #[arg(long)]
    svg: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// A file that cannot be read or written, and those of the codec and the model.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Calibrate { model, text, output, window, windows, from } => {
            let llm = kv::model(model)?;
            out::probe_file("--output", output)?;
            let meters =
                ["passes that measure", "windows kept", "layers fitted"].map(|of| Meter::new("kv calibrate", of));
            let tick = |phase: kv::Phase, done, of| meters[phase as usize].tick(done, of, "");
            let calibration = kv::calibrate(&llm, &read_text(text)?, *window, *windows, *from, &tick)?;
            out::save_bytes(output, &calibration.to_bytes())?;
            outln!("{}: {}", output.display(), stream::table_bits(&calibration));
        }
        Command::Dump(args) => stream::dump(args)?,
        Command::Encode(args) => stream::encode(args)?,
        Command::Decode(args) => return stream::decode(args),
        Command::Inspect(args) => return stream::inspect(args),
        Command::Eval(eval) => evaluate(eval)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A calibration by its name: of a model that brings its own, or a file.
fn calibration(path: &Path, shape: KvShape) -> anyhow::Result<Calibration> {
    let shipped = path.to_str().and_then(|name| Calibration::shipped(name, shape));
    Ok(shipped.unwrap_or_else(|| Calibration::open(path, shape))?)
}

fn evaluate(eval: &Eval) -> anyhow::Result<()> {
    out::probe([("--svg", eval.svg.as_deref())])?;
    let llm = kv::model(&eval.model)?;
    let shape = KvShape::from(llm.model.config());
    let own = Calibration::shipped(&eval.model, shape).map(|_| Path::new(&eval.model));
    let calibration = eval.calibration.as_deref().or(own).map(|path| calibration(path, shape)).transpose()?;
    if eval.tokens <= eval.skip + 1 {
        bail!("{} tokens less {} positions leave nothing to measure", eval.tokens, eval.skip);
    }
    let mut texts = Vec::new();
    for path in &eval.texts {
        let text: String = read_text(path)?.chars().skip(eval.offset).collect();
        let ids: Vec<u32> = llm.tokenizer.encode(&text)?.into_iter().take(eval.tokens).collect();
        if ids.len() < eval.tokens {
            bail!("{} has {} tokens, {} are asked for", path.display(), ids.len(), eval.tokens);
        }
        let name = path.file_stem().map_or_else(String::new, |n| n.to_string_lossy().into());
        texts.push(Text { name, ids });
    }
    let mut settings = if eval.only { Vec::new() } else { kv::presets(shape.head_dim) };
    settings.extend(eval.qp.iter().map(|&qp| Setting::Nkz(format!("entropy, QP {qp}"), Mode::Entropy { qp })));
    if calibration.is_none() {
        eprintln!("magpie: no calibration file: only the lossless mode can run");
        settings.retain(|s| matches!(s, Setting::Nkz(_, Mode::Lossless)));
    }
    if !eval.alone {
        settings.extend(peers::NAMES.map(Setting::Peer));
    }
    let meter = Meter::new("kv eval", "texts read");
    let rows = kv::evaluate(&llm, calibration.as_ref(), &settings, &texts, eval.skip, eval.threads, &meter)?;
    if !eval.svg.as_deref().is_some_and(out::is_stdout) {
        outln!("{}", kv::table(&rows, &texts));
        let equal = kv::equal_divergence(&rows);
        if !equal.is_empty() {
            outln!("\nEach peer beside the entropy-coded mode at the peer's own divergence:\n\n{equal}");
        }
        let beyond = kv::beyond(&rows);
        if !beyond.is_empty() {
            outln!("\n{beyond}");
        }
    }
    if let Some(path) = &eval.svg {
        out::save(path, &kv::svg(&rows))?;
    }
    Ok(())
}
