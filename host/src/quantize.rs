//! Weights into codes of 8 bits with scales.

use npu::isa::Block;
use npu::numeric::fast::{DecodeTable, Encoder};
use npu::numeric::{Flags, FloatFormat, Mode};

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
    let (mut codes, mut scales) = (vec![0; values.len()], Vec::with_capacity(values.len() / columns));
    let quantizer = Quantizer::new(None);
    for (row, codes) in values.chunks_exact(columns).zip(codes.chunks_exact_mut(columns)) {
        scales.push(quantizer.group(row, bytemuck::cast_slice_mut(codes)));
    }
    QuantizedRows { codes, scales }
}

/// Values to codes of one format, each group by its largest magnitude.
pub(crate) struct Quantizer {
    /// `None`: INT8.
    encoder: Option<Encoder>,
    /// The largest code's value.
    largest: f32,
}

impl Quantizer {
    /// Of INT8 (`None`) or a float format of 8 bits.
    pub(crate) fn new(format: Option<FloatFormat>) -> Self {
        let largest = format.map_or(127.0, |f| DecodeTable::new(f).value(f.max_finite() as u8));
        Self { encoder: format.map(|f| Encoder::new(f, Mode::SATURATE)), largest }
    }

    /// The codes of values that share a scale, and the scale: max |v| / the format's largest number, 1 for zeros.
    /// A code is v / scale, rounded half to even.
    pub(crate) fn group(&self, values: &[f32], codes: &mut [u8]) -> f32 {
        let top = values.iter().fold(0f32, |m, v| m.max(v.abs()));
        let scale = match top / self.largest {
            scale if scale > 0.0 => scale,
            _ => 1.0,
        };
        for (code, v) in codes.iter_mut().zip(values) {
            let quotient = f64::from(*v) / f64::from(scale);
            *code = match &self.encoder {
                None => quotient.round_ties_even().clamp(-127.0, 127.0) as i8 as u8,
                Some(encoder) => encoder.encode(quotient as f32, &mut Flags::default()) as u8,
            };
        }
        scale
    }
}

/// A row of weights in blocks of 32, as GGUF's reference quantiser makes them of a model that stores floats:
///
/// | block | d | m | code |
/// |---|---|---|---|
/// | Q4_0 | v of the largest magnitude / −8 | | min(15, ⌊v/d + 8.5⌋) |
/// | Q4_1 | (max − min) / 15 | min | min(15, ⌊(v − m)/d + 0.5⌋) |
/// | Q8_0 | largest magnitude / 127 | | v/d, half away from zero |
///
/// d and m are stored in FP16; codes are made with 1/d in FP32, before that rounding.
pub(crate) fn blocks(block: Block, row: &[f32]) -> Vec<u8> {
    let mut out = Vec::with_capacity(row.len() / Block::VALUES * block.bytes());
    let fp16 = Encoder::new(FloatFormat::FP16, Mode::IEEE);
    let half = |v: f32| (fp16.encode(v, &mut Flags::default()) as u16).to_le_bytes();
    let inverse = |d: f32| if d == 0.0 { 0.0 } else { 1.0 / d };
    let nibbles = |out: &mut Vec<u8>, values: &[f32], code: &dyn Fn(f32) -> f32| {
        let code = |v: f32| code(v).clamp(0.0, 15.0) as u8;
        let (low, high) = values.split_at(Block::VALUES / 2);
        out.extend(low.iter().zip(high).map(|(&l, &h)| code(l) | code(h) << 4));
    };
    for values in row.chunks_exact(Block::VALUES) {
        let widest = values.iter().fold(0f32, |m, &v| if v.abs() > m.abs() { v } else { m });
        match block {
            Block::Q40 => {
                let d = widest / -8.0;
                out.extend(half(d));
                nibbles(&mut out, values, &|v| v * inverse(d) + 8.5);
            }
            Block::Q41 => {
                let (least, most) = values.iter().fold((f32::MAX, f32::MIN), |(l, m), &v| (l.min(v), m.max(v)));
                let d = (most - least) / 15.0;
                out.extend(half(d));
                out.extend(half(least));
                nibbles(&mut out, values, &|v| (v - least) * inverse(d) + 0.5);
            }
            Block::Q80 => {
                let d = widest.abs() / 127.0;
                out.extend(half(d));
                out.extend(values.iter().map(|v| (v * inverse(d)).round() as i8 as u8));
            }
        }
    }
    out
}

