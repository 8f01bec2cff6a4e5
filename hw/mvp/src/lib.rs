//! The matrix-vector processor: a weight-stationary systolic array with its feeders, accumulators and sequencer.
//!
//! ```text
//!            weights (a column a cycle)   activations (a row a cycle)
//!                      │                        │
//!                 ┌────▼────┐  west edge  ┌─────▼─────┐
//!                 │  skid   │             │   skid    │
//!                 └────┬────┘             └─────┬─────┘
//!   job ─► sequencer ──┴──► feeder (skew) ◄─────┘
//!              │                 │ row r: r·L edges late
//!              │ tag        ┌────▼─────────────────┐
//!              │            │ PE ─ PE ─ PE ─ … ─ PE│ activations, weights, swap and load bits go east
//!              │            │  │    │    │        │ │
//!              │            │ PE ─ PE ─ PE ─ … ─ PE│ partial sums go south
//!              │            └──┬────┬────┬────────┬┘
//!              │            deskew: column c C−1−c edges late
//!              └──────────► accumulator (D rows × C) ─► output FIFO ─► results (a row a cycle)
//! ```
//!
//! docs/mvp.md gives the ports, the registers, the schedule and the closed form of its cycles.

mod accumulator;
mod array;
mod beat;
mod config;
mod conv;
mod counters;
mod datapath;
mod feeder;
mod gemm;
mod gemv;
mod lanes;
mod mesh;
mod output;
mod output_stage;
mod pe;
mod port;
mod processor;
mod sequencer;
mod simd;
mod train;
mod transaction;

pub use accumulator::{Accumulator, AccumulatorIn, OutRow, Tag};
pub use array::Array;
pub use beat::{Beat, Beats, Scales, Side};
pub use config::{Config, ConfigError, Job, JobError};
pub use conv::{Conv, ConvError, ConvJob, Layout, PatchFeeder};
pub use counters::Counters;
pub use datapath::Datapath;
pub use feeder::{Deskew, Feeder};
pub use gemm::{GemmError, GemmResult, gemm, gemm_cycles};
pub use gemv::{Gemv, GemvIn, GemvJob, GemvOut, GemvShape, gemv_cycles};
pub use mesh::{Mesh, SystolicArray, WestEdge, WestRow};
pub use output::{Activation, Column, Output, RowInfo};
pub use output_stage::{Columns, OutputJob, OutputStage, OutputStageIn, OutputStageOut, ResultRow};
pub use pe::{Code, Pe, PeIn, PeOut};
pub use port::{
    Block, PortError, PortShape, PortedGemv, PortedGemvIn, PortedGemvOut, Stored, StoredWeights, WeightPort,
    WeightPortIn, WeightPortOut, Word, gemv_port_cycles, unpack,
};
pub use processor::{Processor, ProcessorIn, ProcessorOut};
pub use sequencer::{Sequencer, Step, Tile};
pub use transaction::{
    Codes, Computed, GroupScales, Sums, column_sums, finish, gemm_cycles_no_overlap, grouped_sums, row_sums, sums,
};
