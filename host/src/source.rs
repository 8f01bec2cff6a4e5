//! A model as the host reads it: golden's loaders, and the blocks of a GGUF file as they are stored.

use crate::Result;
use golden::gguf::BlockType;
use golden::{Config, Gguf, Llm, Part, Projection, TensorSource};
use npu::isa::Block;
use std::path::Path;

/// A model to run.
#[derive(Debug)]
pub struct Source {
    llm: Llm,
    gguf: Option<Gguf>,
}

/// One projection's weights.
pub(crate) struct Linear<'a> {
    /// [N, K] in f32.
    pub values: &'a [f32],
    /// K.
    pub k: usize,
    /// As stored, where the file has blocks of 32.
    pub blocks: Option<(Block, &'a [u8])>,
}

impl Source {
    /// The built-in model kjv-1m.
    ///
    /// # Errors
    /// None that a build could contain: the files are part of the program.
    pub fn builtin() -> Result<Self> {
        Ok(Self { llm: golden::builtin()?, gguf: None })
    }

    /// A Hugging Face folder, or a GGUF file.
    ///
    /// # Errors
    /// Those of golden's loaders: they name file and tensor.
    pub fn load(path: &Path) -> Result<Self> {
        if path.is_dir() {
            return Ok(Self { llm: Llm::open(path)?, gguf: None });
        }
        let gguf = Gguf::open(path)?;
        let name = path.file_stem().map_or_else(|| gguf.file().into(), |n| n.to_string_lossy().into_owned());
        Ok(Self { llm: Llm::from_gguf(&gguf, name)?, gguf: Some(gguf) })
    }

    /// A model that is in memory already.
    pub fn from_llm(llm: Llm) -> Self {
        Self { llm, gguf: None }
    }

    /// Gives the file's bytes back: no format as stored will be asked for.
    pub fn forget_blocks(&mut self) {
        self.gguf = None;
    }

    /// The model in f32, with its tokenizer.
    pub fn llm(&self) -> &Llm {
        &self.llm
    }

    /// Sizes and constants.
    pub fn config(&self) -> &Config {
        self.llm.model.config()
    }

    /// A layer's projection, or the head.
    pub(crate) fn linear(&self, layer: usize, p: Projection) -> Linear<'_> {
        let weights = self.llm.model.weights();
        let (linear, part) = match weights.layers.get(layer).and_then(|l| l.projection(p)) {
            Some(linear) => (linear, Part::Layer(layer, p)),
            None => (weights.head(), if self.config().tied { Part::Embedding } else { Part::Head }),
        };
        let blocks = self.gguf.as_ref().and_then(|gguf| {
            let (tensor, bytes) = gguf.raw(&gguf.name(part)).ok()?;
            Some((block_of(tensor.block_type)?, bytes))
        });
        Linear { values: linear.weight.data(), k: linear.weight.columns(), blocks }
    }

    /// What blocks of 32 the projections' tensors are stored in, the head's among them, and how many tensors of each.
    pub fn stored(&self) -> Vec<(Block, usize)> {
        let mut counts: Vec<(Block, usize)> = Vec::new();
        for (layer, p) in self.projections() {
            if let Some((block, _)) = self.linear(layer, p).blocks {
                match counts.iter_mut().find(|(b, _)| *b == block) {
                    Some((_, n)) => *n += 1,
                    None => counts.push((block, 1)),
                }
            }
        }
        counts
    }

    /// All projections of all layers, and the head.
    pub(crate) fn projections(&self) -> impl Iterator<Item = (usize, Projection)> {
        let layers = self.config().layers;
        (0..layers).flat_map(|l| Projection::LAYER.map(|p| (l, p))).chain([(layers, Projection::Head)])
    }
}

/// The NPU's block of a GGUF type.
fn block_of(stored: BlockType) -> Option<Block> {
    match stored {
        BlockType::Q4_0 => Some(Block::Q40),
        BlockType::Q4_1 => Some(Block::Q41),
        BlockType::Q8_0 => Some(Block::Q80),
        BlockType::F32 | BlockType::F16 | BlockType::Bf16 => None,
    }
}
