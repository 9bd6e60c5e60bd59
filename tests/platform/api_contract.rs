//! Checks the API against its OpenAPI document with schemathesis: examples, boundary values of
//! every schema, random input, and call sequences, with a key and with a session.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use assay_tests::wait::wait_timeout;
use assay_tests::{databases, demo_suite};
use serde_json::{Value, json};

use crate::clients::{prepare, python_with, sources};
use crate::feedback;
use crate::harness::{Expect, World, one_prediction, string, world_with};
use crate::name_server::NameServer;
use crate::openapi::{installation, publish_a_model};
use crate::predictions;
use crate::routes::TERMS;

/// The random input's seed, so that a failure is due to a code change.
/// `TEST_SCHEMATHESIS_SEED` overrides it, to find more.
const SEED: &str = "1";

#[tokio::test(flavor = "multi_thread")]
async fn schemathesis_passes_with_either_credential() {
    // Even few cases for each operation take two minutes.
    let Ok(examples) = std::env::var("TEST_SCHEMATHESIS_EXAMPLES") else {
        return;
    };
    let examples: u32 = examples.parse().unwrap();
    let requirements = sources().join("openapi").join("requirements.txt");
    let Some(python) = prepare(move || python_with("schemathesis", &requirements)).await else {
        return;
    };
    let name_server = NameServer::start().await;
    let world = world_with(installation(&name_server)).await;
    let without_limits =
        "update plans set requests_per_minute = 1000000000, eval_items_per_month = 1000000000000,
                          predict_items_per_month = null, generated_events_per_month = null,
                          embeddings_per_month = null,
                          concurrent_jobs = 1000000, upload_bytes_max = 1000000000000";
    sqlx::raw_sql(without_limits)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    publish_a_model(&world).await;
    predictions::publish_dishes(&world, "1", "").await;
    feedback::publish(&world, "1").await;
    for token in [&world.org.key, &world.org.session] {
        // Excluded, because the call would end the session.
        let without: &[&str] = if token == &world.org.session {
            &["endSession"]
        } else {
            &[]
        };
        run_schemathesis(
            &python,
            &world,
            &name_server,
            token,
            ("examples,coverage,fuzzing", without, examples),
        )
        .await;
        // Sequences start only at operations without an organization's id if there are any; this is
        // one.
        run_schemathesis(
            &python,
            &world,
            &name_server,
            token,
            (
                "stateful",
                &[without, &["createOrg"]].concat(),
                // A sequence counts as one case for all its operations.
                4 * examples,
            ),
        )
        .await;
    }
}

