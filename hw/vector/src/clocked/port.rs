use crate::Command;
use rtl::{Format, Name, Payload, Stream, Visitor};

/// Values of an operand port, one a lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperandBeat(
    /// Codes of the port's format in the low bits; those past the row's end mean nothing.
    pub Vec<u32>,
);

impl Payload for OperandBeat {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        self.0.iter_mut().enumerate().for_each(|(l, code)| v.reg(name.at(l), 32, Format::Hex, code));
    }
}

/// Results, one a lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultBeat {
    /// Codes of the results' format in the low bits. Of ArgMax, lane 0 has the index.
    pub codes: Vec<u32>,
    /// Lanes that count, 7 bits. AbsMax has none.
    pub count: u8,
    /// FP32 bits, one a group that begins in this beat: quantisation's scales, AbsMax's magnitudes, ArgMax's value.
    pub scalars: Vec<u32>,
    /// Scalars that count, 4 bits.
    pub scalar_count: u8,
    /// Last beat of a row.
    pub row_end: bool,
    /// Last beat of the command.
    pub end: bool,
}

impl ResultBeat {
    /// Zeros for so many lanes.
    pub(super) fn blank(lanes: usize) -> Self {
        Self { codes: vec![0; lanes], scalars: vec![0; lanes / 8], ..Self::default() }
    }
}

impl Payload for ResultBeat {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        v.scope(name, |v| {
            self.codes.iter_mut().enumerate().for_each(|(l, code)| v.reg(("code_q", l), 32, Format::Hex, code));
            v.reg("count_q", 7, Format::Unsigned, &mut self.count);
            self.scalars.iter_mut().enumerate().for_each(|(g, s)| v.reg(("scalar_q", g), 32, real(), s));
            v.reg("scalar_count_q", 4, Format::Unsigned, &mut self.scalar_count);
            v.reg("row_end_q", 1, Format::Unsigned, &mut self.row_end);
            v.reg("end_q", 1, Format::Unsigned, &mut self.end);
        });
    }
}

/// How a viewer reads FP32 bits.
pub(super) fn real() -> Format {
    Format::Real(|code| f64::from(f32::from_bits(code as u32)))
}

/// Shows an FP32 register.
pub(super) fn float(v: &mut impl Visitor, name: impl Into<Name>, value: &mut f32) {
    let mut bits = value.to_bits();
    v.reg(name, 32, real(), &mut bits);
    *value = f32::from_bits(bits);
}

/// Wires into a [`VectorUnit`](super::VectorUnit).
#[derive(Clone, Copy, Debug)]
pub struct UnitIn<'a> {
    /// The next command, which [`Command::check`] accepts; taken while the unit is idle.
    pub command: Stream<&'a Command>,
    /// The first operand, row by row.
    pub a: Stream<&'a OperandBeat>,
    /// The second, where the operation has one. RMSNorm takes the weight once for each row.
    pub b: Stream<&'a OperandBeat>,
    /// The consumer takes a beat of results.
    pub ready: bool,
}

/// Wires out of a [`VectorUnit`](super::VectorUnit).
#[derive(Clone, Copy, Debug)]
pub struct UnitOut<'a> {
    /// No command is under way.
    pub idle: bool,
    /// A beat of the first operand will be taken.
    pub a_ready: bool,
    /// A beat of the second operand will be taken.
    pub b_ready: bool,
    /// Results.
    pub y: Stream<&'a ResultBeat>,
    /// What conversions raised, [`numeric::Flags`]; sticky until reset.
    pub flags: numeric::Flags,
    /// A row met a frequency that was not loaded, or a memory a word that was not written; sticky until reset.
    pub fault: bool,
    /// Of all commands since reset.
    pub counters: Counters,
}

/// Edges by what they went to, 64 bits each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// With a command under way, stalls included.
    pub busy: u64,
    /// Lost waiting for an operand.
    pub starved: u64,
    /// Lost waiting for the consumer.
    pub blocked: u64,
}

impl Counters {
    /// Busy edges that were not lost: the closed form's count.
    pub fn unstalled(&self) -> u64 {
        self.busy - self.starved - self.blocked
    }

    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        v.reg("busy_edges_q", 64, Format::Unsigned, &mut self.busy);
        v.reg("starved_q", 64, Format::Unsigned, &mut self.starved);
        v.reg("blocked_q", 64, Format::Unsigned, &mut self.blocked);
    }
}
