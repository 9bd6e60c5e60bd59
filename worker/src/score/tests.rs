use assay_core::{Answer, Metric};
use serde_json::{Value, json};

use super::*;

const ACCURACY: Scoring = Scoring { metric: Metric::Accuracy, per_item_feedback: false };

fn score_json(answers: &Value, metric: &str, predictions: &Value) -> Result<Score, Failure> {
    let metric = metric.parse().unwrap();
    let answer = |json: &Value| Answer::parse(&json.to_string(), &metric).unwrap();
    let items = answers.as_array().unwrap().iter().map(|item| (item[0].as_str().unwrap(), answer(&item[1])));
    let table = AnswerTable::build(items).unwrap();
    let scoring = Scoring { metric, per_item_feedback: true };
    score(&table, &scoring, predictions.to_string().as_bytes(), &AtomicBool::new(false))
}

/// What a prediction is worth, in a suite of one item.
fn worth(metric: &str, answer: Value, prediction: Value) -> f64 {
    score_json(&json!([["a", answer]]), metric, &json!([{"item_id": "a", "prediction": prediction}])).unwrap().value
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
    assert_eq!(worth("accuracy", json!({"x": 0, "y": 1}), json!(["x"])), 0.0);
}

#[test]
fn a_ranking_is_cut_at_k() {
    let ranking = || json!(["q", "r", "x"]);
    for metric in ["hit_rate@", "recall@", "ndcg@", "mrr@"] {
        assert_eq!(worth(&format!("{metric}2"), json!("x"), ranking()), 0.0, "{metric}");
        assert!(worth(&format!("{metric}3"), json!("x"), ranking()) > 0.0, "{metric}");
        assert_eq!(
            worth(&format!("{metric}3"), json!("x"), ranking()),
            worth(&format!("{metric}10000"), json!("x"), ranking()),
            "{metric}: k may be longer than the ranking"
        );
    }
}

#[test]
fn a_repeated_id_counts_once_and_its_repeat_takes_a_place() {
    assert_eq!(worth("recall@3", json!(["x", "y"]), json!(["x", "x", "x", "y"])), 0.5);
    assert_eq!(worth("mrr@3", json!("x"), json!(["q", "q", "x"])), 1.0 / 3.0);
    let ideal = 1.0 + 1.0 / 3_f64.log2();
    assert_eq!(worth("ndcg@3", json!(["x", "y"]), json!(["x", "x", "y"])), (1.0 + 1.0 / 4_f64.log2()) / ideal);
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
    let wanted = Score { n: 4, n_submitted: 3, n_unmatched: 1, n_missing: 2, value: 0.25, items: vec![0.0, 0.0, 1.0, 0.0] };
    assert_eq!(score_json(&answers, "accuracy", &predictions), Ok(wanted));
}

#[test]
fn faults_name_the_prediction_and_the_reason() {
    let answers = json!([["a", "x"]]);
    let one = |item_id: &str| json!({"item_id": item_id, "prediction": "x"});
    let cases = [
        (json!([one("a"), one("b"), one("a")]), "predictions[2].item_id: this item is already predicted"),
        (json!([one("b"), one("b")]), "predictions[1].item_id: this item is already predicted"),
        (json!([one("a"), {"item_id": "b", "prediction": ["x", 1]}]), "predictions[1].prediction[1]: must be a string"),
        (json!({}), "predictions: must be an array of objects"),
    ];
    for (predictions, message) in cases {
        let failure = score_json(&answers, "accuracy", &predictions);
        assert_eq!(failure, Err(Failure::InvalidPredictions(String::from(message))));
    }
    let table = AnswerTable::build([("a", Answer::Label(String::from("x")))]).unwrap();
    let broken = score(&table, &ACCURACY, b"[{\"item_id\":", &AtomicBool::new(false));
    assert!(matches!(broken, Err(Failure::InvalidPredictions(message)) if message.contains("not valid JSON")));
}

#[test]
fn scoring_stops_when_told_to() {
    let table = AnswerTable::build([("a", Answer::Label(String::from("x")))]).unwrap();
    let predictions = br#"[{"item_id":"a","prediction":"x"}]"#;
    assert_eq!(score(&table, &ACCURACY, predictions, &AtomicBool::new(true)), Err(Failure::Stopped));
}

#[test]
fn a_sum_does_not_depend_on_the_order_of_its_terms() {
    let total = |terms: &mut dyn Iterator<Item = f64>| {
        let mut sum = Sum::default();
        terms.for_each(|term| sum.add(term));
        sum.total()
    };
    assert_eq!(total(&mut [1.0, 1e100, 1.0, -1e100].into_iter()), 2.0);
    let terms: Vec<f64> = (1..100_000).map(|rank| 1.0 / f64::from(rank)).collect();
    assert_eq!(total(&mut terms.iter().copied()), total(&mut terms.iter().rev().copied()));
}

#[test]
fn figures_are_those_of_trec_eval_and_scikit_learn() {
    let vectors: Value = serde_json::from_str(include_str!("../../../tests/vectors/rankings.json")).unwrap();
    let mut compared = 0;
    for case in vectors.as_array().unwrap() {
        for (metric, wanted) in case["values"].as_object().unwrap() {
            let score = score_json(&case["answers"], metric, &case["predictions"]).unwrap();
            let (got, wanted) = (score.value, wanted.as_f64().unwrap());
            assert!((got - wanted).abs() <= 1e-12, "{} {metric}: {got} instead of {wanted}", case["name"]);
            assert_eq!(json!([score.n, score.n_submitted, score.n_unmatched, score.n_missing]), case["counts"]);
            compared += 1;
        }
    }
    assert!(compared >= 40 * 21, "only {compared} figures were compared");
}

#[test]
fn the_score_of_each_item_is_kept_in_the_suites_order_if_asked_for() {
    let answers = json!([["a", "x"], ["b", ["x", "y"]], ["c", "x"], ["d", "x"]]);
    let predictions = json!([
        {"item_id": "d", "prediction": "x"}, {"item_id": "b", "prediction": ["q", "y"]}, {"item_id": "z", "prediction": "x"},
        {"item_id": "a", "prediction": []},
    ]);
    let score = score_json(&answers, "recall@2", &predictions).unwrap();
    assert_eq!(score.items, [0.0, 0.5, 0.0, 1.0]);
    assert_eq!(score.value, 1.5 / 4.0);
}
