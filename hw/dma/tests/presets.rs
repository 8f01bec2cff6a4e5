//! Presets against plain loops over tensors.

mod common;

use common::{READ_ONLY, SIZE, Scenario};
use dma::{Config, Element, Kernel, Layout, List, Outcome, Place, Preset, PresetError, chain};
use std::collections::BTreeSet;

const LIST: usize = 0x6000;
const CHAIN: u64 = 0x6100;

/// Elements of two bytes: source at byte 6, destination at byte 10 of its region.
const SOURCE: Place = Place::new(0, 6);
const DESTINATION: Place = Place::new(1, 10);
const E: Element = Element::B2;

/// Runs a preset with a list of 32-bit entries, and holds what it wrote, element by element, to `want`: (destination element, value).
/// All other bytes must be as before.
fn holds(preset: &Preset, list: &[i32], want: impl Fn(&dyn Fn(usize) -> u16, &mut dyn FnMut(usize, u16))) {
    let mut memory: Vec<u8> = (0..SIZE as u32).map(|i| (i.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
    for (i, entry) in list.iter().enumerate() {
        memory[LIST + 4 * i..][..4].copy_from_slice(&entry.to_le_bytes());
    }
    let bytes = chain(&preset.descriptors().unwrap(), CHAIN);
    memory[CHAIN as usize..][..bytes.len()].copy_from_slice(&bytes);
    let config = Config { bus_bytes: 16, ..Config::default() };
    let ran = Scenario { config, latency: 4, memory: memory.clone(), doorbells: vec![CHAIN] }.run();
    assert!(ran.completions.iter().all(|c| c.1.outcome == Outcome::Done), "{}: {:?}", preset.name(), ran.completions);
    let before = memory.clone();
    let read = |i: usize| u16::from_le_bytes(before[6 + 2 * i..][..2].try_into().unwrap());
    let mut write = |i: usize, value: u16| {
        memory[READ_ONLY as usize + 10 + 2 * i..][..2].copy_from_slice(&value.to_le_bytes());
    };
    want(&read, &mut write);
    let differs = memory.iter().zip(&ran.memory.0).position(|(a, b)| a != b);
    assert_eq!(differs, None, "{}", preset.name());
}

fn list(bound: u32) -> List {
    List { region: 0, offset: LIST as u64, bound, wide: true, clamp: false }
}

#[test]
fn copies() {
    let (source, destination, element) = (SOURCE, DESTINATION, E);
    let flat = Preset::Copy2d { element, shape: [5, 7], source, source_pitch: 20, destination, destination_pitch: 18 };
    holds(&flat, &[], |read, write| {
        (0..5).for_each(|i| (0..7).for_each(|j| write(9 * i + j, read(10 * i + j))));
    });
    let (source_pitches, destination_pitches) = ([100, 20], [90, 16]);
    let deep = Preset::Copy3d { element, shape: [3, 4, 7], source, source_pitches, destination, destination_pitches };
    holds(&deep, &[], |read, write| {
        let mut row = |p: usize, i: usize| (0..7).for_each(|j| write(45 * p + 8 * i + j, read(50 * p + 10 * i + j)));
        (0..3).for_each(|p| (0..4).for_each(|i| row(p, i)));
    });
    holds(&Preset::Broadcast { element, count: 7, copies: 4, source, destination }, &[], |read, write| {
        (0..4).for_each(|i| (0..7).for_each(|j| write(7 * i + j, read(j))));
    });
    let fill = Preset::Fill { element, shape: [3, 5], value: 0xabcd, destination, destination_pitch: 14 };
    holds(&fill, &[], |_, write| (0..3).for_each(|i| (0..5).for_each(|j| write(7 * i + j, 0xabcd))));
}

#[test]
fn lists() {
    let (source, destination, element) = (SOURCE, DESTINATION, E);
    let entries = [4, 0, 5, 2];
    let at = |i: usize| entries[i] as usize;
    let (shape, source_pitch, destination_pitch) = ([4, 3], 8, 10);
    let list = list(6);
    let gather = Preset::GatherRows { element, shape, source, source_pitch, destination, destination_pitch, list };
    holds(&gather, &entries, |read, write| {
        (0..4).for_each(|i| (0..3).for_each(|j| write(5 * i + j, read(4 * at(i) + j))));
    });
    let scatter = Preset::ScatterRows { element, shape, source, source_pitch, destination, destination_pitch, list };
    holds(&scatter, &entries, |read, write| {
        (0..4).for_each(|i| (0..3).for_each(|j| write(5 * at(i) + j, read(4 * i + j))));
    });
    let (shape, source_pitches, destination_pitches) = ([4, 2, 3], [24, 8], [30, 10]);
    let element_of = |pitch: [usize; 2], p: usize, i: usize, j: usize| pitch[0] * p + pitch[1] * i + j;
    let each = |act: &mut dyn FnMut(usize, usize, usize)| {
        (0..4).for_each(|p| (0..2).for_each(|i| (0..3).for_each(|j| act(p, i, j))));
    };
    let gather =
        Preset::GatherPlanes { element, shape, source, source_pitches, destination, destination_pitches, list };
    holds(&gather, &entries, |read, write| {
        each(&mut |p, i, j| write(element_of([15, 5], p, i, j), read(element_of([12, 4], at(p), i, j))));
    });
    let scatter =
        Preset::ScatterPlanes { element, shape, source, source_pitches, destination, destination_pitches, list };
    holds(&scatter, &entries, |read, write| {
        each(&mut |p, i, j| write(element_of([15, 5], at(p), i, j), read(element_of([12, 4], p, i, j))));
    });
    let table = Place::new(0, LIST as i64);
    let pages = Preset::KvPages { element, page: 9, pages: 4, pool: 6, source, table, destination };
    holds(&pages, &entries, |read, write| {
        (0..4).for_each(|i| (0..9).for_each(|j| write(9 * i + j, read(9 * at(i) + j))));
    });
}

#[test]
fn other_orders() {
    let (source, destination, element) = (SOURCE, DESTINATION, E);
    let shape = [3u32, 5, 7];
    let mut seen = BTreeSet::new();
    for n in 0..27u8 {
        let order = [n / 9, n / 3 % 3, n % 3];
        let preset = Preset::Permute { element, shape, order, source, destination };
        if order.iter().collect::<BTreeSet<_>>().len() < 3 {
            assert_eq!(preset.descriptors(), Err(PresetError::Order(order)));
            continue;
        }
        seen.insert(order);
        holds(&preset, &[], |read, write| {
            let [a, b, c] = order.map(usize::from);
            let size = shape.map(|s| s as usize);
            for i in 0..size[0] * size[1] * size[2] {
                let index = [i / (size[1] * size[2]), i / size[2] % size[1], i % size[2]];
                write((index[a] * size[b] + index[b]) * size[c] + index[c], read(i));
            }
        });
    }
    assert_eq!(seen.len(), 6);
    holds(&Preset::Interleave { element, parts: 3, count: 11, source, destination }, &[], |read, write| {
        (0..3).for_each(|p| (0..11).for_each(|i| write(3 * i + p, read(11 * p + i))));
    });
    holds(&Preset::Deinterleave { element, parts: 3, count: 11, source, destination }, &[], |read, write| {
        (0..3).for_each(|p| (0..11).for_each(|i| write(11 * p + i, read(3 * i + p))));
    });
    let huge = Preset::Permute { element, shape: [u32::MAX; 3], order: [0, 1, 2], source, destination };
    assert!(huge.descriptors().unwrap_err().to_string().contains("too large"));
}

#[test]
fn convolutions() {
    let [c, h, w] = [3usize, 6, 5];
    let kernels = [
        Kernel { size: [3, 2], stride: [1, 1], padding: [0, 0], dilation: [1, 1] },
        Kernel { size: [3, 3], stride: [2, 1], padding: [1, 2], dilation: [1, 2] },
        Kernel { size: [1, 4], stride: [3, 2], padding: [2, 1], dilation: [1, 1] },
    ];
    for (kernel, layout) in kernels.iter().flat_map(|k| [(k, Layout::Nhwc), (k, Layout::Nchw)]) {
        let preset = Preset::Im2col {
            element: E,
            shape: [c, h, w].map(|v| v as u32),
            layout,
            kernel: *kernel,
            fill: 0x7777,
            source: SOURCE,
            destination: DESTINATION,
        };
        let of = |v: [u32; 2]| v.map(|v| v as usize);
        let (size, stride, padding, dilation) =
            (of(kernel.size), of(kernel.stride), of(kernel.padding), of(kernel.dilation));
        let outputs =
            |a: usize, extent: usize| (extent + 2 * padding[a] - dilation[a] * (size[a] - 1) - 1) / stride[a] + 1;
        let (oh, ow, taps) = (outputs(0, h), outputs(1, w), size[0] * size[1]);
        assert_eq!((kernel.outputs(0, h as u32) as usize, kernel.outputs(1, w as u32) as usize), (oh, ow));
        holds(&preset, &[], |read, write| {
            for (y, x, tap, channel) in
                (0..oh * ow * taps * c).map(|i| (i / c / taps / ow, i / c / taps % ow, i / c % taps, i % c))
            {
                let row = (y * stride[0] + tap / size[1] * dilation[0]).checked_sub(padding[0]).filter(|&row| row < h);
                let column =
                    (x * stride[1] + tap % size[1] * dilation[1]).checked_sub(padding[1]).filter(|&column| column < w);
                let value = match (row, column, layout) {
                    (Some(row), Some(column), Layout::Nhwc) => read((row * w + column) * c + channel),
                    (Some(row), Some(column), Layout::Nchw) => read((channel * h + row) * w + column),
                    _ => 0x7777,
                };
                let at = match layout {
                    Layout::Nhwc => ((y * ow + x) * taps + tap) * c + channel,
                    Layout::Nchw => ((channel * taps + tap) * oh + y) * ow + x,
                };
                write(at, value);
            }
        });
    }
    let none = Kernel { size: [3, 3], stride: [1, 1], padding: [0, 0], dilation: [4, 1] };
    assert_eq!((none.outputs(0, 6), none.outputs(1, 6)), (0, 4));
    for broken in [Kernel { size: [0, 1], ..none }, Kernel { stride: [1, 0], ..none }] {
        let (source, destination) = (SOURCE, DESTINATION);
        let preset = Preset::Im2col {
            element: E,
            shape: [1, 6, 6],
            layout: Layout::Nhwc,
            kernel: broken,
            fill: 0,
            source,
            destination,
        };
        assert!(matches!(preset.descriptors(), Err(PresetError::Kernel { .. })));
    }
}
