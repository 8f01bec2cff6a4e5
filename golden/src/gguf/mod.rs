//! A reader of GGUF files: metadata, tensors as stored, tensors as f32.
//!
//! Format (ggml's docs/gguf.md, versions 2 and 3, little-endian): magic `GGUF`, version u32, tensor count u64, metadata count
//! u64; each metadatum a string key, a type u32 and a value; each tensor a name, a rank u32, its dimensions u64 *fastest
//! first*, a type u32 and an offset u64 into the data, which begin at the next multiple of `general.alignment`.

mod block;
mod cursor;
mod model;
mod tokenizer;

pub use block::BlockType;
pub use cursor::Metadatum;

use crate::tensor::{elements, overlap};
use crate::{Error, Result, Tensor, file};
use cursor::Cursor;
use std::collections::BTreeMap;
use std::path::Path;

const HELP: &str = "The file is damaged or not a GGUF of version 2 or 3, little-endian: fetch it again";

/// Ranks that ggml allows.
const RANK_LIMIT: usize = 4;

/// Where a tensor lies and how it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GgufTensor {
    /// Row-major shape, the last dimension fastest (GGUF's own order reversed). Blocks run along the last dimension.
    pub shape: Vec<usize>,
    /// How its values are stored.
    pub block_type: BlockType,
    /// First byte in the file.
    start: usize,
    /// Bytes.
    length: usize,
}

/// A parsed GGUF file.
#[derive(Clone, Debug)]
pub struct Gguf {
    file: String,
    bytes: Vec<u8>,
    metadata: BTreeMap<String, Metadatum>,
    tensors: BTreeMap<String, GgufTensor>,
}

impl Gguf {
    /// Reads and checks a file.
    pub fn open(path: &Path) -> Result<Self> {
        Self::parse(&path.display().to_string(), file::read(path, file::WEIGHTS_LIMIT)?)
    }

    /// Checks the bytes of a file called `file`. What is allocated is bounded by what the file holds, whatever it declares.
    pub fn parse(file: &str, bytes: Vec<u8>) -> Result<Self> {
        let mut c = Cursor::new(file, &bytes);
        if c.take(4)? != b"GGUF" {
            return Err(c.bad("does not begin with `GGUF`".into()));
        }
        let version = c.u32()?;
        if !(2..=3).contains(&version) {
            return Err(c.bad(format!("has version {version}")));
        }
        let (tensor_count, metadata_count) = (c.u64()?, c.u64()?);
        let mut metadata = BTreeMap::new();
        for _ in 0..metadata_count {
            let key = c.string()?;
            let kind = c.u32()?;
            let value = c.value(&key, kind)?;
            if metadata.insert(key.clone(), value).is_some() {
                return Err(c.bad(format!("metadatum `{key}` appears twice")));
            }
        }
        let alignment = match metadata.get("general.alignment") {
            None => 32,
            Some(Metadatum::Unsigned(a)) if a.is_power_of_two() && *a <= 1 << 20 => *a as usize,
            Some(other) => return Err(c.bad(format!("general.alignment is {other:?}"))),
        };
        let mut entries = Vec::new();
        for _ in 0..tensor_count {
            let name = c.string()?;
            let entry = entry(&mut c, &name)?;
            entries.push((name, entry));
        }
        let data = c.position().next_multiple_of(alignment);
        let mut tensors = BTreeMap::new();
        for (name, (mut tensor, offset)) in entries {
            let wrong = |what| Err(tensor_error(file, &name, what));
            let start = usize::try_from(offset).ok().filter(|o| o % alignment == 0).and_then(|o| o.checked_add(data));
            let Some(start) = start else {
                return wrong(format!("lies at offset {offset}, no multiple of {alignment}"));
            };
            if start.checked_add(tensor.length).is_none_or(|end| end > bytes.len()) {
                return wrong(format!("needs {} bytes from {start}, the file has {}", tensor.length, bytes.len()));
            }
            tensor.start = start;
            if tensors.insert(name.clone(), tensor).is_some() {
                return wrong("appears twice".into());
            }
        }
        let extents = tensors.iter().map(|(name, t)| ([t.start, t.start + t.length], name.as_str()));
        if let Some([a, b]) = overlap(extents) {
            return Err(tensor_error(file, b, format!("shares bytes with `{a}`")));
        }
        Ok(Self { file: file.into(), bytes, metadata, tensors })
    }

    /// The file's name.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// All metadata by key.
    pub fn metadata(&self) -> &BTreeMap<String, Metadatum> {
        &self.metadata
    }

    /// All tensors by name.
    pub fn tensors(&self) -> &BTreeMap<String, GgufTensor> {
        &self.tensors
    }

    /// A tensor's blocks as they are stored, row after row, each row a whole number of blocks.
    pub fn raw(&self, name: &str) -> Result<(&GgufTensor, &[u8])> {
        let tensor = self.tensors.get(name).ok_or_else(|| Error::Tensor {
            file: self.file.clone(),
            tensor: name.into(),
            what: "is missing".into(),
            help: "The file is incomplete or of another model: fetch it again",
        })?;
        Ok((tensor, &self.bytes[tensor.start..tensor.start + tensor.length]))
    }

    /// A tensor as f32: exact for F32, F16 and BF16, one rounding for quantised blocks.
    pub fn f32(&self, name: &str) -> Result<Tensor> {
        let (tensor, bytes) = self.raw(name)?;
        Tensor::new(tensor.shape.clone(), tensor.block_type.decode(bytes))
    }
}

/// A tensor's entry, its start still unknown, and its offset into the data.
fn entry(c: &mut Cursor<'_>, name: &str) -> Result<(GgufTensor, u64)> {
    let rank = c.u32()? as usize;
    if rank > RANK_LIMIT {
        return Err(tensor_error(c.file(), name, format!("has {rank} dimensions")));
    }
    let mut shape = Vec::new();
    for _ in 0..rank {
        let dimension = c.u64()?;
        let fits = usize::try_from(dimension).ok();
        shape.push(fits.ok_or_else(|| tensor_error(c.file(), name, format!("has a dimension of {dimension}")))?);
    }
    shape.reverse();
    let (code, offset) = (c.u32()?, c.u64()?);
    let wrong = |what| tensor_error(c.file(), name, what);
    let block_type = BlockType::from_code(code).ok_or_else(|| Error::Tensor {
        file: c.file().into(),
        tensor: name.into(),
        what: format!("has the ggml type {code}"),
        help: "F32, F16, BF16, Q4_0, Q4_1 and Q8_0 are supported: convert the model to one of these",
    })?;
    if !shape.last().copied().unwrap_or(1).is_multiple_of(block_type.values()) {
        return Err(wrong(format!("{shape:?}: a row is no whole number of {block_type:?} blocks")));
    }
    let length = elements(&shape).and_then(|n| (n / block_type.values()).checked_mul(block_type.bytes()));
    let length = length.ok_or_else(|| wrong(format!("{shape:?} is too large")))?;
    Ok((GgufTensor { shape, block_type, start: 0, length }, offset))
}

fn tensor_error(file: &str, tensor: &str, what: String) -> Error {
    Error::Tensor { file: file.into(), tensor: tensor.into(), what, help: HELP }
}
