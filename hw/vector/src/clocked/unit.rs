use super::lanes::{LanePipe, stage};
use super::port::{Counters, OperandBeat, ResultBeat, UnitIn, UnitOut, float};
use super::reducer::{Reducer, Scalar};
use super::sequencer::{Sequencer, Tag};
use crate::config::{MAX_BATCH, MAX_FREQUENCIES, STEP_EDGES};
use crate::function::Lane;
use crate::program::{Reduction, Source, StageStep};
use crate::quantum::quantised;
use crate::{Algorithm, Command, Config, Masking, Op, Pairing};
use numeric::{Flags, FloatFormat, Mode, convert};
use rtl::{Format, Module, SkidBuffer, SkidIn, Sram, SramIn, SramWrite, Stream, Visitor, WriteMode};

/// The clocked vector unit.
///
/// ```text
///   a, b ──► skid ──► fetch ──► lanes: a step every 4 edges ──► skid ──► y
///                      ▲  ▲          │            │
///          row buffer ─┘  │          ▼            ▼
///          scalars, frequencies   row buffer   accumulators ─► tree ─► scalar pipeline ─► scalars
/// ```
///
/// A missing operand or a full output freezes everything for that edge: stalls change the time, never a bit.
#[derive(Clone, Debug)]
pub struct VectorUnit {
    config: Config,
    a: SkidBuffer<OperandBeat>,
    b: SkidBuffer<OperandBeat>,
    y: SkidBuffer<ResultBeat>,
    /// What the wires to the output buffer show while nothing is on them.
    blank: ResultBeat,
    sequencer: Sequencer,
    busy: bool,
    /// The last beat of results, or of frequencies, has left the lanes.
    drained: bool,
    lanes: LanePipe,
    reducer: Reducer,
    /// Rows between passes, FP32 bits.
    rows: Sram<u32>,
    /// Maxima and then sums of the online softmax's partials, a word a way and row.
    partials: Sram<u32>,
    /// One a group of each word of the row buffer, or a row.
    scalars: Vec<Scalar>,
    /// FP32 radians a position.
    frequencies: Vec<f32>,
    /// 9 bits: how many were loaded.
    loaded: u16,
    flags: Flags,
    fault: bool,
    counters: Counters,
}

impl VectorUnit {
    /// A unit, reset, its memories empty.
    ///
    /// # Errors
    /// If the configuration cannot be built.
    pub fn new(config: Config) -> Result<Self, crate::VectorError> {
        let config = config.checked()?;
        let operand = OperandBeat(vec![0; config.lanes]);
        Ok(Self {
            config,
            a: SkidBuffer::new(operand.clone()),
            b: SkidBuffer::new(operand),
            y: SkidBuffer::new(ResultBeat::blank(config.lanes)),
            blank: ResultBeat::blank(config.lanes),
            sequencer: Sequencer::new(config),
            busy: false,
            drained: false,
            lanes: LanePipe::new(config.lanes),
            reducer: Reducer::new(config),
            rows: Sram::new(config.words(), config.lanes, WriteMode::ReadFirst),
            partials: Sram::new(MAX_BATCH * STEP_EDGES, 2 * config.lanes, WriteMode::ReadFirst),
            scalars: vec![Scalar::default(); config.words() * config.lanes / 8],
            frequencies: vec![0.0; MAX_FREQUENCIES],
            loaded: 0,
            flags: Flags::NONE,
            fault: false,
            counters: Counters::default(),
        })
    }

    fn command(&self) -> &Command {
        &self.sequencer.command
    }

    /// Word of the row buffer that holds a beat.
    fn row_word(&self, tag: Tag) -> usize {
        usize::from(tag.row) * self.config.beats(self.command().len) + usize::from(tag.beat)
    }

    /// First scalar of a beat: with groups as its word lies in the row buffer, else of its row.
    fn scalar_place(&self, tag: Tag) -> usize {
        let each = self.config.lanes / 8;
        match self.command().group() {
            Some(_) => (self.row_word(tag) - usize::from(tag.group_beat)) * each,
            None => usize::from(tag.row) * each,
        }
    }

