use super::TableRam;
use crate::lanes::{self, STATES_BITS};
use crate::{
    Address, CHANNELS, Cause, Channel, Crc, Format, Header, Kind, LANES, PLAIN_TABLE, Quantiser, Slot, TOKENS, bits,
    code_tables, exponent_tables,
};
use rtl::{Format as Look, Module, Name, Payload, Role, Signal, Stream, Visitor};

/// Words of a tile buffer: a header and the longest payload.
const WORDS: usize = 1 + 2 * TOKENS * CHANNELS / 8;

/// What the fetch unit tells the decoder about a tile before its words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeCommand {
    /// Where the tile belongs.
    pub address: Address,
    /// Channels, 8..=64 by 8.
    pub width: u8,
    /// Words of 8 bytes that follow, 1..=513: the index entry's, or the slot's.
    pub words: u16,
    /// Word of the table memory with the static tables' lines; `None` for a model that was not calibrated.
    pub table: Option<u32>,
}

/// Values of one cycle: up to 16 consecutive channels of a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowBeat {
    /// BF16; lanes past `count` are zero.
    pub values: [u16; 2 * LANES],
    /// Values that count, 8 or 16.
    pub count: u8,
    /// Token in the tile, 0..=31.
    pub token: u8,
    /// First channel / 8.
    pub group: u8,
}

/// How a tile ended; it stands once the last row has left. On a cause, its rows so far are void and its tokens masked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeStatus {
    /// The tile.
    pub address: Address,
    /// The cause, if the tile is corrupt.
    pub cause: Option<Cause>,
    /// Unit of the overflow region that holds the tile, if it lies there.
    pub overflow: Option<u32>,
}

/// Inputs of a [`Decoder`].
#[derive(Clone, Copy, Debug)]
pub struct DecoderIn<'a> {
    /// The next tile.
    pub command: Stream<&'a DecodeCommand>,
    /// Its stored words, header first.
    pub word: Stream<u64>,
    /// The consumer takes a row beat.
    pub row_ready: bool,
    /// The consumer takes a status.
    pub status_ready: bool,
}

/// Outputs of a [`Decoder`].
#[derive(Clone, Copy, Debug)]
pub struct DecoderOut<'a> {
    /// A tile buffer is free.
    pub command_ready: bool,
    /// A word is wanted.
    pub word_ready: bool,
    /// Decoded values.
    pub row: Stream<&'a RowBeat>,
    /// The end of a tile.
    pub status: Stream<DecodeStatus>,
}

