//! Figures of numbers over all items together.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::StandardNormal;
use serde_json::{Value, json};

use super::joint::JointFigure;
use super::*;
use crate::clusters::{Average, Clusters};
use crate::compare::{Contribution, Pairs, StoredItems};
use crate::metric::Metric;
use crate::stats::confidence::Estimate;
use crate::suite::answers::Answer;

const METRICS: [Metric; 4] = [Metric::Pearson, Metric::Kendall, Metric::Ccc, Metric::R2];

/// A suite and a submission, by item.
struct Case {
    answers: Vec<f64>,
    predictions: Vec<f64>,
    clusters: Vec<u32>,
}

impl Case {
    fn of(case: &Value) -> Self {
        let list = |field: &str| case[field].as_array().unwrap().iter();
        let numbers = |field| list(field).map(|one| one.as_f64().unwrap()).collect();
        Self {
            answers: numbers("answers"),
            predictions: numbers("predictions"),
            clusters: list("clusters")
                .map(|cluster| cluster.as_u64().unwrap() as u32)
                .collect(),
        }
    }

    /// Returns a case whose answers and predictions correlate and have ties.
    fn random(n: usize, seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut normal = || random.sample::<f64, _>(StandardNormal);
        let answers: Vec<f64> = (0..n).map(|_| (8.0 * normal()).round() / 8.0).collect();
        let predictions = answers
            .iter()
            .map(|answer| (4.0 * (0.7 * answer + 0.6 * normal() + 0.1)).round() / 4.0);
        Self {
            predictions: predictions.collect(),
            answers,
            clusters: (0..n as u32).map(|item| item / 5).collect(),
        }
    }

    /// Returns the table. Without an average, items are independent.
    fn table(&self, metric: Metric, average: Option<Average>) -> AnswerTable {
        let mut builder =
            Builder::new(metric, self.answers.len()).average(average.unwrap_or_default());
        for (item, answer) in self.answers.iter().enumerate() {
            builder
                .push(&format!("i{item}"), &Answer::Number(*answer))
                .unwrap();
            if average.is_some() {
                builder.put_into_cluster(self.clusters[item]);
            }
        }
        builder.finish().unwrap()
    }

    fn score(&self, metric: Metric, average: Option<Average>) -> Result<Score, Failure> {
        let items = (0..self.answers.len()).rev();
        let predictions: Vec<Value> = items
            .map(
                |item| json!({"item_id": format!("i{item}"), "prediction": self.predictions[item]}),
            )
            .collect();
        let predictions = json!(predictions).to_string();
        let table = self.table(metric, average);
        score(
            &table,
            None,
            metric,
            predictions.as_bytes(),
            &Progress::default(),
        )
    }

    fn figure(&self, metric: Metric) -> f64 {
        let figure = JointFigure::of(metric, &self.predictions, &self.answers);
        figure.unwrap().value
    }
}

