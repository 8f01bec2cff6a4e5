//! The decoders' words out of the scratchpad, their rows to the rotate unit.

use super::table;
use crate::isa::Stream as Which;
use crate::memory::Scratch;
use crate::{Config, Fault, Kv};
use ::nkz::clocked::{DecodeCommand, Decoder, DecoderIn, TableRam};
use ::nkz::{CHANNELS, Cause, Corrupt, Error, LANES, TOKENS, UNIT};
use rtl::{Format, Module, Role, Signal, Stream, Visitor};

/// Shows a stream's fields.
pub(super) fn visit_stream(s: &mut Which, v: &mut impl Visitor) {
    v.reg("sequence_q", 8, Format::Unsigned, &mut s.sequence);
    v.reg("layer_q", 8, Format::Unsigned, &mut s.layer);
    v.reg("head_q", 8, Format::Unsigned, &mut s.head);
    v.reg("value_q", 1, Format::Unsigned, &mut s.value);
}

/// A decoder with what fetches for it and what gathers its rows.
#[derive(Clone, Debug)]
struct Lane {
    decoder: Decoder,
    /// Of the column block that is fetched next or that words come of: tile of the command (32 bits), column block (8 bits).
    tile: u32,
    block: u8,
    /// The word on offer, and the byte and number of words behind it: 32 and 10 bits.
    word: u64,
    word_valid: bool,
    next: u32,
    left: u16,
    /// Of the tile whose rows come: tile and column block.
    row_tile: u32,
    row_block: u8,
    /// [32, head_dim] BF16: column blocks whose rows wait for those of the tile's last.
    gathered: Vec<u16>,
    /// The token that this edge completes, and its tile: wires to the rotate unit, no registers.
    complete: Option<(u32, u8)>,
}

/// Tiles go to the decoders in turn. A decoder's column blocks follow each other; with the last one's rows whole tokens go on.
#[derive(Clone, Debug)]
pub(super) struct DecodeShell {
    stream: Which,
    first: u32,
    tiles: u32,
    from: u32,
    /// Byte of the stream's space that lies at `from`, 32 bits.
    start: u32,
    head_dim: usize,
    lanes: Vec<Lane>,
}

impl Lane {
    /// The edge. `count`: decoders side by side.
    fn clock(&mut self, shell: &Shell<'_>, count: u32) -> Result<(), Fault> {
        let Shell { kv, scratch, stream, first, tiles, from, start } = *shell;
        let blocks = kv.widths().len();
        let at = kv.at(stream)?;
        let block = usize::from(self.block);
        let more = self.tile < tiles && self.left == 0 && !self.word_valid;
        let mut command = DecodeCommand::default();
        let mut place = 0;
        if more {
            let entry = kv.entries(at, first + self.tile, 1)?[block];
            command = DecodeCommand {
                address: Kv::address(stream, block, first + self.tile),
                width: kv.widths()[block] as u8,
                words: entry.words,
                table: table(kv, at, block),
            };
            place = from + entry.offset * UNIT as u32 - start;
        }
        let out = self.decoder.out();
        let (commanded, word_taken) = (more && out.command_ready, self.word_valid && out.word_ready);
        let row = out.row.valid.then_some(*out.row.data);
        let status = out.status.valid.then_some(out.status.data);
        let word = Stream { valid: self.word_valid, data: self.word };
        self.decoder.clock(&DecoderIn {
            command: Stream { valid: more, data: &command },
            word,
            row_ready: true,
            status_ready: true,
        });
        if commanded {
            (self.next, self.left) = (place, command.words);
            self.block += 1;
            if usize::from(self.block) == blocks {
                (self.tile, self.block) = (self.tile + count, 0);
            }
        }
        if commanded || word_taken {
            self.word_valid = self.left > 0;
            if self.left > 0 {
                let bytes = scratch.read(self.next as usize, 8)?;
                self.word = bytes.first_chunk().map_or(0, |&bytes| u64::from_le_bytes(bytes));
                (self.next, self.left) = (self.next + 8, self.left - 1);
            }
        }
        self.complete = None;
        if let Some(row) = row {
            let head_dim = kv.setup().head_dim;
            let (block, token, count) = (usize::from(self.row_block), usize::from(row.token), usize::from(row.count));
            let channel = usize::from(row.group) * LANES;
            let place = token * head_dim + block * CHANNELS + channel;
            self.gathered[place..place + count].copy_from_slice(&row.values[..count]);
            if block + 1 == blocks && channel + count == kv.widths()[block] {
                self.complete = Some((self.row_tile, row.token));
            }
        }
        if let Some(status) = status {
            let corrupt = |cause| Fault::Nkz(Error::Corrupt(Corrupt { address: status.address, cause }));
            if let Some(cause) = status.cause {
                return Err(corrupt(cause));
            }
            if status.overflow.is_some() {
                return Err(corrupt(Cause::Field));
            }
            self.row_block += 1;
            if usize::from(self.row_block) == blocks {
                (self.row_tile, self.row_block) = (self.row_tile + count, 0);
            }
        }
        Ok(())
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        v.reg("tile_q", 32, Format::Unsigned, &mut self.tile);
        v.reg("block_q", 8, Format::Unsigned, &mut self.block);
        v.reg("word_q", 64, Format::Hex, &mut self.word);
        v.reg("word_valid_q", 1, Format::Unsigned, &mut self.word_valid);
        v.reg("next_q", 32, Format::Hex, &mut self.next);
        v.reg("left_q", 10, Format::Unsigned, &mut self.left);
        v.reg("row_tile_q", 32, Format::Unsigned, &mut self.row_tile);
        v.reg("row_block_q", 8, Format::Unsigned, &mut self.row_block);
        let signal = Signal { name: "gathered".into(), width: 16, format: Format::Hex, role: Role::Register };
        if v.memory(signal, self.gathered.len()) {
            self.gathered.iter_mut().for_each(|x| *x = v.word(u64::from(*x)) as u16);
        }
        v.scope("decoder", |v| self.decoder.visit(v));
    }
}

