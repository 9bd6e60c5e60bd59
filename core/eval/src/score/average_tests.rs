//! Values that are the mean over clusters of the metric within the cluster.

use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::StandardNormal;
use serde_json::{Value, json};

use super::*;
use crate::board::{EntryItems, test_pair};
use crate::clusters::{Average, Clusters};
use crate::compare::{Aggregate, Difference, Pairs, StoredItems};
use crate::item_scores::ItemScores;
use crate::metric::Metric;
use crate::simulation::{allowance, assert_at_most, n_samples};
use crate::suite::answers::Answer;

/// A suite and a submission, by item.
struct Case {
    metric: Metric,
    answers: Vec<Value>,
    clusters: Vec<u32>,
}

impl Case {
    fn of(case: &Value) -> Self {
        let clusters = case["clusters"].as_array().unwrap().iter();
        Self {
            metric: case["metric"].as_str().unwrap().parse().unwrap(),
            answers: case["answers"].as_array().unwrap().clone(),
            clusters: clusters
                .map(|cluster| cluster.as_u64().unwrap() as u32)
                .collect(),
        }
    }

    fn table(&self, average: Average) -> AnswerTable {
        let mut builder = Builder::new(self.metric, self.answers.len()).average(average);
        for (item, answer) in self.answers.iter().enumerate() {
            let answer = answer.to_string();
            let answer = Answer::parse(&answer, &self.metric).unwrap();
            builder.push(&format!("i{item}"), &answer).unwrap();
            builder.put_into_cluster(self.clusters[item]);
        }
        builder.finish().unwrap()
    }

    /// Scores predictions, of which a `null` is missing, in this order of the items.
    fn score_in_order(
        &self,
        average: Average,
        predictions: &[Value],
        order: &[usize],
    ) -> Result<Score, Failure> {
        let shown = order.iter().filter(|item| !predictions[**item].is_null());
        let predictions: Vec<Value> = shown
            .map(|item| json!({"item_id": format!("i{item}"), "prediction": predictions[*item]}))
            .collect();
        let predictions = json!(predictions).to_string();
        let progress = Progress::default();
        let table = self.table(average);
        score(&table, None, self.metric, predictions.as_bytes(), &progress)
    }

    fn score(&self, average: Average, predictions: &[Value]) -> Score {
        let order: Vec<usize> = (0..self.answers.len()).collect();
        self.score_in_order(average, predictions, &order).unwrap()
    }
}

fn vectors(field: &str) -> Vec<Value> {
    let vectors = include_str!("../../../../tests/vectors/averages.json");
    let vectors: Value = serde_json::from_str(vectors).unwrap();
    vectors[field].as_array().unwrap().clone()
}

fn list(case: &Value, field: &str) -> Vec<Value> {
    case[field].as_array().unwrap().clone()
}

fn assert_near(found: f64, expected: &Value, what: &str) {
    let expected = expected.as_f64().unwrap();
    let limit = 1e-12 * expected.abs().max(1.0);
    assert!(
        (found - expected).abs() <= limit,
        "{what}: {found} {expected}"
    );
}

#[test]
fn averages_agree_with_numpy_and_scipy() {
    let (mut with_error, mut left_out) = (0, 0);
    for (at, suite) in vectors("suites").iter().enumerate() {
        let case = Case::of(suite);
        let expected = &suite["figures"];
        let found = case.score(Average::Cluster, &list(suite, "predictions"));
        let Score { figures, items, .. } = found;
        let name = format!("case {at}, {}", case.metric);
        assert_near(figures.value, &expected["value"], &name);
        let clusters = figures.clusters.unwrap();
        assert_eq!(Some(clusters.n), expected["n_clusters"].as_i64(), "{name}");
        let is_left_out = |item: &usize| items.value(*item).is_nan();
        left_out += usize::from((0..items.len()).any(|item| is_left_out(&item)));
        match figures.estimate {
            None => assert!(expected["stderr"].is_null(), "{name}"),
            Some(estimate) => {
                assert_near(estimate.stderr, &expected["stderr"], &name);
                assert_near(estimate.ci95[0], &expected["ci95"][0], &name);
                assert_near(estimate.ci95[1], &expected["ci95"][1], &name);
                assert_eq!(estimate.method, expected["method"], "{name}");
                with_error += 1;
            }
        }
        match clusters.design_effect {
            None => assert!(expected["design_effect"].is_null(), "{name}"),
            Some(effect) => {
                let expected = expected["design_effect"].as_f64().unwrap();
                assert!((effect / expected - 1.0).abs() <= 1e-11, "{name}");
            }
        }
    }
    println!("{with_error} standard errors, {left_out} suites with clusters left out");
    assert!(with_error > 150 && left_out > 30);
}

