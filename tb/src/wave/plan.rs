use super::{Backend, Change, Glob, Kind, Reach, VarId};
use rtl::{Format, Name, Role, Signal, Visitor};
use std::collections::{HashMap, HashSet};

/// What later walks need to know of a signal, and nothing else: they touch it for every signal of every cycle.
#[derive(Clone, Copy)]
pub(super) struct Cell {
    /// The value written last, or shown last where it is not traced.
    pub(super) last: u64,
    /// None where it is only watched.
    pub(super) variable: Option<Variable>,
}

/// The variable of a signal.
#[derive(Clone, Copy)]
pub(super) struct Variable {
    pub(super) id: VarId,
    pub(super) width: u8,
    /// It has an entry among the shadows.
    pub(super) shadowed: bool,
}

/// A variable that shows another's meaning.
enum Shadow {
    /// With the value written last.
    Real(VarId, fn(u64) -> f64, Option<f64>),
    /// The name of each code.
    Text(VarId, Vec<String>),
}

/// The outcome of the first walk: which scopes to enter and which signals to write, by order of arrival.
pub(super) struct Plan {
    /// One a scope that is asked for: whether to enter it.
    pub(super) enter: Vec<bool>,
    /// One a signal of the scopes entered.
    pub(super) cells: Vec<Cell>,
    pub(super) writer: Writer,
    /// Position of the trigger's signal.
    pub(super) trigger: Option<usize>,
    pub(super) clock: Option<VarId>,
    pub(super) cycle: Option<VarId>,
    /// Variables declared.
    pub(super) declared: usize,
}

/// Changes that are written at once: they are then formatted in one loop, by a back end that is called once.
const BATCH: usize = 64;

/// What writes changes, shadows among them.
pub(super) struct Writer {
    batch: [Change; BATCH],
    /// Changes in the batch.
    held: usize,
    /// Of the variables that have one.
    shadows: HashMap<VarId, Shadow>,
    /// Values written so far.
    written: u64,
}

impl Writer {
    fn new(shadows: HashMap<VarId, Shadow>) -> Self {
        let blank = Change { var: VarId(0), width: 1, value: 0 };
        Self { batch: [blank; BATCH], held: 0, shadows, written: 0 }
    }

    /// Takes a new value.
    #[inline(always)]
    pub(super) fn take(&mut self, backend: &mut impl Backend, variable: Variable, value: u64) {
        if self.held == BATCH {
            self.flush(backend);
        }
        self.batch[self.held] = Change { var: variable.id, width: variable.width.into(), value };
        self.held += 1;
        if variable.shadowed {
            self.shadow(backend, variable.id, value);
        }
    }

    /// Writes what is held.
    #[inline(never)]
    pub(super) fn flush(&mut self, backend: &mut impl Backend) {
        backend.changes(&self.batch[..self.held]);
        self.written += self.held as u64;
        self.held = 0;
    }

    /// Values written since the last call.
    pub(super) fn finish(&mut self, backend: &mut impl Backend) -> u64 {
        self.flush(backend);
        std::mem::take(&mut self.written)
    }

    /// Writes the shadow of a variable's new value.
    #[inline(never)]
    fn shadow(&mut self, backend: &mut impl Backend, id: VarId, value: u64) {
        match self.shadows.get_mut(&id) {
            None => return,
            Some(Shadow::Real(id, decode, last)) => {
                // Two codes of one value (NaNs, most often) make no second change.
                let real = decode(value);
                if last.replace(real).is_some_and(|last| last.to_bits() == real.to_bits()) {
                    return;
                }
                backend.real(*id, real);
            }
            Some(Shadow::Text(id, names)) => match names.get(value as usize) {
                Some(name) => backend.text(*id, name),
                None => backend.text(*id, &format!("code_{value}")),
            },
        }
        self.written += 1;
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
        let Self { enter, mut cells, watched: trigger, .. } = self;
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
                            declare(backend, shadow, signal.role, Kind::Real).map(|id| Shadow::Real(id, decode, None))
                        }
                        Format::Enum(names) => declare(backend, shadow, signal.role, Kind::Text)
                            .map(|id| Shadow::Text(id, names.iter().map(|n| word(n)).collect())),
                        Format::Unsigned | Format::Signed | Format::Hex => None,
                    };
                    cells[*index].variable =
                        Some(Variable { id, width: signal.width as u8, shadowed: shadow.is_some() });
                    shadows.extend(shadow.map(|shadow| (id, shadow)));
                }
            }
        }
        backend.leave();
        backend.start();
        Plan { enter, cells, writer: Writer::new(shadows), trigger, clock, cycle, declared }
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
        self.cells.push(Cell { last: 0, variable: None });
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
