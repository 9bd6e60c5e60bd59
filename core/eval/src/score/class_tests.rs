//! Metrics over classes and over sets: values against scikit-learn, contributions against the
//! jackknife, intervals and comparisons by their formulas.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use super::*;
use crate::compare::{Aggregate, Pairs, StoredItems};
use crate::metric::{Family, Metric};
use crate::stats::clustered;
use crate::stats::confidence::Z;
use crate::suite::answers::Answer;

/// Each metric with the method of its interval without and with clusters.
const METRICS: [(&str, [&str; 2]); 7] = [
    ("balanced_accuracy", ["delta", "cluster_t"]),
    ("mcc", ["fisher_delta", "cluster_fisher"]),
    ("kappa", ["fisher_delta", "cluster_fisher"]),
    ("jaccard", ["normal", "cluster_t"]),
    ("f1_set", ["normal", "cluster_t"]),
    ("auc_ovr", ["delta", "cluster_logit"]),
    ("kappa_quadratic", ["fisher_delta", "cluster_fisher"]),
];

fn metrics() -> impl Iterator<Item = Metric> {
    METRICS.into_iter().map(|(name, _)| name.parse().unwrap())
}

/// Returns the table of these answers. `cluster_of` is the cluster of each item, if items are in
/// clusters.
fn table(metric: Metric, answers: &[Value], cluster_of: Option<fn(usize) -> u32>) -> AnswerTable {
    let mut builder = Builder::new(metric, answers.len());
    for (item, answer) in answers.iter().enumerate() {
        let answer = answer.to_string();
        let answer = Answer::parse(&answer, &metric).unwrap();
        builder.push(&format!("i{item}"), &answer).unwrap();
        if let Some(cluster_of) = cluster_of {
            builder.put_into_cluster(cluster_of(item));
        }
    }
    builder.finish().unwrap()
}

/// Scores the predictions by item. `null` is none.
fn score_items(
    table: &AnswerTable,
    metric: Metric,
    predictions: &[Value],
    reversed: bool,
) -> Score {
    let shown = predictions.iter().enumerate();
    let mut shown: Vec<Value> = shown
        .filter(|(_, prediction)| !prediction.is_null())
        .map(|(item, prediction)| json!({"item_id": format!("i{item}"), "prediction": prediction}))
        .collect();
    if reversed {
        shown.reverse();
    }
    let json = json!(shown).to_string();
    score(table, None, metric, json.as_bytes(), &Progress::default()).unwrap()
}

