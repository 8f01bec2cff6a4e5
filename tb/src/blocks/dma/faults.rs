//! Bus errors at any beat, and reset in the middle of a job.

use super::bench::Bench;
use super::judge::{done, hold};
use super::memory::{BadRange, Timing};
use super::random::{copy, plain};
use super::reference;
use crate::verify::Case;
use dma::{Completion, IndexList, Outcome, Remap, Response, WIRE_BYTES};
use rand::RngExt;
use rtl::Module;

const TARGETS: [&str; 5] = ["source", "destination", "list", "descriptor", "tile"];

/// Directed cases: target × response.
pub(super) const ERRORS: usize = TARGETS.len() * 2;

/// One error in the second of three jobs.
pub(super) fn errors(case: &mut Case<'_>) -> anyhow::Result<()> {
    let n = case.random.map_or(case.index, |_| case.rng.random_range(0..ERRORS));
    let target = TARGETS[n % TARGETS.len()];
    let response = if n < TARGETS.len() { Response::SlaveError } else { Response::DecodeError };
    case.label(format!("{target}, {response:?}"));
    case.cover("bus_error", &[("target", target), ("response", if n < TARGETS.len() { "SLVERR" } else { "DECERR" })]);
    let size = case.rng.random_range(500..6000);
    let (from, to) = (0x4000 + case.rng.random_range(0..64), 0x8000 + case.rng.random_range(0..64));
    let mut job = copy(2, from, to, size);
    if target == "list" {
        job.counts = [1, size / 8, 8];
        (job.source.strides, job.destination.strides) = ([0, 0, 1], [0, 8, 1]);
        job.source.index = Some(IndexList { region: 0, offset: 0x2000, dimension: 1, bound: u32::from(u16::MAX) + 1 });
    } else if target == "tile" {
        job.counts = [1, size / 64, 64];
        (job.source.strides, job.destination.strides) = ([0, 64, 1], [0, 1, i64::from(size / 64)]);
        job.remap = Remap::Transpose;
    }
    let jobs = [copy(1, 0x1000, 0xc000, 700), job, copy(3, 0x1100, 0xd000, 900)];
    let mut s = plain(case, &jobs);
    s.timing = Timing::fixed(case.rng.random_range(1..60));
    let base = s.image.base;
    let elements = job.elements() as i64;
    let offset = match target {
        "source" | "tile" => from + case.rng.random_range(0..elements),
        "destination" => to + case.rng.random_range(0..elements),
        "list" => 0x2000 + 2 * case.rng.random_range(0..i64::from(job.counts[1])),
        _ => WIRE_BYTES as i64 + case.rng.random_range(0..3) * 64,
    };
    // One beat of the bus.
    let beat = (base + offset as u64) / 64 * 64;
    s.bad = vec![BadRange { bytes: beat..beat + 64, reads: true, writes: true, response }];
    let (outcome, blamed) = match target {
        "source" | "tile" => (Outcome::ReadError, beat.max(base + from as u64)),
        "destination" => (Outcome::WriteError, 0),
        "list" => (Outcome::IndexError, beat),
        _ => (Outcome::DescriptorError, beat),
    };
    let mut image = s.image.clone();
    reference::apply(&mut image, &jobs[0], &s.regions)?;
    let before = image.clone();
    reference::apply(&mut image, &job, &s.regions)?;
    let mut whole = image.bytes;
    let ran = super::bench::run(&s)?;
    // The job's own bytes: all old or new, and new only before the error; then the last job.
    let (low, high) = (to as usize, to as usize + elements as usize);
    let written: Vec<usize> = (low..high).filter(|&i| ran.bytes[i] != before.bytes[i]).collect();
    match outcome {
        Outcome::ReadError if target == "source" => {
            let good = (blamed - base) as usize - from as usize;
            let last = written.iter().copied().max().unwrap_or(low);
            case.check(last < low + good.max(1), format_args!("byte {last:#x} follows the error and was written"));
            // The packed beat that holds the error is dropped whole, and the write beat that it completes.
            let reach = good.saturating_sub(2 * 63);
            let kept = (low..low + reach).all(|i| ran.bytes[i] == whole[i]);
            case.check(kept, "a byte well before the error was not written");
        }
        Outcome::WriteError => {
            let failed = (beat - base) as usize;
            let others = (low..high).filter(|i| !(failed..failed + 64).contains(i)).all(|i| ran.bytes[i] == whole[i]);
            case.check(others, "a write error kept other bytes of its job from being written");
        }
        Outcome::IndexError | Outcome::DescriptorError => {
            case.equal("bytes written by a job that could not begin", 0, written.len());
        }
        _ => {}
    }
    for i in low..high {
        let legal = ran.bytes[i] == before.bytes[i] || ran.bytes[i] == whole[i];
        if !legal {
            case.differed(format_args!("byte {i:#x} is neither old nor new"));
        }
    }
    whole[low..high].copy_from_slice(&ran.bytes[low..high]);
    let value = match (outcome, ran.outcomes().get(1)) {
        // The burst that holds the bad beat: bursts end at 4 KiB.
        (Outcome::WriteError, Some(c)) => {
            let burst = (base + to as u64).max(beat / 4096 * 4096);
            case.equal("address of the failed burst", burst, c.value);
            c.value
        }
        _ => blamed,
    };
    let failed = Completion { tag: 2, outcome, response, value, ..Completion::default() };
    let mut completions = vec![done(1), failed, done(3)];
    let mut after = reference::Image { base, bytes: whole };
    if outcome == Outcome::DescriptorError {
        completions.pop();
        // What came of the descriptor before the error is all that is known of it.
        completions[1].tag = ran.outcomes().get(1).map_or(0, |c| c.tag);
    } else {
        reference::apply(&mut after, &jobs[2], &s.regions)?;
    }
    let ran = hold(case, &s, &after.bytes, &completions)?;
    case.check(ran.bus_errors > 0, "no error was seen on the bus");
    Ok(())
}

