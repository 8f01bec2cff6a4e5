//! How much the model's answers depend on each channel of the KV cache.
//!
//! The diagonal Fisher information: with y_t drawn from the model's own distribution after token t, and
//! g = ∂ Σ_t ln p(y_t) / ∂x for a cached value x, S = E[g²]. The cross terms of the square vanish in expectation (scores of
//! different positions are independent and of mean zero), so one reverse pass gives Σ_t of each position's own Fisher.
//! An error e of x costs about ½·e²·S nats of KL divergence, summed over the positions that see it.

mod estimate;
mod layer;

pub use estimate::estimate;

use crate::kv::{Kind, KvShape, Stream, stream_index};
use crate::score::log_softmax;
use crate::{Error, Model, Result, Tensor, matmul, matmul_nt};
use layer::{Gradients, normed, normed_back};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// What is known of one channel of a stream (K before RoPE, or V), over all positions past the sinks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Channel {
    /// Mean of its values.
    pub mean: f64,
    /// Variance of its values.
    pub variance: f64,
    /// S: mean squared gradient, nats² per unit² of the value.
    pub sensitivity: f64,
}

/// Statistics of every channel of a model's KV cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Sensitivity {
    shape: KvShape,
    positions: usize,
    /// [stream][channel].
    channels: Vec<Vec<Channel>>,
}

impl Sensitivity {
    /// The cache's shape.
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// Positions that were averaged over.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// The `head_dim` channels of a stream; nothing for a stream outside the shape.
    pub fn channels(&self, stream: Stream) -> &[Channel] {
        self.channels.get(stream_index(self.shape, stream)).map_or(&[], Vec::as_slice)
    }
}

/// Sums over positions, from which [`Sensitivity`] is made.
struct Sums {
    shape: KvShape,
    positions: usize,
    /// [stream][channel]: Σx, Σx², ΣS.
    sums: Vec<Vec<[f64; 3]>>,
}

impl Sums {
    fn new(shape: KvShape) -> Self {
        let streams = 2 * shape.layers * shape.heads;
        Self { shape, positions: 0, sums: vec![vec![[0.0; 3]; shape.head_dim]; streams] }
    }

    /// Adds a layer's rows [T, heads · head_dim] past the sinks; `squared` gives what to add to S for (row, column).
    fn add(&mut self, layer: usize, kind: Kind, x: &Tensor, sinks: usize, squared: impl Fn(usize, usize) -> f64) {
        for column in 0..x.columns() {
            let stream = Stream { layer, head: column / self.shape.head_dim, kind };
            let sum = &mut self.sums[stream_index(self.shape, stream)][column % self.shape.head_dim];
            for t in sinks..x.rows() {
                let value = f64::from(x.row(t)[column]);
                let added = [value, value * value, squared(t, column)];
                sum.iter_mut().zip(added).for_each(|(s, a)| *s += a);
            }
        }
    }

    fn finish(self) -> Sensitivity {
        let n = self.positions.max(1) as f64;
        let channel = |[x, xx, s]: [f64; 3]| Channel {
            mean: x / n,
            variance: (xx / n - (x / n) * (x / n)).max(0.0),
            sensitivity: s / n,
        };
        let channels = self.sums.into_iter().map(|s| s.into_iter().map(channel).collect()).collect();
        Sensitivity { shape: self.shape, positions: self.positions, channels }
    }
}

/// Measures S by a reverse pass over each window of token ids, with one sampled token a position.
///
/// Positions below `sinks` of a window are left out of all averages. Memory: about T · (vocabulary + layers · hidden) floats
/// for a window of T tokens, so windows of 512 serve. Equal seeds give equal results. `done` is told after each window how many are
/// done, and of how many.
pub fn sensitivity(
    model: &Model,
    windows: &[&[u32]],
    sinks: usize,
    seed: u64,
    done: &mut dyn FnMut(usize, usize),
) -> Result<Sensitivity> {
    let shape = KvShape::from(model.config());
    let mut sums = Sums::new(shape);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    for (number, ids) in windows.iter().enumerate() {
        let pass = Pass::forward(model, ids)?;
        let targets: Vec<u32> = (0..ids.len()).map(|t| sample(pass.logits.row(t), &mut rng)).collect();
        sums.positions += ids.len().saturating_sub(sinks);
        pass.backward(model, &targets, |layer, k, v, gradients| {
            for (kind, x, g) in [(Kind::K, k, &gradients.k), (Kind::V, v, &gradients.v)] {
                sums.add(layer, kind, x, sinks, |t, c| f64::from(g.row(t)[c]).powi(2));
            }
        })?;
        done(number + 1, windows.len());
    }
    Ok(sums.finish())
}

