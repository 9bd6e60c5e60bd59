//! Score receipts: what they state, who can read them, how strangers verify them, and the log that
//! survives crashes and restores.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use assay_core::{BestEffort as _, Timestamp};
use assay_proto::v1;
use assay_proto::v1::receipt_service_client::ReceiptServiceClient;
use assay_receipts::verify::{Evidence, verify};
use assay_tests::client::Client;
use assay_tests::stack::{LOG_ORIGIN, Process, StackSize, log_key, receipt_key};
use futures_util::TryStreamExt as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sqlx::{Connection as _, Row as _};

use crate::clients::{prepare, python_with, sources};
use crate::disclosure::{publish, submit_and_wait};
use crate::harness::{
    Expect, World, error_code, long_test, string, submit_until_succeeded, wait_until, with_setting,
    world, world_with,
};

/// A retired suite, for tests in other files.
pub const RETIRED: &str = "suite:retired";

/// One of its files.
pub const OPENED_FILE: &str = "suite:retired/opening/answers.ndjson";

/// Publishes that suite, and retires it.
pub async fn publish_retired(world: &World) {
    publish(world, "retired", 1, "").await.unwrap();
    retire(world, RETIRED, &["--yes"]).await.unwrap();
}

/// A plan whose API processes do not sign, because a process of the log does.
fn without_keys_in_the_api() -> StackSize {
    with_setting("ASSAY_RECEIPT_LOG", "false")
}

/// Waits until a job's receipt is in the log, and returns it.
pub async fn logged_receipt(client: &Client, job_id: &str, figures: &str) -> Value {
    let path = format!("/v1/jobs/{job_id}/receipt{figures}");
    let mut receipt = Value::Null;
    wait_until("a place in the log", async || {
        let response = client.get(&path).await.unwrap();
        receipt = response.body;
        response.status == 200 && !receipt["log"].is_null()
    })
    .await;
    receipt
}

/// A folder with what a stranger needs to verify a receipt.
pub struct Evidences {
    folder: PathBuf,
}

