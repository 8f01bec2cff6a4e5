//! A model's sizes as the lowering uses them.

use crate::{Error, Result};
use golden::{Config, Pairing, Projection};

/// Channels that heads of K and V are padded to in the scratchpad: a row of a head in BF16 then begins on 64 bytes.
const HEAD_STEP: usize = 32;

/// Sizes in elements.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub layers: u32,
    pub hidden: u32,
    pub heads: u32,
    pub kv_heads: u32,
    /// d.
    pub head_dim: u32,
    /// d, up to a multiple of 32.
    pub head_pad: u32,
    pub ffn: u32,
    pub vocabulary: u32,
    pub context: usize,
    /// Bits of ε.
    pub epsilon: u32,
    /// Bits of 1/√d.
    pub scale: u32,
}

/// Longest context: bytes of one query's scores over it count in 32 bits with a margin.
const MOST_TOKENS: usize = 1 << 22;

impl Shape {
    pub(crate) fn new(c: &Config, context: usize) -> Result<Self> {
        let refuse = |what: String, help: &str| Err(Error::Unsupported { what, help: help.into() });
        if !c.head_dim.is_multiple_of(16) {
            return refuse(format!("heads of {} channels", c.head_dim), "Heads must be a multiple of 16 channels wide");
        }
        if !c.hidden.is_multiple_of(16) {
            return refuse(format!("a residual stream of {}", c.hidden), "It must be a multiple of 16 wide");
        }
        if !c.ffn.is_multiple_of(16) {
            return refuse(format!("a feed-forward block of {}", c.ffn), "It must be a multiple of 16 wide");
        }
        if c.layers > 255 || c.kv_heads > 255 {
            let what = format!("{} layers of {} KV heads", c.layers, c.kv_heads);
            return refuse(what, "At most 255 of each have numbers in a command");
        }
        if context > MOST_TOKENS {
            return refuse(format!("a context of {context} tokens"), "It may have 4,194,304 of them at most");
        }
        Ok(Self {
            layers: c.layers as u32,
            hidden: c.hidden as u32,
            heads: c.heads as u32,
            kv_heads: c.kv_heads as u32,
            head_dim: c.head_dim as u32,
            head_pad: c.head_dim.next_multiple_of(HEAD_STEP) as u32,
            ffn: c.ffn as u32,
            vocabulary: c.vocabulary as u32,
            context,
            epsilon: c.epsilon.to_bits(),
            scale: ((1.0 / (c.head_dim as f64).sqrt()) as f32).to_bits(),
        })
    }

    /// Query heads that share a KV head.
    pub(crate) fn group(&self) -> u32 {
        self.heads / self.kv_heads
    }

    /// Width of a token's queries.
    pub(crate) fn q_width(&self) -> u32 {
        self.heads * self.head_dim
    }

    /// Width of a token's keys (or values), heads padded.
    pub(crate) fn kv_pad(&self) -> u32 {
        self.kv_heads * self.head_pad
    }

    /// Bytes of a token's K and V in BF16, heads padded.
    pub(crate) fn token_bytes(&self) -> u32 {
        2 * 2 * self.kv_pad()
    }

    /// K of the widest product.
    pub(crate) fn widest(&self) -> u32 {
        self.hidden.max(self.q_width()).max(self.ffn)
    }

    /// Columns of the head: the vocabulary, up to a multiple of 4.
    pub(crate) fn logits(&self) -> u32 {
        self.vocabulary.next_multiple_of(4)
    }

    /// Columns of a projection as the NPU computes them: the weight's row of each, `None` for padding.
    pub(crate) fn columns(&self, p: Projection) -> Vec<Option<u32>> {
        let (d, pad) = (self.head_dim, self.head_pad);
        match p {
            Projection::K | Projection::V => {
                (0..self.kv_heads).flat_map(|h| (0..pad).map(move |c| (c < d).then_some(h * d + c))).collect()
            }
            Projection::Q => (0..self.q_width()).map(Some).collect(),
            Projection::O | Projection::Down => (0..self.hidden).map(Some).collect(),
            Projection::Gate | Projection::Up => (0..self.ffn).map(Some).collect(),
            Projection::Head => (0..self.logits()).map(|c| (c < self.vocabulary).then_some(c)).collect(),
        }
    }
}

/// Frequencies of the rotary embedding, head_dim/2 radians a position: θ^(−2i/d), rounded once to FP32.
pub(crate) fn frequencies(c: &Config) -> Vec<f32> {
    let d = c.head_dim as f64;
    (0..c.head_dim / 2).map(|i| c.rope_base.powf(-2.0 * i as f64 / d) as f32).collect()
}

/// Whether channels 2i and 2i + 1 turn together.
pub(crate) fn interleaved(c: &Config) -> bool {
    c.pairing == Pairing::Interleaved
}
