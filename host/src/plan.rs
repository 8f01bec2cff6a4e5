//! Where everything lies: the scratchpad, bank by bank, and the map of DRAM.

use crate::pack::least_buffer;
use crate::shape::Shape;
use crate::source::Source;
use crate::{Error, Format, Result};
use npu::dma::WIRE_BYTES;
use npu::isa::Rows;
use npu::nkz::TOKENS;
use npu::{Config, KvSetup};

/// Tokens of a tile of the cache.
pub(crate) const TILE: u32 = TOKENS as u32;
/// Tokens at the start of a sequence that stay raw.
pub(crate) const SINKS: u32 = npu::nkz::SINKS as u32;
/// Weight buffers: one is filled while another is used.
pub(crate) const WEIGHT_BUFFERS: usize = 2;
/// Most tokens of the context that attention takes at a time.
const SPAN: u32 = 1024;
/// Encoded tiles on their way to DRAM.
pub(crate) const ENCODED: u32 = 4;

/// Buffers of equal size.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slots {
    base: u32,
    stride: u32,
    /// How many.
    pub count: u32,
}

impl Slots {
    /// The base of slot `i`, round and round.
    pub(crate) fn at(&self, i: u32) -> u32 {
        self.base + i % self.count * self.stride
    }
}

/// What a pass works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Up to so many tokens of one sequence, a multiple of a tile.
    Prefill(u32),
    /// A token each of up to so many sequences.
    Decode(u32),
}

impl Pass {
    /// Rows of activations.
    pub(crate) fn rows(self) -> u32 {
        match self {
            Pass::Prefill(rows) | Pass::Decode(rows) => rows,
        }
    }
}

/// The scratchpad in a pass.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Of which pass.
    pub pass: Pass,
    /// Weight buffers.
    pub weights: Slots,
    /// Residual stream, FP32.
    pub x: Rows,
    /// Operands of projections: codes, and their scales.
    pub codes: u32,
    /// Scales of `codes`.
    pub scales: u32,
    /// FP32 rows: what a norm leaves for quantisation, queries, and what a projection adds to the residual stream.
    pub rows: u32,
    /// Rotated queries of a block, BF16.
    pub queries: Slots,
    /// Sinks and a tile (decode) or the chunk's tiles (prefill): rows of K and V of a token.
    pub raw: Slots,
    /// K and V of a decode step's tokens.
    pub fresh: u32,
    /// K of a raw tile, rotated, channel-major.
    pub raw_keys: Slots,
    /// Sums over values of the decoded part.
    pub sums: Slots,
    /// The next part of such a sum.
    pub parts: Slots,
    /// Tiles from the encoder.
    pub encoded: Slots,
    /// Tiles as stored, for the decoder.
    pub stored: Slots,
    /// Bytes of a slot of `stored`.
    pub stored_bytes: u32,
    /// Decoded keys of a span, rotated, channel-major.
    pub keys: Slots,
    /// Decoded values of a span.
    pub values: Slots,
    /// Scores, FP32.
    pub scores: (u32, u32),
    /// Attention weights, BF16.
    pub shares: (u32, u32),
    /// What attention leaves, FP32.
    pub attended: Rows,
    /// The feed-forward block's inner rows, FP32.
    pub gate: Rows,
    /// The same.
    pub up: Rows,
    /// Logits on their way out: first byte and bytes.
    pub logits: (u32, u32),
    /// Tokens of a span.
    pub span: u32,
}

/// Hands out the scratchpad.
struct Space {
    unit: u32,
    at: u64,
    end: u64,
}

impl Space {
    /// A buffer; past the end it only counts.
    fn take(&mut self, bytes: u32) -> u32 {
        let base = self.at;
        self.at += u64::from(bytes).next_multiple_of(self.unit.into());
        base.min(u32::MAX.into()) as u32
    }

    fn slots(&mut self, count: u32, bytes: u32) -> Slots {
        let stride = u64::from(bytes).next_multiple_of(self.unit.into()) as u32;
        Slots { base: self.take(stride.saturating_mul(count)), stride, count }
    }

    /// Small buffers of one engine, in a bank together.
    fn close(&mut self, count: u32, bytes: u32) -> Slots {
        let stride = bytes.next_multiple_of(ALIGN);
        Slots { base: self.take(stride * count), stride, count }
    }

    fn left(&self) -> u32 {
        (self.end.saturating_sub(self.at) / u64::from(self.unit)) as u32
    }
}

/// Alignment of bases.
const ALIGN: u32 = 64;

