//! Data movement: chains of descriptors, and the chains that the KV commands compose.

use super::Machine;
use crate::isa::Stream;
use crate::kv::{Piece, control};
use crate::memory::{CONTROL_BASE, SCRATCHPAD_BASE};
use crate::{Config, Fault, Memory, Work};
use dma::{Bytes, Descriptor, Element, IndexList, Latency, Region, Remap, Response, Side, Transaction, WIRE_BYTES};
use rtl::{Format, Visitor};
use std::collections::HashMap;

/// Regions of the DMA: DRAM, scratchpad, control RAM.
pub const DRAM_REGION: u8 = 0;
/// The scratchpad's region.
pub const SCRATCHPAD_REGION: u8 = 1;
/// The control RAM's region; it can only be read.
pub const CONTROL_REGION: u8 = 2;

/// Cycles of the shell around the engine: the one in which the doorbell rings, the one that sees it idle again.
const AROUND: u64 = 2;
/// Cycles from a read or write of an on-chip memory to its answer.
const LOCAL: u64 = 2;
/// Longest chain that is followed.
const CHAIN: usize = 4096;

/// The memories' latencies: DRAM banks with an open row each, all closed when a command begins; on-chip memory at once.
#[derive(Clone, Debug)]
pub struct OpenRows {
    hit: u64,
    miss: u64,
    write: u64,
    row_bytes: u64,
    open: Vec<Option<u64>>,
}

impl OpenRows {
    /// All rows closed.
    pub fn new(config: &Config) -> Self {
        let d = &config.dram;
        Self {
            hit: d.hit_latency,
            miss: d.miss_latency,
            write: d.write_latency,
            row_bytes: d.row_bytes,
            open: vec![None; d.banks],
        }
    }

    /// Closes all rows.
    pub(crate) fn close(&mut self) {
        self.open.fill(None);
    }

    /// Shows the open row of each bank: 0 is none, n + 1 is row n.
    pub(crate) fn visit(&mut self, v: &mut impl Visitor) {
        for (bank, row) in self.open.iter_mut().enumerate() {
            let mut code = row.map_or(0, |row| row + 1);
            v.reg(("row_q", bank), 41, Format::Unsigned, &mut code);
            *row = code.checked_sub(1);
        }
    }
}

impl Latency for OpenRows {
    fn read(&mut self, address: u64) -> u64 {
        if address >= SCRATCHPAD_BASE {
            return LOCAL;
        }
        let row = address / self.row_bytes;
        let bank = row as usize % self.open.len();
        let hit = self.open[bank].replace(row) == Some(row);
        if hit { self.hit } else { self.miss }
    }

    fn write(&self, address: u64) -> u64 {
        if address >= SCRATCHPAD_BASE { LOCAL } else { self.write }
    }
}

/// The memories as the engine's port sees them.
struct Port<'a> {
    memory: &'a mut Memory,
    /// The bytes are moved; otherwise only descriptors and lists are read, for the time that they take.
    moves: bool,
}

impl Bytes for Port<'_> {
    fn read(&mut self, address: u64, lanes: &mut [u8]) -> Response {
        self.memory.load(address, lanes)
    }

    fn write(&mut self, address: u64, lanes: &[u8], strobe: u64) -> Response {
        if self.moves { self.memory.store(address, lanes, strobe) } else { Response::Okay }
    }
}

/// A chain's shape: everything that its time depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Shape {
    bell: u64,
    jobs: Vec<(Descriptor, Vec<u8>)>,
}

/// The data-movement engine.
pub(super) struct Mover {
    engine: Transaction,
    latency: OpenRows,
    /// Bytes after which DRAM banks repeat: addresses that differ by a multiple take the same time.
    period: u64,
    known: HashMap<Shape, u64>,
}

impl Mover {
    pub(super) fn new(config: &Config, control_bytes: usize) -> Self {
        let sizes = port(config);
        // A configuration that was checked has sizes that the engine takes.
        let mut engine = match Transaction::new(&sizes, LOCAL) {
            Ok(engine) => engine,
            Err(error) => unreachable!("{error}"),
        };
        for (number, region) in regions(config, control_bytes).into_iter().enumerate() {
            engine.set_region(number, region);
        }
        let period = (config.dram.row_bytes * config.dram.banks as u64).max(4096);
        Self { engine, latency: OpenRows::new(config), period, known: HashMap::new() }
    }
}

/// Sizes of the engine for a configuration.
pub fn port(config: &Config) -> dma::Config {
    dma::Config {
        bus_bytes: config.dram.bytes_per_cycle,
        reads_in_flight: config.dram.reads_in_flight,
        ..dma::Config::default()
    }
}

