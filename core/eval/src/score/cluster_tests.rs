//! Figures over items in clusters.

use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use super::*;
use crate::metric::{Family, Metric};
use crate::simulation::{Persons, Sizes, allowance, n_samples};
use crate::stats::clustered;
use crate::stats::confidence::Z;
use crate::suite::answers::Answer;

/// A suite and a submission, by item.
struct Case {
    answers: Vec<Value>,
    /// `null` for an item without a prediction.
    predictions: Vec<Value>,
    clusters: Vec<u32>,
}

impl Case {
    fn of(case: &Value) -> Self {
        let values = |field: &str| case[field].as_array().unwrap().clone();
        Self {
            answers: values("answers"),
            predictions: values("predictions"),
            clusters: values("clusters")
                .iter()
                .map(|cluster| cluster.as_u64().unwrap() as u32)
                .collect(),
        }
    }

    /// Scores the predictions in this order of the items.
    fn score_in_order(&self, metric: Metric, is_clustered: bool, order: &[usize]) -> Score {
        let mut builder = Builder::new(metric, self.answers.len());
        for (item, answer) in self.answers.iter().enumerate() {
            let answer = answer.to_string();
            let answer = Answer::parse(&answer, &metric).unwrap();
            builder.push(&format!("i{item}"), &answer).unwrap();
            if is_clustered {
                builder.put_into_cluster(self.clusters[item]);
            }
        }
        let shown = order
            .iter()
            .filter(|item| !self.predictions[**item].is_null());
        let predictions: Vec<Value> = shown
            .map(|item| json!({"item_id": format!("i{item}"), "prediction": self.predictions[*item]}))
            .collect();
        score(
            &builder.finish().unwrap(),
            None,
            metric,
            json!(predictions).to_string().as_bytes(),
            &Progress::default(),
        )
        .unwrap()
    }

    fn score(&self, metric: Metric) -> Score {
        let order: Vec<usize> = (0..self.answers.len()).collect();
        self.score_in_order(metric, true, &order)
    }

    fn score_as_independent(&self, metric: Metric) -> Score {
        let order: Vec<usize> = (0..self.answers.len()).collect();
        self.score_in_order(metric, false, &order)
    }

    fn n_clusters(&self) -> usize {
        let mut clusters = self.clusters.clone();
        clusters.sort_unstable();
        clusters.dedup();
        clusters.len()
    }
}

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../../../tests/vectors/clusters.json")).unwrap()
}

/// Returns the suites of the vectors, each with its metrics and its name.
fn cases() -> Vec<(Case, serde_json::Map<String, Value>, String)> {
    let vectors = vectors();
    let cases = vectors["suites"].as_array().unwrap().iter();
    cases
        .map(|case| {
            let figures = case["figures"].as_object().unwrap().clone();
            (Case::of(case), figures, case["name"].to_string())
        })
        .collect()
}

/// The largest differences that were seen, by what was compared.
#[derive(Default)]
struct Worst(std::collections::BTreeMap<String, f64>);

impl Worst {
    fn see(&mut self, what: &str, difference: f64) {
        let worst = self.0.entry(what.to_owned()).or_default();
        *worst = worst.max(difference);
    }
}

