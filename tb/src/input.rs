//! Whole files, of a size that has a limit: a device without an end or the wrong file is refused, and not read until memory is gone.

use anyhow::{Context, bail, ensure};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The bytes of a file; pipes and devices are read too. A regular file above the limit is refused unread, of any other no more is
/// read than shows that it is too long.
///
/// # Errors
/// A file that cannot be read or has more than `limit` bytes, memory that cannot be had. Each names the file.
pub fn read(path: &Path, limit: u64) -> anyhow::Result<Vec<u8>> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot read {shown}"))?;
    let what = file.metadata().with_context(|| format!("cannot read {shown}"))?;
    let size = if what.is_file() { what.len() } else { 0 };
    if size > limit {
        bail!("{shown} has {size} bytes, at most {limit} are read: is this the file that was meant?");
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size as usize).with_context(|| format!("{shown}: no memory for its {size} bytes"))?;
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).with_context(|| format!("cannot read {shown}"))?;
    ensure!(
        bytes.len() as u64 <= limit,
        "{shown} has more than {limit} bytes, the most that are read: is this the file that was meant?"
    );
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, io::Write};

    fn refusal(path: &Path, limit: u64) -> String {
        format!("{:#}", read(path, limit).unwrap_err())
    }

    #[test]
    fn files_up_to_the_limit_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, b"12345678").unwrap();
        assert_eq!(read(&path, 8).unwrap(), b"12345678");
        let error = refusal(&path, 7);
        assert!(error.contains(&path.display().to_string()) && error.contains("8 bytes, at most 7"), "{error}");
        assert!(refusal(&folder.path().join("none"), 8).contains("No such file"));
        assert!(refusal(folder.path(), 1 << 20).contains("directory"));
    }

    /// The file system holds nothing of such a file, a reader would hold all of it.
    #[test]
    fn a_giant_file_is_refused_unread() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 40).unwrap();
        assert!(refusal(file.path(), 1 << 20).contains("1099511627776 bytes"));
    }

    #[cfg(unix)]
    #[test]
    fn what_has_no_end_is_left_behind_the_limit() {
        assert!(refusal(Path::new("/dev/zero"), 1000).contains("more than 1000 bytes"));
        assert_eq!(read(Path::new("/dev/null"), 0).unwrap(), b"");
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"piped").unwrap();
        drop(writer);
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        assert_eq!(read(Path::new(&path), 5).unwrap(), b"piped");
    }
}
