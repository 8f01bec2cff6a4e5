//! Convolution as an implicit matrix product: X[M, K] has a row for each output pixel and a column for each value under the kernel,
//! and is never stored. An address generator in front of each lane of the array reads it out of the image.
//!
//! ```text
//!   image ──► lane 0: generator ─► in bounds? value : padding ──┐
//!         ──► lane 1: generator ─► in bounds? value : padding ──┼─► x stream of the processor
//!         ──► …                                                 ┘
//! ```
//!
//! A convolution is cut into jobs: one for each group of channels and each box of at most D output pixels, whole images if they fit,
//! else whole rows, else pieces of a row. So every job is a single M-block, and each lane walks a nest of three loops
//! (images, rows, columns of the box) from the address that its k gives.

mod feeder;
#[cfg(test)]
mod tests;

pub use feeder::PatchFeeder;

use crate::{Config, Job, gemm_cycles};
use std::ops::Range;

/// Largest extent of a dimension.
const MAX_EXTENT: usize = 1 << 20;
/// Most values of an image, of the weights or of a result.
const MAX_VALUES: usize = 1 << 31;

/// How images and weights lie in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Image (batch, channel, row, column); weights (filter, channel of the group, row, column); k in that order.
    #[default]
    Nchw,
    /// Image (batch, row, column, channel); weights (filter, row, column, channel of the group); k in that order.
    Nhwc,
}

/// The geometry of a two-dimensional convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv {
    /// Of image, weights and result.
    pub layout: Layout,
    /// Images.
    pub batch: usize,
    /// Channels of an image.
    pub channels: usize,
    /// Rows and columns of an image.
    pub size: [usize; 2],
    /// Channels of the result.
    pub filters: usize,
    /// Rows and columns of the kernel.
    pub kernel: [usize; 2],
    /// From one output pixel to the next: down, across.
    pub stride: [usize; 2],
    /// Rows above, columns to the left, rows below, columns to the right; any of them may differ.
    pub padding: [usize; 4],
    /// From one value of the kernel to the next: down, across.
    pub dilation: [usize; 2],
    /// Groups of channels; as many as there are channels is a depthwise convolution.
    pub groups: usize,
}

/// A convolution that cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvError {
    /// An extent, stride or dilation of zero or beyond 2²⁰.
    #[error("{what} = {value}: it must lie in 1..={MAX_EXTENT}")]
    Extent {
        /// Which.
        what: &'static str,
        /// Its value.
        value: usize,
    },
    /// Padding beyond 2²⁰.
    #[error("padding of {0}: at most {MAX_EXTENT}")]
    Padding(usize),
    /// Groups that do not divide the channels.
    #[error("{groups} groups do not divide {what} = {value}")]
    Groups {
        /// Groups.
        groups: usize,
        /// `channels` or `filters`.
        what: &'static str,
        /// Their number.
        value: usize,
    },
    /// The kernel does not fit the padded image.
    #[error("a kernel that spans {span} does not fit into {padded} {axis} of the padded image")]
    Kernel {
        /// `rows` or `columns`.
        axis: &'static str,
        /// What the dilated kernel covers.
        span: usize,
        /// What there is.
        padded: usize,
    },
    /// Too many values.
    #[error("{what} of {values} values: at most {MAX_VALUES}")]
    TooLarge {
        /// `an image`, `weights` or `a result`.
        what: &'static str,
        /// Their number.
        values: u128,
    },
}

/// A box of output pixels of one group: one job of the processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvJob {
    /// Group of channels.
    pub group: usize,
    /// Images of the box.
    pub images: Range<usize>,
    /// Rows of the result.
    pub rows: Range<usize>,
    /// Columns of the result.
    pub cols: Range<usize>,
    /// The matrix product: M pixels in the order images, rows, columns; N filters of the group; K values under the kernel.
    pub job: Job,
}

/// Where lane k of a job looks: its channel of the image and its place under the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tap {
    channel: usize,
    kernel: [usize; 2],
}

impl Conv {
    /// The same convolution, if it can be run.
    ///
    /// # Errors
    /// Names what is out of range.
    pub fn checked(self) -> Result<Self, ConvError> {
        let extents = [
            ("batch", self.batch),
            ("channels", self.channels),
            ("height", self.size[0]),
            ("width", self.size[1]),
            ("filters", self.filters),
            ("kernel rows", self.kernel[0]),
            ("kernel columns", self.kernel[1]),
            ("stride down", self.stride[0]),
            ("stride across", self.stride[1]),
            ("dilation down", self.dilation[0]),
            ("dilation across", self.dilation[1]),
            ("groups", self.groups),
        ];
        if let Some((what, value)) = extents.into_iter().find(|(_, v)| !(1..=MAX_EXTENT).contains(v)) {
            return Err(ConvError::Extent { what, value });
        }
        if let Some(&padding) = self.padding.iter().find(|&&p| p > MAX_EXTENT) {
            return Err(ConvError::Padding(padding));
        }
        for (what, value) in [("channels", self.channels), ("filters", self.filters)] {
            if !value.is_multiple_of(self.groups) {
                return Err(ConvError::Groups { groups: self.groups, what, value });
            }
        }
        for (axis, name) in ["rows", "columns"].into_iter().enumerate() {
            let (span, padded) = (self.span(axis), self.size[axis] + self.padding[axis] + self.padding[axis + 2]);
            if span > padded {
                return Err(ConvError::Kernel { axis: name, span, padded });
            }
        }
        let [height, width] = self.out_size();
        let sizes = [
            ("an image", [self.batch, self.channels, self.size[0], self.size[1]]),
            ("weights", [self.filters, self.channels / self.groups, self.kernel[0], self.kernel[1]]),
            ("a result", [self.batch, self.filters, height, width]),
        ];
        for (what, extents) in sizes {
            let values = extents.into_iter().map(|v| v as u128).product();
            if values > MAX_VALUES as u128 {
                return Err(ConvError::TooLarge { what, values });
            }
        }
        Ok(self)
    }

