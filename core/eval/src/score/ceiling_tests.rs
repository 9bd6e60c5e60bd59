//! Noise ceilings.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::StandardNormal;
use serde_json::{Value, json};

use super::*;
use crate::disclosure::{DisclosurePolicy, Ladder};
use crate::metric::Metric;
use crate::simulation::n_samples;
use crate::suite::answers::Answer;

/// A suite with a retest, and a submission.
#[derive(Default)]
struct Case {
    answers: Vec<Value>,
    /// `null` for an item without a prediction.
    predictions: Vec<Value>,
    /// `null` for an item without retest answers.
    retest: Vec<Value>,
    /// Empty if items are independent.
    clusters: Vec<u32>,
}

impl Case {
    fn of(case: &Value) -> Self {
        let values = |field: &str| case[field].as_array().cloned().unwrap_or_default();
        let clusters = values("clusters");
        Self {
            answers: values("answers"),
            predictions: values("predictions"),
            retest: values("retest"),
            clusters: clusters
                .iter()
                .map(|cluster| cluster.as_u64().unwrap() as u32)
                .collect(),
        }
    }

    fn table(&self, metric: Metric) -> AnswerTable {
        let mut builder = Builder::new(metric, self.answers.len());
        for (item, answer) in self.answers.iter().enumerate() {
            let answer = answer.to_string();
            let answer = Answer::parse(&answer, &metric).unwrap();
            builder.push(&format!("i{item}"), &answer).unwrap();
            if let Some(cluster) = self.clusters.get(item) {
                builder.put_into_cluster(*cluster);
            }
        }
        builder.finish().unwrap()
    }

    /// Returns the table with its retest, whose lines are in this order.
    fn retested(
        &self,
        metric: Metric,
        order: impl Iterator<Item = usize>,
    ) -> Result<AnswerTable, String> {
        let mut table = self.table(metric);
        let mut builder = CeilingBuilder::new(&table, metric);
        for item in order.filter(|item| !self.retest[*item].is_null()) {
            assert!(builder.add(&format!("i{item}"), &self.retest[item].to_string())?);
        }
        let scores = builder.finish()?;
        table.set_retest(scores);
        Ok(table)
    }

    fn score(&self, metric: Metric, table: &AnswerTable) -> Figures {
        let shown = (0..self.answers.len()).filter(|item| !self.predictions[*item].is_null());
        let predictions: Vec<Value> = shown
            .map(
                |item| json!({"item_id": format!("i{item}"), "prediction": self.predictions[item]}),
            )
            .collect();
        let bytes = json!(predictions).to_string();
        let scored = score(table, None, metric, bytes.as_bytes(), &Progress::default());
        scored.unwrap().figures
    }

    fn figures(&self, metric: Metric) -> Figures {
        let table = self.retested(metric, 0..self.answers.len()).unwrap();
        self.score(metric, &table)
    }
}

/// Returns the relative difference; of small figures, the absolute one.
fn far(found: f64, expected: &Value) -> f64 {
    let expected = expected.as_f64().unwrap();
    (found - expected).abs() / expected.abs().max(1e-3)
}

fn far_ends(found: [f64; 2], expected: &Value) -> f64 {
    far(found[0], &expected[0]).max(far(found[1], &expected[1]))
}

