//! What a descriptor does to the bytes of a memory: plain nested loops, written from docs/dma.md.

use dma::{Descriptor, Element, IndexList, Region, Remap};

/// A memory image: bytes from an address on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Address of the first byte.
    pub base: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Image {
    fn byte(&mut self, address: i128) -> anyhow::Result<&mut u8> {
        let at = usize::try_from(address - i128::from(self.base)).ok();
        at.and_then(|at| self.bytes.get_mut(at))
            .ok_or_else(|| anyhow::anyhow!("the reference left its memory at {address:#x}"))
    }

    /// Little-endian value of `size` bytes.
    fn load(&mut self, address: i128, size: u32) -> anyhow::Result<u64> {
        let mut value = 0;
        for i in 0..size {
            value |= u64::from(*self.byte(address + i128::from(i))?) << (8 * i);
        }
        Ok(value)
    }

    fn store(&mut self, address: i128, size: u32, value: u64) -> anyhow::Result<()> {
        for i in 0..size {
            *self.byte(address + i128::from(i))? = (value >> (8 * i)) as u8;
        }
        Ok(())
    }
}

/// Bytes that an ordered job reads before it writes them.
const CHUNK_BYTES: usize = 4096;

/// The values of an index list, clamped if that is asked for; none without a list.
fn values(image: &mut Image, d: &Descriptor, regions: &[Region], list: Option<IndexList>) -> anyhow::Result<Vec<i128>> {
    let Some(list) = list.filter(|_| !d.counts.contains(&0)) else { return Ok(Vec::new()) };
    let at = i128::from(regions[usize::from(list.region)].base) + i128::from(list.offset);
    let entry = |i: u32| {
        let value = if d.wide_index {
            i128::from(image.load(at + 4 * i128::from(i), 4)? as u32 as i32)
        } else {
            i128::from(image.load(at + 2 * i128::from(i), 2)?)
        };
        Ok(if d.clamp { value.clamp(0, i128::from(list.bound) - 1) } else { value })
    };
    (0..d.counts[usize::from(list.dimension)]).map(entry).collect()
}

/// A job with its index lists: they are read before anything else of it.
struct Job<'a> {
    d: &'a Descriptor,
    regions: &'a [Region],
    lists: [Vec<i128>; 2],
}

impl Job<'_> {
    /// Address of element `at` on a side (0 source, 1 destination) in units (bytes; nibbles for INT4).
    fn address(&self, s: usize, at: [u32; 3]) -> i128 {
        let side = if s == 0 { &self.d.source } else { &self.d.destination };
        let units = if self.d.element == Element::Int4 { 2 } else { 1 };
        let mut sum = i128::from(self.regions[usize::from(side.region)].base) * units + i128::from(side.offset);
        for dim in 0..3 {
            let coordinate = match &side.index {
                Some(list) if usize::from(list.dimension) == dim => self.lists[s][at[dim] as usize],
                _ => i128::from(at[dim]),
            };
            sum += coordinate * i128::from(side.strides[dim]);
        }
        sum
    }
}

/// Reads the elements at `ats`, then writes them.
fn block(image: &mut Image, job: &Job<'_>, reads: &[[u32; 3]], writes: &[[u32; 3]]) -> anyhow::Result<()> {
    let d = job.d;
    let bytes = d.element.code().into();
    let mut values = std::collections::HashMap::new();
    for &at in reads {
        let outside = d.window.filter(|w| (0..3).any(|k| at[k] < w.lo[k] || at[k] >= w.hi[k]));
        let value = match outside {
            Some(window) => window.fill,
            None => {
                let from = job.address(0, at);
                match d.element {
                    Element::Int4 => image.load(from.div_euclid(2), 1)? >> (4 * from.rem_euclid(2)),
                    _ => image.load(from, bytes)?,
                }
            }
        };
        values.insert(at, value);
    }
    for at in writes {
        let to = job.address(1, *at);
        let value = values[at];
        if d.element == Element::Int4 {
            let old = image.load(to.div_euclid(2), 1)?;
            let shift = 4 * to.rem_euclid(2);
            image.store(to.div_euclid(2), 1, old & !(0xf << shift) | (value & 0xf) << shift)?;
        } else {
            image.store(to, bytes, value)?;
        }
    }
    Ok(())
}

/// Applies a job to the image, in the order that is promised.
///
/// # Errors
/// If an address lies outside the image.
pub fn apply(image: &mut Image, d: &Descriptor, regions: &[Region]) -> anyhow::Result<()> {
    let [n0, n1, n2] = d.counts;
    let lists = [values(image, d, regions, d.source.index)?, values(image, d, regions, d.destination.index)?];
    let job = Job { d, regions, lists };
    if d.remap == Remap::Transpose {
        let tile = match d.element {
            Element::B4 | Element::B8 => 32,
            _ => 64,
        };
        for i in 0..n0 {
            for a in (0..n1).step_by(tile) {
                for b in (0..n2).step_by(tile) {
                    let (rows, columns) = (a..n1.min(a + tile as u32), b..n2.min(b + tile as u32));
                    let reads: Vec<_> = rows.clone().flat_map(|r| columns.clone().map(move |c| [i, r, c])).collect();
                    let writes: Vec<_> = columns.flat_map(|c| rows.clone().map(move |r| [i, r, c])).collect();
                    block(image, &job, &reads, &writes)?;
                }
            }
        }
        return Ok(());
    }
    let chunk = match d.element {
        Element::Int4 => 2 * CHUNK_BYTES,
        e => CHUNK_BYTES / usize::from(e.code()),
    };
    let mut pending = Vec::with_capacity(chunk);
    for i in 0..n0 {
        for j in 0..n1 {
            for k in 0..n2 {
                pending.push([i, j, k]);
                if pending.len() == chunk {
                    block(image, &job, &pending, &pending)?;
                    pending.clear();
                }
            }
        }
    }
    block(image, &job, &pending, &pending)
}

/// The first index of a job that is out of range: (side, position, value).
///
/// # Errors
/// If a list lies outside the image.
pub fn bad_index(image: &Image, d: &Descriptor, regions: &[Region]) -> anyhow::Result<Option<(usize, u32, i64)>> {
    let mut image = image.clone();
    for (side, list) in [d.source.index, d.destination.index].into_iter().enumerate().filter(|_| !d.clamp) {
        let bound = list.map_or(0, |l| i128::from(l.bound));
        let values = values(&mut image, d, regions, list)?;
        if let Some(i) = values.iter().position(|v| !(0..bound).contains(v)) {
            return Ok(Some((side, i as u32, values[i] as i64)));
        }
    }
    Ok(None)
}