/// Runs schemathesis in these phases, without the excluded operations, with a case count for each
/// other operation.
async fn run_schemathesis(
    python: &Path,
    world: &World,
    name_server: &NameServer,
    token: &str,
    (phases, without, cases): (&str, &[&str], u32),
) {
    let document = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .with_file_name("docs")
        .join("openapi.json");
    let mut command = tokio::process::Command::new(python);
    command
        .args([
            "-c",
            "from schemathesis.cli import schemathesis; schemathesis()",
            "--config-file",
        ])
        .arg(sources().join("openapi").join("schemathesis.toml"))
        .arg("run")
        .arg(&document);
    command.args([
        "--url",
        &world.stack.url(),
        "--header",
        &format!("Authorization: Bearer {token}"),
    ]);
    command.args([
        "--checks",
        "all",
        "--phases",
        phases,
        "--max-examples",
        &cases.to_string(),
        "--no-color",
    ]);
    command.args(["--continue-on-failure", "--suppress-health-check", "all"]);
    command.args(
        without
            .iter()
            .flat_map(|operation| ["--exclude-operation-id", operation]),
    );
    let seed = std::env::var("TEST_SCHEMATHESIS_SEED").unwrap_or_else(|_| SEED.into());
    command.args(["--seed", &seed]);
    let own = world
        .stack
        .ground
        .servers
        .folder()
        .join(format!("{}-schemathesis", world.stack.database.name));
    std::fs::create_dir_all(&own).unwrap();
    command
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .env("PYTHONPATH", sources().join("openapi"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
        .env(
            "ASSAY_KNOWN",
            create_resources(world, name_server).await.to_string(),
        )
        .env("ASSAY_ORG", &world.org.id);
    // Schemathesis writes its database to the current folder.
    command
        .current_dir(&own)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(10 * wait_timeout(), command.output())
        .await
        .unwrap()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(said.contains("Tested: "), "no operation was tested: {said}");
}

/// Creates one resource per kind and returns the ids for parameters, fields and bodies.
async fn create_resources(world: &World, name_server: &NameServer) -> Value {
    let owner = world.owner();
    let name = databases::fresh_name("known")
        .replace('_', "-")
        .to_lowercase();
    let create = async |path: &str, body: Value| {
        let response = owner.post(path, &body).await.unwrap();
        assert!(response.status < 300, "{path}: {}", response.body);
        response.body
    };
    create("/v1/terms/accept", json!({"version": TERMS.0})).await;
    let members = owner.get("/v1/members").await.unwrap().body;
    // The owner's second session, which calls may end.
    world
        .stack
        .operate(&[
            "session",
            "create",
            "--email",
            &world.org.email,
            "--org",
            &world.org.id,
        ])
        .await
        .unwrap();
    let sessions = owner.get("/v1/sessions").await.unwrap().body;
    let other_session = sessions["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|session| session["current"] == false)
        .unwrap();
    let job = feedback::submit_and_wait(world, &world.org.key, &one_prediction()).await;
    let invite = create(
        "/v1/invites",
        json!({"email": format!("{name}@example.org")}),
    )
    .await;
    let claim = create("/v1/domains", json!({"domain": format!("{name}.example")})).await;
    name_server.show(
        &string(&claim["record"]["name"]),
        &[&string(&claim["record"]["value"])],
    );
    assert_eq!(
        create(&format!("/v1/domains/{name}.example/verify"), Value::Null).await["verified"],
        true
    );
    let mut uploads = Vec::new();
    for _ in 0..2 {
        let upload = create("/v1/uploads", json!({"kind": "predictions"})).await;
        let part = owner
            .request(
                "PUT",
                &format!("/v1/uploads/{}/parts/1", string(&upload["id"])),
            )
            .json(&one_prediction()[0]);
        owner.send(part).await.expect_status(200);
        uploads.push(string(&upload["id"]));
    }
    create(&format!("/v1/uploads/{}/complete", uploads[0]), Value::Null).await;
    let sequence = json!({"sequence_id": "1", "events": [{"item_id": "dish-03"}]});
    let sequences = predictions::uploaded_sequences(&owner, &[sequence]).await;
    let prediction = predictions::predicted(world, json!({"input_ref": sequences})).await;
    let webhook = json!({"url": "https://receiver.invalid/", "events": ["ping"]});
    let webhook = string(&create("/v1/webhooks", webhook).await["id"]);
    let test = create(&format!("/v1/webhooks/{webhook}/test"), json!({})).await;
    json!({
        "webhook_id": webhook,
        "delivery_id": test["id"],
        "suite_id": demo_suite::SUITE_ID,
        "predicted_suite_id": predictions::DISHES,
        "sequences_ref": sequences,
        "model_id": predictions::MODEL,
        "job_id": job["id"],
        "prediction_id": prediction["id"],
        "job_a": job["id"],
        "job_b": job["id"],
        "org_id": world.org.id,
        "user_id": members["members"][0]["user_id"],
        "key_id": create("/v1/keys", json!({"name": name})).await["id"],
        "invite_id": invite["id"],
        "domain": claim["domain"],
        "version": TERMS.0,
        // An invite that is never accepted: with a second member the owner could lose their role.
        "token": world.sign_in_link(&format!("guest-{name}@example.org")).await,
        "session_id": other_session["id"],
        // Of a login that nobody decides about. The first poll alone is not too early.
        "device_code": crate::device::start(world, "known").await["device_code"],
        // One ready upload, and one that is open for parts.
        "upload_id": uploads[0],
        "input_ref": uploads[0],
        "open_upload_id": uploads[1],
    })
}
