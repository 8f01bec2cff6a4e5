//! The weights of a Llama-architecture model, read by name from any source of tensors.

use crate::{Config, Result, Tensor};

/// A model file that gives tensors by name.
pub trait TensorSource {
    /// Reads tensor `name` as f32; refuses another shape than `shape`, before anything is allocated.
    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor>;

    /// The name that this kind of file gives to a part of the model.
    fn name(&self, part: Part) -> String;
}

/// A projection: a matrix product with weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Projection {
    /// Queries: hidden → heads · head_dim.
    Q,
    /// Keys: hidden → kv_heads · head_dim.
    K,
    /// Values: hidden → kv_heads · head_dim.
    V,
    /// Attention output: heads · head_dim → hidden.
    O,
    /// The gate of SwiGLU: hidden → ffn.
    Gate,
    /// SwiGLU's other input: hidden → ffn.
    Up,
    /// SwiGLU's output: ffn → hidden.
    Down,
    /// The language-model head: hidden → vocabulary.
    Head,
}

impl Projection {
    /// The seven projections of a layer, in the order of execution.
    pub const LAYER: [Self; 7] = [Self::Q, Self::K, Self::V, Self::O, Self::Gate, Self::Up, Self::Down];

    /// A short lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Q => "q",
            Self::K => "k",
            Self::V => "v",
            Self::O => "o",
            Self::Gate => "gate",
            Self::Up => "up",
            Self::Down => "down",
            Self::Head => "head",
        }
    }

    /// The weight's shape [N, K].
    pub fn shape(self, c: &Config) -> [usize; 2] {
        match self {
            Self::Q => [c.q_width(), c.hidden],
            Self::K | Self::V => [c.kv_width(), c.hidden],
            Self::O => [c.hidden, c.q_width()],
            Self::Gate | Self::Up => [c.ffn, c.hidden],
            Self::Down => [c.hidden, c.ffn],
            Self::Head => [c.vocabulary, c.hidden],
        }
    }
}

/// A part of the model that has a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The token embedding [vocabulary, hidden].
    Embedding,
    /// The weight of a layer's projection.
    Layer(usize, Projection),
    /// The norm before attention [hidden].
    AttentionNorm(usize),
    /// The norm before the feed-forward block [hidden].
    FfnNorm(usize),
    /// The norm before the head [hidden].
    Norm,
    /// The head, where it is not the embedding.
    Head,
}

/// A weight matrix [N, K] and its name in the file.
#[derive(Clone, Debug)]
pub struct Linear {
    /// The tensor's name in the model file.
    pub name: String,
    /// One row an output channel.
    pub weight: Tensor,
}

/// The weights of one layer.
#[derive(Clone, Debug)]
pub struct Layer {
    /// RMSNorm before attention, [hidden].
    pub attention_norm: Vec<f32>,
    /// RMSNorm before the feed-forward block, [hidden].
    pub ffn_norm: Vec<f32>,
    /// The projections, in the order of [`Projection::LAYER`].
    projections: [Linear; 7],
}

impl Layer {
    /// One of the seven projections. [`Projection::Head`] belongs to the model: see [`Weights::head`].
    pub fn projection(&self, p: Projection) -> Option<&Linear> {
        Projection::LAYER.iter().position(|&q| q == p).map(|i| &self.projections[i])
    }

    /// A projection that every layer has.
    pub(crate) fn linear(&self, p: Projection) -> &Linear {
        &self.projections[p as usize]
    }
}

/// All weights, in f32.
#[derive(Clone, Debug)]
pub struct Weights {
    /// The token embedding [vocabulary, hidden]; also the head of a tied model.
    pub embedding: Linear,
    /// The layers, first to last.
    pub layers: Vec<Layer>,
    /// The norm before the head, [hidden].
    pub norm: Vec<f32>,
    /// The head of a model that is not tied.
    own_head: Option<Linear>,
}

impl Weights {
    /// Reads every tensor that `config` calls for, each checked against the shape that it implies.
    pub fn load(config: &Config, source: &impl TensorSource) -> Result<Self> {
        let vector =
            |part| -> Result<Vec<f32>> { Ok(source.tensor(&source.name(part), &[config.hidden])?.data().to_vec()) };
        let linear = |part, p: Projection| -> Result<Linear> {
            let name = source.name(part);
            Ok(Linear { weight: source.tensor(&name, &p.shape(config))?, name })
        };
        let embedding = linear(Part::Embedding, Projection::Head)?;
        let mut layers = Vec::new();
        for l in 0..config.layers {
            let p = |p| linear(Part::Layer(l, p), p);
            layers.push(Layer {
                attention_norm: vector(Part::AttentionNorm(l))?,
                ffn_norm: vector(Part::FfnNorm(l))?,
                projections: [
                    p(Projection::Q)?,
                    p(Projection::K)?,
                    p(Projection::V)?,
                    p(Projection::O)?,
                    p(Projection::Gate)?,
                    p(Projection::Up)?,
                    p(Projection::Down)?,
                ],
            });
        }
        let norm = vector(Part::Norm)?;
        let own_head = if config.tied { None } else { Some(linear(Part::Head, Projection::Head)?) };
        Ok(Self { embedding, layers, norm, own_head })
    }

    /// The head [vocabulary, hidden]: its own weights, or the embedding's.
    pub fn head(&self) -> &Linear {
        self.own_head.as_ref().unwrap_or(&self.embedding)
    }

    /// Number of parameters, a tied head counted once.
    pub fn parameters(&self) -> usize {
        let count = |l: &Linear| l.weight.data().len();
        let layers = self.layers.iter().flat_map(|l| &l.projections).map(count).sum::<usize>();
        let norms = self.norm.len() * (2 * self.layers.len() + 1);
        count(&self.embedding) + layers + norms + self.own_head.as_ref().map_or(0, count)
    }
}
