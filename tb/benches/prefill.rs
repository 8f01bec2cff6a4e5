//! Every matrix product of SmolLM2-135M's prefill of 128 tokens on the cycle engine of the MVP, 32×32 in BF16, every register clocked:
//! 14.2 GMAC. Against the array's datapath alone (what `array` measures) on tiles of as many rows.
//! Operands are random numbers near one; results are held to the transaction engine's bits, cycles to the closed form.

use anyhow::{bail, ensure};
use mvp::{Array, Beat, Codes, Config, Datapath as Format, Job, Processor, ProcessorIn, Sums, gemm_cycles, sums};
use numeric::FloatFormat;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rtl::{Module, Stream};
use std::hint::black_box;
use std::time::Instant;
use tb::cosim::{Datapath, Tiles, operands, schedule};
use tb::ratio::{PAIRS, Ratio, Target, compare};

/// Tokens of the prompt.
const M: usize = 128;
/// Layers of the model.
const LAYERS: usize = 30;
/// K and N of a layer's products, and how many there are: Q and output; K and V; gate and up; down; scores and weighted sums of 9 heads.
const PRODUCTS: [(usize, usize, usize); 6] =
    [(576, 576, 2), (576, 192, 2), (576, 1536, 2), (1536, 576, 1), (64, M, 9), (M, 64, 9)];
/// The time may be a fifth above what the datapath's speed implies.
const TARGET: Target = Target::AtLeast(0.84);
/// Tiles of the datapath's stimulus, as in `array`.
const WINDOW: usize = 4;

/// Operands of one product, in the order in which the processor takes them, and what they must give. All of K and N are whole tiles.
struct Product {
    job: Job,
    times: usize,
    /// [k-tile][row][k of the tile]: read once for each panel of N.
    x: Vec<u16>,
    /// [panel][k-tile][column, the last first][k of the tile].
    w: Vec<u16>,
    /// M × N.
    y: Vec<f32>,
}

impl Product {
    fn new(config: Config, (k, n, times): (usize, usize, usize), rng: &mut Xoshiro256PlusPlus) -> anyhow::Result<Self> {
        let Config { rows, cols, .. } = config;
        ensure!(k % rows == 0 && n % cols == 0, "{k}×{n} is cut into tiles of {rows}×{cols} without a rest");
        let mut codes = |len: usize| -> Vec<u16> {
            (0..len).map(|_| rng.random_range(0x3f00..0x4000) | rng.random::<u16>() & 0x8000).collect()
        };
        let (x, w) = (codes(M * k), codes(k * n));
        let job = Job { m: M, n, k };
        let Sums::Fp32(y) = sums(config, job, Codes::Bits16(&x), Codes::Bits16(&w))?.sums else {
            bail!("BF16 sums are FP32");
        };
        let (mut by_beat, mut columns) = (Vec::with_capacity(M * k), Vec::with_capacity(k * n));
        for chunk in (0..k).step_by(rows) {
            (0..M).for_each(|row| by_beat.extend(&x[row * k + chunk..][..rows]));
        }
        for panel in (0..n).step_by(cols) {
            for chunk in (0..k).step_by(rows) {
                for column in (panel..panel + cols).rev() {
                    columns.extend((chunk..chunk + rows).map(|row| w[row * n + column]));
                }
            }
        }
        Ok(Self { job, times, x: by_beat, w: columns, y })
    }
}

/// A producer that always has its next beat at hand.
struct Source<'a> {
    /// Codes of all beats, again and again.
    codes: &'a [u16],
    at: usize,
    /// Beats to come, with the one on offer.
    left: usize,
    beat: Beat,
}

impl<'a> Source<'a> {
    fn new(codes: &'a [u16], times: usize, beat: Beat) -> Self {
        let left = times * codes.len() / beat.codes.len();
        let mut this = Self { codes, at: 0, left, beat };
        this.fill();
        this
    }

