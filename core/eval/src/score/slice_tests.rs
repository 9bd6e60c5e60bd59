//! Figures of slices.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::StandardNormal;
use serde_json::{Value, json};
use statrs::distribution::{ContinuousCDF as _, StudentsT};

use super::*;
use crate::clusters::Average;
use crate::metric::{Family, Metric};
use crate::quantile_levels::QuantileLevels;
use crate::simulation::{allowance, n_samples};
use crate::slices::{FieldSlices, NO_SLICE};
use crate::suite::answers::Answer;

const METRICS: [&str; 25] = [
    "accuracy",
    "hit_rate@2",
    "ndcg@2",
    "jaccard",
    "f1_set",
    "exact_match",
    "f1_macro",
    "f1_micro",
    "balanced_accuracy",
    "mcc",
    "kappa",
    "rmse",
    "mae",
    "spearman",
    "pearson",
    "kendall",
    "ccc",
    "r2",
    "log_loss",
    "brier",
    "auc",
    "auc_ovr",
    "ece@15",
    "pinball",
    "wis",
];

/// A random suite and submission: each item's answer, prediction, cluster and slice.
struct Case {
    metric: Metric,
    answers: Vec<Value>,
    /// `null` for an item without a prediction.
    predictions: Vec<Value>,
    clusters: Vec<u32>,
    codes: Vec<u8>,
}

/// Items are in clusters, and the value is the metric over all items.
const BY_ITEM: Option<Average> = Some(Average::Item);

const GROUPS: [&str; 3] = ["a", "b", "_other"];

impl Case {
    fn random(seed: u64, metric: Metric) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let n = 400;
        let mut case = Self {
            metric,
            answers: Vec::new(),
            predictions: Vec::new(),
            clusters: (0..n).map(|_| random.random_range(0..40)).collect(),
            codes: (0..n)
                .map(|_| [0, 0, 1, 2, NO_SLICE][random.random_range(0..5_usize)])
                .collect(),
        };
        let n_labels = if metric == Metric::Auc { 2 } else { 3 };
        for _ in 0..n {
            let right = random.random_range(0..n_labels);
            let mut label = || format!("l{}", random.random_range(0..n_labels));
            let (answer, prediction) = match metric.family() {
                Family::Rankings => (json!(format!("l{right}")), json!([label(), label()])),
                // A label that the suite does not have, now and then.
                Family::Labels if right == 1 => (json!("l1"), json!(label() + "?")),
                Family::Labels => (json!(format!("l{right}")), json!(label())),
                Family::Numbers => {
                    let answer: f64 = random.sample(StandardNormal);
                    let noise: f64 = random.sample(StandardNormal);
                    let prediction = ((answer + noise) * 4.0).round() / 4.0;
                    (json!((answer * 4.0).round() / 4.0), json!(prediction))
                }
                Family::Probabilities => {
                    let weights: Vec<f64> = (0..n_labels).map(|_| random.random()).collect();
                    let sum: f64 = weights.iter().sum();
                    let shares: serde_json::Map<String, Value> = (0..n_labels)
                        .map(|at| (format!("l{at}"), json!(weights[at] / sum)))
                        .collect();
                    (json!(format!("l{right}")), json!(shares))
                }
                Family::Quantiles => {
                    let answer: f64 = random.sample(StandardNormal);
                    let low: f64 = random.sample(StandardNormal);
                    let numbers = json!({"0.1": low, "0.5": low + 0.5, "0.9": low + 2.0});
                    (json!((answer * 4.0).round() / 4.0), numbers)
                }
            };
            let is_missing = metric.has_item_scores() && random.random_bool(0.05);
            case.answers.push(answer);
            case.predictions
                .push(if is_missing { Value::Null } else { prediction });
        }
        case
    }

    /// Scores the items for which `is_in` returns `true`, as a suite of their own. Without an average,
    /// items are independent.
    fn score(&self, average: Option<Average>, is_in: impl Fn(usize) -> bool) -> Score {
        let clip = self.metric.clip(0.0, 9.0).ok();
        let groups = GROUPS.map(str::to_owned).into();
        let levels = QuantileLevels::new(&[0.1, 0.5, 0.9]).unwrap();
        let mut builder = Builder::new(self.metric, 0)
            .clip(clip)
            .quantiles(Some(levels))
            .average(average.unwrap_or_default())
            .slices(vec![FieldSlices::new("group".into(), groups)]);
        for item in (0..self.answers.len()).filter(|item| is_in(*item)) {
            let answer = self.answers[item].to_string();
            let answer = Answer::parse(&answer, &self.metric).unwrap();
            builder.push(&format!("i{item}"), &answer).unwrap();
            builder.put_into_slices(&[self.codes[item]]);
            if average.is_some() {
                builder.put_into_cluster(self.clusters[item]);
            }
        }
        let shown = (0..self.answers.len()).filter(|item| !self.predictions[*item].is_null());
        let predictions: Vec<Value> = shown
            .map(
                |item| json!({"item_id": format!("i{item}"), "prediction": self.predictions[item]}),
            )
            .collect();
        score(
            &builder.finish().unwrap(),
            None,
            self.metric,
            json!(predictions).to_string().as_bytes(),
            &Progress::default(),
        )
        .unwrap()
    }
}

