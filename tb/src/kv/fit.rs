//! From a model and a text to the codec's static tables.

use super::Calibration;
use anyhow::{Context, bail};
use golden::float16::{bf16_to_f32, f32_to_bf16};
use golden::kv::{Kind, KvShape, PlainCache, Storage, Stream};
use golden::sensitivity::{Sensitivity, estimate, sensitivity};
use golden::{Llm, Logits};
use nkz::{Channel, Quantiser, code_tables, exponent_tables};

/// Where the sensitivities come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Source {
    /// A reverse pass.
    Reverse,
    /// Forward passes alone.
    Estimate,
}

/// Step of a channel of sensitivity S at QP 0: FINEST / √(S + FLOOR · mean S), the mean over its stream. It puts QP 0
/// below a KL of 0.0003.
const FINEST: f64 = 0.00111;
/// Share of the stream's mean sensitivity that every channel is given, against a channel that the text left silent.
const FLOOR: f64 = 0.03;
/// Tokens at the start of a text that the cache keeps raw.
const SINKS: usize = nkz::SINKS;
/// QPs at which the spread of a channel is fitted: those of the presets.
const FITTED_AT: [u8; 3] = [0, 16, 27];

/// A part of a calibration, as its progress names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Passes that measure sensitivities.
    Measure,
    /// Windows whose cache is kept.
    Keep,
    /// Layers whose tables are fitted.
    Fit,
}

/// Measures `llm` on `text`, cut in windows of `window` tokens, and fits the tables of every channel. `progress` is told how much of a
/// phase is done, and of how much.
///
/// # Errors
/// A text shorter than a window, and golden's.
pub fn calibrate(
    llm: &Llm,
    text: &str,
    window: usize,
    most: usize,
    source: Source,
    progress: &dyn Fn(Phase, usize, usize),
) -> anyhow::Result<Calibration> {
    if window == 0 {
        bail!("a window of no tokens says nothing about the model");
    }
    let ids = llm.tokenizer.encode_plain(text)?;
    let windows: Vec<&[u32]> = ids.chunks_exact(window).take(most).collect();
    if windows.is_empty() {
        bail!("the text has {} tokens, calibration needs a window of {window} at least", ids.len());
    }
    let mut measure = |done, of| progress(Phase::Measure, done, of);
    let measured = match source {
        Source::Reverse => sensitivity(&llm.model, &windows, SINKS, 1, &mut measure)?,
        Source::Estimate => estimate(&llm.model, &windows, SINKS, 1, &mut measure)?,
    };
    let shape = KvShape::from(llm.model.config());
    let (mut caches, count) = (Vec::new(), windows.len());
    for ids in windows {
        let mut cache = PlainCache::new(shape, Storage::Bf16);
        llm.model.forward(ids, &mut cache, &mut (), Logits::Skip)?;
        caches.push(cache);
        progress(Phase::Keep, caches.len(), count);
    }
    let mut lines = Vec::new();
    for layer in 0..shape.layers {
        for head in 0..shape.heads {
            for kind in [Kind::K, Kind::V] {
                let stream = Stream { layer, head, kind };
                lines.extend(fit_stream(&measured, &caches, stream).with_context(|| format!("{stream:?}"))?);
            }
        }
        progress(Phase::Fit, layer + 1, shape.layers);
    }
    Ok(Calibration { shape, lines })
}

fn fit_stream(measured: &Sensitivity, caches: &[PlainCache], stream: Stream) -> anyhow::Result<Vec<Channel>> {
    let channels = measured.channels(stream);
    let mean = channels.iter().map(|c| c.sensitivity).sum::<f64>() / channels.len().max(1) as f64;
    if !mean.is_finite() || mean <= 0.0 {
        bail!("the text says nothing about this stream: its mean sensitivity is {mean}");
    }
    let fit = |(index, c): (usize, &golden::sensitivity::Channel)| {
        let values: Vec<u16> = caches
            .iter()
            .flat_map(|cache| cache.rows(stream).chunks_exact(channels.len()).skip(SINKS))
            .map(|row| f32_to_bf16(row[index]))
            .collect();
        fit_channel(c.mean, FINEST / (c.sensitivity + FLOOR * mean).sqrt(), &values)
    };
    Ok(channels.iter().enumerate().map(fit).collect())
}

