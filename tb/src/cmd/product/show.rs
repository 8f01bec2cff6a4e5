//! Counters as a table or as JSON.

use super::{Engine, Losses, Setup, Tally};
use crate::npy::Npy;
use crate::verify::{grouped, shown, table};
use numeric::{Flags, Format};
use std::process::ExitCode;

/// What a command has to say in the end.
pub struct Shown {
    /// `gemm 128 × 576 × 1536`.
    pub title: String,
    /// The extents, for JSON.
    pub extents: serde_json::Value,
    /// What an edge that works does.
    pub feeds: &'static str,
    /// Of all jobs.
    pub tally: Tally,
    /// Of the result's conversion.
    pub flags: Flags,
    /// Results that wrapped when zero points and bias were added.
    pub wrapped: u64,
    /// What reading A and B cost, where files of values were converted.
    pub read: [Option<Losses>; 2],
    /// Of the result.
    pub format: Format,
    /// The result.
    pub result: Npy,
}

/// FNV-1a, 64 bits (draft-eastlake-fnv): enough to see at a glance whether two runs gave the same bits.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

impl Shown {
    /// Prints it; the exit code is 1 if a sum left 32 bits, by itself or with zero points and bias, or the engines differed.
    pub fn print(&self, setup: &Setup<'_>) -> ExitCode {
        if setup.options.json {
            outln!("{:#}", self.json(setup));
        } else {
            out!("{}", self.text(setup));
        }
        if self.tally.overflow || self.wrapped > 0 || self.tally.differ { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    /// Multiply-accumulates done, of those that the array could do in that time.
    fn utilisation(&self, setup: &Setup<'_>) -> f64 {
        let peak = setup.config.rows * setup.config.cols * setup.config.datapath.steps();
        self.tally.counters.active as f64 / (self.tally.counters.cycles as f64 * peak as f64)
    }

    /// Edges on which a row entered.
    fn rows(&self) -> u64 {
        let c = self.tally.counters;
        c.cycles - c.exposed - c.drain - c.starved_x - c.starved_w - c.blocked
    }

    fn engine(&self, setup: &Setup<'_>) -> &'static str {
        match setup.engine {
            Engine::Cycle => "cycle engine",
            Engine::Transaction if setup.options.no_overlap => "transaction engine, tiles without overlap",
            Engine::Transaction => "transaction engine",
            Engine::Both if self.tally.differ => "cycle and transaction engine, WHICH DIFFER",
            Engine::Both => "cycle and transaction engine, equal in every bit and cycle",
        }
    }

    fn text(&self, setup: &Setup<'_>) -> String {
        let (c, config) = (self.tally.counters, setup.config);
        let mut table = table(&["edges", "number", "share"]);
        for (name, edges) in [
            (self.feeds, self.rows()),
            ("exposed: weights come first", c.exposed),
            ("drain", c.drain),
            ("starved of activations", c.starved_x),
            ("starved of weights", c.starved_w),
            ("blocked by the output", c.blocked),
            ("all", c.cycles),
        ] {
            let share = format!("{:.2} %", 100.0 * edges as f64 / c.cycles as f64);
            table.add_row([name.to_string(), grouped(edges), share]);
        }
        let jobs =
            if self.tally.jobs == 1 { String::new() } else { format!(", {} jobs", grouped(self.tally.jobs as u64)) };
        let mut text = format!(
            "{}, {} on {}x{}, {}{jobs}\n{}",
            self.title,
            config.datapath,
            config.rows,
            config.cols,
            self.engine(setup),
            shown(&table)
        );
        text += &format!(
            "{} multiply-accumulates: utilisation {:.2} %\n",
            grouped(c.active),
            100.0 * self.utilisation(setup)
        );
        let raised = self.flags.names();
        let flags = if raised.is_empty() { String::new() } else { format!(", flags {}", raised.join(" ")) };
        text += &format!(
            "result {:?} in {}, FNV-1a {:016x}{flags}\n",
            self.result.shape,
            self.format,
            digest(&self.result.data)
        );
        for (name, losses) in ["a", "b"].into_iter().zip(self.read) {
            if let Some(lost) = losses.and_then(|losses| losses.text()) {
                text += &format!("--{name}: {lost}\n");
            }
        }
        if self.tally.overflow {
            text += "OVERFLOW: some sum left 32 bits and wrapped\n";
        }
        if self.wrapped > 0 {
            let wrapped = grouped(self.wrapped);
            text += &format!("OVERFLOW: {wrapped} results left 32 bits with zero points and bias, and wrapped\n");
        }
        text
    }

    fn json(&self, setup: &Setup<'_>) -> serde_json::Value {
        let config = setup.config;
        serde_json::json!({
            "product": self.extents,
            "format": config.datapath.to_string(),
            "array": [config.rows, config.cols],
            "depth": config.depth,
            "mac_latency": config.mac_latency(),
            "accumulator_latency": config.accumulator_latency(),
            "engine": match setup.engine {
                Engine::Cycle => "cycle",
                Engine::Transaction => "transaction",
                Engine::Both => "both",
            },
            "overlap": !setup.options.no_overlap,
            "jobs": self.tally.jobs,
            "cycles": self.tally.counters.cycles,
            "rows": self.rows(),
            "counters": self.tally.counters,
            "utilisation": self.utilisation(setup),
            "overflow": self.tally.overflow,
            "wrapped": self.wrapped,
            "converted": { "a": self.read[0], "b": self.read[1] },
            "engines_differ": self.tally.differ,
            "result": {
                "shape": self.result.shape,
                "format": self.format.to_string(),
                "flags": self.flags.names(),
                "fnv1a": format!("{:016x}", digest(&self.result.data)),
            },
        })
    }
}
