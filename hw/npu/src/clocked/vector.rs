//! The vector unit with what reads its operands and writes its results.

use super::Ports;
use crate::exec::{placed_rows, unit_command};
use crate::isa::{Op, RowOp, Rows, Vector};
use crate::memory::Scratch;
use crate::{Config, Fault, Kv};
use ::vector::{Command, OperandBeat, ResultBeat, UnitIn, VectorUnit};
use rtl::{Format, Module, Payload, Stream, Visitor};

/// A place in rows of beats.
#[derive(Clone, Copy, Debug, Default)]
struct At {
    /// The unit's row, 32 bits, and the value within it, 17 bits.
    row: u32,
    value: u32,
}

/// A port's beat register.
#[derive(Clone, Debug)]
struct Feed {
    at: At,
    beat: OperandBeat,
    valid: bool,
}

/// What a command needs to find its operands, decoded.
#[derive(Clone, Copy, Debug)]
struct Shape {
    row: RowOp,
    command: Command,
    /// The unit's rows of one of the command's: heads, for RoPE.
    heads: usize,
}

/// The shell. A command's first operands are read in its first cycle; the unit takes it in the second, and it ends with its last write.
///
/// The frequency memory is loaded through the unit's own command before the machine is used, and again after a reset.
#[derive(Clone, Debug)]
pub(super) struct VectorShell {
    unit: VectorUnit,
    lanes: usize,
    shape: Option<Shape>,
    a: Feed,
    b: Feed,
    /// Where the next beat of results goes, and the next scalar of its row (17 bits).
    y: At,
    scalar: u32,
    /// Cycles of the command so far up to its start, 2 bits.
    age: u8,
}

impl Shape {
    /// Bytes of a value in one of the unit's formats.
    fn width(format: numeric::Format) -> usize {
        format.width().div_ceil(8) as usize
    }

    /// Address of a value of one of the unit's rows, `width` bytes each.
    fn address(&self, rows: Rows, width: usize, row: usize, value: usize) -> usize {
        let (line, head) = (row / self.heads, row % self.heads);
        rows.base as usize + line * rows.pitch as usize + (head * self.command.len + value) * width
    }

    /// Steps over a beat of `lanes`.
    fn advance(&self, at: &mut At, lanes: usize) {
        at.value += lanes as u32;
        if at.value as usize >= self.command.len {
            (at.value, at.row) = (0, at.row + 1);
        }
    }
}

/// Reads codes that lie side by side.
fn read(scratch: &Scratch, address: usize, width: usize, codes: &mut [u32]) -> Result<(), Fault> {
    let bytes = scratch.read(address, width * codes.len())?;
    for (code, bytes) in codes.iter_mut().zip(bytes.chunks_exact(width)) {
        *code = bytes.iter().rev().fold(0, |code, byte| code << 8 | u32::from(*byte));
    }
    Ok(())
}

impl Feed {
    fn new(lanes: usize) -> Self {
        Self { at: At::default(), beat: OperandBeat(vec![0; lanes]), valid: false }
    }

    fn start(&mut self) {
        (self.at, self.valid) = (At::default(), false);
    }

    fn out(&self) -> Stream<&OperandBeat> {
        Stream { valid: self.valid, data: &self.beat }
    }

    /// The edge: a beat that leaves makes room for the next, which `load` reads.
    fn clock(
        &mut self,
        shape: &Shape,
        ready: bool,
        load: impl FnOnce(At, &mut [u32]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let lanes = self.beat.0.len();
        if self.valid && ready {
            shape.advance(&mut self.at, lanes);
            self.valid = false;
        }
        if !self.valid && (self.at.row as usize) < shape.command.rows {
            let count = lanes.min(shape.command.len - self.at.value as usize);
            load(self.at, &mut self.beat.0[..count])?;
            self.valid = true;
        }
        Ok(())
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        v.reg("row_q", 32, Format::Unsigned, &mut self.at.row);
        v.reg("value_q", 17, Format::Unsigned, &mut self.at.value);
        v.reg("valid_q", 1, Format::Unsigned, &mut self.valid);
        self.beat.visit("beat_q".into(), v);
    }
}

/// The first operand's beat.
fn load_a(shape: &Shape, scratch: &Scratch, at: At, codes: &mut [u32]) -> Result<(), Fault> {
    let width = Shape::width(shape.command.a);
    read(scratch, shape.address(shape.row.x, width, at.row as usize, at.value as usize), width, codes)
}

/// The second operand's beat.
fn load_b(shape: &Shape, scratch: &Scratch, at: At, codes: &mut [u32]) -> Result<(), Fault> {
    let (row, value) = (at.row as usize, at.value as usize);
    match shape.row.op {
        Vector::RmsNorm { weight, .. } => read(scratch, weight as usize + 4 * value, 4, codes),
        Vector::SwiGlu { up: b } | Vector::Add { b } => read(scratch, shape.address(b, 4, row, value), 4, codes),
        // The row from its middle on, then its first half.
        _ => {
            let (len, width) = (shape.command.len, Shape::width(shape.command.b));
            for (i, code) in codes.iter_mut().enumerate() {
                let partner = (value + i + len / 2) % len;
                let address = shape.address(shape.row.x, width, row, partner);
                read(scratch, address, width, std::slice::from_mut(code))?;
            }
            Ok(())
        }
    }
}

impl VectorShell {
    pub(super) fn new(config: &Config, kv: &Kv) -> Self {
        let lanes = config.vector_lanes;
        // A configuration that was checked has lanes that the unit takes.
        let unit = match VectorUnit::new(::vector::Config { lanes }) {
            Ok(unit) => unit,
            Err(error) => unreachable!("{error}"),
        };
        let mut shell = Self {
            unit,
            lanes,
            shape: None,
            a: Feed::new(lanes),
            b: Feed::new(lanes),
            y: At::default(),
            scalar: 0,
            age: 0,
        };
        shell.boot(kv);
        shell
    }

