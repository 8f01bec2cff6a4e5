//! The sensitivities without a reverse pass: their shape from weights and queries, their size from noise.

use super::{Sensitivity, Sums, layer};
use crate::kv::{Kind, KvCache, KvShape, PlainCache, Storage, Stream};
use crate::{Logits, Model, Projection, Result, Tensor, kl};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Share of a channel's standard deviation that a noise run adds: small, so that KL grows with its square.
const NOISE: f64 = 0.1;

/// Estimates S with forward passes only.
///
/// Within a layer: a score is q·k, so K's channels weigh as the second moment of the queries that read them, turned back
/// by RoPE over distances 0, 1, 2, 4 …; V's channels as the squared norm of their column of the output projection, both
/// summed over the query heads of the group. Between layers: noise of a tenth of each channel's standard deviation is put on
/// one layer's K (or V) and the KL divergence measured; ½·Σ noise²·S over positions and channels must equal it.
/// 2 · layers + 2 forward passes a window; `done` is told after each how many are done, and of how many.
pub fn estimate(
    model: &Model,
    windows: &[&[u32]],
    sinks: usize,
    seed: u64,
    done: &mut dyn FnMut(usize, usize),
) -> Result<Sensitivity> {
    let shape = KvShape::from(model.config());
    let (mut passes, all) = (0, windows.len() * (2 * shape.layers + 2));
    let mut pass = || {
        passes += 1;
        done(passes, all);
    };
    let mut sums = Sums::new(shape);
    for ids in windows {
        sums.positions += ids.len().saturating_sub(sinks);
        let mut x = embedded(model, ids)?;
        for l in 0..shape.layers {
            let trace = layer::forward(model, l, x)?;
            let (k, v) = (key_weights(model, &trace.q), value_weights(model, l));
            sums.add(l, Kind::K, &trace.k, sinks, |_, c| k[c]);
            sums.add(l, Kind::V, &trace.v, sinks, |_, c| v[c]);
            x = trace.out;
        }
        pass();
    }
    let mut result = sums.finish();
    let mut exact = Vec::new();
    for ids in windows {
        exact.push(run(model, ids, &mut exact_cache(shape))?);
        pass();
    }
    for layer in 0..shape.layers {
        for kind in [Kind::K, Kind::V] {
            let mut found = 0.0;
            for (ids, exact) in windows.iter().zip(&exact) {
                let mut noisy = Noisy::new(&result, layer, kind, sinks, seed);
                let logits = run(model, ids, &mut noisy)?;
                found += (0..ids.len()).map(|t| kl(exact.row(t), logits.row(t))).sum::<f64>();
                pass();
            }
            scale_layer(&mut result, layer, kind, found);
        }
    }
    Ok(result)
}

/// Scales a layer's S so that ½ · positions · Σ noise²·S is `found` nats.
fn scale_layer(result: &mut Sensitivity, layer: usize, kind: Kind, found: f64) {
    let (shape, positions) = (result.shape, result.positions as f64);
    let streams = (0..shape.heads).map(|head| super::stream_index(shape, Stream { layer, head, kind }));
    let streams: Vec<usize> = streams.collect();
    let channels = |s: &usize| result.channels[*s].iter().map(|c| NOISE * NOISE * c.variance * c.sensitivity);
    let predicted = 0.5 * positions * streams.iter().flat_map(channels).sum::<f64>();
    let factor = if predicted > 0.0 { found / predicted } else { 0.0 };
    for s in streams {
        result.channels[s].iter_mut().for_each(|c| c.sensitivity *= factor);
    }
}

fn embedded(model: &Model, ids: &[u32]) -> Result<Tensor> {
    let c = model.config();
    let mut x = Tensor::zeros(ids.len(), c.hidden);
    for (position, &id) in ids.iter().enumerate() {
        if id as usize >= c.vocabulary {
            return Err(crate::Error::Token { id, position, vocabulary: c.vocabulary });
        }
        x.row_mut(position).copy_from_slice(model.weights().embedding.weight.row(id as usize));
    }
    Ok(x)
}

/// Per K channel [kv_heads · head_dim]: the mean of (R(distance)·q)² over tokens and distances, summed over the group's heads.
fn key_weights(model: &Model, q: &Tensor) -> Vec<f64> {
    let (c, d) = (model.config(), model.config().head_dim);
    let mut weights = vec![0f64; c.kv_width()];
    let mut row = vec![0f32; d];
    for t in 0..q.rows() {
        let distances: Vec<usize> = [0].into_iter().chain((0..).map(|i| 1 << i)).take_while(|&s| s <= t).collect();
        for head in 0..c.heads {
            for &distance in &distances {
                row.copy_from_slice(&q.row(t)[head * d..][..d]);
                model.rope().rotate(&mut row, distance);
                let share = 1.0 / (distances.len() * q.rows()) as f64;
                let to = &mut weights[head / c.group() * d..][..d];
                to.iter_mut().zip(&row).for_each(|(w, x)| *w += share * f64::from(*x).powi(2));
            }
        }
    }
    weights
}

/// Per V channel: the squared norm of its columns of the output projection.
fn value_weights(model: &Model, l: usize) -> Vec<f64> {
    let (c, d) = (model.config(), model.config().head_dim);
    let weight = &model.weights().layers[l].linear(Projection::O).weight;
    let mut weights = vec![0f64; c.kv_width()];
    for r in 0..weight.rows() {
        for (column, w) in weight.row(r).iter().enumerate() {
            let head = column / d / c.group();
            weights[head * d + column % d] += f64::from(*w).powi(2);
        }
    }
    weights
}

fn exact_cache(shape: KvShape) -> PlainCache {
    PlainCache::new(shape, Storage::F32)
}

fn run(model: &Model, ids: &[u32], cache: &mut dyn KvCache) -> Result<Tensor> {
    model.forward(ids, cache, &mut (), Logits::All)
}

/// An exact cache that adds noise to one layer's K or V past the sinks: ± a tenth of the channel's standard deviation.
struct Noisy<'a> {
    inner: PlainCache,
    statistics: &'a Sensitivity,
    layer: usize,
    kind: Kind,
    sinks: usize,
    rng: Xoshiro256PlusPlus,
}

impl<'a> Noisy<'a> {
    fn new(statistics: &'a Sensitivity, layer: usize, kind: Kind, sinks: usize, seed: u64) -> Self {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { inner: exact_cache(statistics.shape), statistics, layer, kind, sinks, rng }
    }
}

impl KvCache for Noisy<'_> {
    fn shape(&self) -> KvShape {
        self.inner.shape()
    }

    fn tokens(&self, layer: usize) -> usize {
        self.inner.tokens(layer)
    }

    fn append(&mut self, layer: usize, head: usize, k: &[f32], v: &[f32]) -> Result<()> {
        let (mut k, mut v) = (k.to_vec(), v.to_vec());
        if layer == self.layer && self.inner.rows(Stream { layer, head, kind: self.kind }).len() >= self.sinks * k.len()
        {
            let row = if self.kind == Kind::K { &mut k } else { &mut v };
            let channels = self.statistics.channels(Stream { layer, head, kind: self.kind });
            for (x, channel) in row.iter_mut().zip(channels) {
                let noise = NOISE * channel.variance.sqrt();
                *x += if self.rng.next_u64() >> 63 == 0 { noise as f32 } else { -noise as f32 };
            }
        }
        self.inner.append(layer, head, &k, &v)
    }

    fn read(&mut self, stream: Stream, first: usize, rows: &mut [f32]) -> Result<()> {
        self.inner.read(stream, first, rows)
    }

    fn clear(&mut self) {
        self.inner.clear();
    }
}
