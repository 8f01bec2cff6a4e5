//! Random legal jobs: chains, overlaps, hazards between jobs, edges of the semantics.

use super::bench::{self, Scenario};
use super::judge::{done, hold, judge};
use super::memory::Timing;
use super::reference;
use super::stimulus::{self, Lay, Piece, World, random_piece};
use crate::verify::Case;
use dma::{Completion, Config, Descriptor, Element, Field, Outcome, Region, Remap, WIRE_BYTES};
use rand::{Rng, RngExt};

const ELEMENTS: [&str; 5] = ["int4", "b1", "b2", "b4", "b8"];

fn sign(strides: [i64; 3]) -> &'static str {
    if strides.iter().any(|&s| s < 0) {
        "negative"
    } else if strides.contains(&0) {
        "zero"
    } else {
        "positive"
    }
}

/// Samples what a job is made of.
fn cover(case: &mut Case<'_>, d: &Descriptor) {
    let element = ELEMENTS[Element::ALL.iter().position(|e| *e == d.element).unwrap_or(0)];
    let index = match (d.source.index, d.destination.index) {
        (None, None) => "none",
        (Some(_), None) => "gather",
        (None, Some(_)) => "scatter",
        (Some(_), Some(_)) => "both",
    };
    let remap = if d.remap == Remap::Transpose { "transpose" } else { "direct" };
    let window = if d.window.is_some() { "yes" } else { "no" };
    let empty = if d.counts.contains(&0) { "yes" } else { "no" };
    let classes = [("element", element), ("remap", remap), ("index", index), ("window", window), ("empty", empty)];
    case.cover("job", &classes);
    case.cover("stride", &[("source", sign(d.source.strides)), ("destination", sign(d.destination.strides))]);
    for index in [d.source.index, d.destination.index].into_iter().flatten() {
        let dimension = ["0", "1", "2"][usize::from(index.dimension)];
        let width = if d.wide_index { "32" } else { "16" };
        case.cover(
            "index",
            &[("dimension", dimension), ("width", width), ("clamp", if d.clamp { "yes" } else { "no" })],
        );
    }
}

/// Chains of one to three random jobs, anywhere, some over themselves.
pub fn chains(case: &mut Case<'_>) -> anyhow::Result<()> {
    let mut world = World::new(&mut case.rng);
    for _ in 0..case.rng.random_range(1..4) {
        let element = Element::ALL[case.rng.random_range(0..5)];
        let piece = random_piece(&mut case.rng, element);
        let lay = if case.rng.random_bool(0.3) { Lay::Overlap(case.rng.random_range(-300..300)) } else { Lay::Apart };
        world.add(&mut case.rng, &piece, lay, 1);
    }
    let latency = ["one", "ten", "hundred", "random"][case.rng.random_range(0..4)];
    let pressure = case.rng.random();
    let timing = stimulus::timing(&mut case.rng, latency, pressure);
    let config = stimulus::config(&mut case.rng);
    let seed = case.rng.next_u64();
    let (scenario, jobs) = world.scenario(config, timing, seed);
    for job in &jobs {
        cover(case, job);
    }
    let bus = ["8", "16", "32", "64"][config.bus_bytes.trailing_zeros() as usize - 3];
    let reads =
        ["1", "2", "4", "16", "64", "128"][[1, 2, 4, 16, 64, 128].binary_search(&config.reads_in_flight).unwrap_or(0)];
    case.cover("port", &[("bus", bus), ("reads", reads)]);
    judge(case, &scenario, &jobs)?;
    Ok(())
}

/// The two engines on memories of fixed latency: the same bytes, cycles and traffic (held in [`hold`]).
pub fn engines(case: &mut Case<'_>) -> anyhow::Result<()> {
    let mut world = World::new(&mut case.rng);
    for _ in 0..case.rng.random_range(1..4) {
        let element = Element::ALL[case.rng.random_range(0..5)];
        let piece = random_piece(&mut case.rng, element);
        let lay = if case.rng.random_bool(0.2) { Lay::Overlap(case.rng.random_range(-99..99)) } else { Lay::Apart };
        world.add(&mut case.rng, &piece, lay, 1);
    }
    let timing = Timing::fixed(case.rng.random_range(1..150));
    let config = stimulus::config(&mut case.rng);
    let seed = case.rng.next_u64();
    let (mut scenario, jobs) = world.scenario(config, timing, seed);
    if jobs.len() > 1 && case.rng.random() {
        // The same jobs by a doorbell each instead of links.
        for (i, job) in jobs.iter().enumerate() {
            let at = scenario.doorbells[0] + (i * WIRE_BYTES) as u64;
            let from = (at - scenario.image.base) as usize;
            scenario.image.bytes[from..from + WIRE_BYTES].copy_from_slice(&job.encode());
            if i > 0 {
                scenario.doorbells.push(at);
            }
        }
    }
    judge(case, &scenario, &jobs)?;
    Ok(())
}

