//! The calibration file: a model's static tables.

use super::file;
use golden::kv::KvShape;
use nkz::{Channel, Crc};
use std::path::Path;

/// First eight bytes of a calibration file.
pub(super) const MAGIC: [u8; 8] = *b"nkzcalib";
/// The version that is written and read.
const VERSION: u16 = 1;
/// Magic, version, layers, heads, head dimension, CRC-16 over all else.
const HEAD: usize = 18;
/// A line of the tables, 52 bits in 8 bytes.
const LINE: usize = 8;
/// A model's static tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// The cache that they are for.
    pub shape: KvShape,
    /// [layer][head][K, V][channel].
    pub lines: Vec<Channel>,
}

/// A calibration file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a calibration file, or a part of one.
    #[error("{file}: {what}; write it anew by `magpie kv calibrate`")]
    Bad {
        /// The file.
        file: String,
        /// What is wrong with it.
        what: String,
    },
    /// Made for another model.
    #[error("{file} was made for {made:?}, the model has {model:?}: calibrate this model")]
    OtherModel {
        /// The file.
        file: String,
        /// Its shape.
        made: KvShape,
        /// The model's.
        model: KvShape,
    },
    /// A file that cannot be read.
    #[error(transparent)]
    Unread(#[from] anyhow::Error),
}

impl Calibration {
    /// The bytes of the file, little-endian throughout.
    ///
    /// # Panics
    /// If a dimension does not fit 16 bits: no cache has such a shape.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let s = self.shape;
        for field in [usize::from(VERSION), s.layers, s.heads, s.head_dim, 0] {
            bytes.extend(u16::try_from(field).expect("a dimension of a cache fits 16 bits").to_le_bytes());
        }
        self.lines.iter().for_each(|line| bytes.extend(line.pack().to_le_bytes()));
        let crc = checksum(&bytes);
        bytes[HEAD - 2..HEAD].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the bytes of `file`.
    ///
    /// # Errors
    /// Another format or version, a length that the shape does not give, a checksum that differs, a mean that is no
    /// finite number, bits set that no field has.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self, Error> {
        let bad = |what: String| Error::Bad { file: file.into(), what };
        let Some((head, body)) = bytes.split_at_checked(HEAD).filter(|(head, _)| head.starts_with(&MAGIC)) else {
            return Err(bad("this is no calibration file".into()));
        };
        let field = |i: usize| u16::from_le_bytes([head[8 + 2 * i], head[9 + 2 * i]]);
        if field(0) != VERSION {
            return Err(bad(format!("version {} is not {VERSION}", field(0))));
        }
        let [layers, heads, head_dim] = [1, 2, 3].map(|i| usize::from(field(i)));
        let lines = layers * heads * 2 * head_dim;
        if body.len() != lines * LINE {
            return Err(bad(format!("{} bytes of tables, the shape needs {}", body.len(), lines * LINE)));
        }
        if checksum(bytes) != field(4) {
            return Err(bad("the checksum differs".into()));
        }
        let words = body.chunks_exact(LINE).map(|b| b.iter().rev().fold(0, |word, &b| word << 8 | u64::from(b)));
        let mut tables = Vec::with_capacity(lines);
        for (i, word) in words.enumerate() {
            let line = Channel::unpack(word);
            if line.pack() != word || line.mean & 0x7f80 == 0x7f80 {
                return Err(bad(format!("line {i} holds {word:#x}")));
            }
            tables.push(line);
        }
        Ok(Self { shape: KvShape { layers, heads, head_dim }, lines: tables })
    }

    /// Reads a file for a model whose cache has `shape`.
    ///
    /// # Errors
    /// As [`Calibration::parse`], and a file of another model.
    pub fn open(path: &Path, shape: KvShape) -> Result<Self, Error> {
        Self::read(path)?.for_model(&path.display().to_string(), shape)
    }

    /// Reads a file, whatever its model.
    ///
    /// # Errors
    /// As [`Calibration::parse`], and a file that cannot be read.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::parse(&path.display().to_string(), &file::read(path)?)
    }

    /// The calibration that ships with the built-in model.
    ///
    /// # Errors
    /// A cache of another shape.
    pub fn builtin(shape: KvShape) -> Result<Self, Error> {
        let file = "kjv-1m/nkz.calibration";
        Self::parse(file, include_bytes!("../../../golden/models/kjv-1m/nkz.calibration"))?.for_model(file, shape)
    }

    /// The calibration that comes with Magpie for a model of this name: kjv-1m, and SmolLM2-135M-Instruct as `make smollm2` fetches it
    /// (or `smollm2`).
    ///
    /// # Errors
    /// A model of that name whose cache has another shape.
    pub fn shipped(model: &str, shape: KvShape) -> Option<Result<Self, Error>> {
        match model {
            "kjv-1m" => Some(Self::builtin(shape)),
            "smollm2" | "SmolLM2-135M-Instruct.Q4_1" => {
                let file = "smollm2.calibration";
                let made = Self::parse(file, include_bytes!("../../data/nkz/smollm2.calibration"));
                Some(made.and_then(|calibration| calibration.for_model(file, shape)))
            }
            _ => None,
        }
    }

    fn for_model(self, file: &str, model: KvShape) -> Result<Self, Error> {
        if self.shape == model {
            Ok(self)
        } else {
            Err(Error::OtherModel { file: file.into(), made: self.shape, model })
        }
    }

    /// Bits of the tables in the hardware.
    pub fn bits(&self) -> usize {
        self.lines.len() * Channel::BITS
    }
}

/// The bytes of a file that begins so, as far as that tells.
pub(super) fn length(bytes: &[u8]) -> u64 {
    let Some(head) = bytes.first_chunk::<HEAD>() else { return HEAD as u64 };
    let [layers, heads, head_dim] = [10, 12, 14].map(|i| u64::from(u16::from_le_bytes([head[i], head[i + 1]])));
    HEAD as u64 + 2 * layers * heads * head_dim * LINE as u64
}

/// CRC-16 over the file without the field that holds it.
fn checksum(bytes: &[u8]) -> u16 {
    Crc::new(0xFFFF).over(&bytes[..HEAD - 2]).over(&bytes[HEAD..]).value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_with_magpie_can_be_read() {
        let shapes = [("kjv-1m", (5, 2, 32)), ("smollm2", (30, 3, 64))];
        for (model, (layers, heads, head_dim)) in shapes {
            let shape = KvShape { layers, heads, head_dim };
            assert_eq!(Calibration::shipped(model, shape).unwrap().unwrap().shape, shape);
            let other = KvShape { layers: layers + 1, ..shape };
            assert!(Calibration::shipped(model, other).unwrap().is_err());
        }
        assert!(Calibration::shipped("llama", KvShape { layers: 1, heads: 1, head_dim: 8 }).is_none());
    }

    #[test]
    fn files_survive_and_damage_is_named() {
        let shape = KvShape { layers: 1, heads: 1, head_dim: 8 };
        let line = |i: usize| Channel { mean: 0x3f80 + i as u16, step: -5, spread: i as i8, ..Channel::default() };
        let made = Calibration { shape, lines: (0..16).map(line).collect() };
        let bytes = made.to_bytes();
        assert_eq!(Calibration::parse("f", &bytes).unwrap(), made);
        for bit in 0..8 * bytes.len() {
            let mut broken = bytes.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            assert!(Calibration::parse("f", &broken).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(Calibration::parse("f", &bytes[..length]).is_err());
        }
        let other = KvShape { layers: 2, ..shape };
        assert!(matches!(made.for_model("f", other), Err(Error::OtherModel { .. })));
    }
}
