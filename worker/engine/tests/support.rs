//! Packages with random weights, made in memory. Used by tests and benchmarks.

use std::fmt::Write as _;

use assay_engine::{Event, Model, PackageFiles, Sequence};

/// A pseudo-random generator (SplitMix64).
pub struct Rng(pub u64);

impl Rng {
    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() >> 32) as usize % bound
    }

    /// Returns a number from −1 to 1.
    pub fn signed(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    }
}

/// A model's sizes.
#[derive(Clone)]
pub struct Sizes {
    pub dim: usize,
    pub layers: usize,
    pub heads: usize,
    pub context_length: usize,
    pub levels: usize,
    pub base_size: usize,
    /// 0 for no item table.
    pub n_items: usize,
    pub activation: &'static str,
    pub event_types: &'static [&'static str],
}

/// Three levels with 256 codes and 10,000 items, width 64: "r64".
pub const THREE_LEVELS: Sizes = Sizes {
    dim: 64,
    layers: 2,
    heads: 2,
    context_length: 50,
    levels: 3,
    base_size: 256,
    n_items: 10_000,
    activation: "relu",
    event_types: &[],
};

/// One level with 10,000 codes, width 64: "s64".
pub const ONE_LEVEL: Sizes = Sizes {
    levels: 1,
    base_size: 10_000,
    ..THREE_LEVELS
};

/// A model whose results take microseconds.
pub const SMALL: Sizes = Sizes {
    dim: 16,
    layers: 2,
    heads: 2,
    context_length: 12,
    levels: 3,
    base_size: 8,
    n_items: 60,
    activation: "relu",
    event_types: &[],
};

/// A package's tensor.
pub struct Tensor {
    pub name: String,
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
}

/// A package that can be changed before it is written.
pub struct Package {
    pub model: serde_json::Value,
    pub tensors: Vec<Tensor>,
    /// The item table's lines.
    pub items: Option<String>,
}

impl Package {
    /// Makes a package with random weights and items.
    pub fn random(sizes: &Sizes, seed: u64) -> Self {
        let mut rng = Rng(seed);
        let serving = serde_json::json!({
            "engine": "default", "architecture": "assay-seq-1", "dim": sizes.dim, "layers": sizes.layers,
            "heads": sizes.heads, "norm_eps": 1e-5, "activation": sizes.activation, "event_types": sizes.event_types,
        });
        let model = serde_json::json!({
            "id": "test", "task": "next-event", "status": "beta", "version": "1", "context_length": sizes.context_length,
            "requires_tokenizer": true, "endpoints": ["predict"], "embedding_dim": sizes.dim,
            "codebook": {"levels": sizes.levels, "resolution": "uniform", "base_size": sizes.base_size}, "serving": serving,
        });
        let tensors = shapes(sizes)
            .into_iter()
            .map(|(name, shape)| random_tensor(name, shape, &mut rng))
            .collect();
        let items = (sizes.n_items > 0).then(|| random_items(sizes, &mut rng));
        Self {
            model,
            tensors,
            items,
        }
    }

    /// Returns the tensor with a name.
    pub fn tensor(&mut self, name: &str) -> &mut Tensor {
        let mut named = self.tensors.iter_mut().filter(|tensor| tensor.name == name);
        named.next().unwrap_or_else(|| unreachable!("{name}"))
    }

    /// Returns `model.json`.
    pub fn model_json(&self) -> Vec<u8> {
        self.model.to_string().into_bytes()
    }

    /// Returns `weights.safetensors`.
    pub fn weights(&self) -> Vec<u8> {
        let values = self.tensors.iter().flat_map(|tensor| &tensor.values);
        let data: Vec<u8> = values.flat_map(|value| value.to_le_bytes()).collect();
        let mut header = serde_json::Map::new();
        let mut end = 0;
        for tensor in &self.tensors {
            let start = end;
            end += 4 * tensor.values.len();
            header.insert(
                tensor.name.clone(),
                serde_json::json!({"dtype": "F32", "shape": tensor.shape, "data_offsets": [start, end]}),
            );
        }
        with_header(&serde_json::Value::Object(header).to_string(), &data)
    }

