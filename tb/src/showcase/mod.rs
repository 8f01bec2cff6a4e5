//! Small runs of each block that make a waveform worth looking at, each with the GTKWave view that explains it.
//!
//! A showcase drives its block, traces it, and says which signals to show and where the markers go. `magpie waves`
//! writes them; the views are kept in waves/ and a test holds them to what a run gives.

mod dma;
mod kernel;
mod mvp;
mod nkz;
mod npu;
mod vector;

use crate::wave::{Summary, Trace, TraceOptions, View, WaveError};
use std::path::Path;

/// One block's run.
pub struct Showcase {
    /// Name of the files and of the waveform's top scope.
    pub name: &'static str,
    /// What one sees, in a line.
    pub about: &'static str,
    /// Scopes to trace; none: all.
    scopes: &'static [&'static str],
    run: fn(&mut Trace) -> Result<View, WaveError>,
}

/// What a run left.
pub struct Shot {
    /// Of the waveform.
    pub summary: Summary,
    /// Text of the GTKWave save file.
    pub view: String,
}

/// All showcases, simple ones first.
pub const SHOWCASES: &[Showcase] = &[
    kernel::FIFO,
    kernel::SKID,
    kernel::SRAM,
    kernel::ADDRESS,
    mvp::PE,
    mvp::ARRAY,
    mvp::GEMM,
    dma::DMA,
    nkz::NKZ,
    vector::VECTOR,
    npu::NPU,
];

impl Showcase {
    /// Runs it and writes its waveform, `.vcd` or `.fst`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, file: &Path) -> Result<Shot, WaveError> {
        let scopes = self.scopes.iter().map(|s| (*s).into()).collect();
        let mut trace = Trace::create(file, self.name, &TraceOptions { scopes, ..TraceOptions::default() })?;
        let view = (self.run)(&mut trace)?;
        let summary = trace.finish()?;
        Ok(Shot { summary, view: view.text(summary.cycles) })
    }
}
