//! Reading files of bounded size.

use crate::{Error, Result};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The largest weight file that is read: 16 GiB hold 8 billion parameters of 16 bits.
pub(crate) const WEIGHTS_LIMIT: u64 = 16 << 30;
/// The largest JSON file that is read; tokenizers of published models stay below 20 MB.
pub(crate) const JSON_LIMIT: u64 = 64 << 20;

/// Reads a regular file of at most `limit` bytes. Memory that cannot be had is an error.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let io = |source| Error::Io { path: path.into(), source };
    let bad = |what| Error::File { file: path.display().to_string(), what, help: "Use the file of a published model" };
    // Asked before opening: opening a pipe would wait for a writer.
    let metadata = std::fs::metadata(path).map_err(io)?;
    if !metadata.is_file() {
        return Err(bad("is no regular file".into()));
    }
    if metadata.len() > limit {
        return Err(bad(format!("has {} bytes, more than {limit}", metadata.len())));
    }
    let mut bytes = Vec::new();
    let size = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    bytes.try_reserve_exact(size).map_err(|e| bad(format!("{size} bytes: {e}")))?;
    // A file that grows meanwhile is cut where it ended.
    File::open(path).map_err(io)?.take(metadata.len()).read_to_end(&mut bytes).map_err(io)?;
    Ok(bytes)
}
