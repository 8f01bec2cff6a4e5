/// A matrix in INT8 with one scale a row: `value ≈ codes · scale`.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantizedRows {
    /// Row by row, each in −127..=127.
    pub codes: Vec<i8>,
    /// One a row, FP32, positive.
    pub scales: Vec<f32>,
}

/// Quantises each row of `columns` values symmetrically: scale = max |v| / 127, code = v / scale rounded half to even.
///
/// Used per token on activations and per output channel on weights. |v − code·scale| ≤ scale/2·(1 + 2⁻²³): the largest value
/// is 127 scales to within the rounding of the scale, so nothing is clipped. A row of zeros gets scale 1.
///
/// # Panics
/// If `columns` is zero or does not divide the number of values.
pub fn quantize_rows(values: &[f32], columns: usize) -> QuantizedRows {
    assert!(columns > 0 && values.len().is_multiple_of(columns), "{} values are no rows of {columns}", values.len());
    let mut codes = Vec::with_capacity(values.len());
    let mut scales = Vec::with_capacity(values.len() / columns);
    for row in values.chunks_exact(columns) {
        let largest = row.iter().fold(0f32, |m, v| m.max(v.abs()));
        let scale = if largest > 0.0 { largest / 127.0 } else { 1.0 };
        let code = |v: &f32| (f64::from(*v) / f64::from(scale)).round_ties_even().clamp(-127.0, 127.0) as i8;
        codes.extend(row.iter().map(code));
        scales.push(scale);
    }
    QuantizedRows { codes, scales }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn zeros_and_ties() {
        assert_eq!(quantize_rows(&[0.0; 4], 2), QuantizedRows { codes: vec![0; 4], scales: vec![1.0; 2] });
        assert_eq!(quantize_rows(&[127.0, 0.5, 1.5, -2.5], 4).codes, [127, 0, 2, -2]);
    }

    proptest! {
        #[test]
        fn every_value_is_within_half_a_step(values in prop::collection::vec(-1e6f32..1e6, 1..50)) {
            let q = quantize_rows(&values, values.len());
            let scale = f64::from(q.scales[0]);
            for (v, c) in values.iter().zip(&q.codes) {
                let error = (f64::from(*v) - f64::from(*c) * scale).abs();
                prop_assert!(error <= scale / 2.0 * (1.0 + 2f64.powi(-23)), "{v} {c}");
            }
        }
    }
}