impl Evidences {
    pub fn new(world: &World) -> Self {
        let name = assay_tests::databases::fresh_name("evidence");
        let folder = world.stack.ground.servers.folder().join(name);
        std::fs::create_dir(&folder).unwrap();
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Fetches the keys without a credential.
    pub async fn fetch_keys(&self, world: &World) {
        let keys = world.anonymous().get("/.well-known/jwks.json").await;
        self.write("jwks.json", keys.unwrap().body.to_string());
    }

    /// Fetches the opening of a retired suite without a credential.
    pub async fn fetch_opening(&self, world: &World, suite_id: &str, version: &str) {
        let anonymous = world.anonymous();
        let path = format!("/v1/suites/{suite_id}/commitment?version={version}");
        let mut commitment = Value::Null;
        wait_until("the suite in the log", async || {
            commitment = anonymous.get(&path).await.unwrap().body;
            !commitment["log"].is_null()
        })
        .await;
        let opening = commitment["opening"].clone();
        self.write("opening/commitment.json", commitment.to_string());
        for file in ["items", "answers", "retest"] {
            let Some(url) = opening[format!("{file}_url")].as_str() else {
                continue;
            };
            let bytes = bytes(world, url).await;
            self.write(&format!("opening/{file}.ndjson"), bytes);
        }
    }

    /// Copies the files of the log from its public address.
    async fn fetch_log(&self, world: &World, size: u64) {
        let mut paths: Vec<String> = assay_receipts::tree::bundle_paths(size).collect();
        let tiles: Vec<String> = paths
            .iter()
            .map(|path| path.replace("tile/entries/", "tile/0/"))
            .collect();
        paths.extend(tiles);
        for path in paths {
            self.write(&path, bytes(world, &format!("/log/{path}")).await);
        }
    }

    /// Returns the arguments of both verifiers.
    fn arguments(&self, more: &[&str]) -> Vec<String> {
        let mut arguments = vec![
            self.path("receipt.json").display().to_string(),
            "--keys".into(),
            self.path("jwks.json").display().to_string(),
            "--log-key".into(),
            log_key().1,
        ];
        for option in more {
            arguments.push(format!("--{option}"));
            let place = match *option {
                "predictions" => self.path("predictions.ndjson"),
                "opening" => self.path("opening"),
                "checkpoint" => self.path("earlier"),
                "tiles" => self.folder.clone(),
                _ => continue,
            };
            arguments.push(place.display().to_string());
        }
        arguments
    }

    /// Verifies with the command-line program, and returns what it prints.
    pub async fn verify_with_cli(&self, world: &World, more: &[&str]) -> String {
        outcomes(&run_cli(world, &self.arguments(more)).await.stdout)
    }

    /// Verifies with both verifiers, and returns what both print.
    pub async fn verify(&self, world: &World, python: &Path, more: &[&str]) -> String {
        let arguments = self.arguments(more);
        let cli = run_cli(world, &arguments).await;
        let independent = tokio::process::Command::new(python)
            .arg(sources().join("receipts/verify.py"))
            .args(&arguments)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .output();
        let independent = independent.await.unwrap();
        let own = outcomes(&cli.stdout);
        assert_eq!(
            own,
            outcomes(&independent.stdout),
            "{}{}{}",
            String::from_utf8_lossy(&cli.stdout),
            String::from_utf8_lossy(&independent.stdout),
            String::from_utf8_lossy(&independent.stderr),
        );
        assert_eq!(cli.status.code(), independent.status.code());
        assert_eq!(cli.status.success(), !own.contains("FAILED"));
        own
    }
}

async fn run_cli(world: &World, arguments: &[String]) -> std::process::Output {
    let cli = tokio::process::Command::new(&world.stack.ground.binaries.cli)
        .arg("verify")
        .args(arguments)
        .args(["--format", "table"])
        .output();
    cli.await.unwrap()
}

/// Returns the steps with their results, without reasons.
fn outcomes(stdout: &[u8]) -> String {
    let text = String::from_utf8_lossy(stdout);
    let steps = text.lines().map(|line| {
        let mut parts = line.split(':');
        let (step, result) = (parts.next().unwrap(), parts.next().unwrap_or_default());
        format!("{step}:{result}")
    });
    steps.collect::<Vec<_>>().join(", ")
}

async fn bytes(world: &World, path: &str) -> Vec<u8> {
    let response = reqwest_get(&format!("{}{path}", world.stack.url())).await;
    assert_eq!(response.0, 200, "{path}");
    response.1
}

async fn reqwest_get(url: &str) -> (u16, Vec<u8>) {
    let response = reqwest::get(url).await.unwrap();
    let status = response.status().as_u16();
    (status, response.bytes().await.unwrap().to_vec())
}

pub async fn independent_verifier() -> Option<PathBuf> {
    let requirements = sources().join("receipts").join("requirements.txt");
    prepare(move || python_with("receipts", &requirements)).await
}

/// Predictions of which the first `right` of 37 are right, and their normal form as NDJSON.
fn predictions(right: usize) -> (Value, String) {
    let one = |at: usize| {
        let label = if at < right {
            format!("a{at}")
        } else {
            "ä\u{1f600}\"b".into()
        };
        json!({"item_id": format!("i{at}"), "prediction": [label, "x"]})
    };
    let all: Vec<Value> = (0..37).map(one).collect();
    let lines: String = all.iter().map(|one| format!("{one}\n")).collect();
    (json!(all), lines)
}

async fn submit(client: &Client, suite_id: &str, predictions: &Value) -> Value {
    let eval = json!({"suite_id": suite_id, "predictions": predictions});
    submit_until_succeeded(client, &eval).await
}

pub async fn retire(world: &World, suite_id: &str, more: &[&str]) -> Result<Value, String> {
    let mut arguments = vec![
        "suite",
        "retire",
        "--suite",
        suite_id,
        "--version",
        "1",
        "--open-answers",
    ];
    arguments.extend(more);
    let retired = world.stack.operate(&arguments).await;
    retired.map_err(|refused| refused.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn receipt_states_the_figures_of_its_job() {
    let world = world().await;
    publish(&world, "stated", 1, "").await.unwrap();
    let key = world.key();
    let (given, lines) = predictions(20);
    let first = submit(&key, "suite:stated", &given).await;
    let job = submit(&key, "suite:stated", &given).await;
    let job_id = string(&job["id"]);
    let receipt = logged_receipt(&key, &job_id, "").await;
    let statement = &receipt["statement"];
    let claim = &statement["predicate"];
    let result = &job["result"];
    for field in [
        "value",
        "ci95",
        "ci_method",
        "n",
        "n_submitted",
        "n_missing",
        "metric",
        "release",
        "hfm_sha",
        "suite_id",
        "suite_version",
    ] {
        assert_eq!(claim[field], result[field], "{field}");
    }
    assert_eq!(
        (
            &claim["figures"],
            &claim["value_scope"],
            &claim["submission_number"]
        ),
        (&json!("all"), &json!("this_submission"), &json!(2))
    );
    assert_eq!(
        (&claim["finished_at"], &claim["issued_at"]),
        (&job["finished_at"], &job["finished_at"])
    );
    assert_eq!(
        (&claim["job_id"], &claim["receipt_id"]),
        (&job["id"], &receipt["id"])
    );
    // The predictions were submitted with other white space and escapes than their normal form.
    let digest = hex::encode(Sha256::digest(&lines));
    assert_eq!(statement["subject"][0]["digest"]["sha256"], json!(digest));

    let suite = key.get("/v1/suites/suite:stated").await.unwrap().body;
    assert_eq!(claim["suite_commitment"], suite["suite_commitment"]);

    // An owner can prove that the receipt is the organization's; a key and a viewer cannot.
    let opening_path = format!("/v1/jobs/{job_id}/receipt/opening");
    let opening = world.owner().get(&opening_path).await.unwrap().body;
    let salt = hex::decode(string(&opening["org_salt"])).unwrap();
    let named = Sha256::new()
        .chain_update(&salt)
        .chain_update(&world.org.id);
    assert_eq!(claim["org_hash"], json!(hex::encode(named.finalize())));
    assert_eq!(opening["org_id"], json!(world.org.id));
    for client in [key.clone(), world.member("viewer").await] {
        client.get(&opening_path).await.expect_status(403);
    }
    let log = world
        .owner()
        .get("/v1/audit?type=receipt.opened")
        .await
        .unwrap();
    assert_eq!(log.body["entries"][0]["target"]["id"], job["id"]);

    // Receipts of one organization for one version can be linked, those of another version cannot.
    let other = logged_receipt(&key, &string(&first["id"]), "").await;
    assert_eq!(
        other["statement"]["predicate"]["org_hash"],
        claim["org_hash"]
    );
    publish(&world, "stated", 2, "").await.unwrap();
    let later = submit(&key, "suite:stated", &given).await;
    let later = logged_receipt(&key, &string(&later["id"]), "").await;
    assert_ne!(
        later["statement"]["predicate"]["org_hash"],
        claim["org_hash"]
    );

    let by_id = key
        .get(&format!("/v1/receipts/{}", string(&receipt["id"])))
        .await;
    assert_eq!(by_id.unwrap().body["jws"], receipt["jws"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_without_receipt_say_why() {
    let world = world().await;
    let key = world.key();
    let refused = async |job_id: &str, query: &str| {
        let path = format!("/v1/jobs/{job_id}/receipt{query}");
        let response = key.get(&path).await.unwrap();
        (
            response.status,
            error_code(&response),
            response.body["error"]["details"].clone(),
        )
    };
    let missing = (404, "not_found".to_owned(), Value::Null);
    assert_eq!(refused("job_0", "").await, missing);
    let held = world.hold_answers().await;
    let queued = world.submit(&crate::harness::one_prediction()).await;
    let job_id = string(&queued.body["id"]);
    let (status, code, details) = refused(&job_id, "").await;
    assert_eq!((status, code.as_str()), (409, "invalid_state"));
    assert_eq!(details["reason"], "not_succeeded");
    held.close().await.unwrap();
    world.wait_until_finished(&job_id).await;
    assert_eq!(refused(&job_id, "?figures=sealed").await, missing);
    let (status, _, details) = refused(&job_id, "?figures=best").await;
    assert_eq!(
        (status, &details["fields"][0]["field"]),
        (422, &json!("figures"))
    );
    // A receipt of another organization does not exist.
    let receipt = logged_receipt(&key, &job_id, "").await;
    let stranger = crate::harness::org(&world.stack, "free").await;
    let stranger = world.client(&stranger.key);
    let path = format!("/v1/receipts/{}", string(&receipt["id"]));
    stranger.get(&path).await.expect_status(404);
    world.anonymous().get(&path).await.expect_status(401);
    let path = format!("/v1/jobs/{job_id}/receipt");
    stranger.get(&path).await.expect_status(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_verify_receipts_of_a_retired_suite() {
    let Some(python) = independent_verifier().await else {
        return;
    };
    let world = world().await;
    publish(&world, "retired", 1, "").await.unwrap();
    let key = world.key();
    let (given, lines) = predictions(20);
    let earlier = submit(&key, "suite:retired", &given).await;
    logged_receipt(&key, &string(&earlier["id"]), "").await;
    let evidence = Evidences::new(&world);
    evidence.write("earlier", bytes(&world, "/log/checkpoint").await);
    let job = submit(&key, "suite:retired", &given).await;
    let receipt = logged_receipt(&key, &string(&job["id"]), "").await;
    evidence.write("receipt.json", receipt.to_string());
    evidence.write("predictions.ndjson", &lines);
    evidence.fetch_keys(&world).await;
    assert_eq!(
        evidence.verify(&world, &python, &[]).await,
        "signature: ok, statement: ok, inclusion: ok, checkpoint: ok, key: ok, consistency: skipped, \
         predictions: skipped, commitment: skipped, score: skipped"
    );

    // Before the suite retires, nobody gets its answers.
    let before = world
        .anonymous()
        .get("/v1/suites/suite:retired/commitment")
        .await;
    assert_eq!(before.unwrap().body["opening"], Value::Null);
    let path = "/v1/suites/suite:retired/opening/answers.ndjson?version=1";
    world.anonymous().get(path).await.expect_status(404);
    let refused = retire(&world, "suite:retired", &[]).await.unwrap_err();
    assert!(
        refused.contains("37 answers") && refused.contains("--yes"),
        "{refused}"
    );
    retire(&world, "suite:retired", &["--yes"]).await.unwrap();
    let again = retire(&world, "suite:retired", &["--yes"])
        .await
        .unwrap_err();
    assert!(again.contains("retired before"), "{again}");
    let body = json!({"suite_id": "suite:retired", "predictions": given});
    let late = key.post("/v1/evals", &body).await.expect_status(409);
    assert_eq!(late.body["error"]["details"]["reason"], "suite_retired");

    evidence.fetch_opening(&world, "suite:retired", "1").await;
    // Both protocols return the same file.
    let mut rpc = ReceiptServiceClient::new(world.channel().await);
    let request = v1::StreamSuiteOpeningRequest {
        suite_id: "suite:retired".into(),
        version: Some("1".into()),
        file: "answers.ndjson".into(),
    };
    let stream = rpc
        .stream_suite_opening(request)
        .await
        .unwrap()
        .into_inner();
    let messages: Vec<_> = stream.try_collect().await.unwrap();
    let lines: Vec<u8> = messages.into_iter().flat_map(|one| one.lines).collect();
    assert_eq!(
        lines,
        std::fs::read(evidence.path("opening/answers.ndjson")).unwrap()
    );
    let size = checkpoint_size(&receipt);
    evidence.fetch_log(&world, size).await;
    let all = ["predictions", "opening", "checkpoint", "tiles"];
    assert_eq!(
        evidence.verify(&world, &python, &all).await,
        "signature: ok, statement: ok, inclusion: ok, checkpoint: ok, key: ok, consistency: ok, \
         predictions: ok, commitment: ok, score: ok"
    );
}

/// Returns the entry count of the checkpoint in a receipt.
fn checkpoint_size(receipt: &Value) -> u64 {
    let proof = string(&receipt["log"]["proof"]);
    let checkpoint = proof.split_once("\n\n").unwrap().1;
    checkpoint.lines().nth(1).unwrap().parse().unwrap()
}

/// Changes each byte of all evidence, and each value of the receipt. Both verifiers detect every
/// change, at the same step.
async fn each_change_is_detected(evidence: &Evidences, python: &Path, all: &[&str]) {
    let files = [
        "receipt.json",
        "predictions.ndjson",
        "earlier",
        "opening/commitment.json",
        "opening/items.ndjson",
        "opening/answers.ndjson",
    ]
    .map(|name| evidence.path(name));
    let log = ["tile/0", "tile/entries"].map(|folder| evidence.path(folder));
    let tiles = log
        .iter()
        .flat_map(|folder| crate::harness::list_files(folder));
    let files: Vec<PathBuf> = files.into_iter().chain(tiles).collect();
    let task = json!({
        "files": files, "receipt": evidence.path("receipt.json"),
        "arguments": evidence.arguments(all),
    });
    let copy = evidence.folder.with_extension("copy");
    copy_folder(&evidence.folder, &copy);
    let place =
        |path: &str| path.replace(&*evidence.folder.to_string_lossy(), &copy.to_string_lossy());
    let task_of_copy: Value = serde_json::from_str(&place(&task.to_string())).unwrap();
    let independent = tokio::process::Command::new(python)
        .arg(sources().join("receipts/tamper.py"))
        .arg(task_of_copy.to_string())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output();
    let own = tokio::task::spawn_blocking({
        let folder = evidence.folder.clone();
        move || tampered_steps(&files, &folder)
    });
    let (independent, own) = tokio::join!(independent, own);
    let (independent, own) = (independent.unwrap(), own.unwrap());
    assert!(
        independent.status.success(),
        "{}",
        String::from_utf8_lossy(&independent.stderr)
    );
    let independent: BTreeMap<String, String> =
        serde_json::from_slice(&independent.stdout).unwrap();
    assert!(own.len() > 5_000, "{}", own.len());
    let commitment = std::fs::read_to_string(evidence.path("opening/commitment.json")).unwrap();
    let is_missed =
        |(change, step): &(&String, &String)| *step == "ok" && !is_hint(change, &commitment);
    let missed: Vec<_> = own.iter().filter(is_missed).collect();
    assert!(missed.is_empty(), "{missed:?}");
    let differs = |(change, step): &(&String, &String)| independent.get(*change) != Some(step);
    let different: Vec<_> = own
        .iter()
        .filter(differs)
        .map(|(change, step)| (change, step, independent.get(change)))
        .collect();
    assert!(different.is_empty(), "{different:?}");
    assert_eq!(own.len(), independent.len());
}

/// Returns `true` for a changed byte of `commitment.json` that is no evidence: the time of the
/// retirement, and where the files are.
fn is_hint(change: &str, commitment: &str) -> bool {
    let Some(at) = change.strip_prefix("commitment.json:") else {
        return false;
    };
    let at: usize = at.parse().unwrap();
    ["retired_at", "items_url", "answers_url"]
        .iter()
        .any(|name| {
            let value = commitment.find(&format!("\"{name}\":\"")).unwrap() + name.len() + 4;
            let end = value + commitment[value..].find('"').unwrap();
            (value..end).contains(&at)
        })
}

fn copy_folder(from: &Path, to: &Path) {
    for path in crate::harness::list_files(from) {
        let copy = to.join(path.strip_prefix(from).unwrap());
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::copy(path, copy).unwrap();
    }
}

/// Returns the step at which verifying an evidence folder fails; `ok` if none does.
fn failing_step(folder: &Path) -> String {
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let (keys, earlier) = (read("jwks.json"), read("earlier"));
    let earlier = String::from_utf8_lossy(&earlier);
    let open = || {
        let name = "predictions.ndjson";
        let file = std::fs::File::open(folder.join(name)).unwrap();
        assay_eval::content::open(file, name).map_err(|error| error.to_string())
    };
    let log_key = log_key().1;
    let evidence = Evidence {
        keys: &keys,
        log_key: &log_key,
        allows_unlogged: false,
        earlier: Some((&earlier, folder)),
        predictions: Some(&open),
        opening: Some(&folder.join("opening")),
    };
    verify(&read("receipt.json"), &evidence, |_, _| {})
        .map_or_else(|(step, _)| step.to_string(), |_| "ok".into())
}

/// Makes the same changes as `tamper.py`.
fn tampered_steps(files: &[PathBuf], folder: &Path) -> BTreeMap<String, String> {
    let mut steps = BTreeMap::new();
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let original = std::fs::read(path).unwrap();
        for at in 0..original.len() {
            let mut changed = original.clone();
            changed[at] = other_byte(changed[at]);
            std::fs::write(path, changed).unwrap();
            steps.insert(format!("{name}:{at}"), failing_step(folder));
        }
        std::fs::write(path, original).unwrap();
    }
    let path = folder.join("receipt.json");
    let original: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let mut places = Vec::new();
    leaves(&original, String::new(), &mut places);
    for place in places {
        let mut changed = original.clone();
        let value = changed.pointer_mut(&place).unwrap();
        *value = match value {
            Value::String(text) => json!(format!("{text}x")),
            Value::Number(number) => match number.as_i64() {
                Some(number) => json!(number + 1),
                None => json!(number.as_f64().unwrap() + 1.0),
            },
            _ => json!(0),
        };
        std::fs::write(&path, changed.to_string()).unwrap();
        let name = place[1..].replace('/', ".");
        steps.insert(format!("receipt:{name}"), failing_step(folder));
    }
    std::fs::write(&path, original.to_string()).unwrap();
    steps
}

fn leaves(value: &Value, place: String, places: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields
            .iter()
            .for_each(|(name, inner)| leaves(inner, format!("{place}/{name}"), places)),
        Value::Array(values) => values
            .iter()
            .enumerate()
            .for_each(|(at, inner)| leaves(inner, format!("{place}/{at}"), places)),
        _ => places.push(place),
    }
}

const fn other_byte(byte: u8) -> u8 {
    match byte {
        b'9' => b'0',
        b'z' => b'a',
        b'Z' => b'A',
        b'0'..=b'8' | b'a'..=b'y' | b'A'..=b'Y' => byte + 1,
        _ => byte ^ 1,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sealed_figures_have_a_receipt_after_the_close() {
    long_test!("waits for several checkpoints of the log, which it writes every 10 s");
    let Some(python) = independent_verifier().await else {
        return;
    };
    let world = world().await;
    world.widen_plans().await;
    let closes_at = Timestamp::now().plus_micros(30_000_000);
    let sealed = format!(
        "release = \"sealed(0.5)\"\nseal_seed = \"nobody guesses this\"\ncloses_at = {closes_at}"
    );
    publish(&world, "closing", 1, &sealed).await.unwrap();
    let ladder =
        format!("release = \"ladder(0.1)\"\nboard = \"at_close\"\ncloses_at = {closes_at}");
    publish(&world, "climbing", 1, &ladder).await.unwrap();
    let key = world.key();
    let (given, lines) = predictions(20);
    let job = submit(&key, "suite:closing", &given).await;
    let job_id = string(&job["id"]);
    let path = format!("/v1/jobs/{job_id}/receipt?figures=sealed");
    let early = key.get(&path).await.expect_status(409);
    assert_eq!(
        early.body["error"]["details"],
        json!({"reason": "sealed_until", "closes_at": closes_at})
    );
    let marked = key
        .post(&format!("/v1/jobs/{job_id}/final"), &json!({}))
        .await;
    assert_eq!(marked.unwrap().status, 200);
    let climbing = submit(&key, "suite:climbing", &given).await;
    let worse = submit(&key, "suite:climbing", &predictions(9).0).await;
    let worse_id = string(&worse["id"]);
    key.post(
        &format!("/v1/jobs/{worse_id}/board"),
        &json!({"name": "worse"}),
    )
    .await
    .expect_status(201);
    let best_so_far = logged_receipt(&key, &worse_id, "").await;
    let claim = &best_so_far["statement"]["predicate"];
    assert_eq!(
        (&claim["value_scope"], &claim["value"]),
        (&json!("best_so_far"), &climbing["result"]["value"])
    );

    let open = logged_receipt(&key, &job_id, "").await;
    assert_eq!(open["statement"]["predicate"]["figures"], "open");
    let evidence = Evidences::new(&world);
    evidence.write("earlier", bytes(&world, "/log/checkpoint").await);
    let receipt = logged_receipt(&key, &job_id, "?figures=sealed").await;
    let claim = &receipt["statement"]["predicate"];
    let finished = key.get(&format!("/v1/jobs/{job_id}")).await.unwrap().body;
    let disclosed = &finished["result"]["sealed"];
    for field in ["value", "ci95", "n"] {
        assert_eq!(claim[field], disclosed[field], "{field}");
    }
    assert!(string(&claim["issued_at"]) > closes_at.to_string());
    let on_board = logged_receipt(&key, &worse_id, "?figures=board").await;
    let claim = &on_board["statement"]["predicate"];
    assert_eq!(claim["value_scope"], "this_submission");
    let board = key
        .get("/v1/suites/suite:climbing/board")
        .await
        .unwrap()
        .body;
    assert_eq!(
        (
            &board["entries"][0]["value"],
            &board["entries"][0]["receipt_id"]
        ),
        (&claim["value"], &on_board["id"])
    );
    assert!(claim["value"].as_f64() < climbing["result"]["value"].as_f64());
    // Others see the receipt because the board shows it.
    let path = format!("/v1/receipts/{}", string(&on_board["id"]));
    let stranger = crate::harness::org(&world.stack, "free").await;
    let stranger = world.client(&stranger.key);
    stranger.get(&path).await.expect_status(200);
    world.anonymous().get(&path).await.expect_status(401);
    world
        .stack
        .operate(&[
            "board",
            "set",
            "--suite",
            "suite:climbing",
            "--version",
            "1",
            "--visibility",
            "public",
        ])
        .await
        .unwrap();
    world.anonymous().get(&path).await.expect_status(200);

    for suite_id in ["suite:closing", "suite:climbing"] {
        retire(&world, suite_id, &["--yes"]).await.unwrap();
    }
    evidence.write("predictions.ndjson", &lines);
    evidence.fetch_keys(&world).await;
    let verified = async |receipt: &Value, suite_id: &str| {
        evidence.write("receipt.json", receipt.to_string());
        evidence.fetch_opening(&world, suite_id, "1").await;
        let all = ["predictions", "opening"];
        evidence.verify(&world, &python, &all).await
    };
    for receipt in [&open, &receipt] {
        let steps = verified(receipt, "suite:closing").await;
        assert!(steps.ends_with("commitment: ok, score: ok"), "{steps}");
    }
    // Its opening has a salt and a seed.
    evidence.fetch_log(&world, checkpoint_size(&receipt)).await;
    let all = ["predictions", "opening", "checkpoint", "tiles"];
    let steps = evidence.verify(&world, &python, &all).await;
    assert!(
        !steps.contains("FAILED") && !steps.contains("skipped"),
        "{steps}"
    );
    each_change_is_detected(&evidence, &python, &all).await;

    evidence.write("predictions.ndjson", predictions(9).1);
    // Its value is that of the better submission before, which nobody can compute from this one.
    let steps = verified(&best_so_far, "suite:climbing").await;
    assert!(steps.ends_with("commitment: ok, score: skipped"), "{steps}");
}

#[tokio::test(flavor = "multi_thread")]
async fn receipts_outlive_rotation_and_revocation_of_their_key() {
    long_test!("waits for several checkpoints of the log, which it writes every 10 s");
    let Some(python) = independent_verifier().await else {
        return;
    };
    let mut world = world_with(without_keys_in_the_api()).await;
    let key = world.key();
    let log = ready(world.stack.launch_log().unwrap()).await;
    let predictions = crate::harness::one_prediction();
    let first = string(&world.submit_and_wait(&predictions).await["id"]);
    let first = logged_receipt(&key, &first, "").await;
    drop(log);

    let both = format!("{},{}", receipt_key(2), receipt_key(1));
    world.stack.set("ASSAY_RECEIPT_KEYS", &both);
    let log = ready(world.stack.launch_log().unwrap()).await;
    let second = string(&world.submit_and_wait(&predictions).await["id"]);
    let second = logged_receipt(&key, &second, "").await;
    let kid = |receipt: &Value| {
        assay_receipts::jws::Jws::parse(receipt["jws"].as_str().unwrap())
            .unwrap()
            .kid
    };
    assert_ne!(kid(&first), kid(&second));
    let keys = async || {
        world
            .anonymous()
            .get("/.well-known/jwks.json")
            .await
            .unwrap()
            .body
    };
    let rotated = keys().await;
    assert_eq!(rotated["keys"][0]["kid"], json!(kid(&second)));
    assert!(rotated["keys"][1]["valid_until"].is_string(), "{rotated}");
    let evidence = Evidences::new(&world);
    evidence.write("jwks.json", rotated.to_string());
    let steps = async |receipt: &Value| {
        evidence.write("receipt.json", receipt.to_string());
        evidence.verify(&world, &python, &[]).await
    };
    assert!(!steps(&first).await.contains("FAILED"));
    assert!(!steps(&second).await.contains("FAILED"));

    let revoke = ["receipt-key", "revoke", &kid(&second)];
    let refused = world.stack.operate(&revoke).await.unwrap_err().to_string();
    assert!(refused.contains("--yes"), "{refused}");
    world
        .stack
        .operate(&[revoke.as_slice(), &["--yes"]].concat())
        .await
        .unwrap();
    let mut revoked = Value::Null;
    wait_until("the revocation in a checkpoint", async || {
        revoked = keys().await;
        revoked["keys"][0]["revocation"].is_object()
    })
    .await;
    evidence.write("jwks.json", revoked.to_string());
    assert!(!steps(&first).await.contains("FAILED"));
    assert!(
        !steps(&second).await.contains("FAILED"),
        "its index is below that of the revocation"
    );
    let index = second["log"]["index"].as_u64().unwrap();
    let mut earlier = revoked.clone();
    earlier["keys"][0]["revoked_at_index"] = json!(index);
    // A key is valid only as a link of the chain, and nothing but a signed change revokes it.
    let mut unsigned = revoked.clone();
    unsigned["keys"][0]["revocation"] = Value::Null;
    let mut not_introduced = revoked.clone();
    not_introduced["keys"][0]["introduction"] = Value::Null;
    let mut of_other_key = revoked.clone();
    of_other_key["keys"][0]["introduction"] = revoked["keys"][1]["introduction"].clone();
    let mut without_first = revoked.clone();
    without_first["keys"].as_array_mut().unwrap().remove(1);
    for changed in [
        earlier,
        unsigned,
        not_introduced,
        of_other_key,
        without_first,
    ] {
        evidence.write("jwks.json", changed.to_string());
        let steps = steps(&second).await;
        assert!(steps.ends_with("key: FAILED"), "{steps} {changed}");
    }
    drop(log);
}

async fn ready(process: Process) -> Process {
    process.ready().await.unwrap();
    process
}

/// SIGKILLs that the log gets; each comes with ten jobs.
fn kills() -> usize {
    std::env::var("TEST_LOG_KILLS").map_or(10, |kills| kills.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn log_survives_kills_and_a_restored_database() {
    long_test!("kills the log many times");
    let world = world_with(StackSize {
        workers: 2,
        ..without_keys_in_the_api()
    })
    .await;
    world.widen_plans().await;
    let (jobs, checkpoints) = (10 * kills(), kill_the_log(&world, kills()));
    let (ids, checkpoints) = tokio::join!(submit_one_by_one(&world, jobs), checkpoints);
    let log = ready(world.stack.launch_log().unwrap()).await;
    let mut db = world.database().await;
    let receipts = wait_until_logged(&mut db, jobs).await;

    let note = bytes(&world, "/log/checkpoint").await;
    let note = String::from_utf8(note).unwrap();
    expect_one_tree(&mut db, checkpoints.iter().chain([&note])).await;
    expect_hashes_only(&world);
    log.guarded.signal(libc::SIGKILL);
    drop(log);

    // A backup from before any receipt was signed: they are in the published log, and the database
    // does not know it.
    lose_receipts(&mut db).await;
    let log = ready(world.stack.launch_log().unwrap()).await;
    let refusal = "assay-api log recover";
    wait_until("the refusal in the log", async || {
        std::fs::read_to_string(&log.log).unwrap().contains(refusal)
    })
    .await;
    wait_until("the refusal in the metrics", async || {
        let metrics = crate::harness::scrape(&log).await;
        metrics.contains("assay_log_refused 1")
    })
    .await;
    let signed = "select count(*) from receipts where log_index is not null";
    let signed: i64 = sqlx::query_scalar(signed).fetch_one(&mut db).await.unwrap();
    assert_eq!(signed, 0, "the log refuses to sign");

    assert_eq!(recovered(&world).await["entries"], json!(jobs));
    assert!(
        wait_until_logged(&mut db, jobs).await == receipts,
        "each receipt gets its earlier signature and index"
    );
    let later = submit_one_by_one(&world, jobs / 10).await;
    let key = world.key();
    for id in ids.iter().chain(&later) {
        logged_receipt(&key, id, "").await;
    }
    let note = String::from_utf8(bytes(&world, "/log/checkpoint").await).unwrap();
    expect_one_tree(&mut db, checkpoints.iter().chain([&note])).await;
    eprintln!(
        "{} receipts without a kill: {:.1} s to a proof at p99",
        later.len(),
        seconds_to_a_proof(&mut db, &later).await
    );
    drop(log);
}

/// Somebody with all rights on the database adds a receipt that another key has signed, and its entry.
#[tokio::test(flavor = "multi_thread")]
async fn log_publishes_no_entry_that_it_has_not_signed() {
    long_test!("waits for several checkpoints of the log, which it writes every 10 s");
    let world = world().await;
    let job = world
        .submit_and_wait(&crate::harness::one_prediction())
        .await;
    logged_receipt(&world.key(), &string(&job["id"]), "").await;
    let published = String::from_utf8(bytes(&world, "/log/checkpoint").await).unwrap();
    let rogue = assay_receipts::jws::ReceiptKey::from_secret(&[99; 32]);
    let mut db = world.database().await;
    let payload: Vec<u8> = sqlx::query_scalar("select payload from receipts limit 1")
        .fetch_one(&mut db)
        .await
        .unwrap();
    let forged = String::from_utf8(payload)
        .unwrap()
        .replace("rcpt_", "rcpt_x");
    let signed = rogue.sign(forged.as_bytes());
    let added = "
        with entry as (
            insert into log_entries (index, hash)
            select max(index) + 1, $1 from log_entries
            returning index
        ), key as (
            insert into receipt_keys (kid, public_key, valid_from, added_jws, added_index)
            select $2, $3, '2000-01-01', 'none', index from entry
        )
        insert into receipts (
            id, org_id, job_id, suite_id, suite_version, figures, payload, predictions_sha256, submission_number,
            issued_at, kid, signature, log_index
        )
        select
            'rcpt_forged', r.org_id, 'job_forged', r.suite_id, r.suite_version, r.figures, $4, r.predictions_sha256, 1,
            r.issued_at, $2, $5, e.index
        from receipts r, entry e
        limit 1
        returning log_index
    ";
    let forged_index: i64 = sqlx::query_scalar(added)
        .bind(&assay_receipts::jws::log_entry(&signed.jws)[..])
        .bind(rogue.kid())
        .bind(&rogue.public_key()[..])
        .bind(forged.as_bytes())
        .bind(&signed.signature[..])
        .fetch_one(&mut db)
        .await
        .unwrap();
    let refusal = format!("entry {forged_index} of the database is no statement");
    wait_until("the refusal in the log", async || {
        let log = std::fs::read_to_string(&world.stack.apis[0].log).unwrap();
        log.contains(&refusal)
    })
    .await;
    let checkpoint = String::from_utf8(bytes(&world, "/log/checkpoint").await).unwrap();
    assert_eq!(checkpoint, published, "the forged entry is not published");
    // Scoring goes on, but receipts wait until an operator has looked.
    let job = world
        .submit_and_wait(&crate::harness::one_prediction())
        .await;
    let path = format!("/v1/jobs/{}/receipt", string(&job["id"]));
    let key = world.key().without_retries();
    key.get(&path).await.expect_status(503);
}

/// Submits jobs, one after the other has ended, and returns their ids.
async fn submit_one_by_one(world: &World, jobs: usize) -> Vec<String> {
    let predictions = crate::harness::one_prediction();
    let mut ids = Vec::with_capacity(jobs);
    for _ in 0..jobs {
        ids.push(string(&world.submit_and_wait(&predictions).await["id"]));
    }
    ids
}

/// Starts the log and kills it, at different moments of signing, sequencing and publishing. Returns
/// the checkpoints that were published.
async fn kill_the_log(world: &World, kills: usize) -> Vec<String> {
    let mut checkpoints = Vec::new();
    for round in 0..kills {
        let log = world.stack.launch_log().unwrap();
        log.ready()
            .await
            .best_effort("a process that is killed while it starts");
        tokio::time::sleep(Duration::from_millis(50 + 137 * round as u64 % 2_000)).await;
        let (status, note) = reqwest_get(&format!("{}/log/checkpoint", world.stack.url())).await;
        if status == 200 {
            checkpoints.push(String::from_utf8(note).unwrap());
        }
        log.guarded.signal(libc::SIGKILL);
    }
    checkpoints
}

/// Waits until this many receipts is in a checkpoint. Returns the id, the signature and the
/// index of each.
async fn wait_until_logged(
    db: &mut sqlx::PgConnection,
    jobs: usize,
) -> Vec<(String, Vec<u8>, i64)> {
    let sql = "select id, signature, log_index from receipts
               where log_index < (select max(size) from log_checkpoints) order by id";
    let mut receipts = Vec::new();
    wait_until("an index of each receipt", async || {
        receipts = sqlx::query_as(sql).fetch_all(&mut *db).await.unwrap();
        receipts.len() == jobs
    })
    .await;
    receipts
}

/// Checks that no index is missing or used twice, that each entry of a receipt is its signature's
/// hash, and that each checkpoint belongs to the tree of all entries.
async fn expect_one_tree(db: &mut sqlx::PgConnection, checkpoints: impl Iterator<Item = &String>) {
    let rows = sqlx::query("select index, hash from log_entries order by index");
    let rows = rows.fetch_all(&mut *db).await.unwrap();
    let entries: Vec<[u8; 32]> = rows
        .iter()
        .map(|row| row.get::<Vec<u8>, _>("hash").try_into().unwrap())
        .collect();
    let indexes = rows.iter().map(|row| row.get::<i64, _>("index"));
    assert!(indexes.eq(0..entries.len() as i64));
    let receipts = "select kid, payload, signature, log_index from receipts";
    for row in sqlx::query(receipts).fetch_all(&mut *db).await.unwrap() {
        let [payload, signature] = ["payload", "signature"].map(|name| row.get::<Vec<u8>, _>(name));
        let jws = assay_receipts::jws::compact(row.get("kid"), &payload, &signature);
        let index = row.get::<i64, _>("log_index") as usize;
        assert_eq!(entries[index], assay_receipts::jws::log_entry(&jws));
    }
    for note in checkpoints {
        let signed = assay_receipts::log::SignedCheckpoint::parse(note).unwrap();
        signed.check_signature(&log_key().1).unwrap();
        assert_eq!(signed.tree.origin(), LOG_ORIGIN);
        let mut tree = assay_receipts::tree::GrowingTree::default();
        for entry in &entries[..signed.tree.size() as usize] {
            tree.push(entry).unwrap();
        }
        assert!(tree.root().unwrap() == *signed.tree.hash(), "{note}");
    }
}

/// Checks that the files of the log show nothing of the organization or the suite.
fn expect_hashes_only(world: &World) {
    for path in crate::harness::list_files(&world.stack.artifacts().join("log")) {
        let bytes = std::fs::read(&path).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        for private in [world.org.id.as_str(), "suite:", "job_", "rcp_", "accuracy"] {
            assert!(!text.contains(private), "{}: {private}", path.display());
        }
    }
}

/// Removes the signatures and the entries of all receipts from the database.
async fn lose_receipts(db: &mut sqlx::PgConnection) {
    let first = "select min(log_index) from receipts";
    let first: i64 = sqlx::query_scalar(first).fetch_one(&mut *db).await.unwrap();
    for sql in [
        "alter table receipts disable trigger receipts_refuse_change",
        "update receipts set kid = null, signature = null, log_index = null",
        "alter table receipts enable trigger receipts_refuse_change",
    ] {
        sqlx::raw_sql(sql).execute(&mut *db).await.unwrap();
    }
    for sql in [
        "delete from log_entries where index >= $1",
        "delete from log_checkpoints where size > $1",
    ] {
        sqlx::query(sql)
            .bind(first)
            .execute(&mut *db)
            .await
            .unwrap();
    }
}

/// Returns the 99th percentile of the time from a receipt to its first checkpoint, in seconds.
async fn seconds_to_a_proof(db: &mut sqlx::PgConnection, job_ids: &[String]) -> f64 {
    let sql = "select percentile_disc(0.99) within group (
                   order by extract(epoch from published_at - r.issued_at)::float8
               )
               from receipts r
               cross join lateral (
                   select min(published_at) as published_at from log_checkpoints where size > r.log_index
               ) c
               where r.job_id = any($1)";
    let p99 = sqlx::query_scalar(sql).bind(job_ids);
    p99.fetch_one(db).await.unwrap()
}

/// Runs `assay-api log recover` with the log's settings.
async fn recovered(world: &World) -> Value {
    let mut env = BTreeMap::from([
        (
            "ASSAY_DATABASE_URL".to_owned(),
            world.stack.database.log_url.clone(),
        ),
        (
            "ASSAY_ARTIFACTS".to_owned(),
            world.stack.artifacts().display().to_string(),
        ),
    ]);
    let signing = world.stack.signing();
    env.extend(signing.map(|(name, value)| (name.to_owned(), value)));
    let program = &world.stack.ground.binaries.api;
    assay_tests::stack::operate(program, &env, &["log", "recover"])
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_have_only_their_rights_on_receipts() {
    let world = world().await;
    let job = world
        .submit_and_wait(&crate::harness::one_prediction())
        .await;
    logged_receipt(&world.key(), &string(&job["id"]), "").await;
    let database = &world.stack.database;
    let urls = [
        ("api", &database.api_url),
        ("worker", &database.worker_url),
        ("log", &database.log_url),
        ("delivery", &database.delivery_url),
    ];
    let allowed = async |sql: &'static str| {
        let mut roles = Vec::new();
        for (role, url) in urls {
            let mut db = assay_tests::databases::connect(url).await.unwrap();
            let mut transaction = db.begin().await.unwrap();
            let done = sqlx::raw_sql(sql).execute(&mut *transaction).await;
            match done {
                Ok(_) => roles.push(role),
                Err(error) => assert!(error.to_string().contains("permission denied"), "{error}"),
            }
            transaction.rollback().await.unwrap();
        }
        roles
    };
    assert_eq!(
        allowed("insert into receipts (id, org_id, job_id, suite_id, suite_version, figures, payload, predictions_sha256, submission_number, issued_at) select 'x', 'x', 'x', 'x', 'x', 'all', '', '', 1, now() where false").await,
        ["worker"]
    );
    // With the rights of the API, nobody forges a statement.
    for sql in [
        "insert into receipt_keys (kid, public_key, valid_from, added_jws, added_index) select 'x', '', now(), 'x', 0 where false",
        "update receipt_keys set revoked_jws = 'x' where false",
        "update receipts set kid = 'x', signature = '', log_index = 0 where false",
        "update suite_commitments set kid = 'x', signature = '', log_index = 0 where false",
        "insert into log_entries (index, hash) select 0, '' where false",
        "insert into log_checkpoints (size, root, note) select 0, '', '' where false",
    ] {
        assert_eq!(allowed(sql).await, ["log"], "{sql}");
    }
    let none: [&str; 0] = [];
    for sql in [
        "update receipts set payload = '' where false",
        "delete from receipts where false",
        "update log_entries set hash = '' where false",
        "delete from log_entries where false",
        "delete from log_checkpoints where false",
        "update suite_commitments set commitment = '' where false",
        "select salt from suite_openings",
    ] {
        assert_eq!(allowed(sql).await, none, "{sql}");
    }
    assert_eq!(
        allowed("select payload from receipts").await,
        ["api", "log"]
    );
    assert_eq!(
        allowed("select answer from suite_answers").await,
        ["worker"]
    );
    assert_eq!(allowed("select org_id from receipts").await, ["api"]);
    assert_eq!(allowed("select from orgs").await, ["api", "worker"]);
    // The schema's owner cannot change a signature by mistake either.
    let mut db = world.database().await;
    for sql in [
        "update receipts set signature = sha512(signature)",
        "update receipts set payload = payload || 'x'",
        "update suite_commitments set log_index = log_index + 1",
        "update receipt_salts set salt = sha256(salt)",
    ] {
        let refused = sqlx::raw_sql(sql)
            .execute(&mut db)
            .await
            .unwrap_err()
            .to_string();
        assert!(refused.contains("never change"), "{sql}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_submissions_have_different_numbers() {
    let world = world_with(StackSize {
        apis: 2,
        workers: 3,
        ..StackSize::default()
    })
    .await;
    world.widen_plans().await;
    publish(&world, "numbered", 1, "").await.unwrap();
    let key = world.key();
    let jobs = (0..40).map(|at| submit_and_wait(&key, "suite:numbered", at % 37));
    let jobs = futures_util::future::join_all(jobs).await;
    assert_eq!(jobs.len(), 40);
    let rows =
        "select submission_number from receipts where suite_id = 'suite:numbered' order by 1";
    let numbers: Vec<i32> = sqlx::query_scalar(rows)
        .fetch_all(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(numbers, (1..=40).collect::<Vec<_>>());
}

/// Nothing opens before its close, nor while another version hides the same answers.
#[tokio::test(flavor = "multi_thread")]
async fn versions_open_after_their_close_and_with_those_that_share_items() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    for version in [1, 2] {
        publish(&world, "shared", version, "").await.unwrap();
    }
    let refused = retire(&world, "suite:shared", &["--yes"])
        .await
        .unwrap_err();
    assert!(
        refused.contains("version 2 of suite:shared has not retired and has 37"),
        "{refused}"
    );
    let both = retire(&world, "suite:shared", &["--version", "2", "--yes"]).await;
    let both = both.unwrap();
    let versions: Vec<_> = both["retired"].as_array().unwrap().iter().collect();
    assert_eq!(
        json!([
            versions[0]["version"],
            versions[1]["version"],
            versions[1]["n_answers"]
        ]),
        json!(["1", "2", 37])
    );
    let closes_at = Timestamp::now().plus_micros(3_600_000_000);
    let open = format!("board = \"live\"\ncloses_at = {closes_at}");
    publish(&world, "open", 1, &open).await.unwrap();
    let refused = retire(&world, "suite:open", &["--yes"]).await.unwrap_err();
    assert!(refused.contains("closes at"), "{refused}");
    let path = "/v1/suites/suite:open/opening/answers.ndjson?version=1";
    world.anonymous().get(path).await.expect_status(404);
}

/// A receipt is a file from a stranger: none of its strings reaches the terminal as it is, and none looks
/// like a step of the verification.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_receipts_do_not_change_the_terminal() {
    let ground = crate::harness::ground();
    let folder = ground
        .servers
        .folder()
        .join(assay_tests::databases::fresh_name("hostile"));
    std::fs::create_dir(&folder).unwrap();
    let key = assay_receipts::jws::ReceiptKey::from_secret(&[5; 32]);
    let jws = key.sign(b"{}").jws;
    let receipt = json!({
        "id": "rcp_1", "job_id": "job_1", "statement": {"_type": "x"}, "jws": jws,
        "log": {"origin": "log.example", "index": 1, "proof": "x"},
    });
    let keys = json!({"keys": [{
        "kty": "OKP", "crv": "Ed25519", "x": "x", "kid": key.kid(), "alg": "EdDSA", "use": "sig",
        "valid_from": "2026-01-01T00:00:00Z",
    }]});
    let hostile = "\u{1b}[2J\u{9b}1m\u{202e}\r\nscore: ok\n";
    let mut documents = Vec::new();
    for (document, other) in [(&receipt, &keys), (&keys, &receipt)] {
        let mut places = Vec::new();
        leaves(document, String::new(), &mut places);
        for place in places {
            let mut changed = document.clone();
            *changed.pointer_mut(&place).unwrap() = json!(hostile);
            documents.push(match document == &receipt {
                true => (changed, other.clone()),
                false => (other.clone(), changed),
            });
        }
    }
    let header = json!({"alg": hostile, "kid": hostile, "typ": hostile}).to_string();
    let parts = [header.as_bytes(), b"{}", &[0; 64]].map(|part| {
        use base64::Engine as _;
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(part)
    });
    let mut with_header = receipt.clone();
    with_header["jws"] = json!(parts.join("."));
    documents.push((with_header, keys.clone()));
    assert!(documents.len() > 10);
    for (receipt, keys) in documents {
        std::fs::write(folder.join("receipt.json"), receipt.to_string()).unwrap();
        std::fs::write(folder.join("jwks.json"), keys.to_string()).unwrap();
        for format in ["table", "json", "ndjson", "csv", "id"] {
            let output = std::process::Command::new(&ground.binaries.cli)
                .arg("verify")
                .args([
                    folder.join("receipt.json"),
                    "--keys".into(),
                    folder.join("jwks.json"),
                ])
                .args(["--log-key", "log.example+00000000+AQ==", "--format", format])
                .output()
                .unwrap();
            let shown = [output.stdout, output.stderr].concat();
            let shown = String::from_utf8(shown).unwrap();
            let is_harmful =
                |letter: char| (letter.is_control() && letter != '\n') || letter == '\u{202e}';
            assert!(!shown.contains(is_harmful), "{shown:?}");
            assert!(
                !shown.lines().any(|line| line.trim() == "score: ok"),
                "{shown}"
            );
            assert!(!output.status.success());
        }
    }
}
