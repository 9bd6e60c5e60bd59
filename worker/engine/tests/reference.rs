//! A plain network implementation in 64-bit floats. It computes each item by itself, and long
//! histories at once, which the engine computes in parts.

use std::collections::HashMap;

use assay_engine::{EmbedOptions, Model, Pooling, PredictOptions, Ranking, Scratch, Sequence};

use crate::support::{Package, Rng, SMALL, Sizes, events, random_ids, sequence};

type Matrix = Vec<Vec<f64>>;

/// The largest difference between a score and its reference: docs/guide.md promises it.
const SCORE_TOLERANCE: f64 = 5e-5;

/// The parameters by name.
struct Parameters(HashMap<String, Matrix>);

impl Parameters {
    fn new(package: &Package) -> Self {
        let matrix = |values: &[f32], width: usize| {
            let row = |row: &[f32]| row.iter().map(|value| f64::from(*value)).collect();
            values.chunks(width).map(row).collect()
        };
        let tensors = package.tensors.iter().map(|tensor| {
            let width = *tensor.shape.last().unwrap();
            (tensor.name.clone(), matrix(&tensor.values, width))
        });
        Self(tensors.collect())
    }

    fn matrix(&self, name: &str) -> &Matrix {
        &self.0[name]
    }

    fn vector(&self, name: &str) -> Vec<f64> {
        self.matrix(name).concat()
    }

    fn linear(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let weights = self.matrix(&format!("{name}.weight"));
        let bias = self.vector(&format!("{name}.bias"));
        weights
            .iter()
            .zip(bias)
            .map(|(row, bias)| dot(row, x) + bias)
            .collect()
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let weight = self.vector(&format!("{name}.weight"));
        let bias = self.vector(&format!("{name}.bias"));
        let n = x.len() as f64;
        let mean = x.iter().sum::<f64>() / n;
        let variance = x.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
        let scaled = x
            .iter()
            .map(|value| (value - mean) / (variance + 1e-5).sqrt());
        scaled
            .zip(weight)
            .zip(bias)
            .map(|((x, weight), bias)| x * weight + bias)
            .collect()
    }
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

fn add(to: &mut [f64], vector: &[f64]) {
    for (to, value) in to.iter_mut().zip(vector) {
        *to += value;
    }
}

/// Returns all positions' states after the final layer norm.
fn states(parameters: &Parameters, sizes: &Sizes, codes: &[Vec<usize>]) -> Matrix {
    let positions = parameters.matrix("position_embedding");
    let mut x = vec![parameters.vector("start")];
    for (code, position) in codes.iter().zip(positions) {
        let mut row = position.clone();
        for (level, code) in code.iter().enumerate() {
            add(
                &mut row,
                &parameters.matrix(&format!("item_embedding.{level}"))[*code],
            );
        }
        x.push(row);
    }
    for block in 0..sizes.layers {
        let name = |layer: &str| format!("blocks.{block}.{layer}");
        let project = |layer: &str, rows: &Matrix| -> Matrix {
            rows.iter()
                .map(|row| parameters.linear(&name(layer), row))
                .collect()
        };
        let normed: Matrix = x
            .iter()
            .map(|row| parameters.norm(&name("norm1"), row))
            .collect();
        let [query, key, value] =
            ["query", "key", "value"].map(|layer| project(&format!("attention.{layer}"), &normed));
        for (at, x) in x.iter_mut().enumerate() {
            let head_dim = sizes.dim / sizes.heads;
            let mut attended = vec![0.0; sizes.dim];
            for head in (0..sizes.dim).step_by(head_dim) {
                let part = head..head + head_dim;
                let score = |key: &Vec<f64>| {
                    (dot(&query[at][part.clone()], &key[part.clone()]) / (head_dim as f64).sqrt())
                        .exp()
                };
                let weights: Vec<f64> = key[..=at].iter().map(score).collect();
                let total: f64 = weights.iter().sum();
                for (weight, value) in weights.iter().zip(&value) {
                    let scaled: Vec<f64> = value[part.clone()]
                        .iter()
                        .map(|value| value * weight / total)
                        .collect();
                    add(&mut attended[part.clone()], &scaled);
                }
            }
            add(x, &parameters.linear(&name("attention.output"), &attended));
            let hidden = parameters.linear(&name("up"), &parameters.norm(&name("norm2"), x));
            let active: Vec<f64> = hidden
                .iter()
                .map(|value| activated(*value, sizes.activation))
                .collect();
            add(x, &parameters.linear(&name("down"), &active));
        }
    }
    x.iter().map(|row| parameters.norm("norm", row)).collect()
}

/// Applies the activation function to a value.
fn activated(value: f64, activation: &str) -> f64 {
    match activation {
        "relu" => value.max(0.0),
        "silu" => value / (1.0 + (-value).exp()),
        "gelu_tanh" => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (value + 0.044715 * value.powi(3));
            0.5 * value * (1.0 + inner.tanh())
        }
        other => panic!("{other}"),
    }
}

