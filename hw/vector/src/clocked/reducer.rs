use super::port::float;
use super::sequencer::Tag;
use crate::config::STEP_EDGES;
use crate::function::Lane;
use crate::program::{Program, Reduction};
use crate::quantum::Quantum;
use crate::transaction::{larger, larger_magnitude, per_value};
use crate::{Command, Config, Op};
use numeric::fast::{canonical, fma};
use rtl::{Format, Visitor};

/// No value yet.
const NONE: u32 = u32::MAX;
/// Longest scalar chain: scale, reciprocal and guard of quantisation.
const MAX_SCALAR_STEPS: usize = 8;

/// One partial result: of a lane, in one of its [`STEP_EDGES`] ways.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Partial {
    /// Sum or largest value, FP32.
    pub(super) value: f32,
    /// Of the online softmax, the sum beside the maximum. FP32.
    pub(super) sum: f32,
    /// Of ArgMax, where the value stands. 32 bits, all ones: nowhere.
    pub(super) index: u32,
}

impl Partial {
    /// What a reduction starts from.
    fn start(reduction: Reduction) -> Self {
        let value = match reduction {
            Reduction::Max | Reduction::ArgMax | Reduction::Online => f32::NEG_INFINITY,
            _ => 0.0,
        };
        Self { value, sum: 0.0, index: NONE }
    }

    /// One more value: the accumulator's step.
    fn take(self, reduction: Reduction, l: &Lane, index: u32) -> Self {
        let Self { value, sum, .. } = self;
        match reduction {
            Reduction::None => self,
            Reduction::SumOfSquares => Self { value: canonical(fma::<false>(l.a, l.a, value)), ..self },
            Reduction::Sum => Self { value: canonical(value + l.a), ..self },
            Reduction::Max => Self { value: larger(value, l.a), ..self },
            Reduction::AbsMax => Self { value: larger_magnitude(value, l.a), ..self },
            Reduction::ArgMax => {
                let wins = !l.a.is_nan() && (self.index == NONE || l.a > value);
                if wins { Self { value: l.a, index, ..self } } else { self }
            }
            // The running maximum travels in y; `on`: it has just risen to this very score.
            Reduction::Online => {
                let (factor, term) = if l.on { (l.a, 1.0) } else { (1.0, l.a) };
                Self { value: l.y, sum: canonical(fma::<false>(sum, factor, term)), ..self }
            }
        }
    }

    /// Two in one: a node of the tree.
    fn join(self, reduction: Reduction, other: Self) -> Self {
        match reduction {
            Reduction::Sum | Reduction::SumOfSquares => Self { value: canonical(self.value + other.value), ..self },
            Reduction::ArgMax => {
                let beats = other.value > self.value || other.value == self.value && other.index < self.index;
                if other.index != NONE && (self.index == NONE || beats) { other } else { self }
            }
            _ => Self { value: larger(self.value, other.value), ..self },
        }
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        float(v, "value_q", &mut self.value);
        float(v, "sum_q", &mut self.sum);
        v.reg("index_q", 32, Format::Unsigned, &mut self.index);
    }
}

/// What a row or group keeps between passes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Scalar {
    /// A maximum, or a quantisation's scale. FP32.
    pub(super) kept: f32,
    /// What the next pass multiplies by. FP32.
    pub(super) factor: f32,
    /// Of ArgMax. 32 bits.
    pub(super) index: u32,
}

impl Scalar {
    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        float(v, "kept_q", &mut self.kept);
        float(v, "factor_q", &mut self.factor);
        v.reg("index_q", 32, Format::Unsigned, &mut self.index);
    }
}

/// A stage of the tree and the scalar pipeline.
#[derive(Clone, Debug)]
struct Slot {
    valid: bool,
    tag: Tag,
    /// Way · lanes + lane; halved level by level.
    partials: Vec<Partial>,
    /// One a group of the beat, from the tree's root on.
    scalars: Vec<Lane>,
}