#[test]
fn shares_agree_with_brain_score_and_numpy() {
    let cases: Value =
        serde_json::from_str(include_str!("../../../../tests/vectors/ceilings.json")).unwrap();
    let cases = cases.as_array().unwrap();
    assert_eq!(cases.len(), 200);
    let [mut worst_value, mut worst_stderr, mut worst_ends] = [0.0_f64; 3];
    for expected in cases {
        let name = &expected["name"];
        let case = Case::of(expected);
        let metric: Metric = expected["metric"].as_str().unwrap().parse().unwrap();
        let found = case.figures(metric);
        let ceiling = found.ceiling.unwrap();
        let n = case.retest.iter().filter(|answers| !answers.is_null());
        assert_eq!(ceiling.n, n.count() as i64, "{name}");
        assert_eq!(
            found.share_of_ceiling.is_none(),
            expected["share"].is_null(),
            "{name}"
        );
        let share = found
            .share_of_ceiling
            .map(|share| (share.value, share.stderr, share.ci95, &expected["share"]));
        let ceiling = (
            ceiling.value,
            ceiling.stderr,
            ceiling.ci95,
            &expected["ceiling"],
        );
        for (value, stderr, ci95, expected) in [ceiling].into_iter().chain(share) {
            let value = far(value, &expected["value"]);
            let stderr = far(stderr.unwrap(), &expected["stderr"]);
            let ends = far_ends(ci95.unwrap(), &expected["ci95"]);
            assert!(
                value <= 1e-12 && stderr <= 1e-12 && ends <= 1e-11,
                "{name}: {value:e} {stderr:e} {ends:e}"
            );
            worst_value = worst_value.max(value);
            worst_stderr = worst_stderr.max(stderr);
            worst_ends = worst_ends.max(ends);
        }
    }
    println!("value {worst_value:e}, stderr {worst_stderr:e}, ends {worst_ends:e}");
}

#[test]
fn order_of_retest_lines_changes_nothing() {
    let cases: Value =
        serde_json::from_str(include_str!("../../../../tests/vectors/ceilings.json")).unwrap();
    for expected in &cases.as_array().unwrap()[..12] {
        let case = Case::of(expected);
        let metric: Metric = expected["metric"].as_str().unwrap().parse().unwrap();
        let n = case.answers.len();
        let backwards = case.retested(metric, (0..n).rev()).unwrap();
        assert_eq!(
            case.score(metric, &backwards),
            case.figures(metric),
            "{metric}"
        );
    }
}

/// Returns a suite whose items are right labels, half of them retested.
fn labels(n: usize, n_retested: usize, n_clusters: usize) -> Case {
    let label = |item: usize| json!(["x", "y", "z"][item % 3]);
    Case {
        answers: (0..n).map(label).collect(),
        predictions: (0..n).map(label).collect(),
        retest: (0..n)
            .map(|item| match item {
                _ if item >= n_retested => Value::Null,
                _ if item % 4 == 0 => json!(["other"]),
                _ => json!([label(item)]),
            })
            .collect(),
        clusters: (0..n)
            .map(|item| (item % n_clusters.max(1)) as u32)
            .take(if n_clusters > 0 { n } else { 0 })
            .collect(),
    }
}

#[test]
fn ceiling_needs_items_and_clusters() {
    let finish = |case: &Case| case.retested(Metric::Accuracy, 0..case.answers.len()).err();
    assert_eq!(finish(&labels(200, 50, 0)), None);
    let error = finish(&labels(200, 49, 0)).unwrap();
    assert_eq!(
        error,
        "49 items have retest answers, but a ceiling needs 50"
    );
    assert_eq!(finish(&labels(200, 60, 10)), None);
    let error = finish(&labels(200, 60, 9)).unwrap();
    assert!(
        error.contains("in 9 clusters, but a ceiling needs 10"),
        "{error}"
    );
    // Only the clusters with retested items count.
    let mut case = labels(200, 60, 40);
    case.clusters
        .iter_mut()
        .take(60)
        .for_each(|cluster| *cluster %= 9);
    assert!(finish(&case).unwrap().contains("in 9 clusters"));
}

#[test]
fn constant_retest_answers_are_rejected_for_correlations() {
    let numbers = |constant: bool| Case {
        answers: (0..60).map(|item| json!(item)).collect(),
        retest: (0..60)
            .map(|item| json!([if constant { 1 } else { item * item % 17 }]))
            .collect(),
        ..Case::default()
    };
    assert!(numbers(false).retested(Metric::Spearman, 0..60).is_ok());
    let error = numbers(true).retested(Metric::Spearman, 0..60).unwrap_err();
    assert!(error.starts_with("spearman is not defined"), "{error}");
    assert!(numbers(true).retested(Metric::Mae, 0..60).is_ok());
}

