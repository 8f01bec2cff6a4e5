use crate::lanes::{Lanes, row, run};
use crate::pe::mac_config;
use crate::train::Train;
use crate::{Code, Config, WestRow};
use numeric::MacConfig;
use numeric::fast::Kernel;

/// Edges that the activation windows slide before they are moved back.
pub(super) const SLIDE: usize = 128;

/// Any number of columns.
const ANY: usize = 0;

/// The one-bit registers of one row of elements.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowBits<const W: usize> {
    pub(super) valid: Train<W>,
    pub(super) swap: Train<W>,
    pub(super) load: Train<W>,
    /// Every column's activation counts.
    full: bool,
    /// All activations in sight count, nothing swaps and nothing loads: more of the same changes none of the bits.
    steady: bool,
}

impl<const W: usize> RowBits<W> {
    /// Derives what the bits come to. `window`: columns and their history.
    #[inline(always)]
    pub(super) fn summarise(&mut self, window: &Train<W>, columns: &Train<W>) {
        self.full = self.valid.and(columns) == *columns;
        self.steady = self.valid == *window && self.swap.none() && self.load.none();
    }

    /// The edge.
    #[inline(always)]
    fn shift(&mut self, west: &WestRow, window: &Train<W>, columns: &Train<W>) {
        self.valid.shift(west.valid, window);
        self.swap.shift(west.swap, window);
        self.load.shift(west.load, columns);
        if !west.keep {
            self.load.keep_first();
        }
        self.summarise(window, columns);
    }
}

/// An array of one datapath: matrices of registers, a row of elements beside the other.
#[derive(Clone, Debug)]
pub(super) struct Engine<K: Lanes, const W: usize> {
    pub(super) config: Config,
    pub(super) kernel: K,
    pub(super) mac: Option<MacConfig>,
    /// L.
    pub(super) stages: usize,
    /// Columns and their history in a [`Train`].
    pub(super) window: Train<W>,
    pub(super) columns: Train<W>,
    /// The activation registers of row r are `codes[r · stride + head ..][..C]`, decoded in `acts` unless `K::CODED`: writing one before them and moving
    /// the head is the shift east. The L − 1 entries after them are what the last columns held before: the operands of later stages.
    pub(super) codes: Vec<Code>,
    pub(super) acts: Vec<K::Lane>,
    pub(super) stride: usize,
    pub(super) head: usize,
    pub(super) weight_codes: Vec<Code>,
    pub(super) weights: Vec<K::Lane>,
    /// That of element (r, c) is at r · (C + 1) + 1 + c: what stands before a row's first lets a whole row move at once.
    pub(super) shadows: Vec<Code>,
    /// The L − 1 weights that each element had before, the latest first: `past[(r · (L − 1) + i) · C + c]`.
    pub(super) past: Vec<Code>,
    pub(super) bits: Vec<RowBits<W>>,
    /// What each edge computed, as planes of R + 1 rows of C, the first row zeros that enter from the north. A sum is complete when
    /// its operands enter and becomes the element's register L − 1 edges later. A ring of 2L.
    pub(super) psums: Vec<i32>,
    /// Values in a plane.
    pub(super) plane: usize,
    /// The plane written next.
    at: usize,
    /// Edges since reset, no further than L.
    pub(super) age: usize,
}

impl<K: Lanes, const W: usize> Engine<K, W> {
    pub(super) fn boxed(config: Config, kernel: K) -> Box<Self> {
        let Config { rows, cols, .. } = config;
        let stages = config.mac_latency();
        let mac = mac_config(config);
        let live = cols + stages - 1;
        let stride = live + SLIDE;
        let plane = (rows + 1) * cols;
        Box::new(Self {
            config,
            mac,
            stages,
            window: Train::full(live),
            columns: Train::full(cols),
            codes: vec![0; rows * stride],
            acts: vec![kernel.act(0); if K::CODED { 0 } else { rows * stride }],
            stride,
            head: SLIDE,
            weight_codes: vec![0; rows * cols],
            weights: vec![kernel.weight(0); rows * cols],
            shadows: vec![0; rows * (cols + 1)],
            past: vec![0; rows * (stages - 1) * cols],
            bits: vec![RowBits::default(); rows],
            psums: vec![0; 2 * stages * plane],
            plane,
            at: 0,
            age: 0,
            kernel,
        })
    }