fn clamp_i8(x: f64) -> i8 {
    x.clamp(-128.0, 127.0) as i8
}

fn fit_channel(mean: f64, step: f64, values: &[u16]) -> Channel {
    let mut line = Channel { mean: f32_to_bf16(mean as f32), ..Channel::default() };
    line.step = clamp_i8((4.0 * step.log2()).round());
    line.spread = fit_spread(line, values);
    line.fixed_step = fit_fixed(line, values);
    (line.exponent, line.exponent_table) = fit_exponent(values);
    line
}

/// The spread under whose tables the values are shortest, over the QPs of the presets.
fn fit_spread(line: Channel, values: &[u16]) -> i8 {
    let codes = FITTED_AT.map(|qp| {
        let q = Quantiser::entropy(&line, qp);
        values.iter().map(|&x| q.code(x)).collect::<Vec<_>>()
    });
    let cost = |spread: i8| -> u64 {
        let line = Channel { spread, ..line };
        let cost = |(qp, codes): (&u8, &Vec<i32>)| -> u64 {
            let table = &code_tables()[line.table(*qp, 0)];
            codes.iter().map(|&code| u64::from(table.cost(code))).sum()
        };
        FITTED_AT.iter().zip(&codes).map(cost).sum()
    };
    // Tables run from 0 to 15 at every QP, so no other spread can matter.
    (0..=31 + 14).min_by_key(|&spread| cost(spread)).unwrap_or(0)
}

/// The step of 15 levels with the least squared error, searched over the quarter octaves about a third of the spread.
fn fit_fixed(line: Channel, values: &[u16]) -> i8 {
    let value = |x: u16| f64::from(bf16_to_f32(x));
    let mean = value(line.mean);
    let variance = values.iter().map(|&x| (value(x) - mean).powi(2)).sum::<f64>() / values.len().max(1) as f64;
    let middle = 4.0 * (variance.sqrt() / 3.0).max(1e-30).log2();
    let error = |&step: &i8| -> f64 {
        let q = Quantiser::fixed(&Channel { fixed_step: step, ..line }, 0);
        let code = |x: u16| q.code(x).clamp(-nkz::FIXED_MAX, nkz::FIXED_MAX);
        values.iter().map(|&x| (value(q.rebuild(code(x))) - value(x)).powi(2)).sum()
    };
    let steps = (-6..=6).map(|d| clamp_i8(middle.round() + f64::from(d)));
    steps.min_by(|a, b| error(a).total_cmp(&error(b))).unwrap_or(0)
}

/// The reference exponent and the table under which the exponents are shortest.
fn fit_exponent(values: &[u16]) -> (u8, u8) {
    let mut counts = [0u64; 256];
    values.iter().for_each(|&x| counts[usize::from(x >> 7 & 0xff)] += 1);
    let seen: Vec<(u8, u64)> = (0..=255u8).zip(counts).filter(|&(_, n)| n > 0).collect();
    let most = seen.iter().max_by_key(|&&(_, n)| n).map_or(127, |&(e, _)| e);
    let cost = |&(reference, table): &(u8, u8)| -> u64 {
        let table = &exponent_tables()[usize::from(table)];
        seen.iter().map(|&(e, n)| n * u64::from(table.cost(i32::from(e.wrapping_sub(reference) as i8)))).sum()
    };
    let near = (-4i8..=8).flat_map(|d| (0..16).map(move |table| (most.wrapping_add_signed(d), table)));
    near.min_by_key(cost).unwrap_or((127, 0))
}
