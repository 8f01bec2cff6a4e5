//! Codecs of others, for comparison only: what published systems do to a KV cache, each written from its description.
//!
//! | name | codec | bits a value at head dimension 64 |
//! |---|---|---|
//! | `q8_0`, `q4_0` | llama.cpp's cache types (ggml's quantize_row_*_ref): blocks of 32 channels, FP16 scale | 8.5, 4.5 |
//! | `q4_0+hadamard` | the same after a Hadamard rotation of each token's row | 4.5 |
//! | `fp8` | E4M3 (OCP OFP8), saturating, no scale | 8 |
//! | `mxfp4` | OCP MX: blocks of 32 channels, E2M1 with an E8M0 scale | 4.25 |
//! | `nvfp4` | blocks of 16 channels, E2M1 with an E4M3 scale, an FP32 scale a tile | 4.52 |
//! | `kivi4`, `kivi3`, `kivi2` | KIVI (arXiv 2402.02750): K per channel along tokens, V per token along channels, FP16 scale and minimum | 4.5, 4.0, 3.0 |
//! | `turboquant4`, `turboquant3` | after TurboQuant (arXiv 2504.19874): random rotation, FP16 norm a token, Lloyd–Max levels of a Gaussian | 4.25, 3.25 |
//!
//! A bit is counted for everything that a reader needs and that is not the same for all tiles: scales, minima and norms, but
//! neither codebooks nor rotations. A row that is no whole number of blocks ends in a shorter block with a scale of its own.

mod block;
mod kivi;
mod rotation;

pub use block::{Fp8, MxFp4, NvFp4, Q4_0, Q8_0};
pub use kivi::Kivi;
pub use rotation::{Hadamard, TurboQuant};

use super::TileCodec;

/// The names of all peers, as [`by_name`] takes them.
pub const NAMES: [&str; 11] =
    ["q8_0", "fp8", "q4_0", "q4_0+hadamard", "nvfp4", "mxfp4", "kivi4", "kivi3", "kivi2", "turboquant4", "turboquant3"];

/// A peer by its name in [`NAMES`], for heads of `head_dim` channels; `None` for another name.
pub fn by_name(name: &str, head_dim: usize) -> Option<Box<dyn TileCodec>> {
    Some(match name {
        "q8_0" => Box::new(Q8_0 { head_dim }),
        "fp8" => Box::new(Fp8),
        "q4_0" => Box::new(Q4_0 { head_dim }),
        "q4_0+hadamard" => Box::new(Hadamard { head_dim, codec: Q4_0 { head_dim } }),
        "nvfp4" => Box::new(NvFp4 { head_dim }),
        "mxfp4" => Box::new(MxFp4 { head_dim }),
        "kivi4" => Box::new(Kivi { bits: 4, group: 64, head_dim }),
        "kivi3" => Box::new(Kivi { bits: 3, group: 32, head_dim }),
        "kivi2" => Box::new(Kivi { bits: 2, group: 32, head_dim }),
        "turboquant4" => Box::new(TurboQuant::new(4, head_dim)),
        "turboquant3" => Box::new(TurboQuant::new(3, head_dim)),
        _ => return None,
    })
}
