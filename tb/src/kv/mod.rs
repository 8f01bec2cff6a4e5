//! The compressed KV cache on a real model: calibration, the transformer's view of it, and what it costs in bits and KL.

mod adapter;
mod calibration;
mod dump;
mod eval;
mod file;
mod fit;
mod report;
mod stored;

pub use adapter::NkzCache;
pub use calibration::Calibration;
pub use dump::Dump;
pub use eval::{Row, Setting, Text, evaluate, mode, presets};
pub use file::Contents;
pub use fit::{Phase, Source, calibrate};
pub use report::{beyond, equal_divergence, svg, table};
pub use stored::{Stored, Tile};

use crate::run::located;
use golden::Llm;

/// A model by its name: `kjv-1m`, `smollm2`, a GGUF file, or a Hugging Face folder.
///
/// # Errors
/// Those of golden's loaders and of [`located`].
pub fn model(name: &str) -> anyhow::Result<Llm> {
    if name == "kjv-1m" {
        return Ok(golden::builtin()?);
    }
    let path = located(name)?;
    Ok(if path.extension().is_some_and(|e| e == "gguf") { Llm::open_gguf(&path)? } else { Llm::open(&path)? })
}
