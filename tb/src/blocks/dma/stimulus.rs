//! Random and directed jobs, laid out in a memory with canaries around every buffer.

use super::bench::Scenario;
use super::memory::Timing;
use super::reference::Image;
use dma::{Config, Descriptor, Element, IndexList, Region, Remap, Side, WIRE_BYTES, Window};
use rand::{Rng, RngExt};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A job before it has a place: regions are numbered 0 source, 1 destination, 2 and 3 their index lists.
#[derive(Clone, Debug)]
pub struct Piece {
    /// One descriptor, or the chain of a preset.
    pub descriptors: Vec<Descriptor>,
    /// Index lists, source and destination.
    pub lists: [Vec<i64>; 2],
}

/// How source and destination lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lay {
    /// In different buffers.
    Apart,
    /// The destination begins this many bytes after the source begins, in one buffer.
    Overlap(i64),
}

/// Least distance of two buffers: bytes of canary.
const CANARY: u64 = 80;

/// Bytes of the places where sources and destinations go; and of the lists.
const ARENA: u64 = 64 << 10;

/// Where a job's buffers came to lie.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// Addresses of source and destination.
    pub address: [u64; 2],
    /// The job's index in the chain.
    pub first: usize,
}

/// A memory being filled with jobs.
pub struct World {
    base: u64,
    bytes: Vec<u8>,
    regions: Vec<Region>,
    lists_at: u64,
    /// All descriptors so far, regions resolved.
    pub descriptors: Vec<Descriptor>,
}

/// Lowest and past-the-highest byte, relative to the region's base, that a side of the descriptors can touch.
pub fn extent(descriptors: &[Descriptor], side: usize) -> (i64, i64) {
    let (mut low, mut high) = (i128::MAX, i128::MIN);
    for d in descriptors {
        let s: &Side = if side == 0 { &d.source } else { &d.destination };
        let units = if d.element == Element::Int4 { 2 } else { 1 };
        let size = if d.element == Element::Int4 { 1 } else { i128::from(d.element.code()) };
        let ends = (0..3).map(|k| {
            let inside = d.window.filter(|_| side == 0);
            let (first, past) = match (s.index.filter(|x| usize::from(x.dimension) == k), inside) {
                (Some(list), _) => (0, list.bound),
                (None, Some(w)) => (w.lo[k], w.hi[k]),
                (None, None) => (0, d.counts[k]),
            };
            (i128::from(first), i128::from(past) - 1, i128::from(s.strides[k]))
        });
        let ends: Vec<_> = ends.collect();
        if d.counts.contains(&0) || d.window.is_some_and(|w| side == 0 && (0..3).any(|k| w.lo[k] >= w.hi[k])) {
            continue;
        }
        let at = i128::from(s.offset);
        let lo: i128 = ends.iter().map(|(a, b, t)| (a * t).min(b * t)).sum::<i128>() + at;
        let hi: i128 = ends.iter().map(|(a, b, t)| (a * t).max(b * t)).sum::<i128>() + at + size - 1;
        low = low.min(lo.div_euclid(units));
        high = high.max(hi.div_euclid(units));
    }
    if low > high { (0, 0) } else { (low as i64, high as i64 + 1) }
}

impl World {
    /// Random bytes everywhere, no jobs. `base` is the memory's first address.
    pub fn new(rng: &mut Xoshiro256PlusPlus) -> Self {
        let base = *[0, 0x1_0000, 0x7fff_0000, 0xffff_fff0_0000u64].get(rng.random_range(0..4)).unwrap_or(&0);
        let mut bytes = vec![0; (8192 + 3 * ARENA + 4 * 4096) as usize];
        rng.fill_bytes(&mut bytes);
        let descriptors = Region::read_only(base + 64, 8192 - 64);
        Self { base, bytes, regions: vec![descriptors], lists_at: base + 8192 + CANARY, descriptors: Vec::new() }
    }

    /// Address of descriptor `i`.
    pub fn descriptor_address(&self, i: usize) -> u64 {
        self.base + 64 + (i * WIRE_BYTES) as u64
    }

    /// Address of arena 0 or 1.
    fn arena(&self, a: u64) -> u64 {
        self.base + 8192 + 4096 + ARENA + a * (ARENA + 4096)
    }

    fn region(&mut self, region: Region) -> u8 {
        self.regions.push(region);
        (self.regions.len() - 1) as u8
    }

