//! Every preset with every element size, aligned and not, slow and fast memories, with and without back-pressure.

use super::judge::judge;
use super::reference::Image;
use super::second;
use super::stimulus::{self, Lay, Piece, World};
use crate::verify::Case;
use dma::{Element, Kernel, Layout, List, Place, Preset};
use rand::{Rng, RngExt};
use rand_xoshiro::Xoshiro256PlusPlus;

const NAMES: [&str; 13] = [
    "copy2d",
    "copy3d",
    "gather_rows",
    "gather_planes",
    "scatter_rows",
    "scatter_planes",
    "permute",
    "im2col",
    "interleave",
    "deinterleave",
    "broadcast",
    "fill",
    "kv_pages",
];
const LATENCIES: [&str; 4] = ["one", "ten", "hundred", "random"];
const ELEMENTS: [&str; 5] = ["int4", "b1", "b2", "b4", "b8"];

/// Directed cases: preset × element × alignment × back-pressure.
pub(super) const CASES: usize = NAMES.len() * ELEMENTS.len() * 2 * 2;

/// A preset of the given name, its lists, and its shape in words.
fn draw(rng: &mut Xoshiro256PlusPlus, name: &str, element: Element) -> (Preset, [Vec<i64>; 2]) {
    let int4 = element == Element::Int4;
    let even = |n: u32| if int4 { 2 * n.div_ceil(2) } else { n };
    let step = element.step();
    let rows = rng.random_range(1..24);
    let size = u32::from(element.code().max(1));
    let columns = even(rng.random_range(1..160 / size));
    let planes = rng.random_range(1..4);
    let (source, destination) = (Place::new(0, 0), Place::new(1, 0));
    let mut pitch = |n: u32| i64::from(n) * step + 2 * rng.random_range(0..12);
    let (source_pitch, destination_pitch) = (pitch(columns), pitch(columns));
    let plane = |row: i64, more: i64| row * i64::from(rows) + 2 * more;
    let source_pitches = [plane(source_pitch, 3), source_pitch];
    let destination_pitches = [plane(destination_pitch, 5), destination_pitch];
    let wide: bool = rng.random();
    let entries = if name.ends_with("rows") { rows } else { planes };
    let bound = entries + rng.random_range(0..4);
    let mut values: Vec<i64> = (0..entries).map(|_| rng.random_range(0..i64::from(bound))).collect();
    let list = List { region: 2, offset: 0, bound, wide, clamp: false };
    let scatter = List { region: 3, ..list };
    let shape = [planes, rows, columns];
    let preset = match name {
        "copy2d" => {
            Preset::Copy2d { element, shape: [rows, columns], source, source_pitch, destination, destination_pitch }
        }
        "copy3d" => Preset::Copy3d { element, shape, source, source_pitches, destination, destination_pitches },
        "gather_rows" => Preset::GatherRows {
            element,
            shape: [rows, columns],
            source,
            source_pitch,
            destination,
            destination_pitch,
            list,
        },
        "gather_planes" => {
            Preset::GatherPlanes { element, shape, source, source_pitches, destination, destination_pitches, list }
        }
        "scatter_rows" => Preset::ScatterRows {
            element,
            shape: [rows, columns],
            source,
            source_pitch,
            destination,
            destination_pitch,
            list: scatter,
        },
        "scatter_planes" => Preset::ScatterPlanes {
            element,
            shape,
            source,
            source_pitches,
            destination,
            destination_pitches,
            list: scatter,
        },
        "permute" => {
            let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
            // INT4 reaches memory in whole bytes: the inner dimension stays.
            let order = if int4 { orders[2 * rng.random_range(0..2)] } else { orders[rng.random_range(0..6)] };
            Preset::Permute { element, shape, order, source, destination }
        }
        "im2col" => {
            let mut pair = |n: u32| [rng.random_range(1..=n), rng.random_range(1..=n)];
            let kernel = Kernel { size: pair(3), stride: pair(2), padding: pair(2), dilation: pair(2) };
            let layout = if int4 || rng.random() { Layout::Nhwc } else { Layout::Nchw };
            let shape = [even(rng.random_range(1..=24 / size)), rng.random_range(5..9), rng.random_range(5..9)];
            Preset::Im2col { element, shape, layout, kernel, fill: rng.next_u64(), source, destination }
        }
        "interleave" => Preset::Interleave { element, parts: rows, count: columns, source, destination },
        "deinterleave" => Preset::Deinterleave { element, parts: rows, count: columns, source, destination },
        "broadcast" => Preset::Broadcast { element, count: columns, copies: rows, source, destination },
        "fill" => {
            let value = rng.next_u64();
            Preset::Fill { element, shape: [rows, columns], value, destination, destination_pitch }
        }
        _ => {
            values.iter_mut().for_each(|v| *v %= i64::from(bound));
            let table = Place::new(2, 0);
            Preset::KvPages { element, page: columns, pages: planes, pool: bound, source, table, destination }
        }
    };
    let lists = match name {
        "gather_rows" | "gather_planes" | "kv_pages" => [values, Vec::new()],
        "scatter_rows" | "scatter_planes" => [Vec::new(), values],
        _ => Default::default(),
    };
    (preset, lists)
}

/// One preset.
pub(super) fn presets(case: &mut Case<'_>) -> anyhow::Result<()> {
    let n = case.random.map_or(case.index, |_| case.rng.random_range(0..CASES));
    let name = NAMES[n % NAMES.len()];
    let mut e = n / NAMES.len() % ELEMENTS.len();
    if ELEMENTS[e] == "int4" && name.contains("interleave") {
        e = 1; // needs the transposer, which has no nibbles
    }
    let aligned = (n / (NAMES.len() * ELEMENTS.len())).is_multiple_of(2);
    let pressure = n / (NAMES.len() * ELEMENTS.len() * 2) == 1;
    let latency = LATENCIES[case.rng.random_range(0..4)];
    let element = Element::ALL[e];
    case.label(format!(
        "{name} of {}, {}, latency {latency}",
        ELEMENTS[e],
        if aligned { "aligned" } else { "misaligned" }
    ));
    let (preset, lists) = draw(&mut case.rng, name, element);
    case.equal("name", name, preset.name());
    let mut world = World::new(&mut case.rng);
    let piece = Piece { descriptors: preset.descriptors()?, lists };
    let placed = world.add(&mut case.rng, &piece, Lay::Apart, if aligned { 64 } else { 1 });
    let origins = [0, 1].map(|side| placed.address[side] as i64 - stimulus::extent(&piece.descriptors, side).0);
    let timing = stimulus::timing(&mut case.rng, latency, pressure);
    let config = stimulus::config(&mut case.rng);
    let seed = case.rng.next_u64();
    let (mut scenario, jobs) = world.scenario(config, timing, seed);
    scenario.host_busy = if pressure { 0.5 } else { 0.0 };
    let classes = [
        ("preset", name),
        ("element", ELEMENTS[e]),
        ("align", if aligned { "line" } else { "byte" }),
        ("latency", latency),
        ("pressure", if pressure { "yes" } else { "no" }),
    ];
    case.cover("preset", &classes);
    let ran = judge(case, &scenario, &jobs)?;
    let after = Image { bytes: ran.bytes, ..scenario.image };
    let (expected, got) = second::tensors(&preset, origins, &piece.lists, &scenario.image, &after)?;
    case.equal("shape", expected.shape(), got.shape());
    case.equal_slices("tensor byte by golden", expected.bytes(), got.bytes());
    Ok(())
}
