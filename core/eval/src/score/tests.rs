use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use serde_json::{Value, json};

use super::*;
use crate::metric::Metric;
use crate::prediction;
use crate::suite::answers::Answer;

fn score_json(answers: &Value, metric: &str, predictions: &Value) -> Result<Score, Failure> {
    let metric: Metric = metric.parse().unwrap();
    let answers = answers.as_array().unwrap();
    let mut builder = Builder::new(metric, answers.len());
    for item in answers {
        builder
            .push(
                item[0].as_str().unwrap(),
                &Answer::parse(&item[1].to_string(), &metric).unwrap(),
            )
            .unwrap();
    }
    score(
        &builder.finish().unwrap(),
        None,
        metric,
        predictions.to_string().as_bytes(),
        &Progress::default(),
    )
}

fn one_item() -> AnswerTable {
    let mut builder = Builder::new(Metric::Accuracy, 1);
    builder.push("a", &Answer::Label("x".into())).unwrap();
    builder.finish().unwrap()
}

fn item_values(score: &Score) -> Vec<f64> {
    (0..score.items.len())
        .map(|item| score.items.value(item))
        .collect()
}

/// Returns one prediction's value in a suite with one item.
fn value_of(metric: &str, answer: Value, prediction: Value) -> f64 {
    score_json(
        &json!([["a", answer]]),
        metric,
        &json!([{"item_id": "a", "prediction": prediction}]),
    )
    .unwrap()
    .figures
    .value
}

#[test]
fn label_is_scored_as_ranking_of_one() {
    for metric in ["accuracy", "hit_rate@3", "recall@3", "ndcg@3", "mrr@3"] {
        assert_eq!(value_of(metric, json!("x"), json!("x")), 1.0, "{metric}");
        assert_eq!(value_of(metric, json!("x"), json!("y")), 0.0, "{metric}");
        assert_eq!(value_of(metric, json!("x"), json!([])), 0.0, "{metric}");
    }
}

#[test]
fn accuracy_counts_first_id_only() {
    assert_eq!(
        value_of("accuracy", json!(["x", "y"]), json!(["y", "q"])),
        1.0
    );
    assert_eq!(
        value_of("accuracy", json!(["x", "y"]), json!(["q", "x"])),
        0.0
    );
    assert_eq!(
        value_of("accuracy", json!({"x": 0, "y": 1}), json!(["x"])),
        0.0
    );
}

#[test]
fn ranking_is_cut_at_k() {
    let ranking = || json!(["q", "r", "x"]);
    for metric in ["hit_rate@", "recall@", "ndcg@", "mrr@"] {
        assert_eq!(
            value_of(&format!("{metric}2"), json!("x"), ranking()),
            0.0,
            "{metric}"
        );
        assert!(
            value_of(&format!("{metric}3"), json!("x"), ranking()) > 0.0,
            "{metric}"
        );
        assert_eq!(
            value_of(&format!("{metric}3"), json!("x"), ranking()),
            value_of(&format!("{metric}10000"), json!("x"), ranking()),
            "{metric}: k may be longer than the ranking"
        );
    }
}

#[test]
fn repeated_id_counts_once() {
    assert_eq!(
        value_of("recall@3", json!(["x", "y"]), json!(["x", "x", "x", "y"])),
        0.5
    );
    assert_eq!(
        value_of("mrr@3", json!("x"), json!(["q", "q", "x"])),
        1.0 / 3.0
    );
    let ideal = 1.0 + 1.0 / 3_f64.log2();
    assert_eq!(
        value_of("ndcg@3", json!(["x", "y"]), json!(["x", "x", "y"])),
        (1.0 + 1.0 / 4_f64.log2()) / ideal
    );
}

#[test]
fn long_rankings_are_scored_like_short_ones() {
    let ids = |range: std::ops::Range<u32>| range.map(|at| at.to_string()).collect::<Vec<_>>();
    let mut ranking = ids(50..150);
    ranking.splice(10..10, ids(50..60));
    assert_eq!(
        value_of("recall@60", json!(ids(0..100)), json!(ranking)),
        0.5
    );
    assert_eq!(value_of("mrr@60", json!(ids(0..100)), json!(ranking)), 1.0);
    assert_eq!(
        value_of("ndcg@40", json!(ids(0..100)), json!(ids(0..40))),
        1.0
    );
}