/// Returns each code's log-probability, by computing every softmax on its way.
fn scores(parameters: &Parameters, state: &[f64], codes: &[Vec<usize>]) -> Vec<f64> {
    let mut prefix_scores: HashMap<&[usize], Vec<f64>> = HashMap::new();
    let mut score = |prefix, code: usize| {
        let code_scores = prefix_scores
            .entry(prefix)
            .or_insert_with(|| log_softmax(parameters, state, prefix));
        code_scores[code]
    };
    let code_scores = codes.iter().map(|code| {
        let levels = (0..code.len()).map(|level| score(&code[..level], code[level]));
        levels.sum()
    });
    code_scores.collect()
}

/// Returns the log-probabilities for codes that follow a prefix.
fn log_softmax(parameters: &Parameters, state: &[f64], prefix: &[usize]) -> Vec<f64> {
    let mut state = state.to_vec();
    for (level, code) in prefix.iter().enumerate() {
        let embedding = parameters.matrix(&format!("item_embedding.{level}"));
        add(&mut state, &embedding[*code]);
    }
    let level = prefix.len();
    let mixed = parameters.linear(&format!("mixers.{level}"), &state);
    let mixed: Vec<f64> = mixed.iter().map(|value| value.max(0.0)).collect();
    add(&mut state, &mixed);
    let head = parameters.matrix(&format!("heads.{level}.weight"));
    let logits: Vec<f64> = head.iter().map(|row| dot(row, &state)).collect();
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit - max).exp()).sum();
    logits.iter().map(|logit| logit - max - sum.ln()).collect()
}

/// Returns all catalog items' codes by position.
fn catalog(model: &Model) -> Vec<Vec<usize>> {
    let items = model.items().unwrap();
    let code = |at| items.code_at(at).unwrap().iter().map(|code| *code as usize);
    (0..items.len()).map(|at| code(at).collect()).collect()
}

/// Returns a history's codes.
fn codes_of(model: &Model, history: &[String]) -> Vec<Vec<usize>> {
    let items = model.items().unwrap();
    let code = |item_id: &String| items.code_of(item_id).unwrap().iter();
    let code = |item_id| code(item_id).map(|code| *code as usize).collect();
    history.iter().map(code).collect()
}

fn top<'m>(model: &'m Model, sequence: &Sequence<'m>, top_k: usize) -> Ranking<'m> {
    let options = PredictOptions {
        top_k: Some(top_k),
        exclude_seen: false,
    };
    let mut scratch = Scratch::default();
    model
        .predict(&mut scratch, sequence, &options, &|| false)
        .unwrap()
}

