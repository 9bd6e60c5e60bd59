//! Answers that are distributions: figures against SciPy and others, trivial submissions, intervals and
//! comparisons by their formulas.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use super::*;
use crate::clusters::Average;
use crate::compare::{Aggregate, Pairs, StoredItems};
use crate::disclosure::{DisclosurePolicy, Ladder};
use crate::metric::{Clip, K, Metric};
use crate::simulation::n_samples;
use crate::stats::clustered;
use crate::stats::confidence::{estimate_within, stderr_of_mean, wilson};
use crate::suite::answers::Answer;

/// The methods of a mean: the interval for independent items and for clusters, and the test of two jobs.
const MEAN: [&str; 3] = ["normal", "cluster_t", "permutation"];
const SHARE: [&str; 3] = ["wilson", "cluster_wilson", "mcnemar"];

/// Returns each metric that takes distributions.
fn metrics() -> impl Iterator<Item = Metric> {
    let all = Metric::all(K::DEFAULT);
    let plain =
        all.filter(|metric| metric.takes_distributions() && !matches!(metric, Metric::TopK(_)));
    plain.chain(["top@1", "top@2"].map(|name| name.parse().unwrap()))
}

fn methods(metric: Metric) -> [&'static str; 3] {
    if metric.is_share() { SHARE } else { MEAN }
}

/// A suite, and a submission.
#[derive(Clone, Default)]
pub(super) struct Case {
    pub(super) labels: Vec<String>,
    pub(super) clip: Option<Clip>,
    /// Pairs of answer and prediction; `null` for none.
    pub(super) items: Vec<[Value; 2]>,
    /// The people behind each answer; empty if they are not given.
    pub(super) people: Vec<u32>,
}

impl Case {
    fn of(case: &Value) -> Self {
        let strings = case["labels"].as_array().cloned().unwrap_or_default();
        let clip = &case["clip"];
        Self {
            labels: strings
                .iter()
                .map(|label| label.as_str().unwrap().to_owned())
                .collect(),
            clip: clip[0]
                .as_f64()
                .and_then(|low| Clip::new(low, clip[1].as_f64().unwrap())),
            items: serde_json::from_value(case["items"].clone()).unwrap(),
            people: Vec::new(),
        }
    }

    fn builder(&self, metric: Metric) -> Builder {
        let clip = self.clip.filter(|_| metric.takes_clip());
        Builder::new(metric, self.items.len())
            .options(&self.labels)
            .clip(clip)
    }

    /// Returns the table, with clusters if `n_clusters` is not 0.
    pub(super) fn table_of(&self, metric: Metric, n_clusters: u32) -> AnswerTable {
        self.fill(self.builder(metric), metric, n_clusters)
    }

    fn fill(&self, mut builder: Builder, metric: Metric, n_clusters: u32) -> AnswerTable {
        for (item, [answer, _]) in self.items.iter().enumerate() {
            let answer = answer.to_string();
            let answer = Answer::parse(&answer, &metric).unwrap();
            builder.push(&format!("i{item}"), &answer).unwrap();
            if n_clusters > 0 {
                builder.put_into_cluster(item as u32 % n_clusters);
            }
            if let Some(n) = self.people.get(item) {
                builder.add_people(*n);
            }
        }
        builder.finish().unwrap()
    }

    pub(super) fn score(&self, metric: Metric, table: &AnswerTable, is_reversed: bool) -> Score {
        let items = self.items.iter().enumerate();
        let mut shown: Vec<Value> = items
            .filter(|(_, [_, prediction])| !prediction.is_null())
            .map(|(item, [_, prediction])| {
                json!({"item_id": format!("i{item}"), "prediction": prediction})
            })
            .collect();
        if is_reversed {
            shown.reverse();
        }
        let bytes = json!(shown).to_string();
        score(table, None, metric, bytes.as_bytes(), &Progress::default()).unwrap()
    }
}

