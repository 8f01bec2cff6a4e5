//! Software on the host CPU: what prepares a model for the NPU and lowers it to commands. docs/host.md describes it.

mod attention;
mod error;
mod format;
mod lower;
mod pack;
mod plan;
mod program;
mod quantize;
mod sample;
mod session;
mod shape;
mod source;
mod spans;
mod split;
mod tag;

pub use error::{Error, Result};
pub use format::{Code, Format, SYNTAX};
pub use lower::Logits;
pub use program::awaited;
pub use quantize::{QuantizedRows, quantize_rows};
pub use sample::{Sampler, Sampling};
pub use session::{Answer, Cache, Options, Recorded, Session};
pub use source::Source;
pub use tag::{Step, name as tag_name, parse as parse_tag};
