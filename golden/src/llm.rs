//! A model with its tokenizer: text in, logits out.

use crate::kv::{KvShape, PlainCache, Storage};
use crate::safetensors::{HuggingFace, SafeTensors};
use crate::{Config, Error, Logits, Model, Result, Tensor, Weights, file};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// `config.json` of the built-in model.
pub(crate) const BUILTIN_CONFIG: &[u8] = include_bytes!("../models/kjv-1m/config.json");
const BUILTIN_WEIGHTS: &[u8] = include_bytes!("../models/kjv-1m/model.safetensors");
const BUILTIN_TOKENIZER: &[u8] = include_bytes!("../models/kjv-1m/tokenizer.json");

/// Text to token ids and back.
#[derive(Debug)]
pub struct Tokenizer {
    file: String,
    inner: tokenizers::Tokenizer,
}

impl Tokenizer {
    /// Reads the bytes of a `tokenizer.json` called `file`, whose ids must lie below `vocabulary`.
    pub fn from_json(file: &str, bytes: &[u8], vocabulary: usize) -> Result<Self> {
        let bad = |what: String| Error::Tokenizer { file: file.into(), what };
        if bytes.len() as u64 > file::JSON_LIMIT {
            return Err(bad(format!("{} bytes are too many", bytes.len())));
        }
        serde_json::from_slice::<serde::de::IgnoredAny>(bytes).map_err(|e| bad(e.to_string()))?;
        let inner = guarded(file, || tokenizers::Tokenizer::from_bytes(bytes))?;
        Self::new(file, inner, vocabulary)
    }

    pub(crate) fn new(file: &str, mut inner: tokenizers::Tokenizer, vocabulary: usize) -> Result<Self> {
        let bad = |what: String| Error::Tokenizer { file: file.into(), what };
        if let Some(id) = inner.get_vocab(true).into_values().find(|&id| id as usize >= vocabulary) {
            return Err(bad(format!("id {id} is outside the model's vocabulary of {vocabulary}")));
        }
        // A file may ask for padding or truncation, which would change the text that was given.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|e| bad(e.to_string()))?;
        Ok(Self { file: file.into(), inner })
    }

    /// Token ids of a text, with the special tokens that the model expects around it (kjv-1m: `<s>` first).
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.ids(text, true)
    }

    /// Token ids of a text and nothing else.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>> {
        self.ids(text, false)
    }

    fn ids(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        Ok(guarded(&self.file, || self.inner.encode(text, special))?.get_ids().to_vec())
    }

    /// The text of token ids, special tokens left out.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        guarded(&self.file, || self.inner.decode(ids, true))
    }
}

/// Runs a call of the tokenizer crate, which panics on some malformed files (a decoder of a wrong kind, a pattern that
/// backtracks too far): such a panic becomes an error.
fn guarded<T>(file: &str, call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T> {
    let what = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(e)) => e.to_string(),
        Err(_) => "the file asks for something that makes no sense".into(),
    };
    Err(Error::Tokenizer { file: file.into(), what })
}

/// A language model: weights and tokenizer.
#[derive(Debug)]
pub struct Llm {
    /// Where it came from.
    pub name: String,
    /// The transformer.
    pub model: Model,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// Tokens that end a text, as the model's files name them; ids inside the vocabulary.
    pub ends: Vec<u32>,
}

/// The built-in model kjv-1m, which is part of the program: it works from any directory.
pub fn builtin() -> Result<Llm> {
    let config = Config::from_json("kjv-1m/config.json", BUILTIN_CONFIG)?;
    let tokenizer = Tokenizer::from_json("kjv-1m/tokenizer.json", BUILTIN_TOKENIZER, config.vocabulary)?;
    let weights = SafeTensors::parse("kjv-1m/model.safetensors", BUILTIN_WEIGHTS.to_vec())?;
    let weights = Weights::load(&config, &HuggingFace::single(weights))?;
    let ends = ends(BUILTIN_CONFIG, config.vocabulary);
    Ok(Llm { name: "kjv-1m".into(), model: Model::new(config, weights), tokenizer, ends })
}

/// `eos_token_id` of a config.json: an id or a list of them. One that is missing or no token ends nothing.
fn ends(config: &[u8], vocabulary: usize) -> Vec<u32> {
    #[derive(serde::Deserialize)]
    struct Ends {
        eos_token_id: serde_json::Value,
    }
    let ids = match serde_json::from_slice::<Ends>(config) {
        Ok(Ends { eos_token_id: serde_json::Value::Array(ids) }) => ids,
        Ok(Ends { eos_token_id }) => vec![eos_token_id],
        Err(_) => Vec::new(),
    };
    let ids = ids.iter().filter_map(|id| u32::try_from(id.as_u64()?).ok());
    ids.filter(|&id| (id as usize) < vocabulary).collect()
}

impl Llm {
    /// Reads a model: a folder as [`Llm::open`] does, anything else as [`Llm::open_gguf`] does.
    pub fn load(path: &Path) -> Result<Self> {
        if path.is_dir() { Self::open(path) } else { Self::open_gguf(path) }
    }

    /// Reads a Hugging Face folder: config.json, tokenizer.json, and model.safetensors or its shards.
    pub fn open(folder: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = folder.join(name);
            let bytes = file::read(&path, file::JSON_LIMIT)?;
            Ok::<_, Error>((path.display().to_string(), bytes))
        };
        let (file, text) = read("config.json")?;
        let config = Config::from_json(&file, &text)?;
        let ends = ends(&text, config.vocabulary);
        let (file, text) = read("tokenizer.json")?;
        let tokenizer = Tokenizer::from_json(&file, &text, config.vocabulary)?;
        let weights = Weights::load(&config, &HuggingFace::open(folder)?)?;
        let name = folder.file_name().map_or_else(|| folder.display().to_string(), |n| n.to_string_lossy().into());
        Ok(Self { name, model: Model::new(config, weights), tokenizer, ends })
    }

    /// An empty exact cache for this model.
    pub fn cache(&self) -> PlainCache {
        PlainCache::new(KvShape::from(self.model.config()), Storage::F32)
    }

    /// Logits of every position, [T, vocabulary], with an exact cache.
    pub fn logits(&self, ids: &[u32]) -> Result<Tensor> {
        self.model.forward(ids, &mut self.cache(), &mut (), Logits::All)
    }

    /// Logits of the token after `ids`, with an exact cache.
    pub fn next_logits(&self, ids: &[u32]) -> Result<Vec<f32>> {
        Ok(self.model.forward(ids, &mut self.cache(), &mut (), Logits::Last)?.data().to_vec())
    }

    /// Perplexity of `ids` from the second token on, with an exact cache; `None` below two tokens.
    pub fn perplexity(&self, ids: &[u32]) -> Result<Option<f64>> {
        Ok(crate::perplexity(&crate::negative_log_likelihoods(&self.logits(ids)?, ids)?))
    }
}
