//! Useful bytes written / (bus bytes × cycles from the first AR to the last B), jobs of 1 MiB, 64-byte bus, 100 cycles latency.

use super::bench::{self, Scenario};
use super::judge::{done, same_bytes};
use super::memory::Timing;
use super::reference::{self, Image};
use crate::verify::Case;
use dma::{Config, Descriptor, Element, List, Place, Preset, Region, Remap, Side, chain};
use rand::{Rng, RngExt};

/// What is moved: name, lowest efficiency that is demanded of the default engine with aligned rows.
pub(super) const KINDS: [(&str, Option<f64>); 7] = [
    ("copy, rows of 1 KiB", Some(0.95)),
    ("copy, rows of 4 KiB", Some(0.95)),
    ("gather, rows of 256 B", Some(0.90)),
    ("gather, rows of 64 B", Some(0.80)),
    ("transpose, 128 tiles of 64 x 64 x 2 B, one job", Some(0.50)),
    ("transpose, 128 tiles of 64 x 64 x 2 B, 128 jobs", Some(0.50)),
    ("scatter, rows of 64 B", None),
];

/// Reads in flight that are reported.
pub(super) const IN_FLIGHT: [usize; 4] = [4, 16, 64, 128];

/// Kinds × reads in flight × aligned or not.
pub(super) const CASES: usize = KINDS.len() * IN_FLIGHT.len() * 2;

const MIB: i64 = 1 << 20;

/// Jobs of kind `k` from region 0 to region 1, lists in region 2; `skew` bytes off the bus's alignment.
fn jobs(k: usize, skew: i64) -> anyhow::Result<Vec<Descriptor>> {
    let (element, source, destination) = (Element::B1, Place::new(0, skew), Place::new(1, 0));
    let pitch = |row: i64| row + if skew == 0 { 64 } else { 67 };
    let rows = |row: i64| [(MIB / row) as u32, row as u32];
    let list = |row: i64| List { region: 2, offset: 0, bound: (MIB / row) as u32, wide: false, clamp: false };
    let tiles = |n: u32, first: u32| Descriptor {
        element: Element::B2,
        remap: Remap::Transpose,
        counts: [n, 64, 64],
        source: Side { region: 0, offset: skew + i64::from(first) * 8192, strides: [8192, 128, 2], index: None },
        destination: Side { region: 1, offset: i64::from(first) * 8192, strides: [8192, 2, 128], index: None },
        ..Descriptor::default()
    };
    Ok(match k {
        0 | 1 => {
            let row = if k == 0 { 1024 } else { 4096 };
            Preset::Copy2d {
                element,
                shape: rows(row),
                source,
                source_pitch: pitch(row),
                destination,
                destination_pitch: row + 64,
            }
            .descriptors()?
        }
        2 | 3 => {
            let row = if k == 2 { 256 } else { 64 };
            Preset::GatherRows {
                element,
                shape: rows(row),
                source,
                source_pitch: pitch(row),
                destination,
                destination_pitch: row,
                list: list(row),
            }
            .descriptors()?
        }
        4 => vec![tiles(128, 0)],
        5 => (0..128).map(|i| tiles(1, i)).collect(),
        _ => Preset::ScatterRows {
            element,
            shape: rows(64),
            source: Place::new(0, 0),
            source_pitch: 64,
            destination: Place::new(1, skew),
            destination_pitch: pitch(64),
            list: list(64),
        }
        .descriptors()?,
    })
}

/// One figure.
pub(super) fn efficiency(case: &mut Case<'_>) -> anyhow::Result<()> {
    let (name, least) = KINDS[case.index % KINDS.len()];
    let reads_in_flight = IN_FLIGHT[case.index / KINDS.len() % IN_FLIGHT.len()];
    let aligned = case.index / (KINDS.len() * IN_FLIGHT.len()) == 0;
    let jobs = jobs(case.index % KINDS.len(), if aligned { 0 } else { 13 })?;
    let (source, destination, lists) = (1 << 20, 6 << 20, 11 << 20);
    let mut bytes = vec![0; 12 << 20];
    case.rng.fill_bytes(&mut bytes[source..source + (4 << 20)]);
    for entry in bytes[lists..lists + 32_768].chunks_exact_mut(2) {
        let row = (MIB / if name.contains("256") { 256 } else { 64 }) as u16;
        entry.copy_from_slice(&case.rng.random_range(0..row).to_le_bytes());
    }
    let wire = chain(&jobs, 0);
    bytes[..wire.len()].copy_from_slice(&wire);
    let s = Scenario {
        config: Config { reads_in_flight, ..Config::default() },
        regions: vec![
            Region::read_only(source as u64, 4 << 20),
            Region::read_write(destination as u64, 4 << 20),
            Region::read_only(lists as u64, 32_768),
            Region::read_only(0, 32_768),
        ],
        image: Image { base: 0, bytes },
        doorbells: vec![0],
        bad: Vec::new(),
        timing: Timing::fixed(100),
        host_busy: 0.0,
        seed: 0,
    };
    let ran = bench::run(&s)?;
    let (bytes, report) = bench::predict(&s)?;
    case.cycles(ran.cycles);
    case.equal_slices("completion cycle", &ran.completions, &report.completions);
    case.equal("counters", ran.counters, report.counters);
    case.equal_slices("completion", &jobs.iter().map(|d| done(d.tag)).collect::<Vec<_>>(), &ran.outcomes());
    case.equal("violations", Vec::new(), ran.violations.clone());
    same_bytes(case, "memory by transactions", &s, &ran.bytes, &bytes);
    let mut image = s.image.clone();
    for job in &jobs {
        reference::apply(&mut image, job, &s.regions)?;
    }
    same_bytes(case, "memory", &s, &image.bytes, &ran.bytes);
    let percent = 100.0 * ran.counters.traffic.efficiency(64);
    let rows = if aligned { "aligned" } else { "misaligned" };
    case.label(format!("{name}, {rows}, {reads_in_flight} reads in flight"));
    case.measure("efficiency_percent", percent);
    case.equal("bytes", MIB as u64, ran.counters.traffic.useful_bytes);
    if let Some(least) = least.filter(|_| reads_in_flight == 128 && aligned) {
        case.check(percent >= 100.0 * least, format_args!("{percent:.1} % is below {:.0} %", 100.0 * least));
    }
    Ok(())
}
