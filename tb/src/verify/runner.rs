//! Runs the tests of a plan on all cores and gathers their outcomes point by point.

use super::probe::Watch;
use super::results::{Results, Selection, Tally};
use super::{Case, GroupReport, Outcome, Plan, Stage, Test, TraceRequest, plan};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which cases.
    pub selection: Selection,
    /// Only every n-th case, from the i-th on: (i, n), 1 ≤ i ≤ n.
    pub shard: (usize, usize),
    /// Worker threads.
    pub threads: usize,
    /// Folder for the waveforms of failing cases.
    pub waves: PathBuf,
    /// Folder for stimulus and expected outputs, if they shall be written.
    pub vectors: Option<PathBuf>,
}

/// How a point ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// All its tests ran, compared something and found no difference.
    Passed,
    /// The reason in a sentence.
    Failed(String),
}

/// A failing case: what it saw and how to see it again.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Failure {
    /// The test.
    pub test: String,
    /// Seed of the run.
    pub seed: u64,
    /// Number of the case.
    pub case: usize,
    /// The first few differences.
    pub messages: Vec<String>,
    /// Command that runs this case alone.
    pub replay: String,
    /// The waveform of the case.
    pub wave: Option<PathBuf>,
}

/// A point of the plan and what became of it.
#[derive(Clone, Debug)]
pub struct PointResult {
    /// Full name, `block.point`.
    pub id: String,
    /// Its stage.
    pub stage: Stage,
    /// What it shows.
    pub shows: String,
    /// Its tests cover every input there is.
    pub exhaustive: bool,
    /// Each named case gets a line of its own when the block is run alone.
    pub list: bool,
    /// The verdict.
    pub status: Status,
    /// Sums over its cases.
    pub total: Outcome,
    /// Cases that have a name or a measure of their own.
    pub details: Vec<Outcome>,
    /// Failing cases: the first few of each test.
    pub failures: Vec<Failure>,
}

/// A block and its points.
#[derive(Clone, Debug)]
pub struct BlockResult {
    /// Short name.
    pub block: String,
    /// Full name.
    pub title: String,
    /// In the plan's order.
    pub points: Vec<PointResult>,
    /// Its covergroups; empty when only a part of the block ran.
    pub coverage: Vec<GroupReport>,
}

/// The whole run.
#[derive(Clone, Debug)]
pub struct Run {
    /// First seed of all random stimulus.
    pub seed: u64,
    /// Seeds run.
    pub seeds: u64,
    /// Blocks in the plan's order.
    pub blocks: Vec<BlockResult>,
    /// Faults of the bench itself: plan and tests that do not match, unknown coverage names, open coverage.
    pub faults: Vec<String>,
    /// Wall time.
    pub seconds: f64,
}

impl Run {
    /// All points of all blocks.
    pub fn points(&self) -> impl Iterator<Item = &PointResult> {
        self.blocks.iter().flat_map(|b| &b.points)
    }

    /// Points that passed and points that did not.
    pub fn tally(&self) -> (usize, usize) {
        let passed = self.points().filter(|p| p.status == Status::Passed).count();
        (passed, self.points().count() - passed)
    }

    /// Everything planned ran, compared and agreed.
    pub fn passed(&self) -> bool {
        self.faults.is_empty() && self.points().next().is_some() && self.tally().1 == 0
    }
}

/// Told of each finished case.
pub trait Progress: Sync {
    /// `done` of `total` cases have ended; `name` is the test of the last one.
    fn tick(&self, done: usize, total: usize, name: &str);
}

/// Nobody looks.
impl Progress for () {
    fn tick(&self, _: usize, _: usize, _: &str) {}
}

fn run_case(
    plans: &[Plan],
    test: &Test,
    seed: u64,
    index: usize,
    trace: Option<TraceRequest>,
    vectors: Option<&Path>,
) -> Outcome {
    let path = trace.as_ref().map(|t| t.path.clone());
    let mut outcome = judge(test, Case::new(plans, test, seed, index, trace).with_vectors(vectors));
    outcome.wave = path.filter(|p| p.exists());
    outcome
}

/// Runs a case of run seed 1 under observation.
pub(super) fn run_watched(plans: &[Plan], test: &Test, index: usize, watch: Watch) -> Outcome {
    judge(test, Case::new(plans, test, 1, index, None).with_watch(Some(watch)))
}