fn values(score: &Score) -> Vec<f64> {
    let items = 0..score.items.len();
    items.map(|item| score.items.value(item)).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns random distributions over `n_options` labels with predictions near them.
pub(super) fn random_case(n: usize, n_options: usize, seed: u64) -> Case {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let labels: Vec<String> = (0..n_options).map(|option| format!("l{option}")).collect();
    let mut shares = |weights: &[f64]| -> Value {
        let weights: Vec<f64> = weights
            .iter()
            .map(|weight| weight + random.random::<f64>())
            .collect();
        let sum: f64 = weights.iter().sum();
        let entries = labels.iter().zip(weights);
        let entries = entries.map(|(label, weight)| (label.clone(), json!(weight / sum)));
        Value::Object(entries.collect())
    };
    let mut items = Vec::new();
    for item in 0..n {
        let mut weights = vec![0.0; n_options];
        weights[item * 7 % n_options] = (item % 4) as f64 / 2.0;
        items.push([shares(&weights), shares(&weights)]);
    }
    Case {
        labels,
        items,
        ..Case::default()
    }
}

#[test]
fn figures_agree_with_scipy_and_scikit_learn() {
    let vectors = include_str!("../../../../tests/vectors/distributions.json");
    let cases: Vec<Value> = serde_json::from_str(vectors).unwrap();
    for metric in metrics() {
        let (mut n_compared, mut furthest) = (0, 0.0_f64);
        for case in &cases {
            let expected = &case["figures"][metric.to_string()];
            if expected.is_null() {
                continue;
            }
            let name = format!("{} {metric}", case["name"]);
            let case = Case::of(case);
            let table = case.table_of(metric, 0);
            let found = case.score(metric, &table, false);
            let Figures {
                value, estimate, ..
            } = found.figures;
            let stderr = estimate.unwrap().stderr;
            let difference = (value - expected[0].as_f64().unwrap())
                .abs()
                .max((stderr - expected[1].as_f64().unwrap()).abs());
            assert!(difference <= 1e-12, "{name}: {value} {stderr} {expected}");
            furthest = furthest.max(difference);
            assert!((mean(&values(&found)) - value).abs() <= 1e-12, "{name}");
            assert_eq!(found, case.score(metric, &table, true), "{name}");
            n_compared += 1;
        }
        println!("{metric}: {n_compared} suites, largest difference {furthest:e}");
        assert!(n_compared >= 200, "{metric}: {n_compared}");
    }
}

/// Returns the case of these questions. Each is a pair of the people's and the model's weights of the
/// ordered options.
fn survey(questions: &Value) -> Case {
    let shares = |weights: &Value| -> Value {
        let weights: Vec<f64> = serde_json::from_value(weights.clone()).unwrap();
        let sum: f64 = weights.iter().sum();
        let entries = (1..).zip(weights);
        let entries = entries.map(|(option, weight)| (option.to_string(), json!(weight / sum)));
        Value::Object(entries.collect())
    };
    let questions = questions.as_array().unwrap().iter();
    Case {
        items: questions
            .map(|question| [shares(&question[0]), shares(&question[1])])
            .collect(),
        ..Case::default()
    }
}

#[test]
fn wasserstein_is_the_figure_of_surveys() {
    let vectors = include_str!("../../../../tests/vectors/surveys.json");
    let vectors: Value = serde_json::from_str(vectors).unwrap();
    let metric = Metric::Wasserstein;
    let score = |expected: &Value| {
        let case = survey(&expected["questions"]);
        case.score(metric, &case.table_of(metric, 0), false)
    };
    let mut worst = [0.0_f64; 2];
    let cases = vectors["opinion_qa"].as_array().unwrap();
    assert_eq!(cases.len(), 1_000);
    for expected in cases {
        let found = 1.0 - score(expected).figures.value;
        let far = (found - expected["alignment"].as_f64().unwrap()).abs();
        worst[0] = worst[0].max(far);
    }
    let cases = vectors["world_values_bench"].as_array().unwrap();
    assert_eq!(cases.len(), 1_000);
    for expected in cases {
        let score = score(expected);
        let distances: Vec<f64> = serde_json::from_value(expected["distances"].clone()).unwrap();
        let found = values(&score);
        assert_eq!(found.len(), distances.len());
        let far = found.iter().zip(&distances);
        let far = far.map(|(found, expected)| (found - expected).abs());
        let mean_difference = (score.figures.value - mean(&distances)).abs();
        worst[1] = far.fold(worst[1].max(mean_difference), f64::max);
    }
    println!("OpinionQA and WorldValuesBench: largest differences {worst:?}");
    assert!(worst.iter().all(|worst| *worst <= 1e-12), "{worst:?}");
}

#[test]
fn label_is_the_distribution_with_share_one() {
    let label = |label: &str| json!(label);
    let full = |label: &str| {
        let shares = ["a", "b", "c"].map(|option| (option, f64::from(option == label)));
        json!(
            shares
                .into_iter()
                .collect::<std::collections::BTreeMap<_, _>>()
        )
    };
    let labels = ["a", "b", "c"].map(str::to_owned).to_vec();
    let case = |answer: &dyn Fn(&str) -> Value, labels: &[String]| Case {
        labels: labels.to_vec(),
        items: vec![
            [answer("a"), json!({"a": 0.5, "c": 0.25, "other": 0.25})],
            [answer("b"), json!({"c": 1})],
            [answer("c"), json!({"a": 0.125, "b": 0.375, "c": 0.5})],
            [answer("a"), Value::Null],
        ],
        ..Case::default()
    };
    for metric in metrics() {
        let name = metric.to_string();
        let found = |case: Case| case.score(metric, &case.table_of(metric, 0), false);
        let expected = found(case(&full, &labels));
        let own = found(case(&full, &[]));
        assert_eq!(own, expected, "{name}");
        for labels in [&labels[..], &[]] {
            let single = found(case(&label, labels));
            assert!(
                (single.figures.value - expected.figures.value).abs() <= 1e-15,
                "{name}"
            );
            assert_eq!(values(&single), values(&expected), "{name}");
        }
    }
}

#[test]
fn extreme_predictions_stay_within_range() {
    let nothing = json!({"other": 1});
    let slightly_more = json!({"a": 0.500_000_4, "b": 0.500_000_4});
    let item = |prediction: &Value| [json!({"a": 0.5, "b": 0.5}), prediction.clone()];
    for metric in metrics() {
        let name = metric.to_string();
        let of = |prediction: &Value| {
            let case = Case {
                items: vec![item(prediction), item(&nothing)],
                ..Case::default()
            };
            let found = case.score(metric, &case.table_of(metric, 0), false);
            found.items.value(0)
        };
        let worst = of(&Value::Null);
        match metric {
            // A prediction on another label is as bad as none, except for brier.
            Metric::Brier => assert_eq!((of(&nothing), worst), (0.75, 1.0)),
            // One of the two options is in the second place.
            Metric::TopK(k) => assert_eq!(of(&nothing), (k.get() - 1) as f64),
            _ => assert!((of(&nothing) - worst).abs() <= 1e-12, "{name}"),
        }
        let best = of(&json!({"a": 0.5, "b": 0.5}));
        let more = of(&slightly_more);
        assert!((more - best).abs() <= 1e-5, "{name}: {more} {best}");
        let [low, high] = metric.range(None, 2);
        assert!(low <= more && more <= high, "{name}: {more}");
        match metric {
            Metric::LogLoss => assert!((best - 2.0_f64.ln()).abs() <= 1e-15),
            Metric::TopK(_) => assert_eq!((best, worst), (1.0, 0.0)),
            Metric::Kl => {
                assert_eq!(best, 0.0);
                let expected = 1e15_f64.ln() - 2.0_f64.ln();
                assert!((worst - expected).abs() <= 1e-12, "{worst}");
            }
            _ => assert_eq!((best, worst), (0.0, 1.0), "{name}"),
        }
    }
}

#[test]
fn other_labels_compete_for_the_top() {
    let case = |answer: Value, prediction: Value| Case {
        items: vec![[answer, prediction]],
        ..Case::default()
    };
    let of = |k: usize, answer: Value, prediction: Value| {
        let metric: Metric = format!("top@{k}").parse().unwrap();
        let case = case(answer, prediction);
        case.score(metric, &case.table_of(metric, 0), false)
            .figures
            .value
    };
    let two = || json!({"a": 0.25, "b": 0.75});
    let shown = || json!({"a": 0.25, "b": 0.3, "other": 0.45});
    assert_eq!((of(1, two(), shown()), of(2, two(), shown())), (0.0, 1.0));
    // Without any probability on the options, the one that is first in byte order is second.
    let none = || json!({"other": 1});
    assert_eq!((of(1, two(), none()), of(2, two(), none())), (0.0, 0.0));
    assert_eq!(of(2, json!({"b": 0.25, "a": 0.75}), none()), 1.0);
    // Two options have the largest share.
    let both = || json!({"a": 0.4, "b": 0.4, "c": 0.2});
    assert_eq!(of(1, both(), json!({"b": 0.6, "c": 0.4})), 1.0);
    assert_eq!(of(1, both(), json!({"b": 0.4, "c": 0.6})), 0.0);
}

#[test]
fn intervals_and_tests_follow_from_item_scores() {
    let near = |one: f64, other: f64| (one - other).abs() <= 1e-12;
    for (seed, metric) in (1..).zip(metrics()) {
        let name = metric.to_string();
        let [alone, by_cluster, test] = methods(metric);
        let case = random_case(400, 5, seed);
        let found = case.score(metric, &case.table_of(metric, 0), false);
        let value = found.figures.value;
        let estimate = found.figures.estimate.unwrap();
        assert_eq!(estimate.method, alone, "{name}");

        let clustered = case
            .score(metric, &case.table_of(metric, 40), false)
            .figures;
        let mut sums = [0.0; 40];
        for (item, score) in values(&found).iter().enumerate() {
            sums[item % 40] += score - value;
        }
        let squares: f64 = sums.iter().map(|sum| sum * sum).sum();
        let estimate = clustered.estimate.unwrap();
        assert_eq!((clustered.value, estimate.method), (value, by_cluster));
        assert!(near(
            estimate.stderr,
            (40.0 / 39.0 * squares).sqrt() / 400.0
        ));
        if by_cluster == "cluster_t" {
            let width = clustered::half_width(39.0) * estimate.stderr;
            assert!(near(estimate.ci95[0], value - width), "{name}");
        }

        let average = case.builder(metric).average(Average::Cluster);
        let average = case.score(metric, &case.fill(average, metric, 40), false);
        let means: Vec<f64> = sums.iter().map(|sum| value + sum / 10.0).collect();
        assert!(near(average.figures.value, mean(&means)), "{name}");
        assert_eq!(average.figures.estimate.unwrap().method, "cluster_t");

        let mut other = case.clone();
        let random = random_case(400, 5, seed + 100);
        other.items[200..].clone_from_slice(&random.items[200..]);
        for (item, [answer, _]) in other.items.iter_mut().zip(&case.items) {
            item[0] = answer.clone();
        }
        let table = case.table_of(metric, 0);
        let other = other.score(metric, &table, false);
        let stored = [&found, &other].map(|score| StoredItems {
            values: values(score),
            rights: Vec::new(),
        });
        let contribution = Aggregate::new(metric).contribution();
        let [a, b] = [0, 1].map(|at| (&stored[at], &contribution));
        let mut pairs = Pairs::new(metric);
        pairs.add(a, b, None);
        let difference = value - other.figures.value;
        let compared = pairs.finish(difference, 0.01, true);
        assert_eq!(compared.p_method, test, "{name}");
        assert!(compared.p_value > 0.0 && compared.p_value <= 1.0, "{name}");
        let clusters: Vec<u32> = (0..400).map(|item| item % 40).collect();
        let mut pairs = Pairs::new(metric);
        pairs.add(a, b, Some(&clusters));
        let compared = pairs.finish(difference, 0.01, true);
        assert_eq!(compared.p_method, "cluster_sign_flip", "{name}");
    }
}

#[test]
fn trivial_submissions_are_uniform_and_marginal() {
    let named = random_case(60, 4, 7);
    let mut own = named.clone();
    own.labels = Vec::new();
    for metric in metrics() {
        let name = metric.to_string();
        let table = named.table_of(metric, 0);
        let found = trivial_submissions(&table, metric);
        let names: Vec<&str> = found.iter().map(|trivial| trivial.name).collect();
        assert_eq!(names, ["uniform", "marginal"], "{name}");
        let mut means = [0.0; 4];
        for [answer, _] in &named.items {
            for (mean, label) in means.iter_mut().zip(&named.labels) {
                *mean += answer[label].as_f64().unwrap() / 60.0;
            }
        }
        for (trivial, shares) in found.iter().zip([[0.25; 4], means]) {
            let mut case = named.clone();
            let shares = named.labels.iter().zip(shares);
            let shares: serde_json::Map<String, Value> = shares
                .map(|(label, share)| (label.clone(), json!(share)))
                .collect();
            for item in &mut case.items {
                item[1] = json!(shares);
            }
            let expected = case.score(metric, &table, false).figures.value;
            assert!(
                (trivial.value - expected).abs() <= 1e-12,
                "{name} {}: {} {expected}",
                trivial.name,
                trivial.value
            );
        }
        // Options that items do not share have no mean.
        let found = trivial_submissions(&own.table_of(metric, 0), metric);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].name, "uniform");
    }
    // A suite of labels has its old trivial submission, unless it names the options.
    let labels = Case {
        items: vec![[json!("a"), Value::Null], [json!("b"), Value::Null]],
        ..Case::default()
    };
    let names = |case: &Case, metric| -> Vec<&str> {
        let found = trivial_submissions(&case.table_of(metric, 0), metric);
        found.iter().map(|trivial| trivial.name).collect()
    };
    assert_eq!(names(&labels, Metric::Brier), ["label frequencies"]);
    assert_eq!(names(&labels, Metric::Tvd), ["uniform", "marginal"]);
    let mut named = labels;
    named.labels = ["a", "b", "c"].map(str::to_owned).to_vec();
    assert_eq!(names(&named, Metric::Brier), ["uniform", "marginal"]);
    let table = named.table_of(Metric::Brier, 0);
    assert_eq!(table.n_options(), 3);
    assert_eq!(
        Metric::Brier.bounds(None, table.n_options()),
        Some([2.0, 0.0])
    );
}

