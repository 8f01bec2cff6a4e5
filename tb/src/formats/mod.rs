//! What a number format costs a model: the NPU's answers to texts against the f32 reference's, beside what rounding the operands
//! costs by itself.

mod report;

pub use report::{svg, table};

use crate::parallel::try_parallel;
use crate::run::{Comparison, judge};
use crate::verify::Progress;
use golden::Tensor;
use golden::kv::{KvShape, PlainCache, Storage};
use golden::operands::{self, Operands};
use host::{Code, Format, Logits, Options, Session, Source};
use npu::numeric::FloatFormat;
use serde::Serialize;
use std::sync::Mutex;

/// A text in windows, each of which is read from an empty cache.
#[derive(Clone, Debug)]
pub struct Text {
    /// Its name.
    pub name: String,
    /// Token ids; windows of one length.
    pub windows: Vec<Vec<u32>>,
}

/// Means over all windows, against the f32 reference.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// KL(reference‖this) of a position, nats.
    pub kl: f64,
    /// The largest of a position.
    pub worst_kl: f64,
    /// Share of positions with the same likeliest token, %.
    pub top1: f64,
    /// Standard error of `top1`, %, from how the windows differ; none of a single window.
    pub top1_error: Option<f64>,
    /// Change of perplexity, %.
    pub perplexity: f64,
}

impl Figures {
    fn of(found: &[Comparison]) -> Self {
        let n = found.len() as f64;
        let mean = |f: &dyn Fn(&Comparison) -> f64| found.iter().map(f).sum::<f64>() / n;
        let top1 = mean(&|c| c.top1);
        let error = (mean(&|c| (c.top1 - top1).powi(2)) / (n - 1.0)).sqrt();
        Self {
            kl: mean(&|c| c.kl),
            worst_kl: found.iter().map(|c| c.worst_kl).fold(0.0, f64::max),
            top1: 100.0 * top1,
            top1_error: (found.len() > 1).then_some(100.0 * error),
            perplexity: 100.0 * (mean(&|c| (c.perplexity / c.reference_perplexity).ln()).exp() - 1.0),
        }
    }
}

/// A format's figures.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name; the split of a flexible float is the one that was chosen.
    pub format: String,
    /// Positions compared.
    pub positions: usize,
    /// What the NPU makes of it.
    pub npu: Figures,
    /// The NPU's mean KL, text by text.
    pub kl_by_text: Vec<f64>,
    /// Golden's transformer with its operands rounded to the format and nothing else: what any machine of these formats would come
    /// to. None where the host quantises floats to GGUF's blocks, which golden does not do.
    pub operands_alone: Option<Figures>,
}

/// The operands of a settled format, as golden rounds them.
pub fn ideal(format: Format, source: &Source) -> Option<operands::Format> {
    Some(match format {
        Format::Bf16 => operands::Format::Bf16,
        Format::Scaled { code, group } => {
            let code = match code {
                Code::Int8 => operands::Code::INT8,
                Code::Float(FloatFormat::E4M3) => operands::Code::E4M3,
                Code::Float(FloatFormat::E5M2) => operands::Code::E5M2,
                Code::Float(float) => operands::Code::flexible(float.exp_bits()).ok()?,
                Code::Chosen => return None,
            };
            operands::Format::Scaled { code, group: (group > 0).then_some(group.into()) }
        }
        Format::Stored(_) => {
            let stored: usize = source.stored().iter().map(|(_, tensors)| tensors).sum();
            let all = golden::Projection::LAYER.len() * source.config().layers + 1;
            (stored == all).then_some(operands::Format::Stored)?
        }
    })
}

/// Golden's logits of a text with operands rounded, and K and V in BF16.
///
/// # Errors
/// Golden's, for tokens that the model does not have or that its window does not hold.
pub fn rounded(source: &Source, operands: &Operands, ids: &[u32]) -> golden::Result<Tensor> {
    let model = &source.llm().model;
    let mut cache = PlainCache::new(KvShape::from(model.config()), Storage::Bf16);
    model.forward(ids, &mut cache, &mut &*operands, golden::Logits::All)
}

/// Measures `formats` on `texts`: machine, cache and chunk are those of `options`, positions below `skip` of each window are not compared.
/// The reference's logits of all windows are held, and a session a thread.
///
/// # Errors
/// A format that the machine or the model does not have, and golden's.
pub fn measure(
    source: &Source,
    options: &Options,
    formats: &[Format],
    texts: &[Text],
    skip: usize,
    threads: usize,
    progress: &dyn Progress,
) -> anyhow::Result<Vec<Row>> {
    let windows: Vec<&[u32]> = texts.iter().flat_map(|t| t.windows.iter().map(Vec::as_slice)).collect();
    let total = windows.len() * (formats.len() + 1);
    let read = |i: usize| Ok(source.llm().logits(windows[i])?);
    let references = try_parallel(windows.len(), threads, read, |done| progress.tick(done, total, "f32"))?;
    let mut rows = Vec::new();
    for (&format, before) in formats.iter().zip((windows.len()..).step_by(windows.len().max(1))) {
        let first = Session::new(source, &Options { format, ..options.clone() })?;
        let settled = Options { format: first.format(), ..options.clone() };
        let operands = ideal(first.format(), source).map(|format| Operands::new(format, &source.llm().model));
        let name = first.format().to_string();
        let idle = Mutex::new(vec![first]);
        let read = |i: usize| {
            let lent = idle.lock().ok().and_then(|mut idle| idle.pop());
            let mut session = lent.map_or_else(|| Session::new(source, &settled), Ok)?;
            session.forget(0);
            let answer = session.prefill(0, windows[i], Logits::All)?;
            if let Ok(mut idle) = idle.lock() {
                idle.push(session);
            }
            let against = |logits: &Tensor| judge(&references[i], logits, windows[i], skip);
            let alone = operands.as_ref().map(|o| against(&rounded(source, o, windows[i])?)).transpose()?;
            Ok((against(&answer.logits)?, alone))
        };
        let tick = |done| progress.tick(before + done, total, &name);
        let found = try_parallel(windows.len(), threads, read, tick)?;
        rows.push(row(name, &found, texts));
    }
    Ok(rows)
}

/// The figures of a format: the NPU's and the operands' comparisons, window by window.
fn row(format: String, found: &[(Comparison, Option<Comparison>)], texts: &[Text]) -> Row {
    let npu: Vec<Comparison> = found.iter().map(|(npu, _)| *npu).collect();
    let alone: Option<Vec<Comparison>> = found.iter().map(|(_, alone)| *alone).collect();
    let mut left = npu.as_slice();
    let mut by_text = Vec::new();
    for text in texts {
        let (own, rest) = left.split_at(text.windows.len().min(left.len()));
        by_text.push(own.iter().map(|c| c.kl).sum::<f64>() / own.len() as f64);
        left = rest;
    }
    Row {
        format,
        positions: npu.iter().map(|c| c.positions).sum(),
        npu: Figures::of(&npu),
        kl_by_text: by_text,
        operands_alone: alone.as_deref().map(Figures::of),
    }
}
