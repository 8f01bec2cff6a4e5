//! The weight port in time: P stored bytes a cycle, gathered into beats.

use super::MatmulShape;
use crate::isa::Mode;
use std::collections::HashMap;

/// The gearbox and the two places of the processor's own buffer behind it.
struct Gearbox<B> {
    port: u64,
    /// Bytes of the beats that have not left, the next one first.
    beats: B,
    need: Option<u64>,
    fill: u64,
    buffered: u32,
}

impl<B: Iterator<Item = u64>> Gearbox<B> {
    fn new(port: u64, mut beats: B) -> Self {
        let need = beats.next();
        Self { port, beats, need, fill: 0, buffered: 0 }
    }

    /// An edge on which the processor takes a beat or none.
    fn edge(&mut self, takes: bool) {
        let leaves = self.need.filter(|need| self.fill >= *need && self.buffered < 2);
        if let Some(need) = self.need {
            self.fill += if self.fill <= need + self.port { self.port } else { 0 };
        }
        if let Some(need) = leaves {
            self.fill -= need;
            self.need = self.beats.next();
            self.buffered += 1;
        }
        self.buffered -= u32::from(takes);
    }

    /// Takes a beat in each of `slots`, edge by edge. Gives the edges lost to beats that were not there.
    fn slots(&mut self, slots: impl Iterator<Item = bool>) -> u64 {
        let mut lost = 0;
        for takes in slots {
            while takes && self.buffered == 0 {
                self.edge(false);
                lost += 1;
            }
            self.edge(takes);
        }
        lost
    }
}

/// Tiles in their order: columns that are loaded or beats that pass, rows that pass.
fn tiles(shape: &MatmulShape) -> impl Iterator<Item = (usize, usize)> + Clone {
    let MatmulShape { m, n, config, .. } = *shape;
    let rows = if shape.command.mode == Mode::Gemm { m } else { shape.beats() };
    let panels = if shape.command.mode == Mode::Gemm { n.div_ceil(config.cols) } else { 1 };
    (0..rows.div_ceil(config.depth))
        .flat_map(move |block| (0..panels).map(move |panel| ((rows - block * config.depth).min(config.depth), panel)))
}

/// Cycles in which the array waits for the port.
///
/// Where a beat is no wider than the port there are none. Else the edges of the sequencer and of the gearbox are walked side by side: a
/// cycle before the job, the job's start, then the slots of its tiles.
pub(super) fn stalls(shape: &MatmulShape, port: u64) -> u64 {
    let segments: Vec<u64> = (0..shape.chunks).map(|chunk| shape.segment_bytes(chunk) as u64).collect();
    let widest = segments.iter().max().copied().unwrap_or_default() * shape.outputs.min(shape.n) as u64;
    if widest <= port {
        return 0;
    }
    let (cols, latency) = (shape.config.cols, shape.config.accumulator_latency());
    let tiles = tiles(shape).flat_map(|tile| segments.iter().map(move |segment| (tile, *segment)));
    if shape.command.mode == Mode::Gemm {
        let columns = |panel: usize| shape.columns(panel);
        let beats = tiles.clone().flat_map(|((_, panel), need)| std::iter::repeat_n(need, columns(panel)));
        let mut gearbox = Gearbox::new(port, beats);
        gearbox.slots([false, false].into_iter());
        // Column C − 1 has slot 0; those past N take nothing.
        let takes = |panel: usize| (0..cols).map(move |slot| cols - 1 - slot).map(move |c| c < columns(panel));
        // The first tile is loaded alone, the others in the first slots of the tile before them.
        let (mut lost, mut rest) = (0, 0);
        for ((rows, panel), _) in tiles {
            lost += gearbox.slots(takes(panel)) + gearbox.slots(std::iter::repeat_n(false, rest));
            rest = rows.max(cols).max(latency) - cols;
        }
        return lost;
    }
    let outputs = |block: usize, beat: usize| (shape.n - shape.first_output(block, beat)).min(shape.outputs) as u64;
    let depth = shape.config.depth;
    let blocks = (0..shape.beats().div_ceil(depth)).flat_map(|block| segments.iter().map(move |need| (block, *need)));
    let rows = |block: usize| (shape.beats() - block * depth).min(depth);
    let beats = blocks.clone().flat_map(|(block, need)| (0..rows(block)).map(move |beat| need * outputs(block, beat)));
    let mut gearbox = Gearbox::new(port, beats);
    gearbox.slots([false; 3].into_iter());
    blocks
        .map(|(block, _)| {
            let beats = rows(block);
            gearbox.slots((0..beats.max(latency)).map(|slot| slot < beats))
        })
        .sum()
}

/// What was walked before.
pub(super) type Known = HashMap<(crate::isa::Mode, crate::isa::Operands, [usize; 3]), u64>;

/// [`stalls`], walked once a shape.
pub(super) fn known_stalls(known: &mut Known, shape: &MatmulShape, port: u64) -> u64 {
    let key = (shape.command.mode, shape.command.operands, [shape.m, shape.n, shape.k]);
    *known.entry(key).or_insert_with(|| stalls(shape, port))
}
