//! The whole NPU runs a tiny program: two loads, a product, a sum in place, raw tokens, a store.

use super::Showcase;
use crate::wave::{Colour, Radix, Trace, View, WaveError};
use npu::clocked::{Npu, Session};
use npu::dma::{Descriptor, Element, Side};
use npu::isa::{Command, Engine, Matmul, Mode, Op, Operands, RowOp, Rows, Tokens, Vector};
use npu::{Config, KvSetup, SCRATCHPAD_REGION};
use numeric::FloatFormat;

pub(super) const NPU: Showcase = Showcase {
    name: "npu",
    about: "queues, tokens and engines: loads, a product, a sum, raw tokens and a store behind each other",
    scopes: &[
        "npu.tokens",
        "npu.dma.queue",
        "npu.dma.lane",
        "npu.mvp.queue",
        "npu.mvp.lane",
        "npu.mvp.setting_0.results.row",
        "npu.vector.queue",
        "npu.vector.lane",
        "npu.nkz.queue",
        "npu.nkz.lane",
        "npu.nkz.raw",
    ],
    run,
};

/// Where the chains lie.
const CHAINS: u64 = 0x1000;

fn small() -> Config {
    let mut config = Config { queue_depth: 2, vector_lanes: 8, ..Config::default() };
    (config.array.rows, config.array.cols, config.array.depth) = (4, 4, 16);
    (config.dram.hit_latency, config.dram.miss_latency, config.dram.write_latency) = (12, 20, 12);
    (config.dram.reads_in_flight, config.dram.bytes) = (4, 1 << 20);
    (config.scratchpad.bytes, config.scratchpad.banks) = (1 << 14, 8);
    (config.codec.decoders, config.codec.values) = (1, 8);
    config
}

fn setup() -> KvSetup {
    KvSetup {
        sequences: 1,
        layers: 1,
        heads: 1,
        head_dim: 8,
        keys: nkz::Mode::Raw,
        values: nkz::Mode::Raw,
        tables: Vec::new(),
        context: 32,
        pages: 1 << 16,
        frequencies: vec![1.0, 0.1, 0.01, 0.001],
        interleaved: false,
    }
}

/// First byte of a bank.
fn bank(number: u32) -> u32 {
    number << 11
}

/// A chain of one move of 256 bytes.
fn chain(npu: &mut Npu, number: u64, source: (u8, u64), destination: (u8, u64)) -> Result<Op, npu::Fault> {
    let side = |(region, offset): (u8, u64)| Side { region, offset: offset as i64, strides: [0, 0, 1], index: None };
    let job = Descriptor {
        element: Element::B1,
        counts: [1, 1, 256],
        source: side(source),
        destination: side(destination),
        ..Descriptor::default()
    };
    let at = CHAINS + 256 * number;
    npu.memory_mut().dram.write(at, &job.encode())?;
    let (source, destination) = (source.1 / 2048, destination.1 / 2048);
    Ok(Op::Dma { chain: at, banks: 1 << if number < 2 { destination } else { source } })
}

fn program(npu: &mut Npu) -> Result<Vec<Command>, npu::Fault> {
    let one: Vec<u8> = (0..512u32).flat_map(|i| (0x3f80 + (i % 8) as u16).to_le_bytes()).collect();
    npu.memory_mut().dram.write(0, &one)?;
    let place = |number| (SCRATCHPAD_REGION, u64::from(bank(number)));
    let first = chain(npu, 0, (0, 0), place(0))?;
    let second = chain(npu, 1, (0, 256), place(1))?;
    let store = chain(npu, 2, place(2), (0, 0x8000))?;
    let product = Op::Matmul(Matmul {
        mode: Mode::Gemm,
        operands: Operands::Float(FloatFormat::BF16),
        m: 8,
        n: 8,
        k: 8,
        x: Rows::packed(bank(0), 16),
        x_scales: 0,
        w: Rows::packed(bank(1), 16),
        w_scales: 0,
        y: Rows::packed(bank(2), 32),
        y_bf16: false,
    });
    let y = Rows::packed(bank(2), 32);
    let sum = Op::Vector(RowOp { op: Vector::Add { b: y }, rows: 8, len: 8, x: y, y });
    let tokens = Tokens { to: Rows::packed(bank(3), 32), transposed: true, rotated: true };
    let raw = Op::KvRaw { rows: 16, width: 8, position: 0, from: Rows::packed(bank(0), 16), tokens };
    let command = |wait, signal, op| Command { wait, signal, tag: 0, op };
    Ok(vec![
        command(0, 0b1001, first),
        command(0, 0b0010, second),
        command(0b0011, 0b0100, product),
        command(0b1000, 0, raw),
        command(0b0100, 0b1_0000, sum),
        command(0b1_0000, 0, store),
    ])
}

fn run(trace: &mut Trace) -> Result<View, WaveError> {
    let mut npu = Npu::new(small(), setup()).expect("the sizes are legal");
    let program = program(&mut npu).expect("the places lie in their memories");
    npu.prepare(&program).expect("the array takes the product");
    let mut session = Session::new(&npu, &program);
    loop {
        trace.sample(session.cycle(), &mut npu)?;
        if !session.step(&mut npu).expect("every wait is signalled") {
            break;
        }
    }
    let mut view = View::new("npu");
    let colours = [Colour::Green, Colour::Red, Colour::Violet, Colour::Orange];
    for (engine, colour) in Engine::ALL.into_iter().zip(colours) {
        let name = engine.name();
        view.group(name, |v| {
            v.signal("queued", &format!("npu.{name}.queue.level_q"), 2, Radix::Unsigned, colour);
            v.signal("busy", &format!("npu.{name}.lane.busy_q"), 1, Radix::Bit, colour);
            v.signal("command", &format!("npu.{name}.lane.running.number_q"), 32, Radix::Unsigned, colour);
            v.signal("banks of the last command", &format!("npu.{name}.lane.banks_q"), 64, Radix::Hex, colour);
            v.signal("turn", &format!("npu.{name}.lane.phase_q"), 8, Radix::Unsigned, colour);
        });
    }
    view.group("tokens", |v| {
        for (t, name) in [
            "first load, to product",
            "second load, to product",
            "product, to sum",
            "first load, to raw rows",
            "sum, to store",
        ]
        .into_iter()
        .enumerate()
        {
            v.signal(name, &format!("npu.tokens.token_q_{t}"), 16, Radix::Unsigned, Colour::Yellow);
        }
    });
    view.group("progress", |v| {
        v.signal("row of Y written", "npu.mvp.setting_0.results.row.slot_q", 32, Radix::Unsigned, Colour::Red);
        v.signal("raw values read", "npu.nkz.raw.read_q", 57, Radix::Unsigned, Colour::Orange);
    });
    let names = ["load", "second_load", "product", "raw_rows", "sum", "store"];
    session.spans.iter().for_each(|span| view.marker(names[span.command], span.start));
    Ok(view)
}
