//! Programs on a small NPU.

mod common;

use common::{bank, command, config, load, move_bytes, setup, small};
use npu::csr;
use npu::isa::{Block, Codes, Command, Fields, Matmul, Mode, Op, Operands, RowOp, Rows, Stream, Tokens, Vector};
use npu::nkz::Mode as KvMode;
use npu::numeric::FloatFormat;
use npu::{Fault, Npu, RunError, SCRATCHPAD_REGION};
use proptest::prelude::*;

fn bf16(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(|v| ((v.to_bits() >> 16) as u16).to_le_bytes()).collect()
}

fn fp32(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn product(mode: Mode, m: u32, n: u32, k: u32) -> Matmul {
    Matmul {
        mode,
        operands: Operands::Float(FloatFormat::BF16),
        m,
        n,
        k,
        x: Rows::packed(bank(0), 2 * k),
        x_scales: 0,
        w: Rows::packed(bank(1), 2 * n),
        w_scales: 0,
        y: Rows::packed(bank(2), 4 * n),
        y_bf16: false,
    }
}

/// Loads both operands, multiplies, stores.
fn multiply(npu: &mut Npu, p: Matmul) -> Vec<Command> {
    let (m, n, k) = (p.m, p.n, p.k);
    let x = bf16((0..m * k).map(|i| (i % 7) as f32 - 3.0));
    let w = bf16((0..k * n).map(|i| (i % 5) as f32 - 2.0));
    npu.memory_mut().dram.write(0, &x).unwrap();
    npu.memory_mut().dram.write(0x8000, &w).unwrap();
    let first = load(npu, 0x2_0000, x.len() as u32, 0, p.x.base);
    let second = load(npu, 0x2_0100, w.len() as u32, 0x8000, p.w.base);
    move_bytes(npu, 0x2_0200, 4 * m * n, (SCRATCHPAD_REGION, u64::from(p.y.base)), (0, 0x3_0000));
    let banks = u64::MAX >> 48;
    vec![
        command(0, 1, first),
        command(0, 2, second),
        command(3, 4, Op::Matmul(p)),
        command(4, 0, Op::Dma { chain: 0x2_0200, banks }),
    ]
}

#[test]
fn a_product_from_memory_to_memory() {
    for mode in [Mode::Gemm, Mode::Gemv] {
        let mut npu = small();
        let p = product(mode, 4, 20, 34);
        let program = multiply(&mut npu, p);
        let report = npu.run(&program).unwrap();
        let y = fp32(npu.memory().dram.read(0x3_0000, 4 * 80).unwrap().unwrap());
        for (i, y) in y.iter().enumerate() {
            let (row, column) = (i / 20, i % 20);
            let expected: f32 =
                (0..34).map(|k| (((row * 34 + k) % 7) as f32 - 3.0) * (((k * 20 + column) % 5) as f32 - 2.0)).sum();
            assert_eq!(*y, expected, "small integers are exact in any order");
        }
        assert_eq!(report.counters.macs, 4 * 20 * 34);
        assert!(report.cycles > 300);
        let busy: u64 = report.counters.engines.iter().map(|e| e.busy).sum();
        assert!(
            busy > 0
                && report
                    .counters
                    .engines
                    .iter()
                    .all(|e| e.busy + e.idle + e.waits_tokens + e.waits_banks == report.cycles)
        );
    }
}

#[test]
fn operands_in_one_bank_take_longer() {
    let run = |p: Matmul| {
        let mut npu = small();
        let program = multiply(&mut npu, p);
        npu.run(&program).unwrap().counters
    };
    let apart = run(product(Mode::Gemm, 8, 16, 16));
    let p = product(Mode::Gemm, 8, 16, 16);
    let shared = run(Matmul { w: Rows::packed(bank(0) + 0x4000, 32), ..p });
    assert_eq!(apart.engines[1].conflicts, 0);
    assert_eq!(shared.engines[1].busy - apart.engines[1].busy, shared.engines[1].conflicts);
    assert!(shared.engines[1].conflicts > 0);
}

#[test]
fn tiles_come_back_from_the_cache() {
    for mode in [KvMode::Raw, KvMode::Lossless] {
        let mut npu = Npu::new(config(), setup(mode)).unwrap();
        let stream = Stream { sequence: 0, layer: 1, head: 1, value: true };
        let mut program = Vec::new();
        let (tiles, tile) = (8, 32 * 16);
        let values: Vec<u8> = bf16((0..tiles * tile).map(|i| ((i * 37) % 101) as f32 / 8.0 - 5.0));
        npu.memory_mut().dram.write(0, &values).unwrap();
        for t in 0..tiles {
            let op = load(&mut npu, 0x4_0000 + 256 * u64::from(t), 2 * tile, u64::from(2 * tile * t), bank(0));
            program.push(command(0, 1, op));
            let from = Rows::packed(bank(0), 32);
            program.push(command(1, 2, Op::KvEncode { stream, tile: t, from, to: bank(1) }));
            program.push(command(2, 0, Op::KvStore { stream, tile: t, from: bank(1) }));
        }
        program.push(command(0, 4, Op::KvLoad { stream, first: 1, tiles: 7, to: bank(2) }));
        let tokens = Tokens { to: Rows::packed(bank(3), 32), transposed: false, rotated: false };
        program.push(command(4, 0, Op::KvDecode { stream, first: 1, tiles: 7, from: bank(2), tokens }));
        let report = npu.run(&program).unwrap();
        let back = npu.memory().scratch.read(bank(3) as usize, 2 * 7 * tile as usize).unwrap();
        assert_eq!(back, &values[2 * tile as usize..]);
        assert_eq!(report.counters.kv_raw, 2 * 8 * u64::from(tile));
        assert!(report.counters.dram_read.kv > 0 && report.counters.dram_written.kv == report.counters.kv_stored);
    }
}

#[test]
fn a_backfilled_context_decodes_to_the_tiles_it_repeats() {
    let mut npu = Npu::new(config(), setup(KvMode::Lossless)).unwrap();
    npu.keep_tiles();
    assert_eq!(npu.backfill(0, 8), Ok(false), "nothing to repeat yet");
    let values: Vec<u8> = bf16((0..2 * 32 * 16).map(|i| (i % 97) as f32));
    npu.memory_mut().scratch.write(0, values.len()).unwrap().copy_from_slice(&values);
    let streams = (0..8u8).map(|i| Stream { sequence: 0, layer: i / 4, head: i / 2 % 2, value: i % 2 == 1 });
    let mut program = Vec::new();
    for (tile, stream) in streams.flat_map(|s| [(0, s), (1, s)]) {
        program.push(command(1, 2, Op::KvEncode { stream, tile, from: Rows::packed(1024 * tile, 32), to: bank(1) }));
        program.push(command(2, 1, Op::KvStore { stream, tile, from: bank(1) }));
    }
    program[0].wait = 0;
    let before = npu.run(&program).unwrap();
    assert_eq!(npu.backfill(0, 8), Ok(true));
    assert_eq!(npu.counters(), &before.counters, "a backfill counts nothing");
    let stream = Stream { sequence: 0, layer: 1, head: 0, value: true };
    let tokens = Tokens { to: Rows::packed(bank(3), 32), ..Tokens::default() };
    let load = command(0, 1, Op::KvLoad { stream, first: 4, tiles: 4, to: bank(2) });
    npu.run(&[load, command(1, 0, Op::KvDecode { stream, first: 4, tiles: 4, from: bank(2), tokens })]).unwrap();
    let back = npu.memory().scratch.read(bank(3) as usize, 2 * values.len()).unwrap();
    assert_eq!(back, [&values[..], &values[..]].concat());
}

#[test]
fn a_softmax_row_and_its_mask() {
    let mut npu = small();
    let scores: Vec<u8> = (0..64).flat_map(|i| (i as f32 / 8.0).to_le_bytes()).collect();
    npu.memory_mut().scratch.write(0, 256).unwrap().copy_from_slice(&scores);
    let op = Vector::Softmax { scale: 1f32.to_bits(), visible: 10, step: 1 };
    let row = RowOp { op, rows: 2, len: 32, x: Rows::packed(0, 128), y: Rows::packed(bank(1), 64) };
    npu.run(&[command(0, 0, Op::Vector(row))]).unwrap();
    let y = npu.memory().scratch.read(bank(1) as usize, 128).unwrap();
    let weights: Vec<f32> =
        y.chunks_exact(2).map(|b| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16)).collect();
    let ones = |row: &[f32]| row.iter().sum::<f32>();
    assert!((ones(&weights[..32]) - 1.0).abs() < 0.01 && (ones(&weights[32..]) - 1.0).abs() < 0.01);
    assert!(weights[10..32].iter().all(|w| *w == 0.0) && weights[32 + 10] > 0.0 && weights[32 + 11] == 0.0);
}

