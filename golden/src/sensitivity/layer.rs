//! One transformer layer forward and in reverse, over a whole text at once with exact K and V.
//!
//! Written apart from [`crate::Model::forward`] (no cache, no tiles), so that a test can hold the two against each other.

use crate::matmul::sgemm;
use crate::ops::{rms_norm, rms_scale, silu, softmax};
use crate::{Layer, Model, Projection, Result, Tensor, matmul, matmul_nt};

/// What the reverse pass of a layer needs of its forward pass. All [T, …].
pub(super) struct Trace {
    x: Tensor,
    /// Queries before RoPE.
    pub(super) q: Tensor,
    /// Keys before RoPE.
    pub(super) k: Tensor,
    /// Values.
    pub(super) v: Tensor,
    /// The residual stream between attention and the feed-forward block.
    middle: Tensor,
    gate: Tensor,
    up: Tensor,
    /// The layer's output.
    pub(super) out: Tensor,
}

/// Gradients with respect to a layer's K (before RoPE) and V, [T, kv_heads · head_dim], and its input.
pub(super) struct Gradients {
    pub(super) k: Tensor,
    pub(super) v: Tensor,
    pub(super) x: Tensor,
}

pub(super) fn normed(x: &Tensor, weight: &[f32], epsilon: f32) -> Tensor {
    let mut y = Tensor::zeros(x.rows(), x.columns());
    (0..x.rows()).for_each(|r| rms_norm(x.row(r), weight, epsilon, y.row_mut(r)));
    y
}

/// The gradient through RMSNorm: with r its factor, dx = r·(w∘dy) − x·r³/n·Σ(w∘dy∘x).
pub(super) fn normed_back(x: &Tensor, weight: &[f32], epsilon: f32, dy: &Tensor) -> Tensor {
    let mut dx = Tensor::zeros(x.rows(), x.columns());
    for t in 0..x.rows() {
        let (x, dy) = (x.row(t), dy.row(t));
        let r = rms_scale(x, epsilon);
        let dot: f64 = (0..x.len()).map(|i| f64::from(weight[i] * dy[i]) * f64::from(x[i])).sum();
        let pull = (dot / x.len() as f64) as f32 * r * r * r;
        for (i, d) in dx.row_mut(t).iter_mut().enumerate() {
            *d = r * weight[i] * dy[i] - x[i] * pull;
        }
    }
    dx
}

/// Runs layer `l` on `x` [T, hidden].
pub(super) fn forward(model: &Model, l: usize, x: Tensor) -> Result<Trace> {
    let (layer, epsilon) = (&model.weights().layers[l], model.config().epsilon);
    let project = |p, x: &Tensor| matmul_nt(x, weight(layer, p));
    let input = normed(&x, &layer.attention_norm, epsilon);
    let (q, k) = (project(Projection::Q, &input)?, project(Projection::K, &input)?);
    let v = project(Projection::V, &input)?;
    let mut attended = Tensor::zeros(x.rows(), model.config().q_width());
    for head in 0..model.config().heads {
        let h = Head::new(model, &q, &k, &v, head);
        put(&mut attended, head, &h.output());
    }
    let mut middle = project(Projection::O, &attended)?;
    middle.add(&x)?;
    let input = normed(&middle, &layer.ffn_norm, epsilon);
    let (gate, up) = (project(Projection::Gate, &input)?, project(Projection::Up, &input)?);
    let mut gated = gate.clone();
    gated.data_mut().iter_mut().zip(up.data()).for_each(|(g, u)| *g = silu(*g) * u);
    let mut out = project(Projection::Down, &gated)?;
    out.add(&middle)?;
    Ok(Trace { x, q, k, v, middle, gate, up, out })
}

/// Passes `dout`, the gradient of layer `l`'s output, back through it.
pub(super) fn backward(model: &Model, l: usize, trace: &Trace, dout: Tensor) -> Result<Gradients> {
    let (layer, c) = (&model.weights().layers[l], model.config());
    let back = |p, dy: &Tensor| matmul(dy, weight(layer, p));
    let mut dgate = back(Projection::Down, &dout)?;
    let mut dup = dgate.clone();
    for (i, (dg, du)) in dgate.data_mut().iter_mut().zip(dup.data_mut()).enumerate() {
        let (g, u) = (trace.gate.data()[i], trace.up.data()[i]);
        let sigmoid = 1.0 / (1.0 + (-g).exp());
        *dg *= u * sigmoid * (1.0 + g * (1.0 - sigmoid));
        *du *= silu(g);
    }
    let mut dinput = back(Projection::Gate, &dgate)?;
    dinput.add(&back(Projection::Up, &dup)?)?;
    let mut dmiddle = normed_back(&trace.middle, &layer.ffn_norm, c.epsilon, &dinput);
    dmiddle.add(&dout)?;

    let dattended = back(Projection::O, &dmiddle)?;
    let t = trace.x.rows();
    let (mut dq, mut dk) = (Tensor::zeros(t, c.q_width()), Tensor::zeros(t, c.kv_width()));
    let mut dv = Tensor::zeros(t, c.kv_width());
    for head in 0..c.heads {
        let h = Head::new(model, &trace.q, &trace.k, &trace.v, head);
        let [q, k, v] = h.backward(model, &take(&dattended, head, c.head_dim));
        put(&mut dq, head, &q);
        accumulate(&mut dk, head / c.group(), &k);
        accumulate(&mut dv, head / c.group(), &v);
    }
    let mut dinput = back(Projection::Q, &dq)?;
    dinput.add(&back(Projection::K, &dk)?)?;
    dinput.add(&back(Projection::V, &dv)?)?;
    let mut dx = normed_back(&trace.x, &layer.attention_norm, c.epsilon, &dinput);
    dx.add(&dmiddle)?;
    Ok(Gradients { k: dk, v: dv, x: dx })
}

