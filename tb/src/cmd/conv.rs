//! `magpie conv`: a two-dimensional convolution, its cycles and its bits.

use super::product::{Finish, Finished, Machine, Matrix, Mode, Options, Shown, check_size, write};
use anyhow::{Context, bail};
use clap::ValueEnum;
use mvp::{Conv, ConvJob, Layout, Processor};
use std::process::ExitCode;

/// Convolves images A with filters B on the systolic array, as an implicit matrix product, and says where the cycles went.
///
/// Columns are filters: bias, scale and B's zero points are per filter. Outside the image stands the zero point of A. Exit code 0: done.
/// 1: an INT32 sum left 32 bits, by itself or with zero points and bias, or the two engines
/// differed. 2: the command could not be carried out.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
EXAMPLES
  magpie conv 1x16x28x28 32x16x3x3 --pad 1               images NxCxHxW, filters FxCxHxW, INT8 on 32x32
  magpie conv 1x28x28x16 32x3x3x16 --layout nhwc --stride 2
  magpie conv 1x32x28x28 32x1x3x3 --groups 32 --pad 1    depthwise: one column of the array works
  magpie conv 1x3x32x32 8x3x5x5 --pad 2,2,1,1 --dilation 1,2 --format bf16 --engine both
  magpie conv 1x1x6x6 2x1x3x3 --array 4x4 --wave conv.vcd")]
pub struct Args {
    /// Images: NxCxHxW, or NxHxWxC with --layout nhwc
    images: String,
    /// Filters: FxCxHxW or FxHxWxC; C is the channels of one group
    filters: String,
    /// How images, filters and result lie
    #[arg(long, value_enum, default_value_t = Order::Nchw)]
    layout: Order,
    /// From one result to the next: one number, or down,across
    #[arg(long, default_value = "1", value_name = "S")]
    stride: String,
    /// Around the image: one number, or top,left,bottom,right
    #[arg(long, default_value = "0", value_name = "P")]
    pad: String,
    /// From one value of the kernel to the next: one number, or down,across
    #[arg(long, default_value = "1", value_name = "D")]
    dilation: String,
    /// Groups of channels
    #[arg(long, default_value_t = 1, value_name = "G")]
    groups: usize,
    #[command(flatten)]
    options: Options,
}

/// [`Layout`], as an option names it.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum Order {
    /// Channel before row and column
    Nchw,
    /// Channel last
    Nhwc,
}

/// Numbers between separators.
fn numbers(name: &str, text: &str, separator: char) -> anyhow::Result<Vec<usize>> {
    let parse = |number: &str| number.trim().parse().with_context(|| format!("{name} {text}: {number:?} is no number"));
    text.split(separator).map(parse).collect()
}

/// L numbers, or one for all.
fn spread<const L: usize>(option: &str, text: &str) -> anyhow::Result<[usize; L]> {
    match numbers(option, text, ',')?.as_slice() {
        &[one] => Ok([one; L]),
        all => all.try_into().ok().with_context(|| format!("{option} {text}: one number, or {L}")),
    }
}

impl Args {
    fn conv(&self) -> anyhow::Result<(Conv, [usize; 4], [usize; 4])> {
        let shape = |name: &str, text: &str| -> anyhow::Result<[usize; 4]> {
            numbers(name, text, 'x')?
                .try_into()
                .ok()
                .with_context(|| format!("{name} {text}: four extents, as in 1x3x32x32"))
        };
        let (images, filters) = (shape("images", &self.images)?, shape("filters", &self.filters)?);
        let (layout, [channels, height, width], [depth, rows, cols]) = match self.layout {
            Order::Nchw => (Layout::Nchw, [1, 2, 3].map(|i| images[i]), [1, 2, 3].map(|i| filters[i])),
            Order::Nhwc => (Layout::Nhwc, [3, 1, 2].map(|i| images[i]), [3, 1, 2].map(|i| filters[i])),
        };
        let conv = Conv {
            layout,
            batch: images[0],
            channels,
            size: [height, width],
            filters: filters[0],
            kernel: [rows, cols],
            stride: spread("--stride", &self.stride)?,
            padding: spread("--pad", &self.pad)?,
            dilation: spread("--dilation", &self.dilation)?,
            groups: self.groups,
        }
        .checked()?;
        if depth * conv.groups != channels {
            bail!("filters of {depth} channels in {} groups: the images have {channels} channels", conv.groups);
        }
        Ok((conv, images, filters))
    }
}

