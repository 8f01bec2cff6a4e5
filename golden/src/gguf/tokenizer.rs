//! The tokenizer inside a GGUF file: byte-level BPE with the pre-tokenizer that the file names.

use super::{Gguf, Metadatum};
use crate::config::unsupported;
use crate::{Error, Result, Tokenizer};
use serde_json::{Map, Value, json};

/// ggml's token types.
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;

/// Llama 3's pre-tokenizer: as GPT-2's, but contractions in any case, at most three digits, and newlines with what precedes.
const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

impl Gguf {
    /// Builds the tokenizer; its ids must lie below `vocabulary`.
    pub fn tokenizer(&self, vocabulary: usize) -> Result<Tokenizer> {
        let refuse = |field: &str, what: String| unsupported(self.file(), field, what);
        let kind = self.text("tokenizer.ggml.model").unwrap_or("nothing");
        if kind != "gpt2" {
            let what = format!("is `{kind}`; only byte-level BPE (`gpt2`) is supported");
            return Err(refuse("tokenizer.ggml.model", what));
        }
        let pre_tokenizer = match self.text("tokenizer.ggml.pre").unwrap_or("gpt-2") {
            "gpt-2" => byte_level(true),
            // SmolLM splits digits one by one before anything else.
            "smollm" => sequence(json!({"type": "Digits", "individual_digits": true}), byte_level(true)),
            "llama-bpe" => {
                let split =
                    json!({"type": "Split", "pattern": {"Regex": LLAMA_3}, "behavior": "Isolated", "invert": false});
                sequence(split, byte_level(false))
            }
            other => {
                let what = format!("is `{other}`; gpt-2, smollm and llama-bpe are supported");
                return Err(refuse("tokenizer.ggml.pre", what));
            }
        };
        let tokens = self.texts("tokenizer.ggml.tokens")?;
        let merges = self.texts("tokenizer.ggml.merges")?;
        let pairs = merges.iter().map(|m| match m.split_once(' ') {
            Some((a, b)) => Ok(json!([a, b])),
            None => Err(refuse("tokenizer.ggml.merges", format!("holds `{m}`, which is no pair"))),
        });
        let merges = pairs.collect::<Result<Vec<Value>>>()?;
        let vocab: Map<String, Value> = tokens.iter().enumerate().map(|(id, t)| ((*t).into(), id.into())).collect();
        if vocab.len() != tokens.len() {
            return Err(refuse("tokenizer.ggml.tokens", "holds a token twice".into()));
        }
        let json = json!({
            "version": "1.0",
            "added_tokens": self.added_tokens(&tokens),
            "pre_tokenizer": pre_tokenizer,
            "post_processor": self.beginning(&tokens)?,
            "decoder": byte_level(true),
            "model": {"type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": pre_is_llama_3(self)},
        });
        let bytes = serde_json::to_vec(&json)
            .map_err(|e| Error::Tokenizer { file: self.file().into(), what: e.to_string() })?;
        Tokenizer::from_json(self.file(), &bytes, vocabulary)
    }

    /// Tokens that are matched in a text before anything else.
    fn added_tokens(&self, tokens: &[&str]) -> Vec<Value> {
        let types = self.metadata().get("tokenizer.ggml.token_type").and_then(Metadatum::array).unwrap_or_default();
        let added = tokens.iter().zip(types).enumerate().filter_map(|(id, (token, kind))| {
            let kind = kind.unsigned().filter(|k| [CONTROL, USER_DEFINED].contains(k))?;
            Some(json!({"id": id, "content": token, "special": kind == CONTROL, "single_word": false,
                "lstrip": false, "rstrip": false, "normalized": false}))
        });
        added.collect()
    }

    /// A post-processor that puts the beginning-of-sequence token first, where the file asks for one.
    fn beginning(&self, tokens: &[&str]) -> Result<Value> {
        if self.metadata().get("tokenizer.ggml.add_bos_token") != Some(&Metadatum::Bool(true)) {
            return Ok(Value::Null);
        }
        let id = self.unsigned("tokenizer.ggml.bos_token_id").and_then(|id| usize::try_from(id).ok());
        let Some((id, token)) = id.and_then(|id| Some((id, tokens.get(id)?))) else {
            return Err(unsupported(self.file(), "tokenizer.ggml.bos_token_id", "is no token".into()));
        };
        let bos = json!({"SpecialToken": {"id": token, "type_id": 0}});
        let text = |id| json!({"Sequence": {"id": id, "type_id": 0}});
        Ok(json!({"type": "TemplateProcessing", "single": [bos, text("A")], "pair": [bos, text("A"), text("B")],
            "special_tokens": {*token: {"id": token, "ids": [id], "tokens": [token]}}}))
    }

    fn texts(&self, key: &str) -> Result<Vec<&str>> {
        let values = self.metadata().get(key).and_then(Metadatum::array);
        let texts = values.and_then(|v| v.iter().map(Metadatum::text).collect());
        texts.ok_or_else(|| unsupported(self.file(), key, "is missing or no list of texts".into()))
    }
}

/// Llama 3 takes a word that is a token as it is, without merging it up.
fn pre_is_llama_3(gguf: &Gguf) -> bool {
    gguf.text("tokenizer.ggml.pre") == Some("llama-bpe")
}

fn byte_level(use_regex: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex})
}

fn sequence(first: Value, second: Value) -> Value {
    json!({"type": "Sequence", "pretokenizers": [first, second]})
}
