use crate::pe::code_format;
use crate::{Config, WestRow};
use rtl::{Format, Visitor, copy_lanes};

/// The skew of the western edge: row r's wires arrive r·L edges after row 0's, which pass straight through.
///
/// A triangle of registers. Here it is one history of whole edges, written a row a cycle: stage i of row r is what that row was
/// given i + 1 edges ago.
#[derive(Clone, Debug)]
pub struct Feeder {
    config: Config,
    /// A ring of edges; `at` is the one written next, the oldest.
    history: Vec<WestRow>,
    stages: usize,
    at: usize,
}

impl Feeder {
    /// A feeder for the configuration's rows and element latency L.
    pub fn new(config: Config) -> Self {
        let stages = ((config.rows - 1) * config.mac_latency()).max(1);
        Self { config, history: vec![WestRow::default(); stages * config.rows], stages, at: 0 }
    }

    /// Position in the ring of what row `r` was given `age` edges ago, 1..=stages.
    fn slot(&self, r: usize, age: usize) -> usize {
        let edge = if self.at >= age { self.at - age } else { self.at + self.stages - age };
        edge * self.config.rows + r
    }

    /// The wires into the array, from the registers and this cycle's input.
    #[inline]
    pub fn west(&self, input: &[WestRow], out: &mut Vec<WestRow>) {
        let rows = self.config.rows;
        out.resize(rows, WestRow::default());
        out[0] = input[0];
        // From row to row L edges further back; no division, no call: this is done every cycle.
        let (back, around) = (self.config.mac_latency() * rows, self.history.len());
        let mut edge = self.at * rows;
        for (r, wires) in out.iter_mut().enumerate().skip(1) {
            edge = if edge >= back { edge - back } else { edge + around - back };
            *wires = self.history[edge + r];
        }
    }

    /// The edge.
    #[inline]
    pub fn clock(&mut self, enable: bool, input: &[WestRow]) {
        if enable {
            let rows = self.config.rows;
            copy_lanes(&mut self.history[self.at * rows..][..rows], input);
            self.at = if self.at + 1 == self.stages { 0 } else { self.at + 1 };
        }
    }

    /// Empties every stage.
    pub fn reset(&mut self) {
        *self = Self::new(self.config);
    }

    /// Shows stage i of row r as `row_r.*_q_i`.
    pub fn visit(&mut self, v: &mut impl Visitor) {
        let (datapath, latency) = (self.config.datapath, self.config.mac_latency());
        let widths = [datapath.act_width(), datapath.weight_width()];
        let formats = [code_format(datapath, true), code_format(datapath, false)];
        for r in 1..self.config.rows {
            v.scope(("row", r), |v| {
                for i in 0..r * latency {
                    let slot = self.slot(r, i + 1);
                    let stage = &mut self.history[slot];
                    v.reg(("act_q", i), widths[0], formats[0], &mut stage.act);
                    v.reg(("valid_q", i), 1, Format::Unsigned, &mut stage.valid);
                    v.reg(("swap_q", i), 1, Format::Unsigned, &mut stage.swap);
                    v.reg(("weight_q", i), widths[1], formats[1], &mut stage.weight);
                    v.reg(("load_q", i), 1, Format::Unsigned, &mut stage.load);
                    v.reg(("keep_q", i), 1, Format::Unsigned, &mut stage.keep);
                }
            });
        }
    }
}

/// The deskew of the southern edge: column c's partial sums are held C − 1 − c edges, so that a row of results stands side by side.
///
/// Kept as one history of whole edges, like [`Feeder`].
#[derive(Clone, Debug)]
pub struct Deskew {
    cols: usize,
    history: Vec<i32>,
    stages: usize,
    at: usize,
    row: Vec<i32>,
}

impl Deskew {
    /// A deskew for `cols` columns.
    pub fn new(cols: usize) -> Self {
        let stages = (cols - 1).max(1);
        Self { cols, history: vec![0; stages * cols], stages, at: 0, row: vec![0; cols] }
    }

    fn slot(&self, c: usize, age: usize) -> usize {
        let edge = if self.at >= age { self.at - age } else { self.at + self.stages - age };
        edge * self.cols + c
    }

    /// The aligned row: the registers of all columns but the last, which passes straight through.
    #[inline]
    pub fn row(&mut self, south: &[i32]) -> &[i32] {
        // Column 0's is the oldest edge, `at`; from column to column one edge younger.
        let last = self.cols - 1;
        let mut edge = self.at * self.cols;
        for (c, sum) in self.row[..last].iter_mut().enumerate() {
            *sum = self.history[edge + c];
            edge += self.cols;
            if edge == self.history.len() {
                edge = 0;
            }
        }
        self.row[last] = south[last];
        &self.row
    }

    /// The edge.
    #[inline]
    pub fn clock(&mut self, enable: bool, south: &[i32]) {
        if enable {
            copy_lanes(&mut self.history[self.at * self.cols..][..self.cols], south);
            self.at = if self.at + 1 == self.stages { 0 } else { self.at + 1 };
        }
    }

    /// Empties every stage.
    pub fn reset(&mut self) {
        *self = Self::new(self.cols);
    }

    /// Shows stage i of column c as `col_c.psum_q_i`.
    pub fn visit(&mut self, v: &mut impl Visitor) {
        let last = self.cols - 1;
        for c in 0..last {
            v.scope(("col", c), |v| {
                for i in 0..last - c {
                    let slot = self.slot(c, i + 1);
                    v.reg(("psum_q", i), 32, Format::Signed, &mut self.history[slot]);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Datapath;
    use numeric::FloatFormat;

    #[test]
    fn row_r_is_late_by_r_times_the_latency() {
        for (rows, latency) in [(1, 1), (2, 1), (5, 1), (4, 4)] {
            let datapath = if latency == 1 { Datapath::Int8 } else { Datapath::float(FloatFormat::BF16) };
            let mut feeder = Feeder::new(Config { rows, datapath, ..Config::default() });
            let mut west = Vec::new();
            for t in 0..60i32 {
                let input: Vec<_> =
                    (0..rows).map(|r| WestRow { act: (t + r as i32) as i16, ..WestRow::default() }).collect();
                feeder.west(&input, &mut west);
                for (r, wires) in west.iter().enumerate() {
                    let then = t - (r * latency) as i32;
                    assert_eq!(wires.act, if then < 0 { 0 } else { (then + r as i32) as i16 }, "row {r} at {t}");
                }
                feeder.clock(true, &input);
                feeder.clock(false, &vec![WestRow::default(); rows]);
            }
        }
    }

    #[test]
    fn skewed_columns_come_out_side_by_side() {
        for cols in [1, 2, 5] {
            let mut deskew = Deskew::new(cols);
            for t in 0..40 {
                let south: Vec<i32> = (0..cols as i32).map(|c| t - c).collect(); // column c is c edges late
                if t >= cols as i32 {
                    assert_eq!(deskew.row(&south), vec![t - (cols as i32 - 1); cols]);
                }
                deskew.clock(true, &south);
            }
        }
    }
}
