//! The files of the codec, and what their first bytes say of them: which of the three it is, and where it ends.

use super::calibration::{self, Calibration};
use super::{Dump, Stored};
use crate::input;
use anyhow::{Context, ensure};
use safetensors::Dtype;
use safetensors::tensor::Metadata;
use std::path::Path;

/// Longest file that is read: the cache of 32 layers of 8 heads of 128 channels in BF16 after 32,768 tokens.
const LIMIT: u64 = 4 << 30;
/// Longest head of a safetensors file, as that format has it.
const LONGEST_HEAD: u64 = 100_000_000;
/// Bytes that tell the length of a safetensors file's head.
const LENGTH: usize = 8;

/// What a file holds.
#[derive(Debug)]
pub enum Contents {
    /// Static tables.
    Calibration(Calibration),
    /// A compressed cache.
    Stored(Stored),
    /// A plain dump, and the types that K and V have in the file.
    Dump(Dump, [Dtype; 2]),
}

impl Contents {
    /// Reads a file of any of the three kinds.
    ///
    /// # Errors
    /// None of them, cut short or too long, and those of the kind.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let (bytes, file) = (read(path)?, path.display().to_string());
        if bytes.starts_with(&calibration::MAGIC) {
            return Ok(Self::Calibration(Calibration::parse(&file, &bytes)?));
        }
        if Stored::marks(&bytes) {
            return Ok(Self::Stored(Stored::parse(&bytes).context(file)?));
        }
        let (dump, types) = Dump::parse(&bytes).context(file)?;
        Ok(Self::Dump(dump, types))
    }
}

/// Reads a file whose first bytes tell its length: one that is none of the codec's is left after these.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    input::read_told(path, LIMIT, |bytes| {
        length(bytes).with_context(|| {
            format!("{}: neither a safetensors file (a dump, a compressed cache) nor a calibration", path.display())
        })
    })
}

/// Bytes of the whole file, as far as its first bytes tell: no fewer than there must be.
fn length(bytes: &[u8]) -> anyhow::Result<u64> {
    let Some(first) = bytes.first_chunk::<LENGTH>() else { return Ok(LENGTH as u64) };
    if *first == calibration::MAGIC {
        return Ok(calibration::length(bytes));
    }
    let head = u64::from_le_bytes(*first);
    ensure!(head <= LONGEST_HEAD, "a safetensors file begins with the length of its head");
    let end = LENGTH as u64 + head;
    let Some(head) = bytes.get(LENGTH..end as usize) else { return Ok(end) };
    let head: Metadata = serde_json::from_slice(head).context("its head describes no tensors")?;
    Ok(end.saturating_add(head.data_len() as u64))
}
