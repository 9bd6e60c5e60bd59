//! `/v1/jobs/{job_id}/items`: item scores, if the suite allows per-item feedback.

use assay_proto::v1;
use assay_proto::v1::job_service_client::JobServiceClient;
use assay_tests::demo_suite;
use serde_json::{Value, json};

use crate::harness::{
    Expect, World, field_error, field_errors, one_prediction, string, with_token, world,
};

/// The lunch suite under another name, with another metric and per-item feedback.
pub const SUITE_ID: &str = "suite:dinner";

/// Publishes [`SUITE_ID`] in this version.
pub async fn publish(world: &World, version: &str) {
    let folder = world
        .stack
        .ground
        .servers
        .folder()
        .join(format!("{}-dinner-{version}", world.stack.database.name));
    demo_suite::write(&folder).unwrap();
    let head = format!(
        "suite_id = \"{SUITE_ID}\"\nversion = \"{version}\"\nmetric = \"mrr@6\"\nper_item_feedback = true\n"
    );
    std::fs::write(folder.join("suite.toml"), head).unwrap();
    world
        .stack
        .operate(&["suite", "publish", folder.to_str().unwrap()])
        .await
        .unwrap();
}

/// Submits predictions for [`SUITE_ID`], waits until the job is finished, and returns it.
pub async fn submit_and_wait(world: &World, token: &str, predictions: &Value) -> Value {
    let client = world.client(token);
    let job = client
        .post(
            "/v1/evals",
            &json!({"suite_id": SUITE_ID, "predictions": predictions}),
        )
        .await
        .unwrap();
    client
        .wait_until_finished(&string(&job.body["id"]), &|_| {})
        .await
        .unwrap()
}

/// Moves the item scores of a job from its row to the artifact store, where large suites have
/// theirs. Returns the object's path.
pub async fn move_scores_to_artifact_store(world: &World, job: &Value) -> std::path::PathBuf {
    let id = string(&job["id"]);
    let mut database = world.database().await;
    let scores = "select body from stored_item_scores where job_id = $1";
    let body: Vec<u8> = sqlx::query_scalar(scores)
        .bind(&id)
        .fetch_one(&mut database)
        .await
        .unwrap();
    let key = format!("{}/{id}.1.scores", world.org.id);
    let path = world.stack.artifacts().join(&key);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, body).unwrap();
    let moved = format!(
        "update stored_item_scores set scores_key = '{key}', body = null where job_id = '{id}';
         update jobs set scores_key = '{key}' where id = '{id}'"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(moved))
        .execute(&mut database)
        .await
        .unwrap();
    path
}

/// Returns the habit model's predictions for 300 items out of 400.
async fn predictions(world: &World) -> Vec<Value> {
    let page = world
        .key()
        .get(&format!("/v1/suites/{SUITE_ID}/items?limit=300"))
        .await
        .unwrap();
    let items = page.body["items"].as_array().unwrap().iter().rev();
    items.map(demo_suite::prediction).collect()
}

