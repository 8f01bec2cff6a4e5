//! The KV cache as the transformer sees it: K before RoPE and V, appended token by token, read back as rows.
//!
//! # Visibility
//! Tokens lie in tiles of 32 ([`TILE`]). When the transformer reads, the last appended token lies in the tile of the queries
//! that attend, in prefill and decode alike: it appends up to a tile's border, lets those queries attend, then goes on.
//! So "query t sees its own tile and the sinks raw, all else decoded" needs of a cache only that it keeps the *last*
//! tile (full or not) and the sinks raw, as the hardware's staging tile does; see [`Policy`].

mod codec;
pub mod peers;
mod plain;

pub use codec::{Bits, CodecCache, Policy, TileCodec};
pub use plain::{PlainCache, Storage};

use crate::{Config, Error, Result};

/// Tokens a tile.
pub const TILE: usize = 32;

/// Key or value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Keys, before RoPE.
    K,
    /// Values.
    V,
}

/// What a cache holds: `layers` × `heads` slots, each of K rows and V rows of `head_dim` values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// Layers.
    pub layers: usize,
    /// KV heads a layer.
    pub heads: usize,
    /// Channels a head.
    pub head_dim: usize,
}

impl From<&Config> for KvShape {
    fn from(c: &Config) -> Self {
        Self { layers: c.layers, heads: c.kv_heads, head_dim: c.head_dim }
    }
}

/// One stream of rows: the K or V of a KV head of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream {
    /// Layer.
    pub layer: usize,
    /// KV head.
    pub head: usize,
    /// Key or value.
    pub kind: Kind,
}

/// A KV cache. Rows cross this interface in f32; what a cache stores is its own affair.
///
/// Per layer the transformer appends one token to every head, reads rows of tokens `0..tokens(layer)`, and turns K rows by
/// RoPE itself. A cache that refuses a row leaves the sequence unfinished: clear it.
pub trait KvCache {
    /// The shape it was made for.
    fn shape(&self) -> KvShape;

    /// Tokens held in `layer`, in every head.
    fn tokens(&self, layer: usize) -> usize;

    /// Appends the next token's `k` (before RoPE) and `v` of a layer's head, `head_dim` values each.
    fn append(&mut self, layer: usize, head: usize, k: &[f32], v: &[f32]) -> Result<()>;

    /// Reads the rows of tokens `first..first + rows.len() / head_dim` into `rows` [tokens, head_dim], as a query in
    /// the tile of the last appended token sees them. K comes before RoPE.
    fn read(&mut self, stream: Stream, first: usize, rows: &mut [f32]) -> Result<()>;

    /// Clears `visible[t]` for tokens that must not be attended to (a corrupt tile). Called with all true, once for each
    /// head and layer after its rows were read; by default every token is seen.
    fn mask(&self, layer: usize, head: usize, visible: &mut [bool]) {
        let _ = (layer, head, visible);
    }

    /// Whether K is rounded to BF16 again after RoPE, as a rotate unit on the hardware's read path does.
    fn rounds_rotated(&self) -> bool {
        false
    }

    /// Forgets every token.
    fn clear(&mut self);
}

/// Checks a read or append against what is held; for implementations of [`KvCache`].
pub fn check_rows(shape: KvShape, stream: Stream, first: usize, values: usize, held: usize) -> Result<()> {
    let what = if stream.layer >= shape.layers || stream.head >= shape.heads {
        format!("is outside a cache of {} layers and {} heads", shape.layers, shape.heads)
    } else if !values.is_multiple_of(shape.head_dim.max(1)) {
        format!("{values} values are no whole rows of {}", shape.head_dim)
    } else if first.checked_add(values / shape.head_dim.max(1)).is_none_or(|end| end > held) {
        format!("rows from {first} on for {values} values are not held; {held} tokens are")
    } else {
        return Ok(());
    };
    Err(Error::Cache { layer: stream.layer, head: stream.head, what })
}

/// The index of a stream among `2 · layers · heads`: layer, then head, then K before V.
pub(crate) fn stream_index(shape: KvShape, s: Stream) -> usize {
    (s.layer * shape.heads + s.head) * 2 + usize::from(s.kind == Kind::V)
}