/// Reset at a random cycle of a chain, once or twice in a row; then a job as if nothing had been.
pub(super) fn reset(case: &mut Case<'_>) -> anyhow::Result<()> {
    let size = case.rng.random_range(2000..8000);
    let mut jobs = [copy(1, 0x1000, 0x4000, size), copy(2, 0x1100, 0x8000, size), copy(3, 0x1000, 0xc000, 100)];
    if case.rng.random() {
        jobs[1].remap = Remap::Transpose;
        jobs[1].counts = [1, size / 32, 32];
        (jobs[1].source.strides, jobs[1].destination.strides) = ([0, 32, 1], [0, 1, i64::from(size / 32)]);
    }
    let mut s = plain(case, &jobs);
    s.timing = Timing { latency: (5, 60), busy: 0.2, gap: 0.2, sample_early: false };
    let mut bench = Bench::new(&s)?;
    let at = case.rng.random_range(1..1200);
    let twice = case.rng.random::<bool>();
    for _ in 0..at {
        bench.step();
    }
    case.cover(
        "reset",
        &[("when", if bench.quiet() { "idle" } else { "busy" }), ("times", if twice { "2" } else { "1" })],
    );
    bench.reset();
    if twice {
        bench.reset();
    }
    case.check(bench.dma.out().idle, "the engine is not idle after reset");
    for _ in 0..50 {
        let cycle = bench.step();
        case.check(!(cycle.ar.0.valid || cycle.aw.0.valid || cycle.w.0.valid), "the port is not quiet after reset");
    }
    case.equal("the engine is idle", true, bench.dma.out().idle);
    // A fresh job on what the memory holds now.
    let last = s.image.base + 2 * WIRE_BYTES as u64;
    let mut image = reference::Image { base: s.image.base, bytes: bench.memory.bytes.clone() };
    reference::apply(&mut image, &jobs[2], &s.regions)?;
    bench.ring(&[last]);
    let ran = bench.run();
    case.cycles(ran.cycles);
    case.check(!ran.hung, "the engine hangs after reset");
    case.equal_slices("completion", &[done(3)], &ran.outcomes());
    case.equal("violations", Vec::new(), ran.violations);
    super::judge::same_bytes(case, "memory after reset", &s, &image.bytes, &ran.bytes);
    Ok(())
}
