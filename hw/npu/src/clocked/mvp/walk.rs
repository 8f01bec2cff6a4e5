//! The order in which beats pass.

use crate::exec::MatmulShape;
use rtl::{Format, Visitor};

/// What a slot of a tile is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lines {
    /// Rows of X.
    Rows,
    /// Columns of W, the last first.
    Columns,
    /// One chunk of all vectors of X.
    Chunks,
    /// Beats of q columns of W.
    Outputs,
}

/// A place in the walk over tiles, outermost first: M-blocks, n-panels, k-chunks, slots. In GEMV blocks are of beats, and there is one
/// panel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Walk {
    /// 32 bits each.
    pub block: u32,
    pub panel: u32,
    pub chunk: u32,
    pub slot: u32,
    /// Nothing is left.
    pub over: bool,
}

impl Lines {
    /// Slots of the tile.
    pub(super) fn slots(self, shape: &MatmulShape, walk: &Walk) -> usize {
        let depth = shape.config.depth;
        let rest = |of: usize| (of - walk.block as usize * depth).min(depth);
        match self {
            Lines::Rows => rest(shape.m),
            Lines::Columns => shape.columns(walk.panel as usize),
            Lines::Chunks => 1,
            Lines::Outputs => rest(shape.beats()),
        }
    }

    fn panels(self, shape: &MatmulShape) -> usize {
        match self {
            Lines::Rows | Lines::Columns => shape.n.div_ceil(shape.config.cols),
            Lines::Chunks | Lines::Outputs => 1,
        }
    }

    fn blocks(self, shape: &MatmulShape) -> usize {
        match self {
            Lines::Rows | Lines::Columns => shape.m.div_ceil(shape.config.depth),
            Lines::Chunks | Lines::Outputs => shape.beats().div_ceil(shape.config.depth),
        }
    }
}

impl Walk {
    /// Steps on.
    pub(super) fn advance(&mut self, lines: Lines, shape: &MatmulShape) {
        self.slot += 1;
        if (self.slot as usize) < lines.slots(shape, self) {
            return;
        }
        (self.slot, self.chunk) = (0, self.chunk + 1);
        if (self.chunk as usize) < shape.chunks {
            return;
        }
        (self.chunk, self.panel) = (0, self.panel + 1);
        if (self.panel as usize) < lines.panels(shape) {
            return;
        }
        (self.panel, self.block) = (0, self.block + 1);
        self.over = self.block as usize == lines.blocks(shape);
    }

    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        v.reg("block_q", 32, Format::Unsigned, &mut self.block);
        v.reg("panel_q", 32, Format::Unsigned, &mut self.panel);
        v.reg("chunk_q", 32, Format::Unsigned, &mut self.chunk);
        v.reg("slot_q", 32, Format::Unsigned, &mut self.slot);
        v.reg("over_q", 1, Format::Unsigned, &mut self.over);
    }
}