    /// Loads the frequency memory.
    fn boot(&mut self, kv: &Kv) {
        let frequencies = &kv.setup().frequencies;
        let command = Command::new(::vector::Op::LoadFrequencies, frequencies.len(), 1);
        if ::vector::Config::new(self.lanes).and_then(|config| command.check(&config)).is_err() {
            // Heads of such a size are refused where they are rotated.
            return;
        }
        let mut beats = frequencies.chunks(self.lanes).map(|chunk| {
            let mut beat = OperandBeat(chunk.iter().map(|f| f.to_bits()).collect());
            beat.0.resize(self.lanes, 0);
            beat
        });
        let (mut beat, blank) = (beats.next(), OperandBeat(vec![0; self.lanes]));
        let mut first = true;
        while first || !self.unit.out().idle {
            let a = Stream { valid: beat.is_some(), data: beat.as_ref().unwrap_or(&blank) };
            let taken = a.fires(self.unit.out().a_ready);
            let command = Stream { valid: first, data: &command };
            self.unit.clock(&UnitIn { command, a, b: Stream::idle(&blank), ready: true });
            if taken {
                beat = beats.next();
            }
            first = false;
        }
    }

    pub(super) fn start(&mut self, op: &Op, ports: &mut Ports<'_>) -> Result<(), Fault> {
        let Op::Vector(row) = op else { return Ok(()) };
        let config = ::vector::Config::new(self.lanes)?;
        let command = unit_command(ports.kv, row)?;
        command.check(&config)?;
        placed_rows(&ports.memory.scratch, &command, row)?;
        let heads = command.rows / row.rows as usize;
        self.shape = Some(Shape { row: *row, command, heads });
        self.a.start();
        self.b.start();
        (self.y, self.scalar, self.age) = (At::default(), 0, 0);
        Ok(())
    }

    /// The last beat of results is written.
    pub(super) fn done(&self) -> bool {
        let y = self.unit.out().y;
        y.valid && y.data.end
    }

    /// Writes a beat of results.
    fn write(&mut self, shape: &Shape, beat: &ResultBeat, scratch: &mut Scratch) -> Result<(), Fault> {
        let (row, value) = (self.y.row as usize, self.y.value as usize);
        let count = usize::from(beat.count);
        if let Vector::Quantize { group, scales, .. } = shape.row.op {
            let scalars = &beat.scalars[..usize::from(beat.scalar_count)];
            let address = scales.base as usize + row * scales.pitch as usize + 4 * self.scalar as usize;
            let bytes = scratch.write(address, 4 * scalars.len())?;
            bytes.chunks_exact_mut(4).zip(scalars).for_each(|(b, s)| b.copy_from_slice(&s.to_le_bytes()));
            self.scalar = if beat.row_end || group == 0 { 0 } else { self.scalar + scalars.len() as u32 };
        }
        let (width, address) = match shape.row.op {
            Vector::Argmax => (4, shape.row.y.base as usize + row * shape.row.y.pitch as usize),
            _ => {
                let width = Shape::width(shape.command.y);
                (width, shape.address(shape.row.y, width, row, value))
            }
        };
        let bytes = scratch.write(address, width * count)?;
        let codes = bytes.chunks_exact_mut(width).zip(&beat.codes);
        codes.for_each(|(b, code)| b.copy_from_slice(&code.to_le_bytes()[..width]));
        if beat.row_end {
            self.y = At { row: self.y.row + 1, value: 0 };
        } else {
            self.y.value += count as u32;
        }
        Ok(())
    }

    pub(super) fn clock(&mut self, ports: &mut Ports<'_>) -> Result<(), Fault> {
        let Some(shape) = self.shape else { return Ok(()) };
        let starts = self.age == 1;
        self.age = (self.age + 1).min(2);
        let out = self.unit.out();
        let (a_ready, b_ready, y) = (out.a_ready, out.b_ready, out.y.valid.then(|| out.y.data.clone()));
        let command = Stream { valid: starts, data: &shape.command };
        self.unit.clock(&UnitIn { command, a: self.a.out(), b: self.b.out(), ready: true });
        let scratch = &mut ports.memory.scratch;
        self.a.clock(&shape, a_ready, |at, codes| load_a(&shape, scratch, at, codes))?;
        if shape.command.reads_b() {
            self.b.clock(&shape, b_ready, |at, codes| load_b(&shape, scratch, at, codes))?;
        }
        match y {
            Some(y) => self.write(&shape, &y, scratch),
            None => Ok(()),
        }
    }

    pub(super) fn reset(&mut self, kv: &Kv) {
        self.unit.reset();
        self.boot(kv);
        self.a = Feed::new(self.lanes);
        self.b = Feed::new(self.lanes);
        (self.shape, self.y, self.scalar, self.age) = (None, At::default(), 0, 0);
    }

    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        v.reg("age_q", 2, Format::Unsigned, &mut self.age);
        v.scope("a", |v| self.a.visit(v));
        v.scope("b", |v| self.b.visit(v));
        v.reg("y_row_q", 32, Format::Unsigned, &mut self.y.row);
        v.reg("y_value_q", 17, Format::Unsigned, &mut self.y.value);
        v.reg("scalar_q", 17, Format::Unsigned, &mut self.scalar);
        v.scope("unit", |v| self.unit.visit(v));
    }
}