    /// Lanes that share a scalar.
    fn shared(&self) -> usize {
        self.command().group().map_or(self.config.lanes, |group| group.min(self.config.lanes))
    }

    /// The operands of a beat that is issued: codes of the ports as they are, what the row shares, which lanes count.
    fn fetch(&self, source: Source, tag: Tag, lanes: &mut [Lane]) {
        let (command, shared, place) = (self.command(), self.shared(), self.scalar_place(tag));
        let (a, b) = (self.a.out().head.data, self.b.out().head.data);
        let (from_a, from_b) = match source {
            Source::Ports { b } => (true, b),
            Source::Rows { b } => (false, b),
            Source::Partials => (false, false),
        };
        let row = self.sequencer.base as usize + usize::from(tag.row);
        for (i, l) in lanes.iter_mut().enumerate() {
            let (at, scalar) = (usize::from(tag.beat) * self.config.lanes + i, self.scalars[place + i / shared]);
            *l = Lane::default();
            l.x = if from_a { f32::from_bits(a.0[i]) } else { 0.0 };
            l.y = if from_b { f32::from_bits(b.0[i]) } else { 0.0 };
            l.on = i < usize::from(tag.count);
            match command.op {
                Op::Scale { factor } => l.s = factor,
                Op::RmsNorm { .. } | Op::Quantise { .. } => l.s = scalar.factor,
                Op::Softmax { algorithm, scale, mask } => {
                    let online = algorithm == Algorithm::Online;
                    match tag.pass {
                        0 => l.s = scale,
                        1 => l.s = scalar.kept,
                        _ if online => (l.s, l.y) = (scalar.kept, scalar.factor),
                        _ => l.s = scalar.factor,
                    }
                    if let Masking::Count(ramp) = mask {
                        l.on &= at < ramp.at(row);
                    }
                }
                Op::Rope { pairing, positions } => {
                    let half = command.len / 2;
                    let pair = if pairing == Pairing::Halves { at % half } else { at / 2 };
                    l.s = positions.at(row) as f32;
                    l.b = self.frequencies.get(pair).copied().unwrap_or_default();
                    l.on = if pairing == Pairing::Halves { at < half } else { at.is_multiple_of(2) };
                }
                _ => {}
            }
        }
    }

    /// What the memories read for the beat in stage 0, before they read for the next.
    fn merge(&mut self) {
        let slot = self.lanes.at_mut(0);
        if !slot.valid {
            return;
        }
        match self.sequencer.program.passes[usize::from(slot.tag.pass)].source {
            Source::Ports { .. } => {}
            Source::Rows { .. } => {
                let words = self.rows.out().data;
                slot.lanes.iter_mut().zip(words).for_each(|(l, word)| l.x = f32::from_bits(*word));
            }
            Source::Partials => {
                let (maxima, sums) = self.partials.out().data.split_at(self.config.lanes);
                for ((l, m), s) in slot.lanes.iter_mut().zip(maxima).zip(sums) {
                    (l.x, l.y) = (f32::from_bits(*m), f32::from_bits(*s));
                }
            }
        }
    }

    /// The ports' decoders: the first step.
    fn decode(&mut self) {
        let command = *self.command();
        let slot = self.lanes.at_mut(stage(1));
        if !slot.valid {
            return;
        }
        let source = self.sequencer.program.passes[usize::from(slot.tag.pass)].source;
        let value = |format, x: f32| {
            let code = convert(format, FloatFormat::FP32.into(), x.to_bits(), Mode::IEEE, &mut Flags::default());
            f32::from_bits(code)
        };
        for l in &mut slot.lanes {
            if matches!(source, Source::Ports { .. }) {
                l.x = value(command.a, l.x);
            }
            if matches!(source, Source::Ports { b: true } | Source::Rows { b: true }) {
                l.y = value(command.b, l.y);
            }
            l.a = l.x;
            if matches!(command.op, Op::Softmax { mask: Masking::Stream, .. }) && slot.tag.pass == 0 {
                l.on &= l.y != 0.0;
            }
        }
        if matches!(command.op, Op::Rope { pairing: Pairing::Interleaved, .. }) {
            for pair in slot.lanes.as_chunks_mut::<2>().0 {
                (pair[0].y, pair[1].y) = (pair[1].x, pair[0].x);
            }
        }
    }