#[test]
fn ladder_starts_at_the_better_trivial_submission() {
    let DisclosurePolicy::Ladder(step) = "ladder(0.01)".parse().unwrap() else {
        panic!("a ladder");
    };
    let case = random_case(60, 4, 8);
    for metric in metrics() {
        let name = metric.to_string();
        let clip = metric.takes_clip().then(|| Clip::new(0.0, 4.0).unwrap());
        let table = Case {
            clip,
            ..case.clone()
        };
        let table = table.table_of(metric, 0);
        let best = best_trivial(&trivial_submissions(&table, metric), metric).unwrap();
        let ladder = Ladder::for_suite(step, metric, clip, &table).unwrap();
        let start = ladder.value(0);
        assert!((start - best.value).abs() <= 4e-4, "{name}: {start}");
        let end = ladder.value(u32::MAX);
        let is_best = if metric.lower_is_better() {
            end.abs() < 0.05
        } else {
            end > 0.98
        };
        assert!(is_best, "{name}: {end}");
    }
}

#[test]
fn shares_take_memory_once() {
    let case = random_case(10_000, 5, 9);
    let table = case.table_of(Metric::Tvd, 0);
    let labels = Case {
        items: vec![[json!("l0"), Value::Null]; 10_000],
        labels: case.labels.clone(),
        ..Case::default()
    };
    let difference = table.bytes() - labels.table_of(Metric::Tvd, 0).bytes();
    // Five shares for an item, of 8 bytes each.
    assert!(difference <= 10_000 * 5 * 8, "{difference}");
    let mut own = case;
    own.labels = Vec::new();
    let difference = own.table_of(Metric::Tvd, 0).bytes() - table.bytes();
    // Five options and the end of the list, of 4 bytes each.
    assert!(difference <= 10_000 * 6 * 4, "{difference}");
}

