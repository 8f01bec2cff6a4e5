mod image;
mod operand;

use crate::{Descriptor, Element, INDEX_ENTRIES, IndexList, Remap, WIRE_BYTES, Window};
use image::im2col;
pub use image::{Kernel, Layout};
pub use operand::{List, Place};
use serde::{Deserialize, Serialize};

/// Common moves; each becomes one descriptor or a short chain. Pitches are distances of rows in bytes (nibbles for INT4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "preset", rename_all = "snake_case", deny_unknown_fields)]
pub enum Preset {
    /// Rows of `columns` elements.
    Copy2d {
        /// Element size.
        element: Element,
        /// Rows and columns.
        shape: [u32; 2],
        /// From where.
        source: Place,
        /// Source pitch.
        source_pitch: i64,
        /// To where.
        destination: Place,
        /// Destination pitch.
        destination_pitch: i64,
    },
    /// A box out of a volume into another; the inner dimension is contiguous.
    Copy3d {
        /// Element size.
        element: Element,
        /// Planes, rows, columns.
        shape: [u32; 3],
        /// From where.
        source: Place,
        /// Plane and row pitch of the source.
        source_pitches: [i64; 2],
        /// To where.
        destination: Place,
        /// Plane and row pitch of the destination.
        destination_pitches: [i64; 2],
    },
    /// Row `list[i]` of the source becomes row i.
    GatherRows {
        /// Element size.
        element: Element,
        /// Rows (entries of the list) and columns.
        shape: [u32; 2],
        /// From where.
        source: Place,
        /// Source pitch.
        source_pitch: i64,
        /// To where.
        destination: Place,
        /// Destination pitch.
        destination_pitch: i64,
        /// The list.
        list: List,
    },
    /// Plane `list[i]` of the source becomes plane i.
    GatherPlanes {
        /// Element size.
        element: Element,
        /// Planes (entries of the list), rows, columns.
        shape: [u32; 3],
        /// From where.
        source: Place,
        /// Plane and row pitch of the source.
        source_pitches: [i64; 2],
        /// To where.
        destination: Place,
        /// Plane and row pitch of the destination.
        destination_pitches: [i64; 2],
        /// The list.
        list: List,
    },
    /// Row i of the source becomes row `list[i]`.
    ScatterRows {
        /// Element size.
        element: Element,
        /// Rows (entries of the list) and columns.
        shape: [u32; 2],
        /// From where.
        source: Place,
        /// Source pitch.
        source_pitch: i64,
        /// To where.
        destination: Place,
        /// Destination pitch.
        destination_pitch: i64,
        /// The list.
        list: List,
    },
    /// Plane i of the source becomes plane `list[i]`.
    ScatterPlanes {
        /// Element size.
        element: Element,
        /// Planes (entries of the list), rows, columns.
        shape: [u32; 3],
        /// From where.
        source: Place,
        /// Plane and row pitch of the source.
        source_pitches: [i64; 2],
        /// To where.
        destination: Place,
        /// Plane and row pitch of the destination.
        destination_pitches: [i64; 2],
        /// The list.
        list: List,
    },
    /// A dense tensor with its dimensions in another order: dimension d of the result is dimension `order[d]` of the source.
    Permute {
        /// Element size.
        element: Element,
        /// Shape of the source.
        shape: [u32; 3],
        /// A permutation of 0, 1, 2.
        order: [u8; 3],
        /// From where.
        source: Place,
        /// To where.
        destination: Place,
    },
    /// Convolution as a matrix: a chain of one descriptor a tap. NHWC gives rows (output pixel) × (tap, channel), NCHW gives
    /// (channel, tap) × (output pixel).
    Im2col {
        /// Element size.
        element: Element,
        /// Channels, height, width.
        shape: [u32; 3],
        /// Layout of the image.
        #[serde(default)]
        layout: Layout,
        /// The window.
        kernel: Kernel,
        /// Value of the padding.
        #[serde(default)]
        fill: u64,
        /// From where.
        source: Place,
        /// To where.
        destination: Place,
    },
    /// `parts` vectors one after the other become one with their elements in turn.
    Interleave {
        /// Element size.
        element: Element,
        /// Vectors.
        parts: u32,
        /// Elements of each.
        count: u32,
        /// From where.
        source: Place,
        /// To where.
        destination: Place,
    },
    /// The other way round.
    Deinterleave {
        /// Element size.
        element: Element,
        /// Vectors.
        parts: u32,
        /// Elements of each.
        count: u32,
        /// From where.
        source: Place,
        /// To where.
        destination: Place,
    },
    /// A vector again and again.
    Broadcast {
        /// Element size.
        element: Element,
        /// Elements.
        count: u32,
        /// Copies.
        copies: u32,
        /// From where.
        source: Place,
        /// To where.
        destination: Place,
    },
    /// A value everywhere; nothing is read.
    Fill {
        /// Element size.
        element: Element,
        /// Rows and columns.
        shape: [u32; 2],
        /// The value.
        value: u64,
        /// To where.
        destination: Place,
        /// Destination pitch.
        destination_pitch: i64,
    },
    /// Pages of a paged cache, in the order of a block table of signed 32-bit page numbers.
    KvPages {
        /// Element size.
        element: Element,
        /// Elements a page.
        page: u32,
        /// Pages to gather: entries of the table.
        pages: u32,
        /// Pages in the pool.
        pool: u32,
        /// The pool.
        source: Place,
        /// The block table: region and byte offset.
        table: Place,
        /// To where.
        destination: Place,
    },
}

