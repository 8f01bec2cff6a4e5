use super::plan::{Cell, Declaration, Plan, Writer};
use super::{Backend, Fst, Glob, Summary, TraceOptions, Trigger, UNITS_PER_CYCLE, Vcd, WaveError};
use rtl::{Layout, Module, Name, Signal, Visitor};
use std::collections::VecDeque;
use std::fmt::{Debug, Display};
use std::path::Path;

/// Most memory that the cycles before a trigger may take.
const HISTORY_BYTES: u64 = 1 << 30;

/// What a bench shows its design to, cycle by cycle: a waveform, an observer, a fault. `()` is the one that is off: it compiles to nothing.
pub trait Tracer {
    /// Shows the state of `cycle`, before its edge. Cycles ascend.
    ///
    /// # Errors
    /// Those of [`Trace::sample`].
    fn sample<M: Module>(&mut self, cycle: u64, module: &mut M) -> Result<(), WaveError>;

    /// Shows a transfer that left the design, without its don't-care lanes.
    #[inline]
    fn output(&mut self, cycle: u64, value: &dyn Debug) {
        let _ = (cycle, value);
    }

    /// Shows the state in which the design came to rest.
    #[inline]
    fn rest<M: Module>(&mut self, module: &mut M) {
        let _ = module;
    }

    /// Reports a broken rule of a port. Begins with the rule's name, then a colon.
    ///
    /// # Errors
    /// The rule, which ends the run; `Ok` where this checker is switched off and the run shall go on.
    fn breach(&mut self, rule: &dyn Display) -> anyhow::Result<()> {
        anyhow::bail!("{rule}")
    }
}

impl Tracer for () {
    #[inline(always)]
    fn sample<M: Module>(&mut self, _: u64, _: &mut M) -> Result<(), WaveError> {
        Ok(())
    }
}

impl<T: Tracer> Tracer for &mut T {
    #[inline]
    fn sample<M: Module>(&mut self, cycle: u64, module: &mut M) -> Result<(), WaveError> {
        (**self).sample(cycle, module)
    }
    #[inline]
    fn output(&mut self, cycle: u64, value: &dyn Debug) {
        (**self).output(cycle, value);
    }
    #[inline]
    fn rest<M: Module>(&mut self, module: &mut M) {
        (**self).rest(module);
    }
    fn breach(&mut self, rule: &dyn Display) -> anyhow::Result<()> {
        (**self).breach(rule)
    }
}

impl<T: Tracer> Tracer for Option<T> {
    #[inline]
    fn sample<M: Module>(&mut self, cycle: u64, module: &mut M) -> Result<(), WaveError> {
        self.as_mut().map_or(Ok(()), |t| t.sample(cycle, module))
    }
    #[inline]
    fn output(&mut self, cycle: u64, value: &dyn Debug) {
        if let Some(tracer) = self {
            tracer.output(cycle, value);
        }
    }
    #[inline]
    fn rest<M: Module>(&mut self, module: &mut M) {
        if let Some(tracer) = self {
            tracer.rest(module);
        }
    }
    fn breach(&mut self, rule: &dyn Display) -> anyhow::Result<()> {
        self.as_mut().map_or_else(|| ().breach(rule), |t| t.breach(rule))
    }
}

impl<B: Backend> Tracer for Trace<B> {
    #[inline]
    fn sample<M: Module>(&mut self, cycle: u64, module: &mut M) -> Result<(), WaveError> {
        Trace::sample(self, cycle, module)
    }
}

/// A waveform under way.
pub struct Trace<B = Box<dyn Backend + Send>> {
    backend: B,
    top: String,
    globs: Vec<Glob>,
    /// As given, one a glob.
    patterns: Vec<String>,
    /// Cycles yet to be written lie in here.
    window: std::ops::Range<u64>,
    max_bytes: u64,
    trigger: Option<Trigger>,
    /// Cycles before the trigger, oldest first, with the values of all signals walked.
    history: VecDeque<(u64, Vec<u64>)>,
    /// A buffer to use again.
    spare: Vec<u64>,
    /// None before the first walk.
    plan: Option<Plan>,
    last_sample: Option<u64>,
    summary: Summary,
}

