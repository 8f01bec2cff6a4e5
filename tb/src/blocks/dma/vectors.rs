//! Stimulus and expected outputs as `$readmemh` files, for somebody else's RTL.

use super::bench::{Bench, Scenario};
use anyhow::Context;
use dma::Completion;
use std::fmt::Write;
use std::path::Path;

/// A word of a memory file: the bytes of a bus beat, the highest lane first.
fn word(beat: &[u8], bus: usize) -> String {
    let mut text = String::with_capacity(2 * bus + 1);
    for lane in (0..bus).rev() {
        let _ = write!(text, "{:02x}", beat.get(lane).unwrap_or(&0));
    }
    text + "\n"
}

/// The words that `wanted` names, an `@` before each run of them.
fn memory(bytes: &[u8], bus: usize, wanted: impl Fn(usize) -> bool) -> String {
    let (mut text, mut next) = (String::new(), None);
    for (i, beat) in bytes.chunks(bus).enumerate().filter(|(i, _)| wanted(*i)) {
        if next != Some(i) {
            let _ = writeln!(text, "@{i:x}");
        }
        next = Some(i + 1);
        text += &word(beat, bus);
    }
    text
}

/// What a folder of vectors holds beside the stimulus.
pub struct Expected<'a> {
    /// The memory after.
    pub bytes: &'a [u8],
    /// Completions in order.
    pub completions: &'a [Completion],
}

/// A completion: tag 32, outcome 4, response 4, field 8, position 16, value 64 bits, tag highest.
fn completion(c: &Completion) -> String {
    let Completion { tag, outcome, response, field, value, position } = c;
    format!("{tag:08x}_{:x}_{:x}_{:02x}_{position:04x}_{value:016x}\n", *outcome as u8, response.code(), field.0)
}

const README: &str = "\
Vectors of the data-movement engine, for $readmemh.

memory.hex       the memory before, a bus beat a word, highest lane first; word 0 is at the base address of bench.hex. Only the regions and a
                 word on either side are named; the rest may hold anything and must not be touched
expected.hex     the words that differ after
regions.hex      16 words: base 64 bits, limit 64 bits, write 4 bits, read 4 bits
doorbells.hex    addresses of descriptors, 64 bits, to be rung in order
completions.hex  what must come, in order: tag 32, outcome 4, response 4, field 8, position 16, value 64 bits
bad.hex          byte addresses that fail: from 64 bits, up to 64 bits, reads 4, writes 4, response 4 (2 SLVERR, 3 DECERR)
bench.hex        base address, bus bytes, latency (AR to R, last W to B), words of the memory, doorbells, completions, words of bad.hex, of aw.hex
                 and of w.hex, most bytes a job may write, most descriptors a doorbell may start: 64 bits each
ar.hex, aw.hex   bursts in order: address 48 bits, beats 12 bits (the cycle engine's; any legal cut moves the same bytes)
w.hex            write beats in order: last 4 bits, strobe a bit a lane, data of a beat
dma_vectors.sv   reads all this: a memory, and checks. It ends with PASSED and exit code 0, or FAILED and another
";

/// How the reader plays the recorded write beats of this very folder; `numbers` are bench.hex's.
fn command(numbers: &[u64]) -> String {
    let most = numbers[5].max(numbers[7]).max(numbers[8]).max(1);
    let parameters = [("BUS", numbers[1]), ("DEPTH", numbers[3].max(1)), ("MANY", most)];
    let icarus: String = parameters.iter().map(|(name, value)| format!(" -P dma_vectors.{name}={value}")).collect();
    format!(
        "
The recorded write beats, played into the memory in the place of a design, from this folder.
With Icarus Verilog:
  iverilog -g2012 -s dma_vectors{icarus} -o replay dma_vectors.sv
  vvp replay +vectors=. +replay
"
    )
}

/// Writes the files of a scenario; the bursts are those of the cycle engine, the rest is what `expected` says.
///
/// # Errors
/// If the folder or a file cannot be written, or the configuration cannot be built.
pub fn write(dir: &Path, s: &Scenario, expected: &Expected<'_>) -> anyhow::Result<()> {
    let (mut ar, mut aw, mut w) = (String::new(), String::new(), String::new());
    let (mut bursts, mut beats) = (0, 0);
    let mut bench = Bench::new(s)?;
    let bus = s.config.bus_bytes as usize;
    while !bench.quiet() && !bench.hung() {
        let c = bench.step();
        bursts += u64::from(c.aw.0.fires(c.aw.1));
        for (text, channel) in [(&mut ar, c.ar), (&mut aw, c.aw)] {
            if channel.0.fires(channel.1) {
                let _ = writeln!(text, "{:012x}_{:03x}", channel.0.data.address, channel.0.data.beats);
            }
        }
        if c.w.0.fires(c.w.1) {
            let beat = c.w.0.data;
            let lanes = bus / 4;
            let _ = write!(w, "{:x}_{:0lanes$x}_{}", u8::from(beat.last), beat.strobe, word(&beat.data[..bus], bus));
            beats += 1;
        }
    }
    let mut regions = String::new();
    for r in s.regions.iter().copied().chain(std::iter::repeat(dma::Region::default())).take(dma::REGIONS) {
        let (write, read) = (u8::from(r.write), u8::from(r.read));
        let _ = writeln!(regions, "{:016x}_{:016x}_{write:x}_{read:x}", r.base, r.limit);
    }
    let numbers = [
        s.image.base,
        u64::from(s.config.bus_bytes),
        s.timing.latency.0,
        s.image.bytes.len().div_ceil(bus) as u64,
        s.doorbells.len() as u64,
        expected.completions.len() as u64,
        s.bad.len() as u64,
        bursts,
        beats,
        s.config.job_bytes.into(),
        s.config.chain_limit.into(),
    ];
    let mut bad = String::new();
    for b in &s.bad {
        let (reads, writes, response) = (u8::from(b.reads), u8::from(b.writes), b.response.code());
        let _ = writeln!(bad, "{:016x}_{:016x}_{reads:x}_{writes:x}_{response:x}", b.bytes.start, b.bytes.end);
    }
    let span = |i: usize| {
        let from = s.image.base + (i * bus) as u64;
        (from, from + bus as u64)
    };
    let near = |i: usize| {
        let (from, to) = span(i);
        s.regions.iter().any(|r| r.base < to + bus as u64 && from < r.limit.saturating_add(bus as u64))
    };
    let slice = |bytes: &[u8], i: usize| bytes.get(i * bus..((i + 1) * bus).min(bytes.len())).map(<[u8]>::to_vec);
    let changed = |i: usize| slice(&s.image.bytes, i) != slice(expected.bytes, i);
    let words = |numbers: &[u64]| numbers.iter().fold(String::new(), |text, n| text + &format!("{n:016x}\n"));
    let files = [
        ("README", README.to_string() + &command(&numbers)),
        ("memory.hex", memory(&s.image.bytes, bus, near)),
        ("expected.hex", memory(expected.bytes, bus, changed)),
        ("regions.hex", regions),
        ("doorbells.hex", words(&s.doorbells)),
        ("completions.hex", expected.completions.iter().map(completion).collect()),
        ("bad.hex", bad),
        ("bench.hex", words(&numbers)),
        ("ar.hex", ar),
        ("aw.hex", aw),
        ("w.hex", w),
        ("dma_vectors.sv", include_str!("vectors.sv").to_string()),
    ];
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
    for (name, text) in &files {
        let path = dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
