use super::port::float;
use super::sequencer::Tag;
use crate::config::STEP_EDGES;
use crate::function::Lane;
use crate::program::{Program, Reduction, StageStep};
use numeric::fast::canonical;
use rtl::{Format, Visitor};

/// Steps of the longest chain, RoPE's, each with a multiplier a lane. Those that are reduced are shorter and have room for the accumulator's.
pub const MAX_STEPS: usize = 24;

/// One register stage: a beat on its way.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Slot {
    pub(super) valid: bool,
    pub(super) tag: Tag,
    pub(super) lanes: Vec<Lane>,
}

impl Slot {
    fn visit(&mut self, v: &mut impl Visitor) {
        v.reg("valid_q", 1, Format::Unsigned, &mut self.valid);
        self.tag.visit(v);
        for (i, l) in self.lanes.iter_mut().enumerate() {
            v.scope(("lane", i), |v| {
                for (name, value) in [
                    ("x_q", &mut l.x),
                    ("y_q", &mut l.y),
                    ("s_q", &mut l.s),
                    ("a_q", &mut l.a),
                    ("b_q", &mut l.b),
                    ("c_q", &mut l.c),
                    ("d_q", &mut l.d),
                ] {
                    float(v, name, value);
                }
                v.reg("k_q", 32, Format::Signed, &mut l.k);
                v.reg("on_q", 1, Format::Unsigned, &mut l.on);
            });
        }
    }
}

/// A shift register of beats, a ring that moves instead of them. Stage t holds what was issued t edges ago. Step s has been done from
/// stage 1 + s·[`STEP_EDGES`] on; the registers before hold its operands, which synthesis retimes into the operator.
#[derive(Clone, Debug)]
pub(super) struct LanePipe {
    slots: Vec<Slot>,
    /// Place of stage 0.
    head: usize,
    /// Wires of the beat that is issued: scratch, not state.
    pub(super) spare: Vec<Lane>,
}

impl LanePipe {
    pub(super) fn new(lanes: usize) -> Self {
        let blank = Slot { valid: false, tag: Tag::default(), lanes: vec![Lane::default(); lanes] };
        let spare = blank.lanes.clone();
        Self { slots: vec![blank; stage(MAX_STEPS) + 1], head: 0, spare }
    }

    fn place(&self, stage: usize) -> usize {
        (self.head + stage) % self.slots.len()
    }

    pub(super) fn at(&self, stage: usize) -> &Slot {
        &self.slots[self.place(stage)]
    }

    pub(super) fn at_mut(&mut self, stage: usize) -> &mut Slot {
        let place = self.place(stage);
        &mut self.slots[place]
    }

    /// All beats move on by a stage; returns the register that stage 0 is written into.
    pub(super) fn shift(&mut self) -> &mut Slot {
        self.head = (self.head + self.slots.len() - 1) % self.slots.len();
        self.at_mut(0)
    }

    /// The lane steps that finish on this edge.
    pub(super) fn finish_steps(&mut self, program: &Program) {
        for s in 1..=MAX_STEPS {
            let slot = self.at_mut(stage(s));
            if !slot.valid {
                continue;
            }
            let pass = &program.passes[usize::from(slot.tag.pass)];
            if let Some(StageStep::Lane(step)) = pass.steps.get(s - 1) {
                for l in &mut slot.lanes {
                    step(l);
                    // A hardware operator has one NaN.
                    for value in [&mut l.a, &mut l.b, &mut l.c, &mut l.d] {
                        *value = canonical(*value);
                    }
                }
            }
        }
    }

    /// Beats that have reached the end of their chain, which is not the end of the pipe, go no further.
    pub(super) fn retire(&mut self, program: &Program) {
        for (p, pass) in program.passes.iter().enumerate() {
            let accumulator = usize::from(pass.reduction != Reduction::None);
            let slot = self.at_mut(stage(pass.steps.len() + accumulator));
            slot.valid &= usize::from(slot.tag.pass) != p;
        }
    }

    pub(super) fn reset(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.valid = false);
    }

    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        for t in 0..self.slots.len() {
            let slot = self.at_mut(t);
            v.scope(("stage", t), |v| slot.visit(v));
        }
    }
}

/// The first stage that holds what step `s` (from 1) has made.
pub(super) const fn stage(s: usize) -> usize {
    1 + s * STEP_EDGES
}
