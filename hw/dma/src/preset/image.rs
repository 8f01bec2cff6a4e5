//! Convolution as a matrix: the window and its chain of descriptors.

use super::{Place, PresetError};
use crate::{Descriptor, Element, Window};
use serde::{Deserialize, Serialize};

/// Layout of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Channels outermost.
    Nchw,
    /// Channels innermost.
    #[default]
    Nhwc,
}

/// A convolution's window, for [`Preset::Im2col`]. Pairs are (vertical, horizontal).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// Taps.
    pub size: [u32; 2],
    /// Distance of neighbouring outputs.
    #[serde(default = "ones")]
    pub stride: [u32; 2],
    /// Rows above and below, columns left and right.
    #[serde(default)]
    pub padding: [u32; 2],
    /// Distance of neighbouring taps.
    #[serde(default = "ones")]
    pub dilation: [u32; 2],
}

fn ones() -> [u32; 2] {
    [1, 1]
}

impl Kernel {
    /// Outputs along axis `a` of an image of `extent`.
    pub fn outputs(&self, a: usize, extent: u32) -> u32 {
        let field = u64::from(self.dilation[a]) * u64::from(self.size[a].saturating_sub(1)) + 1;
        let padded = u64::from(extent) + 2 * u64::from(self.padding[a]);
        match padded.checked_sub(field) {
            Some(room) if self.stride[a] > 0 && self.size[a] > 0 => (room / u64::from(self.stride[a])) as u32 + 1,
            _ => 0,
        }
    }

    /// Outputs [lo, hi) whose tap `t` lies inside an image of `extent` along axis `a`.
    fn inside(&self, a: usize, t: u32, extent: u32) -> (u32, u32) {
        let (stride, outputs) = (i64::from(self.stride[a].max(1)), i64::from(self.outputs(a, extent)));
        let at = i64::from(t) * i64::from(self.dilation[a]) - i64::from(self.padding[a]);
        let first = |limit: i64| (limit - at + stride - 1).div_euclid(stride).clamp(0, outputs);
        (first(0) as u32, first(i64::from(extent)) as u32)
    }
}

/// One descriptor a tap, a window keeping each inside the image.
pub(super) fn im2col(
    element: Element,
    shape: [u32; 3],
    layout: Layout,
    kernel: &Kernel,
    fill: u64,
    source: Place,
    destination: Place,
) -> Result<Vec<Descriptor>, PresetError> {
    if kernel.size.contains(&0) || kernel.stride.contains(&0) {
        return Err(PresetError::Kernel { size: kernel.size, stride: kernel.stride });
    }
    let [channels, height, width] = shape;
    let extent = [height, width];
    let [oh, ow] = [kernel.outputs(0, height), kernel.outputs(1, width)];
    let taps = i128::from(kernel.size[0]) * i128::from(kernel.size[1]);
    let step = i128::from(element.step());
    let [c, h, w] = shape.map(i128::from);
    let [sh, sw] = kernel.stride.map(i128::from);
    let fit = |v: i128| i64::try_from(v).map_err(|_| PresetError::TooLarge(shape));
    let strides = |v: [i128; 3]| Ok([fit(v[0] * step)?, fit(v[1] * step)?, fit(v[2] * step)?]);
    let mut chain = Vec::new();
    for ky in 0..kernel.size[0] {
        for kx in 0..kernel.size[1] {
            let tap = i128::from(ky) * i128::from(kernel.size[1]) + i128::from(kx);
            let y = i128::from(ky) * i128::from(kernel.dilation[0]) - i128::from(kernel.padding[0]);
            let x = i128::from(kx) * i128::from(kernel.dilation[1]) - i128::from(kernel.padding[1]);
            let [(y0, y1), (x0, x1)] = [kernel.inside(0, ky, extent[0]), kernel.inside(1, kx, extent[1])];
            let [oh_, ow_] = [i128::from(oh), i128::from(ow)];
            let (counts, from, from_at, to, to_at, lo, hi) = match layout {
                Layout::Nhwc => (
                    [oh, ow, channels],
                    [sh * w * c, sw * c, 1],
                    (y * w + x) * c,
                    [ow_ * taps * c, taps * c, 1],
                    tap * c,
                    [y0, x0, 0],
                    [y1, x1, channels],
                ),
                Layout::Nchw => (
                    [channels, oh, ow],
                    [h * w, sh * w, sw],
                    y * w + x,
                    [taps * oh_ * ow_, ow_, 1],
                    tap * oh_ * ow_,
                    [0, y0, x0],
                    [channels, y1, x1],
                ),
            };
            let at = |place: Place, extra: i128| {
                Ok(Place { offset: fit(i128::from(place.offset) + extra * step)?, ..place })
            };
            chain.push(Descriptor {
                element,
                counts,
                source: at(source, from_at)?.side(strides(from)?),
                destination: at(destination, to_at)?.side(strides(to)?),
                window: Some(Window { lo, hi, fill }),
                ..Descriptor::default()
            });
        }
    }
    Ok(chain)
}
