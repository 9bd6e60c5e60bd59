//! The api does what its description says, as schemathesis tries it: with examples, at the edges of every schema, with
//! whatever comes to its mind, and in sequences of calls; with a key and with a session.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use assay_tests::demo_suite;
use serde_json::{Value, json};

use crate::clients::{made, python_with, sources};
use crate::harness::{World, one_prediction, with, world_of};
use crate::openapi::publish_a_model;

/// Longest run with one credential.
const PATIENCE: Duration = Duration::from_secs(1200);

/// How many cases are made for an operation in each phase; `TEST_SCHEMATHESIS_EXAMPLES` says otherwise.
const EXAMPLES: &str = "25";

#[tokio::test(flavor = "multi_thread")]
async fn schemathesis_finds_no_fault_with_either_credential() {
    let folder = sources().join("openapi");
    let requirements = folder.join("requirements.txt");
    let Some(python) = made(move || python_with("schemathesis", &requirements)).await else { return };
    // It tries wrong credentials on purpose.
    let world = world_of(with("ASSAY_AUTH_FAILURES_PER_MINUTE", "1000000")).await;
    let without_limits =
        "update plans set requests_per_minute = 1000000000, eval_items_per_month = 1000000000000, concurrent_jobs = 1000000";
    sqlx::raw_sql(without_limits).execute(&mut world.database().await).await.unwrap();
    let known = known(&world).await;
    let document = PathBuf::from(env!("CARGO_MANIFEST_DIR")).with_file_name("docs").join("openapi.json");
    let examples = std::env::var("TEST_SCHEMATHESIS_EXAMPLES").unwrap_or_else(|_| EXAMPLES.to_owned());
    for token in [&world.org.key, &world.org.session] {
        let mut command = tokio::process::Command::new(&python);
        command.args(["-c", "from schemathesis.cli import schemathesis; schemathesis()", "run"]).arg(&document).args([
            "--url",
            &world.stack.url(),
            "--header",
            &format!("Authorization: Bearer {token}"),
        ]);
        command.args(["--checks", "all", "--phases", "examples,coverage,fuzzing,stateful", "--max-examples", &examples, "--no-color"]);
        command.args(["--continue-on-failure", "--suppress-health-check", "all"]);
        if let Ok(seed) = std::env::var("TEST_SCHEMATHESIS_SEED") {
            command.args(["--seed", &seed]);
        }
        let own = world.stack.ground.servers.folder().join(format!("{}-schemathesis", world.stack.database.name));
        std::fs::create_dir_all(&own).unwrap();
        command.env("SCHEMATHESIS_HOOKS", "hooks").env("PYTHONPATH", &folder).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("ASSAY_KNOWN", known.to_string()).env("ASSAY_ORG", &world.org.id);
        // It leaves its notes where it stands.
        command.current_dir(&own).stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(PATIENCE, command.output()).await.expect("schemathesis does not end").unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        println!("{said}");
        assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("Tested: "), "nothing was tried: {said}");
    }
}

/// Something of each kind that there is.
async fn known(world: &World) -> Value {
    publish_a_model(world).await;
    let members = world.owner().get("/v1/members").await.unwrap().body;
    let job = world.scored(&one_prediction()).await;
    json!({"suite_id": demo_suite::SUITE_ID, "job_id": job["id"], "model_id": "next-1", "user_id": members["members"][0]["user_id"]})
}
