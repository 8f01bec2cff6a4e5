use super::{Conv, ConvJob};
use rtl::{AddressGenerator, AddressIn, Loops, Module, Visitor};
use std::ops::Range;

/// What one lane looks for while it walks a box.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Window {
    /// Row and column in the image of the box's first pixel; negative in the padding.
    first: [i64; 2],
    /// The convolution's strides.
    step: [i64; 2],
    /// Rows and columns of the image.
    size: [i64; 2],
}

impl Window {
    /// Whether the pixel of the given indices within the box lies in the image.
    fn contains(&self, index: [u32; 2]) -> bool {
        (0..2).all(|axis| (0..self.size[axis]).contains(&(self.first[axis] + i64::from(index[axis]) * self.step[axis])))
    }
}

/// Makes the activation rows of a convolution, tile by tile: an address generator a lane, and a comparison that replaces what lies
/// outside the image by the padding value.
#[derive(Clone, Debug)]
pub struct PatchFeeder {
    lanes: Vec<AddressGenerator<3>>,
    windows: Vec<Window>,
    /// Lanes in use.
    depth: usize,
}

impl PatchFeeder {
    /// A feeder for tiles of up to `depth` k-steps, idle.
    pub fn new(depth: usize) -> Self {
        Self { lanes: vec![AddressGenerator::default(); depth], windows: vec![Window::default(); depth], depth: 0 }
    }

    /// Starts a k-tile of a job: the lanes of `k` walk its box from the first pixel. `k` fits the lanes.
    pub fn start(&mut self, conv: &Conv, job: &ConvJob, k: Range<usize>) {
        let [image_stride, channel_stride, row_stride, col_stride] = conv.strides();
        self.depth = k.len();
        for ((lane, window), k) in self.lanes.iter_mut().zip(&mut self.windows).zip(k) {
            let tap = conv.tap(job.group, k);
            let first = [(0, job.rows.start), (1, job.cols.start)].map(|(axis, out)| {
                let at = out * conv.stride[axis] + tap.kernel[axis] * conv.dilation[axis];
                at as i64 - conv.padding[axis] as i64
            });
            let step = conv.stride.map(|s| s as i64);
            *window = Window { first, step, size: conv.size.map(|s| s as i64) };
            let loops = Loops {
                base: job.images.start as i64 * image_stride
                    + tap.channel as i64 * channel_stride
                    + first[0] * row_stride
                    + first[1] * col_stride,
                counts: [&job.images, &job.rows, &job.cols].map(|r| r.len() as u32),
                strides: [image_stride, step[0] * row_stride, step[1] * col_stride],
            };
            lane.clock(&AddressIn { start: Some(&loops), step: false });
        }
    }

    /// The row on offer: one value for each k of the tile. Leaves `row` empty past the last pixel.
    pub fn row<T: Copy>(&self, image: &[T], padding: T, row: &mut Vec<T>) {
        row.clear();
        for (lane, window) in self.lanes.iter().zip(&self.windows).take(self.depth) {
            let out = lane.out();
            if out.valid {
                let [_, r, c] = out.index;
                row.push(if window.contains([r, c]) { image[out.address as usize] } else { padding });
            }
        }
    }

    /// The edge on which the row is taken: every lane steps on.
    pub fn step(&mut self) {
        for lane in self.lanes.iter_mut().take(self.depth) {
            lane.clock(&AddressIn { start: None, step: true });
        }
    }

    /// Shows the registers of every lane.
    pub fn visit(&mut self, v: &mut impl Visitor) {
        for (r, lane) in self.lanes.iter_mut().enumerate() {
            v.scope(("lane", r), |v| lane.visit(v));
        }
    }
}
