//! A compressed cache: a dump's full tiles encoded, the rest raw.

mod file;

use super::{Calibration, Dump};
use golden::kv::KvShape;
use nkz::{
    Address, CHANNELS, Channel, Corrupt, Encoder, Format, Header, Kind, Mode, SINKS, Slot, TOKENS, TileIn,
    column_blocks,
};

/// A compressed cache: every full tile encoded, the sinks and the tokens behind the last full tile raw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Layers, KV heads and head dimension.
    pub shape: KvShape,
    /// Tokens of every stream.
    pub tokens: usize,
    /// The static tables, [layer][head][K, V][channel]; empty without calibration.
    pub tables: Vec<Channel>,
    /// The stored tiles, [layer][head][K, V][tile][block], header and payload, without gaps.
    tiles: Vec<u8>,
    /// Words of 8 bytes of each tile, its header included.
    words: Vec<u16>,
    /// BF16 [layer, head, K or V, sinks, head_dim].
    sinks: Vec<u16>,
    /// BF16 [layer, head, K or V, tokens mod 32, head_dim].
    tail: Vec<u16>,
}

/// A stored tile's place and bytes.
#[derive(Clone, Copy, Debug)]
pub struct Tile<'a> {
    /// Where it belongs.
    pub address: Address,
    /// Channels.
    pub width: usize,
    /// Header and payload.
    pub bytes: &'a [u8],
}

impl Tile<'_> {
    /// The header, unless its version or format does not exist.
    pub fn header(&self) -> Option<Header> {
        Header::unpack(u64::from_le_bytes(*self.bytes.first_chunk()?)).ok()
    }
}

impl Stored {
    /// Encodes a dump. A tile that a slot sends to the overflow region is stored lossless: a file has no such region.
    ///
    /// # Errors
    /// A head dimension or a mode that the codec refuses.
    pub fn encode(dump: &Dump, calibration: Option<&Calibration>, modes: [Mode; 2]) -> anyhow::Result<Self> {
        let (shape, d) = (dump.shape, dump.shape.head_dim);
        let tables = calibration.map(|c| c.lines.clone()).unwrap_or_default();
        let mut stored =
            Self { shape, tokens: dump.tokens, tables, tiles: vec![], words: vec![], sinks: vec![], tail: vec![] };
        let (mut encoder, mut bytes, mut block) = (Encoder::default(), Vec::new(), Vec::new());
        for stream in 0..2 * shape.layers * shape.heads {
            let rows = dump.rows(stream / 2 / shape.heads, stream / 2 % shape.heads, stream % 2);
            stored.sinks.extend(&rows[..dump.tokens.min(SINKS) * d]);
            let full = rows.chunks_exact(TOKENS * d);
            stored.tail.extend(full.remainder());
            for (tile, rows) in full.enumerate() {
                for (number, width) in column_blocks(d)?.enumerate() {
                    block.clear();
                    block.extend(rows.chunks_exact(d).flat_map(|row| &row[number * CHANNELS..][..width]));
                    let address = address(shape, stream, tile, number);
                    let channels = stored.lines(stream, number, width);
                    let tile = TileIn { address, values: &block, width, channels };
                    let done = encoder.encode(&tile, modes[stream % 2], &mut bytes)?;
                    if done.header.format == Format::Overflow {
                        encoder.encode(&tile, Mode::Lossless, &mut bytes)?;
                    }
                    stored.words.push((bytes.len() / 8) as u16);
                    stored.tiles.extend(&bytes);
                }
            }
        }
        Ok(stored)
    }

    fn lines(&self, stream: usize, block: usize, width: usize) -> Option<&[Channel]> {
        let first = stream * self.shape.head_dim + block * CHANNELS;
        self.tables.get(first..first + width)
    }

