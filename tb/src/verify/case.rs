//! One case of a test: its stimulus source, its scoreboard and its coverage.

use super::probe::{Probe, Watch, Watched, Watching, checker_of};
use super::{coverage::Coverage, plan::Plan};
use crate::wave::{Trace, TraceOptions};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Deserializer, Serialize};
use std::{
    cell::RefCell,
    fmt,
    path::{Path, PathBuf},
    rc::Rc,
};

/// A figure that a case measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measure {
    /// What, in snake case with its unit: `snr_db`.
    pub name: String,
    /// The figure.
    #[serde(deserialize_with = "figure")]
    pub value: f64,
}

/// Where and around which cycle a failing case shall leave its waveform.
#[derive(Clone, Debug)]
pub struct TraceRequest {
    /// The file to write.
    pub path: PathBuf,
    /// The first cycle at which the case saw a mismatch, if it knows one.
    pub around: Option<u64>,
}

/// A figure from JSON, which writes what is not finite as null.
fn figure<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(d)?.unwrap_or(f64::NAN))
}

/// What one case did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// What the case was, where it has a name of its own.
    pub label: Option<String>,
    /// Cases run: 1, unless the case said that it stands for more.
    pub cases: u64,
    /// Values compared.
    pub compared: u64,
    /// Values that differed.
    pub mismatches: u64,
    /// Clock cycles simulated.
    pub cycles: u64,
    /// Wall time.
    pub seconds: f64,
    /// The first few differences, in words.
    pub failures: Vec<String>,
    /// First cycle with a mismatch.
    pub mismatch_cycle: Option<u64>,
    /// Figures, such as the signal-to-noise ratio.
    pub measures: Vec<Measure>,
    /// Coverage of this case.
    #[serde(skip)]
    pub coverage: Coverage,
    /// The waveform that it left.
    pub wave: Option<PathBuf>,
    /// Folders of vectors that it wrote.
    pub vectors: u64,
    /// What an observed run saw of the design.
    #[serde(skip)]
    pub watched: Option<Watched>,
}

impl Outcome {
    /// Adds the sums of another case.
    pub(super) fn add(&mut self, part: &Self) {
        self.cases += part.cases;
        self.compared += part.compared;
        self.mismatches += part.mismatches;
        self.cycles += part.cycles;
        self.seconds += part.seconds;
        self.vectors += part.vectors;
    }
}

/// Differences written out in words; the rest are only counted.
const FAILURES_KEPT: usize = 8;

/// Handed to a test for each of its cases.
pub struct Case<'a> {
    /// Number of the case within its test: directed ones first, then random ones.
    pub index: usize,
    /// `Some(n)`: the n-th random case; `None`: a directed one.
    pub random: Option<usize>,
    /// The case's own generator; a named algorithm, so that a seed replays for ever.
    pub rng: Xoshiro256PlusPlus,
    block: &'static str,
    test: &'static str,
    vectors: Option<&'a Path>,
    plans: &'a [Plan],
    trace: Option<TraceRequest>,
    watching: Option<Rc<RefCell<Watching>>>,
    outcome: Outcome,
}

