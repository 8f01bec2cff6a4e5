//! Where something gets at a case's design while it runs: a waveform, an observer, an injected fault.

use crate::wave::{Trace, Tracer, WaveError};
use rtl::{FaultInjector, Image, Layout, Module};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::{self, Debug, Display};
use std::rc::Rc;

/// A fault to put into one design of a case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    /// Which of the case's designs, in the order of their probes.
    pub(super) design: usize,
    /// The cycle at whose edge it acts first.
    pub(super) cycle: u64,
    /// Draws the register and its bit.
    pub(super) draw: u64,
    /// `None`: one flip. `Some`: stuck at that value from then on.
    pub(super) stuck: Option<bool>,
}

/// What an observed run shall do besides.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    /// The fault, if any.
    pub(super) fault: Option<Fault>,
    /// The checker that is switched off.
    pub(super) muted: Option<String>,
    /// Cycles a design after which the run is broken off; 0: never.
    pub(super) limit: u64,
}

/// What one design did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Cycles run.
    pub cycles: u64,
    /// Transfers that left it.
    pub transfers: u64,
    /// Digest of those transfers and of their cycles.
    pub outputs: u64,
    /// Its state at rest, where the bench got that far.
    pub rest: Option<Image>,
}

/// What an observed run saw.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// The case's designs.
    pub designs: Vec<Seen>,
    /// Checkers that looked at something.
    pub looked: BTreeSet<String>,
    /// Checkers that found something.
    pub fired: BTreeSet<String>,
    /// The bit that was hit.
    pub site: Option<String>,
}

/// A run under observation; the case and its probes share it.
#[derive(Debug, Default)]
pub(super) struct Watching {
    watch: Watch,
    watched: Watched,
}

impl Watching {
    pub(super) fn new(watch: Watch) -> Self {
        Self { watch, watched: Watched::default() }
    }

    pub(super) fn looked(&mut self, checker: &str) {
        if !self.watched.looked.contains(checker) {
            self.watched.looked.insert(checker.into());
        }
    }

    /// Notes that a checker found something; false if it is switched off.
    pub(super) fn fires(&mut self, checker: &str) -> bool {
        let on = self.watch.muted.as_deref() != Some(checker);
        if on && !self.watched.fired.contains(checker) {
            self.watched.fired.insert(checker.into());
        }
        on
    }

    pub(super) fn watched(self) -> Watched {
        self.watched
    }
}

/// The checker that speaks: what a message says before its first number, bracket, comma or colon.
pub(super) fn checker_of(message: &str) -> &str {
    let end = message.find(|c: char| c.is_ascii_digit() || ":,[(`\n".contains(c)).unwrap_or(message.len());
    let name = message[..end].trim_end();
    let name =
        [" at", " in cycle", " cycle", " of", " in"].iter().fold(name, |n, tail| n.strip_suffix(tail).unwrap_or(n));
    if name.is_empty() { "unnamed" } else { name }
}

/// FNV-1a over what is written to it.
struct Digest(u64);

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = text.bytes().fold(self.0, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        Ok(())
    }
}

/// What a bench shows one clocked design to; made by [`Case::probe`](super::Case::probe).
pub struct Probe {
    trace: Option<Trace>,
    watching: Option<Rc<RefCell<Watching>>>,
    /// Which of the case's designs this is.
    design: usize,
    cycles: u64,
    fault: Option<Fault>,
    stuck: Option<FaultInjector>,
}

impl Probe {
    pub(super) fn new(trace: Option<Trace>, watching: Option<Rc<RefCell<Watching>>>) -> Self {
        let (mut design, mut fault) = (0, None);
        if let Some(watching) = &watching {
            let Watching { watch, watched } = &mut *watching.borrow_mut();
            design = watched.designs.len();
            watched.designs.push(Seen { outputs: 0xcbf2_9ce4_8422_2325, ..Seen::default() });
            fault = watch.fault.filter(|f| f.design == design);
        }
        Self { trace, watching, design, cycles: 0, fault, stuck: None }
    }

    /// Ends the waveform, if one was written.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(self) -> Result<(), WaveError> {
        self.trace.map_or(Ok(()), |t| t.finish().map(drop))
    }

    fn watch<M: Module>(&mut self, watching: &RefCell<Watching>, module: &mut M) {
        let mut watching = watching.borrow_mut();
        let Watching { watch, watched } = &mut *watching;
        assert!(
            watch.limit == 0 || self.cycles <= watch.limit,
            "watchdog: the bench still runs after {} cycles",
            watch.limit
        );
        if let Some(fault) = self.fault.filter(|f| f.cycle == self.cycles) {
            let (injector, site) = place(fault, module);
            watched.site = Some(site);
            match fault.stuck {
                None => injector.inject(module),
                Some(_) => self.stuck = Some(injector),
            }
        }
        if let Some(injector) = self.stuck {
            injector.inject(module);
        }
        self.cycles += 1;
        watched.designs[self.design].cycles = self.cycles;
    }
}

/// One in so many faults hits a memory; the rest hit registers.
const MEMORY_SHARE: u64 = 8;