impl Trace {
    /// Starts a trace whose format the file's name tells: `.vcd` or `.fst`. `top` names the outermost scope.
    ///
    /// # Errors
    /// [`WaveError::Create`], [`WaveError::UnknownFormat`], [`WaveError::BadGlob`].
    pub fn create(path: impl AsRef<Path>, top: &str, options: &TraceOptions) -> Result<Self, WaveError> {
        let path = path.as_ref();
        Self::check_name(path)?;
        let backend: Box<dyn Backend + Send> = match path.extension() {
            Some(ending) if ending == "fst" => Box::new(Fst::create(path)?),
            _ => Box::new(Vcd::create(path)?),
        };
        Self::with_backend(backend, top, options)
    }

    /// Whether a name tells a format.
    ///
    /// # Errors
    /// [`WaveError::UnknownFormat`].
    pub fn check_name(path: &Path) -> Result<(), WaveError> {
        match path.extension().and_then(|e| e.to_str()) {
            Some("vcd" | "fst") => Ok(()),
            _ => Err(WaveError::UnknownFormat(path.into())),
        }
    }
}

impl<B: Backend> Trace<B> {
    /// Starts a trace on any back end.
    ///
    /// # Errors
    /// [`WaveError::BadGlob`].
    pub fn with_backend(backend: B, top: &str, options: &TraceOptions) -> Result<Self, WaveError> {
        Ok(Self {
            backend,
            top: top.into(),
            globs: options.scopes.iter().map(|s| Glob::new(s)).collect::<Result<_, _>>()?,
            patterns: options.scopes.clone(),
            window: options.window.clone(),
            max_bytes: options.max_bytes,
            trigger: options.trigger.clone(),
            history: VecDeque::new(),
            spare: Vec::new(),
            plan: None,
            last_sample: None,
            summary: Summary::default(),
        })
    }

    /// Shows the state of `cycle`; cycles ascend. The first call walks the module once, whatever the window, to declare
    /// its signals, so that a mistyped path is known at once.
    ///
    /// # Errors
    /// A pattern or path that nothing answers to, a failed write, cycles that do not ascend, a module that changed shape.
    #[inline]
    pub fn sample<M: Module>(&mut self, cycle: u64, module: &mut M) -> Result<(), WaveError> {
        if self.plan.is_some() && !self.window.contains(&cycle) {
            return Ok(());
        }
        self.sample_inside(cycle, module)
    }

    /// No later cycle will be written.
    pub fn is_done(&self) -> bool {
        self.last_sample.is_some_and(|c| c.saturating_add(1) >= self.window.end)
    }

    /// Completes the file.
    ///
    /// # Errors
    /// [`WaveError::Write`].
    pub fn finish(mut self) -> Result<Summary, WaveError> {
        if self.plan.is_none() {
            self.plan = Some(Declaration::new(&self.top, &self.globs, None).plan(&mut self.backend));
        }
        let end = self.summary.span.map_or(0, |(_, last)| (last + 1) * UNITS_PER_CYCLE);
        self.backend.finish(end)?;
        Ok(Summary { bytes: self.backend.bytes(), ..self.summary })
    }

    fn sample_inside<M: Module>(&mut self, cycle: u64, module: &mut M) -> Result<(), WaveError> {
        if let Some(last) = self.last_sample.filter(|&last| cycle <= last) {
            return Err(WaveError::TimeBackwards { last, cycle });
        }
        if cycle >= u64::MAX / UNITS_PER_CYCLE {
            return Err(WaveError::TimeTooLarge(cycle));
        }
        self.last_sample = Some(cycle);
        let first = if self.plan.is_none() { Some(self.declare(module)?) } else { None };
        if !self.window.contains(&cycle) {
            return self.backend.check();
        }
        match self.trigger.take() {
            Some(trigger) => {
                let values = first.map_or_else(|| self.collect(module), Ok)?;
                self.wait(trigger, cycle, values);
            }
            None if self.summary.span.is_none() => {
                let values = first.map_or_else(|| self.collect(module), Ok)?;
                self.write_first(cycle, &values);
            }
            None => self.write_walk(cycle, module)?,
        }
        self.backend.check()
    }

