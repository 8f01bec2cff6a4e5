use golden::float16::{bf16_to_f32, f32_to_bf16};
use golden::kv::{Kind, KvCache, KvShape, Stream, check_rows};
use golden::{Error, Result};
use nkz::{Cache, StreamId, TOKENS};

/// The hardware's cache as golden's transformer sees it, one sequence.
#[derive(Clone, Debug)]
pub struct NkzCache {
    shape: KvShape,
    cache: Cache,
    /// First tokens of tiles that did not decode, by layer and head.
    masked: Vec<(usize, usize, usize)>,
    tile: Vec<u16>,
}

impl NkzCache {
    /// Wraps a cache that was built for `shape`.
    pub fn new(shape: KvShape, cache: Cache) -> Self {
        Self { shape, cache, masked: Vec::new(), tile: vec![0; TOKENS * shape.head_dim] }
    }

    /// The hardware's side.
    pub fn inner(&self) -> &Cache {
        &self.cache
    }

    /// The hardware's side, for fault injection.
    pub fn inner_mut(&mut self) -> &mut Cache {
        &mut self.cache
    }
}

fn id(stream: Stream) -> StreamId {
    let kind = if stream.kind == Kind::K { nkz::Kind::Key } else { nkz::Kind::Value };
    StreamId { sequence: 0, layer: stream.layer, head: stream.head, kind }
}

impl KvCache for NkzCache {
    fn shape(&self) -> KvShape {
        self.shape
    }

    fn tokens(&self, layer: usize) -> usize {
        let last = Stream { layer, head: self.shape.heads.saturating_sub(1), kind: Kind::V };
        self.cache.tokens(id(last)).unwrap_or(0)
    }

    fn append(&mut self, layer: usize, head: usize, k: &[f32], v: &[f32]) -> Result<()> {
        for (kind, row) in [(Kind::K, k), (Kind::V, v)] {
            let bits: Vec<u16> = row.iter().map(|&x| f32_to_bf16(x)).collect();
            let refused = |e: nkz::Error| Error::Cache { layer, head, what: e.to_string() };
            self.cache.append(id(Stream { layer, head, kind }), &bits).map_err(refused)?;
        }
        Ok(())
    }

    fn read(&mut self, stream: Stream, first: usize, rows: &mut [f32]) -> Result<()> {
        let (layer, head, d) = (stream.layer, stream.head, self.shape.head_dim);
        let held = self.cache.tokens(id(stream)).unwrap_or(0);
        check_rows(self.shape, stream, first, rows.len(), held)?;
        let end = first + rows.len() / d;
        for tile in first / TOKENS..end.div_ceil(TOKENS) {
            match self.cache.read_tile(id(stream), tile, &mut self.tile) {
                Ok(_) => {}
                Err(nkz::Error::Corrupt(_)) => {
                    let entry = (layer, head, tile * TOKENS);
                    if !self.masked.contains(&entry) {
                        self.masked.push(entry);
                    }
                }
                Err(e) => return Err(Error::Cache { layer, head, what: e.to_string() }),
            }
            for token in first.max(tile * TOKENS)..end.min((tile + 1) * TOKENS) {
                let from = &self.tile[(token - tile * TOKENS) * d..][..d];
                let to = &mut rows[(token - first) * d..][..d];
                to.iter_mut().zip(from).for_each(|(to, &from)| *to = bf16_to_f32(from));
            }
        }
        Ok(())
    }

    fn mask(&self, layer: usize, head: usize, visible: &mut [bool]) {
        for &(_, _, token) in self.masked.iter().filter(|m| (m.0, m.1) == (layer, head)) {
            visible.iter_mut().skip(token).take(TOKENS).for_each(|v| *v = false);
        }
    }

    fn rounds_rotated(&self) -> bool {
        true
    }

    fn clear(&mut self) {
        self.masked.clear();
        // One sequence was configured, so this one exists.
        let _ = self.cache.free(0);
    }
}