#[test]
fn ideal_dcg_uses_largest_gains() {
    let answer = || json!({"x": 1, "y": 3.5, "z": 2, "no": 0});
    assert_eq!(value_of("ndcg@2", answer(), json!(["y", "z"])), 1.0);
    assert_eq!(value_of("ndcg@1", answer(), json!(["z"])), 2.0 / 3.5);
    assert_eq!(value_of("ndcg@3", answer(), json!(["no"])), 0.0);
}

#[test]
fn missing_items_count_unknown_do_not() {
    let answers = json!([["a", "x"], ["b", "x"], ["c", "x"], ["d", "x"]]);
    let predictions = json!([
        {"item_id": "e", "prediction": "x"},
        {"item_id": "c", "prediction": "x"},
        {"item_id": "a", "prediction": []},
    ]);
    let score = score_json(&answers, "accuracy", &predictions).unwrap();
    assert_eq!(
        (
            score.n,
            score.n_submitted,
            score.n_unmatched,
            score.n_missing,
            score.figures.value
        ),
        (4, 3, 1, 2, 0.25)
    );
    assert_eq!(item_values(&score), [0.0, 0.0, 1.0, 0.0]);
}

#[test]
fn error_counts_as_missing_prediction() {
    let answers = json!([["a", "x"], ["b", "x"], ["c", "x"]]);
    let with_error = json!([
        {"item_id": "a", "prediction": ["x"], "scores": [-0.5]},
        {"item_id": "b", "error": {"code": "validation_failed", "message": "too long"}},
        {"item_id": "unknown", "error": {}},
    ]);
    let score = score_json(&answers, "accuracy", &with_error).unwrap();
    let without = json!([{"item_id": "a", "prediction": ["x"]}]);
    let expected = score_json(&answers, "accuracy", &without).unwrap();
    assert_eq!(score.figures, expected.figures);
    assert_eq!(
        (score.n_submitted, score.n_unmatched, score.n_missing),
        (1, 0, 2)
    );
    assert_eq!(item_values(&score), item_values(&expected));
}

#[test]
fn failures_name_prediction_and_reason() {
    let answers = json!([["a", "x"]]);
    let one = |item_id: &str| json!({"item_id": item_id, "prediction": "x"});
    let cases = [
        (
            json!([one("a"), one("b"), one("a")]),
            "predictions[2].item_id: this item is already predicted",
        ),
        (
            json!([one("b"), one("b")]),
            "predictions[1].item_id: this item is already predicted",
        ),
        (
            json!([one("a"), {"item_id": "b", "prediction": ["x", 1]}]),
            "predictions[1].prediction[1]: must be a string",
        ),
        (json!({}), "predictions: must be an array of objects"),
    ];
    for (predictions, message) in cases {
        let failure = score_json(&answers, "accuracy", &predictions);
        assert_eq!(
            failure,
            Err(Failure::InvalidPredictions(String::from(message)))
        );
    }
    let broken = score(
        &one_item(),
        None,
        Metric::Accuracy,
        b"[{\"item_id\":",
        &Progress::default(),
    );
    assert!(
        matches!(broken, Err(Failure::InvalidPredictions(message)) if message.contains("not valid JSON"))
    );
}

#[test]
fn scoring_stops_on_request() {
    let predictions = br#"[{"item_id":"a","prediction":"x"}]"#;
    assert_eq!(
        score(
            &one_item(),
            None,
            Metric::Accuracy,
            predictions,
            &Progress {
                stop: AtomicBool::new(true),
                ..Progress::default()
            }
        ),
        Err(Failure::Stopped)
    );
}

