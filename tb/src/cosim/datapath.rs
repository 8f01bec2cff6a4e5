use super::Cycle;
use mvp::{Accumulator, AccumulatorIn, Array, Config, Deskew, Feeder, OutRow, Side, SystolicArray, WestEdge};
use rtl::{Format, Module, Visitor};

/// Feeder, array, deskew and accumulator of the cycle engine, wired as hw/sv/mvp_datapath.sv wires its own.
pub struct Datapath {
    is_float: bool,
    feeder: Feeder,
    array: Array,
    deskew: Deskew,
    accumulator: Accumulator,
    sum: OutRow,
    /// Whether a finished row stood at the output before the last edge.
    offered: bool,
    /// Whether `overflow` was high then.
    overflow: bool,
}

/// What stood at the ports before the last edge.
pub struct DatapathOut<'a> {
    /// The finished row that was on offer.
    pub row: Option<&'a OutRow>,
    /// Some sum has left 32 bits.
    pub overflow: bool,
}

impl Datapath {
    /// A datapath of the configuration, reset.
    pub fn new(config: Config) -> Self {
        Self {
            is_float: config.sums_float(),
            feeder: Feeder::new(config),
            array: Array::new(config),
            deskew: Deskew::new(config.cols),
            accumulator: Accumulator::new(config),
            sum: OutRow::blank(config.cols),
            offered: false,
            overflow: false,
        }
    }
}

impl Module for Datapath {
    type In<'a> = Cycle;
    type Out<'a> = DatapathOut<'a>;

    /// The ports before the last edge.
    fn out(&self) -> DatapathOut<'_> {
        DatapathOut { row: self.offered.then_some(&self.sum), overflow: self.overflow }
    }

    fn clock(&mut self, i: &Cycle) {
        self.accumulator.sum(&mut self.sum);
        (self.offered, self.overflow) = (self.accumulator.offers(), self.accumulator.overflow());
        if i.reset {
            return self.reset();
        }
        let south = self.array.out();
        let row = self.deskew.row(&south);
        let (side, scales) = (Side::default(), None);
        self.accumulator.clock(&AccumulatorIn { enable: i.enable, tag: i.tag, row, side, scales }, &self.sum);
        self.deskew.clock(i.enable, &south);
        drop(south);
        self.array.clock(&WestEdge { enable: i.enable, rows: self.feeder.west(&i.rows) });
        self.feeder.clock(i.enable, &i.rows);
    }

    fn reset(&mut self) {
        self.feeder.reset();
        self.array.reset();
        self.deskew.reset();
        self.accumulator.reset();
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        v.scope("feeder", |v| self.feeder.visit(v));
        v.scope("array", |v| self.array.visit(v));
        v.scope("deskew", |v| self.deskew.visit(v));
        v.scope("accumulator", |v| self.accumulator.visit(v));
        if self.is_float {
            v.scope("accumulator_side", |v| self.accumulator.visit_side(v));
        }
        self.accumulator.sum(&mut self.sum);
        let offers = self.accumulator.offers();
        v.scope("out", |v| {
            v.wire("offers", 1, Format::Unsigned, offers);
            for (c, &sum) in self.sum.values.iter().enumerate() {
                v.wire(("sum", c), 32, Format::Signed, sum);
            }
        });
    }
}

/// Where the twin keeps what the engine calls `path`, below its `dut`.
///
/// The names agree but for generate blocks: `row_3.pe_5` is `row[3].col[5].pe`, and the stages of a delay, which the engine
/// numbers in the register's name, are blocks of their own.
pub fn twin_path(path: &str) -> String {
    fn indexed(name: &str) -> Option<(&str, &str)> {
        name.rsplit_once('_').filter(|(_, i)| !i.is_empty() && i.bytes().all(|b| b.is_ascii_digit()))
    }
    let parts: Vec<&str> = path.split('.').collect();
    let twin = match parts.as_slice() {
        ["array", row, pe, register] => {
            let ((_, r), (_, c)) = (indexed(row).unwrap_or_default(), indexed(pe).unwrap_or_default());
            let sum = if *register == "psum_q" { "sum." } else { "" };
            Some(format!("array.row[{r}].col[{c}].pe.{sum}{register}"))
        }
        ["array", row, pe, "mac", stage, register] => {
            let ((_, r), (_, c)) = (indexed(row).unwrap_or_default(), indexed(pe).unwrap_or_default());
            Some(format!("array.row[{r}].col[{c}].pe.sum.mac.{stage}_{register}"))
        }
        ["accumulator_side", adder, register] => {
            indexed(adder).zip(indexed(register)).map(|((_, stage), (name, c))| match name {
                "sum_q" => format!("accumulator.lane[{c}].adder[{stage}].{name}"),
                _ => format!("accumulator.adder[{stage}].{name}"),
            })
        }
        [delay @ ("feeder" | "deskew"), lane, stage] => indexed(lane)
            .zip(indexed(stage))
            .map(|((lane, l), (register, i))| format!("{delay}.{lane}[{l}].stage[{i}].{register}")),
        ["accumulator", "tag", register] => indexed(register).map(|(name, _)| format!("accumulator.tag_{name}")),
        ["accumulator", "memory", register] | ["accumulator", register] => {
            indexed(register).map(|(name, c)| format!("accumulator.lane[{c}].{name}"))
        }
        ["out", "offers"] => Some("accumulator.offers".into()),
        ["out", sum] => indexed(sum).map(|(name, c)| format!("accumulator.lane[{c}].{name}")),
        _ => None,
    };
    twin.unwrap_or_else(|| path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_twin() {
        for (path, twin) in [
            ("array.row_3.pe_15.psum_q", "array.row[3].col[15].pe.sum.psum_q"),
            ("array.row_3.pe_15.act_q", "array.row[3].col[15].pe.act_q"),
            ("array.row_3.pe_15.mac.stage_1.hi_low_q", "array.row[3].col[15].pe.sum.mac.stage_1_hi_low_q"),
            ("accumulator_side.adder_2.sum_q_5", "accumulator.lane[5].adder[2].sum_q"),
            ("accumulator_side.adder_2.last_q_0", "accumulator.adder[2].last_q"),
            ("feeder.row_2.act_q_1", "feeder.row[2].stage[1].act_q"),
            ("deskew.col_0.psum_q_12", "deskew.col[0].stage[12].psum_q"),
            ("accumulator.tag.address_q_0", "accumulator.tag_address_q"),
            ("accumulator.memory.rdata_q_7", "accumulator.lane[7].rdata_q"),
            ("accumulator.row_q_7", "accumulator.lane[7].row_q"),
            ("accumulator.overflow_q", "accumulator.overflow_q"),
            ("out.sum_7", "accumulator.lane[7].sum"),
        ] {
            assert_eq!(twin_path(path), twin);
        }
    }
}
