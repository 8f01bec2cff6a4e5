use crate::lanes::{Floats, Int8, Lanes, Pairs};
use crate::pe::{code_format, mac_config};
use crate::train::Train;
use crate::{Code, Config, Datapath, SystolicArray, WestEdge, WestRow};
use numeric::fast::{Kernel, dispatch};
use numeric::{Mac, MacConfig, MacIn};
use rtl::{Bits, Format, Module, Visitor};
use std::borrow::Cow;

/// Edges that an activation window slides before it is moved back.
const SLIDE: usize = 1024;

/// The same array as [`Mesh`](crate::Mesh), register for register, as vectors updated in place: the fast cycle engine.
///
/// A float element's inner stage registers are not kept: they are functions of operands that the windows still hold, and are worked out
/// when a visitor asks. What a visitor writes into those alone is therefore lost; faults are injected into the mesh.
#[derive(Clone, Debug)]
pub struct Array(Any);

/// Engines by datapath, and by the words that 256 columns and 15 stages need at most.
#[derive(Clone, Debug)]
enum Any {
    Int8(Box<Engine<Int8, 1>>),
    Int8Wide(Box<Engine<Int8, 5>>),
    Pairs(Box<Engine<Pairs, 1>>),
    PairsWide(Box<Engine<Pairs, 5>>),
    Floats(Box<Engine<Floats, 1>>),
    FloatsWide(Box<Engine<Floats, 5>>),
}

macro_rules! on_engine {
    ($any:expr, $engine:ident => $body:expr) => {
        match $any {
            Any::Int8($engine) => $body,
            Any::Int8Wide($engine) => $body,
            Any::Pairs($engine) => $body,
            Any::PairsWide($engine) => $body,
            Any::Floats($engine) => $body,
            Any::FloatsWide($engine) => $body,
        }
    };
}

impl SystolicArray for Array {
    fn new(config: Config) -> Self {
        let wide = config.cols + config.mac_latency() - 1 > 64;
        Self(match (config.datapath, wide) {
            (Datapath::Int8, false) => Any::Int8(Engine::boxed(config, Int8)),
            (Datapath::Int8, true) => Any::Int8Wide(Engine::boxed(config, Int8)),
            (Datapath::Int4, false) => Any::Pairs(Engine::boxed(config, Pairs)),
            (Datapath::Int4, true) => Any::PairsWide(Engine::boxed(config, Pairs)),
            (Datapath::Float { act, weight }, false) => Any::Floats(Engine::boxed(config, Floats::new(act, weight))),
            (Datapath::Float { act, weight }, true) => Any::FloatsWide(Engine::boxed(config, Floats::new(act, weight))),
        })
    }
}

impl Module for Array {
    type In<'a> = WestEdge<'a>;
    type Out<'a> = Cow<'a, [i32]>;

    fn out(&self) -> Cow<'_, [i32]> {
        Cow::Borrowed(on_engine!(&self.0, engine => engine.south()))
    }

    fn clock(&mut self, i: &WestEdge<'_>) {
        if i.enable {
            on_engine!(&mut self.0, engine => dispatch(Edge { engine, rows: i.rows }));
        }
    }

    fn reset(&mut self) {
        on_engine!(&mut self.0, engine => engine.reset());
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        on_engine!(&mut self.0, engine => engine.visit(v));
    }
}

/// The registers of one row of elements, a vector a kind.
#[derive(Clone, Debug)]
struct Row<T, const W: usize> {
    /// The activation registers are `codes[head..head + C]`, decoded in `acts`: pushing one in the west and moving the head is the
    /// shift east. The L − 1 entries after them are what the last columns held before: the operands of later stages.
    codes: Vec<Code>,
    acts: Vec<T>,
    head: usize,
    weight_codes: Vec<Code>,
    weights: Vec<T>,
    /// The L − 1 weights that each column had before, the latest first: `past[i · C + c]`.
    past: Vec<Code>,
    shadows: Vec<Code>,
    valid: Train<W>,
    swap: Train<W>,
    load: Train<W>,
}

/// An array of one datapath.
#[derive(Clone, Debug)]
struct Engine<K: Lanes, const W: usize> {
    config: Config,
    kernel: K,
    mac: Option<MacConfig>,
    /// L.
    stages: usize,
    /// Columns and their history in a [`Train`].
    window: Train<W>,
    full: Train<W>,
    rows: Vec<Row<K::Lane, W>>,
    /// What each edge computed, as planes of R + 1 rows of C, the first row zeros that enter from the north. A sum is complete when
    /// its operands enter and becomes the element's register L − 1 edges later. One plane in place if L = 1 and integer, else a ring of 2L.
    psums: Vec<i32>,
    /// The plane written next.
    at: usize,
    /// Edges since reset, no further than L.
    age: usize,
}

