//! A session's commands on a time line: Chrome trace events, which Perfetto and chrome://tracing open.

use super::listing::{Names, line, title};
use host::{Recorded, awaited, tag_name};
use npu::isa::Engine;
use serde_json::{Value, json};
use std::io::{self, Write};

/// The track of the passes, before those of the engines.
const PASSES: usize = 0;

/// Writes passes as JSON. Times are microseconds at the clock; the passes are a thread, and each engine is one. Before a command stand the
/// slices of what it waited for at the head of its idle engine's queue.
///
/// # Errors
/// Those of the writer.
pub fn timeline(passes: &[Recorded], clock_mhz: f64, out: &mut dyn Write) -> io::Result<()> {
    let tracks = std::iter::once("passes").chain(Engine::ALL.iter().map(|engine| engine.name()));
    writeln!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    for (thread, name) in tracks.enumerate() {
        for (event, args) in
            [("thread_name", json!({ "name": name })), ("thread_sort_index", json!({ "sort_index": thread }))]
        {
            writeln!(out, "{},", json!({ "ph": "M", "pid": 1, "tid": thread, "name": event, "args": args }))?;
        }
    }
    let slice = |thread: usize, cycles: std::ops::Range<u64>, name: &str, args: Value| {
        let (start, length) = (cycles.start as f64 / clock_mhz, (cycles.end - cycles.start) as f64 / clock_mhz);
        json!({ "ph": "X", "pid": 1, "tid": thread, "ts": start, "dur": length, "name": name, "args": args })
    };
    let mut names = Names::default();
    for (i, pass) in passes.iter().enumerate() {
        let args = json!({ "program": i, "commands": pass.program.len(), "cycle": pass.cycles.start });
        writeln!(out, "{},", slice(PASSES, pass.cycles.clone(), &title(pass), args))?;
        let names: Vec<String> = pass.program.iter().map(|command| names.next(command)).collect();
        for span in &pass.spans {
            let (layer, step) = tag_name(span.tag);
            let shown = line(span.command, &names[span.command], &pass.program[span.command]);
            let args = json!({ "layer": layer, "cycle": span.start, "command": shown.trim_start() });
            let track = PASSES + 1 + span.engine as usize;
            // Tokens first, then banks; the cycle before the first is that of the start.
            let banks = span.start.saturating_sub(1 + span.waits.banks);
            let engines: Vec<_> = awaited(&pass.program[span.command]).map(Engine::name).collect();
            for (cycles, what) in [
                (banks.saturating_sub(span.waits.tokens)..banks, engines.join(" and ")),
                (banks..banks + span.waits.banks, "banks".into()),
            ] {
                if !cycles.is_empty() {
                    let args = json!({ "cycle": cycles.start, "before": args["command"] });
                    writeln!(out, "{},", slice(track, cycles, &format!("waits for {what}"), args))?;
                }
            }
            writeln!(out, "{},", slice(track, span.start..span.end, step, args))?;
        }
    }
    writeln!(out, "{}]}}", json!({ "ph": "M", "pid": 1, "name": "process_name", "args": { "name": "NPU" } }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use npu::isa::{Command, Op};

    #[test]
    fn passes_and_commands_have_their_cycles_and_names() {
        let tag = host::parse_tag(3, "weights").unwrap();
        let wait = 1 << (4 * Engine::Mvp as usize + Engine::Dma as usize);
        let command = Command { wait, signal: 0, tag, op: Op::Dma { chain: 64, banks: 1 } };
        let span = |start| {
            let waits = npu::Waits { tokens: 3, banks: start / 10 };
            npu::Span { engine: Engine::Dma, command: 0, tag, start, end: start + 8, waits }
        };
        let pass = |prefill, tokens, start| Recorded {
            prefill,
            tokens,
            cycles: start..start + 20,
            program: vec![command],
            spans: vec![span(start + 9)],
        };
        let passes = [pass(true, (0..8).map(|p| (0, p)).collect(), 0), pass(false, vec![(0, 8)], 20)];
        let mut out = Vec::new();
        timeline(&passes, 1000.0, &mut out).unwrap();
        let read: Value = serde_json::from_slice(&out).unwrap();
        let slices: Vec<&Value> = read["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "X").collect();
        let named: Vec<_> = slices.iter().map(|s| (s["tid"].as_u64().unwrap(), s["name"].as_str().unwrap())).collect();
        assert_eq!(
            named,
            [
                (0, "prefill of tokens 0..8 of sequence 0"),
                (1, "waits for mvp"),
                (1, "weights"),
                (0, "token 8 of sequence 0"),
                (1, "waits for mvp"),
                (1, "waits for banks"),
                (1, "weights")
            ]
        );
        let times: Vec<_> = slices.iter().map(|s| (s["ts"].as_f64().unwrap(), s["dur"].as_f64().unwrap())).collect();
        assert_eq!(
            times,
            [(0.0, 0.02), (0.005, 0.003), (0.009, 0.008), (0.02, 0.02), (0.023, 0.003), (0.026, 0.002), (0.029, 0.008)]
        );
        assert!(slices[6]["args"]["command"].as_str().unwrap().starts_with("0  3.weights.1 "), "{}", slices[6]);
    }
}
