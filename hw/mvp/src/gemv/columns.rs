use super::GemvShape;
use crate::pe::code_format;
use crate::{Code, Config, Datapath, Pe, PeIn};
use rtl::{Format, Module, Visitor};

/// What enters the columns on one edge, before the skew.
#[derive(Clone, Debug)]
pub(super) struct Feed {
    /// R × q codes of W, row by row of the array.
    pub(super) w: Vec<Code>,
    /// R × v codes of x.
    pub(super) x: Vec<Code>,
    /// Rows that count, 9 bits.
    pub(super) valid: u16,
    pub(super) swap: bool,
    pub(super) load: bool,
}

impl Feed {
    pub(super) fn blank(shape: GemvShape) -> Self {
        let rows = shape.config.rows;
        Self { w: vec![0; rows * shape.outputs], x: vec![0; rows * shape.vectors], valid: 0, swap: false, load: false }
    }
}

/// R rows of q·v elements and the skew before them.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    shape: GemvShape,
    /// Row by row.
    pes: Vec<Pe>,
    /// Row r's wires arrive r·L edges late: (R − 1)·L stages, and the place of what enters now. A ring, `at` that place.
    skew: Vec<Feed>,
    at: usize,
}

/// The elements' configuration: x is the stationary operand, so the operands' formats change places.
fn exchanged(config: Config) -> Config {
    match config.datapath {
        Datapath::Float { act, weight } => Config { datapath: Datapath::Float { act: weight, weight: act }, ..config },
        Datapath::Int8 | Datapath::Int4 => config,
    }
}

impl Columns {
    pub(super) fn new(shape: GemvShape) -> Self {
        let config = shape.config;
        Self {
            shape,
            pes: vec![Pe::new(exchanged(config)); config.rows * shape.lanes()],
            skew: vec![Feed::blank(shape); (config.rows - 1) * config.mac_latency() + 1],
            at: 0,
        }
    }

    /// Partial sums at the southern edge: all columns at once, so nothing is left to deskew.
    pub(super) fn south(&self) -> Vec<i32> {
        self.pes[(self.shape.config.rows - 1) * self.shape.lanes()..].iter().map(|pe| pe.out().psum).collect()
    }

    /// The edge.
    pub(super) fn clock(&mut self, feed: Feed) {
        let (lanes, q, v) = (self.shape.lanes(), self.shape.outputs, self.shape.vectors);
        let (latency, stages) = (self.shape.config.mac_latency(), self.skew.len());
        self.skew[self.at] = feed;
        // South to north, so that each row still sees the sums of before the edge.
        for r in (0..self.shape.config.rows).rev() {
            let feed = &self.skew[(self.at + stages - r * latency) % stages];
            for c in 0..lanes {
                let psum = if r == 0 { 0 } else { self.pes[(r - 1) * lanes + c].out().psum };
                self.pes[r * lanes + c].clock(&PeIn {
                    enable: true,
                    act: feed.w[r * q + c / v],
                    valid: r < usize::from(feed.valid),
                    swap: feed.swap,
                    weight: feed.x[r * v + c % v],
                    load: feed.load,
                    keep: true,
                    psum,
                });
            }
        }
        self.at = (self.at + 1) % stages;
    }

    pub(super) fn reset(&mut self) {
        self.pes.iter_mut().for_each(Module::reset);
        self.skew.fill(Feed::blank(self.shape));
    }

    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        let Config { rows, datapath, .. } = self.shape.config;
        let (q, vectors) = (self.shape.outputs, self.shape.vectors);
        let (latency, stages) = (self.shape.config.mac_latency(), self.skew.len());
        let (x, w) = (code_format(datapath, true), code_format(datapath, false));
        for age in 1..stages {
            let feed = &mut self.skew[(self.at + stages - age) % stages];
            v.scope(("skew", age), |v| {
                v.reg("valid_q", 9, Format::Unsigned, &mut feed.valid);
                v.reg("swap_q", 1, Format::Unsigned, &mut feed.swap);
                v.reg("load_q", 1, Format::Unsigned, &mut feed.load);
                for r in age.div_ceil(latency)..rows {
                    (0..q).for_each(|j| v.reg(("w_q", r, j), datapath.weight_width(), w, &mut feed.w[r * q + j]));
                    (0..vectors)
                        .for_each(|u| v.reg(("x_q", r, u), datapath.act_width(), x, &mut feed.x[r * vectors + u]));
                }
            });
        }
        for (r, row) in self.pes.chunks_mut(self.shape.lanes()).enumerate() {
            v.scope(("row", r), |v| row.iter_mut().enumerate().for_each(|(c, pe)| v.scope(("pe", c), |v| pe.visit(v))));
        }
    }
}
