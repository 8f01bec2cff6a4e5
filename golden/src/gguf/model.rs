//! A Llama-architecture model inside a GGUF file.

use super::{Gguf, Metadatum};
use crate::config::unsupported;
use crate::{Config, Error, Llm, Model, Pairing, Part, Projection, Result, Tensor, TensorSource, Weights};
use std::path::Path;

impl Llm {
    /// Reads a GGUF file: sizes, weights and the tokenizer inside it.
    pub fn open_gguf(path: &Path) -> Result<Self> {
        let gguf = Gguf::open(path)?;
        let name = path.file_stem().map_or_else(|| gguf.file().into(), |n| n.to_string_lossy().into_owned());
        Self::from_gguf(&gguf, name)
    }

    /// The model of a parsed GGUF file.
    pub fn from_gguf(gguf: &Gguf, name: String) -> Result<Self> {
        let config = gguf.config()?;
        let tokenizer = gguf.tokenizer(config.vocabulary)?;
        let weights = Weights::load(&config, gguf)?;
        let end = gguf.unsigned("tokenizer.ggml.eos_token_id").and_then(|id| u32::try_from(id).ok());
        let ends = end.filter(|&id| (id as usize) < config.vocabulary).into_iter().collect();
        Ok(Self { name, model: Model::new(config, weights), tokenizer, ends })
    }
}

impl Gguf {
    /// Sizes and constants from the metadata. GGUF stores q and k rows permuted so that RoPE rotates neighbouring channels.
    pub fn config(&self) -> Result<Config> {
        let refuse = |field: &str, what: String| unsupported(self.file(), field, what);
        let architecture = self.text("general.architecture").unwrap_or("nothing");
        if architecture != "llama" {
            return Err(refuse("general.architecture", format!("is `{architecture}`, not llama")));
        }
        if let Some(scaling) = self.text("llama.rope.scaling.type").filter(|&s| s != "none") {
            return Err(refuse("llama.rope.scaling.type", format!("is `{scaling}`: RoPE scaling is not supported")));
        }
        if self.unsigned("llama.expert_count").is_some_and(|n| n > 0) {
            return Err(refuse("llama.expert_count", "is not 0: mixtures of experts are not supported".into()));
        }
        let extra = self.tensors().keys().find(|n| n.ends_with(".bias") || n.starts_with("rope_f"));
        if let Some(name) = extra {
            let (file, tensor) = (self.file().into(), name.clone());
            let what = "asks for biases or scaled RoPE".into();
            return Err(Error::Tensor { file, tensor, what, help: "Use a plain Llama-architecture model" });
        }
        let heads = self.size("attention.head_count")?;
        let hidden = self.size("embedding_length")?;
        let head_dim = match self.unsigned("llama.attention.key_length") {
            Some(_) => self.size("attention.key_length")?,
            None => hidden / heads.max(1),
        };
        for field in ["llama.rope.dimension_count", "llama.attention.value_length"] {
            if let Some(n) = self.unsigned(field).filter(|&n| n != head_dim as u64) {
                return Err(refuse(field, format!("is {n}, not the head dimension {head_dim}")));
            }
        }
        let kv_heads = match self.unsigned("llama.attention.head_count_kv") {
            Some(_) => self.size("attention.head_count_kv")?,
            None => heads,
        };
        let float = |key: &str| self.metadata().get(key).and_then(Metadatum::float);
        let epsilon = float("llama.attention.layer_norm_rms_epsilon")
            .ok_or_else(|| refuse("llama.attention.layer_norm_rms_epsilon", "is missing".into()))?;
        let embedding = self.raw("token_embd.weight")?.0;
        let config = Config {
            layers: self.size("block_count")?,
            hidden,
            heads,
            kv_heads,
            head_dim,
            ffn: self.size("feed_forward_length")?,
            vocabulary: embedding.shape.first().copied().unwrap_or(0),
            context: self.size("context_length")?,
            rope_base: float("llama.rope.freq_base").unwrap_or(10_000.0),
            pairing: Pairing::Interleaved,
            epsilon: epsilon as f32,
            tied: !self.tensors().contains_key("output.weight"),
        };
        config.check(self.file())?;
        Ok(config)
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.metadata().get(key).and_then(Metadatum::text)
    }

    pub(super) fn unsigned(&self, key: &str) -> Option<u64> {
        self.metadata().get(key).and_then(Metadatum::unsigned)
    }

    /// A size `llama.{key}` that the model needs.
    fn size(&self, key: &str) -> Result<usize> {
        let key = format!("llama.{key}");
        let n = self.unsigned(&key).and_then(|n| usize::try_from(n).ok());
        n.ok_or_else(|| unsupported(self.file(), &key, "is missing or no size".into()))
    }
}

impl TensorSource for Gguf {
    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let found = &self.raw(name)?.0.shape;
        if found != shape {
            let what = format!("has the shape {found:?}, the metadata imply {shape:?}");
            let help = "The file is damaged: fetch it again";
            return Err(Error::Tensor { file: self.file().into(), tensor: name.into(), what, help });
        }
        self.f32(name)
    }

    fn name(&self, part: Part) -> String {
        match part {
            Part::Embedding => "token_embd.weight".into(),
            Part::AttentionNorm(l) => format!("blk.{l}.attn_norm.weight"),
            Part::FfnNorm(l) => format!("blk.{l}.ffn_norm.weight"),
            Part::Norm => "output_norm.weight".into(),
            Part::Head | Part::Layer(_, Projection::Head) => "output.weight".into(),
            Part::Layer(l, Projection::O) => format!("blk.{l}.attn_output.weight"),
            Part::Layer(l, p @ (Projection::Gate | Projection::Up | Projection::Down)) => {
                format!("blk.{l}.ffn_{}.weight", p.name())
            }
            Part::Layer(l, p) => format!("blk.{l}.attn_{}.weight", p.name()),
        }
    }
}
