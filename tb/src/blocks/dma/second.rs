//! A second reference for the presets: golden's definitions over n-dimensional index maps, bound to places in memory.

use super::reference::Image;
use anyhow::Context;
use dma::{Element, Layout, Preset};
use golden::nd::{Nd, indices};

/// A tensor in memory: byte address of its first element, strides in bytes (nibbles for INT4).
struct View {
    origin: i64,
    shape: Vec<usize>,
    strides: Vec<i64>,
    element: Element,
}

impl View {
    fn new(element: Element, origin: i64, shape: &[u32], strides: &[i64]) -> Self {
        Self { origin, shape: shape.iter().map(|&n| n as usize).collect(), strides: strides.to_vec(), element }
    }

    fn dense(element: Element, origin: i64, shape: &[u32]) -> Self {
        let mut strides = vec![element.step(); shape.len()];
        for d in (1..shape.len()).rev() {
            strides[d - 1] = strides[d] * i64::from(shape[d]);
        }
        Self::new(element, origin, shape, &strides)
    }

    /// Loads the tensor; a nibble becomes a byte.
    fn load(&self, image: &Image) -> anyhow::Result<Nd> {
        let mut bytes = Vec::new();
        let size = self.element.code().max(1).into();
        for index in indices(&self.shape) {
            let offset: i64 = index.iter().zip(&self.strides).map(|(&i, s)| i as i64 * s).sum();
            let int4 = self.element == Element::Int4;
            let address = self.origin as u64 + if int4 { offset / 2 } else { offset } as u64;
            let at = (address - image.base) as usize;
            let element = image.bytes.get(at..at + size).context("a tensor leaves the memory")?;
            match int4 {
                true => bytes.push(element[0] >> (4 * (offset % 2)) & 0xf),
                false => bytes.extend_from_slice(element),
            }
        }
        Ok(Nd::new(&self.shape, size, bytes)?)
    }
}

/// What a preset must leave at its destination, and what a memory holds there. `origins` are the addresses of the preset's places,
/// source and destination; `lists` their index lists.
///
/// # Errors
/// If golden gives the preset no meaning, or a tensor lies outside a memory: a fault of the bench.
pub(super) fn tensors(
    preset: &Preset,
    origins: [i64; 2],
    lists: &[Vec<i64>; 2],
    before: &Image,
    after: &Image,
) -> anyhow::Result<(Nd, Nd)> {
    let [s, d] = origins;
    let list = |side: usize| -> Vec<usize> { lists[side].iter().map(|&i| i as usize).collect() };
    // Source, what golden makes of it, and where that goes.
    let (expected, to) = match *preset {
        Preset::Copy2d { element, shape, source_pitch, destination_pitch, .. } => {
            let from = View::new(element, s, &shape, &[source_pitch, element.step()]);
            (from.load(before)?, View::new(element, d, &shape, &[destination_pitch, element.step()]))
        }
        Preset::Copy3d { element, shape, source_pitches: [p, r], destination_pitches: [q, t], .. } => {
            let from = View::new(element, s, &shape, &[p, r, element.step()]);
            (from.load(before)?, View::new(element, d, &shape, &[q, t, element.step()]))
        }
        Preset::GatherRows { element, shape, source_pitch, destination_pitch, list: l, .. } => {
            let from = View::new(element, s, &[l.bound, shape[1]], &[source_pitch, element.step()]);
            let to = View::new(element, d, &shape, &[destination_pitch, element.step()]);
            (from.load(before)?.gather(0, &list(0))?, to)
        }
        Preset::GatherPlanes {
            element,
            shape: [planes, rows, columns],
            source_pitches: [p, r],
            destination_pitches: [q, t],
            list: l,
            ..
        } => {
            let from = View::new(element, s, &[l.bound, rows, columns], &[p, r, element.step()]);
            let to = View::new(element, d, &[planes, rows, columns], &[q, t, element.step()]);
            (from.load(before)?.gather(0, &list(0))?, to)
        }
        Preset::ScatterRows { element, shape, source_pitch, destination_pitch, list: l, .. } => {
            let from = View::new(element, s, &shape, &[source_pitch, element.step()]);
            let to = View::new(element, d, &[l.bound, shape[1]], &[destination_pitch, element.step()]);
            (to.load(before)?.scatter(0, &list(1), &from.load(before)?)?, to)
        }
        Preset::ScatterPlanes {
            element, shape, source_pitches: [p, r], destination_pitches: [q, t], list: l, ..
        } => {
            let from = View::new(element, s, &shape, &[p, r, element.step()]);
            let to = View::new(element, d, &[l.bound, shape[1], shape[2]], &[q, t, element.step()]);
            (to.load(before)?.scatter(0, &list(1), &from.load(before)?)?, to)
        }
        Preset::Permute { element, shape, order, .. } => {
            let moved = View::dense(element, s, &shape).load(before)?.transpose(&order.map(usize::from))?;
            (moved, View::dense(element, d, &order.map(|o| shape[usize::from(o)])))
        }
        Preset::Im2col { element, shape: [c, h, w], layout, ref kernel, fill, .. } => {
            let size = usize::from(element.code().max(1));
            let fill = if element == Element::Int4 { fill & 0xf } else { fill };
            let image = match layout {
                Layout::Nchw => View::dense(element, s, &[c, h, w]).load(before)?,
                Layout::Nhwc => View::dense(element, s, &[h, w, c]).load(before)?.transpose(&[2, 0, 1])?,
            };
            let [taps, stride, padding, dilation] =
                [kernel.size, kernel.stride, kernel.padding, kernel.dilation].map(|pair| pair.map(|n| n as usize));
            let windows = image.windows(taps, stride, padding, dilation, &fill.to_le_bytes()[..size])?;
            let windows = match layout {
                Layout::Nchw => windows,
                Layout::Nhwc => windows.transpose(&[3, 4, 1, 2, 0])?,
            };
            let shape: Vec<u32> = windows.shape().iter().map(|&n| n as u32).collect();
            (windows, View::dense(element, d, &shape))
        }
        Preset::Interleave { element, parts, count, .. } => {
            let moved = View::dense(element, s, &[parts, count]).load(before)?.transpose(&[1, 0])?;
            (moved, View::dense(element, d, &[count, parts]))
        }
        Preset::Deinterleave { element, parts, count, .. } => {
            let moved = View::dense(element, s, &[count, parts]).load(before)?.transpose(&[1, 0])?;
            (moved, View::dense(element, d, &[parts, count]))
        }
        Preset::Broadcast { element, count, copies, .. } => {
            let copied = View::dense(element, s, &[count]).load(before)?.broadcast(copies as usize)?;
            (copied, View::dense(element, d, &[copies, count]))
        }
        Preset::Fill { element, shape, value, destination_pitch, .. } => {
            let value = if element == Element::Int4 { value & 0xf } else { value };
            let size = usize::from(element.code().max(1));
            let filled = Nd::full(&shape.map(|n| n as usize), &value.to_le_bytes()[..size])?;
            (filled, View::new(element, d, &shape, &[destination_pitch, element.step()]))
        }
        Preset::KvPages { element, page, pages, pool, .. } => {
            let gathered = View::dense(element, s, &[pool, page]).load(before)?.gather(0, &list(0))?;
            (gathered, View::dense(element, d, &[pages, page]))
        }
    };
    let got = to.load(after)?;
    Ok((expected, got))
}
