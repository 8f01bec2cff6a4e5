//! What other people's libraries say, as committed under `tb/data/numeric` with the scripts that made it.

use anyhow::{Context, bail, ensure};
use numeric::{Format, Mode, Overflow, Rounding};

const DECODE: &str = include_str!("../../../data/numeric/decode.txt");
const ENCODE: &str = include_str!("../../../data/numeric/encode.txt");
const HASHES: &str = include_str!("../../../data/numeric/hashes.txt");

/// The four combinations of rounding and overflow, and the words that the tables use for them.
pub(super) const MODES: [(Mode, &str); 4] = [
    (Mode { rounding: Rounding::NearestEven, overflow: Overflow::Own }, "rne own"),
    (Mode { rounding: Rounding::NearestEven, overflow: Overflow::Saturate }, "rne sat"),
    (Mode { rounding: Rounding::TowardZero, overflow: Overflow::Own }, "rtz own"),
    (Mode { rounding: Rounding::TowardZero, overflow: Overflow::Saturate }, "rtz sat"),
];

/// FP32 bits of every code of a format of at most 8 bits, from ml_dtypes and gfloat.
pub(super) fn decoded(name: &str) -> anyhow::Result<Vec<u32>> {
    let line = DECODE.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let words = line.with_context(|| format!("decode.txt has no line for {name}"))?.split(' ');
    words.map(|word| u32::from_str_radix(word, 16).with_context(|| format!("decode.txt, {name}: `{word}`"))).collect()
}

/// Target codes of all 65,536 codes of a 16-bit source; `key` is "source target rounding overflow".
pub(super) fn encoded(key: &str) -> anyhow::Result<Vec<u32>> {
    let line = ENCODE.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    let mut codes = Vec::with_capacity(1 << 16);
    let mut previous = u32::MAX;
    for run in line.with_context(|| format!("encode.txt has no line for {key}"))?.split(' ') {
        let (length, code) = match run.split_once('=') {
            Some((length, code)) => (length, u32::from_str_radix(code, 16).with_context(|| run.to_string())?),
            None => (run, previous.wrapping_add(1)),
        };
        let length: usize = length.parse().with_context(|| format!("encode.txt, {key}: `{run}`"))?;
        codes.extend(std::iter::repeat_n(code, length));
        previous = code;
    }
    ensure!(codes.len() == 1 << 16, "encode.txt, {key}: {} codes", codes.len());
    Ok(codes)
}

/// The hash that a table too long to be listed must have; `key` is its line without the hash.
pub(super) fn hash_of(key: &str) -> anyhow::Result<u64> {
    let Some(hash) = HASHES.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')) else {
        bail!("hashes.txt has no line for {key}");
    };
    u64::from_str_radix(hash, 16).with_context(|| format!("hashes.txt, {key}: `{hash}`"))
}

/// 64-bit FNV-1a over codes, little-endian 16 bits each.
pub(super) fn fnv(codes: impl IntoIterator<Item = u16>) -> u64 {
    codes
        .into_iter()
        .flat_map(u16::to_le_bytes)
        .fold(0xcbf2_9ce4_8422_2325, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// The same over FP32 bits, low half first.
pub(super) fn fnv_words(words: impl IntoIterator<Item = u32>) -> u64 {
    fnv(words.into_iter().flat_map(|w| [w as u16, (w >> 16) as u16]))
}

/// The flexible formats that hashes.txt covers: every sign and split at 8 biases.
pub(super) fn ffp8_formats(signed: bool, exp_bits: u32) -> anyhow::Result<Vec<Format>> {
    let prefix = format!("decode ffp8:{},{exp_bits},", signed as u8);
    let names = HASHES.lines().filter(|line| line.starts_with(&prefix)).filter_map(|line| line.split(' ').nth(1));
    let formats = names.map(|name| name.parse().with_context(|| format!("hashes.txt: `{name}`")));
    let formats: Vec<Format> = formats.collect::<anyhow::Result<_>>()?;
    ensure!(formats.len() == 8, "hashes.txt has {} biases for {prefix}", formats.len());
    Ok(formats)
}