/// Runs a case to its verdict: an error or a panic is a mismatch.
fn judge(test: &Test, mut case: Case<'_>) -> Outcome {
    let start = Instant::now();
    let verdict = catch_unwind(AssertUnwindSafe(|| (test.run)(&mut case)));
    let error = match verdict {
        Ok(Ok(())) => None,
        Ok(Err(e)) => Some(format!("{e:#}")),
        Err(panic) => {
            let text =
                panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
            let text = text.unwrap_or("(no message)");
            Some(if text.starts_with("watchdog:") { text.into() } else { format!("panicked: {text}") })
        }
    };
    if let Some(error) = error {
        case.differed(error);
    }
    let mut outcome = case.finish();
    outcome.seconds = start.elapsed().as_secs_f64();
    outcome
}

/// Whether a point of a block is selected; `point` is `block.point`, or `point` for that of any block.
fn wanted(selection: &Selection, block: &str, id: &str) -> bool {
    let Selection { block: only, point, .. } = selection;
    only.as_deref().is_none_or(|b| b == block)
        && point.as_deref().is_none_or(|p| p == id || p.strip_prefix(block) == Some(&format!(".{id}")))
}

/// Runs the selected part of the plan. Selecting nothing is a fault, not a pass.
pub fn run(plans: &[Plan], tests: &[Test], options: &Options, progress: &dyn Progress) -> Run {
    assemble(plans, tests, &execute(plans, tests, options, progress))
}

/// Runs the selected cases, or a shard of them, on all threads.
pub fn execute(plans: &[Plan], tests: &[Test], options: &Options, progress: &dyn Progress) -> Results {
    let start = Instant::now();
    let selection = &options.selection;
    let selected: Vec<&Test> = tests
        .iter()
        .filter(|t| {
            let mut points = plans.iter().filter(|p| p.block == t.block).flat_map(|p| &p.points);
            points.any(|p| wanted(selection, t.block, &p.id) && p.tests.iter().any(|name| name == t.name))
        })
        .collect();
    let count = |t: &Test| t.directed + (t.random as f64 * selection.cases).ceil() as usize;
    let seeds = selection.seed..selection.seed.saturating_add(selection.seeds);
    let of_seed = |seed: u64| {
        let cases = selected.iter().enumerate().flat_map(move |(t, test)| (0..count(test)).map(move |case| (t, case)));
        cases.map(move |(t, case)| (t, seed, case))
    };
    let all = seeds.flat_map(of_seed).filter(|&(.., case)| selection.case.is_none_or(|c| c == case));
    let (shard, shards) = options.shard;
    let units: Vec<(usize, u64, usize)> = all.skip(shard - 1).step_by(shards).collect();

    let mut results = Results::new(selection.clone(), options.shard);
    results.longest = selected.iter().map(|t| count(t)).max().unwrap_or(0);
    let results = Mutex::new(results);
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                while let Some(&(t, seed, case)) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let test = selected[t];
                    let outcome = run_case(plans, test, seed, case, None, options.vectors.as_deref());
                    results.lock().expect("a worker panicked outside a case").add(test, seed, case, outcome);
                    progress.tick(done.fetch_add(1, Ordering::Relaxed) + 1, units.len(), test.name);
                }
            });
        }
    });
    let mut results = results.into_inner().expect("a worker panicked outside a case");
    results.trace(|test, seed, case, around| {
        let test = selected.iter().find(|t| t.block == test.0 && t.name == test.1)?;
        std::fs::create_dir_all(&options.waves).ok()?;
        let path = options.waves.join(format!("{}-{}-{case}-seed-{seed}.vcd", test.block, test.name));
        run_case(plans, test, seed, case, Some(TraceRequest { path, around }), None).wave
    });
    results.seconds = start.elapsed().as_secs_f64();
    results
}

