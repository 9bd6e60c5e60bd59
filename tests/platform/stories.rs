//! One scenario with third-party gRPC clients: submit, watch, read the result, cancel, and make an
//! invalid call.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use prost::Message as _;
use serde_json::{Value, json};
use sqlx::PgConnection;
use tonic_types::pb::{BadRequest, ErrorInfo};

use crate::clients::{client_env, go_client, node_with, prepare, python_with, run_json, sources};
use crate::harness::{World, field_errors, one_prediction, string, world};

/// An item's id in both suites.
const ITEM: &str = "person-00/day-0";

/// Starts a world in which one suite's jobs are scored, and those of the other run until they
/// are cancelled.
async fn held() -> (World, PgConnection) {
    let world = world().await;
    crate::feedback::publish(&world, "1").await;
    // The worker has cached the first suite's answers.
    world
        .wait_until_finished(&string(&world.submit(&one_prediction()).await.body["id"]))
        .await;
    let hold = world.hold_answers().await;
    (world, hold)
}

fn environment(world: &World) -> Vec<(&'static str, String)> {
    let mut environment = client_env(world, Path::new(""));
    environment.extend([
        ("ASSAY_ITEM", ITEM.to_owned()),
        ("ASSAY_HELD_SUITE", crate::feedback::SUITE_ID.to_owned()),
    ]);
    environment
}

