use super::engine::SLIDE;
use super::*;
use crate::{Code, Mesh, WestRow};
use numeric::FloatFormat;
use proptest::prelude::*;
use rtl::{Bits, FaultInjector, Image, Layout};

/// Any wires at all, protocol or not: the two must agree on every input.
fn west() -> impl Strategy<Value = WestRow> {
    (any::<[i16; 2]>(), any::<[bool; 2]>(), prop::bool::weighted(0.2), prop::bool::weighted(0.8))
        .prop_map(|([act, weight], [valid, load], swap, keep)| WestRow { act, valid, swap, weight, load, keep })
}

fn datapath() -> impl Strategy<Value = Datapath> {
    let ffp8 = FloatFormat::ffp8(true, 2, 1).unwrap();
    prop_oneof![
        4 => Just(Datapath::Int8),
        1 => Just(Datapath::Int4),
        1 => Just(Datapath::float(FloatFormat::BF16)),
        1 => Just(Datapath::float(FloatFormat::FP16)),
        1 => Just(Datapath::Float { act: FloatFormat::E5M2, weight: FloatFormat::E4M3 }),
        1 => Just(Datapath::float(ffp8)),
    ]
}

fn stimulus() -> impl Strategy<Value = (Config, Vec<(bool, Vec<WestRow>)>)> {
    let cols = prop_oneof![6 => 1usize..10, 2 => 60usize..70, 1 => Just(128), 1 => Just(256)];
    (1usize..6, cols, datapath(), 1usize..7).prop_flat_map(|(rows, cols, datapath, mac_stages)| {
        let cycle = (prop::bool::weighted(0.9), prop::collection::vec(west(), rows));
        let config = Config { rows, cols, datapath, mac_stages, ..Config::default() };
        (Just(config), prop::collection::vec(cycle, 1..if datapath.is_float() { 30 } else { 80 }))
    })
}

/// Codes as the registers hold them.
fn narrow(config: Config, west: &WestRow) -> WestRow {
    let extend = |code: Code, width: u32| Code::from_bits(code.to_bits() & rtl::mask(width), width);
    let datapath = config.datapath;
    WestRow {
        act: extend(west.act, datapath.act_width()),
        weight: extend(west.weight, datapath.weight_width()),
        ..*west
    }
}

proptest! {
    #[test]
    fn equals_the_mesh_register_for_register_every_cycle((config, cycles) in stimulus()) {
        let (mut mesh, mut array) = (Mesh::new(config), Array::new(config));
        let paths = Layout::of(&mut mesh).paths;
        prop_assert_eq!(&paths, &Layout::of(&mut array).paths);
        for (t, (enable, west)) in cycles.iter().enumerate() {
            let west: Vec<_> = west.iter().map(|row| narrow(config, row)).collect();
            let edge = WestEdge { enable: *enable, rows: &west };
            mesh.clock(&edge);
            array.clock(&edge);
            prop_assert_eq!(mesh.out(), array.out());
            let differences = Image::of(&mut mesh).differences(&Image::of(&mut array));
            let first = differences.first().map(|d| (&paths[d.signal].path, d));
            prop_assert!(first.is_none(), "cycle {}: {:?}", t, first);
        }
    }
}

proptest! {
    /// What a visitor changes is what the next edge sees: a bit of any register is flipped in both, between the edges.
    #[test]
    fn what_is_written_into_a_register_goes_on_from_there(
        (config, cycles) in stimulus().prop_filter("a float element's stages follow from others", |(c, _)| !c.datapath.is_float()),
        hits in prop::collection::vec((any::<prop::sample::Index>(), 0u32..32, 0usize..80), 1..12),
    ) {
        let (mut mesh, mut array) = (Mesh::new(config), Array::new(config));
        let paths = Layout::of(&mut mesh).paths;
        for (t, (enable, west)) in cycles.iter().enumerate() {
            for (signal, bit, _) in hits.iter().filter(|hit| hit.2 == t) {
                let signal = signal.index(paths.len());
                let fault = FaultInjector { signal, mask: 1 << (bit % paths[signal].width), stuck: None };
                fault.inject(&mut mesh);
                fault.inject(&mut array);
            }
            let west: Vec<_> = west.iter().map(|row| narrow(config, row)).collect();
            let edge = WestEdge { enable: *enable, rows: &west };
            mesh.clock(&edge);
            array.clock(&edge);
            prop_assert_eq!(mesh.out(), array.out());
            let differences = Image::of(&mut mesh).differences(&Image::of(&mut array));
            let first = differences.first().map(|d| (&paths[d.signal].path, d));
            prop_assert!(first.is_none(), "cycle {}: {:?}", t, first);
        }
    }
}

#[test]
fn a_long_run_slides_its_windows_back() {
    let config = Config { rows: 2, cols: 3, ..Config::default() };
    let (mut mesh, mut array) = (Mesh::new(config), Array::new(config));
    for t in 0..3 * SLIDE as i32 {
        let row = WestRow {
            act: (t as i8).into(),
            valid: true,
            swap: t % 7 == 0,
            weight: ((t * 3) as i8).into(),
            load: t % 2 == 0,
            keep: true,
        };
        let edge = WestEdge { enable: true, rows: &[row, row] };
        mesh.clock(&edge);
        array.clock(&edge);
        assert_eq!(mesh.out(), array.out(), "cycle {t}");
    }
    assert_eq!(Image::of(&mut mesh), Image::of(&mut array));
}
