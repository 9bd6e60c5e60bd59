//! Simulated coverage of the intervals for independent items.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::StandardNormal;
use serde_json::{Map, json};

use super::*;
use crate::metric::Metric;
use crate::simulation::{allowance, n_samples};
use crate::suite::answers::Answer;

/// Items of a population, from which samples are drawn with replacement.
const POPULATION: usize = 20_000;

/// The options of labels in their order, and the cumulative shares of the answers.
const OPTIONS: [(&str, f64); 4] = [
    ("never", 0.5),
    ("rarely", 0.8),
    ("often", 0.95),
    ("always", 1.0),
];

/// A generator of answers and predictions.
#[derive(Debug, Clone, Copy)]
enum Items {
    /// Answers from 1 to 5, and predictions that correlate with them.
    Ratings,
    /// Log-normal amounts, with a standard deviation of 1.1 on the scale of logarithms.
    Amounts,
    /// One of four ordered labels. Of the predictions, 52 % are right, 19 % are a neighbor of the answer,
    /// and the others any label.
    Labels,
    /// The same with equally frequent labels.
    EvenLabels,
    /// Probabilities of the labels.
    Probabilities,
    /// Sets of one to four ids, of which predictions of three ids contain some.
    Sets,
}

/// Each metric with its items, and the least coverage in percent for 100 and for 1,000 items. Influences
/// of amounts, and those of items with a rare label, have few large values, so their intervals are too
/// short.
const METRICS: [(&str, Items, [f64; 2]); 16] = [
    ("pearson", Items::Ratings, [92.0, 92.0]),
    ("kendall", Items::Ratings, [92.0, 92.0]),
    ("ccc", Items::Ratings, [92.0, 92.0]),
    ("r2", Items::Ratings, [92.0, 92.0]),
    ("pearson", Items::Amounts, [70.0, 80.0]),
    ("kendall", Items::Amounts, [92.0, 92.0]),
    ("ccc", Items::Amounts, [70.0, 80.0]),
    ("r2", Items::Amounts, [60.0, 75.0]),
    ("balanced_accuracy", Items::Labels, [80.0, 92.0]),
    ("balanced_accuracy", Items::EvenLabels, [92.0, 92.0]),
    ("mcc", Items::Labels, [92.0, 92.0]),
    ("kappa", Items::Labels, [92.0, 92.0]),
    ("kappa_quadratic", Items::Labels, [90.0, 92.0]),
    ("auc_ovr", Items::Probabilities, [80.0, 92.0]),
    ("jaccard", Items::Sets, [92.0, 92.0]),
    ("f1_set", Items::Sets, [92.0, 92.0]),
];

/// A population with the answer and the prediction of each item, as JSON.
struct Population {
    metric: Metric,
    items: Vec<[String; 2]>,
}

impl Population {
    fn draw(metric: Metric, kind: Items) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(51);
        let items = (0..POPULATION).map(|_| kind.draw(&mut random));
        Self {
            metric,
            items: items.collect(),
        }
    }

    /// Scores these items of the population.
    fn score(&self, items: impl Iterator<Item = usize>) -> Figures {
        let options = OPTIONS.map(|(label, _)| label.to_owned());
        let mut builder = Builder::new(self.metric, 0);
        if self.metric.is_ordinal() {
            builder = builder.options(&options);
        }
        let mut predictions = String::from("[");
        for (at, item) in items.enumerate() {
            let [answer, prediction] = &self.items[item];
            let answer = Answer::parse(answer, &self.metric).unwrap();
            builder.push(&format!("i{at}"), &answer).unwrap();
            let comma = if at == 0 { "" } else { "," };
            predictions += &format!("{comma}{{\"item_id\":\"i{at}\",\"prediction\":{prediction}}}");
        }
        predictions.push(']');
        let table = builder.finish().unwrap();
        let bytes = predictions.as_bytes();
        let progress = Progress::default();
        let scored = score(&table, None, self.metric, bytes, &progress);
        scored.unwrap().figures
    }

    /// Returns the share of samples of `n` items, in percent, whose interval contains the value of all
    /// items.
    fn coverage(&self, n: usize, samples: u64) -> f64 {
        let expected = self.score(0..POPULATION).value;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(n as u64);
        let mut n_covered = 0;
        for _ in 0..samples {
            let chosen: Vec<usize> = (0..n).map(|_| random.random_range(0..POPULATION)).collect();
            let [low, high] = self.score(chosen.into_iter()).estimate.unwrap().ci95;
            n_covered += u64::from(low <= expected && expected <= high);
        }
        100.0 * n_covered as f64 / samples as f64
    }
}