/// Returns the exact expectation of the total variation distance between shares and those of `n` people
/// drawn from them: the mean absolute deviation of a binomial distribution (de Moivre 1730).
fn expected_tvd(shares: &[f64], n: u32) -> f64 {
    let deviation = |p: f64| {
        let mut probability = (1.0 - p).powi(n as i32);
        let mut sum = 0.0;
        for k in 0..=n {
            sum += probability * (f64::from(k) / f64::from(n) - p).abs();
            probability *= f64::from(n - k) / f64::from(k + 1) * p / (1.0 - p);
        }
        sum
    };
    shares.iter().map(|share| deviation(*share)).sum::<f64>() / 2.0
}

#[test]
fn noise_floor_of_four_options_has_known_values() {
    let shares = [0.5, 0.3, 0.15, 0.05];
    let answer = json!({"a": 0.5, "b": 0.3, "c": 0.15, "d": 0.05});
    for (people, stated) in [(20, 0.134), (100, 0.061), (500, 0.027)] {
        let case = Case {
            items: vec![[answer.clone(), Value::Null]; 300],
            people: vec![people; 300],
            ..Case::default()
        };
        let of = |metric: Metric| noise_floor(&case.table_of(metric, 0), metric);
        let found = of(Metric::Tvd).unwrap();
        let expected = expected_tvd(&shares, people);
        println!("tvd, {people} people: {found:.5}, exactly {expected:.5}");
        // 60,000 draws have a standard error of 0.2 % of the value.
        assert!((found / expected - 1.0).abs() <= 0.01, "{found} {expected}");
        assert!((found - stated).abs() <= 0.0012, "{found} {stated}");
        assert_eq!(of(Metric::Tvd), Some(found), "draws are always the same");
        // The variance of each share is p(1 − p)/n.
        let variances: f64 = shares.iter().map(|share| share * (1.0 - share)).sum();
        let brier = of(Metric::Brier).unwrap() * f64::from(people) / variances;
        assert!((brier - 1.0).abs() <= 0.01, "{brier}");
        // For many people, (K − 1)/(2n) (Miller 1955).
        if people == 500 {
            let kl = of(Metric::Kl).unwrap() * 2.0 * 500.0 / 3.0;
            assert!((kl - 1.0).abs() <= 0.02, "{kl}");
        }
        let mut cumulative = 0.0;
        let mut rps = 0.0;
        for share in &shares[..3] {
            cumulative += share;
            rps += cumulative * (1.0 - cumulative) / f64::from(people) / 3.0;
        }
        let found = of(Metric::Rps).unwrap() / rps;
        assert!((found - 1.0).abs() <= 0.01, "{found}");
        for metric in [Metric::Jsd, Metric::Hellinger, Metric::Wasserstein] {
            let found = of(metric).unwrap();
            assert!(found > 0.0 && found < 0.2, "{metric}: {found}");
        }
        let top: Metric = "top@1".parse().unwrap();
        assert_eq!((of(top), of(Metric::LogLoss)), (None, None));
    }
    // A billion people leave no noise, and one person all of it.
    let case = |people: u32| Case {
        items: vec![[answer.clone(), Value::Null]],
        people: vec![people],
        ..Case::default()
    };
    let of = |people: u32| noise_floor(&case(people).table_of(Metric::Tvd, 0), Metric::Tvd);
    assert!(of(1_000_000_000).unwrap() < 1e-4);
    let one: f64 = 1.0 - shares.iter().map(|share| share * share).sum::<f64>();
    assert!((of(1).unwrap() - one).abs() < 0.06);
}

