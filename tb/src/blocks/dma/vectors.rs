//! Stimulus and expected outputs as `$readmemh` files, for somebody else's RTL.

use super::bench::{Bench, Scenario};
use anyhow::Context;
use dma::Completion;
use std::fmt::Write;
use std::path::Path;

/// Bytes, a bus beat a line, the highest lane first; `@` starts at the beat of the first address.
fn memory(bytes: &[u8], bus: usize) -> String {
    let mut text = String::new();
    for beat in bytes.chunks(bus) {
        for lane in (0..bus).rev() {
            let _ = write!(text, "{:02x}", beat.get(lane).unwrap_or(&0));
        }
        text.push('\n');
    }
    text
}

/// A completion: tag 32, outcome 4, response 4, field 8, position 16, value 64 bits, tag highest.
fn completion(c: &Completion) -> String {
    let Completion { tag, outcome, response, field, value, position } = c;
    format!("{tag:08x}_{:x}_{:x}_{:02x}_{position:04x}_{value:016x}\n", *outcome as u8, response.code(), field.0)
}

const README: &str = "\
Vectors of the data-movement engine, for $readmemh.

memory.hex       the memory before, a bus beat a word, first word at the base address of bench.hex
expected.hex     the memory after
regions.hex      16 words: base 64 bits, limit 64 bits, write 4 bits, read 4 bits
doorbells.hex    addresses of descriptors, 64 bits, to be rung in order
completions.hex  what must come, in order: tag 32, outcome 4, response 4, field 8, position 16, value 64 bits
bench.hex        base address, bus bytes, latency (AR to R, last W to B), words of memory.hex, doorbells, completions: 64 bits each
ar.hex, aw.hex   bursts in order: address 48 bits, beats 12 bits (the reference engine's; any legal cut moves the same bytes)
w.hex            write beats in order: last 4 bits, strobe 64 bits, data of a beat
";

/// Writes the files of a scenario; returns how many.
///
/// # Errors
/// If the folder or a file cannot be written, or the configuration cannot be built.
pub fn write(dir: &Path, s: &Scenario) -> anyhow::Result<usize> {
    let (mut ar, mut aw, mut w) = (String::new(), String::new(), String::new());
    let mut bench = Bench::new(s)?;
    let bus = s.config.bus_bytes as usize;
    while !bench.quiet() && !bench.hung() {
        let c = bench.step();
        for (text, channel) in [(&mut ar, c.ar), (&mut aw, c.aw)] {
            if channel.0.fires(channel.1) {
                let _ = writeln!(text, "{:012x}_{:03x}", channel.0.data.address, channel.0.data.beats);
            }
        }
        if c.w.0.fires(c.w.1) {
            let beat = c.w.0.data;
            let _ = write!(w, "{:x}_{:016x}_{}", u8::from(beat.last), beat.strobe, memory(&beat.data[..bus], bus));
        }
    }
    let ran = bench.run();
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
        ran.completions.len() as u64,
    ];
    let words = |numbers: &[u64]| numbers.iter().fold(String::new(), |text, n| text + &format!("{n:016x}\n"));
    let files = [
        ("README", README.to_string()),
        ("memory.hex", memory(&s.image.bytes, bus)),
        ("expected.hex", memory(&ran.bytes, bus)),
        ("regions.hex", regions),
        ("doorbells.hex", words(&s.doorbells)),
        ("completions.hex", ran.completions.iter().map(|c| completion(&c.1)).collect()),
        ("bench.hex", words(&numbers)),
        ("ar.hex", ar),
        ("aw.hex", aw),
        ("w.hex", w),
    ];
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
    for (name, text) in &files {
        let path = dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(files.len())
}