/// A scenario of jobs with hand-made descriptors in 64 KiB of memory at 0x1000, descriptors first, one region for all.
pub fn plain(case: &mut Case<'_>, jobs: &[Descriptor]) -> Scenario {
    let mut bytes = vec![0; 1 << 16];
    case.rng.fill_bytes(&mut bytes);
    let base = 0x1000;
    let wire = dma::chain(jobs, base);
    bytes[..wire.len()].copy_from_slice(&wire);
    Scenario {
        config: Config::default(),
        regions: vec![Region::read_write(base, 1 << 16)],
        image: reference::Image { base, bytes },
        doorbells: vec![base],
        bad: Vec::new(),
        timing: Timing::fixed(20),
        host_busy: 0.0,
        seed: case.rng.next_u64(),
    }
}

/// `n` bytes from `from` to `to`.
pub fn copy(tag: u32, from: i64, to: i64, n: u32) -> Descriptor {
    Descriptor {
        counts: [1, 1, n],
        source: dma::Side { offset: from, strides: [0, 0, 1], ..Default::default() },
        destination: dma::Side { offset: to, strides: [0, 0, 1], ..Default::default() },
        tag,
        ..Descriptor::default()
    }
}

/// Names of the directed cases of [`order`].
pub const ORDERS: [&str; 7] =
    ["pipeline", "descriptor", "list", "same place", "zero jobs", "many doorbells", "reversal in place"];

/// What a chain promises: as if the jobs ran one after the other, each completing once, in order.
pub fn order(case: &mut Case<'_>) -> anyhow::Result<()> {
    let n = case.random.map_or(case.index, |_| case.rng.random_range(0..ORDERS.len()));
    case.label(ORDERS[n]);
    case.cover("order", &[("promise", ORDERS[n])]);
    let size = case.rng.random_range(1..6000);
    let mut jobs = match ORDERS[n] {
        // Each job reads what the one before it wrote.
        "pipeline" => (0..5).map(|i| copy(i, 0x2000 * i64::from(i + 1), 0x2000 * i64::from(i + 2), size)).collect(),
        // The first job writes the third one's descriptor.
        "descriptor" => vec![copy(0, 0x8000, 384, 192), copy(1, 0x4000, 0x6000, size), copy(2, 0, 0, 1)],
        // The first job writes the index list of the second.
        "list" => {
            let mut gather = copy(1, 0x6000, 0xa000, 32);
            gather.counts = [1, 64, 32];
            (gather.source.strides, gather.destination.strides) = ([0, 32, 1], [0, 32, 1]);
            gather.source.index = Some(dma::IndexList { region: 0, offset: 0x4000, dimension: 1, bound: 256 });
            vec![copy(0, 0x8000, 0x4000, 128), gather]
        }
        "same place" => (0..6).map(|i| copy(i, 0x2000 + 999 * i64::from(i), 0x9000, size)).collect(),
        "zero jobs" => (0..9).map(|i| copy(i, 0x2000, 0x9000, if i % 2 == 0 { 0 } else { 64 * i })).collect(),
        "many doorbells" => (0..12).map(|i| copy(i, 0x2000 + 64 * i64::from(i), 0x9000, 48 + i)).collect(),
        _ => {
            let mut job = copy(0, 0x4000, 0x4000 + i64::from(size) - 1, size);
            job.destination.strides[2] = -1;
            vec![job]
        }
    };
    let mut s = plain(case, &jobs);
    s.timing = Timing { sample_early: case.rng.random(), ..Timing::fixed(case.rng.random_range(1..120)) };
    let base = s.image.base;
    match ORDERS[n] {
        "descriptor" => {
            // A different third job lies ready where the first one reads.
            let real = copy(77, 0x5000, 0x7000, size);
            s.image.bytes[0x8000..0x8000 + WIRE_BYTES].copy_from_slice(&real.encode());
            jobs[2] = real;
        }
        "list" => {
            for i in 0..64 {
                let index = case.rng.random_range(0..256u16);
                s.image.bytes[0x8000 + 2 * i..0x8002 + 2 * i].copy_from_slice(&index.to_le_bytes());
            }
        }
        "many doorbells" => {
            s.doorbells = (0..jobs.len()).map(|i| base + (i * WIRE_BYTES) as u64).collect();
            for (i, job) in jobs.iter().enumerate() {
                s.image.bytes[i * WIRE_BYTES..(i + 1) * WIRE_BYTES].copy_from_slice(&job.encode());
            }
        }
        _ => {}
    }
    let ran = judge(case, &s, &jobs)?;
    if ORDERS[n] == "same place" {
        // The last in order wins.
        let from = 0x2000 + 999 * 5;
        let want = s.image.bytes[from..from + size as usize].to_vec();
        case.equal_slices("the last job's bytes", &want, &ran.bytes[0x9000..0x9000 + size as usize]);
    }
    Ok(())
}