#[test]
fn rankings_agree_with_trec_eval() {
    let vectors: Value =
        serde_json::from_str(include_str!("../../../../tests/vectors/rankings.json")).unwrap();
    let mut compared = 0;
    for case in vectors.as_array().unwrap() {
        for (metric, expected) in case["values"].as_object().unwrap() {
            let score = score_json(&case["answers"], metric, &case["predictions"]).unwrap();
            let got = score.figures.value;
            let expected = expected.as_f64().unwrap();
            assert!(
                (got - expected).abs() <= 1e-12,
                "{} {metric}: {got} instead of {expected}",
                case["name"]
            );
            assert_eq!(
                json!([
                    score.n,
                    score.n_submitted,
                    score.n_unmatched,
                    score.n_missing
                ]),
                case["counts"]
            );
            compared += 1;
        }
    }
    assert!(compared >= 40 * 31, "only {compared} figures were compared");
}

#[test]
fn item_scores_are_in_suite_order() {
    let answers = json!([["a", "x"], ["b", ["x", "y"]], ["c", "x"], ["d", "x"]]);
    let predictions = json!([
        {"item_id": "d", "prediction": "x"}, {"item_id": "b", "prediction": ["q", "y"]}, {"item_id": "z", "prediction": "x"},
        {"item_id": "a", "prediction": []},
    ]);
    let score = score_json(&answers, "recall@2", &predictions).unwrap();
    assert_eq!(item_values(&score), [0.0, 0.5, 0.0, 1.0]);
    assert_eq!(score.figures.value, 1.5 / 4.0);
}

#[test]
fn figures_agree_with_scikit_learn_and_scipy() {
    let vectors: Value =
        serde_json::from_str(include_str!("../../../../tests/vectors/figures.json")).unwrap();
    let mut compared = 0;
    let mut worst = 0_f64;
    for case in vectors.as_array().unwrap() {
        for (metric, expected) in case["values"].as_object().unwrap() {
            let score = score_json(&case["answers"], metric, &case["predictions"]).unwrap();
            let expected = expected.as_f64().unwrap();
            let far = (score.figures.value - expected).abs() / expected.abs().max(1.0);
            assert!(
                far <= 1e-12,
                "{} {metric}: {} instead of {expected}",
                case["name"],
                score.figures.value
            );
            worst = worst.max(far);
            if let Some(expected) = case["stderr"][metric].as_f64() {
                let stderr = score.figures.estimate.unwrap().stderr;
                assert!(
                    (stderr - expected).abs() <= 1e-9 * expected.abs().max(1e-3),
                    "{} {metric}: {stderr} {expected}",
                    case["name"]
                );
                compared += 1;
            }
            // As an additional figure for another metric the value is the same.
            for (name, figure) in &score.figures.metrics {
                if let Some(expected) = case["values"][name].as_f64() {
                    let far = (figure - expected).abs() / expected.abs().max(1.0);
                    assert!(
                        far <= 1e-12,
                        "{} {name} with {metric}: {figure} instead of {expected}",
                        case["name"]
                    );
                }
            }
            compared += 1;
        }
    }
    assert!(compared > 200, "only {compared} figures were compared");
    assert!(worst <= 1e-12);
}

#[test]
fn missing_item_cancels_no_gap() {
    let answers: Vec<Value> = (0..21)
        .map(|at| json!([format!("i{at}"), if at < 11 { "x" } else { "y" }]))
        .collect();
    // Each confidence is 0.05 too low.
    let prediction = |at: usize| json!({"item_id": format!("i{at}"), "prediction": if at < 11 { json!({"x": 0.95, "y": 0.05}) } else { json!({"x": 0.05, "y": 0.95}) }});
    let predictions: Vec<Value> = (0..21).map(prediction).collect();
    let value =
        |predictions: &[Value]| score_json(&json!(answers), "ece@15", &json!(predictions)).unwrap();
    assert!((value(&predictions).figures.value - 0.05).abs() < 1e-12);
    let without = value(&predictions[..20]);
    assert!(
        (without.figures.value - (20.0 * 0.05 + 1.0) / 21.0).abs() < 1e-12,
        "{}",
        without.figures.value
    );
    assert!(without.figures.estimate.unwrap().stderr > 0.01);
    assert_eq!(without.items.value(20), -1.0);
}

