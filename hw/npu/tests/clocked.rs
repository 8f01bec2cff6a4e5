//! The cycle engine against the transaction engine.

mod common;

use common::both::Both;
use common::{bank, command, config, setup};
use npu::dma::{Descriptor, Element, IndexList, Side};
use npu::isa::{Block, Codes, Command, Matmul, Mode as Product, Op, Operands, RowOp, Rows, Stream, Tokens, Vector};
use npu::nkz::{Channel, Mode};
use npu::numeric::FloatFormat;
use npu::{Config, Fault, KvSetup, RunError, SCRATCHPAD_REGION, clocked};
use proptest::prelude::*;
use rtl::{Difference, FaultInjector, Image, Layout, Module};

/// Where chains lie.
const CHAINS: u64 = 0x2_0000;
/// Chains of [`furnish`].
const KINDS: u64 = 6;

fn side(region: u8, offset: u64, strides: [i64; 3]) -> Side {
    Side { region, offset: offset as i64, strides, index: None }
}

/// Chain `kind` into or out of a bank.
fn chain(both: &mut Both, kind: u64, to: u32) {
    let at = CHAINS + 1024 * (u64::from(to) * KINDS + kind);
    let local = u64::from(bank(to));
    let plain = Descriptor {
        element: Element::B1,
        counts: [1, 1, 1024],
        source: side(0, 0, [0, 0, 1]),
        destination: side(SCRATCHPAD_REGION, local, [0, 0, 1]),
        ..Descriptor::default()
    };
    let jobs = match kind {
        0 => vec![plain],
        // Strided, off any boundary.
        1 => vec![Descriptor {
            counts: [1, 7, 100],
            source: side(0, 4001, [0, 333, 1]),
            destination: side(SCRATCHPAD_REGION, local + 64, [0, 128, 1]),
            ..plain
        }],
        // Back into DRAM, then something else in.
        2 => vec![
            Descriptor {
                source: side(SCRATCHPAD_REGION, local, [0, 0, 1]),
                destination: side(0, 0x1_0000 + 4096 * u64::from(to), [0, 0, 1]),
                ..plain
            },
            Descriptor { counts: [1, 1, 5000], ..plain },
        ],
        // Rows by a list, transposed 16-bit elements after.
        3 => vec![Descriptor {
            counts: [1, 8, 64],
            source: Side {
                index: Some(IndexList { region: 0, offset: 0xf000, dimension: 1, bound: 64 }),
                ..side(0, 0x100, [0, 64, 1])
            },
            destination: side(SCRATCHPAD_REGION, local, [0, 64, 1]),
            ..plain
        }],
        4 => vec![Descriptor {
            element: Element::B2,
            counts: [1, 20, 30],
            source: side(0, 0x200, [0, 2, 64]),
            destination: side(SCRATCHPAD_REGION, local, [0, 60, 2]),
            ..plain
        }],
        _ => vec![Descriptor { counts: [1, 0, 100], ..plain }, plain],
    };
    let last = jobs.len() - 1;
    for (i, job) in jobs.into_iter().enumerate() {
        let place = at + 256 * i as u64;
        let job = Descriptor { link: (i < last).then_some(place + 256), ..job };
        both.transaction.memory_mut().dram.write(place, &job.encode()).unwrap();
    }
}

/// Engines whose memories hold something everywhere.
fn furnish(config: Config, setup: KvSetup) -> Both {
    let mut both = Both::new(config, setup);
    let memory = both.transaction.memory_mut();
    // BF16 of moderate size, whatever it is read as.
    let noise = |i: u32| (0x3e00 + (i.wrapping_mul(2_654_435_761) >> 16 & 0x1ff) as u16) | ((i & 1) << 15) as u16;
    let bytes: Vec<u8> = (0..1 << 15).flat_map(|i| noise(i).to_le_bytes()).collect();
    memory.dram.write(0, &bytes).unwrap();
    let list: Vec<u8> = [3u16, 1, 4, 1, 5, 9, 2, 6].into_iter().flat_map(u16::to_le_bytes).collect();
    memory.dram.write(0xf000, &list).unwrap();
    let size = memory.scratch.size();
    let filled = memory.scratch.write(0, size).unwrap();
    filled.chunks_mut(bytes.len()).for_each(|chunk| chunk.copy_from_slice(&bytes[..chunk.len()]));
    for to in 0..8 {
        (0..KINDS).for_each(|kind| chain(&mut both, kind, to));
    }
    both.share();
    both
}

