//! What a mode of the cache costs: bits with every byte, and what the model's answers lose.

use super::{Calibration, NkzCache};
use crate::parallel::try_parallel;
use crate::verify::Progress;
use anyhow::{Context, bail};
use golden::kv::{CodecCache, Kind, KvCache, KvShape, PlainCache, Policy, Storage, peers};
use golden::{Llm, Logits, Tensor, agreement, negative_log_likelihoods};
use nkz::{Cache, CacheConfig, IndexLine, Mode, SINKS, TOKENS, UNIT};

/// Context at which raw tokens and static tables are spread over the cache.
const CONTEXT: f64 = 4096.0;

/// A way to store the cache.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// NeuKompression: a name, and the mode of K and V.
    Nkz(String, Mode),
    /// One of golden's peers.
    Peer(&'static str),
}

impl Setting {
    /// Whether it is the entropy-coded mode of variable size.
    fn entropy_coded(&self) -> bool {
        matches!(self, Self::Nkz(_, Mode::Entropy { .. }))
    }

    /// Its name in tables.
    pub fn name(&self) -> &str {
        match self {
            Self::Nkz(name, _) => name,
            Self::Peer(name) => name,
        }
    }
}

/// The presets of the product, for heads of `head_dim` channels.
pub fn presets(head_dim: usize) -> Vec<Setting> {
    let entropy = |name: &str, qp| Setting::Nkz(name.into(), Mode::Entropy { qp });
    // Three bits a value of a whole tile.
    let slot = 3 * TOKENS * head_dim.min(nkz::CHANNELS) / 8;
    vec![
        Setting::Nkz("lossless".into(), Mode::Lossless),
        entropy("near-lossless", NEAR_LOSSLESS),
        entropy("standard", STANDARD),
        entropy("low", LOW),
        entropy("lowest", LOWEST),
        Setting::Nkz(format!("slot{slot}"), Mode::Slot { bytes: slot }),
        Setting::Nkz("fixed".into(), Mode::Fixed { qp: 0 }),
    ]
}

/// A mode by its name: a preset of [`presets`], `raw`, `mean`, `qpN` (entropy-coded) or `slotN` (a slot of N bytes).
///
/// # Errors
/// Another name.
pub fn mode(name: &str, head_dim: usize) -> anyhow::Result<Mode> {
    let number = |prefix: &str| name.strip_prefix(prefix).and_then(|n| n.parse::<usize>().ok());
    let preset = presets(head_dim).into_iter().find_map(|s| match s {
        Setting::Nkz(preset, mode) if preset == name => Some(mode),
        _ => None,
    });
    Ok(match (name, preset, number("qp"), number("slot")) {
        (_, Some(mode), ..) => mode,
        ("raw", ..) => Mode::Raw,
        ("mean", ..) => Mode::Mean,
        (_, _, Some(qp), _) => {
            Mode::Entropy { qp: u8::try_from(qp).ok().filter(|&qp| qp <= 63).context("QP is 0..=63")? }
        }
        (_, _, _, Some(bytes)) => {
            let narrowest = nkz::column_blocks(head_dim)?.min().unwrap_or(nkz::CHANNELS);
            let most = LEAST_SLOT.max(nkz::Header::BYTES + 2 * TOKENS * narrowest);
            if !(LEAST_SLOT..=most).contains(&bytes) || bytes % 8 != 0 {
                bail!(
                    "no mode `{name}`: N of slotN is the bytes of a tile; a slot of these heads has {LEAST_SLOT} to {most} bytes, a multiple of 8"
                )
            }
            Mode::Slot { bytes }
        }
        _ => bail!(
            "no mode `{name}`: raw, lossless, near-lossless, standard, low, lowest, fixed, mean, qp0..qp63, slot40.. (bytes, a multiple of 8)"
        ),
    })
}

/// Bytes of the least slot that the codec takes.
const LEAST_SLOT: usize = 40;
/// QP of the preset that keeps the KL below 0.0003.
const NEAR_LOSSLESS: u8 = 0;
/// QP of the preset that keeps the KL below 0.004.
const STANDARD: u8 = 16;
/// QP of the preset that keeps the KL below 0.025.
const LOW: u8 = 24;
/// QP of the preset that keeps the KL below 0.04.
const LOWEST: u8 = 27;

