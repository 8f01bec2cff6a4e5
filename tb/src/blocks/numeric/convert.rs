//! Codes, decoding and conversions.

use super::reference::{Place, Reference, Value, values, wide_value};
use super::tables::{self, MODES};
use super::{hex, stimulus};
use crate::verify::Case;
use anyhow::Context;
use numeric::fast::{DecodeTable, Encoder, decode_bf16_slice, decode_fp16_slice};
use numeric::{Flags, FloatFormat, Format, IntFormat, Mode, Specials, convert};
use rand::RngExt;
use std::collections::BTreeSet;

/// Formats of at most 16 bits with a name, in the order of [`Format::NAMED`].
pub(super) fn narrow() -> Vec<(&'static str, Format)> {
    Format::NAMED.into_iter().filter(|(_, format)| format.width() <= 16).collect()
}

/// Splits of the flexible format: sign, exponent bits.
pub(super) fn split(index: usize) -> (bool, u32) {
    (index >= 8, index as u32 % 8)
}

/// Number of splits.
pub(super) const SPLITS: usize = 16;

const FP32: Format = Format::Float(FloatFormat::FP32);
const INT32: Format = Format::Int(IntFormat::INT32);

/// Decoding and encoding a code gives it back; a NaN gives the canonical one.
fn identity_of(case: &mut Case, format: Format, codes: impl IntoIterator<Item = u32>) {
    for code in codes {
        let mut flags = Flags::NONE;
        let bits = convert(format, FP32, code, Mode::IEEE, &mut flags);
        let value = f32::from_bits(bits);
        let want = match format {
            Format::Float(f) if value.is_nan() => f.canonical_nan().unwrap_or(0),
            _ => code,
        };
        for (mode, words) in MODES {
            if value.is_infinite() && words.ends_with("sat") {
                continue; // saturation takes infinities away on purpose
            }
            let back = convert(FP32, format, bits, mode, &mut flags);
            if back != want || flags.bits() & !Flags::INVALID.bits() != 0 {
                case.differed(format_args!("{format} {code:#x} came back as {back:#x} ({words}, {flags})"));
            }
        }
    }
}

/// Test: every code of every format of at most 16 bits, and of every flexible split at 8 biases.
pub(super) fn identity(case: &mut Case) -> anyhow::Result<()> {
    let named = narrow();
    let formats = match named.get(case.index) {
        Some((name, format)) => {
            case.label(*name);
            vec![*format]
        }
        None => {
            let (signed, exp_bits) = split(case.index - named.len());
            case.label(ffp8_label(signed, exp_bits));
            tables::ffp8_formats(signed, exp_bits)?
        }
    };
    let codes: u64 = formats.iter().map(|f| f.code_mask() as u64 + 1).sum();
    case.stands_for(codes);
    for format in formats {
        identity_of(case, format, 0..=format.code_mask());
    }
    case.agreed(codes);
    Ok(())
}

/// Test: FP32 and INT32 codes.
pub(super) fn identity_wide(case: &mut Case) -> anyhow::Result<()> {
    case.label("fp32");
    case.stands_for(50_000);
    for _ in 0..50_000 {
        let code = stimulus::fp32(&mut case.rng, 0);
        identity_of(case, FP32, [code]);
    }
    case.agreed(50_000);
    Ok(())
}

fn ffp8_label(signed: bool, exp_bits: u32) -> String {
    format!("ffp8:{},{exp_bits},{} at 8 biases", signed as u8, 8 - signed as u32 - exp_bits)
}

