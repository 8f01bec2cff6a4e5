//! The compressed KV cache of a whole model: staging, sinks, index, pages; append by token, read by tile.

use crate::pages::{Pages, Space, UNIT};
use crate::{
    Address, CHANNELS, Cause, Channel, Corrupt, Encoder, Error, Format, Header, Kind, Mode, Slot, TOKENS, TileIn,
    column_blocks,
};

/// Tokens at the start of a sequence that stay raw.
pub const SINKS: usize = 4;

/// What a cache is built for.
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// Sequences held at once.
    pub sequences: usize,
    /// Layers.
    pub layers: usize,
    /// KV heads of a layer.
    pub heads: usize,
    /// Channels of a head: a multiple of 8.
    pub head_dim: usize,
    /// How tiles of K are stored.
    pub keys: Mode,
    /// How tiles of V are stored.
    pub values: Mode,
    /// Pages of 4 KiB for the tiles.
    pub pages: usize,
    /// Tiles that the overflow region of the slot mode holds.
    pub overflow: usize,
    /// The static tables, [layer][head][K, V][channel]; empty for a model that was not calibrated.
    pub tables: Vec<Channel>,
}

/// One stream: the K or V of a head of a layer of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId {
    /// Sequence.
    pub sequence: usize,
    /// Layer.
    pub layer: usize,
    /// KV head.
    pub head: usize,
    /// Key or value.
    pub kind: Kind,
}

/// Where a tile of variable size lies. In memory the tiles' sizes lie in lines, [`IndexLine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// First unit of 32 bytes in the stream's space, 32 bits.
    pub offset: u32,
    /// Words of 8 bytes, the header among them, 16 bits.
    pub words: u16,
}

impl IndexEntry {
    /// Units of memory that the tile takes, 1..=129.
    pub fn units(&self) -> u8 {
        (8 * usize::from(self.words)).div_ceil(UNIT) as u8
    }
}

/// A line of a stream's index, one burst: where its first tile lies, 32 bits, and the units of up to 28 tiles from there on, 8 bits each, 0
/// past the last. A tile begins where the units before it end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexLine {
    /// First unit of the first tile.
    pub first: u32,
    /// Units of each tile.
    pub units: [u8; IndexLine::TILES],
}

impl IndexLine {
    /// Tiles of a line.
    pub const TILES: usize = 28;
    /// Bytes of a line.
    pub const BYTES: usize = UNIT;

    /// The line of up to 28 entries that follow each other.
    pub fn of(entries: &[IndexEntry]) -> Self {
        let mut line = Self { first: entries.first().map_or(0, |e| e.offset), ..Self::default() };
        line.units.iter_mut().zip(entries).for_each(|(units, entry)| *units = entry.units());
        line
    }

    /// The 32 bytes, little-endian.
    pub fn pack(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.first.to_le_bytes());
        bytes[4..].copy_from_slice(&self.units);
        bytes
    }

    /// First unit and units of tile `i` of the line; `None` past the last.
    pub fn tile(&self, i: usize) -> Option<(u32, u8)> {
        let units = *self.units.get(i).filter(|&&units| units > 0)?;
        Some((self.first + self.units[..i].iter().map(|&u| u32::from(u)).sum::<u32>(), units))
    }
}

#[derive(Clone, Debug, Default)]
struct Stream {
    tokens: usize,
    /// BF16 rows of the tile being filled.
    staging: Vec<u16>,
    /// BF16 rows of the first tokens.
    sinks: Vec<u16>,
    space: Space,
    /// Tile by tile, column block by column block.
    index: Vec<IndexEntry>,
}

/// Where the bytes of a cache went; every one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Values of tiles that are stored.
    pub values: usize,
    /// Headers, directories and payloads.
    pub tiles: usize,
    /// From a tile's end to the next unit.
    pub rounding: usize,
    /// Lines of the index; none for tiles of a fixed size.
    pub index: usize,
    /// Tiles in the overflow region.
    pub overflow: usize,
}

impl Footprint {
    /// All bytes.
    pub fn bytes(&self) -> usize {
        self.tiles + self.rounding + self.index + self.overflow
    }
}

/// A compressed KV cache.
#[derive(Clone, Debug)]
pub struct Cache {
    config: CacheConfig,
    widths: Vec<usize>,
    pages: Pages,
    streams: Vec<Stream>,
    overflow: Vec<Option<Vec<u8>>>,
    encoder: Encoder,
    buffer: Vec<u8>,
    footprint: [Footprint; 2],
    formats: [u64; 7],
    sticky: Option<Corrupt>,
    corrupt: u64,
}

