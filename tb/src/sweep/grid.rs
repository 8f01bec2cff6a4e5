//! What is varied.

use anyhow::{Context, bail, ensure};
use npu::Config;
use serde::Deserialize;
use std::path::{Path, PathBuf};

fn default_model() -> String {
    "kjv-1m".into()
}

fn default_prompt() -> usize {
    128
}

fn default_tokens() -> usize {
    4
}

fn one<T>(value: T) -> Vec<T> {
    vec![value]
}

fn default_config() -> Vec<String> {
    one("default".into())
}

fn default_format() -> Vec<String> {
    one("bf16".into())
}

fn default_kv() -> Vec<String> {
    one("lossless".into())
}

fn default_context() -> Vec<usize> {
    one(256)
}

/// A sweep file: every combination of the lists is measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// `kjv-1m`, `smollm2`, a GGUF file or a Hugging Face folder.
    #[serde(default = "default_model")]
    pub model: String,
    /// A text whose tokens are the prompt; the built-in held-out text if left out.
    pub text: Option<PathBuf>,
    /// Calibration file of the model, for the lossy cache modes; kjv-1m and smollm2 bring their own.
    pub calibration: Option<PathBuf>,
    /// Tokens of the prompt: a multiple of 32.
    #[serde(default = "default_prompt")]
    pub prompt_tokens: usize,
    /// Tokens decoded at each context.
    #[serde(default = "default_tokens")]
    pub decode_tokens: usize,
    /// `edge`, `default`, `big`, or TOML files.
    #[serde(default = "default_config")]
    pub config: Vec<String>,
    /// Rows × columns of the array, such as `32x32`; the configuration's if left out.
    pub array: Option<Vec<String>>,
    /// DRAM bytes a cycle; the configuration's if left out.
    pub bandwidth: Option<Vec<u32>>,
    /// Decoder engines; the configuration's if left out.
    pub decoders: Option<Vec<usize>>,
    /// Formats of the products, as `magpie run --format` takes them.
    #[serde(default = "default_format")]
    pub format: Vec<String>,
    /// Modes of the cache, as `magpie run --kv` takes them.
    #[serde(default = "default_kv")]
    pub kv: Vec<String>,
    /// Tokens held when decoding is measured: multiples of 32. Beyond the prompt the cache is filled with its own tiles, and beyond the model's window it
    /// is a study of time alone.
    #[serde(default = "default_context")]
    pub context: Vec<usize>,
}

/// One point of a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The configuration's name.
    pub config: String,
    /// It, with array, bandwidth and decoders put in.
    pub npu: Config,
    /// Of the products.
    pub format: String,
    /// Of the cache.
    pub kv: String,
    /// Contexts to measure, ascending.
    pub contexts: Vec<usize>,
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (array, width) = (&self.npu.array, self.npu.dram.bytes_per_cycle);
        write!(f, "{} {}x{}, {width} bytes a cycle, ", self.config, array.rows, array.cols)?;
        write!(f, "{} decoders, {}, {}", self.npu.codec.decoders, self.format, self.kv)
    }
}

/// What a list says, one by one; once nothing where it was left out.
fn choices<T>(list: Option<&Vec<T>>) -> Vec<Option<&T>> {
    list.map_or_else(|| vec![None], |list| list.iter().map(Some).collect())
}

impl Grid {
    /// Reads a sweep file.
    ///
    /// # Errors
    /// A file that cannot be read, is not TOML, has fields that mean nothing or values out of range.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = crate::input::text(path)?;
        let grid: Self = toml::from_str(&text).with_context(|| path.display().to_string())?;
        grid.check().with_context(|| path.display().to_string())?;
        Ok(grid)
    }

    fn check(&self) -> anyhow::Result<()> {
        let tile = |n: usize| n > 0 && n.is_multiple_of(nkz::TOKENS);
        ensure!(
            tile(self.prompt_tokens),
            "prompt_tokens = {}: must be a multiple of 32, 32 at least",
            self.prompt_tokens
        );
        ensure!(self.decode_tokens > 0, "decode_tokens = 0: nothing would be measured");
        let empty = [
            ("config", self.config.is_empty()),
            ("array", self.array.as_ref().is_some_and(Vec::is_empty)),
            ("bandwidth", self.bandwidth.as_ref().is_some_and(Vec::is_empty)),
            ("decoders", self.decoders.as_ref().is_some_and(Vec::is_empty)),
            ("format", self.format.is_empty()),
            ("kv", self.kv.is_empty()),
            ("context", self.context.is_empty()),
        ];
        if let Some((name, _)) = empty.iter().find(|(_, empty)| *empty) {
            bail!("{name} = []: give at least one, or leave it out");
        }
        for &context in &self.context {
            ensure!(
                tile(context) && context >= self.prompt_tokens,
                "context {context}: must be a multiple of 32, and at least prompt_tokens = {}",
                self.prompt_tokens
            );
        }
        Ok(())
    }

    /// All points, in the order of the lists, each once; contexts of one machine are measured together.
    ///
    /// # Errors
    /// A configuration that cannot be read or is refused.
    pub fn points(&self) -> anyhow::Result<Vec<Point>> {
        let mut contexts = self.context.clone();
        contexts.sort_unstable();
        contexts.dedup();
        let mut points = Vec::new();
        for name in &self.config {
            let base = crate::run::config(name)?;
            for array in choices(self.array.as_ref()) {
                for bandwidth in choices(self.bandwidth.as_ref()) {
                    for decoders in choices(self.decoders.as_ref()) {
                        let mut npu = base.clone();
                        if let Some(array) = array {
                            (npu.array.rows, npu.array.cols) = side(array)?;
                        }
                        if let Some(&bandwidth) = bandwidth {
                            npu.dram.bytes_per_cycle = bandwidth;
                        }
                        if let Some(&decoders) = decoders {
                            npu.codec.decoders = decoders;
                        }
                        npu.check()?;
                        for format in &self.format {
                            for kv in &self.kv {
                                let point = Point {
                                    config: name.clone(),
                                    npu: npu.clone(),
                                    format: format.clone(),
                                    kv: kv.clone(),
                                    contexts: contexts.clone(),
                                };
                                if !points.contains(&point) {
                                    points.push(point);
                                }
                            }
                        }
                    }
                }
            }
        }
        Ok(points)
    }
}

fn side(text: &str) -> anyhow::Result<(usize, usize)> {
    let sides = text.split_once('x').and_then(|(r, c)| Some((r.trim().parse().ok()?, c.trim().parse().ok()?)));
    sides.with_context(|| format!("array `{text}`: rows x columns, such as 32x32"))
}