/// Returns the standard error of these terms' mean.
fn stderr_of(terms: &[f64]) -> f64 {
    let n = terms.len() as f64;
    let mean = terms.iter().sum::<f64>() / n;
    (terms
        .iter()
        .map(|term| (term - mean) * (term - mean))
        .sum::<f64>()
        / (n - 1.0)
        / n)
        .sqrt()
}

/// In J. W. Tukey's jackknife, an item's contribution is the figure's change when the
/// item is left out.
#[test]
fn contributions_agree_with_jackknife() {
    let vectors: Value =
        serde_json::from_str(include_str!("../../../../tests/vectors/figures.json")).unwrap();
    let mut compared = 0;
    let mut jackknifed = 0;
    for case in vectors.as_array().unwrap() {
        let answers = case["answers"].as_array().unwrap();
        let predictions = case["predictions"].as_array().unwrap();
        for metric in ["f1_macro", "f1_micro", "spearman", "auc"]
            .into_iter()
            .filter(|metric| case["values"].get(metric).is_some())
        {
            let score = score_json(&case["answers"], metric, &case["predictions"]).unwrap();
            let parts: Vec<f64> = (0..answers.len())
                .map(|item| score.items.value(item))
                .collect();
            let mean = parts.iter().sum::<f64>() / parts.len() as f64;
            let name = case["name"].to_string() + metric;
            assert!(
                (mean - score.figures.value).abs() < 1e-12,
                "{name}: {mean} {}",
                score.figures.value
            );
            compared += 1;
            if answers.len() < 40 || metric == "f1_macro" {
                continue;
            }
            let n = answers.len() as f64;
            let without = |item: usize| {
                let mut answers = answers.clone();
                let mut predictions = predictions.clone();
                let left_out = answers.remove(item);
                predictions.retain(|prediction| prediction["item_id"] != left_out[0]);
                score_json(&json!(answers), metric, &json!(predictions))
                    .unwrap()
                    .figures
                    .value
            };
            let pseudo: Vec<f64> = (0..answers.len())
                .map(|item| n * score.figures.value - (n - 1.0) * without(item))
                .collect();
            let apart: Vec<f64> = pseudo
                .iter()
                .zip(&parts)
                .map(|(one, other)| one - other)
                .collect();
            let ours = stderr_of(&parts);
            let theirs = stderr_of(&pseudo);
            assert!(
                stderr_of(&apart) <= 0.15 * theirs + 1e-12,
                "{name}: {ours} {theirs} {}",
                stderr_of(&apart)
            );
            jackknifed += 1;
        }
    }
    assert!(compared > 40 && jackknifed > 10, "{compared} {jackknifed}");
}

#[test]
fn order_of_predictions_does_not_matter() {
    let vectors = [
        include_str!("../../../../tests/vectors/figures.json"),
        include_str!("../../../../tests/vectors/rankings.json"),
    ];
    for case in vectors
        .iter()
        .flat_map(|text| serde_json::from_str::<Vec<Value>>(text).unwrap())
    {
        let mut predictions = case["predictions"].as_array().unwrap().clone();
        for metric in case["values"].as_object().unwrap().keys() {
            let score = score_json(&case["answers"], metric, &json!(predictions)).unwrap();
            predictions.reverse();
            assert_eq!(
                score,
                score_json(&case["answers"], metric, &json!(predictions)).unwrap(),
                "{} {metric}",
                case["name"]
            );
            let half = predictions.len() / 2;
            predictions.rotate_left(half);
            assert_eq!(
                score,
                score_json(&case["answers"], metric, &json!(predictions)).unwrap(),
                "{} {metric}",
                case["name"]
            );
        }
    }
}

