//! Metrics over REST and gRPC: each family's prediction form, confidence intervals, and
//! validation errors.

use assay_proto::v1;
use assay_proto::v1::eval_service_client::EvalServiceClient;
use assay_proto::v1::job_service_client::JobServiceClient;
use assay_proto::v1::prediction_value::Value as Prediction;
use serde_json::{Value, json};

use crate::harness::{Expect, World, field_error, field_errors, string, with_token, world};
use crate::uploads;

/// Publishes a suite for `metric` with the items `i0`, `i1`, … and the given answers.
pub async fn publish(world: &World, metric: &str, feedback: bool, answers: &[Value]) -> String {
    let name = metric.replace('@', "-");
    let folder = world
        .stack
        .ground
        .servers
        .folder()
        .join(format!("{}-{name}", world.stack.database.name));
    std::fs::create_dir_all(&folder).unwrap();
    let suite_id = format!("suite:{name}");
    let head = format!(
        "suite_id = \"{suite_id}\"\nversion = \"1\"\nmetric = \"{metric}\"\nper_item_feedback = {feedback}\n"
    );
    let lines = |line: &dyn Fn(usize) -> Value| {
        (0..answers.len())
            .map(|at| format!("{}\n", line(at)))
            .collect::<String>()
    };
    std::fs::write(folder.join("suite.toml"), head).unwrap();
    std::fs::write(
        folder.join("items.ndjson"),
        lines(&|at| json!({"item_id": format!("i{at}"), "input": {}})),
    )
    .unwrap();
    std::fs::write(
        folder.join("answers.ndjson"),
        lines(&|at| json!({"item_id": format!("i{at}"), "answer": answers[at]})),
    )
    .unwrap();
    world
        .stack
        .operate(&["suite", "publish", folder.to_str().unwrap()])
        .await
        .unwrap();
    suite_id
}

/// Returns predictions with these values for the first items.
pub fn predictions(values: &[Value]) -> Value {
    values
        .iter()
        .enumerate()
        .map(|(at, value)| json!({"item_id": format!("i{at}"), "prediction": value}))
        .collect()
}

/// Submits predictions and waits until the job has finished.
pub async fn scored(world: &World, suite_id: &str, predictions: &Value) -> Value {
    let job = world
        .key()
        .post(
            "/v1/evals",
            &json!({"suite_id": suite_id, "predictions": predictions}),
        )
        .await
        .expect_status(202);
    world
        .key()
        .wait_until_finished(&string(&job.body["id"]), &|_| {})
        .await
        .unwrap()
}

