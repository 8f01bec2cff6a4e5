//! The shape of a Llama-architecture model, checked before anything is allocated by it.

use crate::{Error, Result};
use serde::Deserialize;
use serde_json::Value;

/// Which two channels of a head RoPE rotates together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// Channel i with i + d/2: Hugging Face's layout.
    Halves,
    /// Channel 2i with 2i + 1: the original Llama's and GGUF's layout.
    Interleaved,
}

/// The sizes and constants of a model. All sizes are at least 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Transformer layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Channels a head; even.
    pub head_dim: usize,
    /// Inner width of the feed-forward block.
    pub ffn: usize,
    /// Rows of the embedding.
    pub vocabulary: usize,
    /// Context window in tokens.
    pub context: usize,
    /// RoPE's base θ: pair i turns by position · θ^(−2i/d).
    pub rope_base: f64,
    /// RoPE's pairing.
    pub pairing: Pairing,
    /// ε of RMSNorm.
    pub epsilon: f32,
    /// The head is the embedding.
    pub tied: bool,
}

/// No published model of this architecture comes near these; a file that exceeds them is damaged.
const LIMIT: usize = 1 << 24;

impl Config {
    /// Reads a Hugging Face `config.json`; `file` names it in errors.
    pub fn from_json(file: &str, text: &[u8]) -> Result<Self> {
        let raw: Raw = serde_json::from_slice(text).map_err(|e| Error::File {
            file: file.into(),
            what: format!("not a model configuration: {e}"),
            help: "Use the config.json of a Hugging Face Llama model",
        })?;
        let refuse = |field: &str, what: String| unsupported(file, field, what);
        let architecture = raw.architectures.as_ref().and_then(|a| a.first().cloned()).unwrap_or_default();
        if architecture != "LlamaForCausalLM"
            && !(architecture.is_empty() && raw.model_type.as_deref() == Some("llama"))
        {
            return Err(refuse("architectures", format!("is `{architecture}`, not LlamaForCausalLM")));
        }
        if raw.hidden_act.as_deref().unwrap_or("silu") != "silu" {
            return Err(refuse("hidden_act", format!("is {:?}, not silu", raw.hidden_act.unwrap_or_default())));
        }
        for (field, set) in [("attention_bias", raw.attention_bias), ("mlp_bias", raw.mlp_bias)] {
            if set == Some(true) {
                return Err(refuse(field, "is true: biases are not supported".into()));
            }
        }
        let theta = rope(file, &raw)?;
        for (field, value) in
            [("sliding_window", &raw.sliding_window), ("quantization_config", &raw.quantization_config)]
        {
            if value.as_ref().is_some_and(|v| !v.is_null()) {
                return Err(refuse(field, "is set: not supported".into()));
            }
        }
        let config = Self {
            layers: raw.num_hidden_layers,
            hidden: raw.hidden_size,
            heads: raw.num_attention_heads,
            kv_heads: raw.num_key_value_heads.unwrap_or(raw.num_attention_heads),
            head_dim: raw.head_dim.unwrap_or(raw.hidden_size / raw.num_attention_heads.max(1)),
            ffn: raw.intermediate_size,
            vocabulary: raw.vocab_size,
            context: raw.max_position_embeddings,
            rope_base: theta,
            pairing: Pairing::Halves,
            epsilon: raw.rms_norm_eps,
            tied: raw.tie_word_embeddings.unwrap_or(false),
        };
        config.check(file)?;
        Ok(config)
    }

