//! A cache over any lossy tile codec, with raw tokens by policy. Codecs live elsewhere; this decides who sees what.

use super::{Kind, KvCache, KvShape, Stream, TILE, check_rows, stream_index};
use crate::Result;
use crate::float16::round_bf16;

/// Which tokens a query sees raw (BF16) whatever the codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The first `sinks` tokens of the sequence.
    pub sinks: usize,
    /// The query's own tile of 32.
    pub current_tile: bool,
}

impl Policy {
    /// The product's rule: tokens 0..3 and the query's own tile raw.
    pub const SINKS_AND_TILE: Self = Self { sinks: 4, current_tile: true };
    /// For study: every token decoded, the current tile as far as it is filled.
    pub const NONE: Self = Self { sinks: 0, current_tile: false };

    /// Whether a query in the tile of token `query` sees `token` raw.
    pub fn raw(self, query: usize, token: usize) -> bool {
        token < self.sinks || (self.current_tile && token / TILE == query / TILE)
    }
}

/// A codec of one tile: up to 32 tokens of one stream.
pub trait TileCodec {
    /// Its name in tables.
    fn name(&self) -> String;

    /// Tokens that are encoded at once, a multiple of 32; whole tiles of a group that is not full yet stay raw.
    fn tokens(&self) -> usize {
        TILE
    }

    /// Encodes and decodes `tile` [tokens, head_dim] (BF16 values; 1..=`tokens()` tokens, the first being `first`) in
    /// place, and returns the bits that its stored form takes, scales, headers and padding included.
    fn round_trip(&mut self, stream: Stream, first: usize, tile: &mut [f32]) -> Result<usize>;
}

impl TileCodec for Box<dyn TileCodec> {
    fn name(&self) -> String {
        (**self).name()
    }
    fn tokens(&self) -> usize {
        (**self).tokens()
    }
    fn round_trip(&mut self, stream: Stream, first: usize, tile: &mut [f32]) -> Result<usize> {
        (**self).round_trip(stream, first, tile)
    }
}

/// What a codec cache has encoded so far: full tiles only, as only those leave the staging tile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bits {
    /// Values in encoded tiles.
    pub values: usize,
    /// Bits of their stored form, by the codec's own account.
    pub bits: usize,
}

impl Bits {
    /// Bits a value; 0 while nothing was encoded.
    pub fn per_value(self) -> f64 {
        if self.values == 0 { 0.0 } else { self.bits as f64 / self.values as f64 }
    }
}

/// One stream: all rows as they came (BF16) and as decoded.
#[derive(Clone, Debug, Default)]
struct Rows {
    raw: Vec<f32>,
    /// Full tiles, decoded; shorter than `raw` by the tile being filled.
    decoded: Vec<f32>,
}

/// A cache whose full tiles go through `C`, with raw tokens by [`Policy`]. Keeps decoded values, so each tile is coded once.
#[derive(Clone, Debug)]
pub struct CodecCache<C> {
    shape: KvShape,
    policy: Policy,
    codec: C,
    rows: Vec<Rows>,
    bits: [Bits; 2],
}

impl<C: TileCodec> CodecCache<C> {
    /// An empty cache of `shape`.
    pub fn new(shape: KvShape, policy: Policy, codec: C) -> Self {
        let rows = vec![Rows::default(); 2 * shape.layers * shape.heads];
        Self { shape, policy, codec, rows, bits: [Bits::default(); 2] }
    }

    /// What was encoded of this kind.
    pub fn bits(&self, kind: Kind) -> Bits {
        self.bits[usize::from(kind == Kind::V)]
    }

    /// The codec.
    pub fn codec(&self) -> &C {
        &self.codec
    }
}

impl<C: TileCodec> KvCache for CodecCache<C> {
    fn shape(&self) -> KvShape {
        self.shape
    }

    fn tokens(&self, layer: usize) -> usize {
        let last = Stream { layer, head: self.shape.heads.saturating_sub(1), kind: Kind::V };
        self.rows.get(stream_index(self.shape, last)).map_or(0, |r| r.raw.len() / self.shape.head_dim.max(1))
    }

