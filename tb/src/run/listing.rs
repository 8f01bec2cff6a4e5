//! A session's programs, as an assembler lists them, each command by the name that `--at` takes.

use host::{Recorded, tag_name};
use npu::isa::{Command, instruction};
use std::collections::HashMap;
use std::io::{self, Write};

/// Names commands in the order of their programs: `layer.step.place`, the place from 0 among the layer's commands of this step in
/// all passes of a run.
#[derive(Default)]
pub struct Names(HashMap<u32, usize>);

impl Names {
    /// The next command's name.
    pub fn next(&mut self, command: &Command) -> String {
        let place = self.0.entry(command.tag).or_default();
        let (layer, step) = tag_name(command.tag);
        *place += 1;
        format!("{layer}.{step}.{}", *place - 1)
    }
}

/// A command's line: its number in its program, its name, what it does.
pub fn line(number: usize, name: &str, command: &Command) -> String {
    format!("{number:>7}  {name:<22} {}", instruction(command))
}

/// What a pass does: `prefill of tokens 0..8 of sequence 0`.
pub(super) fn title(pass: &Recorded) -> String {
    match pass.tokens.as_slice() {
        [(sequence, first), .., (_, last)] if pass.prefill => {
            format!("prefill of tokens {first}..{} of sequence {sequence}", last + 1)
        }
        [(sequence, position)] => format!("token {position} of sequence {sequence}"),
        tokens => format!("a token each of {} sequences", tokens.len()),
    }
}

/// Writes the programs of all passes.
///
/// # Errors
/// Those of the writer.
pub fn listing(passes: &[Recorded], out: &mut dyn Write) -> io::Result<()> {
    let mut names = Names::default();
    for (i, pass) in passes.iter().enumerate() {
        writeln!(out, "; program {i}, {}: {} commands", title(pass), pass.program.len())?;
        for (number, command) in pass.program.iter().enumerate() {
            writeln!(out, "{}", line(number, &names.next(command), command))?;
        }
    }
    Ok(())
}
