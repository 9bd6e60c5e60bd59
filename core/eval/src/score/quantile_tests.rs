//! Figures of predicted quantiles.

use std::fmt::Write as _;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::StandardNormal;
use serde_json::Value;

use super::*;
use crate::clusters::Average;
use crate::compare::{Contribution, Pairs, StoredItems};
use crate::disclosure::Ladder;
use crate::metric::{Clip, Metric};
use crate::quantile_levels::QuantileLevels;
use crate::slices::FieldSlices;
use crate::stats::confidence::{Estimate, Z, estimate_within, stderr_of_mean};
use crate::suite::answers::Answer;

const METRICS: [Metric; 2] = [Metric::Pinball, Metric::Wis];

/// A suite and a submission, by item.
#[derive(Clone)]
struct Case {
    levels: QuantileLevels,
    clip: Option<Clip>,
    answers: Vec<f64>,
    clusters: Vec<u32>,
    predictions: Vec<Option<Vec<f64>>>,
}

impl Case {
    fn of(case: &Value) -> Self {
        let list = |field: &str| case[field].as_array().unwrap().iter();
        let number = |one: &Value| one.as_f64().unwrap();
        let levels: Vec<f64> = list("levels")
            .map(|level| level.as_str().unwrap().parse().unwrap())
            .collect();
        let clip = case["clip"].as_array();
        let quantiles = |numbers: &Vec<Value>| numbers.iter().map(number).collect();
        Self {
            levels: QuantileLevels::new(&levels).unwrap(),
            clip: clip.map(|ends| Clip::new(number(&ends[0]), number(&ends[1])).unwrap()),
            answers: list("answers").map(number).collect(),
            clusters: list("clusters")
                .map(|cluster| cluster.as_u64().unwrap() as u32)
                .collect(),
            predictions: list("predictions")
                .map(|numbers| numbers.as_array().map(quantiles))
                .collect(),
        }
    }

    /// Returns a case whose forecasts are normal around a noisy guess.
    fn random(n: usize, seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut normal = || random.sample::<f64, _>(StandardNormal);
        let answers: Vec<f64> = (0..n).map(|_| normal()).collect();
        let predictions = answers.iter().map(|answer| {
            let center = 0.6 * answer + 0.5 * normal();
            Some(
                [-1.6, -0.7, 0.0, 0.7, 1.6]
                    .map(|z| center + 0.8 * z)
                    .to_vec(),
            )
        });
        Self {
            levels: QuantileLevels::new(&[0.05, 0.25, 0.5, 0.75, 0.95]).unwrap(),
            clip: None,
            clusters: (0..n as u32).map(|item| item / 5).collect(),
            predictions: predictions.collect(),
            answers,
        }
    }

    /// Returns the table. Without an average, items are independent.
    fn table(&self, metric: Metric, average: Option<Average>) -> AnswerTable {
        self.fill(self.builder(metric, average), average.is_some())
    }

    fn builder(&self, metric: Metric, average: Option<Average>) -> Builder {
        Builder::new(metric, self.answers.len())
            .clip(self.clip)
            .quantiles(Some(self.levels.clone()))
            .average(average.unwrap_or_default())
    }

    fn fill(&self, mut builder: Builder, has_clusters: bool) -> AnswerTable {
        for (item, answer) in self.answers.iter().enumerate() {
            let pushed = builder.push(&format!("i{item}"), &Answer::Number(*answer));
            pushed.unwrap();
            if has_clusters {
                builder.put_into_cluster(self.clusters[item]);
            }
        }
        builder.finish().unwrap()
    }