/// One of the two tile buffers.
#[derive(Clone, Debug)]
struct Bank {
    full: bool,
    command: DecodeCommand,
    /// What the loader's checks found.
    cause: Option<Cause>,
    /// Little-endian words, header first.
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Load {
    #[default]
    Idle,
    Words,
    Check,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Drain {
    #[default]
    Idle,
    Rows,
    Report,
}

/// The decoder: a loader fills one tile buffer and checks its CRC while the lanes drain the other, 8 · `depth` values a cycle.
///
/// Latency: a tile of w words and b row beats that finds both stages idle shows its first row w + 4 edges after its
/// command, its status b edges after that; [`super::decode_edges`] is the closed form under any stall.
#[derive(Clone, Debug)]
pub struct Decoder {
    tables: TableRam,
    /// Symbols of a lane a cycle, 1 or 2.
    depth: usize,
    banks: [Bank; 2],
    /// 1 bit: the buffer that the loader fills.
    fill: u8,
    load: Load,
    /// 10 bits.
    loaded: u16,
    /// 16 bits: over the payload so far.
    crc: u16,
    /// 1 bit: the buffer that drains.
    drain_bank: u8,
    drain: Drain,
    /// 5 bits.
    token: u8,
    /// 4 bits: channel / 8.
    group: u8,
    /// 13 bits each, the leading one included.
    states: [u16; LANES],
    /// 16 bits: the stream's next bit in the payload.
    position: u16,
    /// What the drained tile ended with, until its status leaves.
    cause: Option<Cause>,
    row: RowBeat,
    row_valid: bool,
}

impl Decoder {
    /// A decoder of `depth` symbols a lane and cycle over static tables.
    ///
    /// # Panics
    /// If `depth` is neither 1 nor 2.
    pub fn new(tables: TableRam, depth: usize) -> Self {
        assert!(depth == 1 || depth == 2, "a lane decodes one or two symbols a cycle");
        let bank = Bank { full: false, command: DecodeCommand::default(), cause: None, bytes: vec![0; 8 * WORDS] };
        Self {
            tables,
            depth,
            banks: [bank.clone(), bank],
            fill: 0,
            load: Load::Idle,
            loaded: 0,
            crc: 0,
            drain_bank: 0,
            drain: Drain::Idle,
            token: 0,
            group: 0,
            states: [0; LANES],
            position: 0,
            cause: None,
            row: RowBeat::default(),
            row_valid: false,
        }
    }

    fn lines(&self, command: &DecodeCommand) -> Option<&[Channel]> {
        command.table.and_then(|word| self.tables.read(word, usize::from(command.width)))
    }

    fn clock_loader(&mut self, command: bool, i: &DecoderIn<'_>) {
        let bank = usize::from(self.fill);
        match self.load {
            Load::Idle => {
                if command {
                    self.banks[bank].command = *i.command.data;
                    self.crc = i.command.data.address.seed().value();
                    (self.load, self.loaded) = (Load::Words, 0);
                }
            }
            Load::Words => {
                if i.word.valid {
                    let at = 8 * usize::from(self.loaded);
                    let bytes = i.word.data.to_le_bytes();
                    // A fetch unit that names more words than a tile has is cut off by the length check.
                    if let Some(room) = self.banks[bank].bytes.get_mut(at..at + 8) {
                        room.copy_from_slice(&bytes);
                    }
                    let header = self.header_bits(bank);
                    if self.loaded > 0 && u64::from(self.loaded) <= header >> 19 & 1023 {
                        self.crc = Crc::new(self.crc).over(&bytes).value();
                    }
                    self.loaded += 1;
                    if self.loaded == self.banks[bank].command.words {
                        self.load = Load::Check;
                    }
                }
            }
            Load::Check => {
                self.banks[bank].cause = self.check(bank).err();
                self.banks[bank].full = true;
                (self.fill, self.load) = (1 - self.fill, Load::Idle);
            }
        }
    }

    fn header_bits(&self, bank: usize) -> u64 {
        self.banks[bank].bytes.first_chunk().map_or(0, |&bytes| u64::from_le_bytes(bytes))
    }

    /// The checks that come before any value leaves: header, length, CRC, fields.
    fn check(&self, bank: usize) -> Result<(), Cause> {
        let command = &self.banks[bank].command;
        let slot = Slot { address: command.address, width: usize::from(command.width), channels: self.lines(command) };
        let header = Header::unpack(self.header_bits(bank))?;
        if header.payload() > slot.largest() {
            return Err(Cause::Length);
        }
        if header.words >= command.words {
            return Err(Cause::Truncated);
        }
        if header.close(Crc::new(self.crc)) != header.crc {
            return Err(Cause::Crc);
        }
        slot.check_header(&header)?;
        if matches!(header.format, Format::Entropy | Format::Slot | Format::Lossless) {
            slot.stream(&header)?;
        }
        Ok(())
    }

    /// The header of the draining tile, which the loader has checked.
    fn header(&self) -> Header {
        Header::unpack(self.header_bits(usize::from(self.drain_bank))).unwrap_or_default()
    }

    /// The draining tile's payload; of a header that the loader has yet to refuse, as much as there is.
    fn payload(&self, header: &Header) -> &[u8] {
        let held = &self.banks[usize::from(self.drain_bank)].bytes[Header::BYTES..];
        &held[..header.payload().min(held.len())]
    }

    fn clock_drain(&mut self, i: &DecoderIn<'_>) {
        let reported = i.status_ready && !self.row_valid;
        let room = !self.row_valid || i.row_ready;
        if i.row_ready {
            self.row_valid = false;
        }
        let bank = usize::from(self.drain_bank);
        match self.drain {
            Drain::Idle => {
                if self.banks[bank].full {
                    self.start(bank);
                }
            }
            Drain::Rows => {
                if room {
                    self.beat();
                }
            }
            Drain::Report => {
                if reported {
                    self.banks[bank].full = false;
                    (self.drain_bank, self.drain) = (1 - self.drain_bank, Drain::Idle);
                }
            }
        }
    }

    /// Sets the lanes on their places.
    fn start(&mut self, bank: usize) {
        (self.token, self.group, self.cause) = (0, 0, self.banks[bank].cause);
        let header = self.header();
        if self.cause.is_some() || header.format == Format::Overflow {
            if self.cause.is_none() && self.payload(&header)[4..] != [0; 4] {
                self.cause = Some(Cause::Padding);
            }
            self.drain = Drain::Report;
            return;
        }
        self.drain = Drain::Rows;
        let command = &self.banks[bank].command;
        let slot = Slot { address: command.address, width: usize::from(command.width), channels: self.lines(command) };
        if let Ok(first) = slot.stream(&header) {
            self.states = lanes::states(self.payload(&header), first).map(|state| state as u16);
            self.position = (first + STATES_BITS) as u16;
        }
    }

    /// One cycle of the lanes: the next `depth` groups of eight channels of a token.
    fn beat(&mut self) {
        let bank = usize::from(self.drain_bank);
        let (header, command) = (self.header(), self.banks[bank].command);
        let width = usize::from(command.width);
        let mut row = RowBeat { token: self.token, group: self.group, ..RowBeat::default() };
        for step in 0..self.depth {
            let group = usize::from(self.group) + step;
            if group * LANES < width {
                let values = self.eight(&header, &command, group);
                row.values[step * LANES..][..LANES].copy_from_slice(&values);
                row.count += LANES as u8;
            }
        }
        (self.row, self.row_valid) = (row, true);
        self.group += self.depth as u8;
        if usize::from(self.group) * LANES >= width {
            (self.token, self.group) = (self.token + 1, 0);
            if usize::from(self.token) == header.tokens() {
                self.cause = self.end(&header, &command).err();
                self.drain = Drain::Report;
            }
        }
    }

    /// Eight channels of the current token; entropy-coded lanes each take a step.
    fn eight(&mut self, header: &Header, command: &DecodeCommand, group: usize) -> [u16; LANES] {
        let width = usize::from(command.width);
        let token = usize::from(self.token);
        let plain = Channel { exponent_table: PLAIN_TABLE, ..Channel::default() };
        std::array::from_fn(|lane| {
            let channel = group * LANES + lane;
            let at = token * width + channel;
            let line = self.lines(command).map_or(plain, |lines| lines[channel]);
            let payload = self.payload(header);
            match header.format {
                Format::Raw => u16::from_le_bytes([payload[2 * at], payload[2 * at + 1]]),
                Format::Mean | Format::Overflow => line.mean,
                Format::Fixed => {
                    let nibble = payload[at / 2] >> (at % 2 * 4);
                    Quantiser::fixed(&line, header.qp).rebuild(i32::from((nibble << 4) as i8 >> 4))
                }
                Format::Entropy | Format::Slot => {
                    let table = &code_tables()[line.table(header.qp, i32::from(header.offset) - 2)];
                    let code = self.step(header, lane, table);
                    Quantiser::entropy(&line, header.qp).rebuild(code)
                }
                Format::Lossless => {
                    let line = if header.flags & Header::PLAIN != 0 { plain } else { line };
                    let rest = u16::from(payload[at]);
                    let table = &exponent_tables()[usize::from(line.exponent_table & 15)];
                    let difference = self.step(header, lane, table) as u8;
                    let exponent = difference.wrapping_add(line.exponent).wrapping_add(header.shift() as u8);
                    (rest & 0x80) << 8 | u16::from(exponent) << 7 | rest & 0x7f
                }
            }
        })
    }

    /// One symbol of a lane, from the shared stream.
    fn step(&mut self, header: &Header, lane: usize, table: &crate::Table) -> i32 {
        let window = bits::peek(self.payload(header), usize::from(self.position));
        let (value, state, used) = lanes::decode_step(table, u32::from(self.states[lane]), window);
        self.states[lane] = state as u16;
        self.position += used as u16;
        value
    }

    /// The checks behind the last value.
    fn end(&self, header: &Header, command: &DecodeCommand) -> Result<(), Cause> {
        let payload = self.payload(header);
        match header.format {
            Format::Fixed => {
                let used = header.tokens() * usize::from(command.width) / 2;
                if payload[used..].iter().any(|&b| b != 0) { Err(Cause::Padding) } else { Ok(()) }
            }
            Format::Entropy | Format::Slot | Format::Lossless => {
                let states = self.states.map(u32::from);
                lanes::check_end(payload, self.position.into(), &states, header.format == Format::Slot)
            }
            _ => Ok(()),
        }
    }

    fn status(&self) -> DecodeStatus {
        let bank = &self.banks[usize::from(self.drain_bank)];
        let header = self.header();
        let overflow = (header.format == Format::Overflow && self.cause.is_none())
            .then(|| self.payload(&header).first_chunk().map_or(0, |&four| u32::from_le_bytes(four)));
        DecodeStatus { address: bank.command.address, cause: self.cause, overflow }
    }
}

impl Module for Decoder {
    type In<'a> = DecoderIn<'a>;
    type Out<'a> = DecoderOut<'a>;

    fn out(&self) -> DecoderOut<'_> {
        DecoderOut {
            command_ready: self.load == Load::Idle && !self.banks[usize::from(self.fill)].full,
            word_ready: self.load == Load::Words,
            row: Stream { valid: self.row_valid, data: &self.row },
            status: Stream { valid: self.drain == Drain::Report && !self.row_valid, data: self.status() },
        }
    }

    fn clock(&mut self, i: &DecoderIn<'_>) {
        // Both stages see the buffers as they were before the edge.
        let command = i.command.fires(self.out().command_ready);
        self.clock_drain(i);
        self.clock_loader(command, i);
    }

    fn reset(&mut self) {
        let tables = std::mem::take(&mut self.tables);
        let mut fresh = Self::new(tables, self.depth);
        for (new, old) in fresh.banks.iter_mut().zip(&mut self.banks) {
            new.bytes = std::mem::take(&mut old.bytes);
        }
        *self = fresh;
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        self.tables.visit(v);
        for (n, bank) in self.banks.iter_mut().enumerate() {
            v.scope(("bank", n), |v| {
                v.reg("full_q", 1, Look::Unsigned, &mut bank.full);
                bank.command.visit("command_q".into(), v);
                visit_cause("cause_q", &mut bank.cause, v);
                let signal = Signal { name: "words".into(), width: 64, format: Look::Hex, role: Role::Register };
                if v.memory(signal, WORDS) {
                    for word in bank.bytes.chunks_exact_mut(8) {
                        let old = word.first_chunk().map_or(0, |&bytes| u64::from_le_bytes(bytes));
                        word.copy_from_slice(&v.word(old).to_le_bytes());
                    }
                }
            });
        }
        v.reg("fill_q", 1, Look::Unsigned, &mut self.fill);
        let mut load = self.load as u8;
        v.reg("load_q", 2, Look::Enum(&["idle", "words", "check"]), &mut load);
        self.load = [Load::Idle, Load::Words, Load::Check, Load::Check][usize::from(load)];
        v.reg("loaded_q", 10, Look::Unsigned, &mut self.loaded);
        v.reg("crc_q", 16, Look::Hex, &mut self.crc);
        v.reg("drain_bank_q", 1, Look::Unsigned, &mut self.drain_bank);
        let mut drain = self.drain as u8;
        v.reg("drain_q", 2, Look::Enum(&["idle", "rows", "report"]), &mut drain);
        self.drain = [Drain::Idle, Drain::Rows, Drain::Report, Drain::Report][usize::from(drain)];
        v.reg("token_q", 6, Look::Unsigned, &mut self.token);
        v.reg("group_q", 4, Look::Unsigned, &mut self.group);
        for lane in 0..LANES {
            v.reg(("state_q", lane), 13, Look::Unsigned, &mut self.states[lane]);
        }
        v.reg("position_q", 16, Look::Unsigned, &mut self.position);
        visit_cause("cause_q", &mut self.cause, v);
        v.reg("row_valid_q", 1, Look::Unsigned, &mut self.row_valid);
        self.row.visit("row_q".into(), v);
        v.wire("row_valid", 1, Look::Unsigned, self.row_valid);
    }
}

/// A cause as a register of 4 bits: 0 is none, n the n-th of [`Cause::ALL`].
fn visit_cause(name: &'static str, cause: &mut Option<Cause>, v: &mut impl Visitor) {
    let mut code = cause.map_or(0, |c| c as u8 + 1);
    v.reg(name, 4, Look::Unsigned, &mut code);
    *cause = code.checked_sub(1).and_then(|c| Cause::ALL.get(usize::from(c)).copied());
}

/// Shows an address as one field after the other.
pub(super) fn visit_address(address: &mut Address, v: &mut impl Visitor) {
    v.reg("sequence_q", 16, Look::Unsigned, &mut address.sequence);
    v.reg("layer_q", 16, Look::Unsigned, &mut address.layer);
    v.reg("head_q", 16, Look::Unsigned, &mut address.head);
    let mut value = address.kind == Kind::Value;
    v.reg("value_q", 1, Look::Unsigned, &mut value);
    address.kind = if value { Kind::Value } else { Kind::Key };
    v.reg("block_q", 7, Look::Unsigned, &mut address.block);
    v.reg("tile_q", 32, Look::Unsigned, &mut address.tile);
}

/// A table word as a register of 33 bits: 0 is none, n + 1 is word n.
pub(super) fn visit_table(table: &mut Option<u32>, v: &mut impl Visitor) {
    let mut code = table.map_or(0, |word| u64::from(word) + 1);
    v.reg("table_q", 33, Look::Unsigned, &mut code);
    *table = code.checked_sub(1).map(|word| word as u32);
}

impl Payload for DecodeCommand {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        v.scope(name, |v| {
            visit_address(&mut self.address, v);
            v.reg("width_q", 7, Look::Unsigned, &mut self.width);
            v.reg("words_q", 10, Look::Unsigned, &mut self.words);
            visit_table(&mut self.table, v);
        });
    }
}

impl Payload for RowBeat {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        v.scope(name, |v| {
            for (lane, value) in self.values.iter_mut().enumerate() {
                v.reg(("value_q", lane), 16, Look::Hex, value);
            }
            v.reg("count_q", 5, Look::Unsigned, &mut self.count);
            v.reg("row_token_q", 5, Look::Unsigned, &mut self.token);
            v.reg("row_group_q", 4, Look::Unsigned, &mut self.group);
        });
    }
}
