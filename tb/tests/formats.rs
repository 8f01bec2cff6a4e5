//! `magpie formats`, as a caller runs it.

use std::process::{Command, Output};

const TEXT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/models/kjv-1m/heldout.txt");

fn formats(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_magpie")).arg("formats").args(args).output().expect("the binary is there")
}

#[test]
fn figures_stand_beside_those_of_the_operands_alone() {
    let args = ["kjv-1m", TEXT, "--tokens", "64", "--skip", "16", "--windows", "2", "--json"];
    let out = formats(&[&args[..], &["--format", "bf16,int8/32,ffp8/channel,q8_0"]].concat());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let rows: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let rows = rows.as_array().expect("an array");
    let kl = |row: &serde_json::Value, of: &str| row[of]["kl"].as_f64();
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert_eq!((row["positions"].as_u64(), row["kl_by_text"].as_array().map(Vec::len)), (Some(96), Some(1)));
        assert!(row["npu"]["top1_error"].is_f64());
    }
    for row in &rows[..3] {
        let ratio = kl(row, "npu").expect("a KL") / kl(row, "operands_alone").expect("a KL");
        assert!((0.5..2.0).contains(&ratio), "{row}");
    }
    assert!(rows[2]["format"].as_str().is_some_and(|f| f.starts_with("ffp8:1-")), "{}", rows[2]);
    assert!(rows[3]["operands_alone"].is_null(), "golden does not quantise to blocks: {}", rows[3]);
    assert!(kl(&rows[1], "npu") > kl(&rows[0], "npu"));
    // The same on one thread.
    let one = formats(&[&args[..], &["--format", "bf16,int8/32,ffp8/channel,q8_0", "--threads", "1"]].concat());
    assert_eq!(one.stdout, out.stdout);
}

#[test]
fn a_plot_has_a_bar_a_format_and_standard_output_to_itself() {
    let args = ["kjv-1m", TEXT, TEXT, "--tokens", "40", "--skip", "8", "--windows", "1", "--format", "bf16,e4m3"];
    let table = String::from_utf8(formats(&args).stdout).expect("UTF-8");
    assert!(table.contains("2 windows of 40 tokens, 64 positions compared"), "{table}");
    assert!(table.contains("e4m3/32") && table.contains('±'), "{table}");
    let svg = String::from_utf8(formats(&[&args[..], &["--svg", "-"]].concat()).stdout).expect("UTF-8");
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
    assert_eq!((svg.matches("<rect").count(), svg.matches("<circle").count()), (3, 4));
}

#[test]
fn what_cannot_be_measured_is_refused_at_once() {
    for (args, want) in [
        (&["kjv-1m", TEXT, "--tokens", "64", "--skip", "64"][..], "nothing to compare"),
        (&["kjv-1m", TEXT, "--tokens", "100000"], "context window"),
        (&["kjv-1m", TEXT, "--format", "int9"], "int9"),
        (&["kjv-1m", TEXT, "--format", "bf16,"], "format"),
        (&["kjv-1m", "/nowhere/text"], "/nowhere/text"),
        (&["kjv-1m", "/dev/null"], "a window has 384"),
        (&["kjv-1m", TEXT, "--svg", "/nowhere/a.svg"], "--svg"),
        (&["kjv-1m", TEXT, "--json", "--svg", "-"], "standard output"),
        (&["kjv-1m", TEXT, "--windows", "0"], "--windows"),
        (&["kjv-1m"], "TEXTS"),
    ] {
        let out = formats(args);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && out.stdout.is_empty() && said.contains(want), "{args:?}: {said}");
    }
}