/// Test: every code's value, by the core and by the fast tables, is the libraries'.
pub(super) fn decode(case: &mut Case) -> anyhow::Result<()> {
    let named = narrow();
    let Some((name, format)) = named.get(case.index).copied() else {
        let (signed, exp_bits) = split(case.index - named.len());
        case.label(ffp8_label(signed, exp_bits));
        for format in tables::ffp8_formats(signed, exp_bits)? {
            let table = DecodeTable::new(format);
            let core = (0..=255).map(|code| convert(format, FP32, code, Mode::IEEE, &mut Flags::default()));
            let want = tables::hash_of(&format!("decode {format}"))?;
            case.equal(format_args!("{format}, hash of the core's table"), hex(want), hex(tables::fnv_words(core)));
            let fast = (0..=255).map(|code| table.value(code).to_bits());
            case.equal(format_args!("{format}, hash of the fast table"), hex(want), hex(tables::fnv_words(fast)));
        }
        case.stands_for(8 * 256);
        return Ok(());
    };
    case.label(name);
    let codes = 0..=format.code_mask();
    case.stands_for(codes.clone().count() as u64);
    let core: Vec<u32> = codes.clone().map(|c| convert(format, FP32, c, Mode::IEEE, &mut Flags::default())).collect();
    let mut fast = vec![0f32; core.len()];
    if format.width() <= 8 {
        let bytes: Vec<u8> = codes.map(|code| code as u8).collect();
        DecodeTable::new(format).decode_slice(&bytes, &mut fast)?;
        case.equal_slices(name, &tables::decoded(name)?, &core);
    } else {
        let words: Vec<u16> = codes.map(|code| code as u16).collect();
        let decode = if name == "bf16" { decode_bf16_slice } else { decode_fp16_slice };
        decode(&words, &mut fast)?;
        let want = tables::hash_of(&format!("decode {name}"))?;
        case.equal(name, hex(want), hex(tables::fnv_words(core.iter().copied())));
    }
    let fast: Vec<u32> = fast.iter().map(|x| x.to_bits()).collect();
    case.equal_slices(format_args!("{name}, fast"), &core, &fast);
    Ok(())
}

/// Test: every BF16 and FP16 code into every narrow format, as ml_dtypes, gfloat and NumPy do it.
pub(super) fn libraries(case: &mut Case) -> anyhow::Result<()> {
    let named = narrow();
    let (source, from) = [("bf16", FloatFormat::BF16), ("fp16", FloatFormat::FP16)][case.index % 2];
    let (target, to) = named[case.index / 2];
    case.label(format!("{source} → {target}"));
    let mut cases = 0;
    for (mode, words) in MODES {
        if matches!(to, Format::Int(_)) && words.ends_with("own") {
            continue; // integers only saturate
        }
        let codes = (0..=0xffff).map(|code| convert(from.into(), to, code, mode, &mut Flags::default()));
        let key = format!("{source} {target} {words}");
        if to.width() > 8 {
            let want = tables::hash_of(&format!("encode {key}"))?;
            let got = tables::fnv(codes.map(|code| code as u16));
            case.equal(format_args!("{key}, hash of the codes"), hex(want), hex(got));
        } else {
            case.equal_slices(&key, &tables::encoded(&key)?, &codes.collect::<Vec<_>>());
        }
        cases += 0x1_0000;
    }
    case.stands_for(cases);
    Ok(())
}

/// The low halves of the FP32 codes that hashes.txt covers; the high half takes every value.
const LOW_HALVES: [&str; 4] = ["7fff", "8000", "8001", "mix"];

fn low_half(name: &str, high: u32) -> u32 {
    match name {
        "7fff" => 0x7fff,
        "8000" => 0x8000,
        "8001" => 0x8001,
        _ => (high * 0x9e37) & 0xffff,
    }
}

/// Test: FP32 codes with every high half and low halves at and around the middle, into every narrow format, as
/// ml_dtypes, gfloat and NumPy do it.
pub(super) fn libraries_fp32(case: &mut Case) -> anyhow::Result<()> {
    let (target, to) = narrow()[case.index];
    case.label(format!("fp32 → {target}"));
    let mut cases = 0;
    for name in LOW_HALVES {
        for (mode, words) in MODES {
            if matches!(to, Format::Int(_)) && words.ends_with("own") {
                continue; // integers only saturate
            }
            let sources = (0..=0xffff).map(|high| high << 16 | low_half(name, high));
            let codes = sources.map(|code| convert(FP32, to, code, mode, &mut Flags::default()) as u16);
            let key = format!("encode fp32:{name} {target} {words}");
            case.equal(&key, hex(tables::hash_of(&key)?), hex(tables::fnv(codes)));
            cases += 0x1_0000;
        }
    }
    case.stands_for(cases);
    Ok(())
}