#[test]
fn unknown_item_is_reported_and_repeated_one_rejected() {
    let table = labels(60, 60, 0).table(Metric::Accuracy);
    let mut builder = CeilingBuilder::new(&table, Metric::Accuracy);
    assert_eq!(builder.add("i0", "[\"x\"]"), Ok(true));
    assert_eq!(builder.add("none", "[\"x\"]"), Ok(false));
    let error = builder.add("i0", "[\"x\"]").unwrap_err();
    assert_eq!(error, "item_id \"i0\" is repeated");
}

#[test]
fn retest_takes_eight_bytes_for_each_item() {
    for metric in [Metric::Accuracy, Metric::LogLoss, Metric::F1Macro] {
        let mut case = labels(30_000, 10_000, 0);
        if metric == Metric::LogLoss {
            case.retest
                .iter_mut()
                .filter(|answers| !answers.is_null())
                .for_each(|answers| {
                    *answers = json!([{"x": 0.5, "y": 0.25, "z": 0.25}]);
                });
        }
        let before = case.table(metric).bytes();
        let table = case.retested(metric, 0..30_000).unwrap();
        // A bit for each item of the table, and a loss for each label.
        let limit = 8 * 10_000 + 30_000 / 8 + 3 * 8;
        assert_eq!(table.retest().unwrap().bytes(), table.bytes() - before);
        assert!(
            table.bytes() - before <= limit,
            "{metric}: {} {limit}",
            table.bytes() - before
        );
    }
}

#[test]
fn bad_ceiling_has_warning_and_no_share() {
    // The most frequent answer is right for half of the items.
    let mut case = Case {
        answers: (0..100).map(|item| json!(["x", "y"][item % 2])).collect(),
        predictions: vec![json!("x"); 100],
        retest: vec![json!(["x"]); 100],
        ..Case::default()
    };
    let warning = |case: &Case, metric| {
        let table = case.retested(metric, 0..case.answers.len()).unwrap();
        let figures = case.score(metric, &table);
        let warning = table.retest().unwrap().warning().map(str::to_owned);
        assert_eq!(figures.share_of_ceiling.is_none(), warning.is_some());
        assert_eq!(figures.ceiling, Some(table.retest().unwrap().ceiling()));
        warning
    };
    let found = warning(&case, Metric::Accuracy).unwrap();
    assert!(
        found.contains(
            "0.5000, not better than the best trivial submission (most frequent answers: 0.5000)"
        ),
        "{found}"
    );
    case.retest[1] = json!(["y"]);
    assert_eq!(warning(&case, Metric::Accuracy), None);
    case.retest = vec![json!(["z"]); 100];
    let found = warning(&case, Metric::Accuracy).unwrap();
    assert!(
        found.contains("the ceiling is 0.0000, not above 0"),
        "{found}"
    );
    // A loss of 0 is the best ceiling, and one as large as that of the mean is none.
    let mut case = Case {
        answers: (0..100).map(|item| json!(item)).collect(),
        predictions: (0..100).map(|item| json!(item + 1)).collect(),
        retest: (0..100).map(|item| json!([item])).collect(),
        ..Case::default()
    };
    assert_eq!(warning(&case, Metric::Mae), None);
    case.retest = vec![json!([49.5]); 100];
    let found = warning(&case, Metric::Mae).unwrap();
    assert!(
        found.contains("(median: 25.0000)") || found.contains("(mean: 25.0000)"),
        "{found}"
    );
}

/// A simulated suite.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scenario {
    Accuracy,
    /// As `Accuracy`, with retest answers for half of the items.
    HalfRetested,
    /// The mean absolute error against that of a trivial submission.
    Mae,
    Spearman,
    Pearson,
}

impl Scenario {
    fn metric(self) -> Metric {
        match self {
            Self::Accuracy | Self::HalfRetested => Metric::Accuracy,
            Self::Mae => Metric::Mae,
            Self::Spearman => Metric::Spearman,
            Self::Pearson => Metric::Pearson,
        }
    }