impl Cache {
    /// An empty cache.
    ///
    /// # Errors
    /// A head dimension that cannot be cut, tables of another size, or a lossy mode without tables.
    pub fn new(config: CacheConfig) -> Result<Self, Error> {
        let widths: Vec<_> = column_blocks(config.head_dim)?.collect();
        let streams = config.layers * config.heads * 2;
        let (lines, expected) = (config.tables.len(), streams * config.head_dim);
        let lossy = |mode| !matches!(mode, Mode::Raw | Mode::Lossless);
        if lines == 0 && (lossy(config.keys) || lossy(config.values)) {
            return Err(Error::Uncalibrated);
        }
        if lines != 0 && lines != expected {
            return Err(Error::Range {
                what: "lines of the static tables",
                value: lines,
                least: expected,
                most: expected,
            });
        }
        Ok(Self {
            widths,
            pages: Pages::new(config.pages),
            streams: vec![Stream::default(); streams * config.sequences],
            overflow: vec![None; config.overflow],
            encoder: Encoder::default(),
            buffer: Vec::new(),
            footprint: [Footprint::default(); 2],
            formats: [0; 7],
            sticky: None,
            corrupt: 0,
            config,
        })
    }

    /// What the cache was built for.
    pub fn config(&self) -> &CacheConfig {
        &self.config
    }

    fn at(&self, id: StreamId) -> Result<usize, Error> {
        let c = &self.config;
        if id.sequence >= c.sequences || id.layer >= c.layers || id.head >= c.heads {
            let (sequence, layer, head) = (id.sequence, id.layer, id.head);
            let (sequences, layers, heads) = (c.sequences, c.layers, c.heads);
            return Err(Error::NoSuchStream { sequence, layer, head, sequences, layers, heads });
        }
        Ok(((id.sequence * c.layers + id.layer) * c.heads + id.head) * 2 + id.kind as usize)
    }

    /// The static tables' lines of a column block; `None` without calibration.
    fn lines(&self, stream: usize, block: usize) -> Option<&[Channel]> {
        let per_sequence = self.config.layers * self.config.heads * 2;
        let first = stream % per_sequence * self.config.head_dim + block * CHANNELS;
        self.config.tables.get(first..first + self.widths[block])
    }

    fn mode(&self, kind: Kind) -> Mode {
        if kind == Kind::Key { self.config.keys } else { self.config.values }
    }

    /// Tokens that a stream holds.
    ///
    /// # Errors
    /// A stream outside the cache.
    pub fn tokens(&self, id: StreamId) -> Result<usize, Error> {
        Ok(self.streams[self.at(id)?].tokens)
    }

    /// Appends a token's row of BF16 values. The row goes to the staging tile; its 32nd token sends the tile to the
    /// encoder, and the next token takes its place. A tile that finds no room leaves the stream as it was before this token.
    ///
    /// # Errors
    /// A stream outside the cache, a row of another length, or no page left.
    pub fn append(&mut self, id: StreamId, row: &[u16]) -> Result<(), Error> {
        let at = self.at(id)?;
        if row.len() != self.config.head_dim {
            return Err(Error::TileShape { tokens: 1, width: self.config.head_dim, values: row.len() });
        }
        let full = TOKENS * row.len();
        if self.streams[at].staging.len() == full {
            self.streams[at].staging.clear();
        }
        self.streams[at].staging.extend_from_slice(row);
        if self.streams[at].staging.len() == full
            && let Err(error) = self.store_tile(id, at)
        {
            self.streams[at].staging.truncate(full - row.len());
            return Err(error);
        }
        let stream = &mut self.streams[at];
        if stream.tokens < SINKS {
            stream.sinks.extend_from_slice(row);
        }
        stream.tokens += 1;
        Ok(())
    }