#[test]
fn noise_floor_is_a_ceiling_without_an_error() {
    let mut case = random_case(60, 4, 11);
    case.people = (1..=60).map(|item| item * 10).collect();
    for metric in ["tvd", "brier", "kl"].map(|name| name.parse::<Metric>().unwrap()) {
        let mut table = case.table_of(metric, 0);
        let floor = noise_floor(&table, metric).unwrap();
        let scores = noise_floor_scores(&table, metric, floor).unwrap();
        let ceiling = scores.ceiling();
        assert_eq!(
            (ceiling.kind, ceiling.value, ceiling.n),
            ("sampling", floor, 60)
        );
        assert_eq!((ceiling.stderr, ceiling.ci95), (None, None));
        assert_eq!(scores.warning(), None);
        table.set_retest(scores);
        let figures = case.score(metric, &table, false).figures;
        let found = figures.share_of_ceiling.unwrap();
        let trivials = trivial_submissions(&table, metric);
        let best = best_trivial(&trivials, metric).unwrap();
        let share = (best.value - figures.value) / (best.value - floor);
        assert!((found.value - share).abs() <= 1e-12, "{metric}");
        // The losses of the best trivial submission, item by item.
        let mut trivial = case.clone();
        let means: serde_json::Map<String, Value> = case
            .labels
            .iter()
            .map(|label| {
                let shares = case.items.iter().map(|[answer, _]| answer[label].as_f64());
                let sum: f64 = shares.map(Option::unwrap).sum();
                (label.clone(), json!(sum / 60.0))
            })
            .collect();
        assert_eq!(best.name, "marginal");
        trivial
            .items
            .iter_mut()
            .for_each(|item| item[1] = json!(means));
        let scored = |case: &Case| values(&case.score(metric, &case.table_of(metric, 0), false));
        let (own, others) = (scored(&case), scored(&trivial));
        let influence = |(own, other): (&f64, &f64)| {
            (other - best.value) * (1.0 - share) - (own - figures.value)
        };
        let squares: f64 = own
            .iter()
            .zip(&others)
            .map(influence)
            .map(|one| one * one)
            .sum();
        let stderr = (squares / 59.0 / 60.0).sqrt() / (best.value - floor);
        assert!((found.stderr.unwrap() - stderr).abs() <= 1e-12, "{metric}");
    }
    // The number of people is needed for each item.
    case.people.pop();
    assert_eq!(
        noise_floor(&case.table_of(Metric::Tvd, 0), Metric::Tvd),
        None
    );
    // A floor that no constant exceeds gives no share.
    let constant = Case {
        items: vec![[json!({"a": 0.5, "b": 0.5}), Value::Null]; 2],
        people: vec![5; 2],
        ..Case::default()
    };
    let table = constant.table_of(Metric::Tvd, 0);
    let floor = noise_floor(&table, Metric::Tvd).unwrap();
    let scores = noise_floor_scores(&table, Metric::Tvd, floor).unwrap();
    assert!(scores.warning().unwrap().contains("too few people"));
}