/// Test: every BF16 and FP16 code into every flexible split at 8 biases, as gfloat does it; the fast form as well.
pub(super) fn libraries_ffp8(case: &mut Case) -> anyhow::Result<()> {
    let (signed, exp_bits) = split(case.index);
    case.label(format!("bf16, fp16 → {}", ffp8_label(signed, exp_bits)));
    case.stands_for(8 * 4 * 0x1_0000);
    let codes: Vec<u16> = (0..=0xffff).collect();
    let mut values = vec![0f32; 0x1_0000];
    let mut fast = vec![0u8; 0x1_0000];
    for format in tables::ffp8_formats(signed, exp_bits)? {
        let Format::Float(to) = format else { continue };
        for (source, from) in [("bf16", FloatFormat::BF16), ("fp16", FloatFormat::FP16)] {
            if source == "bf16" {
                decode_bf16_slice(&codes, &mut values)?
            } else {
                decode_fp16_slice(&codes, &mut values)?
            };
            for (mode, words) in [MODES[1], MODES[3]] {
                let key = format!("encode {source} {format} {words}");
                let want = tables::hash_of(&key)?;
                let mut flags = Flags::NONE;
                let core: Vec<u16> =
                    codes.iter().map(|c| convert(from.into(), format, *c as u32, mode, &mut flags) as u16).collect();
                case.equal(&key, hex(want), hex(tables::fnv(core.iter().copied())));
                let mut fast_flags = Flags::NONE;
                Encoder::new(to, mode).encode_slice(&values, &mut fast, &mut fast_flags)?;
                case.equal(format_args!("{key}, fast"), hex(want), hex(tables::fnv(fast.iter().map(|c| *c as u16))));
                case.equal(format_args!("{key}, sticky flags"), flags, fast_flags);
            }
        }
    }
    Ok(())
}

/// Inputs of one conversion, and where they fell.
struct Conversion<'a> {
    from: Format,
    to: Format,
    reference: &'a Reference,
    places: BTreeSet<Place>,
}

impl Conversion<'_> {
    /// One code in all four modes against the reference.
    fn check(&mut self, case: &mut Case, code: u32, value: Value) {
        for (mode, words) in MODES {
            let (want, want_flags, place) = self.reference.convert(value, mode);
            let mut flags = Flags::NONE;
            let got = convert(self.from, self.to, code, mode, &mut flags);
            if (got, flags) != (want, want_flags) {
                case.differed(format_args!(
                    "{} {code:#x} → {} ({words}): expected {want:#x} ({want_flags}), got {got:#x} ({flags})",
                    self.from, self.to
                ));
            }
            self.places.insert(place);
        }
    }

    fn cover(&self, case: &mut Case) {
        let target = self.to.to_string();
        let target = if target.starts_with("ffp8") { "ffp8" } else { &target };
        for place in self.places.iter().filter(|p| **p != Place::Special) {
            case.cover("convert", &[("target", target), ("place", place.name())]);
        }
    }
}

/// Test: every code of every format of at most 16 bits into every format with a name, in all four modes, with flags.
pub(super) fn pairs(case: &mut Case) -> anyhow::Result<()> {
    let (source, from) = narrow()[case.index / Format::NAMED.len()];
    let (target, to) = Format::NAMED[case.index % Format::NAMED.len()];
    case.label(format!("{source} → {target}"));
    let reference = Reference::new(to)?;
    let mut conversion = Conversion { from, to, reference: &reference, places: BTreeSet::new() };
    let values = values(from)?;
    let cases = 4 * values.len() as u64;
    case.stands_for(cases);
    for (code, value) in values.into_iter().enumerate() {
        conversion.check(case, code as u32, value);
    }
    case.agreed(cases);
    conversion.cover(case);
    Ok(())
}

