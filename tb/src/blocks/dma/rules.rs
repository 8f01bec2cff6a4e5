//! Negative tests of the AXI checker: a good trace, spoiled so that one rule is broken; that very rule must fire.

use super::axi::{Checker, Cycle, RULES, Rule};
use super::bench::{Bench, Scenario};
use super::memory::Timing;
use super::random::{copy, plain};
use crate::verify::Case;
use dma::Config;

/// Traces tried a rule.
const TRACES: usize = 100;
/// One case a rule.
pub(super) const CASES: usize = RULES.len();

/// Valid and ready of AR, AW, W, R and B.
fn channels(c: &Cycle) -> [(bool, bool); 5] {
    [(c.ar.0.valid, c.ar.1), (c.aw.0.valid, c.aw.1), (c.w.0.valid, c.w.1), (c.r.0.valid, c.r.1), (c.b.0.valid, c.b.1)]
}

/// The first transfer of a channel, of those that `what` allows, that is taken in the cycle in which it is first offered.
fn at_once(trace: &[Cycle], channel: usize, what: fn(&Cycle) -> bool) -> Option<usize> {
    let of = |i: usize| channels(&trace[i])[channel];
    (1..trace.len()).find(|&i| of(i) == (true, true) && of(i - 1) != (true, false) && what(&trace[i]))
}

/// The first transfer of a channel before which no other one was left waiting: cycles in which the others are quiet may stand there.
fn alone(trace: &[Cycle], channel: usize) -> Option<usize> {
    let waits = |c: &Cycle| (0..5).any(|other| other != channel && channels(c)[other] == (true, false));
    (1..trace.len()).find(|&i| channels(&trace[i])[channel] == (true, true) && !waits(&trace[i - 1]))
}

