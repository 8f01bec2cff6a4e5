//! A program under construction: commands in order, with the tokens that their operands call for.
//!
//! The commands are written in the order in which they would be right one after the other. What must wait for what follows from the
//! bytes that they read and write: a command waits for the last one on each other engine that wrote what it reads, or
//! that read or wrote what it writes. Engines take their commands in order, so one wait a pair of engines covers all before
//! it, and what the awaited command has waited for need not be waited for again. There is one token counter for each ordered pair of
//! engines: signals on it come from one engine in order and are taken by one engine in order, so the k-th wait takes
//! the k-th signal; and every signal stands before its wait, so that queues of any depth let the program through.

use crate::spans::{Effects, effects};
use npu::dma::{Descriptor, Element, Side, WIRE_BYTES};
use npu::isa::{Command, Engine, Op};
use npu::{Config, DRAM_REGION, SCRATCHPAD_REGION};
use std::ops::Range;

/// The token counter that engine number `from` signals and engine number `to` takes.
fn counter(from: usize, to: usize) -> usize {
    4 * from + to
}

/// The engines for whose tokens a command of a session's program waits.
pub fn awaited(command: &Command) -> impl Iterator<Item = Engine> {
    let (wait, to) = (command.wait, command.op.engine() as usize);
    Engine::ALL.into_iter().filter(move |&from| wait >> counter(from as usize, to) & 1 == 1)
}

/// A move between DRAM and scratchpad: `rows` rows of `bytes` bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    /// Into the scratchpad; else out of it.
    pub load: bool,
    /// First byte in DRAM.
    pub dram: u64,
    /// Bytes from row to row there.
    pub dram_pitch: u64,
    /// First byte in the scratchpad.
    pub scratch: u32,
    /// Bytes from row to row there.
    pub scratch_pitch: u32,
    /// Rows.
    pub rows: u32,
    /// Bytes of a row, a multiple of 4.
    pub bytes: u32,
}

impl Move {
    /// One piece.
    pub(crate) fn linear(load: bool, dram: u64, scratch: u32, bytes: u32) -> Self {
        Self { load, dram, dram_pitch: 0, scratch, scratch_pitch: 0, rows: 1, bytes }
    }

    pub(crate) fn span(&self) -> Range<u32> {
        self.scratch..self.scratch + (self.rows - 1) * self.scratch_pitch + self.bytes
    }

    /// Its descriptor; `kind`: [`npu::WEIGHTS`], [`npu::KV`] or [`npu::ACTIVATIONS`].
    pub(crate) fn descriptor(&self, kind: usize) -> Descriptor {
        let eights =
            [self.dram, self.dram_pitch, u64::from(self.scratch), u64::from(self.scratch_pitch), u64::from(self.bytes)];
        let (element, size) = match eights.iter().all(|v| v.is_multiple_of(8)) {
            true => (Element::B8, 8),
            false => (Element::B4, 4),
        };
        let dram = Side {
            region: DRAM_REGION,
            offset: self.dram as i64,
            strides: [0, self.dram_pitch as i64, size],
            index: None,
        };
        let scratch = Side {
            region: SCRATCHPAD_REGION,
            offset: i64::from(self.scratch),
            strides: [0, i64::from(self.scratch_pitch), size],
            index: None,
        };
        let (source, destination) = if self.load { (dram, scratch) } else { (scratch, dram) };
        Descriptor {
            element,
            counts: [1, self.rows, self.bytes / size as u32],
            source,
            destination,
            tag: kind as u32,
            ..Descriptor::default()
        }
    }
}

/// The last commands that touched a granule of the scratchpad.
#[derive(Clone, Copy, Default)]
struct Touched {
    /// 1 + the number of the last that wrote it; 0: none.
    write: u32,
    /// The same of the last reader on each engine since.
    reads: [u32; 4],
}

/// Commands of a program and what they need in DRAM.
pub(crate) struct Program {
    /// The commands.
    pub commands: Vec<Command>,
    /// Descriptors made for this program, to be written at `descriptors_at`.
    pub descriptors: Vec<u8>,
    descriptors_at: u64,
    descriptors_room: usize,
    granule: u32,
    bank: u32,
    touched: Vec<Touched>,
    /// For each engine, 1 + the last command of every engine that is known to be done when its next one starts.
    known: [[u32; 4]; 4],
    /// What each command knew when it started.
    knew: Vec<[u32; 4]>,
    tag: u32,
    tile: usize,
}

/// Granules that hazards are told apart by.
const GRANULES: u32 = 4096;

