//! Comparisons over items in clusters.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::StandardNormal;
use serde_json::Value;

use super::contribution::{Aggregate, StoredItems};
use super::difference::Difference;
use super::pairs::Pairs;
use crate::board::{EntryItems, test_pair};
use crate::clusters::Clusters;
use crate::item_scores::{ItemScoresBuilder, Kind};
use crate::metric::Metric;
use crate::score::{Builder, Progress, score};
use crate::simulation::{Persons, Sizes, allowance, assert_at_most, n_samples};
use crate::stats::clustered;
use crate::suite::answers::Answer;

fn stored(values: &[f64]) -> StoredItems {
    StoredItems {
        values: values.to_vec(),
        rights: vec![false; values.len()],
    }
}

/// Compares two jobs with these stored values, in pieces with seven items.
fn compare_stored(
    metric: Metric,
    clusters: Option<&Clusters>,
    a: &StoredItems,
    b: &StoredItems,
    point: f64,
) -> Difference {
    let contribution = |items: &StoredItems| {
        let mut aggregate = Aggregate::new(metric);
        aggregate.add(items);
        aggregate.contribution()
    };
    let (of_a, of_b) = (contribution(a), contribution(b));
    let mean = |items: &StoredItems, of: &super::Contribution| {
        let n = items.values.len();
        (0..n).map(|item| of.of(items.item(item))).sum::<f64>() / n as f64
    };
    let difference = mean(a, &of_a) - mean(b, &of_b);
    let mut pairs = Pairs::new(metric);
    let piece = |items: &StoredItems, from: usize, to: usize| StoredItems {
        values: items.values[from..to].to_vec(),
        rights: items.rights.get(from..to).unwrap_or_default().to_vec(),
    };
    let n = a.values.len();
    for from in (0..n).step_by(7) {
        let to = n.min(from + 7);
        pairs.add(
            (&piece(a, from, to), &of_a),
            (&piece(b, from, to), &of_b),
            clusters.map(|clusters| &clusters.item_clusters()[from..to]),
        );
    }
    pairs.finish(difference, point, true)
}

fn compare(metric: Metric, clusters: Option<&Clusters>, a: &[f64], b: &[f64]) -> Difference {
    compare_stored(metric, clusters, &stored(a), &stored(b), 0.01)
}

/// Returns the p-value of the board's test.
fn board_p_value(metric: Metric, clusters: &Clusters, a: &[f64], b: &[f64]) -> f64 {
    let entry = |values: &[f64]| {
        let mut builder = ItemScoresBuilder::new(Kind::Scores, values.len(), 0.0, false);
        for (item, value) in values.iter().enumerate() {
            builder.set(item, *value);
        }
        EntryItems::new(metric, &builder.finish(), 0.0, true, Some(clusters))
    };
    let found = test_pair(metric, &entry(a), &entry(b));
    f64::from(-found.0.abs()).exp()
}

fn numbers(case: &Value, field: &str) -> Vec<f64> {
    let numbers = case[field].as_array().unwrap().iter();
    numbers.map(|number| number.as_f64().unwrap()).collect()
}

