//! The formats in which a model's products run.

use crate::{Error, Result};
use npu::isa::{Block, Operands};
use npu::numeric::FloatFormat;
use std::fmt;
use std::str::FromStr;

/// What `--format` takes.
pub const SYNTAX: &str = "bf16; int8, e4m3, e5m2, ffp8 (split chosen for the model), ffp8:S-E-F (for example ffp8:1-2-5; or ffp8:S,E,F,BIAS), each with \
     /channel (scales per token and output channel) or /32 (per 32 values along k, the default); q4_0, q4_1, q8_0 (weights as a GGUF file stores them)";

/// Values along k that share a scale where a format does not say.
pub(crate) const GROUP: u16 = 32;

/// A code of 8 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// INT8, ±127.
    Int8,
    /// A float of 8 bits.
    Float(FloatFormat),
    /// A flexible float whose split is chosen for the model.
    Chosen,
}

/// How operands of the projections are held; attention is BF16 in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// BF16 on both sides.
    Bf16,
    /// Codes of 8 bits on both sides; a scale per token and output channel (`group` 0), or per `group` values along k.
    Scaled {
        /// The code.
        code: Code,
        /// Values that share a scale.
        group: u16,
    },
    /// Weights as stored, activations INT8 with a scale per 32. A tensor that the file stores in other blocks of 32 is used as it is;
    /// one that it stores as floats is quantised to these blocks.
    Stored(Block),
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |what: &str| Error::Format { text: text.into(), what: what.into() };
        let (name, scales) = text.split_once('/').map_or((text, None), |(name, scales)| (name, Some(scales)));
        let stored = |block| match scales {
            None => Ok(Self::Stored(block)),
            Some(_) => Err(wrong("stored blocks have their own scales")),
        };
        let group = match scales {
            None => GROUP,
            Some("channel") => 0,
            Some(n) => n
                .parse()
                .ok()
                .filter(|g: &u16| *g > 0 && g.is_multiple_of(GROUP))
                .ok_or_else(|| wrong("scales are per channel or per 32, 64, 96 …"))?,
        };
        let code = match name {
            "bf16" if scales.is_none() => return Ok(Self::Bf16),
            "bf16" => return Err(wrong("bf16 has no scales")),
            "q4_0" => return stored(Block::Q40),
            "q4_1" => return stored(Block::Q41),
            "q8_0" => return stored(Block::Q80),
            "int8" => Code::Int8,
            "e4m3" => Code::Float(FloatFormat::E4M3),
            "e5m2" => Code::Float(FloatFormat::E5M2),
            "ffp8" => Code::Chosen,
            // Scales are absolute maxima over the format's largest number, so its bias only moves powers of two between codes and scales.
            _ if name.starts_with("ffp8:") => {
                let format = name.parse().ok().filter(|format: &FloatFormat| format.signed());
                let why = "a split is sign, exponent and fraction bits that make 8, with a sign";
                Code::Float(format.ok_or_else(|| wrong(why))?)
            }
            _ => return Err(wrong("unknown")),
        };
        Ok(Self::Scaled { code, group })
    }
}

impl Format {
    /// Values along k that share a scale; none without scales, or with scales per channel.
    pub fn group(self) -> Option<usize> {
        match self {
            Self::Bf16 | Self::Scaled { group: 0, .. } => None,
            Self::Scaled { group, .. } => Some(group.into()),
            Self::Stored(_) => Some(Block::VALUES),
        }
    }

    /// What the products of a tensor of `stored` type multiply; a chosen split must have been settled.
    pub(crate) fn operands(self, stored: Option<Block>) -> Operands {
        match self {
            Self::Bf16 => Operands::Float(FloatFormat::BF16),
            Self::Scaled { code, group } => {
                let format = match code {
                    Code::Float(format) => Some(format),
                    Code::Int8 | Code::Chosen => None,
                };
                match group {
                    0 => Operands::PerChannel(format),
                    group => Operands::PerGroup { format, group },
                }
            }
            Self::Stored(block) => Operands::Stored(stored.unwrap_or(block)),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bf16 => f.write_str("bf16"),
            Self::Stored(Block::Q40) => f.write_str("q4_0"),
            Self::Stored(Block::Q41) => f.write_str("q4_1"),
            Self::Stored(Block::Q80) => f.write_str("q8_0"),
            Self::Scaled { code, group } => {
                match code {
                    Code::Int8 => f.write_str("int8")?,
                    Code::Chosen => f.write_str("ffp8")?,
                    Code::Float(FloatFormat::E4M3) => f.write_str("e4m3")?,
                    Code::Float(FloatFormat::E5M2) => f.write_str("e5m2")?,
                    Code::Float(x) if x.bias() == FloatFormat::ffp8_bias(x.exp_bits()) => {
                        write!(f, "ffp8:{}-{}-{}", u8::from(x.signed()), x.exp_bits(), x.frac_bits())?;
                    }
                    Code::Float(x) => write!(f, "{x}")?,
                }
                match group {
                    0 => f.write_str("/channel"),
                    group => write!(f, "/{group}"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_there_and_back() {
        for name in [
            "bf16",
            "int8/channel",
            "int8/32",
            "e4m3/64",
            "e5m2/channel",
            "ffp8/32",
            "ffp8:1-2-5/32",
            "ffp8:1,2,5,3/channel",
            "q4_0",
            "q4_1",
            "q8_0",
        ] {
            assert_eq!(name.parse::<Format>().unwrap().to_string(), name);
        }
        assert_eq!("int8".parse::<Format>().unwrap().to_string(), "int8/32");
        assert_eq!("ffp8:1,2,5,1".parse::<Format>().unwrap().to_string(), "ffp8:1-2-5/32");
        for wrong in [
            "",
            "fp8",
            "int8/31",
            "int8/0",
            "int8/",
            "bf16/32",
            "q4_1/32",
            "ffp8:1-2-6",
            "ffp8:0-3-5",
            "ffp8:0,3,5,3",
            "ffp8:x",
            "ffp8:1-9-9",
        ] {
            let error = wrong.parse::<Format>().unwrap_err().to_string();
            assert!(error.contains("ffp8:1-2-5"), "{wrong}: {error}");
        }
    }
}
