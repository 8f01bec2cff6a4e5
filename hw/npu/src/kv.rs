//! The KV path's state: index, block tables and the static tables of NeuKompression.

use crate::isa::Stream;
use crate::memory::CONTROL_BASE;
use crate::{Fault, Memory, SetupError};
use nkz::{Address, CHANNELS, Channel, Header, IndexEntry, Kind, Mode, PAGE, TOKENS, UNIT, column_blocks};
use rtl::{Format, Role, Signal, Visitor};

/// What the KV path is set up for before anything runs.
#[derive(Clone, Debug, PartialEq)]
pub struct KvSetup {
    /// Sequences held at once, 1..=256.
    pub sequences: usize,
    /// Layers, 1..=256.
    pub layers: usize,
    /// KV heads of a layer, 1..=256.
    pub heads: usize,
    /// Channels of a head: a multiple of 8.
    pub head_dim: usize,
    /// How tiles of K are stored.
    pub keys: Mode,
    /// How tiles of V are stored.
    pub values: Mode,
    /// The static tables, [layer][head][K, V][channel]; empty for a model that was not calibrated.
    pub tables: Vec<Channel>,
    /// Most tokens of a sequence.
    pub context: usize,
    /// DRAM address of the pages, a multiple of the page size.
    pub pages: u64,
    /// Frequencies of the rotate unit, head_dim/2 FP32 radians a position.
    pub frequencies: Vec<f32>,
    /// Pairs (2i, 2i + 1) instead of (i, i + d/2).
    pub interleaved: bool,
}

impl KvSetup {
    /// Streams in all.
    pub fn streams(&self) -> usize {
        self.sequences * self.layers * self.heads * 2
    }

    /// Most bytes of a stored tile: a raw one, each column block with its header and rounded up to a unit.
    pub fn tile_bytes(&self) -> usize {
        let block = |width: usize| (Header::BYTES + 2 * TOKENS * width).next_multiple_of(UNIT);
        column_blocks(self.head_dim).map_or(0, |widths| widths.map(block).sum())
    }

    /// Pages of a stream: enough for raw tiles over the whole context.
    pub fn pages_per_stream(&self) -> usize {
        (self.context / TOKENS * self.tile_bytes()).div_ceil(PAGE)
    }

    /// Bytes of DRAM that the pages take.
    pub fn page_bytes(&self) -> u64 {
        (self.streams() * self.pages_per_stream() * PAGE) as u64
    }

    fn check(&self) -> Result<Vec<usize>, SetupError> {
        let small = |what, value: usize| match (1..=256).contains(&value) {
            true => Ok(()),
            false => Err(SetupError::Range { what, value, least: 1, most: 256 }),
        };
        small("sequences", self.sequences)?;
        small("layers", self.layers)?;
        small("KV heads", self.heads)?;
        let widths: Vec<usize> = column_blocks(self.head_dim).map_err(SetupError::Nkz)?.collect();
        let expected = self.layers * self.heads * 2 * self.head_dim;
        let lines = self.tables.len();
        let lossy = |mode| !matches!(mode, Mode::Raw | Mode::Lossless);
        if lines == 0 && (lossy(self.keys) || lossy(self.values)) {
            return Err(SetupError::Nkz(nkz::Error::Uncalibrated));
        }
        if lines != 0 && lines != expected {
            return Err(SetupError::Range {
                what: "lines of the static tables",
                value: lines,
                least: expected,
                most: expected,
            });
        }
        let half = self.head_dim / 2;
        if self.frequencies.len() != half {
            let value = self.frequencies.len();
            return Err(SetupError::Range { what: "frequencies of the rotate unit", value, least: half, most: half });
        }
        if !self.pages.is_multiple_of(PAGE as u64) {
            return Err(SetupError::Pages(self.pages));
        }
        Ok(widths)
    }
}

/// Index and block table of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Place {
    /// First free unit of the stream's space.
    top: u32,
    /// Tile by tile, column block by column block.
    index: Vec<IndexEntry>,
    /// Tiles that commands see: an encoded tile is one of them from the edge on which its command ends.
    tiles: u32,
}

/// The index SRAM and what else the KV path keeps.
#[derive(Clone, Debug, PartialEq)]
pub struct Kv {
    setup: KvSetup,
    widths: Vec<usize>,
    streams: Vec<Place>,
    /// Bytes of the values that the stored tiles stand for, and of the tiles, per K and V.
    pub(crate) raw_bytes: u64,
    pub(crate) stored_bytes: u64,
}