    /// The first walk. Returns its values.
    fn declare<M: Module>(&mut self, module: &mut M) -> Result<Vec<u64>, WaveError> {
        let trigger = self.trigger.as_ref().map(|t| t.path.as_str());
        let mut declaration = Declaration::new(&self.top, &self.globs, trigger);
        module.visit(&mut declaration);
        let unmatched = declaration.matched.iter().position(|m| !m);
        let values = std::mem::take(&mut declaration.values);
        let plan = declaration.plan(&mut self.backend);
        if let Some(i) = unmatched {
            let nearby = self.nearby(module, "");
            return Err(WaveError::NothingMatches { pattern: self.patterns[i].clone(), top: self.top.clone(), nearby });
        }
        if let Some(trigger) = &self.trigger {
            if plan.trigger.is_none() {
                let last = trigger.path.rsplit('.').next().unwrap_or_default();
                return Err(WaveError::NoSuchSignal { path: trigger.path.clone(), nearby: self.nearby(module, last) });
            }
            let (pre, signals) = (trigger.pre, values.len());
            if pre.saturating_add(1).saturating_mul(8 * signals as u64) > HISTORY_BYTES {
                return Err(WaveError::HistoryTooLarge { pre, signals, limit: HISTORY_BYTES });
            }
        }
        self.summary.variables = plan.declared;
        self.plan = Some(plan);
        Ok(values)
    }

    /// A few paths that end in `name`, or else a few of all.
    fn nearby<M: Module>(&self, module: &mut M, name: &str) -> String {
        let layout = Layout::of(module);
        let paths = || layout.paths.iter().map(|p| &p.path);
        let mut some: Vec<_> = paths().filter(|p| p.rsplit('.').next() == Some(name)).take(4).collect();
        if some.is_empty() {
            some = paths().take(4).collect();
        }
        some.iter().map(|p| format!("{}.{p}", self.top)).collect::<Vec<_>>().join(", ")
    }

    /// Walks without writing.
    fn collect<M: Module>(&mut self, module: &mut M) -> Result<Vec<u64>, WaveError> {
        let Some(plan) = &self.plan else { return Ok(Vec::new()) };
        let expected = plan.cells.len();
        let mut values = std::mem::take(&mut self.spare);
        values.clear();
        values.reserve(expected);
        let mut walk = Collection { enter: &plan.enter, next: 0, values };
        module.visit(&mut walk);
        let found = walk.values.len();
        if found == expected { Ok(walk.values) } else { Err(WaveError::WalkChanged { expected, found }) }
    }

    /// Keeps a cycle, or writes all that are kept if the trigger fires in it.
    fn wait(&mut self, trigger: Trigger, cycle: u64, values: Vec<u64>) {
        let watched = self.plan.as_ref().and_then(|p| p.trigger).map(|i| values[i]);
        self.history.push_back((cycle, values));
        while self.history.front().is_some_and(|&(c, _)| cycle - c > trigger.pre) {
            self.spare = self.history.pop_front().map(|(_, values)| values).unwrap_or_default();
        }
        if watched != Some(trigger.value) {
            self.trigger = Some(trigger);
            return;
        }
        self.window.end = self.window.end.min(cycle.saturating_add(trigger.post).saturating_add(1));
        for (cycle, values) in std::mem::take(&mut self.history) {
            if self.summary.span.is_none() {
                self.write_first(cycle, &values)
            } else {
                self.write_values(cycle, &values)
            }
        }
    }

    /// The first cycle of the file: every value.
    fn write_first(&mut self, cycle: u64, values: &[u64]) {
        let Some(plan) = &mut self.plan else { return };
        self.backend.time(cycle * UNITS_PER_CYCLE);
        self.backend.initial(true);
        clock_edge(&mut self.backend, plan, cycle);
        for (cell, &value) in plan.cells.iter_mut().zip(values) {
            cell.last = value;
            if let Some(variable) = cell.variable {
                plan.writer.take(&mut self.backend, variable, value);
            }
        }
        self.summary.changes += plan.writer.finish(&mut self.backend);
        self.backend.initial(false);
        self.close(cycle);
    }