impl<K: Lanes, const W: usize> Engine<K, W> {
    fn boxed(config: Config, kernel: K) -> Box<Self> {
        let (stages, cols) = (config.mac_latency(), config.cols);
        let mac = mac_config(config);
        let zero = K::Lane::default();
        let live = cols + stages - 1;
        let row = Row {
            codes: vec![0; live + SLIDE],
            acts: vec![kernel.act(0); live + SLIDE],
            head: SLIDE,
            weight_codes: vec![0; cols],
            weights: vec![zero; cols],
            past: vec![0; (stages - 1) * cols],
            shadows: vec![0; cols],
            valid: Train::default(),
            swap: Train::default(),
            load: Train::default(),
        };
        let planes = if mac.is_some() { 2 * stages } else { 1 };
        let mut rows = vec![row; config.rows];
        for row in &mut rows {
            row.weights.fill(kernel.weight(0));
        }
        Box::new(Self {
            config,
            kernel,
            mac,
            stages,
            window: Train::full(live),
            full: Train::full(cols),
            rows,
            psums: vec![0; planes * (config.rows + 1) * cols],
            at: 0,
            age: 0,
        })
    }

    fn plane(&self) -> usize {
        (self.config.rows + 1) * self.config.cols
    }

    fn planes(&self) -> usize {
        self.psums.len() / self.plane()
    }

    /// The plane of `age` edges ago, 1 being the edge just passed.
    fn plane_of(&self, age: usize) -> usize {
        let planes = self.planes();
        if planes == 1 { 0 } else { (self.at + planes - age) % planes }
    }

    /// The southern edge: sums whose operands entered L − 1 edges before the last one.
    fn south(&self) -> &[i32] {
        let start = self.plane_of(self.stages) * self.plane() + self.config.rows * self.config.cols;
        &self.psums[start..start + self.config.cols]
    }

    fn reset(&mut self) {
        *self = *Self::boxed(self.config, self.kernel.clone());
    }
}

/// `south` and `north`, two rows of a vector that do not overlap.
#[inline(always)]
fn two_rows(psums: &mut [i32], south: usize, north: usize, cols: usize) -> (&mut [i32], &[i32]) {
    if north < south {
        let (left, right) = psums.split_at_mut(south);
        (&mut right[..cols], &left[north..north + cols])
    } else {
        let (left, right) = psums.split_at_mut(north);
        (&mut left[south..south + cols], &right[..cols])
    }
}

/// One edge of the whole array, with the instructions that the machine has.
struct Edge<'a, K: Lanes, const W: usize> {
    engine: &'a mut Engine<K, W>,
    rows: &'a [WestRow],
}

impl<K: Lanes, const W: usize> Kernel for Edge<'_, K, W> {
    type Out = ();

    /// Rows are clocked from the south up, so that each reads the partial sums of the row above before they change.
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let engine = self.engine;
        let cols = engine.config.cols;
        let north_plane = engine.plane_of(engine.stages) * engine.plane();
        let south_plane = engine.at * engine.plane();
        for (r, (row, west)) in engine.rows.iter_mut().zip(self.rows).enumerate().rev() {
            row.shift(west, &engine.kernel, &engine.window, &engine.full);
            let (south, north) =
                two_rows(&mut engine.psums, south_plane + (r + 1) * cols, north_plane + r * cols, cols);
            let acts = &row.acts[row.head..row.head + cols];
            let valid = row.valid.and(&engine.full);
            if valid == engine.full {
                K::multiply_accumulate::<FMA>(south, north, acts, &row.weights);
            } else {
                south.copy_from_slice(north);
                for run in valid.runs() {
                    let (from, weights) = (&north[run.clone()], &row.weights[run.clone()]);
                    K::multiply_accumulate::<FMA>(&mut south[run.clone()], from, &acts[run], weights);
                }
            }
        }
        let planes = engine.planes();
        engine.at = if engine.at + 1 == planes { 0 } else { engine.at + 1 };
        engine.age = (engine.age + 1).min(engine.stages);
    }
}

