//! Bench of NeuKompression: encoder engines against a plain decoder and against each other, damage, and the cache.

mod archive;
mod clocked;
mod memory;
mod model;
mod plain;
mod sample;

use crate::verify::{Case, Test};
use nkz::{Encoded, Encoder, Error, Format, Header, Mode, STEP, Slot, TileIn};
use rand::{Rng, RngExt};
use sample::{MODES, OUTLIERS, Sample, bf16, value};

/// The tests of this block.
pub const TESTS: &[Test] = &[
    Test::new("nkz", "tables", 1, 0, tables),
    Test::new("nkz", "stream", 72, 300, stream),
    Test::new("nkz", "outliers", 8, 12, outliers),
    Test::new("nkz", "patterns", 1, 0, patterns).exhaustive(),
    Test::new("nkz", "bound", 0, 150, bound),
    Test::new("nkz", "flips", 6, 6, flips),
    Test::new("nkz", "hostile", 0, 20, hostile),
    Test::new("nkz", "size", 0, 100, size),
    Test::new("nkz", "encoder", 6, 40, clocked::encoder),
    Test::new("nkz", "decoder", 8, 40, clocked::decoder),
    Test::new("nkz", "cache", 6, 30, memory::cache),
    Test::new("nkz", "damage", 0, 20, memory::damage),
    Test::new("nkz", "model", 1, 0, model::kjv),
    Test::new("nkz", "archive", archive::CASES, 0, archive::archive),
];

/// Encodes a sample.
fn encode(s: &Sample, mode: Mode, bytes: &mut Vec<u8>) -> anyhow::Result<Encoded> {
    let tile = TileIn { address: s.address, values: &s.values, width: s.width, channels: Some(&s.channels) };
    Ok(Encoder::default().encode(&tile, mode, bytes)?)
}

fn slot(s: &Sample) -> Slot<'_> {
    Slot { address: s.address, width: s.width, channels: Some(&s.channels) }
}

/// The bench's tables, from their formulas, against the hardware's, which are written down.
fn tables(case: &mut Case) -> anyhow::Result<()> {
    for i in 0..16 {
        let pairs = [
            ("codes", plain::code_table(i), &nkz::code_tables()[i]),
            ("exponents", plain::exponent_table(i), &nkz::exponent_tables()[i]),
        ];
        for (name, expected, got) in pairs {
            let got: Vec<u32> = got.frequencies().map(u32::from).collect();
            case.equal_slices(format_args!("{name} {i}"), &expected.frequencies, &got);
        }
    }
    Ok(())
}

/// Every mode, fill and kind of outlier.
fn stream(case: &mut Case) -> anyhow::Result<()> {
    let pick = if case.random.is_none() { case.index } else { case.rng.random_range(0..72) };
    let name = MODES[pick % 6];
    let fill = ["one", "some", "full"][pick / 6 % 3];
    let outlier = OUTLIERS[pick / 18];
    let tokens = sample::tokens(&mut case.rng, fill);
    let s = Sample::new(&mut case.rng, tokens, outlier);
    let mode = sample::mode(&mut case.rng, name, s.width);
    let done = hold(case, &s, mode)?;
    let escape = if done.escapes > 0 { "some" } else { "none" };
    case.cover("tile", &[("mode", name), ("fill", fill), ("outlier", s.outlier), ("escape", escape)]);
    Ok(())
}

/// A tile in one mode: the plain decoder and the engine's see the same values, and those that the mode promises.
fn hold(case: &mut Case, s: &Sample, mode: Mode) -> anyhow::Result<Encoded> {
    let mut bytes = Vec::new();
    let done = encode(s, mode, &mut bytes)?;
    let mut out = vec![0; 32 * s.width];
    let overflow = slot(s).decode(&bytes, &mut out)?.overflow.is_some();
    out.truncate(s.values.len());
    let name = format!("{mode:?} as {:?}", done.header.format);
    if !overflow {
        let expected = plain::decode(&s.place(), &s.lines(), &bytes).unwrap_or_default();
        case.equal_slices(format_args!("{name}, decoded"), &expected, &out);
    }
    promise(case, s, mode, &done.header, &name, &out);
    Ok(done)
}