#[derive(Clone, Debug)]
struct Machine {
    config: Config,
    setup: KvSetup,
}

fn machine() -> impl Strategy<Value = Machine> {
    let modes = prop_oneof![
        Just(Mode::Raw),
        Just(Mode::Lossless),
        Just(Mode::Entropy { qp: 6 }),
        Just(Mode::Fixed { qp: 3 }),
        Just(Mode::Slot { bytes: 512 }),
        Just(Mode::Mean),
    ];
    let codec = (1usize..5, prop_oneof![Just(8usize), Just(16)]);
    let dram = (1u64..80, 0u64..30, 1u64..60, prop_oneof![Just(8u32), Just(16), Just(32), Just(64)], 1usize..20);
    let heads = prop_oneof![Just(16usize), Just(24), Just(80)];
    let array = (1usize..12, 1usize..12, 1usize..12, 1usize..6, 1usize..6, 1usize..80);
    (modes.clone(), modes, codec, dram, heads, (1usize..6, any::<bool>()), array).prop_map(
        |(keys, values, (decoders, width), (hit, more, write, bus, reads), head_dim, (depth, interleaved), array)| {
            let mut config = config();
            (config.codec.decoders, config.codec.values) = (decoders, width);
            (config.dram.hit_latency, config.dram.miss_latency, config.dram.write_latency) = (hit, hit + more, write);
            (config.dram.bytes_per_cycle, config.dram.reads_in_flight) = (bus, reads);
            config.queue_depth = depth;
            let a = &mut config.array;
            (a.rows, a.cols, a.depth, a.mac_stages, a.adder_stages, a.port_bytes) = array;
            (a.cols, a.depth) = (a.cols.max(8), a.depth + 1);
            let mut setup = KvSetup { keys, values, head_dim, interleaved, ..setup(Mode::Raw) };
            let line = |i: usize| Channel {
                mean: 0x3d00 + i as u16,
                step: (i % 5) as i8 + 20,
                spread: (i % 7) as i8 + 10,
                fixed_step: 30,
                exponent: 124,
                exponent_table: (i % 3) as u8 + 1,
            };
            setup.tables = (0..setup.layers * setup.heads * 2 * head_dim).map(line).collect();
            setup.frequencies = (0..head_dim / 2).map(|i| 10_000f32.powf(-(i as f32) / head_dim as f32)).collect();
            Machine { config, setup }
        },
    )
}

/// What a command of a program does; banks 0..8 are everybody's, the others belong to the KV trips.
#[derive(Clone, Debug)]
struct Step {
    kind: u32,
    from: u32,
    to: u32,
    pick: u32,
    signals: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0u32..5, 0u32..8, 0u32..8, any::<u32>(), any::<bool>());
    let step = step.prop_map(|(kind, from, to, pick, signals)| Step { kind, from, to, pick, signals });
    prop::collection::vec(step, 1..24)
}

/// Formats of a product's operands.
const OPERANDS: [Operands; 11] = [
    Operands::Float(FloatFormat::BF16),
    Operands::Float(FloatFormat::FP16),
    Operands::Float(FloatFormat::E4M3),
    Operands::PerChannel(None),
    Operands::PerChannel(Some(FloatFormat::E5M2)),
    Operands::PerGroup { format: None, group: 32 },
    Operands::PerGroup { format: None, group: 3 },
    Operands::PerGroup { format: Some(FloatFormat::E4M3), group: 16 },
    Operands::Stored(Block::Q40),
    Operands::Stored(Block::Q41),
    Operands::Stored(Block::Q80),
];