/// The region registers of the engine: DRAM, scratchpad, control RAM.
pub fn regions(config: &Config, control_bytes: usize) -> [Region; 3] {
    let control = Region { base: CONTROL_BASE, limit: CONTROL_BASE + control_bytes as u64, read: true, write: false };
    [
        Region::read_write(0, config.dram.bytes),
        Region::read_write(SCRATCHPAD_BASE, u64::from(config.scratchpad.bytes)),
        control,
    ]
}

/// A side in one piece.
pub(crate) fn linear(region: u8, offset: u64) -> Side {
    Side { region, offset: offset as i64, strides: [0, 0, 1], index: None }
}

impl Machine {
    pub(super) fn chain(&mut self, chain: u64, banks: u64) -> Result<Work, Fault> {
        let jobs = self.follow(chain)?;
        let touched = jobs.iter().fold(0, |mask, job| mask | self.touched(&job.0));
        if touched & !banks != 0 {
            return Err(Fault::Banks { touched, held: banks });
        }
        self.run_chain(chain, jobs, 0)
    }

    /// Reads a chain's descriptors and index lists.
    fn follow(&self, chain: u64) -> Result<Vec<(Descriptor, Vec<u8>)>, Fault> {
        let mut jobs = Vec::new();
        let mut next = Some(chain);
        while let Some(address) = next {
            let number = jobs.len();
            let refuse = |cause: String| Fault::Dma { number, cause };
            if number == CHAIN {
                return Err(refuse(format!("the chain is longer than {CHAIN}")));
            }
            let mut wire = [0; WIRE_BYTES];
            self.memory.fetch(address, &mut wire)?;
            let descriptor = Descriptor::decode(&wire).map_err(|e| refuse(e.to_string()))?;
            let mut lists = Vec::new();
            for (side, index) in
                [&descriptor.source, &descriptor.destination].into_iter().filter_map(|s| Some((s, s.index?)))
            {
                let entry = if descriptor.wide_index { 4 } else { 2 };
                let count = descriptor.counts.get(usize::from(index.dimension)).copied().unwrap_or(0) as usize;
                if count > dma::INDEX_ENTRIES as usize {
                    return Err(refuse(format!("an index list of {count} entries on region {}", side.region)));
                }
                let mut list = vec![0; entry * count];
                self.memory.fetch(base(index.region).saturating_add(index.offset), &mut list)?;
                lists.extend(list);
            }
            next = descriptor.link;
            jobs.push((descriptor, lists));
        }
        Ok(jobs)
    }

    /// Banks of the scratchpad between the lowest and the highest byte that a job may touch.
    fn touched(&self, d: &Descriptor) -> u64 {
        if d.counts.contains(&0) {
            return 0;
        }
        let sides = [&d.source, &d.destination].into_iter().filter(|side| side.region == SCRATCHPAD_REGION);
        let whole = self.memory.scratch.size();
        sides.fold(0, |mask, side| {
            let range = match reach(d, side) {
                Some((low, high)) if low >= 0 && high <= whole as i128 => low as usize..high as usize,
                _ => 0..whole,
            };
            mask | self.memory.scratch.banks(&range)
        })
    }

    /// Moves the bytes of a chain whose first descriptor lies at `bell`, and says how long it takes. `composed`: cycles before the
    /// doorbell.
    fn run_chain(&mut self, bell: u64, jobs: Vec<(Descriptor, Vec<u8>)>, composed: u64) -> Result<Work, Fault> {
        let plain = jobs.iter().all(|(d, _)| is_plain(d)) && !meets(bell, &jobs);
        let (read, written) = jobs.iter().fold((0, 0), |(read, written), (d, _)| {
            let bytes = bytes(d);
            let of = |side: &Side| if side.region == DRAM_REGION { bytes } else { 0 };
            (read + of(&d.source), written + of(&d.destination))
        });
        let kind = jobs.first().map_or(0, |(d, _)| d.tag as usize & 3);
        let shape = plain.then(|| self.shape(bell, &jobs));
        let known = shape.as_ref().and_then(|shape| self.dma.known.get(shape)).copied();
        let cycles = match known {
            Some(cycles) => cycles,
            None => {
                let mut port = Port { memory: &mut self.memory, moves: !plain };
                let report = self.dma.engine.run_at(&mut port, self.dma.latency.clone(), &[bell]);
                for (number, (_, completion)) in report.completions.iter().enumerate() {
                    if let Err(cause) = completion.result() {
                        return Err(Fault::Dma { number, cause: cause.to_string() });
                    }
                }
                report.completions.last().map_or(0, |(cycle, _)| *cycle)
            }
        };
        if let Some(shape) = shape {
            self.dma.known.entry(shape).or_insert(cycles);
            for (d, list) in &jobs {
                self.copy(d, list)?;
            }
        }
        Ok(Work { dram_read: read, dram_written: written, kind, ..Work::of(AROUND + composed + cycles, 1) })
    }

