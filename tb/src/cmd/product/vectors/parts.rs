//! The cycles of a folder of vectors: the product, with stalls and resets where they hurt.

use crate::cosim::{Cycle, Place, Tiles, operand, schedule, wild};
use mvp::{Code, Codes, Config, GemmError, Job, Tag, WestRow, sums};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::rc::Rc;

/// What the rows are that leave in a part.
#[derive(Clone, Debug)]
pub(super) enum Rows {
    /// The first of a product; a reset ends them.
    First(Rc<Product>),
    /// All of a product.
    All(Rc<Product>),
    /// Zeros.
    Zero,
    /// One row, of this many sums of a tile.
    Wrapped(u32),
}

/// A product and its sums.
#[derive(Clone, Debug)]
pub(super) struct Product {
    /// Its extents.
    pub(super) job: Job,
    /// M × K codes.
    pub(super) x: Vec<Code>,
    /// K × N codes.
    pub(super) w: Vec<Code>,
    /// M × N sums: INT32 or the bits of FP32.
    pub(super) y: Vec<u32>,
}

/// Cycles that follow each other.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// What happens.
    pub what: &'static str,
    /// What leaves.
    pub rows: Rows,
    /// The wires.
    pub cycles: Vec<Cycle>,
}

/// Share of the steps before which a stall comes.
const STALLS: f64 = 0.25;

struct Maker {
    config: Config,
    rng: Xoshiro256PlusPlus,
}

/// The parts of a product's vectors: resets, a run that a reset cuts, what must be zero after it, the whole run, a product of extreme
/// operands and, with INT32 sums, a sum that leaves 32 bits.
///
/// # Errors
/// If the transaction engine refuses the extreme product.
pub(super) fn parts(config: Config, product: Product, seed: u64) -> Result<Vec<Part>, GemmError> {
    let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut maker = Maker { config, rng };
    let product = Rc::new(product);
    let drawn = Rc::new(maker.drawn()?);
    let (run, hard) = (maker.run(&product), maker.run(&drawn));
    let cut = maker.cut(run.clone());
    let mut parts = vec![
        maker.reset("a reset", false),
        maker.stalled(
            "the product, every step after a stall, until rows leave",
            Rows::First(product.clone()),
            cut,
            1.0,
        ),
        maker.reset("a reset in its midst, enable high", true),
        maker.zero(),
        maker.stalled("the product from the start, with stalls", Rows::All(product), run, STALLS),
        maker.stalled("a product of operands of every kind", Rows::All(drawn), hard, STALLS),
    ];
    if !config.sums_float() {
        let (steps, adds) = maker.overflow();
        parts.push(maker.stalled("products of one sign, until sums leave 32 bits", Rows::Wrapped(adds), steps, 0.01));
        parts.push(maker.reset("a reset, enable low", false));
        parts.push(maker.zero());
    }
    Ok(parts)
}

impl Maker {
    /// From a row's entry to its tag.
    fn latency(&self) -> usize {
        self.config.rows * self.config.mac_latency() + self.config.cols - 1
    }

    fn reset(&mut self, what: &'static str, enable: bool) -> Part {
        // A tag that would offer a row, were it taken.
        let lanes = self.config.cols as u16;
        let tag = Tag { valid: true, first: true, last: true, end: true, address: 0, lanes };
        let cycle = Cycle { reset: true, enable, tag, ..wild(self.config, &mut self.rng) };
        Part { what, rows: Rows::Zero, cycles: vec![cycle] }
    }

    /// Operands as the cosimulation draws them, the extremes, subnormals, infinities and NaNs among them; half of the floats have few
    /// significant bits, so that sums are ties. Two n-tiles, the second of one column, and several k-tiles.
    fn drawn(&mut self) -> Result<Product, GemmError> {
        let Config { rows, cols, depth, datapath, .. } = self.config;
        let job = Job { m: depth.min(24), n: cols + 1, k: 3 * rows + rows.div_ceil(2) };
        let mut code = || match datapath.is_float() && self.rng.random() {
            true => {
                let (sign, exponent) = (self.rng.random_range(0..2u16), self.rng.random_range(119..136u16));
                (sign << 15 | exponent << 7 | self.rng.random_range(0..4u16) << 5) as Code
            }
            false => operand(datapath, &mut self.rng),
        };
        let mut draw = |n: usize| -> Vec<Code> { (0..n).map(|_| code()).collect() };
        let (x, w) = (draw(job.m * job.k), draw(job.k * job.n));
        let words = |codes: &[Code]| codes.iter().map(|&code| code as u16).collect::<Vec<_>>();
        let bytes = |codes: &[Code]| codes.iter().map(|&code| code as i8).collect::<Vec<_>>();
        let computed = match datapath.is_float() {
            true => sums(self.config, job, Codes::Bits16(&words(&x)), Codes::Bits16(&words(&w)))?,
            false => sums(self.config, job, Codes::Int(&bytes(&x)), Codes::Int(&bytes(&w)))?,
        };
        let y = (0..job.m * job.n).map(|i| computed.sums.bits(i)).collect();
        Ok(Product { job, x, w, y })
    }

    /// A product's schedule, with its operands.
    fn run(&self, product: &Product) -> Vec<Cycle> {
        let (Product { job, x, w, .. }, Config { rows, cols, .. }) = (product, self.config);
        let tiles = job.k.div_ceil(rows);
        let panels = job.n.div_ceil(cols);
        let shape = Tiles {
            m: job.m,
            panels,
            tiles,
            last_depth: job.k - (tiles - 1) * rows,
            last_lanes: (job.n - (panels - 1) * cols) as u16,
        };
        schedule(self.config, &shape, |place| match place {
            Place::Act { tile, row, lane } => x[row * job.k + tile % tiles * rows + lane],
            Place::Weight { tile, column, lane } => {
                let (k, n) = (tile % tiles * rows + lane, tile / tiles * cols + column);
                if k < job.k && n < job.n { w[k * job.n + n] } else { 0 }
            }
        })
    }