    /// Returns the population's share of the ceiling.
    fn truth(self) -> f64 {
        match self {
            Self::Accuracy | Self::HalfRetested => 0.585 / 0.725,
            Self::Mae => {
                // Mean absolute values of normal distributions, in units of the same factor.
                let [trivial, model, retest] = [2.25_f64, 0.68, 0.5].map(f64::sqrt);
                (trivial - model) / (trivial - retest)
            }
            // The ratio of the two normals' correlations with the answer.
            Self::Pearson => 2.0 / (2.25_f64 * 3.0).sqrt() / (2.0 / 2.25),
            Self::Spearman => {
                // K. Pearson 1907: 6/π · asin(r/2), where r is the correlation of the two normals.
                let [model, retest] = [2.0 / (2.25_f64 * 3.0).sqrt(), 2.0 / 2.25];
                (model / 2.0).asin() / (retest / 2.0).asin()
            }
        }
    }

    /// Draws the answers, the retest answers and the predictions for nine items of each person.
    fn draw(self, random: &mut Xoshiro256PlusPlus, n_persons: usize) -> Case {
        let mut case = Case::default();
        for person in 0..n_persons {
            let consistency = random.random_range(0.5..0.95);
            let skill = 0.6 * consistency + random.random_range(0.0..0.3);
            let place: f64 = random.sample(StandardNormal);
            for _ in 0..9 {
                let [answer, retest, prediction] = match self.metric() {
                    Metric::Accuracy => label_item(random, consistency, skill),
                    _ => self.number_item(random, place),
                };
                let is_retested = self != Self::HalfRetested || random.random_bool(0.5);
                case.answers.push(answer);
                case.predictions.push(prediction);
                case.retest.push(if is_retested {
                    json!([retest])
                } else {
                    Value::Null
                });
                case.clusters.push(person as u32);
            }
        }
        case
    }

    fn number_item(self, random: &mut Xoshiro256PlusPlus, place: f64) -> [Value; 3] {
        let mut normal = |spread: f64| spread * random.sample::<f64, _>(StandardNormal);
        let opinion = place + normal(1.0);
        let [answer, retest] = [0.5, 0.5].map(|spread| opinion + normal(spread));
        let prediction = match self {
            Self::Mae => 0.7 * opinion + normal(0.5),
            _ => opinion + normal(1.0),
        };
        [answer, retest, prediction].map(|number| json!(number))
    }
}

/// Draws a label, the retest label and the predicted one. Items differ in difficulty, so both are often
/// wrong together.
fn label_item(random: &mut Xoshiro256PlusPlus, consistency: f64, skill: f64) -> [Value; 3] {
    let answer = random.random_range(0..3_usize);
    let difficulty = random.random_range(0.0..1.0);
    let is_shared = random.random_bool(0.5);
    let mut label = |share: f64| {
        let drawn = random.random_range(0.0..1.0);
        let is_right = if is_shared { difficulty } else { drawn } < share;
        let other = (answer + random.random_range(1..3)) % 3;
        json!(["x", "y", "z"][if is_right { answer } else { other }])
    };
    let [retest, prediction] = [consistency, skill].map(&mut label);
    [json!(["x", "y", "z"][answer]), retest, prediction]
}

/// The specification's figures are 93 to 97 %. Each share has a sampling error, of which two standard
/// errors are allowed.
#[test]
fn ceiling_share_intervals_keep_their_coverage() {
    let samples = n_samples(100);
    let allowed = 2.0 * (0.95_f64 * 0.05 / samples as f64).sqrt();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(61);
    let all = [
        Scenario::Accuracy,
        Scenario::HalfRetested,
        Scenario::Mae,
        Scenario::Spearman,
        Scenario::Pearson,
    ];
    for scenario in all {
        for n_persons in [20, 50, 100] {
            let covered = (0..samples).filter(|_| {
                let case = scenario.draw(&mut random, n_persons);
                let share = case.figures(scenario.metric()).share_of_ceiling.unwrap();
                let [low, high] = share.ci95.unwrap();
                (low..=high).contains(&scenario.truth())
            });
            let coverage = covered.count() as f64 / samples as f64;
            println!("{scenario:?}, G = {n_persons}: {:.1} %", 100.0 * coverage);
            assert!(
                (0.93 - allowed..=0.97 + allowed).contains(&coverage),
                "{scenario:?} {n_persons}: {coverage}"
            );
        }
    }
}

