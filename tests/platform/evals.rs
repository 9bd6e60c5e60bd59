//! `POST /v1/evals` and `GET /v1/jobs/{job_id}`

use assay_proto::v1;
use assay_proto::v1::eval_service_client::EvalServiceClient;
use assay_proto::v1::job_service_client::JobServiceClient;
use assay_tests::demo_suite;
use assay_tests::stack::StackSize;
use serde_json::{Value, json};

use crate::harness::{
    Expect, World, field_error, field_errors, large_prediction, one_prediction, org, shared_world,
    shared_world_without_workers, string, with_token, world_with,
};

async fn without_workers() -> World {
    world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn submission_is_queued_and_scored() {
    let world = shared_world().await;
    let body = json!({"suite_id": "suite:lunch", "label": "first", "input_ref": null, "predictions": [
        {"item_id": "person-00/day-0", "prediction": ["curry"], "confidence": [1, {"x": null}]},
        {"item_id": "person-00/day-1", "prediction": "ramen"},
        {"item_id": "person-00/day-2", "prediction": []},
        {"item_id": "nobody", "prediction": ["curry"]},
    ]});
    let queued = world
        .key()
        .post("/v1/evals", &body)
        .await
        .expect_status(202);
    assert_eq!(
        (&queued.body["status"], &queued.body["attempts"]),
        (&"queued".into(), &0.into())
    );
    assert_eq!(queued.body["request_id"], queued.header("x-request-id"));
    for null in ["started_at", "finished_at", "progress"] {
        assert_eq!(queued.body.get(null), Some(&Value::Null), "{null}");
    }
    for absent in ["result", "error", "trace_url"] {
        assert!(queued.body.get(absent).is_none(), "{absent}");
    }
    assert!(queued.body["versions"].get("suite_version").is_none());

    let job = world.wait_until_finished(&string(&queued.body["id"])).await;
    let mut fields: Vec<_> = job
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    fields.sort_unstable();
    let expected = [
        "attempts",
        "created_at",
        "final",
        "finished_at",
        "id",
        "label",
        "metadata",
        "org_id",
        "progress",
        "request_id",
        "result",
        "started_at",
        "status",
        "trace_url",
        "type",
        "versions",
    ];
    assert_eq!(fields, expected);
    assert_eq!(
        (
            &job["type"],
            &job["status"],
            &job["label"],
            &job["attempts"]
        ),
        (
            &"eval".into(),
            &"succeeded".into(),
            &"first".into(),
            &1.into()
        )
    );
    assert_eq!(job["versions"]["suite_version"], "1");
    let result = job["result"].as_object().unwrap();
    let counts =
        ["n", "n_submitted", "n_unmatched", "n_missing"].map(|name| result[name].as_i64().unwrap());
    assert_eq!(counts, [400, 4, 1, 397]);
    let value = result["value"].as_f64().unwrap();
    assert!(
        [0.0, 0.0025, 0.005].contains(&value),
        "the score covers all 400 items: {value}"
    );
    assert!(
        string(&job["created_at"]) <= string(&job["started_at"])
            && string(&job["started_at"]) <= string(&job["finished_at"])
    );
    assert!(string(&job["created_at"]).ends_with('Z') && string(&job["created_at"]).len() == 27);
}

#[tokio::test(flavor = "multi_thread")]
async fn habit_model_beats_menu_model() {
    let world = shared_world().await;
    let items = world
        .key()
        .get("/v1/suites/suite:lunch/items")
        .await
        .unwrap();
    let mut values = Vec::new();
    for model in [demo_suite::by_habit, demo_suite::by_menu] {
        let predictions: Vec<_> = items.body["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| json!({"item_id": item["item_id"], "prediction": model(&item["input"])}))
            .collect();
        values.push(
            world.submit_and_wait(&json!(predictions)).await["result"]["value"]
                .as_f64()
                .unwrap(),
        );
    }
    assert!(values[0] > 0.4 && values[1] < 0.25, "{values:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_eval_returns_field_errors() {
    let world = shared_world().await;
    let good = one_prediction();
    let cases = [
        (
            json!({"predictions": good}),
            vec![field_error("suite_id", "required")],
        ),
        (
            json!({"suite_id": "suite:none", "predictions": good}),
            vec![field_error("suite_id", "not_found")],
        ),
        (
            json!({"suite_id": "suite:a\u{0}", "predictions": good}),
            vec![field_error("suite_id", "not_found")],
        ),
        (
            json!({"suite_id": "suite:lunch"}),
            vec![field_error("predictions", "exactly_one_of")],
        ),
        (
            json!({"suite_id": "suite:lunch", "predictions": good, "input_ref": "upl_1"}),
            vec![field_error("predictions", "exactly_one_of")],
        ),
        (
            json!({"suite_id": "suite:lunch", "input_ref": "upl_1"}),
            vec![field_error("input_ref", "not_found")],
        ),
        (
            json!({"suite_id": "suite:lunch", "predictions": []}),
            vec![field_error("predictions", "required")],
        ),
        (
            json!({"suite_id": "suite:lunch", "predictions": {"0": 1}}),
            vec![field_error("predictions", "type")],
        ),
        (
            json!({"suite_id": "suite:lunch", "predictions": [["person-00/day-0", ["curry"]]]}),
            vec![field_error("predictions[0]", "type")],
        ),
        (
            json!({"suite_id": "suite:lunch", "predictions": [{"prediction": []}]}),
            vec![field_error("predictions[0].item_id", "required")],
        ),
        (
            json!({"suite_id": "suite:lunch", "predictions": [{"item_id": 7, "prediction": []}]}),
            vec![field_error("predictions[0].item_id", "type")],
        ),
        (
            json!({"suite_id": "suite:lunch", "predictions": [{"item_id": "a\u{0}", "prediction": []}]}),
            vec![field_error("predictions[0].item_id", "format")],
        ),
        (
            json!({"suite_id": "suite:lunch", "predictions": [{"item_id": "a", "prediction": 0.5}]}),
            vec![field_error("predictions[0].prediction", "type")],
        ),
        (
            json!({"suite_id": "suite:lunch", "predictions": [{"item_id": "a", "prediction": ["b", 1]}]}),
            vec![field_error("predictions[0].prediction[1]", "type")],
        ),
        (
            json!({"suite_id": "suite:lunch", "predictions": [{"item_id": "a", "prediction": []}, {"item_id": "a", "prediction": []}]}),
            vec![field_error("predictions[1].item_id", "duplicate")],
        ),
        (
            json!({"suite_id": "suite:lunch", "predictions": good, "lable": "x"}),
            vec![field_error("lable", "unknown_field")],
        ),
        (
            json!({"suite_id": "suite:lunch", "predictions": good, "label": "a\u{0}b"}),
            vec![field_error("label", "format")],
        ),
        (
            json!({"suite_id": "", "label": "", "predictions": good}),
            vec![
                field_error("suite_id", "required"),
                field_error("label", "required"),
            ],
        ),
    ];
    for (body, expected) in cases {
        let response = world
            .key()
            .post("/v1/evals", &body)
            .await
            .expect_error(422, "validation_failed");
        assert_eq!(field_errors(&response), expected, "{body}");
    }
    let jobs: i64 = sqlx::query_scalar("select count(*) from jobs where org_id = $1")
        .bind(&world.org.id)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(jobs, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn idempotency_key_ignores_json_formatting() {
    let world = shared_world().await;
    let key = world.key();
    let send = async |idempotency_key: &str, body: &str| {
        let request = key
            .request("POST", "/v1/evals")
            .header("idempotency-key", idempotency_key)
            .header("content-type", "application/json");
        key.send(request.body(body.to_owned())).await.unwrap()
    };
    let body = r#"{"suite_id":"suite:lunch","predictions":[{"item_id":"person-00/day-0","prediction":["curry"]}]}"#;
    let first = send("k", body).await.expect_status(202);
    assert_eq!(first.header("idempotency-replayed"), "");
    let spaced = r#"{ "predictions": [ {"prediction": ["c\u0075rry"], "item_id": "person-00/day-0", "note": 1} ], "suite_id": "suite:lunch", "label": null }"#;
    let again = send("k", spaced).await.expect_status(202);
    assert_eq!(
        again.header("idempotency-replayed"),
        "true",
        "{}",
        again.body
    );
    assert_eq!(again.body["id"], first.body["id"]);
    let other = send("k", &body.replace("curry", "ramen"))
        .await
        .expect_status(422);
    assert_eq!(
        field_errors(&other),
        vec![field_error("Idempotency-Key", "conflict")]
    );
    assert_eq!(other.body["error"]["details"]["job_id"], first.body["id"]);
    assert_ne!(send("k2", body).await.body["id"], first.body["id"]);
    for bad in ["", &"x".repeat(129)] {
        assert_eq!(
            field_errors(&send(bad, body).await),
            [field_error("Idempotency-Key", "range")]
        );
    }
    send(&"x".repeat(128), body).await.expect_status(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_job_returns_404() {
    let world = shared_world().await;
    let job = world.submit_and_wait(&one_prediction()).await;
    let other = org(&world.stack, "free").await;
    let stranger = world.client(&other.key);
    for path in [
        format!("/v1/jobs/{}", string(&job["id"])),
        format!("/v1/jobs/{}/trace", string(&job["id"])),
    ] {
        let theirs = stranger.get(&path).await.expect_error(404, "not_found");
        let unknown = stranger
            .get(&path.replace(&string(&job["id"]), "job_0000000000000000000000"))
            .await
            .unwrap();
        assert_eq!(
            theirs.body["error"]["message"],
            unknown.body["error"]["message"]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn job_keeps_its_suite_version() {
    let world = without_workers().await;
    let queued = world.submit(&one_prediction()).await;
    publish_next_version(&world).await;
    let _worker = world.stack.launch_worker().unwrap();
    let job = world.wait_until_finished(&string(&queued.body["id"])).await;
    assert_eq!(
        (
            &job["versions"]["suite_version"],
            &job["result"]["suite_version"]
        ),
        (&"1".into(), &"1".into())
    );
}

/// Publishes `suite:lunch`, version 2.
async fn publish_next_version(world: &World) {
    let name = format!("{}-lunch-2", world.stack.database.name);
    let folder = world.stack.ground.servers.folder().join(name);
    demo_suite::write(&folder).unwrap();
    let file = folder.join("suite.toml");
    let suite = std::fs::read_to_string(&file).unwrap();
    let suite = suite.replace("version = \"1\"", "version = \"2\"");
    std::fs::write(file, suite).unwrap();
    let publish = ["suite", "publish", folder.to_str().unwrap()];
    world.stack.operate(&publish).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn predictions_for_another_version_are_rejected() {
    let world = without_workers().await;
    let key = world.key();
    let mut grpc = EvalServiceClient::new(world.channel().await);
    let submit = async |version: &str, idempotency_key: &str| {
        let body = json!({"suite_id": demo_suite::SUITE_ID, "suite_version": version, "predictions": one_prediction()});
        let request = key.request("POST", "/v1/evals").json(&body);
        key.send(request.header("idempotency-key", idempotency_key))
            .await
            .unwrap()
    };
    let first = submit("1", "first").await.expect_status(202);
    publish_next_version(&world).await;
    // The version that was sent belongs to the request that a key stands for.
    assert_eq!(
        field_errors(&submit("2", "first").await),
        [field_error("Idempotency-Key", "conflict")]
    );
    let outdated = submit("1", "second").await.expect_error(409, "conflict");
    assert_eq!(
        outdated.body["error"]["details"],
        json!({"suite_version": "1", "current_version": "2"})
    );
    assert_eq!(
        field_errors(&submit("", "first").await),
        [field_error("suite_version", "required")]
    );
    // A repetition returns its job although the suite has a new version.
    let repeated = submit("1", "first").await.expect_status(202);
    assert_eq!(repeated.body["id"], first.body["id"]);
    submit("2", "third").await.expect_status(202);
    world
        .submit_once(&one_prediction())
        .await
        .expect_status(202);

    let message = |version: &str| v1::CreateEvalRequest {
        suite_id: demo_suite::SUITE_ID.into(),
        suite_version: Some(version.into()),
        predictions: vec![v1::Prediction {
            item_id: "person-00/day-0".into(),
            prediction: Some(v1::PredictionValue {
                value: Some(v1::prediction_value::Value::Label("curry".into())),
            }),
        }],
        ..v1::CreateEvalRequest::default()
    };
    let outdated = grpc
        .create_eval(with_token(message("1"), &world.org.key))
        .await
        .unwrap_err();
    assert_eq!(outdated.code(), tonic::Code::AlreadyExists);
    let info = tonic_types::StatusExt::get_error_details(&outdated);
    let info = info.error_info().unwrap();
    assert_eq!(
        (
            info.metadata["suite_version"].as_str(),
            info.metadata["current_version"].as_str()
        ),
        ("1", "2")
    );
    let current = with_token(message("2"), &world.org.key);
    grpc.create_eval(current).await.unwrap();
    let count: i64 = sqlx::query_scalar("select count(*) from jobs")
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(count, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_is_stored_with_the_job() {
    let world = shared_world_without_workers().await;
    let key = world.key();
    let submit = async |metadata: &Value| {
        let body = json!({"suite_id": demo_suite::SUITE_ID, "predictions": one_prediction(), "metadata": metadata});
        let request = key.request("POST", "/v1/evals").json(&body);
        key.send(request.header("idempotency-key", "same"))
            .await
            .unwrap()
    };
    let metadata = json!({"commit": "9f1c2e", "note": "größer <b>", "empty": ""});
    let made = submit(&metadata).await.expect_status(202);
    assert_eq!(made.body["metadata"], metadata, "{}", made.body);
    let id = string(&made.body["id"]);
    let read = key.get(&format!("/v1/jobs/{id}")).await.unwrap();
    assert_eq!(read.body["metadata"], metadata);
    let listed = key.get("/v1/jobs").await.unwrap();
    assert_eq!(listed.body["jobs"][0]["metadata"], metadata);
    let mut jobs = JobServiceClient::new(world.channel().await);
    let request = with_token(
        v1::GetJobRequest {
            job_id: id.clone(),
            wait: None,
        },
        &world.org.key,
    );
    let job = jobs
        .get_job(request)
        .await
        .unwrap()
        .into_inner()
        .job
        .unwrap();
    assert_eq!(json!(job.metadata), metadata);

    // Metadata belongs to what an idempotency key stands for.
    assert_eq!(submit(&metadata).await.body["id"], made.body["id"]);
    for other in [json!({"commit": "9f1c2e"}), Value::Null] {
        let other = submit(&other).await;
        assert_eq!(
            field_errors(&other),
            [field_error("Idempotency-Key", "conflict")]
        );
    }
    let without = world.submit_once(&one_prediction()).await;
    assert_eq!(without.body["metadata"], json!({}));

    let pairs = |count: usize| -> Value {
        (0..count)
            .map(|at| (at.to_string(), json!("x")))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    for (bad, field, reason) in [
        (json!([]), "metadata", "type"),
        (json!("x"), "metadata", "type"),
        (pairs(17), "metadata", "range"),
        (json!({"": "x"}), "metadata", "range"),
        (json!({"k".repeat(65): "x"}), "metadata", "range"),
        (json!({"number": 1}), "metadata.number", "type"),
        (json!({"long": "x".repeat(513)}), "metadata.long", "range"),
    ] {
        let rejected = submit(&bad).await;
        assert_eq!(
            field_errors(&rejected),
            [field_error(field, reason)],
            "{bad}"
        );
    }
    // Of one key's two values, none is the right one.
    let twice = format!(
        r#"{{"suite_id": "{}", "predictions": {}, "metadata": {{"seed": "1", "seed": "2"}}}}"#,
        demo_suite::SUITE_ID,
        one_prediction()
    );
    let request = world.key().request("POST", "/v1/evals").body(twice);
    let request = request.header("content-type", "application/json");
    let rejected = world.key().send(request).await.unwrap();
    assert_eq!(
        field_errors(&rejected),
        [field_error("metadata", "duplicate")]
    );
    let mut grpc = EvalServiceClient::new(world.channel().await);
    let message = v1::CreateEvalRequest {
        suite_id: demo_suite::SUITE_ID.into(),
        predictions: vec![v1::Prediction {
            item_id: "person-00/day-0".into(),
            prediction: Some(v1::PredictionValue {
                value: Some(v1::prediction_value::Value::Label("curry".into())),
            }),
        }],
        metadata: [("commit".to_owned(), "9f1c2e".to_owned())].into(),
        ..v1::CreateEvalRequest::default()
    };
    let made = grpc
        .create_eval(with_token(message, &world.org.key))
        .await
        .unwrap();
    let job = made.into_inner().job.unwrap();
    assert_eq!(json!(job.metadata), json!({"commit": "9f1c2e"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_submission_fails_without_retry() {
    let world = crate::harness::world_with(assay_tests::stack::StackSize {
        workers: 0,
        ..Default::default()
    })
    .await;
    let mut database = world.database().await;
    let small = world.submit(&one_prediction()).await;
    sqlx::raw_sql("delete from stored_predictions")
        .execute(&mut database)
        .await
        .unwrap();
    let large = world.submit(&large_prediction()).await;
    let sql = "select input_key from jobs where input_key is not null";
    let key: String = sqlx::query_scalar(sql)
        .fetch_one(&mut database)
        .await
        .unwrap();
    std::fs::remove_file(world.stack.artifacts().join(key)).unwrap();
    let _worker = world.stack.launch_worker().unwrap();
    for queued in [small, large] {
        let job = world.wait_until_finished(&string(&queued.body["id"])).await;
        assert_eq!(
            (&job["status"], &job["attempts"], &job["error"]["code"]),
            (&"failed".into(), &1.into(), &"input_unavailable".into())
        );
        assert!(job.get("result").is_none() && job["trace_url"].is_string());
    }
}