    /// Returns the submission. Every second item has its levels in reverse order.
    fn submission(&self) -> String {
        let names: Vec<&str> = self.levels.names().collect();
        let mut rows = Vec::new();
        for (item, numbers) in self.predictions.iter().enumerate().rev() {
            let Some(numbers) = numbers else { continue };
            let mut pairs: Vec<String> = names
                .iter()
                .zip(numbers)
                .map(|(name, number)| format!("\"{name}\":{number:e}"))
                .collect();
            if item % 2 == 1 {
                pairs.reverse();
            }
            let mut row = format!("{{\"item_id\":\"i{item}\",\"prediction\":{{");
            let _ = write!(row, "{}}}}}", pairs.join(","));
            rows.push(row);
        }
        format!("[{}]", rows.join(","))
    }

    fn score(&self, metric: Metric, average: Option<Average>) -> Score {
        let table = self.table(metric, average);
        let submission = self.submission();
        let progress = Progress::default();
        score(&table, None, metric, submission.as_bytes(), &progress).unwrap()
    }
}

fn losses(score: &Score) -> Vec<f64> {
    let n = score.items.len();
    (0..n).map(|item| score.items.value(item)).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the difference, relative to the magnitude of the figure if that is above `unit`.
fn far(found: f64, expected: &Value, unit: f64) -> f64 {
    let expected = expected.as_f64().unwrap();
    (found - expected).abs() / expected.abs().max(unit)
}

fn far_estimate(found: Estimate, expected: &Value, unit: f64) -> f64 {
    let [low, high] = [0, 1].map(|end| far(found.ci95[end], &expected["ci95"][end], unit));
    far(found.stderr, &expected["stderr"], unit)
        .max(low)
        .max(high)
}

#[test]
fn figures_agree_with_scoringrules_and_scikit_learn() {
    let vectors = include_str!("../../../../tests/vectors/quantiles.json");
    let vectors: Vec<Value> = serde_json::from_str(vectors).unwrap();
    for metric in METRICS {
        let mut counts = [0; 5];
        let mut worst = [0.0_f64; 6];
        for case in &vectors {
            let (expected, metrics) = (&case["figures"][metric.to_string()], &case["metrics"]);
            if expected.is_null() {
                continue;
            }
            let name = &case["name"];
            let case = Case::of(case);
            counts[0] += 1;
            // The answers of a suite may be so small that nearly any figure is close.
            let ends =
                |most: fn(f64, f64) -> f64| case.answers.iter().copied().reduce(most).unwrap();
            let unit = (ends(f64::max) - ends(f64::min)).min(1.0);
            let scored = case.score(metric, None);
            let figures = &scored.figures;
            worst[0] = worst[0].max(far(figures.value, &expected["value"], unit));
            let independent = figures.estimate.unwrap();
            assert_eq!(independent.method, "normal");
            worst[1] = worst[1].max(far_estimate(independent, &expected["independent"], unit));
            for (found, loss) in losses(&scored)
                .into_iter()
                .zip(expected["losses"].as_array().into_iter().flatten())
            {
                counts[1] += 1;
                worst[2] = worst[2].max(far(found, loss, unit));
            }
            let metrics = metrics.as_object().unwrap();
            assert_eq!(figures.metrics.len(), metrics.len(), "{name}");
            for (figure, expected) in metrics {
                counts[2] += 1;
                worst[3] = worst[3].max(far(figures.metrics[figure], expected, unit));
            }
            let by_cluster = case.score(metric, Some(Average::Item)).figures;
            assert_eq!(by_cluster.value, figures.value);
            match by_cluster.estimate {
                None => assert!(expected["clustered"].is_null(), "{name}"),
                Some(found) => {
                    counts[3] += 1;
                    assert_eq!(found.method, "cluster_t");
                    worst[4] = worst[4].max(far_estimate(found, &expected["clustered"], unit));
                }
            }
            let expected = &expected["average"];
            if !expected.is_null() {
                counts[4] += 1;
                let averaged = case.score(metric, Some(Average::Cluster)).figures;
                assert_eq!(Some(averaged.clusters.unwrap().n), expected["n"].as_i64());
                worst[5] = worst[5]
                    .max(far(averaged.value, &expected["value"], unit))
                    .max(far_estimate(averaged.estimate.unwrap(), expected, unit));
            }
        }
        println!("{metric}: {counts:?} compared, largest differences {worst:?}");
        assert!(
            counts[0] >= 200 && counts[1] > 1_000 && counts[2] > 400,
            "{counts:?}"
        );
        assert!(counts[3] > 100 && counts[4] > 100, "{counts:?}");
        assert!(
            worst.iter().all(|worst| *worst <= 1e-12),
            "{metric}: {worst:?}"
        );
    }
}

#[test]
fn wis_is_twice_pinball() {
    let case = Case::random(80, 1);
    let [pinball, wis] = METRICS.map(|metric| case.score(metric, None));
    let doubled: Vec<f64> = losses(&pinball).iter().map(|loss| 2.0 * loss).collect();
    assert_eq!(losses(&wis), doubled);
    assert!((wis.figures.value - 2.0 * pinball.figures.value).abs() < 1e-15);
    assert_eq!(wis.figures.metrics, pinball.figures.metrics);
    // All numbers equal: a point forecast, with its absolute error.
    let mut points = case;
    for numbers in points.predictions.iter_mut().flatten() {
        let median = numbers[2];
        numbers.fill(median);
    }
    let wis = points.score(Metric::Wis, None).figures;
    assert!((wis.value - wis.metrics["mae"]).abs() < 1e-15);
    assert_eq!(wis.metrics["coverage@0.9"], 0.0);
}

/// The delete-one jackknife (J. W. Tukey 1958) knows no formula for a contribution.
#[test]
fn contributions_agree_with_jackknife() {
    let n = 400;
    let case = Case::random(n, 3);
    for metric in METRICS {
        let scored = case.score(metric, None);
        let value = scored.figures.value;
        let contributions = losses(&scored);
        assert!((mean(&contributions) - value).abs() <= 1e-12, "{metric}");
        let without = |item: usize| {
            let mut rest = case.clone();
            rest.answers.remove(item);
            rest.predictions.remove(item);
            rest.score(metric, None).figures.value
        };
        let left_out: Vec<f64> = (0..n).map(without).collect();
        let center = mean(&left_out);
        let squares: f64 = left_out.iter().map(|one| (one - center).powi(2)).sum();
        let jackknife = (squares * (n as f64 - 1.0) / n as f64).sqrt();
        let ratio = scored.figures.estimate.unwrap().stderr / jackknife;
        println!("{metric}: standard errors {ratio:.5}");
        assert!((ratio - 1.0).abs() <= 0.02, "{metric}: {ratio}");
    }
}

#[test]
fn missing_prediction_has_spread_or_upper_bound() {
    let mut case = Case::random(60, 4);
    case.answers[7] = -9.0;
    case.answers[8] = 11.0;
    case.predictions
        .iter_mut()
        .skip(1)
        .for_each(|numbers| *numbers = None);
    for metric in METRICS {
        for (clip, worst) in [(None, 20.0), (Clip::new(0.0, 2.5), 2.5)] {
            let case = Case {
                clip,
                ..case.clone()
            };
            let scored = case.score(metric, None);
            assert_eq!(scored.n_missing, 59);
            assert!(losses(&scored)[1..].iter().all(|loss| *loss == worst));
            let found = &scored.figures.metrics;
            // The bounds are for the losses, not for the error of the median.
            let error = (case.predictions[0].as_ref().unwrap()[2] - case.answers[0]).abs();
            let mae = (error + 59.0 * 20.0) / 60.0;
            assert!((found["mae"] - mae).abs() < 1e-12);
            assert!(found["coverage@0.9"] <= 1.0 / 60.0);
        }
    }
}

#[test]
fn trivial_quantiles_are_the_best_constants() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(9);
    let case = Case::random(90, 5);
    for (metric, average) in [
        (Metric::Pinball, None),
        (Metric::Wis, Some(Average::Item)),
        (Metric::Pinball, Some(Average::Cluster)),
    ] {
        let mut case = case.clone();
        // Clusters with different sizes, so that an average weighs answers.
        case.clusters = (0..90)
            .map(|item| if item < 40 { 0 } else { item % 20 })
            .collect();
        let trivial = trivial_submissions(&case.table(metric, average), metric);
        let [trivial] = trivial.as_slice() else {
            panic!("{trivial:?}")
        };
        assert_eq!(trivial.name, "quantiles of the answers");
        let value = |numbers: Vec<f64>| {
            let mut constant = case.clone();
            constant.predictions.fill(Some(numbers));
            constant.score(metric, average).figures.value
        };
        if average.is_none() {
            let mut sorted = case.answers.clone();
            sorted.sort_by(f64::total_cmp);
            // The smallest answers up to which there are 4.5, 22.5, 45, 67.5 and 85.5 of 90.
            let expected = [5, 23, 45, 68, 86].map(|rank: usize| sorted[rank - 1]);
            assert_eq!(value(expected.to_vec()), trivial.value);
        }
        for _ in 0..200 {
            let mut numbers: Vec<f64> = (0..5)
                .map(|_| case.answers[random.random_range(0..90)])
                .collect();
            numbers.sort_by(f64::total_cmp);
            assert!(value(numbers) >= trivial.value - 1e-12, "{metric}");
        }
    }
}

