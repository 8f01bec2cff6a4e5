//! Runs the tests of a plan on all cores and gathers their outcomes point by point.

use super::{Case, Coverage, GroupReport, Outcome, Plan, Stage, Test, TraceRequest, plan};
use std::{
    collections::BTreeMap,
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
    /// Only this block.
    pub block: Option<String>,
    /// Only this point, `block.point` or `point`.
    pub point: Option<String>,
    /// Only this case of each test.
    pub case: Option<usize>,
    /// Seed of all random stimulus.
    pub seed: u64,
    /// Multiplies the number of random cases.
    pub cases: f64,
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
    /// Failing cases.
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
    /// Seed of all random stimulus.
    pub seed: u64,
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

/// Failing cases that are run again for a waveform, per point.
const WAVES_PER_POINT: usize = 3;

fn run_case(
    plans: &[Plan],
    test: &Test,
    seed: u64,
    index: usize,
    trace: Option<TraceRequest>,
    vectors: Option<&Path>,
) -> Outcome {
    let start = Instant::now();
    let path = trace.as_ref().map(|t| t.path.clone());
    let mut case = Case::new(plans, test, seed, index, trace).with_vectors(vectors);
    let verdict = catch_unwind(AssertUnwindSafe(|| (test.run)(&mut case)));
    let error = match verdict {
        Ok(Ok(())) => None,
        Ok(Err(e)) => Some(format!("{e:#}")),
        Err(panic) => {
            let text =
                panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
            Some(format!("panicked: {}", text.unwrap_or("(no message)")))
        }
    };
    if let Some(error) = error {
        case.differed(error);
    }
    let mut outcome = case.finish();
    outcome.seconds = start.elapsed().as_secs_f64();
    outcome.wave = path.filter(|p| p.exists());
    outcome
}

/// Adds what `part` did to `total`.
fn add(total: &mut Outcome, part: &Outcome) {
    total.cases += part.cases;
    total.compared += part.compared;
    total.mismatches += part.mismatches;
    total.cycles += part.cycles;
    total.seconds += part.seconds;
    total.vectors += part.vectors;
}

/// Runs the selected part of the plan. Selecting nothing is a fault, not a pass.
pub fn run(plans: &[Plan], tests: &[Test], options: &Options, progress: &dyn Progress) -> Run {
    let start = Instant::now();
    let mut faults = plan::audit(plans, tests);
    let wanted = |block: &str, point: &str| {
        options.block.as_deref().is_none_or(|b| b == block)
            && options
                .point
                .as_deref()
                .is_none_or(|p| p == point || p.strip_prefix(block) == Some(&format!(".{point}")))
    };
    let selected: Vec<&Test> = tests
        .iter()
        .filter(|t| {
            let mut points = plans.iter().filter(|p| p.block == t.block).flat_map(|p| &p.points);
            points.any(|p| wanted(t.block, &p.id) && p.tests.iter().any(|name| name == t.name))
        })
        .collect();
    let count = |t: &Test| t.directed + (t.random as f64 * options.cases).ceil() as usize;
    let units: Vec<(usize, usize)> = selected
        .iter()
        .enumerate()
        .flat_map(|(t, test)| (0..count(test)).map(move |index| (t, index)))
        .filter(|(_, index)| options.case.is_none_or(|c| c == *index))
        .collect();
    if units.is_empty() {
        let most = selected.iter().map(|t| count(t)).max();
        faults.push(match (options.case, most) {
            (Some(case), Some(most)) => {
                format!("no selected test has a case {case}: they have up to {most}, counted from 0")
            }
            _ => "no point of the plan answers to this block and point together".into(),
        });
    }
    let ran = |t: &str| units.iter().any(|&(i, _)| selected[i].name == t);

    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let outcomes: Mutex<BTreeMap<(usize, usize), Outcome>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                while let Some(&(t, index)) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = run_case(plans, selected[t], options.seed, index, None, options.vectors.as_deref());
                    outcomes.lock().expect("a worker panicked outside a case").insert((t, index), outcome);
                    progress.tick(done.fetch_add(1, Ordering::Relaxed) + 1, units.len(), selected[t].name);
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().expect("a worker panicked outside a case");

    let mut coverage = Coverage::default();
    outcomes.values().for_each(|o| coverage.merge(o.coverage.clone()));
    faults.extend(coverage.unknown().map(String::from));
    let mut blocks = Vec::new();
    for plan in plans {
        let mut chosen: Vec<_> = plan.points.iter().filter(|p| wanted(&plan.block, &p.id)).collect();
        if options.case.is_some() {
            chosen.retain(|p| p.tests.iter().any(|t| ran(t)));
        }
        if chosen.is_empty() {
            continue;
        }
        let points = chosen.iter().map(|p| point_result(plans, plan, p, &selected, &outcomes, options)).collect();
        let whole = chosen.len() == plan.points.len() && options.case.is_none();
        let groups = if whole { coverage.report(plan) } else { Vec::new() };
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
    Run { seed: options.seed, blocks, faults, seconds: start.elapsed().as_secs_f64() }
}

fn point_result(
    plans: &[Plan],
    plan: &Plan,
    point: &plan::Point,
    selected: &[&Test],
    outcomes: &BTreeMap<(usize, usize), Outcome>,
    options: &Options,
) -> PointResult {
    let id = format!("{}.{}", plan.block, point.id);
    let (mut total, mut details, mut failures) = (Outcome::default(), Vec::new(), Vec::new());
    let mut status = Status::Passed;
    let mut exhaustive = true;
    for name in &point.tests {
        let mut of_test = Outcome::default();
        let Some(t) = selected.iter().position(|t| t.block == plan.block && t.name == name) else {
            status = Status::Failed(format!("test `{name}` does not exist"));
            continue;
        };
        exhaustive &= selected[t].exhaustive;
        for (&(_, index), outcome) in outcomes.range((t, 0)..(t + 1, 0)) {
            add(&mut of_test, outcome);
            if outcome.label.is_some() || !outcome.measures.is_empty() {
                details.push(outcome.clone());
            }
            if outcome.mismatches > 0 {
                let mut replay = format!("magpie verify --point {id} --case {index} --seed {}", options.seed);
                if options.cases != 1.0 {
                    replay += &format!(" --cases {}", options.cases);
                }
                let wave = (failures.len() < WAVES_PER_POINT).then(|| {
                    let path = options.waves.join(format!("{}-{name}-{index}.vcd", plan.block));
                    let request = TraceRequest { path, around: outcome.mismatch_cycle };
                    run_case(plans, selected[t], options.seed, index, Some(request), None).wave
                });
                let failure = Failure {
                    test: name.clone(),
                    case: index,
                    messages: outcome.failures.clone(),
                    replay,
                    wave: wave.flatten(),
                };
                failures.push(failure);
            }
        }
        if of_test.compared == 0 && options.case.is_none() {
            status = Status::Failed(format!("test `{name}` compared nothing"));
        }
        add(&mut total, &of_test);
    }
    if total.compared == 0 {
        status = Status::Failed("nothing was compared".into());
    }
    if !failures.is_empty() {
        let failing = failures.len();
        status = Status::Failed(format!("{failing} failing case{}", if failing == 1 { "" } else { "s" }));
    }
    let (stage, shows, list) = (point.stage, point.shows.clone(), point.list);
    PointResult { id, stage, shows, exhaustive, list, status, total, details, failures }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;

    struct Silent;
    impl Progress for Silent {
        fn tick(&self, _: usize, _: usize, _: &str) {}
    }

    fn options() -> Options {
        let waves = std::env::temp_dir();
        Options { block: None, point: None, case: None, seed: 1, cases: 1.0, threads: 2, waves, vectors: None }
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
        let run = run(&plan("'good'"), &[GOOD], &options(), &Silent);
        assert!(run.passed());
        assert_eq!(run.blocks[0].points[0].total.compared, 10);
    }

    #[test]
    fn a_test_that_compares_nothing_fails_even_beside_one_that_does() {
        let run = run(&plan("'good', 'empty'"), &[GOOD, EMPTY], &options(), &Silent);
        assert!(!run.passed());
        assert_eq!(run.blocks[0].points[0].status, Status::Failed("test `empty` compared nothing".into()));
    }

    #[test]
    fn a_panic_is_a_failure_with_a_replay_command() {
        let result = run(&plan("'panics'"), &[PANICS], &options(), &Silent);
        let failure = &result.blocks[0].points[0].failures[0];
        assert_eq!(
            (failure.case, failure.messages[0].as_str()),
            (1, "panicked: assertion `left != right` failed: case one is broken\n  left: 1\n right: 1")
        );
        assert_eq!(failure.replay, "magpie verify --point toy.p --case 1 --seed 1");
        let replay = Options { point: Some("toy.p".into()), case: Some(1), ..options() };
        assert!(!run(&plan("'panics'"), &[PANICS], &replay, &Silent).passed());
    }

    #[test]
    fn selecting_nothing_is_no_pass() {
        let nothing = Options { block: Some("other".into()), ..options() };
        assert!(!run(&plan("'good'"), &[GOOD], &nothing, &Silent).passed());
    }

    #[test]
    fn one_case_leaves_out_the_points_that_have_none_of_that_number() {
        let mut plans = plan("'good'");
        let other = plan("'panics'").map(|p| p.points[0].clone());
        plans[0].points.extend(other.map(|p| super::plan::Point { id: "q".into(), ..p }));
        let only = |case| Options { case: Some(case), ..options() };
        let result = run(&plans, &[GOOD, PANICS], &only(5), &Silent);
        assert!(result.passed() && result.points().count() == 1);
        let none = run(&plans, &[GOOD, PANICS], &only(99), &Silent);
        assert_eq!(none.faults, ["no selected test has a case 99: they have up to 10, counted from 0"]);
    }

    #[test]
    fn unplanned_tests_and_points_without_tests_fail() {
        assert!(!run(&plan("'good'"), &[GOOD, EMPTY], &options(), &Silent).passed());
        assert!(!run(&plan(""), &[], &options(), &Silent).passed());
    }
}
