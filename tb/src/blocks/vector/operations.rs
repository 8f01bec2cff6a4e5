//! The operations against a plain reference in binary64, with derived bounds, and their corners.

use super::driver::{Bench, Operands};
use super::reference;
use crate::verify::Case;
use numeric::{Flags, FloatFormat, Format};
use rand::RngExt;
use vector::transaction::{self as engine, Mask};
use vector::{Algorithm, Command, Config, Masking, Op, Pairing, Ramp};

/// 2^−24: half a unit in the last place of 1.
const HALF_UNIT: f64 = 1.0 / 16_777_216.0;

fn values(case: &mut Case, n: usize, size: f32) -> Vec<f32> {
    (0..n).map(|_| case.rng.random_range(-size..size)).collect()
}

fn config(case: &mut Case) -> anyhow::Result<Config> {
    Ok(Config::new(8 << case.rng.random_range(0..4))?)
}

/// A sum of n terms in any order is off by at most n roundings of it; the mean, ε, the root (0.52 units) and two products add five.
pub(super) fn rms_norm(case: &mut Case) -> anyhow::Result<()> {
    let config = config(case)?;
    let len = [1, 576].get(case.index).copied().unwrap_or_else(|| case.rng.random_range(1..2000));
    let rows = case.rng.random_range(1..4);
    let size = 10f32.powi(case.rng.random_range(-6..7));
    let (x, w) = (values(case, len * rows, size), values(case, len, 2.0));
    let mut y = vec![0.0; x.len()];
    engine::rms_norm(&config, &x, &w, 1e-5, &mut y)?;
    let terms = (len / (4 * config.lanes) + 10) as f64;
    for (x, y) in x.chunks_exact(len).zip(y.chunks_exact(len)) {
        for (exact, y) in reference::rms_norm(x, &w, 1e-5).iter().zip(y) {
            case.within(
                "rmsnorm",
                (f64::from(*y) - exact).abs(),
                exact.abs() * (terms / 2.0 + 6.0) * HALF_UNIT * 2.0 + 1e-45,
            );
        }
    }
    Ok(())
}

/// Scores are scaled with one rounding, so an exponential is off by |z|·2^−24 and its own unit; the sum by one rounding a level and
/// term; reciprocal and product by another two.
pub(super) fn softmax(case: &mut Case) -> anyhow::Result<()> {
    let config = config(case)?;
    let algorithm = [Algorithm::ThreePass, Algorithm::Online][case.index % 2];
    let kind = ["none", "count", "keep", "all"][case.index / 2 % 4];
    let (len, rows) = (case.rng.random_range(1..700), case.rng.random_range(1..5));
    let (scale, spread) = (case.rng.random_range(0.01f32..1.0), case.rng.random_range(1f32..60.0));
    let mut x = values(case, len * rows, spread);
    let count = Ramp { first: case.rng.random_range(0..len), every: 1, wrap: 3 };
    let keep: Vec<bool> = match kind {
        "none" => vec![true; x.len()],
        "count" => reference::ramp(count, rows).iter().flat_map(|&n| (0..len).map(move |i| i < n)).collect(),
        "keep" => (0..x.len()).map(|_| case.rng.random_bool(0.6)).collect(),
        _ => vec![false; x.len()],
    };
    let mask = match kind {
        "none" => Mask::None,
        "count" => Mask::Count(count),
        _ => Mask::Keep(&keep),
    };
    // What is masked may be anything.
    for (x, keep) in x.iter_mut().zip(&keep) {
        if !keep && case.rng.random_bool(0.2) {
            *x = [f32::NAN, f32::INFINITY, 1e30][case.rng.random_range(0..3)];
        }
    }
    let mut y = vec![0.0; x.len()];
    engine::softmax(&config, algorithm, len, scale, mask, &x, &mut y)?;
    let name = if algorithm == Algorithm::Online { "online" } else { "three_pass" };
    case.cover("softmax", &[("algorithm", name), ("mask", kind)]);
    let depth = (len / (4 * config.lanes) + 10) as f64;
    let online = if algorithm == Algorithm::Online { 2.0 * depth } else { 0.0 };
    for (row, (x, y)) in x.chunks_exact(len).zip(y.chunks_exact(len)).enumerate() {
        let keep = &keep[row * len..][..len];
        for ((exact, y), (x, keep)) in reference::softmax(x, scale, keep).iter().zip(y).zip(x.iter().zip(keep)) {
            if !keep {
                case.equal("masked", 0, y.to_bits());
                continue;
            }
            let distance = f64::from(x.abs()) * f64::from(scale) + f64::from(spread) * f64::from(scale);
            let bound = exact * (3.0 * distance + depth + online + 8.0) * HALF_UNIT * 2.0 + 3e-45;
            case.within(name, (f64::from(*y) - exact).abs(), bound);
        }
    }
    Ok(())
}

