//! The KV path: encoder, decoders, rotate unit.

use super::vector::pairing;
use super::{Machine, counted, placed, put_rows, rows};
use crate::isa::{Rows, Stream, Tokens};
use crate::{Fault, Kv, Work};
use nkz::clocked::{DecodeEdges, decode_edges, encode_edges};
use nkz::{CHANNELS, Cause, Corrupt, Encoder, Error, Format, Header, IndexEntry, Slot, TOKENS, TileIn, UNIT};
use std::collections::HashMap;
use vector::Ramp;

/// Stages of the rotate unit, through which every row passes on its way into the scratchpad.
pub(crate) const ROTATE: u64 = 16;
/// Cycles of the shell around the encoder: the one that takes the command, the one that sees the last status.
const AROUND: u64 = 2;
/// Cycles around decoders and rotate unit: the one that sees both empty.
const EMPTY: u64 = 1;

/// A tile that was decoded before: the same bytes give the same values.
struct Known {
    bytes: Vec<u8>,
    /// Header of each column block.
    headers: Vec<Header>,
    widths: Vec<usize>,
    /// [32, head_dim], rotated or not.
    values: Vec<u16>,
}

/// What the path keeps between commands beside the index.
#[derive(Default)]
pub(super) struct Codec {
    encoder: Encoder,
    /// By stream, tile, and whether rotated: whole contexts are read again for every token.
    known: HashMap<(usize, u32, bool), Known>,
    /// BF16 values of encoded tiles, by stream, where a backfill will want them.
    pub(super) kept: Option<HashMap<usize, Vec<Vec<u16>>>>,
}

impl Machine {
    pub(super) fn kv_encode(
        &mut self,
        stream: Stream,
        tile: u32,
        from: Rows,
        to: u32,
        conflict: u64,
    ) -> Result<Work, Fault> {
        let at = self.kv.at(stream)?;
        placed(&self.memory.scratch, "from", from, TOKENS, 2 * self.kv.setup().head_dim)?;
        let held = self.kv.tiles(at);
        if tile != held {
            let rule = "tiles are encoded in their order: the next is the number that the index holds";
            return Err(Fault::Field { field: "tile", value: u64::from(tile), rule });
        }
        let head_dim = self.kv.setup().head_dim;
        let values = rows::<u16>(&self.memory.scratch, from, TOKENS, head_dim)?.into_owned();
        if let Some(kept) = &mut self.nkz.kept {
            kept.entry(at).or_default().push(values.to_vec());
        }
        let (stored, cycles) = self.encode_tile(stream, at, tile, &values)?;
        self.kv.discard(at);
        let mut place = to as usize;
        for bytes in stored {
            let size = bytes.len().next_multiple_of(UNIT);
            let out = self.memory.scratch.write(place, size)?;
            out[..bytes.len()].copy_from_slice(&bytes);
            out[bytes.len()..].fill(0);
            self.kv.enter(at, bytes.len())?;
            self.kv.stored_bytes += size as u64;
            place += size;
        }
        self.kv.raw_bytes += (2 * TOKENS * head_dim) as u64;
        Ok(Work::of(AROUND + cycles, conflict))
    }

    /// A tile's stored column blocks, and the encoder's edges.
    pub(super) fn encode_tile(
        &mut self,
        stream: Stream,
        at: usize,
        tile: u32,
        values: &[u16],
    ) -> Result<(Vec<Vec<u8>>, u64), Fault> {
        let (mode, head_dim) = (self.kv.mode(stream), self.kv.setup().head_dim);
        let mut cycles = 0;
        let mut stored = Vec::new();
        let mut before = None;
        for (block, &width) in self.kv.widths().iter().enumerate() {
            let columns: Vec<u16> =
                values.chunks_exact(head_dim).flat_map(|row| &row[block * CHANNELS..][..width]).copied().collect();
            let channels = self.kv.lines(at, block);
            let input = TileIn { address: Kv::address(stream, block, tile), values: &columns, width, channels };
            let mut bytes = Vec::new();
            let done = self.nkz.encoder.encode(&input, mode, &mut bytes)?;
            if done.header.format == Format::Overflow {
                return Err(Fault::Slot);
            }
            let always = |_| true;
            let edges = encode_edges(&done, width, mode, before.as_ref(), (always, always), (always, always));
            cycles = edges.status;
            before = Some(edges);
            stored.push(bytes);
        }
        Ok((stored, cycles))
    }