/// Returns the final stored values of the items: the metrics have these as contributions.
fn contributions(score: &Score) -> Vec<f64> {
    (0..score.items.len())
        .map(|item| score.items.value(item))
        .collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn figures_agree_with_scikit_learn() {
    let vectors = include_str!("../../../../tests/vectors/classes.json");
    let cases: Vec<Value> = serde_json::from_str(vectors).unwrap();
    for metric in metrics().filter(|metric| !metric.is_ordinal()) {
        let mut compared = 0;
        for case in &cases {
            let Some(expected) = case["values"][metric.to_string()].as_f64() else {
                continue;
            };
            let pairs = case["answers"].as_array().unwrap();
            let answers: Vec<Value> = pairs.iter().map(|pair| pair[1].clone()).collect();
            let mut predictions = vec![Value::Null; answers.len()];
            for shown in case["predictions"].as_array().unwrap() {
                let place = pairs.iter().position(|pair| pair[0] == shown["item_id"]);
                predictions[place.unwrap()] = shown["prediction"].clone();
            }
            let table = table(metric, &answers, None);
            let found = score_items(&table, metric, &predictions, false);
            let value = found.figures.value;
            let name = format!("{} {metric}", case["name"]);
            assert!(
                (value - expected).abs() <= 1e-12,
                "{name}: {value} {expected}"
            );
            let mean = mean(&contributions(&found));
            assert!((mean - value).abs() <= 1e-12, "{name}: {mean} {value}");
            assert_eq!(
                found,
                score_items(&table, metric, &predictions, true),
                "{name}"
            );
            compared += 1;
        }
        assert_eq!(compared, 200, "{metric}");
    }
}

#[test]
fn weighted_kappa_agrees_with_scikit_learn() {
    let vectors = include_str!("../../../../tests/vectors/weighted_kappa.json");
    let cases: Vec<Value> = serde_json::from_str(vectors).unwrap();
    let metric = Metric::KappaQuadratic;
    let mut furthest = 0.0_f64;
    for case in &cases {
        let values = |field: &str| -> Vec<Value> { case[field].as_array().unwrap().clone() };
        let labels: Vec<String> = serde_json::from_value(case["labels"].clone()).unwrap();
        let mut builder = Builder::new(metric, 0).options(&labels);
        for (item, answer) in values("answers").iter().enumerate() {
            let answer = answer.to_string();
            let answer = Answer::parse(&answer, &metric).unwrap();
            builder.push(&format!("i{item}"), &answer).unwrap();
        }
        let table = builder.finish().unwrap();
        let found = score_items(&table, metric, &values("predictions"), false);
        let value = found.figures.value;
        let difference = (value - case["value"].as_f64().unwrap()).abs();
        assert!(difference <= 1e-12, "{case}: {value}");
        furthest = furthest.max(difference);
        assert!((mean(&contributions(&found)) - value).abs() <= 1e-12);
        let reversed = score_items(&table, metric, &values("predictions"), true);
        assert_eq!(found, reversed);
    }
    println!(
        "kappa_quadratic: {} suites, largest difference {furthest:e}",
        cases.len()
    );
    assert_eq!(cases.len(), 400);
}

/// Returns the answers and the predictions of a random suite.
fn random_case(metric: Metric, n: usize, seed: u64) -> (Vec<Value>, Vec<Value>) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut items = Vec::new();
    for _ in 0..n {
        let right = [0, 0, 0, 1, 1, 2][random.random_range(0..6_usize)];
        let guess = if random.random_bool(0.7) {
            right
        } else {
            random.random_range(0..4)
        };
        let label = |at: usize| format!("l{at}");
        items.push(match metric.family() {
            Family::Rankings => {
                let other = if random.random_bool(0.8) {
                    guess + 5
                } else {
                    9
                };
                let answer = json!([label(right), label(right + 5)]);
                (answer, json!([label(guess), label(other)]))
            }
            Family::Labels if random.random_bool(0.05) => (json!(label(right)), Value::Null),
            Family::Labels => (json!(label(right)), json!(label(guess))),
            Family::Numbers | Family::Quantiles => unreachable!(),
            Family::Probabilities => {
                let mut weights = [0; 4].map(|_: i32| random.random_range(1..5_u8));
                weights[guess] += 3;
                weights[3] = 0;
                let sum = f64::from(weights.iter().sum::<u8>());
                let shares: serde_json::Map<String, Value> = (0..3)
                    .map(|at| (label(at), json!(f64::from(weights[at]) / sum)))
                    .collect();
                (json!(label(right)), json!(shares))
            }
        });
    }
    items.into_iter().unzip()
}

/// J. W. Tukey's jackknife: each item is left out once.
#[test]
fn standard_error_agrees_with_jackknife() {
    let n = 400;
    for (seed, metric) in (1..).zip(metrics()) {
        let (answers, predictions) = random_case(metric, n, seed);
        let without = |item: usize| {
            let (mut answers, mut predictions) = (answers.clone(), predictions.clone());
            answers.remove(item);
            predictions.remove(item);
            let table = table(metric, &answers, None);
            score_items(&table, metric, &predictions, false)
                .figures
                .value
        };
        let values: Vec<f64> = (0..n).map(without).collect();
        let mean = mean(&values);
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let jackknife = (squares * (n as f64 - 1.0) / n as f64).sqrt();
        let table = table(metric, &answers, None);
        let found = score_items(&table, metric, &predictions, false);
        let stderr = found.figures.estimate.unwrap().stderr;
        println!("{metric}: {stderr} {jackknife}");
        assert!(
            (stderr / jackknife - 1.0).abs() <= 0.02,
            "{metric}: {stderr} {jackknife}"
        );
    }
}

/// Returns the interval with a half width of `q` standard errors.
fn interval(method: &str, value: f64, stderr: f64, q: f64) -> [f64; 2] {
    let end = |q: f64| match method {
        "fisher_delta" | "cluster_fisher" => {
            (value.atanh() + q * stderr / (1.0 - value * value)).tanh()
        }
        "cluster_logit" => {
            let middle = (value / (1.0 - value)).ln();
            1.0 / (1.0 + (-middle - q * stderr / (value * (1.0 - value))).exp())
        }
        _ => value + q * stderr,
    };
    [end(-q), end(q)]
}

