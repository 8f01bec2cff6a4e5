//! `magpie run`, as a caller runs it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_magpie")).arg("run").args(args).output().expect("the binary is there")
}

fn magpie(args: &[&str]) -> Output {
    run(&[&["--prompt", "And God said", "--tokens", "1", "--temperature", "0"], args].concat())
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn printed(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// A file of this process.
fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("magpie-run-{}-{name}", std::process::id()))
}

#[test]
fn a_command_of_a_run_is_clocked_again_by_its_name_in_the_listing() {
    let (wave, list) = (scratch("wave.fst"), scratch("listing"));
    let (wave, list) = (wave.to_str().expect("UTF-8"), list.to_str().expect("UTF-8"));
    for (at, engine) in [("0.q.0", "matmul"), ("1.ffn_norm", "rms_norm"), ("2.rotate.1", "rope")] {
        let out = magpie(&["--wave", wave, "--at", at, "--listing", list]);
        let text = said(&out);
        assert!(out.status.success() && text.contains(engine), "{at}: {text}");
        let (line, _) = text.split_once(": ").expect("the command's line comes first");
        let listed = fs::read_to_string(list).expect("a listing");
        let same: Vec<_> = listed.lines().filter(|l| l.trim_start() == line).collect();
        assert_eq!(same.len(), 1, "{line}\n{listed}");
        assert!(line.contains(&format!("  {at}")), "{line}");
        let size = fs::metadata(wave).expect("a file").len();
        assert!(text.replace(',', "").contains(&format!("{wave}: {size} bytes")), "{size}: {text}");
        let wave = wellen::simple::read(wave).expect("a waveform");
        assert!(wave.time_table().len() > 100, "{at}: {} times", wave.time_table().len());
    }
    let listed = fs::read_to_string(list).expect("a listing");
    let names: Vec<_> =
        listed.lines().filter(|l| !l.starts_with(';')).filter_map(|l| l.split_whitespace().nth(1)).collect();
    let distinct: std::collections::BTreeSet<_> = names.iter().collect();
    assert!(
        names.len() > 100 && names.len() == distinct.len(),
        "{} names, {} of them distinct",
        names.len(),
        distinct.len()
    );
    fs::remove_file(wave).and_then(|()| fs::remove_file(list)).expect("they were written");
}

#[test]
fn a_command_that_does_not_exist_is_refused() {
    let cases = [
        ("0.gat.0", "gate, up, down"),
        ("0", "LAYER.STEP.PLACE"),
        ("77.gate.0", "--at 77.gate.0"),
        ("0.weights.0", "the array and the vector unit ran no such command"),
    ];
    for (at, words) in cases {
        let out = magpie(&["--wave", "none.fst", "--at", at]);
        let text = said(&out);
        assert_eq!(out.status.code(), Some(2), "{at}: {text}");
        assert!(text.contains(words), "{at}: {text}");
    }
    assert!(!std::path::Path::new("none.fst").exists());
}

#[test]
fn a_report_on_standard_output_is_alone_there() {
    let out = magpie(&["--listing", "-"]);
    let text = printed(&out);
    assert!(out.status.success() && text.starts_with("; program 0, prefill of tokens 0..4 of sequence 0"), "{text}");
    assert!(text.contains(" 0.gate.0 ") && !text.contains("And God said"));
    assert!(said(&out).starts_with("And God said") && said(&out).contains("time to first token"));

    let out = magpie(&["--timeline", "-"]);
    let read: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON alone");
    assert!(read["traceEvents"].as_array().is_some_and(|events| events.len() > 100));

    let out = magpie(&["--json", "--listing", "-"]);
    assert!(out.status.code() == Some(2) && said(&out).contains("--json and --listing both"), "{}", said(&out));
}

#[test]
fn outputs_are_tried_before_the_run() {
    for option in ["--timeline", "--listing", "--wave"] {
        let path = "/nonexistent/x.fst";
        let more: &[&str] = if option == "--wave" { &["--at", "0.gate.0"] } else { &[] };
        let out = magpie(&[&[option, path], more].concat());
        let text = said(&out);
        assert!(out.status.code() == Some(2) && out.stdout.is_empty(), "{option}: {text}");
        assert!(text.contains(option) && text.matches("No such file").count() == 1, "{option}: {text}");
    }
    let out = magpie(&["--wave", "x.wav", "--at", "0.gate.0"]);
    assert!(out.stdout.is_empty() && said(&out).contains(".vcd or .fst"), "{}", said(&out));
}