/// Accumulators, the tree over their partials, and the scalar pipeline behind it.
#[derive(Clone, Debug)]
pub(super) struct Reducer {
    config: Config,
    /// The accumulators' results, [`STEP_EDGES`] ways of so many lanes. A way's result comes out of the pipelined adder on the very edge
    /// on which its next operand goes in.
    ways: Vec<Partial>,
    /// The online softmax's running maxima, as `ways`.
    maxima: Vec<f32>,
    /// A ring: stage t holds what left the accumulators t edges ago.
    slots: Vec<Slot>,
    head: usize,
}

impl Reducer {
    pub(super) fn new(config: Config) -> Self {
        let partials = STEP_EDGES * config.lanes;
        let blank = Slot {
            valid: false,
            tag: Tag::default(),
            partials: vec![Partial::start(Reduction::Sum); partials],
            scalars: vec![Lane::default(); config.lanes / 8],
        };
        let steps = levels(config) + MAX_SCALAR_STEPS;
        Self {
            config,
            ways: vec![Partial::start(Reduction::Sum); partials],
            maxima: vec![0.0; partials],
            slots: vec![blank; steps * STEP_EDGES + 1],
            head: 0,
        }
    }

    fn place(&self, stage: usize) -> usize {
        (self.head + stage) % self.slots.len()
    }

    /// The partials of a beat's way, its lanes in order.
    pub(super) fn way(&self, beat: u16) -> &[Partial] {
        &self.ways[usize::from(beat) % STEP_EDGES * self.config.lanes..][..self.config.lanes]
    }

    /// The running maximum's step: what was before goes to b, what is now to y, and `on` says whether it rose.
    pub(super) fn running_maximum(&mut self, tag: Tag, lanes: &mut [Lane]) {
        let from = usize::from(tag.beat) % STEP_EDGES * self.config.lanes;
        for (l, m) in lanes.iter_mut().zip(&mut self.maxima[from..]) {
            l.b = if usize::from(tag.beat) < STEP_EDGES { f32::NEG_INFINITY } else { *m };
            l.on = l.a > l.b;
            l.y = if l.on { l.a } else { l.b };
            *m = l.y;
        }
    }

    /// The edge: everything moves on; a beat that leaves the lanes ends its accumulation step.
    pub(super) fn advance(&mut self, program: &Program, command: &Command, beat: Option<(Tag, &[Lane])>) {
        self.head = (self.head + self.slots.len() - 1) % self.slots.len();
        let at = self.head;
        self.slots[at].valid = false;
        if let Some((tag, lanes)) = beat {
            self.accumulate(program.passes[usize::from(tag.pass)].reduction, tag, lanes);
        }
        for s in 1..=levels(self.config) + MAX_SCALAR_STEPS {
            let place = self.place(s * STEP_EDGES);
            if self.slots[place].valid {
                self.step(s, place, program, command);
            }
        }
    }

    fn accumulate(&mut self, reduction: Reduction, tag: Tag, lanes: &[Lane]) {
        let n = self.config.lanes;
        let start = Partial::start(reduction);
        if tag.group_beat == 0 {
            self.ways.fill(start);
        }
        let from = usize::from(tag.group_beat) % STEP_EDGES * n;
        for (i, l) in lanes[..usize::from(tag.count)].iter().enumerate() {
            let index = usize::from(tag.beat) * n + i;
            self.ways[from + i] = self.ways[from + i].take(reduction, l, index as u32);
        }
        if tag.group_end {
            let slot = &mut self.slots[self.head];
            (slot.valid, slot.tag) = (true, tag);
            slot.partials.copy_from_slice(&self.ways);
        }
    }

    fn step(&mut self, s: usize, place: usize, program: &Program, command: &Command) {
        let (lanes, levels) = (self.config.lanes, levels(self.config));
        let slot = &mut self.slots[place];
        let pass = &program.passes[usize::from(slot.tag.pass)];
        if s <= levels {
            // Lanes that share a result: those of a group that is less than a beat, else all.
            let shared = command.group().map_or(lanes, |group| group.min(lanes));
            halve(&mut slot.partials, (STEP_EDGES * lanes) >> s, shared, pass.reduction);
            if s == levels {
                for (l, partial) in slot.scalars.iter_mut().zip(slot.partials.chunks(shared)) {
                    *l = scalar_lane(partial[0], command);
                }
            }
        } else if let Some(step) = pass.scalar.get(s - levels - 1) {
            slot.scalars.iter_mut().for_each(|l| {
                step(l);
                l.a = canonical(l.a);
            });
        }
    }