/// Asserts what every client must have observed.
async fn assert_story(world: &World, story: &Value, invalid_argument: &str) {
    let watched = |name: &str| {
        story[name]
            .as_array()
            .unwrap()
            .iter()
            .map(string)
            .collect::<Vec<_>>()
    };
    let scored = watched("watched");
    let cancelled = watched("cancelled");
    let states = |last: &'static str| ["queued", "running", last];
    for (seen, states) in [
        (&scored, states("succeeded")),
        (&cancelled, states("cancelled")),
    ] {
        // Quick changes may be merged, but their order is kept and the last state always arrives.
        let mut expected = states.iter();
        assert!(
            seen.iter()
                .all(|status| expected.any(|state| state == status)),
            "{story}"
        );
        assert_eq!(seen.last().map(String::as_str), Some(states[2]), "{story}");
    }
    // Of the 400 items, feedback names the predicted one, and if it was correct.
    assert!(
        [0.0, 1.0 / 400.0].contains(&story["value"].as_f64().unwrap()),
        "{story}"
    );
    let prediction = json!({"item_id": ITEM, "prediction": ["ramen"]});
    let same = json!({"suite_id": "suite:none", "predictions": [prediction, prediction]});
    let refused = world.key().post("/v1/evals", &same).await.unwrap();
    let fields: Vec<_> = field_errors(&refused)
        .into_iter()
        .map(|(field, reason)| json!([field, reason.to_uppercase()]))
        .collect();
    assert!(!fields.is_empty(), "{}", refused.body);
    assert_eq!(
        story["mistake"],
        json!({"status": invalid_argument, "reason": "VALIDATION_FAILED", "fields": fields})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn grpcio_submits_watches_reads_cancels_and_errs() {
    let Some(python) =
        prepare(|| python_with("python", &sources().join("python/requirements.txt"))).await
    else {
        return;
    };
    let (world, _hold) = held().await;
    let story = run_json(
        &python,
        &[&sources().join("python/story.py")],
        &environment(&world),
    )
    .await;
    assert_story(&world, &story, "INVALID_ARGUMENT").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_go_submits_watches_reads_cancels_and_errs() {
    let Some(client) = prepare(go_client).await else {
        return;
    };
    let (world, _hold) = held().await;
    let story = run_json(&client, &[], &environment(&world)).await;
    assert_story(&world, &story, "InvalidArgument").await;
}

/// `buf curl`, which gets the contract by server reflection.
struct BufCurl<'w> {
    program: PathBuf,
    world: &'w World,
}

impl BufCurl<'_> {
    fn command(&self, method: &str, message: &Value) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(&self.program);
        command.args([
            "curl",
            "--protocol",
            "grpc",
            "--http2-prior-knowledge",
            "--emit-defaults",
        ]);
        command.args([
            "--header",
            &format!("Authorization: Bearer {}", self.world.org.key),
            "--data",
            &message.to_string(),
        ]);
        command.arg(format!("{}/assay.v1.{method}", self.world.stack.url()));
        command
            .env("NO_PROXY", "127.0.0.1")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Calls a method and returns the response's messages.
    async fn call(&self, method: &str, message: &Value) -> Vec<Value> {
        let output = self.command(method, message).output().await.unwrap();
        assert!(
            output.status.success(),
            "{method}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::Deserializer::from_slice(&output.stdout)
            .into_iter()
            .collect::<Result<_, _>>()
            .unwrap()
    }

    async fn submit(&self, suite_id: &str) -> String {
        let predictions = json!([{"itemId": ITEM, "prediction": {"ranking": {"ids": ["ramen"]}}}]);
        let call = self
            .call(
                "EvalService/CreateEval",
                &json!({"suiteId": suite_id, "predictions": predictions}),
            )
            .await;
        string(&call[0]["job"]["id"])
    }
}

/// Returns the states in a stream's messages; heartbeats have none.
fn states(changes: &[Value]) -> Vec<Value> {
    changes
        .iter()
        .map(|change| change["job"]["status"].clone())
        .filter(|status| !status.is_null())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn buf_curl_submits_watches_reads_cancels_and_errs() {
    let Some(node) =
        prepare(|| node_with("buf", &["package.json", "package-lock.json", ".npmrc"])).await
    else {
        return;
    };
    let (world, _hold) = held().await;
    let curl = BufCurl {
        program: node.join("node_modules/.bin/buf"),
        world: &world,
    };
    let scored = curl.submit("suite:lunch").await;
    let watched = curl
        .call("JobService/WatchJob", &json!({"jobId": scored}))
        .await;
    let got = curl
        .call("JobService/GetJob", &json!({"jobId": scored}))
        .await;

    let held = curl.submit(crate::feedback::SUITE_ID).await;
    let mut watch = curl.command("JobService/WatchJob", &json!({"jobId": held}));
    let watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    world.wait_for_status(&held, "running").await;
    curl.call("JobService/CancelJob", &json!({"jobId": held}))
        .await;
    let cancelled = watch.wait_with_output().await.unwrap().stdout;
    let cancelled: Vec<Value> = serde_json::Deserializer::from_slice(&cancelled)
        .into_iter()
        .collect::<Result<_, _>>()
        .unwrap();

    let prediction = json!({"itemId": ITEM, "prediction": {"ranking": {"ids": ["ramen"]}}});
    let mistake = json!({"suiteId": "suite:none", "predictions": [prediction, prediction]});
    let refused = curl
        .command("EvalService/CreateEval", &mistake)
        .output()
        .await
        .unwrap();
    let refused: Value = serde_json::from_slice(&refused.stderr).unwrap();
    let detail = |name: &str| {
        let details = refused["details"]
            .as_array()
            .unwrap_or_else(|| panic!("{refused}"));
        let found = details
            .iter()
            .find(|detail| string(&detail["type"]).ends_with(name))
            .unwrap_or_else(|| panic!("{refused}"));
        BASE64_STANDARD_NO_PAD
            .decode(string(&found["value"]))
            .unwrap()
    };
    let info = ErrorInfo::decode(detail("ErrorInfo").as_slice()).unwrap();
    let violations = BadRequest::decode(detail("BadRequest").as_slice())
        .unwrap()
        .field_violations;
    let fields: Vec<_> = violations
        .iter()
        .map(|error| json!([error.field, error.reason]))
        .collect();
    let story = json!({
        "watched": states(&watched),
        "value": got[0]["job"]["result"]["value"],
        "cancelled": states(&cancelled),
        "mistake": {"status": refused["code"], "reason": info.reason, "fields": fields},
    });
    assert_story(&world, &story, "invalid_argument").await;
}