#[cfg(target_os = "linux")]
#[test]
fn a_report_that_fails_leaves_the_figures() {
    let out = magpie(&["--listing", "/dev/full"]);
    assert!(out.status.code() == Some(2) && said(&out).contains("/dev/full"), "{}", said(&out));
    assert!(printed(&out).contains("time to first token"));
}

#[test]
fn what_cannot_run_is_refused_at_once() {
    let long = "word ".repeat(600);
    let cases: [(&[&str], &str); 10] = [
        (&["--temperature", "nan"], "temperature = NaN"),
        (&["--top-p", "0"], "top-p = 0"),
        (&["--kv", "slot1"], "a slot of these heads has 40 to"),
        (&["--kv", "slot44"], "a multiple of 8"),
        (&["--batch", "0"], "must be 1 at least"),
        (&["--chunk", "0"], "must be 1 at least"),
        (&["--context", "100000"], "the window of kjv-1m is 1 to 512"),
        (&["smollm"], "no model `smollm`: there are kjv-1m, smollm2"),
        (&["--prompt", &long], "tokens exceed the context window of 512"),
        (&["--eval", "Cargo.toml", "--eval-tokens", "1000000"], "tokens; 1000000 are asked for"),
    ];
    for (args, words) in cases {
        let out = run(&[&["--prompt", "And"], args].concat());
        let text = said(&out);
        assert!(out.status.code() == Some(2) && out.stdout.is_empty(), "{args:?}: {text}");
        assert!(text.contains(words), "{args:?}: {text}");
    }
}

#[test]
fn a_chat_with_a_model_that_has_no_chats_is_noted() {
    let out = magpie(&["--chat"]);
    assert!(out.status.success() && said(&out).contains("kjv-1m has no token <|im_start|>"), "{}", said(&out));
}

#[test]
fn a_full_window_is_said() {
    let out = run(&["--prompt", "In the beginning", "--context", "32", "-n", "99", "--temperature", "0", "--json"]);
    let read: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let (ended, new) = (&read["ended_by"][0], read["new_tokens"][0].as_u64().expect("a number"));
    assert!(ended == "window" && new < 99, "{ended} {new}");
    let words = format!("the context window of 32 tokens is full: {new} new ones of the 99 asked for");
    assert!(said(&out).contains(&words), "{}", said(&out));
    let out = magpie(&["--json"]);
    assert!(said(&out).is_empty(), "{}", said(&out));
}

#[test]
fn the_cycles_of_each_engine_are_all_told() {
    let read: serde_json::Value = serde_json::from_slice(&magpie(&["--json"]).stdout).expect("JSON");
    for engine in read["prefill"]["engines"].as_array().expect("engines") {
        let parts = ["busy", "waits_for_engines", "waits_for_banks", "idle"].map(|part| engine[part].as_u64().unwrap());
        assert_eq!(parts.iter().sum::<u64>(), read["prefill"]["cycles"].as_u64().unwrap(), "{engine}");
    }
}

#[test]
fn a_text_is_compared_without_a_prompt_and_its_bytes_are_told() {
    let path = scratch("text");
    let mut text =
        fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/models/kjv-1m/heldout.txt")).expect("it is there");
    text.truncate(400);
    text[7] = 0xff;
    fs::write(&path, text).expect("a file");
    let out = run(&["--eval", path.to_str().expect("UTF-8"), "--eval-tokens", "40", "--eval-skip", "8"]);
    let (text, words) = (printed(&out), said(&out));
    assert!(out.status.success() && words.contains("not UTF-8 at byte 7"), "{words}");
    assert!(text.contains("KL to f32") && !text.contains("undefined") && !text.contains("busy"), "{text}");
    fs::remove_file(path).expect("it was written");
}

#[test]
fn rows_that_groups_leave_idle_are_told() {
    let path = scratch("rows.toml");
    fs::write(&path, "[array]\nrows = 64\n").expect("a file");
    let config = path.to_str().expect("UTF-8");
    for (format, told) in [("int8/32", true), ("int8/64", false), ("int8/channel", false), ("bf16", false)] {
        let text = said(&magpie(&["--config", config, "--format", format]));
        assert_eq!(text.contains("use 32 of the array's 64 rows"), told, "{format}: {text}");
    }
    fs::remove_file(path).expect("it was written");
}