    /// The scalars that are ready after this many edges of the tree and the scalar pipeline.
    pub(super) fn ready(&self, program: &Program, command: &Command) -> Option<(Tag, Vec<Scalar>)> {
        let unscaled = matches!(command.op, Op::Quantise { .. }) && command.y.width() > 8;
        let scalar = |l: &Lane| match unscaled {
            true => Scalar { kept: 1.0, factor: 1.0, index: 0 },
            false => Scalar { kept: l.x, factor: l.a, index: l.k as u32 },
        };
        program.passes.iter().enumerate().find_map(|(p, pass)| {
            let slot = &self.slots[self.place((levels(self.config) + pass.scalar.len()) * STEP_EDGES)];
            let ready = pass.reduction != Reduction::None && slot.valid && usize::from(slot.tag.pass) == p;
            ready.then(|| (slot.tag, slot.scalars.iter().map(scalar).collect()))
        })
    }

    /// Scalars that are through go no further.
    pub(super) fn retire(&mut self, program: &Program) {
        for (p, pass) in program.passes.iter().enumerate() {
            let place = self.place((levels(self.config) + pass.scalar.len()) * STEP_EDGES);
            let slot = &mut self.slots[place];
            slot.valid &= usize::from(slot.tag.pass) != p;
        }
    }

    pub(super) fn reset(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.valid = false);
    }

    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        let n = self.config.lanes;
        for (i, partial) in self.ways.iter_mut().enumerate() {
            v.scope(("way", i / n, i % n), |v| partial.visit(v));
        }
        self.maxima.iter_mut().enumerate().for_each(|(i, m)| float(v, ("maximum_q", i / n, i % n), m));
        for t in 0..self.slots.len() {
            let place = self.place(t);
            let slot = &mut self.slots[place];
            v.scope(("tree", t), |v| {
                v.reg("valid_q", 1, Format::Unsigned, &mut slot.valid);
                slot.tag.visit(v);
                for (i, partial) in slot.partials.iter_mut().enumerate() {
                    v.scope(("partial", i), |v| partial.visit(v));
                }
                for (g, l) in slot.scalars.iter_mut().enumerate() {
                    v.scope(("scalar", g), |v| {
                        for (name, value) in
                            [("x_q", &mut l.x), ("a_q", &mut l.a), ("b_q", &mut l.b), ("c_q", &mut l.c)]
                        {
                            float(v, name, value);
                        }
                        v.reg("k_q", 32, Format::Signed, &mut l.k);
                    });
                }
            });
        }
    }
}

/// Levels of the tree: over the ways, then over the lanes.
fn levels(config: Config) -> usize {
    STEP_EDGES.trailing_zeros() as usize + config.levels()
}

/// One level: each partial with the one `half` further. Levels over the lanes stay inside `shared` of them, and leave narrower groups
/// alone.
fn halve(partials: &mut [Partial], half: usize, shared: usize, reduction: Reduction) {
    let lanes = partials.len() / STEP_EDGES;
    if half >= lanes {
        for i in 0..half {
            partials[i] = partials[i].join(reduction, partials[i + half]);
        }
    } else if half < shared {
        for group in partials[..lanes].chunks_mut(shared) {
            for i in 0..half {
                group[i] = group[i].join(reduction, group[i + half]);
            }
        }
    }
}

/// What the scalar pipeline starts with.
fn scalar_lane(partial: Partial, command: &Command) -> Lane {
    let nowhere = partial.index == NONE;
    let a = if matches!(command.op, Op::ArgMax) && nowhere { f32::from_bits(0x7fc0_0000) } else { partial.value };
    let (s, y) = match command.op {
        Op::RmsNorm { epsilon } => (per_value(command.len), epsilon),
        Op::Quantise { .. } => (Quantum::new(command.y).ok().and_then(|q| q.per_largest).unwrap_or(1.0), 0.0),
        _ => (0.0, 0.0),
    };
    Lane { x: a, a, s, y, k: if nowhere { 0 } else { partial.index as i32 }, ..Lane::default() }
}
