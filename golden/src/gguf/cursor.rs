//! Little-endian reading with every bound checked.

use super::HELP;
use crate::{Error, Result};

/// A value of GGUF's metadata. Numbers are widened, losing nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Metadatum {
    /// u8, u16, u32, u64.
    Unsigned(u64),
    /// i8, i16, i32, i64.
    Signed(i64),
    /// f32, f64.
    Float(f64),
    /// bool.
    Bool(bool),
    /// UTF-8 text.
    Text(String),
    /// An array of scalars or texts, all of one type.
    Array(Vec<Metadatum>),
}

impl Metadatum {
    /// An integer that is not negative.
    pub fn unsigned(&self) -> Option<u64> {
        match self {
            Self::Unsigned(n) => Some(*n),
            Self::Signed(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }

    /// A floating-point number.
    pub fn float(&self) -> Option<f64> {
        if let Self::Float(x) = self { Some(*x) } else { None }
    }

    /// A text.
    pub fn text(&self) -> Option<&str> {
        if let Self::Text(t) = self { Some(t) } else { None }
    }

    /// An array's elements.
    pub fn array(&self) -> Option<&[Metadatum]> {
        if let Self::Array(a) = self { Some(a) } else { None }
    }
}

/// GGUF's code of arrays.
const ARRAY: u32 = 9;

pub(super) struct Cursor<'a> {
    file: &'a str,
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(file: &'a str, bytes: &'a [u8]) -> Self {
        Self { file, bytes, position: 0 }
    }

    pub(super) fn file(&self) -> &'a str {
        self.file
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn bad(&self, what: String) -> Error {
        Error::File { file: self.file.into(), what, help: HELP }
    }

    pub(super) fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let taken = self.position.checked_add(n).and_then(|end| self.bytes.get(self.position..end));
        let at = self.position;
        self.position = self.position.saturating_add(n);
        taken.ok_or_else(|| self.bad(format!("ends at byte {} inside {n} bytes from {at} on", self.bytes.len())))
    }

    fn word<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.first_chunk().copied().unwrap_or([0; N]))
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.word()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.word()?))
    }

    pub(super) fn string(&mut self) -> Result<String> {
        let length = self.u64()?;
        let at = self.position;
        let bytes = self.take(usize::try_from(length).unwrap_or(usize::MAX))?;
        String::from_utf8(bytes.to_vec()).map_err(|_| self.bad(format!("the text at byte {at} is not UTF-8")))
    }

    /// A metadatum's value of type `kind`; `key` names it in errors.
    pub(super) fn value(&mut self, key: &str, kind: u32) -> Result<Metadatum> {
        if kind != ARRAY {
            return self.scalar(key, kind);
        }
        let (kind, count) = (self.u32()?, self.u64()?);
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(self.scalar(key, kind)?);
        }
        Ok(Metadatum::Array(values))
    }

    fn scalar(&mut self, key: &str, kind: u32) -> Result<Metadatum> {
        Ok(match kind {
            0 => Metadatum::Unsigned(u8::from_le_bytes(self.word()?).into()),
            1 => Metadatum::Signed(i8::from_le_bytes(self.word()?).into()),
            2 => Metadatum::Unsigned(u16::from_le_bytes(self.word()?).into()),
            3 => Metadatum::Signed(i16::from_le_bytes(self.word()?).into()),
            4 => Metadatum::Unsigned(self.u32()?.into()),
            5 => Metadatum::Signed(i32::from_le_bytes(self.word()?).into()),
            6 => Metadatum::Float(f32::from_le_bytes(self.word()?).into()),
            7 => match self.take(1)? {
                [0] => Metadatum::Bool(false),
                [1] => Metadatum::Bool(true),
                _ => return Err(self.bad(format!("metadatum `{key}` is no boolean"))),
            },
            8 => Metadatum::Text(self.string()?),
            ARRAY => return Err(self.bad(format!("metadatum `{key}` is an array of arrays"))),
            10 => Metadatum::Unsigned(self.u64()?),
            11 => Metadatum::Signed(i64::from_le_bytes(self.word()?)),
            12 => Metadatum::Float(f64::from_le_bytes(self.word()?)),
            _ => return Err(self.bad(format!("metadatum `{key}` has the unknown type {kind}"))),
        })
    }
}