/// Rows of `bytes` bytes, each on its own boundary.
fn rows(base: u32, bytes: u32) -> Rows {
    Rows { base, pitch: bytes.next_multiple_of(ALIGN) }
}

/// Bytes of the weight buffers: a sixteenth of the scratchpad, or what the widest projection needs.
pub(crate) fn weight_buffer(config: &Config, source: &Source, shape: &Shape, format: Format) -> u32 {
    let least = least_buffer(source, shape, format);
    (config.scratchpad.bytes / 16).max(least).next_multiple_of(ALIGN)
}

/// Tokens of a span: a power of two, so that K of a head takes no more than a 32nd of the scratchpad. It depends on nothing
/// but configuration and head: the sums over values are added span by span, and their bits must not depend on how a text is cut.
fn span(config: &Config, shape: &Shape) -> u32 {
    let most = config.scratchpad.bytes / 32 / (2 * shape.head_dim);
    let power = (most + 1).next_power_of_two() / 2;
    power.clamp(TILE, SPAN)
}

impl Plan {
    /// A plan for a pass; `buffer`: bytes of a weight buffer.
    ///
    /// # Errors
    /// What does not fit.
    pub(crate) fn new(
        config: &Config,
        shape: &Shape,
        kv: &KvSetup,
        format: Format,
        buffer: u32,
        pass: Pass,
    ) -> Result<Self> {
        // Bank by bank where there are enough of them, else close together: slower, for shared banks, but right.
        let banked = Self::with_unit(config, shape, kv, format, buffer, pass, config.bank_bytes());
        banked.or_else(|_| Self::with_unit(config, shape, kv, format, buffer, pass, ALIGN))
    }

    fn with_unit(
        config: &Config,
        shape: &Shape,
        kv: &KvSetup,
        format: Format,
        buffer: u32,
        pass: Pass,
        unit: u32,
    ) -> Result<Self> {
        let mut space = Space { unit, at: 0, end: config.scratchpad.bytes.into() };
        let m = pass.rows();
        let weights = space.slots(WEIGHT_BUFFERS as u32, buffer);
        let width = if format == Format::Bf16 { 2 } else { 1 };
        let x = rows(space.take(m * (4 * shape.hidden).next_multiple_of(ALIGN)), 4 * shape.hidden);
        let codes_bytes = (m * shape.widest() * width).next_multiple_of(ALIGN);
        let scales_bytes = match format {
            Format::Bf16 => 0,
            Format::Scaled { group: 0, .. } => 4 * m,
            Format::Scaled { group, .. } => 4 * m * shape.widest().div_ceil(group.into()),
            Format::Stored(_) => 4 * m * shape.widest().div_ceil(32),
        };
        // Scales come through their operand's port: one place for both.
        let codes = space.take(codes_bytes + scales_bytes);
        let scales = codes + codes_bytes;
        let wide = shape.hidden.max(shape.q_width());
        let row_buffer = space.take(m * (4 * wide).next_multiple_of(ALIGN));

        // Not in one place with the feed-forward block, which would wait for their way to DRAM behind weights that nobody needs yet.
        let (tokens, raw_slots) = match pass {
            Pass::Prefill(chunk) => (chunk, 1),
            Pass::Decode(_) => (TILE, 2),
        };
        let raw = space.slots(raw_slots, (SINKS + tokens) * shape.token_bytes());
        let fresh = match pass {
            Pass::Prefill(_) => 0,
            Pass::Decode(m) => space.take(m * shape.token_bytes()),
        };

        let overlay = space.at;
        let block = if matches!(pass, Pass::Prefill(_)) { TILE } else { 1 };
        let (d, g) = (shape.head_dim, shape.group());
        let queries = space.close(2, block * g * d * 2);
        let raw_keys = space.close(2, d * 2 * TILE);
        let sums = space.close(2, block * g * d * 4);
        let parts = space.close(2, block * g * d * 4);
        let encoded = space.close(ENCODED, kv.tile_bytes() as u32);
        let span = span(config, shape);
        let stored_bytes = span / TILE * kv.tile_bytes() as u32;
        let stored = space.slots(2, stored_bytes);
        let attended = rows(space.take(m * (4 * shape.q_width()).next_multiple_of(ALIGN)), 4 * shape.q_width());
        let decoded = 2 * d * span;
        let per_span = decoded.div_ceil(unit);
        // What is left: a half to decoded spans, a third to scores, a sixth to attention weights.
        let left = space.left();
        let spans = (left / 4 / per_span).max(1);
        let keys = space.slots(spans, decoded);
        let values = space.slots(spans, decoded);
        let left = space.left();
        let least = (g * 4 * TILE).div_ceil(unit);
        let scores_bytes = (left * 2 / 3).max(least).saturating_mul(unit);
        let scores = (space.take(scores_bytes), scores_bytes);
        let shares_bytes = (left - left * 2 / 3).max(least).saturating_mul(unit);
        let shares = (space.take(shares_bytes), shares_bytes);
        let attention_end = space.at;

        space.at = overlay;
        let inner = 4 * shape.ffn;
        let gate = rows(space.take(m * inner), inner);
        let up = rows(space.take(m * inner), inner);
        let needs = space.at.max(attention_end);
        if needs > space.end {
            return Err(Error::Memory {
                what: format!("{} rows of this model", m),
                memory: "scratchpad",
                needs,
                has: space.end,
                help: match pass {
                    Pass::Prefill(_) => "Take a smaller chunk, or a configuration with a larger scratchpad".into(),
                    Pass::Decode(_) => "Take a smaller batch, or a configuration with a larger scratchpad".into(),
                },
            });
        }
        let logits = (overlay as u32, (space.end - overlay) as u32);
        Ok(Self {
            pass,
            weights,
            x,
            codes,
            scales,
            rows: row_buffer,
            queries,
            raw,
            fresh,
            raw_keys,
            sums,
            parts,
            encoded,
            stored,
            stored_bytes,
            keys,
            values,
            scores,
            shares,
            attended,
            gate,
            up,
            logits,
            span,
        })
    }

