//! What can go wrong, each with the thing at fault and a way out.

/// Every failure of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model's files.
    #[error(transparent)]
    Model(#[from] golden::Error),
    /// The NPU cannot be set up.
    #[error(transparent)]
    Setup(#[from] npu::SetupError),
    /// A program failed.
    #[error("the NPU stopped")]
    Run(#[from] npu::RunError),
    /// The host's own access to the NPU's memories failed.
    #[error(transparent)]
    Fault(#[from] npu::Fault),
    /// The cycle engine and the transaction engine do not agree: a fault of one of them.
    #[error(
        "the cycle engine differs from the transaction engine: {0}. This is a fault of the model: please report it"
    )]
    Engines(String),
    /// Not a format.
    #[error("format `{text}`: {what}. Formats: {}", crate::format::SYNTAX)]
    Format {
        /// As given.
        text: String,
        /// What is wrong.
        what: String,
    },
    /// A model that these formats or this NPU cannot run.
    #[error("{what}. {help}")]
    Unsupported {
        /// What.
        what: String,
        /// The way out.
        help: String,
    },
    /// Something does not fit.
    #[error("{what} needs {needs} bytes of {memory}, the configuration has {has}. {help}")]
    Memory {
        /// What.
        what: String,
        /// Which memory.
        memory: &'static str,
        /// Bytes needed.
        needs: u64,
        /// Bytes there.
        has: u64,
        /// The way out.
        help: String,
    },
    /// More tokens than the context window.
    #[error("{} the context window of {window}: shorten the prompt, or cut it with --truncate", exceeding(*held, *added))]
    Context {
        /// Tokens held.
        held: usize,
        /// Tokens to add.
        added: usize,
        /// The window.
        window: usize,
    },
    /// A token id outside the vocabulary.
    #[error("token {id} is outside the vocabulary of {vocabulary}")]
    Token {
        /// The id.
        id: u32,
        /// The vocabulary.
        vocabulary: usize,
    },
    /// A sequence that the session does not have.
    #[error("sequence {sequence}: the session was made for {sequences}")]
    Sequence {
        /// Which.
        sequence: usize,
        /// How many there are.
        sequences: usize,
    },
    /// A parameter of sampling that makes no sense.
    #[error("{field} = {value}: {rule}")]
    Sampling {
        /// Its name.
        field: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        rule: &'static str,
    },
}

fn exceeding(held: usize, added: usize) -> String {
    match held {
        0 => format!("{added} tokens exceed"),
        _ => format!("{held} tokens held and {added} more exceed"),
    }
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
