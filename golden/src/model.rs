//! The Llama transformer in f32: prefill of any chunk and decode are the same function.

use crate::attention::{HeadShape, attention_seen};
use crate::kv::{Kind, KvCache, KvShape, Stream, TILE};
use crate::ops::{rms_norm, silu};
use crate::{Config, Error, Linear, Projection, Result, Rope, Tensor, Weights, float16, matmul_nt};

/// Which positions' logits a forward pass returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logits {
    /// Every position's: [T, vocabulary].
    All,
    /// The last position's: [1, vocabulary].
    Last,
    /// None, only the cache is filled: [0, vocabulary].
    Skip,
}

/// A projection about to leave the forward pass.
#[derive(Debug)]
pub struct Projected<'a> {
    /// The layer; `None` for the head.
    pub layer: Option<usize>,
    /// Which projection.
    pub projection: Projection,
    /// The weight [N, K] and its name.
    pub linear: &'a Linear,
    /// Input activations [T, K].
    pub input: &'a Tensor,
}

/// An operand of attention's two products, of the query heads that share a KV head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attending {
    /// Queries after RoPE, before they are scaled: [rows, head_dim].
    Queries,
    /// Weights after the softmax: [rows, tokens].
    Weights,
}

/// Watches a forward pass. The bench sees every projection's operands here, and may put its own result in place.
pub trait Observer {
    /// Called after each projection with its `output` [T, N] in f32; what is left in `output` goes on.
    fn projection(&mut self, projected: &Projected<'_>, output: &mut Tensor) -> Result<()>;

    /// Called with operands of attention; what is left in `values` goes on.
    fn attention(&mut self, operand: Attending, values: &mut [f32]) {
        let _ = (operand, values);
    }
}

/// Watches nothing.
impl Observer for () {
    fn projection(&mut self, _: &Projected<'_>, _: &mut Tensor) -> Result<()> {
        Ok(())
    }
}

/// Any closure is an observer.
impl<F: FnMut(&Projected<'_>, &mut Tensor) -> Result<()>> Observer for F {
    fn projection(&mut self, projected: &Projected<'_>, output: &mut Tensor) -> Result<()> {
        self(projected, output)
    }
}

/// A model ready to run.
#[derive(Debug)]
pub struct Model {
    config: Config,
    weights: Weights,
    rope: Rope,
}

impl Model {
    /// A model of `config` over `weights` that were loaded for it ([`Weights::load`] checks every shape).
    pub fn new(config: Config, weights: Weights) -> Self {
        let rope = Rope::new(&config);
        Self { config, weights, rope }
    }

    /// Sizes and constants.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The weights.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// The rotary embedding.
    pub fn rope(&self) -> &Rope {
        &self.rope
    }

    /// Runs `ids` after the tokens that `cache` holds, fills the cache, and returns logits [positions, vocabulary].
    /// `observer`: `&mut ()` where nobody watches.
    ///
    /// Refuses ids outside the vocabulary, more tokens than the context window, and a cache of another shape. After any
    /// other error (the cache's or the observer's) the cache is part-filled: clear it.
    pub fn forward(
        &self,
        ids: &[u32],
        cache: &mut dyn KvCache,
        observer: &mut dyn Observer,
        logits: Logits,
    ) -> Result<Tensor> {
        let c = &self.config;
        let held = self.check(ids, cache)?;
        let mut x = Tensor::zeros(ids.len(), c.hidden);
        for (r, &id) in ids.iter().enumerate() {
            x.row_mut(r).copy_from_slice(self.weights.embedding.weight.row(id as usize));
        }
        for (l, layer) in self.weights.layers.iter().enumerate() {
            let project = |p: Projection, input: &Tensor, observer: &mut dyn Observer| {
                run(Some(l), p, layer.linear(p), input, observer)
            };
            let normed = self.norm(&x, &layer.attention_norm);
            let q = project(Projection::Q, &normed, observer)?;
            let k = project(Projection::K, &normed, observer)?;
            let v = project(Projection::V, &normed, observer)?;
            let attended = self.attention(l, held, [&q, &k, &v], cache, observer)?;
            x.add(&project(Projection::O, &attended, observer)?)?;

            let normed = self.norm(&x, &layer.ffn_norm);
            let mut gated = project(Projection::Gate, &normed, observer)?;
            let up = project(Projection::Up, &normed, observer)?;
            gated.data_mut().iter_mut().zip(up.data()).for_each(|(g, u)| *g = silu(*g) * u);
            x.add(&project(Projection::Down, &gated, observer)?)?;
        }
        let first = match logits {
            Logits::All => 0,
            Logits::Last => ids.len().saturating_sub(1),
            Logits::Skip => return Ok(Tensor::zeros(0, c.vocabulary)),
        };
        let kept = x.data()[first * c.hidden..].to_vec();
        let normed = self.norm(&Tensor::new(vec![ids.len() - first, c.hidden], kept)?, &self.weights.norm);
        run(None, Projection::Head, self.weights.head(), &normed, observer)
    }

