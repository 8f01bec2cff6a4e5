//! Whole files, of a size that has a limit: a device without an end or the wrong file is refused, and not read until memory is gone.

use anyhow::{Context, ensure};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A file, and its bytes if it is a regular one, which are no more than the limit; else 0.
fn open(path: &Path, limit: u64) -> anyhow::Result<(File, u64)> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot read {shown}"))?;
    let what = file.metadata().with_context(|| format!("cannot read {shown}"))?;
    let size = if what.is_file() { what.len() } else { 0 };
    ensure!(size <= limit, "{shown} has {size} bytes, at most {limit} are read: is this the file that was meant?");
    Ok((file, size))
}

/// Reads up to `most` further bytes, of which a regular file has `size`.
fn take(path: &Path, file: &mut File, most: u64, size: u64, bytes: &mut Vec<u8>) -> anyhow::Result<()> {
    let shown = path.display();
    let size = size.min(most);
    bytes.try_reserve_exact(size as usize).with_context(|| format!("{shown}: no memory for {size} bytes"))?;
    file.take(most).read_to_end(bytes).with_context(|| format!("cannot read {shown}"))?;
    Ok(())
}

/// The bytes of a file; pipes and devices are read too. A regular file above the limit is refused unread, of any other no more is
/// read than shows that it is too long.
///
/// # Errors
/// A file that cannot be read or has more than `limit` bytes, memory that cannot be had. Each names the file.
pub fn read(path: &Path, limit: u64) -> anyhow::Result<Vec<u8>> {
    let (mut file, size) = open(path, limit)?;
    let mut bytes = Vec::new();
    take(path, &mut file, limit.saturating_add(1), size, &mut bytes)?;
    ensure!(
        bytes.len() as u64 <= limit,
        "{} has more than {limit} bytes, the most that are read: is this the file that was meant?",
        path.display()
    );
    Ok(bytes)
}

/// The bytes of a file that tells its own length. `told` says of the first bytes, from none on, how many the file has at least; what
/// it says of just as many is the length. So a file of another kind is left after its first bytes, however long it is.
///
/// # Errors
/// As [`read`], those of `told`, a file that ends too early or goes on.
pub fn read_told(path: &Path, limit: u64, told: impl Fn(&[u8]) -> anyhow::Result<u64>) -> anyhow::Result<Vec<u8>> {
    let shown = path.display();
    let (mut file, size) = open(path, limit)?;
    let mut bytes = Vec::new();
    loop {
        let (held, wanted) = (bytes.len() as u64, told(&bytes)?);
        ensure!(wanted <= limit, "{shown} says that it has {wanted} bytes, at most {limit} are read");
        if wanted <= held {
            break;
        }
        take(path, &mut file, wanted - held, size.saturating_sub(held), &mut bytes)?;
        let ends = bytes.len() as u64;
        ensure!(
            ends == wanted,
            "{shown} is cut short: it ends after {ends} bytes, its beginning calls for {wanted}; copy it again or write it anew"
        );
    }
    let whole = bytes.len();
    take(path, &mut file, 1, 0, &mut bytes)?;
    ensure!(
        bytes.len() == whole,
        "{shown} goes on behind its {whole} bytes, where its beginning says that it ends; copy it again or write it anew"
    );
    Ok(bytes)
}

/// Most bytes of a text: prompts, configurations, tables.
pub const TEXT: u64 = 1 << 28;

/// A text, as [`read`] reads bytes: 256 MiB at most.
///
/// # Errors
/// Those of [`read`], and the first byte that is no UTF-8.
pub fn text(path: &Path) -> anyhow::Result<String> {
    String::from_utf8(read(path, TEXT)?).map_err(|error| {
        anyhow::anyhow!("{} is no text: byte {} is not UTF-8", path.display(), error.utf8_error().valid_up_to())
    })
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

    #[test]
    fn a_text_is_utf_8() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        fs::write(&path, "καλά").unwrap();
        assert_eq!(text(&path).unwrap(), "καλά");
        fs::write(&path, b"ab\xff").unwrap();
        assert!(text(&path).unwrap_err().to_string().ends_with("is no text: byte 2 is not UTF-8"));
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

    /// A file whose first byte is its length.
    #[test]
    fn a_file_that_tells_its_length_has_that_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let told =
            |bytes: &[u8]| bytes.first().map_or(Ok(1), |&n| if n == 0 { anyhow::bail!("none") } else { Ok(n.into()) });
        let read = |content: &[u8]| {
            fs::write(&path, content).unwrap();
            read_told(&path, 9, told).map_err(|error| format!("{error:#}"))
        };
        assert_eq!(read(b"\x03ab").unwrap(), b"\x03ab");
        assert_eq!(read(b"\x01").unwrap(), b"\x01");
        for (content, part) in [
            (&b"\x03a"[..], "ends after 2 bytes, its beginning calls for 3"),
            (b"\x03abc", "goes on behind its 3 bytes"),
            (b"", "ends after 0 bytes"),
            (b"\x0aabcdefgh", "says that it has 10 bytes, at most 9"),
            (b"\x09abcdefghi", "has 10 bytes, at most 9"),
            (b"\0", "none"),
        ] {
            let error = read(content).unwrap_err();
            assert!(error.contains(part), "{content:?}: {error}");
        }
    }
}
