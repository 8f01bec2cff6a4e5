use crate::pe::code_format;
use crate::{Config, WestRow};
use rtl::{Format, Visitor};

/// A place in a ring of `length`, from one that is less than `length` past its end.
#[inline]
fn around(place: usize, length: usize) -> usize {
    if place < length { place } else { place - length }
}

/// The skew of the western edge: row r's wires arrive r·L edges after row 0's, which pass straight through.
///
/// A triangle of registers. Here it is a ring of whole edges as the array will see them, so that nothing is gathered: a row's wires are
/// written where they will leave, and no register moves.
#[derive(Clone, Debug)]
pub struct Feeder {
    config: Config,
    /// (R − 1)·L + 1 edges of R rows; the one that leaves in this cycle begins at `at`.
    edges: Vec<WestRow>,
    at: usize,
}

impl Feeder {
    /// A feeder for the configuration's rows and element latency L.
    pub fn new(config: Config) -> Self {
        let edges = (config.rows - 1) * config.mac_latency() + 1;
        Self { config, edges: vec![WestRow::default(); edges * config.rows], at: 0 }
    }

    /// The wires into the array, R rows, from the registers and this cycle's input.
    #[inline]
    pub fn west(&mut self, input: &[WestRow]) -> &[WestRow] {
        let rows = self.config.rows;
        let edge = &mut self.edges[self.at..][..rows];
        edge[0] = input[0];
        edge
    }

    /// The edge.
    #[inline]
    pub fn clock(&mut self, enable: bool, input: &[WestRow]) {
        if !enable {
            return;
        }
        // From row to row L edges further on; no division, no call: this is done every cycle.
        let (rows, length) = (self.config.rows, self.edges.len());
        let ahead = self.config.mac_latency() * rows;
        let mut edge = self.at;
        for (r, wires) in input.iter().enumerate().skip(1) {
            edge = around(edge + ahead, length);
            self.edges[edge + r] = *wires;
        }
        self.at = around(self.at + rows, length);
    }

    /// Empties every stage.
    pub fn reset(&mut self) {
        *self = Self::new(self.config);
    }

    /// Shows stage i of row r as `row_r.*_q_i`.
    pub fn visit(&mut self, v: &mut impl Visitor) {
        let (rows, datapath, latency) = (self.config.rows, self.config.datapath, self.config.mac_latency());
        let widths = [datapath.act_width(), datapath.weight_width()];
        let formats = [code_format(datapath, true), code_format(datapath, false)];
        for r in 1..rows {
            v.scope(("row", r), |v| {
                for i in 0..r * latency {
                    // What came i + 1 edges ago, on its way to r·L.
                    let edge = around(self.at + (r * latency - 1 - i) * rows, self.edges.len());
                    let stage = &mut self.edges[edge + r];
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
/// Kept like [`Feeder`]: a ring of rows as they will leave, each sum written into the row that it belongs to.
#[derive(Clone, Debug)]
pub struct Deskew {
    cols: usize,
    /// C rows of C sums; the one that leaves in this cycle begins at `at`.
    rows: Vec<i32>,
    at: usize,
}

impl Deskew {
    /// A deskew for `cols` columns.
    pub fn new(cols: usize) -> Self {
        Self { cols, rows: vec![0; cols * cols], at: 0 }
    }

    /// The aligned row: the registers of all columns but the last, which passes straight through.
    #[inline]
    pub fn row(&mut self, south: &[i32]) -> &[i32] {
        let row = &mut self.rows[self.at..][..self.cols];
        row[self.cols - 1] = south[self.cols - 1];
        row
    }

    /// The edge.
    #[inline]
    pub fn clock(&mut self, enable: bool, south: &[i32]) {
        if !enable {
            return;
        }
        // Column 0's sum leaves C − 1 edges from now, with the row before this one in the ring; from column to column one edge earlier.
        let (cols, length) = (self.cols, self.rows.len());
        let before = |row: usize| if row == 0 { length - cols } else { row - cols };
        let mut row = before(self.at);
        for (c, &sum) in south[..cols - 1].iter().enumerate() {
            self.rows[row + c] = sum;
            row = before(row);
        }
        self.at = around(self.at + cols, length);
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
                    // What came i + 1 edges ago, on its way to C − 1 − c.
                    let row = around(self.at + (last - c - 1 - i) * self.cols, self.rows.len());
                    v.reg(("psum_q", i), 32, Format::Signed, &mut self.rows[row + c]);
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
            for t in 0..60i32 {
                let input: Vec<_> =
                    (0..rows).map(|r| WestRow { act: (t + r as i32) as i16, ..WestRow::default() }).collect();
                for (r, wires) in feeder.west(&input).iter().enumerate() {
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