#[test]
fn intervals_follow_from_contributions() {
    let n = 400;
    for (seed, (name, [alone, by_cluster])) in (1..).zip(METRICS) {
        let metric: Metric = name.parse().unwrap();
        let (answers, predictions) = random_case(metric, n, seed);
        let near = |one: f64, other: f64| (one - other).abs() <= 1e-12;

        let independent = table(metric, &answers, None);
        let found = score_items(&independent, metric, &predictions, false);
        let value = found.figures.value;
        let deviations: Vec<f64> = contributions(&found)
            .iter()
            .map(|one| one - value)
            .collect();
        let squares: f64 = deviations.iter().map(|one| one * one).sum();
        let estimate = found.figures.estimate.unwrap();
        let items = n as f64;
        assert!(
            near(estimate.stderr, (squares / (items - 1.0) / items).sqrt()),
            "{metric}"
        );
        let [low, high] = interval(alone, value, estimate.stderr, Z);
        assert!(
            near(estimate.ci95[0], low) && near(estimate.ci95[1], high),
            "{metric}"
        );
        assert_eq!(estimate.method, alone);

        let clustered = table(metric, &answers, Some(|item| item as u32 % 40));
        let found = score_items(&clustered, metric, &predictions, false).figures;
        let mut sums = [0.0; 40];
        for (item, deviation) in deviations.iter().enumerate() {
            sums[item % 40] += deviation;
        }
        let squares: f64 = sums.iter().map(|sum| sum * sum).sum();
        let estimate = found.estimate.unwrap();
        assert!(
            near(estimate.stderr, (40.0 / 39.0 * squares).sqrt() / items),
            "{metric}"
        );
        let q = clustered::half_width(39.0);
        let [low, high] = interval(by_cluster, value, estimate.stderr, q);
        assert!(
            near(estimate.ci95[0], low) && near(estimate.ci95[1], high),
            "{metric}"
        );
        assert_eq!((found.value, estimate.method), (value, by_cluster));
    }
}

#[test]
fn comparison_follows_from_stored_items() {
    let n = 400;
    for (seed, metric) in (1..).zip(metrics()) {
        let (answers, one) = random_case(metric, n, seed);
        let mut other = random_case(metric, n, seed + 100).1;
        other[..200].clone_from_slice(&one[..200]);
        let table = table(metric, &answers, None);
        let scores = [&one, &other].map(|shown| score_items(&table, metric, shown, false));
        let stored = [0, 1].map(|at| StoredItems {
            values: contributions(&scores[at]),
            rights: match metric.family() {
                Family::Labels => (0..n).map(|item| scores[at].items.is_right(item)).collect(),
                _ => Vec::new(),
            },
        });
        let contribution = Aggregate::new(metric).contribution();
        let [a, b] = [0, 1].map(|at| (&stored[at], &contribution));
        let difference = scores[0].figures.value - scores[1].figures.value;
        let differences: Vec<f64> = (0..n)
            .map(|item| stored[0].values[item] - stored[1].values[item])
            .collect();
        assert!((mean(&differences) - difference).abs() <= 1e-12, "{metric}");

        let mut pairs = Pairs::new(metric);
        pairs.add(a, b, None);
        let found = pairs.finish(difference, 0.01, true);
        let is_mean = metric.can_average_clusters();
        let expected = if is_mean {
            ("permutation", "normal")
        } else {
            ("wald", "delta")
        };
        assert_eq!((found.p_method, found.ci_method), expected, "{metric}");
        assert!(found.p_value > 0.0 && found.p_value < 1.0, "{metric}");
        let squares: f64 = differences
            .iter()
            .map(|one| (one - difference).powi(2))
            .sum();
        let stderr = (squares / 399.0 / 400.0).sqrt();
        assert!((found.stderr.unwrap() - stderr).abs() <= 1e-12, "{metric}");

        let clusters: Vec<u32> = (0..n as u32).map(|item| item % 40).collect();
        let mut pairs = Pairs::new(metric);
        pairs.add(a, b, Some(&clusters));
        let found = pairs.finish(difference, 0.01, true);
        let expected = ("cluster_sign_flip", "cluster_t");
        assert_eq!((found.p_method, found.ci_method), expected, "{metric}");
        assert!(found.p_value > 0.0 && found.p_value < 1.0, "{metric}");
    }
}

