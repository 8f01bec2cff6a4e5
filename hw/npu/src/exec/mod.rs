//! What each engine does with a command, and how long it takes: the transaction engine's half that knows bits.

mod backfill;
mod dma;
mod footprint;
mod matmul;
mod nkz;
mod port;
mod shape;
mod vector;

pub(crate) use dma::linear;
pub use dma::{ACTIVATIONS, CONTROL_REGION, DRAM_REGION, KV, OpenRows, SCRATCHPAD_REGION, WEIGHTS, port, regions};
pub(crate) use footprint::{Footprint, footprint};
pub use matmul::peak_macs;
pub(crate) use nkz::ROTATE;
pub(crate) use shape::{MatmulShape, processor, vectors};
pub(crate) use vector::{pairing, placed_rows, unit_command};

use crate::isa::{Op, Rows};
use crate::memory::Scratch;
use crate::{Config, Fault, Kv, Memory, Work};
use bytemuck::Pod;
use std::borrow::Cow;

/// The machine behind the queues.
pub(crate) struct Machine {
    pub(crate) config: Config,
    pub(crate) memory: Memory,
    pub(crate) kv: Kv,
    dma: dma::Mover,
    nkz: nkz::Codec,
    stalls: port::Known,
}

impl Machine {
    pub(crate) fn new(config: Config, memory: Memory, kv: Kv) -> Self {
        let dma = dma::Mover::new(&config, kv.control_bytes());
        Self { dma, nkz: nkz::Codec::default(), stalls: port::Known::default(), config, memory, kv }
    }

    /// Carries a command out. `conflict`: how many of its operands share the worst bank.
    pub(crate) fn execute(&mut self, op: &Op, conflict: u64) -> Result<Work, Fault> {
        match op {
            Op::Dma { chain, banks } => self.chain(*chain, *banks),
            Op::KvLoad { stream, first, tiles, to } => self.kv_load(*stream, *first, *tiles, *to),
            Op::KvStore { stream, tile, from } => self.kv_store(*stream, *tile, *from),
            Op::Matmul(p) => self.matmul(p, conflict),
            Op::Vector(r) => self.row_op(r, conflict),
            Op::KvEncode { stream, tile, from, to } => self.kv_encode(*stream, *tile, *from, *to, conflict),
            Op::KvDecode { stream, first, tiles, from, tokens } => {
                self.kv_decode(*stream, *first, *tiles, *from, tokens, conflict)
            }
            Op::KvRaw { rows, width, position, from, tokens } => {
                self.kv_raw((*rows, *width), *position, *from, tokens, conflict)
            }
        }
    }
}

/// What becomes visible on the edge that ends a command.
pub(crate) fn finish(op: &Op, kv: &mut Kv) {
    if let Op::KvEncode { stream, .. } = op
        && let Ok(at) = kv.at(*stream)
    {
        kv.commit(at);
    }
}

/// `count` rows of `len` elements, in place where they lie without gaps.
pub(crate) fn rows<T: Pod>(scratch: &Scratch, rows: Rows, count: usize, len: usize) -> Result<Cow<'_, [T]>, Fault> {
    let bytes = len * size_of::<T>();
    let (base, pitch) = (rows.base as usize, rows.pitch as usize);
    if count <= 1 || pitch == bytes {
        return Ok(Cow::Borrowed(bytemuck::cast_slice(scratch.read(base, count * bytes)?)));
    }
    let mut gathered = Vec::with_capacity(count * len);
    for row in 0..count {
        gathered.extend_from_slice(bytemuck::cast_slice(scratch.read(base + row * pitch, bytes)?));
    }
    Ok(Cow::Owned(gathered))
}

/// Writes rows of `len` elements.
pub(crate) fn put_rows<T: Pod>(scratch: &mut Scratch, to: Rows, len: usize, values: &[T]) -> Result<(), Fault> {
    let (base, pitch) = (to.base as usize, to.pitch as usize);
    for (row, values) in values.chunks_exact(len).enumerate() {
        scratch.write(base + row * pitch, size_of_val(values))?.copy_from_slice(bytemuck::cast_slice(values));
    }
    Ok(())
}

/// Checks a place for `count` rows of `bytes` bytes: elements must not straddle words, rows must not overlap, and all must lie inside.
pub(crate) fn placed(
    scratch: &Scratch,
    field: &'static str,
    place: Rows,
    count: usize,
    bytes: usize,
) -> Result<(), Fault> {
    let wrong = |value: u32, rule| Err(Fault::Field { field, value: u64::from(value), rule });
    let (base, pitch) = (place.base as usize, place.pitch as usize);
    if !base.is_multiple_of(64) {
        return wrong(place.base, "bases must be multiples of 64 bytes");
    }
    if count > 1 && (!pitch.is_multiple_of(4) || pitch < bytes) {
        return wrong(place.pitch, "pitches must be multiples of 4 bytes and no shorter than a row");
    }
    let end = (count - 1).saturating_mul(pitch).saturating_add(base).saturating_add(bytes);
    match end <= scratch.size() {
        true => Ok(()),
        false => {
            let (base, bytes) = (base as u64, (end - base) as u64);
            Err(Fault::Scratchpad { base, bytes, size: scratch.size() as u64 })
        }
    }
}

/// `count` FP32 values, the rows' scales or weights.
pub(crate) fn fp32<'a>(scratch: &'a Scratch, field: &'static str, base: u32, count: usize) -> Result<&'a [f32], Fault> {
    placed(scratch, field, Rows::packed(base, 0), 1, 4 * count)?;
    Ok(bytemuck::cast_slice(scratch.read(base as usize, 4 * count)?))
}

/// A count that is zero or too large for any memory here.
pub(crate) fn counted(field: &'static str, value: u32) -> Result<usize, Fault> {
    let rule = "must lie in 1..=2^24";
    match (1..=1 << 24).contains(&value) {
        true => Ok(value as usize),
        false => Err(Fault::Field { field, value: u64::from(value), rule }),
    }
}