/// A text to evaluate on.
#[derive(Clone, Debug)]
pub struct Text {
    /// Its name in tables.
    pub name: String,
    /// Its tokens.
    pub ids: Vec<u32>,
}

/// One setting's figures, means over the texts.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// The setting.
    pub name: String,
    /// Whether it is the entropy-coded mode of variable size.
    pub entropy_coded: bool,
    /// Bits a value of stored tiles: headers, directories, index and rounding to 32 bytes.
    pub tile_bits: f64,
    /// The same with the raw tokens at a context of 4,096.
    pub bits: f64,
    /// The same with the model's static tables too.
    pub all_bits: f64,
    /// 16 / bits.
    pub ratio: f64,
    /// KL(BF16 cache ‖ this cache) of the next token, nats, by text.
    pub kls: Vec<f64>,
    /// Their mean.
    pub kl: f64,
    /// Share of positions with the same likeliest token, %.
    pub top1: f64,
    /// Change of perplexity against the BF16 cache, %.
    pub perplexity: f64,
}

/// Logits of a text under a cache.
fn run(llm: &Llm, ids: &[u32], cache: &mut dyn KvCache) -> anyhow::Result<Tensor> {
    Ok(llm.model.forward(ids, cache, &mut (), Logits::All)?)
}

/// A logits tensor's rows from `first` on.
fn tail(logits: &Tensor, first: usize) -> anyhow::Result<Tensor> {
    let rows = logits.rows() - first;
    Ok(Tensor::new(vec![rows, logits.columns()], logits.data()[first * logits.columns()..].to_vec())?)
}

/// A text under the uncompressed BF16 cache.
struct Reference {
    logits: Tensor,
    /// Mean negative log-likelihood.
    loss: f64,
}

/// One setting on one text: bits of tiles, agreement, loss.
struct Outcome {
    tile_bits: f64,
    kl: f64,
    top1: f64,
    loss: f64,
}

/// Mean loss of the positions from `first` on.
fn loss(logits: &Tensor, ids: &[u32], first: usize) -> anyhow::Result<f64> {
    let losses = negative_log_likelihoods(logits, ids)?;
    let from = &losses[first.min(losses.len())..];
    Ok(from.iter().sum::<f64>() / from.len().max(1) as f64)
}

/// Builds the cache of a setting, for a context of `tokens`.
fn nkz_cache(shape: KvShape, calibration: Option<&Calibration>, mode: Mode, tokens: usize) -> anyhow::Result<NkzCache> {
    let streams = 2 * shape.layers * shape.heads;
    let pages = streams * (2 + (tokens * shape.head_dim * 2 + tokens) / nkz::PAGE);
    let config = CacheConfig {
        sequences: 1,
        layers: shape.layers,
        heads: shape.heads,
        head_dim: shape.head_dim,
        keys: mode,
        values: mode,
        pages,
        overflow: 64,
        tables: calibration.map(|c| c.lines.clone()).unwrap_or_default(),
    };
    Ok(NkzCache::new(shape, Cache::new(config)?))
}