#[test]
fn retest_of_distributions_is_scored_as_predictions() {
    for (seed, metric) in (20..).zip(metrics()) {
        let name = metric.to_string();
        let case = random_case(120, 4, seed);
        let mut retest = random_case(120, 4, seed + 50);
        for (item, [answer, _]) in retest.items.iter_mut().zip(&case.items) {
            // The second answer is near the first one.
            item[1] = json!({});
            for label in &case.labels {
                let other = item[0][label].as_f64().unwrap();
                let near = 0.9 * answer[label].as_f64().unwrap() + 0.1 * other;
                item[1][label] = json!(near);
            }
            item[0] = answer.clone();
        }
        let mut table = case.table_of(metric, 40);
        let mut builder = CeilingBuilder::new(&table, metric);
        for (item, [_, second]) in retest.items.iter().enumerate() {
            let answers = json!([second]).to_string();
            assert_eq!(builder.add(&format!("i{item}"), &answers), Ok(true));
        }
        let scores = builder.finish().unwrap();
        let ceiling = scores.ceiling();
        let expected = retest.score(metric, &table, false).figures;
        let near = |one: f64, other: f64| (one - other).abs() <= 1e-12;
        assert!(near(ceiling.value, expected.value), "{name}");
        let stderr = expected.estimate.unwrap().stderr;
        assert!(near(ceiling.stderr.unwrap(), stderr), "{name}");
        table.set_retest(scores);
        let found = retest.score(metric, &table, false).figures;
        let share = found.share_of_ceiling.unwrap();
        assert!(
            near(share.value, 1.0) && share.stderr.unwrap() < 1e-12,
            "{name}"
        );
    }
}