/// A product of operands in banks `from` and `to`, its shape and formats by the bits of `pick`.
fn matmul(from: u32, to: u32, pick: u32) -> Matmul {
    let operands = OPERANDS[pick as usize % OPERANDS.len()];
    let mode = if pick >> 4 & 1 == 1 { Product::Gemv } else { Product::Gemm };
    let (m, n) = (1 + (pick >> 5 & 15) % if mode == Product::Gemv { 8 } else { 16 }, 1 + (pick >> 9 & 31));
    let k = if matches!(operands, Operands::Stored(_)) { 32 * (1 + (pick >> 14 & 1)) } else { 1 + (pick >> 14 & 63) };
    let width = if let Operands::Float(f) = operands { f.width() / 8 } else { 1 };
    let w_bytes = if let Operands::Stored(block) = operands { n * block.bytes() as u32 } else { n * width };
    let y_bf16 = pick >> 20 & 1 == 1;
    let pitch = |bytes: u32| 4 * (bytes.div_ceil(4) + (pick >> 21 & 1));
    Matmul {
        mode,
        operands,
        m,
        n,
        k,
        x: Rows { base: bank(from), pitch: pitch(k * width) },
        x_scales: bank(from) + 0x2000,
        w: Rows { base: bank(to) + 0x3000, pitch: pitch(w_bytes) },
        w_scales: bank(to) + 0x6000,
        y: Rows { base: bank(pick >> 22 & 7) + 0x8000, pitch: pitch(n * if y_bf16 { 2 } else { 4 }) },
        y_bf16,
    }
}

/// A row operation from bank `from` to bank `to`, the rest by the bits of `pick`.
fn row_op(from: u32, to: u32, pick: u32, head_dim: u32) -> RowOp {
    let (kind, rows) = (pick % 10, 1 + (pick >> 4 & 7));
    let mut len = 1 + (pick >> 7 & 127);
    let second = Rows { base: bank(pick >> 14 & 7) + 0x4000, pitch: 1024 };
    let group = [0, 8, 32][(pick >> 17) as usize % 3];
    let step = (pick >> 19 & 1) as u8;
    let op = match kind {
        0 => Vector::RmsNorm { weight: second.base, epsilon: 1e-5f32.to_bits(), bf16: step == 1 },
        1 | 2 => {
            len = len.next_multiple_of(u32::from(group).max(1));
            let codes = if kind == 1 { Codes::Int8 } else { Codes::Float(FloatFormat::E4M3) };
            Vector::Quantize { codes, group, scales: Rows { base: bank(to) + 0xc000, pitch: 128 } }
        }
        3 => Vector::Softmax { scale: 0.7f32.to_bits(), visible: pick >> 20 & 63, step },
        4 => {
            len = head_dim * (1 + (pick >> 20 & 1));
            Vector::Rope { position: pick >> 21, step }
        }
        5 => Vector::SwiGlu { up: second },
        6 => Vector::Add { b: second },
        7 => Vector::ToBf16,
        8 => Vector::ToFp32,
        _ => Vector::Argmax,
    };
    RowOp { op, rows, len, x: Rows { base: bank(from), pitch: 1024 }, y: Rows { base: bank(to) + 0x8000, pitch: 1024 } }
}

/// Commands whose waits are all signalled by earlier ones; a counter is waited for by one engine alone.
fn program(steps: &[Step], setup: &KvSetup) -> Vec<Command> {
    let mut tokens = [0u32; 24];
    let mut tiles = [0u32; 8];
    let mut trips = 0;
    let mut program = Vec::new();
    for Step { kind, from, to, pick, signals } in steps.iter().cloned() {
        let engine = [0, 3, 3, 1, 2][kind as usize];
        let mine = |t: usize| t % 4 == engine && tokens[t] > 0 && pick & 3 != 0;
        let wait = (0..24).map(|t| (t + pick as usize) % 24).find(|t| mine(*t)).map_or(0, |t| 1u32 << t);
        let signal = if signals { 1u32 << (((pick >> 8) & 31) % 24) } else { 0 };
        if kind != 2 {
            (0..24).for_each(|t| {
                tokens[t] -= wait >> t & 1;
                tokens[t] += signal >> t & 1;
            });
        }
        match kind {
            0 => {
                let at = CHAINS + 1024 * (u64::from(to) * KINDS + u64::from(pick >> 16) % KINDS);
                program.push(command(wait, signal, Op::Dma { chain: at, banks: 1 << to }));
            }
            1 => {
                let rotated = pick >> 16 & 1 == 1;
                let transposed = pick >> 17 & 1 == 1;
                let width = if rotated { setup.head_dim as u32 } else { 1 + (pick >> 18) % 90 };
                let rows = 1 + (pick >> 25) % 40;
                let tokens = Tokens { to: Rows { base: bank(to), pitch: 256 }, transposed, rotated };
                // Results never overlap operands; from another place of the same bank they come, too.
                let from =
                    Rows { base: bank(from) + if from == to { 0x8000 } else { 0 }, pitch: 4 * width.div_ceil(2) };
                program.push(command(wait, signal, Op::KvRaw { rows, width, position: pick >> 4 & 255, from, tokens }));
            }
            3 => program.push(command(wait, signal, Op::Matmul(matmul(from, to, pick)))),
            4 => program.push(command(wait, signal, Op::Vector(row_op(from, to, pick, setup.head_dim as u32)))),
            _ => {
                let which = (pick >> 16 & 7) as usize;
                if tiles[which] == 8 {
                    continue;
                }
                let stream = Stream {
                    sequence: 0,
                    layer: (which >> 2) as u8,
                    head: (which >> 1 & 1) as u8,
                    value: which & 1 == 1,
                };
                let place = trips % 7 * 0x2000;
                trips += 1;
                let tile = tiles[which];
                tiles[which] += 1;
                let rows = Rows::packed(bank(from), 2 * setup.head_dim as u32);
                program.push(command(0, 1 << 24, Op::KvEncode { stream, tile, from: rows, to: bank(8) + place }));
                program.push(command(1 << 24, 0, Op::KvStore { stream, tile, from: bank(8) + place }));
                let first = if pick >> 20 & 1 == 1 { 0 } else { tile };
                let count = tile + 1 - first;
                // A context of all tiles has a place of its own.
                program.push(command(0, 1 << 27, Op::KvLoad { stream, first, tiles: count, to: bank(9) + place * 8 }));
                let transposed = pick >> 17 & 1 == 1;
                let to = Rows { base: bank(to), pitch: 512 };
                let tokens = Tokens { to, transposed, rotated: pick >> 18 & 1 == 1 };
                let from = bank(9) + place * 8;
                program.push(command(1 << 27, 0, Op::KvDecode { stream, first, tiles: count, from, tokens }));
            }
        }
    }
    program
}

