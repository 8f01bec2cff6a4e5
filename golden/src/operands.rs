//! The transformer as a machine with narrow operands and exact sums would run it: the accuracy that a number format allows,
//! whoever computes it.
//!
//! [`Operands`] watches a forward pass and puts in place of each projection the product of its operands rounded to a format;
//! attention's operands are rounded to BF16. Sums are golden's, in f32; the residual stream, norms, softmax and RoPE are untouched. With
//! [`PlainCache`](crate::kv::PlainCache) in [`Storage::Bf16`](crate::kv::Storage::Bf16) every operand of every product is narrow.
//! Everything goes by value: no code of a format is ever made.

use crate::float16::round_bf16;
use crate::matmul::matmul_nt;
use crate::minifloat::{E4M3, E5M2, Minifloat};
use crate::{Attending, Error, Linear, Model, Observer, Projected, Projection, Result, Tensor};

/// What a code of 8 bits stands for, before its scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Code(Kind);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Int8,
    Float(Minifloat),
}

impl Code {
    /// Integers of −127..=127.
    pub const INT8: Self = Self(Kind::Int8);
    /// OCP OFP8 E4M3, largest 448.
    pub const E4M3: Self = Self(Kind::Float(E4M3));
    /// OCP OFP8 E5M2, largest 57,344.
    pub const E5M2: Self = Self(Kind::Float(E5M2));

    /// A sign, `exponent` and 7 − `exponent` fraction bits, every code a number (arXiv 2104.07329).
    ///
    /// # Errors
    /// More than 7 exponent bits.
    pub fn flexible(exponent: u32) -> Result<Self> {
        match 7u32.checked_sub(exponent) {
            Some(fraction) => Ok(Self(Kind::Float(Minifloat::flexible(exponent, fraction)))),
            None => Err(Error::Shape {
                operation: "operands",
                what: format!("{exponent} exponent bits do not fit 8 bits with a sign: give 0 to 7"),
            }),
        }
    }

    /// Rounds values that share a scale, max |v| over the code's largest value, in FP32: code · scale is left in their place.
    fn round(self, values: &mut [f32]) {
        let top = values.iter().fold(0f32, |m, v| m.max(v.abs()));
        let (largest, round): (f32, &dyn Fn(f32) -> f32) = match &self.0 {
            Kind::Int8 => (127.0, &|x| x.round_ties_even().clamp(-127.0, 127.0)),
            Kind::Float(float) => (float.max(), &|x| float.round(x)),
        };
        let scale = top / largest;
        if scale > 0.0 {
            values.iter_mut().for_each(|v| *v = round(*v / scale) * scale);
        }
    }
}

/// The operands of the projections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Format {
    /// BF16 × BF16.
    Bf16,
    /// A code on both sides with scales per `group` values along k, or per token and output channel.
    Scaled {
        /// The code.
        code: Code,
        /// Values that share a scale; `None`: a whole row.
        group: Option<usize>,
    },
    /// Weights at the values that the file gives them (such as GGUF's blocks), activations INT8 with a scale per 32.
    Stored,
}

/// A forward pass's projections, and BF16 attention, in a format. `&mut &operands` observes a pass; several may at once.
#[derive(Debug)]
pub struct Operands {
    format: Format,
    /// The weights where they are rounded: each layer's in the order of [`Projection::LAYER`], then the head's.
    weights: Vec<Tensor>,
}

impl Operands {
    /// Of `format`, for the passes of `model`: as much memory as its projections again, but for [`Format::Stored`].
    pub fn new(format: Format, model: &Model) -> Self {
        let rounded = |linear: &Linear| {
            let mut weight = linear.weight.clone();
            round(&mut weight, format);
            weight
        };
        let weights = model.weights();
        let layers = weights.layers.iter().flat_map(|layer| Projection::LAYER.map(|p| layer.linear(p)));
        let weights = match format {
            Format::Stored => Vec::new(),
            _ => layers.chain([weights.head()]).map(rounded).collect(),
        };
        Self { format, weights }
    }
}

/// Rounds the rows of a tensor, group by group.
fn round(tensor: &mut Tensor, format: Format) {
    let columns = tensor.columns();
    match format {
        Format::Bf16 => tensor.data_mut().iter_mut().for_each(|v| *v = round_bf16(*v)),
        Format::Scaled { code, group } => {
            let group = group.unwrap_or(columns).clamp(1, columns.max(1));
            for row in tensor.data_mut().chunks_exact_mut(columns.max(1)) {
                row.chunks_mut(group).for_each(|values| code.round(values));
            }
        }
        Format::Stored => round(tensor, Format::Scaled { code: Code::INT8, group: Some(32) }),
    }
}

impl Observer for &Operands {
    fn projection(&mut self, projected: &Projected<'_>, output: &mut Tensor) -> Result<()> {
        let mut input = projected.input.clone();
        round(&mut input, self.format);
        let at = match projected.layer {
            Some(layer) => Projection::LAYER.len() * layer + projected.projection as usize,
            None => self.weights.len().saturating_sub(1),
        };
        *output = matmul_nt(&input, self.weights.get(at).unwrap_or(&projected.linear.weight))?;
        Ok(())
    }