/// Names of the directed cases of [`indices`].
pub const INDICES: [&str; 6] = ["bad source", "bad destination", "negative", "clamp", "collision", "longest list"];

/// Index lists at their edges.
pub fn indices(case: &mut Case<'_>) -> anyhow::Result<()> {
    let n = case.random.map_or(case.index, |_| case.rng.random_range(0..INDICES.len()));
    case.label(INDICES[n]);
    case.cover("indices", &[("edge", INDICES[n])]);
    let rows = if INDICES[n] == "longest list" { dma::INDEX_ENTRIES } else { case.rng.random_range(2..200) };
    let mut job = copy(5, 0x8000, 0xc000, 4);
    job.counts = [1, rows, 4];
    (job.source.strides, job.destination.strides) = ([0, 4, 1], [0, 4, 1]);
    job.wide_index = INDICES[n] == "negative" || case.rng.random();
    job.clamp = INDICES[n] == "clamp";
    let bound = rows.min(300);
    let list = Some(dma::IndexList { region: 0, offset: 0x1001, dimension: 1, bound });
    let scatter = matches!(INDICES[n], "bad destination" | "collision") || INDICES[n] == "clamp" && case.rng.random();
    if scatter {
        job.destination.index = list;
    } else {
        job.source.index = list;
        job.destination.strides[1] = if rows > 3000 { 1 } else { 4 };
    }
    let after = copy(6, 0x6000, 0x5000, 300);
    let mut s = plain(case, &[job, after]);
    let (width, at) = if job.wide_index { (4, 0x1001) } else { (2, 0x1001) };
    let bad = case.rng.random_range(0..rows);
    let mut put = |i: u32, value: i64| {
        let to = at + i as usize * width;
        s.image.bytes[to..to + width].copy_from_slice(&value.to_le_bytes()[..width]);
    };
    for i in 0..rows {
        let collision = INDICES[n] == "collision";
        put(i, i64::from(if collision { i % 3 } else { case.rng.random_range(0..bound) }));
    }
    let wrong = match INDICES[n] {
        "bad source" | "bad destination" => Some(i64::from(bound)),
        "negative" => Some(-1),
        "clamp" => {
            put(bad, 0xffff);
            None
        }
        _ => None,
    };
    if let Some(value) = wrong {
        put(bad, value);
        case.equal("first bad index", Some((usize::from(scatter), bad, value)), {
            reference::bad_index(&s.image, &job, &s.regions)?
        });
        let mut image = s.image.clone();
        reference::apply(&mut image, &after, &s.regions)?;
        let field = Field::index_bound(usize::from(scatter));
        let refused = Completion {
            tag: 5,
            outcome: Outcome::BadIndex,
            field,
            value: value as u64,
            position: bad,
            ..Completion::default()
        };
        hold(case, &s, &image.bytes, &[refused, done(6)])?;
    } else {
        judge(case, &s, &[job, after])?;
    }
    Ok(())
}

/// A random scenario by both engines, for the property tests: what differs.
///
/// # Errors
/// If a job leaves the memory: a fault of the bench.
pub fn engines_differ(rng: &mut rand_xoshiro::Xoshiro256PlusPlus) -> anyhow::Result<Option<String>> {
    let mut world = World::new(rng);
    let element = Element::ALL[rng.random_range(0..5)];
    let piece: Piece = random_piece(rng, element);
    world.add(rng, &piece, Lay::Apart, 1);
    let timing = Timing::fixed(rng.random_range(1..150));
    let config = stimulus::config(rng);
    let seed = rng.next_u64();
    let (s, _) = world.scenario(config, timing, seed);
    let ran = bench::run(&s)?;
    let (bytes, report) = bench::predict(&s)?;
    Ok((ran.bytes != bytes || ran.completions != report.completions || ran.counters != report.counters).then(|| {
        format!("{:?} on {:?} with {:?}: {ran_c:?}, {report:?}", piece, s.config, s.timing, ran_c = ran.completions)
    }))
}
