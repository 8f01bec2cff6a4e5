//! The waveform writer against the `vcd` crate on the same changes, and what a trace costs a run.

use rtl::{Format, Module, Role, Visitor, mask};
use std::hint::black_box;
use std::io::{self, BufWriter, Write};
use tb::ratio::{PAIRS, Ratio, Target, compare};
use tb::wave::{Backend, Kind, Trace, TraceOptions, Tracer, VarId, Vcd};

/// Widths of a processing element's registers: valid, swap, activation, two weights, partial sum.
const WIDTHS: [u32; 6] = [1, 1, 8, 8, 8, 32];

/// A mesh of 16×16 elements with such registers, all of which may change every cycle.
struct Mesh {
    values: Vec<[u32; 6]>,
}

impl Mesh {
    fn new() -> Self {
        Self { values: (0..256).map(|i| [i; 6]).collect() }
    }
}

impl Module for Mesh {
    type In<'a> = u32;
    type Out<'a> = u32;
    fn out(&self) -> u32 {
        self.values[255][5]
    }
    fn clock(&mut self, input: &u32) {
        let mut carry = *input;
        for element in &mut self.values {
            for (value, width) in element.iter_mut().zip(WIDTHS) {
                carry = carry.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *value = carry >> (32 - width);
            }
        }
    }
    fn reset(&mut self) {}
    fn visit(&mut self, v: &mut impl Visitor) {
        for (i, [valid, swap, activation, weight, shadow, psum]) in self.values.iter_mut().enumerate() {
            v.scope(("pe", i / 16, i % 16), |v| {
                v.reg("valid_q", 1, Format::Unsigned, valid);
                v.reg("swap_q", 1, Format::Unsigned, swap);
                v.reg("activation_q", 8, Format::Signed, activation);
                v.reg("weight_q", 8, Format::Signed, weight);
                v.reg("shadow_q", 8, Format::Signed, shadow);
                v.reg("psum_q", 32, Format::Signed, psum);
            });
        }
    }
}

fn changes() -> Vec<(u32, u32, u64)> {
    let mut state = 1u64;
    (0..200_000u32)
        .map(|i| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let var = i % (6 * 256);
            let width = WIDTHS[var as usize % 6];
            (var, width, state >> 20 & mask(width))
        })
        .collect()
}

fn ours<W: Write>(sink: W, changes: &[(u32, u32, u64)]) -> Vcd<W> {
    let mut vcd = Vcd::new(sink);
    for var in 0..6 * 256 {
        vcd.declare("x", Role::Register, Kind::Bits(WIDTHS[var % 6]));
    }
    for &(var, width, value) in changes {
        vcd.bits(VarId(var), width, value);
    }
    vcd
}

/// The crate's own way, spared the leading zeros that ours leaves out.
fn theirs(sink: impl Write, changes: &[(u32, u32, u64)]) -> io::Result<()> {
    let mut vcd = vcd::Writer::new(BufWriter::new(sink));
    for &(var, width, value) in changes {
        let id = vcd::IdCode::from(var);
        if width == 1 {
            vcd.change_scalar(id, value == 1)?;
        } else {
            let digits = (64 - value.leading_zeros()).max(1);
            vcd.change_vector(id, (0..digits).rev().map(|b| vcd::Value::from(value >> b & 1 == 1)))?;
        }
    }
    vcd.flush()
}

fn run(cycles: u64, mut tracer: impl Tracer) -> f64 {
    let mut mesh = Mesh::new();
    for cycle in 0..cycles {
        tracer.sample(cycle, &mut mesh).expect("a sink takes everything");
        let seed = mesh.out();
        mesh.clock(&seed);
    }
    black_box(mesh.out());
    cycles as f64
}

fn untraced(cycles: u64) -> f64 {
    let mut mesh = Mesh::new();
    for _ in 0..cycles {
        let seed = mesh.out();
        mesh.clock(&seed);
    }
    black_box(mesh.out());
    cycles as f64
}

fn trace(scopes: &[&str], window: std::ops::Range<u64>) -> Trace<Vcd<io::Sink>> {
    let scopes = scopes.iter().map(|s| (*s).into()).collect();
    let options = TraceOptions { scopes, window, ..TraceOptions::default() };
    Trace::with_backend(Vcd::new(io::sink()), "array", &options).expect("the patterns are good")
}

fn main() {
    println!("{}", Ratio::header());
    let list = changes();

    let (mut a, mut b) = (ours(Vec::new(), &list), Vec::new());
    a.finish(0).expect("memory takes everything");
    theirs(&mut b, &list).expect("memory takes everything");
    let a = a.into_inner();
    assert!(a[a.len() - 4 - b.len() + 1..].starts_with(&b[..b.len() - 1]), "both write the same lines");

    let n = list.len() as f64;
    let mut fast = || {
        black_box(ours(io::sink(), &list));
        n
    };
    let mut slow = || {
        theirs(io::sink(), &list).expect("a sink takes everything");
        n
    };
    let pairs = 2 * PAIRS + 1;
    println!(
        "{}",
        compare("VCD changes", "changes", ("Vcd", &mut fast), ("vcd crate", &mut slow), pairs, Target::AtLeast(10.0))
    );

    const CYCLES: u64 = 20_000;
    let mut plain = || untraced(CYCLES);
    let mut off = || run(CYCLES, ());
    println!(
        "{}",
        compare(
            "trace off: ()",
            "cycles",
            ("off", &mut off),
            ("no trace in the code", &mut plain),
            pairs,
            Target::AtLeast(0.97)
        )
    );
    let mut none = || run(CYCLES, None::<Trace>);
    println!(
        "{}",
        compare(
            "trace off: None",
            "cycles",
            ("off", &mut none),
            ("no trace in the code", &mut plain),
            pairs,
            Target::AtLeast(0.97)
        )
    );
    let mut outside = || run(CYCLES, trace(&[], u64::MAX - 1..u64::MAX));
    println!(
        "{}",
        compare(
            "outside the window",
            "cycles",
            ("trace", &mut outside),
            ("no trace in the code", &mut plain),
            pairs,
            Target::AtLeast(0.9)
        )
    );
    let mut one = || run(CYCLES, trace(&["array.pe_3_5"], 0..u64::MAX));
    println!(
        "{}",
        compare(
            "1 of 256 scopes",
            "cycles",
            ("trace", &mut one),
            ("no trace in the code", &mut plain),
            pairs,
            Target::None
        )
    );
    let mut all = || run(CYCLES / 20, trace(&[], 0..u64::MAX));
    println!(
        "{}",
        compare(
            "all 256 scopes",
            "cycles",
            ("trace", &mut all),
            ("no trace in the code", &mut plain),
            pairs,
            Target::None
        )
    );
}
