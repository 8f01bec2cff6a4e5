//! Random jobs on both engines: they agree in bytes, completions, cycles and counters, and with a walk element by element.

mod common;

use common::{READ_ONLY, SIZE, Scenario};
use dma::{Config, Descriptor, Element, IndexList, Outcome, Remap, Side, Window, chain};
use proptest::prelude::*;

/// Where index lists and descriptors lie, in region 0.
const LISTS: u64 = 0x6000;
const CHAIN: u64 = 0x7000;

fn nibble(bytes: &[u8], at: i64) -> u8 {
    bytes[at as usize / 2] >> (4 * (at % 2)) & 15
}

/// Moves element by element, in the order of the loops; destinations do not lie twice.
fn walk(memory: &mut [u8], d: &Descriptor) {
    let before = memory.to_vec();
    let unit = i64::from(d.element.unit());
    let base = |region: u8| if region == 0 { 0 } else { READ_ONLY };
    let place = |side: &Side, c: [u32; 3]| {
        let along = |dim: usize| match side.index {
            Some(list) if usize::from(list.dimension) == dim => {
                let width = if d.wide_index { 4 } else { 2 };
                let at = (base(list.region) + list.offset + u64::from(c[dim]) * width) as usize;
                let entry = before[at..at + width as usize].iter().rev().fold(0i64, |v, b| v << 8 | i64::from(*b));
                let entry = if d.wide_index { i64::from(entry as i32) } else { entry };
                if d.clamp { entry.clamp(0, i64::from(list.bound) - 1) } else { entry }
            }
            _ => i64::from(c[dim]),
        };
        2 * base(side.region) as i64
            + unit * (side.offset + (0..3).map(|dim| along(dim) * side.strides[dim]).sum::<i64>())
    };
    for i in 0..d.counts[0] {
        for j in 0..d.counts[1] {
            for k in 0..d.counts[2] {
                let c = [i, j, k];
                let inside = d.window.is_none_or(|w| (0..3).all(|dim| (w.lo[dim]..w.hi[dim]).contains(&c[dim])));
                let (from, to) = (place(&d.source, c), place(&d.destination, c));
                for n in 0..i64::from(d.element.nibbles()) {
                    let fill = d.window.map_or(0, |w| (w.fill >> (4 * n) & 15) as u8);
                    let value = if inside { nibble(&before, from + n) } else { fill };
                    let (byte, shift) = ((to + n) as usize / 2, 4 * ((to + n) % 2));
                    memory[byte] = memory[byte] & !(15 << shift) | value << shift;
                }
            }
        }
    }
}

/// Which side goes through a list.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Listed {
    No,
    Source,
    Destination,
}