    fn append(&mut self, layer: usize, head: usize, k: &[f32], v: &[f32]) -> Result<()> {
        for (kind, row) in [(Kind::K, k), (Kind::V, v)] {
            let stream = Stream { layer, head, kind };
            check_rows(self.shape, stream, 0, row.len(), 1)?;
            let rows = &mut self.rows[stream_index(self.shape, stream)];
            rows.raw.extend(row.iter().map(|&x| round_bf16(x)));
            let start = rows.decoded.len();
            if rows.raw.len() - start == self.codec.tokens() * self.shape.head_dim {
                rows.decoded.extend_from_slice(&rows.raw[start..]);
                let bits = self.codec.round_trip(stream, start / self.shape.head_dim, &mut rows.decoded[start..])?;
                let sum = &mut self.bits[usize::from(kind == Kind::V)];
                sum.values += rows.decoded.len() - start;
                sum.bits += bits;
            }
        }
        Ok(())
    }

    fn read(&mut self, stream: Stream, first: usize, out: &mut [f32]) -> Result<()> {
        let d = self.shape.head_dim;
        let at = stream_index(self.shape, stream);
        let held = self.rows.get(at).map_or(0, |r| r.raw.len() / d.max(1));
        check_rows(self.shape, stream, first, out.len(), held)?;
        let rows = &self.rows[at];
        let filling = rows.decoded.len();
        let mut partial = Vec::new();
        if !self.policy.current_tile && filling < rows.raw.len() {
            partial.extend_from_slice(&rows.raw[filling..]);
            self.codec.round_trip(stream, filling / d, &mut partial)?;
        }
        for (i, row) in out.chunks_exact_mut(d).enumerate() {
            let token = first + i;
            row.copy_from_slice(match token * d {
                at if self.policy.raw(held - 1, token) => &rows.raw[at..][..d],
                at if at < filling => &rows.decoded[at..][..d],
                at if self.policy.current_tile => &rows.raw[at..][..d],
                at => &partial[at - filling..][..d],
            });
        }
        Ok(())
    }

    fn rounds_rotated(&self) -> bool {
        true
    }

    fn clear(&mut self) {
        self.rows.iter_mut().for_each(|r| *r = Rows::default());
        self.bits = [Bits::default(); 2];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Negates, so that raw and decoded tokens are told apart.
    struct Negate;
    impl TileCodec for Negate {
        fn name(&self) -> String {
            "negate".into()
        }
        fn round_trip(&mut self, _: Stream, _: usize, tile: &mut [f32]) -> Result<usize> {
            tile.iter_mut().for_each(|x| *x = -*x);
            Ok(7 * tile.len())
        }
    }

    #[test]
    fn the_sinks_and_the_last_tile_are_raw() {
        let shape = KvShape { layers: 1, heads: 2, head_dim: 2 };
        for (policy, raw) in [
            (
                Policy::SINKS_AND_TILE,
                (|token, held: usize| token < 4 || token / 32 == (held - 1) / 32) as fn(_, _) -> _,
            ),
            (Policy::NONE, |_, _| false),
        ] {
            let mut cache = CodecCache::new(shape, policy, Negate);
            for t in 0..70 {
                for head in 0..2 {
                    let x = (t + 1) as f32;
                    cache.append(0, head, &[x, x], &[x, x]).unwrap();
                }
                let held = t + 1;
                assert_eq!(cache.tokens(0), held);
                for kind in [Kind::K, Kind::V] {
                    let mut rows = vec![0.0; 2 * held];
                    cache.read(Stream { layer: 0, head: 1, kind }, 0, &mut rows).unwrap();
                    for (token, row) in rows.chunks(2).enumerate() {
                        let x = (token + 1) as f32;
                        let want = if raw(token, held) { x } else { -x };
                        assert_eq!(row, [want, want], "token {token} of {held}");
                    }
                }
            }
            assert_eq!(cache.bits(Kind::K), Bits { values: 2 * 2 * 64, bits: 7 * 2 * 2 * 64 });
            assert_eq!(cache.bits(Kind::V).per_value(), 7.0);
        }
    }
}