    /// The plane of `age` edges ago, 1 being the edge just passed.
    #[inline]
    pub(super) fn plane_of(&self, age: usize) -> usize {
        if age <= self.at { self.at - age } else { self.at + 2 * self.stages - age }
    }

    /// The southern edge: sums whose operands entered L − 1 edges before the last one.
    #[inline]
    pub(super) fn south(&self) -> &[i32] {
        let start = self.plane_of(self.stages) * self.plane + self.config.rows * self.config.cols;
        &self.psums[start..start + self.config.cols]
    }

    pub(super) fn reset(&mut self) {
        *self = *Self::boxed(self.config, self.kernel.clone());
    }
}

/// One edge of the whole array, with the instructions that the machine has.
pub(super) struct Edge<'a, K: Lanes, const W: usize> {
    pub(super) engine: &'a mut Engine<K, W>,
    pub(super) rows: &'a [WestRow],
}

impl<K: Lanes, const W: usize> Kernel for Edge<'_, K, W> {
    type Out = ();

    /// All operands move before the first sum is made: a vector that is read right after a part of it was written waits for the
    /// write, and this way all rows wait together.
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Shifted { moves, full } = self.engine.shift(self.rows);
        match self.engine.config.cols {
            8 if W == 1 => self.fixed::<FMA, 8>(moves, full),
            16 if W == 1 => self.fixed::<FMA, 16>(moves, full),
            32 if W == 1 => self.fixed::<FMA, 32>(moves, full),
            _ => {
                if moves {
                    self.engine.move_weights::<ANY>(self.rows);
                }
                self.engine.sum::<FMA>(full);
            }
        }
    }
}

impl<K: Lanes, const W: usize> Edge<'_, K, W> {
    /// The rest of the edge, where the compiler shall know C = N.
    #[inline(always)]
    fn fixed<const FMA: bool, const N: usize>(self, moves: bool, full: bool) {
        if moves {
            self.engine.move_weights::<N>(self.rows);
        }
        if full {
            self.engine.sum_of::<FMA, false, N>();
        } else {
            self.engine.sum_of::<FMA, true, N>();
        }
    }
}

/// What the bits of all rows come to.
struct Shifted {
    /// A weight moves.
    moves: bool,
    /// Every element's activation counts.
    full: bool,
}

impl<K: Lanes, const W: usize> Engine<K, W> {
    /// The edge of all registers but weights and partial sums.
    #[inline(always)]
    fn shift(&mut self, rows: &[WestRow]) -> Shifted {
        if self.head == 0 {
            self.slide_back();
        }
        self.head -= 1;
        let stride = self.stride;
        let mut at = self.head;
        for west in &rows[..self.config.rows] {
            self.codes[at] = west.act;
            if !K::CODED {
                self.acts[at] = self.kernel.act(west.act);
            }
            at += stride;
        }
        let (window, columns) = (self.window, self.columns);
        let (mut moves, mut full) = (false, true);
        for (west, bits) in rows.iter().zip(&mut self.bits) {
            if !(bits.steady & west.valid & !west.swap & !west.load) {
                bits.shift(west, &window, &columns);
                moves |= !(bits.swap.none() & bits.load.none());
                full &= bits.full;
            }
        }
        Shifted { moves, full }
    }

    /// The edge of the weights. `COLS`: C where the compiler shall know it, else [`ANY`].
    #[inline(always)]
    fn move_weights<const COLS: usize>(&mut self, rows: &[WestRow]) {
        for (r, west) in rows.iter().enumerate().take(self.bits.len()) {
            if !self.bits[r].swap.none() {
                self.take_shadows(r);
            }
            if !self.bits[r].load.none() {
                self.shift_shadows::<COLS>(r, west.weight);
            }
        }
    }

    #[cold]
    fn slide_back(&mut self) {
        let live = self.stride - SLIDE;
        self.codes.chunks_exact_mut(self.stride).for_each(|row| row.copy_within(0..live, SLIDE));
        self.acts.chunks_exact_mut(self.stride).for_each(|row| row.copy_within(0..live, SLIDE));
        self.head = SLIDE;
    }