fn outcome(
    llm: &Llm,
    calibration: Option<&Calibration>,
    setting: &Setting,
    text: &Text,
    reference: &Reference,
    first: usize,
) -> anyhow::Result<Outcome> {
    let shape = KvShape::from(llm.model.config());
    let (logits, tile_bits) = match setting {
        Setting::Nkz(_, mode) => {
            let mut cache = nkz_cache(shape, calibration, *mode, text.ids.len())?;
            let logits = run(llm, &text.ids, &mut cache)?;
            let kinds = [nkz::Kind::Key, nkz::Kind::Value].map(|kind| cache.inner().footprint(kind));
            // The index's lines cover whole contexts, not the text: they are counted below.
            let bytes: usize = kinds.iter().map(|f| f.bytes() - f.index).sum();
            let values: usize = kinds.iter().map(|f| f.values).sum();
            (logits, 8.0 * bytes as f64 / values.max(1) as f64)
        }
        Setting::Peer(name) => {
            let codec = peers::by_name(name, shape.head_dim).context("no such peer")?;
            let mut cache = CodecCache::new(shape, Policy::SINKS_AND_TILE, codec);
            let logits = run(llm, &text.ids, &mut cache)?;
            let bits = [Kind::K, Kind::V].map(|kind| cache.bits(kind));
            let values: usize = bits.iter().map(|b| b.values).sum();
            let stored: usize = bits.iter().map(|b| b.bits).sum();
            // Every tile of a peer has the same size; it is rounded to units like ours.
            let tile = (TOKENS * shape.head_dim) as f64;
            let bytes = (stored as f64 / values.max(1) as f64 * tile / 8.0 / UNIT as f64).ceil() * UNIT as f64;
            (logits, 8.0 * bytes / tile)
        }
    };
    let agreement = agreement(&tail(&reference.logits, first)?, &tail(&logits, first)?)?;
    Ok(Outcome { tile_bits, kl: agreement.mean_kl, top1: agreement.top1, loss: loss(&logits, &text.ids, first)? })
}

/// Evaluates every setting on every text; positions below `first` are left out of KL, agreement and perplexity.
///
/// # Errors
/// Golden's, and the codec's refusal of a mode.
pub fn evaluate(
    llm: &Llm,
    calibration: Option<&Calibration>,
    settings: &[Setting],
    texts: &[Text],
    first: usize,
    threads: usize,
    progress: &dyn Progress,
) -> anyhow::Result<Vec<Row>> {
    let shape = KvShape::from(llm.model.config());
    let total = (settings.len() + 1) * texts.len();
    let read = |i: usize| {
        let logits = run(llm, &texts[i].ids, &mut PlainCache::new(shape, Storage::Bf16))?;
        let loss = loss(&logits, &texts[i].ids, first)?;
        Ok(Reference { logits, loss })
    };
    let references = try_parallel(texts.len(), threads, read, |done| progress.tick(done, total, "reference"))?;
    let read = |i: usize| {
        let (setting, text) = (&settings[i / texts.len()], i % texts.len());
        outcome(llm, calibration, setting, &texts[text], &references[text], first).context(setting.name().to_string())
    };
    let tick = |done| progress.tick(texts.len() + done, total, "");
    let outcomes = try_parallel(settings.len() * texts.len(), threads, read, tick)?;
    let values = (2 * shape.layers * shape.heads * shape.head_dim) as f64 * CONTEXT;
    let row = |(setting, outcomes): (&Setting, &[Outcome])| {
        let mean = |f: &dyn Fn(&Outcome) -> f64| outcomes.iter().map(f).sum::<f64>() / outcomes.len() as f64;
        // Tiles of a fixed size could do without an index; a peer's pay for one like ours.
        let blocks = shape.head_dim.div_ceil(nkz::CHANNELS) * (CONTEXT as usize / TOKENS);
        let index = (8 * IndexLine::BYTES * blocks.div_ceil(IndexLine::TILES)) as f64;
        let tile_bits = mean(&|o| o.tile_bits) + index / (CONTEXT * shape.head_dim as f64);
        // A staging tile and the sinks, as allocated, beside tiles that cover the whole context.
        let bits = tile_bits + 16.0 * (TOKENS + SINKS) as f64 / CONTEXT;
        let tables = calibration.filter(|_| matches!(setting, Setting::Nkz(..)));
        let loss: f64 = outcomes.iter().zip(&references).map(|(o, r)| o.loss - r.loss).sum();
        Row {
            name: setting.name().into(),
            entropy_coded: setting.entropy_coded(),
            tile_bits,
            bits,
            all_bits: bits + tables.map_or(0.0, |c| c.bits() as f64 / values),
            ratio: 16.0 / bits,
            kls: outcomes.iter().map(|o| o.kl).collect(),
            kl: mean(&|o| o.kl),
            top1: 100.0 * mean(&|o| o.top1),
            perplexity: 100.0 * ((loss / outcomes.len() as f64).exp() - 1.0),
        }
    };
    Ok(settings.iter().zip(outcomes.chunks(texts.len())).map(row).collect())
}
