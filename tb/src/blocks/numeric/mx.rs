//! Microscaling blocks.

use super::reference::{Reference, Value, values};
use crate::verify::Case;
use anyhow::{Context, ensure};
use numeric::{Flags, FloatFormat, Format, MX_BLOCK, Mode, MxFormat, pack_codes, packed_len, unpack_codes};
use rand::RngExt;

const BLOCKS: &str = include_str!("../../../data/numeric/mx.txt");

fn words<T>(list: &str, parse: impl Fn(&str) -> Result<T, std::num::ParseIntError>) -> anyhow::Result<[T; MX_BLOCK]> {
    let items: Vec<T> = list.split(',').map(parse).collect::<Result<_, _>>().with_context(|| list.to_string())?;
    items.try_into().ok().with_context(|| format!("`{list}` has not {MX_BLOCK} entries"))
}

/// Test: blocks as gfloat quantises and expands them.
pub(super) fn blocks(case: &mut Case) -> anyhow::Result<()> {
    let (name, format) = MxFormat::ALL[case.index];
    case.label(name);
    let mut count = 0;
    for line in
        BLOCKS.lines().filter(|line| line.split(' ').next().is_some_and(|n| n.replace('_', "-").starts_with(name)))
    {
        let fields: Vec<&str> = line.split(' ').collect();
        ensure!(fields.len() == 5, "mx.txt: `{line}`");
        let inputs = words(fields[1], |w| u32::from_str_radix(w, 16))?;
        let scale: u8 = fields[2].parse()?;
        let codes = words(fields[3], str::parse::<u8>)?;
        let expanded = words(fields[4], |w| u32::from_str_radix(w, 16))?;
        let got = format.quantise(&inputs, &mut Flags::default());
        case.equal(format_args!("{name}, scale of {}", fields[1]), scale, got.0);
        case.equal_slices(format_args!("{name}, codes of {}", fields[1]), &codes, &got.1);
        let back = format.expand(scale, &codes, FloatFormat::FP32, Mode::IEEE, &mut Flags::default());
        case.equal_slices(format_args!("{name}, values of {scale}, {codes:?}"), &expanded, &back);
        // As stored: one scale byte, then the elements, lowest bits first.
        let width = format.element().width();
        let stored = pack_codes(&codes, width);
        case.equal("bytes of a block", format.block_bytes(), 1 + stored.len());
        case.equal_slices("codes from the stored block", &codes, &unpack_codes(&stored, width, MX_BLOCK)?);
        count += 1;
    }
    case.stands_for(count);
    Ok(())
}

/// Test: every scale with every element into FP32, BF16 and FP16, one rounding each.
pub(super) fn expansion(case: &mut Case) -> anyhow::Result<()> {
    let (name, format) = MxFormat::ALL[case.index];
    case.label(format!("{name} → fp32, bf16, fp16"));
    let elements = values(format.element())?;
    let scales = values(Format::Float(FloatFormat::E8M0))?;
    let mut cases = 0;
    for to in [FloatFormat::FP32, FloatFormat::BF16, FloatFormat::FP16] {
        let nearest = Reference::new(to.into())?;
        for (scale, s) in (0..=255).zip(&scales) {
            for (code, e) in (0..=255).zip(&elements) {
                let exact = s.x * e.x; // FP64 holds every one
                // NaN and infinity stay what they are; a quiet NaN result.
                let want = if to == FloatFormat::FP32 && exact.is_finite() && exact.abs() > f32::MAX as f64 {
                    f32::INFINITY.copysign(exact as f32).to_bits()
                } else {
                    nearest.convert(Value { x: exact, signaling: false }, Mode::IEEE).0
                };
                let got = to.pack(format.value(scale, code, &mut Flags::default()), Mode::IEEE, &mut Flags::default());
                if got != want {
                    case.differed(format_args!("{name} {scale} × {code:#x} → {to}: expected {want:#x}, got {got:#x}"));
                }
                cases += 1;
            }
        }
    }
    case.stands_for(cases);
    case.agreed(cases);
    Ok(())
}

/// Test: packing of 1 to 8 bits: what goes in comes out, and bytes of a wrong length are refused.
pub(super) fn packing(case: &mut Case) -> anyhow::Result<()> {
    for width in 1..=8u32 {
        for count in 0..40 {
            let codes: Vec<u8> = (0..count).map(|_| case.rng.random::<u8>() >> (8 - width)).collect();
            let bytes = pack_codes(&codes, width);
            case.equal("packed length", packed_len(count, width), bytes.len());
            // Against a string of bits, first code first, lowest bit first.
            let bits: Vec<u8> = codes.iter().flat_map(|c| (0..width).map(move |b| c >> b & 1)).collect();
            let want: Vec<u8> = bits.chunks(8).map(|b| b.iter().rev().fold(0, |byte, bit| byte << 1 | bit)).collect();
            case.equal_slices("packed bytes", &want, &bytes);
            case.equal("unpacked", Some(codes), unpack_codes(&bytes, width, count).ok());
            case.check(unpack_codes(&bytes, width, count + 9).is_err(), "bytes of a wrong length were taken");
        }
    }
    Ok(())
}
