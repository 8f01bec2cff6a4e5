use crate::VectorError;
use crate::config::{Config, MAX_FREQUENCIES, MAX_LEN};
use crate::function::Function;
use crate::quantum::Quantum;
use numeric::{FloatFormat, Format};

/// A number that goes up from row to row: `first + (row / every) mod wrap`. Positions of RoPE, and the entries of a causal row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Ramp {
    /// Of row 0.
    pub first: usize,
    /// Consecutive rows of the same value (heads of a token, where tokens come first), at least 1.
    pub every: usize,
    /// Values before it starts again (tokens, where heads come first), at least 1.
    pub wrap: usize,
}

impl Ramp {
    /// `first`, `first` + 1, … one row each.
    pub const fn from(first: usize) -> Ramp {
        Ramp { first, every: 1, wrap: usize::MAX }
    }

    /// The same for all rows.
    pub const fn constant(value: usize) -> Ramp {
        Ramp { first: value, every: 1, wrap: 1 }
    }

    /// Of a row.
    pub const fn at(&self, row: usize) -> usize {
        self.first.saturating_add(row / self.every % self.wrap)
    }

    /// The largest among so many rows.
    pub fn largest(&self, rows: usize) -> usize {
        self.first.saturating_add(((rows.max(1) - 1) / self.every).min(self.wrap - 1))
    }

    pub(crate) fn check(&self) -> Result<(), VectorError> {
        let Ramp { every, wrap, .. } = *self;
        if every == 0 || wrap == 0 { Err(VectorError::Ramp { every, wrap }) } else { Ok(()) }
    }
}

/// Which values of a head turn together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pairing {
    /// i and i + d/2 (GPT-NeoX, Hugging Face's Llama).
    Halves,
    /// 2i and 2i + 1 (the original Llama, GGUF).
    Interleaved,
}

/// How a softmax goes over its row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Maximum; exponentials and their sum; division.
    ThreePass,
    /// Maximum and sum at once, the sum rescaled where the maximum rises; exponentials and division. Two passes over the row.
    Online,
}

/// Which entries of a softmax count.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Masking {
    /// All.
    None,
    /// The first so many of each row; more than the row has are all.
    Count(Ramp),
    /// Those whose value on the B port is not zero.
    Stream,
}

/// What a command does, with its parameters. Operands and results are FP32 between the port's formats.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// From the input's format to the output's.
    Convert,
    /// f(x).
    Function(Function),
    /// x + y, the residual.
    Add,
    /// x · y.
    Multiply,
    /// x · factor.
    Scale {
        /// FP32.
        factor: f32,
    },
    /// silu(x) · y.
    SwiGlu,
    /// x / √(mean x² + ε) · y.
    RmsNorm {
        /// ε, FP32.
        epsilon: f32,
    },
    /// softmax(scale · x).
    Softmax {
        /// Three passes or online.
        algorithm: Algorithm,
        /// FP32.
        scale: f32,
        /// Which entries count.
        mask: Masking,
    },
    /// Pairs of x turned by position · frequency. With [`Pairing::Halves`] the B port brings the row from its middle on, then its
    /// first half: the partner of each value.
    Rope {
        /// Which values are a pair.
        pairing: Pairing,
        /// Of each row.
        positions: Ramp,
    },
    /// Fills the frequency memory, one row of d/2 values, FP32 radians a position.
    LoadFrequencies,
    /// The index of the largest value of each row, and the value.
    ArgMax,
    /// The largest finite magnitude of each row or group.
    AbsMax {
        /// Values that share one; a row if left out.
        group: Option<usize>,
    },
    /// Codes of the output's format, with a scale a row or a group.
    Quantise {
        /// Values that share one; a row if left out.
        group: Option<usize>,
    },
}

impl Op {
    /// Its name in listings and traces.
    pub const fn name(&self) -> &'static str {
        Op::NAMES[self.code() as usize]
    }

    /// Names by [`code`](Op::code).
    pub(crate) const NAMES: [&'static str; 13] = [
        "CONVERT",
        "FUNCTION",
        "ADD",
        "MULTIPLY",
        "SCALE",
        "SWIGLU",
        "RMSNORM",
        "SOFTMAX",
        "ROPE",
        "LOAD_FREQUENCIES",
        "ARGMAX",
        "ABSMAX",
        "QUANTISE",
    ];

    /// Its code, 4 bits.
    pub const fn code(&self) -> u8 {
        match self {
            Op::Convert => 0,
            Op::Function(_) => 1,
            Op::Add => 2,
            Op::Multiply => 3,
            Op::Scale { .. } => 4,
            Op::SwiGlu => 5,
            Op::RmsNorm { .. } => 6,
            Op::Softmax { .. } => 7,
            Op::Rope { .. } => 8,
            Op::LoadFrequencies => 9,
            Op::ArgMax => 10,
            Op::AbsMax { .. } => 11,
            Op::Quantise { .. } => 12,
        }
    }
}

