//! A session's commands on a time line: Chrome trace events, which Perfetto and chrome://tracing open.

use host::{Recording, tag_name};
use npu::isa::{Engine, listing};
use std::io::{self, Write};

/// Writes a recording as JSON. Times are microseconds at the clock; each engine is a thread.
///
/// # Errors
/// Those of the writer.
pub fn timeline(recording: &Recording, clock_mhz: f64, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    for engine in Engine::ALL {
        writeln!(
            out,
            "{{\"ph\":\"M\",\"pid\":1,\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":\"{}\"}}}},",
            engine as usize,
            engine.name()
        )?;
    }
    // Spans come in the order of their starts, program after program: a program's numbers begin anew.
    let mut programs = recording.programs.iter();
    let mut program = programs.next();
    let mut left = program.map_or(0, Vec::len);
    for span in &recording.spans {
        if left == 0 {
            program = programs.next();
            left = program.map_or(0, Vec::len);
        }
        left = left.saturating_sub(1);
        let (layer, step) = tag_name(span.tag);
        let command = program.and_then(|p| p.get(span.command)).map(|c| listing(span.command, c)).unwrap_or_default();
        let (start, end) = (span.start as f64 / clock_mhz, span.end as f64 / clock_mhz);
        writeln!(
            out,
            "{{\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{start:.4},\"dur\":{:.4},\"name\":\"{step}\",\"args\":{{\"layer\":{layer},\"cycle\":{},\"command\":{}}}}},",
            span.engine as usize,
            end - start,
            span.start,
            serde_json::Value::from(command.trim())
        )?;
    }
    writeln!(out, "{{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{{\"name\":\"NPU\"}}}}]}}")
}
