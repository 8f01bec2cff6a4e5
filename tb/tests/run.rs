//! `magpie run`, as a caller runs it.

use std::process::{Command, Output};

fn magpie(args: &[&str]) -> Output {
    let run = ["run", "--prompt", "And God said", "--tokens", "1", "--temperature", "0"];
    Command::new(env!("CARGO_BIN_EXE_magpie")).args(run).args(args).output().expect("the binary is there")
}

#[test]
fn a_command_of_a_run_is_clocked_again_with_its_waveform() {
    let path = std::env::temp_dir().join(format!("magpie-run-{}.fst", std::process::id()));
    for (at, engine) in [("0.q.0", "matmul"), ("1.ffn_norm", "rms_norm")] {
        let out = magpie(&["--wave", path.to_str().expect("UTF-8"), "--at", at]);
        let text = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && text.contains(engine), "{at}: {text}");
        let wave = wellen::simple::read(&path).expect("a waveform");
        assert!(wave.time_table().len() > 100, "{at}: {} times", wave.time_table().len());
    }
    std::fs::remove_file(path).expect("it was written");
}

#[test]
fn a_command_that_does_not_exist_is_refused() {
    for (at, words) in
        [("0.gat.0", "gate, up, down"), ("0", "LAYER.STEP.PLACE"), ("77.gate.0", "layer 77 ran no command 0")]
    {
        let out = magpie(&["--wave", "none.fst", "--at", at]);
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{at}: {text}");
        assert!(text.contains(words), "{at}: {text}");
    }
    assert!(!std::path::Path::new("none.fst").exists());
}
