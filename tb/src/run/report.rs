//! The figures of a run, as a table and as JSON.

use super::{Comparison, End, Generated};
use crate::verify::grouped;
use comfy_table::{Table, presets::ASCII_MARKDOWN};
use host::Session;
use npu::isa::Engine;
use npu::{ByKind, Counters};
use serde::Serialize;

/// What ran.
#[derive(Clone, Debug, Serialize)]
pub struct Setup {
    /// The model's name.
    pub model: String,
    /// The products' format.
    pub format: String,
    /// The cache's mode.
    pub kv: String,
    /// The configuration's name.
    pub config: String,
    /// Sequences.
    pub batch: usize,
}

/// Cycles of an engine in a phase.
#[derive(Clone, Debug, Serialize)]
struct EngineFigures {
    name: &'static str,
    commands: u64,
    busy: u64,
    conflicts: u64,
    /// Its next command waited for commands of other engines.
    waits_for_engines: u64,
    /// Its next command waited for a bank of the scratchpad.
    waits_for_banks: u64,
    /// It had no command.
    idle: u64,
}

/// A phase: the prompts, or the tokens after them.
#[derive(Clone, Debug, Serialize)]
struct Phase {
    cycles: u64,
    engines: Vec<EngineFigures>,
    dispatch_stalls: u64,
    port_stalls: u64,
    macs: u64,
    /// Multiply-accumulates done over those that the array could have done, in the fastest of the format's products.
    pe_utilisation: f64,
    dram_read: ByKind,
    dram_written: ByKind,
}

/// The figures of a run. Times in cycles, and in seconds at the clock.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    setup: Setup,
    clock_mhz: f64,
    prompt_tokens: Vec<usize>,
    new_tokens: Vec<usize>,
    ended_by: Vec<End>,
    texts: Vec<String>,
    /// Arrival to first token, by sequence.
    ttft_cycles: Vec<u64>,
    ttft_seconds: Vec<f64>,
    /// (last − first) / (n − 1), by sequence; null for one token.
    tpot_cycles: Vec<Option<f64>>,
    tpot_seconds: Vec<Option<f64>>,
    /// New tokens of all sequences over the time from the first token of any to the last.
    decode_tokens_per_second: Option<f64>,
    /// Tokens of prompts over the time of their passes.
    prefill_tokens_per_second: f64,
    /// New tokens of all sequences over all time.
    tokens_per_second: f64,
    prefill: Phase,
    decode: Phase,
    /// Bytes of BF16 that the encoded tiles stand for, and that they take.
    kv_raw_bytes: u64,
    kv_stored_bytes: u64,
    /// Texts compared with the reference.
    evaluated: Vec<(String, Comparison)>,
}

fn phase(session: &Session, c: &Counters) -> Phase {
    let engines = Engine::ALL.iter().map(|&engine| {
        let e = c.engine(engine);
        EngineFigures {
            name: engine.name(),
            commands: e.commands,
            busy: e.busy,
            conflicts: e.conflicts,
            waits_for_engines: e.waits_tokens,
            waits_for_banks: e.waits_banks,
            idle: e.idle,
        }
    });
    Phase {
        cycles: c.cycles,
        engines: engines.collect(),
        dispatch_stalls: c.dispatch_stalls,
        port_stalls: c.port_stalls,
        macs: c.macs,
        pe_utilisation: session.utilisation(c),
        dram_read: c.dram_read,
        dram_written: c.dram_written,
    }
}

impl Report {
    /// The figures of what was generated.
    pub fn new(setup: Setup, session: &Session, prompts: &[Vec<u32>], made: &Generated, texts: Vec<String>) -> Self {
        let clock_mhz = session.config().clock_mhz;
        let hertz = clock_mhz * 1e6;
        let count = made.ids.len();
        let ttft_cycles: Vec<u64> = (0..count).filter_map(|s| made.ttft(s)).collect();
        let tpot_cycles: Vec<Option<f64>> = (0..count).map(|s| made.tpot(s)).collect();
        let all = || made.times.iter().flatten().copied();
        let (first, last) = (all().min().unwrap_or(0), all().max().unwrap_or(0));
        // Tokens that decode passes made: all but each sequence's first.
        let later: usize = made.times.iter().map(|t| t.len().saturating_sub(1)).sum();
        let prompted: usize = prompts.iter().map(Vec::len).sum();
        let rate = |tokens: usize, cycles: u64| if cycles == 0 { 0.0 } else { tokens as f64 * hertz / cycles as f64 };
        let seconds = |cycles: f64| cycles / hertz;
        Self {
            setup,
            clock_mhz,
            prompt_tokens: prompts.iter().map(Vec::len).collect(),
            new_tokens: made.ids.iter().map(Vec::len).collect(),
            ended_by: made.ends.clone(),
            texts,
            ttft_seconds: ttft_cycles.iter().map(|&c| seconds(c as f64)).collect(),
            ttft_cycles,
            tpot_seconds: tpot_cycles.iter().map(|c| c.map(seconds)).collect(),
            tpot_cycles,
            decode_tokens_per_second: (last > first).then(|| rate(later, made.decode.cycles)),
            prefill_tokens_per_second: rate(prompted, made.prefill.cycles),
            tokens_per_second: rate(made.times.iter().map(Vec::len).sum(), last),
            prefill: phase(session, &made.prefill),
            decode: phase(session, &made.decode),
            kv_raw_bytes: made.prefill.kv_raw + made.decode.kv_raw,
            kv_stored_bytes: made.prefill.kv_stored + made.decode.kv_stored,
            evaluated: Vec::new(),
        }
    }

    /// Adds a text's comparison.
    pub fn evaluated(&mut self, text: String, comparison: Comparison) {
        self.evaluated.push((text, comparison));
    }

