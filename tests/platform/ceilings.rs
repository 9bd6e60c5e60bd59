//! Noise ceilings: the value that a second set of human answers reaches, and the share of it that a job
//! reaches, under each disclosure policy.

use std::path::PathBuf;

use assay_proto::v1;
use assay_proto::v1::job_service_client::JobServiceClient;
use serde_json::{Value, json};

use crate::boards::close_in;
use crate::clusters::scored_offline;
use crate::disclosure::{publish_folder, write_files};
use crate::grpc::connect;
use crate::harness::{Expect, World, string, submit_until_succeeded, with_token, world};
use crate::receipts::{Evidences, independent_verifier, logged_receipt, retire};

/// Items of the suites, and those with retest answers: the first ones.
const N: usize = 240;
const N_RETESTED: usize = 180;
const PERSONS: usize = 40;

fn answer(at: usize) -> &'static str {
    if at.is_multiple_of(4) { "no" } else { "yes" }
}

/// A second answer agrees with the first one in eleven of twelve items.
fn agrees(at: usize) -> bool {
    !at.is_multiple_of(12)
}

const CEILING: f64 = 11.0 / 12.0;

/// A job is right for three items of five.
fn is_right(at: usize) -> bool {
    at % 5 < 3
}

const PERSONS_ARE_CLUSTERS: &str = "metric = \"exact_match\"\ncluster = \"person\"";

/// Writes a suite of persons with a retest and these lines of `suite.toml`.
fn write(world: &World, name: &str, more: &str) -> PathBuf {
    let folder = world.stack.ground.servers.folder();
    let folder = folder.join(format!("{}-{name}", world.stack.database.name));
    let suite_toml = format!("suite_id = \"suite:{name}\"\nversion = \"1\"\n{more}\n");
    let lines = |n: usize, line: &dyn Fn(usize) -> String| -> String {
        (0..n).map(|at| line(at) + "\n").collect()
    };
    let items = lines(N, &|at| {
        let person = at % PERSONS;
        format!("{{\"item_id\":\"i{at}\",\"input\":{{}},\"groups\":{{\"person\":\"p{person}\"}}}}")
    });
    let answers = lines(N, &|at| {
        format!("{{\"item_id\":\"i{at}\",\"answer\":\"{}\"}}", answer(at))
    });
    let retest = lines(N_RETESTED, &|at| {
        let second = if agrees(at) { answer(at) } else { "?" };
        format!("{{\"item_id\":\"i{at}\",\"answers\":[\"{second}\"]}}")
    });
    write_files(&folder, &suite_toml, &items, &answers);
    std::fs::write(folder.join("retest.ndjson"), retest).unwrap();
    folder
}

fn predictions(is_right: impl Fn(usize) -> bool) -> Value {
    let label = |at: usize| if is_right(at) { answer(at) } else { "?" };
    (0..N)
        .map(|at| json!({"item_id": format!("i{at}"), "prediction": label(at)}))
        .collect()
}

/// Returns the predictions of the job as a file.
fn prediction_lines() -> String {
    let predictions = predictions(is_right);
    let lines = predictions.as_array().unwrap().iter();
    lines.map(|line| format!("{line}\n")).collect()
}

async fn scored(world: &World, suite_id: &str, is_right: impl Fn(usize) -> bool) -> Value {
    let eval = json!({"suite_id": suite_id, "predictions": predictions(is_right)});
    submit_until_succeeded(&world.key(), &eval).await
}

async fn suite(world: &World, suite_id: &str) -> Value {
    let suite = world.key().get(&format!("/v1/suites/{suite_id}")).await;
    suite.expect_status(200).body
}

fn assert_near(found: &Value, expected: f64) {
    let found = found.as_f64().unwrap();
    assert!((found - expected).abs() < 1e-12, "{found} {expected}");
}