impl Case {
    /// Returns a suite with one item for each cluster of a slice, and the means over their values.
    fn means(&self, items: &[f64]) -> (Self, Vec<f64>) {
        let mut values: BTreeMap<(u8, u32), Vec<f64>> = BTreeMap::new();
        for (item, value) in items.iter().enumerate() {
            let key = (self.codes[item], self.clusters[item]);
            values.entry(key).or_default().push(*value);
        }
        let mean = |values: &Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
        let case = Self {
            metric: self.metric,
            answers: Vec::new(),
            predictions: Vec::new(),
            clusters: values.keys().map(|(_, cluster)| *cluster).collect(),
            codes: values.keys().map(|(code, _)| *code).collect(),
        };
        (case, values.values().map(mean).collect())
    }
}

fn metrics() -> impl Iterator<Item = Metric> {
    METRICS.into_iter().map(|name| name.parse().unwrap())
}

#[test]
fn slice_scores_like_a_suite_with_its_items() {
    for (seed, metric) in (1..).zip(metrics()) {
        let case = Case::random(seed, metric);
        for average in [None, BY_ITEM, Some(Average::Cluster)] {
            if average == Some(Average::Cluster) && !metric.can_average_clusters() {
                continue;
            }
            let whole = case.score(average, |_| true);
            let [field] = whole.figures.slices.as_slice() else {
                panic!("{metric}");
            };
            assert_eq!(field.field, "group");
            for (code, slice) in (0..).zip(&field.groups) {
                let alone = case.score(average, |item| case.codes[item] == code);
                let Figures {
                    value,
                    estimate,
                    clusters,
                    ..
                } = alone.figures;
                let near = |one: f64, other: f64| (one - other).abs() < 1e-12;
                assert_eq!(slice.group, GROUPS[usize::from(code)]);
                assert_eq!((slice.n, slice.n_missing), (alone.n, alone.n_missing));
                assert_eq!(slice.n_clusters, clusters.map(|clusters| clusters.n));
                assert!(near(slice.value, value), "{metric} {average:?}");
                let estimate = estimate.unwrap();
                assert!(
                    near(slice.stderr.unwrap(), estimate.stderr),
                    "{metric} {average:?}: {slice:?} {estimate:?}"
                );
                let [low, high] = slice.ci95.unwrap();
                assert!(near(low, estimate.ci95[0]) && near(high, estimate.ci95[1]));
            }
        }
    }
}

#[test]
fn slices_change_no_other_figure() {
    for (seed, metric) in (1..).zip(metrics()) {
        let case = Case::random(seed, metric);
        let with = case.score(BY_ITEM, |_| true);
        let mut without = Case {
            codes: vec![NO_SLICE; case.codes.len()],
            ..Case::random(seed, metric)
        }
        .score(BY_ITEM, |_| true);
        assert_eq!(with.items, without.items, "{metric}");
        without.figures.slices = with.figures.slices.clone();
        assert_eq!(with.figures, without.figures, "{metric}");
    }
}