    /// Checks what a forward pass needs and returns the number of tokens held.
    fn check(&self, ids: &[u32], cache: &dyn KvCache) -> Result<usize> {
        let c = &self.config;
        let refuse = |layer, what| Err(Error::Cache { layer, head: 0, what });
        if cache.shape() != KvShape::from(c) {
            return refuse(0, format!("has the shape {:?}, the model needs {:?}", cache.shape(), KvShape::from(c)));
        }
        let held = cache.tokens(0);
        if let Some(layer) = (1..c.layers).find(|&l| cache.tokens(l) != held) {
            let what = format!("holds {} tokens, layer 0 holds {held}: clear it after an error", cache.tokens(layer));
            return refuse(layer, what);
        }
        if held.saturating_add(ids.len()) > c.context {
            return Err(Error::Context { held, added: ids.len(), window: c.context });
        }
        match ids.iter().position(|&id| id as usize >= c.vocabulary) {
            Some(position) => Err(Error::Token { id: ids[position], position, vocabulary: c.vocabulary }),
            None => Ok(held),
        }
    }

    fn norm(&self, x: &Tensor, weight: &[f32]) -> Tensor {
        let mut y = Tensor::zeros(x.rows(), x.columns());
        for r in 0..x.rows() {
            rms_norm(x.row(r), weight, self.config.epsilon, y.row_mut(r));
        }
        y
    }

    /// Causal attention of the new tokens (q, k, v rows) over all: [T, heads · head_dim].
    ///
    /// New tokens enter the cache up to the next border of a tile, those queries attend, and so on: the cache's
    /// last tile is always the queries' own, so its rule of visibility does not depend on how a text is cut.
    fn attention(
        &self,
        layer: usize,
        held: usize,
        [q, k, v]: [&Tensor; 3],
        cache: &mut dyn KvCache,
        observer: &mut dyn Observer,
    ) -> Result<Tensor> {
        let (c, d) = (&self.config, self.config.head_dim);
        let mut out = Tensor::zeros(q.rows(), c.q_width());
        let mut start = 0;
        while start < q.rows() {
            let end = q.rows().min(((held + start) / TILE + 1) * TILE - held);
            for t in start..end {
                for h in 0..c.kv_heads {
                    cache.append(layer, h, &k.row(t)[h * d..][..d], &v.row(t)[h * d..][..d])?;
                }
            }
            for h in 0..c.kv_heads {
                let keys = Stream { layer, head: h, kind: Kind::K };
                self.attend(keys, held, start..end, q, (&mut *cache, &mut *observer), &mut out)?;
            }
            start = end;
        }
        Ok(out)
    }

    /// The query heads of one KV head: rows `span` of `q` attend to tokens `0..held + span.end`.
    fn attend(
        &self,
        keys: Stream,
        held: usize,
        span: std::ops::Range<usize>,
        q: &Tensor,
        (cache, observer): (&mut dyn KvCache, &mut dyn Observer),
        out: &mut Tensor,
    ) -> Result<()> {
        let (c, d) = (&self.config, self.config.head_dim);
        let tokens = held + span.end;
        let mut k = vec![0f32; tokens * d];
        let mut v = vec![0f32; tokens * d];
        cache.read(keys, 0, &mut k)?;
        cache.read(Stream { kind: Kind::V, ..keys }, 0, &mut v)?;
        let mut visible = vec![true; tokens];
        cache.mask(keys.layer, keys.head, &mut visible);
        k.chunks_exact_mut(d).enumerate().for_each(|(t, row)| self.rope.rotate(row, t));
        if cache.rounds_rotated() {
            k.iter_mut().for_each(|x| *x = float16::round_bf16(*x));
        }
        // Rows of the product: query head by query head of the group, within each the span's positions.
        let rows = c.group() * span.len();
        let head = |row: usize| keys.head * c.group() + row / span.len();
        let position = |row: usize| span.start + row % span.len();
        let mut queries = vec![0f32; rows * d];
        for (row, query) in queries.chunks_exact_mut(d).enumerate() {
            query.copy_from_slice(&q.row(position(row))[head(row) * d..][..d]);
            self.rope.rotate(query, held + position(row));
        }
        observer.attention(Attending::Queries, &mut queries);
        let causal = |row: usize, scores: &mut [f32]| {
            let (seen, future) = scores.split_at_mut(held + position(row) + 1);
            seen.iter_mut().zip(&visible).filter(|(_, v)| !**v).for_each(|(s, _)| *s = f32::NEG_INFINITY);
            future.fill(f32::NEG_INFINITY);
        };
        let shape = HeadShape { rows, tokens, d, d_v: d };
        let mut mixed = vec![0f32; rows * d];
        let weights = |weights: &mut [f32]| observer.attention(Attending::Weights, weights);
        attention_seen(shape, 1.0 / (d as f32).sqrt(), [&queries, &k, &v], causal, weights, &mut mixed);
        for (row, mixed) in mixed.chunks_exact(d).enumerate() {
            out.row_mut(position(row))[head(row) * d..][..d].copy_from_slice(mixed);
        }
        Ok(())
    }
}

/// One projection, shown to the observer.
fn run(
    layer: Option<usize>,
    projection: Projection,
    linear: &Linear,
    input: &Tensor,
    observer: &mut dyn Observer,
) -> Result<Tensor> {
    let mut output = matmul_nt(input, &linear.weight)?;
    let shape = output.shape().to_vec();
    observer.projection(&Projected { layer, projection, linear, input }, &mut output)?;
    if output.shape() != shape {
        let what = format!("the observer left {:?} in place of {shape:?}", output.shape());
        return Err(Error::Shape { operation: "projection", what });
    }
    Ok(output)
}