#[tokio::test(flavor = "multi_thread")]
async fn results_have_the_share_of_the_ceiling() {
    let world = world().await;
    let folder = write(&world, "retested", PERSONS_ARE_CLUSTERS);
    publish_folder(&world, &folder).await.unwrap();
    let job = scored(&world, "suite:retested", is_right).await;
    let result = &job["result"];
    assert_near(&result["ceiling"]["value"], CEILING);
    assert_eq!(
        (&result["ceiling"]["kind"], &result["ceiling"]["n"]),
        (&json!("retest"), &json!(N_RETESTED))
    );
    let share = 0.6 / CEILING;
    assert_near(&result["share_of_ceiling"]["value"], share);
    let [low, high] = [0, 1].map(|end| result["share_of_ceiling"]["ci95"][end].as_f64().unwrap());
    assert!(low < share && share < high);
    assert_eq!(
        suite(&world, "suite:retested").await["ceiling"],
        result["ceiling"]
    );
    // gRPC and scoring on the researcher's machine have the same figures.
    let request = v1::GetJobRequest {
        job_id: string(&job["id"]),
        ..v1::GetJobRequest::default()
    };
    let found = JobServiceClient::new(connect(&world).await)
        .get_job(with_token(request, &world.org.key))
        .await;
    let found = found.unwrap().into_inner().job.unwrap().result.unwrap();
    assert_eq!(
        found.share_of_ceiling.unwrap().stderr,
        result["share_of_ceiling"]["stderr"].as_f64()
    );
    let report = scored_offline(&world, &folder, &predictions(is_right));
    assert_eq!(report["share_of_ceiling"], result["share_of_ceiling"]);
    assert_eq!(report["ceiling"], result["ceiling"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rounded_share_follows_from_rounded_figures() {
    let world = world().await;
    let more = format!("{PERSONS_ARE_CLUSTERS}\nrelease = \"rounded(1)\"");
    let folder = write(&world, "rounded-retest", &more);
    publish_folder(&world, &folder).await.unwrap();
    let result = scored(&world, "suite:rounded-retest", |at| at < 110).await["result"].clone();
    // The exact values are 0.458 and 0.917, and half of it.
    assert_eq!(
        (
            &result["value"],
            &result["ceiling"]["value"],
            &result["share_of_ceiling"]["value"]
        ),
        (&json!(0.5), &json!(0.9), &json!(0.6))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ladder_shows_the_ceiling_on_its_grid_alone() {
    let world = world().await;
    let more = format!("{PERSONS_ARE_CLUSTERS}\nrelease = \"ladder(0.1)\"\nmax_submissions = 10");
    let folder = write(&world, "ladder-retest", &more);
    // The ceiling of 92 % is one step above the trivial 75 %.
    publish_folder(&world, &folder).await.unwrap();
    let result = scored(&world, "suite:ladder-retest", is_right).await["result"].clone();
    assert_eq!(
        result["ceiling"],
        json!({"kind": "retest", "value": 0.85, "stderr": null, "ci95": null, "n": N_RETESTED})
    );
    assert_eq!(result.get("share_of_ceiling"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn sealed_share_appears_after_the_close_and_verifies() {
    let world = world().await;
    let closes_at = assay_core::Timestamp::now().plus_micros(3_600_000_000);
    let more = format!(
        "{PERSONS_ARE_CLUSTERS}\nrelease = \"sealed(0.5)\"\nseal_seed = \"a seed\"\ncloses_at = {closes_at}"
    );
    publish_folder(&world, &write(&world, "sealed-retest", &more))
        .await
        .unwrap();
    let suite_id = "suite:sealed-retest";
    let job = scored(&world, suite_id, is_right).await;
    let path = format!("/v1/jobs/{}", string(&job["id"]));
    let marked = world.key().post(&format!("{path}/final"), &json!({})).await;
    marked.expect_status(200);
    let open = &job["result"]["ceiling"];
    close_in(&world, 0.0).await;
    let job = world.key().get(&path).await.expect_status(200).body;
    let sealed = &job["result"]["sealed"];
    let count = |ceiling: &Value| ceiling["n"].as_u64().unwrap();
    assert_eq!(count(open) + count(&sealed["ceiling"]), N_RETESTED as u64);
    let expected = sealed["value"].as_f64().unwrap() / sealed["ceiling"]["value"].as_f64().unwrap();
    assert_near(&sealed["share_of_ceiling"]["value"], expected);

    // Its opening has clusters, a seed and a retest, from which the open and the sealed items get their scores again.
    retire(&world, suite_id, &["--yes"]).await.unwrap();
    let evidence = Evidences::new(&world);
    evidence.fetch_keys(&world).await;
    evidence.write("predictions.ndjson", prediction_lines());
    for query in ["", "?figures=sealed"] {
        let receipt = logged_receipt(&world.key(), &string(&job["id"]), query).await;
        assert_eq!(receipt["statement"]["predicate"]["cluster"], "person");
        evidence.write("receipt.json", receipt.to_string());
        evidence.fetch_opening(&world, suite_id, "1").await;
        let evidences = ["predictions", "opening"];
        let steps = evidence.verify_with_cli(&world, &evidences).await;
        assert!(steps.ends_with("commitment: ok, score: ok"), "{steps}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn opening_has_the_retest_and_verifies() {
    let Some(python) = independent_verifier().await else {
        return;
    };
    let world = world().await;
    let folder = write(&world, "opened-retest", "metric = \"accuracy\"");
    publish_folder(&world, &folder).await.unwrap();
    let suite_id = "suite:opened-retest";
    let job = scored(&world, suite_id, is_right).await;
    let path = format!("/v1/suites/{suite_id}/opening/retest.ndjson");
    world.anonymous().get(&path).await.expect_status(404);
    retire(&world, suite_id, &["--yes"]).await.unwrap();
    let evidence = Evidences::new(&world);
    evidence.fetch_keys(&world).await;
    evidence.fetch_opening(&world, suite_id, "1").await;
    assert_eq!(
        std::fs::read_to_string(evidence.path("opening/retest.ndjson")).unwrap(),
        std::fs::read_to_string(folder.join("retest.ndjson")).unwrap()
    );
    evidence.write("predictions.ndjson", prediction_lines());
    let receipt = logged_receipt(&world.key(), &string(&job["id"]), "").await;
    evidence.write("receipt.json", receipt.to_string());
    let evidences = ["predictions", "opening"];
    let steps = evidence.verify(&world, &python, &evidences).await;
    assert!(steps.ends_with("commitment: ok, score: ok"), "{steps}");
    // Both verifiers detect a changed retest answer.
    let changed = std::fs::read_to_string(folder.join("retest.ndjson")).unwrap();
    evidence.write("opening/retest.ndjson", changed.replacen("yes", "YES", 1));
    let steps = evidence.verify(&world, &python, &evidences).await;
    assert!(steps.contains("commitment: FAILED"), "{steps}");
}
