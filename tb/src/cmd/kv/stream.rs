//! `magpie kv dump`, `encode`, `decode` and `inspect`: a cache as a file, plain and compressed.

use super::calibration;
use crate::kv::{self, Calibration, Contents, Dump, Stored};
use crate::out;
use crate::run::read_text;
use anyhow::ensure;
use clap::Args as ClapArgs;
use comfy_table::{Table, presets::ASCII_MARKDOWN};
use golden::Logits;
use golden::kv::{KvShape, PlainCache, Storage};
use nkz::Format;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(ClapArgs)]
pub(super) struct DumpArgs {
    /// `kjv-1m`, `smollm2` (after `make smollm2`), a GGUF file, or a Hugging Face folder.
    model: String,
    /// A text.
    text: PathBuf,
    /// The safetensors file to write.
    #[arg(short, long)]
    output: PathBuf,
    /// Tokens of the text.
    #[arg(long, default_value_t = 256)]
    tokens: usize,
}

/// Writes the cache that a model fills from a text.
pub(super) fn dump(args: &DumpArgs) -> anyhow::Result<()> {
    out::probe_file("--output", &args.output)?;
    let llm = kv::model(&args.model)?;
    let shape = KvShape::from(llm.model.config());
    let ids: Vec<u32> = llm.tokenizer.encode(&read_text(&args.text)?)?.into_iter().take(args.tokens).collect();
    ensure!(!ids.is_empty(), "{}: no token in it", args.text.display());
    let mut cache = PlainCache::new(shape, Storage::Bf16);
    llm.model.forward(&ids, &mut cache, &mut (), Logits::Skip)?;
    let dump = Dump::of(&cache, shape);
    dump.save(&args.output)?;
    outln!("{}: K and V, BF16 {}, K before RoPE", args.output.display(), dimensions(shape, dump.tokens));
    Ok(())
}

#[derive(ClapArgs)]
pub(super) struct EncodeArgs {
    /// A safetensors file with K (before RoPE) and V, BF16 or F32 [layers, heads, tokens, head_dim]; [heads, tokens,
    /// head_dim] and [tokens, head_dim] do too.
    file: PathBuf,
    /// The compressed file to write.
    #[arg(short, long)]
    output: PathBuf,
    /// raw, lossless, near-lossless, standard, low, lowest, fixed, mean, qp0..qp63, or slotN: N bytes a tile of 32 tokens and up to 64
    /// channels, a multiple of 8 from 40 on (slot384 is 3 bits a value for heads of 32 channels, slot768 for those of 64).
    #[arg(short, long, default_value = "lossless")]
    mode: String,
    /// Another mode for V.
    #[arg(long)]
    values: Option<String>,
    /// The calibration file of the model, or `kjv-1m`; the raw and the lossless mode can do without.
    #[arg(short, long)]
    calibration: Option<PathBuf>,
}

/// Compresses a plain dump.
pub(super) fn encode(args: &EncodeArgs) -> anyhow::Result<()> {
    out::probe_file("--output", &args.output)?;
    let dump = Dump::open(&args.file)?;
    let calibration = args.calibration.as_deref().map(|path| calibration(path, dump.shape)).transpose()?;
    let d = dump.shape.head_dim;
    let modes = [kv::mode(&args.mode, d)?, kv::mode(args.values.as_deref().unwrap_or(&args.mode), d)?];
    let stored = Stored::encode(&dump, calibration.as_ref(), modes)?;
    stored.save(&args.output)?;
    print_sizes(&args.output, &stored);
    Ok(())
}

#[derive(ClapArgs)]
pub(super) struct DecodeArgs {
    /// A compressed file.
    file: PathBuf,
    /// The safetensors file to write: K (before RoPE) and V, BF16 [layers, heads, tokens, head_dim].
    #[arg(short, long)]
    output: PathBuf,
}

/// Decompresses; a corrupt tile is named, its rows are zero, and the exit code is 1.
pub(super) fn decode(args: &DecodeArgs) -> anyhow::Result<ExitCode> {
    out::probe_file("--output", &args.output)?;
    let stored = Stored::open(&args.file)?;
    let (dump, corrupt) = stored.decode();
    dump.save(&args.output)?;
    outln!("{}: K and V, BF16 {}, K before RoPE", args.output.display(), dimensions(dump.shape, dump.tokens));
    Ok(complain(&args.file, &corrupt))
}

