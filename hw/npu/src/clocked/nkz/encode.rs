//! The encoder's rows out of the scratchpad, its words into it, its tiles into the index.

use super::table;
use crate::isa::{Rows, Stream as Which};
use crate::memory::Scratch;
use crate::{Fault, Kv};
use ::nkz::clocked::{EncodeCommand, EncoderIn, TableRam, TileEncoder, WordBeat};
use ::nkz::{CHANNELS, Format as Stored, Header, TOKENS, UNIT};
use rtl::{Format, Module, Stream, Visitor};

/// Words of a unit.
const WORDS: usize = UNIT / 8;

/// A tile's column blocks go through the encoder one after the other. A row is read on the edge that takes the one before it.
#[derive(Clone, Debug)]
pub(super) struct EncodeShell {
    encoder: TileEncoder,
    stream: Which,
    tile: u32,
    from: Rows,
    /// Where the column block under way goes, 32 bits.
    to: u32,
    /// 8 bits: the column block under way, or, past the last, that the tile is done.
    block: u8,
    /// The row on offer, its number (6 bits), and whether there is one.
    row: [u16; CHANNELS],
    token: u8,
    row_valid: bool,
}

impl EncodeShell {
    pub(super) fn new(tables: TableRam) -> Self {
        Self {
            encoder: TileEncoder::new(tables),
            stream: Which::default(),
            tile: 0,
            from: Rows::default(),
            to: 0,
            block: 0,
            row: [0; CHANNELS],
            token: 0,
            row_valid: false,
        }
    }

    pub(super) fn start(&mut self, kv: &mut Kv, stream: Which, tile: u32, from: Rows, to: u32) -> Result<(), Fault> {
        let at = kv.at(stream)?;
        if tile != kv.tiles(at) {
            let rule = "tiles are encoded in their order: the next is the number that the index holds";
            return Err(Fault::Field { field: "tile", value: u64::from(tile), rule });
        }
        kv.discard(at);
        (self.stream, self.tile, self.from, self.to) = (stream, tile, from, to);
        (self.block, self.token, self.row_valid) = (0, 0, false);
        Ok(())
    }

    fn blocks_left(&self, kv: &Kv) -> bool {
        usize::from(self.block) < kv.widths().len()
    }

    pub(super) fn done(&self) -> bool {
        self.block == u8::MAX
    }

    /// Reads row `token` of the column block under way.
    fn read(&mut self, kv: &Kv, scratch: &Scratch, token: usize) -> Result<(), Fault> {
        let block = usize::from(self.block);
        let width = kv.widths()[block];
        let address = self.from.base as usize + token * self.from.pitch as usize + 2 * block * CHANNELS;
        let bytes = scratch.read(address, 2 * width)?;
        self.row.iter_mut().zip(bytes.as_chunks::<2>().0).for_each(|(x, b)| *x = u16::from_le_bytes(*b));
        (self.token, self.row_valid) = (token as u8, true);
        Ok(())
    }

    /// Writes a word, and zeros behind it up to the end of its unit: words come in order, the header last.
    fn write(&self, scratch: &mut Scratch, beat: &WordBeat) -> Result<(), Fault> {
        let index = usize::from(beat.index);
        let alone = Header::unpack(beat.data).is_ok_and(|header| header.words == 0);
        let words = if index > 0 || alone { WORDS - index % WORDS } else { 1 };
        let bytes = scratch.write(self.to as usize + 8 * index, 8 * words)?;
        bytes[..8].copy_from_slice(&beat.data.to_le_bytes());
        bytes[8..].fill(0);
        Ok(())
    }

    pub(super) fn clock(&mut self, kv: &mut Kv, scratch: &mut Scratch) -> Result<(), Fault> {
        if !self.blocks_left(kv) {
            return Ok(());
        }
        let block = usize::from(self.block);
        let at = kv.at(self.stream)?;
        let command = EncodeCommand {
            address: Kv::address(self.stream, block, self.tile),
            width: kv.widths()[block] as u8,
            tokens: TOKENS as u8,
            mode: kv.mode(self.stream),
            table: table(kv, at, block),
        };
        let out = self.encoder.out();
        let (commands, rows) = (out.command_ready, self.row_valid && out.row_ready);
        let (word, status) = (out.word.valid.then_some(*out.word.data), out.status.valid.then_some(out.status.data));
        let row = self.row;
        self.encoder.clock(&EncoderIn {
            command: Stream::offer(&command),
            row: Stream { valid: self.row_valid, data: &row },
            word_ready: true,
            status_ready: true,
        });
        if commands {
            self.read(kv, scratch, 0)?;
        } else if rows && usize::from(self.token) + 1 < TOKENS {
            self.read(kv, scratch, usize::from(self.token) + 1)?;
        } else if rows {
            self.row_valid = false;
        }
        if let Some(beat) = word {
            self.write(scratch, &beat)?;
        }
        if let Some(status) = status {
            if status.format == Stored::Overflow {
                return Err(Fault::Slot);
            }
            let bytes = 8 * usize::from(status.words);
            let size = bytes.next_multiple_of(UNIT);
            kv.enter(at, bytes)?;
            kv.stored_bytes += size as u64;
            self.to += size as u32;
            self.block += 1;
            if !self.blocks_left(kv) {
                kv.raw_bytes += (2 * TOKENS * kv.setup().head_dim) as u64;
                self.block = u8::MAX;
            }
        }
        Ok(())
    }

    pub(super) fn reset(&mut self) {
        self.encoder.reset();
        (self.stream, self.tile, self.from, self.to) = (Which::default(), 0, Rows::default(), 0);
        (self.block, self.row, self.token, self.row_valid) = (0, [0; CHANNELS], 0, false);
    }

    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        super::decode::visit_stream(&mut self.stream, v);
        v.reg("tile_q", 32, Format::Unsigned, &mut self.tile);
        v.reg("from_q", 32, Format::Hex, &mut self.from.base);
        v.reg("from_pitch_q", 32, Format::Hex, &mut self.from.pitch);
        v.reg("to_q", 32, Format::Hex, &mut self.to);
        v.reg("block_q", 8, Format::Unsigned, &mut self.block);
        v.reg("row_token_q", 6, Format::Unsigned, &mut self.token);
        v.reg("row_valid_q", 1, Format::Unsigned, &mut self.row_valid);
        self.row.iter_mut().enumerate().for_each(|(c, x)| v.reg(("row_q", c), 16, Format::Hex, x));
        v.scope("encoder", |v| self.encoder.visit(v));
    }
}
