//! Cosimulation: the SystemVerilog twins of hw/sv against the cycle engine, register by register, cycle by cycle.
//!
//! One stimulus file drives the engine and each simulator. The simulators dump every register (VCD); the dump is held against
//! the engine's registers, found by the same names, before every rising edge.

mod compare;
mod datapath;
mod simulator;
mod stimulus;

pub use compare::{Mismatch, Outcome, compare};
pub use datapath::{Datapath, DatapathOut, twin_path};
pub use simulator::{Build, MODULES, Simulator};
pub use stimulus::{Cycle, Place, Stimulus, Tiles, operand, operands, schedule, wild};

use std::path::PathBuf;

/// Most cycles of one run: the memory of the twin's bench.
pub const MAX_CYCLES: usize = 65_536;

/// Why a cosimulation cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum CosimError {
    /// A simulator is not installed.
    #[error(
        "{tool} is not installed; Debian and Ubuntu: sudo apt-get install verilator iverilog g++; macOS: brew install verilator icarus-verilog"
    )]
    Missing {
        /// The program.
        tool: &'static str,
    },
    /// A simulator failed.
    #[error("{tool} failed ({status}): {output}")]
    Failed {
        /// The program.
        tool: String,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// The end of what it printed.
        output: String,
    },
    /// A file cannot be read or written.
    #[error("{}: {reason}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        reason: std::io::Error,
    },
    /// A register of the engine has no twin in the dump.
    #[error("register `{path}` has no twin `{twin}` in the dump")]
    NoTwin {
        /// In the engine.
        path: String,
        /// Name looked for.
        twin: String,
    },
    /// The dump ended early.
    #[error("the dump ends before cycle {0}")]
    Short(usize),
    /// Too many cycles.
    #[error("{0} cycles: the twin's bench holds at most {MAX_CYCLES}")]
    TooLong(usize),
}
