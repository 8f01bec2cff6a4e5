//! Results as lines of a CSV file: appended as they come, and read again by a sweep that goes on.

use super::{Measured, Point};
use anyhow::{Context, bail, ensure};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

/// Bytes of a table at most: some 500,000 figures.
const LIMIT: u64 = 1 << 27;

/// Columns that name a point, then its figures.
const KEYS: [&str; 12] = [
    "model",
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
    "digest",
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
    /// The cells of `key`, then the figures.
    fn new(key: Vec<String>, point: &Point, m: &Measured) -> Self {
        let milliseconds = |cycles: f64| cycles / (point.npu.clock_mhz * 1e3);
        let mut cells = key;
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
            m.peak as f64,
        ];
        cells.extend(figures.map(|f| format!("{f}")));
        Self(cells)
    }

    /// The cells that name its point.
    fn key(&self) -> &[String] {
        &self.0[..KEYS.len()]
    }

    /// As it stands in the file.
    fn record(&self) -> anyhow::Result<Vec<u8>> {
        let mut csv = csv::Writer::from_writer(Vec::new());
        csv.write_record(&self.0)?;
        Ok(csv.into_inner()?)
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

/// The cells that name a point of a model with a digest, at a context.
pub fn key(model: &str, point: &Point, prompt: usize, digest: &str, context: usize) -> Vec<String> {
    let npu = &point.npu;
    vec![
        model.into(),
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
        digest.into(),
    ]
}

/// What a sweep can vary, but the context.
const AXES: [&str; 7] = ["config", "array", "dram_bytes_per_cycle", "decoders", "format", "kv", "prompt_tokens"];

/// A line's place on an axis, as people read it.
fn place(line: &Line, axis: &str) -> String {
    match axis {
        "array" => format!("{}x{}", line.text("array_rows"), line.text("array_cols")),
        "dram_bytes_per_cycle" => format!("{} B/cycle", line.text(axis)),
        "decoders" if line.text(axis) == "1" => "1 decoder".into(),
        "decoders" => format!("{} decoders", line.text(axis)),
        "prompt_tokens" => format!("prompt {}", line.text(axis)),
        _ => line.text(axis).into(),
    }
}

/// What tells a line from the others: its places on the axes that vary. All of them, where none does.
pub(super) fn places(lines: &[Line]) -> impl Fn(&Line) -> Vec<String> {
    let differs = |axis: &&str| lines.iter().any(|line| place(line, axis) != place(&lines[0], axis));
    let varied: Vec<&str> = AXES.into_iter().filter(differs).collect();
    let axes = if varied.is_empty() { AXES.to_vec() } else { varied };
    move |line| axes.iter().map(|axis| place(line, axis)).collect()
}

/// The same in words.
pub fn names(lines: &[Line]) -> impl Fn(&Line) -> String {
    let places = places(lines);
    move |line| places(line).join(", ")
}

/// The file and what it holds. It is locked while it is open.
pub struct Table {
    file: File,
    lines: Vec<Line>,
    known: BTreeSet<Vec<String>>,
}

impl Table {
    /// Opens or begins a file. A last line that was torn when its sweep was stopped is cut off: it is measured again.
    ///
    /// # Errors
    /// A file that cannot be opened, that another sweep writes to, or that is not a table of this form.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        // What is no regular file may never end.
        if let Ok(what) = std::fs::metadata(path) {
            ensure!(what.is_file(), "{name} is no regular file: a sweep reads what it wrote before");
            ensure!(what.len() <= LIMIT, "{name}: {} bytes are more than the {LIMIT} that are read", what.len());
        }
        let mut file =
            OpenOptions::new().create(true).read(true).append(true).open(path).with_context(|| name.to_string())?;
        match file.try_lock() {
            Ok(()) => (),
            Err(TryLockError::WouldBlock) => {
                bail!("{name}: another sweep is writing to it; wait, or give another --out")
            }
            Err(TryLockError::Error(error)) => return Err(error).with_context(|| format!("{name}: cannot lock it")),
        }
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(|| name.to_string())?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        ensure!(whole > 0 || columns().starts_with(&text), "{name} is no table of a sweep; give another --out");
        if whole < text.len() {
            file.set_len(whole as u64).with_context(|| name.to_string())?;
        }
        let mut lines = Vec::new();
        let reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(&text.as_bytes()[..whole]);
        for (number, record) in (1..).zip(reader.into_records()) {
            let record = record.with_context(|| format!("{name}: line {number}"))?;
            if number == 1 {
                let same = record.iter().eq(KEYS.iter().chain(&FIGURES).copied());
                ensure!(same, "{name} is no table of this version; move it away, or give another --out");
                continue;
            }
            let figures = record.iter().skip(KEYS.len());
            let good = record.len() == KEYS.len() + FIGURES.len() && figures.clone().all(|f| f.parse::<f64>().is_ok());
            ensure!(good, "{name}: line {number} is damaged: delete it, and its figure is measured again");
            lines.push(Line(record.iter().map(Into::into).collect()));
        }
        if whole == 0 {
            file.write_all(format!("{}\n", columns()).as_bytes()).with_context(|| name.to_string())?;
        }
        let known = lines.iter().map(|line| line.key().to_vec()).collect();
        Ok(Self { file, lines, known })
    }

    /// Whether the figures of a point are there.
    pub fn knows(&self, key: &[String]) -> bool {
        self.known.contains(key)
    }

    /// Appends the figures of a point.
    ///
    /// # Errors
    /// A disk that is full.
    pub fn add(&mut self, key: Vec<String>, point: &Point, measured: &Measured) -> anyhow::Result<()> {
        let line = Line::new(key, point, measured);
        if self.known.insert(line.key().to_vec()) {
            // In one piece: a line that is there is whole.
            self.file.write_all(&line.record()?)?;
            self.lines.push(line);
        }
        Ok(())
    }

    /// The lines of these points, in their order.
    pub fn of(&self, keys: &[Vec<String>]) -> Vec<Line> {
        keys.iter().filter_map(|key| self.lines.iter().find(|line| line.key() == key)).cloned().collect()
    }
}
