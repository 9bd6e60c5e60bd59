//! One story, told by other people's gRPC clients: submit, watch, read the result, cancel, and make a mistake.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use prost::Message as _;
use serde_json::{Value, json};
use sqlx::PgConnection;
use tonic_types::pb::{BadRequest, ErrorInfo};

use crate::clients::{go_client, made, node_with, printed, python_with, sources, told};
use crate::harness::{World, faults, one_prediction, text, world};

/// An item of both suites.
const ITEM: &str = "person-00/day-0";

/// A world in which the jobs of the one suite are scored, and those of the other run until they are cancelled.
async fn held() -> (World, PgConnection) {
    let world = world().await;
    crate::feedback::publish(&world, "1").await;
    // The answers of the one are in memory now.
    world
        .ended(&text(&world.submit(&one_prediction()).await.body["id"]))
        .await;
    let hold = world.hold_answers().await;
    (world, hold)
}

fn environment(world: &World) -> Vec<(&'static str, String)> {
    let mut environment = told(world, Path::new(""));
    environment.extend([
        ("ASSAY_ITEM", ITEM.to_owned()),
        ("ASSAY_HELD_SUITE", crate::feedback::SUITE_ID.to_owned()),
    ]);
    environment
}

/// What everyone must have seen.
async fn check(world: &World, story: &Value, invalid_argument: &str) {
    let watched = |name: &str| {
        story[name]
            .as_array()
            .unwrap()
            .iter()
            .map(text)
            .collect::<Vec<_>>()
    };
    let (scored, cancelled) = (watched("watched"), watched("cancelled"));
    let states = |last: &'static str| ["queued", "running", last];
    for (seen, states) in [
        (&scored, states("succeeded")),
        (&cancelled, states("cancelled")),
    ] {
        // What changes quickly may be told at once, but in order, and the last is always told.
        let mut expected = states.iter();
        assert!(
            seen.iter()
                .all(|status| expected.any(|state| state == status)),
            "{story}"
        );
        assert_eq!(seen.last().map(String::as_str), Some(states[2]), "{story}");
    }
    // Of 400 items the one that was predicted, and rightly or not.
    assert!(
        [0.0, 1.0 / 400.0].contains(&story["value"].as_f64().unwrap()),
        "{story}"
    );
    let prediction = json!({"item_id": ITEM, "prediction": ["ramen"]});
    let same = json!({"suite_id": "suite:none", "predictions": [prediction, prediction]});
    let refused = world.key().post("/v1/evals", &same).await.unwrap();
    let fields: Vec<_> = faults(&refused)
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
        made(|| python_with("python", &sources().join("python/requirements.txt"))).await
    else {
        return;
    };
    let (world, _hold) = held().await;
    let story = printed(
        &python,
        &[&sources().join("python/story.py")],
        &environment(&world),
    )
    .await;
    check(&world, &story, "INVALID_ARGUMENT").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_go_submits_watches_reads_cancels_and_errs() {
    let Some(client) = made(go_client).await else {
        return;
    };
    let (world, _hold) = held().await;
    let story = printed(&client, &[], &environment(&world)).await;
    check(&world, &story, "InvalidArgument").await;
}

/// `buf curl`, which asks the platform for the contract by reflection.
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

    /// The messages of an answer.
    async fn answers(&self, method: &str, message: &Value) -> Vec<Value> {
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
        let answers = self
            .answers(
                "EvalService/CreateEval",
                &json!({"suiteId": suite_id, "predictions": predictions}),
            )
            .await;
        text(&answers[0]["job"]["id"])
    }
}

/// The states that a stream has told; a heartbeat tells none.
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
        made(|| node_with("buf", &["package.json", "package-lock.json", ".npmrc"])).await
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
        .answers("JobService/WatchJob", &json!({"jobId": scored}))
        .await;
    let got = curl
        .answers("JobService/GetJob", &json!({"jobId": scored}))
        .await;

    let held = curl.submit(crate::feedback::SUITE_ID).await;
    let mut watch = curl.command("JobService/WatchJob", &json!({"jobId": held}));
    let watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    world.until_status(&held, "running").await;
    curl.answers("JobService/CancelJob", &json!({"jobId": held}))
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
            .find(|detail| text(&detail["type"]).ends_with(name))
            .unwrap_or_else(|| panic!("{refused}"));
        BASE64_STANDARD_NO_PAD
            .decode(text(&found["value"]))
            .unwrap()
    };
    let info = ErrorInfo::decode(detail("ErrorInfo").as_slice()).unwrap();
    let violations = BadRequest::decode(detail("BadRequest").as_slice())
        .unwrap()
        .field_violations;
    let fields: Vec<_> = violations
        .iter()
        .map(|told| json!([told.field, told.reason]))
        .collect();
    let story = json!({
        "watched": states(&watched),
        "value": got[0]["job"]["result"]["value"],
        "cancelled": states(&cancelled),
        "mistake": {"status": refused["code"], "reason": info.reason, "fields": fields},
    });
    check(&world, &story, "invalid_argument").await;
}
