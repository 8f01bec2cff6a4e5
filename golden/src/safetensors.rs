//! A reader of safetensors files (eight bytes of header length, a JSON header, raw little-endian data) that checks
//! everything before it allocates and says which tensor is at fault. Differential tests hold it to the public crate.

use crate::float16::{bf16_to_f32, f16_to_f32};
use crate::tensor::{elements, overlap};
use crate::{Error, Part, Projection, Result, Tensor, TensorSource, file};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// A longer header is refused: 16 MiB describe more tensors than any model has.
const HEADER_LIMIT: usize = 16 << 20;

const HELP: &str = "The file is damaged or not safetensors: fetch it again";

#[derive(Clone, Debug, Deserialize)]
struct Info {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

/// A parsed safetensors file.
#[derive(Clone, Debug)]
pub struct SafeTensors {
    file: String,
    bytes: Vec<u8>,
    /// Where the data begin.
    data: usize,
    tensors: BTreeMap<String, Info>,
}

impl SafeTensors {
    /// Reads and checks a file.
    pub fn open(path: &Path) -> Result<Self> {
        Self::parse(&path.display().to_string(), file::read(path, file::WEIGHTS_LIMIT)?)
    }

    /// Checks the bytes of a file called `file`: every tensor's extent lies inside the file and matches its type and shape.
    pub fn parse(file: &str, bytes: Vec<u8>) -> Result<Self> {
        let bad = |what: String| Error::File { file: file.into(), what, help: HELP };
        let length = bytes
            .first_chunk()
            .map(|b| u64::from_le_bytes(*b))
            .ok_or_else(|| bad(format!("{} bytes are too few for a safetensors file", bytes.len())))?;
        let data = usize::try_from(length).ok().filter(|&n| n <= HEADER_LIMIT).map(|n| n + 8);
        let data = data
            .filter(|&end| end <= bytes.len())
            .ok_or_else(|| bad(format!("declares a header of {length} bytes, the file has {} in all", bytes.len())))?;
        let mut header: BTreeMap<String, serde_json::Value> =
            serde_json::from_slice(&bytes[8..data]).map_err(|e| bad(format!("header: {e}")))?;
        header.remove("__metadata__");
        let available = bytes.len() - data;
        let mut tensors = BTreeMap::new();
        for (name, value) in header {
            let wrong = |what: String| tensor_error(file, &name, what, HELP);
            let info: Info = serde_json::from_value(value).map_err(|e| wrong(format!("header entry: {e}")))?;
            let [start, end] = info.data_offsets;
            if start > end || end > available {
                return Err(wrong(format!("lies at {start}..{end} of {available} bytes of data")));
            }
            let size = bits(&info.dtype).ok_or_else(|| wrong(format!("has the unknown type {}", info.dtype)))?;
            let expected = elements(&info.shape).and_then(|n| n.checked_mul(size));
            if expected != (end - start).checked_mul(8) {
                return Err(wrong(format!("{} {:?} does not fill its {} bytes", info.dtype, info.shape, end - start)));
            }
            tensors.insert(name, info);
        }
        let extents = tensors.iter().map(|(name, info)| (info.data_offsets, name.as_str()));
        if let Some([a, b]) = overlap(extents) {
            return Err(tensor_error(file, b, format!("shares bytes with `{a}`"), HELP));
        }
        Ok(Self { file: file.into(), bytes, data, tensors })
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// A tensor's shape.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|i| i.shape.as_slice())
    }

    /// A tensor of F32, F16 or BF16 as f32, exactly.
    pub fn f32(&self, name: &str) -> Result<Tensor> {
        let (info, bytes) = self.find(name)?;
        let data = match info.dtype.as_str() {
            "F32" => words(bytes).map(f32::from_le_bytes).collect(),
            "F16" => words(bytes).map(|b| f16_to_f32(u16::from_le_bytes(b))).collect(),
            "BF16" => words(bytes).map(|b| bf16_to_f32(u16::from_le_bytes(b))).collect(),
            other => {
                let what = format!("has the type {other}; F32, F16 and BF16 are supported");
                return Err(tensor_error(&self.file, name, what, "Convert the model to one of these"));
            }
        };
        Tensor::new(info.shape.clone(), data)
    }