#[test]
fn estimates_agree_with_statsmodels_and_scipy() {
    let mut worst = Worst::default();
    let mut compared = 0;
    for (case, figures, name) in cases() {
        for (metric_name, expected) in figures {
            let metric: Metric = metric_name.parse().unwrap();
            let found = case.score(metric).figures;
            let number = |field: &str| expected[field].as_f64();
            let is_mean = !matches!(
                metric,
                Metric::Rmse | Metric::Spearman | Metric::Auc | Metric::F1Macro | Metric::F1Micro
            );
            let value = number("value").unwrap();
            assert!(
                (found.value - value).abs() <= 1e-12 * value.abs().max(1.0),
                "{name} {metric}: {} {value}",
                found.value
            );
            let clusters = found.clusters.unwrap();
            assert_eq!(clusters.n, case.n_clusters() as i64, "{name}");
            compared += 1;
            let Some(stderr) = number("stderr") else {
                assert_eq!(found.estimate, None, "{name} {metric}");
                assert_eq!(clusters.design_effect, None, "{name} {metric}");
                continue;
            };
            let estimate = found.estimate.unwrap();
            assert_eq!(estimate.method, expected["method"], "{name} {metric}");
            // A sum of influences over a cluster can be 0 but for rounding.
            let far = (estimate.stderr - stderr).abs() / stderr.max(1e-9);
            let (kind, limit) = if is_mean {
                ("stderr of means", 1e-12)
            } else {
                ("stderr of functions", 1e-11)
            };
            worst.see(kind, far);
            assert!(
                far <= limit,
                "{name} {metric}: {} {stderr}",
                estimate.stderr
            );
            for (end, expected) in estimate
                .ci95
                .iter()
                .zip(expected["ci95"].as_array().unwrap())
            {
                let far = (end - expected.as_f64().unwrap()).abs() / end.abs().max(1.0);
                worst.see(estimate.method, far);
                assert!(far <= 1e-12, "{name} {metric}: {estimate:?} {expected}");
            }
            if let Some(effect) = number("design_effect") {
                let far = (clusters.design_effect.unwrap() / effect - 1.0).abs();
                assert!(far <= 1e-11 || effect < 1e-12, "{name} {metric}: {far}");
            }
        }
    }
    println!("{compared} figures, largest differences: {:?}", worst.0);
    assert!(compared > 500, "{compared}");
}

#[test]
fn quantiles_agree_with_scipy() {
    let mut worst = 0.0_f64;
    for pair in vectors()["quantiles"].as_array().unwrap() {
        let [degrees, expected] = [0, 1].map(|at| pair[at].as_f64().unwrap());
        let far = (clustered::half_width(degrees) / expected - 1.0).abs();
        worst = worst.max(far);
    }
    println!("largest difference of a quantile: {worst:e}");
    assert!(worst <= 1e-12, "{worst}");
}

#[test]
fn tails_agree_with_scipy() {
    let mut worst = 0.0_f64;
    for one in vectors()["tails"].as_array().unwrap() {
        let [degrees, t, expected] = [0, 1, 2].map(|at| one[at].as_f64().unwrap());
        let found = clustered::p_value(t * 0.25, 0.25, degrees);
        let far = (found / expected - 1.0).abs();
        // Smaller p-values decide nothing.
        worst = worst.max(if expected > 1e-40 { far } else { 0.0 });
    }
    println!("largest difference of a p-value: {worst:e}");
    assert!(worst <= 1e-9, "{worst}");
}

#[test]
fn order_of_predictions_changes_no_bit() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
    for (case, figures, name) in cases().into_iter().step_by(3) {
        for metric in figures.keys() {
            let metric: Metric = metric.parse().unwrap();
            let expected = case.score(metric);
            let mut order: Vec<usize> = (0..case.answers.len()).collect();
            order.shuffle(&mut random);
            let found = case.score_in_order(metric, true, &order);
            assert_eq!(found, expected, "{name} {metric}");
        }
    }
}

/// Returns the relative difference of two standard errors.
fn apart(one: f64, other: f64) -> f64 {
    (one - other).abs() / one.max(other).max(1e-300)
}