    /// As JSON.
    ///
    /// # Errors
    /// None that these fields could cause.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// As tables: of the prompts, if there were any, and of the texts compared.
    pub fn tables(&self) -> String {
        let mut tables = vec![self.times()];
        if !self.prompt_tokens.is_empty() {
            tables.extend([self.phases(), self.engines()]);
        }
        if !self.evaluated.is_empty() {
            tables.push(self.comparisons());
        }
        tables.iter().map(|table| format!("{table}\n")).collect::<Vec<_>>().join("\n")
    }

    fn times(&self) -> Table {
        let s = &self.setup;
        let mut table = new_table(["what", "figure"]);
        table.add_row([
            "model, format, cache, NPU".to_string(),
            format!("{}, {}, {}, {}", s.model, s.format, s.kv, s.config),
        ]);
        if self.prompt_tokens.is_empty() {
            return table;
        }
        let mut row = |what: &str, figure: String| {
            table.add_row([what.to_string(), figure]);
        };
        let sum = |v: &[usize]| v.iter().sum::<usize>();
        row("prompt tokens, new tokens", format!("{}, {}", sum(&self.prompt_tokens), sum(&self.new_tokens)));
        let clock = |cycles: f64| {
            format!("{} ({} cycles)", time(cycles / self.clock_mhz / 1e6), grouped(cycles.round() as u64))
        };
        match self.ttft_cycles[..] {
            [one] => row("time to first token", clock(one as f64)),
            [] => row("time to first token", "undefined: no token".into()),
            _ => {
                let worst = self.ttft_cycles.iter().max().copied().unwrap_or(0);
                let mean = self.ttft_cycles.iter().sum::<u64>() as f64 / self.ttft_cycles.len() as f64;
                row("time to first token, mean of the batch", clock(mean));
                row("time to first token, last of the batch", clock(worst as f64));
            }
        }
        let known: Vec<f64> = self.tpot_cycles.iter().flatten().copied().collect();
        match known.is_empty() {
            true => row("time per output token", "undefined for one token".into()),
            false => row("time per output token", clock(known.iter().sum::<f64>() / known.len() as f64)),
        }
        row("prompt tokens a second", format!("{:.1}", self.prefill_tokens_per_second));
        if let Some(rate) = self.decode_tokens_per_second {
            row("new tokens a second, after the first", format!("{rate:.1}"));
        }
        row("new tokens a second, all time", format!("{:.1}", self.tokens_per_second));
        let ratio = match self.kv_stored_bytes {
            0 => "no tile was full".into(),
            stored => format!(
                "{} as {} ({:.3})",
                bytes(self.kv_raw_bytes),
                bytes(stored),
                self.kv_raw_bytes as f64 / stored as f64
            ),
        };
        row("KV tiles, BF16 as stored (ratio)", ratio);
        table
    }

    fn phases(&self) -> Table {
        let mut table = new_table(["", "prefill", "decode"]);
        let both = [&self.prefill, &self.decode];
        let mut row = |what: String, figure: &dyn Fn(&Phase) -> String| {
            let [prefill, decode] = both.map(figure);
            table.add_row([what, prefill, decode]);
        };
        row("cycles".into(), &|p| grouped(p.cycles));
        row("array waits for the weight port".into(), &|p| share(p.port_stalls, p));
        row("PE utilisation".into(), &|p| format!("{:.1} %", 100.0 * p.pe_utilisation));
        let kinds = |b: &ByKind| format!("{}, {}, {}", bytes(b.weights), bytes(b.kv), bytes(b.activations));
        row("DRAM read: weights, KV, activations".into(), &|p| kinds(&p.dram_read));
        row("DRAM written: the same".into(), &|p| kinds(&p.dram_written));
        table
    }

    /// Each engine's cycles, which add up to the phase's.
    fn engines(&self) -> Table {
        let mut table = new_table(["engine", "", "busy", "waits for other engines", "waits for banks", "idle"]);
        for i in 0..Engine::ALL.len() {
            for (name, phase) in [("prefill", &self.prefill), ("decode", &self.decode)] {
                let e = &phase.engines[i];
                let parts = [e.busy, e.waits_for_engines, e.waits_for_banks, e.idle];
                let shares = parts.map(|cycles| share(cycles, phase));
                table.add_row([e.name.to_string(), name.to_string()].into_iter().chain(shares));
            }
        }
        table
    }

    fn comparisons(&self) -> Table {
        let mut table = new_table(["text", "positions", "KL to f32", "worst", "top-1", "perplexity", "f32's"]);
        for (text, c) in &self.evaluated {
            table.add_row([
                text.clone(),
                c.positions.to_string(),
                format!("{:.5}", c.kl),
                format!("{:.4}", c.worst_kl),
                format!("{:.1} %", 100.0 * c.top1),
                format!("{:.3}", c.perplexity),
                format!("{:.3}", c.reference_perplexity),
            ]);
        }
        table
    }
}

/// Cycles over those of a phase.
fn share(cycles: u64, phase: &Phase) -> String {
    match phase.cycles {
        0 => "-".into(),
        all => format!("{:.1} %", 100.0 * cycles as f64 / all as f64),
    }
}

fn new_table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(header);
    table
}

/// Bytes in a unit that suits them.
fn bytes(n: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let power = (n.max(1).ilog10() / 3).min(4);
    match power {
        0 => format!("{n} B"),
        _ => format!("{:.2} {}", n as f64 / 10f64.powi(3 * power as i32), units[power as usize]),
    }
}

/// Seconds in a unit that suits them.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.2} µs", s * 1e6),
        s if s < 1.0 => format!("{:.3} ms", s * 1e3),
        s => format!("{s:.3} s"),
    }
}
