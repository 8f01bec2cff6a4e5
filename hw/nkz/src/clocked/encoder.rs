use super::decoder::{visit_address, visit_table};
use super::merger::{Merger, WordBeat};
use super::tables::TableRam;
use crate::encode::{SHIFT_FIRST, Survey, difference, exponent, fixed_code, mantissa, plain_shift};
use crate::lanes::LaneEncoder;
use crate::quantiser::is_special;
use crate::{
    Address, CHANNELS, CODE_MAX, Channel, Crc, Format, Header, LANES, Mode, PLAIN_TABLE, Quantiser, TOKENS,
    code_tables, exponent_tables,
};
use rtl::{Format as Look, Module, Name, Payload, Role, Signal, Stream, Visitor};

/// What the encoder is told of a tile before its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodeCommand {
    /// Where the tile belongs.
    pub address: Address,
    /// Channels, 8..=64 by 8; lanes of the row port past them are ignored.
    pub width: u8,
    /// Tokens, 1..=32.
    pub tokens: u8,
    /// How to store it; the ranges of [`crate::Encoder::encode`] hold.
    pub mode: Mode,
    /// Word of the table memory with the static tables' lines; `None` for a model that was not calibrated, which only
    /// the raw and the lossless mode can do without.
    pub table: Option<u32>,
}

impl Default for EncodeCommand {
    fn default() -> Self {
        Self { address: Address::default(), width: 8, tokens: 1, mode: Mode::Raw, table: None }
    }
}

/// How a tile ended; it stands once the header word has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeStatus {
    /// The tile.
    pub address: Address,
    /// Its format.
    pub format: Format,
    /// Words of 8 bytes, the header included.
    pub words: u16,
}

/// Inputs of a [`TileEncoder`].
#[derive(Clone, Copy, Debug)]
pub struct EncoderIn<'a> {
    /// The next tile.
    pub command: Stream<&'a EncodeCommand>,
    /// A token's BF16 values.
    pub row: Stream<&'a [u16; CHANNELS]>,
    /// The consumer takes a word.
    pub word_ready: bool,
    /// The consumer takes a status.
    pub status_ready: bool,
}

/// Outputs of a [`TileEncoder`].
#[derive(Clone, Copy, Debug)]
pub struct EncoderOut<'a> {
    /// The engine is free.
    pub command_ready: bool,
    /// A row is wanted.
    pub row_ready: bool,
    /// Stored words.
    pub word: Stream<&'a WordBeat>,
    /// The end of a tile.
    pub status: Stream<EncodeStatus>,
}

/// What the engine does in a cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Waits for a command.
    #[default]
    Idle,
    /// Takes a row, and surveys it.
    Fill,
    /// Surveys a row of the staging memory.
    Survey,
    /// Looks at the survey.
    Decide,
    /// Codes eight values, the last first.
    Code,
    /// Puts the states before the lanes, and looks at the size.
    Close,
    /// Merges a piece of the payload.
    Emit,
    /// Gives the header.
    Head,
    /// Reports.
    Report,
}

const PHASES: [Phase; 9] = [
    Phase::Idle,
    Phase::Fill,
    Phase::Survey,
    Phase::Decide,
    Phase::Code,
    Phase::Close,
    Phase::Emit,
    Phase::Head,
    Phase::Report,
];

/// Where the payload's next piece comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Source {
    /// 2 bits: 0 rows, 1 stream, 2 padding, 3 done.
    part: u8,
    /// 16 bits: what was already taken, bytes of the rows or bits of the stream.
    at: u16,
}

/// The encoder: 64 values a cycle in and past the survey, 8 codes a cycle through the lanes, up to 64 bits a cycle out.
///
/// A tile runs through its phases alone; [`super::encode_edges`] is the closed form under any stall.
#[derive(Clone, Debug)]
pub struct TileEncoder {
    tables: TableRam,
    phase: Phase,
    command: EncodeCommand,
    /// The tile, [32, 64] BF16.
    staging: Vec<u16>,
    /// 5 bits: the row that comes, is surveyed or is coded.
    token: u8,
    /// 3 bits: channel / 8 of the codes.
    group: u8,
    /// Four accumulators of 24 bits, and whether a code is too wide.
    survey: Survey,
    /// A pass over the staging memory has been made.
    surveyed: bool,
    /// The tile holds an infinity or a NaN.
    special: bool,
    /// 8 bits: largest finite exponent.
    largest: u8,
    /// What the tile is becoming.
    header: Header,
    /// 6 bits: the step that the slot's bisection looks at, once it has ended: that is coded at.
    qp: u8,
    /// 6 bits: the bisection's stride; 0 once it has ended.
    stride: u8,
    lanes: LaneEncoder,
    merger: Merger,
    source: Source,
    word: WordBeat,
    word_valid: bool,
}

