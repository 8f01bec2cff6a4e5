//! What takes too long for every run and is therefore kept with the sources, under tb/results: fault injection, mutation testing, lines run.

use super::inject::BlockFaults;
use anyhow::Context;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// Mutants of one block's crate.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mutants {
    /// Rejected by the crate's own tests.
    pub(super) tests: usize,
    /// Of the rest, those that the block's bench rejected.
    pub(super) bench: usize,
    /// Changes that do not build.
    pub(super) unviable: usize,
    /// Those that nothing rejected.
    pub(super) survivors: Vec<Survivor>,
}

impl Mutants {
    /// Rejected by either.
    pub(super) fn killed(&self) -> usize {
        self.tests + self.bench
    }

    /// Percent of the viable ones.
    pub(super) fn score(&self) -> f64 {
        100.0 * self.killed() as f64 / (self.killed() + self.survivors.len()).max(1) as f64
    }
}

/// A mutant that nothing rejected.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Survivor {
    /// Place and change.
    pub(super) mutant: String,
    /// Why it is equivalent, or that it is a hole.
    pub(super) reason: String,
}

impl Survivor {
    /// It changes nothing that can be seen.
    pub(super) fn equivalent(&self) -> bool {
        self.reason.starts_with("equivalent")
    }
}

/// Lines of one block's crate.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lines {
    pub(super) run: usize,
    pub(super) total: usize,
}

impl Lines {
    pub(super) fn percent(self) -> f64 {
        100.0 * self.run as f64 / self.total.max(1) as f64
    }
}

/// A file of results.
#[derive(Deserialize)]
struct File<T> {
    /// What was run.
    command: String,
    /// The commit that it ran on.
    revision: String,
    blocks: BTreeMap<String, T>,
}

/// All of it, by block.
pub(super) struct Evidence {
    pub(super) faults: BTreeMap<String, BlockFaults>,
    pub(super) mutants: BTreeMap<String, Mutants>,
    pub(super) lines: BTreeMap<String, Lines>,
    origin: Vec<(String, String)>,
}

fn read<T: DeserializeOwned>(
    name: &str,
    text: &str,
    origin: &mut Vec<(String, String)>,
) -> anyhow::Result<BTreeMap<String, T>> {
    let file: File<T> = serde_json::from_str(text).with_context(|| format!("tb/results/{name}.json"))?;
    if !file.blocks.is_empty() {
        origin.push((file.command, file.revision));
    }
    Ok(file.blocks)
}

impl Evidence {
    /// What was committed.
    pub(super) fn committed() -> anyhow::Result<Self> {
        let mut origin = Vec::new();
        Ok(Self {
            faults: read("faults", include_str!("../../results/faults.json"), &mut origin)?,
            mutants: read("mutants", include_str!("../../results/mutants.json"), &mut origin)?,
            lines: read("lines", include_str!("../../results/lines.json"), &mut origin)?,
            origin,
        })
    }

    /// Commands and commits, in words.
    pub(super) fn origin(&self) -> String {
        let of = |(command, revision): &(String, String)| format!("{command} at {revision}");
        self.origin.iter().map(of).collect::<Vec<_>>().join(", ")
    }
}

/// docs/performance.md as HTML.
pub(super) fn performance() -> String {
    let options = pulldown_cmark::Options::ENABLE_TABLES;
    let parser = pulldown_cmark::Parser::new_ext(include_str!("../../../docs/performance.md"), options);
    let mut out = String::new();
    pulldown_cmark::html::push_html(&mut out, parser);
    out
}