/// Bytes of the control RAM in front of the block tables: room for the descriptors of one KV command.
pub(crate) const COMPOSE_BYTES: usize = 1024;

/// Part of a stream's space in one piece of DRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// DRAM address.
    pub address: u64,
    /// Bytes.
    pub bytes: usize,
}

impl Kv {
    pub(crate) fn new(setup: KvSetup) -> Result<Self, SetupError> {
        let widths = setup.check()?;
        let streams = vec![Place::default(); setup.streams()];
        Ok(Self { setup, widths, streams, raw_bytes: 0, stored_bytes: 0 })
    }

    /// Bytes of the control RAM.
    pub(crate) fn control_bytes(&self) -> usize {
        COMPOSE_BYTES + 4 * self.streams.len() * self.setup.pages_per_stream()
    }

    /// Fills the block tables. Pages of streams that are read together lie in turn, so that a table has something to say.
    pub(crate) fn fill_tables(&self, memory: &mut Memory) {
        let (streams, pages) = (self.streams.len(), self.setup.pages_per_stream());
        for (stream, table) in memory.control[COMPOSE_BYTES..].chunks_exact_mut(4 * pages.max(1)).enumerate() {
            for (page, entry) in table.chunks_exact_mut(4).enumerate() {
                entry.copy_from_slice(&((page * streams + stream) as u32).to_le_bytes());
            }
        }
    }

    /// What it was set up for.
    pub fn setup(&self) -> &KvSetup {
        &self.setup
    }

    /// Widths of the column blocks of a tile.
    pub(crate) fn widths(&self) -> &[usize] {
        &self.widths
    }

    pub(crate) fn at(&self, s: Stream) -> Result<usize, Fault> {
        let (sequence, layer, head) = (s.sequence as usize, s.layer as usize, s.head as usize);
        let c = &self.setup;
        if sequence >= c.sequences || layer >= c.layers || head >= c.heads {
            return Err(Fault::Stream(s));
        }
        Ok(((sequence * c.layers + layer) * c.heads + head) * 2 + usize::from(s.value))
    }

    /// The codec's name for a column block of a tile.
    pub(crate) fn address(s: Stream, block: usize, tile: u32) -> Address {
        Address {
            sequence: u16::from(s.sequence),
            layer: u16::from(s.layer),
            head: u16::from(s.head),
            kind: if s.value { Kind::Value } else { Kind::Key },
            block: block as u8,
            tile,
        }
    }

    pub(crate) fn mode(&self, s: Stream) -> Mode {
        if s.value { self.setup.values } else { self.setup.keys }
    }

    /// The static tables' lines of a column block; `None` without calibration.
    pub(crate) fn lines(&self, stream: usize, block: usize) -> Option<&[Channel]> {
        let per_sequence = self.setup.layers * self.setup.heads * 2;
        let first = stream % per_sequence * self.setup.head_dim + block * CHANNELS;
        self.setup.tables.get(first..first + self.widths[block])
    }

    /// Tiles that the index holds.
    pub(crate) fn tiles(&self, stream: usize) -> u32 {
        self.streams[stream].tiles
    }

    /// Drops column blocks of a tile that did not become complete.
    pub(crate) fn discard(&mut self, stream: usize) {
        let place = &mut self.streams[stream];
        place.index.truncate(place.tiles as usize * self.widths.len());
        place.top =
            place.index.last().map_or(0, |last| last.offset + (8 * u32::from(last.words)).div_ceil(UNIT as u32));
    }

    /// Makes the tile whose column blocks were entered one of those that commands see.
    pub(crate) fn commit(&mut self, stream: usize) {
        let place = &mut self.streams[stream];
        place.tiles = (place.index.len() / self.widths.len()) as u32;
    }

    /// Enters a column block of a tile behind the last; commands see the tile once it is committed.
    pub(crate) fn enter(&mut self, stream: usize, bytes: usize) -> Result<(), Fault> {
        let capacity = (self.setup.pages_per_stream() * PAGE / UNIT) as u32;
        let place = &mut self.streams[stream];
        let offset = place.top;
        let top = offset + bytes.div_ceil(UNIT) as u32;
        if top > capacity {
            return Err(Fault::KvFull { tokens: self.setup.context as u64 });
        }
        place.top = top;
        place.index.push(IndexEntry { offset, words: (bytes / 8) as u16 });
        Ok(())
    }