#[test]
fn ladder_begins_at_trivial_quantiles() {
    let mut case = Case::random(80, 6);
    case.clip = Clip::new(0.0, 4.0);
    for metric in METRICS {
        let table = case.table(metric, None);
        let step = |text: &str| match text.parse().unwrap() {
            crate::DisclosurePolicy::Ladder(step) => step,
            other => panic!("{other:?}"),
        };
        let ladder = Ladder::for_suite(step("ladder(0.01)"), metric, case.clip, &table).unwrap();
        let trivial = trivial_submissions(&table, metric)[0].value;
        assert!(ladder.start <= trivial && trivial - ladder.start < 4e-4);
        assert_eq!(ladder.step, -0.04);
        assert_eq!(
            Ladder::for_suite(step("ladder(0.01)"), metric, None, &table),
            None
        );
    }
}

#[test]
fn slice_has_the_figure_of_its_items() {
    let case = Case::random(120, 7);
    for metric in METRICS {
        let field = FieldSlices::new("half".to_owned(), vec!["a".to_owned(), "b".to_owned()]);
        let mut builder = case.builder(metric, None).slices(vec![field]);
        for (item, answer) in case.answers.iter().enumerate() {
            let pushed = builder.push(&format!("i{item}"), &Answer::Number(*answer));
            pushed.unwrap();
            builder.put_into_slices(&[u8::from(item >= 50)]);
        }
        let table = builder.finish().unwrap();
        let submission = case.submission();
        let scored = score(
            &table,
            None,
            metric,
            submission.as_bytes(),
            &Progress::default(),
        );
        let slices = &scored.unwrap().figures.slices[0].groups;
        for (slice, items) in slices.iter().zip([0..50, 50..120]) {
            let part = Case {
                answers: case.answers[items.clone()].to_vec(),
                predictions: case.predictions[items].to_vec(),
                ..case.clone()
            };
            let figures = part.score(metric, None).figures;
            let estimate = figures.estimate.unwrap();
            assert_eq!(
                (slice.value, slice.stderr),
                (figures.value, Some(estimate.stderr))
            );
            assert_eq!(slice.ci95, Some(estimate.ci95));
        }
    }
}