fn weight(layer: &Layer, p: Projection) -> &Tensor {
    &layer.linear(p).weight
}

/// One query head: rotated rows [T, d] and attention weights [T, T].
struct Head {
    t: usize,
    d: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    p: Vec<f32>,
}

impl Head {
    fn new(model: &Model, q: &Tensor, k: &Tensor, v: &Tensor, head: usize) -> Self {
        let (c, t) = (model.config(), q.rows());
        let d = c.head_dim;
        let rotated = |x: &Tensor, head| {
            let mut rows = take(x, head, d);
            rows.chunks_exact_mut(d).enumerate().for_each(|(t, row)| model.rope().rotate(row, t));
            rows
        };
        let (q, k) = (rotated(q, head), rotated(k, head / c.group()));
        let mut p = vec![0f32; t * t];
        sgemm(&q, &k, (1, d), &mut p, (t, d, t));
        for (row, scores) in p.chunks_exact_mut(t).enumerate() {
            let (seen, future) = scores.split_at_mut(row + 1);
            seen.iter_mut().for_each(|s| *s *= scale(d));
            softmax(seen);
            future.fill(0.0);
        }
        Self { t, d, q, k, v: take(v, head / c.group(), d), p }
    }

    fn output(&self) -> Vec<f32> {
        let mut out = vec![0f32; self.t * self.d];
        sgemm(&self.p, &self.v, (self.d, 1), &mut out, (self.t, self.t, self.d));
        out
    }

    /// Gradients of this head's q and k before RoPE, and v, from that of its output.
    fn backward(&self, model: &Model, dout: &[f32]) -> [Vec<f32>; 3] {
        let (t, d) = (self.t, self.d);
        let transposed = |m: &[f32]| (0..t * t).map(|i| m[i % t * t + i / t]).collect::<Vec<f32>>();
        let rows = || vec![0f32; t * d];
        let (mut dq, mut dk, mut dv) = (rows(), rows(), rows());
        sgemm(&transposed(&self.p), dout, (d, 1), &mut dv, (t, t, d));
        let mut ds = vec![0f32; t * t];
        sgemm(dout, &self.v, (1, d), &mut ds, (t, d, t));
        for (ds, p) in ds.chunks_exact_mut(t).zip(self.p.chunks_exact(t)) {
            let mean: f32 = ds.iter().zip(p).map(|(d, p)| d * p).sum();
            ds.iter_mut().zip(p).for_each(|(d, p)| *d = p * (*d - mean) * scale(self.d));
        }
        sgemm(&ds, &self.k, (d, 1), &mut dq, (t, t, d));
        sgemm(&transposed(&ds), &self.q, (d, 1), &mut dk, (t, t, d));
        for rows in [&mut dq, &mut dk] {
            rows.chunks_exact_mut(d).enumerate().for_each(|(t, row)| model.rope().rotate_back(row, t));
        }
        [dq, dk, dv]
    }
}

fn scale(d: usize) -> f32 {
    1.0 / (d as f32).sqrt()
}

/// Head `head`'s columns of `x`, [T, d].
fn take(x: &Tensor, head: usize, d: usize) -> Vec<f32> {
    (0..x.rows()).flat_map(|t| x.row(t)[head * d..][..d].iter().copied()).collect()
}

/// Writes `rows` [T, d] to head `head`'s columns of `x`.
fn put(x: &mut Tensor, head: usize, rows: &[f32]) {
    let d = rows.len() / x.rows().max(1);
    for (t, row) in rows.chunks_exact(d.max(1)).enumerate() {
        x.row_mut(t)[head * d..][..d].copy_from_slice(row);
    }
}

fn accumulate(x: &mut Tensor, head: usize, rows: &[f32]) {
    let d = rows.len() / x.rows().max(1);
    for (t, row) in rows.chunks_exact(d.max(1)).enumerate() {
        x.row_mut(t)[head * d..][..d].iter_mut().zip(row).for_each(|(x, r)| *x += r);
    }
}
