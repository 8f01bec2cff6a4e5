use super::PortShape;
use crate::{GemvJob, gemv_cycles};

/// Cycles of a matrix-vector job whose weights come through the port, words always at hand from the job's start on:
/// 1 + max(beats, ⌈stored bytes / P⌉) + R·L + A where every panel has at least A beats.
///
/// A panel of fewer beats than A waits for the accumulator between its chunks, and the gearbox fills meanwhile; that case is walked beat by
/// beat. docs/mvp.md derives the closed form.
pub fn gemv_port_cycles(shape: PortShape, job: GemvJob) -> u64 {
    let unstalled = gemv_cycles(shape.gemv, job);
    let config = shape.gemv.config;
    let (depth, latency) = (config.depth, config.accumulator_latency());
    let beats = job.n.div_ceil(shape.gemv.outputs);
    let last = beats - (beats - 1) / depth * depth;
    if last >= latency && (beats <= depth || depth >= latency) {
        let words = shape.stored_bytes(job).div_ceil(shape.bytes) as u64;
        return unstalled + words.saturating_sub(shape.beats(job) as u64);
    }
    // Beats of each tile, in order, and the edges until the next tile's first.
    let chunks = config.k_tiles(job.k);
    let panels = (0..beats.div_ceil(depth)).map(|p| (beats - p * depth).min(depth));
    let tiles = panels.flat_map(|beats| std::iter::repeat_n(beats, chunks));
    let (beat, port) = (shape.beat_bytes(), shape.bytes);
    let mut gearbox = Gearbox { beat, port, fill: 0, skid: 0 };
    // The edges of the job's start and of the first load.
    gearbox.edge(false);
    gearbox.edge(false);
    let mut stalls = 0;
    for beats in tiles {
        for slot in 0..beats.max(latency) {
            while slot < beats && gearbox.skid == 0 {
                gearbox.edge(false);
                stalls += 1;
            }
            gearbox.edge(slot < beats);
        }
    }
    unstalled + stalls
}

/// How full the port and the skid buffer behind it are.
struct Gearbox {
    beat: usize,
    port: usize,
    fill: usize,
    skid: usize,
}

impl Gearbox {
    fn edge(&mut self, takes: bool) {
        let push = self.fill >= self.beat && self.skid < 2;
        let word = self.fill <= self.beat + self.port;
        self.fill += usize::from(word) * self.port;
        self.fill -= usize::from(push) * self.beat;
        self.skid += usize::from(push);
        self.skid -= usize::from(takes);
    }
}