/// Compares two scores in pieces with seven items.
fn compare(metric: Metric, clusters: &Clusters, [a, b]: [&Score; 2]) -> Difference {
    let stored = |items: &ItemScores, from: usize, to: usize| StoredItems {
        values: (from..to).map(|item| items.value(item)).collect(),
        rights: vec![false; to - from],
    };
    let n = a.items.len();
    let contribution = |score: &Score| {
        let mut aggregate = Aggregate::new(metric);
        aggregate.add(&stored(&score.items, 0, n));
        aggregate.contribution()
    };
    let (of_a, of_b) = (contribution(a), contribution(b));
    let mut pairs = Pairs::new(metric).average(clusters.average());
    for from in (0..n).step_by(7) {
        let to = n.min(from + 7);
        pairs.add(
            (&stored(&a.items, from, to), &of_a),
            (&stored(&b.items, from, to), &of_b),
            Some(&clusters.item_clusters()[from..to]),
        );
    }
    pairs.finish(a.figures.value - b.figures.value, 0.01, true)
}

/// Returns the p-value of the board's test, and whether the first score is the better one.
fn board_p_value(metric: Metric, clusters: &Clusters, scores: [&Score; 2]) -> (f64, bool) {
    let [one, other] = scores.map(|score| {
        let value = score.figures.value;
        EntryItems::new(metric, &score.items, value, true, Some(clusters))
    });
    let found = test_pair(metric, &one, &other).0;
    (f64::from(-found.abs()).exp(), found > 0.0)
}

#[test]
fn comparisons_flip_the_values_of_clusters() {
    for (at, pair) in vectors("comparisons").iter().enumerate() {
        let case = Case::of(pair);
        let metric = case.metric;
        let name = format!("comparison {at}, {metric}");
        let [a, b] = ["a", "b"].map(|field| case.score(Average::Cluster, &list(pair, field)));
        let table = case.table(Average::Cluster);
        let clusters = table.clusters().unwrap();
        let found = compare(metric, clusters, [&a, &b]);
        let difference = a.figures.value - b.figures.value;
        assert_near(difference, &pair["difference"], &name);
        assert_near(found.stderr.unwrap(), &pair["stderr"], &name);
        let ci95 = found.ci95.unwrap();
        assert_near(ci95[0], &pair["ci95"][0], &name);
        assert_near(ci95[1], &pair["ci95"][1], &name);
        assert_near(found.p_value, &pair["p_value"], &name);
        let by_cluster = found.clusters.unwrap();
        let n_clusters = pair["n_clusters"].as_u64().unwrap();
        assert_eq!(
            (by_cluster.n, by_cluster.degrees),
            (n_clusters, n_clusters as f64 - 1.0)
        );
        let items_per_cluster = case.answers.len() as f64 / n_clusters as f64;
        let needed = (by_cluster.n_needed.unwrap() as f64 * items_per_cluster).ceil();
        assert_eq!(found.n_needed, Some(needed as u64), "{name}");
        // The same items differ as without the average.
        let [one, other] = ["a", "b"].map(|field| case.score(Average::Item, &list(pair, field)));
        let item_clusters = clusters.clone().with_average(Average::Item);
        let by_item = compare(metric, &item_clusters, [&one, &other]);
        assert_eq!(found.n_differ, by_item.n_differ, "{name}");
        let (board_value, is_better) = board_p_value(metric, clusters, [&a, &b]);
        let ratio = board_value / found.p_value;
        assert!((ratio - 1.0).abs() <= 1e-5, "{name}: {ratio}");
        let has_better_value = (difference < 0.0) == metric.lower_is_better();
        assert!(
            is_better == has_better_value || difference.abs() < 1e-12,
            "{name}"
        );
    }
}

#[test]
fn equal_sizes_have_the_same_mean() {
    for suite in vectors("suites") {
        let mut case = Case::of(&suite);
        let predictions = list(&suite, "predictions");
        let means = !matches!(case.metric, Metric::Rmse | Metric::Spearman | Metric::Auc);
        if !means {
            continue;
        }
        let n = case.answers.len() / 3 * 3;
        case.answers.truncate(n);
        case.clusters = (0..n as u32).map(|item| item / 3).collect();
        let [one, other] =
            [Average::Item, Average::Cluster].map(|average| case.score(average, &predictions[..n]));
        assert_eq!(one.items, other.items, "{}", case.metric);
        let [one, other] = [one, other].map(|score| score.figures);
        assert!((one.value - other.value).abs() <= 1e-12 * one.value.max(1.0));
        assert_eq!(one.metrics, other.metrics);
        let stderrs = [one, other].map(|figures| figures.estimate.map(|of| of.stderr));
        if let [Some(one), Some(other)] = stderrs {
            assert!((one - other).abs() <= 1e-12 * one.max(1.0));
        }
    }
}

