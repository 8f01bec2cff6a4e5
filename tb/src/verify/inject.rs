//! Fault injection: does a block's bench notice when a bit of the block goes wrong?
//!
//! A fault is a bit of a register or memory, found through [`rtl::Visitor`], that flips once or is stuck from some cycle on, during a case
//! of the block's own tests. The case is run once as it is and once with the fault; what left the design and the state in which it came
//! to rest are compared with what the bench said.

use super::probe::{Fault, Watch, Watched};
use super::report::{grouped, shown, table};
use super::runner::run_watched;
use super::{Plan, Progress, Test};
use crate::parallel::parallel;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// What to inject.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Faults a block.
    pub samples: usize,
    /// Seed of the faults; the cases are those of run seed 1.
    pub seed: u64,
    /// Only this fault.
    pub only: Option<usize>,
    /// Worker threads.
    pub threads: usize,
}

/// What became of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The block's own bench noticed.
    Detected,
    /// Something else, or something at another time, left the design, and the bench was silent: a hole.
    Escaped,
    /// The outputs were right; the state at rest differs.
    Latent,
    /// Outputs and state at rest were right.
    Masked,
}

/// One fault.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Number: `magpie faults --block B --sample N` runs it again.
    pub number: usize,
    /// Test whose case was disturbed.
    pub test: String,
    /// The case.
    pub case: usize,
    /// The bit.
    pub site: String,
    /// Cycle of the design at whose edge it acted first.
    pub cycle: u64,
    /// `flip`, `stuck at 0` or `stuck at 1`.
    pub kind: String,
    /// What became of it.
    pub verdict: Verdict,
    /// What left the design differs.
    pub changed: bool,
    /// The checkers that noticed.
    pub checkers: BTreeSet<String>,
    /// What the first of them said.
    pub message: Option<String>,
}

/// What a checker noticed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Checker {
    /// Faults that it noticed.
    pub noticed: usize,
    /// Faults that it alone noticed.
    pub alone: usize,
    /// A fault that went unnoticed when this checker was switched off: run, not inferred.
    pub escapes: Option<usize>,
}

impl Checker {
    /// What becomes of its faults when it is switched off.
    pub(super) fn off(&self, name: &str) -> String {
        match (self.noticed, self.escapes) {
            (0, _) => "noticed none of these faults".into(),
            (_, Some(n)) => format!("fault {n} escapes"),
            _ if ENDS.contains(&name) => "ends the run, cannot be off".into(),
            _ => "others notice all of them".into(),
        }
    }
}

/// The faults of one block.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BlockFaults {
    /// The block.
    pub block: String,
    /// Cases that were disturbed.
    pub workloads: usize,
    /// Faults.
    pub faults: usize,
    /// Faults by verdict.
    pub detected: usize,
    /// See [`Verdict::Escaped`].
    pub escaped: usize,
    /// See [`Verdict::Latent`].
    pub latent: usize,
    /// See [`Verdict::Masked`].
    pub masked: usize,
    /// Faults that changed an output.
    pub changed: usize,
    /// Percentage of those that the block's bench noticed; none of none.
    pub detection: Option<f64>,
    /// Each checker that looked at a disturbed case.
    pub checkers: BTreeMap<String, Checker>,
    /// Those that escaped; of a single fault, that one whatever became of it.
    pub escapes: Vec<Sample>,
}

/// What ends a run by its nature and so cannot be switched off.
const ENDS: [&str; 3] = ["panicked", "watchdog", "hang"];
/// Cases of more cycles than this are not disturbed: a thousand faults shall be a matter of a minute.
const MOST_CYCLES: u64 = 4_000;
/// Cases looked for a test.
const PER_TEST: usize = 12;
/// Cases tried before a test counts as having no clocked design.
const TRIES: usize = 3;

/// A case as it runs without a fault.
struct Workload<'a> {
    test: &'a Test,
    case: usize,
    good: Watched,
}

