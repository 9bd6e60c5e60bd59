//! The transformer's parameters, in the layouts that the products need.

use std::collections::HashMap;

use crate::error::PackageError;
use crate::kernels::matrix::{Linear, Panels};
use crate::kernels::norm::LayerNorm;
use crate::spec::ModelSpec;
use crate::weights::Weights;

/// A block: attention and a feed-forward layer, each after a layer norm.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) norm1: LayerNorm,
    pub(crate) query: Linear,
    /// A row's keys and values, next to each other.
    pub(crate) key_value: Linear,
    pub(crate) output: Linear,
    pub(crate) norm2: LayerNorm,
    pub(crate) up: Linear,
    pub(crate) down: Linear,
}

/// One codebook level's parameters.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) embedding: Vec<f32>,
    pub(crate) mixer: Panels,
    pub(crate) mixer_bias: Vec<f32>,
    pub(crate) head: Panels,
}

/// All model parameters.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) spec: ModelSpec,
    pub(crate) start: Vec<f32>,
    pub(crate) positions: Vec<f32>,
    pub(crate) types: Vec<f32>,
    pub(crate) type_numbers: HashMap<String, usize>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) norm: LayerNorm,
    pub(crate) levels: Vec<Level>,
}

impl Network {
    /// Reads the parameters and rearranges them.
    pub(crate) fn read(spec: ModelSpec, weights: &Weights<'_>) -> Result<Self, PackageError> {
        let norm = |name: &str| {
            Ok(LayerNorm {
                weight: weights.read(&format!("{name}.weight"))?,
                bias: weights.read(&format!("{name}.bias"))?,
                eps: spec.norm_eps,
            })
        };
        let linear = |name: &str, n_in: usize| {
            let bias = weights.read(&format!("{name}.bias"))?;
            Ok(Linear::new(
                &weights.read(&format!("{name}.weight"))?,
                bias,
                n_in,
            ))
        };
        let block = |number: usize| {
            let name = |layer: &str| format!("blocks.{number}.{layer}");
            let mut keys = weights.read(&name("attention.key.weight"))?;
            keys.append(&mut weights.read(&name("attention.value.weight"))?);
            let mut bias = weights.read(&name("attention.key.bias"))?;
            bias.append(&mut weights.read(&name("attention.value.bias"))?);
            Ok(Block {
                norm1: norm(&name("norm1"))?,
                query: linear(&name("attention.query"), spec.dim)?,
                key_value: Linear::new(&keys, bias, spec.dim),
                output: linear(&name("attention.output"), spec.dim)?,
                norm2: norm(&name("norm2"))?,
                up: linear(&name("up"), spec.dim)?,
                down: linear(&name("down"), 4 * spec.dim)?,
            })
        };
        let level = |number: usize| {
            let panels = |name: &str| {
                let weights = weights.read(&format!("{name}.{number}.weight"))?;
                Ok(Panels::new(&weights, spec.dim))
            };
            Ok(Level {
                embedding: weights.read(&format!("item_embedding.{number}"))?,
                mixer: panels("mixers")?,
                mixer_bias: weights.read(&format!("mixers.{number}.bias"))?,
                head: panels("heads")?,
            })
        };
        let types = match spec.event_types[..] {
            [] => Vec::new(),
            _ => weights.read("type_embedding")?,
        };
        Ok(Self {
            start: weights.read("start")?,
            positions: weights.read("position_embedding")?,
            types,
            type_numbers: spec.event_types.iter().cloned().zip(0..).collect(),
            blocks: (0..spec.layers).map(block).collect::<Result<_, _>>()?,
            norm: norm("norm")?,
            levels: (0..spec.level_sizes.len())
                .map(level)
                .collect::<Result<_, _>>()?,
            spec,
        })
    }

    /// Returns a code's embedding on a level.
    pub(crate) fn code_embedding(&self, level: usize, code: u32) -> &[f32] {
        &self.levels[level].embedding[code as usize * self.spec.dim..][..self.spec.dim]
    }

    /// Returns the memory held, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let vectors = [&self.start, &self.positions, &self.types];
        let blocks = self.blocks.iter().map(|block| {
            let norms = block.norm1.bytes() + block.norm2.bytes();
            let linear = [
                &block.query,
                &block.key_value,
                &block.output,
                &block.up,
                &block.down,
            ];
            norms + linear.map(Linear::bytes).iter().sum::<usize>()
        });
        let levels = self.levels.iter().map(|level| {
            let vectors = level.embedding.capacity() + level.mixer_bias.capacity();
            4 * vectors + level.mixer.bytes() + level.head.bytes()
        });
        vectors
            .iter()
            .map(|vector| 4 * vector.capacity())
            .sum::<usize>()
            + blocks.sum::<usize>()
            + levels.sum::<usize>()
            + self.norm.bytes()
    }
}
