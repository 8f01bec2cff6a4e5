//! A plain dump of a KV cache: a safetensors file with BF16 tensors `K` and `V` [layers, heads, tokens, head_dim], K before RoPE.

use super::file;
use crate::out;
use anyhow::{Context, bail, ensure};
use golden::float16::f32_to_bf16;
use golden::kv::{KvShape, PlainCache, Stream};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::collections::HashMap;
use std::path::Path;

/// A cache's contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// Layers, KV heads and head dimension.
    pub shape: KvShape,
    /// Tokens of every stream.
    pub tokens: usize,
    /// BF16 [layers, heads, tokens, head_dim], K and V.
    pub values: [Vec<u16>; 2],
}

/// BF16 patterns of a tensor of type BF16, or of F32, which is rounded once.
pub(super) fn bf16(name: &str, view: &TensorView) -> anyhow::Result<Vec<u16>> {
    Ok(match view.dtype() {
        Dtype::BF16 => view.data().chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect(),
        Dtype::F32 => {
            view.data().chunks_exact(4).map(|b| f32_to_bf16(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect()
        }
        other => bail!("tensor `{name}` has the type {other:?}: convert it to BF16 or F32"),
    })
}

impl Dump {
    /// What a cache of f32 or BF16 holds, rounded to BF16.
    pub fn of(cache: &PlainCache, shape: KvShape) -> Self {
        let values = [golden::kv::Kind::K, golden::kv::Kind::V].map(|kind| {
            let streams =
                (0..shape.layers).flat_map(|layer| (0..shape.heads).map(move |head| Stream { layer, head, kind }));
            streams.flat_map(|stream| cache.rows(stream).iter().map(|&x| f32_to_bf16(x))).collect::<Vec<_>>()
        });
        let row = (shape.layers * shape.heads * shape.head_dim).max(1);
        Self { shape, tokens: values[0].len() / row, values }
    }

    /// Reads a dump. One layer's [heads, tokens, head_dim] and one head's [tokens, head_dim] do too.
    ///
    /// # Errors
    /// No safetensors file, `K` or `V` missing, of another type, or of different shapes.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        Ok(Self::parse(&file::read(path)?).with_context(|| path.display().to_string())?.0)
    }

    /// The dump in the bytes of a file, and the types that K and V have there.
    pub(super) fn parse(bytes: &[u8]) -> anyhow::Result<(Self, [Dtype; 2])> {
        let file = SafeTensors::deserialize(bytes).context("this is no safetensors file")?;
        let find = |name: &str| {
            let held = || file.names().iter().map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
            file.tensor(name).with_context(|| format!("there is no tensor `{name}`; the file holds: {}", held()))
        };
        let (k, v) = (find("K")?, find("V")?);
        ensure!(k.shape() == v.shape(), "K is {:?} and V {:?}: their shapes must be the same", k.shape(), v.shape());
        let (shape, tokens) = match *k.shape() {
            [layers, heads, tokens, head_dim] => (KvShape { layers, heads, head_dim }, tokens),
            [heads, tokens, head_dim] => (KvShape { layers: 1, heads, head_dim }, tokens),
            [tokens, head_dim] => (KvShape { layers: 1, heads: 1, head_dim }, tokens),
            ref other => bail!("K is {other:?}: [layers, heads, tokens, head_dim] is wanted"),
        };
        ensure!(!k.data().is_empty(), "K is {:?}: there is nothing in it", k.shape());
        let types = [k.dtype(), v.dtype()];
        Ok((Self { shape, tokens, values: [bf16("K", &k)?, bf16("V", &v)?] }, types))
    }

    /// Writes the dump.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save(&self, path: &Path) -> anyhow::Result<()> {
        let s = self.shape;
        let bytes = self.values.each_ref().map(|v| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
        let shape = || vec![s.layers, s.heads, self.tokens, s.head_dim];
        let views =
            ["K", "V"].into_iter().zip(&bytes).map(|(name, b)| Ok((name, TensorView::new(Dtype::BF16, shape(), b)?)));
        let views = views.collect::<anyhow::Result<HashMap<_, _>>>()?;
        out::save_bytes(path, &safetensors::serialize(&views, None)?)
    }

    /// The rows of a stream, [tokens, head_dim]; `kind` is 0 for K and 1 for V.
    pub(super) fn rows(&self, layer: usize, head: usize, kind: usize) -> &[u16] {
        let size = self.tokens * self.shape.head_dim;
        &self.values[kind][(layer * self.shape.heads + head) * size..][..size]
    }
}