#[test]
fn single_items_have_independent_stderr() {
    let mut compared = 0;
    for (mut case, figures, name) in cases() {
        let n = case.answers.len();
        case.clusters = (0..n as u32).rev().collect();
        for metric in figures.keys() {
            let metric: Metric = metric.parse().unwrap();
            let (one, other) = (case.score(metric), case.score_as_independent(metric));
            assert_eq!(one.figures.value, other.figures.value);
            let (Some(found), Some(independent)) = (one.figures.estimate, other.figures.estimate)
            else {
                continue;
            };
            let far = apart(found.stderr, independent.stderr);
            let n = n as f64;
            match metric {
                // Without clusters these use a formula of their own for the standard error.
                Metric::Spearman => {}
                Metric::Auc => assert!(far <= 0.1, "{name} {metric}: {far}"),
                // The variance of a share has the divisor n, not n - 1.
                Metric::Accuracy | Metric::HitRate(_) | Metric::ExactMatch => {
                    let far = apart(found.stderr * ((n - 1.0) / n).sqrt(), independent.stderr);
                    assert!(far <= 1e-12, "{name} {metric}: {far}");
                }
                _ => {
                    assert!(far <= 1e-12, "{name} {metric}: {far}");
                    // Student's t is wider than the normal distribution.
                    let q = clustered::half_width(n - 1.0);
                    let half = |ends: [f64; 2]| one.figures.value - ends[0];
                    if independent.ci95[0] > 0.0 && found.ci95[0] > 0.0 && found.stderr > 0.0 {
                        let ratio = half(found.ci95) / half(independent.ci95);
                        assert!((ratio / (q / Z) - 1.0).abs() <= 1e-9, "{name} {metric}");
                    }
                }
            }
            compared += 1;
        }
    }
    assert!(compared > 500, "{compared}");
}

#[test]
fn scale_of_numbers_scales_the_estimate() {
    for (case, figures, name) in cases() {
        if !figures.contains_key("rmse") {
            continue;
        }
        // A power of two changes no digit.
        let scaled = |values: &[Value]| -> Vec<Value> {
            values
                .iter()
                .map(|value| {
                    value
                        .as_f64()
                        .map_or(Value::Null, |number| json!(number * 8.0))
                })
                .collect()
        };
        let larger = Case {
            answers: scaled(&case.answers),
            predictions: scaled(&case.predictions),
            clusters: case.clusters.clone(),
        };
        for (metric, factor) in [("rmse", 8.0), ("mae", 8.0), ("spearman", 1.0)] {
            if !figures.contains_key(metric) {
                continue;
            }
            let metric: Metric = metric.parse().unwrap();
            let [one, other] = [&case, &larger].map(|case| case.score(metric).figures);
            assert_eq!(one.value * factor, other.value, "{name} {metric}");
            let estimate = one
                .estimate
                .map(|estimate| estimate.map(|end| end * factor));
            assert_eq!(estimate, other.estimate, "{name} {metric}");
            assert_eq!(one.clusters, other.clusters, "{name} {metric}");
        }
    }
}

#[test]
fn numbers_of_clusters_change_no_bit() {
    for (case, figures, name) in cases().into_iter().step_by(5) {
        let renamed = Case {
            answers: case.answers.clone(),
            predictions: case.predictions.clone(),
            clusters: case.clusters.iter().map(|one| u32::MAX - 7 * one).collect(),
        };
        for metric in figures.keys() {
            let metric: Metric = metric.parse().unwrap();
            assert_eq!(case.score(metric), renamed.score(metric), "{name} {metric}");
        }
    }
}

/// Returns a suite of probabilities whose persons are more or less sure.
fn probabilities(n_clusters: u32, n_each: u32, seed: u64) -> Case {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut case = Case {
        answers: Vec::new(),
        predictions: Vec::new(),
        clusters: Vec::new(),
    };
    for cluster in 0..n_clusters {
        let right: f64 = random.random_range(0.3..1.0);
        for _ in 0..n_each {
            let is_x = random.random_bool(0.5);
            let confidence = f64::from(random.random_range(33..64)) / 64.0;
            let says_x = is_x == random.random_bool(right);
            let [x, y] = if says_x {
                [confidence, 1.0 - confidence]
            } else {
                [1.0 - confidence, confidence]
            };
            case.answers.push(json!(if is_x { "x" } else { "y" }));
            case.predictions.push(json!({"x": x, "y": y}));
            case.clusters.push(cluster);
        }
    }
    case
}