    /// Rows or columns that the dilated kernel covers.
    fn span(&self, axis: usize) -> usize {
        (self.kernel[axis] - 1) * self.dilation[axis] + 1
    }

    /// Rows and columns of the result.
    pub fn out_size(&self) -> [usize; 2] {
        [0, 1].map(|axis| {
            let padded = self.size[axis] + self.padding[axis] + self.padding[axis + 2];
            (padded - self.span(axis)) / self.stride[axis] + 1
        })
    }

    /// Values of an image batch, of the weights and of the result.
    pub fn lengths(&self) -> [usize; 3] {
        let [height, width] = self.out_size();
        let filter = self.channels / self.groups * self.kernel[0] * self.kernel[1];
        [
            self.batch * self.channels * self.size[0] * self.size[1],
            self.filters * filter,
            self.batch * self.filters * height * width,
        ]
    }

    /// The jobs, in their order: boxes of at most `depth` pixels, and within a box the groups.
    pub fn jobs(&self, depth: usize) -> Vec<ConvJob> {
        let [height, width] = self.out_size();
        let images = (depth / (height * width)).max(1);
        let rows = if images > 1 { height } else { (depth / width).clamp(1, height) };
        let cols = width.min(depth);
        let (n, k) = (self.filters / self.groups, self.channels / self.groups * self.kernel[0] * self.kernel[1]);
        let pieces = |whole: usize, piece: usize| (0..whole).step_by(piece).map(move |s| s..(s + piece).min(whole));
        let mut jobs = Vec::new();
        for images in pieces(self.batch, images) {
            for rows in pieces(height, rows) {
                for cols in pieces(width, cols) {
                    let m = images.len() * rows.len() * cols.len();
                    let one = |group| ConvJob {
                        group,
                        images: images.clone(),
                        rows: rows.clone(),
                        cols: cols.clone(),
                        job: Job { m, n, k },
                    };
                    jobs.extend((0..self.groups).map(one));
                }
            }
        }
        jobs
    }

    /// Cycles without stalls: the jobs run one after the other, each by [`gemm_cycles`].
    pub fn cycles(&self, config: Config) -> u64 {
        self.jobs(config.depth).iter().map(|j| gemm_cycles(config, j.job)).sum()
    }

    fn tap(&self, group: usize, k: usize) -> Tap {
        let ([rows, cols], channels) = (self.kernel, self.channels / self.groups);
        let (channel, row, col) = match self.layout {
            Layout::Nchw => (k / (rows * cols), k / cols % rows, k % cols),
            Layout::Nhwc => (k % channels, k / (cols * channels), k / channels % cols),
        };
        Tap { channel: group * channels + channel, kernel: [row, col] }
    }

    /// Distance in the image of neighbours in batch, channel, row and column.
    fn strides(&self) -> [i64; 4] {
        let [channels, height, width] = [self.channels, self.size[0], self.size[1]].map(|v| v as i64);
        match self.layout {
            Layout::Nchw => [channels * height * width, height * width, width, 1],
            Layout::Nhwc => [channels * height * width, 1, width * channels, channels],
        }
    }

    /// X of a job, M × K, as the lanes' generators read it; places outside the image hold `padding`.
    pub fn patches<T: Copy>(&self, job: &ConvJob, image: &[T], padding: T) -> Vec<T> {
        let mut x = Vec::with_capacity(job.job.m * job.job.k);
        let [image_stride, channel_stride, row_stride, col_stride] = self.strides();
        let taps: Vec<Tap> = (0..job.job.k).map(|k| self.tap(job.group, k)).collect();
        let place = |axis: usize, out: usize, tap: &Tap| {
            let at = out * self.stride[axis] + tap.kernel[axis] * self.dilation[axis];
            at.checked_sub(self.padding[axis]).filter(|&at| at < self.size[axis])
        };
        for n in job.images.clone() {
            for row in job.rows.clone() {
                for col in job.cols.clone() {
                    x.extend(taps.iter().map(|tap| match (place(0, row, tap), place(1, col, tap)) {
                        (Some(row), Some(col)) => {
                            let [n, channel, row, col] = [n, tap.channel, row, col].map(|v| v as i64);
                            let at = n * image_stride + channel * channel_stride + row * row_stride + col * col_stride;
                            image[at as usize]
                        }
                        _ => padding,
                    }));
                }
            }
        }
        x
    }

    /// W of a group, K × N, out of the convolution's weights.
    pub fn weights<T: Copy>(&self, group: usize, weights: &[T]) -> Vec<T> {
        let n = self.filters / self.groups;
        let k = weights.len() / self.filters;
        let group = &weights[group * n * k..][..n * k];
        (0..k * n).map(|i| group[i % n * k + i / n]).collect()
    }

    /// Puts a job's Y, M × N, where it belongs in the result.
    pub fn place<T: Copy>(&self, job: &ConvJob, y: &[T], result: &mut [T]) {
        let [height, width] = self.out_size();
        let mut rows = y.chunks_exact(job.job.n);
        for image in job.images.clone() {
            for row in job.rows.clone() {
                for col in job.cols.clone() {
                    for (n, &value) in rows.next().into_iter().flatten().enumerate() {
                        let filter = job.group * job.job.n + n;
                        let at = match self.layout {
                            Layout::Nchw => ((image * self.filters + filter) * height + row) * width + col,
                            Layout::Nhwc => ((image * height + row) * width + col) * self.filters + filter,
                        };
                        result[at] = value;
                    }
                }
            }
        }
    }
}