    fn attention(&mut self, _: Attending, values: &mut [f32]) {
        values.iter_mut().for_each(|v| *v = round_bf16(*v));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{KvShape, PlainCache, Storage};
    use crate::{Llm, Logits, agreement, builtin};

    /// Every value that a flexible split stands for, without its sign: F · 2^(1 − bias − f) below the first exponent, and so on.
    fn split_values(exponent: i32) -> Vec<f32> {
        let (fraction, bias) = (7 - exponent, (1 << (exponent - 1).max(0)) - 1);
        let value = |code: i32| {
            let (e, f) = (code >> fraction, code & ((1 << fraction) - 1));
            let (e, f) = if e == 0 { (1, f) } else { (e, f | 1 << fraction) };
            f as f32 * 2f32.powi(e - bias - fraction)
        };
        (0..128).map(value).collect()
    }

    #[test]
    fn a_split_rounds_to_the_nearest_of_its_values() {
        for exponent in 0..=7 {
            let code = Code::flexible(exponent).unwrap();
            let values = split_values(exponent as i32);
            let largest = values.iter().copied().fold(0f32, f32::max);
            let mut back = values.clone();
            code.round(&mut back);
            assert_eq!(back, values, "split {exponent}: the largest value is there, so the scale is 1");
            for pair in values.windows(2) {
                let middle = f32::midpoint(pair[0], pair[1]);
                let mut group = [largest, middle.next_down(), middle.next_up(), -middle.next_up()];
                code.round(&mut group);
                assert_eq!(group, [largest, pair[0], pair[1], -pair[1]], "split {exponent}");
            }
        }
        assert!(Code::flexible(8).is_err());
    }

    #[test]
    fn a_group_keeps_its_largest_value_and_steps_from_it() {
        let mut int = [-6.35f32, 0.024, 0.026, 0.0];
        Code::INT8.round(&mut int);
        let scale = 6.35f32 / 127.0;
        assert_eq!(int, [-127.0 * scale, 0.0, scale, 0.0]);
        let mut float = [448.0f32, 17.0, 2f32.powi(-10)];
        Code::E4M3.round(&mut float);
        assert_eq!(float, [448.0, 16.0, 0.0]);
        let mut wide = [57344.0f32, 9.1];
        Code::E5M2.round(&mut wide);
        assert_eq!(wide, [57344.0, 10.0]);
        let mut zeros = [0.0f32; 3];
        Code::INT8.round(&mut zeros);
        assert_eq!(zeros, [0.0; 3]);
        let (mut rows, mut whole) =
            (Tensor::new(vec![1, 4], vec![127.0, 1.4, 12.7, 0.14]).unwrap(), Tensor::zeros(1, 0));
        round(&mut rows, Format::Scaled { code: Code::INT8, group: Some(2) });
        assert_eq!(rows.data()[..2], [127.0, 1.0], "the second pair does not see the first");
        assert!((rows.data()[3] - 0.1).abs() < 1e-6);
        round(&mut whole, Format::Scaled { code: Code::INT8, group: None });
    }

    #[test]
    fn operands_of_attention_are_bf16() {
        let llm = builtin().unwrap();
        let operands = Operands::new(Format::Stored, &llm.model);
        let mut values = [1.0 + 2f32.powi(-9), 1.0 + 2f32.powi(-7)];
        (&mut &operands as &mut dyn Observer).attention(Attending::Weights, &mut values);
        assert_eq!(values, [1.0, 1.0 + 2f32.powi(-7)]);
    }

    fn cost(llm: &Llm, ids: &[u32], format: Format, storage: Storage) -> f64 {
        let model = &llm.model;
        let operands = Operands::new(format, model);
        let mut cache = PlainCache::new(KvShape::from(model.config()), storage);
        let rounded = model.forward(ids, &mut cache, &mut &operands, Logits::All).unwrap();
        agreement(&llm.logits(ids).unwrap(), &rounded).unwrap().mean_kl
    }

    #[test]
    fn coarser_operands_cost_more() {
        let llm = builtin().unwrap();
        let ids = llm.tokenizer.encode("In the beginning God created the heaven and the earth.").unwrap();
        let scaled = |code, group| Format::Scaled { code, group };
        let costs = [
            cost(&llm, &ids, Format::Bf16, Storage::F32),
            cost(&llm, &ids, scaled(Code::INT8, Some(32)), Storage::Bf16),
            cost(&llm, &ids, scaled(Code::E4M3, Some(32)), Storage::Bf16),
            cost(&llm, &ids, scaled(Code::E5M2, Some(32)), Storage::Bf16),
        ];
        assert!(costs[0] > 0.0 && costs.is_sorted() && costs[3] > 100.0 * costs[0], "{costs:?}");
        assert!(cost(&llm, &ids, Format::Stored, Storage::Bf16) < costs[1], "weights as they are cost less");
    }
}
