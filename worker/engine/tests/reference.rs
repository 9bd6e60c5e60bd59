//! A plain implementation of the transformer in 64-bit floats, for histories that are longer than
//! those of the golden packages: the engine computes long histories in parts.

use assay_engine::{EmbedOptions, Pooling, Scratch};

use crate::support::{Package, Rng, SMALL, Sizes, events, random_ids, sequence};

type Matrix = Vec<Vec<f64>>;

/// The parameters by name.
struct Parameters<'p>(&'p Package);

impl Parameters<'_> {
    fn matrix(&self, name: &str) -> Matrix {
        let mut named = self.0.tensors.iter().filter(|tensor| tensor.name == name);
        let tensor = named.next().unwrap();
        let row = |row: &[f32]| row.iter().map(|value| f64::from(*value)).collect();
        tensor
            .values
            .chunks(*tensor.shape.last().unwrap())
            .map(row)
            .collect()
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

/// Returns the states of all positions after the final layer norm.
fn states(package: &Package, sizes: &Sizes, codes: &[Vec<usize>]) -> Matrix {
    let parameters = Parameters(package);
    let positions = parameters.matrix("position_embedding");
    let mut x = vec![parameters.vector("start")];
    for (code, position) in codes.iter().zip(positions) {
        let mut row = position;
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
            let active: Vec<f64> = hidden.iter().map(|value| value.max(0.0)).collect();
            add(x, &parameters.linear(&name("down"), &active));
        }
    }
    x.iter().map(|row| parameters.norm("norm", row)).collect()
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
    let items = model.items().unwrap();
    let code = |item_id: &String| {
        let code = items.code_of(item_id).unwrap();
        code.iter().map(|code| *code as usize).collect()
    };
    let codes: Vec<Vec<usize>> = history.iter().map(code).collect();
    let states = states(&package, &sizes, &codes);
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
