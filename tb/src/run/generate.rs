//! Prompts in, tokens out, with the times of each.

use golden::Tokenizer;
use host::{Logits, Sampler, Sampling, Session};
use npu::Counters;
use serde::Serialize;

/// What to generate.
#[derive(Clone, Debug)]
pub struct Generation {
    /// Token ids of each prompt, one a sequence of the session.
    pub prompts: Vec<Vec<u32>>,
    /// Tokens to make for each, at most.
    pub tokens: usize,
    /// Tokens that end a text.
    pub ends: Vec<u32>,
    /// How each next token is chosen; sequence i draws with seed + i.
    pub sampling: Sampling,
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It has the tokens asked for.
    Tokens,
    /// The model ended it.
    Model,
    /// The context window is full.
    Window,
}

/// What came of it. Cycles count from the arrival of all prompts.
#[derive(Clone, Debug)]
pub struct Generated {
    /// Token ids of each sequence, an end token left out.
    pub ids: Vec<Vec<u32>>,
    /// Why each sequence ended.
    pub ends: Vec<End>,
    /// Cycle in which each token of each sequence was there, an end token included.
    pub times: Vec<Vec<u64>>,
    /// Counters of the prompts' passes.
    pub prefill: Counters,
    /// Counters of the passes after them.
    pub decode: Counters,
}

impl Generated {
    /// Time to first token of a sequence, in cycles from its arrival.
    pub fn ttft(&self, sequence: usize) -> Option<u64> {
        self.times.get(sequence)?.first().copied()
    }

    /// Time per output token of a sequence in cycles: (last − first) / (n − 1); undefined for one token.
    pub fn tpot(&self, sequence: usize) -> Option<f64> {
        let times = self.times.get(sequence)?;
        match (times.first(), times.last()) {
            (Some(first), Some(last)) if times.len() > 1 => Some((last - first) as f64 / (times.len() - 1) as f64),
            _ => None,
        }
    }
}

/// Runs prompts one after another, then a token of each sequence at a time, until all have ended or have their tokens. `show` gets
/// the text of each sequence piece by piece.
///
/// # Errors
/// Those of the session and of the tokenizer.
pub fn generate(
    session: &mut Session,
    tokenizer: &Tokenizer,
    job: &Generation,
    show: &mut dyn FnMut(usize, &str),
) -> anyhow::Result<Generated> {
    let count = job.prompts.len();
    let (mut ids, mut times) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    let (mut texts, mut ends) = (vec![String::new(); count], vec![End::Tokens; count]);
    let mut running: Vec<(usize, u32)> = Vec::new();
    let seeds = (0..count).map(|i| Sampling { seed: job.sampling.seed.wrapping_add(i as u64), ..job.sampling });
    let mut samplers = seeds.map(Sampler::new).collect::<Result<Vec<_>, _>>()?;
    let before = *session.counters();
    let mut now = 0;

    let mut take = |session: &Session, sequence: usize, logits: &[f32], now: u64| -> anyhow::Result<Option<u32>> {
        let id = samplers[sequence].next(logits);
        times[sequence].push(now);
        if job.ends.contains(&id) {
            ends[sequence] = End::Model;
            return Ok(None);
        }
        ids[sequence].push(id);
        let text = tokenizer.decode(&ids[sequence])?;
        // A character of several tokens shows as a replacement until it is whole.
        let whole = text.trim_end_matches('\u{fffd}');
        if let Some(new) = whole.get(texts[sequence].len()..).filter(|new| !new.is_empty()) {
            show(sequence, new);
            texts[sequence].push_str(new);
        }
        let done = ids[sequence].len() >= job.tokens;
        let full = session.held(sequence) >= session.context();
        ends[sequence] = if done || !full { End::Tokens } else { End::Window };
        Ok((!done && !full).then_some(id))
    };
    for (sequence, prompt) in job.prompts.iter().enumerate() {
        if job.tokens == 0 {
            break;
        }
        let answer = session.prefill(sequence, prompt, Logits::Last)?;
        now += answer.cycles;
        if let Some(id) = take(session, sequence, answer.logits.row(0), now)? {
            running.push((sequence, id));
        }
    }
    let prefilled = *session.counters();
    while !running.is_empty() {
        let answer = session.decode(&running)?;
        now += answer.cycles;
        let mut next = Vec::new();
        for (row, &(sequence, _)) in running.iter().enumerate() {
            if let Some(id) = take(session, sequence, answer.logits.row(row), now)? {
                next.push((sequence, id));
            }
        }
        running = next;
    }
    let (prefill, decode) = (prefilled.since(&before), session.counters().since(&prefilled));
    Ok(Generated { ids, ends, times, prefill, decode })
}
