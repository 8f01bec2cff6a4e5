//! What a point gives.

use super::{Grid, Point};
use anyhow::{Context, ensure};
use host::{Logits, Options, Session, Source};
use npu::utilisation;

/// Figures of a point at one context. Cycles are of the NPU's clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Tokens held.
    pub context: usize,
    /// Cycles from the prompt's arrival to its first token.
    pub ttft_cycles: u64,
    /// Cycles of a decoded token.
    pub tpot_cycles: f64,
    /// Use of the array in prefill and decode.
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

/// Prefills the prompt once, then decodes at each context; `done` gets each figure as it comes.
///
/// # Errors
/// What the session refuses.
pub fn measure(
    grid: &Grid,
    source: &Source,
    prompt: &[u32],
    point: &Point,
    done: &mut dyn FnMut(Measured) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let format = point.format.parse()?;
    let cache = crate::run::cache(&point.kv, source, grid.calibration.as_deref())?;
    let most = point.contexts.iter().max().copied().unwrap_or(0);
    let context = most + grid.decode_tokens + nkz::TOKENS;
    let options = Options { format, cache, context, stretch: true, ..Options::new(point.npu.clone()) };
    let mut session = Session::new(source, &options)?;
    session.keep_tiles();
    let answer = session.prefill(0, prompt, Logits::Last)?;
    let prefill = *session.counters();
    let mut token = golden::argmax(answer.logits.row(0)) as u32;
    for &context in &point.contexts {
        if session.held(0) < context {
            session.backfill(0, context)?;
        }
        let before = *session.counters();
        for _ in 0..grid.decode_tokens {
            let answer = session.decode(&[(0, token)])?;
            token = golden::argmax(answer.logits.row(0)) as u32;
        }
        let c = session.counters().since(&before);
        let per_token = |n: u64| n as f64 / grid.decode_tokens as f64;
        let traffic = |c: &npu::Counters| c.dram_read.total() + c.dram_written.total();
        done(Measured {
            context,
            ttft_cycles: answer.cycles,
            tpot_cycles: per_token(c.cycles),
            utilisation: [
                utilisation(&point.npu, prefill.macs, prefill.cycles),
                utilisation(&point.npu, c.macs, c.cycles),
            ],
            macs: [prefill.macs as f64, per_token(c.macs)],
            bytes: [traffic(&prefill) as f64, per_token(traffic(&c))],
            read: [per_token(c.dram_read.weights), per_token(c.dram_read.kv)],
            ratio: if prefill.kv_stored == 0 { 1.0 } else { prefill.kv_raw as f64 / prefill.kv_stored as f64 },
        })?;
    }
    Ok(())
}

/// The prompt's tokens.
///
/// # Errors
/// A text that cannot be read, or is too short.
pub fn prompt(grid: &Grid, source: &Source) -> anyhow::Result<Vec<u32>> {
    let text = match &grid.text {
        Some(path) => std::fs::read_to_string(path).with_context(|| path.display().to_string())?,
        None => crate::run::HELD_OUT.into(),
    };
    let ids = source.llm().tokenizer.encode(&text)?;
    let (have, want) = (ids.len(), grid.prompt_tokens);
    ensure!(have >= want, "the text has {have} tokens, prompt_tokens = {want}");
    Ok(ids[..want].to_vec())
}
