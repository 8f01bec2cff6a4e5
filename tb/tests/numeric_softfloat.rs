//! Berkeley SoftFloat as a live oracle: values and flags of every operation that it shares with us.
//!
//! `cargo test --release -p tb --features softfloat --test numeric_softfloat`; `NUMERIC_CASES` sets the number of
//! random cases per operation.

use numeric::{Flags, FloatFormat, Format, MacConfig, Mode, convert, fma};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use softfloat_wrapper::{ExceptionFlags, F16, F32, Float, RoundingMode};
use std::io::Write;
use tb::blocks::numeric::{
    softfloat::{OPERATIONS, Operation},
    stimulus,
};

fn cases(default: u64) -> u64 {
    std::env::var("NUMERIC_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// Result and flags by SoftFloat, whose flags and rounding mode are the thread's own.
fn softfloat(operation: &Operation, x: &[u32]) -> (u32, Flags) {
    let rounding = match operation.mode.rounding {
        numeric::Rounding::NearestEven => RoundingMode::TiesToEven,
        numeric::Rounding::TowardZero => RoundingMode::TowardZero,
    };
    ExceptionFlags::default().set();
    let f32 = |i: usize| F32::from_bits(x[i]);
    let f16 = |i: usize| F16::from_bits(x[i] as u16);
    let bf16 = |i: usize| F32::from_bits(x[i] << 16);
    let result = match operation.name.trim_end_matches("_rtz") {
        "f32_add" => f32(0).add(f32(1), rounding).to_bits(),
        "f32_mul" => f32(0).mul(f32(1), rounding).to_bits(),
        "f32_fma" => f32(0).fused_mul_add(f32(1), f32(2), rounding).to_bits(),
        "f16_add" => f16(0).add(f16(1), rounding).to_bits() as u32,
        "f16_mul" => f16(0).mul(f16(1), rounding).to_bits() as u32,
        "f16_fma_f32" => f16(0).to_f32(rounding).fused_mul_add(f16(1).to_f32(rounding), f32(2), rounding).to_bits(),
        "bf16_fma_f32" => bf16(0).fused_mul_add(bf16(1), f32(2), rounding).to_bits(),
        "f32_to_f16" => f32(0).to_f16(rounding).to_bits() as u32,
        "f16_to_f32" => f16(0).to_f32(rounding).to_bits(),
        "f32_to_i32" => f32(0).to_i32(rounding, true) as u32,
        "i32_to_f32" => F32::from_i32(x[0] as i32, rounding).to_bits(),
        "i32_to_f16" => F16::from_i32(x[0] as i32, rounding).to_bits() as u32,
        name => panic!("SoftFloat has no {name}"),
    };
    let mut flags = ExceptionFlags::default();
    flags.get();
    (result, Flags::from_bits(flags.to_bits()))
}

fn operands(operation: &Operation, rng: &mut Xoshiro256PlusPlus) -> Vec<u32> {
    let (a, b, c) = stimulus::triple(rng);
    let directed = if rng.random_bool(0.5) { [a, b, c] } else { [a, c, b] };
    let mut operands = Vec::new();
    for (format, code) in operation.operands.iter().zip(directed) {
        operands.push(match format {
            Format::Int(_) => stimulus::int32(rng) as u32,
            Format::Float(FloatFormat::FP32) => code,
            _ if rng.random_bool(0.3) => rng.random::<u32>() & 0xffff,
            to => convert(FloatFormat::FP32.into(), *to, code, Mode::IEEE, &mut Flags::default()),
        });
    }
    operands
}

fn same(operation: &Operation, x: &[u32]) {
    let mut want = softfloat(operation, x);
    if operation.name.starts_with("f32_to_i32") && f32::from_bits(x[0]).is_nan() {
        want.0 = 0; // docs/numeric.md: a NaN becomes the integer 0
    }
    let core = operation.core(x).expect("a known operation");
    assert_eq!(core, want, "{} {x:08x?}", operation.name);
    if let Some(steps) = operation.steps(x).expect("a known operation") {
        assert_eq!(steps, want, "{} {x:08x?}, hardware steps", operation.name);
    }
}

#[test]
fn every_operation_gives_softfloats_bits_and_flags() {
    for operation in OPERATIONS {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(0x50f7);
        for _ in 0..cases(200_000) {
            same(operation, &operands(operation, &mut rng));
        }
        println!("{}: {} cases", operation.name, cases(200_000));
    }
}

#[test]
fn every_fp16_code_is_converted_alike() {
    let operation = OPERATIONS.iter().find(|o| o.name == "f16_to_f32").expect("in the list");
    (0..=0xffff).for_each(|code| same(operation, &[code]));
}

/// All 2^24 triples of both FP8 formats; c widened to FP32.
#[test]
fn every_fp8_triple_gives_softfloats_bits_and_flags() {
    let operation = OPERATIONS.iter().find(|o| o.name == "f32_fma").expect("in the list");
    for format in [FloatFormat::E4M3, FloatFormat::E5M2] {
        let mac = MacConfig::new(format, format, 4).expect("a MAC of four stages");
        // SoftFloat gets the widened operands, so signalling codes must not lose their signal on the way.
        let widened: Vec<u32> = (0..=255)
            .map(|code| match format.unpack(code) {
                numeric::Unpacked::Nan { signaling: true } => 0x7f80_0001,
                _ => convert(format.into(), FloatFormat::FP32.into(), code, Mode::IEEE, &mut Flags::default()),
            })
            .collect();
        for (a, x) in (0..).zip(&widened) {
            for (b, y) in (0..).zip(&widened) {
                for z in &widened {
                    let want = softfloat(operation, &[*x, *y, *z]);
                    let mut flags = Flags::NONE;
                    let core = (fma(format, a, format, b, *z, &mut flags), flags);
                    let steps = mac.compute(a, b, *z);
                    assert_eq!(core, want, "{format} {a:#x} × {b:#x} + {z:#010x}");
                    assert_eq!((steps.value, steps.flags), want, "{format} {a:#x} × {b:#x} + {z:#010x}, steps");
                }
            }
        }
        println!("{format}: 16777216 triples");
    }
}

/// Writes tb/data/numeric/softfloat.txt anew: run it by name, with `--ignored`, when an operation is added.
#[test]
#[ignore = "writes the committed vectors"]
fn write_vectors() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/data/numeric/softfloat.txt");
    let mut out = std::fs::File::create(path).expect("the data folder");
    for operation in OPERATIONS {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2104);
        let count = if operation.operands.len() == 3 { 600 } else { 250 };
        for _ in 0..count {
            let x = operands(operation, &mut rng);
            let (result, flags) = softfloat(operation, &x);
            let words: String = x.iter().map(|w| format!("{w:x} ")).collect();
            writeln!(out, "{} {words}{result:x} {:x}", operation.name, flags.bits()).expect("a writable file");
        }
    }
}