impl TileEncoder {
    /// An idle encoder over static tables.
    pub fn new(tables: TableRam) -> Self {
        Self {
            tables,
            phase: Phase::Idle,
            command: EncodeCommand::default(),
            staging: vec![0; TOKENS * CHANNELS],
            token: 0,
            group: 0,
            survey: Survey::default(),
            surveyed: false,
            special: false,
            largest: 0,
            header: Header::default(),
            qp: 0,
            stride: 0,
            lanes: LaneEncoder::new(),
            merger: Merger::default(),
            source: Source::default(),
            word: WordBeat::default(),
            word_valid: false,
        }
    }

    fn width(&self) -> usize {
        usize::from(self.command.width)
    }

    fn tokens(&self) -> usize {
        usize::from(self.command.tokens)
    }

    fn line(&self, channel: usize) -> Channel {
        let lines = self.command.table.and_then(|word| self.tables.read(word, self.width()));
        lines.map_or(Channel { exponent_table: PLAIN_TABLE, ..Channel::default() }, |lines| lines[channel])
    }

    fn value(&self, token: usize, channel: usize) -> u16 {
        self.staging[token * CHANNELS + channel]
    }

    fn values(&self) -> usize {
        self.tokens() * self.width()
    }

    fn accept(&mut self, command: &EncodeCommand) {
        self.command = *command;
        self.header = Header {
            version: Header::VERSION,
            format: match command.mode {
                Mode::Raw => Format::Raw,
                Mode::Lossless => Format::Lossless,
                Mode::Fixed { .. } => Format::Fixed,
                Mode::Entropy { .. } => Format::Entropy,
                Mode::Slot { .. } => Format::Slot,
                Mode::Mean => Format::Mean,
            },
            kind: command.address.kind,
            last_token: command.tokens - 1,
            sequence: command.address.sequence,
            ..Header::default()
        };
        (self.qp, self.stride) = match command.mode {
            Mode::Entropy { qp } | Mode::Fixed { qp } => (qp, 0),
            Mode::Slot { .. } => (31, 32),
            _ => (0, 0),
        };
        (self.token, self.surveyed, self.special, self.largest) = (0, false, false, 0);
        self.survey = Survey::default();
        self.merger = Merger::new(&command.address);
        self.phase = Phase::Fill;
    }

    /// Adds the current row to the survey of what the tile is becoming.
    fn survey_row(&mut self) {
        let token = usize::from(self.token);
        let first = if self.command.table.is_some() { SHIFT_FIRST } else { plain_shift(self.largest) };
        for channel in 0..self.width() {
            let (x, line) = (self.value(token, channel), self.line(channel));
            match self.header.format {
                Format::Entropy | Format::Slot if !is_special(x) => {
                    let code = Quantiser::entropy(&line, self.qp).code(x);
                    self.survey.wide |= code.abs() > CODE_MAX;
                    if !self.survey.wide {
                        for offset in 0..4 {
                            let table = &code_tables()[line.table(self.qp, offset as i32 - 2)];
                            self.survey.costs[offset] += table.cost(code);
                        }
                    }
                }
                Format::Lossless => {
                    let table = &exponent_tables()[usize::from(line.exponent_table & 15)];
                    for offset in 0..4 {
                        let shift = first.wrapping_add(offset as i8);
                        self.survey.costs[offset] += table.cost(difference(x, &line, shift));
                    }
                }
                _ => {}
            }
        }
    }

    fn fill(&mut self, row: &[u16; CHANNELS]) {
        let (token, width) = (usize::from(self.token), self.width());
        self.staging[token * CHANNELS..][..width].copy_from_slice(&row[..width]);
        for &x in &row[..width] {
            self.special |= is_special(x);
            if !is_special(x) {
                self.largest = self.largest.max(exponent(x));
            }
        }
        self.survey_row();
        self.next_row();
    }

    fn next_row(&mut self) {
        self.token += 1;
        if usize::from(self.token) == self.tokens() {
            self.phase = Phase::Decide;
        }
    }

