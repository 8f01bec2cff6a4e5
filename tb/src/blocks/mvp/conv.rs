//! Convolution on the clocked processor, fed by the clocked address generators, against its definition.

use super::driver::{self, Operands, Rates, Rows};
use super::formats::{self, Draw};
use super::{CONTEXT, computed, reference};
use crate::verify::Case;
use mvp::{
    Array, Beat, Code, Column, Config, Conv, ConvJob, Job, Layout, Output, PatchFeeder, Processor, RowInfo, Sums,
    finish, gemm_cycles_no_overlap,
};
use rand::RngExt;

const LAYOUTS: [&str; 2] = ["nchw", "nhwc"];
/// What is convolved: names of the plan's `data` bins.
const DATA: [&str; 4] = ["int8", "uint8", "int4", "bf16"];
/// What is special about the geometry.
const SHAPES: [&str; 7] = ["plain", "stride", "padding", "dilation", "groups", "depthwise", "all"];
/// Each with each.
pub(super) const DIRECTED: usize = LAYOUTS.len() * DATA.len() * SHAPES.len();

/// A job's rows of patches, made by the lanes' generators as the processor takes them.
struct Patches<'a> {
    config: Config,
    conv: &'a Conv,
    job: &'a ConvJob,
    image: &'a [Code],
    padding: Code,
    feeder: PatchFeeder,
    row: Vec<Code>,
}

impl Rows for Patches<'_> {
    fn fill(&mut self, m: usize, chunk: usize, beat: &mut Beat) {
        if m == 0 {
            self.feeder.start(self.conv, self.job, self.config.k_range(self.job.job.k, chunk));
        }
        self.feeder.row(self.image, self.padding, &mut self.row);
        let steps = self.config.datapath.steps();
        for (lane, values) in beat.codes.iter_mut().zip(self.row.chunks(steps)) {
            *lane = match *values {
                [low, high] => Code::from_le_bytes([low as u8, high as u8]),
                _ if steps == 2 => Code::from_le_bytes([values[0] as u8, 0x55]),
                _ => values[0],
            };
        }
    }

    fn taken(&mut self) {
        self.feeder.step();
    }
}

/// Where a value lies: `sizes` are channels, rows, columns.
fn place(layout: Layout, [channels, rows, cols]: [usize; 3], n: usize, [c, r, q]: [usize; 3]) -> usize {
    match layout {
        Layout::Nchw => ((n * channels + c) * rows + r) * cols + q,
        Layout::Nhwc => ((n * rows + r) * cols + q) * channels + c,
    }
}

/// All values under the kernel of one output pixel, in the order channel, row, column of the definition: where in the image (none in the
/// padding) and where in the weights.
fn taps(conv: &Conv, [n, f, row, col]: [usize; 4]) -> Vec<(Option<usize>, usize)> {
    let per_group = conv.channels / conv.groups;
    let [height, width] = conv.size;
    let mut taps = Vec::new();
    for c in 0..per_group {
        for i in 0..conv.kernel[0] {
            for j in 0..conv.kernel[1] {
                let r = (row * conv.stride[0] + i * conv.dilation[0]) as i64 - conv.padding[0] as i64;
                let q = (col * conv.stride[1] + j * conv.dilation[1]) as i64 - conv.padding[1] as i64;
                let inside = (0..height as i64).contains(&r) && (0..width as i64).contains(&q);
                let channel = f / (conv.filters / conv.groups) * per_group + c;
                let image = inside
                    .then(|| place(conv.layout, [conv.channels, height, width], n, [channel, r as usize, q as usize]));
                taps.push((image, place(conv.layout, [per_group, conv.kernel[0], conv.kernel[1]], f, [c, i, j])));
            }
        }
    }
    taps
}

fn geometry(layout: Layout, shape: &str, rng: &mut impl RngExt) -> Conv {
    let has = |what: &str| shape == what || shape == "all";
    let mut pick =
        |special: bool, plain: usize, top: usize| if special { rng.random_range(plain..=top) } else { plain };
    let stride = [pick(has("stride"), 1, 3), pick(has("stride"), 1, 3)];
    let dilation = [pick(has("dilation"), 1, 2), pick(has("dilation"), 1, 3)];
    let padding = [(); 4].map(|()| pick(has("padding"), 0, 2));
    let depthwise = shape == "depthwise";
    let groups = pick(has("groups") || depthwise, if depthwise { 2 } else { 1 }, 4);
    let mut any = |top: usize| rng.random_range(1..=top);
    let (channels, filters) = if depthwise { (1, any(2)) } else { (any(3), any(4)) };
    let kernel = [any(3), any(3)];
    let size = [0, 1].map(|axis| (kernel[axis] - 1) * dilation[axis] + any(5));
    let batch = any(2);
    let (channels, filters) = (groups * channels, groups * filters);
    Conv { layout, batch, channels, size, filters, kernel, stride, padding, dilation, groups }
}

