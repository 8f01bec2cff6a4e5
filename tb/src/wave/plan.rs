use super::{Backend, Glob, Kind, Reach, VarId};
use rtl::{Format, Name, Role, Signal, Visitor, mask};
use std::collections::{HashMap, HashSet};

/// What later walks need to know of a signal, and nothing else: they touch it for every signal of every cycle.
#[derive(Clone, Copy)]
pub(super) struct Cell {
    /// The value written last.
    pub(super) last: u64,
    /// Bits that matter; none for a signal that is not traced.
    pub(super) care: u64,
}

/// What writing a change needs. Kept small: a large design's are touched in every cycle.
#[derive(Clone, Copy)]
pub(super) struct Variable {
    id: VarId,
    width: u8,
    /// It has an entry among the shadows.
    shadowed: bool,
}

/// A variable that shows another's meaning.
pub(super) enum Shadow {
    Real(VarId, fn(u64) -> f64),
    /// The name of each code.
    Text(VarId, Vec<String>),
}

/// The outcome of the first walk: which scopes to enter and which signals to write, by order of arrival.
pub(super) struct Plan {
    /// One a scope that is asked for: whether to enter it.
    pub(super) enter: Vec<bool>,
    /// One a signal of the scopes entered.
    pub(super) cells: Vec<Cell>,
    variables: Vec<Option<Variable>>,
    /// Of the signals at these positions.
    shadows: HashMap<usize, Shadow>,
    /// Position of the trigger's signal.
    pub(super) trigger: Option<usize>,
    pub(super) clock: Option<VarId>,
    pub(super) cycle: Option<VarId>,
    /// Variables declared.
    pub(super) declared: usize,
}

impl Plan {
    /// Writes signal `index`'s value and its shadow, returning how many values that were. `last` is none the first time.
    pub(super) fn write(&self, backend: &mut impl Backend, index: usize, last: Option<u64>, value: u64) -> u64 {
        Writers { variables: &self.variables, shadows: &self.shadows }.write(backend, index, last, value)
    }

    /// Splits the plan into what a walk changes and what it reads.
    pub(super) fn split(&mut self) -> (&[bool], &mut [Cell], Writers<'_>) {
        (&self.enter, &mut self.cells, Writers { variables: &self.variables, shadows: &self.shadows })
    }
}

/// What writes changes.
#[derive(Clone, Copy)]
pub(super) struct Writers<'a> {
    variables: &'a [Option<Variable>],
    shadows: &'a HashMap<usize, Shadow>,
}

impl Writers<'_> {
    /// Signals.
    pub(super) fn len(&self) -> usize {
        self.variables.len()
    }

    /// See [`Plan::write`].
    #[inline(always)]
    pub(super) fn write(&self, backend: &mut impl Backend, index: usize, last: Option<u64>, value: u64) -> u64 {
        let Some(variable) = self.variables[index] else { return 0 };
        backend.bits(variable.id, variable.width.into(), value);
        let shadow = if variable.shadowed { self.shadows.get(&index) } else { None };
        match shadow {
            None => 1,
            Some(Shadow::Real(id, decode)) => {
                // Two codes of one value (NaNs, most often) make no second change.
                let real = decode(value);
                if last.is_some_and(|l| decode(l).to_bits() == real.to_bits()) {
                    return 1;
                }
                backend.real(*id, real);
                2
            }
            Some(Shadow::Text(id, names)) => {
                match names.get(value as usize) {
                    Some(name) => backend.text(*id, name),
                    None => backend.text(*id, &format!("code_{value}")),
                }
                2
            }
        }
    }
}

enum Item {
    Enter(String),
    Leave,
    /// Its name, its shadow's, its position among the cells.
    Signal(String, String, usize, Signal),
}

/// A scope under way.
struct Level {
    /// A glob matched it or one around it.
    matched: bool,
    /// Names taken in it.
    names: HashSet<String>,
    /// Lengths of the lists when it was entered, to forget it by.
    enters: usize,
    items: usize,
    cells: usize,
    /// Something in it is traced or watched.
    live: bool,
}

/// The visitor of the first walk.
pub(super) struct Declaration<'a> {
    globs: &'a [Glob],
    trigger: Option<Vec<&'a str>>,
    path: Vec<String>,
    levels: Vec<Level>,
    enter: Vec<bool>,
    items: Vec<Item>,
    cells: Vec<Cell>,
    watched: Option<usize>,
    /// One a glob: something answered to it.
    pub(super) matched: Vec<bool>,
    /// One a cell: this walk's value.
    pub(super) values: Vec<u64>,
}

impl<'a> Declaration<'a> {
    pub(super) fn new(top: &str, globs: &'a [Glob], trigger: Option<&'a str>) -> Self {
        let mut this = Self {
            globs,
            trigger: trigger.map(|t| t.split('.').collect()),
            path: Vec::new(),
            levels: Vec::new(),
            enter: Vec::new(),
            items: Vec::new(),
            cells: Vec::new(),
            watched: None,
            matched: vec![false; globs.len()],
            values: Vec::new(),
        };
        this.path.push(legal(top));
        let matched = this.reach() == Reach::Matches;
        this.open(matched);
        this.levels[0].names.extend(["clk", "cycle"].map(String::from));
        this
    }