    /// The queries of a tile that attend together over `tokens` tokens, and the buffers for scores and weights that there
    /// are then; `most`: queries at most.
    ///
    /// # Errors
    /// Not even one query's scores fit.
    pub(crate) fn block(&self, shape: &Shape, tokens: u32, most: u32) -> Result<Block> {
        let (score, share) = ((4 * tokens).next_multiple_of(ALIGN), (2 * tokens).next_multiple_of(ALIGN));
        let query = |bytes: u32| u64::from(bytes) * u64::from(shape.group());
        let fits = |queries: u32, slots: u32| {
            let n = u64::from(queries * slots);
            n * query(score) <= self.scores.1.into() && n * query(share) <= self.shares.1.into()
        };
        let sizes = std::iter::successors(Some(most.next_power_of_two()), |q| (*q > 1).then_some(q / 2));
        let found = sizes.map(|q| q.min(most)).find_map(|q| match () {
            () if fits(q, 2) => Some((q, 2)),
            () if q == 1 && fits(1, 1) => Some((1, 1)),
            () => None,
        });
        let Some((queries, slots)) = found else {
            return Err(Error::Memory {
                what: format!("a query's scores over {tokens} tokens"),
                memory: "scratchpad for scores",
                needs: query(score).max(2 * query(share)),
                has: self.scores.1.into(),
                help: "Take a shorter context, or a configuration with a larger scratchpad".into(),
            });
        };
        let stride = |bytes: u32| queries * shape.group() * bytes;
        Ok(Block {
            queries,
            scores: Slots { base: self.scores.0, stride: stride(score), count: slots },
            score_pitch: score,
            shares: Slots { base: self.shares.0, stride: stride(share), count: slots },
            share_pitch: share,
        })
    }
}

/// How scores and attention weights of a block of queries lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Queries at most.
    pub queries: u32,
    pub scores: Slots,
    pub score_pitch: u32,
    pub shares: Slots,
    pub share_pitch: u32,
}

/// The map of DRAM.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    /// Descriptors of the weights' loads, one each.
    pub loads: u64,
    /// Descriptors of a program.
    pub descriptors: std::ops::Range<u64>,
    /// Token ids of a pass, 32 bits each.
    pub ids: u64,
    /// Logits of a pass.
    pub logits: u64,
    /// Sinks and the tile being filled, by sequence and layer.
    pub raw: u64,
    /// Embeddings, FP32.
    pub embedding: u64,
    /// Past all of it.
    pub end: u64,
}

impl Map {
    /// The descriptor of a load.
    pub(crate) fn load_chain(&self, load: usize) -> u64 {
        self.loads + (load * WIRE_BYTES) as u64
    }

    /// Bytes of the sinks and the tile of a layer of a sequence.
    pub(crate) fn raw_bytes(shape: &Shape) -> u64 {
        u64::from((SINKS + TILE) * shape.token_bytes())
    }

    /// Where the sinks of a layer of a sequence lie; the tile's rows follow.
    pub(crate) fn raw_at(&self, shape: &Shape, sequence: u32, layer: u32) -> u64 {
        self.raw + u64::from(sequence * shape.layers + layer) * Self::raw_bytes(shape)
    }
}
