//! Waveforms: a [`Trace`] walks a module once a cycle and writes what changed to a VCD or FST file.
//!
//! Ten time units are one cycle (timescale 1 ns): `clk` rises at `10·cycle`, where the registers take their new values,
//! and falls at `10·cycle + 5`. `cycle` counts beside it. A register whose [`Format`](rtl::Format) is a number format has
//! a real-valued shadow `<name>_value`, one that holds a state has a shadow `<name>_state` that spells it.
//!
//! ```
//! use rtl::{Fifo, FifoIn, Module, Stream};
//! use tb::wave::{Trace, TraceOptions};
//!
//! let path = std::env::temp_dir().join("fifo-example.vcd");
//! let mut fifo = Fifo::new(4, 0u8);
//! let mut trace = Trace::create(&path, "fifo", &TraceOptions::default())?;
//! for cycle in 0..4 {
//!     trace.sample(cycle, &mut fifo)?;
//!     fifo.clock(&FifoIn { push: Stream::offer(&(cycle as u8)), pop: false });
//! }
//! let summary = trace.finish()?;
//! assert_eq!(summary.cycles, 4);
//! # Ok::<(), tb::wave::WaveError>(())
//! ```

mod backend;
mod fst;
mod glob;
mod output;
mod plan;
mod trace;
mod vcd;
mod view;

pub use backend::{Backend, Change, Kind, VarId};
pub use fst::Fst;
pub use glob::{Glob, Reach};
pub use trace::{Trace, Tracer};
pub use vcd::Vcd;
pub use view::{Colour, Radix, Shown, View, shown};

use std::ops::Range;
use std::path::PathBuf;

/// Time units of one cycle.
pub const UNITS_PER_CYCLE: u64 = 10;

/// What of a run is written.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// Globs over dotted paths, the top scope's name first; a match takes everything below it. `*` and `?` stay within
    /// one name, `**` stands for any number of scopes. None: everything.
    pub scopes: Vec<String>,
    /// Cycles to write. Outside them no module is walked.
    pub window: Range<u64>,
    /// Writes only around the first cycle of the window in which a signal has a value.
    pub trigger: Option<Trigger>,
    /// The trace ends after the cycle in which the file passes this size.
    pub max_bytes: u64,
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self { scopes: Vec::new(), window: 0..u64::MAX, trigger: None, max_bytes: u64::MAX }
    }
}

/// Starts a trace by what happens in the design.
#[derive(Clone, Debug)]
pub struct Trigger {
    /// Full path of a signal, as in `gemm.array.pe_0_0.valid_q`.
    pub path: String,
    /// The bits that it must have.
    pub value: u64,
    /// Cycles to write before the first match; they are held in memory until it comes.
    pub pre: u64,
    /// Cycles to write after it.
    pub post: u64,
}

/// What a finished trace holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Variables declared, shadows included.
    pub variables: usize,
    /// Cycles written.
    pub cycles: u64,
    /// Values written, those at the first cycle included.
    pub changes: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// First and last cycle written.
    pub span: Option<(u64, u64)>,
    /// The size limit ended the trace.
    pub truncated: bool,
}

/// Why a trace cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WaveError {
    /// The file cannot be made.
    #[error("cannot create the waveform {}: {reason}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: std::io::Error,
    },
    /// A write failed: a full disk, most often.
    #[error("cannot write the waveform {}: {reason}; trace less (scopes, window, max_bytes) or elsewhere", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: std::io::Error,
    },
    /// The name's ending says neither VCD nor FST.
    #[error("{}: the name of a waveform ends in .vcd or .fst", .0.display())]
    UnknownFormat(PathBuf),
    /// A scope glob that is no glob.
    #[error("scope pattern `{pattern}`: {why}")]
    BadGlob {
        /// As given.
        pattern: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A scope glob that no scope or signal answers to.
    #[error("scope pattern `{pattern}` matches nothing below `{top}`; scopes there: {nearby}")]
    NothingMatches {
        /// As given.
        pattern: String,
        /// Name of the top scope.
        top: String,
        /// The first few scopes and signals of the top.
        nearby: String,
    },
    /// The trigger's signal does not exist.
    #[error("trigger signal `{path}` does not exist; signals of that name: {nearby}")]
    NoSuchSignal {
        /// As given.
        path: String,
        /// Signals with the same last name, or the first few of the top.
        nearby: String,
    },
    /// The cycles to keep before a trigger do not fit.
    #[error(
        "{pre} cycles of {signals} signals before the trigger need more than {limit} bytes; keep fewer, or trace fewer scopes"
    )]
    HistoryTooLarge {
        /// Cycles asked for.
        pre: u64,
        /// Signals walked a cycle.
        signals: usize,
        /// Most bytes that the history may take.
        limit: u64,
    },
    /// Cycles must ascend.
    #[error("cycle {cycle} was sampled after cycle {last}")]
    TimeBackwards {
        /// The cycle before.
        last: u64,
        /// The one given.
        cycle: u64,
    },
    /// The cycle's time does not fit 64 bits.
    #[error("cycle {0} is too large for a waveform")]
    TimeTooLarge(u64),
    /// The module showed other signals than on the first walk.
    #[error("the module's walk changed: {expected} signals on the first, {found} or more on a later one")]
    WalkChanged {
        /// Signals of the first walk.
        expected: usize,
        /// Signals of this one.
        found: usize,
    },
}