    fn fill(&mut self) {
        let lanes = self.beat.codes.len();
        self.beat.codes.iter_mut().zip(&self.codes[self.at..]).for_each(|(lane, &code)| *lane = code as i16);
        self.at = if self.at + lanes == self.codes.len() { 0 } else { self.at + lanes };
    }

    fn stream(&self) -> Stream<&Beat> {
        Stream { valid: self.left > 0, data: &self.beat }
    }

    /// The beat on offer has been taken.
    fn next(&mut self) {
        self.left -= 1;
        self.fill();
    }
}

/// Clocks one product from the first weight to the last sum; gives its cycles.
fn run(processor: &mut Processor<Array>, product: &Product) -> anyhow::Result<u64> {
    let config = processor.config();
    let (cols, Job { m, n, .. }) = (config.cols, product.job);
    let mut x = Source::new(&product.x, n / cols, Beat::row(config));
    let mut w = Source::new(&product.w, 1, Beat::column(config));
    let mut start = Some(product.job);
    let mut results = 0;
    while results < m * n / cols {
        let out = processor.out();
        if out.y.valid {
            let (panel, row) = (results / m, results % m);
            let sums = &out.y.data.values[..usize::from(out.y.data.lanes)];
            let expected = &product.y[row * n + panel * cols..][..sums.len()];
            let equal = sums.iter().zip(expected).all(|(&sum, value)| sum as u32 == value.to_bits());
            ensure!(equal, "row {row} of panel {panel} differs from the transaction engine's");
            results += 1;
        }
        let (x_fires, w_fires) = (x.left > 0 && out.x_ready, w.left > 0 && out.w_ready);
        processor.clock(&ProcessorIn { start: start.take(), x: x.stream(), w: w.stream(), ready: true });
        if x_fires {
            x.next();
        }
        if w_fires {
            w.next();
        }
    }
    let cycles = processor.out().counters.cycles;
    ensure!(cycles == gemm_cycles(config, product.job), "{cycles} cycles: not the closed form");
    Ok(cycles)
}

fn main() -> anyhow::Result<()> {
    let format = Format::float(FloatFormat::BF16);
    let config = Config { rows: 32, cols: 32, datapath: format, ..Config::default() }.checked()?;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let products = PRODUCTS.map(|product| Product::new(config, product, &mut rng));
    let products = products.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let mut processor = Processor::<Array>::new(config);
    let mut prefill = || -> anyhow::Result<u64> {
        let mut cycles = 0;
        for product in (0..LAYERS).flat_map(|_| &products) {
            for _ in 0..product.times {
                cycles += run(&mut processor, product)?;
            }
        }
        Ok(cycles)
    };
    let clock = Instant::now();
    let cycles = prefill()?;
    let seconds = clock.elapsed().as_secs_f64();
    let macs: usize = products.iter().map(|p| LAYERS * p.times * p.job.m * p.job.n * p.job.k).sum();
    println!("{:.2} GMAC in {cycles} cycles, each result as it must be; {seconds:.1} s", macs as f64 * 1e-9);

    let tiles = Tiles { m: M, panels: 1, tiles: WINDOW, last_depth: config.rows, last_lanes: config.cols as u16 };
    let stimulus = schedule(config, &tiles, operands(config, &mut rng));
    let mut whole = || prefill().expect("it has just run") as f64;
    let mut array = || {
        let mut engine = Datapath::new(config);
        let times = cycles as usize / stimulus.len();
        (0..times).flat_map(|_| &stimulus).for_each(|cycle| engine.clock(cycle));
        black_box(engine.out().row.is_some());
        (times * stimulus.len()) as f64
    };
    println!("{}", Ratio::header());
    let name = format!("bf16 32x32, prefill of {M} tokens");
    let sides = (("every tile", &mut whole as &mut dyn FnMut() -> f64), ("datapath alone", &mut array as _));
    println!("{}", compare(&name, "cycles", sides.0, sides.1, PAIRS, TARGET));
    Ok(())
}