#[test]
fn what_never_comes_is_reported_with_every_queue() {
    let mut npu = small();
    let row = RowOp { op: Vector::ToBf16, rows: 1, len: 8, x: Rows::packed(0, 32), y: Rows::packed(bank(1), 16) };
    let error = npu.run(&[command(1 << 7, 0, Op::Vector(row))]).unwrap_err();
    let RunError::Deadlock { state, .. } = &error else { panic!("{error}") };
    assert!(state.contains("vector holds 1, its head waits for t7"), "{state}");
    // The next program runs.
    npu.memory_mut().scratch.write(0, 32).unwrap().fill(0);
    npu.run(&[command(0, 0, Op::Vector(row))]).unwrap();
}

#[test]
fn reading_what_nobody_wrote_is_an_error() {
    let mut npu = small();
    let row = RowOp { op: Vector::ToBf16, rows: 1, len: 8, x: Rows::packed(0, 32), y: Rows::packed(bank(1), 16) };
    let error = npu.run(&[command(0, 0, Op::Vector(row))]).unwrap_err();
    assert!(matches!(error, RunError::Command { number: 0, fault: Fault::Unwritten { .. }, .. }), "{error}");
}

#[test]
fn a_program_from_memory_by_the_doorbell() {
    let (mut direct, mut npu) = (small(), small());
    let program = multiply(&mut direct, product(Mode::Gemm, 4, 20, 34));
    multiply(&mut npu, product(Mode::Gemm, 4, 20, 34));
    let report = direct.run(&program).unwrap();
    let bytes: Vec<u8> = program.iter().flat_map(|c| c.encode()).collect();
    npu.memory_mut().dram.write(0x8_0000, &bytes).unwrap();
    let offset = |name: &str| csr::registers().iter().find(|r| r.1 == name).unwrap().0;
    npu.write_register(offset("PROGRAM_LOW"), 0x8_0000);
    npu.write_register(offset("PROGRAM_COUNT"), program.len() as u32);
    npu.write_register(offset("INTERRUPT_ENABLE"), 1);
    assert!(!npu.interrupt());
    npu.write_register(offset("DOORBELL"), 1);
    assert!(npu.interrupt() && npu.read_register(offset("STATUS")) == 1);
    assert_eq!(u64::from(npu.read_register(offset("CYCLES_LOW"))), report.cycles);
    npu.write_register(offset("INTERRUPT"), 1);
    assert!(!npu.interrupt());
    // One command further lies nothing.
    npu.write_register(offset("PROGRAM_COUNT"), program.len() as u32 + 1);
    npu.write_register(offset("DOORBELL"), 1);
    assert_eq!(npu.read_register(offset("STATUS")), 3);
    assert_eq!(npu.read_register(offset("ERROR_COMMAND")), program.len() as u32);
    assert!(npu.csr().error.as_ref().unwrap().to_string().contains("cannot be fetched"));
}

