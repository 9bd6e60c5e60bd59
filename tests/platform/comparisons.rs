//! `POST /v1/comparisons`: two jobs over the same hidden items.

use assay_eval::{Family, K, Metric, SignificanceTest};
use assay_proto::v1;
use assay_proto::v1::comparison_service_client::ComparisonServiceClient;
use assay_tests::client::Response;
use assay_tests::demo_suite;
use serde_json::{Value, json};

use crate::cli::Cli;
use crate::dashboard::visitor::Visitor;
use crate::disclosure::publish_folder;
use crate::harness::{
    Expect, World, error_code, field_error, field_errors, one_prediction, org, string,
    submit_until_succeeded, with_token, world,
};
use crate::{disclosure, feedback, metrics};

async fn compare(world: &World, job_a: &Value, job_b: &Value) -> Response {
    world
        .key()
        .post(
            "/v1/comparisons",
            &json!({"job_a": job_a["id"], "job_b": job_b["id"]}),
        )
        .await
        .unwrap()
}

/// Computes the item scores of a job from the suite's answers and the submitted predictions.
fn reciprocal_ranks(world: &World, predictions: &[Value]) -> Vec<f64> {
    let answers = std::fs::read_to_string(
        world
            .stack
            .ground
            .servers
            .folder()
            .join("lunch")
            .join("answers.ndjson"),
    )
    .unwrap();
    let score = |line: &str| {
        let answer: Value = serde_json::from_str(line).unwrap();
        let predicted = predictions
            .iter()
            .find(|prediction| prediction["item_id"] == answer["item_id"]);
        let rank = predicted.and_then(|it| {
            it["prediction"]
                .as_array()
                .unwrap()
                .iter()
                .position(|dish| *dish == answer["answer"])
        });
        rank.map_or(0.0, |rank| 1.0 / (rank as f64 + 1.0))
    };
    answers.lines().map(score).collect()
}