#[test]
fn bootstrap_draws_whole_clusters() {
    // Copies of one item are one item.
    let once = probabilities(60, 1, 3);
    let copied = |values: &[Value]| -> Vec<Value> {
        values
            .iter()
            .flat_map(|value| std::iter::repeat_n(value.clone(), 4))
            .collect()
    };
    let copies = Case {
        answers: copied(&once.answers),
        predictions: copied(&once.predictions),
        clusters: (0..240).map(|item| item / 4).collect(),
    };
    let [one, four] = [&once, &copies].map(|case| case.score(Metric::Ece).figures);
    assert!((one.value - four.value).abs() <= 1e-12);
    let [one, four] = [one, four].map(|figures| figures.estimate.unwrap());
    assert_eq!(one.method, "cluster_bootstrap");
    assert!(apart(one.stderr, four.stderr) <= 1e-12);
    assert!((one.ci95[1] - four.ci95[1]).abs() <= 1e-12);
    // With clusters of one item the replicates are those of independent items.
    let independent = once.score_as_independent(Metric::Ece).figures.estimate;
    let ratio = one.stderr / independent.unwrap().stderr;
    assert!((ratio - (60.0_f64 / 59.0).sqrt()).abs() <= 1e-12, "{ratio}");

    let few = probabilities(9, 20, 4).score(Metric::Ece).figures;
    assert_eq!((few.estimate, few.clusters.unwrap().n), (None, 9));
    // Persons who are right more or less often make the error larger than that of independent items.
    let effects: f64 = (0..10)
        .map(|seed| {
            let figures = probabilities(60, 16, seed).score(Metric::Ece).figures;
            figures.clusters.unwrap().design_effect.unwrap()
        })
        .sum();
    assert!(effects / 10.0 > 1.3, "{effects}");
}

#[test]
fn sealed_items_have_their_own_clusters() {
    let case = probabilities(30, 4, 9);
    let table = |is_sealed: bool| {
        let mut builder = Builder::new(Metric::Brier, 0);
        for item in (0..120).filter(|item| case.clusters[*item].is_multiple_of(3) == is_sealed) {
            let answer = case.answers[item].to_string();
            let answer = Answer::parse(&answer, &Metric::Brier).unwrap();
            builder.push(&format!("i{item}"), &answer).unwrap();
            builder.put_into_cluster(case.clusters[item]);
        }
        builder.finish().unwrap()
    };
    let predictions: Vec<Value> = (0..120)
        .map(|item| json!({"item_id": format!("i{item}"), "prediction": case.predictions[item]}))
        .collect();
    let score = score(
        &table(false),
        Some(&table(true)),
        Metric::Brier,
        json!(predictions).to_string().as_bytes(),
        &Progress::default(),
    )
    .unwrap();
    let sealed = score.sealed.unwrap().figures;
    assert_eq!(score.figures.clusters.unwrap().n, 20);
    assert_eq!(sealed.clusters.unwrap().n, 10);
    assert!(score.figures.estimate.is_some() && sealed.estimate.is_some());
}

#[test]
fn table_needs_a_cluster_for_each_item() {
    let mut builder = Builder::new(Metric::Accuracy, 2);
    for item in ["a", "b"] {
        builder.push(item, &Answer::Label("x".into())).unwrap();
    }
    builder.put_into_cluster(1);
    assert!(builder.finish().is_err());
}

/// The items of a large population of persons, with a metric's answers and predictions.
struct Population {
    case: Case,
    /// The items of each person.
    persons: Vec<std::ops::Range<usize>>,
    metric: Metric,
}