impl<T: Copy, const W: usize> Row<T, W> {
    #[inline(always)]
    fn push(&mut self, code: Code, act: T) {
        if self.head == 0 {
            let live = self.codes.len() - SLIDE;
            self.codes.copy_within(0..live, SLIDE);
            self.acts.copy_within(0..live, SLIDE);
            self.head = SLIDE;
        }
        self.head -= 1;
        self.codes[self.head] = code;
        self.acts[self.head] = act;
    }

    /// The edge of all registers but the partial sums.
    #[inline(always)]
    fn shift<K: Lanes<Lane = T>>(&mut self, west: &WestRow, kernel: &K, window: &Train<W>, full: &Train<W>) {
        self.push(west.act, kernel.act(west.act));
        self.valid.shift(west.valid, window);
        self.swap.shift(west.swap, window);
        if !self.swap.none() {
            self.take_shadows(kernel);
        }
        self.load.shift(west.load, full);
        if !west.keep {
            self.load.keep_first();
        }
        if !self.load.none() {
            self.shift_shadows(west.weight);
        }
    }

    /// The swap: in the columns that its bit has reached, the shadow becomes the weight.
    fn take_shadows<K: Lanes<Lane = T>>(&mut self, kernel: &K) {
        let cols = self.weights.len();
        for c in self.swap.runs().flatten().take_while(|&c| c < cols) {
            for i in (c + cols..self.past.len()).step_by(cols).rev() {
                self.past[i] = self.past[i - cols];
            }
            if let Some(latest) = self.past.get_mut(c) {
                *latest = self.weight_codes[c];
            }
            self.weight_codes[c] = self.shadows[c];
            self.weights[c] = kernel.weight(self.shadows[c]);
        }
    }

    fn shift_shadows(&mut self, west: Code) {
        match self.load.prefix() {
            Some(n) => self.shadows.copy_within(..n - 1, 1),
            None => {
                let columns = self.load.columns().rev().filter(|&c| c > 0);
                columns.for_each(|c| self.shadows[c] = self.shadows[c - 1]);
            }
        }
        if self.load.get(0) {
            self.shadows[0] = west;
        }
    }

    /// The weight that column `c` multiplied by `age` edges ago; each swap since then has pushed it back by one.
    fn weight_before(&self, c: usize, age: usize) -> Code {
        let swaps = (0..age).filter(|&i| self.swap.get(c + i)).count();
        match swaps {
            0 => self.weight_codes[c],
            n => self.past[(n - 1) * self.weight_codes.len() + c],
        }
    }
}

impl<K: Lanes, const W: usize> Engine<K, W> {
    fn visit(&mut self, v: &mut impl Visitor) {
        for r in 0..self.rows.len() {
            v.scope(("row", r), |v| {
                for c in 0..self.config.cols {
                    v.scope(("pe", c), |v| self.visit_element(r, c, v));
                }
            });
        }
    }

    fn visit_element(&mut self, r: usize, c: usize, v: &mut impl Visitor) {
        fn bit<const W: usize>(v: &mut impl Visitor, name: &'static str, train: &mut Train<W>, c: usize) {
            let mut value = train.get(c);
            v.reg(name, bool::WIDTH, Format::Unsigned, &mut value);
            train.set(c, value);
        }
        // The later stages' operands are those before this visit changes anything.
        let mac = self.mac.map(|mac| self.mac_registers(mac, r, c));
        let datapath = self.config.datapath;
        let widths = [datapath.act_width(), datapath.weight_width()];
        let formats = [code_format(datapath, true), code_format(datapath, false)];
        let row = &mut self.rows[r];
        let at = row.head + c;
        let old = (row.codes[at], row.weight_codes[c]);
        v.reg("act_q", widths[0], formats[0], &mut row.codes[at]);
        bit(v, "valid_q", &mut row.valid, c);
        bit(v, "swap_q", &mut row.swap, c);
        v.reg("weight_q", widths[1], formats[1], &mut row.weight_codes[c]);
        v.reg("shadow_q", widths[1], formats[1], &mut row.shadows[c]);
        bit(v, "load_q", &mut row.load, c);
        if old != (row.codes[at], row.weight_codes[c]) {
            row.acts[at] = self.kernel.act(row.codes[at]);
            row.weights[c] = self.kernel.weight(row.weight_codes[c]);
        }
        let sum = self.plane_of(self.stages) * self.plane() + (r + 1) * self.config.cols + c;
        match mac {
            None => v.reg("psum_q", 32, Format::Signed, &mut self.psums[sum]),
            Some(mut mac) => {
                v.scope("mac", |v| mac.visit(v));
                self.psums[sum] = mac.out().result.value as i32;
            }
        }
    }

