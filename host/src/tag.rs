//! Tags: which part of the model a command belongs to.

use crate::error::{Error, Result};
use golden::Projection;

/// What a command does for a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Embeddings in.
    Embed,
    /// A load of weights.
    Weights,
    /// The norm before attention.
    AttentionNorm,
    /// A projection.
    Project(Projection),
    /// The tile being filled and the sinks, in or out.
    RawTokens,
    /// A full tile into the codec and to DRAM.
    Encode,
    /// Stored tiles in and through the codec.
    Decode,
    /// RoPE of queries, and of raw keys.
    Rotate,
    /// Queries times keys.
    Scores,
    /// Softmax.
    Softmax,
    /// Attention weights times values.
    Mix,
    /// FP32 rows into operands of a product.
    Operand,
    /// The residual stream.
    Residual,
    /// The norm before the feed-forward block.
    FfnNorm,
    /// SwiGLU's product, and its operands.
    SwiGlu,
    /// The norm before the head.
    HeadNorm,
    /// Logits out.
    Logits,
}

const STEPS: [(Step, &str); 24] = [
    (Step::Embed, "embed"),
    (Step::Weights, "weights"),
    (Step::AttentionNorm, "attention_norm"),
    (Step::Project(Projection::Q), "q"),
    (Step::Project(Projection::K), "k"),
    (Step::Project(Projection::V), "v"),
    (Step::Project(Projection::O), "o"),
    (Step::Project(Projection::Gate), "gate"),
    (Step::Project(Projection::Up), "up"),
    (Step::Project(Projection::Down), "down"),
    (Step::Project(Projection::Head), "head"),
    (Step::RawTokens, "raw_tokens"),
    (Step::Encode, "encode"),
    (Step::Decode, "decode"),
    (Step::Rotate, "rotate"),
    (Step::Scores, "scores"),
    (Step::Softmax, "softmax"),
    (Step::Mix, "mix"),
    (Step::Operand, "operand"),
    (Step::Residual, "residual"),
    (Step::FfnNorm, "ffn_norm"),
    (Step::SwiGlu, "swiglu"),
    (Step::HeadNorm, "head_norm"),
    (Step::Logits, "logits"),
];

/// The tag of a layer's step: the layer in bits 8.., the step below.
pub(crate) fn tag(layer: u32, step: Step) -> u32 {
    let at = STEPS.iter().position(|(s, _)| *s == step).unwrap_or_default();
    layer << 8 | at as u32
}

/// The tag of a layer's step by its name, as `gate` or `attention_norm`.
///
/// # Errors
/// A name that no step has, with those that there are.
pub fn parse(layer: u32, step: &str) -> Result<u32> {
    match STEPS.iter().find(|(_, name)| *name == step) {
        Some(&(found, _)) => Ok(tag(layer, found)),
        None => Err(Error::Unsupported {
            what: format!("the step `{step}`"),
            help: format!("There are {}", STEPS.map(|(_, name)| name).join(", ")),
        }),
    }
}

/// The layer and the name of the step of a tag.
pub fn name(tag: u32) -> (u32, &'static str) {
    (tag >> 8, STEPS.get((tag & 255) as usize).map_or("?", |(_, name)| name))
}
