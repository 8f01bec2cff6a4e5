//! `magpie kv` as a caller runs it: what a file is, and files that are none, are cut short or have no end.

use safetensors::{Dtype, tensor::TensorView};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn kv(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_magpie")).arg("kv").args(args).output().expect("the binary is there")
}

/// What standard error says, with exit code 2.
fn refusal(args: &[&str]) -> String {
    let out = kv(args);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{args:?}: {said}");
    said
}

fn said(args: &[&str]) -> String {
    let out = kv(args);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// A dump of 40 tokens of one head of 8 channels.
fn dump(path: &Path, types: [Dtype; 2]) {
    let bytes = types.map(|dtype| {
        let value = |i: usize| {
            let bytes = ((i * 7919 % 200) as f32 / 64.0).to_le_bytes();
            bytes[if dtype == Dtype::F32 { 0 } else { 2 }..].to_vec()
        };
        (0..40 * 8).flat_map(value).collect::<Vec<u8>>()
    });
    let view = |i: usize| TensorView::new(types[i], vec![40, 8], &bytes[i]).expect("a tensor");
    let whole = safetensors::serialize([("K", view(0)), ("V", view(1))], None).expect("a file");
    fs::write(path, whole).expect("a file");
}

#[test]
fn a_dump_has_the_type_that_it_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("dump");
    let name = path.to_str().expect("UTF-8");
    for (types, shown) in [
        ([Dtype::BF16; 2], "K and V, BF16 ["),
        ([Dtype::F32; 2], "K and V, F32 ["),
        ([Dtype::F32, Dtype::BF16], "K F32, V BF16 ["),
    ] {
        dump(&path, types);
        let text = said(&["inspect", name]);
        assert!(text.contains(shown), "{text}");
    }
}

#[test]
fn a_file_cut_short_is_named_with_where_and_the_way_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let [plain, cache, cut] = ["dump", "cache.nkz", "cut.nkz"].map(|name| folder.path().join(name));
    let [plain_name, cache_name, cut_name] = [&plain, &cache, &cut].map(|path| path.to_str().expect("UTF-8"));
    dump(&plain, [Dtype::BF16; 2]);
    said(&["encode", plain_name, "-o", cache_name]);
    for whole in [fs::read(&plain).expect("it was written"), fs::read(&cache).expect("it was written")] {
        for length in [0, 5, 8, 100, whole.len() / 2, whole.len() - 1] {
            fs::write(&cut, &whole[..length]).expect("a file");
            for args in [&["inspect", cut_name][..], &["decode", cut_name, "-o", plain_name]] {
                let text = refusal(args);
                let ends = format!("{cut_name} is cut short: it ends after {length} bytes");
                assert!(text.contains(&ends) && text.contains("write it anew"), "{text}");
            }
        }
        fs::write(&cut, [&whole[..], b"x"].concat()).expect("a file");
        let text = refusal(&["inspect", cut_name]);
        assert!(text.contains(&format!("goes on behind its {} bytes", whole.len())), "{text}");
    }
}

#[test]
fn files_without_an_end_and_giants_are_left_after_their_first_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let [giant, out] = ["giant", "out"].map(|name| folder.path().join(name));
    let [giant_name, out] = [&giant, &out].map(|path| path.to_str().expect("UTF-8"));
    let file = fs::File::create(&giant).expect("a file");
    file.set_len(3 << 30).expect("a hole");
    let mut names = vec![giant_name];
    if cfg!(unix) {
        names.extend(["/dev/zero", "/dev/urandom"]);
    }
    for name in names {
        for args in [&["inspect", name][..], &["encode", name, "-o", out], &["decode", name, "-o", out]] {
            let text = refusal(args);
            assert!(text.contains(name) && text.contains("neither a safetensors file"), "{text}");
        }
    }
    file.set_len(1 << 40).expect("a hole");
    let text = refusal(&["inspect", giant_name]);
    assert!(text.contains(giant_name) && text.contains("has 1099511627776 bytes, at most"), "{text}");
}

#[test]
fn tiles_show_the_fields_that_their_format_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let [plain, cache, tables] = ["dump", "cache.nkz", "kjv"].map(|name| folder.path().join(name));
    let [plain, cache, tables] = [&plain, &cache, &tables].map(|path| path.to_str().expect("UTF-8"));
    let shape = golden::kv::KvShape { layers: 5, heads: 2, head_dim: 32 };
    fs::write(tables, tb::kv::Calibration::builtin(shape).expect("it ships").to_bytes()).expect("a file");
    let text = said(&["inspect", tables]);
    assert!(text.contains("640 lines of tables, one a channel: 33280 bits, 40960 as stored (64 a line)"), "{text}");
    let heldout = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/models/kjv-1m/heldout.txt");
    said(&["dump", "kjv-1m", heldout, "-o", plain, "--tokens", "40"]);
    // The mode, and whether its tiles have a QP and an offset. slot384 is a name of the tables of `kv eval`.
    for (mode, qp, offset) in [
        ("raw", false, false),
        ("fixed", true, false),
        ("mean", false, false),
        ("qp16", true, true),
        ("slot384", true, true),
    ] {
        said(&["encode", plain, "-o", cache, "--mode", mode, "--calibration", "kjv-1m"]);
        let text = said(&["inspect", cache, "--tiles"]);
        let row = text.lines().find(|line| line.starts_with("| 0 ")).expect("a tile");
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!((!cells[7].is_empty(), !cells[8].is_empty()), (qp, offset), "{mode}: {row}");
    }
}
