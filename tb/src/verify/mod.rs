//! The verification framework: testplan, cases, coverage, runner and reports.
//!
//! A block's bench is a list of [`Test`]s and a plan under `tb/testplan` that says what they show. A test is a function
//! from a [`Case`] to a verdict: it draws stimulus from the case's generator, runs the design and a reference that shares
//! no code with it, and compares through the case, which counts. A test that compared nothing fails.

mod case;
mod coverage;
mod evidence;
mod html;
pub mod inject;
pub mod plan;
mod probe;
mod report;
mod results;
mod runner;

pub use case::{Case, Measure, Outcome, TraceRequest};
pub use coverage::{Coverage, GroupReport};
pub use html::html;
pub use plan::{Plan, Stage};
pub use probe::{Probe, Seen, Watched};
pub(crate) use report::{grouped, shown, table};
pub use report::{json, junit, listing, summary};
pub use results::{FailedCase, Results, Selection, Tally};
pub use runner::{BlockResult, Failure, Options, PointResult, Progress, Run, Status, assemble, execute, run};

/// A test of a block. Its cases are independent: any of them can be run alone, in any order, on any thread.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// The block that it belongs to.
    pub block: &'static str,
    /// Its name, as the testplan gives it.
    pub name: &'static str,
    /// Cases that are always run: numbers 0..directed.
    pub directed: usize,
    /// Random cases at `--cases 1`: numbers from `directed` up.
    pub random: usize,
    /// The cases cover every input there is.
    pub exhaustive: bool,
    /// Runs one case. An error is a failure of the case, as are a mismatch, a panic and an empty comparison.
    pub run: fn(&mut Case) -> anyhow::Result<()>,
}

impl Test {
    /// A test of `directed` cases that are always run and `random` cases that `--cases` multiplies.
    pub const fn new(
        block: &'static str,
        name: &'static str,
        directed: usize,
        random: usize,
        run: fn(&mut Case) -> anyhow::Result<()>,
    ) -> Self {
        Self { block, name, directed, random, exhaustive: false, run }
    }

    /// The same test, whose directed cases cover every input there is.
    pub const fn exhaustive(mut self) -> Self {
        self.exhaustive = true;
        self
    }
}