prop_compose! {
    /// A job that stays in its regions; entries of its list come with it.
    fn job()(
        element in prop::sample::select(Element::ALL.to_vec()),
        transpose in any::<bool>(),
        counts in [1u32..5, 1u32..12, 0u32..320],
        (from, to) in (0i64..64, 0i64..64),
        (gap, spread) in (0i64..3, 1i64..3),
        window in prop::option::of((prop::array::uniform3((0.0f64..0.5, 0.5f64..1.0)), any::<u64>())),
        listed in prop::sample::select(vec![Listed::No, Listed::Source, Listed::Destination]),
        (dimension, wide_index, clamp) in (0u8..2, any::<bool>(), any::<bool>()),
        shuffle in any::<u64>(),
    ) -> (Descriptor, Vec<u8>) {
        // Rows of at most 320 bytes, and whole bytes, so that INT4 rows end on a byte.
        let columns = 1 + counts[2] % (320 / element.step() as u32);
        let counts = [counts[0], counts[1], if element == Element::Int4 { columns.next_multiple_of(2) } else { columns }];
        // Nibbles are not transposed.
        let transpose = transpose && element != Element::Int4;
        let step = element.step();
        let align = if element == Element::Int4 { 2 } else { 1 };
        let [_, rows, columns] = counts.map(i64::from);
        let row = (columns + gap * align) * step;
        let source = [rows * row, row, step];
        let destination = match transpose {
            // (j, k) lands at (k, j).
            true => {
                let row = (rows + gap) * step;
                [columns * row, step, row]
            }
            false => [spread * rows * row, spread * row, step],
        };
        let mut d = Descriptor {
            element,
            remap: if transpose { Remap::Transpose } else { Remap::Direct },
            counts,
            source: Side { region: 0, offset: from * align, strides: source, index: None },
            destination: Side { region: 1, offset: to * align, strides: destination, index: None },
            window: window.map(|(edges, fill)| Window {
                lo: std::array::from_fn(|i| (f64::from(counts[i]) * edges[i].0) as u32),
                hi: std::array::from_fn(|i| (f64::from(counts[i]) * edges[i].1) as u32),
                fill,
            }),
            wide_index,
            clamp: clamp && listed == Listed::Source,
            ..Descriptor::default()
        };
        let bound = counts[usize::from(dimension)];
        let list = Some(IndexList { region: 0, offset: LISTS, dimension, bound });
        // A permutation, so that nothing lands twice; a clamped list leaves the bound.
        let odd = i64::from(bound);
        let entries = (0..odd).map(|i| {
            let entry = (i + shuffle as i64 % odd + odd) % odd;
            if d.clamp && i % 3 == 1 { if wide_index && i % 2 == 1 { -1 - entry } else { 40_000 + entry } } else { entry }
        });
        let bytes = entries.flat_map(|e| e.to_le_bytes()[..if wide_index { 4 } else { 2 }].to_vec()).collect();
        match listed {
            Listed::No => {}
            Listed::Source => d.source.index = list,
            Listed::Destination => d.destination.index = list,
        }
        (d, bytes)
    }
}