    /// The beat of results that stands at the end of the lanes or of the scalar pipeline.
    fn result(&self, flags: &mut Flags) -> Option<ResultBeat> {
        let command = self.command();
        let mut beat = ResultBeat::blank(self.config.lanes);
        let passes = &self.sequencer.program.passes;
        let last = passes.last()?;
        if last.reduction != Reduction::None {
            let (tag, scalars) = self.reducer.ready(&self.sequencer.program, command)?;
            (beat.row_end, beat.end) = (tag.row_end, tag.end);
            beat.scalar_count = (self.config.lanes / self.shared()) as u8;
            beat.scalar_count = beat.scalar_count.min(tag.count.div_ceil(self.shared() as u8)).max(1);
            for (to, from) in beat.scalars.iter_mut().zip(&scalars[..usize::from(beat.scalar_count)]) {
                *to = from.factor.to_bits();
            }
            if command.op == Op::ArgMax {
                (beat.codes[0], beat.count) = (scalars[0].index, 1);
            }
            return Some(beat);
        }
        let slot = self.lanes.at(stage(last.steps.len()));
        if !slot.valid || usize::from(slot.tag.pass) + 1 != passes.len() || command.op == Op::LoadFrequencies {
            return None;
        }
        let tag = slot.tag;
        (beat.count, beat.row_end, beat.end) = (tag.count, tag.row_end, tag.end);
        let quantise = matches!(command.op, Op::Quantise { .. });
        let mode = Mode::default_of(command.y);
        for (code, l) in beat.codes.iter_mut().zip(&slot.lanes[..usize::from(tag.count)]) {
            *code = if quantise {
                quantised(command.y, l.a, flags)
            } else {
                convert(FloatFormat::FP32.into(), command.y, l.a.to_bits(), mode, flags)
            };
        }
        if quantise && tag.group_beat == 0 {
            let place = self.scalar_place(tag);
            beat.scalar_count = tag.count.div_ceil(self.shared() as u8);
            for (g, to) in beat.scalars[..usize::from(beat.scalar_count)].iter_mut().enumerate() {
                *to = self.scalars[place + g].kept.to_bits();
            }
        }
        Some(beat)
    }