#[test]
fn comparison_is_a_permutation_test() {
    let one = Case::random(80, 8);
    let mut other = one.clone();
    for (item, numbers) in other.predictions.iter_mut().flatten().enumerate() {
        // Wider intervals at some items.
        numbers[0] -= f64::from(u8::from(item % 4 == 0));
    }
    for metric in METRICS {
        let scores = [&one, &other].map(|case| case.score(metric, None));
        let [a, b] = scores.each_ref().map(|score| StoredItems {
            values: losses(score),
            rights: Vec::new(),
        });
        let difference = scores[0].figures.value - scores[1].figures.value;
        let stored = Contribution::Stored;
        for (labels, method) in [
            (None, "permutation"),
            (Some(one.clusters.as_slice()), "cluster_sign_flip"),
        ] {
            let mut pairs = Pairs::new(metric);
            pairs.add((&a, &stored), (&b, &stored), labels);
            let found = pairs.finish(difference, 0.01, true);
            assert_eq!(
                (found.p_method, found.n_differ),
                (method, Some(20)),
                "{metric}"
            );
            let [low, high] = found.ci95.unwrap();
            assert!(low < difference && difference < high && found.stderr > Some(0.0));
        }
    }
}

#[test]
fn table_without_its_levels_is_rejected() {
    let levels = |values: &[f64]| Some(QuantileLevels::new(values).unwrap());
    for (metric, levels, is_valid) in [
        (Metric::Pinball, None, false),
        (Metric::Pinball, levels(&[0.3]), true),
        (Metric::Wis, levels(&[0.3]), false),
        (Metric::Wis, levels(&[0.3, 0.5, 0.7]), true),
        (Metric::Mae, levels(&[0.3]), true),
    ] {
        let built = Builder::new(metric, 0).quantiles(levels).finish();
        assert_eq!(built.is_ok(), is_valid, "{metric}");
    }
}