#[test]
fn single_label_is_a_retest_of_the_mode_only() {
    let case = random_case(60, 3, 31);
    let retested = |name: &str| {
        let metric: Metric = name.parse().unwrap();
        let table = case.table_of(metric, 0);
        let mut builder = CeilingBuilder::new(&table, metric);
        for item in 0..60 {
            builder.add(&format!("i{item}"), "[\"l0\", \"l1\"]")?;
        }
        Ok::<f64, String>(builder.finish()?.ceiling().value)
    };
    let modes = case.items.iter().filter(|[answer, _]| {
        let [first, second, third] =
            ["l0", "l1", "l2"].map(|label| answer[label].as_f64().unwrap());
        third < first.max(second)
    });
    let found = retested("top@1").unwrap();
    assert!(
        (found - modes.count() as f64 / 120.0).abs() <= 1e-12,
        "{found}"
    );
    for name in ["tvd", "log_loss", "kl", "rps"] {
        let error = retested(name).unwrap_err();
        assert!(error.contains("one label is no forecast"), "{error}");
    }
}

/// Returns the shares of `people` drawn from these shares.
fn shares_of_people(shares: &[f64], people: u32, random: &mut Xoshiro256PlusPlus) -> Vec<f64> {
    let mut drawn = vec![0.0; shares.len()];
    for _ in 0..people {
        let mut roll: f64 = random.random();
        let chosen = shares.iter().position(|share| {
            roll -= share;
            roll < 0.0
        });
        drawn[chosen.unwrap_or(shares.len() - 1)] += 1.0 / f64::from(people);
    }
    drawn
}

