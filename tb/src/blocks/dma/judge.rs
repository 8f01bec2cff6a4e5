//! Runs a scenario on both engines and holds every byte, completion and rule against what must be.

use super::bench::{self, Bench, Ran, Scenario};
use super::{reference, vectors};
use crate::verify::Case;
use dma::{Completion, Descriptor, Outcome, Refusal, Stalls};

/// Cycles written before and after the first cycle of a failing case's trace.
const CONTEXT: u64 = 3_000;

/// The completion of a job that moves.
pub(super) fn done(tag: u32) -> Completion {
    Completion { tag, ..Completion::default() }
}

/// The completion of a job that is refused.
pub(super) fn refused(tag: u32, refusal: Refusal) -> Completion {
    Completion { tag, outcome: Outcome::Refused, field: refusal.field, value: refusal.value, ..Completion::default() }
}

/// Runs `s` in the sight of the case.
fn run(case: &mut Case<'_>, s: &Scenario) -> anyhow::Result<Ran> {
    let mut probe = case.probe("dma", CONTEXT)?;
    let ran = Bench::new(s)?.run_traced(&mut probe);
    probe.finish()?;
    ran
}

/// Compares two memories; the canaries around the buffers are part of both.
pub(super) fn same_bytes(case: &mut Case<'_>, what: &str, s: &Scenario, expected: &[u8], got: &[u8]) -> bool {
    if expected == got {
        case.agreed(got.len() as u64);
        return true;
    }
    let wrong: Vec<usize> = (0..got.len()).filter(|&i| expected[i] != got[i]).collect();
    for &i in wrong.iter().take(6) {
        let address = s.image.base + i as u64;
        case.differed(format_args!("{what} at {address:#x}: expected {:#04x}, got {:#04x}", expected[i], got[i]));
    }
    case.differed(format_args!("{what}: {} bytes differ of {}", wrong.len(), got.len()));
    false
}

/// What must hold of every run, whatever its jobs: no rule broken, no hang, one completion a job in order, bytes.
pub(super) fn hold(
    case: &mut Case<'_>,
    s: &Scenario,
    expected: &[u8],
    completions: &[Completion],
) -> anyhow::Result<Ran> {
    if let Some(dir) = case.vectors() {
        vectors::write(&dir, s, &vectors::Expected { bytes: expected, completions })?;
    }
    let ran = run(case, s)?;
    case.cycles(ran.cycles);
    case.check(!ran.hung, format_args!("the engine never came to rest: {} cycles", ran.cycles));
    for violation in &ran.violations {
        case.mismatch_at(violation.cycle);
        case.differed(format_args!("AXI rule {:?}: broken in cycle {}", violation.rule, violation.cycle));
    }
    case.agreed(ran.transfers);
    case.equal("SRAM misuse", None, ran.fault);
    case.equal_slices("completion", completions, &ran.outcomes());
    let (counted, stalls) = (ran.counters, ran.counters.stalls);
    case.equal("traffic against the port", ran.port.traffic, counted.traffic);
    let waits = |s: Stalls| (s.ar, s.aw, s.w);
    case.equal("waits for ready against the port", waits(ran.port.stalls), waits(stalls));
    let inside =
        [stalls.reads_full, stalls.read_data, stalls.write_data, stalls.descriptor, stalls.index, stalls.order];
    case.check(inside.iter().all(|&n| n <= ran.cycles), format_args!("more stalls than cycles: {stalls:?}"));
    same_bytes(case, "memory", s, expected, &ran.bytes);
    if s.timing.is_fixed() && s.host_busy == 0.0 {
        let (bytes, report) = bench::predict(s)?;
        same_bytes(case, "memory by transactions", s, &ran.bytes, &bytes);
        case.equal_slices("completion cycle", &ran.completions, &report.completions);
        case.equal("counters", ran.counters, report.counters);
    }
    Ok(ran)
}

/// The same for jobs that are all legal: the plain loops say what the bytes must be.
pub(super) fn judge(case: &mut Case<'_>, s: &Scenario, jobs: &[Descriptor]) -> anyhow::Result<Ran> {
    let mut image = s.image.clone();
    for job in jobs {
        reference::apply(&mut image, job, &s.regions)?;
    }
    let completions: Vec<_> = jobs.iter().map(|d| done(d.tag)).collect();
    hold(case, s, &image.bytes, &completions)
}