/// Holds a tile's format and decoded values to the plain quantiser.
fn promise(case: &mut Case, s: &Sample, mode: Mode, header: &Header, name: &str, out: &[u16]) {
    let lines = s.lines();
    let each = || s.values.iter().enumerate().map(|(i, &x)| (&lines[i % s.width], x));
    let coded = |qp| each().map(|(line, x)| plain::coded(line, qp, x)).collect::<Option<Vec<_>>>();
    let expected = match (header.format, mode) {
        (Format::Raw, Mode::Raw | Mode::Lossless | Mode::Entropy { .. }) | (Format::Lossless, Mode::Lossless) => {
            Some(s.values.clone())
        }
        (Format::Lossless, Mode::Entropy { qp }) if coded(qp).is_none() => Some(s.values.clone()),
        (Format::Entropy, Mode::Entropy { qp }) if header.qp == qp => coded(qp),
        (Format::Slot, Mode::Slot { .. }) => coded(header.qp),
        // A place elsewhere, and no values here.
        (Format::Overflow, Mode::Slot { .. }) if coded(63).is_none() => return,
        (Format::Mean, Mode::Slot { .. }) if coded(63).is_none() => None,
        (Format::Mean, Mode::Slot { .. } | Mode::Mean) => Some(each().map(|(line, _)| line.mean).collect()),
        (Format::Fixed, Mode::Fixed { qp }) => {
            let (values, clamped): (Vec<_>, Vec<_>) = each().map(|(line, x)| plain::fixed(line, qp, x)).unzip();
            let flags = if clamped.contains(&true) { Header::CLAMPED } else { 0 };
            case.equal(format_args!("{name}, flags"), flags, header.flags);
            Some(values)
        }
        _ => None,
    };
    match expected {
        Some(expected) => _ = case.equal_slices(format_args!("{name}, values"), &expected, out),
        None => _ = case.check(false, format_args!("{name}: this tile has no such form")),
    }
}

/// Residuals about the largest code of whole octaves and about the limit, by their distance to 2^23 units.
const LEVELS: [(&str, i32); 6] = [("inside", 129), ("code", 128), ("below", 2), ("at", 1), ("beyond", -1), ("far", 0)];

/// Finite outliers at each fraction of an octave, one a tile: those that a code cannot bring back within its bound are never coded.
fn outliers(case: &mut Case) -> anyhow::Result<()> {
    let fraction = case.index % 8;
    for (level, units) in LEVELS {
        for negative in [false, true] {
            for name in ["entropy", "slot", "fixed"] {
                let tokens = case.rng.random_range(1..=8);
                let mut s = Sample::new(&mut case.rng, tokens, "none");
                let qp = (fraction % 2 + 2 * case.rng.random_range(0..10)) as u8;
                let at = case.rng.random_range(0..s.values.len());
                let line = &mut s.channels[at % s.width];
                line.step = -16 + ((fraction as i8 - qp as i8) / 2).rem_euclid(4);
                let e = 2 * i32::from(line.step) + i32::from(qp);
                let unit = 2f64.powi(e.div_euclid(8) - 8) * if negative { -1.0 } else { 1.0 };
                line.mean = bf16(f64::from(units) * unit);
                s.values[at] = bf16(2f64.powi(if level == "far" { 120 } else { 23 }) * unit);
                let mode = match name {
                    "entropy" => Mode::Entropy { qp },
                    _ => sample::mode(&mut case.rng, name, s.width),
                };
                hold(case, &s, mode)?;
                case.cover("outlier", &[("level", level), ("fraction", &fraction.to_string()), ("mode", name)]);
            }
        }
    }
    Ok(())
}

/// Every 16-bit pattern through the lossless mode, with tables and without.
fn patterns(case: &mut Case) -> anyhow::Result<()> {
    let base = Sample::new(&mut case.rng, 32, "none");
    let patterns: Vec<u16> = (0..=u16::MAX).collect();
    for (n, values) in patterns.chunks(2048).enumerate() {
        for channels in [None, Some(vec![nkz::Channel::default(); 64])] {
            let address = nkz::Address { tile: n as u32, ..base.address };
            let tile = TileIn { address, values, width: 64, channels: channels.as_deref() };
            let (mut bytes, mut out) = (Vec::new(), vec![0; 2048]);
            Encoder::default().encode(&tile, Mode::Lossless, &mut bytes)?;
            Slot { address, width: 64, channels: channels.as_deref() }.decode(&bytes, &mut out)?;
            case.equal_slices("pattern", values, &out);
        }
    }
    case.stands_for(1 << 16);
    Ok(())
}

/// The bound of docs/nkz.md on a value of step index `e` that lies `residual` away from its channel's mean.
fn error_bound(e: i32, residual: f64, rebuilt: u16) -> f64 {
    let step = STEP[e.rem_euclid(8) as usize] as f64 * 2f64.powi(e.div_euclid(8) - 16);
    let ulp = 2f64.powi(i32::from(rebuilt >> 7 & 0xff).max(1) - 134);
    step / 2.0 * (1.0 + 2f64.powi(-15)) + residual.abs() * 2f64.powi(-18) + 2f64.powi(e.div_euclid(8) - 9) + ulp / 2.0
}