#[test]
fn one_transfer() {
    let mut both = furnish(config(), setup(Mode::Raw));
    let report = both.run(&[command(0, 0, Op::Dma { chain: CHAINS, banks: 1 })]).unwrap();
    assert!(report.cycles > 100);
}

#[test]
fn raw_rows() {
    let mut both = furnish(config(), setup(Mode::Raw));
    for (transposed, rotated) in [(false, false), (true, false), (false, true), (true, true)] {
        let tokens = Tokens { to: Rows::packed(bank(1), 64), transposed, rotated };
        let from = Rows::packed(bank(0), 32);
        both.run(&[command(0, 0, Op::KvRaw { rows: 20, width: 16, position: 5, from, tokens })]).unwrap();
    }
}

#[test]
fn nothing_to_load_or_decode() {
    let mut both = furnish(config(), setup(Mode::Raw));
    let stream = Stream::default();
    let tokens = Tokens { to: Rows::packed(bank(1), 32), ..Tokens::default() };
    let load = Op::KvLoad { stream, first: 0, tiles: 0, to: bank(2) };
    let decode = Op::KvDecode { stream, first: 0, tiles: 0, from: bank(2), tokens };
    both.run(&[command(0, 1, load), command(1, 0, decode)]).unwrap();
}

#[test]
fn products() {
    for mode in [Product::Gemm, Product::Gemv] {
        for operands in OPERANDS {
            for (m, n, k) in [(1, 1, 32), (4, 20, 64), (8, 33, 32)] {
                let mut both = furnish(config(), setup(Mode::Raw));
                let p = Matmul { mode, operands, m, n, k, ..matmul(0, 1, 7 << 22) };
                let p = Matmul {
                    x: Rows { pitch: 128, ..p.x },
                    w: Rows { pitch: 1200, ..p.w },
                    y: Rows { pitch: 140, ..p.y },
                    ..p
                };
                both.run(&[command(0, 0, Op::Matmul(p))]).unwrap();
            }
        }
    }
}

#[test]
fn row_operations() {
    for kind in 0..10 {
        for (rows, len) in [(1, 32), (5, 100), (3, 256)] {
            for interleaved in [false, true] {
                let mut both = furnish(config(), KvSetup { interleaved, ..setup(Mode::Raw) });
                let op = row_op(0, 1, kind, 16);
                let op = RowOp { rows, len: if kind == 4 { 48 } else { len }, ..op };
                both.run(&[command(0, 0, Op::Vector(op))]).unwrap();
            }
        }
    }
}

#[test]
fn a_sum_in_place() {
    let mut both = furnish(config(), setup(Mode::Raw));
    let rows = Rows::packed(bank(0), 400);
    let b = Rows { base: bank(1), pitch: 400 };
    let op = RowOp { op: Vector::Add { b }, rows: 6, len: 100, x: rows, y: rows };
    both.run(&[command(0, 0, Op::Vector(op))]).unwrap();
}