fn mix(seed: u64, block: &str, n: usize) -> Xoshiro256PlusPlus {
    let bytes = seed.to_le_bytes().into_iter().chain(block.bytes()).chain((n as u64).to_le_bytes());
    let seed = bytes.fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

/// The cases of a block whose benches show a clocked design, some of each test.
fn workloads<'a>(plans: &[Plan], tests: &'a [Test], block: &str, campaign: &Campaign) -> Vec<Vec<Workload<'a>>> {
    let tests: Vec<&Test> = tests.iter().filter(|t| t.block == block).collect();
    let of = |t: usize| {
        let (test, total) = (tests[t], tests[t].directed + tests[t].random);
        let mut rng = mix(0, test.name, 0);
        let mut found: Vec<Workload<'a>> = Vec::new();
        let mut tried = BTreeSet::new();
        let mut clocked = false;
        for attempt in 0..4 * PER_TEST {
            let case = rng.random_range(0..total.max(1));
            if found.len() == PER_TEST || !clocked && attempt >= TRIES || !tried.insert(case) {
                continue;
            }
            let outcome = run_watched(plans, test, case, Watch::default());
            let Some(good) = outcome.watched else { continue };
            let cycles: u64 = good.designs.iter().map(|d| d.cycles).sum();
            clocked |= cycles > 0;
            if (1..=MOST_CYCLES).contains(&cycles) && outcome.mismatches == 0 {
                found.push(Workload { test, case, good });
            }
        }
        found
    };
    let found = parallel(tests.len(), campaign.threads, of, |_| ());
    found.into_iter().filter(|w| !w.is_empty()).collect()
}

/// Runs one fault, with `muted` switched off.
fn run_one(plans: &[Plan], work: &Workload<'_>, fault: Fault, muted: Option<&str>) -> super::Outcome {
    let cycles = work.good.designs[fault.design].cycles;
    let watch = Watch { fault: Some(fault), muted: muted.map(String::from), limit: 8 * cycles + 120_000 };
    run_watched(plans, work.test, work.case, watch)
}

fn draw<'a, 'b>(groups: &'b [Vec<Workload<'a>>], block: &str, seed: u64, n: usize) -> (&'b Workload<'a>, Fault) {
    let mut rng = mix(seed, block, n);
    let group = &groups[rng.random_range(0..groups.len())];
    let work = &group[rng.random_range(0..group.len())];
    let ran: Vec<usize> = (0..work.good.designs.len()).filter(|&d| work.good.designs[d].cycles > 0).collect();
    let design = ran[rng.random_range(0..ran.len())];
    let cycle = rng.random_range(0..work.good.designs[design].cycles);
    let stuck = [None, None, Some(false), Some(true)][rng.random_range(0..4)];
    (work, Fault { design, cycle, draw: rng.random(), stuck })
}

fn judge(work: &Workload<'_>, fault: Fault, number: usize, outcome: super::Outcome) -> Sample {
    let seen = outcome.watched.unwrap_or_default();
    let outputs = |w: &Watched| w.designs.iter().map(|d| (d.transfers, d.outputs)).collect::<Vec<_>>();
    let rest = |w: &Watched| w.designs.iter().map(|d| d.rest.clone()).collect::<Vec<_>>();
    let changed = outputs(&seen) != outputs(&work.good);
    let verdict = if outcome.mismatches > 0 {
        Verdict::Detected
    } else if changed {
        Verdict::Escaped
    } else if rest(&seen) != rest(&work.good) {
        Verdict::Latent
    } else {
        Verdict::Masked
    };
    Sample {
        number,
        test: work.test.name.into(),
        case: work.case,
        site: seen.site.unwrap_or_else(|| "not reached".into()),
        cycle: fault.cycle,
        kind: match fault.stuck {
            None => "flip",
            Some(false) => "stuck at 0",
            Some(true) => "stuck at 1",
        }
        .into(),
        verdict,
        changed,
        checkers: seen.fired,
        message: outcome.failures.into_iter().next(),
    }
}

