//! `model.json`, as far as the engine needs it.

use serde::Deserialize;

use crate::error::PackageError;

/// Largest `model.json`, in bytes.
pub const MODEL_BYTES_MAX: usize = 1 << 20;

/// The embedded engine's architecture.
const ARCHITECTURE: &str = "assay-seq-1";

const EVENT_TYPES_MAX: usize = 1000;

/// The feed-forward layers' activation function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// max(x, 0).
    Relu,
    /// x·Φ(x) with the exact normal distribution function, which is PyTorch's default.
    Gelu,
    /// GELU, approximated by tanh.
    GeluTanh,
    /// x·sigmoid(x).
    Silu,
}

/// A model's sizes and constants. The card's unknown fields are not checked here: the card has
/// its own reader.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSpec {
    /// The number of events that the model looks back on.
    pub context_length: usize,
    /// The width of the model and its embeddings.
    pub dim: usize,
    /// The transformer block count.
    pub layers: usize,
    /// The attention head count, which divides `dim`.
    pub heads: usize,
    /// The constant that layer norms add to the variance.
    pub norm_eps: f32,
    /// The activation function.
    pub activation: Activation,
    /// Each codebook level's code count.
    pub level_sizes: Vec<usize>,
    /// The event types that the model knows, in embedding order.
    pub event_types: Vec<String>,
}

#[derive(Deserialize)]
struct File {
    context_length: u64,
    embedding_dim: u64,
    codebook: Codebook,
    serving: Serving,
}

#[derive(Deserialize)]
struct Codebook {
    levels: u64,
    resolution: Resolution,
    base_size: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Resolution {
    Uniform,
    Multi,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Serving {
    /// An engine's name in the operator's settings, by which the caller has found this one.
    #[serde(rename = "engine")]
    _engine: String,
    architecture: String,
    dim: u64,
    layers: u64,
    heads: u64,
    norm_eps: f64,
    activation: Activation,
    #[serde(default)]
    event_types: Vec<String>,
}

impl ModelSpec {
    /// Reads and checks `model.json`.
    pub fn parse(json: &[u8]) -> Result<Self, PackageError> {
        if json.len() > MODEL_BYTES_MAX {
            let length = json.len();
            return Err(PackageError::model(format!(
                "the file has {length} bytes; it may have at most {MODEL_BYTES_MAX}."
            )));
        }
        let file: File = serde_json::from_slice(json)
            .map_err(|error| PackageError::model(format!("{error}.")))?;
        let serving = file.serving;
        if serving.architecture != ARCHITECTURE {
            return Err(PackageError::model(format!(
                "`serving.architecture` must be `{ARCHITECTURE}`, and is {:?}.",
                serving.architecture
            )));
        }
        let dim = in_range("serving.dim", serving.dim, 4096)?;
        let heads = in_range("serving.heads", serving.heads, 4096)?;
        if !dim.is_multiple_of(heads) {
            return Err(PackageError::model(format!(
                "`serving.heads` is {heads} and must divide `serving.dim`, which is {dim}."
            )));
        }
        if file.embedding_dim != serving.dim {
            return Err(PackageError::model(format!(
                "`embedding_dim` is {} and must equal `serving.dim`, which is {dim}.",
                file.embedding_dim
            )));
        }
        if !(1e-12..=0.1).contains(&serving.norm_eps) {
            return Err(PackageError::model(format!(
                "`serving.norm_eps` must be between 1e-12 and 0.1, and is {}.",
                serving.norm_eps
            )));
        }
        check_event_types(&serving.event_types)?;
        Ok(Self {
            context_length: in_range("context_length", file.context_length, 10_000)?,
            dim,
            layers: in_range("serving.layers", serving.layers, 64)?,
            heads,
            norm_eps: serving.norm_eps as f32,
            activation: serving.activation,
            level_sizes: level_sizes(&file.codebook)?,
            event_types: serving.event_types,
        })
    }
}

fn in_range(field: &str, value: u64, max: usize) -> Result<usize, PackageError> {
    usize::try_from(value)
        .ok()
        .filter(|value| (1..=max).contains(value))
        .ok_or_else(|| {
            PackageError::model(format!(
                "`{field}` must be between 1 and {max}, and is {value}."
            ))
        })
}

/// Returns each level's code count: `base_size` with `uniform`, and half the previous
/// level's with `multi`.
fn level_sizes(codebook: &Codebook) -> Result<Vec<usize>, PackageError> {
    let levels = in_range("codebook.levels", codebook.levels, 32)?;
    let base_size = in_range("codebook.base_size", codebook.base_size, 1 << 24)?;
    match codebook.resolution {
        Resolution::Uniform => Ok(vec![base_size; levels]),
        Resolution::Multi => {
            let divisor = 1_usize << (levels - 1);
            if !base_size.is_multiple_of(divisor) {
                return Err(PackageError::model(format!(
                    "`codebook.base_size` is {base_size} and must be a multiple of {divisor}, because each of the {levels} levels has half of the codes of the previous one."
                )));
            }
            Ok((0..levels).map(|level| base_size >> level).collect())
        }
    }
}

fn check_event_types(types: &[String]) -> Result<(), PackageError> {
    if types.len() > EVENT_TYPES_MAX {
        return Err(PackageError::model(format!(
            "`serving.event_types` has {} types; it may have at most {EVENT_TYPES_MAX}.",
            types.len()
        )));
    }
    let mut sorted: Vec<&String> = types.iter().collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(PackageError::model(format!(
            "`serving.event_types` has {:?} twice.",
            pair[0]
        ))),
        None => Ok(()),
    }
}