/// The mean relative error that a code makes of rows: Σ(v − v̂)² / Σv², averaged over rows that are not zero.
pub(crate) fn relative_error(format: FloatFormat, group: u16, rows: &[Vec<f32>]) -> f64 {
    let (quantizer, table) = (Quantizer::new(Some(format)), DecodeTable::new(format));
    let mut codes = Vec::new();
    let (mut sum, mut count) = (0.0, 0usize);
    for row in rows {
        let energy: f64 = row.iter().map(|v| f64::from(*v).powi(2)).sum();
        if energy == 0.0 {
            continue;
        }
        let mut error = 0.0;
        for values in row.chunks(if group == 0 { row.len() } else { group.into() }) {
            codes.resize(values.len(), 0);
            let scale = quantizer.group(values, &mut codes);
            let off =
                |(v, code): (&f32, &u8)| (f64::from(*v) - f64::from(table.value(*code)) * f64::from(scale)).powi(2);
            error += values.iter().zip(&codes).map(off).sum::<f64>();
        }
        sum += error / energy;
        count += 1;
    }
    if count == 0 { 0.0 } else { sum / count as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use golden::gguf::BlockType;
    use proptest::prelude::*;

    #[test]
    fn zeros_and_ties() {
        assert_eq!(quantize_rows(&[0.0; 4], 2), QuantizedRows { codes: vec![0; 4], scales: vec![1.0; 2] });
        assert_eq!(quantize_rows(&[127.0, 0.5, 1.5, -2.5], 4).codes, [127, 0, 2, -2]);
    }

    #[test]
    fn the_largest_value_of_a_group_is_met_exactly() {
        for format in [FloatFormat::E4M3, FloatFormat::E5M2, FloatFormat::ffp8(true, 2, 1).unwrap()] {
            let quantizer = Quantizer::new(Some(format));
            let mut codes = [0; 3];
            let scale = quantizer.group(&[quantizer.largest, -quantizer.largest / 2.0, 0.0], &mut codes);
            let table = DecodeTable::new(format);
            assert_eq!(scale, 1.0);
            assert_eq!(codes.map(|c| table.value(c)), [quantizer.largest, -quantizer.largest / 2.0, 0.0]);
        }
    }

    proptest! {
        /// Golden's reading of the blocks, with its own decoder, is within a step (Q4: half a step inside, a whole one at the
        /// clamped end) and what FP16 does to d and m.
        #[test]
        fn blocks_decode_to_what_went_in(values in prop::collection::vec(-4f32..4.0, 64)) {
            for (block, kind, steps, share) in [
                (Block::Q40, BlockType::Q4_0, 8.0, 1.0),
                (Block::Q41, BlockType::Q4_1, 15.0, 0.5),
                (Block::Q80, BlockType::Q8_0, 127.0, 0.5),
            ] {
                let stored = blocks(block, &values);
                prop_assert_eq!(stored.len(), 2 * block.bytes());
                let decoded = kind.decode(&stored);
                for (v, x) in values.chunks(32).zip(decoded.chunks(32)) {
                    let (least, most) = v.iter().fold((0f32, 0f32), |(l, m), &v| (l.min(v), m.max(v)));
                    let reach = if block == Block::Q41 { most - least } else { most.max(-least) };
                    let bound = reach / steps * share + 1e-3 * (most.max(-least) + reach);
                    for (v, x) in v.iter().zip(x) {
                        prop_assert!((v - x).abs() <= bound, "{:?}: {} {}, bound {}", block, v, x, bound);
                    }
                }
            }
        }

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