impl Program {
    /// An empty program whose descriptors go to `descriptors`, for streams of `head_dim` channels.
    pub(crate) fn new(config: &Config, descriptors: Range<u64>, head_dim: usize) -> Self {
        let granule = (config.scratchpad.bytes / GRANULES).max(64);
        Self {
            commands: Vec::new(),
            descriptors: Vec::new(),
            descriptors_at: descriptors.start,
            descriptors_room: (descriptors.end - descriptors.start) as usize,
            granule,
            bank: config.bank_bytes(),
            touched: vec![Touched::default(); config.scratchpad.bytes.div_ceil(granule) as usize],
            known: [[0; 4]; 4],
            knew: Vec::new(),
            tag: 0,
            tile: head_dim,
        }
    }

    /// The tag of what follows.
    pub(crate) fn tag(&mut self, tag: u32) {
        self.tag = tag;
    }

    /// Appends an operation. `load`: bytes that a [`Op::KvLoad`] may write, which only the index knows.
    pub(crate) fn push_sized(&mut self, op: Op, load: u32) {
        let effects = effects(&op, self.tile, load);
        self.append(op, &effects);
    }

    /// Appends an operation.
    pub(crate) fn push(&mut self, op: Op) {
        self.push_sized(op, 0);
    }

    /// Appends a chain that lies in DRAM already.
    pub(crate) fn chain(&mut self, chain: u64, moves: &[Move]) {
        let spans: Vec<_> = moves.iter().map(|m| (m.load, m.span())).collect();
        self.spans(chain, &spans);
    }

    /// Appends moves as one chain, its descriptors made here.
    pub(crate) fn moves(&mut self, moves: &[Move], kind: usize) {
        let chain = self.descriptors_at + self.descriptors.len() as u64;
        for (i, m) in moves.iter().enumerate() {
            self.describe(m.descriptor(kind), i + 1 < moves.len());
        }
        if !moves.is_empty() {
            self.chain(chain, moves);
        }
    }

    /// Appends one job that writes `span`.
    pub(crate) fn job(&mut self, job: Descriptor, span: Range<u32>) {
        let chain = self.descriptors_at + self.descriptors.len() as u64;
        self.describe(job, false);
        self.spans(chain, &[(true, span)]);
    }

    fn describe(&mut self, job: Descriptor, more: bool) {
        let next = self.descriptors_at + (self.descriptors.len() + WIRE_BYTES) as u64;
        debug_assert!(self.descriptors.len() + WIRE_BYTES <= self.descriptors_room, "the plan counts descriptors");
        self.descriptors.extend(Descriptor { link: more.then_some(next), ..job }.encode());
    }

    fn spans(&mut self, chain: u64, spans: &[(bool, Range<u32>)]) {
        let mut effects = Effects::default();
        let mut banks = 0u64;
        for (load, span) in spans {
            if *load { &mut effects.writes } else { &mut effects.reads }.push(span.clone());
            banks |= (span.start / self.bank..=(span.end - 1) / self.bank).fold(0, |mask, bank| mask | 1 << bank);
        }
        self.append(Op::Dma { chain, banks }, &effects);
    }

    fn append(&mut self, op: Op, effects: &Effects) {
        let number = self.commands.len() as u32 + 1;
        let engine = op.engine() as usize;
        let mut after = [0u32; 4];
        let engine_of = |commands: &[Command], n: u32| commands[n as usize - 1].op.engine() as usize;
        for span in &effects.reads {
            for t in &mut self.touched[granules(span, self.granule)] {
                if t.write != 0 {
                    let writer = engine_of(&self.commands, t.write);
                    after[writer] = after[writer].max(t.write);
                }
                t.reads[engine] = number;
            }
        }
        for span in &effects.writes {
            for t in &mut self.touched[granules(span, self.granule)] {
                if t.write != 0 && t.write != number {
                    let writer = engine_of(&self.commands, t.write);
                    after[writer] = after[writer].max(t.write);
                }
                (0..4).filter(|&e| t.reads[e] != number).for_each(|e| after[e] = after[e].max(t.reads[e]));
                *t = Touched { write: number, reads: [0; 4] };
            }
        }
        let mut wait = 0;
        for other in (0..4).filter(|&e| e != engine) {
            let awaited = after[other];
            if awaited > self.known[engine][other] {
                let counter = 1 << counter(other, engine);
                wait |= counter;
                self.commands[awaited as usize - 1].signal |= counter;
                let knew = self.knew[awaited as usize - 1];
                (0..4).for_each(|e| self.known[engine][e] = self.known[engine][e].max(knew[e]));
                self.known[engine][other] = awaited;
            }
        }
        // The engine is in order: whoever waits for this command has waited for all before it.
        self.knew.push(self.known[engine]);
        self.known[engine][engine] = number;
        self.commands.push(Command { wait, signal: 0, tag: self.tag, op });
    }
}

fn granules(span: &Range<u32>, granule: u32) -> Range<usize> {
    (span.start / granule) as usize..span.end.div_ceil(granule) as usize
}