/// Injects faults into one block. `None` if no case of it shows a clocked design.
pub fn inject(
    plans: &[Plan],
    tests: &[Test],
    block: &str,
    campaign: &Campaign,
    progress: &dyn Progress,
) -> Option<BlockFaults> {
    let groups = workloads(plans, tests, block, campaign);
    if groups.is_empty() {
        return None;
    }
    let numbers: Vec<usize> = campaign.only.map_or_else(|| (0..campaign.samples).collect(), |n| vec![n]);
    let run = |i: usize| {
        let (work, fault) = draw(&groups, block, campaign.seed, numbers[i]);
        judge(work, fault, numbers[i], run_one(plans, work, fault, None))
    };
    let samples = parallel(numbers.len(), campaign.threads, run, |done| progress.tick(done, numbers.len(), block));

    let mut checkers: BTreeMap<String, Checker> = BTreeMap::new();
    for name in groups.iter().flatten().flat_map(|w| &w.good.looked).chain(samples.iter().flat_map(|s| &s.checkers)) {
        checkers.entry(name.clone()).or_default();
    }
    for sample in &samples {
        for name in &sample.checkers {
            let checker = checkers.entry(name.clone()).or_default();
            checker.noticed += 1;
            checker.alone += usize::from(sample.checkers.len() == 1);
        }
    }
    // The dead-checker test: with the checker off, the fault that it alone noticed must go unnoticed.
    let names: Vec<String> =
        checkers.iter().filter(|c| c.1.alone > 0 && !ENDS.contains(&c.0.as_str())).map(|c| c.0.clone()).collect();
    let without = |i: usize| {
        let mut alone = samples.iter().filter(|s| s.checkers.len() == 1 && s.checkers.contains(&names[i]));
        alone.find_map(|s| {
            let (work, fault) = draw(&groups, block, campaign.seed, s.number);
            (run_one(plans, work, fault, Some(&names[i])).mismatches == 0).then_some(s.number)
        })
    };
    let escapes = parallel(names.len(), campaign.threads, without, |_| ());
    for (name, escape) in names.into_iter().zip(escapes) {
        checkers.entry(name).or_default().escapes = escape;
    }

    let count = |v| samples.iter().filter(|s| s.verdict == v).count();
    let changed = samples.iter().filter(|s| s.changed).count();
    let noticed = samples.iter().filter(|s| s.changed && s.verdict == Verdict::Detected).count();
    Some(BlockFaults {
        block: block.into(),
        workloads: groups.iter().map(Vec::len).sum(),
        detected: count(Verdict::Detected),
        escaped: count(Verdict::Escaped),
        latent: count(Verdict::Latent),
        masked: count(Verdict::Masked),
        changed,
        detection: (changed > 0).then(|| 100.0 * noticed as f64 / changed as f64),
        checkers,
        faults: samples.len(),
        escapes: samples.into_iter().filter(|s| campaign.only.is_some() || s.verdict == Verdict::Escaped).collect(),
    })
}

/// The campaign as JSON: the form of tb/results/faults.json.
pub fn json(blocks: &[BlockFaults], command: &str, revision: &str) -> serde_json::Value {
    let blocks: BTreeMap<&str, &BlockFaults> = blocks.iter().map(|b| (b.block.as_str(), b)).collect();
    serde_json::json!({ "command": command, "revision": revision, "blocks": blocks })
}

/// Escaped faults written out a block; the rest are in the JSON.
const ESCAPES_SHOWN: usize = 5;

/// The table of blocks, the holes, and what each checker is worth; `alone` describes single faults.
pub fn summary(blocks: &[BlockFaults], alone: bool) -> String {
    let mut table =
        table(&["block", "cases", "faults", "detected", "escaped", "latent", "masked", "of changed outputs"]);
    for b in blocks {
        let total = b.faults;
        let share = b.detection.map_or_else(|| "none".into(), |share| format!("{share:.1} % of {}", b.changed));
        let counts = [b.workloads, total, b.detected, b.escaped, b.latent, b.masked].map(|n| grouped(n as u64));
        table.add_row(std::iter::once(b.block.clone()).chain(counts).chain([share]));
    }
    let mut out = if alone { String::new() } else { shown(&table) };
    for b in blocks {
        let some = b.escapes.iter().take(ESCAPES_SHOWN);
        for s in some {
            let (verdict, replay) = (format!("{:?}", s.verdict).to_uppercase(), &b.block);
            let _ = writeln!(out, "{verdict} {} {} in cycle {} of {} case {}", s.kind, s.site, s.cycle, s.test, s.case);
            let _ = writeln!(out, "    replay: magpie faults --block {replay} --sample {}", s.number);
            if alone && !s.checkers.is_empty() {
                let names: Vec<&str> = s.checkers.iter().map(String::as_str).collect();
                let _ = writeln!(out, "    noticed by: {}", names.join("; "));
                let _ = writeln!(out, "    {}", s.message.as_deref().unwrap_or_default());
            }
        }
        if alone {
            continue;
        }
        let _ = writeln!(out, "{}: what each checker is worth", b.block);
        for (name, c) in &b.checkers {
            let _ = writeln!(out, "  {name:<44} {:>5} noticed, {:>5} alone; {}", c.noticed, c.alone, c.off(name));
        }
    }
    out
}