fn contributions(score: &Score) -> Vec<f64> {
    let n = score.items.len();
    (0..n).map(|item| score.items.value(item)).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the difference, relative to the magnitude of the figure if that is above 1.
fn far(found: f64, expected: &Value, magnitude: f64) -> f64 {
    (found - expected.as_f64().unwrap()).abs() / magnitude.abs().max(1.0)
}

fn far_estimate(found: Estimate, expected: &Value, magnitude: f64) -> f64 {
    let [low, high] = [0, 1].map(|end| far(found.ci95[end], &expected["ci95"][end], magnitude));
    far(found.stderr, &expected["stderr"], magnitude)
        .max(low)
        .max(high)
}

#[test]
fn figures_agree_with_scipy_and_scikit_learn() {
    let vectors = include_str!("../../../../tests/vectors/agreement.json");
    let vectors: Vec<Value> = serde_json::from_str(vectors).unwrap();
    for metric in METRICS {
        let name = metric.to_string();
        let is_correlation = metric.can_average_clusters();
        let mut counts = [0; 4];
        let mut worst = [0.0_f64; 5];
        for expected in &vectors {
            let case = Case::of(expected);
            let expected = &expected["figures"][&name];
            if expected.is_null() {
                continue;
            }
            counts[0] += 1;
            let Score { figures, items, .. } = case.score(metric, None).unwrap();
            let value = figures.value;
            worst[0] = worst[0].max(far(value, &expected["value"], value));
            let independent = figures.estimate.unwrap();
            let method = if is_correlation {
                "fisher_delta"
            } else {
                "delta"
            };
            assert_eq!(independent.method, method);
            worst[1] = worst[1].max(far_estimate(independent, &expected["independent"], value));
            for (item, contribution) in expected["contributions"]
                .as_array()
                .iter()
                .flat_map(|all| all.iter().enumerate())
            {
                counts[1] += 1;
                worst[2] = worst[2].max(far(items.value(item), contribution, value));
            }
            let by_cluster = case.score(metric, Some(Average::Item)).unwrap().figures;
            assert_eq!(by_cluster.value, value);
            match by_cluster.estimate {
                None => assert!(expected["clustered"].is_null()),
                Some(found) => {
                    counts[2] += 1;
                    let is_fisher = is_correlation && value.abs() < 1.0;
                    let method = if is_fisher {
                        "cluster_fisher"
                    } else {
                        "cluster_t"
                    };
                    assert_eq!(found.method, method);
                    worst[3] = worst[3].max(far_estimate(found, &expected["clustered"], value));
                }
            }
            let expected = &expected["average"];
            if !expected.is_null() {
                counts[3] += 1;
                let figures = case.score(metric, Some(Average::Cluster)).unwrap().figures;
                let found = figures.estimate.unwrap();
                assert_eq!(Some(figures.clusters.unwrap().n), expected["n"].as_i64());
                worst[4] = worst[4]
                    .max(far(figures.value, &expected["value"], 1.0))
                    .max(far_estimate(found, expected, 1.0));
            }
        }
        println!("{name}: {counts:?} compared, largest differences {worst:?}");
        assert!(
            counts[0] >= 200 && counts[1] > 1_000 && counts[2] > 100,
            "{counts:?}"
        );
        assert_eq!(counts[3] > 100, is_correlation, "{counts:?}");
        assert!(
            worst.iter().all(|worst| *worst <= 1e-12),
            "{name}: {worst:?}"
        );
    }
}

/// The delete-one jackknife (J. W. Tukey 1958) knows no formula for an influence.
#[test]
fn contributions_agree_with_jackknife() {
    let n = 400;
    let case = Case::random(n, 3);
    for metric in METRICS {
        let score = case.score(metric, None).unwrap();
        let value = score.figures.value;
        let contributions = contributions(&score);
        assert!((mean(&contributions) - value).abs() <= 1e-12, "{metric}");
        let without = |item: usize| {
            let rest = |values: &[f64]| [&values[..item], &values[item + 1..]].concat();
            let rest = Case {
                answers: rest(&case.answers),
                predictions: rest(&case.predictions),
                clusters: Vec::new(),
            };
            rest.figure(metric)
        };
        let left_out: Vec<f64> = (0..n).map(without).collect();
        let deviations = |values: &[f64]| -> Vec<f64> {
            values.iter().map(|value| value - mean(values)).collect()
        };
        let [ours, theirs] = [deviations(&contributions), deviations(&left_out)];
        let product = |one: &[f64], other: &[f64]| -> f64 {
            one.iter().zip(other).map(|(one, other)| one * other).sum()
        };
        let squares = product(&theirs, &theirs);
        let jackknife = (squares * (n as f64 - 1.0) / n as f64).sqrt();
        let ratio = score.figures.estimate.unwrap().stderr / jackknife;
        // An item with a large contribution lowers the figure if it is left out.
        let correlation = -product(&ours, &theirs) / (product(&ours, &ours) * squares).sqrt();
        println!("{metric}: standard errors {ratio:.5}, correlation {correlation:.7}");
        assert!((ratio - 1.0).abs() <= 0.02, "{metric}: {ratio}");
        assert!(correlation >= 0.9999, "{metric}: {correlation}");
    }
}

#[test]
fn constant_predictions_have_no_correlation() {
    let mut case = Case::random(60, 4);
    case.predictions.fill(0.1);
    for metric in METRICS {
        let found = case.score(metric, None);
        if metric.can_average_clusters() {
            let message = format!("all predictions are the same number: {metric} is not defined");
            assert_eq!(found.err(), Some(Failure::InvalidPredictions(message)));
        } else {
            assert!(found.unwrap().figures.value <= 0.0);
        }
    }
}

/// The smallest spread of answers that a suite with `r2` may have, and the largest errors.
#[test]
fn r2_of_extreme_numbers_is_finite() {
    let mut case = Case::random(60, 4);
    case.answers.fill(0.0);
    case.answers[7] = 1e-20;
    case.predictions.fill(1e50);
    case.predictions[8] = -1e50;
    let Score { figures, items, .. } = case.score(Metric::R2, None).unwrap();
    assert!(figures.value < -1e140 && figures.value.is_finite());
    assert!(figures.estimate.unwrap().stderr.is_finite());
    assert!((0..60).all(|item| items.value(item).is_finite()));
}

#[test]
fn missing_prediction_fails() {
    for metric in METRICS {
        let table = Case::random(60, 4).table(metric, None);
        let predictions = br#"[{"item_id": "i1", "prediction": 1}]"#;
        let found = score(&table, None, metric, predictions, &Progress::default());
        let message =
            format!("{metric} needs a prediction for each item of the suite: 59 are missing");
        assert_eq!(found.err(), Some(Failure::InvalidPredictions(message)));
    }
}

#[test]
fn ceiling_is_the_figure_of_first_retest_answers() {
    let case = Case::random(80, 5);
    for metric in METRICS {
        for average in [None, Some(Average::Item)] {
            let table = case.table(metric, average);
            let mut builder = CeilingBuilder::new(&table, metric);
            for (item, prediction) in case.predictions.iter().enumerate() {
                let answers = json!([prediction, 9]).to_string();
                assert_eq!(builder.add(&format!("i{item}"), &answers), Ok(true));
            }
            let ceiling = builder.finish().unwrap().ceiling();
            let figures = case.score(metric, average).unwrap().figures;
            assert_eq!(ceiling.value, figures.value);
            let estimate = figures.estimate.unwrap();
            assert_eq!(ceiling.stderr, Some(estimate.stderr));
            assert_eq!(ceiling.ci95, Some(estimate.ci95));
        }
    }
}

#[test]
fn comparison_tests_contributions() {
    let one = Case::random(80, 6);
    let other = Case {
        answers: one.answers.clone(),
        predictions: one.answers.iter().map(|answer| answer.powi(3)).collect(),
        clusters: one.clusters.clone(),
    };
    let clusters = Clusters::from_labels(one.clusters.iter().copied());
    for metric in METRICS {
        let scores = [&one, &other].map(|case| case.score(metric, None).unwrap());
        let [a, b] = scores.each_ref().map(|score| StoredItems {
            values: contributions(score),
            rights: Vec::new(),
        });
        let difference = scores[0].figures.value - scores[1].figures.value;
        let stored = Contribution::Stored;
        for (labels, method) in [
            (None, "wald"),
            (Some(clusters.item_clusters()), "cluster_sign_flip"),
        ] {
            let mut pairs = Pairs::new(metric);
            pairs.add((&a, &stored), (&b, &stored), labels);
            let found = pairs.finish(difference, 0.01, true);
            assert_eq!((found.p_method, found.n_differ), (method, None), "{metric}");
            let [low, high] = found.ci95.unwrap();
            assert!(low < difference && difference < high && found.stderr > Some(0.0));
        }
    }
}
