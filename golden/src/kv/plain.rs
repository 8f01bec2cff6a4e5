//! The uncompressed cache: exact in f32, or rounded once to BF16.

use super::{Kind, KvCache, KvShape, Stream, check_rows, stream_index};
use crate::Result;
use crate::float16::round_bf16;

/// What an uncompressed cache stores a value as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// f32, exact: the reference.
    F32,
    /// BF16 before RoPE, and BF16 again after it: the baseline that every codec is compared with.
    Bf16,
}

/// An uncompressed cache.
#[derive(Clone, Debug)]
pub struct PlainCache {
    shape: KvShape,
    storage: Storage,
    /// One growing [tokens, head_dim] a stream.
    rows: Vec<Vec<f32>>,
}

impl PlainCache {
    /// An empty cache of `shape`.
    pub fn new(shape: KvShape, storage: Storage) -> Self {
        Self { shape, storage, rows: vec![Vec::new(); 2 * shape.layers * shape.heads] }
    }

    /// All rows of a stream, [tokens, head_dim]; empty for a stream outside the shape.
    pub fn rows(&self, stream: Stream) -> &[f32] {
        self.rows.get(stream_index(self.shape, stream)).map_or(&[], Vec::as_slice)
    }

    fn held(&self, stream: Stream) -> usize {
        self.rows(stream).len() / self.shape.head_dim.max(1)
    }
}

impl KvCache for PlainCache {
    fn shape(&self) -> KvShape {
        self.shape
    }

    fn tokens(&self, layer: usize) -> usize {
        let last = Stream { layer, head: self.shape.heads.saturating_sub(1), kind: Kind::V };
        self.held(last)
    }

    fn append(&mut self, layer: usize, head: usize, k: &[f32], v: &[f32]) -> Result<()> {
        for (kind, row) in [(Kind::K, k), (Kind::V, v)] {
            let stream = Stream { layer, head, kind };
            check_rows(self.shape, stream, 0, row.len(), 1)?;
            let rows = &mut self.rows[stream_index(self.shape, stream)];
            match self.storage {
                Storage::F32 => rows.extend_from_slice(row),
                Storage::Bf16 => rows.extend(row.iter().map(|&x| round_bf16(x))),
            }
        }
        Ok(())
    }

    fn read(&mut self, stream: Stream, first: usize, rows: &mut [f32]) -> Result<()> {
        check_rows(self.shape, stream, first, rows.len(), self.held(stream))?;
        rows.copy_from_slice(&self.rows(stream)[first * self.shape.head_dim..][..rows.len()]);
        Ok(())
    }

    fn rounds_rotated(&self) -> bool {
        self.storage == Storage::Bf16
    }

    fn clear(&mut self) {
        self.rows.iter_mut().for_each(Vec::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_and_bad_ones_are_refused() {
        let shape = KvShape { layers: 2, heads: 1, head_dim: 2 };
        let mut c = PlainCache::new(shape, Storage::Bf16);
        c.append(1, 0, &[1.0, 1.0 + 2f32.powi(-9)], &[3.0, 4.0]).unwrap();
        c.append(1, 0, &[5.0, 6.0], &[7.0, 8.0]).unwrap();
        assert_eq!((c.tokens(0), c.tokens(1)), (0, 2));
        let k = Stream { layer: 1, head: 0, kind: Kind::K };
        let mut rows = [0.0; 4];
        c.read(k, 0, &mut rows).unwrap();
        assert_eq!(rows, [1.0, 1.0, 5.0, 6.0], "rounded to BF16, ties to even");
        assert!(c.read(k, 1, &mut rows).is_err(), "past the end");
        assert!(c.read(Stream { layer: 2, ..k }, 0, &mut rows[..2]).is_err());
        assert!(c.append(0, 1, &[0.0; 2], &[0.0; 2]).is_err());
        assert!(c.append(0, 0, &[0.0; 3], &[0.0; 2]).is_err());
        c.clear();
        assert_eq!(c.tokens(1), 0);
    }
}