/// Seed of one case: the run's seed, the test's name and the case's number, mixed by FNV-1a.
fn seed(run: u64, test: &str, index: usize) -> u64 {
    let bytes = run.to_le_bytes().into_iter().chain(test.bytes()).chain((index as u64).to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

impl<'a> Case<'a> {
    /// A case of `test`, fully determined by the run's seed and its number.
    pub fn new(
        plans: &'a [Plan],
        test: &super::Test,
        run_seed: u64,
        index: usize,
        trace: Option<TraceRequest>,
    ) -> Self {
        Self {
            index,
            random: index.checked_sub(test.directed),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed(run_seed, test.name, index)),
            block: test.block,
            test: test.name,
            vectors: None,
            plans,
            trace,
            watching: None,
            outcome: Outcome { cases: 1, ..Outcome::default() },
        }
    }

    /// Lets the case write its stimulus and expected outputs below `dir`.
    pub fn with_vectors(self, dir: Option<&'a Path>) -> Self {
        Self { vectors: dir, ..self }
    }

    /// Observes the design and, where `watch` says so, puts a fault into it or switches a checker off.
    pub(super) fn with_watch(self, watch: Option<Watch>) -> Self {
        Self { watching: watch.map(|w| Rc::new(RefCell::new(Watching::new(w)))), ..self }
    }

    /// What the bench shows its clocked design to, every cycle: writes the waveform that a failing case was asked for (`top` names
    /// the design in it, `context` the cycles before and after the first mismatch), and lets fault injection in. One a design.
    ///
    /// # Errors
    /// If the waveform cannot be created.
    pub fn probe(&mut self, top: &str, context: u64) -> anyhow::Result<Probe> {
        let trace = match &self.trace {
            Some(request) => {
                let around = request.around.unwrap_or(context);
                let window = around.saturating_sub(context)..around + context;
                let options = TraceOptions { window, max_bytes: 64 << 20, ..TraceOptions::default() };
                Some(Trace::create(&request.path, top, &options)?)
            }
            None => None,
        };
        Ok(Probe::new(trace, self.watching.clone()))
    }

    /// Notes that a checker has looked, for the list of checkers.
    fn looked(&self, what: &dyn fmt::Display) {
        if let Some(watching) = &self.watching {
            watching.borrow_mut().looked(checker_of(&what.to_string()));
        }
    }

    /// A folder for stimulus and expected outputs, if this run shall write them: `DIR/block/test/case`, with `-2`, `-3` ... for the
    /// scenarios after the first of a case. The bench makes it.
    pub fn vectors(&mut self) -> Option<PathBuf> {
        let dir = self.vectors?;
        self.outcome.vectors += 1;
        let again = if self.outcome.vectors == 1 { String::new() } else { format!("-{}", self.outcome.vectors) };
        Some(dir.join(self.block).join(self.test).join(format!("{}{again}", self.index)))
    }

    /// Names the case in reports, e.g. `layers.0.q_proj`.
    pub fn label(&mut self, label: impl Into<String>) {
        self.outcome.label = Some(label.into());
    }

    /// Says that this case stands for `n` cases, such as all codes of a format.
    pub fn stands_for(&mut self, n: u64) {
        self.outcome.cases = n;
    }

    /// Counts simulated clock cycles.
    pub fn cycles(&mut self, n: u64) {
        self.outcome.cycles += n;
    }

    /// Counts `n` values that were compared elsewhere and found equal: for inner loops that compare whole slices.
    pub fn agreed(&mut self, n: u64) {
        self.outcome.compared += n;
    }

    /// Counts one value that differed, with what to say of it.
    pub fn differed(&mut self, what: impl fmt::Display) {
        self.outcome.compared += 1;
        if let Some(watching) = &self.watching
            && !watching.borrow_mut().fires(checker_of(&what.to_string()))
        {
            return;
        }
        self.outcome.mismatches += 1;
        if self.outcome.failures.len() < FAILURES_KEPT {
            self.outcome.failures.push(what.to_string());
        }
    }

    /// Remembers the clock cycle of the first mismatch, around which the waveform is written.
    pub fn mismatch_at(&mut self, cycle: u64) {
        self.outcome.mismatch_cycle.get_or_insert(cycle);
    }

    /// Compares one value.
    pub fn equal<T: PartialEq + fmt::Debug>(&mut self, what: impl fmt::Display, expected: T, got: T) -> bool {
        self.looked(&what);
        let same = expected == got;
        if same {
            self.agreed(1);
        } else {
            self.differed(format_args!("{what}: expected {expected:?}, got {got:?}"));
        }
        same
    }

    /// Compares two slices value by value; a difference in length is a mismatch of its own.
    pub fn equal_slices<T: PartialEq + fmt::Debug>(
        &mut self,
        what: impl fmt::Display,
        expected: &[T],
        got: &[T],
    ) -> bool {
        self.looked(&what);
        if expected.len() != got.len() {
            self.differed(format_args!("{what}: expected {} values, got {}", expected.len(), got.len()));
            return false;
        }
        let before = self.outcome.mismatches;
        for (i, (e, g)) in expected.iter().zip(got).enumerate() {
            if e == g {
                self.outcome.compared += 1;
            } else {
                self.differed(format_args!("{what}[{i}]: expected {e:?}, got {g:?}"));
            }
        }
        self.outcome.mismatches == before
    }

    /// Compares an error with its derived bound; a NaN is never within.
    pub fn within(&mut self, what: impl fmt::Display, error: f64, bound: f64) -> bool {
        self.looked(&what);
        let inside = error <= bound;
        if inside {
            self.agreed(1);
        } else {
            self.differed(format_args!("{what}: error {error:e} is past its bound {bound:e}"));
        }
        inside
    }

    /// Checks something that is not a value of the design, such as a protocol rule; counts as one comparison.
    pub fn check(&mut self, holds: bool, what: impl fmt::Display) -> bool {
        self.looked(&what);
        if holds {
            self.agreed(1);
        } else {
            self.differed(what);
        }
        holds
    }

    /// Keeps a figure for the reports.
    pub fn measure(&mut self, name: impl Into<String>, value: f64) {
        self.outcome.measures.push(Measure { name: name.into(), value });
    }

    /// Samples a covergroup of the block's plan: `case.cover("gemm", &[("m", "one"), ("n", "above")])`.
    pub fn cover(&mut self, group: &str, classes: &[(&str, &str)]) {
        self.outcome.coverage.sample(self.plans, self.block, group, classes);
    }

    /// Where to write a waveform, when this run of the case shall leave one. `None` in ordinary runs.
    pub fn trace_request(&self) -> Option<&TraceRequest> {
        self.trace.as_ref()
    }

    /// Mismatches so far.
    pub fn mismatches(&self) -> u64 {
        self.outcome.mismatches
    }

    /// Ends the case.
    pub fn finish(mut self) -> Outcome {
        self.outcome.watched = self.watching.map(|w| w.take().watched());
        self.outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::Test;
    use rand::Rng;

    const TEST: Test = Test { block: "toy", name: "t", directed: 2, random: 2, exhaustive: false, run: |_| Ok(()) };

    #[test]
    fn cases_are_numbered_and_seeded_apart() {
        let draw = |seed, index| Case::new(&[], &TEST, seed, index, None).rng.next_u64();
        assert_eq!(draw(1, 0), draw(1, 0));
        assert_ne!(draw(1, 0), draw(1, 1));
        assert_ne!(draw(1, 0), draw(2, 0));
        assert_eq!(Case::new(&[], &TEST, 1, 1, None).random, None);
        assert_eq!(Case::new(&[], &TEST, 1, 3, None).random, Some(1));
    }

    #[test]
    fn each_scenario_of_a_case_has_a_folder_of_its_own() {
        assert_eq!(Case::new(&[], &TEST, 1, 3, None).vectors(), None);
        let mut case = Case::new(&[], &TEST, 1, 3, None).with_vectors(Some(Path::new("v")));
        assert_eq!(case.vectors(), Some("v/toy/t/3".into()));
        assert_eq!(case.vectors(), Some("v/toy/t/3-2".into()));
        assert_eq!(case.finish().vectors, 2);
    }

    #[test]
    fn the_scoreboard_counts_and_describes() {
        let mut case = Case::new(&[], &TEST, 1, 0, None);
        assert!(case.equal("a", 1, 1));
        assert!(!case.equal_slices("y", &[1, 2, 3], &[1, 0, 3]));
        assert!(!case.equal_slices("z", &[1], &[]));
        assert!(!case.within("e", f64::NAN, 1.0));
        let outcome = case.finish();
        assert_eq!((outcome.compared, outcome.mismatches), (6, 3));
        assert_eq!(outcome.failures[0], "y[1]: expected 2, got 0");
    }
}
