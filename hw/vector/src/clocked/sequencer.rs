use crate::program::{Program, Source};
use crate::{Command, Config, Op};
use rtl::{Format, Visitor};

/// What goes along with a beat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tag {
    /// 2 bits.
    pub(super) pass: u8,
    /// Row in its batch, 6 bits.
    pub(super) row: u8,
    /// Beat of the row, 13 bits.
    pub(super) beat: u16,
    /// Beat of its group, 13 bits; without groups, of the row.
    pub(super) group_beat: u16,
    /// Lanes that count, 7 bits.
    pub(super) count: u8,
    /// Last beat of its group, of its row, of the command's pass.
    pub(super) group_end: bool,
    pub(super) row_end: bool,
    pub(super) end: bool,
}

impl Tag {
    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        v.reg("pass_q", 2, Format::Unsigned, &mut self.pass);
        v.reg("row_q", 6, Format::Unsigned, &mut self.row);
        v.reg("beat_q", 13, Format::Unsigned, &mut self.beat);
        v.reg("group_beat_q", 13, Format::Unsigned, &mut self.group_beat);
        v.reg("count_q", 7, Format::Unsigned, &mut self.count);
        v.reg("group_end_q", 1, Format::Unsigned, &mut self.group_end);
        v.reg("row_end_q", 1, Format::Unsigned, &mut self.row_end);
        v.reg("end_q", 1, Format::Unsigned, &mut self.end);
    }
}

/// Walks a command: batches of rows, passes over a batch, rows, beats.
#[derive(Clone, Debug)]
pub(super) struct Sequencer {
    config: Config,
    /// The command under way or the last one; what its fields select is wiring.
    pub(super) command: Command,
    pub(super) program: Program,
    /// Beats are still to be issued.
    pub(super) issuing: bool,
    /// First row of the batch, 32 bits.
    pub(super) base: u32,
    /// 2 bits.
    pass: u8,
    /// 6 bits.
    row: u8,
    /// 13 bits.
    beat: u16,
    /// Passes of this batch whose scalars the next pass may begin with, 2 bits.
    ready: u8,
}

impl Sequencer {
    pub(super) fn new(config: Config) -> Self {
        let command = Command::new(Op::Convert, 1, 1);
        let program = Program::new(&config, &command);
        Self { config, command, program, issuing: false, base: 0, pass: 0, row: 0, beat: 0, ready: 0 }
    }

    pub(super) fn start(&mut self, command: &Command) {
        let program = Program::new(&self.config, command);
        *self = Self { command: *command, program, issuing: true, ..Self::new(self.config) };
    }

    fn batch_rows(&self) -> usize {
        self.config.batch(self.command.len).min(self.command.rows - self.base as usize)
    }

    /// Beats of a group: one where several share a beat.
    fn group_beats(&self, row_beats: usize) -> usize {
        self.command.group().map_or(row_beats, |group| self.config.beats(group))
    }

    /// Where the next beat comes from, if it can be issued as far as the unit itself is concerned.
    pub(super) fn wants(&self) -> Option<Source> {
        (self.issuing && self.ready >= self.pass).then(|| self.program.passes[usize::from(self.pass)].source)
    }

    /// The beat that would be issued.
    pub(super) fn tag(&self) -> Tag {
        let (len, lanes) = (self.command.len, self.config.lanes);
        let pass = &self.program.passes[usize::from(self.pass)];
        let beat = usize::from(self.beat);
        let group_beats = self.group_beats(pass.beats);
        let count = if pass.source == Source::Partials { lanes } else { (len - beat * lanes).min(lanes) };
        let row_end = beat + 1 == pass.beats;
        let last_row = self.base as usize + usize::from(self.row) + 1 == self.command.rows;
        Tag {
            pass: self.pass,
            row: self.row,
            beat: self.beat,
            group_beat: (beat % group_beats) as u16,
            count: count as u8,
            group_end: row_end || (beat + 1).is_multiple_of(group_beats),
            row_end,
            end: row_end && last_row,
        }
    }

    /// The edge on which the beat is issued.
    pub(super) fn advance(&mut self) {
        let beats = self.program.passes[usize::from(self.pass)].beats;
        self.beat += 1;
        if usize::from(self.beat) < beats {
            return;
        }
        (self.beat, self.row) = (0, self.row + 1);
        if usize::from(self.row) < self.batch_rows() {
            return;
        }
        self.row = 0;
        self.pass += 1;
        if usize::from(self.pass) < self.program.passes.len() {
            return;
        }
        self.base += self.batch_rows() as u32;
        (self.pass, self.ready) = (0, 0);
        self.issuing = (self.base as usize) < self.command.rows;
    }

    /// A row of the batch has its scalars of this pass. The next pass waits for its first row, or, where it goes over the rows faster
    /// than this one, for the last.
    pub(super) fn scalars_ready(&mut self, pass: u8, row: u8) {
        let wait_for = if self.program.outruns(usize::from(pass)) { self.batch_rows() - 1 } else { 0 };
        if usize::from(row) == wait_for {
            self.ready = pass + 1;
        }
    }

    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        v.wire("opcode", 4, Format::Enum(&Op::NAMES), self.command.op.code());
        v.wire("len", 17, Format::Unsigned, self.command.len as u32);
        v.wire("rows", 32, Format::Unsigned, self.command.rows as u32);
        v.reg("issuing_q", 1, Format::Unsigned, &mut self.issuing);
        v.reg("base_q", 32, Format::Unsigned, &mut self.base);
        v.reg("pass_q", 2, Format::Unsigned, &mut self.pass);
        v.reg("row_q", 6, Format::Unsigned, &mut self.row);
        v.reg("beat_q", 13, Format::Unsigned, &mut self.beat);
        v.reg("ready_q", 2, Format::Unsigned, &mut self.ready);
    }
}