/// Sine and cosine are within 6.2e−8, and three roundings follow.
pub(super) fn rope(case: &mut Case) -> anyhow::Result<()> {
    let pairing = [Pairing::Halves, Pairing::Interleaved][case.index % 2];
    let half = case.rng.random_range(1..=64);
    let base = [1e4f64, 1e5][case.rng.random_range(0..2)];
    let frequencies: Vec<f32> = (0..half).map(|i| base.powf(-(i as f64) / half as f64) as f32).collect();
    let positions = Ramp { first: case.rng.random_range(0..100_000), every: 2, wrap: 5 };
    let rows = 12;
    let at = reference::ramp(positions, rows);
    let x = values(case, 2 * half * rows, 8.0);
    let mut y = vec![0.0; x.len()];
    engine::rope(pairing, positions, &frequencies, &x, &mut y)?;
    // The rotate unit: from BF16 to BF16.
    let codes: Vec<u16> = x.iter().map(|x| (x.to_bits() >> 16) as u16).collect();
    let cut: Vec<f32> = codes.iter().map(|code| f32::from_bits(u32::from(*code) << 16)).collect();
    let (mut exact, mut turned, mut rounded) = (vec![0.0; x.len()], vec![0; x.len()], vec![0; x.len()]);
    engine::rope(pairing, positions, &frequencies, &cut, &mut exact)?;
    engine::rope_bf16(pairing, positions, &frequencies, &codes, &mut turned)?;
    for (code, bits) in rounded.iter_mut().zip(exact.iter().map(|value| value.to_bits())) {
        *code = ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16; // half to even
    }
    case.equal_slices("from BF16 to BF16", &turned, &rounded);
    let name = if pairing == Pairing::Halves { "halves" } else { "interleaved" };
    case.cover("rope", &[("pairing", name)]);
    for (row, (x, y)) in x.chunks_exact(2 * half).zip(y.chunks_exact(2 * half)).enumerate() {
        for (exact, y) in reference::rope(pairing, at[row], &frequencies, x).iter().zip(y) {
            case.within(name, (f64::from(*y) - exact).abs(), 16.0 * (6.2e-8 + 2.0 * HALF_UNIT));
        }
    }
    Ok(())
}

/// silu(g)·u: silu is within four units where its exponential is normal, the product adds half a unit.
pub(super) fn gates(case: &mut Case) -> anyhow::Result<()> {
    let n = case.rng.random_range(1..3000);
    let (g, u) = (values(case, n, 60.0), values(case, n, 4.0));
    let mut y = vec![0.0; n];
    engine::swiglu(&g, &u, &mut y)?;
    for ((g, u), y) in g.iter().zip(&u).zip(&y) {
        let exact = reference::silu(*g) * f64::from(*u);
        case.within("swiglu", (f64::from(*y) - exact).abs(), exact.abs() * 10.0 * HALF_UNIT + 1e-44);
    }
    Ok(())
}