    /// What a chain's time depends on: addresses only up to where the banks repeat, which memory they lie in, and how entries of a list
    /// follow each other.
    fn shape(&self, bell: u64, jobs: &[(Descriptor, Vec<u8>)]) -> Shape {
        let period = self.dma.period;
        let place = |at: u64| at / SCRATCHPAD_BASE * SCRATCHPAD_BASE + at % period;
        let fold = |side: &Side| Side { offset: side.offset.rem_euclid(period as i64), ..*side };
        let jobs = jobs.iter().map(|(d, list)| {
            let d = Descriptor { source: fold(&d.source), destination: fold(&d.destination), tag: 0, ..*d };
            (Descriptor { link: d.link.map(place), ..d }, list.clone())
        });
        Shape { bell: place(bell), jobs: jobs.collect() }
    }

    /// Moves the bytes of a plain job, row by row.
    fn copy(&mut self, d: &Descriptor, list: &[u8]) -> Result<(), Fault> {
        let row = d.counts[2] as usize * size(d.element);
        let entry = |i: usize| -> i64 {
            match d.wide_index {
                true => i64::from(i32::from_le_bytes([list[4 * i], list[4 * i + 1], list[4 * i + 2], list[4 * i + 3]])),
                false => i64::from(u16::from_le_bytes([list[2 * i], list[2 * i + 1]])),
            }
        };
        for i in 0..d.counts[0] as i64 {
            for j in 0..d.counts[1] as i64 {
                let at = |side: &Side| {
                    let mut place = [i, j];
                    if let Some(index) = side.index {
                        let dimension = usize::from(index.dimension);
                        place[dimension] = entry(place[dimension] as usize);
                    }
                    let offset = side.offset + place[0] * side.strides[0] + place[1] * side.strides[1];
                    base(side.region).wrapping_add_signed(offset)
                };
                self.memory.copy(at(&d.source), at(&d.destination), row)?;
            }
        }
        Ok(())
    }

    pub(super) fn kv_load(&mut self, stream: Stream, first: u32, tiles: u32, to: u32) -> Result<Work, Fault> {
        let at = self.kv.at(stream)?;
        let (start, bytes) = self.kv.span(at, first, tiles)?;
        let pieces = self.kv.pieces(&self.memory, at, start, bytes);
        let mut to = u64::from(to);
        let mut jobs = Vec::new();
        // A first and a last page that are not whole, and all between by the block table.
        let whole = |piece: &Piece| piece.bytes == nkz::PAGE;
        let mut rest = &pieces[..];
        while let Some(piece) = rest.first() {
            let run = rest.iter().take_while(|p| whole(p)).count().min(dma::INDEX_ENTRIES as usize);
            let destination = linear(SCRATCHPAD_REGION, to);
            if run < 2 {
                jobs.push(Descriptor {
                    element: Element::B1,
                    counts: [1, 1, piece.bytes as u32],
                    source: linear(DRAM_REGION, piece.address),
                    destination,
                    ..Descriptor::default()
                });
                to += piece.bytes as u64;
                rest = &rest[1..];
                continue;
            }
            let page = (start / nkz::PAGE) + (pieces.len() - rest.len());
            let index = IndexList {
                region: CONTROL_REGION,
                offset: (self.kv.table(at) + 4 * page) as u64,
                dimension: 1,
                bound: self.kv.page_count(),
            };
            let strides = [0, nkz::PAGE as i64, 1];
            jobs.push(Descriptor {
                element: Element::B1,
                counts: [1, run as u32, nkz::PAGE as u32],
                source: Side { strides, index: Some(index), ..linear(DRAM_REGION, self.kv.setup().pages) },
                destination: Side { strides, ..destination },
                wide_index: true,
                ..Descriptor::default()
            });
            to += (run * nkz::PAGE) as u64;
            rest = &rest[run..];
        }
        self.composed(jobs)
    }

    pub(super) fn kv_store(&mut self, stream: Stream, tile: u32, from: u32) -> Result<Work, Fault> {
        let at = self.kv.at(stream)?;
        let (start, bytes) = self.kv.span(at, tile, 1)?;
        let pieces = self.kv.pieces(&self.memory, at, start, bytes);
        let mut from = u64::from(from);
        let jobs = pieces.iter().map(|piece| {
            let source = linear(SCRATCHPAD_REGION, from);
            from += piece.bytes as u64;
            Descriptor {
                element: Element::B1,
                counts: [1, 1, piece.bytes as u32],
                source,
                destination: linear(DRAM_REGION, piece.address),
                ..Descriptor::default()
            }
        });
        let jobs = jobs.collect();
        self.composed(jobs)
    }