    /// Registers behind the lanes: row buffer, partial memory, frequencies, scalars.
    fn keep(&mut self, read_row: Option<usize>, read_partial: Option<usize>) {
        let program = &self.sequencer.program;
        let mut row_write = None;
        for (p, pass) in program.passes.iter().enumerate() {
            let Some(after) = pass.write_after else { continue };
            let slot = self.lanes.at(stage(after));
            if slot.valid && usize::from(slot.tag.pass) == p {
                let words: Vec<u32> = slot.lanes.iter().map(|l| l.a.to_bits()).collect();
                row_write = Some((self.row_word(slot.tag), words));
            }
        }
        let write = row_write.as_ref().map(|(address, data)| SramWrite { address: *address, data });
        self.rows.clock(&SramIn { read: read_row, write });

        let first = &program.passes[0];
        let slot = self.lanes.at(stage(first.steps.len() + 1));
        let kept = first.reduction == Reduction::Online
            && slot.valid
            && slot.tag.pass == 0
            && usize::from(slot.tag.beat) + STEP_EDGES >= first.beats;
        let words: Vec<u32> = match kept {
            true => {
                let way = self.reducer.way(slot.tag.beat);
                way.iter().map(|p| p.value.to_bits()).chain(way.iter().map(|p| p.sum.to_bits())).collect()
            }
            false => Vec::new(),
        };
        let address = usize::from(slot.tag.row) * STEP_EDGES + usize::from(slot.tag.beat) % STEP_EDGES;
        let write = kept.then_some(SramWrite { address, data: &words });
        self.partials.clock(&SramIn { read: read_partial, write });
        self.fault |= self.rows.out().fault.is_some() || self.partials.out().fault.is_some();

        if self.command().op == Op::LoadFrequencies {
            let slot = self.lanes.at(stage(first.steps.len()));
            if slot.valid {
                let from = usize::from(slot.tag.beat) * self.config.lanes;
                for (i, l) in slot.lanes[..usize::from(slot.tag.count)].iter().enumerate() {
                    self.frequencies[from + i] = l.a;
                }
                self.loaded = (from + usize::from(slot.tag.count)) as u16;
                self.drained |= slot.tag.end;
            }
        }
        if let Some((tag, scalars)) = self.reducer.ready(&self.sequencer.program, &self.sequencer.command) {
            let place = self.scalar_place(tag);
            for (i, scalar) in scalars.iter().enumerate() {
                let to = &mut self.scalars[place + i];
                *to = if tag.pass == 0 { *scalar } else { Scalar { kept: to.kept, ..*scalar } };
            }
            if tag.row_end {
                self.sequencer.scalars_ready(tag.pass, tag.row);
            }
        }
    }

    /// An edge on which nothing is missing. `source`: a beat is issued.
    fn advance(&mut self, source: Option<Source>) -> Option<ResultBeat> {
        let mut flags = Flags::NONE;
        let result = self.result(&mut flags);
        self.flags |= flags;
        self.drained |= result.as_ref().is_some_and(|beat| beat.end);
        let tag = self.sequencer.tag();
        let (mut read_row, mut read_partial) = (None, None);
        let mut lanes = std::mem::take(&mut self.lanes.spare);
        if let Some(source) = source {
            self.fetch(source, tag, &mut lanes);
            match source {
                Source::Ports { .. } => {}
                Source::Rows { .. } => read_row = Some(self.row_word(tag)),
                Source::Partials => read_partial = Some(usize::from(tag.row) * STEP_EDGES + usize::from(tag.beat)),
            }
            let rope = matches!(self.command().op, Op::Rope { .. });
            self.fault |= rope && usize::from(self.loaded) * 2 < self.command().len;
        }
        self.merge();
        self.keep(read_row, read_partial);
        self.lanes.retire(&self.sequencer.program);
        self.reducer.retire(&self.sequencer.program);
        if source.is_some() {
            self.sequencer.advance();
        }
        let head = self.lanes.shift();
        (head.valid, head.tag) = (source.is_some(), tag);
        std::mem::swap(&mut head.lanes, &mut lanes);
        self.lanes.spare = lanes;
        self.decode();
        self.lanes.finish_steps(&self.sequencer.program);
        self.reduce();
        result
    }

    /// The steps that look beyond a lane: the running maximum, the accumulators and all behind them.
    fn reduce(&mut self) {
        let program = &self.sequencer.program;
        for (p, pass) in program.passes.iter().enumerate() {
            if let Some(s) = pass.steps.iter().position(|step| matches!(step, StageStep::RunningMax)) {
                let slot = self.lanes.at_mut(stage(s + 1));
                if slot.valid && usize::from(slot.tag.pass) == p {
                    self.reducer.running_maximum(slot.tag, &mut slot.lanes);
                }
            }
        }
        let leaving = program.passes.iter().enumerate().find_map(|(p, pass)| {
            let slot = self.lanes.at(stage(pass.steps.len() + 1));
            let leaves = pass.reduction != Reduction::None && slot.valid && usize::from(slot.tag.pass) == p;
            leaves.then_some((slot.tag, &slot.lanes[..]))
        });
        self.reducer.advance(program, &self.sequencer.command, leaving);
    }
}

