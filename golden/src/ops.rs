//! The transformer's row operations. Sums run in f64, so that the reference does not depend on their order.

/// RMSNorm of one row: `x · weight / sqrt(mean(x²) + ε)`, into `out`.
pub fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    let scale = rms_scale(x, epsilon);
    for ((y, x), w) in out.iter_mut().zip(x).zip(weight) {
        *y = x * scale * w;
    }
}

/// RMSNorm's factor `1 / sqrt(mean(x²) + ε)`.
pub(crate) fn rms_scale(x: &[f32], epsilon: f32) -> f32 {
    let squares: f64 = x.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
    (1.0 / (squares / x.len() as f64 + f64::from(epsilon)).sqrt()) as f32
}

/// Softmax in place. Scores of −∞ get weight 0; a row of nothing else becomes all zeros.
pub fn softmax(row: &mut [f32]) {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if max == f32::NEG_INFINITY {
        return row.fill(0.0);
    }
    let mut sum = 0f64;
    for v in row.iter_mut() {
        *v = (*v - max).exp();
        sum += f64::from(*v);
    }
    let scale = (1.0 / sum) as f32;
    row.iter_mut().for_each(|v| *v *= scale);
}

/// SiLU: `x / (1 + e^−x)`.
pub fn silu(x: f32) -> f32 {
    x / (1.0 + (-x).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rms_norm_of_a_known_row() {
        let mut y = [0.0; 2];
        rms_norm(&[3.0, 4.0], &[1.0, 2.0], 1e-12, &mut y);
        let rms = 12.5f32.sqrt();
        assert!((y[0] - 3.0 / rms).abs() < 1e-6 && (y[1] - 8.0 / rms).abs() < 1e-6);
    }

    #[test]
    fn softmax_of_masked_rows() {
        let mut row = [f32::NEG_INFINITY, 1000.0, 1000.0];
        softmax(&mut row);
        assert_eq!(row, [0.0, 0.5, 0.5]);
        let mut masked = [f32::NEG_INFINITY; 3];
        softmax(&mut masked);
        assert_eq!(masked, [0.0; 3]);
    }

    #[test]
    fn silu_at_the_ends() {
        assert_eq!((silu(0.0), silu(-200.0), silu(200.0)), (0.0, 0.0, 200.0));
        assert!((silu(1.0) - 0.731_058_6).abs() < 1e-6);
    }
}