/// Coverage of the interval for quantiles of skewed answers. Forecasts know a part of each answer.
#[test]
fn intervals_cover_the_expected_loss() {
    let samples = crate::simulation::n_samples(300);
    let levels = QuantileLevels::new(&[0.05, 0.25, 0.5, 0.75, 0.95]).unwrap();
    let z = [-1.645, -0.674, 0.0, 0.674, 1.645];
    let mut random = Xoshiro256PlusPlus::seed_from_u64(31);
    // Answers are exp(known + unknown), and forecasts the quantiles of exp(known + 1.2 · unknown).
    let mut draw = |metric: Metric, is_skewed: bool| {
        let mut normal = || random.sample::<f64, _>(StandardNormal);
        let (known, unknown) = (0.8 * normal(), 0.6 * normal());
        let scale = |number: f64| if is_skewed { number.exp() } else { number };
        let numbers = z.map(|z| scale(known + 1.2 * 0.6 * z));
        super::quantiles::loss(metric, &levels, numbers.into_iter(), scale(known + unknown))
    };
    for is_skewed in [false, true] {
        for metric in METRICS {
            let many = 2_000_000;
            let expected =
                (0..many).map(|_| draw(metric, is_skewed)).sum::<f64>() / f64::from(many);
            for n in [100, 1_000] {
                let mut n_covered = 0;
                for _ in 0..samples {
                    let losses: Vec<f64> = (0..n).map(|_| draw(metric, is_skewed)).collect();
                    let value = mean(&losses);
                    let stderr = stderr_of_mean(value, n, losses.iter().copied()).unwrap();
                    let range = metric.range(None, 0);
                    let [low, high] = estimate_within(range, value, stderr, "normal").ci95;
                    assert!((high - value - Z * stderr).abs() < 1e-12);
                    n_covered += u64::from(low <= expected && expected <= high);
                }
                let share = n_covered as f64 / samples as f64;
                println!(
                    "{metric}, skewed {is_skewed}, n = {n}: {:.1} %",
                    100.0 * share
                );
                // Few answers far above the others have large losses.
                let least = match (is_skewed, n) {
                    (true, 100) => 0.80,
                    (true, _) => 0.88,
                    (false, _) => 0.93,
                };
                let chance = crate::simulation::allowance(least, samples);
                assert!(share >= least - chance && share <= 0.97 + chance, "{share}");
            }
        }
    }
}
