//! A product as the machine takes it: the command's fields checked, and what follows from them.

use super::{counted, placed};
use crate::isa::{Block, Matmul, Mode, Operands};
use crate::memory::Scratch;
use crate::{Config, Fault};
use mvp::{Datapath, Job};

/// The processor as a product uses it.
pub(crate) fn processor(config: &Config, operands: Operands) -> mvp::Config {
    let a = &config.array;
    let datapath = match operands {
        Operands::Float(format) => Datapath::float(format),
        Operands::PerChannel(format) | Operands::PerGroup { format, .. } => {
            format.map_or(Datapath::Int8, Datapath::float)
        }
        Operands::Stored(Block::Q80) => Datapath::Int8,
        Operands::Stored(Block::Q40 | Block::Q41) => Datapath::Int4,
    };
    let group = match operands {
        Operands::PerGroup { group, .. } => Some(usize::from(group)),
        Operands::Stored(_) => Some(Block::VALUES),
        _ => None,
    };
    mvp::Config {
        rows: a.rows,
        cols: a.cols,
        depth: a.depth,
        datapath,
        mac_stages: a.mac_stages,
        adder_stages: a.adder_stages,
        group,
    }
}

/// Vectors side by side: M in GEMV, 0 in GEMM.
pub(crate) fn vectors(p: &Matmul, processor: &mvp::Config) -> Result<usize, Fault> {
    match p.mode {
        Mode::Gemm => Ok(0),
        Mode::Gemv if p.m as usize > processor.cols => {
            let rule = "a matrix-vector product takes at most as many rows of X as the array has columns";
            Err(Fault::Field { field: "m", value: u64::from(p.m), rule })
        }
        Mode::Gemv => Ok(p.m as usize),
    }
}

/// A product whose fields fit the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatmulShape {
    pub command: Matmul,
    /// The processor.
    pub config: mvp::Config,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Bytes of a code of X, and of W where it is not stored in blocks.
    pub x_width: usize,
    /// Groups along k; 1 without.
    pub groups: usize,
    /// k-tiles.
    pub chunks: usize,
    /// q: outputs of a beat of GEMV; 1 in GEMM.
    pub outputs: usize,
}

impl MatmulShape {
    /// The product, if it can be carried out.
    ///
    /// # Errors
    /// The field that does not fit, or the range that leaves the scratchpad.
    pub(crate) fn checked(config: &Config, p: &Matmul, scratch: &Scratch) -> Result<Self, Fault> {
        let (m, n, k) = (counted("m", p.m)?, counted("n", p.n)?, counted("k", p.k)?);
        let x_width = match p.operands {
            Operands::Float(f) => f.width().div_ceil(8) as usize,
            _ => 1,
        };
        let (w_rows, w_bytes) = match p.operands {
            Operands::Stored(block) => (k.div_ceil(Block::VALUES), n * block.bytes()),
            _ => (k, n * x_width),
        };
        placed(scratch, "x", p.x, m, k * x_width)?;
        placed(scratch, "w", p.w, w_rows, w_bytes)?;
        placed(scratch, "y", p.y, m, n * if p.y_bf16 { 2 } else { 4 })?;
        if matches!(p.operands, Operands::Stored(_)) && !k.is_multiple_of(Block::VALUES) {
            let rule = "stored blocks hold 32 values each: K must be a multiple";
            return Err(Fault::Field { field: "k", value: k as u64, rule });
        }
        let processor = processor(config, p.operands).checked()?;
        Job { m, n, k }.checked()?;
        let vectors = vectors(p, &processor)?;
        let groups = processor.group.map_or(1, |group| k.div_ceil(group));
        let outputs = processor.cols.checked_div(vectors).unwrap_or(1);
        Ok(Self { command: *p, config: processor, m, n, k, x_width, groups, chunks: processor.k_tiles(k), outputs })
    }

    /// Columns that count of an n-panel of GEMM.
    pub(crate) fn columns(&self, panel: usize) -> usize {
        (self.n - panel * self.config.cols).min(self.config.cols)
    }

    /// Beats of GEMV that pass over a chunk.
    pub(crate) fn beats(&self) -> usize {
        self.n.div_ceil(self.outputs)
    }

    /// First output of a beat of GEMV.
    pub(crate) fn first_output(&self, block: usize, beat: usize) -> usize {
        (block * self.config.depth + beat) * self.outputs
    }

    /// The group that holds k.
    pub(crate) fn group(&self, k: usize) -> usize {
        self.config.group.map_or(0, |group| k / group)
    }

    /// Stored bytes of a column of W in a chunk, with its group's scale and minimum: what crosses the weight port. The scales of
    /// whole columns go to the output stage.
    pub(crate) fn segment_bytes(&self, chunk: usize) -> usize {
        let values = self.config.k_range(self.k, chunk).len();
        match self.command.operands {
            Operands::Float(_) | Operands::PerChannel(_) => values * self.x_width,
            Operands::PerGroup { .. } => 4 + values,
            Operands::Stored(Block::Q40) => 2 + values.div_ceil(2),
            Operands::Stored(Block::Q41) => 4 + values.div_ceil(2),
            Operands::Stored(Block::Q80) => 2 + values,
        }
    }
}