#[test]
fn the_page_and_the_header_are_those_of_the_table() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let page = std::fs::read_to_string(format!("{root}/docs/npu-registers.md")).unwrap();
    assert!(page.contains(&csr::markdown()), "write docs/npu-registers.md anew: magpie registers");
    let header = std::fs::read_to_string(format!("{root}/hw/sv/magpie_csr.svh")).unwrap();
    assert_eq!(header, csr::header(), "write hw/sv/magpie_csr.svh anew: magpie registers --sv");
}

/// A short program whose waits are all signalled by earlier commands; a counter is waited for by one engine alone, so that nobody
/// takes a token that was meant for another.
fn ordered_program() -> impl Strategy<Value = Vec<Command>> {
    let step = (0u32..4, 0u32..16, 0u32..16, any::<u32>(), any::<bool>());
    prop::collection::vec(step, 1..40).prop_map(|steps| {
        let mut tokens = [0u32; 32];
        let mut program = Vec::new();
        for (kind, from, to, pick, signals) in steps {
            let mine = |t: usize| t % 4 == kind as usize && tokens[t] > 0 && pick & 3 != 0;
            let wait = (0..32).map(|t| (t + pick as usize) % 32).find(|t| mine(*t)).map_or(0, |t| 1u32 << t);
            let signal = if signals { 1u32 << (pick >> 8 & 31) } else { 0 };
            (0..32).for_each(|t| {
                tokens[t] -= wait >> t & 1;
                tokens[t] += signal >> t & 1;
            });
            let (x, y) = (Rows::packed(bank(from), 64), Rows::packed(bank(to), 64));
            let op = match kind {
                0 => Op::Vector(RowOp { op: Vector::ToBf16, rows: 4, len: 16, x, y }),
                1 => Op::KvRaw {
                    rows: 8,
                    width: 16,
                    position: 0,
                    from: x,
                    tokens: Tokens { to: y, ..Tokens::default() },
                },
                2 => Op::Matmul(Matmul {
                    x: Rows::packed(bank(from), 32),
                    w: Rows::packed(bank(to), 32),
                    y: Rows::packed(bank(pick >> 16 & 15) + 0x8000, 64),
                    ..product(Mode::Gemm, 1 + (pick >> 20 & 7), 16, 16)
                }),
                _ => Op::Dma { chain: 0x2_0000 + 256 * u64::from(to), banks: 1 << to },
            };
            program.push(command(wait, signal, op));
        }
        program
    })
}