    /// Loads the package.
    pub fn load(&self) -> Result<Model, assay_engine::PackageError> {
        Model::load(&PackageFiles {
            model: &self.model_json(),
            weights: &self.weights(),
            items: self.items.as_ref().map(String::as_bytes),
        })
    }
}

/// Returns a safetensors file with this header and data.
pub fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
    [
        &(header.len() as u64).to_le_bytes(),
        header.as_bytes(),
        data,
    ]
    .concat()
}

/// Lists the architecture's tensors.
fn shapes(sizes: &Sizes) -> Vec<(String, Vec<usize>)> {
    let d = sizes.dim;
    let mut shapes = vec![
        ("start".to_owned(), vec![d]),
        (
            "position_embedding".to_owned(),
            vec![sizes.context_length, d],
        ),
        ("norm.weight".to_owned(), vec![d]),
        ("norm.bias".to_owned(), vec![d]),
    ];
    if !sizes.event_types.is_empty() {
        shapes.push((
            "type_embedding".to_owned(),
            vec![sizes.event_types.len(), d],
        ));
    }
    for level in 0..sizes.levels {
        shapes.push((format!("item_embedding.{level}"), vec![sizes.base_size, d]));
        shapes.push((format!("heads.{level}.weight"), vec![sizes.base_size, d]));
        shapes.push((format!("mixers.{level}.weight"), vec![d, d]));
        shapes.push((format!("mixers.{level}.bias"), vec![d]));
    }
    for block in 0..sizes.layers {
        let layers = [
            ("norm1", vec![d]),
            ("norm2", vec![d]),
            ("attention.query", vec![d, d]),
            ("attention.key", vec![d, d]),
            ("attention.value", vec![d, d]),
            ("attention.output", vec![d, d]),
            ("up", vec![4 * d, d]),
            ("down", vec![d, 4 * d]),
        ];
        for (layer, shape) in layers {
            shapes.push((format!("blocks.{block}.{layer}.bias"), vec![shape[0]]));
            shapes.push((format!("blocks.{block}.{layer}.weight"), shape));
        }
    }
    shapes
}

fn random_tensor(name: String, shape: Vec<usize>, rng: &mut Rng) -> Tensor {
    let n = shape.iter().product();
    let is_norm_weight = name.contains("norm") && name.ends_with("weight");
    let (mean, spread) = match shape[..] {
        [_] if is_norm_weight => (1.0, 0.3),
        [_] => (0.0, 0.3),
        _ if name.contains("embedding") => (0.0, 1.0),
        // Variance 3 / inputs: item scores differ, so that rankings mean something.
        _ => (0.0, 3.0 / (shape[1] as f32).sqrt()),
    };
    let values = (0..n).map(|_| mean + spread * rng.signed()).collect();
    Tensor {
        name,
        shape,
        values,
    }
}

/// Returns an item table with distinct codes, in no order.
fn random_items(sizes: &Sizes, rng: &mut Rng) -> String {
    let mut codes = std::collections::HashSet::new();
    let mut lines = String::new();
    while codes.len() < sizes.n_items {
        let components = (0..sizes.levels).map(|_| rng.below(sizes.base_size).to_string());
        let code = components.collect::<Vec<_>>().join("-");
        if codes.insert(code.clone()) {
            let number = codes.len() - 1;
            let _ = writeln!(lines, r#"{{"item_id":"item-{number}","code":"{code}"}}"#);
        }
    }
    lines
}

/// Returns `n` random item ids from a package.
pub fn random_ids(sizes: &Sizes, n: usize, rng: &mut Rng) -> Vec<String> {
    (0..n)
        .map(|_| format!("item-{}", rng.below(sizes.n_items)))
        .collect()
}

/// Returns events without types.
pub fn events(item_ids: &[String]) -> Vec<Event<'_>> {
    item_ids
        .iter()
        .map(|item_id| Event {
            item_id,
            event_type: None,
        })
        .collect()
}

/// Returns an event sequence, without options.
pub fn sequence<'a>(events: &'a [Event<'a>]) -> Sequence<'a> {
    Sequence {
        events,
        ..Sequence::default()
    }
}
