//! The weight port of the matrix-vector mode: P bytes a cycle of weights as they are stored, and what makes beats of them.
//!
//! ```text
//!   word (P bytes) ─► gearbox (bytes_q, B + 2P) ─► expander ─► beat of q rows, a chunk each ─► Gemv
//! ```
//!
//! Stored weights lie in the order in which beats pass: \[panel\]\[chunk\]\[n\], a *segment* each, which holds one row's values of one chunk.
//! Every segment has the same length: rows past N and values past K are stored too, and ignored.

mod cycles;
mod expand;
mod gearbox;
mod ported;

pub use cycles::gemv_port_cycles;
pub use expand::{StoredWeights, unpack};
pub use gearbox::{WeightPort, WeightPortIn, WeightPortOut, Word};
pub use ported::{PortedGemv, PortedGemvIn, PortedGemvOut};

use crate::{Config, ConfigError, Datapath, GemvJob, GemvShape, JobError};
use numeric::FloatFormat;

/// Values of a GGUF block.
pub(crate) const BLOCK: usize = 32;
/// Widest port, bytes a cycle.
const MAX_PORT: usize = 4096;

/// GGUF's blocks of 32 values along k, byte for byte as a file holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// d in FP16; 16 bytes of codes 0..=15, j in the low and j + 16 in the high nibble: d·(q − 8). 18 bytes.
    Q4_0,
    /// d and m in FP16; codes as in Q4_0: d·q + m. 20 bytes.
    Q4_1,
    /// d in FP16; 32 codes in INT8: d·q. 34 bytes.
    Q8_0,
}

impl Block {
    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q8_0 => 34,
        }
    }
}

/// How a segment is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The datapath's codes, k ascending: INT4 two a byte, the lower k in the low nibble; 16-bit codes low byte first.
    Codes,
    /// The same behind a scale in FP16: a tile is one group.
    Scaled,
    /// A block. An integer datapath with groups of 32 uses the codes as stored, scale and minimum in the accumulator; a BF16 or FP16
    /// one takes every value expanded, rounded once from the exact d·q + m.
    Block(Block),
}

/// A processor and its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortShape {
    /// The matrix-vector processor.
    pub gemv: GemvShape,
    /// How weights are stored.
    pub stored: Stored,
    /// P: bytes a cycle, 1..=4,096.
    pub bytes: usize,
}

/// A port that cannot be built, or a job that does not suit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The processor cannot be built.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The job cannot be run.
    #[error(transparent)]
    Job(#[from] JobError),
    /// P out of range.
    #[error("a port of {0} bytes a cycle: it takes 1..={MAX_PORT}")]
    Bytes(usize),
    /// The datapath has no use for what is stored.
    #[error("weights stored as {stored:?} do not suit the {datapath} datapath {wants}")]
    Stored {
        /// How they are stored.
        stored: Stored,
        /// The datapath.
        datapath: Datapath,
        /// What would suit them.
        wants: &'static str,
    },
    /// A block is cut by the end of K.
    #[error("K = {0} cuts a block: blocks hold {BLOCK} values along k")]
    Cut(usize),
    /// Another number of bytes than the job needs.
    #[error("{got} bytes of weights, but the job needs {expected}")]
    Length {
        /// Bytes given.
        got: usize,
        /// Bytes needed.
        expected: usize,
    },
}

impl PortShape {
    /// The same, if it can be built.
    ///
    /// # Errors
    /// Names what does not fit.
    pub fn checked(self) -> Result<Self, PortError> {
        let Config { rows, datapath, group, .. } = self.gemv.checked()?.config;
        if !(1..=MAX_PORT).contains(&self.bytes) {
            return Err(PortError::Bytes(self.bytes));
        }
        let depth = self.gemv.config.tile_depth();
        let wants = match (self.stored, datapath) {
            (Stored::Codes, _) if group.is_some() => Some("with groups: it needs scales beside the codes"),
            (Stored::Scaled, _) if group != Some(depth) => Some("without a group that fits one tile of R rows"),
            (Stored::Block(Block::Q8_0), Datapath::Int4) => Some(": codes of 8 bits need int8"),
            (Stored::Block(_), Datapath::Int8 | Datapath::Int4) if group != Some(BLOCK) || depth != BLOCK => {
                Some("unless it has groups of 32 and tiles that hold one")
            }
            (Stored::Block(_), Datapath::Float { weight, .. })
                if !matches!(weight, FloatFormat::BF16 | FloatFormat::FP16)
                    || group.is_some()
                    || !rows.is_multiple_of(BLOCK) =>
            {
                Some(": they are expanded to bf16 or fp16, without groups, on a multiple of 32 rows")
            }
            _ => None,
        };
        match wants {
            Some(wants) => Err(PortError::Stored { stored: self.stored, datapath, wants }),
            None => Ok(self),
        }
    }

    /// The job, if the port can feed it.
    ///
    /// # Errors
    /// A dimension out of range, or a K that cuts a block.
    pub fn checked_job(self, job: GemvJob) -> Result<GemvJob, PortError> {
        let job = job.checked()?;
        if matches!(self.stored, Stored::Block(_)) && !job.k.is_multiple_of(BLOCK) {
            return Err(PortError::Cut(job.k));
        }
        Ok(job)
    }

    /// Bytes of a segment: one row's values of a chunk.
    pub fn segment_bytes(&self) -> usize {
        let depth = self.gemv.config.tile_depth();
        let codes = match self.gemv.config.datapath {
            Datapath::Int8 => depth,
            Datapath::Int4 => depth.div_ceil(2),
            Datapath::Float { weight, .. } => depth * weight.width().div_ceil(8) as usize,
        };
        match self.stored {
            Stored::Codes => codes,
            Stored::Scaled => 2 + codes,
            Stored::Block(block) => depth / BLOCK * block.bytes(),
        }
    }

    /// B: bytes of a beat of q segments.
    pub fn beat_bytes(&self) -> usize {
        self.gemv.outputs * self.segment_bytes()
    }

    /// Stored bytes of a job's weights: ⌈N/q⌉ beats for each chunk of k.
    pub fn stored_bytes(&self, job: GemvJob) -> usize {
        self.beats(job) * self.beat_bytes()
    }

    /// ⌈N/q⌉ × chunks of k.
    pub fn beats(&self, job: GemvJob) -> usize {
        job.n.div_ceil(self.gemv.outputs) * self.gemv.config.k_tiles(job.k)
    }
}
