//! Weights as they lie in DRAM: slabs of columns in the order of use, cut into loads that fill a weight buffer.

use crate::format::Format;
use crate::quantize::{Quantizer, blocks};
use crate::shape::Shape;
use crate::source::{Linear, Source};
use crate::{Error, Result};
use golden::Projection;
use npu::isa::{Block, Operands};
use npu::numeric::fast::Encoder;
use npu::numeric::{Flags, FloatFormat, Mode};
use std::borrow::Cow;
use std::collections::HashMap;

/// Columns that a slab is a multiple of: its results then begin on 64 bytes in BF16 and FP32.
const STEP: u32 = 32;
/// Alignment of all that lies in a load.
const ALIGN: u32 = 64;

/// Columns of a projection in a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slab {
    /// Which load.
    pub load: usize,
    /// W's first byte, from the load's.
    pub offset: u32,
    /// Its scales' first byte, from the load's.
    pub scales: u32,
    /// First column.
    pub first: u32,
    /// Columns.
    pub n: u32,
}

/// A projection.
#[derive(Clone, Debug)]
pub(crate) struct Product {
    /// What is multiplied.
    pub operands: Operands,
    /// K.
    pub k: u32,
    /// Columns in all.
    pub n: u32,
    /// Its slabs, first column to last.
    pub slabs: Vec<Slab>,
}

/// One linear piece of DRAM that goes to a weight buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// First byte in DRAM.
    pub address: u64,
    /// Bytes.
    pub bytes: u32,
    /// Whose: a layer, or the number of layers for the head.
    pub section: u32,
}

/// Where norms lie: load and offset.
pub(crate) type NormAt = (usize, u32);

/// All weights.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packed {
    /// Loads in the order of use.
    pub loads: Vec<Load>,
    /// Projections by section.
    pub products: HashMap<(u32, Projection), Product>,
    /// The norm before attention (or the head) and the one before the feed-forward block, by section.
    pub norms: Vec<[NormAt; 2]>,
    /// Bytes in all.
    pub bytes: u64,
}

/// Takes each finished load and its address.
type Write<'a> = dyn FnMut(u64, &[u8]) -> Result<()> + 'a;

/// Packs as loads are filled.
struct Packer<'a, 'w> {
    packed: Packed,
    capacity: u32,
    base: u64,
    section: u32,
    /// Bytes of the load being filled.
    filled: u32,
    /// The bytes, where somebody wants them.
    bytes: Vec<u8>,
    write: Option<&'a mut Write<'w>>,
}

impl Packer<'_, '_> {
    fn flush(&mut self) -> Result<()> {
        if self.filled == 0 {
            return Ok(());
        }
        let address = self.base + self.packed.bytes;
        if let Some(write) = &mut self.write {
            self.bytes.resize(self.filled as usize, 0);
            write(address, &self.bytes)?;
            self.bytes.clear();
        }
        self.packed.loads.push(Load { address, bytes: self.filled, section: self.section });
        self.packed.bytes += u64::from(self.filled).next_multiple_of(4096);
        self.filled = 0;
        Ok(())
    }

    /// Makes room for two parts that are used together; returns the load and their offsets.
    fn room(&mut self, parts: [usize; 2]) -> Result<(usize, [u32; 2])> {
        let [first, second] = parts.map(|p| (p as u32).next_multiple_of(ALIGN));
        if self.filled + first + second > self.capacity {
            self.flush()?;
        }
        let offset = self.filled;
        self.filled += first + second;
        Ok((self.packed.loads.len(), [offset, offset + first]))
    }

    fn put(&mut self, offset: u32, part: &[u8]) {
        self.bytes.resize(offset as usize, 0);
        self.bytes.extend_from_slice(part);
    }

    fn norm(&mut self, weights: &[f32]) -> Result<NormAt> {
        let (load, [offset, _]) = self.room([4 * weights.len(), 0])?;
        if self.write.is_some() {
            self.put(offset, bytemuck::cast_slice(weights));
        }
        Ok((load, offset))
    }