#[test]
fn differences_agree_with_enumeration_and_scipy() {
    let vectors: Value =
        serde_json::from_str(include_str!("../../../../tests/vectors/clusters.json")).unwrap();
    let (mut exact, mut drawn) = (0, 0);
    for (at, case) in vectors["comparisons"]
        .as_array()
        .unwrap()
        .iter()
        .enumerate()
    {
        let metric: Metric = case["metric"].as_str().unwrap().parse().unwrap();
        let (a, b) = (numbers(case, "a"), numbers(case, "b"));
        let labels = numbers(case, "clusters");
        let clusters = Clusters::from_labels(labels.iter().map(|label| *label as u32));
        let found = compare(metric, Some(&clusters), &a, &b);
        let name = format!("case {at}, {metric}");
        let close = |one: f64, other: f64| (one - other).abs() <= 1e-12 * other.abs().max(0.1);
        let number = |field: &str| case[field].as_f64().unwrap();
        assert!(close(found.stderr.unwrap(), number("stderr")), "{name}");
        for (one, other) in found.ci95.unwrap().iter().zip(numbers(case, "ci95")) {
            assert!(close(*one, other), "{name}: {one} {other}");
        }
        assert_eq!(
            (found.ci_method, found.p_method),
            ("cluster_t", "cluster_sign_flip")
        );
        let by_cluster = found.clusters.unwrap();
        let n_clusters_differ = case["n_clusters_differ"].as_u64();
        assert_eq!(Some(by_cluster.n), case["n_clusters"].as_u64(), "{name}");
        assert_eq!(by_cluster.n_differ, n_clusters_differ, "{name}");
        let n_differ = case["n_differ"].as_u64();
        let expected = n_differ.filter(|_| metric.has_item_scores());
        assert!(
            found.n_differ == expected || metric == Metric::F1Macro,
            "{name}"
        );
        let n_clusters_needed = case["n_clusters_needed"].as_u64();
        assert_eq!(by_cluster.n_needed, n_clusters_needed, "{name}");
        assert_eq!(found.n_needed, case["n_needed"].as_u64(), "{name}");
        let p_value = number("p_value");
        if n_clusters_differ <= Some(13) {
            assert!(close(found.p_value, p_value), "{name}: {}", found.p_value);
            exact += 1;
        } else {
            let limit = 4.0 * (p_value * (1.0 - p_value) / 1e4).sqrt() + 2e-4;
            assert!((found.p_value - p_value).abs() <= limit, "{name}");
            drawn += 1;
        }
        let board_value = board_p_value(metric, &clusters, &a, &b);
        // At most 26 differences are enumerated, and the evidence has 24 bits.
        assert!(
            (board_value / p_value - 1.0).abs() <= 1e-5,
            "{name}: {board_value} {p_value}"
        );
        let round = |figure: f64| (figure * 1e3).round() / 1e3;
        let rounded = found.rounded(round(number("difference")), round);
        assert_eq!(
            (rounded.ci_method, rounded.p_method),
            ("cluster_t", "cluster_wald")
        );
        let rounded_p_value = case["rounded"].as_f64();
        assert!(
            (rounded.p_value - rounded_p_value.unwrap_or(1.0)).abs() <= 1e-11,
            "{name}: {} {rounded_p_value:?}",
            rounded.p_value
        );
        assert_eq!((rounded.n_differ, rounded.n_needed), (None, None));
        let counts = rounded.clusters.unwrap();
        assert_eq!((counts.n_differ, counts.n_needed), (None, None));
        // Swapping the jobs changes the sign only.
        let other = compare(metric, Some(&clusters), &b, &a);
        assert_eq!(other.p_value, found.p_value, "{name}");
        assert!(
            close(other.ci95.unwrap()[0], -found.ci95.unwrap()[1]),
            "{name}"
        );
    }
    assert!(exact > 40 && drawn > 5, "{exact} {drawn}");
}

#[test]
fn few_clusters_have_no_interval() {
    let clusters = Clusters::from_labels((0..90).map(|item| item % 9));
    let a: Vec<f64> = (0..90).map(|item| f64::from(item % 7)).collect();
    let b: Vec<f64> = (0..90).map(|item| f64::from(item % 5)).collect();
    for metric in [Metric::Mae, Metric::Rmse, Metric::Auc] {
        let found = compare(metric, Some(&clusters), &a, &b);
        assert_eq!(
            (found.stderr, found.ci95, found.n_needed),
            (None, None, None)
        );
        assert_eq!(found.clusters.unwrap().n_needed, None);
        // The test is exact for any number of clusters.
        assert!(found.p_value < 1.0 && found.p_value >= 0.5_f64.powi(8));
        assert_eq!(found.rounded(0.1, |figure| figure).p_value, 1.0);
    }
}