    /// All tiles in order of the file.
    pub fn tiles(&self) -> impl Iterator<Item = Tile<'_>> {
        let widths: Vec<usize> = column_blocks(self.shape.head_dim).map(Iterator::collect).unwrap_or_default();
        let (per_stream, mut at) = (self.tokens / TOKENS * widths.len(), 0);
        self.words.iter().enumerate().map(move |(i, &words)| {
            let bytes = &self.tiles[at..at + 8 * usize::from(words)];
            at += bytes.len();
            let (stream, tile, block) = (i / per_stream, i % per_stream / widths.len(), i % widths.len());
            Tile { address: address(self.shape, stream, tile, block), width: widths[block], bytes }
        })
    }

    /// Decodes all tiles. The rows of a corrupt one are zero, and it is named.
    pub fn decode(&self) -> (Dump, Vec<Corrupt>) {
        let d = self.shape.head_dim;
        let streams = 2 * self.shape.layers * self.shape.heads;
        let stream_of =
            |a: &Address| (usize::from(a.layer) * self.shape.heads + usize::from(a.head)) * 2 + a.kind as usize;
        let mut rows = vec![vec![0u16; self.tokens * d]; streams];
        let (mut corrupt, mut out) = (Vec::new(), vec![0; TOKENS * CHANNELS]);
        for tile in self.tiles() {
            let (a, stream, block) = (tile.address, stream_of(&tile.address), usize::from(tile.address.block));
            let out = &mut out[..TOKENS * tile.width];
            let slot = Slot { address: a, width: tile.width, channels: self.lines(stream, block, tile.width) };
            let cause = match slot.decode(tile.bytes, out) {
                Ok(done) if done.overflow.is_some() => Some(nkz::Cause::Overflow),
                Ok(done) if done.header.tokens() != TOKENS => Some(nkz::Cause::Field),
                Ok(_) => None,
                Err(nkz::Error::Corrupt(c)) => Some(c.cause),
                Err(_) => Some(nkz::Cause::Length),
            };
            if let Some(cause) = cause {
                out.fill(0);
                corrupt.push(Corrupt { address: a, cause });
            }
            let first = a.tile as usize * TOKENS * d + block * CHANNELS;
            for (row, from) in rows[stream][first..].chunks_mut(d).zip(out.chunks_exact(tile.width)) {
                row[..tile.width].copy_from_slice(from);
            }
        }
        let (sinks, tail) = (self.tokens.min(SINKS) * d, self.tokens % TOKENS * d);
        for (stream, rows) in rows.iter_mut().enumerate() {
            rows[..sinks].copy_from_slice(&self.sinks[stream * sinks..][..sinks]);
            let full = rows.len() - tail;
            rows[full..].copy_from_slice(&self.tail[stream * tail..][..tail]);
        }
        let of = |kind: usize| rows.iter().skip(kind).step_by(2).flatten().copied().collect();
        (Dump { shape: self.shape, tokens: self.tokens, values: [of(0), of(1)] }, corrupt)
    }

    /// Bytes of tiles, lengths, raw tokens.
    pub fn sizes(&self) -> [usize; 3] {
        [self.tiles.len(), 2 * self.words.len(), 2 * (self.sinks.len() + self.tail.len())]
    }
}

/// The address of a tile of stream number `stream` ([layer][head][K, V]).
fn address(shape: KvShape, stream: usize, tile: usize, block: usize) -> Address {
    Address {
        sequence: 0,
        layer: (stream / 2 / shape.heads) as u16,
        head: (stream / 2 % shape.heads) as u16,
        kind: [Kind::Key, Kind::Value][stream % 2],
        block: block as u8,
        tile: tile as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two layers, one head of 80 channels in two column blocks, 70 tokens: two full tiles a stream and a tail.
    pub(super) fn dump() -> Dump {
        let shape = KvShape { layers: 2, heads: 1, head_dim: 80 };
        let values = [0x3f00u16, 0x3f20].map(|base| (0..2 * 70 * 80).map(|i| base + (i * 7919 % 200) as u16).collect());
        Dump { shape, tokens: 70, values }
    }

    #[test]
    fn lossy_modes_keep_sinks_and_tail() {
        let dump = dump();
        let line = Channel { mean: 0x3f00, step: -20, spread: 20, ..Channel::default() };
        let calibration = Calibration { shape: dump.shape, lines: vec![line; 2 * 2 * 80] };
        let stored = Stored::encode(&dump, Some(&calibration), [Mode::Entropy { qp: 8 }; 2]).unwrap();
        let (decoded, corrupt) = stored.decode();
        assert!(corrupt.is_empty());
        let raw = |token: usize| !(SINKS..64).contains(&token);
        for (rows, back) in dump.values.iter().zip(&decoded.values) {
            for (i, (row, back)) in rows.chunks(80).zip(back.chunks(80)).enumerate() {
                assert_eq!(row == back, raw(i % 70), "token {}", i % 70);
            }
        }
    }
}
