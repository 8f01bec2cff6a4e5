use crate::{Config, Job, Tag};
use rtl::{Format, Visitor};

/// One weight tile of a job and the rows that pass over it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tile {
    /// M-block: rows `block·D ..`.
    pub block: usize,
    /// n-tile: columns `panel·C ..`.
    pub panel: usize,
    /// k-tile: [`Config::k_range`].
    pub chunk: usize,
}

/// Where the sequencer stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// No job.
    #[default]
    Idle,
    /// The first tile's weights enter; nothing to overlap them with.
    Load,
    /// Rows of one tile and weights of the next enter.
    Run,
    /// The last rows are on their way to the accumulator.
    Drain,
}

/// Names of the states, in the order of their codes.
const STATES: [&str; 4] = ["IDLE", "LOAD", "RUN", "DRAIN"];

/// What the sequencer wants of this edge. All of it happens, or, where something is missing, none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// A job is under way.
    pub busy: bool,
    /// A row of activations enters, with this number of valid lanes.
    pub row: Option<usize>,
    /// The last valid lane holds one k-step, not a pair.
    pub odd: bool,
    /// The row is the first of its tile.
    pub swap: bool,
    /// A column of weights enters.
    pub load: bool,
    /// Which column, C − 1 first.
    pub column: Option<usize>,
    /// It is not the first column of its tile.
    pub keep: bool,
    /// The column lies beyond N: zeros enter and nothing is taken from the stream.
    pub masked: bool,
    /// What the accumulator shall do with the row.
    pub tag: Tag,
    /// Elements that work on the row once it is spread over the array: valid k × valid n.
    pub active: usize,
    /// No rows enter because the weights of the next tile are not in yet.
    pub exposed: bool,
}

/// Walks a job's tiles, outermost first: M-blocks of D rows, n-tiles, k-tiles.
///
/// Tile f + 1 follows tile f after max(M_f, C, A) edges. Weights of tile f + 1 enter in the first C of them, column C − 1's first,
/// so that no element's shadow is written before its swap for tile f nor after its swap for tile f + 1.
#[derive(Clone, Debug)]
pub struct Sequencer {
    config: Config,
    job: Job,
    state: State,
    tile: Tile,
    /// Edges since the tile's first row; in DRAIN since the last row.
    slot: usize,
    /// k-tiles of the job, and values along k of the tile whose rows enter: they follow from the rest and are kept because they take
    /// divisions.
    chunks: usize,
    depth: usize,
}

