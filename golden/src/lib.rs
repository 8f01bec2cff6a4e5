//! The floating-point reference: tensors, the Llama transformer, model loaders.
//!
//! It knows nothing of the hardware that it judges. Everything is f32, sums that matter run in f64, one thread.
//!
//! ```
//! let llm = golden::builtin()?;
//! let ids = llm.tokenizer.encode("In the beginning God created the heaven and the")?;
//! let next = golden::argmax(&llm.next_logits(&ids)?);
//! assert_eq!(llm.tokenizer.decode(&[next as u32])?, " earth");
//! # Ok::<(), golden::Error>(())
//! ```

mod attention;
mod config;
mod error;
mod file;
pub mod float16;
pub mod gguf;
pub mod kv;
mod llm;
mod matmul;
mod minifloat;
mod model;
pub mod nd;
pub mod operands;
pub mod ops;
mod rope;
mod safetensors;
mod score;
pub mod sensitivity;
mod tensor;
mod weights;

pub use attention::{HeadShape, attention};
pub use config::{Config, Pairing};
pub use error::{Error, Result};
pub use gguf::Gguf;
pub use kv::KvCache;
#[cfg(test)]
pub(crate) use llm::BUILTIN_CONFIG;
pub use llm::{Llm, Tokenizer, builtin};
pub use matmul::{matmul, matmul_nt, matmul_nt_f64, matmul_nt_i8, matmul_nt_i8_wrapping};
pub use model::{Attending, Logits, Model, Observer, Projected};
pub use rope::{Rope, turn};
pub use safetensors::{HuggingFace, SafeTensors};
pub use score::{Agreement, agreement, argmax, kl, log_softmax, negative_log_likelihoods, perplexity};
pub use tensor::Tensor;
pub use weights::{Layer, Linear, Part, Projection, TensorSource, Weights};