/// Holds results against the plan.
pub fn assemble(plans: &[Plan], tests: &[Test], results: &Results) -> Run {
    let selection = &results.selection;
    let mut faults = plan::audit(plans, tests);
    if results.tests.is_empty() {
        faults.push(match (selection.case, results.longest) {
            (Some(case), 1..) => {
                format!("no selected test has a case {case}: they have up to {}, counted from 0", results.longest - 1)
            }
            _ => "no point of the plan answers to this block and point together".into(),
        });
    }
    faults.extend(results.coverage.unknown().map(String::from));
    let mut blocks = Vec::new();
    for plan in plans {
        let mut chosen: Vec<_> = plan.points.iter().filter(|p| wanted(selection, &plan.block, &p.id)).collect();
        if selection.case.is_some() || !results.complete() {
            chosen.retain(|p| p.tests.iter().any(|t| results.of(&plan.block, t).is_some()));
        }
        if chosen.is_empty() {
            continue;
        }
        let points = chosen.iter().map(|p| point_result(plan, p, tests, results)).collect();
        let whole = chosen.len() == plan.points.len() && selection.case.is_none() && results.complete();
        let groups = if whole { results.coverage.report(plan) } else { Vec::new() };
        for group in groups.iter().filter(|g| g.hit < g.bins) {
            let some = group.missing.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
            faults.push(format!(
                "{}: {} of {} bins never occurred: {some}",
                group.id,
                group.bins - group.hit,
                group.bins
            ));
        }
        blocks.push(BlockResult { block: plan.block.clone(), title: plan.title.clone(), points, coverage: groups });
    }
    Run { seed: selection.seed, seeds: selection.seeds, blocks, faults, seconds: results.seconds }
}