    /// A later cycle whose values were kept.
    fn write_values(&mut self, cycle: u64, values: &[u64]) {
        let Some(plan) = &mut self.plan else { return };
        self.backend.time(cycle * UNITS_PER_CYCLE);
        clock_edge(&mut self.backend, plan, cycle);
        for (cell, &value) in plan.cells.iter_mut().zip(values) {
            write_change(cell, value, &mut plan.writer, &mut self.backend);
        }
        self.summary.changes += plan.writer.finish(&mut self.backend);
        self.close(cycle);
    }

    /// A later cycle, written while walking.
    fn write_walk<M: Module>(&mut self, cycle: u64, module: &mut M) -> Result<(), WaveError> {
        let Some(plan) = &mut self.plan else { return Ok(()) };
        self.backend.time(cycle * UNITS_PER_CYCLE);
        clock_edge(&mut self.backend, plan, cycle);
        let (backend, expected) = (&mut self.backend, plan.cells.len());
        let (enter, cells, writer) = (plan.enter.as_slice(), plan.cells.iter_mut(), &mut plan.writer);
        let mut walk = Changes { enter, cells, writer, backend, scope: 0, extra: 0 };
        module.visit(&mut walk);
        let found = expected - walk.cells.len() + walk.extra;
        if found != expected {
            return Err(WaveError::WalkChanged { expected, found });
        }
        self.summary.changes += plan.writer.finish(&mut self.backend);
        self.close(cycle);
        Ok(())
    }

    /// The falling edge, and the books.
    fn close(&mut self, cycle: u64) {
        self.backend.time(cycle * UNITS_PER_CYCLE + UNITS_PER_CYCLE / 2);
        if let Some(clock) = self.plan.as_ref().and_then(|p| p.clock) {
            self.backend.bits(clock, 1, 0);
        }
        self.summary.changes += 3; // clk twice, cycle once
        self.summary.cycles += 1;
        self.summary.span = Some((self.summary.span.map_or(cycle, |(first, _)| first), cycle));
        if self.backend.bytes() > self.max_bytes {
            self.summary.truncated = true;
            self.window.end = cycle + 1;
        }
    }
}

fn clock_edge(backend: &mut impl Backend, plan: &Plan, cycle: u64) {
    if let (Some(clk), Some(counter)) = (plan.clock, plan.cycle) {
        backend.bits(clk, 1, 1);
        backend.bits(counter, 64, cycle);
    }
}

/// Whether scope number `next` of the walk is entered; counts it.
#[inline]
fn enters(enter: &[bool], next: &mut usize) -> bool {
    let i = *next;
    *next += 1;
    enter.get(i).copied().unwrap_or(false)
}

struct Collection<'a> {
    enter: &'a [bool],
    next: usize,
    values: Vec<u64>,
}

impl Visitor for Collection<'_> {
    fn enter(&mut self, _: Name) -> bool {
        enters(self.enter, &mut self.next)
    }
    fn leave(&mut self) {}
    fn signal(&mut self, _: Signal, value: u64) -> u64 {
        self.values.push(value);
        value
    }
}

struct Changes<'a, B> {
    enter: &'a [bool],
    /// Those of the signals to come.
    cells: std::slice::IterMut<'a, Cell>,
    writer: &'a mut Writer,
    backend: &'a mut B,
    scope: usize,
    /// Signals that have no cell.
    extra: usize,
}

/// Takes a value that is not the last one.
#[inline(always)]
fn write_change(cell: &mut Cell, value: u64, writer: &mut Writer, backend: &mut impl Backend) {
    if cell.last != value {
        cell.last = value;
        if let Some(variable) = cell.variable {
            writer.take(backend, variable, value);
        }
    }
}

impl<B: Backend> Visitor for Changes<'_, B> {
    #[inline]
    fn enter(&mut self, _: Name) -> bool {
        enters(self.enter, &mut self.scope)
    }

    #[inline]
    fn leave(&mut self) {}

    /// Inlined wherever a module shows a signal, so that what describes it is never put together.
    #[inline(always)]
    fn signal(&mut self, _: Signal, value: u64) -> u64 {
        match self.cells.next() {
            Some(cell) => write_change(cell, value, self.writer, self.backend),
            None => self.extra += 1,
        }
        value
    }
}