    /// Encodes the full staging tile, block by block.
    fn store_tile(&mut self, id: StreamId, at: usize) -> Result<(), Error> {
        let head_dim = self.config.head_dim;
        let staging = &self.streams[at].staging;
        let tile = (self.streams[at].tokens / TOKENS) as u32;
        let mut encoder = std::mem::take(&mut self.encoder);
        let mut stored = Vec::new();
        for (block, &width) in self.widths.iter().enumerate() {
            let values: Vec<u16> =
                staging.chunks_exact(head_dim).flat_map(|row| &row[block * CHANNELS..][..width]).copied().collect();
            let address = Address { block: block as u8, tile, ..address(id) };
            let tile = TileIn { address, values: &values, width, channels: self.lines(at, block) };
            let mut bytes = Vec::new();
            let done = encoder.encode(&tile, self.mode(id.kind), &mut bytes)?;
            let mut overflow = None;
            if done.header.format == Format::Overflow {
                let mut whole = Vec::new();
                encoder.encode(&tile, Mode::Lossless, &mut whole)?;
                overflow = Some(whole);
            }
            stored.push((address, bytes, overflow, done.header.format));
        }
        self.encoder = encoder;
        let before = self.streams[at].space.clone();
        let mut entries = Vec::new();
        for (_, bytes, ..) in &stored {
            let size = self.slot_size(id.kind).unwrap_or(bytes.len());
            match self.pages.allocate(&mut self.streams[at].space, size) {
                Ok(offset) => entries.push(IndexEntry { offset, words: (bytes.len() / 8) as u16 }),
                Err(error) => {
                    // Pages taken for the first blocks stay with the stream, its top goes back.
                    self.streams[at].space.retreat(&before);
                    return Err(error);
                }
            }
        }
        for ((address, mut bytes, overflow, format), entry) in stored.into_iter().zip(&entries) {
            if let Some(whole) = overflow {
                self.point(address, &mut bytes, whole);
            }
            self.pages.write(&self.streams[at].space, entry.offset, &bytes);
            self.account(id.kind, &bytes, format);
        }
        if matches!(self.mode(id.kind), Mode::Entropy { .. } | Mode::Lossless) {
            let lines = |entries: usize| entries.div_ceil(IndexLine::TILES) * IndexLine::BYTES;
            let held = self.streams[at].index.len();
            self.footprint[id.kind as usize].index += lines(held + entries.len()) - lines(held);
        }
        self.streams[at].index.extend(entries);
        Ok(())
    }

    /// Puts a tile into the overflow region and its place into the slot that points there; when the region is full the slot
    /// points past its end, which reads as [`Cause::Overflow`].
    fn point(&mut self, address: Address, slot: &mut [u8], whole: Vec<u8>) {
        let free = self.overflow.iter().position(Option::is_none);
        let place = free.unwrap_or(self.overflow.len());
        self.footprint[address.kind as usize].overflow += whole.len().next_multiple_of(UNIT);
        match free {
            Some(free) => self.overflow[free] = Some(whole),
            None => self.report(Corrupt { address, cause: Cause::Overflow }),
        }
        slot[Header::BYTES..Header::BYTES + 4].copy_from_slice(&(place as u32).to_le_bytes());
        if let Some(Ok(mut header)) = slot.first_chunk().map(|&bits| Header::unpack(u64::from_le_bytes(bits))) {
            header.crc = header.checksum(&address, &slot[Header::BYTES..]);
            slot[..Header::BYTES].copy_from_slice(&header.pack().to_le_bytes());
        }
    }

    /// Bytes of every tile of a kind, where they are the same.
    fn slot_size(&self, kind: Kind) -> Option<usize> {
        match self.mode(kind) {
            Mode::Slot { bytes } => Some(bytes),
            _ => None,
        }
    }

    fn account(&mut self, kind: Kind, bytes: &[u8], format: Format) {
        let size = self.slot_size(kind).unwrap_or(bytes.len());
        let f = &mut self.footprint[kind as usize];
        f.tiles += size;
        f.rounding += size.next_multiple_of(UNIT) - size;
        self.formats[format as usize] += 1;
    }

    /// Reads tile `tile` of a stream into `out` [32, head_dim] as the query of the last token sees it: its own tile and
    /// the sinks raw, all else decoded. Returns the rows written.
    ///
    /// # Errors
    /// Tokens that are not held, or [`Error::Corrupt`]: `out` is zero then, and its tokens are to be masked.
    pub fn read_tile(&mut self, id: StreamId, tile: usize, out: &mut [u16]) -> Result<usize, Error> {
        let at = self.at(id)?;
        let head_dim = self.config.head_dim;
        let held = self.streams[at].tokens;
        let rows = held.saturating_sub(tile * TOKENS).min(TOKENS);
        if rows == 0 || out.len() != TOKENS * head_dim {
            return Err(Error::NotHeld { first: tile * TOKENS, end: (tile + 1) * TOKENS, held });
        }
        if tile == (held - 1) / TOKENS {
            out[..rows * head_dim].copy_from_slice(&self.streams[at].staging);
        } else {
            let mut columns = vec![0; TOKENS * CHANNELS];
            for block in 0..self.widths.len() {
                let width = self.widths[block];
                let columns = &mut columns[..TOKENS * width];
                if let Err(error) = self.decode_block(id, at, tile, block, columns) {
                    out.fill(0);
                    if let Error::Corrupt(corrupt) = error {
                        self.report(corrupt);
                    }
                    return Err(error);
                }
                for (row, from) in out.chunks_exact_mut(head_dim).zip(columns.chunks_exact(width)) {
                    row[block * CHANNELS..][..width].copy_from_slice(from);
                }
            }
        }
        if tile == 0 {
            let sinks = &self.streams[at].sinks;
            out[..sinks.len()].copy_from_slice(sinks);
        }
        Ok(rows)
    }

