//! The NPU's logits against golden's.

use golden::{Agreement, Llm, Tensor, agreement, negative_log_likelihoods, perplexity};
use host::{Logits, Session};
use serde::Serialize;

/// How the NPU's answers to a text compare with the reference's, over the positions measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Comparison {
    /// Positions.
    pub positions: usize,
    /// Mean KL(reference‖NPU), nats.
    pub kl: f64,
    /// Largest KL of a position.
    pub worst_kl: f64,
    /// Share of positions with the same likeliest token, 0..=1.
    pub top1: f64,
    /// Perplexity of the reference.
    pub reference_perplexity: f64,
    /// Perplexity of the NPU.
    pub perplexity: f64,
}

/// Compares two tensors of logits of `ids`, positions from `skip` on.
///
/// # Errors
/// Shapes that do not fit each other, or nothing left to compare.
pub fn judge(reference: &Tensor, npu: &Tensor, ids: &[u32], skip: usize) -> anyhow::Result<Comparison> {
    let from = |t: &Tensor| {
        let skipped = skip.min(t.rows());
        Tensor::new(vec![t.rows() - skipped, t.columns()], t.data()[skipped * t.columns()..].to_vec())
    };
    let (reference, npu) = (from(reference)?, from(npu)?);
    let Agreement { rows, mean_kl, max_kl, top1, .. } = agreement(&reference, &npu)?;
    let tail = &ids[skip.min(ids.len())..];
    let perplexed = |logits: &Tensor| -> anyhow::Result<f64> {
        Ok(perplexity(&negative_log_likelihoods(logits, tail)?).unwrap_or(f64::NAN))
    };
    let (reference_perplexity, perplexity) = (perplexed(&reference)?, perplexed(&npu)?);
    Ok(Comparison { positions: rows, kl: mean_kl, worst_kl: max_kl, top1, reference_perplexity, perplexity })
}

/// Runs a text of `ids` through an empty sequence 0 of the session and through golden, and compares positions from `skip` on. The
/// sequence is emptied again.
///
/// # Errors
/// Those of the session and of golden.
pub fn compare(session: &mut Session, llm: &Llm, ids: &[u32], skip: usize) -> anyhow::Result<Comparison> {
    session.forget(0);
    let answer = session.prefill(0, ids, Logits::All)?;
    session.forget(0);
    judge(&llm.logits(ids)?, &answer.logits, ids, skip)
}
