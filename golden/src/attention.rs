//! Scaled dot-product attention of one head.

use crate::matmul::sgemm;
use crate::ops::softmax;

/// Sizes of an attention: `rows` queries and `tokens` keys of `d` channels, values of `d_v`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadShape {
    /// Queries.
    pub rows: usize,
    /// Keys and values.
    pub tokens: usize,
    /// Channels of a query and a key.
    pub d: usize,
    /// Channels of a value.
    pub d_v: usize,
}

/// softmax(scale · q·kᵀ, after `mask`)·v into `out` [rows, d_v]. q: [rows, d], k: [tokens, d], v: [tokens, d_v].
///
/// `mask` is given each row's number and its scores, to add a bias or to set −∞ where the row must not look; a row of nothing but −∞
/// becomes zeros. The queries are scaled before the product, as Llama's attention does it.
///
/// # Panics
/// If a slice does not have the shape.
pub fn attention(
    shape: HeadShape,
    scale: f32,
    operands: [&[f32]; 3],
    mask: impl FnMut(usize, &mut [f32]),
    out: &mut [f32],
) {
    attention_seen(shape, scale, operands, mask, |_| {}, out);
}

/// [`attention`] whose weights, [rows, tokens] after the softmax, are shown to `weights`; what is left of them goes on.
pub(crate) fn attention_seen(
    shape: HeadShape,
    scale: f32,
    [q, k, v]: [&[f32]; 3],
    mut mask: impl FnMut(usize, &mut [f32]),
    weights: impl FnOnce(&mut [f32]),
    out: &mut [f32],
) {
    let HeadShape { rows, tokens, d, d_v } = shape;
    let lengths = [q.len(), k.len(), v.len(), out.len()];
    assert_eq!(lengths, [rows * d, tokens * d, tokens * d_v, rows * d_v], "operands of {shape:?}");
    let queries: Vec<f32> = q.iter().map(|x| x * scale).collect();
    let mut scores = vec![0f32; rows * tokens];
    sgemm(&queries, k, (1, d), &mut scores, (rows, d, tokens));
    for (row, scores) in scores.chunks_exact_mut(tokens).enumerate() {
        mask(row, scores);
        softmax(scores);
    }
    weights(&mut scores);
    sgemm(&scores, v, (d_v, 1), out, (rows, tokens, d_v));
}
