//! The closed forms: how many edges a command takes when operands and room are always at hand. docs/vector.md derives them.

use crate::config::{Config, STEP_EDGES};
use crate::program::Program;
use crate::{Command, Op};

/// Edges around the lanes' steps: from the fetch register into the lanes, out of the last one into the output buffer, and out of that.
const EDGES_AROUND: u64 = 3;

/// Edges from the one that takes the command to the one on which its last result is taken (for
/// [`LoadFrequencies`](Op::LoadFrequencies), on which the memory holds the last word), unstalled. The clocked unit agrees edge
/// for edge.
///
/// A command that [`Command::check`] refuses has no meaningful count.
pub fn cycles(config: &Config, command: &Command) -> u64 {
    let edges = STEP_EDGES as u64;
    let program = Program::new(config, command);
    let (beats, rows) = (config.beats(command.len) as u64, command.rows as u64);
    let last = match program.passes.last() {
        Some(pass) => pass,
        None => return 0,
    };
    if command.op == Op::LoadFrequencies {
        return beats + edges * last.steps.len() as u64 + 2;
    }
    let tail = edges * (last.steps.len() + last.reduction_steps(config)) as u64 + EDGES_AROUND;
    let batch = config.batch(command.len) as u64;
    let passes = |rows: u64| -> u64 {
        let each = program.passes.iter().enumerate().map(|(p, pass)| {
            let (beats, issue) = (pass.beats as u64, rows * pass.beats as u64);
            // From a row's last beat to the edge that may issue the next pass's first.
            let gap = edges * (pass.steps.len() + pass.reduction_steps(config)) as u64 + 2;
            match () {
                _ if p + 1 == program.passes.len() => issue,
                _ if program.outruns(p) => issue + gap,
                _ => issue.max(beats + gap),
            }
        });
        each.sum()
    };
    let full = (rows / batch) * passes(batch);
    let rest = if rows.is_multiple_of(batch) { 0 } else { passes(rows % batch) };
    full + rest + tail
}