    /// Lays a job out: regions are as tight as they can be. `align` makes buffers begin at multiples of it.
    ///
    /// # Panics
    /// If there is no room or more than 16 regions are wanted: a fault of the bench.
    pub fn add(&mut self, rng: &mut Xoshiro256PlusPlus, piece: &Piece, lay: Lay, align: u64) -> Placed {
        let (source, destination) = (extent(&piece.descriptors, 0), extent(&piece.descriptors, 1));
        let (s, d) = ((source.1 - source.0) as u64, (destination.1 - destination.0) as u64);
        assert!(s + d + 2 * CANARY < ARENA, "a job of {s} and {d} bytes has no room");
        let swap = rng.random::<bool>();
        let mut at = |arena: u64, bytes: u64| {
            let room = ARENA - bytes - CANARY;
            (arena + CANARY + rng.random_range(0..room)) / align * align
        };
        let source_at = at(self.arena(u64::from(swap)), s);
        let destination_at = match lay {
            Lay::Apart => at(self.arena(u64::from(!swap)), d),
            Lay::Overlap(by) => {
                let (low, high) = (self.arena(0) as i64, (self.arena(1) + ARENA) as i64 - d as i64);
                (source_at as i64 + by).clamp(low, high) as u64
            }
        };
        // A region begins at its lowest byte; offsets are made relative to it.
        let regions = [
            self.region(Region { base: source_at, limit: source_at + s, read: true, write: false }),
            self.region(Region { base: destination_at, limit: destination_at + d, read: false, write: true }),
        ];
        let first = self.descriptors.len();
        let mut list_regions = [0; 2];
        for side in 0..2 {
            if piece.lists[side].is_empty() {
                continue;
            }
            let width = if piece.descriptors[0].wide_index { 4 } else { 2 };
            let at = self.lists_at + if align == 1 { rng.random_range(0..64) } else { 0 };
            let bytes = piece.lists[side].len() as u64 * width;
            self.lists_at = (at + bytes + CANARY).next_multiple_of(64);
            assert!(self.lists_at < self.base + 8192 + ARENA, "no room for an index list");
            list_regions[side] = self.region(Region::read_only(at, bytes));
            for (i, value) in piece.lists[side].iter().enumerate() {
                let to = (at - self.base) as usize + i * width as usize;
                self.bytes[to..to + width as usize].copy_from_slice(&value.to_le_bytes()[..width as usize]);
            }
        }
        assert!(self.regions.len() <= dma::REGIONS, "more regions than registers");
        for d in &piece.descriptors {
            let units = if d.element == Element::Int4 { 2 } else { 1 };
            let mut d = *d;
            d.source.region = regions[0];
            d.source.offset -= source.0 * units;
            d.destination.region = regions[1];
            d.destination.offset -= destination.0 * units;
            for (side, index) in [&mut d.source.index, &mut d.destination.index].into_iter().enumerate() {
                if let Some(index) = index {
                    index.region = list_regions[side];
                }
            }
            d.tag = 0xa000_0000 + self.descriptors.len() as u32;
            self.descriptors.push(d);
        }
        Placed { address: [source_at, destination_at], first }
    }

    /// Links all jobs into one chain behind one doorbell.
    pub fn scenario(mut self, config: Config, timing: Timing, seed: u64) -> (Scenario, Vec<Descriptor>) {
        let at = self.descriptor_address(0);
        let wire = dma::chain(&self.descriptors, at);
        let from = (at - self.base) as usize;
        self.bytes[from..from + wire.len()].copy_from_slice(&wire);
        let scenario = Scenario {
            config,
            regions: self.regions,
            image: Image { base: self.base, bytes: self.bytes },
            doorbells: vec![at],
            bad: Vec::new(),
            timing,
            host_busy: 0.0,
            seed,
        };
        (scenario, self.descriptors)
    }
}

/// Strides of one side, innermost last, in units; `reach` limits how far they go.
fn strides(rng: &mut Xoshiro256PlusPlus, counts: [u32; 3], step: i64, whole: bool) -> [i64; 3] {
    let dense = [i64::from(counts[1]) * i64::from(counts[2]) * step, i64::from(counts[2]) * step, step];
    let pad = if whole { 2 } else { 1 };
    let mut s = match rng.random_range(0..6) {
        0 | 1 => dense,
        2 => {
            let row = dense[1] + pad * rng.random_range(0..20);
            [row * i64::from(counts[1]) + pad * rng.random_range(0..20), row, step]
        }
        3 => [dense[2], dense[0], dense[1]],
        4 => [pad * rng.random_range(0..150), pad * rng.random_range(0..150), step],
        _ => {
            let inner = step + rng.random_range(0..9);
            let row = inner * i64::from(counts[2]) + pad * rng.random_range(0..9);
            [row * i64::from(counts[1]), row, inner]
        }
    };
    for stride in &mut s {
        match rng.random_range(0..12) {
            0 => *stride = -*stride,
            1 => *stride = 0,
            _ => {}
        }
    }
    s
}

