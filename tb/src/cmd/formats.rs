//! `magpie formats`: what number formats cost a model.

use super::meter::Meter;
use crate::formats::{Text, measure, svg, table};
use crate::out;
use crate::run::{config, read_text, source};
use crate::verify::grouped;
use anyhow::bail;
use clap::Args as ClapArgs;
use host::{Format, Options, Source};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What number formats cost a model: the whole NPU reads texts in each, and its answers are held against the f32 reference's.
///
/// Beside the NPU's figures stand those of the operands alone: the reference with the operands of its products rounded to the format, and all else
/// in f32. Where both agree the machine adds nothing to what the format costs.
#[derive(ClapArgs)]
#[command(after_help = "\
Each window of a text is read from an empty, lossless cache. KL: of the next token's distribution from the reference's, nats, mean over the
positions; top-1: share of positions with the same likeliest token, with its standard error from how the windows differ. A position whose two
likeliest tokens are all but equal flips by any rounding: some hundred positions say little about half a percent.

How long: SmolLM2-135M takes some 4 seconds of a core a window of 384 tokens and format; its reference logits take 75 MB a window, a session a thread 1 GB.

EXAMPLES
  magpie formats kjv-1m golden/models/kjv-1m/heldout.txt
  magpie formats smollm2 mine.txt --format bf16,int8/32,ffp8:1-3-4/channel --windows 2 --svg formats.svg")]
pub struct Args {
    /// `kjv-1m`, `smollm2` (after `make smollm2`), a GGUF file, or a Hugging Face folder.
    model: String,
    /// Texts.
    #[arg(required = true)]
    texts: Vec<PathBuf>,
    /// Formats, as `magpie run --format` takes them [default: eight, and the blocks that the model's file stores].
    #[arg(short, long, value_delimiter = ',')]
    format: Vec<Format>,
    /// Tokens of a window.
    #[arg(long, default_value_t = 384)]
    tokens: usize,
    /// Positions at a window's start that are not compared.
    #[arg(long, default_value_t = 64)]
    skip: usize,
    /// Windows of each text, one after another, at most.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    windows: u16,
    /// edge, default, big, or a TOML file.
    #[arg(short, long, default_value = "default", value_name = "CONFIG")]
    config: String,
    /// Windows read side by side [default: one a core].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// The figures as JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// A picture of them; `-`: to standard output, with nothing else there.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Measured where no format is named.
const FORMATS: [&str; 8] =
    ["bf16", "ffp8/32", "int8/32", "ffp8/channel", "e4m3/32", "int8/channel", "e4m3/channel", "e5m2/32"];

/// Runs the command.
///
/// # Errors
/// Files that cannot be read or written, texts too short, formats that the model or the NPU does not have.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    out::probe([("--json", args.json.then_some(Path::new("-"))), ("--svg", args.svg.as_deref())])?;
    let config = config(&args.config)?;
    let source = source(&args.model)?;
    let texts = texts(args, &source)?;
    let formats = if args.format.is_empty() { usual(&source)? } else { args.format.clone() };
    let options = Options { context: args.tokens, ..Options::new(config) };
    let threads = args.threads.map_or_else(super::verify::cores, usize::from);
    let meter = Meter::new("formats", "windows");
    let rows = measure(&source, &options, &formats, &texts, args.skip, threads, &meter)?;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&rows)?);
    } else if !args.svg.as_deref().is_some_and(out::is_stdout) {
        let windows: usize = texts.iter().map(|t| t.windows.len()).sum();
        let positions = rows.first().map_or(0, |r| r.positions);
        outln!(
            "{}, {}: {windows} windows of {} tokens, {} positions compared\n\n{}",
            source.llm().name,
            args.config,
            args.tokens,
            grouped(positions as u64),
            table(&rows, &texts)
        );
    }
    if let Some(path) = &args.svg {
        out::save(path, &svg(&rows, &source.llm().name))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The usual formats, and what most tensors of the model's file are stored as.
fn usual(source: &Source) -> anyhow::Result<Vec<Format>> {
    let mut formats = FORMATS.iter().map(|name| name.parse()).collect::<Result<Vec<Format>, _>>()?;
    if let Some((block, _)) = source.stored().into_iter().max_by_key(|(_, tensors)| *tensors) {
        formats.insert(2, Format::Stored(block));
    }
    Ok(formats)
}

/// The windows of the texts.
fn texts(args: &Args, source: &Source) -> anyhow::Result<Vec<Text>> {
    let (tokens, skip, window) = (args.tokens, args.skip, source.config().context);
    if tokens <= skip.saturating_add(1) {
        bail!("--tokens {tokens} less --skip {skip} leave nothing to compare");
    }
    if tokens > window {
        bail!("--tokens {tokens}: the context window of {} is {window}", source.llm().name);
    }
    let mut texts = Vec::new();
    for path in &args.texts {
        let ids = source.llm().tokenizer.encode(&read_text(path)?)?;
        let windows: Vec<_> = ids.chunks_exact(tokens).take(args.windows.into()).map(<[u32]>::to_vec).collect();
        if windows.is_empty() {
            bail!("{}: {} tokens, a window has {tokens}: see --tokens", path.display(), ids.len());
        }
        let name = path.file_stem().map_or_else(String::new, |n| n.to_string_lossy().into());
        texts.push(Text { name, windows });
    }
    Ok(texts)
}