fn complain(file: &Path, corrupt: &[nkz::Corrupt]) -> ExitCode {
    for c in corrupt {
        eprintln!("magpie: {}: {c}", file.display());
    }
    ExitCode::from(u8::from(!corrupt.is_empty()))
}

#[derive(ClapArgs)]
pub(super) struct InspectArgs {
    /// A compressed file, a plain dump, or a calibration file.
    file: PathBuf,
    /// Show one line for every tile.
    #[arg(long)]
    tiles: bool,
}

/// Says what a file holds; for a compressed one, tile by tile on request, and which tiles do not decode.
pub(super) fn inspect(args: &InspectArgs) -> anyhow::Result<ExitCode> {
    let file = &args.file;
    match Contents::open(file)? {
        Contents::Calibration(calibration) => {
            let s = calibration.shape;
            outln!(
                "{}: a calibration, {} layers × {} heads × {} channels",
                file.display(),
                s.layers,
                s.heads,
                s.head_dim
            );
            outln!("{}", table_bits(&calibration));
        }
        Contents::Stored(stored) => return Ok(inspect_stored(args, &stored)),
        Contents::Dump(dump, types) => {
            let [k, v] = types.map(|t| format!("{t:?}"));
            let types = if k == v { format!("K and V, {k}") } else { format!("K {k}, V {v}") };
            outln!("{}: a plain dump, {types} {}", file.display(), dimensions(dump.shape, dump.tokens));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Sizes of the static tables: of what a line says, and of the lines as they lie in memory.
pub(super) fn table_bits(calibration: &Calibration) -> String {
    let (lines, bits) = (calibration.lines.len(), calibration.bits());
    format!("{lines} lines of tables, one a channel: {bits} bits, {} as stored (64 a line)", 64 * lines)
}

fn inspect_stored(args: &InspectArgs, stored: &Stored) -> ExitCode {
    print_sizes(&args.file, stored);
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    if args.tiles {
        table.set_header([
            "layer", "head", "kind", "tile", "block", "format", "QP", "offset", "tokens", "bytes", "flags",
        ]);
    } else {
        table.set_header(["format", "tiles of K", "tiles of V", "bytes"]);
    }
    let mut formats = [[0usize; 3]; 7];
    for tile in stored.tiles() {
        let (a, Some(header)) = (tile.address, tile.header()) else { continue };
        let entry = &mut formats[header.format as usize];
        entry[a.kind as usize] += 1;
        entry[2] += tile.bytes.len();
        if args.tiles {
            let place =
                [a.layer.to_string(), a.head.to_string(), ["K", "V"][a.kind as usize].into(), a.tile.to_string()];
            let (qp, offset) = match header.format {
                Format::Lossless => (format!("shift {}", header.shift()), String::new()),
                Format::Entropy | Format::Slot => (header.qp.to_string(), (i32::from(header.offset) - 2).to_string()),
                Format::Fixed => (header.qp.to_string(), String::new()),
                Format::Raw | Format::Mean | Format::Overflow => Default::default(),
            };
            let fields = [a.block.to_string(), format!("{:?}", header.format), qp, offset, header.tokens().to_string()];
            let rest = [tile.bytes.len().to_string(), format!("{:03b}", header.flags)];
            table.add_row(place.into_iter().chain(fields).chain(rest));
        }
    }
    if !args.tiles {
        for (format, [k, v, bytes]) in Format::ALL.iter().zip(formats).filter(|(_, f)| f[2] > 0) {
            table.add_row([format!("{format:?}"), k.to_string(), v.to_string(), bytes.to_string()]);
        }
    }
    outln!("{table}");
    complain(&args.file, &stored.decode().1)
}

fn dimensions(s: KvShape, tokens: usize) -> String {
    format!("[{} layers, {} heads, {tokens} tokens, {} channels]", s.layers, s.heads, s.head_dim)
}

fn print_sizes(file: &Path, stored: &Stored) {
    let [tiles, lengths, raw] = stored.sizes();
    let plain = 4 * stored.shape.layers * stored.shape.heads * stored.tokens * stored.shape.head_dim;
    let all = tiles + lengths + raw;
    outln!("{}: a compressed cache, {}", file.display(), dimensions(stored.shape, stored.tokens));
    outln!(
        "{all} bytes for {plain} of BF16, {:.3} to 1: tiles {tiles}, their lengths {lengths}, raw sinks and last tokens {raw}; \
         static tables {} bytes beside",
        plain as f64 / all.max(1) as f64,
        8 * stored.tables.len()
    );
}