/// Test: every code of every flexible split at 8 biases into every format with a name.
pub(super) fn pairs_ffp8(case: &mut Case) -> anyhow::Result<()> {
    let (signed, exp_bits) = split(case.index);
    case.label(format!("{} → all", ffp8_label(signed, exp_bits)));
    let mut cases = 0;
    for (_, to) in Format::NAMED {
        let reference = Reference::new(to)?;
        for from in tables::ffp8_formats(signed, exp_bits)? {
            let mut conversion = Conversion { from, to, reference: &reference, places: BTreeSet::new() };
            for (code, value) in values(from)?.into_iter().enumerate() {
                conversion.check(case, code as u32, value);
                cases += 4;
            }
        }
    }
    case.stands_for(cases);
    case.agreed(cases);
    Ok(())
}

/// FP32 codes on, just beside and half-way between the numbers of a format.
fn edges(case: &mut Case, to: Format, count: usize) -> anyhow::Result<Vec<u32>> {
    let positive: Vec<f32> = match to {
        Format::Float(f) if f == FloatFormat::FP32 => Vec::new(),
        Format::Int(i) if i == IntFormat::INT32 => (0..count).map(|_| stimulus::int32(&mut case.rng) as f32).collect(),
        _ => values(to)?.iter().map(|v| v.x as f32).filter(|x| x.is_finite() && *x >= 0.0).collect(),
    };
    let step = (positive.len() * 12).div_ceil(count).max(1);
    let offset = case.rng.random_range(0..step);
    let mut codes = Vec::new();
    for pair in positive.windows(2).skip(offset).step_by(step).chain(positive.windows(2).last()) {
        let middle = pair[0] / 2.0 + pair[1] / 2.0;
        let next = pair[1] + (pair[1] - pair[0]) / 2.0; // past the last number: half a step more
        for near in [pair[0], middle, pair[1], next] {
            for code in near.to_bits().saturating_sub(1)..=near.to_bits() + 1 {
                codes.extend([code, code | 0x8000_0000]);
            }
        }
    }
    Ok(codes)
}

/// Test: FP32 and INT32 into every format: on and around every edge of the target, then at random; the fast form too.
pub(super) fn wide(case: &mut Case) -> anyhow::Result<()> {
    const RANDOM: usize = 20_000;
    let n = case.index % (2 * Format::NAMED.len() + SPLITS);
    let (from, to) = match n.checked_sub(2 * Format::NAMED.len()) {
        None => ([FP32, INT32][n % 2], Format::NAMED[n / 2].1),
        Some(s) => {
            let (signed, exp_bits) = split(s);
            let formats = tables::ffp8_formats(signed, exp_bits)?;
            (FP32, formats[case.rng.random_range(0..formats.len())])
        }
    };
    case.label(format!("{from} → {to}"));
    let mut codes = Vec::new();
    if from == FP32 {
        codes = edges(case, to, RANDOM)?;
        let near = codes.clone();
        codes.extend((0..RANDOM).map(|i| stimulus::fp32(&mut case.rng, near.get(i).copied().unwrap_or(0x3f80_0000))));
    } else {
        codes.extend((0..RANDOM).map(|_| stimulus::int32(&mut case.rng) as u32));
    }
    let reference = Reference::new(to)?;
    let mut conversion = Conversion { from, to, reference: &reference, places: BTreeSet::new() };
    for code in &codes {
        conversion.check(case, *code, wide_value(from, *code));
    }
    case.stands_for(4 * codes.len() as u64);
    case.agreed(4 * codes.len() as u64);
    conversion.cover(case);
    if let (Format::Float(f), true) = (to, from == FP32)
        && f.width() <= 16
    {
        fast_encoder(case, f, &codes)?;
    }
    Ok(())
}