#[test]
fn missing_item_has_worst_value() {
    let labels = json!([["a", "x"], ["b", "y"]]);
    let of = |metric: &str, answers: &Value, prediction: Value| {
        score_json(
            answers,
            metric,
            &json!([{"item_id": "a", "prediction": prediction}]),
        )
        .unwrap()
    };
    // The missing item is a false negative of y, and no false positive: F1 of x is 1, of y 0.
    assert_eq!(of("f1_macro", &labels, json!("x")).figures.value, 0.5);
    assert_eq!(of("f1_micro", &labels, json!("x")).figures.value, 2.0 / 3.0);
    let numbers = json!([["a", 1], ["b", 4.5]]);
    assert_eq!(of("mae", &numbers, json!(1)).figures.value, 3.5 / 2.0);
    assert_eq!(
        of("rmse", &numbers, json!(1)).figures.value,
        (3.5_f64 * 3.5 / 2.0).sqrt()
    );
    let certain = json!({"x": 1});
    assert_eq!(
        of("log_loss", &labels, certain.clone()).figures.value,
        -1e-15_f64.ln() / 2.0
    );
    assert_eq!(of("brier", &labels, certain.clone()).figures.value, 0.5);
    assert_eq!(
        of(
            "brier",
            &json!([["a", "x"], ["b", "y"], ["c", "z"]]),
            certain.clone()
        )
        .figures
        .value,
        4.0 / 3.0
    );
    assert_eq!(of("ece@15", &labels, certain.clone()).figures.value, 0.5);
    for (metric, answers, prediction) in
        [("spearman", &numbers, json!(1)), ("auc", &labels, certain)]
    {
        let failure = score_json(
            answers,
            metric,
            &json!([{"item_id": "a", "prediction": prediction}]),
        )
        .unwrap_err();
        let message =
            format!("{metric} needs a prediction for each item of the suite: 1 are missing");
        assert_eq!(failure, Failure::InvalidPredictions(message));
    }
    let same = json!([{"item_id": "a", "prediction": 2}, {"item_id": "b", "prediction": 2}]);
    assert!(
        matches!(score_json(&numbers, "spearman", &same), Err(Failure::InvalidPredictions(message)) if message.contains("not defined"))
    );
}

#[test]
fn value_of_wrong_type_is_located() {
    let wrong = score_json(
        &json!([["a", 1], ["b", 2]]),
        "mae",
        &json!([{"item_id": "a", "prediction": "1"}]),
    );
    let message = "predictions[0].prediction: must be a number: the suite's metric is mae";
    assert_eq!(wrong, Err(Failure::InvalidPredictions(message.into())));
}

#[test]
fn delta_interval_agrees_with_bootstrap() {
    // Compares the delta method with 2,000 resamples from 400 items in three classes, some without
    // a prediction.
    let mut state = 7_u64;
    let mut below = |bound: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let classes = ["x", "y", "z"];
    let pairs: Vec<(usize, Option<usize>)> = (0..400)
        .map(|_| {
            let right = [0, 0, 0, 1, 1, 2][below(6) as usize];
            (
                right,
                (below(10) > 0).then(|| {
                    if below(3) > 0 {
                        right
                    } else {
                        below(3) as usize
                    }
                }),
            )
        })
        .collect();
    let answers: Vec<Value> = pairs
        .iter()
        .enumerate()
        .map(|(at, (right, _))| json!([at.to_string(), classes[*right]]))
        .collect();
    let predicted =
        |at: usize, label: usize| json!({"item_id": at.to_string(), "prediction": classes[label]});
    let predictions: Vec<Value> = pairs
        .iter()
        .enumerate()
        .filter_map(|(at, (_, label))| label.map(|label| predicted(at, label)))
        .collect();
    let figures = |pairs: &[(usize, Option<usize>)]| {
        let mut counts = [[0.0; 3]; 3];
        for (right, predicted) in pairs {
            counts[*right][0] += 1.0;
            if let Some(predicted) = predicted {
                counts[*predicted][1] += 1.0;
                counts[*right][2] += f64::from(right == predicted);
            }
        }
        let macro_f1 = counts
            .iter()
            .map(|[support, predicted, hits]| 2.0 * hits / (support + predicted))
            .sum::<f64>()
            / 3.0;
        let all = |at: usize| counts.iter().map(|count| count[at]).sum::<f64>();
        [macro_f1, 2.0 * all(2) / (all(0) + all(1))]
    };
    let resampled: Vec<[f64; 2]> = (0..2000)
        .map(|_| {
            figures(
                &(0..400)
                    .map(|_| pairs[below(400) as usize])
                    .collect::<Vec<_>>(),
            )
        })
        .collect();
    for (at, metric) in ["f1_macro", "f1_micro"].into_iter().enumerate() {
        let score = score_json(&json!(answers), metric, &json!(predictions)).unwrap();
        assert!((score.figures.value - figures(&pairs)[at]).abs() < 1e-12);
        let mean = resampled.iter().map(|figures| figures[at]).sum::<f64>() / 2000.0;
        let stderr = (resampled
            .iter()
            .map(|figures| (figures[at] - mean).powi(2))
            .sum::<f64>()
            / 1999.0)
            .sqrt();
        let found = score.figures.estimate.unwrap();
        assert!(
            (found.stderr / stderr - 1.0).abs() < 0.08,
            "{metric}: {} {stderr}",
            found.stderr
        );
        assert!(found.ci95[0] < score.figures.value && score.figures.value < found.ci95[1]);
    }
}

