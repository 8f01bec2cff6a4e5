//! Operands out of the scratchpad: address counters, the port's gearbox, a beat register.

pub(super) use super::walk::Lines;
use super::walk::Walk;
use crate::Fault;
use crate::exec::MatmulShape;
use crate::isa::{Block, Operands};
use crate::memory::Scratch;
use ::mvp::{Beat, Beats, Code, Datapath};
use numeric::fast::decode_fp16;
use rtl::{Format, Payload, Stream, Visitor};

/// A beat register with what fills it.
///
/// X's port carries a beat a cycle. W's carries P stored bytes: the gearbox counts those that have come, and the beat is whole once all of
/// its bytes have, expanded. Up to a beat and two words of P bytes are held.
#[derive(Clone, Debug)]
pub(super) struct Feed<B> {
    lines: Lines,
    walk: Walk,
    beat: B,
    valid: bool,
    /// P, for W.
    port: Option<u64>,
    /// Stored bytes that have come and belong to no beat that left, 32 bits.
    fill: u64,
}

/// What a register of beats reads.
pub(super) trait Load: Payload {
    /// Reads the beat of a place.
    fn load(&mut self, lines: Lines, shape: &MatmulShape, at: &Walk, scratch: &Scratch) -> Result<(), Fault>;
}

impl Load for Beat {
    fn load(&mut self, lines: Lines, shape: &MatmulShape, at: &Walk, scratch: &Scratch) -> Result<(), Fault> {
        match lines {
            Lines::Columns => {
                // The tile's last column comes first.
                let first = at.panel as usize * shape.config.cols;
                let n = first + shape.columns(at.panel as usize) - 1 - at.slot as usize;
                column(self, shape, n, at.chunk as usize, scratch)
            }
            _ => {
                row(self, shape, at.block as usize * shape.config.depth + at.slot as usize, at.chunk as usize, scratch)
            }
        }
    }
}

impl Load for Beats {
    fn load(&mut self, lines: Lines, shape: &MatmulShape, at: &Walk, scratch: &Scratch) -> Result<(), Fault> {
        let chunk = at.chunk as usize;
        if lines == Lines::Chunks {
            return self.0.iter_mut().enumerate().try_for_each(|(u, beat)| row(beat, shape, u, chunk, scratch));
        }
        let first = shape.first_output(at.block as usize, at.slot as usize);
        let outputs = self.0.iter_mut().zip(first..shape.n);
        outputs.into_iter().try_for_each(|(beat, n)| column(beat, shape, n, chunk, scratch))
    }
}

fn fp32(scratch: &Scratch, base: u32, index: usize) -> Result<f32, Fault> {
    let bytes = scratch.read(base as usize + 4 * index, 4)?;
    Ok(f32::from_bits(bytes.first_chunk().map_or(0, |&b| u32::from_le_bytes(b))))
}

/// Codes of bytes in the order of k.
fn codes(lanes: &mut [Code], datapath: Datapath, wide: bool, bytes: &[u8]) {
    match datapath {
        Datapath::Int4 => {
            let pair = |b: &[u8]| Code::from_le_bytes([b[0], b.get(1).copied().unwrap_or_default()]);
            lanes.iter_mut().zip(bytes.chunks(2)).for_each(|(lane, b)| *lane = pair(b));
        }
        _ if wide => lanes.iter_mut().zip(bytes.as_chunks().0).for_each(|(lane, &b)| *lane = Code::from_le_bytes(b)),
        _ => lanes.iter_mut().zip(bytes).for_each(|(lane, &b)| *lane = Code::from(b as i8)),
    }
}

/// Row m of X in a chunk, with its scale.
fn row(beat: &mut Beat, shape: &MatmulShape, m: usize, chunk: usize, scratch: &Scratch) -> Result<(), Fault> {
    let p = &shape.command;
    let range = shape.config.k_range(shape.k, chunk);
    let width = shape.x_width;
    let address = p.x.base as usize + m * p.x.pitch as usize + range.start * width;
    codes(&mut beat.codes, shape.config.datapath, width == 2, scratch.read(address, range.len() * width)?);
    beat.scale = match p.operands {
        Operands::Float(_) => 1.0,
        Operands::PerChannel(_) => fp32(scratch, p.x_scales, m)?,
        Operands::PerGroup { .. } | Operands::Stored(_) => {
            fp32(scratch, p.x_scales, m * shape.groups + shape.group(range.start))?
        }
    };
    Ok(())
}