impl Population {
    fn draw(metric: Metric, sizes: Sizes, n_persons: usize) -> Self {
        let persons = Persons::draw(7, n_persons, 2, sizes);
        let items = 0..persons.answers.len();
        let (answers, predictions) = items
            .map(|item| {
                let (answer, label) = (persons.answers[item], persons.labels[0][item]);
                let [one, other] = [0, 1].map(|name| persons.losses[name][item]);
                let right = (-one).exp();
                match metric.family() {
                    Family::Numbers => (json!(other), json!(one)),
                    Family::Probabilities => {
                        let is_x = answer == 0;
                        let x = if is_x { right } else { 1.0 - right };
                        let answer = if is_x { "x" } else { "y" };
                        (json!(answer), json!({"x": x, "y": 1.0 - x}))
                    }
                    _ => (
                        json!(Persons::CLASSES[answer]),
                        json!(Persons::CLASSES[label]),
                    ),
                }
            })
            .unzip();
        let mut ranges = Vec::new();
        let mut end = 0;
        for size in persons.clusters.sizes().iter() {
            ranges.push(end..end + size as usize);
            end += size as usize;
        }
        Self {
            case: Case {
                answers,
                predictions,
                clusters: persons.clusters.item_clusters().to_vec(),
            },
            persons: ranges,
            metric,
        }
    }

    /// Returns the share of person samples whose interval contains the population's value: by cluster,
    /// and as if items were independent.
    fn coverage(&self, n_persons: usize, samples: u64) -> [f64; 2] {
        let value = self.case.score(self.metric).figures.value;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(n_persons as u64);
        let mut covered = [0, 0];
        for _ in 0..samples {
            let mut sample = Case {
                answers: Vec::new(),
                predictions: Vec::new(),
                clusters: Vec::new(),
            };
            for cluster in 0..n_persons as u32 {
                let items = self.persons[random.random_range(0..self.persons.len())].clone();
                let answers = &self.case.answers[items.clone()];
                sample.clusters.extend(answers.iter().map(|_| cluster));
                sample.answers.extend_from_slice(answers);
                let predictions = &self.case.predictions[items];
                sample.predictions.extend_from_slice(predictions);
            }
            let found = sample.score(self.metric).figures;
            let by_cluster = found.estimate.unwrap();
            let effect = found.clusters.unwrap().design_effect.unwrap();
            let half = Z * by_cluster.stderr / effect.sqrt();
            let by_item = [found.value - half, found.value + half];
            for (count, [low, high]) in covered.iter_mut().zip([by_cluster.ci95, by_item]) {
                *count += u64::from(low <= value && value <= high);
            }
        }
        covered.map(|count: u64| count as f64 / samples as f64)
    }
}

/// With `TEST_SAMPLES` of at least 1,000, fewer and more persons are sampled, too.
#[test]
fn intervals_contain_the_population_value() {
    let samples = n_samples(60);
    let (counts, n_population): (&[usize], _) = if samples < 1_000 {
        (&[100], 1_000)
    } else {
        (&[10, 30, 100, 500], 2_000)
    };
    for name in [
        "accuracy", "brier", "log_loss", "rmse", "f1_macro", "auc", "spearman", "pearson",
        "kendall", "ccc", "r2",
    ] {
        for sizes in [Sizes::Equal, Sizes::Unequal] {
            let population = Population::draw(name.parse().unwrap(), sizes, n_population);
            for n_persons in counts {
                let [by_cluster, by_item] = population
                    .coverage(*n_persons, samples)
                    .map(|share| 100.0 * share);
                println!(
                    "{name}, {n_persons} persons, {sizes:?}: {by_item:.1} -> {by_cluster:.1} %"
                );
                // Influences without a bound are skewed.
                let (least, most) = if matches!(name, "log_loss" | "pearson") {
                    (89.0, 98.0)
                } else {
                    (91.0, 98.0)
                };
                if *n_persons >= 100 {
                    let chance = 100.0 * allowance(0.09, samples);
                    assert!(by_cluster >= least - chance, "{name}: {by_cluster}");
                    assert!(by_cluster <= most + chance, "{name}: {by_cluster}");
                }
            }
        }
    }
}