    /// A tensor of I32.
    pub fn i32(&self, name: &str) -> Result<Vec<i32>> {
        match self.find(name)? {
            (info, bytes) if info.dtype == "I32" => Ok(words(bytes).map(i32::from_le_bytes).collect()),
            (info, _) => Err(tensor_error(&self.file, name, format!("has the type {}, not I32", info.dtype), HELP)),
        }
    }

    fn find(&self, name: &str) -> Result<(&Info, &[u8])> {
        let info = self.tensors.get(name).ok_or_else(|| missing(&self.file, name))?;
        let [start, end] = info.data_offsets;
        Ok((info, &self.bytes[self.data + start..self.data + end]))
    }
}

/// One or more safetensors files that hold a model in Hugging Face's names.
#[derive(Clone, Debug)]
pub struct HuggingFace {
    files: Vec<SafeTensors>,
    place: String,
}

impl HuggingFace {
    /// A model in one file.
    pub fn single(file: SafeTensors) -> Self {
        Self { place: file.file.clone(), files: vec![file] }
    }

    /// Reads `model.safetensors` of a folder, or the shards that `model.safetensors.index.json` lists.
    pub fn open(folder: &Path) -> Result<Self> {
        let index = folder.join("model.safetensors.index.json");
        if folder.join("model.safetensors").exists() || !index.exists() {
            return Ok(Self::single(SafeTensors::open(&folder.join("model.safetensors"))?));
        }
        #[derive(Deserialize)]
        struct Index {
            weight_map: BTreeMap<String, String>,
        }
        let text = file::read(&index, file::JSON_LIMIT)?;
        let place = index.display().to_string();
        let bad = |what| Error::File { file: place.clone(), what, help: "Fetch the model again" };
        let parsed: Index = serde_json::from_slice(&text).map_err(|e| bad(e.to_string()))?;
        let mut shards: Vec<&String> = parsed.weight_map.values().collect();
        shards.sort();
        shards.dedup();
        // A shard is a plain file of the folder: an index must not reach elsewhere.
        if let Some(name) = shards.iter().find(|n| Path::new(n).file_name() != Some(n.as_ref())) {
            return Err(bad(format!("shard `{name}` is no plain file name")));
        }
        let files = shards.iter().map(|n| SafeTensors::open(&folder.join(n))).collect::<Result<_>>()?;
        Ok(Self { files, place })
    }
}

impl TensorSource for HuggingFace {
    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let file = self.files.iter().find(|f| f.tensors.contains_key(name));
        let file = file.ok_or_else(|| missing(&self.place, name))?;
        match file.shape(name) {
            Some(found) if found == shape => file.f32(name),
            found => {
                let what = format!("has the shape {:?}, config.json implies {shape:?}", found.unwrap_or_default());
                Err(tensor_error(&file.file, name, what, "Use the config.json that belongs to these weights"))
            }
        }
    }

    fn name(&self, part: Part) -> String {
        match part {
            Part::Embedding => "model.embed_tokens.weight".into(),
            Part::AttentionNorm(l) => format!("model.layers.{l}.input_layernorm.weight"),
            Part::FfnNorm(l) => format!("model.layers.{l}.post_attention_layernorm.weight"),
            Part::Norm => "model.norm.weight".into(),
            Part::Head | Part::Layer(_, Projection::Head) => "lm_head.weight".into(),
            Part::Layer(l, p @ (Projection::Gate | Projection::Up | Projection::Down)) => {
                format!("model.layers.{l}.mlp.{}_proj.weight", p.name())
            }
            Part::Layer(l, p) => format!("model.layers.{l}.self_attn.{}_proj.weight", p.name()),
        }
    }
}

/// Bits an element of a type that the format defines.
fn bits(dtype: &str) -> Option<usize> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E5M2FNUZ" | "F8_E4M3FNUZ" => 8,
        "U16" | "I16" | "F16" | "BF16" => 16,
        "U32" | "I32" | "F32" => 32,
        "U64" | "I64" | "F64" | "C64" => 64,
        _ => return None,
    })
}

fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
    bytes.as_chunks::<N>().0.iter().copied()
}

fn missing(file: &str, tensor: &str) -> Error {
    tensor_error(file, tensor, "is missing".into(), "The file is incomplete or of another model: fetch it again")
}

fn tensor_error(file: &str, tensor: &str, what: String, help: &'static str) -> Error {
    Error::Tensor { file: file.into(), tensor: tensor.into(), what, help }
}
