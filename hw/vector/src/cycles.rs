//! The closed forms: how many edges a command takes when operands and room are always at hand. docs/vector.md derives them.

use crate::config::{Config, STEP_EDGES};
use crate::program::{Program, Reduction};
use crate::{Command, Op};

/// Edges around the lanes' steps: into the first register, out of the last through the output buffer.
const EDGES_AROUND: u64 = 2;

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
        return beats + edges * last.steps.len() as u64 + 1;
    }
    let tail = edges * (last.steps.len() + last.reduction_steps(config)) as u64 + EDGES_AROUND;
    let batch = config.batch(command.len) as u64;
    let batches = |rows: u64| -> u64 {
        let each = program.passes.iter().map(|pass| pass.beats as u64).zip(&program.passes);
        let last = program.passes.len() - 1;
        each.enumerate()
            .map(|(p, (beats, pass))| {
                let issue = rows * beats;
                let gap = edges * (pass.steps.len() + pass.reduction_steps(config)) as u64 + 1;
                if p < last { issue.max(beats + gap) } else { issue }
            })
            .sum()
    };
    let full = (rows / batch) * batches(batch);
    let rest = if rows.is_multiple_of(batch) { 0 } else { batches(rows % batch) };
    debug_assert!(program.passes.len() == 1 || last.reduction == Reduction::None);
    full + rest + tail
}