#[test]
fn order_of_predictions_changes_no_bit() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(12);
    for suite in vectors("suites").iter().step_by(3) {
        let case = Case::of(suite);
        let predictions = list(suite, "predictions");
        let mut order: Vec<usize> = (0..case.answers.len()).collect();
        let expected = case.score(Average::Cluster, &predictions);
        order.shuffle(&mut random);
        let found = case.score_in_order(Average::Cluster, &predictions, &order);
        let found = found.unwrap();
        assert_eq!(found.figures, expected.figures, "{}", case.metric);
        for item in 0..found.items.len() {
            let [one, other] = [&found, &expected].map(|score| score.items.value(item).to_bits());
            assert_eq!(one, other);
        }
    }
}

/// Returns a suite in which these clusters, of four items each, have a single answer.
fn with_constant(metric: Metric, n_clusters: u32, constant: std::ops::Range<u32>) -> Case {
    let answer = |item: u32| match metric {
        Metric::Auc if constant.contains(&(item / 4)) => json!("x"),
        Metric::Auc => json!(["x", "y"][item as usize % 2]),
        _ if constant.contains(&(item / 4)) => json!(7),
        _ => json!(item % 4),
    };
    Case {
        metric,
        answers: (0..4 * n_clusters).map(answer).collect(),
        clusters: (0..4 * n_clusters).map(|item| item / 4).collect(),
    }
}

#[test]
fn answers_alone_leave_clusters_out() {
    let case = with_constant(Metric::Spearman, 20, 0..5);
    let constant = vec![json!(1); 80];
    let right: Vec<Value> = (0..80).map(|item| json!(item % 4)).collect();
    for (predictions, value) in [(constant, 0.0), (right, 1.0)] {
        let Score { figures, items, .. } = case.score(Average::Cluster, &predictions);
        assert_eq!((figures.value, figures.clusters.unwrap().n), (value, 15));
        let estimate = figures.estimate.unwrap();
        assert_eq!(estimate.stderr, 0.0);
        let values: Vec<f64> = (0..80).map(|item| items.value(item)).collect();
        assert!(values[..20].iter().all(|value| value.is_nan()));
        assert!(values[20..].iter().all(|stored| *stored == value));
    }
    let mut half: Vec<Value> = (0..80).map(|item| json!(item % 4)).collect();
    half[20..24].fill(json!(3));
    let value = case.score(Average::Cluster, &half).figures.value;
    assert!((value - 14.0 / 15.0).abs() < 1e-15);

    let shares = vec![json!({"x": 0.5, "y": 0.5}); 80];
    let case = with_constant(Metric::Auc, 20, 10..20);
    let found = case.score(Average::Cluster, &shares).figures;
    assert_eq!((found.value, found.clusters.unwrap().n), (0.5, 10));
    assert!(found.estimate.is_some());
    let case = with_constant(Metric::Auc, 20, 9..20);
    let found = case.score(Average::Cluster, &shares).figures;
    assert_eq!((found.estimate, found.clusters.unwrap().n), (None, 9));
    // With single items, each has one answer only.
    let mut alone = with_constant(Metric::Auc, 20, 0..0);
    alone.clusters = (0..80).collect();
    let order: Vec<usize> = (0..80).collect();
    let failed = alone.score_in_order(Average::Cluster, &shares, &order);
    let Err(Failure::InvalidPredictions(message)) = failed else {
        panic!("auc is not defined");
    };
    assert_eq!(message, "auc is not defined for the answers of any cluster");
}

#[test]
fn average_needs_clusters() {
    let mut builder = Builder::new(Metric::Mae, 1).average(Average::Cluster);
    builder.push("a", &Answer::Number(1.0)).unwrap();
    assert!(builder.finish().is_err());
}

#[test]
fn trivial_submissions_weight_clusters_equally() {
    // One person has most items, all of them with the answer y or 8.
    let trivials = |metric: Metric, answers: [Value; 2]| {
        let cluster = |item: u32| item.min(20);
        let case = Case {
            metric,
            answers: (0..120)
                .map(|item| answers[usize::from(cluster(item) == 20 || item < 3)].clone())
                .collect(),
            clusters: (0..120).map(cluster).collect(),
        };
        [Average::Item, Average::Cluster].map(|average| {
            let trivial = trivial_submissions(&case.table(average), metric);
            let best = best_trivial(&trivial, metric).unwrap();
            (best.name, best.value)
        })
    };
    let labels = || [json!("x"), json!("y")];
    let [by_item, by_cluster] = trivials(Metric::ExactMatch, labels());
    assert_eq!(by_item.1, 103.0 / 120.0);
    assert!((by_cluster.1 - 17.0 / 21.0).abs() < 1e-15);
    // The Brier score when two labels have the shares 17/21 and 4/21.
    let [_, (_, brier)] = trivials(Metric::Brier, labels());
    let share: f64 = 17.0 / 21.0;
    assert!((brier - share * (1.0 - share)).abs() < 1e-15);
    let [by_item, by_cluster] = trivials(Metric::Mae, [json!(2), json!(8)]);
    assert_eq!((by_item.0, by_cluster.0), ("median", "median"));
    assert!((by_item.1 - 6.0 * 17.0 / 120.0).abs() < 1e-12);
    assert!((by_cluster.1 - 6.0 * 4.0 / 21.0).abs() < 1e-12);
}