/// Spoils a good trace; `None` if the rule cannot be broken in it alone.
fn spoil(rule: Rule, trace: &mut Vec<Cycle>) -> Option<()> {
    let find = |trace: &[Cycle], what: fn(&Cycle) -> bool| trace.iter().position(what);
    let at = match rule {
        Rule::ArStable => find(trace, |c| c.ar.0.valid && !c.ar.1),
        Rule::AwStable => find(trace, |c| c.aw.0.valid && !c.aw.1),
        Rule::WStable => find(trace, |c| c.w.0.valid && !c.w.1),
        Rule::RStable => alone(trace, 3),
        Rule::BStable => alone(trace, 4),
        Rule::ArPage | Rule::ArLength | Rule::AxSize | Rule::ReadRegion => at_once(trace, 0, |_| true),
        Rule::AwPage | Rule::AwLength | Rule::WriteRegion => at_once(trace, 1, |_| true),
        Rule::RLast => at_once(trace, 3, |c| !c.r.0.data.last),
        Rule::WLast => at_once(trace, 2, |c| !c.w.0.data.last),
        Rule::WStrobe | Rule::WAfterAw => at_once(trace, 2, |_| true),
        _ => Some(0),
    }?;
    match rule {
        // The next cycle offers something else although this one was not taken.
        Rule::ArStable => trace[at + 1].ar.0.data.address ^= 64,
        Rule::AwStable => trace[at + 1].aw.0.valid = false,
        Rule::WStable => {
            // A lane that counts.
            let w = &mut trace[at + 1].w.0.data;
            w.data[w.strobe.trailing_zeros() as usize] ^= 1;
        }
        Rule::RStable => {
            // Not taken, but gone in the next cycle; it comes back after that.
            let mut held = trace[at];
            held.r.1 = false;
            let mut gone = held;
            gone.r.0.valid = false;
            let quiet =
                |c: &mut Cycle| (c.ar.0.valid, c.aw.0.valid, c.w.0.valid, c.b.0.valid) = (false, false, false, false);
            quiet(&mut held);
            quiet(&mut gone);
            trace.splice(at..at, [held, gone]);
        }
        Rule::BStable => {
            let mut held = trace[at];
            held.b.1 = false;
            let mut gone = held;
            gone.b.0.valid = false;
            for c in [&mut held, &mut gone] {
                (c.ar.0.valid, c.aw.0.valid, c.w.0.valid, c.r.0.valid) = (false, false, false, false);
            }
            trace.splice(at..at, [held, gone]);
        }
        // The burst begins one beat before a page's end.
        Rule::ArPage => trace[at].ar.0.data.address = trace[at].ar.0.data.address / 4096 * 4096 + 4032,
        Rule::AwPage => trace[at].aw.0.data.address = trace[at].aw.0.data.address / 4096 * 4096 + 4032,
        Rule::ArLength => trace[at].ar.0.data.beats = 257,
        Rule::AwLength => trace[at].aw.0.data.beats = 0,
        Rule::AxSize => trace[at].ar.0.data.size -= 1,
        Rule::RLast => trace[at].r.0.data.last = true,
        Rule::WLast => trace[at].w.0.data.last = true,
        Rule::WStrobe => trace[at].w.0.data.strobe = 0b101 << 20,
        Rule::RAfterAr => {
            let mut stray = trace[0];
            (stray.r.0.valid, stray.r.0.data.last, stray.r.1) = (true, true, true);
            trace.insert(0, stray);
        }
        Rule::WAfterAw => {
            let stray = trace[at];
            let mut first = trace[0];
            first.w = stray.w;
            trace.insert(0, first);
        }
        Rule::BAfterW => {
            let mut stray = trace[0];
            (stray.b.0.valid, stray.b.1) = (true, true);
            trace.insert(0, stray);
        }
        // The address is taken and then offered again, more often than data come.
        Rule::ReadsInFlight => {
            let at = alone(trace, 0)?;
            let mut again = trace[at];
            (again.r.0.valid, again.w.0.valid, again.aw.0.valid, again.b.0.valid) = (false, false, false, false);
            trace.splice(at..at, [again; 5]);
        }
        Rule::WritesInFlight => {
            let at = alone(trace, 1)?;
            let mut again = trace[at];
            (again.r.0.valid, again.w.0.valid, again.ar.0.valid, again.b.0.valid) = (false, false, false, false);
            trace.splice(at..at, [again; 5]);
        }
        Rule::ReadRegion => trace[at].ar.0.data.address += 1 << 30,
        Rule::WriteRegion => trace[at].aw.0.data.address += 1 << 30,
        Rule::ResetQuiet => {
            let at = find(trace, |c| c.ar.0.valid)?;
            let mut reset = trace[at];
            reset.reset = true;
            trace.insert(at, reset);
            trace.truncate(at + 2);
        }
        Rule::Drained => trace.truncate(trace.len() / 2),
    }
    Some(())
}

/// One rule.
pub(super) fn rules(case: &mut Case<'_>) -> anyhow::Result<()> {
    let rule = RULES[case.index];
    case.label(format!("{rule:?}"));
    let jobs = [copy(1, 0x1003, 0x4000, 5000), copy(2, 0x3000, 0x8001, 900)];
    let watch = |trace: &[Cycle], s: &Scenario| {
        let mut checker = Checker::new(s.config.bus_bytes, 3, 3, &s.regions);
        trace.iter().for_each(|c| checker.observe(c));
        checker.finish();
        checker.violations
    };
    // Not every trace has a place where the rule can be broken alone.
    for _ in 0..TRACES {
        let mut s = plain(case, &jobs);
        s.config = Config { reads_in_flight: 3, writes_in_flight: 3, ..Config::default() };
        s.timing = Timing { latency: (3, 9), busy: 0.5, gap: 0.2, sample_early: false };
        let mut bench = Bench::new(&s)?;
        let mut trace = Vec::new();
        while !bench.quiet() && !bench.hung() {
            trace.push(bench.step());
        }
        case.equal("violations of the good trace", Vec::new(), watch(&trace, &s));
        if spoil(rule, &mut trace).is_some() {
            let first = watch(&trace, &s).first().map(|v| v.rule);
            case.equal("first rule that fires", Some(rule), first);
            return Ok(());
        }
    }
    case.check(false, "no trace in which the rule can be broken alone");
    Ok(())
}
