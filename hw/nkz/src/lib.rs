//! NeuKompression: the KV cache several times smaller, at the same answers. docs/nkz.md specifies the stream.

mod address;
mod bits;
mod cache;
mod channel;
pub mod clocked;
mod crc;
mod decode;
mod encode;
mod error;
mod frequencies;
mod header;
mod lanes;
mod pages;
mod quantiser;
mod tables;

pub use address::{Address, CHANNELS, Kind, LANES, TOKENS, column_blocks};
pub use cache::{Cache, CacheConfig, Footprint, IndexEntry, IndexLine, SINKS, StreamId};
pub use channel::{Channel, PLAIN_TABLE};
pub use crc::Crc;
pub use decode::{Decoded, Slot};
pub use encode::{Encoded, Encoder, Mode, TileIn};
pub use error::{Cause, Corrupt, Error};
pub use header::{Format, Header};
pub use pages::{PAGE, UNIT};
pub use quantiser::{CODE_MAX, FIXED_MAX, Quantiser, RECIPROCAL, RESIDUAL_MAX, STEP};
pub use tables::{COST_BITS, TOTAL, TOTAL_BITS, Table, code_tables, exponent_tables};