#[test]
fn single_items_are_compared_as_independent_ones() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(13);
    for metric in [Metric::Mae, Metric::Rmse, Metric::Brier, Metric::Auc] {
        for n in [12, 40] {
            let mut draw = || -> Vec<f64> { (0..n).map(|_| random.random::<f64>()).collect() };
            let (a, mut b) = (draw(), draw());
            if metric != Metric::Rmse {
                b[..n / 2].copy_from_slice(&a[..n / 2]);
            }
            let clusters = Clusters::from_labels(0..n as u32);
            let one = compare(metric, Some(&clusters), &a, &b);
            let other = compare(metric, None, &a, &b);
            let far = (one.stderr.unwrap() / other.stderr.unwrap() - 1.0).abs();
            assert!(far <= 1e-12, "{metric}: {far}");
            let [low, high] = one.ci95.unwrap();
            let half = clustered::half_width(n as f64 - 1.0) * one.stderr.unwrap();
            assert!(((high - low) / 2.0 - half).abs() <= 1e-12);
            if metric != Metric::Auc {
                // The same differences are permuted, with the same random signs.
                assert_eq!(one.p_value, other.p_value, "{metric}");
            }
            assert_eq!(one.n_needed, other.n_needed, "{metric}");
        }
    }
}

#[test]
fn scale_of_losses_changes_no_p_value() {
    let persons = Persons::draw(5, 40, 2, Sizes::Unequal);
    let scaled = |name: usize, factor: f64| -> Vec<f64> {
        let losses = persons.losses[name].iter();
        losses.map(|loss| loss * factor).collect()
    };
    for metric in [Metric::Mae, Metric::Rmse, Metric::LogLoss] {
        let [one, eight] = [1.0, 8.0].map(|factor| {
            let (a, b) = (scaled(0, factor), scaled(1, factor));
            let (a, b) = (stored(&a), stored(&b));
            compare_stored(metric, Some(&persons.clusters), &a, &b, 0.01 * factor)
        });
        assert_eq!(one.p_value, eight.p_value);
        assert_eq!(one.stderr.map(|stderr| 8.0 * stderr), eight.stderr);
        assert_eq!(one.clusters, eight.clusters);
    }
}

/// Equal squared errors do not differ, although the contributions to RMSE do.
#[test]
fn rmse_differs_where_squared_errors_do() {
    let clusters = Clusters::from_labels((0..100).map(|item| item / 5));
    let a: Vec<f64> = (0..100).map(|item| 1.0 + f64::from(item % 3)).collect();
    let mut b = a.clone();
    b[7] = 50.0;
    b[8] = 20.0;
    let found = compare(Metric::Rmse, Some(&clusters), &a, &b);
    assert_eq!(found.clusters.unwrap().n_differ, Some(1));
    assert_eq!((found.p_value, found.n_differ), (1.0, Some(2)));
    // Opposite errors within a cluster cancel in the mean of squares, so there is no difference.
    let c: Vec<f64> = (0..100).map(|item| f64::from(item % 2)).collect();
    let d: Vec<f64> = (0..100)
        .map(|item| f64::from((item + u32::from(item / 4 == 3)) % 2))
        .collect();
    let clusters = Clusters::from_labels((0..100).map(|item| item / 4));
    let found = compare(Metric::Rmse, Some(&clusters), &c, &d);
    assert_eq!(found.clusters.unwrap().n_differ, Some(0));
    assert_eq!((found.p_value, found.n_differ), (1.0, Some(4)));
}