impl Items {
    /// Draws the answer and the prediction of an item.
    fn draw(self, random: &mut Xoshiro256PlusPlus) -> [String; 2] {
        let roll: f64 = random.random();
        let mut normal = || random.sample::<f64, _>(StandardNormal);
        let right = OPTIONS.iter().position(|(_, below)| roll < *below);
        let right = match self {
            Self::EvenLabels => (4.0 * roll) as usize,
            _ => right.unwrap_or(OPTIONS.len() - 1),
        };
        let [answer, prediction] = match self {
            Self::Ratings => {
                let taste = normal();
                let answer = 3.2 + 0.9 * taste + 0.6 * normal();
                let prediction = 3.2 + 0.7 * taste + 0.3 * normal();
                [json!(answer.round().clamp(1.0, 5.0)), json!(prediction)]
            }
            Self::Amounts => {
                let known = normal();
                let answer = (known + 0.5 * normal()).exp();
                [json!(answer), json!((known + 0.1).exp())]
            }
            Self::Labels | Self::EvenLabels => {
                let neighbor = match right {
                    0 => 1,
                    3 => 2,
                    _ if random.random_bool(0.5) => right + 1,
                    _ => right - 1,
                };
                let predicted = match random.random_range(0..100) {
                    0..52 => right,
                    52..71 => neighbor,
                    _ => random.random_range(0..OPTIONS.len()),
                };
                [right, predicted].map(|option| json!(OPTIONS[option].0))
            }
            Self::Probabilities => {
                let mut below = 0.0;
                let weights = OPTIONS.iter().enumerate().map(|(option, (_, next))| {
                    let hint = if option == right { 1.2 } else { 0.0 };
                    let weight = (next - below) * (hint + 0.8 * normal()).exp();
                    below = *next;
                    weight
                });
                let weights: Vec<f64> = weights.collect();
                let sum: f64 = weights.iter().sum();
                let shares = OPTIONS.iter().zip(weights);
                let shares =
                    shares.map(|((label, _), weight)| (label.to_string(), json!(weight / sum)));
                [
                    json!(OPTIONS[right].0),
                    json!(shares.collect::<Map<_, _>>()),
                ]
            }
            Self::Sets => {
                let mut ids: Vec<u8> = (0..12).collect();
                // A popular id is often in front.
                ids.sort_by_cached_key(|id| {
                    let tail: f64 = random.random();
                    (1e6 * tail.powf(1.0 / (12.0 - f64::from(*id)))) as u64
                });
                ids.reverse();
                let n = random.random_range(1..=4);
                let mut guesses = ids.clone();
                guesses.sort_by_cached_key(|id| {
                    let is_right = ids[..n].contains(id);
                    let tail: f64 = random.random();
                    (1e6 * (tail - if is_right { 0.6 } else { 0.0 }) + 1e6) as u64
                });
                let names = |ids: &[u8]| json!(ids.iter().map(u8::to_string).collect::<Vec<_>>());
                [names(&ids[..n]), names(&guesses[..3])]
            }
        };
        [answer.to_string(), prediction.to_string()]
    }
}

/// `TEST_SAMPLES=4000 cargo test -p assay-eval value_of_all_items -- --nocapture` measures the figures of
/// `docs/metrics.md`.
#[test]
fn intervals_contain_the_value_of_all_items() {
    let samples = n_samples(60);
    for (name, kind, least) in METRICS {
        let population = Population::draw(name.parse().unwrap(), kind);
        let coverage = [100, 1_000].map(|n| population.coverage(n, samples));
        println!(
            "{name}, {kind:?}: {:.1} % of {samples} samples of 100 items, {:.1} % of 1,000",
            coverage[0], coverage[1]
        );
        for (covered, least) in coverage.into_iter().zip(least) {
            let chance = 100.0 * allowance(least / 100.0, samples);
            assert!(covered >= least - chance, "{name}, {kind:?}: {covered}");
            assert!(covered <= 98.0 + chance, "{name}, {kind:?}: {covered}");
        }
    }
}
