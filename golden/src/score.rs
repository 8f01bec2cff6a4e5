//! What logits are judged by: perplexity, KL divergence, top-1 agreement. All in f64, from a log-softmax that does not overflow.

use crate::{Error, Result, Tensor};

/// Log-softmax of a row of logits, in nats.
pub fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let max = if max.is_finite() { f64::from(max) } else { 0.0 };
    let sum: f64 = logits.iter().map(|&x| (f64::from(x) - max).exp()).sum();
    logits.iter().map(|&x| f64::from(x) - max - sum.ln()).collect()
}

/// KL(p‖q) in nats between the distributions of two rows of logits: Σ p·(ln p − ln q). 0 for equal rows.
pub fn kl(p: &[f32], q: &[f32]) -> f64 {
    let (p, q) = (log_softmax(p), log_softmax(q));
    p.iter().zip(&q).filter(|(p, _)| **p > f64::NEG_INFINITY).map(|(p, q)| p.exp() * (p - q)).sum()
}

/// The index of the largest logit, the lowest one among equals.
pub fn argmax(logits: &[f32]) -> usize {
    (0..logits.len()).reduce(|best, i| if logits[i] > logits[best] { i } else { best }).unwrap_or(0)
}

/// Negative log-likelihood in nats of each next token: row t of `logits` [T, vocabulary] judges `ids[t + 1]`; T − 1 values.
pub fn negative_log_likelihoods(logits: &Tensor, ids: &[u32]) -> Result<Vec<f64>> {
    if logits.rows() != ids.len() {
        let what = format!("{} rows of logits for {} tokens", logits.rows(), ids.len());
        return Err(Error::Shape { operation: "perplexity", what });
    }
    let vocabulary = logits.columns();
    ids.iter()
        .enumerate()
        .skip(1)
        .map(|(position, &id)| match log_softmax(logits.row(position - 1)).get(id as usize) {
            Some(ln_p) => Ok(-ln_p),
            None => Err(Error::Token { id, position, vocabulary }),
        })
        .collect()
}

/// Perplexity: e to the mean of negative log-likelihoods. `None` of nothing.
pub fn perplexity(negative_log_likelihoods: &[f64]) -> Option<f64> {
    let n = negative_log_likelihoods.len();
    (n > 0).then(|| (negative_log_likelihoods.iter().sum::<f64>() / n as f64).exp())
}

/// How the logits of something else compare with reference logits, over all rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreement {
    /// Rows compared.
    pub rows: usize,
    /// Mean KL(reference‖other) in nats.
    pub mean_kl: f64,
    /// Largest KL of a row.
    pub max_kl: f64,
    /// Share of rows whose largest logit is at the same index, 0..=1.
    pub top1: f64,
    /// Largest absolute difference of a logit.
    pub max_difference: f32,
}

/// Compares `other` with `reference`, both [T, vocabulary] with T ≥ 1.
pub fn agreement(reference: &Tensor, other: &Tensor) -> Result<Agreement> {
    if reference.shape() != other.shape() || reference.rows() == 0 {
        let what = format!("{:?} and {:?} are not two equal shapes of a row or more", reference.shape(), other.shape());
        return Err(Error::Shape { operation: "agreement", what });
    }
    let rows = reference.rows();
    let pairs = || (0..rows).map(|r| (reference.row(r), other.row(r)));
    let kls: Vec<f64> = pairs().map(|(p, q)| kl(p, q)).collect();
    let differences = reference.data().iter().zip(other.data()).map(|(a, b)| (a - b).abs());
    Ok(Agreement {
        rows,
        mean_kl: kls.iter().sum::<f64>() / rows as f64,
        max_kl: kls.iter().copied().fold(0.0, nan_max),
        top1: pairs().filter(|(p, q)| argmax(p) == argmax(q)).count() as f64 / rows as f64,
        max_difference: differences.fold(0.0, |a, b| if b.is_nan() { b } else { a.max(b) }),
    })
}

/// The larger one, a NaN before anything: it must not hide in a maximum.
fn nan_max(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_values() {
        assert!((kl(&[0.0, 0.0], &[3f32.ln(), 0.0]) - (0.5 * (2f64 / 3.0).ln() + 0.5 * 2f64.ln())).abs() < 1e-7);
        assert_eq!(log_softmax(&[1e30, 0.0])[0], 0.0, "no overflow");
        assert_eq!(kl(&[f32::NEG_INFINITY, 0.0], &[0.0, 0.0]), 2f64.ln(), "0·ln 0 is 0");
        assert_eq!((argmax(&[1.0, 3.0, 3.0]), argmax(&[])), (1, 0));
        let even = Tensor::zeros(3, 8);
        assert_eq!(negative_log_likelihoods(&even, &[0, 1, 7]).unwrap(), vec![8f64.ln(); 2]);
        assert!((perplexity(&[8f64.ln(); 2]).unwrap() - 8.0).abs() < 1e-12);
        assert_eq!(perplexity(&[]), None);
        assert!(negative_log_likelihoods(&even, &[0, 1, 8]).is_err());
        assert!(negative_log_likelihoods(&even, &[0, 1]).is_err());
    }

    #[test]
    fn agreement_of_known_rows() {
        let a = Tensor::new(vec![2, 2], vec![1.0, 0.0, 0.0, 1.0]).unwrap();
        let b = Tensor::new(vec![2, 2], vec![1.0, 0.0, 1.5, 1.0]).unwrap();
        let g = agreement(&a, &b).unwrap();
        assert_eq!((g.rows, g.top1, g.max_difference), (2, 0.5, 1.5));
        assert!((g.mean_kl - g.max_kl / 2.0).abs() < 1e-12 && g.max_kl > 0.1);
        assert!(agreement(&a, &Tensor::zeros(2, 3)).is_err());
        let nan = Tensor::new(vec![2, 2], vec![f32::NAN; 4]).unwrap();
        assert!(agreement(&a, &nan).unwrap().max_difference.is_nan());
    }

    proptest! {
        #[test]
        fn kl_is_not_negative_and_zero_for_shifted_rows(p in prop::collection::vec(-20f32..20.0, 2..50), shift in -8i8..8) {
            let q: Vec<f32> = p.iter().rev().copied().collect();
            prop_assert!(kl(&p, &q) >= -1e-12);
            let shifted: Vec<f32> = p.iter().map(|x| x + f32::from(shift)).collect();
            prop_assert!(kl(&p, &shifted).abs() < 1e-5);
        }
    }
}
