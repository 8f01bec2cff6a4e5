//! `magpie sweep`: what a table of an earlier run is worth.

use golden::kv::KvShape;
use std::path::Path;
use std::process::{Command, Output};
use tb::kv::Calibration;

fn sweep(folder: &Path, grid: &str, out: &str) -> Output {
    let file = folder.join("grid.toml");
    std::fs::write(&file, grid).unwrap();
    Command::new(env!("CARGO_BIN_EXE_magpie")).arg("sweep").arg(&file).args(["--out", out]).output().unwrap()
}

fn new(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines().find(|line| line.ends_with("of them new")).unwrap().rsplit(": ").next().unwrap().into()
}

const GRID: &str = "prompt_tokens = 32\ndecode_tokens = 1\ncontext = [32]\narray = [\"8x8\"]\n";

#[test]
fn what_was_measured_is_kept_and_what_changed_is_measured_again() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("table.csv").display().to_string();
    let machine = folder.path().join("machine.toml").display().to_string();
    let run = |grid: &str| new(&sweep(folder.path(), &format!("config = [\"{machine}\"]\n{grid}"), &out));
    std::fs::write(&machine, "").unwrap();
    assert_eq!(run(GRID), "1 figures, 1 of them new");
    assert_eq!(run(GRID), "1 figures, 0 of them new");
    // The same names, another machine; another measurement; more points, one of them twice.
    std::fs::write(&machine, "[dram]\nhit_latency = 200\nmiss_latency = 400\n").unwrap();
    assert_eq!(run(GRID), "1 figures, 1 of them new");
    assert_eq!(run(&GRID.replace("decode_tokens = 1", "decode_tokens = 2")), "1 figures, 1 of them new");
    assert_eq!(run(&GRID.replace("[\"8x8\"]", "[\"8x8\", \"16x8\", \"16x8\"]")), "2 figures, 1 of them new");
    // A line that was torn is measured again, those before it stay.
    let text = std::fs::read_to_string(&out).unwrap();
    std::fs::write(&out, &text[..text.len() - 9]).unwrap();
    assert_eq!(run(&GRID.replace("[\"8x8\"]", "[\"8x8\", \"16x8\"]")), "2 figures, 1 of them new");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), text);
    // Another prompt; other tables of the codec.
    let text = folder.path().join("prompt.txt");
    std::fs::write(&text, "And the earth was without form, and void. ".repeat(20)).unwrap();
    let other = format!("text = \"{}\"\n{GRID}", text.display());
    assert_eq!(run(&other), "1 figures, 1 of them new");
    let shape = KvShape { layers: 5, heads: 2, head_dim: 32 };
    let mut calibration = Calibration::builtin(shape).unwrap();
    let file = folder.path().join("tables");
    let lossy = format!("kv = [\"standard\"]\ncalibration = \"{}\"\n{GRID}", file.display());
    for new in [1, 0] {
        std::fs::write(&file, calibration.to_bytes()).unwrap();
        assert_eq!(run(&lossy), format!("1 figures, {new} of them new"));
    }
    calibration.lines[7].step += 4;
    std::fs::write(&file, calibration.to_bytes()).unwrap();
    assert_eq!(run(&lossy), "1 figures, 1 of them new");
}

#[test]
fn tables_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("table.csv").display().to_string();
    let refused = |out: &str, what: &str| {
        let output = sweep(folder.path(), GRID, out);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.contains(what), "{text}");
    };
    new(&sweep(folder.path(), GRID, &out));
    let good = std::fs::read_to_string(&out).unwrap();
    let file = std::fs::File::open(&out).unwrap();
    file.lock().unwrap();
    refused(&out, "another sweep is writing");
    drop(file);
    std::fs::write(&out, format!("{good}1,2,3\n")).unwrap();
    refused(&out, "line 3 is damaged");
    std::fs::write(&out, "a,b\n").unwrap();
    refused(&out, "no table of this version");
    std::fs::write(&out, "a letter").unwrap();
    refused(&out, "no table of a sweep");
    refused("/dev/null", "no regular file");
}

#[test]
fn a_point_that_cannot_run_is_refused_before_any_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("table.csv");
    let shown = out.display().to_string();
    for (grid, what) in [
        ("kv = [\"raw\", \"slow\"]", "slow"),
        ("format = [\"bf16\", \"int9\"]", "int9"),
        ("decoders = []", "decoders = []: give at least one"),
        ("bandwidth = []", "bandwidth = []: give at least one"),
    ] {
        let output = sweep(folder.path(), &format!("{GRID}{grid}\n"), &shown);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(what));
        assert!(!out.exists(), "nothing was begun");
    }
}

#[test]
fn an_absurd_context_is_refused_by_its_own_number() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("table.csv");
    let output = sweep(folder.path(), &GRID.replace("[32]", "[1000000000000]"), &out.display().to_string());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("tokens. It may have 4,194,304"), "{said}");
}

#[test]
fn plots_have_the_order_of_the_grid_and_name_machines_and_roofs() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("t.csv");
    let grid = GRID.replace("[\"8x8\"]", "[\"16x8\", \"16x16\"]") + "kv = [\"raw\", \"lossless\"]\n";
    let output = sweep(folder.path(), &grid, &out.display().to_string());
    assert_eq!(new(&output), "4 figures, 4 of them new");
    let picture = |name: &str| std::fs::read_to_string(folder.path().join(format!("t-{name}.svg"))).unwrap();
    // The rows of an array differ, or its columns alone.
    let order = ["16x8, raw", "16x8, lossless", "16x16, raw", "16x16, lossless"];
    for name in ["tpot", "utilisation", "roofline"] {
        let svg = picture(name);
        let texts: Vec<&str> = svg.lines().filter(|line| order.contains(line)).collect();
        assert_eq!(texts, order, "{name}");
    }
    let roofs = picture("roofline");
    for words in ["16x8 array", "16x16 array", "64 B/cycle", "mark on an upright line: prefill"] {
        assert_eq!(roofs.lines().filter(|line| *line == words).count(), 1, "{words}");
    }
}

#[test]
fn a_single_design_is_named_whole_and_one_that_leaves_rows_idle_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("t.csv").display().to_string();
    let output = sweep(folder.path(), &GRID.replace("8x8", "64x8"), &out);
    assert!(String::from_utf8_lossy(&output.stdout).contains("default, 64x8, 64 B/cycle, 16 decoders, bf16, lossless"));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("note"), "no group, no note");
    let wide = GRID.replace("8x8", "64x8") + "format = [\"int8/32\"]\nkv = [\"raw\", \"lossless\"]\n";
    let output = sweep(folder.path(), &wide, &out);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("use 32 of the array's 64 rows").count(), 1, "{said}");
}