/// The fast encoder, one by one with flags and in a slice, against the core.
fn fast_encoder(case: &mut Case, to: FloatFormat, codes: &[u32]) -> anyhow::Result<()> {
    let values: Vec<f32> = codes.iter().map(|code| f32::from_bits(*code)).collect();
    let mut slice = vec![0u16; values.len()];
    // Largest first, so that each flag is raised by a part of the slice that the others do not come from.
    let mut falling = values.clone();
    falling.sort_by(|x, y| y.abs().total_cmp(&x.abs()));
    for (mode, words) in MODES {
        let encoder = Encoder::new(to, mode);
        let (mut one_by_one, mut together) = (Flags::NONE, Flags::NONE);
        for value in &falling {
            convert(FP32, to.into(), value.to_bits(), mode, &mut one_by_one);
        }
        encoder.encode_slice(&falling, &mut slice, &mut together)?;
        case.equal(format_args!("{to} ({words}), sticky flags of a falling slice"), one_by_one, together);
        let mut sticky = Flags::NONE;
        encoder.encode_slice(&values, &mut slice, &mut sticky).context("slices of one length")?;
        let mut all = Flags::NONE;
        for ((value, code), in_slice) in values.iter().zip(codes).zip(&slice) {
            let (mut flags, mut fast_flags) = (Flags::NONE, Flags::NONE);
            let core = convert(FP32, to.into(), *code, mode, &mut flags);
            let fast = encoder.encode(*value, &mut fast_flags);
            all |= flags;
            if (core, flags, core as u16) != (fast, fast_flags, *in_slice) {
                case.differed(format_args!(
                    "fp32 {code:#x} → {to} ({words}), fast: expected {core:#x} ({flags}), got {fast:#x} ({fast_flags}), \
                     in a slice {in_slice:#x}"
                ));
            }
        }
        case.equal(format_args!("{to} ({words}), sticky flags of a slice"), all, sticky);
        case.agreed(values.len() as u64);
    }
    Ok(())
}

/// Test: the sizes and names that cannot be are refused, with a message that says what can.
pub(super) fn refusals(case: &mut Case) -> anyhow::Result<()> {
    let refused = |text: &str| text.parse::<Format>().err().map(|e| e.to_string()).unwrap_or_default();
    for (text, names) in [
        ("fp9", "known are int4"),
        ("", "known are int4"),
        ("ffp8:1,4,4,7", "s + e + f = 8"),
        ("ffp8:2,4,2,7", "s + e + f = 8"),
        ("ffp8:1,8,-1,7", "s + e + f = 8"),
        ("ffp8:1,4,3", "ffp8:s,e,f,bias"),
        ("ffp8:1,4,3,x", "ffp8:s,e,f,bias"),
        ("ffp8:1,4,3,1000", "bias 1000 leaves FP32's range; use -112 to 147"),
        ("ffp8:1,4,3,-113", "use -112 to 147"),
        ("ffp8:0,7,1,-1", "use 0 to 149"),
    ] {
        case.check(refused(text).contains(names), format_args!("`{text}`: {}", refused(text)));
    }
    for (name, format) in Format::NAMED {
        case.equal(name, Ok(format), name.parse());
        case.equal(name, Ok(0), format.check_code(0));
        let past = format.code_mask() as u64 + 1;
        let error = format.check_code(past).err().map(|e| e.to_string()).unwrap_or_default();
        case.check(error.contains(name) && error.contains("bits"), format_args!("{name} {past:#x}: {error}"));
    }
    for signed in [false, true] {
        for exp_bits in 0..=7 {
            let range = FloatFormat::ffp8_bias_range(signed, exp_bits);
            // At both ends every code must be exact, one further some code must not be.
            for (bias, exact) in
                [(*range.start(), true), (*range.end(), true), (range.start() - 1, false), (range.end() + 1, false)]
            {
                let format = FloatFormat::ffp8(signed, exp_bits, bias);
                case.equal(format_args!("ffp8 s {signed} e {exp_bits} bias {bias}"), exact, format.is_ok());
                if let Ok(format) = format {
                    let all_exact = values(format.into())?.iter().all(|v| v.x.is_finite() && v.x as f32 as f64 == v.x);
                    case.check(all_exact && format.specials() == Specials::None, format_args!("{format} is not exact"));
                }
            }
        }
    }
    Ok(())
}