/// The pages list the items in the suite's order.
#[tokio::test(flavor = "multi_thread")]
async fn item_scores_average_to_value() {
    let world = world().await;
    publish(&world, "1").await;
    let predictions = predictions(&world).await;
    let job = submit_and_wait(&world, &world.org.key, &Value::Array(predictions.clone())).await;
    // A later suite version does not affect this job.
    publish(&world, "2").await;
    let path = format!("/v1/jobs/{}/items", string(&job["id"]));
    for limit in [1000, 400, 399, 7] {
        let mut items = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = world
                .key()
                .get(&format!("{path}?limit={limit}{cursor}"))
                .await
                .unwrap()
                .body;
            assert_eq!(
                (
                    &page["job_id"],
                    &page["suite_id"],
                    &page["suite_version"],
                    &page["n_items"]
                ),
                (&job["id"], &SUITE_ID.into(), &"1".into(), &400.into())
            );
            items.extend(page["items"].as_array().unwrap().clone());
            match &page["next_cursor"] {
                Value::Null => break,
                next => cursor = format!("&cursor={}", string(next)),
            }
        }
        assert_eq!(items.len(), 400);
        let sum: f64 = items
            .iter()
            .map(|item| item["score"].as_f64().unwrap())
            .sum();
        assert!((sum / 400.0 - job["result"]["value"].as_f64().unwrap()).abs() < 1e-12);
        check(&world, &items, &predictions);
    }
    let mut grpc = JobServiceClient::new(world.channel().await);
    let request = v1::ListJobItemsRequest {
        job_id: string(&job["id"]),
        cursor: None,
        limit: Some(7),
    };
    let page = grpc
        .list_job_items(with_token(request, &world.org.key))
        .await
        .unwrap()
        .into_inner();
    let rest = world
        .key()
        .get(&format!("{path}?limit=7"))
        .await
        .unwrap()
        .body;
    let items: Vec<_> = page
        .items
        .iter()
        .map(|item| json!({"item_id": item.item_id, "score": item.score}))
        .collect();
    let same = json!({
        "job_id": page.job_id, "suite_id": page.suite_id, "suite_version": page.suite_version, "items": items, "n_items": page.n_items,
        "next_cursor": page.next_cursor,
    });
    assert_eq!(rest, same);
}

/// Checks that each score is the published answer's reciprocal rank, computed here from the
/// suite's own files.
fn check(world: &World, items: &[Value], predictions: &[Value]) {
    let folder = world.stack.ground.servers.folder().join("lunch");
    let lines = |name: &str| -> Vec<Value> {
        std::fs::read_to_string(folder.join(name))
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    for (answer, item) in lines("answers.ndjson").iter().zip(items) {
        assert_eq!(answer["item_id"], item["item_id"]);
        let predicted = predictions
            .iter()
            .find(|prediction| prediction["item_id"] == item["item_id"]);
        let rank = predicted.and_then(|it| {
            it["prediction"]
                .as_array()
                .unwrap()
                .iter()
                .position(|dish| *dish == answer["answer"])
        });
        let expected = rank.map_or(0.0, |rank| 1.0 / (rank as f64 + 1.0));
        assert_eq!(
            item["score"].as_f64(),
            Some(expected),
            "{}",
            item["item_id"]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_scores_return_distinct_errors() {
    let mut world = world().await;
    publish(&world, "1").await;
    let without = world.submit_and_wait(&one_prediction()).await;
    let with = submit_and_wait(&world, &world.org.key, &one_prediction()).await;
    let key = world.key();
    let items = async |id: &Value, query: &str| {
        key.get(&format!("/v1/jobs/{}/items{query}", string(id)))
            .await
            .unwrap()
    };
    // The suite does not allow it.
    items(&without["id"], "")
        .await
        .expect_error(403, "forbidden");
    let suite = SUITE_ID.parse().unwrap();
    let version_2 = assay_core::model::suite_items::ItemCursor::new(&suite, "2".into(), 1);
    let beyond = assay_core::model::suite_items::ItemCursor::new(&suite, "1".into(), 400);
    for (query, expected) in [
        ("?limit=0".to_owned(), field_error("limit", "range")),
        ("?limit=1001".into(), field_error("limit", "range")),
        ("?cursor=x".into(), field_error("cursor", "format")),
        (
            format!("?cursor={version_2}"),
            field_error("cursor", "format"),
        ),
        (format!("?cursor={beyond}"), field_error("cursor", "format")),
        ("?page=2".into(), field_error("page", "unknown_field")),
    ] {
        let response = items(&with["id"], &query).await.expect_status(422);
        assert_eq!(field_errors(&response), vec![expected], "{query}");
    }
    world.stack.workers.clear();
    let waiting = world
        .key()
        .post(
            "/v1/evals",
            &json!({"suite_id": SUITE_ID, "predictions": one_prediction()}),
        )
        .await
        .unwrap();
    // The job has no scores yet.
    items(&waiting.body["id"], "")
        .await
        .expect_error(409, "invalid_state");
}