fn close(found: &Value, wanted: f64) {
    assert!(
        (found.as_f64().unwrap() - wanted).abs() < 1e-12,
        "{found} {wanted}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_and_probabilities_match_on_both_protocols() {
    let world = world().await;
    let mae = publish(
        &world,
        "mae",
        true,
        &[json!(1), json!(2.5), json!(-1), json!(4)],
    )
    .await;
    let brier = publish(
        &world,
        "brier",
        false,
        &[json!("x"), json!("y"), json!("z"), json!("x")],
    )
    .await;

    let job = scored(
        &world,
        &mae,
        &predictions(&[json!(2), json!(2.5), json!(-1.5)]),
    )
    .await;
    let result = &job["result"];
    // One prediction is missing: its error is the answers' spread.
    close(&result["value"], (1.0 + 0.0 + 0.5 + 5.0) / 4.0);
    close(
        &result["metrics"]["rmse"],
        ((1.0 + 0.25 + 25.0) / 4.0_f64).sqrt(),
    );
    assert_eq!(
        (&result["ci_method"], &result["n_missing"], &job["progress"]),
        (&json!("normal"), &json!(1), &Value::Null)
    );
    let low = result["ci95"][0].as_f64().unwrap();
    let high = result["ci95"][1].as_f64().unwrap();
    assert!(
        low < 1.625 && 1.625 < high && result["stderr"].as_f64().unwrap() > 0.0,
        "{result}"
    );
    let items = world
        .key()
        .get(&format!("/v1/jobs/{}/items", string(&job["id"])))
        .await
        .unwrap()
        .body;
    let scores: Vec<_> = items["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["score"].as_f64().unwrap())
        .collect();
    assert_eq!(scores, [1.0, 0.0, 0.5, 5.0]);

    let sure = json!({"x": 0.75, "y": 0.25});
    let rest =
        scored(&world, &brier, &predictions(&[sure.clone(), sure.clone()])).await["result"].clone();
    close(
        &rest["value"],
        (0.125 + 2.0 * 0.75 * 0.75 + 2.0 + 2.0) / 4.0,
    );

    let mut evals = EvalServiceClient::new(world.channel().await);
    let by_label = || [("y".to_owned(), 0.25), ("x".to_owned(), 0.75)].into();
    let probabilities = || {
        Prediction::Probabilities(v1::Probabilities {
            by_label: by_label(),
        })
    };
    for (suite_id, values, wanted) in [
        (
            &mae,
            vec![
                Prediction::Number(2.0),
                Prediction::Number(2.5),
                Prediction::Number(-1.5),
            ],
            result,
        ),
        (&brier, vec![probabilities(), probabilities()], &rest),
    ] {
        let one = |(at, value)| v1::Prediction {
            item_id: format!("i{at}"),
            prediction: Some(v1::PredictionValue { value: Some(value) }),
        };
        let request = v1::CreateEvalRequest {
            suite_id: suite_id.clone(),
            predictions: values.into_iter().enumerate().map(one).collect(),
            ..v1::CreateEvalRequest::default()
        };
        let job = evals
            .create_eval(with_token(request, &world.org.key))
            .await
            .unwrap()
            .into_inner()
            .job
            .unwrap();
        world.wait_until_finished(&job.id).await;
        let ask = v1::GetJobRequest {
            job_id: job.id,
            wait: None,
        };
        let job = JobServiceClient::new(world.channel().await)
            .get_job(with_token(ask, &world.org.key))
            .await
            .unwrap()
            .into_inner()
            .job
            .unwrap();
        let r = job.result.unwrap();
        assert_eq!(
            json!([r.value, r.stderr, r.ci95, r.ci_method, r.metrics]),
            json!([
                wanted["value"],
                wanted["stderr"],
                wanted["ci95"],
                wanted["ci_method"],
                wanted["metrics"]
            ])
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_prediction_form_names_path_or_line() {
    let world = world().await;
    let rmse = publish(&world, "rmse", false, &[json!(1), json!(2)]).await;
    let auc = publish(&world, "auc", false, &[json!("no"), json!("yes")]).await;
    let key = world.key();
    for (suite_id, value, reason) in [
        (&rmse, json!("1"), "type"),
        (&rmse, json!({"a": 1}), "type"),
        (&rmse, json!(1e51), "range"),
        (&auc, json!(0.5), "type"),
        (&auc, json!({"yes": 0.5, "no": 0.4}), "range"),
    ] {
        let refused = key
            .post(
                "/v1/evals",
                &json!({"suite_id": suite_id, "predictions": predictions(&[value])}),
            )
            .await
            .expect_status(422);
        assert_eq!(
            field_errors(&refused),
            vec![field_error("predictions[0].prediction", reason)]
        );
    }

    let lines =
        "{\"item_id\":\"i0\",\"prediction\":1.5}\n\n{\"item_id\":\"i1\",\"prediction\":\"2\"}\n";
    let upload_id = uploads::uploaded(&key, json!({"kind": "predictions"}), lines.as_bytes()).await;
    let job = key
        .post(
            "/v1/evals",
            &json!({"suite_id": rmse, "input_ref": upload_id}),
        )
        .await
        .unwrap();
    let failed = key
        .wait_until_finished(&string(&job.body["id"]), &|_| {})
        .await
        .unwrap();
    let expected = json!({"code": "invalid_predictions", "message": "line 3.prediction: must be a number: the suite's metric is rmse"});
    assert_eq!(
        (&failed["status"], &failed["error"]),
        (&json!("failed"), &expected)
    );

    let one = scored(&world, &auc, &predictions(&[json!({"no": 1})])).await;
    let expected = "auc needs a prediction for each item of the suite: 1 are missing";
    assert_eq!(
        one["error"],
        json!({"code": "invalid_predictions", "message": expected})
    );
    let both = scored(
        &world,
        &auc,
        &predictions(&[json!({"no": 1}), json!({"no": 0.25, "yes": 0.75})]),
    )
    .await;
    assert_eq!(
        (
            &both["result"]["value"],
            &both["result"]["stderr"],
            &both["result"]["ci95"]
        ),
        (&json!(1.0), &Value::Null, &Value::Null)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn running_job_reports_progress() {
    let world = world().await;
    let held = world.hold_answers().await;
    let job = world.submit(&crate::harness::one_prediction()).await;
    assert_eq!(job.body["progress"], Value::Null);
    let id = string(&job.body["id"]);
    world.wait_for_status(&id, "running").await;
    let running = world.key().get(&format!("/v1/jobs/{id}")).await.unwrap();
    assert_eq!(
        (&running.body["status"], &running.body["progress"]),
        (&json!("running"), &json!(0.0))
    );
    drop(held);
    assert_eq!(
        world.wait_until_finished(&id).await["progress"],
        Value::Null
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn job_without_interval_is_readable() {
    let world = world().await;
    let job = world
        .submit_and_wait(&crate::harness::one_prediction())
        .await;
    let id = string(&job["id"]);
    let sql =
        "update jobs set result = result - 'stderr' - 'ci95' - 'ci_method' - 'metrics' - 'release'";
    sqlx::raw_sql(sql)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let old = world
        .key()
        .get(&format!("/v1/jobs/{id}"))
        .await
        .unwrap()
        .body;
    let expected = json!([
        old["result"]["stderr"],
        old["result"]["ci95"],
        old["result"]["ci_method"],
        old["result"]["metrics"]
    ]);
    assert_eq!(
        (expected, &old["result"]["value"]),
        (json!([null, null, null, {}]), &job["result"]["value"])
    );
    assert_eq!(old["result"]["release"], "exact");
}