    fn product(&mut self, shape: &Shape, format: Format, linear: &Linear<'_>, p: Projection) -> Result<()> {
        let columns = shape.columns(p);
        let operands = format.operands(linear.blocks.map(|(block, _)| block));
        let (n, k) = (columns.len() as u32, linear.k as u32);
        let most = (u64::from(self.capacity) / slab_bytes(operands, k, STEP)) as u32 * STEP;
        if most == 0 {
            return Err(Error::Memory {
                what: format!("a slab of {STEP} columns of `{}`", p.name()),
                memory: "a weight buffer in the scratchpad",
                needs: slab_bytes(operands, k, STEP),
                has: self.capacity.into(),
                help: "Take a configuration with a larger scratchpad, or a narrower format".into(),
            });
        }
        // As many slabs as needed, of equal width.
        let width = n.div_ceil(n.div_ceil(most)).next_multiple_of(STEP);
        let mut slabs = Vec::new();
        for (i, columns) in columns.chunks(width as usize).enumerate() {
            let first = i as u32 * width;
            let (load, [offset, scales]) = self.room(part_bytes(operands, k, columns.len() as u32))?;
            slabs.push(Slab { load, offset, scales, first, n: columns.len() as u32 });
            if self.write.is_some() {
                let (codes, scale_bytes) = slab(operands, linear, columns);
                self.put(offset, &codes);
                self.put(scales, &scale_bytes);
            }
        }
        self.packed.products.insert((self.section, p), Product { operands, k, n, slabs });
        Ok(())
    }
}

/// Bytes of a slab's codes and of its scales.
fn part_bytes(operands: Operands, k: u32, n: u32) -> [usize; 2] {
    let (k, n) = (k as usize, n as usize);
    match operands {
        Operands::Float(f) => [k * n * f.width() as usize / 8, 0],
        Operands::PerChannel(_) => [k * n, 4 * n],
        Operands::PerGroup { group, .. } => [k * n, 4 * n * k.div_ceil(group.into())],
        Operands::Stored(block) => [k.div_ceil(Block::VALUES) * n * block.bytes(), 0],
    }
}

/// Bytes of a slab of `n` columns in a load.
fn slab_bytes(operands: Operands, k: u32, n: u32) -> u64 {
    part_bytes(operands, k, n).iter().map(|&bytes| (bytes as u64).next_multiple_of(ALIGN.into())).sum()
}

/// The least weight buffer that holds a slab of every projection.
pub(crate) fn least_buffer(source: &Source, shape: &Shape, format: Format) -> u32 {
    let slabs = source.projections().map(|(layer, p)| {
        let linear = source.linear(layer, p);
        slab_bytes(format.operands(linear.blocks.map(|(block, _)| block)), linear.k as u32, STEP) as u32
    });
    slabs.max().unwrap_or(0).max(4 * shape.hidden)
}

/// Packs a model; `write` gets address and bytes of each load, without it only places are found.
pub(crate) fn pack<'a>(
    source: &Source,
    shape: &Shape,
    format: Format,
    capacity: u32,
    base: u64,
    write: Option<&'a mut Write<'a>>,
) -> Result<Packed> {
    let bytes = Vec::new();
    let mut packer = Packer { packed: Packed::default(), capacity, base, section: 0, filled: 0, bytes, write };
    let weights = source.llm().model.weights();
    for (l, layer) in weights.layers.iter().enumerate() {
        packer.section = l as u32;
        let attention = packer.norm(&layer.attention_norm)?;
        for p in [Projection::Q, Projection::K, Projection::V, Projection::O] {
            packer.product(shape, format, &source.linear(l, p), p)?;
        }
        let ffn = packer.norm(&layer.ffn_norm)?;
        for p in [Projection::Gate, Projection::Up, Projection::Down] {
            packer.product(shape, format, &source.linear(l, p), p)?;
        }
        packer.packed.norms.push([attention, ffn]);
        packer.flush()?;
    }
    packer.section = shape.layers;
    let norm = packer.norm(&weights.norm)?;
    packer.product(shape, format, &source.linear(shape.layers as usize, Projection::Head), Projection::Head)?;
    packer.packed.norms.push([norm; 2]);
    packer.flush()?;
    Ok(packer.packed)
}