/// X of a job, as its lanes' generators read it.
fn patches(conv: &Conv, job: &ConvJob, image: &Matrix, x_zero: i32) -> Matrix {
    match image {
        Matrix::Int(codes) => Matrix::Int(conv.patches(job, codes, x_zero as i8)),
        Matrix::Bits8(codes) => Matrix::Bits8(conv.patches(job, codes, 0)),
        Matrix::Bits16(codes) => Matrix::Bits16(conv.patches(job, codes, 0)),
    }
}

/// W of a group, K × N.
fn weights(conv: &Conv, group: usize, filters: &Matrix) -> Matrix {
    match filters {
        Matrix::Int(codes) => Matrix::Int(conv.weights(group, codes)),
        Matrix::Bits8(codes) => Matrix::Bits8(conv.weights(group, codes)),
        Matrix::Bits16(codes) => Matrix::Bits16(conv.weights(group, codes)),
    }
}

/// Runs the command.
///
/// # Errors
/// A convolution that cannot be run, options that exclude each other, files that cannot be read or do not fit.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let setup = args.options.setup()?;
    let (conv, images, filters) = args.conv()?;
    let [height, width] = conv.out_size();
    let shape = match args.layout {
        Order::Nchw => [conv.batch, conv.filters, height, width],
        Order::Nhwc => [conv.batch, height, width, conv.filters],
    };
    for (what, extents) in [("the images", images), ("the filters", filters), ("the result", shape)] {
        check_size(what, &extents)?;
    }
    let image = setup.a.matrix(setup.load_a()?, &images, args.options.seed)?;
    let filter = setup.b.matrix(setup.load_b()?, &filters, args.options.seed)?;
    let finish = Finish::new(&setup, conv.filters)?;
    let jobs = conv.jobs(setup.config.depth);
    if let Some(job) = jobs.first() {
        check_size("the patches of a job", &[job.job.m, job.job.k])?;
    }
    let mut machine = Machine::new(&setup)?;
    let mut mode = Mode::Gemm(Box::new(Processor::new(setup.config)));
    let mut all = Finished { codes: vec![0; shape.iter().product()], ..Finished::default() };
    for job in &jobs {
        let (x, w) =
            (patches(&conv, job, &image.matrix, finish.output.x_zero), weights(&conv, job.group, &filter.matrix));
        let ran = machine.run(&mut mode, job.job, &x, &w)?;
        let columns = &finish.columns[job.group * job.job.n..][..job.job.n];
        let Finished { codes, flags, wrapped } = finish.apply(&setup, job.job, &ran, (&x, &w), columns);
        conv.place(job, &codes, &mut all.codes);
        all.flags |= flags;
        all.wrapped += wrapped;
    }
    let result = finish.npy(&shape, &all.codes)?;
    write(&args.options, &result)?;
    let shown = Shown {
        title: format!("conv {} * {}", args.images, args.filters),
        extents: serde_json::json!({
            "images": images, "filters": filters, "stride": conv.stride, "pad": conv.padding,
            "dilation": conv.dilation, "groups": conv.groups, "layout": format!("{:?}", args.layout).to_lowercase(),
        }),
        feeds: "a row of patches enters",
        tally: machine.finish()?,
        flags: all.flags,
        wrapped: all.wrapped,
        read: [image.read, filter.read],
        format: finish.output.format,
        result,
    };
    Ok(shown.print(&setup))
}