/// Gradients of Σ_t ln p(targets[t] | ids[..=t]) with respect to the cached values.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheGradients {
    /// Per layer, K before RoPE: [T, kv_heads · head_dim].
    pub k: Vec<Tensor>,
    /// Per layer, V: [T, kv_heads · head_dim].
    pub v: Vec<Tensor>,
}

/// The gradients themselves, for `targets` of the caller's choice (as many as `ids`).
pub fn gradients(model: &Model, ids: &[u32], targets: &[u32]) -> Result<CacheGradients> {
    let (mut k, mut v) = (Vec::new(), Vec::new());
    Pass::forward(model, ids)?.backward(model, targets, |_, _, _, g| {
        k.push(g.k.clone());
        v.push(g.v.clone());
    })?;
    k.reverse();
    v.reverse();
    Ok(CacheGradients { k, v })
}

/// A forward pass that remembers each layer's input; the rest is computed again on the way back.
struct Pass {
    inputs: Vec<Tensor>,
    last: Tensor,
    /// [T, vocabulary].
    logits: Tensor,
}

impl Pass {
    fn forward(model: &Model, ids: &[u32]) -> Result<Self> {
        let (c, w) = (model.config(), model.weights());
        if ids.len() > c.context {
            return Err(Error::Context { held: 0, added: ids.len(), window: c.context });
        }
        let mut x = Tensor::zeros(ids.len(), c.hidden);
        for (position, &id) in ids.iter().enumerate() {
            if id as usize >= c.vocabulary {
                return Err(Error::Token { id, position, vocabulary: c.vocabulary });
            }
            x.row_mut(position).copy_from_slice(w.embedding.weight.row(id as usize));
        }
        let mut inputs = Vec::new();
        for l in 0..c.layers {
            inputs.push(x.clone());
            x = layer::forward(model, l, x)?.out;
        }
        let logits = matmul_nt(&normed(&x, &w.norm, c.epsilon), &w.head().weight)?;
        Ok(Self { inputs, last: x, logits })
    }

    /// Goes back through the layers, last to first, and shows each one's K, V and gradients.
    fn backward(
        mut self,
        model: &Model,
        targets: &[u32],
        mut show: impl FnMut(usize, &Tensor, &Tensor, &Gradients),
    ) -> Result<()> {
        let (c, w) = (model.config(), model.weights());
        if targets.len() != self.logits.rows() {
            let what = format!("{} targets for {} tokens", targets.len(), self.logits.rows());
            return Err(Error::Shape { operation: "gradients", what });
        }
        for (position, &id) in targets.iter().enumerate() {
            // d ln p(y) / d logits = [y] − p.
            let row = self.logits.row_mut(position);
            let ln_p = log_softmax(row);
            row.iter_mut().zip(ln_p).for_each(|(x, ln_p)| *x = -ln_p.exp() as f32);
            *row.get_mut(id as usize).ok_or(Error::Token { id, position, vocabulary: c.vocabulary })? += 1.0;
        }
        let dnormed = matmul(&self.logits, &w.head().weight)?;
        let mut dx = normed_back(&self.last, &w.norm, c.epsilon, &dnormed);
        for l in (0..c.layers).rev() {
            let Some(input) = self.inputs.pop() else { break };
            let trace = layer::forward(model, l, input)?;
            let gradients = layer::backward(model, l, &trace, dx)?;
            show(l, &trace.k, &trace.v, &gradients);
            dx = gradients.x;
        }
        Ok(())
    }
}

/// Draws a token from a row of logits: the first whose cumulative probability exceeds a uniform number.
fn sample(logits: &[f32], rng: &mut Xoshiro256PlusPlus) -> u32 {
    let uniform = (rng.next_u64() >> 11) as f64 * 2f64.powi(-53);
    let mut sum = 0.0;
    let found = log_softmax(logits).iter().position(|ln_p| {
        sum += ln_p.exp();
        sum > uniform
    });
    found.unwrap_or(logits.len().saturating_sub(1)) as u32
}