    fn decode_block(
        &mut self,
        id: StreamId,
        at: usize,
        tile: usize,
        block: usize,
        out: &mut [u16],
    ) -> Result<(), Error> {
        let address = Address { block: block as u8, tile: tile as u32, ..address(id) };
        let entry = self.streams[at].index[tile * self.widths.len() + block];
        let mut bytes = std::mem::take(&mut self.buffer);
        self.pages.read(&self.streams[at].space, entry.offset, 8 * usize::from(entry.words), &mut bytes);
        let slot = Slot { address, width: self.widths[block], channels: self.lines(at, block) };
        let mut result = slot.decode(&bytes, out);
        if let Ok(decoded) = result
            && let Some(place) = decoded.overflow
        {
            let whole = self.overflow.get(place as usize).and_then(Option::as_deref);
            result = match whole {
                Some(whole) => slot.decode(whole, out),
                None => Err(Corrupt { address, cause: Cause::Overflow }.into()),
            };
        }
        self.buffer = bytes;
        match result {
            // A tile of fewer tokens than the index counts, or a pointer to a pointer: forged, for the CRC held.
            Ok(d) if d.header.tokens() != TOKENS => Err(Corrupt { address, cause: Cause::Field }.into()),
            Ok(d) if d.overflow.is_some() => Err(Corrupt { address, cause: Cause::Overflow }.into()),
            other => other.map(|_| ()),
        }
    }

    fn report(&mut self, corrupt: Corrupt) {
        self.sticky.get_or_insert(corrupt);
        self.corrupt += 1;
    }

    /// The first corrupt tile since the last call, and how many there were; clears both.
    pub fn take_error(&mut self) -> Option<(Corrupt, u64)> {
        let count = std::mem::take(&mut self.corrupt);
        self.sticky.take().map(|first| (first, count))
    }

    /// Forgets a sequence and gives its pages back.
    ///
    /// # Errors
    /// A sequence outside the cache.
    pub fn free(&mut self, sequence: usize) -> Result<(), Error> {
        let first = self.at(StreamId { sequence, layer: 0, head: 0, kind: Kind::Key })?;
        let streams = self.config.layers * self.config.heads * 2;
        for stream in &mut self.streams[first..first + streams] {
            self.pages.release(&mut stream.space);
            *stream = Stream::default();
        }
        Ok(())
    }

    /// Moves a page of a stream elsewhere in memory.
    ///
    /// # Errors
    /// A stream outside the cache, or no page left.
    pub fn move_page(&mut self, id: StreamId, page: usize) -> Result<(), Error> {
        let at = self.at(id)?;
        self.pages.move_page(&mut self.streams[at].space, page)
    }

    /// Where the tiles of a stream lie, block by block.
    ///
    /// # Errors
    /// A stream outside the cache.
    pub fn index(&self, id: StreamId) -> Result<&[IndexEntry], Error> {
        Ok(&self.streams[self.at(id)?].index)
    }

    /// The index of a stream as it lies in memory.
    ///
    /// # Errors
    /// A stream outside the cache.
    pub fn index_lines(&self, id: StreamId) -> Result<Vec<IndexLine>, Error> {
        Ok(self.index(id)?.chunks(IndexLine::TILES).map(IndexLine::of).collect())
    }

    /// A stored byte by its place in the stream's space, for fault injection; `None` past the end.
    pub fn byte_mut(&mut self, id: StreamId, address: usize) -> Option<&mut u8> {
        let at = self.at(id).ok()?;
        self.pages.byte_mut(&self.streams[at].space, address)
    }

    /// Pages that are free.
    pub fn free_pages(&self) -> usize {
        self.pages.free()
    }

    /// Where the bytes of all tiles stored so far went.
    pub fn footprint(&self, kind: Kind) -> Footprint {
        let tiles = self.streams.iter().skip(kind as usize).step_by(2).map(|s| s.tokens / TOKENS).sum::<usize>();
        Footprint { values: tiles * TOKENS * self.config.head_dim, ..self.footprint[kind as usize] }
    }

    /// Tiles stored in each format, by its code.
    pub fn formats(&self) -> &[u64; 7] {
        &self.formats
    }
}

/// The address of a stream's first tile.
fn address(id: StreamId) -> Address {
    let (sequence, layer, head) = (id.sequence as u16, id.layer as u16, id.head as u16);
    Address { sequence, layer, head, kind: id.kind, block: 0, tile: 0 }
}
