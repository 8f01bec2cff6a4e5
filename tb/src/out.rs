//! Where the commands write: standard output, and files of text of which one may be standard output.
//!
//! A full disk behind `>` is an error of the caller's machine and no panic: it is named, and the command ends with code 2.

use anyhow::{Context, bail};
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// `print!` for the commands.
macro_rules! out {
    ($($arg:tt)*) => { $crate::out::write(format_args!($($arg)*)) };
}

/// `println!` for the commands.
macro_rules! outln {
    ($($arg:tt)*) => { out!("{}\n", format_args!($($arg)*)) };
}

/// Writes to standard output; on an error says so on standard error and ends the process with code 2.
pub fn write(text: fmt::Arguments<'_>) {
    or_end(io::stdout().write_fmt(text));
}

/// Writes what standard output still holds back; on an error ends the same way.
pub fn flush() {
    or_end(io::stdout().flush());
}

fn or_end(written: io::Result<()>) {
    if let Err(error) = written {
        eprintln!("magpie: standard output cannot be written: {error}");
        std::process::exit(2);
    }
}

/// Whether a path is `-`, standard output.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Finds out before a long run whether its files of text, each with its option's name, can be written. A file that was not there is
/// not there afterwards.
///
/// # Errors
/// A file that cannot be written; two that are one.
pub fn probe<'a>(files: impl IntoIterator<Item = (&'static str, Option<&'a Path>)> + Clone) -> anyhow::Result<()> {
    for (option, path) in files.clone() {
        if let Some(path) = path.filter(|path| !is_stdout(path)) {
            try_file(option, path)?;
        }
    }
    distinct(files)
}

/// Refuses two outputs of one command that are one file, or both standard output: the second would be all that is left.
///
/// # Errors
/// Both options and the file.
pub fn distinct<'a>(files: impl IntoIterator<Item = (&'static str, Option<&'a Path>)>) -> anyhow::Result<()> {
    let mut taken: Vec<(&str, PathBuf)> = Vec::new();
    for (option, path) in files {
        let Some(path) = path else { continue };
        let real = if is_stdout(path) { path.into() } else { place(path, LINKS) };
        // A device such as /dev/null keeps nothing that could be lost.
        if fs::metadata(&real).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
            continue;
        }
        match taken.iter().find(|(_, other)| *other == real) {
            Some((first, _)) if is_stdout(path) => {
                bail!("{first} and {option} both go to standard output: give one of them a file")
            }
            Some((first, _)) => bail!("{first} and {option} are one file, {}: give each its own", path.display()),
            None => taken.push((option, real)),
        }
    }
    Ok(())
}

/// Most symbolic links that are followed to a file that is not there yet.
const LINKS: usize = 40;

/// Where a path leads, whether or not there is a file.
fn place(path: &Path, links: usize) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    let folder = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    match (fs::read_link(path), path.file_name()) {
        (Ok(target), _) if links > 0 => place(&folder.join(target), links - 1),
        (_, Some(name)) => folder.canonicalize().unwrap_or_else(|_| folder.into()).join(name),
        (_, None) => path.into(),
    }
}

/// The same for a file that standard output cannot stand for, such as one of bytes: `-` is refused.
///
/// # Errors
/// A file that cannot be written, or that is standard output.
pub fn probe_file(option: &str, path: &Path) -> anyhow::Result<()> {
    if is_stdout(path) {
        bail!("{option} -: this does not go to standard output, give it a file");
    }
    try_file(option, path)
}

fn try_file(option: &str, path: &Path) -> anyhow::Result<()> {
    let there = fs::metadata(path);
    // To open a pipe would be to use it.
    if there.as_ref().is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        return Ok(());
    }
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.map(drop).with_context(|| format!("{option}: cannot write {}", path.display()))?;
    // What a link leads to was not there; the link was.
    if there.is_err()
        && let Ok(made) = fs::canonicalize(path)
    {
        let _ = fs::remove_file(made);
    }
    Ok(())
}

/// Writes a file of text; `-`: to standard output.
///
/// # Errors
/// A file that cannot be written.
pub fn save(path: &Path, text: &str) -> anyhow::Result<()> {
    if is_stdout(path) {
        write(format_args!("{text}"));
        return Ok(());
    }
    save_bytes(path, text.as_bytes())
}

/// Writes a file of bytes. What is there is written to and not replaced: a link leads to its file, a pipe or a device takes the bytes.
///
/// # Errors
/// A file that cannot be written.
pub fn save_bytes(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_tried_and_left_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let (new, old) = (folder.path().join("new"), folder.path().join("old"));
        fs::write(&old, "kept").unwrap();
        probe([("--a", Some(new.as_path())), ("--b", Some(&old)), ("--c", Some(Path::new("-"))), ("--d", None)])
            .unwrap();
        probe_file("--a", &new).unwrap();
        assert!(!new.exists());
        assert_eq!(fs::read(&old).unwrap(), b"kept");
        #[cfg(unix)]
        {
            let link = folder.path().join("link");
            std::os::unix::fs::symlink(&new, &link).unwrap();
            probe_file("--a", &link).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink() && !new.exists());
            save(&link, "text").unwrap();
            assert_eq!(fs::read(&new).unwrap(), b"text");
        }
        let missing = folder.path().join("none/x");
        let error = probe([("--a", Some(missing.as_path()))]).unwrap_err();
        assert!(format!("{error:#}").starts_with("--a: cannot write"), "{error:#}");
        assert!(probe([("--a", Some(folder.path()))]).is_err());
        let twice = probe([("--a", Some(Path::new("-"))), ("--b", Some(Path::new("-")))]).unwrap_err();
        assert!(twice.to_string().contains("--a and --b"), "{twice}");
        assert!(probe_file("--a", Path::new("-")).is_err());
    }

    #[test]
    fn two_outputs_to_one_file_are_refused_whatever_they_are_called() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("sub")).unwrap();
        fs::write(at("old"), "kept").unwrap();
        let mut same = vec![
            (at("new"), at("new")),
            (at("new"), at("./new")),
            (at("new"), at("sub/../new")),
            (at("old"), at("sub/../old")),
            (at("none/x"), at("none/x")),
        ];
        #[cfg(unix)]
        {
            use std::os::unix::fs::symlink;
            symlink(at("old"), at("link")).unwrap();
            symlink("new", at("ahead")).unwrap();
            symlink("round", at("round")).unwrap();
            symlink(at("sub"), at("folder")).unwrap();
            same.extend([(at("old"), at("link")), (at("new"), at("ahead")), (at("sub/x"), at("folder/x"))]);
            assert!(distinct([("--a", Some(at("round").as_path())), ("--b", Some(&at("old")))]).is_ok());
            let null = Path::new("/dev/null");
            assert!(distinct([("--a", Some(null)), ("--b", Some(null))]).is_ok());
        }
        for (a, b) in &same {
            let error = distinct([("--a", Some(a.as_path())), ("--c", None), ("--b", Some(b))]).unwrap_err();
            assert!(error.to_string().starts_with("--a and --b are one file"), "{a:?} {b:?}: {error}");
        }
        assert!(distinct([("--a", Some(at("new").as_path())), ("--b", Some(&at("sub/new")))]).is_ok());
        assert!(probe([("--a", Some(at("new").as_path())), ("--b", Some(&at("./new")))]).is_err());
    }
}
