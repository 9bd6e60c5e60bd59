use crate::metric::Metric;
use crate::suite::answers::Answer;
use serde_json::{Value, json};

use super::*;

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

fn of_items(score: &Score) -> Vec<f64> {
    (0..score.items.len())
        .map(|item| score.items.value(item))
        .collect()
}

/// What a prediction is worth, in a suite of one item.
fn worth(metric: &str, answer: Value, prediction: Value) -> f64 {
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
fn a_label_is_a_ranking_of_one() {
    for metric in ["accuracy", "hit_rate@3", "recall@3", "ndcg@3", "mrr@3"] {
        assert_eq!(worth(metric, json!("x"), json!("x")), 1.0, "{metric}");
        assert_eq!(worth(metric, json!("x"), json!("y")), 0.0, "{metric}");
        assert_eq!(worth(metric, json!("x"), json!([])), 0.0, "{metric}");
    }
}

#[test]
fn only_the_first_place_counts_for_accuracy() {
    assert_eq!(worth("accuracy", json!(["x", "y"]), json!(["y", "q"])), 1.0);
    assert_eq!(worth("accuracy", json!(["x", "y"]), json!(["q", "x"])), 0.0);
    assert_eq!(
        worth("accuracy", json!({"x": 0, "y": 1}), json!(["x"])),
        0.0
    );
}

#[test]
fn a_ranking_is_cut_at_k() {
    let ranking = || json!(["q", "r", "x"]);
    for metric in ["hit_rate@", "recall@", "ndcg@", "mrr@"] {
        assert_eq!(
            worth(&format!("{metric}2"), json!("x"), ranking()),
            0.0,
            "{metric}"
        );
        assert!(
            worth(&format!("{metric}3"), json!("x"), ranking()) > 0.0,
            "{metric}"
        );
        assert_eq!(
            worth(&format!("{metric}3"), json!("x"), ranking()),
            worth(&format!("{metric}10000"), json!("x"), ranking()),
            "{metric}: k may be longer than the ranking"
        );
    }
}

#[test]
fn a_repeated_id_counts_once_and_its_repeat_takes_a_place() {
    assert_eq!(
        worth("recall@3", json!(["x", "y"]), json!(["x", "x", "x", "y"])),
        0.5
    );
    assert_eq!(
        worth("mrr@3", json!("x"), json!(["q", "q", "x"])),
        1.0 / 3.0
    );
    let ideal = 1.0 + 1.0 / 3_f64.log2();
    assert_eq!(
        worth("ndcg@3", json!(["x", "y"]), json!(["x", "x", "y"])),
        (1.0 + 1.0 / 4_f64.log2()) / ideal
    );
}

#[test]
fn many_places_and_many_answers_are_scored_like_few() {
    let ids = |range: std::ops::Range<u32>| range.map(|at| at.to_string()).collect::<Vec<_>>();
    let mut ranking = ids(50..150);
    ranking.splice(10..10, ids(50..60));
    assert_eq!(worth("recall@60", json!(ids(0..100)), json!(ranking)), 0.5);
    assert_eq!(worth("mrr@60", json!(ids(0..100)), json!(ranking)), 1.0);
    assert_eq!(worth("ndcg@40", json!(ids(0..100)), json!(ids(0..40))), 1.0);
}

#[test]
fn the_ideal_of_ndcg_is_of_the_largest_gains_up_to_k() {
    let answer = || json!({"x": 1, "y": 3.5, "z": 2, "no": 0});
    assert_eq!(worth("ndcg@2", answer(), json!(["y", "z"])), 1.0);
    assert_eq!(worth("ndcg@1", answer(), json!(["z"])), 2.0 / 3.5);
    assert_eq!(worth("ndcg@3", answer(), json!(["no"])), 0.0);
}

#[test]
fn an_item_without_a_prediction_counts_as_zero_and_an_unknown_one_not_at_all() {
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
    assert_eq!(of_items(&score), [0.0, 0.0, 1.0, 0.0]);
}

#[test]
fn faults_name_the_prediction_and_the_reason() {
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
fn scoring_stops_when_told_to() {
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
fn figures_are_those_of_trec_eval_and_scikit_learn() {
    let vectors: Value =
        serde_json::from_str(include_str!("../../../../tests/vectors/rankings.json")).unwrap();
    let mut compared = 0;
    for case in vectors.as_array().unwrap() {
        for (metric, wanted) in case["values"].as_object().unwrap() {
            let score = score_json(&case["answers"], metric, &case["predictions"]).unwrap();
            let (got, wanted) = (score.figures.value, wanted.as_f64().unwrap());
            assert!(
                (got - wanted).abs() <= 1e-12,
                "{} {metric}: {got} instead of {wanted}",
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
fn the_score_of_each_item_is_kept_in_the_suites_order() {
    let answers = json!([["a", "x"], ["b", ["x", "y"]], ["c", "x"], ["d", "x"]]);
    let predictions = json!([
        {"item_id": "d", "prediction": "x"}, {"item_id": "b", "prediction": ["q", "y"]}, {"item_id": "z", "prediction": "x"},
        {"item_id": "a", "prediction": []},
    ]);
    let score = score_json(&answers, "recall@2", &predictions).unwrap();
    assert_eq!(of_items(&score), [0.0, 0.5, 0.0, 1.0]);
    assert_eq!(score.figures.value, 1.5 / 4.0);
}

#[test]
fn labels_numbers_and_probabilities_are_those_of_scikit_learn_and_scipy() {
    let vectors: Value =
        serde_json::from_str(include_str!("../../../../tests/vectors/figures.json")).unwrap();
    let (mut compared, mut worst) = (0, 0_f64);
    for case in vectors.as_array().unwrap() {
        for (metric, wanted) in case["values"].as_object().unwrap() {
            let score = score_json(&case["answers"], metric, &case["predictions"]).unwrap();
            let wanted = wanted.as_f64().unwrap();
            let far = (score.figures.value - wanted).abs() / wanted.abs().max(1.0);
            assert!(
                far <= 1e-12,
                "{} {metric}: {} instead of {wanted}",
                case["name"],
                score.figures.value
            );
            worst = worst.max(far);
            if let Some(wanted) = case["stderr"][metric].as_f64() {
                let stderr = score.figures.estimate.unwrap().stderr;
                assert!(
                    (stderr - wanted).abs() <= 1e-9 * wanted.abs().max(1e-3),
                    "{} {metric}: {stderr} {wanted}",
                    case["name"]
                );
                compared += 1;
            }
            // Beside another metric of the family the figure is the same.
            for (beside, figure) in &score.figures.metrics {
                if let Some(wanted) = case["values"][beside].as_f64() {
                    let far = (figure - wanted).abs() / wanted.abs().max(1.0);
                    assert!(
                        far <= 1e-12,
                        "{} {beside} beside {metric}: {figure} instead of {wanted}",
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
fn an_item_that_is_left_out_makes_up_for_no_other() {
    let answers: Vec<Value> = (0..21)
        .map(|at| json!([format!("i{at}"), if at < 11 { "x" } else { "y" }]))
        .collect();
    // Less sure than right: by themselves, each is 0.05 off.
    let sure = |at: usize| json!({"item_id": format!("i{at}"), "prediction": if at < 11 { json!({"x": 0.95, "y": 0.05}) } else { json!({"x": 0.05, "y": 0.95}) }});
    let predictions: Vec<Value> = (0..21).map(sure).collect();
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

/// The standard error of a mean of these.
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

/// As J. W. Tukey's jackknife has it, each item is as much of a figure as it takes away when it is left out.
#[test]
fn what_is_kept_of_an_item_is_its_part_in_a_metric_of_all_items() {
    let vectors: Value =
        serde_json::from_str(include_str!("../../../../tests/vectors/figures.json")).unwrap();
    let (mut compared, mut jackknifed) = (0, 0);
    for case in vectors.as_array().unwrap() {
        let (answers, predictions) = (
            case["answers"].as_array().unwrap(),
            case["predictions"].as_array().unwrap(),
        );
        for metric in ["f1_macro", "f1_micro", "spearman", "auc"]
            .into_iter()
            .filter(|metric| case["values"].get(metric).is_some())
        {
            let score = score_json(&case["answers"], metric, &case["predictions"]).unwrap();
            let parts: Vec<f64> = (0..answers.len())
                .map(|item| score.items.value(item))
                .collect();
            let (mean, told) = (
                parts.iter().sum::<f64>() / parts.len() as f64,
                case["name"].to_string() + metric,
            );
            assert!(
                (mean - score.figures.value).abs() < 1e-12,
                "{told}: {mean} {}",
                score.figures.value
            );
            compared += 1;
            if answers.len() < 40 || metric == "f1_macro" {
                continue;
            }
            let n = answers.len() as f64;
            let without = |item: usize| {
                let (mut answers, mut predictions) = (answers.clone(), predictions.clone());
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
            let (ours, theirs) = (stderr_of(&parts), stderr_of(&pseudo));
            assert!(
                stderr_of(&apart) <= 0.15 * theirs + 1e-12,
                "{told}: {ours} {theirs} {}",
                stderr_of(&apart)
            );
            jackknifed += 1;
        }
    }
    assert!(compared > 40 && jackknifed > 10, "{compared} {jackknifed}");
}

#[test]
fn the_order_of_the_predictions_makes_no_difference_at_all() {
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
fn an_item_without_a_prediction_is_the_worst_that_its_metric_knows() {
    let labels = json!([["a", "x"], ["b", "y"]]);
    let of = |metric: &str, answers: &Value, prediction: Value| {
        score_json(
            answers,
            metric,
            &json!([{"item_id": "a", "prediction": prediction}]),
        )
        .unwrap()
    };
    // A miss of its class, no false alarm of another: F1 of x is 1, of y 0.
    assert_eq!(of("f1_macro", &labels, json!("x")).figures.value, 0.5);
    assert_eq!(of("f1_micro", &labels, json!("x")).figures.value, 2.0 / 3.0);
    let numbers = json!([["a", 1], ["b", 4.5]]);
    assert_eq!(of("mae", &numbers, json!(1)).figures.value, 3.5 / 2.0);
    assert_eq!(
        of("rmse", &numbers, json!(1)).figures.value,
        (3.5_f64 * 3.5 / 2.0).sqrt()
    );
    let sure = json!({"x": 1});
    assert_eq!(
        of("log_loss", &labels, sure.clone()).figures.value,
        -1e-15_f64.ln() / 2.0
    );
    assert_eq!(of("brier", &labels, sure.clone()).figures.value, 0.5);
    assert_eq!(
        of(
            "brier",
            &json!([["a", "x"], ["b", "y"], ["c", "z"]]),
            sure.clone()
        )
        .figures
        .value,
        4.0 / 3.0
    );
    assert_eq!(of("ece@15", &labels, sure.clone()).figures.value, 0.5);
    for (metric, answers, prediction) in [("spearman", &numbers, json!(1)), ("auc", &labels, sure)]
    {
        let failure = score_json(
            answers,
            metric,
            &json!([{"item_id": "a", "prediction": prediction}]),
        )
        .unwrap_err();
        let told = format!("{metric} needs a prediction for each item of the suite: 1 are missing");
        assert_eq!(failure, Failure::InvalidPredictions(told));
    }
    let same = json!([{"item_id": "a", "prediction": 2}, {"item_id": "b", "prediction": 2}]);
    assert!(
        matches!(score_json(&numbers, "spearman", &same), Err(Failure::InvalidPredictions(told)) if told.contains("not defined"))
    );
}

#[test]
fn a_value_that_does_not_fit_the_metric_is_told_by_its_place() {
    let wrong = score_json(
        &json!([["a", 1], ["b", 2]]),
        "mae",
        &json!([{"item_id": "a", "prediction": "1"}]),
    );
    let told = "predictions[0].prediction: must be a number: the suite's metric is mae";
    assert_eq!(wrong, Err(Failure::InvalidPredictions(told.into())));
}

#[test]
fn the_interval_of_a_correlated_figure_is_that_of_a_bootstrap() {
    // 400 items of three classes, of which some are missing: the delta method against 2,000 resamples of the items.
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
fn clipped_losses_lie_between_the_bounds() {
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
    // The second item has no prediction: its loss is the largest.
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

/// Scores predictions by index for items of which every third is sealed.
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
    let (open, sealed) = (table(false), table(true));
    let (progress, prefetch) = (Progress::default(), Prefetch::default());
    let mut tally = Scorer::new(&open, metric, &progress, &prefetch).with_sealed(Some(&sealed));
    match prediction::read(predictions.to_string().as_bytes(), |next| tally.add(next)).unwrap() {
        ControlFlow::Continue(()) => tally.finish(),
        ControlFlow::Break(failure) => Err(failure),
    }
}

#[test]
fn sealed_items_are_scored_apart_from_open_ones() {
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
    // Open are 1, 2, 4, 5, 7 and 8; of 2 and 4 the answer is a0, and 8 has no prediction. Sealed are 0, 3 and 6.
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
    let twice =
        json!([{"item_id": "i0", "prediction": "a0"}, {"item_id": "i0", "prediction": "a0"}]);
    assert!(matches!(
        sealed_score("exact_match", &answers, &twice),
        Err(Failure::InvalidPredictions(_))
    ));
}

#[test]
fn sealed_answers_change_no_open_figure() {
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
        let (one, two) = (of(&open), of(&changed));
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
fn trivial_submissions_know_only_how_answers_are_distributed() {
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
            .map(|Trivial { name, value }| (name, value))
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
    assert_eq!(of("spearman", &numbers), [("numbers at random", 0.0)]);
    assert_eq!(of("f1_macro", &labels)[1], ("labels at random", 0.5));
}
