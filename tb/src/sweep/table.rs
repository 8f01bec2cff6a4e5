//! Results as lines of a CSV file: appended as they come, and read again by a sweep that goes on.

use super::{Measured, Point};
use anyhow::{Context, ensure};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// Columns that name a point, then its figures.
const KEYS: [&str; 10] = [
    "config",
    "array_rows",
    "array_cols",
    "dram_bytes_per_cycle",
    "decoders",
    "clock_mhz",
    "format",
    "kv",
    "prompt_tokens",
    "context",
];
const FIGURES: [&str; 15] = [
    "ttft_cycles",
    "ttft_ms",
    "tpot_cycles",
    "tpot_ms",
    "tokens_per_second",
    "prefill_utilisation",
    "decode_utilisation",
    "prefill_macs",
    "decode_macs",
    "prefill_dram_bytes",
    "decode_dram_bytes",
    "decode_weight_bytes",
    "decode_kv_bytes",
    "kv_ratio",
    "peak_macs_per_cycle",
];

/// All columns.
pub fn columns() -> String {
    KEYS.iter().chain(&FIGURES).copied().collect::<Vec<_>>().join(",")
}

/// A line of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Line(Vec<String>);

impl Line {
    fn new(point: &Point, prompt: usize, m: &Measured) -> Self {
        let clock = point.npu.clock_mhz;
        let milliseconds = |cycles: f64| cycles / (clock * 1e3);
        let mut cells = key(point, prompt, m.context);
        let figures = [
            m.ttft_cycles as f64,
            milliseconds(m.ttft_cycles as f64),
            m.tpot_cycles,
            milliseconds(m.tpot_cycles),
            1e3 / milliseconds(m.tpot_cycles),
            m.utilisation[0],
            m.utilisation[1],
            m.macs[0],
            m.macs[1],
            m.bytes[0],
            m.bytes[1],
            m.read[0],
            m.read[1],
            m.ratio,
            (point.npu.array.rows * point.npu.array.cols) as f64,
        ];
        cells.extend(figures.map(|f| format!("{f}")));
        Self(cells)
    }

    /// A cell by its column's name; empty if there is none.
    pub fn text(&self, column: &str) -> &str {
        let at = KEYS.iter().chain(&FIGURES).position(|name| *name == column);
        at.and_then(|at| self.0.get(at)).map_or("", String::as_str)
    }

    /// A figure by its column's name.
    pub fn number(&self, column: &str) -> f64 {
        self.text(column).parse().unwrap_or(f64::NAN)
    }
}

fn key(point: &Point, prompt: usize, context: usize) -> Vec<String> {
    let npu = &point.npu;
    vec![
        point.config.clone(),
        npu.array.rows.to_string(),
        npu.array.cols.to_string(),
        npu.dram.bytes_per_cycle.to_string(),
        npu.codec.decoders.to_string(),
        npu.clock_mhz.to_string(),
        point.format.clone(),
        point.kv.clone(),
        prompt.to_string(),
        context.to_string(),
    ]
}

/// The file and what it holds.
pub struct Table {
    file: File,
    lines: Vec<Line>,
    known: BTreeSet<Vec<String>>,
}

impl Table {
    /// Opens or begins a file.
    ///
    /// # Errors
    /// A file that cannot be opened, or that is not a table of this form.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let name = || path.display().to_string();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(name),
        };
        let mut lines = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if number == 0 {
                ensure!(line == columns(), "{}: not a table of this version; move it away to begin anew", name());
                continue;
            }
            let cells: Vec<String> = line.split(',').map(Into::into).collect();
            // A line that was torn when its sweep was stopped is measured again.
            if cells.len() == KEYS.len() + FIGURES.len() && text.ends_with('\n') || number + 1 < text.lines().count() {
                ensure!(cells.len() == KEYS.len() + FIGURES.len(), "{}: line {} is torn", name(), number + 1);
                lines.push(Line(cells));
            }
        }
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(path).with_context(name)?;
        writeln!(file, "{}", columns()).with_context(name)?;
        for line in &lines {
            writeln!(file, "{}", line.0.join(",")).with_context(name)?;
        }
        let known = lines.iter().map(|line| line.0[..KEYS.len()].to_vec()).collect();
        Ok(Self { file, lines, known })
    }

    /// Whether a point's figure at a context is there.
    pub fn knows(&self, point: &Point, prompt: usize, context: usize) -> bool {
        self.known.contains(&key(point, prompt, context))
    }

    /// Appends a figure.
    ///
    /// # Errors
    /// A disk that is full.
    pub fn add(&mut self, point: &Point, prompt: usize, measured: &Measured) -> anyhow::Result<()> {
        let line = Line::new(point, prompt, measured);
        if self.known.insert(line.0[..KEYS.len()].to_vec()) {
            writeln!(self.file, "{}", line.0.join(","))?;
            self.lines.push(line);
        }
        Ok(())
    }

    /// All lines.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }
}