fn point_result(plan: &Plan, point: &plan::Point, tests: &[Test], results: &Results) -> PointResult {
    let id = format!("{}.{}", plan.block, point.id);
    let (mut total, mut details, mut failures) = (Outcome::default(), Vec::new(), Vec::new());
    let mut status = Status::Passed;
    let (mut exhaustive, mut failing) = (true, 0);
    let part = results.selection.case.is_some() || !results.complete();
    for name in &point.tests {
        let Some(test) = tests.iter().find(|t| t.block == plan.block && t.name == name) else {
            status = Status::Failed(format!("test `{name}` does not exist"));
            continue;
        };
        exhaustive &= test.exhaustive;
        let empty = Tally::default();
        let tally = results.of(&plan.block, name).unwrap_or(&empty);
        details.extend(tally.details.iter().cloned());
        failing += tally.failing;
        failures.extend(tally.failures.iter().map(|f| {
            let mut replay = format!("magpie verify --point {id} --case {} --seed {}", f.case, f.seed);
            if results.selection.cases != 1.0 {
                replay += &format!(" --cases {}", results.selection.cases);
            }
            let (messages, wave) = (f.messages.clone(), f.wave.clone());
            Failure { test: name.clone(), seed: f.seed, case: f.case, messages, replay, wave }
        }));
        if tally.total.compared == 0 && !part {
            status = Status::Failed(format!("test `{name}` compared nothing"));
        }
        total.add(&tally.total);
    }
    if total.compared == 0 {
        status = Status::Failed("nothing was compared".into());
    }
    if failing > 0 {
        status = Status::Failed(format!("{failing} failing case{}", if failing == 1 { "" } else { "s" }));
    }
    let (stage, shows, list) = (point.stage, point.shows.clone(), point.list);
    PointResult { id, stage, shows, exhaustive, list, status, total, details, failures }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;

    const ALL: Selection = Selection { block: None, point: None, case: None, seed: 1, seeds: 1, cases: 1.0 };

    fn options(selection: Selection) -> Options {
        Options { selection, shard: (1, 1), threads: 2, waves: std::env::temp_dir(), vectors: None }
    }

    fn plan(tests: &str) -> [Plan; 1] {
        let text = format!(
            "block = 'toy'\ntitle = 'Toy'\ndoc = ''\n[[point]]\nid = 'p'\nstage = 'V1'\nshows = 'It works.'\ntests = [{tests}]"
        );
        [Plan::parse(&text).unwrap()]
    }

    const GOOD: Test = Test::new("toy", "good", 1, 9, |case| {
        let x = case.rng.next_u64();
        case.equal("x", x, x);
        Ok(())
    });
    const EMPTY: Test = Test::new("toy", "empty", 3, 0, |_| Ok(()));
    const PANICS: Test = Test::new("toy", "panics", 2, 0, |case| {
        case.agreed(1);
        assert_ne!(case.index, 1, "case one is broken");
        Ok(())
    });

    #[test]
    fn a_good_run_passes_and_counts() {
        let run = run(&plan("'good'"), &[GOOD], &options(ALL), &());
        assert!(run.passed());
        assert_eq!(run.blocks[0].points[0].total.compared, 10);
    }

    #[test]
    fn a_test_that_compares_nothing_fails_even_beside_one_that_does() {
        let run = run(&plan("'good', 'empty'"), &[GOOD, EMPTY], &options(ALL), &());
        assert!(!run.passed());
        assert_eq!(run.blocks[0].points[0].status, Status::Failed("test `empty` compared nothing".into()));
    }

    #[test]
    fn a_panic_is_a_failure_with_a_replay_command() {
        let result = run(&plan("'panics'"), &[PANICS], &options(ALL), &());
        let failure = &result.blocks[0].points[0].failures[0];
        assert_eq!(
            (failure.case, failure.messages[0].as_str()),
            (1, "panicked: assertion `left != right` failed: case one is broken\n  left: 1\n right: 1")
        );
        assert_eq!(failure.replay, "magpie verify --point toy.p --case 1 --seed 1");
        let replay = options(Selection { point: Some("toy.p".into()), case: Some(1), ..ALL });
        assert!(!run(&plan("'panics'"), &[PANICS], &replay, &()).passed());
    }

    /// The results of a shard, through its file and back.
    fn shard(i: usize, n: usize, seeds: u64) -> (PathBuf, Results) {
        let options = Options { shard: (i, n), ..options(Selection { seeds, ..ALL }) };
        let results = execute(&plan("'good', 'panics'"), &[GOOD, PANICS], &options, &());
        let text = serde_json::to_string(&results).unwrap();
        (format!("{i}.json").into(), serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn shards_add_up_to_the_whole_run() {
        let (plans, tests) = (plan("'good', 'panics'"), [GOOD, PANICS]);
        let sums = |results: &Results| {
            let run = assemble(&plans, &tests, results);
            let point = &run.blocks[0].points[0];
            let failing: Vec<_> = point.failures.iter().map(|f| (f.seed, f.case, f.replay.clone())).collect();
            (point.total.cases, point.total.compared, point.status.clone(), failing)
        };
        let whole = sums(&shard(1, 1, 4).1);
        assert_eq!((whole.0, whole.3.len()), (4 * 12, 4));
        let merged = Results::merge(vec![shard(2, 3, 4), shard(3, 3, 4), shard(1, 3, 4)]).unwrap();
        assert!(merged.complete());
        assert_eq!(sums(&merged), whole);
    }

    #[test]
    fn shards_that_are_not_one_whole_run_are_refused() {
        let error = |parts| Results::merge(parts).unwrap_err().to_string();
        assert_eq!(error(vec![shard(1, 3, 1), shard(3, 3, 1)]), "shards missing of 3: 2");
        assert_eq!(error(vec![shard(1, 2, 1), shard(1, 2, 1)]), "1.json: shard 1/2 is there twice");
        assert!(error(vec![shard(1, 2, 1), shard(2, 2, 5)]).contains("different runs"));
        assert_eq!(error(vec![]), "there are no results to merge");
        assert!(!shard(1, 2, 1).1.complete());
    }

    #[test]
    fn selecting_nothing_is_no_pass() {
        let nothing = options(Selection { block: Some("other".into()), ..ALL });
        assert!(!run(&plan("'good'"), &[GOOD], &nothing, &()).passed());
    }

    #[test]
    fn one_case_leaves_out_the_points_that_have_none_of_that_number() {
        let mut plans = plan("'good'");
        let other = plan("'panics'").map(|p| p.points[0].clone());
        plans[0].points.extend(other.map(|p| super::plan::Point { id: "q".into(), ..p }));
        let only = |case| options(Selection { case: Some(case), ..ALL });
        let result = run(&plans, &[GOOD, PANICS], &only(5), &());
        assert!(result.passed() && result.points().count() == 1);
        let none = run(&plans, &[GOOD, PANICS], &only(99), &());
        assert_eq!(none.faults, ["no selected test has a case 99: they have up to 9, counted from 0"]);
    }

    #[test]
    fn unplanned_tests_and_points_without_tests_fail() {
        assert!(!run(&plan("'good'"), &[GOOD, EMPTY], &options(ALL), &()).passed());
        assert!(!run(&plan(""), &[], &options(ALL), &()).passed());
    }
}
