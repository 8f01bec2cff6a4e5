//! What a run found, before it is held against the plan: sums per test, failing cases and coverage. Results of shards add up.

use super::{Coverage, Outcome, Test};
use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Version of the file; grows when a field changes its meaning or goes.
const VERSION: u32 = 1;
/// Failing cases of a test that are kept, and that are run again for a waveform.
const FAILURES_KEPT: usize = 20;
const WAVES: usize = 3;

/// What is asked for; shards of one run agree in it.
#[derive(clap::Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// Only this block (see --list)
    #[arg(long)]
    pub block: Option<String>,
    /// Only this point of the plan: mvp.onnx, or onnx for the point of that name in every block
    #[arg(long)]
    pub point: Option<String>,
    /// Only this case of each test: what a replay command gives
    #[arg(long, value_name = "N")]
    pub case: Option<usize>,
    /// Seed of all random stimulus; the same seed gives the same run
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Run so many seeds, from --seed on
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub seeds: u64,
    /// Multiplies the number of random cases
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    pub cases: f64,
}

/// A failing case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FailedCase {
    /// Seed of its run.
    pub seed: u64,
    /// Its number.
    pub case: usize,
    /// The first few differences.
    pub messages: Vec<String>,
    /// First cycle with a mismatch.
    pub cycle: Option<u64>,
    /// Its waveform.
    pub wave: Option<PathBuf>,
}

/// What the cases of one test did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Sums.
    pub total: Outcome,
    /// Cases of the first seed that have a name or a measure, by number.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub details: Vec<Outcome>,
    /// Numbers of those cases.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    numbers: Vec<usize>,
    /// Failing cases.
    pub failing: u64,
    /// The first of them, by seed and number.
    pub failures: Vec<FailedCase>,
}

impl Tally {
    fn keep(&mut self, failure: FailedCase) {
        let at = self.failures.partition_point(|f| (f.seed, f.case) < (failure.seed, failure.case));
        self.failures.insert(at, failure);
        self.failures.truncate(FAILURES_KEPT);
    }

    fn detail(&mut self, case: usize, outcome: Outcome) {
        let at = self.numbers.partition_point(|&n| n < case);
        self.numbers.insert(at, case);
        self.details.insert(at, outcome);
    }

    fn merge(&mut self, other: Self) {
        self.total.add(&other.total);
        self.failing += other.failing;
        other.failures.into_iter().for_each(|f| self.keep(f));
        other.numbers.into_iter().zip(other.details).for_each(|(case, outcome)| self.detail(case, outcome));
    }
}

/// What a run, or a shard of one, found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    version: u32,
    /// What was asked for.
    pub selection: Selection,
    /// Shards that are in here, of `shards`.
    shard: BTreeSet<usize>,
    shards: usize,
    /// Most cases that a selected test has.
    pub(super) longest: usize,
    /// Block → test → what it did.
    pub(super) tests: BTreeMap<String, BTreeMap<String, Tally>>,
    /// Functional coverage.
    pub coverage: Coverage,
    /// Wall time; of shards, the longest.
    pub seconds: f64,
}

impl Results {
    pub(super) fn new(selection: Selection, (shard, shards): (usize, usize)) -> Self {
        let (tests, coverage) = (BTreeMap::new(), Coverage::default());
        let shard = BTreeSet::from([shard]);
        Self { version: VERSION, selection, shard, shards, longest: 0, tests, coverage, seconds: 0.0 }
    }

    /// All shards are in here.
    pub fn complete(&self) -> bool {
        self.shard.len() == self.shards
    }

    pub(super) fn of(&self, block: &str, test: &str) -> Option<&Tally> {
        self.tests.get(block)?.get(test)
    }

    pub(super) fn add(&mut self, test: &Test, seed: u64, case: usize, mut outcome: Outcome) {
        self.coverage.merge(std::mem::take(&mut outcome.coverage));
        let tally = self.tests.entry(test.block.into()).or_default().entry(test.name.into()).or_default();
        tally.total.add(&outcome);
        if outcome.mismatches > 0 {
            tally.failing += 1;
            let (messages, cycle) = (outcome.failures.clone(), outcome.mismatch_cycle);
            tally.keep(FailedCase { seed, case, messages, cycle, wave: None });
        }
        if seed == self.selection.seed && (outcome.label.is_some() || !outcome.measures.is_empty()) {
            tally.detail(case, outcome);
        }
    }

    /// Asks for a waveform of the first failing cases: block and test, seed, case and the cycle of the first mismatch.
    pub(super) fn trace(&mut self, mut wave: impl FnMut((&str, &str), u64, usize, Option<u64>) -> Option<PathBuf>) {
        for (block, tests) in &mut self.tests {
            for (test, tally) in tests {
                for failure in tally.failures.iter_mut().take(WAVES) {
                    failure.wave = wave((block, test), failure.seed, failure.case, failure.cycle);
                }
            }
        }
    }

    /// Reads a file of results.
    ///
    /// # Errors
    /// A file that cannot be read, that is none, or that another version wrote.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let text = crate::input::text(path)?;
        let results: Self =
            serde_json::from_str(&text).with_context(|| format!("{shown} is no file of `magpie verify --results`"))?;
        ensure!(results.version == VERSION, "{shown} has version {}, this magpie reads {VERSION}", results.version);
        Ok(results)
    }

    /// Puts shards of one run together.
    ///
    /// # Errors
    /// Nothing to merge; shards of different runs; a shard that is there twice or not at all.
    pub fn merge(files: Vec<(PathBuf, Self)>) -> anyhow::Result<Self> {
        let mut files = files.into_iter();
        let Some((first, mut all)) = files.next() else { bail!("there are no results to merge") };
        for (path, results) in files {
            let shown = path.display();
            ensure!(
                results.selection == all.selection && results.shards == all.shards,
                "{shown} and {} are of different runs: {:?} in {} shards, {:?} in {}",
                first.display(),
                results.selection,
                results.shards,
                all.selection,
                all.shards
            );
            if let Some(twice) = results.shard.intersection(&all.shard).next() {
                bail!("{shown}: shard {twice}/{} is there twice", all.shards);
            }
            all.shard.extend(results.shard);
            all.coverage.merge(results.coverage);
            all.seconds = all.seconds.max(results.seconds);
            for (block, tests) in results.tests {
                for (test, tally) in tests {
                    all.tests.entry(block.clone()).or_default().entry(test).or_default().merge(tally);
                }
            }
        }
        let missing: Vec<String> = (1..=all.shards).filter(|i| !all.shard.contains(i)).map(|i| i.to_string()).collect();
        ensure!(missing.is_empty(), "shards missing of {}: {}", all.shards, missing.join(", "));
        Ok(all)
    }
}
