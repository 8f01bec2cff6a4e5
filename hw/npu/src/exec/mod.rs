//! What each engine does with a command, and how long it takes: the transaction engine's half that knows bits.

mod dma;
mod footprint;
mod matmul;
mod nkz;
mod vector;

pub use dma::{ACTIVATIONS, CONTROL_REGION, DRAM_REGION, KV, OpenRows, SCRATCHPAD_REGION, WEIGHTS, port, regions};
pub(crate) use footprint::footprint;
pub use matmul::utilisation;

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
}

impl Machine {
    pub(crate) fn new(config: Config, memory: Memory, kv: Kv) -> Self {
        Self { dma: dma::Mover::new(&config, kv.control_bytes()), nkz: nkz::Codec::default(), config, memory, kv }
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
                self.kv_raw(*rows as usize, *width as usize, *position, *from, tokens, conflict)
            }
        }
    }
}

/// `count` rows of `len` elements, in place where they lie without gaps.
fn rows<T: Pod>(scratch: &Scratch, rows: Rows, count: usize, len: usize) -> Result<Cow<'_, [T]>, Fault> {
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
fn put_rows<T: Pod>(scratch: &mut Scratch, to: Rows, len: usize, values: &[T]) -> Result<(), Fault> {
    let (base, pitch) = (to.base as usize, to.pitch as usize);
    for (row, values) in values.chunks_exact(len).enumerate() {
        scratch.write(base + row * pitch, size_of_val(values))?.copy_from_slice(bytemuck::cast_slice(values));
    }
    Ok(())
}

/// Rows begin where their elements do not straddle words: bases on 64 bytes, pitches on 4.
fn aligned(rows: Rows, field: &'static str) -> Result<(), Fault> {
    let rule = "bases must be multiples of 64 bytes";
    if !rows.base.is_multiple_of(64) {
        return Err(Fault::Field { field, value: u64::from(rows.base), rule });
    }
    let rule = "pitches must be multiples of 4 bytes";
    if !rows.pitch.is_multiple_of(4) {
        return Err(Fault::Field { field, value: u64::from(rows.pitch), rule });
    }
    Ok(())
}

/// A count that is zero or too large for any memory here.
fn counted(field: &'static str, value: u32) -> Result<usize, Fault> {
    let rule = "must lie in 1..=2^24";
    match (1..=1 << 24).contains(&value) {
        true => Ok(value as usize),
        false => Err(Fault::Field { field, value: u64::from(value), rule }),
    }
}