#[test]
fn losses_are_clipped_to_bounds() {
    let clipped = |metric: &str, answers: &Value, predictions: &Value| {
        let metric: Metric = metric.parse().unwrap();
        let mut builder = Builder::new(metric, 2).clip(crate::metric::Clip::new(1.0, 3.0));
        for (at, answer) in answers.as_array().unwrap().iter().enumerate() {
            builder
                .push(
                    &format!("i{at}"),
                    &Answer::parse(&answer.to_string(), &metric).unwrap(),
                )
                .unwrap();
        }
        score(
            &builder.finish().unwrap(),
            None,
            metric,
            predictions.to_string().as_bytes(),
            &Progress::default(),
        )
        .unwrap()
        .figures
        .value
    };
    let one = |prediction: Value| json!([{"item_id": "i0", "prediction": prediction}]);
    // The second item has no prediction, so its loss is the upper bound.
    assert_eq!(
        clipped("mae", &json!([5, 6]), &one(json!(5))),
        (1.0 + 3.0) / 2.0
    );
    assert_eq!(clipped("mae", &json!([5, 6]), &one(json!(1e50))), 3.0);
    assert_eq!(
        clipped("rmse", &json!([5, 6]), &one(json!(7))),
        ((4.0 + 9.0) / 2.0_f64).sqrt()
    );
    assert_eq!(
        clipped(
            "log_loss",
            &json!(["a", "b"]),
            &one(json!({"a": 0.0, "b": 1.0}))
        ),
        3.0
    );
    assert_eq!(
        clipped("log_loss", &json!(["a", "b"]), &one(json!({"a": 1.0}))),
        2.0
    );
}

/// Scores predictions for items; every third is sealed.
fn sealed_score(metric: &str, answers: &[Value], predictions: &Value) -> Result<Score, Failure> {
    let metric: Metric = metric.parse().unwrap();
    let table = |sealed: bool| {
        let mut builder = Builder::new(metric, answers.len());
        for (at, answer) in answers
            .iter()
            .enumerate()
            .filter(|(at, _)| (at % 3 == 0) == sealed)
        {
            builder
                .push(
                    &format!("i{at}"),
                    &Answer::parse(&answer.to_string(), &metric).unwrap(),
                )
                .unwrap();
        }
        builder.finish().unwrap()
    };
    let open = table(false);
    let sealed = table(true);
    let progress = Progress::default();
    let mut scorer = Scorer::new(&open, metric, &progress).with_sealed(Some(&sealed));
    match prediction::read(predictions.to_string().as_bytes(), &mut scorer).unwrap() {
        ControlFlow::Continue(()) => scorer.finish(),
        ControlFlow::Break(failure) => Err(failure),
    }
}