    pub(super) fn kv_decode(
        &mut self,
        stream: Stream,
        first: u32,
        tiles: u32,
        from: u32,
        tokens: &Tokens,
        conflict: u64,
    ) -> Result<Work, Fault> {
        let at = self.kv.at(stream)?;
        let head_dim = self.kv.setup().head_dim;
        let codec = self.config.codec;
        let blocks = self.kv.widths().len();
        let (start, _) = self.kv.span(at, first, tiles)?;
        let entries = self.kv.entries(at, first, tiles)?.to_vec();
        if tiles == 0 {
            return Ok(Work::of(EMPTY, conflict));
        }
        self.tokens_placed(tokens, tiles as usize * TOKENS, head_dim)?;
        let mut out = Vec::with_capacity(tiles as usize * TOKENS * head_dim);
        // Tiles go to the decoders in turn, so that a decoder sees whole rows; each has two column blocks in flight.
        let mut lanes = vec![[None; 2]; codec.decoders];
        let mut last = 0;
        for (i, entries) in entries.chunks_exact(blocks).enumerate() {
            let tile = first + i as u32;
            let from = from as usize + entries[0].offset as usize * UNIT - start;
            let known = self.tile(stream, at, tile, entries, from, tokens.rotated)?;
            out.extend_from_slice(&known.values);
            for (block, entry) in entries.iter().enumerate() {
                let lane: &mut [Option<DecodeEdges>; 2] = &mut lanes[i % codec.decoders];
                let what =
                    (&known.headers[block], usize::from(entry.words), known.widths[block], codec.values / nkz::LANES);
                let always = |_| true;
                let before = [lane[0].as_ref(), lane[1].as_ref()];
                let edges = decode_edges(what, None, before, (always, always), (always, always));
                last = last.max(edges.status);
                *lane = [Some(edges), lane[0]];
            }
        }
        self.write_tokens(tokens, head_dim, &out)?;
        Ok(Work::of(last + ROTATE + EMPTY, conflict))
    }

    /// A tile's values, decoded now or before.
    fn tile(
        &mut self,
        stream: Stream,
        at: usize,
        tile: u32,
        entries: &[IndexEntry],
        from: usize,
        rotated: bool,
    ) -> Result<&Known, Fault> {
        let offset = |entry: &IndexEntry| (entry.offset - entries[0].offset) as usize * UNIT;
        let size = entries.last().map_or(0, |last| offset(last) + 8 * usize::from(last.words));
        let bytes = self.memory.scratch.read(from, size)?;
        let key = (at, tile, rotated);
        if self.nkz.known.get(&key).is_some_and(|known| known.bytes == bytes) {
            return Ok(&self.nkz.known[&key]);
        }
        let head_dim = self.kv.setup().head_dim;
        let mut values = vec![0; TOKENS * head_dim];
        let mut headers = Vec::new();
        for (block, entry) in entries.iter().enumerate() {
            let (width, address) = (self.kv.widths()[block], Kv::address(stream, block, tile));
            let slot = Slot { address, width, channels: self.kv.lines(at, block) };
            let mut columns = vec![0; TOKENS * width];
            let stored = &bytes[offset(entry)..][..8 * usize::from(entry.words)];
            let decoded = slot.decode(stored, &mut columns)?;
            if decoded.overflow.is_some() || decoded.header.tokens() != TOKENS {
                return Err(Error::Corrupt(Corrupt { address, cause: Cause::Field }).into());
            }
            for (row, columns) in values.chunks_exact_mut(head_dim).zip(columns.chunks_exact(width)) {
                row[block * CHANNELS..][..width].copy_from_slice(columns);
            }
            headers.push(decoded.header);
        }
        let values = if rotated { self.rotate(tile * TOKENS as u32, &values)? } else { values };
        let widths = self.kv.widths().to_vec();
        let known = Known { bytes: bytes.to_vec(), headers, widths, values };
        Ok(self.nkz.known.entry(key).insert_entry(known).into_mut())
    }

    pub(super) fn kv_raw(
        &mut self,
        (count, width): (u32, u32),
        position: u32,
        from: Rows,
        tokens: &Tokens,
        conflict: u64,
    ) -> Result<Work, Fault> {
        let (count, width) = (counted("rows", count)?, counted("width", width)?);
        placed(&self.memory.scratch, "from", from, count, 2 * width)?;
        self.tokens_placed(tokens, count, width)?;
        let values = rows::<u16>(&self.memory.scratch, from, count, width)?.into_owned();
        // All decoders' output lanes carry raw rows side by side.
        let rate = self.config.codec.decoders * self.config.codec.values;
        let cycles = (count * width).div_ceil(rate) as u64;
        let values = if tokens.rotated { self.rotate(position, &values)? } else { values };
        self.write_tokens(tokens, width, &values)?;
        Ok(Work::of(cycles + ROTATE + EMPTY, conflict))
    }

    /// Checks where tokens go.
    fn tokens_placed(&self, tokens: &Tokens, count: usize, width: usize) -> Result<(), Fault> {
        let (rows, len) = if tokens.transposed { (width, count) } else { (count, width) };
        placed(&self.memory.scratch, "to", tokens.to, rows, 2 * len)
    }

    /// The rotate unit: rows of one head from `position` on.
    fn rotate(&self, position: u32, values: &[u16]) -> Result<Vec<u16>, Fault> {
        let setup = self.kv.setup();
        let mut turned = vec![0; values.len()];
        let positions = Ramp::from(position as usize);
        vector::transaction::rope_bf16(pairing(setup.interleaved), positions, &setup.frequencies, values, &mut turned)?;
        Ok(turned)
    }

    /// Writes tokens of `width` channels, transposed if asked.
    fn write_tokens(&mut self, tokens: &Tokens, width: usize, values: &[u16]) -> Result<(), Fault> {
        if !tokens.transposed {
            return put_rows(&mut self.memory.scratch, tokens.to, width, values);
        }
        let count = values.len() / width;
        let mut columns = vec![0u16; values.len()];
        // Blocks of 32 tokens keep both sides in the cache.
        for block in (0..count).step_by(TOKENS) {
            let end = count.min(block + TOKENS);
            for channel in 0..width {
                for token in block..end {
                    columns[channel * count + token] = values[token * width + channel];
                }
            }
        }
        put_rows(&mut self.memory.scratch, tokens.to, count, &columns)
    }
}