    /// Writes descriptors into the control RAM, a bus beat a cycle, and runs them.
    fn composed(&mut self, mut jobs: Vec<Descriptor>) -> Result<Work, Fault> {
        let Some(last) = jobs.len().checked_sub(1) else {
            return Ok(Work { kind: KV, ..Work::of(1, 1) });
        };
        let slot = WIRE_BYTES.next_multiple_of(64);
        for (number, job) in jobs.iter_mut().enumerate() {
            job.tag = KV as u32;
            job.link = (number < last).then(|| control(slot * (number + 1)));
            let at = slot * number;
            match self.memory.control.get_mut(at..at + WIRE_BYTES) {
                Some(place) if at + slot <= crate::kv::COMPOSE_BYTES => place.copy_from_slice(&job.encode()),
                _ => {
                    let cause =
                        "the pages are scattered over more pieces than the control RAM holds descriptors".into();
                    return Err(Fault::Dma { number, cause });
                }
            }
        }
        let beats = (jobs.len() * WIRE_BYTES).div_ceil(self.config.dram.bytes_per_cycle as usize) as u64;
        let jobs = self.follow(control(0))?;
        self.run_chain(control(0), jobs, beats)
    }
}

/// Low bits of a descriptor's tag: what its bytes are. 0 is activations.
pub const ACTIVATIONS: usize = 0;
/// Weights and their scales.
pub const WEIGHTS: usize = 1;
/// The KV cache.
pub const KV: usize = 2;

fn base(region: u8) -> u64 {
    match region {
        SCRATCHPAD_REGION => SCRATCHPAD_BASE,
        CONTROL_REGION => CONTROL_BASE,
        _ => 0,
    }
}

/// Bytes of an element; 0 for a nibble.
fn size(element: Element) -> usize {
    (element.nibbles() / 2) as usize
}

fn bytes(d: &Descriptor) -> u64 {
    (d.elements() * u128::from(d.element.nibbles())).div_ceil(2) as u64
}

/// First byte and past the last byte that a side without a list can reach.
fn reach(d: &Descriptor, side: &Side) -> Option<(i128, i128)> {
    if side.index.is_some() || d.element == Element::Int4 || d.counts.contains(&0) {
        return None;
    }
    let (mut low, mut high) = (i128::from(side.offset), i128::from(side.offset) + size(d.element) as i128);
    for (count, stride) in d.counts.iter().zip(side.strides) {
        let far = i128::from(count - 1) * i128::from(stride);
        if far < 0 { low += far } else { high += far }
    }
    Some((low, high))
}

/// Rows in one piece, forward, at most one list on an outer dimension of the source: what is copied row by row.
fn is_plain(d: &Descriptor) -> bool {
    let unit = size(d.element) as i64;
    let inner = d.source.strides[2] == unit && d.destination.strides[2] == unit;
    let list = d.source.index.is_none_or(|index| index.dimension < 2) && d.destination.index.is_none();
    unit > 0 && inner && list && d.remap == Remap::Direct && d.window.is_none() && !d.clamp && !d.counts.contains(&0)
}

/// Whether something that a chain reads, descriptors and lists included, may be something that it writes: then order matters, and the
/// engine itself moves the bytes.
fn meets(bell: u64, jobs: &[(Descriptor, Vec<u8>)]) -> bool {
    let mut reads = vec![(0, i128::from(bell), i128::from(bell) + WIRE_BYTES as i128)];
    let mut writes = Vec::new();
    let whole = (i128::MIN, i128::MAX);
    for (d, _) in jobs {
        let place = |side: &Side| {
            let (low, high) = reach(d, side).unwrap_or(whole);
            (side.region, low, high)
        };
        reads.push(place(&d.source));
        writes.push(place(&d.destination));
        if let Some(at) = d.link {
            let region = if at >= CONTROL_BASE { CONTROL_REGION } else { DRAM_REGION };
            reads.push((region, i128::from(at), i128::from(at) + WIRE_BYTES as i128));
        }
    }
    let meet = |a: &(u8, i128, i128), b: &(u8, i128, i128)| a.0 == b.0 && a.1 < b.2 && b.1 < a.2;
    // Two writes on one place keep their order row by row only if one comes after the other.
    reads.iter().any(|r| writes.iter().any(|w| meet(r, w)))
}