/// Whatever its size, a finite value comes back within the bound, from a tile that codes it and from one that does not.
fn bound(case: &mut Case) -> anyhow::Result<()> {
    let tokens = case.rng.random_range(1..=32);
    let outlier = ["none", "large", "huge"][case.rng.random_range(0..3)];
    let s = Sample::new(&mut case.rng, tokens, outlier);
    for name in ["entropy", "slot", "fixed"] {
        let mode = sample::mode(&mut case.rng, name, s.width);
        let (mut bytes, mut out) = (Vec::new(), vec![0; 32 * s.width]);
        let done = encode(&s, mode, &mut bytes)?;
        slot(&s).decode(&bytes, &mut out)?;
        if matches!(done.header.format, Format::Mean | Format::Overflow) {
            continue;
        }
        let lines = s.lines();
        for (i, (&x, &y)) in s.values.iter().zip(&out).enumerate() {
            let line = &lines[i % s.width];
            let qp = done.header.qp;
            let index = if name == "fixed" { line.fixed_step } else { line.step };
            let most = match done.header.format {
                Format::Raw | Format::Lossless => 0.0,
                _ => error_bound(2 * index + i32::from(qp), value(x) - value(line.mean), y),
            };
            if name != "fixed" || !plain::fixed(line, qp, x).1 {
                case.within(name, (value(x) - value(y)).abs(), most);
            }
        }
    }
    Ok(())
}

/// Flips every bit of a tile, one at a time.
fn flips(case: &mut Case) -> anyhow::Result<()> {
    let name = MODES[case.index % 6];
    let tokens = case.rng.random_range(1..=32);
    let s = Sample::new(&mut case.rng, tokens, "none");
    let mode = sample::mode(&mut case.rng, name, s.width);
    let mut bytes = Vec::new();
    encode(&s, mode, &mut bytes)?;
    let mut out = vec![0; 32 * s.width];
    for bit in 0..8 * bytes.len() {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let caught = matches!(slot(&s).decode(&bytes, &mut out), Err(Error::Corrupt(c)) if c.address == s.address);
        case.check(caught && out.iter().all(|&x| x == 0), format_args!("{mode:?}: bit {bit} decodes in silence"));
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    // Reordered, truncated and version-skewed.
    let elsewhere = Slot { address: nkz::Address { tile: s.address.tile ^ 1, ..s.address }, ..slot(&s) };
    case.check(elsewhere.decode(&bytes, &mut out).is_err(), "another tile's bytes decode");
    for length in 0..bytes.len() {
        case.check(slot(&s).decode(&bytes[..length], &mut out).is_err(), "a truncated tile decodes");
    }
    Ok(())
}

/// Bytes whose header and CRC hold, and nothing else need: every decode ends in a tile or a cause.
fn hostile(case: &mut Case) -> anyhow::Result<()> {
    let s = Sample::new(&mut case.rng, 32, "none");
    let mut out = vec![0; 32 * s.width];
    for _ in 0..50 {
        let mut bytes = vec![0; 8 * case.rng.random_range(1..200)];
        case.rng.fill_bytes(&mut bytes);
        let header = Header {
            version: Header::VERSION,
            format: Format::ALL[case.rng.random_range(0..7)],
            kind: s.address.kind,
            last_token: case.rng.random_range(0..32),
            qp: case.rng.random_range(0..64),
            offset: case.rng.random_range(0..4),
            words: (bytes.len() / 8 - 1) as u16,
            flags: 0,
            sequence: s.address.sequence,
            crc: 0,
        };
        let header = Header { crc: header.checksum(&s.address, &bytes[8..]), ..header };
        bytes[..8].copy_from_slice(&header.pack().to_le_bytes());
        let result = slot(&s).decode(&bytes, &mut out);
        case.check(matches!(result, Ok(_) | Err(Error::Corrupt(_))), "neither a tile nor a cause");
    }
    Ok(())
}

/// Noise, which nothing compresses, takes a raw tile and its header at most.
fn size(case: &mut Case) -> anyhow::Result<()> {
    let tokens = case.rng.random_range(1..=32);
    let mut s = Sample::new(&mut case.rng, tokens, "none");
    s.values.iter_mut().for_each(|x| *x = case.rng.random());
    for name in ["raw", "lossless", "fixed", "entropy", "mean"] {
        let mode = sample::mode(&mut case.rng, name, s.width);
        let mut bytes = Vec::new();
        encode(&s, mode, &mut bytes)?;
        case.check(bytes.len() <= Header::BYTES + 2 * s.values.len(), format_args!("{mode:?} grew to {}", bytes.len()));
    }
    Ok(())
}