/// Chooses the bit: first a part of the design, so that a control register is hit as often as one of a thousand elements, then one of its
/// registers, then a bit of that.
fn place<M: Module>(fault: Fault, module: &mut M) -> (FaultInjector, String) {
    let paths = Layout::of(module).paths;
    let mut draw = fault.draw;
    let mut pick = |n: usize| {
        // splitmix64
        draw = draw.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = draw;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((u128::from(z ^ z >> 31) * n as u128) >> 64) as usize
    };
    let memory = pick(MEMORY_SHARE as usize) == 0 && paths.iter().any(|p| p.memory);
    let part = |path: &str| match path.split_once('.') {
        Some((scope, _)) => scope.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_').to_string(),
        None => String::new(),
    };
    let candidates: Vec<usize> = (0..paths.len()).filter(|&i| paths[i].memory == memory).collect();
    let parts: Vec<String> =
        candidates.iter().map(|&i| part(&paths[i].path)).collect::<BTreeSet<_>>().into_iter().collect();
    let chosen = &parts[pick(parts.len())];
    let inside: Vec<usize> = candidates.into_iter().filter(|&i| part(&paths[i].path) == *chosen).collect();
    let signal = inside[pick(inside.len())];
    let bit = pick(paths[signal].width as usize);
    (FaultInjector { signal, mask: 1 << bit, stuck: fault.stuck }, format!("{}[{bit}]", paths[signal].path))
}

impl Tracer for Probe {
    #[inline]
    fn sample<M: Module>(&mut self, cycle: u64, module: &mut M) -> Result<(), WaveError> {
        if let Some(watching) = self.watching.clone() {
            self.watch(&watching, module);
        }
        self.trace.as_mut().map_or(Ok(()), |t| t.sample(cycle, module))
    }

    #[inline]
    fn output(&mut self, cycle: u64, value: &dyn Debug) {
        if let Some(watching) = &self.watching {
            let seen = &mut watching.borrow_mut().watched.designs[self.design];
            let mut digest = Digest(seen.outputs);
            let _ = fmt::Write::write_fmt(&mut digest, format_args!("{cycle} {value:?};"));
            (seen.outputs, seen.transfers) = (digest.0, seen.transfers + 1);
        }
    }

    #[inline]
    fn rest<M: Module>(&mut self, module: &mut M) {
        if let Some(watching) = &self.watching {
            watching.borrow_mut().watched.designs[self.design].rest = Some(Image::of(module));
        }
    }

    fn breach(&mut self, rule: &dyn Display) -> anyhow::Result<()> {
        let off = self.watching.as_ref().is_some_and(|w| !w.borrow_mut().fires(checker_of(&rule.to_string())));
        if off { Ok(()) } else { ().breach(rule) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::runner::run_watched;
    use crate::verify::{Case, Test};
    use rtl::{Fifo, FifoIn, Stream};

    /// A FIFO whose bench looks at its head, twice.
    fn fifo(case: &mut Case) -> anyhow::Result<()> {
        let mut fifo = Fifo::new(4, 0u8);
        let mut probe = case.probe("fifo", 10)?;
        for cycle in 0..20u64 {
            probe.sample(cycle, &mut fifo)?;
            let head = fifo.out().head;
            probe.output(cycle, &head.valid.then_some(head.data));
            if let Some(expected) = cycle.checked_sub(1) {
                case.equal("head", expected as u8, *head.data);
                case.check(u64::from(*head.data) == expected, "the head differs");
            }
            fifo.clock(&FifoIn { push: Stream::offer(&(cycle as u8)), pop: true });
        }
        probe.rest(&mut fifo);
        Ok(probe.finish()?)
    }
    const FIFO: Test = Test::new("toy", "fifo", 1, 0, fifo);

    #[test]
    fn a_fault_is_noticed_by_the_checkers_that_are_on() {
        let watched = |watch| {
            let outcome = run_watched(&[], &FIFO, 0, watch);
            (outcome.mismatches, outcome.watched.unwrap())
        };
        let (mismatches, good) = watched(Watch::default());
        assert_eq!((mismatches, good.designs[0].cycles, good.designs[0].transfers), (0, 20, 20));
        assert_eq!(good.looked.iter().collect::<Vec<_>>(), ["head", "the head differs"]);
        // Some draw sticks a bit of the slots that are read.
        let stuck = |draw| Fault { design: 0, cycle: 3, draw, stuck: Some(true) };
        let draw =
            (0..200).find(|&draw| watched(Watch { fault: Some(stuck(draw)), ..Watch::default() }).0 > 0).unwrap();
        let faulty =
            |muted: Option<&str>| watched(Watch { fault: Some(stuck(draw)), muted: muted.map(String::from), limit: 0 });
        let (mismatches, seen) = faulty(None);
        assert!(seen.site.is_some() && seen.designs[0].outputs != good.designs[0].outputs);
        assert_eq!(seen.fired.len(), 2);
        let (fewer, seen) = faulty(Some("head"));
        assert_eq!(
            (fewer * 2, seen.fired.into_iter().collect::<Vec<_>>()),
            (mismatches, vec!["the head differs".into()])
        );
    }

    #[test]
    fn a_run_without_end_is_broken_off() {
        let outcome = run_watched(&[], &FIFO, 0, Watch { limit: 5, ..Watch::default() });
        assert_eq!(outcome.failures, ["watchdog: the bench still runs after 5 cycles"]);
    }

    #[test]
    fn a_checker_is_named_by_what_it_says_before_the_figures() {
        for (message, name) in [
            ("Y[3]: expected 1, got 2", "Y"),
            ("memory at 0x1f: expected 0x01", "memory"),
            ("AXI rule ArStable: broken in cycle 7", "AXI rule ArStable"),
            ("7 rows", "unnamed"),
        ] {
            assert_eq!(checker_of(message), name);
        }
    }
}