/// Returns the habit model's predictions for all items, and the same with every seventh ranking
/// reversed.
async fn two_submissions(world: &World) -> [Vec<Value>; 2] {
    let page = world
        .key()
        .get(&format!(
            "/v1/suites/{}/items?limit=1000",
            demo_suite::SUITE_ID
        ))
        .await
        .unwrap();
    let habits: Vec<Value> = page.body["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(demo_suite::prediction)
        .collect();
    let mut reversed = habits.clone();
    for prediction in reversed.iter_mut().step_by(7) {
        prediction["prediction"].as_array_mut().unwrap().reverse();
    }
    [habits, reversed]
}

#[tokio::test(flavor = "multi_thread")]
async fn comparison_matches_item_scores() {
    let world = world().await;
    feedback::publish(&world, "1").await;
    let [habits, reversed] = two_submissions(&world).await;
    let a = feedback::submit_and_wait(&world, &world.org.key, &json!(habits)).await;
    let b = feedback::submit_and_wait(&world, &world.org.key, &json!(reversed)).await;
    let response = compare(&world, &a, &b).await.expect_status(200);
    let x = reciprocal_ranks(&world, &habits);
    let y = reciprocal_ranks(&world, &reversed);
    let differences: Vec<f64> = x.iter().zip(&y).map(|(x, y)| x - y).collect();
    let n = differences.len() as f64;
    let mean = differences.iter().sum::<f64>() / n;
    let deviation = (differences
        .iter()
        .map(|one| (one - mean) * (one - mean))
        .sum::<f64>()
        / (n - 1.0))
        .sqrt();
    let body = response.body;
    let number = |field: &str| body[field].as_f64().unwrap();
    let close = |one: f64, other: f64| assert!((one - other).abs() < 1e-12, "{one} {other} {body}");
    close(number("difference"), mean);
    close(number("value_a") - number("value_b"), mean);
    close(number("stderr"), deviation / n.sqrt());
    for (end, side) in body["ci95"].as_array().unwrap().iter().zip([-1.0, 1.0]) {
        close(
            end.as_f64().unwrap(),
            mean + side * 1.959_963_984_540_054 * deviation / n.sqrt(),
        );
    }
    let n_needed = ((1.959_963_984_540_054 + 0.841_621_233_572_914_3) * deviation / 0.01)
        .powi(2)
        .ceil();
    let differ = differences.iter().filter(|one| **one != 0.0).count();
    assert!(differ > 20 && number("p_value") < 0.05, "{body}");
    let rest = json!({
        "job_a": a["id"], "job_b": b["id"], "suite_id": feedback::SUITE_ID, "suite_version": "1", "metric": "mrr@6", "n": 400,
        "value_a": a["result"]["value"], "value_b": b["result"]["value"], "difference": body["difference"], "stderr": body["stderr"],
        "ci95": body["ci95"], "ci_method": "normal", "p_value": body["p_value"], "p_method": "permutation", "n_differ": differ,
        "point": 0.01, "n_needed": n_needed as i64, "lower_is_better": false, "is_significant": true,
        "better": if number("difference") > 0.0 { "a" } else { "b" },
    });
    assert_eq!(body, rest);
    // A repetition, even by a viewer, returns the same comparison. Swapped jobs negate the
    // difference.
    let viewer = world.member("viewer").await;
    let again = viewer
        .post(
            "/v1/comparisons",
            &json!({"job_a": a["id"], "job_b": b["id"]}),
        )
        .await
        .unwrap();
    assert_eq!(again.body, body);
    let swapped = compare(&world, &b, &a).await.body;
    assert_eq!(
        (&swapped["p_value"], swapped["difference"].as_f64()),
        (&body["p_value"], Some(-number("difference")))
    );
    // gRPC returns the same comparison.
    let mut grpc = ComparisonServiceClient::new(world.channel().await);
    let request = v1::CreateComparisonRequest {
        job_a: string(&a["id"]),
        job_b: string(&b["id"]),
        ..v1::CreateComparisonRequest::default()
    };
    let comparison = grpc
        .create_comparison(with_token(request, &world.org.key))
        .await
        .unwrap()
        .into_inner()
        .comparison
        .unwrap();
    assert_eq!(
        (comparison.p_value, comparison.ci95, comparison.n_differ),
        (number("p_value"), ci95_of(&body), Some(differ as i64))
    );
}

fn ci95_of(body: &Value) -> Vec<f64> {
    body["ci95"]
        .as_array()
        .unwrap()
        .iter()
        .map(|end| end.as_f64().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn binary_metrics_use_mcnemar() {
    let world = world().await;
    let [habits, reversed] = two_submissions(&world).await;
    let folder = world.stack.ground.servers.folder();
    let folder = folder.join(format!("{}-independent", world.stack.database.name));
    demo_suite::write(&folder).unwrap();
    let suite_toml = "suite_id = \"suite:independent\"\nversion = \"1\"\nmetric = \"accuracy\"\ncluster = \"none\"\n";
    std::fs::write(folder.join("suite.toml"), suite_toml).unwrap();
    publish_folder(&world, &folder).await.unwrap();
    let scored = async |predictions: &Vec<Value>| {
        let eval = json!({"suite_id": "suite:independent", "predictions": predictions});
        submit_until_succeeded(&world.key(), &eval).await
    };
    let a = scored(&habits).await;
    let b = scored(&reversed).await;
    let body = compare(&world, &a, &b).await.body;
    let first = |predictions: &[Value]| -> Vec<bool> {
        reciprocal_ranks(&world, predictions)
            .iter()
            .map(|rank| *rank == 1.0)
            .collect()
    };
    let pairs: Vec<_> = first(&habits).into_iter().zip(first(&reversed)).collect();
    let count = |wanted: (bool, bool)| pairs.iter().filter(|pair| **pair == wanted).count() as u32;
    let more = count((true, false));
    let less = count((false, true));
    // The two-sided binomial test: twice the probability of at most `more.min(less)` of `n` coin
    // tosses.
    let n = more + less;
    let mut term = 0.5_f64.powi(n as i32);
    let mut tail = 0.0;
    for at in 0..=more.min(less) {
        tail += term;
        term *= f64::from(n - at) / f64::from(at + 1);
    }
    let p_value = body["p_value"].as_f64().unwrap();
    assert!(
        (p_value - (2.0 * tail).min(1.0)).abs() < 1e-12,
        "{more} {less} {body}"
    );
    assert_eq!(
        (&body["p_method"], &body["ci_method"], &body["n_differ"]),
        (&json!("mcnemar"), &json!("bonett_price"), &json!(n))
    );
    let difference = (f64::from(more) - f64::from(less)) / 400.0;
    assert!((body["difference"].as_f64().unwrap() - difference).abs() < 1e-12);
    let ci95 = ci95_of(&body);
    assert!(ci95[0] <= difference && difference <= ci95[1], "{body}");
    let same = compare(&world, &a, &a).await.body;
    assert_eq!(
        (
            &same["difference"],
            &same["p_value"],
            &same["n_differ"],
            &same["n_needed"]
        ),
        (&json!(0.0), &json!(1.0), &json!(0), &Value::Null)
    );
}

/// Returns the answers of eight items, and two different submissions.
fn small(metric: Metric) -> [Vec<Value>; 3] {
    let of = |value: &dyn Fn(usize) -> Value| (0..8).map(value).collect::<Vec<_>>();
    let label = |at: usize| ["no", "yes"][at % 2];
    match metric.family() {
        Family::Labels => [
            of(&|at| json!(label(at))),
            of(&|at| json!(label(at / 3))),
            of(&|at| json!(label(at / 2))),
        ],
        Family::Numbers => [
            of(&|at| json!(at)),
            of(&|at| json!(at * at % 7)),
            of(&|at| json!(at as f64 + 0.5 * (at % 3) as f64)),
        ],
        Family::Probabilities if metric == Metric::AucOvr => {
            let third = |at: usize| ["maybe", "no", "yes"][at % 3];
            let sure = |label: &str, share: f64| {
                let other = if label == "yes" { "no" } else { "yes" };
                json!({label: share, other: 1.0 - share})
            };
            [
                of(&|at| json!(third(at))),
                of(&|at| sure(third(at / 2), at as f64 / 8.0)),
                of(&|at| sure(third(at), (at * 5 % 8) as f64 / 8.0)),
            ]
        }
        Family::Probabilities if metric.compares_distributions() => {
            let shares = |of_yes: f64| json!({"no": 1.0 - of_yes, "yes": of_yes});
            [
                of(&|at| shares((at % 4) as f64 / 4.0 + 0.1)),
                of(&|at| shares(at as f64 / 8.0)),
                of(&|at| shares((at * 5 % 8) as f64 / 8.0)),
            ]
        }
        Family::Probabilities => {
            let sure = |of_yes: f64| json!({"yes": of_yes, "no": 1.0 - of_yes});
            [
                of(&|at| json!(label(at))),
                of(&|at| sure(at as f64 / 8.0)),
                of(&|at| sure((at * 5 % 8) as f64 / 8.0)),
            ]
        }
        Family::Rankings => [
            of(&|at| json!(format!("a{}", at % 3))),
            of(&|at| json!(["a0", format!("a{}", at % 2)])),
            of(&|_| json!(["a2", "a1", "a0"])),
        ],
        Family::Quantiles => unreachable!(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_can_be_compared() {
    let world = world().await;
    let cli = Cli::new(&world);
    let mut visitor = Visitor::signed_in(&world, &world.org.session);
    // These need further keys in `suite.toml`.
    let needs_keys =
        |metric: &Metric| *metric == Metric::KappaQuadratic || metric.family() == Family::Quantiles;
    for metric in Metric::all(K::DEFAULT).filter(|metric| !needs_keys(metric)) {
        let (ci_method, p_method) = match metric.significance_test() {
            SignificanceTest::McNemar => ("bonett_price", "mcnemar"),
            SignificanceTest::Permutation if metric == Metric::Rmse => ("delta", "permutation"),
            SignificanceTest::Permutation => ("normal", "permutation"),
            SignificanceTest::Wald => ("delta", "wald"),
        };
        let [answers, one, other] = small(metric);
        // Items have few options, and rankings few ids.
        let k = if matches!(metric, Metric::TopK(_)) {
            "@1"
        } else {
            "@2"
        };
        let name = metric.to_string().replace("@10", k);
        let suite_id = metrics::publish(&world, &name, false, &answers).await;
        let a = metrics::scored(&world, &suite_id, &metrics::predictions(&one)).await;
        let b = metrics::scored(&world, &suite_id, &metrics::predictions(&other)).await;
        let response = compare(&world, &a, &b).await;
        assert_eq!(
            response.status, 200,
            "{metric}: {}, {a}, {b}",
            response.body
        );
        let body = response.body;
        let value = |job: &Value| job["result"]["value"].as_f64().unwrap();
        let difference = value(&a) - value(&b);
        assert_eq!(body["difference"].as_f64().unwrap(), difference, "{metric}");
        assert_eq!(
            (&body["ci_method"], &body["p_method"]),
            (&json!(ci_method), &json!(p_method)),
            "{metric}"
        );
        let p_value = body["p_value"].as_f64().unwrap();
        let ci95 = ci95_of(&body);
        assert!(
            p_value > 0.0 && p_value <= 1.0 && body["stderr"].as_f64().unwrap() > 0.0,
            "{metric}: {body}"
        );
        assert!(
            ci95[0] < difference && difference < ci95[1],
            "{metric}: {body}"
        );
        // The page and the program name the better job, in the metric's direction.
        let is_lower = metric.lower_is_better();
        let better = match difference {
            0.0 => None,
            difference if (difference < 0.0) == is_lower => Some("A"),
            _ => Some("B"),
        };
        assert_eq!(
            json!([
                body["lower_is_better"],
                body["better"],
                body["is_significant"]
            ]),
            json!([is_lower, better.map(str::to_lowercase), p_value < 0.05]),
            "{metric}: {body}"
        );
        let direction = if is_lower { "smaller" } else { "larger" };
        let direction = format!("({name}, {direction} is better). If both were equally good");
        let texts = match better {
            None => ["Both jobs have the same value.".to_owned(), String::new()],
            Some(letter) if p_value < 0.05 => [format!("{letter} is better by "), direction],
            Some(letter) => [
                "No clear difference: ".to_owned(),
                format!(" in favour of {letter} {direction}"),
            ],
        };
        let ids = [&a, &b].map(|job| string(&job["id"]));
        let page = format!("/compare?a={}&b={}", ids[0], ids[1]);
        let page = visitor.open(&page).await;
        let run = cli.run(&["compare", &ids[0], &ids[1], "-f", "table"]).await;
        run.assert(0);
        for shown in [&page.text, &run.out] {
            assert!(
                texts.iter().all(|text| shown.contains(text)),
                "{metric}: {texts:?} {shown}"
            );
        }
        assert_eq!(
            body["n_differ"]
                .as_i64()
                .is_some_and(|n_differ| (1..=8).contains(&n_differ)),
            metric.has_item_scores(),
            "{metric}: {body}"
        );
        let point = if metric.takes_clip() {
            value(&a).max(value(&b)) / 100.0
        } else {
            0.01
        };
        assert_eq!(
            (body["point"].as_f64(), body["n_needed"].as_i64().is_some()),
            (Some(point), true),
            "{metric}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn comparison_respects_disclosure_policy() {
    let world = world().await;
    let mut compared = Vec::new();
    for policy in ["exact", "rounded(2)", "ladder(0.05)"] {
        let suite_id = disclosure::publish(
            &world,
            &policy.replace(['(', ')'], "-"),
            1,
            &format!("release = \"{policy}\""),
        )
        .await
        .unwrap();
        let a = disclosure::submit_and_wait(&world.key(), &suite_id, 30).await;
        let b = disclosure::submit_and_wait(&world.key(), &suite_id, 23).await;
        compared.push(compare(&world, &a, &b).await);
    }
    let [exact, rounded, ladder] = compared.try_into().unwrap();
    let exact = exact.body;
    let rounded = rounded.body;
    assert_eq!(exact["n_differ"], 7);
    assert!(
        (exact["p_value"].as_f64().unwrap() - 2.0 * 0.5_f64.powi(7)).abs() < 1e-12,
        "{exact}"
    );
    let round = |figure: &Value| (figure.as_f64().unwrap() * 100.0).round() / 100.0;
    for field in ["value_a", "value_b", "stderr"] {
        assert_eq!(
            rounded[field].as_f64(),
            Some(round(&exact[field])),
            "{field}: {rounded}"
        );
    }
    // The interval is normal, around the difference of the rounded values.
    assert_eq!(
        (&rounded["difference"], &rounded["ci_method"]),
        (&json!(0.19), &json!("normal"))
    );
    let half = 1.96 * exact["stderr"].as_f64().unwrap();
    let ends = [0.19 - half, 0.19 + half].map(|end| (end * 100.0).round() / 100.0);
    // The p-value follows from these figures, and `n_differ` is not disclosed.
    let wald = (rounded["p_value"].as_f64().unwrap() - 0.00664188547642664).abs() < 1e-12;
    assert!(
        wald && rounded["stderr"] == 0.07 && rounded["p_method"] == "wald",
        "{rounded}"
    );
    assert_eq!(
        (
            ci95_of(&rounded),
            &rounded["n_differ"],
            &rounded["n_needed"]
        ),
        (ends.to_vec(), &Value::Null, &Value::Null)
    );
    ladder.expect_error(403, "forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn incomparable_jobs_return_distinct_errors() {
    let mut world = world().await;
    feedback::publish(&world, "1").await;
    let lunch = world.submit_and_wait(&one_prediction()).await;
    let dinner = feedback::submit_and_wait(&world, &world.org.key, &one_prediction()).await;
    feedback::publish(&world, "2").await;
    let later = feedback::submit_and_wait(&world, &world.org.key, &one_prediction()).await;
    let stranger = org(&world.stack, "team").await;
    let theirs = feedback::submit_and_wait(&world, &stranger.key, &one_prediction()).await;
    world.stack.workers.clear();
    let waiting = world
        .key()
        .post(
            "/v1/evals",
            &json!({"suite_id": feedback::SUITE_ID, "predictions": one_prediction()}),
        )
        .await
        .unwrap()
        .body;
    for (job_a, job_b, status, expected) in [
        (
            &lunch,
            &dinner,
            409,
            "on different items: job_a is on suite:lunch in version 1, job_b on suite:dinner in version 1",
        ),
        (&dinner, &later, 409, "job_b on suite:dinner in version 2"),
        (
            &dinner,
            &waiting,
            409,
            "job_b cannot be compared: it is queued",
        ),
        (&theirs, &dinner, 404, "No such job: job_a."),
        (&dinner, &theirs, 404, "No such job: job_b."),
        (
            &json!({"id": "nonsense"}),
            &dinner,
            404,
            "No such job: job_a.",
        ),
    ] {
        let response = compare(&world, job_a, job_b).await;
        let message = string(&response.body["error"]["message"]);
        assert!(
            response.status == status && message.contains(expected),
            "{expected}: {} {message}",
            response.status
        );
        assert_eq!(
            error_code(&response),
            if status == 409 {
                "invalid_state"
            } else {
                "not_found"
            }
        );
    }
    let send = async |body: Value| world.key().post("/v1/comparisons", &body).await.unwrap();
    for (body, expected) in [
        (json!({}), vec![field_error("job_a", "required")]),
        (
            json!({"job_a": "", "job_b": dinner["id"]}),
            vec![field_error("job_a", "required")],
        ),
        (
            json!({"job_a": dinner["id"], "job_b": 7}),
            vec![field_error("job_b", "type")],
        ),
        (
            json!({"job_a": dinner["id"], "job_b": dinner["id"], "alpha": 0.1}),
            vec![field_error("alpha", "unknown_field")],
        ),
    ] {
        let response = send(body.clone()).await.expect_status(422);
        assert_eq!(field_errors(&response), expected, "{body}");
    }
}
