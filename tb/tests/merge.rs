//! `magpie merge`, as a caller runs it.

use std::path::Path;
use std::process::{Command, Output};

fn magpie(folder: &Path, args: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_magpie")).args(args.split_whitespace()).current_dir(folder).output().unwrap()
}

#[test]
fn a_shard_that_was_broken_off_is_named_and_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let shard = |i: usize| magpie(folder.path(), &format!("verify --block rtl --shard {i}/3 --results {i}.json"));
    assert!([1, 3].iter().all(|&i| shard(i).status.success()));
    // What a run leaves that ends before its results.
    std::fs::write(folder.path().join("2.json"), "").unwrap();
    let out = magpie(folder.path(), "merge .");
    assert_eq!(
        (out.status.code(), String::from_utf8_lossy(&out.stderr).trim()),
        (Some(2), "magpie: shards missing of 3: 2")
    );
    assert!(shard(2).status.success() && magpie(folder.path(), "merge .").status.success());
}