    /// The run up to a cycle in which one of its first rows stands at the output. What enters too late to reach that row is anything at
    /// all, so that every register holds something when the reset comes.
    fn cut(&mut self, mut run: Vec<Cycle>) -> Vec<Cycle> {
        let results: Vec<usize> = (0..run.len()).filter(|&i| run[i].tag.valid && run[i].tag.last).take(8).collect();
        let tag = results[self.rng.random_range(0..results.len())];
        run.truncate(tag + self.config.accumulator_latency());
        for step in &mut run[tag + 1 - self.latency()..] {
            step.rows = wild(self.config, &mut self.rng).rows;
        }
        run
    }

    /// Puts stalls before a share of the steps, the middle one among them: enable low, junk on everything else.
    fn stalled(&mut self, what: &'static str, rows: Rows, steps: Vec<Cycle>, share: f64) -> Part {
        let middle = steps.len() / 2;
        let mut cycles = Vec::with_capacity(steps.len() * 2);
        for (i, step) in steps.into_iter().enumerate() {
            if self.rng.random_bool(share) || i == middle {
                cycles.push(Cycle { enable: false, ..wild(self.config, &mut self.rng) });
            }
            cycles.push(step);
        }
        Part { what, rows, cycles }
    }

    /// Rows asked for from a datapath fresh from reset: its sums, then sums with the weights it holds, then with those behind them.
    fn zero(&mut self) -> Part {
        let Config { cols, datapath, .. } = self.config;
        let span = self.latency() + self.config.accumulator_latency() + 1;
        let tag = Tag { valid: true, first: true, last: true, lanes: cols as u16, ..Tag::default() };
        let mut steps = Vec::new();
        for phase in 0..4 {
            for slot in 0..span {
                let mut step = wild(self.config, &mut self.rng);
                for wires in &mut step.rows {
                    (wires.load, wires.valid, wires.swap) = (false, matches!(phase, 1 | 2), phase == 2 && slot == 0);
                    if datapath.is_float() && wires.valid {
                        // Finite: an infinity times zero is none.
                        wires.act = (wires.act & 0xff) | 0x3f00;
                    }
                }
                steps.push(Cycle { enable: true, tag, ..step });
            }
        }
        // The last rows leave before the part ends.
        let asked = steps.len() - self.config.accumulator_latency();
        steps[asked..].iter_mut().for_each(|step| step.tag = Tag::default());
        self.stalled("rows asked for at once, all of them zero", Rows::Zero, steps, STALLS)
    }

    /// Adds a tile's sum to itself until it leaves 32 bits, first in columns that do not count. Returns the sums added.
    fn overflow(&self) -> (Vec<Cycle>, u32) {
        let Config { rows, cols, .. } = self.config;
        let adds = i32::MAX as usize / (rows * 128 * 127) + 4;
        let idle = Cycle { reset: false, enable: true, rows: vec![WestRow::default(); rows], tag: Tag::default() };
        let mut steps = vec![idle; cols + adds + self.latency() + 4];
        for (slot, step) in steps[..cols].iter_mut().enumerate() {
            let weight = if slot + 1 == cols { -127 } else { -128 };
            step.rows.fill(WestRow { load: true, keep: slot > 0, weight, ..WestRow::default() });
        }
        for row in 0..adds {
            let step = &mut steps[cols + row];
            step.rows.fill(WestRow { valid: true, act: -128, swap: row == 0, ..WestRow::default() });
            let (first, last) = (row == 0, row + 1 == adds);
            let lanes = if last { cols } else { 1 } as u16;
            steps[cols + row + self.latency()].tag = Tag { valid: true, first, last, end: false, address: 0, lanes };
        }
        (steps, adds as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mvp::Datapath;
    use numeric::FloatFormat;

    #[test]
    fn every_part_stalls_and_the_cut_falls_on_a_row_that_leaves() {
        for (datapath, rows, cols) in
            [(Datapath::Int8, 1, 1), (Datapath::Int8, 4, 3), (Datapath::float(FloatFormat::BF16), 2, 3)]
        {
            let config = Config { rows, cols, depth: 16, datapath, ..Config::default() };
            let job = Job { m: 2, n: 4, k: 5 };
            let (x, w, y) = (vec![3; job.m * job.k], vec![5; job.k * job.n], vec![0; job.m * job.n]);
            let product = Product { job, x, w, y };
            for seed in 0..20 {
                let made = parts(config, product.clone(), seed).unwrap();
                let again = parts(config, product.clone(), seed).unwrap();
                assert!(made.iter().zip(&again).all(|(a, b)| a.cycles == b.cycles), "{config:?}, seed {seed}");
                for part in made.iter().filter(|p| p.cycles.len() > 1) {
                    let stalls = part.cycles.iter().filter(|c| !c.enable).count();
                    assert!(stalls > 0, "{:?}: {}, seed {seed}", config, part.what);
                }
                let cut = made.iter().position(|p| matches!(p.rows, Rows::First(_))).unwrap();
                let steps: Vec<_> = made[cut].cycles.iter().filter(|c| c.enable).collect();
                let tag = steps[steps.len() - config.accumulator_latency()].tag;
                assert!(tag.valid && tag.last);
                assert!(made[cut + 1].cycles[0].reset && made[cut + 1].cycles[0].enable);
            }
        }
    }
}