/// An NPU whose scratchpad and chains [`ordered_program`] can use.
fn furnished(depth: usize, latency: u64) -> Npu {
    let mut config = config();
    config.queue_depth = depth;
    (config.dram.hit_latency, config.dram.miss_latency, config.dram.write_latency) = (latency, latency + 7, latency);
    let mut npu = Npu::new(config, setup(KvMode::Raw)).unwrap();
    npu.memory_mut().dram.write(0, &[0; 4096]).unwrap();
    npu.memory_mut().scratch.write(0, 1 << 20).unwrap().fill(0);
    for to in 0..16 {
        load(&mut npu, 0x2_0000 + 256 * u64::from(to), 1024, 0, bank(to));
    }
    npu
}

proptest! {
    #[test]
    fn ordered_programs_end_at_any_depth(
        program in ordered_program(),
        depth in 1usize..9,
        latency in 1u64..300,
    ) {
        let report = furnished(depth, latency).run(&program).unwrap();
        let commands: u64 = report.counters.engines.iter().map(|e| e.commands).sum();
        prop_assert_eq!(commands, program.len() as u64);
        // A deeper queue never makes it slower by more than the order of grants can.
        let again = furnished(depth, latency).run(&program).unwrap();
        prop_assert_eq!(report, again);
    }

    #[test]
    fn wire_bytes_round_trip(program in ordered_program()) {
        for command in program {
            prop_assert_eq!(Command::decode(&command.encode()), Ok(command));
        }
    }

    #[test]
    fn wild_fields_are_refused(
        which in any::<prop::sample::Index>(),
        wild in prop::collection::vec((0usize..24, wild_value()), 1..4),
    ) {
        let sound = sound_commands();
        let mut vandal = Vandal { wild, at: 0 };
        if let Ok(command) = which.get(&sound).fields(&mut vandal) {
            let mut npu = furnished(2, 10);
            store_a_tile(&mut npu);
            let _ = npu.run(&[Command { wait: 0, ..command }]);
        }
    }
}