    fn start_survey(&mut self) {
        (self.token, self.survey, self.surveyed, self.phase) = (0, Survey::default(), true, Phase::Survey);
    }

    fn start_coding(&mut self, shift_or_qp: impl FnOnce(&mut Header)) {
        shift_or_qp(&mut self.header);
        self.lanes.clear();
        (self.token, self.group) = (self.command.tokens - 1, self.command.width / 8 - 1);
        self.phase = Phase::Code;
    }

    /// Settles for a format without lanes.
    fn settle(&mut self, format: Format) {
        self.header.format = format;
        (self.source, self.phase) = match format {
            Format::Mean => (Source::default(), Phase::Head),
            _ => (Source::default(), Phase::Emit),
        };
    }

    fn decide(&mut self) {
        let best = self.survey.best();
        match (self.header.format, self.command.mode) {
            (Format::Lossless, _) => {
                // Without tables the row that comes cannot be surveyed: the largest exponent is not known yet.
                let plain = self.command.table.is_none();
                if plain && !self.surveyed {
                    return self.start_survey();
                }
                let first = if plain { plain_shift(self.largest) } else { SHIFT_FIRST };
                self.start_coding(|header| {
                    header.set_shift(first.wrapping_add(best as i8));
                    header.flags = if plain { Header::PLAIN } else { 0 };
                });
            }
            (Format::Entropy, _) if self.special || self.survey.wide => {
                self.header.format = Format::Lossless;
                self.start_survey();
            }
            (Format::Slot, _) if self.special => self.settle(Format::Overflow),
            (Format::Slot, Mode::Slot { bytes }) if self.stride > 0 => {
                let room = 8 * (bytes - Header::BYTES);
                let fits = !self.survey.wide && self.survey.estimate() as usize <= room;
                // The step looked at was base + stride − 1; the next is base + stride/2 − 1 on the side that holds.
                let base = self.qp + 1 - self.stride + if fits { 0 } else { self.stride };
                self.stride /= 2;
                self.qp = if self.stride > 0 { base + self.stride - 1 } else { base };
                self.start_survey();
            }
            (Format::Slot, _) if self.survey.wide => self.coarser(),
            (Format::Entropy | Format::Slot, _) => {
                let qp = self.qp;
                self.start_coding(|header| (header.qp, header.offset) = (qp, best as u8));
            }
            (Format::Fixed, _) => {
                self.header.qp = self.qp;
                self.settle(Format::Fixed);
            }
            (format, _) => self.settle(format),
        }
    }

    /// The next step for a slot that did not hold the tile.
    fn coarser(&mut self) {
        if self.qp == 63 {
            (self.header.qp, self.header.offset) = (0, 0);
            return self.settle(if self.survey.wide { Format::Overflow } else { Format::Mean });
        }
        self.qp += 1;
        self.start_survey();
    }

    fn code(&mut self) {
        for lane in (0..LANES).rev() {
            let channel = usize::from(self.group) * LANES + lane;
            let (x, line) = (self.value(usize::from(self.token), channel), self.line(channel));
            if self.header.format == Format::Lossless {
                let table = &exponent_tables()[usize::from(line.exponent_table & 15)];
                self.lanes.push(lane, table, difference(x, &line, self.header.shift()));
            } else {
                let table = &code_tables()[line.table(self.header.qp, i32::from(self.header.offset) - 2)];
                self.lanes.push(lane, table, Quantiser::entropy(&line, self.header.qp).code(x));
            }
        }
        match (self.token, self.group) {
            (0, 0) => self.phase = Phase::Close,
            (_, 0) => (self.token, self.group) = (self.token - 1, self.command.width / 8 - 1),
            _ => self.group -= 1,
        }
    }

    fn close(&mut self) {
        self.lanes.close();
        let (mantissas, part) = if self.header.format == Format::Lossless { (self.values(), 0) } else { (0, 1) };
        let bytes = mantissas + self.lanes.stack.len().div_ceil(8);
        let first = Source { part, at: 0 };
        match self.command.mode {
            Mode::Slot { bytes: slot } if bytes > slot - Header::BYTES => self.coarser(),
            Mode::Slot { .. } => (self.source, self.phase) = (first, Phase::Emit),
            _ if bytes.next_multiple_of(8) >= 2 * self.values() => {
                (self.header.qp, self.header.offset, self.header.flags) = (0, 0, 0);
                self.settle(Format::Raw);
            }
            _ => (self.source, self.phase) = (first, Phase::Emit),
        }
    }