/// A preset that has no descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PresetError {
    /// The order of a permute.
    #[error("order {0:?} is no permutation of 0, 1, 2")]
    Order([u8; 3]),
    /// A kernel with a zero stride or size.
    #[error("a kernel of size {size:?} and stride {stride:?} has no output: both must be at least 1")]
    Kernel {
        /// Its size.
        size: [u32; 2],
        /// Its stride.
        stride: [u32; 2],
    },
    /// An offset past 64 bits.
    #[error("shape {0:?} is too large: an offset does not fit in 64 bits")]
    TooLarge([u32; 3]),
}

/// Strides of a dense tensor; `None` if they do not fit.
fn dense(shape: [u32; 3], step: i64) -> Option<[i64; 3]> {
    let row = i64::from(shape[2]).checked_mul(step)?;
    Some([row.checked_mul(i64::from(shape[1]))?, row, step])
}

/// Cuts a list of more entries than the index SRAM holds into a chain.
fn split(whole: Descriptor) -> Vec<Descriptor> {
    let Some((from_source, index)) =
        whole.source.index.map(|x| (true, x)).or(whole.destination.index.map(|x| (false, x)))
    else {
        return vec![whole];
    };
    let dim = usize::from(index.dimension);
    let width = if whole.wide_index { 4 } else { 2 };
    let mut chain = Vec::new();
    let mut done = 0;
    while done < whole.counts[dim] || chain.is_empty() {
        let mut part = whole;
        part.counts[dim] = (whole.counts[dim] - done).min(INDEX_ENTRIES);
        let (listed, plain) = match from_source {
            true => (&mut part.source, &mut part.destination),
            false => (&mut part.destination, &mut part.source),
        };
        listed.index = Some(IndexList { offset: index.offset + u64::from(done) * width, ..index });
        plain.offset = plain.offset.wrapping_add(i64::from(done).wrapping_mul(plain.strides[dim]));
        done += part.counts[dim];
        chain.push(part);
    }
    chain
}

fn listed(mut d: Descriptor, list: &List, scatter: bool, dimension: u8) -> Vec<Descriptor> {
    let index = Some(IndexList { region: list.region, offset: list.offset, dimension, bound: list.bound });
    if scatter {
        d.destination.index = index;
    } else {
        d.source.index = index;
    }
    (d.wide_index, d.clamp) = (list.wide, list.clamp);
    split(d)
}