/// Codes of a slab as W lies in the scratchpad, K rows of N (stored blocks: ⌈K/32⌉ rows of N blocks), and its scales.
fn slab(operands: Operands, linear: &Linear<'_>, columns: &[Option<u32>]) -> (Vec<u8>, Vec<u8>) {
    let (k, n) = (linear.k, columns.len());
    let row = |column: usize| columns[column].map(|r| &linear.values[r as usize * k..][..k]);
    match (operands, linear.blocks) {
        (Operands::Float(format), _) => (transposed::<2>(k, n, |c, codes| bf16(format, row(c), codes)), Vec::new()),
        (Operands::Stored(block), stored) => {
            let (size, groups) = (block.bytes(), k / Block::VALUES);
            let mut codes = vec![0; groups * n * size];
            for (c, r) in columns.iter().enumerate() {
                let Some(r) = *r else { continue };
                let column = match stored {
                    Some((_, bytes)) => Cow::Borrowed(&bytes[r as usize * groups * size..][..groups * size]),
                    None => Cow::Owned(blocks(block, row(c).unwrap_or_default())),
                };
                for (g, block) in column.chunks_exact(size).enumerate() {
                    codes[(g * n + c) * size..][..size].copy_from_slice(block);
                }
            }
            (codes, Vec::new())
        }
        (Operands::PerChannel(format), _) => scaled(format, k, k, n, row),
        (Operands::PerGroup { format, group }, _) => scaled(format, usize::from(group), k, n, row),
    }
}

/// A column's values in BF16, byte by byte.
fn bf16(format: FloatFormat, row: Option<&[f32]>, codes: &mut [[u8; 2]]) {
    let Some(row) = row else { return };
    let mut words = vec![0u16; row.len()];
    let encoder = Encoder::new(format, Mode::IEEE);
    // Lengths are equal.
    let _ = encoder.encode_slice(row, &mut words, &mut Flags::default());
    codes.iter_mut().zip(words).for_each(|(code, word)| *code = word.to_le_bytes());
}

fn scaled<'a>(
    format: Option<FloatFormat>,
    group: usize,
    k: usize,
    n: usize,
    row: impl Fn(usize) -> Option<&'a [f32]>,
) -> (Vec<u8>, Vec<u8>) {
    let quantizer = Quantizer::new(format);
    let groups = k.div_ceil(group);
    let mut scales = vec![1f32; groups * n];
    let codes = transposed::<1>(k, n, |c, codes: &mut [[u8; 1]]| {
        let Some(row) = row(c) else { return };
        for (g, (values, codes)) in row.chunks(group).zip(codes.chunks_mut(group)).enumerate() {
            scales[g * n + c] = quantizer.group(values, codes.as_flattened_mut());
        }
    });
    (codes, scales.iter().flat_map(|s| s.to_le_bytes()).collect())
}

/// Columns written side by side while they are in the cache.
const SIDE_BY_SIDE: usize = 32;

/// K rows of N codes of `B` bytes from columns that `fill` makes.
fn transposed<const B: usize>(k: usize, n: usize, mut fill: impl FnMut(usize, &mut [[u8; B]])) -> Vec<u8> {
    let mut out = vec![[0u8; B]; k * n];
    let mut columns = vec![[0u8; B]; k * SIDE_BY_SIDE];
    for first in (0..n).step_by(SIDE_BY_SIDE) {
        let count = SIDE_BY_SIDE.min(n - first);
        columns.fill([0; B]);
        for (c, column) in columns.chunks_exact_mut(k).take(count).enumerate() {
            fill(first + c, column);
        }
        for (r, row) in out.chunks_exact_mut(n).enumerate() {
            for (c, code) in row[first..first + count].iter_mut().enumerate() {
                *code = columns[c * k + r];
            }
        }
    }
    out.into_flattened()
}
