//! What can go wrong, each with the file, the tensor or the number at fault and a way out.

use std::path::PathBuf;

/// Every failure of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read.
    #[error("{}: cannot read; check that the path names a model folder or file and that you may read it", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is torn, malformed or absurd.
    #[error("{file}: {what}. {help}")]
    File {
        /// The file's name.
        file: String,
        /// What is wrong.
        what: String,
        /// The way out.
        help: &'static str,
    },
    /// A tensor of a file is missing or has a type or shape that the model does not allow.
    #[error("{file}: tensor `{tensor}`: {what}. {help}")]
    Tensor {
        /// The file's name.
        file: String,
        /// The tensor's name.
        tensor: String,
        /// What is wrong.
        what: String,
        /// The way out.
        help: &'static str,
    },
    /// The model's configuration asks for something that is not supported or makes no sense.
    #[error("{file}: `{field}` {what}. {help}")]
    Config {
        /// The file's name.
        file: String,
        /// The field's name.
        field: String,
        /// What is wrong.
        what: String,
        /// The way out.
        help: &'static str,
    },
    /// The tokenizer could not be read, or refused a text.
    #[error("{file}: tokenizer: {what}. Use the tokenizer file that belongs to the model")]
    Tokenizer {
        /// The file's name.
        file: String,
        /// What is wrong.
        what: String,
    },
    /// Two shapes do not fit together.
    #[error("{operation}: {what}")]
    Shape {
        /// The operation that was asked for.
        operation: &'static str,
        /// The shapes, and why they do not fit.
        what: String,
    },
    /// A token id outside the vocabulary.
    #[error(
        "token id {id} at position {position} is outside the vocabulary of {vocabulary}. Use this model's own tokenizer"
    )]
    Token {
        /// The id.
        id: u32,
        /// Its position in the input.
        position: usize,
        /// Size of the vocabulary.
        vocabulary: usize,
    },
    /// The context window is full.
    #[error(
        "{held} tokens in the cache and {added} more exceed the context window of {window} tokens. Shorten the text or cut it"
    )]
    Context {
        /// Tokens already in the cache.
        held: usize,
        /// Tokens to be added.
        added: usize,
        /// The model's context window.
        window: usize,
    },
    /// The KV cache refused a row or does not fit the model.
    #[error("KV cache, layer {layer}, KV head {head}: {what}")]
    Cache {
        /// Layer.
        layer: usize,
        /// KV head.
        head: usize,
        /// What is wrong; an adapter puts its own error's text here.
        what: String,
    },
}

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
