//! The operations in binary64, in the plainest way.

use vector::{Pairing, Ramp};

/// x / √(mean x² + ε) · weight.
pub(super) fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32) -> Vec<f64> {
    let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean + f64::from(epsilon)).sqrt();
    x.iter().zip(weight).map(|(x, w)| f64::from(*x) * scale * f64::from(*w)).collect()
}

/// softmax(scale · x) over the entries that are kept; zeros where none is.
pub(super) fn softmax(x: &[f32], scale: f32, keep: &[bool]) -> Vec<f64> {
    let z: Vec<f64> = x.iter().map(|x| f64::from(*x) * f64::from(scale)).collect();
    let kept = |i: &usize| keep[*i];
    let most = (0..x.len()).filter(kept).map(|i| z[i]).fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = (0..x.len()).filter(kept).map(|i| (z[i] - most).exp()).sum();
    (0..x.len()).map(|i| if keep[i] && sum > 0.0 { (z[i] - most).exp() / sum } else { 0.0 }).collect()
}

/// The values of a ramp, row by row: each stands for `every` rows, then comes the next; after `wrap` of them the first comes again.
pub(super) fn ramp(ramp: Ramp, rows: usize) -> Vec<usize> {
    let (mut step, mut held) = (0, 0);
    let next = |_| {
        let value = ramp.first + step;
        held += 1;
        if held == ramp.every {
            (held, step) = (0, if step + 1 == ramp.wrap { 0 } else { step + 1 });
        }
        value
    };
    (0..rows).map(next).collect()
}

/// Pair i of a row turned by `position · frequencies[i]`.
pub(super) fn rope(pairing: Pairing, position: usize, frequencies: &[f32], x: &[f32]) -> Vec<f64> {
    let half = frequencies.len();
    let mut y = vec![0.0; x.len()];
    for (i, f) in frequencies.iter().enumerate() {
        let (first, second) = match pairing {
            Pairing::Halves => (i, i + half),
            Pairing::Interleaved => (2 * i, 2 * i + 1),
        };
        let (sin, cos) = (position as f64 * f64::from(*f)).sin_cos();
        let (a, b) = (f64::from(x[first]), f64::from(x[second]));
        (y[first], y[second]) = (a * cos - b * sin, b * cos + a * sin);
    }
    y
}

/// x/(1 + e^−x).
pub(super) fn silu(x: f32) -> f64 {
    f64::from(x) / (1.0 + (-f64::from(x)).exp())
}