/// What a lane sees of the shell.
#[derive(Clone, Copy)]
struct Shell<'a> {
    kv: &'a Kv,
    scratch: &'a Scratch,
    stream: Which,
    first: u32,
    tiles: u32,
    from: u32,
    start: u32,
}

impl DecodeShell {
    pub(super) fn new(config: &Config, kv: &Kv, tables: &TableRam) -> Self {
        let head_dim = kv.setup().head_dim;
        let depth = config.codec.values / LANES;
        let lane = |_| Lane {
            decoder: Decoder::new(tables.clone(), depth),
            tile: 0,
            block: 0,
            word: 0,
            word_valid: false,
            next: 0,
            left: 0,
            row_tile: 0,
            row_block: 0,
            gathered: vec![0; TOKENS * head_dim],
            complete: None,
        };
        let lanes = (0..config.codec.decoders).map(lane).collect();
        Self { stream: Which::default(), first: 0, tiles: 0, from: 0, start: 0, head_dim, lanes }
    }

    pub(super) fn start(&mut self, kv: &Kv, stream: Which, (first, tiles): (u32, u32), from: u32) -> Result<(), Fault> {
        let (start, _) = kv.span(kv.at(stream)?, first, tiles)?;
        (self.stream, self.first, self.tiles) = (stream, first, tiles);
        (self.from, self.start) = (from, start as u32);
        for (d, lane) in self.lanes.iter_mut().enumerate() {
            (lane.tile, lane.block, lane.row_tile, lane.row_block) = (d as u32, 0, d as u32, 0);
        }
        Ok(())
    }

    /// All tiles' statuses have come.
    pub(super) fn done(&self) -> bool {
        self.lanes.iter().all(|lane| lane.row_tile >= self.tiles)
    }

    /// The wires to the rotate unit: the token that a decoder has completed.
    pub(super) fn row(&self, decoder: usize) -> Option<(u64, &[u16])> {
        let lane = &self.lanes[decoder];
        let (tile, token) = lane.complete?;
        let token = usize::from(token);
        let first = (u64::from(tile) * TOKENS as u64 + token as u64) * self.head_dim as u64;
        Some((first, &lane.gathered[token * self.head_dim..][..self.head_dim]))
    }

    pub(super) fn clock(&mut self, kv: &Kv, scratch: &Scratch) -> Result<(), Fault> {
        let Self { stream, first, tiles, from, start, .. } = *self;
        let shell = Shell { kv, scratch, stream, first, tiles, from, start };
        let count = self.lanes.len() as u32;
        self.lanes.iter_mut().try_for_each(|lane| lane.clock(&shell, count))
    }

    pub(super) fn reset(&mut self) {
        (self.stream, self.first, self.tiles, self.from, self.start) = (Which::default(), 0, 0, 0, 0);
        for lane in &mut self.lanes {
            lane.decoder.reset();
            (lane.tile, lane.block, lane.row_tile, lane.row_block) = (0, 0, 0, 0);
            (lane.word, lane.word_valid, lane.next, lane.left) = (0, false, 0, 0);
            lane.complete = None;
        }
    }

    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        visit_stream(&mut self.stream, v);
        v.reg("first_q", 32, Format::Unsigned, &mut self.first);
        v.reg("tiles_q", 32, Format::Unsigned, &mut self.tiles);
        v.reg("from_q", 32, Format::Hex, &mut self.from);
        v.reg("start_q", 32, Format::Hex, &mut self.start);
        self.lanes.iter_mut().enumerate().for_each(|(d, lane)| v.scope(("lane", d), |v| lane.visit(v)));
    }
}