    /// How far the globs reach into the current path.
    fn reach(&mut self) -> Reach {
        let mut best = if self.globs.is_empty() { Reach::Matches } else { Reach::None };
        for (glob, matched) in self.globs.iter().zip(&mut self.matched) {
            match glob.reach(&self.path) {
                Reach::Matches => (*matched, best) = (true, Reach::Matches),
                Reach::Below if best == Reach::None => best = Reach::Below,
                _ => {}
            }
        }
        best
    }

    /// The trigger's path begins with the current one.
    fn leads_to_trigger(&self) -> bool {
        self.trigger
            .as_ref()
            .is_some_and(|t| t.len() >= self.path.len() && t.iter().zip(&self.path).all(|(a, b)| a == b))
    }

    fn open(&mut self, matched: bool) {
        let (enters, items, cells) = (self.enter.len(), self.items.len(), self.cells.len());
        self.levels.push(Level { matched, names: HashSet::new(), enters, items, cells, live: false });
    }

    fn level(&mut self) -> &mut Level {
        self.levels.last_mut().expect("the top's level stays")
    }

    /// A legal name that nothing else in the scope has.
    fn unique(&mut self, name: &str) -> String {
        let base = legal(name);
        let names = &mut self.level().names;
        let mut unique = base.clone();
        let mut n = 2;
        while !names.insert(unique.clone()) {
            unique = format!("{base}_{n}");
            n += 1;
        }
        unique
    }

    /// Declares what was found in `backend`.
    pub(super) fn plan(self, backend: &mut impl Backend) -> Plan {
        let mut declared = 0;
        let mut declare = |backend: &mut dyn Backend, name: &str, role, kind| {
            let id = backend.declare(name, role, kind);
            declared += usize::from(id.is_some());
            id
        };
        let mut variables: Vec<Option<Variable>> = vec![None; self.cells.len()];
        let mut shadows = HashMap::new();
        backend.enter(&self.path[0]);
        let clock = declare(backend, "clk", Role::Wire, Kind::Bits(1));
        let cycle = declare(backend, "cycle", Role::Register, Kind::Bits(64));
        for item in &self.items {
            match item {
                Item::Enter(name) => backend.enter(name),
                Item::Leave => backend.leave(),
                Item::Signal(name, shadow, index, signal) => {
                    let Some(id) = declare(backend, name, signal.role, Kind::Bits(signal.width)) else { continue };
                    let shadow = match signal.format {
                        Format::Real(decode) => {
                            declare(backend, shadow, signal.role, Kind::Real).map(|id| Shadow::Real(id, decode))
                        }
                        Format::Enum(names) => declare(backend, shadow, signal.role, Kind::Text)
                            .map(|id| Shadow::Text(id, names.iter().map(|n| word(n)).collect())),
                        Format::Unsigned | Format::Signed | Format::Hex => None,
                    };
                    variables[*index] = Some(Variable { id, width: signal.width as u8, shadowed: shadow.is_some() });
                    shadows.extend(shadow.map(|shadow| (*index, shadow)));
                }
            }
        }
        backend.leave();
        backend.start();
        let Self { enter, cells, watched: trigger, .. } = self;
        Plan { enter, cells, variables, shadows, trigger, clock, cycle, declared }
    }
}

impl Visitor for Declaration<'_> {
    fn enter(&mut self, name: Name) -> bool {
        let name = self.unique(&name.to_string());
        self.path.push(name);
        let reach = self.reach();
        let matched = reach == Reach::Matches || self.level().matched;
        let enters = matched || reach == Reach::Below || self.leads_to_trigger();
        if enters {
            self.open(matched);
            self.items.push(Item::Enter(self.path.last().cloned().unwrap_or_default()));
        } else {
            self.path.pop();
        }
        self.enter.push(enters);
        enters
    }

    fn leave(&mut self) {
        self.path.pop();
        let Some(level) = self.levels.pop() else { return };
        if level.live {
            self.items.push(Item::Leave);
            self.level().live = true;
        } else {
            // Nothing of interest after all: later walks skip it.
            self.items.truncate(level.items);
            self.cells.truncate(level.cells);
            self.values.truncate(level.cells);
            self.enter.truncate(level.enters + 1);
            self.enter[level.enters] = false;
        }
    }

    fn signal(&mut self, signal: Signal, value: u64) -> u64 {
        let name = self.unique(&signal.name.to_string());
        let shadow = match signal.format {
            Format::Real(_) => self.unique(&format!("{name}_value")),
            Format::Enum(_) => self.unique(&format!("{name}_state")),
            Format::Unsigned | Format::Signed | Format::Hex => String::new(),
        };
        self.path.push(name);
        let traced = self.reach() == Reach::Matches || self.level().matched;
        let index = self.cells.len();
        if self.leads_to_trigger() && self.trigger.as_ref().is_some_and(|t| t.len() == self.path.len()) {
            self.watched = Some(index);
            self.level().live = true;
        }
        let name = self.path.pop().unwrap_or_default();
        if traced {
            self.level().live = true;
            self.items.push(Item::Signal(name, shadow, index, signal));
        }
        self.cells.push(Cell { last: 0, care: if traced { mask(signal.width) } else { 0 } });
        self.values.push(value);
        value
    }
}

/// Letters, digits and underscores, no digit first: what every viewer takes.
fn legal(name: &str) -> String {
    let digit = name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty();
    let clean = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    digit.then_some('_').into_iter().chain(clean).collect()
}

/// A state's name without white space.
fn word(name: &str) -> String {
    if name.is_empty() { "_".into() } else { name.replace(|c: char| !c.is_ascii_graphic(), "_") }
}
