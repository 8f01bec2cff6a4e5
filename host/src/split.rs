//! The split of the flexible 8-bit float for a model.

use crate::format::Code;
use crate::quantize::relative_error;
use crate::{Result, Source};
use golden::{Logits, Projected, Tensor};
use npu::numeric::FloatFormat;

/// What the model reads while its activations are looked at.
const TEXT: &str = "When the rain had stopped, the two of them walked down to the river, which was 3 feet higher than in spring. \
     \"How far is it?\" she asked. He counted: seven miles by the road, and not quite 5 across the hills, where nobody had \
     lived since the old mill burned.";

/// Tokens of it at most.
const TOKENS: usize = 48;
/// Every so many of its tokens counts.
const EVERY: usize = 6;
/// Rows of each weight that count.
const ROWS: usize = 8;

/// The signed split whose products lose least: of all, the one with the least sum of the mean relative errors of weights and of activations
/// (an error of either side of a product shows in the result in this proportion), scales as the products use them. Weights: some
/// rows of each projection; activations: those that a short text gives in the reference.
pub(crate) fn choose(source: &Source, group: u16) -> Result<Code> {
    let llm = source.llm();
    let mut ids = llm.tokenizer.encode(TEXT)?;
    ids.truncate(TOKENS.min(source.config().context));
    let (mut activations, mut weights) = (Vec::new(), Vec::new());
    let mut watch = |p: &Projected<'_>, _: &mut Tensor| {
        let input = p.input;
        activations.extend((0..input.rows()).step_by(EVERY).map(|r| input.row(r).to_vec()));
        let w = &p.linear.weight;
        weights.extend((0..w.rows()).step_by(w.rows().div_ceil(ROWS)).map(|r| w.row(r).to_vec()));
        Ok(())
    };
    llm.model.forward(&ids, &mut llm.cache(), &mut watch, Logits::Last)?;
    let splits = (0..=7).filter_map(|e: u32| FloatFormat::ffp8(true, e, FloatFormat::ffp8_bias(e)).ok());
    let errors = splits.map(|f| (relative_error(f, group, &weights) + relative_error(f, group, &activations), f));
    let best = errors.min_by(|a, b| a.0.total_cmp(&b.0));
    Ok(best.map_or(Code::Int8, |(_, format)| Code::Float(format)))
}