/// Persons whose number of items is related to their scores. Names are permuted person by person.
struct Persons {
    clusters: Vec<u32>,
    /// For two equally good models, the loss of each item.
    losses: [Vec<f64>; 2],
}

/// The mean over all persons of the expected loss: large enough that no loss is negative.
const PERSON_MEAN: f64 = 4.0;

impl Persons {
    fn draw(random: &mut Xoshiro256PlusPlus, n_persons: u32) -> Self {
        let mut persons = Self {
            clusters: Vec::new(),
            losses: [Vec::new(), Vec::new()],
        };
        for person in 0..n_persons {
            let effect: f64 = random.random_range(-0.5..0.5);
            let own: [f64; 2] =
                std::array::from_fn(|_| 0.3 * random.sample::<f64, _>(StandardNormal));
            // Persons with large losses answer more often.
            let n_items = 2 + (16.0 * (0.5 + effect)) as u32;
            for _ in 0..n_items {
                persons.clusters.push(person);
                for (losses, own) in persons.losses.iter_mut().zip(own) {
                    let noise: f64 = random.sample(StandardNormal);
                    losses.push(PERSON_MEAN + effect + own + 0.5 * noise);
                }
            }
        }
        persons
    }

    /// Scores both models. The error of an item is its loss.
    fn scores(&self, metric: Metric, average: Average) -> [Score; 2] {
        let answer = |item: usize| item % 2;
        let answers = (0..self.clusters.len()).map(|item| match metric {
            Metric::Auc => json!(["x", "y"][answer(item)]),
            _ => json!(answer(item)),
        });
        let case = Case {
            metric,
            answers: answers.collect(),
            clusters: self.clusters.clone(),
        };
        self.losses.each_ref().map(|losses| {
            let predictions = losses.iter().enumerate().map(|(item, loss)| {
                let number = answer(item) as f64 + loss;
                match metric {
                    Metric::Auc => json!({"x": 1.0 - number / 16.0, "y": number / 16.0}),
                    _ => json!(number),
                }
            });
            case.score(average, &predictions.collect::<Vec<_>>())
        })
    }
}

#[test]
fn interval_contains_the_person_mean() {
    let samples = n_samples(300);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(31);
    let mut covered = [0, 0];
    for _ in 0..samples {
        let persons = Persons::draw(&mut random, 100);
        for (count, average) in covered.iter_mut().zip([Average::Cluster, Average::Item]) {
            let figures = &persons.scores(Metric::Mae, average)[0].figures;
            let [low, high] = figures.estimate.unwrap().ci95;
            *count += u64::from(low <= PERSON_MEAN && PERSON_MEAN <= high);
        }
    }
    let [by_cluster, by_item] = covered.map(|count: u64| count as f64 / samples as f64);
    println!("coverage of the person mean: by item {by_item:.3}, by cluster {by_cluster:.3}");
    let chance = allowance(0.09, samples);
    let aim = 0.91 - chance..=0.98 + chance;
    assert!(aim.contains(&by_cluster), "{by_cluster}");
    assert!(by_item < 0.6, "{by_item}");
}

#[test]
fn equal_models_rarely_differ() {
    let samples = n_samples(200);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(32);
    let joint = [Metric::Spearman, Metric::Pearson, Metric::Kendall];
    for metric in [Metric::Mae, Metric::Rmse, Metric::Auc]
        .into_iter()
        .chain(joint)
    {
        let mut false_ones = 0;
        for _ in 0..samples {
            let persons = Persons::draw(&mut random, 50);
            let [a, b] = persons.scores(metric, Average::Cluster);
            let labels = persons.clusters.iter().copied();
            let clusters = Clusters::from_labels(labels).with_average(Average::Cluster);
            let found = compare(metric, &clusters, [&a, &b]);
            false_ones += u64::from(found.p_value < 0.05);
        }
        let what = format!("false differences of averages, {metric}");
        assert_at_most(&what, false_ones, samples, 0.075);
        assert!(false_ones > 0, "{what}");
    }
}