/// Returns the standard error of the difference between two slices by the formula: √(G/(G − 1) ·
/// Σ (U_a/n_a − U_b/n_b)²), where G counts the clusters in either slice. For an average over clusters,
/// `items` has one item for each cluster of a slice.
fn stderr_of_difference(case: &Case, items: &[f64], [a, b]: [u8; 2]) -> f64 {
    let mean_of = |code: u8| -> (f64, f64) {
        let values: Vec<f64> = (0..items.len())
            .filter(|item| case.codes[*item] == code)
            .map(|item| items[item])
            .collect();
        let n = values.len() as f64;
        (values.iter().sum::<f64>() / n, n)
    };
    let mut by_cluster: HashMap<u32, f64> = HashMap::new();
    for (code, sign) in [(a, 1.0), (b, -1.0)] {
        let (mean, n) = mean_of(code);
        for (item, value) in items.iter().enumerate() {
            if case.codes[item] == code {
                let deviation = sign * (value - mean) / n;
                *by_cluster.entry(case.clusters[item]).or_default() += deviation;
            }
        }
    }
    let n = by_cluster.len() as f64;
    let squares: f64 = by_cluster.values().map(|sum| sum * sum).sum();
    (n / (n - 1.0) * squares).sqrt()
}

#[test]
fn gap_follows_from_all_pairs() {
    let by_cluster = Some(Average::Cluster);
    for (seed, average) in [(1, BY_ITEM), (2, BY_ITEM), (3, None), (4, by_cluster)] {
        let mut case = Case::random(seed, Metric::Brier);
        let score = case.score(average, |_| true);
        let is_clustered = average.is_some();
        let mut items: Vec<f64> = (0..400).map(|item| score.items.value(item)).collect();
        if average == by_cluster {
            (case, items) = case.means(&items);
        }
        let field = &score.figures.slices[0];
        let groups = &field.groups;
        let degrees = |code: u8| {
            if !is_clustered {
                return groups[usize::from(code)].n as f64 - 1.0;
            }
            let mut sizes: HashMap<u32, f64> = HashMap::new();
            let in_slice = (0..items.len()).filter(|item| case.codes[*item] == code);
            in_slice.for_each(|item| *sizes.entry(case.clusters[item]).or_default() += 1.0);
            let n: f64 = sizes.values().sum();
            n * n / sizes.values().map(|size| size * size).sum::<f64>() - 1.0
        };
        let gap = field.gap.as_ref().unwrap();
        let mut p_value = 1.0_f64;
        let mut expected = None;
        for (a, b) in [(0, 1), (0, 2), (1, 2)] {
            let [one, other] = [a, b].map(|code| &groups[usize::from(code)]);
            let difference = (one.value - other.value).abs();
            let stderr = if is_clustered {
                stderr_of_difference(&case, &items, [a, b])
            } else {
                one.stderr.unwrap().hypot(other.stderr.unwrap())
            };
            let t = StudentsT::new(0.0, 1.0, degrees(a).min(degrees(b))).unwrap();
            p_value = p_value.min(3.0 * 2.0 * t.sf(difference / stderr));
            let names = BTreeSet::from([one.group.as_str(), other.group.as_str()]);
            if names == BTreeSet::from([gap.best.as_str(), gap.worst.as_str()]) {
                let half = t.inverse_cdf(1.0 - 0.025 / 3.0) * stderr;
                expected = Some((
                    difference,
                    [(difference - half).max(0.0), difference + half],
                ));
            }
        }
        let (value, ci95) = expected.unwrap();
        assert_eq!((gap.n_pairs, &field.worst), (3, &gap.worst));
        let near = |one: f64, other: f64| (one - other).abs() < 1e-9;
        assert!(near(gap.value, value));
        let found = gap.ci95.unwrap();
        assert!(
            near(found[0], ci95[0]) && near(found[1], ci95[1]),
            "{found:?} {ci95:?}"
        );
        assert!(near(gap.p_value.unwrap(), p_value.min(1.0)));
        let worst = groups.iter().map(|slice| slice.value).fold(0.0, f64::max);
        let named = groups.iter().find(|slice| slice.group == gap.worst);
        assert_eq!(named.unwrap().value, worst);
    }
}

