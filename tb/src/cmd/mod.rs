//! The commands of `magpie`, one file each.

pub mod conv;
pub mod cosim;
pub mod dma;
pub mod faults;
pub mod formats;
pub mod gemm;
pub mod gemv;
pub mod kv;
pub mod merge;
mod meter;
pub mod num;
pub mod product;
pub mod registers;
pub mod resources;
pub mod run;
pub mod sweep;
pub mod vector;
pub mod verify;
pub mod waves;

use crate::npy::Npy;
use anyhow::Context;
use std::path::Path;

/// Writes an array that `option` asked for, and says so.
fn save_npy(option: &str, path: &Path, npy: &Npy) -> anyhow::Result<()> {
    std::fs::write(path, npy.bytes()).with_context(|| format!("{option}: cannot write {}", path.display()))?;
    eprintln!("magpie: wrote {}: {} {:?}", path.display(), npy.dtype, npy.shape);
    Ok(())
}