    /// Forgets a sequence.
    pub(crate) fn forget(&mut self, sequence: usize) {
        let per_sequence = self.setup.layers * self.setup.heads * 2;
        for place in self.streams.iter_mut().skip(sequence * per_sequence).take(per_sequence) {
            *place = Place::default();
        }
    }

    /// Index entries of tiles, block by block.
    pub(crate) fn entries(&self, stream: usize, first: u32, tiles: u32) -> Result<&[IndexEntry], Fault> {
        let blocks = self.widths.len();
        let (from, to) = (first as usize * blocks, (first as usize + tiles as usize) * blocks);
        let held = self.tiles(stream);
        let seen = &self.streams[stream].index[..held as usize * blocks];
        seen.get(from..to).ok_or(Fault::Tiles { first, tiles, held })
    }

    /// First byte and bytes of tiles in the stream's space, from unit to unit.
    pub(crate) fn span(&self, stream: usize, first: u32, tiles: u32) -> Result<(usize, usize), Fault> {
        let entries = self.entries(stream, first, tiles)?;
        let (Some(head), Some(last)) = (entries.first(), entries.last()) else { return Ok((0, 0)) };
        let start = head.offset as usize * UNIT;
        let end = last.offset as usize * UNIT + (8 * usize::from(last.words)).next_multiple_of(UNIT);
        Ok((start, end - start))
    }

    /// Pages of all streams: entries of a block table lie below.
    pub(crate) fn page_count(&self) -> u32 {
        (self.streams.len() * self.setup.pages_per_stream()) as u32
    }

    /// Byte offset of a stream's block table in the control RAM.
    pub(crate) fn table(&self, stream: usize) -> usize {
        COMPOSE_BYTES + 4 * stream * self.setup.pages_per_stream()
    }

    /// Physical page of a stream's logical one.
    pub(crate) fn page(&self, memory: &Memory, stream: usize, logical: usize) -> u64 {
        let at = self.table(stream) + 4 * logical;
        memory.control[at..at + 4].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
    }

    /// Shows the index: its memory, and each stream's registers.
    pub(crate) fn visit(&mut self, v: &mut impl Visitor) {
        let most = self.setup.context / TOKENS * self.widths.len();
        for (stream, place) in self.streams.iter_mut().enumerate() {
            v.reg(("top_q", stream), 32, Format::Unsigned, &mut place.top);
            v.reg(("tiles_q", stream), 32, Format::Unsigned, &mut place.tiles);
            let mut entered = place.index.len() as u32;
            v.reg(("entered_q", stream), 32, Format::Unsigned, &mut entered);
            let signal =
                Signal { name: ("entries", stream).into(), width: 48, format: Format::Hex, role: Role::Register };
            if v.memory(signal, most) {
                place.index.resize(most.max(place.index.len()), IndexEntry { offset: 0, words: 0 });
                for entry in &mut place.index[..most] {
                    let bits = v.word(u64::from(entry.offset) << 16 | u64::from(entry.words));
                    *entry = IndexEntry { offset: (bits >> 16) as u32, words: bits as u16 };
                }
            }
            // A register that was written past the memory's end enters no more than it holds.
            let entered = (entered as usize).min(most.max(place.index.len()));
            place.index.resize(entered, IndexEntry { offset: 0, words: 0 });
        }
        v.reg("raw_bytes_q", 48, Format::Unsigned, &mut self.raw_bytes);
        v.reg("stored_bytes_q", 48, Format::Unsigned, &mut self.stored_bytes);
    }

    /// Where a span of a stream's space lies, page by page.
    pub(crate) fn pieces(&self, memory: &Memory, stream: usize, start: usize, bytes: usize) -> Vec<Piece> {
        let (mut at, end) = (start, start + bytes);
        let mut pieces = Vec::new();
        while at < end {
            let next = end.min((at / PAGE + 1) * PAGE);
            let page = self.page(memory, stream, at / PAGE);
            let address = self.setup.pages + page * PAGE as u64 + (at % PAGE) as u64;
            pieces.push(Piece { address, bytes: next - at });
            at = next;
        }
        pieces
    }
}

/// Where the DMA sees a byte of the control RAM.
pub(crate) fn control(offset: usize) -> u64 {
    CONTROL_BASE + offset as u64
}
