use mvp::{Code, Config, Datapath, Tag, WestRow};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fmt::Write;

/// What the wires carry in one cycle.
#[derive(Clone, Debug, PartialEq)]
pub struct Cycle {
    /// Reset is high.
    pub reset: bool,
    /// Clock enable.
    pub enable: bool,
    /// The western edge before the skew.
    pub rows: Vec<WestRow>,
    /// For the row that leaves the deskew in this cycle.
    pub tag: Tag,
}

/// Cycles for an array of a given shape, from a seed.
#[derive(Clone, Debug)]
pub struct Stimulus {
    /// The twin's shape, INT8 or BF16 with L = A = 4.
    pub config: Config,
    /// One entry a cycle; the first resets.
    pub cycles: Vec<Cycle>,
}

impl Stimulus {
    /// Half of the cycles are GEMM tiles in their schedule, with stalls; half are any wires at all. A reset comes in the middle
    /// of each.
    pub fn new(config: Config, cycles: usize, seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut this = Self { config, cycles: Vec::with_capacity(cycles) };
        for (end, tiles) in [(cycles / 4, true), (cycles / 2, false), (3 * cycles / 4, true), (cycles, false)] {
            this.cycles.push(Cycle { reset: true, ..wild(config, &mut rng) });
            while this.cycles.len() < end {
                if tiles {
                    let steps = this.gemm(&mut rng);
                    for step in steps {
                        while rng.random_bool(0.1) {
                            this.cycles.push(Cycle { enable: false, ..wild(config, &mut rng) });
                        }
                        this.cycles.push(step);
                    }
                } else {
                    this.cycles.push(wild(config, &mut rng));
                }
            }
            this.cycles.truncate(end.max(1));
        }
        this
    }

    /// A job of a few tiles.
    fn gemm(&self, rng: &mut Xoshiro256PlusPlus) -> Vec<Cycle> {
        let Config { rows, cols, depth, .. } = self.config;
        let (m, tiles) = (rng.random_range(1..=(2 * cols).min(depth)), rng.random_range(1..=4usize));
        let last_depth = rng.random_range(1..=rows);
        let last_lanes = rng.random_range(1..=cols) as u16;
        let datapath = self.config.datapath;
        schedule(self.config, &Tiles { m, panels: 1, tiles, last_depth, last_lanes }, |_| operand(datapath, rng))
    }

    /// The stimulus as `$readmemh` reads it: one word a cycle, {reset, enable, tag, keep, load, weight, swap, valid, act}.
    pub fn hex(&self) -> String {
        let mut text = String::new();
        for cycle in &self.cycles {
            let mut word = Word::default();
            let width = self.config.datapath.act_width();
            cycle.rows.iter().for_each(|w| word.push(width, w.act as u64));
            cycle.rows.iter().for_each(|w| word.push(1, w.valid.into()));
            cycle.rows.iter().for_each(|w| word.push(1, w.swap.into()));
            cycle.rows.iter().for_each(|w| word.push(width, w.weight as u64));
            cycle.rows.iter().for_each(|w| word.push(1, w.load.into()));
            cycle.rows.iter().for_each(|w| word.push(1, w.keep.into()));
            let Tag { valid, first, last, end, address, lanes, .. } = cycle.tag;
            [valid, first, last, end].into_iter().for_each(|bit| word.push(1, bit.into()));
            word.push(16, address.into());
            word.push(9, lanes.into());
            word.push(1, cycle.enable.into());
            word.push(1, cycle.reset.into());
            let _ = writeln!(text, "{}", word.hex());
        }
        text
    }
}

/// Any wires at all.
pub fn wild(config: Config, rng: &mut Xoshiro256PlusPlus) -> Cycle {
    let Config { rows, cols, depth, datapath, .. } = config;
    let rows = (0..rows)
        .map(|_| WestRow {
            act: operand(datapath, rng),
            valid: rng.random_bool(0.7),
            swap: rng.random_bool(0.2),
            weight: operand(datapath, rng),
            load: rng.random_bool(0.5),
            keep: rng.random_bool(0.7),
        })
        .collect();
    let tag = Tag {
        valid: rng.random_bool(0.8),
        first: rng.random_bool(0.2),
        last: rng.random_bool(0.2),
        end: rng.random_bool(0.1),
        address: rng.random_range(0..depth.min(4)) as u16,
        lanes: rng.random_range(0..=cols) as u16,
    };
    Cycle { reset: false, enable: rng.random_bool(0.9), rows, tag }
}

/// Tiles of a job.
#[derive(Clone, Copy, Debug)]
pub struct Tiles {
    /// Rows that pass over each.
    pub m: usize,
    /// n-tiles.
    pub panels: usize,
    /// k-tiles of each n-tile.
    pub tiles: usize,
    /// Rows of elements that the last k-tile uses.
    pub last_depth: usize,
    /// Columns of the last n-tile that count.
    pub last_lanes: u16,
}