impl Module for VectorUnit {
    type In<'a> = UnitIn<'a>;
    type Out<'a> = UnitOut<'a>;

    fn out(&self) -> UnitOut<'_> {
        UnitOut {
            idle: !self.busy,
            a_ready: self.a.out().ready,
            b_ready: self.b.out().ready,
            y: self.y.out().head,
            flags: self.flags,
            fault: self.fault,
            counters: self.counters,
        }
    }

    fn clock(&mut self, i: &UnitIn<'_>) {
        let idle = !self.busy;
        let source = self.sequencer.wants().filter(|_| self.busy);
        let (wants_a, wants_b) = match source {
            Some(Source::Ports { b }) => (true, b),
            Some(Source::Rows { b }) => (false, b),
            _ => (false, false),
        };
        let starved = wants_a && !self.a.out().head.valid || wants_b && !self.b.out().head.valid;
        let blocked = !self.y.out().ready;
        let moves = self.busy && !self.drained && !starved && !blocked;
        // The last beat of results leaves; without any, the command ends with its last write.
        let y = self.y.out().head;
        let silent = self.command().op == Op::LoadFrequencies;
        let was_drained = self.drained;
        let done = self.busy && was_drained && y.fires(i.ready) && y.data.end;
        self.counters.busy += u64::from(self.busy);
        if self.busy && !was_drained {
            self.counters.blocked += u64::from(blocked);
            self.counters.starved += u64::from(starved && !blocked);
        } else if self.busy && !done {
            self.counters.blocked += 1;
        }
        let result = if moves { self.advance(source) } else { None };
        let push = Stream { valid: result.is_some(), data: result.as_ref().unwrap_or(&self.blank) };
        self.y.clock(&SkidIn { push, ready: i.ready });
        self.a.clock(&SkidIn { push: i.a, ready: moves && wants_a });
        self.b.clock(&SkidIn { push: i.b, ready: moves && wants_b });
        if done || silent && self.drained {
            (self.busy, self.drained) = (false, false);
        }
        if idle && i.command.valid {
            self.sequencer.start(i.command.data);
            self.busy = true;
        }
    }

    fn reset(&mut self) {
        self.a.reset();
        self.b.reset();
        self.y.reset();
        self.lanes.reset();
        self.reducer.reset();
        self.rows.reset();
        self.partials.reset();
        self.sequencer = Sequencer::new(self.config);
        (self.busy, self.drained, self.fault) = (false, false, false);
        (self.flags, self.counters, self.loaded) = (Flags::NONE, Counters::default(), 0);
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        v.scope("a", |v| self.a.visit(v));
        v.scope("b", |v| self.b.visit(v));
        v.scope("y", |v| self.y.visit(v));
        v.reg("busy_q", 1, Format::Unsigned, &mut self.busy);
        v.reg("drained_q", 1, Format::Unsigned, &mut self.drained);
        v.scope("sequencer", |v| self.sequencer.visit(v));
        v.scope("lanes", |v| self.lanes.visit(v));
        v.scope("reducer", |v| self.reducer.visit(v));
        v.scope("row_buffer", |v| self.rows.visit(v));
        v.scope("partial_memory", |v| self.partials.visit(v));
        v.scope("scalars", |v| {
            self.scalars.iter_mut().enumerate().for_each(|(i, s)| v.scope(("word", i), |v| s.visit(v)));
        });
        v.scope("frequencies", |v| {
            self.frequencies.iter_mut().enumerate().for_each(|(i, f)| float(v, ("frequency_q", i), f));
        });
        v.reg("loaded_q", 9, Format::Unsigned, &mut self.loaded);
        let mut flags = self.flags.bits();
        v.reg("flags_q", 5, Format::Hex, &mut flags);
        self.flags = Flags::from_bits(flags);
        v.reg("fault_q", 1, Format::Unsigned, &mut self.fault);
        v.scope("counters", |v| self.counters.visit(v));
    }
}