    /// The next piece of the payload: its bits, their number, and the source behind it. Also counts clamped codes.
    fn piece(&self) -> (u64, u32, Source, bool) {
        let Source { part, at } = self.source;
        let advance = |taken: u16, size: u16, unit: u8| match at + taken < size {
            true => Source { part, at: at + taken },
            false => Source { part: part + unit, at: 0 },
        };
        let bytes = |get: &dyn Fn(usize) -> u8, size: usize, unit: u8| {
            let count = (size - usize::from(at)).min(8);
            let piece = (0..count).rev().fold(0, |piece, i| piece << 8 | u64::from(get(usize::from(at) + i)));
            (piece, 8 * count as u32, advance(count as u16, size as u16, unit))
        };
        let (width, size) = (self.width(), self.values());
        let pair = |i: usize| self.value(i / width, i % width);
        let (piece, bits, next) = match part {
            0 => match self.header.format {
                Format::Raw => bytes(&|i| (pair(i / 2) >> (8 * (i % 2))) as u8, 2 * size, 3),
                Format::Fixed => bytes(&|i| self.fixed_pair(2 * i).0, size / 2, 2),
                Format::Lossless => bytes(&|i| mantissa(pair(i)), size, 1),
                _ => bytes(&|_| 0, 8, 3),
            },
            1 => {
                let stack = &self.lanes.stack;
                let count = (stack.len() - usize::from(at)).min(64);
                (stack.word(usize::from(at)), count as u32, advance(count as u16, stack.len() as u16, 1))
            }
            _ => (0, 64 - self.merger.held(), self.source),
        };
        let clamped = part == 0
            && self.header.format == Format::Fixed
            && (0..bits as usize / 8).any(|i| self.fixed_pair(2 * (usize::from(at) + i)).1);
        (piece, bits, next, clamped)
    }

    /// Two codes of the fixed-length mode, and whether one was clamped.
    fn fixed_pair(&self, first: usize) -> (u8, bool) {
        let code = |i: usize| {
            let (token, channel) = (i / self.width(), i % self.width());
            fixed_code(self.value(token, channel), &Quantiser::fixed(&self.line(channel), self.header.qp))
        };
        let ((low, a), (high, b)) = (code(first), code(first + 1));
        (low | high << 4, a || b)
    }

    /// Whether the payload is complete up to whole words, or to the slot.
    fn full(&self, merger: &Merger) -> bool {
        let slot = match (self.header.format, self.command.mode) {
            (Format::Slot, Mode::Slot { bytes }) => (bytes / 8 - 1) as u16,
            _ => 0,
        };
        merger.held() == 0 && merger.words >= slot
    }

    fn emit(&mut self, room: bool) {
        let (piece, width, next, clamped) = self.piece();
        if self.merger.completes(width) && !room {
            return;
        }
        if clamped {
            self.header.flags |= Header::CLAMPED;
        }
        self.source = next;
        if let Some(word) = self.merger.take(piece, width) {
            (self.word, self.word_valid) = (word, true);
        }
        if self.source.part >= 2 && self.full(&self.merger) {
            self.phase = Phase::Head;
        } else if self.source.part > 2 {
            self.source.part = 2;
        }
    }

    fn head(&mut self) {
        self.header.words = self.merger.words;
        self.header.crc = self.header.close(Crc::new(self.merger.crc));
        (self.word, self.word_valid) = (WordBeat { index: 0, data: self.header.pack() }, true);
        self.phase = Phase::Report;
    }
}

impl Module for TileEncoder {
    type In<'a> = EncoderIn<'a>;
    type Out<'a> = EncoderOut<'a>;