#[test]
fn rounded_gap_is_that_of_rounded_figures() {
    let case = Case::random(4, Metric::Brier);
    let field = case.score(BY_ITEM, |_| true).figures.slices.remove(0);
    let round = |figure: f64| (figure * 100.0).round() / 100.0;
    let rounded = field.clone().rounded(round);
    let value_of = |group: &str| {
        let slice = rounded.groups.iter().find(|slice| slice.group == group);
        slice.unwrap().value
    };
    let gap = rounded.gap.as_ref().unwrap();
    assert_eq!(gap.value, round(value_of(&gap.worst) - value_of(&gap.best)));
    for (exact, rounded) in field.groups.iter().zip(&rounded.groups) {
        assert_eq!(rounded.value, round(exact.value));
        assert_eq!(rounded.stderr, exact.stderr.map(round));
    }
    assert_ne!(gap.p_value, field.gap.unwrap().p_value);
}

#[test]
fn values_alone_have_no_gap() {
    let case = Case::random(4, Metric::Brier);
    let field = case.score(BY_ITEM, |_| true).figures.slices.remove(0);
    let shown = field.values_only(|place, _| [0.5, 0.75, 0.75][place]);
    let values = shown
        .groups
        .iter()
        .map(|slice| (slice.value, slice.stderr, slice.ci95));
    assert!(values.eq([0.5, 0.75, 0.75].map(|value| (value, None, None))));
    assert_eq!((shown.worst.as_str(), shown.gap), ("_other", None));
}

#[test]
fn correlation_of_constant_predictions_has_no_uncertainty() {
    let mut case = Case::random(5, Metric::Spearman);
    for (item, code) in case.codes.iter().enumerate() {
        if *code == 1 {
            case.predictions[item] = json!(1);
        }
    }
    let field = case.score(BY_ITEM, |_| true).figures.slices.remove(0);
    let slice = &field.groups[1];
    assert_eq!((slice.value, slice.stderr, slice.ci95), (0.0, None, None));
    let gap = field.gap.unwrap();
    assert!(gap.p_value.is_some());
    assert_eq!((gap.worst.as_str(), gap.ci95), ("b", None));
}

/// Returns the share of false gaps at 5 % among groups of persons that are all equal.
fn false_gaps(n_groups: usize, n_persons: usize, samples: u64) -> f64 {
    let groups: Vec<String> = (0..n_groups).map(|group| group.to_string()).collect();
    let mut found = 0;
    for seed in 0..samples {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let fields = vec![FieldSlices::new("group".into(), groups.clone())];
        let mut builder = Builder::new(Metric::Accuracy, 0).slices(fields);
        let mut predictions = Vec::new();
        for person in 0..n_persons {
            let code = (person % n_groups) as u8;
            let ease: f64 = random.sample(StandardNormal);
            for item in 0..9 {
                let item_id = format!("{person}:{item}");
                let is_right = random.random_bool(1.0 / (1.0 + (-ease).exp()));
                builder
                    .push(
                        &item_id,
                        &Answer::parse("\"x\"", &Metric::Accuracy).unwrap(),
                    )
                    .unwrap();
                builder.put_into_cluster(person as u32);
                builder.put_into_slices(&[code]);
                let label = if is_right { "x" } else { "y" };
                predictions.push(json!({"item_id": item_id, "prediction": [label]}));
            }
        }
        let table = builder.finish().unwrap();
        let predictions = json!(predictions).to_string();
        let progress = Progress::default();
        let score = score(
            &table,
            None,
            Metric::Accuracy,
            predictions.as_bytes(),
            &progress,
        );
        let gap = score.unwrap().figures.slices.remove(0).gap.unwrap();
        found += u64::from(gap.p_value.unwrap() <= 0.05);
    }
    found as f64 / samples as f64
}

#[test]
fn equal_groups_have_few_false_gaps() {
    let samples = n_samples(100);
    for (n_groups, n_persons) in [(4, 100), (4, 704), (10, 300), (20, 704)] {
        let share = false_gaps(n_groups, n_persons, samples);
        println!(
            "{n_groups} groups of {n_persons} persons: {:.1} %",
            100.0 * share
        );
        assert!(
            share <= 0.055 + allowance(0.055, samples),
            "{n_groups}: {share}"
        );
    }
}