/// A list of `n` indices below `bound`; with `clamp`, some beyond.
pub fn list(rng: &mut Xoshiro256PlusPlus, n: u32, bound: u32, wide: bool, clamp: bool) -> Vec<i64> {
    let style = rng.random_range(0..3);
    (0..n)
        .map(|i| {
            if clamp && rng.random_bool(0.2) {
                return if wide && rng.random() {
                    -1 - rng.random_range(0..5)
                } else {
                    i64::from(bound) + rng.random_range(0..5)
                };
            }
            match style {
                0 => i64::from(i % bound),
                _ => rng.random_range(0..i64::from(bound)),
            }
        })
        .collect()
}

/// A legal job of a given element size, small enough for the arenas.
pub fn random_piece(rng: &mut Xoshiro256PlusPlus, element: Element) -> Piece {
    loop {
        let piece = draw(rng, element);
        let [s, d] = [0, 1].map(|side| extent(&piece.descriptors, side));
        if (s.1 - s.0) + (d.1 - d.0) < (ARENA - 4 * CANARY) as i64 {
            return piece;
        }
    }
}

fn draw(rng: &mut Xoshiro256PlusPlus, element: Element) -> Piece {
    let int4 = element == Element::Int4;
    let transpose = !int4 && rng.random_bool(0.3);
    let mut counts: [u32; 3] = if transpose {
        [rng.random_range(1..3), rng.random_range(1..80), rng.random_range(1..80)]
    } else {
        match rng.random_range(0..5) {
            0 => [1, 1, rng.random_range(1..9000)],
            1 => [1, rng.random_range(1..30), rng.random_range(1..200)],
            2 => [rng.random_range(1..6), rng.random_range(1..12), rng.random_range(1..40)],
            3 => [rng.random_range(1..40), rng.random_range(1..30), rng.random_range(1..4)],
            _ => [rng.random_range(1..4), rng.random_range(1..4), rng.random_range(1..4)],
        }
    };
    if int4 {
        counts[2] = 2 * counts[2].div_ceil(2);
    }
    if rng.random_bool(0.03) {
        counts[rng.random_range(0..3)] = 0;
    }
    let step = element.step();
    let mut d = Descriptor {
        element,
        remap: if transpose { Remap::Transpose } else { Remap::Direct },
        counts,
        wide_index: rng.random(),
        clamp: rng.random_bool(0.3),
        ..Descriptor::default()
    };
    d.source.strides = strides(rng, counts, step, false);
    d.destination.strides = strides(rng, counts, step, int4);
    if int4 {
        d.destination.strides[2] = 1;
        d.destination.strides[0] &= !1;
        d.destination.strides[1] &= !1;
    }
    if rng.random_bool(0.25) {
        let lo = counts.map(|c| rng.random_range(0..=c / 2));
        let hi: Vec<u32> = (0..3).map(|k| rng.random_range(lo[k]..=counts[k])).collect();
        d.window = Some(Window { lo, hi: [hi[0], hi[1], hi[2]], fill: rng.random() });
        if rng.random_bool(0.5) {
            d.window = Some(Window { lo: [0, lo[1], lo[2]], hi: counts, fill: rng.random() });
        }
    }
    let mut lists = [Vec::new(), Vec::new()];
    for side in 0..2 {
        let dimension: u8 = rng.random_range(0..3);
        let n = counts[usize::from(dimension)];
        let allowed = !(int4 && side == 1 && dimension == 2) && n <= dma::INDEX_ENTRIES && n > 0;
        if !allowed || rng.random_bool(0.7) {
            continue;
        }
        let bound = rng.random_range(1..=n.min(100) + 3);
        lists[side] = list(rng, n, bound, d.wide_index, d.clamp);
        let index = Some(IndexList { region: 2 + side as u8, offset: 0, dimension, bound });
        if side == 0 {
            d.source.index = index;
        } else {
            d.destination.index = index;
        }
    }
    Piece { descriptors: vec![d], lists }
}

/// A behaviour of the memory: (latency class, back-pressure).
pub fn timing(rng: &mut Xoshiro256PlusPlus, latency: &str, pressure: bool) -> Timing {
    let latency = match latency {
        "one" => (1, 1),
        "ten" => (10, 10),
        "hundred" => (100, 100),
        _ => (1, rng.random_range(20..200)),
    };
    let (busy, gap) = if pressure { (rng.random_range(0.05..0.7), rng.random_range(0.05..0.5)) } else { (0.0, 0.0) };
    Timing { latency, busy, gap, sample_early: rng.random() }
}

/// The sizes of an engine.
pub fn config(rng: &mut Xoshiro256PlusPlus) -> Config {
    let in_flight = |rng: &mut Xoshiro256PlusPlus| *[1, 2, 4, 16, 64, 128].get(rng.random_range(0..6)).unwrap_or(&128);
    Config {
        bus_bytes: *[8, 16, 32, 64, 64].get(rng.random_range(0..5)).unwrap_or(&64),
        reads_in_flight: in_flight(rng),
        writes_in_flight: in_flight(rng),
        ..Config::default()
    }
}
