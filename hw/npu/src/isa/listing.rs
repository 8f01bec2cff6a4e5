//! The assembler's view of a program.

use super::fields::{Fields, OPCODES, ROW_OPS, opcode};
use super::{Command, Op};
use std::fmt::Write;

struct Lister(String);

impl Fields for Lister {
    fn field(&mut self, name: &'static str, _: usize, value: u64) -> u64 {
        let text = &mut self.0;
        // What is zero is left out: most fields are, in most commands.
        let written = match name {
            "tag" | "wait" | "signal" | "row_op" => Ok(()),
            _ if value == 0 => Ok(()),
            "x" | "y" | "w" | "to" | "from" | "weight" | "scales" | "x_scales" | "w_scales" | "up" | "b" | "chain"
            | "banks" | "format" | "epsilon" | "scale" => write!(text, " {name}={value:#x}"),
            _ => write!(text, " {name}={value}"),
        };
        debug_assert!(written.is_ok());
        value
    }
}

fn counters(mask: u32) -> String {
    let bits: Vec<_> = (0..32).filter(|b| mask >> b & 1 == 1).map(|b| format!("t{b}")).collect();
    bits.join(",")
}

/// One line a command: its number, then as [`instruction`].
pub fn listing(number: usize, command: &Command) -> String {
    format!("{number:>7}  {}", instruction(command))
}

/// A command: its engine, what it waits for and signals, name and fields.
pub fn instruction(command: &Command) -> String {
    let mut fields = Lister(String::new());
    let same = command.fields(&mut fields);
    debug_assert_eq!(same, Ok(*command));
    let code = opcode(&command.op);
    let name = OPCODES.iter().find(|(c, _)| *c == code).map_or("?", |(_, name)| name);
    let name = match command.op {
        Op::Vector(row_op) => ROW_OPS[row_op.op.code()],
        _ => name,
    };
    let (wait, signal) = (counters(command.wait), counters(command.signal));
    let tokens = match (wait.is_empty(), signal.is_empty()) {
        (true, true) => String::new(),
        (false, true) => format!("[{wait}]"),
        (true, false) => format!("[-> {signal}]"),
        (false, false) => format!("[{wait} -> {signal}]"),
    };
    format!("{:<6} {tokens:<12} {name}{}", command.op.engine().name(), fields.0)
}