proptest! {
    #[test]
    fn programs_of_any_kind(machine in machine(), steps in steps()) {
        let Machine { config, setup } = machine;
        let program = program(&steps, &setup);
        let mut both = furnish(config, setup);
        // What products leave may not be finite, and then fits no slot.
        let slot = |fault: &Fault| matches!(fault, Fault::Slot);
        match both.run(&program) {
            Ok(report) => prop_assert_eq!(report.spans.len(), program.len()),
            Err(RunError::Command { fault, .. }) if slot(&fault) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_load_takes_no_time_from_a_chain_of_its_shape() {
    let mut both = furnish(config(), setup(Mode::Raw));
    let stream = Stream::default();
    let encode = Op::KvEncode { stream, tile: 0, from: Rows::packed(bank(2), 32), to: bank(8) };
    let load = Op::KvLoad { stream, first: 0, tiles: 1, to: bank(0) };
    // The same move, but its descriptor lies in DRAM.
    let at = CHAINS + 1024 * 100;
    let chain = Descriptor {
        element: Element::B1,
        counts: [1, 1, 1056],
        source: side(0, 1 << 20, [0, 0, 1]),
        destination: side(SCRATCHPAD_REGION, 0, [0, 0, 1]),
        ..Descriptor::default()
    };
    both.transaction.memory_mut().dram.write(at, &chain.encode()).unwrap();
    both.share();
    let chain = Op::Dma { chain: at, banks: 1 };
    let program: Vec<_> = [load, chain, load].map(|op| command(0, 0, op)).into();
    both.run(&[command(0, 0, encode)]).unwrap();
    both.run(&program).unwrap();
}

proptest! {
    /// Reset in the middle of a program, twice, then a clean run.
    #[test]
    fn a_reset_leaves_no_trace(machine in machine(), steps in steps(), cut in (1u64..3000, 1u64..3000)) {
        let Machine { config, setup } = machine;
        let program = program(&steps, &setup);
        let mut both = furnish(config, setup);
        for cycles in [cut.0, cut.1] {
            let mut session = clocked::Session::new(&both.clocked, &program);
            let mut goes = true;
            while goes && session.cycle() < cycles {
                match session.step(&mut both.clocked) {
                    Ok(more) => goes = more,
                    Err(RunError::Command { fault: Fault::Slot, .. }) => goes = false,
                    Err(error) => panic!("{error}"),
                }
            }
            both.clocked.reset();
            // The index and the memories survive; the host starts over.
            both.clocked.forget(0);
            both.share();
        }
        match both.run(&program) {
            Ok(report) => prop_assert_eq!(report.spans.len(), program.len()),
            Err(RunError::Command { fault: Fault::Slot, .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// All registers and memories are read out and put back in the middle of a program.
    #[test]
    fn putting_the_registers_back_changes_nothing(machine in machine(), steps in steps(), cuts in prop::collection::vec(1u64..4000, 1..4)) {
        let Machine { config, setup } = machine;
        let program = program(&steps, &setup);
        let (mut plain, mut walked) = (furnish(config.clone(), setup.clone()).clocked, furnish(config, setup).clocked);
        let run = |npu: &mut clocked::Npu, cuts: &[u64]| {
            let mut session = clocked::Session::new(npu, &program);
            loop {
                match session.step(npu) {
                    Ok(true) => {}
                    Ok(false) | Err(RunError::Command { fault: Fault::Slot, .. }) => return session.cycle(),
                    Err(error) => panic!("{error}"),
                }
                if cuts.contains(&session.cycle()) {
                    let image = Image::of(npu);
                    image.restore(npu);
                    assert!(Image::of(npu) == image, "cycle {}", session.cycle());
                }
            }
        };
        prop_assert_eq!(run(&mut plain, &[]), run(&mut walked, &cuts));
        let layout = Layout::of(&mut plain);
        let differences = Image::of(&mut plain).differences(&Image::of(&mut walked));
        let differences: Vec<_> = differences.iter().map(|d| &layout.paths[d.signal].path).take(5).collect();
        prop_assert!(differences.is_empty(), "{:?}", differences);
    }
}

/// Every engine's queue is in the watchdog's dump, on both engines alike.
#[test]
fn what_never_comes_is_reported_by_both() {
    let mut both = furnish(config(), setup(Mode::Raw));
    let row = RowOp { op: Vector::ToBf16, rows: 1, len: 8, x: Rows::packed(0, 32), y: Rows::packed(bank(1), 16) };
    let program = [command(1 << 7, 0, Op::Vector(row)), command(0, 0, Op::Dma { chain: CHAINS, banks: 1 })];
    let Err(RunError::Deadlock { state, .. }) = both.run(&program) else { panic!("it ran") };
    assert!(state.contains("vector holds 1, its head waits for t7"), "{state}");
}

#[test]
fn a_chain_that_leaves_its_banks_is_refused_by_both() {
    let mut both = furnish(config(), setup(Mode::Raw));
    // Into bank 3, which the command does not hold, and out of it.
    for (at, source, destination) in [
        (CHAINS + 0x8000, side(0, 0, [0, 0, 1]), side(SCRATCHPAD_REGION, u64::from(bank(3)), [0, 0, 1])),
        (CHAINS + 0x8100, side(SCRATCHPAD_REGION, u64::from(bank(3)), [0, 0, 1]), side(0, 0x1_0000, [0, 0, 1])),
    ] {
        let job = Descriptor { element: Element::B1, counts: [1, 1, 64], source, destination, ..Descriptor::default() };
        both.transaction.memory_mut().dram.write(at, &job.encode()).unwrap();
        both.share();
        both.run(&[command(0, 0, Op::Dma { chain: at, banks: 1 << 3 })]).unwrap();
        match both.run(&[command(0, 0, Op::Dma { chain: at, banks: 1 << 2 })]) {
            Err(RunError::Command { fault: Fault::Banks { touched, held }, .. }) => {
                assert_eq!((touched, held), (1 << 3, 1 << 2));
            }
            other => panic!("{other:?}"),
        }
        both.clocked.reset();
    }
}

#[test]
fn a_tile_at_the_end_of_the_scratchpad_is_encoded() {
    let mut both = furnish(config(), setup(Mode::Raw));
    let size = both.transaction.memory().scratch.size() as u32;
    let from = Rows::packed(size - 32 * 32, 32);
    both.run(&[command(0, 0, Op::KvEncode { stream: Stream::default(), tile: 0, from, to: bank(2) })]).unwrap();
}

#[test]
fn more_pieces_than_the_control_ram_has_room_for_are_refused_by_both() {
    // 512 channels: a raw tile lies on nine pages, one descriptor each; five fit.
    let setup = |head_dim| KvSetup { head_dim, frequencies: vec![1.0; head_dim / 2], ..setup(Mode::Raw) };
    let stream = Stream::default();
    let program = |head_dim: u32| {
        let from = Rows::packed(bank(0), 2 * head_dim);
        let encode = Op::KvEncode { stream, tile: 0, from, to: bank(8) };
        [command(0, 1, encode), command(1, 0, Op::KvStore { stream, tile: 0, from: bank(8) })]
    };
    furnish(config(), setup(80)).run(&program(80)).unwrap();
    match furnish(config(), setup(512)).run(&program(512)) {
        Err(RunError::Command { fault: Fault::Dma { number, cause }, .. }) => {
            assert_eq!(number, 5);
            assert!(cause.contains("more pieces than the control RAM holds"), "{cause}");
        }
        other => panic!("{other:?}"),
    }
}

/// A fault in the counter of a stream's tiles must not make the model hold more than the memory that it counts.
#[test]
fn a_counter_of_the_index_that_was_hit_holds_no_more_than_its_memory() {
    let mut npu = clocked::Npu::new(config(), setup(Mode::Raw)).unwrap();
    let before = Image::of(&mut npu);
    let counters = |path: &rtl::SignalPath| path.path.contains("entered_q");
    let layout = Layout::of(&mut npu);
    let hit: Vec<usize> = (0..layout.paths.len()).filter(|&n| counters(&layout.paths[n])).collect();
    assert!(!hit.is_empty());
    for &signal in &hit {
        FaultInjector { signal, mask: 1 << 24, stuck: None }.inject(&mut npu);
    }
    let counted = before.differences(&Image::of(&mut npu));
    // 256 tokens are eight tiles, each of one block of columns.
    let held = |d: &&Difference| hit.contains(&d.signal) && d.right > 64;
    assert_eq!(counted.iter().find(held), None, "the index grew");
}