    fn out(&self) -> EncoderOut<'_> {
        let status =
            EncodeStatus { address: self.command.address, format: self.header.format, words: self.header.words + 1 };
        EncoderOut {
            command_ready: self.phase == Phase::Idle,
            row_ready: self.phase == Phase::Fill,
            word: Stream { valid: self.word_valid, data: &self.word },
            status: Stream { valid: self.phase == Phase::Report && !self.word_valid, data: status },
        }
    }

    fn clock(&mut self, i: &EncoderIn<'_>) {
        let reported = i.status_ready && !self.word_valid;
        let room = !self.word_valid || i.word_ready;
        if i.word_ready {
            self.word_valid = false;
        }
        match self.phase {
            Phase::Idle => {
                if i.command.valid {
                    self.accept(i.command.data);
                }
            }
            Phase::Fill => {
                if i.row.valid {
                    self.fill(i.row.data);
                }
            }
            Phase::Survey => {
                self.survey_row();
                self.next_row();
            }
            Phase::Decide => self.decide(),
            Phase::Code => self.code(),
            Phase::Close => self.close(),
            Phase::Emit => self.emit(room),
            Phase::Head => {
                if room {
                    self.head();
                }
            }
            Phase::Report => {
                if reported {
                    self.phase = Phase::Idle;
                }
            }
        }
    }

    fn reset(&mut self) {
        let staging = std::mem::take(&mut self.staging);
        let mut lanes = self.lanes.clone();
        lanes.clear();
        *self = Self { staging, lanes, ..Self::new(std::mem::take(&mut self.tables)) };
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        self.tables.visit(v);
        let mut phase = self.phase as u8;
        let names = &["idle", "fill", "survey", "decide", "code", "close", "emit", "head", "report"];
        v.reg("phase_q", 4, Look::Enum(names), &mut phase);
        self.phase = PHASES[usize::from(phase).min(8)];
        self.command.visit("command_q".into(), v);
        let signal = Signal { name: "staging".into(), width: 16, format: Look::Hex, role: Role::Register };
        if v.memory(signal, self.staging.len()) {
            self.staging.iter_mut().for_each(|x| *x = v.word(u64::from(*x)) as u16);
        }
        v.reg("token_q", 6, Look::Unsigned, &mut self.token);
        v.reg("group_q", 3, Look::Unsigned, &mut self.group);
        for (offset, cost) in self.survey.costs.iter_mut().enumerate() {
            v.reg(("cost_q", offset), 24, Look::Unsigned, cost);
        }
        v.reg("wide_q", 1, Look::Unsigned, &mut self.survey.wide);
        v.reg("surveyed_q", 1, Look::Unsigned, &mut self.surveyed);
        v.reg("special_q", 1, Look::Unsigned, &mut self.special);
        v.reg("largest_q", 8, Look::Unsigned, &mut self.largest);
        let mut header = self.header.pack();
        v.reg("header_q", 64, Look::Hex, &mut header);
        if header != self.header.pack() {
            self.header = Header::unpack(header).unwrap_or_default();
        }
        v.reg("qp_q", 6, Look::Unsigned, &mut self.qp);
        v.reg("stride_q", 6, Look::Unsigned, &mut self.stride);
        for lane in 0..LANES {
            v.reg(("state_q", lane), 13, Look::Unsigned, &mut self.lanes.states[lane]);
        }
        self.lanes.stack.visit("stack_q".into(), v);
        self.merger.visit(v);
        v.reg("part_q", 2, Look::Unsigned, &mut self.source.part);
        v.reg("part_at_q", 16, Look::Unsigned, &mut self.source.at);
        v.reg("word_valid_q", 1, Look::Unsigned, &mut self.word_valid);
        self.word.visit("word_q".into(), v);
    }
}

impl Payload for EncodeCommand {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        v.scope(name, |v| {
            visit_address(&mut self.address, v);
            v.reg("width_q", 7, Look::Unsigned, &mut self.width);
            v.reg("tokens_q", 6, Look::Unsigned, &mut self.tokens);
            visit_table(&mut self.table, v);
            let (mut mode, mut operand) = match self.mode {
                Mode::Raw => (0u8, 0u16),
                Mode::Lossless => (1, 0),
                Mode::Fixed { qp } => (2, qp.into()),
                Mode::Entropy { qp } => (3, qp.into()),
                Mode::Slot { bytes } => (4, bytes as u16),
                Mode::Mean => (5, 0),
            };
            v.reg("mode_q", 3, Look::Enum(&["raw", "lossless", "fixed", "entropy", "slot", "mean"]), &mut mode);
            v.reg("operand_q", 13, Look::Unsigned, &mut operand);
            self.mode = match mode {
                1 => Mode::Lossless,
                2 => Mode::Fixed { qp: operand as u8 & 63 },
                3 => Mode::Entropy { qp: operand as u8 & 63 },
                4 => Mode::Slot { bytes: operand.into() },
                5 => Mode::Mean,
                _ => Mode::Raw,
            };
        });
    }
}