impl Sequencer {
    /// An idle sequencer.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            job: Job { m: 1, n: 1, k: 1 },
            state: State::Idle,
            tile: Tile::default(),
            slot: 0,
            chunks: 1,
            depth: 1,
        }
    }

    fn rows_of(&self, tile: Tile) -> usize {
        (self.job.m - tile.block * self.config.depth).min(self.config.depth)
    }

    fn cols_of(&self, tile: Tile) -> usize {
        (self.job.n - tile.panel * self.config.cols).min(self.config.cols)
    }

    /// The tile after this one.
    fn next(&self, tile: Tile) -> Option<Tile> {
        let Tile { block, panel, chunk } = tile;
        if chunk + 1 < self.chunks {
            Some(Tile { chunk: chunk + 1, ..tile })
        } else if (panel + 1) * self.config.cols < self.job.n {
            Some(Tile { panel: panel + 1, chunk: 0, ..tile })
        } else if (block + 1) * self.config.depth < self.job.m {
            Some(Tile { block: block + 1, panel: 0, chunk: 0 })
        } else {
            None
        }
    }

    /// Whether a job may start.
    pub fn idle(&self) -> bool {
        self.state == State::Idle
    }

    /// The tile whose rows enter.
    pub fn tile(&self) -> Tile {
        self.tile
    }

    /// The tile whose weights enter on this edge, if any do.
    pub fn loading(&self) -> Option<Tile> {
        let tile = match self.state {
            State::Load => Some(self.tile),
            State::Run => self.next(self.tile),
            State::Idle | State::Drain => None,
        };
        tile.filter(|_| self.slot < self.config.cols)
    }

    /// Values along k of a tile.
    pub fn values(&self, tile: Tile) -> usize {
        self.config.k_range(self.job.k, tile.chunk).len()
    }

    /// A job's K is at least 1; a register that was tampered with need not be.
    fn derive(&mut self) {
        let k = self.job.k.max(1);
        self.chunks = self.config.k_tiles(k);
        self.depth = self.config.k_range(k, self.tile.chunk).len();
    }

    /// The wires of this cycle.
    pub fn step(&self) -> Step {
        let (cols, slot) = (self.config.cols, self.slot);
        let mut step = Step { busy: !self.idle(), ..Step::default() };
        if let Some(tile) = self.loading() {
            step.load = true;
            step.column = Some(cols - 1 - slot);
            step.keep = slot > 0;
            step.masked = cols - 1 - slot >= self.cols_of(tile);
        }
        if self.state == State::Run && slot < self.rows_of(self.tile) {
            let (depth, pairs) = (self.depth, self.config.datapath.steps() == 2);
            let lanes = self.cols_of(self.tile);
            let last = self.tile.chunk + 1 == self.chunks;
            let end = last && slot + 1 == self.rows_of(self.tile) && self.next(self.tile).is_none();
            step.row = Some(if pairs { depth.div_ceil(2) } else { depth });
            step.odd = pairs && depth % 2 == 1;
            step.swap = slot == 0;
            step.active = depth * lanes;
            step.tag =
                Tag { valid: true, first: self.tile.chunk == 0, last, end, address: slot as u16, lanes: lanes as u16 };
        }
        step.exposed = step.busy && step.row.is_none() && self.state != State::Drain;
        step
    }

    /// The edge: takes a job when idle, or goes on by one slot.
    pub fn clock(&mut self, start: Option<Job>, enable: bool) {
        if self.idle() {
            if let Some(job) = start {
                (self.job, self.tile, self.slot, self.state) = (job, Tile::default(), 0, State::Load);
                self.derive();
            }
            return;
        }
        if !enable {
            return;
        }
        let Config { rows, cols, .. } = self.config;
        let latency = self.config.accumulator_latency();
        let next = self.next(self.tile);
        let span = match (self.state, next) {
            (State::Load, _) => cols,
            (State::Run, Some(_)) => self.rows_of(self.tile).max(cols).max(latency),
            (State::Run, None) => self.rows_of(self.tile),
            (State::Drain | State::Idle, _) => rows * self.config.mac_latency() + cols - 1 + latency,
        };
        if self.slot + 1 < span {
            self.slot += 1;
            return;
        }
        self.slot = 0;
        self.state = match (self.state, next) {
            (State::Load, _) => State::Run,
            (State::Run, Some(tile)) => {
                self.tile = tile;
                self.depth = self.values(tile);
                State::Run
            }
            (State::Run, None) => State::Drain,
            (State::Drain | State::Idle, _) => State::Idle,
        };
    }

    /// Drops the job.
    pub fn reset(&mut self) {
        *self = Self::new(self.config);
    }

    /// Shows the registers.
    pub fn visit(&mut self, v: &mut impl Visitor) {
        fn count(v: &mut impl Visitor, name: &'static str, value: &mut usize) {
            let mut word = *value as u32;
            v.reg(name, 32, Format::Unsigned, &mut word);
            *value = word as usize;
        }
        let mut code = self.state as u8;
        v.reg("state_q", 2, Format::Enum(&STATES), &mut code);
        self.state = [State::Idle, State::Load, State::Run, State::Drain][usize::from(code & 3)];
        count(v, "m_q", &mut self.job.m);
        count(v, "n_q", &mut self.job.n);
        count(v, "k_q", &mut self.job.k);
        count(v, "block_q", &mut self.tile.block);
        count(v, "panel_q", &mut self.tile.panel);
        count(v, "chunk_q", &mut self.tile.chunk);
        count(v, "slot_q", &mut self.slot);
        self.derive();
    }
}
