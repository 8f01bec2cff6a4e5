//! Malformed descriptors: each is refused by the name and value of its field, nothing is written, the next job runs.

use super::bench::{self, Scenario};
use super::judge::{done, hold, refused};
use super::random::{copy, plain};
use super::reference;
use crate::verify::Case;
use dma::{Config, Descriptor, Element, Field, IndexList, Outcome, Refusal, Region, Remap, WIRE_BYTES, Window};
use rand::{Rng, RngExt};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A way to spoil a descriptor, the field to blame and its value.
type Spoil = (&'static str, fn(&mut Descriptor), Field, u64);

fn list(d: &mut Descriptor, side: usize) -> &mut IndexList {
    let list = if side == 0 { &mut d.source.index } else { &mut d.destination.index };
    list.get_or_insert(IndexList { region: 0, offset: 0x1000, dimension: 1, bound: 4 })
}

const SPOILS: [Spoil; 27] = [
    ("transposed nibbles", |d| (d.element, d.remap) = (Element::Int4, Remap::Transpose), Field::REMAP, 1),
    ("source region closed", |d| d.source.region = 9, Field::region(0), 9),
    ("source region unknown", |d| d.source.region = 77, Field::region(0), 77),
    ("destination read-only", |d| d.destination.region = 1, Field::region(1), 1),
    ("list region closed", |d| list(d, 0).region = 5, Field::index_region(0), 5),
    ("destination list region closed", |d| list(d, 1).region = 6, Field::index_region(1), 6),
    ("list past its region", |d| list(d, 0).offset = 0xffff, Field::index_offset(0), 0xffff),
    ("list far past its region", |d| list(d, 1).offset = u64::MAX, Field::index_offset(1), u64::MAX),
    ("no index is in range", |d| list(d, 0).bound = 0, Field::index_bound(0), 0),
    ("no destination index is in range", |d| list(d, 1).bound = 0, Field::index_bound(1), 0),
    (
        "list too long",
        |d| {
            d.counts[1] = 4097;
            list(d, 0);
        },
        Field::count(1),
        4097,
    ),
    ("source below its region", |d| d.source.offset = -1, Field::offset(0), u64::MAX),
    ("source past its region", |d| d.source.offset = 0xffff, Field::offset(0), 0x1_000e),
    ("source stride leads below", |d| d.source.strides[1] = -0x4001, Field::offset(0), 0x3000u64.wrapping_sub(0x4001)),
    ("destination past its region", |d| d.destination.offset = 0xfffd, Field::offset(1), 0x1_000c),
    ("bound leads past the region", |d| list(d, 0).bound = 0x1_0000, Field::offset(0), 0x3000 + 0xffff * 8 + 7),
    ("offset too wide", |d| d.source.offset = 1 << 50, Field::offset(0), 1 << 50),
    ("stride too wide", |d| d.destination.strides[0] = -(1 << 49), Field::stride(1, 0), (-(1i64 << 49)) as u64),
    ("too many elements", |d| d.counts = [1 << 20, 1 << 20, 1 << 20], Field::count(0), 1 << 20),
    (
        "more than the job limit",
        |d| {
            d.counts[0] = 1 << 13;
            d.source.strides = [0, 0, 1];
            d.destination.strides = [0, 0, 1];
        },
        Field::count(0),
        1 << 13,
    ),
    (
        "window past the count",
        |d| d.window = Some(Window { hi: [1, 3, 8], ..Window::default() }),
        Field::window_hi(1),
        3,
    ),
    (
        "window inside out",
        |d| d.window = Some(Window { lo: [0, 0, 5], hi: [1, 2, 4], fill: 0 }),
        Field::window_lo(2),
        5,
    ),
    ("nibbles: odd offset", |d| (d.element, d.destination.offset) = (Element::Int4, 0x5001), Field::offset(1), 0x5001),
    (
        "nibbles: odd stride",
        |d| {
            d.element = Element::Int4;
            d.destination.strides[1] = 9;
        },
        Field::stride(1, 1),
        9,
    ),
    (
        "nibbles: not contiguous",
        |d| {
            d.element = Element::Int4;
            d.destination.strides[2] = 2;
        },
        Field::stride(1, 2),
        2,
    ),
    (
        "nibbles: odd count",
        |d| {
            d.element = Element::Int4;
            d.counts[2] = 7;
        },
        Field::count(2),
        7,
    ),
    (
        "nibbles: scattered",
        |d| {
            d.element = Element::Int4;
            list(d, 1).dimension = 2;
            list(d, 1).bound = 1;
        },
        Field::index_dimension(1),
        2,
    ),
];

/// Faults of the wire bytes themselves: byte, value, field, value reported.
const WIRE: [(&str, usize, u8); 9] = [
    ("version", 0, 2),
    ("element", 1, 3),
    ("remap", 2, 2),
    ("flags", 3, 0x40 | 0x23),
    ("source list dimension", 8, 3),
    ("destination list dimension", 9, 200),
    ("reserved 10", 10, 1),
    ("reserved 44", 44, 0x80),
    ("reserved 191", 191, 1),
];

const LINKS: [(&str, u64); 3] =
    [("link misaligned", 0x1020), ("link closed", 0x100_0000), ("link wraps", u64::MAX - 63)];

/// Directed cases.
pub const CASES: usize = SPOILS.len() + WIRE.len() + LINKS.len() + 2;

/// One malformed descriptor between two good ones.
pub fn refusals(case: &mut Case<'_>) -> anyhow::Result<()> {
    let mut bad = copy(2, 0x3000, 0x5000, 8);
    bad.counts = [1, 2, 8];
    (bad.source.strides, bad.destination.strides) = ([0, 8, 1], [0, 8, 1]);
    let (before, after) = (copy(1, 0x4000, 0x6000, 100), copy(3, 0x4100, 0x7000, 200));
    let jobs = |bad| [before, bad, after];
    let spoiled = case.index < SPOILS.len();
    let mut completions = vec![done(1), refused(2, Refusal::default()), done(3)];
    let mut s;
    if spoiled {
        let (name, spoil, field, value) = SPOILS[case.index];
        case.label(name);
        spoil(&mut bad);
        s = plain(case, &jobs(bad));
        completions[1] = refused(2, Refusal { field, value });
        case.cover("refused", &[("field", field.name())]);
    } else if let Some(&(name, byte, value)) = WIRE.get(case.index - SPOILS.len()) {
        case.label(name);
        list(&mut bad, 0).bound = 2;
        list(&mut bad, 1).bound = 2;
        s = plain(case, &jobs(bad));
        s.image.bytes[WIRE_BYTES + byte] = value;
        let field = Field(byte as u8);
        completions[1] = refused(2, Refusal { field, value: value.into() });
        case.cover("refused", &[("field", field.name())]);
        if field == Field::VERSION {
            completions.pop(); // its link cannot be trusted
        }
    } else if let Some(&(name, link)) = LINKS.get(case.index - SPOILS.len() - WIRE.len()) {
        case.label(name);
        s = plain(case, &jobs(bad));
        let at = WIRE_BYTES + usize::from(Field::LINK.0);
        s.image.bytes[at..at + 8].copy_from_slice(&link.to_le_bytes());
        completions[1] = refused(2, Refusal { field: Field::LINK, value: link });
        completions.pop();
        case.cover("refused", &[("field", Field::LINK.name())]);
    } else if case.index == CASES - 2 {
        case.label("chain without end");
        s = plain(case, &jobs(copy(2, 0, 0, 0)));
        let at = 2 * WIRE_BYTES;
        let around = Descriptor { link: Some(s.image.base + 2 * WIRE_BYTES as u64), ..copy(3, 0, 0, 0) };
        s.image.bytes[at..at + WIRE_BYTES].copy_from_slice(&around.encode());
        s.config.chain_limit = 7;
        completions = vec![done(1), done(2), done(3), done(3), done(3), done(3)];
        completions.push(refused(3, Refusal { field: Field::LINK, value: around.link.unwrap_or(0) }));
    } else {
        case.label("doorbell outside");
        s = plain(case, &jobs(copy(2, 0, 0, 0)));
        let base = s.image.base;
        s.doorbells = vec![0x40, base];
        completions = vec![refused(0, Refusal { field: Field::LINK, value: 0x40 }), done(1), done(2), done(3)];
    }
    s.regions.push(Region::read_only(s.image.base, 1 << 16));
    s.config.job_bytes = 100_000;
    let mut image = s.image.clone();
    for job in [before, after] {
        if completions.contains(&done(job.tag)) && job.counts != [0; 3] && completions.len() != 7 || job.tag == 1 {
            reference::apply(&mut image, &job, &s.regions)?;
        }
    }
    hold(case, &s, &image.bytes, &completions)?;
    Ok(())
}

/// Random wire bytes, most of them almost right: what the engine must never do, whatever they say.
pub fn wire(rng: &mut Xoshiro256PlusPlus) -> [u8; WIRE_BYTES] {
    if rng.random_bool(0.1) {
        let mut wire = [0; WIRE_BYTES];
        rng.fill_bytes(&mut wire);
        return wire;
    }
    let edge = |rng: &mut Xoshiro256PlusPlus| -> i64 {
        match rng.random_range(0..8) {
            0 => 0,
            1 => -rng.random_range(0..70i64),
            2 => rng.random_range(0..4096),
            3 => rng.random::<i64>() >> rng.random_range(0..64),
            4 => (1 << rng.random_range(0..63)) - rng.random_range(0..2),
            _ => rng.random_range(0..70),
        }
    };
    let count =
        |rng: &mut Xoshiro256PlusPlus| if rng.random_bool(0.1) { edge(rng) as u32 } else { rng.random_range(0..20) };
    let region =
        |rng: &mut Xoshiro256PlusPlus| if rng.random_bool(0.05) { rng.random() } else { rng.random_range(0..3) };
    let mut d = Descriptor {
        element: Element::ALL[rng.random_range(0..5)],
        remap: if rng.random_bool(0.3) { Remap::Transpose } else { Remap::Direct },
        counts: [count(rng), count(rng), count(rng)],
        wide_index: rng.random(),
        clamp: rng.random_bool(0.7),
        tag: rng.random(),
        link: rng
            .random_bool(0.3)
            .then(|| if rng.random_bool(0.8) { 64 * rng.random_range(0..64) } else { rng.random() }),
        ..Descriptor::default()
    };
    let step = d.element.step();
    for (regions, side) in [(0..3, &mut d.source), (2..3, &mut d.destination)] {
        side.region = if rng.random_bool(0.1) { region(rng) } else { rng.random_range(regions) };
        side.offset = if rng.random_bool(0.9) { rng.random_range(500..3000) } else { edge(rng) };
        let near =
            |rng: &mut Xoshiro256PlusPlus| if rng.random_bool(0.85) { rng.random_range(-20..70) } else { edge(rng) };
        side.strides = [near(rng), near(rng), if rng.random() { step } else { near(rng) }];
        if rng.random_bool(0.25) {
            let offset = rng.random_range(0..3000);
            let dimension = rng.random_range(0..3);
            let bound = if rng.random_bool(0.9) { rng.random_range(0..30) } else { rng.random() };
            side.index = Some(IndexList { region: region(rng), offset, dimension, bound });
        }
    }
    if rng.random_bool(0.2) {
        let lo: [u32; 3] = [rng.random_range(0..3), rng.random_range(0..3), rng.random_range(0..3)];
        let hi = d.counts.map(|c| if rng.random_bool(0.9) { c } else { c.wrapping_add(1) });
        d.window = Some(Window { lo, hi, fill: rng.random() });
    }
    let mut wire = d.encode();
    if rng.random_bool(0.1) {
        let i = rng.random_range(0..WIRE_BYTES);
        wire[i] ^= 1 << rng.random_range(0..8);
    }
    wire
}

/// A small memory whose first bytes are hostile descriptors; region 2 may be written, 0 and 1 only read.
pub fn hostile_scenario(rng: &mut Xoshiro256PlusPlus, wires: &[[u8; WIRE_BYTES]]) -> Scenario {
    let mut bytes = vec![0; 3 * 4096];
    rng.fill_bytes(&mut bytes);
    for (i, wire) in wires.iter().enumerate() {
        bytes[i * WIRE_BYTES..(i + 1) * WIRE_BYTES].copy_from_slice(wire);
    }
    Scenario {
        config: Config { job_bytes: 8192, chain_limit: 4, ..Config::default() },
        regions: vec![Region::read_only(0, 4096), Region::read_only(4096, 4096), Region::read_write(8192 + 80, 3900)],
        image: reference::Image { base: 0, bytes },
        doorbells: vec![0],
        bad: Vec::new(),
        timing: super::memory::Timing::fixed(2),
        host_busy: 0.0,
        seed: 1,
    }
}

/// What must hold of a hostile chain by the transaction engine; the words say what did not.
///
/// # Errors
/// If the configuration cannot be built.
pub fn survives(s: &Scenario) -> anyhow::Result<Result<Vec<dma::Completion>, String>> {
    let (bytes, report) = bench::predict(s)?;
    let open = s.regions[2].base as usize..s.regions[2].limit as usize;
    let outside = (0..bytes.len()).find(|i| !open.contains(i) && bytes[*i] != s.image.bytes[*i]);
    if let Some(at) = outside {
        return Ok(Err(format!("byte {at:#x} outside every writable region was written")));
    }
    let outcomes: Vec<_> = report.completions.iter().map(|c| c.1).collect();
    if outcomes.is_empty() || outcomes.len() > s.config.chain_limit as usize {
        return Ok(Err(format!("{} completions", outcomes.len())));
    }
    let wrote = outcomes.iter().any(|c| !matches!(c.outcome, Outcome::Refused | Outcome::BadIndex));
    if !wrote && bytes != s.image.bytes {
        return Ok(Err("a refused job wrote".into()));
    }
    Ok(Ok(outcomes))
}

/// Hostile descriptors, on both engines.
pub fn hostile(case: &mut Case<'_>) -> anyhow::Result<()> {
    let count = 20;
    case.stands_for(count);
    for _ in 0..count {
        let wires = [wire(&mut case.rng), wire(&mut case.rng)];
        let s = hostile_scenario(&mut case.rng, &wires);
        match survives(&s)? {
            Err(why) => case.differed(format_args!("{why}: {wires:?}")),
            Ok(outcomes) => {
                for completion in &outcomes {
                    let class = match completion.outcome {
                        Outcome::Done => "done",
                        Outcome::Refused => "refused",
                        Outcome::BadIndex => "bad index",
                        _ => "bus error",
                    };
                    case.cover("hostile", &[("outcome", class)]);
                }
                let (bytes, _) = bench::predict(&s)?;
                hold(case, &s, &bytes, &outcomes)?;
                // Where every job was done, the plain loops agree.
                let d = Descriptor::decode(&wires[0]);
                if let (Ok(d), [only]) = (d, &outcomes[..])
                    && only.outcome == Outcome::Done
                {
                    let mut image = s.image.clone();
                    reference::apply(&mut image, &d, &s.regions)?;
                    super::judge::same_bytes(case, "hostile job", &s, &image.bytes, &bytes);
                }
            }
        }
    }
    Ok(())
}
