//! The next token from logits: the largest, or drawn by a seeded generator.

use crate::{Error, Result};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0: the largest logit, the first among equals. Above: logits are divided by it.
    pub temperature: f64,
    /// Only so many of the likeliest tokens; 0: all.
    pub top_k: usize,
    /// Only the likeliest tokens whose probabilities first reach this sum, in (0, 1]; taken after `top_k`.
    pub top_p: f64,
    /// Of the generator, xoshiro256++.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, seed: 0 }
    }
}

/// Chooses tokens one after another.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    generator: Xoshiro256PlusPlus,
}

impl Sampler {
    /// A sampler at the start of its seed's sequence.
    ///
    /// # Errors
    /// A temperature below 0, a top-p outside (0, 1].
    pub fn new(sampling: Sampling) -> Result<Self> {
        let Sampling { temperature, top_p, seed, .. } = sampling;
        let wrong = |field, value: f64, rule| Err(Error::Sampling { field, value: value.to_string(), rule });
        if !(temperature.is_finite() && temperature >= 0.0) {
            return wrong("temperature", temperature, "must be 0 (the likeliest token) or a positive number");
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return wrong("top-p", top_p, "must lie above 0 and not above 1");
        }
        Ok(Self { sampling, generator: Xoshiro256PlusPlus::seed_from_u64(seed) })
    }

    /// The next token. Tokens are ordered by logit, then by id; those that top-k and top-p leave are drawn by their
    /// softmax at the temperature, in f64, by one uniform number.
    pub fn next(&mut self, logits: &[f32]) -> u32 {
        let Sampling { temperature, top_k, top_p, .. } = self.sampling;
        if temperature == 0.0 {
            return golden::argmax(logits) as u32;
        }
        let mut order: Vec<u32> = (0..logits.len() as u32).collect();
        let logit = |id: u32| logits[id as usize];
        order.sort_by(|&a, &b| logit(b).total_cmp(&logit(a)).then(a.cmp(&b)));
        order.truncate(if top_k == 0 { order.len() } else { top_k });
        let Some(&first) = order.first() else { return 0 };
        let weight = |id: u32| (f64::from(logit(id) - logit(first)) / temperature).exp();
        let weights: Vec<f64> = order.iter().map(|&id| weight(id)).collect();
        let all: f64 = weights.iter().sum();
        let mut sum = 0.0;
        let kept = 1 + weights
            .iter()
            .position(|w| {
                sum += w;
                sum >= top_p * all
            })
            .unwrap_or(weights.len() - 1);
        let kept_sum: f64 = weights[..kept].iter().sum();
        let mut rest = self.generator.random::<f64>() * kept_sum;
        for (id, w) in order[..kept].iter().zip(&weights) {
            rest -= w;
            if rest < 0.0 {
                return *id;
            }
        }
        order[kept - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(sampling: Sampling, logits: &[f32], n: usize) -> Vec<u32> {
        let mut sampler = Sampler::new(sampling).unwrap();
        (0..n).map(|_| sampler.next(logits)).collect()
    }

    #[test]
    fn probabilities_cuts_and_seeds() {
        let logits: Vec<f32> = [0.1f32, 0.6, 0.25, 0.05].iter().map(|p| p.ln()).collect();
        assert_eq!(draws(Sampling::default(), &logits, 3), [1, 1, 1]);
        let warm = Sampling { temperature: 1.0, ..Sampling::default() };
        let n = 20_000;
        let share = |draws: &[u32], id| draws.iter().filter(|d| **d == id).count() as f64 / n as f64;
        let all = draws(warm, &logits, n);
        for (id, p) in [0.1, 0.6, 0.25, 0.05].into_iter().enumerate() {
            assert!((share(&all, id as u32) - p).abs() < 0.02, "{id}");
        }
        let two = draws(Sampling { top_k: 2, ..warm }, &logits, n);
        assert!((share(&two, 1) - 0.6 / 0.85).abs() < 0.02 && share(&two, 0) + share(&two, 3) == 0.0);
        // 0.6 + 0.25 reach 0.8; the third is cut.
        let nucleus = draws(Sampling { top_p: 0.8, ..warm }, &logits, n);
        assert_eq!(nucleus, two);
        assert_eq!(draws(warm, &logits, 50), draws(warm, &logits, 50));
        assert_ne!(draws(warm, &logits, 50), draws(Sampling { seed: 1, ..warm }, &logits, 50));
    }

    #[test]
    fn senseless_parameters_are_refused() {
        for wrong in [
            Sampling { temperature: -1.0, ..Sampling::default() },
            Sampling { temperature: f64::NAN, ..Sampling::default() },
            Sampling { top_p: 0.0, ..Sampling::default() },
            Sampling { top_p: 1.5, ..Sampling::default() },
        ] {
            assert!(Sampler::new(wrong).is_err(), "{wrong:?}");
        }
    }
}