/// Where an operand enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Activation `row` of a tile, in row `lane` of the array.
    Act {
        /// Tile, n-tiles outermost.
        tile: usize,
        /// Row of X.
        row: usize,
        /// Row of the array.
        lane: usize,
    },
    /// A weight.
    Weight {
        /// Tile.
        tile: usize,
        /// Column of the array.
        column: usize,
        /// Row of the array.
        lane: usize,
    },
}

/// Any operand.
pub fn operands(config: Config, rng: &mut Xoshiro256PlusPlus) -> impl FnMut(Place) -> Code {
    move |_| operand(config.datapath, rng)
}

/// The wires of a job in its schedule: tile f + 1 follows f after max(M, C, A) cycles, its weights entering under f.
pub fn schedule(config: Config, job: &Tiles, mut operand: impl FnMut(Place) -> Code) -> Vec<Cycle> {
    let Config { rows, cols, .. } = config;
    let Tiles { m, panels, tiles, last_depth, last_lanes } = *job;
    let span = m.max(cols).max(config.accumulator_latency());
    let latency = rows * config.mac_latency() + cols - 1;
    let all = panels * tiles;
    let idle = Cycle { reset: false, enable: true, rows: vec![WestRow::default(); rows], tag: Tag::default() };
    let mut steps = vec![idle; cols + (all - 1) * span + m + latency + config.accumulator_latency()];
    for f in 0..all {
        let (load, start) = if f == 0 { (0, cols) } else { (cols + (f - 1) * span, cols + f * span) };
        for slot in 0..cols {
            for (lane, wires) in steps[load + slot].rows.iter_mut().enumerate() {
                let weight = operand(Place::Weight { tile: f, column: cols - 1 - slot, lane });
                (wires.load, wires.keep, wires.weight) = (true, slot > 0, weight);
            }
        }
        let (first, last) = (f % tiles == 0, f % tiles + 1 == tiles);
        let valid = if last { last_depth } else { rows };
        let lanes = if f / tiles + 1 == panels { last_lanes } else { cols as u16 };
        for row in 0..m {
            let step = &mut steps[start + row];
            for (r, wires) in step.rows.iter_mut().enumerate() {
                wires.swap = row == 0;
                if r < valid {
                    (wires.valid, wires.act) = (true, operand(Place::Act { tile: f, row, lane: r }));
                }
            }
            let end = f + 1 == all && row + 1 == m;
            steps[start + row + latency].tag = Tag { valid: true, first, last, end, address: row as u16, lanes };
        }
    }
    steps
}

/// An operand, the extremes among them: of BF16 zeros, subnormals, the largest, infinities, NaNs, and numbers near one.
pub fn operand(datapath: Datapath, rng: &mut Xoshiro256PlusPlus) -> Code {
    const BF16: [u16; 10] = [0, 0x8000, 0x0001, 0x807f, 0x0080, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fa0];
    match (datapath, rng.random_range(0..10)) {
        (Datapath::Float { .. }, 0) => BF16[rng.random_range(0..BF16.len())] as Code,
        (Datapath::Float { .. }, 1..4) => rng.random(),
        (Datapath::Float { .. }, _) => (rng.random_range(0x3e00..0x4080) | rng.random::<u16>() & 0x8000) as Code,
        (_, 0..3) => [-128, -128, -127, -1, 1, 127][rng.random_range(0..6)],
        _ => rng.random::<i8>().into(),
    }
}

/// Bits, least significant first.
#[derive(Default)]
struct Word(Vec<bool>);

impl Word {
    fn push(&mut self, width: u32, value: u64) {
        self.0.extend((0..width).map(|bit| value >> bit & 1 == 1));
    }

    fn hex(&self) -> String {
        let digit = |bits: &[bool]| bits.iter().rev().fold(0, |d, &bit| 2 * d + u32::from(bit));
        self.0.chunks(4).rev().filter_map(|bits| char::from_digit(digit(bits), 16)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_read_most_significant_digit_first() {
        let mut word = Word::default();
        word.push(8, 0xa5);
        word.push(1, 1);
        assert_eq!(word.hex(), "1a5");
    }

    #[test]
    fn the_same_seed_gives_the_same_cycles_and_each_part_resets() {
        let config = Config { rows: 3, cols: 4, depth: 16, ..Config::default() };
        let a = Stimulus::new(config, 400, 7);
        assert_eq!(a.cycles, Stimulus::new(config, 400, 7).cycles);
        assert_ne!(a.cycles, Stimulus::new(config, 400, 8).cycles);
        let resets: Vec<_> = (0..400).filter(|&c| a.cycles[c].reset).collect();
        assert_eq!(resets, [0, 100, 200, 300]);
        assert!(a.hex().lines().all(|l| l.len() == (20 * 3 + 31usize).div_ceil(4)));
    }
}