fn scenario(jobs: &[Descriptor], lists: &[u8], config: Config, latency: u64) -> Scenario {
    let mut memory: Vec<u8> = (0..SIZE as u32).map(|i| (i.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
    memory[LISTS as usize..][..lists.len()].copy_from_slice(lists);
    let chain = chain(jobs, CHAIN);
    memory[CHAIN as usize..][..chain.len()].copy_from_slice(&chain);
    Scenario { config, latency, memory, doorbells: vec![CHAIN] }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn engines_and_walk_agree(
        (d, list) in job(),
        bus in prop::sample::select(vec![8u32, 16, 32, 64]),
        in_flight in prop::sample::select(vec![1usize, 2, 8]),
        latency in prop::sample::select(vec![1u64, 3, 40]),
    ) {
        let config = Config { bus_bytes: bus, reads_in_flight: in_flight, writes_in_flight: in_flight, ..Config::default() };
        let scenario = scenario(&[d], &list, config, latency);
        let ran = scenario.run();
        let outcomes: Vec<_> = ran.completions.iter().map(|c| c.1.outcome).collect();
        prop_assert_eq!(outcomes, [Outcome::Done], "{:?}", ran.completions[0].1.result());
        let mut want = scenario.memory.clone();
        walk(&mut want, &d);
        let differs = want.iter().zip(&ran.memory.0).position(|(a, b)| a != b);
        prop_assert_eq!(differs, None, "{:?}", d);
    }
}

fn linear(element: Element, count: u32, source: (u8, i64), destination: (u8, i64)) -> Descriptor {
    let side = |(region, offset)| Side { region, offset, strides: [0, 0, element.step()], index: None };
    let (source, destination) = (side(source), side(destination));
    Descriptor { element, counts: [1, 1, count], source, destination, ..Descriptor::default() }
}

#[test]
fn jobs_of_a_chain_see_what_those_before_them_wrote() {
    // A copy; its transposition; a gather of rows by a list that a job before wrote; a copy onto itself, one row further.
    let rows = |source, destination| Descriptor {
        counts: [1, 12, 10],
        source: Side { region: 1, offset: source, strides: [0, 20, 2], index: None },
        destination: Side { region: 1, offset: destination, strides: [0, 20, 2], index: None },
        element: Element::B2,
        ..Descriptor::default()
    };
    let mut turn = rows(64, 1024);
    (turn.remap, turn.destination.strides) = (Remap::Transpose, [0, 2, 24]);
    let mut gather = rows(1024, 2048);
    gather.source.index = Some(IndexList { region: 1, offset: 4096, dimension: 1, bound: 12 });
    let jobs = [
        linear(Element::B2, 120, (0, 1), (1, 64)),
        turn,
        linear(Element::B2, 12, (0, LISTS as i64), (1, 4096)),
        gather,
        rows(2048, 2048 + 20),
        Descriptor { counts: [3, 0, 7], tag: 9, ..rows(0, 0) },
        linear(Element::B1, 5000, (0, 3), (1, 8001)),
    ];
    let list: Vec<u8> = (0..12u16).flat_map(|i| (5 * i % 12).to_le_bytes()).collect();
    let mut scenario = scenario(&jobs, &list, Config { bus_bytes: 16, ..Config::default() }, 20);
    scenario.doorbells = vec![CHAIN; 3];
    let ran = scenario.run();
    assert_eq!(ran.completions.len(), 3 * jobs.len());
    assert!(ran.completions.iter().all(|c| c.1.outcome == Outcome::Done));
    assert_eq!(ran.completions[5].1.tag, 9);
    let mut want = scenario.memory.clone();
    for job in jobs.iter().cycle().take(3 * jobs.len()) {
        // The copy onto itself reads each element before it is written over.
        walk(&mut want, job);
    }
    assert!(want == ran.memory.0);

    let traffic = ran.counters.traffic;
    let bytes = 3 * (240 + 240 + 24 + 240 + 240 + 5000);
    assert_eq!(traffic.useful_bytes, bytes);
    assert_eq!(traffic.efficiency(16), bytes as f64 / (16 * traffic.cycles) as f64);
    assert_eq!(traffic.bus_bytes(16), 16 * (traffic.read_beats + traffic.write_beats));
}

#[test]
fn what_goes_wrong_is_named_and_the_chain_goes_on() {
    let mut listed = linear(Element::B4, 4, (0, 0), (1, 256));
    listed.source.index = Some(IndexList { region: 0, offset: LISTS, dimension: 2, bound: 7 });
    let end = (SIZE as u64 - READ_ONLY) as i64;
    let good = linear(Element::B1, 8, (0, 0), (1, 0));
    let jobs = [
        good,
        linear(Element::B1, 8, (0, 0), (0, 64)),
        listed,
        linear(Element::B1, 600, (0, 0), (1, end - 300)),
        linear(Element::B1, 600, (1, end - 300), (1, 0)),
        good,
    ];
    let list: Vec<u8> = [1u16, 6, 7, 2].iter().flat_map(|i| i.to_le_bytes()).collect();
    let mut scenario = scenario(&jobs, &list, Config { bus_bytes: 8, ..Config::default() }, 5);
    scenario.doorbells = vec![CHAIN, 8 * SIZE as u64, CHAIN + 32];
    let ran = scenario.run();
    let told: Vec<String> =
        ran.completions.iter().map(|c| c.1.result().map_or_else(|e| e.to_string(), |()| "done".into())).collect();
    let expected = [
        "done",
        "destination.region = 0x0 is refused: nothing was moved; correct the field, or the region that it points into",
        "source.index.bound: entry 2 is 7, out of range: nothing was written; correct the list, or set clamp",
        "a write to the destination at 0x10000 failed with DecodeError; what follows it in the job was not written",
        "a read of the source at 0x10000 failed with DecodeError; what follows it in the job was not written",
        "done",
        "link = 0x80000 is refused: nothing was moved; correct the field, or the region that it points into",
        "link = 0x7020 is refused: nothing was moved; correct the field, or the region that it points into",
    ];
    assert_eq!(told, expected);
}