/// A tile for the KV commands to find.
fn store_a_tile(npu: &mut Npu) {
    let stream = Stream::default();
    let encode = Op::KvEncode { stream, tile: 0, from: Rows::packed(0, 32), to: bank(1) };
    npu.run(&[command(0, 1, encode), command(1, 0, Op::KvStore { stream, tile: 0, from: bank(1) })]).unwrap();
}

fn command_alone(op: Op) -> Command {
    command(0, 0, op)
}

/// One of every operation, all of which run on [`furnished`] after a tile was stored.
fn sound_commands() -> Vec<Command> {
    let (stream, from, to) = (Stream::default(), Rows::packed(0, 64), Rows::packed(bank(2), 64));
    let tokens = Tokens { to, transposed: true, rotated: true };
    let row = |op| Op::Vector(RowOp { op, rows: 4, len: 16, x: from, y: to });
    let scales = Rows::packed(bank(4), 64);
    let p = product(Mode::Gemv, 4, 16, 32);
    let formats = [
        Operands::Float(FloatFormat::BF16),
        Operands::Float(FloatFormat::E4M3),
        Operands::PerChannel(None),
        Operands::PerChannel(Some(FloatFormat::ffp8(true, 2, 1).unwrap())),
        Operands::PerGroup { format: None, group: 32 },
        Operands::PerGroup { format: Some(FloatFormat::E5M2), group: 16 },
        Operands::Stored(Block::Q40),
        Operands::Stored(Block::Q41),
        Operands::Stored(Block::Q80),
    ];
    let (x, w) = (Rows::packed(bank(0), 64), Rows::packed(bank(1), 1024));
    let (x_scales, w_scales) = (bank(5), bank(6));
    let products = formats.map(|operands| Op::Matmul(Matmul { operands, x, w, x_scales, w_scales, ..p }));
    let others = [
        Op::Dma { chain: 0x2_0000, banks: 1 },
        Op::KvLoad { stream, first: 0, tiles: 1, to: bank(2) },
        Op::KvStore { stream, tile: 0, from: bank(1) },
        Op::KvEncode { stream, tile: 1, from: Rows::packed(0, 32), to: bank(2) },
        Op::KvDecode { stream, first: 0, tiles: 1, from: bank(1), tokens },
        Op::KvRaw { rows: 4, width: 16, position: 3, from, tokens },
        row(Vector::RmsNorm { weight: bank(5), epsilon: 1e-5f32.to_bits(), bf16: true }),
        row(Vector::Quantize { codes: Codes::Int8, group: 0, scales }),
        row(Vector::Quantize { codes: Codes::Float(FloatFormat::E4M3), group: 8, scales }),
        row(Vector::Softmax { scale: 1f32.to_bits(), visible: 3, step: 1 }),
        row(Vector::Rope { position: 9, step: 1 }),
        row(Vector::SwiGlu { up: from }),
        row(Vector::Add { b: from }),
        row(Vector::ToBf16),
        row(Vector::ToFp32),
        row(Vector::Argmax),
    ];
    products.into_iter().chain(others).map(command_alone).collect()
}

#[test]
fn every_operation_runs() {
    for command in sound_commands() {
        let mut npu = furnished(2, 10);
        store_a_tile(&mut npu);
        npu.run(&[command]).unwrap();
        assert_eq!(Command::decode(&command.encode()), Ok(command));
    }
}

/// Puts values of its own into some fields.
struct Vandal {
    wild: Vec<(usize, u64)>,
    at: usize,
}

impl Fields for Vandal {
    fn field(&mut self, _: &'static str, bytes: usize, value: u64) -> u64 {
        self.at += 1;
        let wild = self.wild.iter().find(|(at, _)| *at + 1 == self.at);
        wild.map_or(value, |(_, wild)| wild & (u64::MAX >> (64 - 8 * bytes)))
    }
}

fn wild_value() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0u64..200,
        (0u32..64, 0u64..3).prop_map(|(bit, off)| (1u64 << bit).wrapping_add(off).wrapping_sub(1)),
        (0u64..20).prop_map(|at| at << 16),
    ]
}