/// The first of the largest, wherever NaNs, ties and zeros of both signs stand.
pub(super) fn argmax(case: &mut Case) -> anyhow::Result<()> {
    let n = case.rng.random_range(1..1000);
    let mut x: Vec<f32> = (0..n).map(|_| f32::from(case.rng.random_range(-3i8..4))).collect();
    for x in &mut x {
        if case.rng.random_bool(0.1) {
            *x = [f32::NAN, f32::NEG_INFINITY, -0.0][case.rng.random_range(0..3)];
        }
    }
    let kind = ["mixed", "nan", "lowest", "infinite"][case.rng.random_range(0..4)];
    match kind {
        "nan" => x.fill(f32::NAN),
        "lowest" => x.fill(f32::NEG_INFINITY),
        "infinite" => x[n / 2] = f32::INFINITY,
        _ => {}
    }
    case.cover("argmax", &[("row", kind)]);
    let got = engine::argmax(&x)?;
    let (mut index, mut value) = (0, f32::NAN);
    for (i, x) in x.iter().enumerate() {
        if *x > value || value.is_nan() && !x.is_nan() {
            (index, value) = (i, *x);
        }
    }
    case.equal("index", index as u32, got.index);
    case.check(
        value == got.value || value.is_nan() && got.value.is_nan(),
        format_args!("{value} against {}", got.value),
    );
    Ok(())
}

/// Formats that take scales, and their largest numbers.
const SCALED: [(&str, f64); 6] = [
    ("int8", 127.0),
    ("int4", 7.0),
    ("e4m3", 448.0),
    ("e5m2", 57_344.0),
    ("ffp8:1,3,4,5", 7.75),
    ("ffp8:0,4,4,11", 31.0),
];

/// Every value comes back within half a step of its own size; the scale is the largest magnitude's.
pub(super) fn quantise(case: &mut Case) -> anyhow::Result<()> {
    let (name, largest) = SCALED[case.index % 6];
    let format: Format = name.parse()?;
    let grouped = case.rng.random_bool(0.5);
    let group = if grouped { 8 << case.rng.random_range(0..4) } else { case.rng.random_range(1..300) };
    let groups = case.rng.random_range(1..6);
    let len = group * groups;
    let size = 10f32.powi(case.rng.random_range(-20..20));
    let mut x = values(case, len, size);
    if name == "ffp8:0,4,4,11" {
        x.iter_mut().for_each(|x| *x = x.abs());
    }
    if groups > 2 {
        x[..group].fill(0.0);
    }
    let (mut codes, mut scales) = (vec![0u8; len], vec![0f32; groups]);
    let mut flags = Flags::default();
    let (len, group_of) = if grouped { (len, Some(group)) } else { (group, None) };
    engine::quantise(format, len, group_of, &x, &mut codes, &mut scales, &mut flags)?;
    case.cover("quantise", &[("format", name), ("scale", if grouped { "group" } else { "row" })]);
    let mut values = vec![0f32; x.len()];
    engine::decode(format, &codes, &mut values)?;
    for ((x, v), scale) in x.chunks_exact(group).zip(values.chunks_exact(group)).zip(&scales) {
        let most = x.iter().fold(0f64, |m, x| m.max(f64::from(x.abs())));
        let exact = if most == 0.0 { 1.0 } else { most / largest };
        case.within("scale", (f64::from(*scale) - exact).abs(), exact * 2.0 * HALF_UNIT * 1.5);
        for (x, v) in x.iter().zip(v) {
            let (x, back) = (f64::from(*x), f64::from(*v) * f64::from(*scale));
            let step = match format {
                Format::Int(_) => f64::from(*scale),
                Format::Float(f) => {
                    let exponent = (x.abs() / f64::from(*scale)).log2().floor().max(f64::from(f.emin()));
                    2f64.powf(exponent - f64::from(f.frac_bits())) * f64::from(*scale)
                }
            };
            case.within(name, (x - back).abs(), step / 2.0 + x.abs() * 4.0 * HALF_UNIT + most * 4.0 * HALF_UNIT);
        }
    }
    case.check(!flags.contains(Flags::INVALID), "finite values raised invalid");
    Ok(())
}