impl Preset {
    /// The preset's name in the serde form.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Copy2d { .. } => "copy2d",
            Self::Copy3d { .. } => "copy3d",
            Self::GatherRows { .. } => "gather_rows",
            Self::GatherPlanes { .. } => "gather_planes",
            Self::ScatterRows { .. } => "scatter_rows",
            Self::ScatterPlanes { .. } => "scatter_planes",
            Self::Permute { .. } => "permute",
            Self::Im2col { .. } => "im2col",
            Self::Interleave { .. } => "interleave",
            Self::Deinterleave { .. } => "deinterleave",
            Self::Broadcast { .. } => "broadcast",
            Self::Fill { .. } => "fill",
            Self::KvPages { .. } => "kv_pages",
        }
    }

    /// The chain of descriptors that does it, without links ([`chain`] adds them).
    ///
    /// # Errors
    /// [`PresetError`] if there is none. Ranges are checked by the engine.
    pub fn descriptors(&self) -> Result<Vec<Descriptor>, PresetError> {
        let base = |element, counts, source, destination| Descriptor {
            element,
            counts,
            source,
            destination,
            ..Descriptor::default()
        };
        let rows = |element: Element, shape: [u32; 2], s: Place, sp: i64, d: Place, dp: i64| {
            let step = element.step();
            base(element, [1, shape[0], shape[1]], s.side([0, sp, step]), d.side([0, dp, step]))
        };
        let planes = |element: Element, shape, s: Place, sp: [i64; 2], d: Place, dp: [i64; 2]| {
            let step = element.step();
            base(element, shape, s.side([sp[0], sp[1], step]), d.side([dp[0], dp[1], step]))
        };
        Ok(match *self {
            Self::Copy2d { element, shape, source, source_pitch, destination, destination_pitch } => {
                vec![rows(element, shape, source, source_pitch, destination, destination_pitch)]
            }
            Self::Copy3d { element, shape, source, source_pitches, destination, destination_pitches } => {
                vec![planes(element, shape, source, source_pitches, destination, destination_pitches)]
            }
            Self::GatherRows { element, shape, source, source_pitch, destination, destination_pitch, ref list } => {
                listed(rows(element, shape, source, source_pitch, destination, destination_pitch), list, false, 1)
            }
            Self::ScatterRows { element, shape, source, source_pitch, destination, destination_pitch, ref list } => {
                listed(rows(element, shape, source, source_pitch, destination, destination_pitch), list, true, 1)
            }
            Self::GatherPlanes {
                element,
                shape,
                source,
                source_pitches,
                destination,
                destination_pitches,
                ref list,
            } => {
                listed(planes(element, shape, source, source_pitches, destination, destination_pitches), list, false, 0)
            }
            Self::ScatterPlanes {
                element,
                shape,
                source,
                source_pitches,
                destination,
                destination_pitches,
                ref list,
            } => {
                listed(planes(element, shape, source, source_pitches, destination, destination_pitches), list, true, 0)
            }
            Self::Permute { element, shape, order, source, destination } => {
                vec![permute(element, shape, order, source, destination)?]
            }
            Self::Im2col { element, shape, layout, ref kernel, fill, source, destination } => {
                im2col(element, shape, layout, kernel, fill, source, destination)?
            }
            Self::Interleave { element, parts, count, source, destination } => {
                vec![permute(element, [1, parts, count], [0, 2, 1], source, destination)?]
            }
            Self::Deinterleave { element, parts, count, source, destination } => {
                vec![permute(element, [1, count, parts], [0, 2, 1], source, destination)?]
            }
            Self::Broadcast { element, count, copies, source, destination } => {
                let pitch = i64::from(count) * element.step();
                vec![rows(element, [copies, count], source, 0, destination, pitch)]
            }
            Self::Fill { element, shape, value, destination, destination_pitch } => {
                // The window is empty, so the source is never read.
                let mut d = rows(element, shape, destination, destination_pitch, destination, destination_pitch);
                d.window = Some(Window { fill: value, ..Window::default() });
                vec![d]
            }
            Self::KvPages { element, page, pages, pool, source, table, destination } => {
                let pitch = i64::from(page) * element.step();
                let d = planes(element, [pages, 1, page], source, [pitch, 0], destination, [pitch, 0]);
                let list =
                    List { region: table.region, offset: table.offset as u64, bound: pool, wide: true, clamp: false };
                listed(d, &list, false, 0)
            }
        })
    }
}

/// Loops go in the order of the result's outer dimensions, with the dimension that is contiguous in the source innermost.
fn permute(
    element: Element,
    shape: [u32; 3],
    order: [u8; 3],
    source: Place,
    destination: Place,
) -> Result<Descriptor, PresetError> {
    let o = order.map(usize::from);
    if (0..3).any(|d| !o.contains(&d)) {
        return Err(PresetError::Order(order));
    }
    let result = o.map(|d| shape[d]);
    let too_large = PresetError::TooLarge(shape);
    let from = dense(shape, element.step()).ok_or(too_large)?;
    let to = dense(result, element.step()).ok_or(too_large)?;
    // Stride in the result of each source dimension.
    let mut landing = [0; 3];
    for d in 0..3 {
        landing[o[d]] = to[d];
    }
    let direct = o[2] == 2;
    // Loop 2 is the source's inner dimension, loop 1 the result's; loop 0 is what is left.
    let loops = if direct { [o[0], o[1], 2] } else { [3 - o[2] - 2, o[2], 2] };
    Ok(Descriptor {
        element,
        remap: if direct { Remap::Direct } else { Remap::Transpose },
        counts: loops.map(|d| shape[d]),
        source: source.side(loops.map(|d| from[d])),
        destination: destination.side(loops.map(|d| landing[d])),
        ..Descriptor::default()
    })
}

/// Wire bytes of descriptors that follow each other in memory from byte address `address` on, linked in order.
pub fn chain(descriptors: &[Descriptor], address: u64) -> Vec<u8> {
    let last = descriptors.len().saturating_sub(1);
    let wire = |(i, d): (usize, &Descriptor)| {
        let next = address + (WIRE_BYTES * (i + 1)) as u64;
        Descriptor { link: (i < last).then_some(next), ..*d }.encode()
    };
    descriptors.iter().enumerate().flat_map(wire).collect()
}
