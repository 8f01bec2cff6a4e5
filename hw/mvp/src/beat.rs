use crate::pe::code_format;
use crate::{Code, Config, Datapath};
use rtl::{Bits, Format, Name, Payload, Visitor, copy_lanes};

/// What enters an operand port in one cycle: R codes, and what belongs to all of them.
#[derive(Debug, PartialEq)]
pub struct Beat {
    /// R codes: a row of X (one k-step or pair a lane), or a column of W.
    pub codes: Vec<Code>,
    /// Of a row of X: its scale, or that of its group. Of a column of W: the scale of its group. FP32.
    pub scale: f32,
    /// Of a column of W: the minimum of its group, FP32.
    pub minimum: f32,
    datapath: Datapath,
    /// A row of X.
    is_act: bool,
}

impl Beat {
    /// A row of X: zeros, scale 1.
    pub fn row(config: Config) -> Self {
        let codes = vec![0; config.rows];
        Self { codes, scale: 1.0, minimum: 0.0, datapath: config.datapath, is_act: true }
    }

    /// A column of W: zeros, scale 1, minimum 0.
    pub fn column(config: Config) -> Self {
        Self { is_act: false, ..Self::row(config) }
    }
}

impl Clone for Beat {
    fn clone(&self) -> Self {
        Self { codes: self.codes.clone(), ..*self }
    }

    /// Into the lanes that are there: buffers take a beat in every cycle.
    fn clone_from(&mut self, source: &Self) {
        let mut codes = std::mem::take(&mut self.codes);
        codes.resize(source.codes.len(), 0);
        copy_lanes(&mut codes, &source.codes);
        *self = Self { codes, ..*source };
    }
}

impl Default for Beat {
    fn default() -> Self {
        Self::row(Config { rows: 1, ..Config::default() })
    }
}

impl Payload for Beat {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        let width = if self.is_act { self.datapath.act_width() } else { self.datapath.weight_width() };
        let format = code_format(self.datapath, self.is_act);
        for (lane, code) in self.codes.iter_mut().enumerate() {
            v.reg(name.at(lane), width, format, code);
        }
        v.scope(name, |v| {
            float(v, "scale_q", &mut self.scale);
            if !self.is_act {
                float(v, "minimum_q", &mut self.minimum);
            }
        });
    }
}

/// Beats that cross a port of the matrix-vector mode side by side.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Beats(pub Vec<Beat>);

impl Payload for Beats {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        v.scope(name, |v| {
            let each = self.0.iter_mut().enumerate();
            each.for_each(|(i, beat)| v.scope(("beat", i), |v| beat.visit("code_q".into(), v)));
        });
    }
}

/// Shows an FP32 register.
pub(crate) fn float(v: &mut impl Visitor, name: impl Into<Name>, value: &mut f32) {
    let mut bits = value.to_bits();
    v.reg(name, u32::WIDTH, Format::Real(|code| f64::from(f32::from_bits(code as u32))), &mut bits);
    *value = f32::from_bits(bits);
}

/// What rides beside a row of X: the row-sum unit's result and the row's scale.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Side {
    /// Σa over the lanes that count, 25 bits.
    pub sum: i32,
    /// The row's scale in this tile, FP32.
    pub scale: f32,
}

impl Side {
    pub(crate) fn visit(&mut self, i: usize, v: &mut impl Visitor) {
        v.reg(("sum_q", i), 25, Format::Signed, &mut self.sum);
        float(v, ("scale_q", i), &mut self.scale);
    }
}

/// Scale and minimum of each column of a weight tile, on their way round the array.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scales {
    /// C scales, FP32.
    pub scale: Vec<f32>,
    /// C minima, FP32.
    pub minimum: Vec<f32>,
    /// C sums Σa of the tile, 25 bits, where columns belong to different rows of X (GEMV); else none, and the row's own counts.
    pub sums: Vec<i32>,
}

impl Scales {
    /// Scales 1 and minima 0 of `cols` columns.
    pub fn blank(cols: usize) -> Self {
        Self { scale: vec![1.0; cols], minimum: vec![0.0; cols], sums: Vec::new() }
    }

    /// The same with a Σa, 0, of each column.
    pub(crate) fn of_columns(cols: usize) -> Self {
        Self { sums: vec![0; cols], ..Self::blank(cols) }
    }
}

impl Payload for Scales {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        v.scope(name, |v| {
            self.scale.iter_mut().enumerate().for_each(|(c, scale)| float(v, ("scale_q", c), scale));
            self.minimum.iter_mut().enumerate().for_each(|(c, minimum)| float(v, ("minimum_q", c), minimum));
            self.sums.iter_mut().enumerate().for_each(|(c, sum)| v.reg(("sum_q", c), 25, Format::Signed, sum));
        });
    }
}
