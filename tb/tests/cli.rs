//! Commands as a caller runs them: standard output, and input that is refused by name.

use std::fs::File;
use std::process::{Command, Stdio};

fn magpie(args: &[&str], stdout: Stdio) -> (Option<i32>, String) {
    let out =
        Command::new(env!("CARGO_BIN_EXE_magpie")).args(args).stdout(stdout).output().expect("the binary is there");
    (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_named() {
    let full = || Stdio::from(File::create("/dev/full").expect("Linux has it"));
    let commands: [&[&str]; 9] = [
        &["registers"],
        &["registers", "--sv"],
        &["resources"],
        &["verify", "--list"],
        &["waves", "--list"],
        &["gemm", "2", "2", "2"],
        &["gemm", "2", "2", "2", "--json"],
        &["num", "decode", "e4m3", "0x7e"],
        &["run", "--prompt", "And", "-n", "1", "--json"],
    ];
    for args in commands {
        let (code, said) = magpie(args, full());
        assert_eq!(code, Some(2), "{args:?}: {said}");
        assert!(said.starts_with("magpie: standard output cannot be written: "), "{args:?}: {said}");
    }
}

#[test]
fn standard_output_takes_one_report() {
    let (code, said) = magpie(&["verify", "--block", "rtl", "--json", "-", "--junit", "-"], Stdio::null());
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--junit and --json both go to standard output"), "{said}");
    let (code, said) = magpie(&["verify", "--block", "rtl", "--results", "-"], Stdio::null());
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--results -"), "{said}");
}

#[test]
fn a_table_of_picojoules_is_checked_and_counted_by_the_token() {
    let path = std::env::temp_dir().join(format!("magpie-energy-{}.toml", std::process::id()));
    let file = path.to_str().expect("UTF-8");
    let table =
        |mac: &str| format!("mac = {mac}\ndram_byte = 32.0\nvector_cycle = 300\nnkz_cycle = 120\ncycle = 800\n");
    for wrong in ["-1.0", "nan", "inf"] {
        std::fs::write(&path, table(wrong)).expect("a file");
        let (code, said) = magpie(&["resources", "--energy", file], Stdio::null());
        assert!(code == Some(2) && said.contains("mac = "), "{wrong}: {said}");
    }
    std::fs::write(&path, table("0.5")).expect("a file");
    let joules = |tokens: &str| {
        let args = ["resources", "--energy", file, "--prompt-tokens", "8", "--tokens", tokens, "--json"];
        let out = Command::new(env!("CARGO_BIN_EXE_magpie")).args(args).output().expect("the binary is there");
        let read: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        read["energy"]["joules_per_token"]["dram"].as_f64().expect("a number")
    };
    // A token reads the same weights, and a cache that is a little larger.
    let (one, four) = (joules("1"), joules("4"));
    assert!((four / one - 1.0).abs() < 0.05, "{one} {four}");
    std::fs::remove_file(path).expect("it was written");
}

#[test]
fn wrong_configurations_and_windows_are_named() {
    let path = std::env::temp_dir().join(format!("magpie-banks-{}.toml", std::process::id()));
    std::fs::write(&path, "[scratchpad]\nbanks = 3\n").expect("a file");
    let (code, said) = magpie(&["resources", "--config", path.to_str().expect("UTF-8")], Stdio::null());
    assert!(code == Some(2) && said.contains("scratchpad.bytes / scratchpad.banks = 8388608 / 3"), "{said}");
    std::fs::remove_file(path).expect("it was written");
    let (code, said) = magpie(&["resources", "--context", "100000"], Stdio::null());
    assert!(code == Some(2) && said.contains("--context 100000: the window of kjv-1m is 1 to 512"), "{said}");
}

#[test]
fn vectors_say_how_they_are_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().to_str().expect("UTF-8");
    let (code, said) = magpie(&["gemm", "3", "5", "4", "--array", "4x2", "--vectors", dir], Stdio::null());
    assert!(code == Some(0) && said.contains(dir), "{said}");
    let readme = std::fs::read_to_string(folder.path().join("README")).expect("it is there");
    assert!(readme.contains("mvp_vectors.ROWS=4 -P mvp_vectors.COLS=2") && readme.contains(&format!("+vectors={dir}")));
}

#[test]
fn calibration_shows_how_far_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tables");
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/models/kjv-1m/heldout.txt");
    let options = ["--windows", "2", "--window", "64", "-o", path.to_str().expect("UTF-8")];
    let (code, said) = magpie(&[&["kv", "calibrate", "kjv-1m", text], &options[..]].concat(), Stdio::null());
    assert_eq!(code, Some(0), "{said}");
    for line in ["1 of 2 passes that measure", "2 of 2 windows kept", "5 of 5 layers fitted"] {
        assert!(said.contains(&format!("kv calibrate: {line}")), "{line}: {said}");
    }
}

#[test]
fn faults_that_change_nothing_show_nothing() {
    let (code, said) = magpie(&["faults", "--block", "rtl", "--samples", "1", "--seed", "6"], Stdio::null());
    assert!(code == Some(1) && said.contains("rtl: none of 1 faults changed an output"), "{said}");
}

#[test]
fn results_go_into_a_new_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let results = folder.path().join("shards/1.json");
    let (code, said) = magpie(
        &["verify", "--point", "rtl.skid", "--shard", "1/3", "--results", results.to_str().expect("UTF-8")],
        Stdio::null(),
    );
    assert!(code == Some(0) && results.exists(), "{code:?} {said}");
}

#[test]
fn options_that_an_operation_would_not_look_at_are_refused() {
    for (args, want) in [
        (&["exp", "--online"][..], "--online is of softmax: exp does not look at it"),
        (&["silu", "--group", "32"], "--group is of quantise and absmax"),
        (&["softmax", "--position", "3"], "--position is of rope"),
        (&["rope", "--base", "nan"], "--base NaN: must be a finite number above 0"),
        (&["rope", "--base", "-5"], "--base -5"),
        (&["rmsnorm", "--epsilon", "inf"], "--epsilon inf"),
        (&["exp", "--engine", "transaction", "--wave", "v.vcd"], "--wave shows the clocked run"),
        (&["exp", "--a", "x.npy"], "cannot be used with"),
    ] {
        let (code, said) = magpie(&[&["vector", "--shape", "2x32"], args].concat(), Stdio::null());
        assert!(code == Some(2) && said.contains(want), "{args:?}: {said}");
    }
    let (code, said) =
        magpie(&["vector", "rope", "--shape", "2x32", "--base", "100", "--position", "7"], Stdio::null());
    assert_eq!(code, Some(0), "{said}");
}

#[cfg(unix)]
#[test]
fn files_without_an_end_are_refused() {
    for args in [
        &["resources", "--config", "/dev/zero"][..],
        &["resources", "--energy", "/dev/zero"],
        &["sweep", "/dev/zero"],
        &["formats", "kjv-1m", "/dev/zero"],
        &["run", "--eval", "/dev/zero"],
        &["merge", "/dev/zero"],
    ] {
        let (code, said) = magpie(args, Stdio::null());
        assert!(code == Some(2) && said.contains("/dev/zero has more than 268435456 bytes"), "{args:?}: {said}");
    }
}