    /// Checks that the sizes make a model; `file` names their origin in errors.
    pub fn check(&self, file: &str) -> Result<()> {
        let wrong = |field: &str, what: String| Err(unsupported(file, field, what));
        for (field, n) in [
            ("num_hidden_layers", self.layers),
            ("hidden_size", self.hidden),
            ("num_attention_heads", self.heads),
            ("num_key_value_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("intermediate_size", self.ffn),
            ("vocab_size", self.vocabulary),
            ("max_position_embeddings", self.context),
        ] {
            if n == 0 || n > LIMIT {
                return wrong(field, format!("is {n}, not in 1..={LIMIT}"));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return wrong("num_key_value_heads", format!("{} does not divide {} heads", self.kv_heads, self.heads));
        }
        if !self.head_dim.is_multiple_of(2) {
            return wrong(
                "head_dim",
                format!("is {}: RoPE rotates pairs of channels, so it must be even", self.head_dim),
            );
        }
        if !(self.rope_base.is_finite() && self.rope_base >= 1.0) {
            return wrong("rope_theta", format!("is {}, not a finite number from 1 up", self.rope_base));
        }
        if !(self.epsilon.is_finite() && self.epsilon > 0.0) {
            return wrong("rms_norm_eps", format!("is {}, not a positive number", self.epsilon));
        }
        Ok(())
    }

    /// Query heads that share one KV head.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Width of a token's keys (or values) over all KV heads.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Width of a token's queries over all heads.
    pub fn q_width(&self) -> usize {
        self.heads * self.head_dim
    }
}

pub(crate) fn unsupported(file: &str, field: &str, what: String) -> Error {
    Error::Config {
        file: file.into(),
        field: field.into(),
        what,
        help: "Use a plain Llama-architecture model (RMSNorm, RoPE without scaling, SwiGLU, no biases)",
    }
}

/// θ from the old (`rope_theta`, `rope_scaling`) or new (`rope_parameters`) fields; any scaling is refused.
fn rope(file: &str, raw: &Raw) -> Result<f64> {
    let mut theta = raw.rope_theta;
    for (field, value) in [("rope_scaling", &raw.rope_scaling), ("rope_parameters", &raw.rope_parameters)] {
        let Some(value) = value.as_ref().filter(|v| !v.is_null()) else { continue };
        let kind = value.get("rope_type").or_else(|| value.get("type")).and_then(Value::as_str);
        if kind != Some("default") {
            let what = format!("asks for `{}` scaling of RoPE, which is not supported", kind.unwrap_or("unnamed"));
            return Err(unsupported(file, field, what));
        }
        theta = theta.or_else(|| value.get("rope_theta").and_then(Value::as_f64));
    }
    if raw.partial_rotary_factor.is_some_and(|f| f != 1.0) {
        return Err(unsupported(file, "partial_rotary_factor", "is not 1".into()));
    }
    Ok(theta.unwrap_or(10_000.0))
}

/// The fields of config.json that matter here.
#[derive(Deserialize)]
struct Raw {
    architectures: Option<Vec<String>>,
    model_type: Option<String>,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    intermediate_size: usize,
    vocab_size: usize,
    max_position_embeddings: usize,
    rope_theta: Option<f64>,
    rope_scaling: Option<Value>,
    rope_parameters: Option<Value>,
    partial_rotary_factor: Option<f64>,
    rms_norm_eps: f32,
    hidden_act: Option<String>,
    tie_word_embeddings: Option<bool>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    sliding_window: Option<Value>,
    quantization_config: Option<Value>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn base() -> Value {
        serde_json::from_slice(crate::BUILTIN_CONFIG).unwrap()
    }

    fn with(field: &str, value: Value) -> Result<Config> {
        let mut c = base();
        c[field] = value;
        Config::from_json("config.json", c.to_string().as_bytes())
    }

    #[test]
    fn the_built_in_model() {
        let c = Config::from_json("config.json", crate::BUILTIN_CONFIG).unwrap();
        assert_eq!((c.layers, c.hidden, c.heads, c.kv_heads, c.head_dim), (5, 128, 4, 2, 32));
        assert_eq!((c.ffn, c.vocabulary, c.context, c.tied, c.pairing), (352, 1024, 512, true, Pairing::Halves));
        assert_eq!((c.group(), c.kv_width(), c.q_width(), c.rope_base), (2, 64, 128, 1e4));
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        for (field, value) in [
            ("architectures", json!(["MambaForCausalLM"])),
            ("rope_scaling", json!({"type": "linear", "factor": 2.0})),
            ("rope_parameters", json!({"rope_type": "yarn"})),
            ("partial_rotary_factor", json!(0.5)),
            ("hidden_act", json!("gelu")),
            ("attention_bias", json!(true)),
            ("mlp_bias", json!(true)),
            ("sliding_window", json!(4096)),
            ("quantization_config", json!({"bits": 4})),
            ("num_key_value_heads", json!(3)),
            ("num_key_value_heads", json!(0)),
            ("head_dim", json!(33)),
            ("hidden_size", json!(0)),
            ("num_attention_heads", json!(0)),
            ("num_hidden_layers", json!(u32::MAX)),
            ("rope_theta", json!(-1.0)),
            ("rms_norm_eps", json!(0.0)),
        ] {
            let error = with(field, value.clone()).expect_err(field).to_string();
            assert!(error.contains("config.json") && error.contains(&format!("`{field}`")), "{field} {value}: {error}");
        }
        assert!(with("hidden_size", json!("wide")).unwrap_err().to_string().contains("config.json"));
        assert!(with("rope_scaling", Value::Null).is_ok());
        assert_eq!(with("rope_theta", Value::Null).unwrap().rope_base, 1e4);
        let mut new = base();
        new.as_object_mut().unwrap().remove("rope_theta");
        new["rope_parameters"] = json!({"rope_type": "default", "rope_theta": 5e5});
        assert_eq!(Config::from_json("c", new.to_string().as_bytes()).unwrap().rope_base, 5e5);
    }
}
