//! Bench of NeuKompression: encoder engines against a plain decoder and against each other, damage, and the cache.

mod archive;
mod clocked;
mod memory;
mod model;
mod plain;
mod sample;

use crate::verify::{Case, Test};
use nkz::{CODE_MAX, Encoded, Encoder, Error, FIXED_MAX, Format, Header, Mode, Quantiser, STEP, Slot, TileIn};
use rand::{Rng, RngExt};
use sample::{MODES, Sample, value};

/// The tests of this block.
pub const TESTS: &[Test] = &[
    Test::new("nkz", "tables", 1, 0, tables),
    Test::new("nkz", "stream", 54, 300, stream),
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
    let pick = if case.random.is_none() { case.index } else { case.rng.random_range(0..54) };
    let name = MODES[pick % 6];
    let fill = ["one", "some", "full"][pick / 6 % 3];
    let outlier = ["none", "large", "special"][pick / 18];
    let tokens = sample::tokens(&mut case.rng, fill);
    let s = Sample::new(&mut case.rng, tokens, outlier);
    let mode = sample::mode(&mut case.rng, name, s.width);
    let done = hold(case, &s, mode)?;
    let escape = if done.escapes > 0 { "some" } else { "none" };
    case.cover("tile", &[("mode", name), ("fill", fill), ("outlier", s.outlier), ("escape", escape)]);
    Ok(())
}

/// A tile in one mode: the plain decoder and the engine's see the same values; lossless ones are the tile's own.
fn hold(case: &mut Case, s: &Sample, mode: Mode) -> anyhow::Result<Encoded> {
    let mut bytes = Vec::new();
    let done = encode(s, mode, &mut bytes)?;
    let mut out = vec![0; 32 * s.width];
    match slot(s).decode(&bytes, &mut out)?.overflow {
        Some(_) => {
            let special = matches!(mode, Mode::Slot { .. }) && s.outlier == "special";
            case.check(special, "only special values overflow a slot");
        }
        None => {
            let expected = plain::decode(&s.place(), &s.lines(), &bytes).unwrap_or_default();
            case.equal_slices(format_args!("{mode:?} as {:?}", done.header.format), &expected, &out[..s.values.len()]);
            if matches!(done.header.format, Format::Raw | Format::Lossless) {
                case.equal_slices("lossless", &s.values, &out[..s.values.len()]);
            }
        }
    }
    Ok(done)
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

fn bound(case: &mut Case) -> anyhow::Result<()> {
    let tokens = case.rng.random_range(1..=32);
    let s = Sample::new(&mut case.rng, tokens, "none");
    for name in ["entropy", "slot", "fixed"] {
        let mode = sample::mode(&mut case.rng, name, s.width);
        let (mut bytes, mut out) = (Vec::new(), vec![0; 32 * s.width]);
        let done = encode(&s, mode, &mut bytes)?;
        slot(&s).decode(&bytes, &mut out)?;
        if !matches!(done.header.format, Format::Entropy | Format::Slot | Format::Fixed) {
            continue;
        }
        for (i, (&x, &y)) in s.values.iter().zip(&out).enumerate() {
            let line = &s.channels[i % s.width];
            let qp = done.header.qp;
            let (q, index, most) = match name {
                "fixed" => (Quantiser::fixed(line, qp), line.fixed_step, FIXED_MAX),
                _ => (Quantiser::entropy(line, qp), line.step, CODE_MAX),
            };
            if q.code(x).abs() <= most {
                let e = 2 * i32::from(index) + i32::from(qp);
                case.within(name, (value(x) - value(y)).abs(), error_bound(e, value(x) - value(line.mean), y));
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