#[test]
fn constant_and_right_labels_have_exact_agreement() {
    let answers: Vec<Value> = (0..40).map(|at| json!(["x", "y", "z"][at % 3])).collect();
    for metric in ["mcc", "kappa", "kappa_quadratic"].map(|name| name.parse().unwrap()) {
        for average in [None, Some((|item| item as u32 % 20) as fn(usize) -> u32)] {
            let table = table(metric, &answers, average);
            for constant in ["x", "other"] {
                let prediction = json!(constant);
                let found = score_items(&table, metric, &vec![prediction; 40], false).figures;
                let estimate = found.estimate.unwrap();
                assert_eq!(
                    (found.value, estimate.stderr, estimate.ci95),
                    (0.0, 0.0, [0.0; 2])
                );
            }
            let found = score_items(&table, metric, &answers, false).figures;
            assert_eq!(found.value, 1.0);
            assert!(found.estimate.unwrap().stderr < 1e-15);
        }
    }
}

#[test]
fn trivial_submissions_of_labels_have_chance_values() {
    let labels: Vec<Value> = (0..10)
        .map(|at| json!(["x", "y", "x", "z"][at % 4]))
        .collect();
    for (name, expected) in [
        ("balanced_accuracy", 1.0 / 3.0),
        ("mcc", 0.0),
        ("kappa", 0.0),
        ("kappa_quadratic", 0.0),
    ] {
        let metric = name.parse().unwrap();
        let [trivial] = trivial_submissions(&table(metric, &labels, None), metric)[..] else {
            panic!("{name}");
        };
        assert_eq!(
            (trivial.name, trivial.value),
            ("most frequent label", expected)
        );
    }
}

#[test]
fn order_and_repetitions_do_not_count_in_sets() {
    let answers = [
        json!(["x", "y"]),
        json!({"x": 2, "y": 0.5, "z": 0}),
        json!("x"),
    ];
    let with_metric = |metric: Metric, prediction: Value| {
        let table = table(metric, &answers, None);
        let predictions = vec![prediction; 3];
        contributions(&score_items(&table, metric, &predictions, false))
    };
    let f1 = |prediction: Value| with_metric(Metric::F1Set, prediction);
    assert_eq!(f1(json!(["z", "x", "z"])), [0.5, 0.5, 2.0 / 3.0]);
    assert_eq!(f1(json!("x")), [2.0 / 3.0, 2.0 / 3.0, 1.0]);
    let of = |prediction: Value| with_metric(Metric::Jaccard, prediction);
    let expected = [1.0 / 3.0, 1.0 / 3.0, 0.5];
    assert_eq!(of(json!(["x", "z"])), expected);
    assert_eq!(of(json!(["z", "x", "z", "z", "x"])), expected);
    assert_eq!(of(json!("x")), [0.5, 0.5, 1.0]);
    assert_eq!(of(json!([])), [0.0; 3]);
    // The whole prediction counts, and many ids are compared by a map.
    let many: Vec<String> = (0..98).map(|at| at.to_string()).collect();
    let many = [many, vec!["x".into(), "y".into()]].concat();
    assert_eq!(of(json!(many)), [0.02, 0.02, 0.01]);
    assert_eq!(of(json!([many.clone(), many].concat())), [0.02, 0.02, 0.01]);
}

/// The trivial submission of sets has the best number of ids: no other number has a larger value.
#[test]
fn best_number_of_frequent_answers_is_trivial() {
    let answers: Vec<Value> = (0..60)
        .map(|at| match at % 4 {
            0 => json!("a"),
            1 => json!(["a", "b", format!("rare {at}")]),
            2 => json!({"a": 1, "b": 1, "c": 9}),
            _ => json!(["a", "b"]),
        })
        .collect();
    for metric in ["jaccard", "f1_set"].map(|name| name.parse().unwrap()) {
        let table = table(metric, &answers, None);
        let of = |n: usize| {
            let ids = &["a", "b", "c", "rare 1", "rare 13"][..n];
            score_items(&table, metric, &vec![json!(ids); 60], false)
                .figures
                .value
        };
        let values = [1, 2, 3, 4, 5].map(of);
        let best = values.into_iter().fold(0.0, f64::max);
        assert!(best > values[0] && best > values[4], "{metric}: {values:?}");
        let [trivial] = trivial_submissions(&table, metric)[..] else {
            panic!("{metric}");
        };
        assert_eq!(
            (trivial.name, trivial.value),
            ("most frequent answers", best)
        );
    }
}

