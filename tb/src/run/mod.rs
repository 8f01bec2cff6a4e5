//! A language model on the whole NPU: what `magpie run` and the bench share.

mod compare;
mod generate;
mod listing;
mod report;
mod rerun;
mod timeline;

pub use compare::{Comparison, compare, judge};
pub use generate::{End, Generated, Generation, generate};
pub use listing::{Names, line, listing};
pub use report::{Report, Setup};
pub use rerun::{At, Rerun, rerun};
pub use timeline::timeline;

use crate::input;
use crate::kv::{Calibration, mode};
use anyhow::{Context, bail};
use golden::kv::KvShape;
use host::{Cache, Source};
use nkz::Mode;
use npu::Config;
use std::path::{Path, PathBuf};

/// Text of the King James Version that kjv-1m was not trained on.
pub const HELD_OUT: &str = include_str!("../../../golden/models/kjv-1m/heldout.txt");

/// The model that `make smollm2` fetches.
const SMOLLM2: &str = "models/SmolLM2-135M-Instruct.Q4_1.gguf";

/// A model by its name: `kjv-1m`, `smollm2`, a GGUF file, or a Hugging Face folder.
///
/// # Errors
/// Those of golden's loaders and of [`located`].
pub fn source(name: &str) -> anyhow::Result<Source> {
    Ok(match name {
        "kjv-1m" => Source::builtin()?,
        other => Source::load(&located(other)?)?,
    })
}

/// Where the files of a model that is not part of the program lie.
///
/// # Errors
/// `smollm2` that was not fetched, a name that is no file or folder.
pub fn located(name: &str) -> anyhow::Result<PathBuf> {
    match Path::new(name) {
        _ if name == "smollm2" => smollm2(),
        path if path.exists() => Ok(path.into()),
        _ => {
            bail!("no model `{name}`: there are kjv-1m, smollm2, and GGUF files or Hugging Face folders by their path")
        }
    }
}

/// A text. Bytes that are no UTF-8 are replaced, which is said on standard error: tokens and figures are those of what was read.
///
/// # Errors
/// A file that cannot be read.
pub fn read_text(path: &Path) -> anyhow::Result<String> {
    let bytes = input::read(path, input::TEXT)?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| {
        let at = error.utf8_error().valid_up_to();
        eprintln!("magpie: {}: not UTF-8 at byte {at}; such bytes are replaced", path.display());
        String::from_utf8_lossy(error.as_bytes()).into_owned()
    }))
}

/// The context window that `--context` asks for, at most the model's; left out, the model's.
///
/// # Errors
/// One that the model does not have.
pub fn window(context: Option<usize>, source: &Source) -> anyhow::Result<usize> {
    let most = source.config().context;
    match context {
        None => Ok(most),
        Some(tokens) if (1..=most).contains(&tokens) => Ok(tokens),
        Some(tokens) => bail!("--context {tokens}: the window of {} is 1 to {most} tokens", source.llm().name),
    }
}

/// Where SmolLM2 lies: under the present folder, or under one that the program was built in.
///
/// # Errors
/// Nowhere.
pub fn smollm2() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().unwrap_or_default();
    let folders = std::iter::once(Path::new("")).chain(program.ancestors().skip(1));
    let found = folders.map(|folder| folder.join(SMOLLM2)).find(|path| path.exists());
    found.with_context(|| format!("{SMOLLM2} is not there: `make smollm2` fetches it (93 MB)"))
}

/// A cache by its mode's name, with the tables that a lossy one needs: those of `calibration`, or those that come with the model.
///
/// # Errors
/// An unknown mode, a calibration file that cannot be used, a lossy mode without one.
pub fn cache(name: &str, source: &Source, calibration: Option<&Path>) -> anyhow::Result<Cache> {
    let shape = KvShape::from(source.config());
    let mode = mode(name, shape.head_dim)?;
    let own = || Calibration::shipped(&source.llm().name, shape).transpose();
    let tables = match calibration
        .map(|path| Calibration::open(path, shape))
        .map_or_else(own, |read| Ok(Some(read?)))?
    {
        Some(calibration) => calibration.lines,
        None if matches!(mode, Mode::Raw | Mode::Lossless) => Vec::new(),
        None => bail!(
            "the cache's mode `{name}` needs a calibration of this model (--calibration FILE; in a sweep calibration = \"FILE\"): \
             `magpie kv calibrate` writes it"
        ),
    };
    Ok(Cache::new(mode, tables))
}

/// A configuration: one of the presets, or a TOML file.
///
/// # Errors
/// A file that cannot be read or is refused.
pub fn config(name: &str) -> anyhow::Result<Config> {
    if let Some(config) = Config::preset(name) {
        return Ok(config);
    }
    let presets: Vec<_> = npu::PRESETS.iter().map(|(name, _)| *name).collect();
    let text = input::text(Path::new(name))
        .with_context(|| format!("{name}: neither a file nor one of the configurations {}", presets.join(", ")))?;
    Config::from_toml(&text).with_context(|| name.to_string())
}