#[test]
fn policies_disclose_ceiling_and_share() {
    let round = |figure: f64| (figure * 100.0).round() / 100.0;
    let [rounded, sealed, exact]: [DisclosurePolicy; 3] =
        ["rounded(2)", "sealed(0.5)", "exact"].map(|policy| policy.parse().unwrap());
    let cases: Value =
        serde_json::from_str(include_str!("../../../../tests/vectors/ceilings.json")).unwrap();
    for expected in &cases.as_array().unwrap()[..60] {
        let case = Case::of(expected);
        let metric: Metric = expected["metric"].as_str().unwrap().parse().unwrap();
        let figures = case.figures(metric);
        for policy in [exact, sealed] {
            assert_eq!(policy.disclose(figures.clone(), None), Ok(figures.clone()));
        }
        let shown = rounded.disclose(figures.clone(), None).unwrap();
        let ceiling = figures.ceiling.unwrap();
        let shown_ceiling = shown.ceiling.unwrap();
        assert_eq!(shown_ceiling.value, round(ceiling.value));
        assert_eq!(shown_ceiling.stderr, ceiling.stderr.map(round));
        assert_eq!(shown_ceiling.ci95, ceiling.ci95.map(|ends| ends.map(round)));
        assert_eq!(rounded.disclose_ceiling(ceiling, None), Ok(shown_ceiling));
        let Some(share) = figures.share_of_ceiling else {
            assert_eq!(shown.share_of_ceiling, None);
            continue;
        };
        let trivial = best_trivial(&trivial_submissions(&case.table(metric), metric), metric);
        let zero = if metric.lower_is_better() {
            round(trivial.unwrap().value)
        } else {
            0.0
        };
        let shown_share = shown.share_of_ceiling.unwrap();
        let value = (shown.value - zero) / (shown_ceiling.value - zero);
        assert_eq!(shown_share.value, round(value), "{metric}");
        assert_eq!(shown_share.stderr, share.stderr.map(round));
        assert_eq!(shown_share.ci95, share.ci95.map(|ends| ends.map(round)));
    }
}

#[test]
fn ladder_discloses_rounded_ceiling_only() {
    let policy: DisclosurePolicy = "ladder(0.1)".parse().unwrap();
    let ladder = Ladder {
        start: 0.34,
        step: 0.1,
        levels: 6,
    };
    // 45 of 60 retest answers are right.
    let figures = labels(120, 60, 20).figures(Metric::Accuracy);
    let ceiling = figures.ceiling.unwrap();
    assert_eq!(ceiling.value, 0.75);
    let mut level = 0;
    let shown = policy
        .disclose(figures, Some((ladder, &mut level)))
        .unwrap();
    let expected = Ceiling {
        value: 0.74,
        stderr: None,
        ci95: None,
        ..ceiling
    };
    assert_eq!(
        (shown.ceiling, shown.share_of_ceiling),
        (Some(expected), None)
    );
    // The ceiling does not raise the level of the job.
    assert_eq!(level, 6);
    assert_eq!(policy.disclose_ceiling(ceiling, Some(ladder)), Ok(expected));
    assert!(policy.disclose_ceiling(ceiling, None).is_err());
    assert_eq!(ladder.constant_bits(), 7.0_f64.log2());
}

#[test]
fn share_is_absent_if_rounding_leaves_no_room() {
    let case = Case {
        answers: (0..100).map(|item| json!(item)).collect(),
        predictions: (0..100).map(|item| json!(item + 1)).collect(),
        retest: (0..100)
            .map(|item| json!([if item == 49 { 49.0 } else { 49.5 }]))
            .collect(),
        ..Case::default()
    };
    let figures = case.figures(Metric::Mae);
    assert!(figures.share_of_ceiling.is_some());
    let policy: DisclosurePolicy = "rounded(1)".parse().unwrap();
    let shown = policy.disclose(figures, None).unwrap();
    assert_eq!(shown.share_of_ceiling, None);
    assert_eq!(shown.ceiling.unwrap().value, 25.0);
}