#[test]
fn average_over_clusters_is_that_of_item_scores() {
    for metric in ["jaccard", "f1_set"].map(|name| name.parse::<Metric>().unwrap()) {
        let (answers, predictions) = random_case(metric, 400, 1);
        // Cluster 0 has more items than the others.
        let cluster_of = |item: usize| (item as u32 % 40).saturating_sub(9);
        let mut builder = Builder::new(metric, 400).average(crate::clusters::Average::Cluster);
        for (item, answer) in answers.iter().enumerate() {
            let answer = answer.to_string();
            let answer = Answer::parse(&answer, &metric).unwrap();
            builder.push(&format!("i{item}"), &answer).unwrap();
            builder.put_into_cluster(cluster_of(item));
        }
        let found = score_items(&builder.finish().unwrap(), metric, &predictions, false);
        let scores = contributions(&found);
        let values: Vec<f64> = (0..31)
            .map(|cluster| {
                let in_cluster = (0..400).filter(|item| cluster_of(*item) == cluster);
                mean(&in_cluster.map(|item| scores[item]).collect::<Vec<_>>())
            })
            .collect();
        assert!(
            (found.figures.value - mean(&values)).abs() <= 1e-12,
            "{metric}"
        );
        let estimate = found.figures.estimate.unwrap();
        assert_eq!(estimate.method, "cluster_t");
    }
}

#[test]
fn area_against_the_rest_needs_all_predictions() {
    let (answers, mut predictions) = random_case(Metric::AucOvr, 30, 1);
    let table = table(Metric::AucOvr, &answers, None);
    let [trivial] = trivial_submissions(&table, Metric::AucOvr)[..] else {
        panic!();
    };
    assert_eq!((trivial.name, trivial.value), ("label frequencies", 0.5));
    // Labels that the suite does not have lose their probability.
    predictions[0] = json!({"other": 1});
    score_items(&table, Metric::AucOvr, &predictions, false);
    let shown = json!([{"item_id": "i0", "prediction": {"l0": 1}}]).to_string();
    let progress = Progress::default();
    let Err(Failure::InvalidPredictions(message)) =
        score(&table, None, Metric::AucOvr, shown.as_bytes(), &progress)
    else {
        panic!("29 predictions are missing");
    };
    let expected = "auc_ovr needs a prediction for each item of the suite: 29 are missing";
    assert_eq!(message, expected);
}

#[test]
fn ceiling_is_the_value_of_the_retest() {
    let metrics = metrics().filter(|metric| metric.takes_retest());
    for (seed, metric) in (1..).zip(metrics) {
        let (answers, mut retest) = random_case(metric, 400, seed);
        for answer in &mut retest {
            if answer.is_null() {
                *answer = json!("l0");
            }
        }
        let mut table = table(metric, &answers, Some(|item| item as u32 % 40));
        let mut builder = CeilingBuilder::new(&table, metric);
        for (item, answer) in retest.iter().enumerate() {
            let answers = json!([answer]).to_string();
            assert_eq!(builder.add(&format!("i{item}"), &answers), Ok(true));
        }
        let scores = builder.finish().unwrap();
        let ceiling = scores.ceiling();
        let expected = score_items(&table, metric, &retest, false).figures;
        let near = |one: f64, other: f64| (one - other).abs() <= 1e-12;
        assert!(near(ceiling.value, expected.value), "{metric}");
        let stderr = expected.estimate.unwrap().stderr;
        assert!(near(ceiling.stderr.unwrap(), stderr), "{metric}");

        table.set_retest(scores);
        let predictions = random_case(metric, 400, seed + 100).1;
        let found = score_items(&table, metric, &predictions, false).figures;
        let share = found.share_of_ceiling.unwrap();
        assert!(near(share.value, found.value / ceiling.value), "{metric}");
        // A job with the answers of the retest reaches the ceiling, without an error.
        let found = score_items(&table, metric, &retest, false).figures;
        let share = found.share_of_ceiling.unwrap();
        assert!(
            near(share.value, 1.0) && share.stderr.unwrap() < 1e-12,
            "{metric}"
        );
    }
}