/// Returns a name's stored items with `f1_macro`, which need all of its predictions.
fn f1_items(persons: &Persons, name: usize) -> StoredItems {
    let mut builder = Builder::new(Metric::F1Macro, persons.answers.len());
    let mut predictions = String::from("[");
    for (item, (answer, label)) in persons
        .answers
        .iter()
        .zip(&persons.labels[name])
        .enumerate()
    {
        let class = Persons::CLASSES[*answer];
        builder
            .push(&format!("{item:06}"), &Answer::Label(class.into()))
            .unwrap();
        let comma = if item > 0 { "," } else { "" };
        let label = Persons::CLASSES[*label];
        predictions += &format!(r#"{comma}{{"item_id":"{item:06}","prediction":"{label}"}}"#);
    }
    predictions.push(']');
    let table = builder.finish().unwrap();
    let progress = Progress::default();
    let score = score(
        &table,
        None,
        Metric::F1Macro,
        predictions.as_bytes(),
        &progress,
    )
    .unwrap();
    let items = 0..score.items.len();
    StoredItems {
        values: items.clone().map(|item| score.items.value(item)).collect(),
        rights: items.map(|item| score.items.is_right(item)).collect(),
    }
}

fn name_items(metric: Metric, persons: &Persons, name: usize) -> StoredItems {
    match metric {
        Metric::Accuracy => stored(&persons.hits(name)),
        Metric::F1Macro => f1_items(persons, name),
        _ => stored(&persons.losses[name]),
    }
}

/// Of two equally good models, about one comparison in twenty has a p-value below 0.05. Without
/// clusters it would be one in three.
#[test]
fn equal_models_rarely_differ() {
    let samples = n_samples(150);
    for sizes in [Sizes::Equal, Sizes::Unequal] {
        for metric in [
            Metric::LogLoss,
            Metric::Rmse,
            Metric::Accuracy,
            Metric::F1Macro,
        ] {
            // The method for independent items is slow, and `log_loss` shows its error best.
            let is_compared_by_item = samples >= 1_000 || metric == Metric::LogLoss;
            let mut false_ones = [0, 0];
            for seed in 0..samples {
                let n_persons = [20, 50, 100][seed as usize % 3];
                let persons = Persons::draw(seed, n_persons, 2, sizes);
                let [a, b] = [0, 1].map(|name| name_items(metric, &persons, name));
                let is_false =
                    |clusters| compare_stored(metric, clusters, &a, &b, 0.01).p_value < 0.05;
                false_ones[0] += u64::from(is_false(Some(&persons.clusters)));
                false_ones[1] += u64::from(is_compared_by_item && is_false(None));
            }
            let what = format!("false differences, {metric}, {sizes:?}");
            assert_at_most(&what, false_ones[0], samples, 0.075);
            let [by_cluster, by_item] = false_ones.map(|count| count as f64 / samples as f64);
            println!("by item: {:.1} %", 100.0 * by_item);
            if metric == Metric::LogLoss {
                assert!(by_item >= 0.25 - allowance(0.25, samples), "{by_item}");
                assert!(by_cluster >= 0.025 - allowance(0.025, samples));
            }
        }
    }
}

/// With the stated number of clusters, four out of five comparisons find one point.
#[test]
fn needed_clusters_find_one_point() {
    const POINT: f64 = 0.01;
    /// Draws two models' scores of nine items for each person; the second is better by one point.
    fn draw(random: &mut Xoshiro256PlusPlus, metric: Metric, n_persons: usize) -> [Vec<f64>; 2] {
        let mut scores = [Vec::new(), Vec::new()];
        for _ in 0..n_persons {
            let person = random.random_range(-0.2..0.2);
            let effects = [0.0, POINT]
                .map(|better| 0.5 + person + better + random.random_range(-0.12..0.12_f64));
            for _ in 0..9 {
                let ease = random.random_range(-0.15..0.15);
                for (scores, effect) in scores.iter_mut().zip(effects) {
                    scores.push(if metric == Metric::Accuracy {
                        f64::from(u8::from(random.random_bool(effect + ease)))
                    } else {
                        // Losses with a skewed distribution around the mean.
                        let normal: f64 = random.sample(StandardNormal);
                        effect + ease + 0.1 * (normal * normal - 1.0)
                    });
                }
            }
        }
        scores
    }

    let samples = n_samples(150);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(17);
    for metric in [Metric::Accuracy, Metric::Mae] {
        let clusters = |n: usize| Sizes::clusters(&vec![9; n]);
        let [a, b] = draw(&mut random, metric, 20_000);
        let large = compare(metric, Some(&clusters(20_000)), &a, &b);
        let needed = large.clusters.unwrap().n_needed.unwrap();
        assert_eq!(large.n_needed, Some(9 * needed));
        let clusters = clusters(needed as usize);
        let found = (0..samples).filter(|_| {
            let [a, b] = draw(&mut random, metric, needed as usize);
            compare(metric, Some(&clusters), &a, &b).p_value < 0.05
        });
        let power = found.count() as f64 / samples as f64;
        println!(
            "{metric}: power {:.1} % with {needed} clusters",
            100.0 * power
        );
        let allowed = allowance(0.8, samples);
        assert!(
            (0.77 - allowed..=0.84 + allowed).contains(&power),
            "{metric}: {power} with {needed}"
        );
    }
}