    /// The registers of an element's multiply-accumulate: one that has been given the operands of the last L edges.
    fn mac_registers(&self, config: MacConfig, r: usize, c: usize) -> Mac {
        let mut mac = Mac::new(config);
        let row = &self.rows[r];
        for age in (0..self.age).rev() {
            let north = self.plane_of(age + 1 + self.stages) * self.plane() + r * self.config.cols + c;
            let a = row.codes[row.head + c + age] as u32;
            let b = row.weight_before(c, age) as u32;
            mac.clock(&MacIn { enable: true, valid: row.valid.get(c + age), a, b, c: self.psums[north] as u32 });
        }
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mesh;
    use numeric::FloatFormat;
    use proptest::prelude::*;
    use rtl::{Image, Layout};

    /// Any wires at all, protocol or not: the two must agree on every input.
    fn west() -> impl Strategy<Value = WestRow> {
        (any::<[i16; 2]>(), any::<[bool; 2]>(), prop::bool::weighted(0.2), prop::bool::weighted(0.8))
            .prop_map(|([act, weight], [valid, load], swap, keep)| WestRow { act, valid, swap, weight, load, keep })
    }

    fn datapath() -> impl Strategy<Value = Datapath> {
        let ffp8 = FloatFormat::ffp8(true, 2, 1).unwrap();
        prop_oneof![
            4 => Just(Datapath::Int8),
            1 => Just(Datapath::Int4),
            1 => Just(Datapath::float(FloatFormat::BF16)),
            1 => Just(Datapath::float(FloatFormat::FP16)),
            1 => Just(Datapath::Float { act: FloatFormat::E5M2, weight: FloatFormat::E4M3 }),
            1 => Just(Datapath::float(ffp8)),
        ]
    }

    fn stimulus() -> impl Strategy<Value = (Config, Vec<(bool, Vec<WestRow>)>)> {
        let cols = prop_oneof![6 => 1usize..10, 2 => 60usize..70, 1 => Just(128), 1 => Just(256)];
        (1usize..6, cols, datapath(), 1usize..7).prop_flat_map(|(rows, cols, datapath, mac_stages)| {
            let cycle = (prop::bool::weighted(0.9), prop::collection::vec(west(), rows));
            let config = Config { rows, cols, datapath, mac_stages, ..Config::default() };
            (Just(config), prop::collection::vec(cycle, 1..if datapath.is_float() { 30 } else { 80 }))
        })
    }

    /// Codes as the registers hold them.
    fn narrow(config: Config, west: &WestRow) -> WestRow {
        let extend = |code: Code, width: u32| Code::from_bits(code.to_bits() & rtl::mask(width), width);
        let datapath = config.datapath;
        WestRow {
            act: extend(west.act, datapath.act_width()),
            weight: extend(west.weight, datapath.weight_width()),
            ..*west
        }
    }

    proptest! {
        #[test]
        fn equals_the_mesh_register_for_register_every_cycle((config, cycles) in stimulus()) {
            let (mut mesh, mut array) = (Mesh::new(config), Array::new(config));
            let paths = Layout::of(&mut mesh).paths;
            prop_assert_eq!(&paths, &Layout::of(&mut array).paths);
            for (t, (enable, west)) in cycles.iter().enumerate() {
                let west: Vec<_> = west.iter().map(|row| narrow(config, row)).collect();
                let edge = WestEdge { enable: *enable, rows: &west };
                mesh.clock(&edge);
                array.clock(&edge);
                prop_assert_eq!(mesh.out(), array.out());
                let differences = Image::of(&mut mesh).differences(&Image::of(&mut array));
                let first = differences.first().map(|d| (&paths[d.signal].path, d));
                prop_assert!(first.is_none(), "cycle {}: {:?}", t, first);
            }
        }
    }

    #[test]
    fn a_long_run_slides_its_windows_back() {
        let config = Config { rows: 2, cols: 3, ..Config::default() };
        let (mut mesh, mut array) = (Mesh::new(config), Array::new(config));
        for t in 0..3 * SLIDE as i32 {
            let row = WestRow {
                act: (t as i8).into(),
                valid: true,
                swap: t % 7 == 0,
                weight: ((t * 3) as i8).into(),
                load: t % 2 == 0,
                keep: true,
            };
            let edge = WestEdge { enable: true, rows: &[row, row] };
            mesh.clock(&edge);
            array.clock(&edge);
            assert_eq!(mesh.out(), array.out(), "cycle {t}");
        }
        assert_eq!(Image::of(&mut mesh), Image::of(&mut array));
    }
}