/// One command of the unit: an operation over rows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Command {
    /// What to do.
    pub op: Op,
    /// Values of a row, 1..=65,536.
    pub len: usize,
    /// Rows, 1..=2^32 − 1.
    pub rows: usize,
    /// Format of the A port.
    pub a: Format,
    /// Format of the B port, where the operation reads it.
    pub b: Format,
    /// Format of the results.
    pub y: Format,
}

impl Command {
    /// An operation on FP32 rows.
    pub fn new(op: Op, len: usize, rows: usize) -> Command {
        let fp32 = Format::Float(FloatFormat::FP32);
        Command { op, len, rows, a: fp32, b: fp32, y: fp32 }
    }

    /// The same with the results in another format.
    pub fn into_format(self, y: impl Into<Format>) -> Command {
        Command { y: y.into(), ..self }
    }

    /// The same with operands in another format.
    pub fn from_format(self, a: impl Into<Format>) -> Command {
        Command { a: a.into(), ..self }
    }

    /// Whether the B port brings an operand.
    pub fn reads_b(&self) -> bool {
        match self.op {
            Op::Add | Op::Multiply | Op::SwiGlu | Op::RmsNorm { .. } => true,
            Op::Softmax { mask, .. } => mask == Masking::Stream,
            Op::Rope { pairing, .. } => pairing == Pairing::Halves,
            _ => false,
        }
    }

    /// Values that share a reduction, where they are less than a row.
    pub(crate) fn group(&self) -> Option<usize> {
        match self.op {
            Op::AbsMax { group } | Op::Quantise { group } => group,
            _ => None,
        }
    }

    /// Checks what the unit would refuse.
    ///
    /// # Errors
    /// Names the field and what it must be.
    pub fn check(&self, config: &Config) -> Result<(), VectorError> {
        config.checked()?;
        if !(1..=MAX_LEN).contains(&self.len) {
            return Err(VectorError::RowLength(self.len));
        }
        if self.rows == 0 || self.rows > u32::MAX as usize {
            return Err(VectorError::Rows(self.rows));
        }
        match self.op {
            Op::Softmax { mask: Masking::Count(ramp), .. } => ramp.check(),
            Op::Rope { positions, .. } => {
                check_head(self.len)?;
                check_positions(positions, self.rows)
            }
            Op::LoadFrequencies if self.len > MAX_FREQUENCIES || self.rows > 1 => Err(VectorError::Head(2 * self.len)),
            Op::RmsNorm { epsilon } => check_epsilon(epsilon),
            Op::AbsMax { group } => check_group(group, self.len),
            Op::Quantise { group } => {
                Quantum::new(self.y)?;
                check_group(group, self.len)
            }
            _ => Ok(()),
        }
    }
}

pub(crate) fn check_head(len: usize) -> Result<(), VectorError> {
    let fits = len > 0 && len.is_multiple_of(2) && len <= 2 * MAX_FREQUENCIES;
    if fits { Ok(()) } else { Err(VectorError::Head(len)) }
}

pub(crate) fn check_positions(positions: Ramp, rows: usize) -> Result<(), VectorError> {
    positions.check()?;
    let largest = positions.largest(rows);
    if largest > 1 << 24 { Err(VectorError::Position(largest)) } else { Ok(()) }
}

pub(crate) fn check_group(group: Option<usize>, len: usize) -> Result<(), VectorError> {
    match group {
        Some(g) if g < 8 || !g.is_power_of_two() || !len.is_multiple_of(g) => Err(VectorError::Group { group: g, len }),
        _ => Ok(()),
    }
}

pub(crate) fn check_epsilon(epsilon: f32) -> Result<(), VectorError> {
    let fits = epsilon.is_finite() && epsilon >= 0.0;
    let wants = "a finite number, 0 or more";
    if fits { Ok(()) } else { Err(VectorError::Parameter { what: "epsilon", value: epsilon, wants }) }
}