#[test]
fn top_items_are_those_of_the_reference() {
    let sizes = Sizes {
        dim: 24,
        base_size: 24,
        n_items: 1_500,
        ..SMALL
    };
    let package = Package::random(&sizes, 3);
    let model = package.load().unwrap();
    let parameters = Parameters::new(&package);
    let (items, catalog) = (model.items().unwrap(), catalog(&model));
    let mut rng = Rng(4);
    for _ in 0..300 {
        let n_events = rng.below(13);
        let history = random_ids(&sizes, n_events, &mut rng);
        let state = states(&parameters, &sizes, &codes_of(&model, &history));
        let expected = scores(&parameters, state.last().unwrap(), &catalog);
        let events = events(&history);
        for top_k in [1, 10, 100] {
            let found = top(&model, &sequence(&events), top_k);
            assert!(found.is_exact);
            let mut best = expected.clone();
            best.sort_by(|one, other| other.total_cmp(one));
            for (item, best) in found.items.iter().zip(&best) {
                let score = expected[items.position_of(item.item_id).unwrap()];
                // Items whose scores are that close may have another order.
                assert!((score - best).abs() < SCORE_TOLERANCE, "{score} {best}");
            }
        }
    }
}

#[test]
fn scores_equal_the_reference() {
    let mut largest: f64 = 0.0;
    for (dim, layers, base_size, n_items, activation) in [
        (64, 2, 256, 10_000, "relu"),
        (64, 2, 64, 2_000, "silu"),
        (64, 4, 64, 2_000, "gelu_tanh"),
        (128, 2, 64, 2_000, "relu"),
    ] {
        let sizes = Sizes {
            dim,
            layers,
            base_size,
            n_items,
            activation,
            context_length: 50,
            ..SMALL
        };
        let package = Package::random(&sizes, 5);
        let model = package.load().unwrap();
        let parameters = Parameters::new(&package);
        let catalog = catalog(&model);
        let all: Vec<&str> = (0..catalog.len())
            .map(|at| model.items().unwrap().item_at(at).unwrap())
            .collect();
        let mut rng = Rng(6);
        for n_events in [0, 1, 7, 20, 50] {
            let history = random_ids(&sizes, n_events, &mut rng);
            let state = states(&parameters, &sizes, &codes_of(&model, &history));
            let expected = scores(&parameters, state.last().unwrap(), &catalog);
            let events = events(&history);
            let sequence = Sequence {
                options: Some(&all),
                ..sequence(&events)
            };
            for item in top(&model, &sequence, all.len()).items {
                let position = model.items().unwrap().position_of(item.item_id).unwrap();
                let difference = f64::from(item.score.unwrap()) - expected[position];
                largest = largest.max(difference.abs());
            }
            eprintln!("{dim} {layers} {base_size} {activation} {n_events}: {largest:e}");
        }
    }
    assert!(largest < SCORE_TOLERANCE, "{largest:e}");
}

fn assert_close(found: &[f32], expected: &[f64]) {
    for (found, expected) in found.iter().zip(expected) {
        let difference = (f64::from(*found) - expected).abs();
        assert!(difference < 1e-5, "{found} instead of {expected}");
    }
}

#[test]
fn long_histories_equal_the_reference() {
    let sizes = Sizes {
        context_length: 300,
        layers: 2,
        ..SMALL
    };
    let package = Package::random(&sizes, 1);
    let model = package.load().unwrap();
    let mut rng = Rng(2);
    let history = random_ids(&sizes, 300, &mut rng);
    let codes = codes_of(&model, &history);
    let states = states(&Parameters::new(&package), &sizes, &codes);
    // Around the sizes at which the engine begins another part.
    for n in [
        0, 1, 30, 31, 32, 63, 64, 126, 127, 128, 129, 159, 160, 255, 256, 300,
    ] {
        let events = events(&history[..n]);
        let embed = |pooling| {
            let options = EmbedOptions {
                pooling,
                normalize: false,
            };
            let mut scratch = Scratch::default();
            let found = model.embed(&mut scratch, &sequence(&events), &options, &|| false);
            found.unwrap().vector
        };
        assert_close(&embed(Pooling::Last), &states[n]);
        let mut mean = vec![0.0; sizes.dim];
        states[..=n].iter().for_each(|state| add(&mut mean, state));
        let mean: Vec<f64> = mean.iter().map(|value| value / (n + 1) as f64).collect();
        assert_close(&embed(Pooling::Mean), &mean);
    }
}