#[test]
fn sealed_items_are_scored_separately() {
    let answers: Vec<Value> = (0..9).map(|at| json!(format!("a{}", at % 2))).collect();
    let predictions: Vec<Value> = (0..8)
        .map(|at| json!({"item_id": format!("i{at}"), "prediction": "a0"}))
        .collect();
    let mut predictions = json!(predictions);
    predictions
        .as_array_mut()
        .unwrap()
        .push(json!({"item_id": "elsewhere", "prediction": "a0"}));
    let score = sealed_score("exact_match", &answers, &predictions).unwrap();
    // Items 0, 3 and 6 are sealed. Of the open items, 2, 4 and 8 have the answer a0, and 8 has no
    // prediction.
    assert_eq!(
        (
            score.n,
            score.n_submitted,
            score.n_unmatched,
            score.n_missing
        ),
        (6, 9, 1, 1)
    );
    assert_eq!(score.figures.value, 2.0 / 6.0);
    assert_eq!(score.items.len(), 6);
    let sealed = score.sealed.unwrap();
    assert_eq!((sealed.n, sealed.figures.value), (3, 2.0 / 3.0));
    let repeated =
        json!([{"item_id": "i0", "prediction": "a0"}, {"item_id": "i0", "prediction": "a0"}]);
    assert!(matches!(
        sealed_score("exact_match", &answers, &repeated),
        Err(Failure::InvalidPredictions(_))
    ));
}

#[test]
fn sealed_answers_do_not_change_open_figures() {
    for (metric, answer, prediction) in [
        ("f1_macro", json!("x"), json!("x")),
        ("brier", json!("x"), json!({"x": 0.5, "y": 0.5})),
        ("rmse", json!(3), json!(2)),
        ("ndcg@3", json!({"x": 2, "y": 1}), json!(["y", "x"])),
    ] {
        let other = if metric == "rmse" {
            json!(1e6)
        } else {
            json!("never seen before")
        };
        let open: Vec<Value> = (0..12)
            .map(|at| {
                if metric == "rmse" {
                    json!(at)
                } else if at % 2 == 0 {
                    answer.clone()
                } else {
                    json!("y")
                }
            })
            .collect();
        let changed: Vec<Value> = open
            .iter()
            .enumerate()
            .map(|(at, answer)| {
                if at % 3 == 0 {
                    other.clone()
                } else {
                    answer.clone()
                }
            })
            .collect();
        let predictions: Vec<Value> = (0..12)
            .map(|at| json!({"item_id": format!("i{at}"), "prediction": prediction}))
            .collect();
        let of = |answers: &[Value]| sealed_score(metric, answers, &json!(predictions)).unwrap();
        let one = of(&open);
        let two = of(&changed);
        assert_ne!(one.sealed, two.sealed, "{metric}");
        assert_eq!(
            Score {
                sealed: None,
                ..one
            },
            Score {
                sealed: None,
                ..two
            },
            "{metric}"
        );
    }
}

#[test]
fn trivial_submissions_use_answer_distribution() {
    let of = |metric: &str, answers: &[Value]| {
        let metric: Metric = metric.parse().unwrap();
        let mut builder = Builder::new(metric, answers.len());
        for (at, answer) in answers.iter().enumerate() {
            builder
                .push(
                    &format!("i{at}"),
                    &Answer::parse(&answer.to_string(), &metric).unwrap(),
                )
                .unwrap();
        }
        trivial_submissions(&builder.finish().unwrap(), metric)
            .into_iter()
            .map(|Trivial { name, value, .. }| (name, value))
            .collect::<Vec<_>>()
    };
    let labels: Vec<Value> = (0..10)
        .map(|at| json!(if at < 7 { "x" } else { "y" }))
        .collect();
    assert_eq!(of("accuracy", &labels), [("most frequent answers", 0.7)]);
    assert_eq!(of("mrr@2", &labels), [("most frequent answers", 0.85)]);
    assert_eq!(of("exact_match", &labels)[0], ("most frequent label", 0.7));
    let log_loss = of("log_loss", &labels)[0].1;
    assert!((log_loss + 0.7 * 0.7_f64.ln() + 0.3 * 0.3_f64.ln()).abs() < 1e-12);
    assert!(of("ece@15", &labels)[0].1 < 1e-12);
    let numbers = [json!(1), json!(2), json!(9)];
    assert_eq!(
        of("mae", &numbers),
        [("mean", 10.0 / 3.0), ("median", 8.0 / 3.0)]
    );
    for metric in ["spearman", "pearson", "kendall", "ccc"] {
        assert_eq!(of(metric, &numbers), [("numbers at random", 0.0)]);
    }
    assert_eq!(of("r2", &numbers), [("mean", 0.0)]);
    assert_eq!(of("f1_macro", &labels)[1], ("labels at random", 0.5));
}