    /// The swap: in the columns that its bit has reached, the shadow becomes the weight.
    fn take_shadows(&mut self, r: usize) {
        let cols = self.config.cols;
        let past = r * (self.stages - 1) * cols..(r + 1) * (self.stages - 1) * cols;
        let past = &mut self.past[past];
        let row = r * cols..(r + 1) * cols;
        let (codes, weights) = (&mut self.weight_codes[row.clone()], &mut self.weights[row]);
        let shadows = &self.shadows[r * (cols + 1) + 1..][..cols];
        for c in self.bits[r].swap.and(&self.columns).columns() {
            for i in (1..self.stages - 1).rev() {
                past[i * cols + c] = past[(i - 1) * cols + c];
            }
            if let Some(latest) = past.get_mut(c) {
                *latest = codes[c];
            }
            codes[c] = shadows[c];
            weights[c] = self.kernel.weight(shadows[c]);
        }
    }

    #[inline(always)]
    fn shift_shadows<const COLS: usize>(&mut self, r: usize, west: Code) {
        let cols = self.config.cols;
        let shadows = &mut self.shadows[r * (cols + 1)..][..cols + 1];
        let load = &self.bits[r].load;
        if COLS == ANY {
            let columns = load.columns_from_the_east();
            columns.for_each(|c| shadows[c + 1] = shadows[c]);
        } else {
            shift_where::<COLS>(load.words()[0], shadows);
        }
        if load.get(0) {
            shadows[1] = west;
        }
    }

    /// The partial sums. `full`: every element's activation counts.
    #[inline(always)]
    fn sum<const FMA: bool>(&mut self, full: bool) {
        let cols = self.config.cols;
        let (north, south) = (self.plane_of(self.stages), self.at);
        let (south, north) = two_planes(&mut self.psums, self.plane, south, north);
        let (south, north) = (south[cols..].chunks_exact_mut(cols), north.chunks_exact(cols));
        let (acts, mut at) = (K::lanes(&self.codes, &self.acts), self.head);
        for (((south, north), weights), bits) in south.zip(north).zip(self.weights.chunks_exact(cols)).zip(&self.bits) {
            let lanes = (south, north, &acts[at..][..cols], weights);
            if full {
                row::<K, FMA, false>(&[], lanes);
            } else {
                row::<K, FMA, true>(bits.valid.words(), lanes);
            }
            at += self.stride;
        }
        self.pass();
    }

    /// The same for C = N. Unless `MASKED`, every element's activation counts.
    #[inline(always)]
    fn sum_of<const FMA: bool, const MASKED: bool, const N: usize>(&mut self) {
        let (north, south) = (self.plane_of(self.stages), self.at);
        let (south, north) = two_planes(&mut self.psums, self.plane, south, north);
        let (south, north) = (&mut south.as_chunks_mut().0[1..], north.as_chunks().0);
        let (acts, mut at) = (K::lanes(&self.codes, &self.acts), self.head);
        let weights = self.weights.as_chunks().0;
        for (((south, north), weights), bits) in south.iter_mut().zip(north).zip(weights).zip(&self.bits) {
            let Some(acts) = acts[at..].first_chunk() else { return };
            run::<K, FMA, MASKED, N>(bits.valid.words()[0], south, north, acts, weights);
            at += self.stride;
        }
        self.pass();
    }

    /// On to the next plane.
    #[inline(always)]
    fn pass(&mut self) {
        self.at = if self.at + 1 == 2 * self.stages { 0 } else { self.at + 1 };
        self.age = (self.age + 1).min(self.stages);
    }
}

/// Moves value c of `row` to c + 1 where bit c of `bits` is set, c = 0..N − 1.
#[inline(always)]
fn shift_where<const N: usize>(bits: u64, row: &mut [Code]) {
    let (mut from, mut to) = ([0; N], [0; N]);
    from.copy_from_slice(&row[..N]);
    to.copy_from_slice(&row[1..][..N]);
    for c in 0..N {
        to[c] = if bits >> c & 1 == 1 { from[c] } else { to[c] };
    }
    row[1..][..N].copy_from_slice(&to);
}

/// Planes `south` and `north`, which differ.
#[inline(always)]
fn two_planes(psums: &mut [i32], plane: usize, south: usize, north: usize) -> (&mut [i32], &[i32]) {
    let (left, right) = psums.split_at_mut(south.max(north) * plane);
    let (left, right) = (&mut left[south.min(north) * plane..][..plane], &mut right[..plane]);
    if south < north { (left, right) } else { (right, left) }
}
