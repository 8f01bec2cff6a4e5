use crate::{Config, Step};
use rtl::{Format, Visitor};

/// Counters of a job, 64 bits each, cleared by its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// Edges from the first weight to the last sum, stalls included.
    pub cycles: u64,
    /// Element-edges that did a wanted multiply-accumulate: M·N·K at the end of a job.
    pub active: u64,
    /// Edges on which no row entered because weights had to come first.
    pub exposed: u64,
    /// Edges of the final drain.
    pub drain: u64,
    /// Edges lost waiting for activations.
    pub starved_x: u64,
    /// Edges lost waiting for weights (and not for activations).
    pub starved_w: u64,
    /// Edges lost to a full output FIFO.
    pub blocked: u64,
}

/// What is missing on an edge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Missing {
    pub(crate) x: bool,
    pub(crate) w: bool,
    pub(crate) room: bool,
}

impl Missing {
    pub(crate) fn nothing(self) -> bool {
        !(self.x || self.w || self.room)
    }
}

impl Counters {
    /// Edges without those lost to a missing operand or a full FIFO: what the closed form gives.
    pub fn unstalled(&self) -> u64 {
        self.cycles - self.starved_x - self.starved_w - self.blocked
    }

    /// Wanted multiply-accumulates as a share of what R·C elements could have done (two each an edge with INT4 weights), 0 to 1; over
    /// the whole job, fill, drain and stalls included.
    pub fn utilisation(&self, config: Config) -> f64 {
        let most = (config.rows * config.cols * config.datapath.steps()) as f64;
        self.active as f64 / (self.cycles.max(1) as f64 * most)
    }

    /// The edge of a job that is under way; `active` elements will work on the row that enters.
    pub(crate) fn count(&mut self, step: &Step, active: usize, missing: Missing) {
        if !step.busy {
            return;
        }
        self.cycles += 1;
        if missing.room {
            self.blocked += 1;
        } else if missing.x {
            self.starved_x += 1;
        } else if missing.w {
            self.starved_w += 1;
        } else {
            self.active += active as u64;
            self.exposed += u64::from(step.exposed);
            self.drain += u64::from(step.row.is_none() && !step.exposed);
        }
    }

    /// Shows the registers.
    pub(crate) fn visit(&mut self, v: &mut impl Visitor) {
        let Self { cycles, active, exposed, drain, starved_x, starved_w, blocked } = self;
        v.reg("cycles_q", 64, Format::Unsigned, cycles);
        v.reg("active_q", 64, Format::Unsigned, active);
        v.reg("exposed_q", 64, Format::Unsigned, exposed);
        v.reg("drain_q", 64, Format::Unsigned, drain);
        v.reg("starved_x_q", 64, Format::Unsigned, starved_x);
        v.reg("starved_w_q", 64, Format::Unsigned, starved_w);
        v.reg("blocked_q", 64, Format::Unsigned, blocked);
    }
}