/// Column n of W in a chunk, with its scale and minimum: stored blocks leave the port expanded.
fn column(beat: &mut Beat, shape: &MatmulShape, n: usize, chunk: usize, scratch: &Scratch) -> Result<(), Fault> {
    let p = &shape.command;
    let range = shape.config.k_range(shape.k, chunk);
    let (base, pitch) = (p.w.base as usize, p.w.pitch as usize);
    (beat.scale, beat.minimum) = (1.0, 0.0);
    if let Operands::Stored(block) = p.operands {
        let stored = scratch.read(base + range.start / Block::VALUES * pitch + n * block.bytes(), block.bytes())?;
        return expand(beat, block, stored, range.start % Block::VALUES, range.len(), shape.config.datapath);
    }
    let width = shape.x_width;
    for (lane, k) in beat.codes.iter_mut().zip(range.clone()) {
        let bytes = scratch.read(base + k * pitch + n * width, width)?;
        *lane = match bytes {
            [low, high] => Code::from_le_bytes([*low, *high]),
            _ => Code::from(bytes[0] as i8),
        };
    }
    if let Operands::PerGroup { .. } = p.operands {
        beat.scale = fp32(scratch, p.w_scales, shape.group(range.start) * shape.n + n)?;
    }
    Ok(())
}

/// The expander: `count` codes of a block from `first` on, its scale and minimum.
fn expand(
    beat: &mut Beat,
    block: Block,
    stored: &[u8],
    first: usize,
    count: usize,
    datapath: Datapath,
) -> Result<(), Fault> {
    let half = |at: usize| decode_fp16(u16::from_le_bytes([stored[at], stored[at + 1]]));
    beat.scale = half(0);
    if block == Block::Q41 {
        // Unsigned codes enter as q − 8: what that takes away returns in the minimum.
        beat.minimum = 8.0f32.mul_add(beat.scale, half(2));
    }
    let body = &stored[block.bytes() - if block == Block::Q80 { 32 } else { 16 }..];
    let code = |j: usize| match block {
        Block::Q80 => body[j],
        Block::Q40 | Block::Q41 => (body[j % 16] >> (4 * (j / 16)) & 15).wrapping_sub(8),
    };
    let mut bytes = [0; Block::VALUES];
    (0..count).for_each(|i| bytes[i] = code(first + i));
    codes(&mut beat.codes, datapath, false, &bytes[..count]);
    Ok(())
}

impl<B: Load> Feed<B> {
    pub(super) fn new(lines: Lines, blank: B, port: Option<u64>) -> Self {
        Self { lines, walk: Walk::default(), beat: blank, valid: false, port, fill: 0 }
    }

    pub(super) fn start(&mut self) {
        (self.walk, self.valid, self.fill) = (Walk::default(), false, 0);
    }

    pub(super) fn out(&self) -> Stream<&B> {
        Stream { valid: self.valid, data: &self.beat }
    }

    /// Stored bytes of the beat at the walk's place.
    fn need(&self, shape: &MatmulShape) -> u64 {
        let segment = shape.segment_bytes(self.walk.chunk as usize) as u64;
        match self.lines {
            Lines::Outputs => {
                let first = shape.first_output(self.walk.block as usize, self.walk.slot as usize);
                segment * (shape.n - first).min(shape.outputs) as u64
            }
            _ => segment,
        }
    }

    /// The edge.
    pub(super) fn clock(&mut self, shape: &MatmulShape, ready: bool, scratch: &Scratch) -> Result<(), Fault> {
        if self.walk.over {
            return Ok(());
        }
        let fires = self.valid && ready;
        if let Some(port) = self.port {
            let need = self.need(shape);
            self.fill += if self.fill <= need + port { port } else { 0 };
            self.fill -= if fires { need } else { 0 };
        }
        if fires {
            self.walk.advance(self.lines, shape);
        }
        if self.walk.over {
            (self.valid, self.fill) = (false, 0);
        } else if fires || !self.valid {
            self.valid = self.port.is_none() || self.fill >= self.need(shape);
            if self.valid {
                self.beat.load(self.lines, shape, &self.walk, scratch)?;
            }
        }
        Ok(())
    }

    pub(super) fn reset(&mut self) {
        (self.walk, self.valid, self.fill) = (Walk::default(), false, 0);
    }

    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        self.walk.visit(v);
        v.reg("valid_q", 1, Format::Unsigned, &mut self.valid);
        v.reg("fill_q", 32, Format::Unsigned, &mut self.fill);
        self.beat.visit("beat".into(), v);
    }
}