/// One convolution, job by job.
pub(super) fn conv(case: &mut Case) -> anyhow::Result<()> {
    let index = case.index;
    let (layout, data, shape) = (LAYOUTS[index / 28 % 2], DATA[index / 7 % 4], SHAPES[index % 7]);
    let rng = &mut case.rng;
    let order = if layout == "nchw" { Layout::Nchw } else { Layout::Nhwc };
    let conv = geometry(order, shape, rng).checked()?;
    let datapath = formats::datapath(if data == "uint8" { "int8" } else { data })?;
    let (rows, cols) = (rng.random_range(1..9), rng.random_range(1..6));
    let config = Config { rows, cols, depth: rng.random_range(2..40), datapath, ..Config::default() }.checked()?;
    let stall = ["none", "x", "w", "y", "all"][rng.random_range(0..5)];
    let slow = rng.random_range(0.2..0.9);
    let rate = |port: &str| if stall == port || stall == "all" { slow } else { 1.0 };
    let rates = Rates { x: rate("x"), w: rate("w"), y: rate("y") };
    case.label(format!("{layout} {data} {shape} {conv:?} on {rows}x{cols}"));

    // Image and weights in the array's codes, as one product's operands: UINT8 is drawn as what it is, and x ^ 0x80 is the same code less 128.
    let [images, weights, results] = conv.lengths();
    let drawn = formats::operands(config, Job { m: 1, n: weights, k: 1 }, Draw::Near, &mut case.rng);
    let image = formats::operands(config, Job { m: images, n: 1, k: 1 }, Draw::Near, &mut case.rng).x;
    let weights = drawn.w;
    let integer = !datapath.is_float();
    let mut zero = || if integer { case.rng.random_range(-128..=127) } else { 0 };
    let x_zero: i32 = if data == "int8" || data == "uint8" { zero() } else { 0 };
    let w_zeros: Vec<i32> = (0..conv.filters).map(|_| if data == "uint8" { zero() } else { 0 }).collect();

    let mut result = vec![0u32; results];
    let mut cycles = 0;
    for job in conv.jobs(config.depth) {
        let operands = Operands { w: conv.weights(job.group, &weights), ..Operands::default() };
        let feeder = PatchFeeder::new(config.tile_depth());
        let padding = x_zero as Code;
        let mut patches = Patches { config, conv: &conv, job: &job, image: &image, padding, feeder, row: Vec::new() };
        let mut processor = Processor::<Array>::new(config);
        let mut probe = case.probe("mvp", CONTEXT)?;
        let run =
            driver::run_rows(&mut processor, job.job, &operands, Some(&mut patches), rates, &mut case.rng, &mut probe);
        probe.finish()?;
        let run = run?;
        driver::check_edges(case, config, job.job, rates, run.counters);
        cycles += run.counters.unstalled();
        // The sums against the exact core on patches by the definition.
        let n = job.job.n;
        let mut pixels = Vec::new();
        for image in job.images.clone() {
            for row in job.rows.clone() {
                pixels.extend(job.cols.clone().map(|col| [image, job.group * n, row, col]));
            }
        }
        let x: Vec<Vec<Code>> = pixels
            .iter()
            .map(|&pixel| taps(&conv, pixel).iter().map(|(at, _)| at.map_or(padding, |at| image[at])).collect())
            .collect();
        let by_definition = |k: usize| match order {
            // k runs over channel, row, column; in NHWC over row, column, channel.
            Layout::Nchw => k,
            Layout::Nhwc => {
                let channels = conv.channels / conv.groups;
                k % channels * conv.kernel[0] * conv.kernel[1] + k / channels
            }
        };
        let x: Vec<Code> =
            x.iter().flat_map(|row| (0..row.len()).map(|k| row[by_definition(k)]).collect::<Vec<_>>()).collect();
        let operands = Operands { x, ..operands };
        case.equal_slices("sums", &reference::product(config, job.job, &operands), &run.y);
        let engine = computed::product(config, job.job, &operands)?;
        computed::agree(case, &engine, engine.cycles, &run.y, run.overflow, run.counters);
        // Zero points by the row sums that left with the rows.
        let sums = if integer {
            Sums::Int32(run.y.clone())
        } else {
            Sums::Fp32(run.y.iter().map(|&bits| f32::from_bits(bits as u32)).collect())
        };
        let output = Output { x_zero, ..Output::raw(config.sums_float()) };
        let mut rows = vec![RowInfo::default(); job.job.m];
        run.rows.iter().enumerate().for_each(|(i, row)| rows[i % job.job.m].sum = row.side.sum);
        let columns: Vec<Column> = (0..n)
            .map(|f| Column {
                weight_sum: if integer { operands.w.iter().skip(f).step_by(n).map(|&w| i32::from(w)).sum() } else { 0 },
                w_zero: w_zeros[job.group * n + f],
                ..Column::default()
            })
            .collect();
        let (y, _) = finish(config, job.job, &sums, &output, &rows, &columns);
        conv.place(&job, &y, &mut result);
    }
    case.equal("cycles of the convolution", conv.cycles(config), cycles);
    let without: u64 = conv.jobs(config.depth).iter().map(|job| gemm_cycles_no_overlap(config, job.job)).sum();
    case.check(without >= cycles, format_args!("without overlap {without} cycles, with it {cycles}"));
    case.cycles(cycles);
    if integer {
        // The definition: products of values less their zero points, over what lies inside the image.
        let [height, width] = conv.out_size();
        let mut expected = vec![0u32; results];
        for at in 0..conv.batch * conv.filters * height * width {
            let (n, f) = (at / (conv.filters * height * width), at / (height * width) % conv.filters);
            let (row, col) = (at / width % height, at % width);
            let value = taps(&conv, [n, f, row, col]).iter().fold(0i64, |sum, &(x, w)| match x {
                Some(x) => {
                    sum + (i64::from(image[x]) - i64::from(x_zero)) * (i64::from(weights[w]) - i64::from(w_zeros[f]))
                }
                None => sum,
            });
            expected[place(order, [conv.filters, height, width], n, [f, row, col])] = value as u32;
        }
        case.equal_slices("the result", &expected, &result);
    }
    case.cover("conv", &[("layout", layout), ("data", data), ("shape", shape), ("stall", stall)]);
    Ok(())
}