/// With a largest magnitude that makes the scale exactly 1, halves go to even codes; what is no number saturates or is zero.
pub(super) fn ties(case: &mut Case) -> anyhow::Result<()> {
    let x = [127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -126.5];
    let want = [127i8, 0, 2, 2, 0, -2, -2, 126, 0, 127, -127, -126];
    let fp32 = Format::Float(FloatFormat::FP32);
    if case.index == 0 {
        let (mut codes, mut scales, mut flags) = ([0i8; 12], [0f32; 1], Flags::default());
        engine::quantise("int8".parse()?, 12, None, &x, &mut codes, &mut scales, &mut flags)?;
        case.equal_slices("codes", &want, &codes);
        // Without what is no number, where the fast form does all of it.
        let (mut codes, mut scales) = ([0i8; 8], [0f32; 1]);
        engine::quantise("int8".parse()?, 8, None, &x[..8], &mut codes, &mut scales, &mut flags)?;
        case.equal_slices("finite codes", &want[..8], &codes);
        case.equal("scale", 1f32.to_bits(), scales[0].to_bits());
        case.check(flags.contains(Flags::INVALID), "a NaN raised nothing");
    } else {
        let command = Command { y: "int8".parse()?, a: fp32, ..Command::new(Op::Quantise { group: None }, 12, 1) };
        let operands = Operands { a: x.iter().map(|x| x.to_bits()).collect(), b: Vec::new() };
        let ran = Bench::new(Config::new(8)?)?.run(&command, &operands, None)?;
        let codes: Vec<i8> = ran.results.codes.iter().map(|code| *code as i8).collect();
        case.equal_slices("codes of the clocked unit", &want, &codes);
        // A whole row that is masked, on the clocked unit.
        let mask = Masking::Count(Ramp::constant(0));
        let op = Op::Softmax { algorithm: Algorithm::Online, scale: 1.0, mask };
        let ran = Bench::new(Config::new(8)?)?.run(&Command::new(op, 12, 1), &operands, None)?;
        case.equal_slices("a fully masked row", &[0; 12], &ran.results.codes);
    }
    Ok(())
}

/// Every code of each named format comes back as it was, through FP32 and the unit's own coder; wide ones at random.
pub(super) fn formats(case: &mut Case) -> anyhow::Result<()> {
    let (name, format) = Format::NAMED[case.index];
    case.label(name);
    let codes: Vec<u32> = match format.width() {
        width @ ..=16 => (0..1u32 << width).collect(),
        _ => (0..4096).map(|_| case.rng.random()).collect(),
    };
    let (mut values, mut back) = (vec![0f32; codes.len()], vec![0u32; codes.len()]);
    engine::decode(format, &codes, &mut values)?;
    engine::encode(format, &values, &mut back, &mut Flags::default())?;
    for ((code, value), back) in codes.iter().zip(&values).zip(&back) {
        // INT32 has more bits than FP32: its nearest FP32 must come back, and beyond its range its largest number.
        let want = match format {
            Format::Int(i) if i.width() == 32 => {
                case.equal("int32", *code as i32 as f32, *value);
                (*value as f64).clamp(-2_147_483_648.0, 2_147_483_647.0) as i32 as u32
            }
            Format::Float(f) if value.is_nan() => f.canonical_nan().unwrap_or(0),
            // Formats of 8 bits and less saturate.
            Format::Float(f) if value.is_infinite() && f.width() <= 8 => f.max_finite() | code & f.sign_mask(),
            _ => *code,
        };
        case.equal(name, want, back & format.code_mask());
    }
    case.stands_for(codes.len() as u64);
    Ok(())
}