/// Returns a population of questions with four options, each answered by 50 people. A model predicts a
/// distribution near that of all people.
fn population(n: usize) -> Case {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(41);
    let labels: Vec<String> = (0..4).map(|option| format!("l{option}")).collect();
    let normalized = |weights: [f64; 4]| {
        let sum: f64 = weights.iter().sum();
        weights.map(|weight| weight / sum)
    };
    let object = |shares: &[f64]| {
        let entries = labels.iter().zip(shares);
        json!(
            entries
                .map(|(label, share)| (label.clone(), json!(share)))
                .collect::<serde_json::Map<_, _>>()
        )
    };
    let mut items = Vec::new();
    for _ in 0..n {
        let all = normalized([0; 4].map(|_| -random.random::<f64>().ln()));
        let noise = [0; 4].map(|_| random.random_range(0.3..3.0));
        let model = normalized([0, 1, 2, 3].map(|option| all[option] * noise[option] + 0.02));
        let answer = shares_of_people(&all, 50, &mut random);
        items.push([object(&answer), object(&model)]);
    }
    Case {
        labels,
        items,
        ..Case::default()
    }
}

/// `TEST_SAMPLES=4000 cargo test -p assay-eval intervals_contain -- --nocapture` measures the figures of
/// `docs/metrics.md`.
#[test]
fn intervals_contain_the_population_value() {
    let case = population(10_000);
    let samples = n_samples(200);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(42);
    for metric in metrics() {
        let [method, ..] = methods(metric);
        let scores = values(&case.score(metric, &case.table_of(metric, 0), false));
        let expected = mean(&scores);
        let range = metric.range(None, 4);
        let coverage = [100, 1_000].map(|n| {
            let mut n_covered = 0;
            for _ in 0..samples {
                let sample: Vec<f64> = (0..n)
                    .map(|_| scores[random.random_range(0..scores.len())])
                    .collect();
                let value = mean(&sample);
                let estimate = if method == "wilson" {
                    wilson(value, n)
                } else {
                    stderr_of_mean(value, n, sample.iter().copied())
                        .map(|stderr| estimate_within(range, value, stderr, method))
                };
                let [low, high] = estimate.unwrap().ci95;
                n_covered += u64::from(low <= expected && expected <= high);
            }
            100.0 * n_covered as f64 / samples as f64
        });
        println!(
            "{metric}: {:.1} % of {samples} samples of 100 items, {:.1} % of 1,000",
            coverage[0], coverage[1]
        );
        for covered in coverage {
            // Three standard errors of 200 samples are 4.6 points.
            assert!((90.0..99.5).contains(&covered), "{metric}: {covered}");
        }
    }
}
