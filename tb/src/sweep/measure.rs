//! What a point gives.

use super::{Grid, Point};
use anyhow::ensure;
use fnv::FnvHasher;
use host::{Logits, Options, Session, Source};
use std::hash::Hasher;

/// Figures of a point at one context. Cycles are of the NPU's clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Tokens held.
    pub context: usize,
    /// Cycles from the prompt's arrival to its first token.
    pub ttft_cycles: u64,
    /// Cycles of a decoded token.
    pub tpot_cycles: f64,
    /// Multiply-accumulates of a cycle at most, in the fastest of the format's products.
    pub peak: u64,
    /// Share of that, in prefill and decode.
    pub utilisation: [f64; 2],
    /// Multiply-accumulates of prefill, and of a decoded token.
    pub macs: [f64; 2],
    /// DRAM bytes, both ways, of prefill, and of a decoded token.
    pub bytes: [f64; 2],
    /// DRAM bytes read for a decoded token: weights, KV.
    pub read: [f64; 2],
    /// BF16 bytes over stored bytes of the tiles that the prompt filled.
    pub ratio: f64,
}

/// A grid with the model and the prompt that it is asked of.
pub struct Study<'a> {
    grid: &'a Grid,
    source: &'a Source,
    prompt: Vec<u32>,
    /// Of the model and of the prompt.
    digest: FnvHasher,
}

impl<'a> Study<'a> {
    /// Of a grid's model.
    ///
    /// # Errors
    /// A text that cannot be read, or is too short.
    pub fn new(grid: &'a Grid, source: &'a Source) -> anyhow::Result<Self> {
        let text = match &grid.text {
            Some(path) => crate::input::text(path)?,
            None => crate::run::HELD_OUT.into(),
        };
        let mut prompt = source.llm().tokenizer.encode(&text)?;
        let (have, want) = (prompt.len(), grid.prompt_tokens);
        ensure!(have >= want, "the text has {have} tokens, prompt_tokens = {want}");
        prompt.truncate(want);
        let mut digest = FnvHasher::default();
        let version = env!("CARGO_PKG_VERSION");
        digest.write(format!("{version} {:?} {}", source.config(), grid.decode_tokens).as_bytes());
        // Another model of this shape differs in its first million values.
        let embedding = source.llm().model.weights().embedding.weight.data();
        embedding.iter().take(1 << 20).for_each(|value| digest.write_u32(value.to_bits()));
        prompt.iter().for_each(|&token| digest.write_u32(token));
        Ok(Self { grid, source, prompt, digest })
    }

    /// What a point's session is made of.
    ///
    /// # Errors
    /// A format or a mode of the cache that there is not, a calibration that is missing or of another model.
    pub fn options(&self, point: &Point) -> anyhow::Result<Options> {
        let format = point.format.parse()?;
        let cache = crate::run::cache(&point.kv, self.source, self.grid.calibration.as_deref())?;
        let most = point.contexts.iter().max().copied().unwrap_or(0);
        let context = most + self.grid.decode_tokens + nkz::TOKENS;
        Ok(Options { format, cache, context, stretch: true, ..Options::new(point.npu.clone()) })
    }

    /// 64 bits (FNV-1a) over all that a point's figures follow from: version, model, prompt, machine, formats, and the codec's tables.
    ///
    /// # Errors
    /// As [`Study::options`].
    pub fn digest(&self, point: &Point) -> anyhow::Result<String> {
        let Options { config, format, cache, .. } = self.options(point)?;
        let mut digest = FnvHasher::with_key(self.digest.finish());
        let modes = (cache.keys, cache.values);
        digest.write(format!("{} {format} {modes:?}", serde_json::to_string(&config)?).as_bytes());
        cache.tables.iter().for_each(|line| digest.write_u64(line.pack()));
        Ok(format!("{:016x}", digest.finish()))
    }

    /// Prefills the prompt once, then decodes at each context; `done` gets each figure as it comes.
    ///
    /// # Errors
    /// What the session refuses.
    pub fn measure(&self, point: &Point, done: &mut dyn FnMut(Measured) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut session = Session::new(self.source, &self.options(point)?)?;
        session.keep_tiles();
        let answer = session.prefill(0, &self.prompt, Logits::Last)?;
        let prefill = *session.counters();
        let mut token = golden::argmax(answer.logits.row(0)) as u32;
        for &context in &point.contexts {
            if session.held(0) < context {
                session.backfill(0, context)?;
            }
            let before = *session.counters();
            for _ in 0..self.grid.decode_tokens {
                let answer = session.decode(&[(0, token)])?;
                token = golden::argmax(answer.logits.row(0)) as u32;
            }
            let c = session.counters().since(&before);
            let per_token = |n: u64| n as f64 / self.grid.decode_tokens as f64;
            let traffic = |c: &npu::Counters| c.dram_read.total() + c.dram_written.total();
            done(Measured {
                context,
                ttft_cycles: answer.cycles,
                tpot_cycles: per_token(c.cycles),
                peak: session.peak_macs(),
                utilisation: [session.utilisation(&prefill), session.utilisation(&c)],
                macs: [prefill.macs as f64, per_token(c.macs)],
                bytes: [traffic(&prefill) as f64, per_token(traffic(&c))],
                read: [per_token(c.dram_read.weights), per_token(c.dram_read.kv)],
                ratio: if prefill.kv_stored == 0 { 1.0 } else { prefill.kv_raw as f64 / prefill.kv_stored as f64 },
            })?;
        }
        Ok(())
    }
}
