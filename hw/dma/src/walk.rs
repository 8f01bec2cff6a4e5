use crate::{CHUNK_NIBBLES, Plan, SidePlan};
use rtl::{AddressGenerator, AddressIn, Format, Loops, Module, Visitor};

/// Neighbouring nibbles of memory that a job reads or writes in one go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Nibble address without what an index adds, 50 bits.
    pub address: u64,
    /// Nibbles, 33 bits.
    pub nibbles: u64,
    /// Outside the window: the fill value, no read.
    pub fill: bool,
    /// Coordinate to look up in the index list, 12 bits.
    pub coordinate: u32,
    /// Last of a row.
    pub row_end: bool,
    /// Last of a tile, or of a chunk of an ordered job.
    pub block_end: bool,
    /// Last of the job.
    pub job_end: bool,
}

/// What a walk has to do next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Nothing: no job.
    #[default]
    Idle,
    /// Load the inner loops for the next tile.
    Prime,
    /// Segments stand.
    Run,
}

/// The loops of one side of one job: tiles outside, rows and elements inside, both [`AddressGenerator`]s.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    write: bool,
    plan: Plan,
    phase: Phase,
    /// Loops over tiles (dimension order); a direct job is one tile.
    tiles: AddressGenerator<3>,
    /// Loops inside a tile: outer, row, inner (one iteration where a row is one run).
    inner: AddressGenerator<3>,
    /// Elements of the row done so far, 32 bits.
    position: u32,
    /// Nibbles left of the chunk, 14 bits.
    chunk: u64,
}

impl Walk {
    /// The read or the write side's walk.
    pub fn new(write: bool) -> Self {
        Self { write, ..Self::default() }
    }

    fn side(&self) -> &SidePlan {
        if self.write { &self.plan.write } else { &self.plan.read }
    }

    /// The job that is walked.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What comes next.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Takes a job.
    pub fn load(&mut self, plan: &Plan) {
        self.plan = *plan;
        let (side, tile) = (*self.side(), u32::from(plan.tile));
        let loops = if plan.tiled {
            let tiled = |l: usize| (side.counts[l].div_ceil(tile), side.strides[l] * i64::from(tile));
            let [row, inner] = [tiled(1), tiled(2)];
            // Tiles go by dimension 1, then 2, on both sides.
            let (a, b) = if self.write { (inner, row) } else { (row, inner) };
            Loops { base: side.base, counts: [side.counts[0], a.0, b.0], strides: [side.strides[0], a.1, b.1] }
        } else {
            Loops { base: side.base, counts: [1; 3], strides: [0; 3] }
        };
        self.tiles.clock(&AddressIn { start: Some(&loops), step: false });
        self.phase = Phase::Prime;
        self.chunk = CHUNK_NIBBLES;
    }

    /// First element of the tile along the row (1) or inner (2) loop.
    fn origin(&self, l: usize) -> u32 {
        let dimension = if self.write { 3 - l } else { l };
        if self.plan.tiled { self.tiles.out().index[dimension] * u32::from(self.plan.tile) } else { 0 }
    }

    /// Elements of the tile along the row or inner loop.
    fn extent(&self, l: usize) -> u32 {
        let count = self.side().counts[l];
        if self.plan.tiled { (count - self.origin(l)).min(u32::from(self.plan.tile)) } else { count }
    }

    /// Loads the inner loops.
    pub fn prime(&mut self) {
        let side = self.side();
        let outer = if self.plan.tiled { 1 } else { side.counts[0] };
        let inner = if side.run { 1 } else { self.extent(2) };
        let loops =
            Loops { base: self.tiles.out().address, counts: [outer, self.extent(1), inner], strides: side.strides };
        self.inner.clock(&AddressIn { start: Some(&loops), step: false });
        self.position = 0;
        self.phase = Phase::Run;
    }

    /// The segment that stands in [`Phase::Run`].
    pub fn segment(&self) -> Segment {
        let (side, plan) = (self.side(), &self.plan);
        let (tile, at) = (self.tiles.out(), self.inner.out());
        let element = u64::from(plan.element);
        let coordinate = [
            at.index[0] + if plan.tiled { tile.index[0] } else { 0 },
            self.origin(1) + at.index[1],
            self.origin(2) + at.index[2] + self.position,
        ];
        let left = if side.run { self.extent(2) - self.position } else { 1 };
        let (fill, count) = if self.write { (false, left) } else { self.window(coordinate, left) };
        let chunked = plan.ordered && !plan.tiled;
        let whole = u64::from(count) * element;
        let nibbles = if chunked { whole.min(self.chunk) } else { whole };
        let row_end = nibbles == u64::from(left) * element && at.last[2];
        let tile_end = row_end && at.done();
        let job_end = tile_end && tile.done();
        Segment {
            address: (at.address as u64).wrapping_add(u64::from(self.position) * element),
            nibbles,
            fill,
            coordinate: if side.indexed { coordinate[usize::from(side.index_dim)] } else { 0 },
            row_end,
            block_end: job_end || if plan.tiled { tile_end } else { chunked && nibbles == self.chunk },
            job_end,
        }
    }

    /// Cuts `left` elements from `c` on at the window: (outside, how many).
    fn window(&self, c: [u32; 3], left: u32) -> (bool, u32) {
        let Plan { windowed, lo, hi, .. } = &self.plan;
        if !windowed {
            return (false, left);
        }
        if (0..2).any(|d| c[d] < lo[d] || c[d] >= hi[d]) || c[2] >= hi[2] {
            (true, left)
        } else if c[2] < lo[2] {
            (true, if hi[2] > lo[2] { left.min(lo[2] - c[2]) } else { left })
        } else {
            (false, left.min(hi[2] - c[2]))
        }
    }

    /// Takes the segment that stands.
    pub fn advance(&mut self, s: &Segment) {
        let chunked = self.plan.ordered && !self.plan.tiled;
        self.chunk = if s.block_end || !chunked { CHUNK_NIBBLES } else { self.chunk - s.nibbles };
        let element = u64::from(self.plan.element);
        let run = self.side().run;
        self.position += (s.nibbles / element) as u32;
        if !run || self.position == self.extent(2) {
            self.position = 0;
            let last = self.inner.out().done();
            self.inner.clock(&AddressIn { start: None, step: true });
            if last {
                self.phase = if self.tiles.out().done() { Phase::Idle } else { Phase::Prime };
                self.tiles.clock(&AddressIn { start: None, step: true });
            }
        }
    }

    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.write);
    }

    pub(crate) fn visit(&mut self, v: &mut impl Visitor) {
        let mut phase = self.phase as u8;
        v.reg("phase_q", 2, Format::Enum(&["idle", "prime", "run"]), &mut phase);
        self.phase = [Phase::Idle, Phase::Prime, Phase::Run][usize::from(phase.min(2))];
        v.reg("position_q", 32, Format::Unsigned, &mut self.position);
        v.reg("chunk_q", 14, Format::Unsigned, &mut self.chunk);
        rtl::Payload::visit(&mut self.plan, "plan".into(), v);
        v.scope("tiles", |v| self.tiles.visit(v));
        v.scope("inner", |v| self.inner.visit(v));
    }
}
