//! The operator's commands of `assay-api`, and startup errors of both binaries.

use std::collections::BTreeMap;
use std::process::Command;

use assay_tests::client::Client;
use assay_tests::link::{Ending, Link};
use assay_tests::stack::Plan;
use serde_json::json;

use crate::harness::{
    fresh_email, ground, one_prediction, shared_world, wait_until, world, world_with,
};

#[tokio::test(flavor = "multi_thread")]
async fn invalid_commands_explain_the_error() {
    let world = shared_world().await;
    let cases: [(&[&str], &str); 12] = [
        (
            &[
                "org",
                "create",
                "--name",
                "X",
                "--plan",
                "gold",
                "--owner-email",
                "a@example.org",
            ],
            "there is no plan \"gold\"; there are: free, dev, team",
        ),
        (
            &["org", "create", "--name", "X", "--owner-email", "nobody"],
            "email: must be an email address",
        ),
        (
            &[
                "org",
                "create",
                "--name",
                " ",
                "--owner-email",
                "a@example.org",
            ],
            "name: this field is required",
        ),
        (
            &["session", "create", "--email", "unknown@example.org"],
            "nobody has the address",
        ),
        (
            &[
                "session",
                "create",
                "--email",
                &world.org.email,
                "--org",
                "org_0",
            ],
            "is not a member of org_0",
        ),
        (
            &["key", "create", "--org", "org_0", "--name", "x"],
            "there is no organization org_0",
        ),
        (
            &["suite", "publish", "/nonexistent"],
            "suite.toml: cannot be read",
        ),
        (
            &["org", "set", "--org", &world.org.id, "--plan", "gold"],
            "there is no plan \"gold\"; there are: free, dev, team",
        ),
        (
            &["org", "set", "--org", "org_0", "--plan", "dev"],
            "there is no organization org_0",
        ),
        (
            &["plan", "set", "gold", "--concurrent-jobs", "3"],
            "there is no plan \"gold\" yet; a new one needs --requests-per-minute",
        ),
        (
            &["plan", "set", " ", "--concurrent-jobs", "3"],
            "name: this field is required",
        ),
        (
            &["plan", "set", "free", "--requests-per-minute", "0"],
            "0 is not in 1..=",
        ),
    ];
    for (arguments, expected) in cases {
        let refused = world
            .stack
            .operate(arguments)
            .await
            .unwrap_err()
            .to_string();
        assert!(refused.contains(expected), "{arguments:?}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn email_spellings_are_one_user() {
    let world = shared_world().await;
    let address = fresh_email("ada");
    let other_spelling = format!("{} ", address.to_uppercase());
    let first = world
        .stack
        .operate(&[
            "org",
            "create",
            "--name",
            "A",
            "--owner-email",
            &other_spelling,
        ])
        .await
        .unwrap();
    let second = world
        .stack
        .operate(&["org", "create", "--name", "B", "--owner-email", &address])
        .await
        .unwrap();
    assert_eq!(first["owner_user_id"], second["owner_user_id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_change_applies_to_next_request() {
    let world = world_with(Plan {
        apis: 2,
        workers: 0,
        ..Plan::default()
    })
    .await;
    let apis: Vec<_> = world
        .stack
        .apis
        .iter()
        .map(|api| {
            Client::new(
                format!("http://{}", api.listen.unwrap()),
                Some(&world.org.key),
            )
        })
        .collect();
    let numbers = [
        "--requests-per-minute",
        "777",
        "--eval-items-per-month",
        "1",
        "--concurrent-jobs",
        "3",
        "--upload-bytes-max",
        "4096",
    ];
    let gold = world
        .stack
        .operate(&[&["plan", "set", "gold"] as &[&str], &numbers].concat())
        .await
        .unwrap();
    let whole = json!({"plan": "gold", "requests_per_minute": 777, "eval_items_per_month": 1, "concurrent_jobs": 3, "upload_bytes_max": 4096, "storage_bytes": 40960,
        "predict_items_per_month": 1, "generated_events_per_month": 1, "embeddings_per_month": 1, "queue_weight": 1});
    assert_eq!(gold, whole);
    let set = world
        .stack
        .operate(&["org", "set", "--org", &world.org.id, "--plan", "gold"])
        .await
        .unwrap();
    assert_eq!(
        set,
        json!({"org_id": world.org.id, "name": "Acme", "plan": "gold"})
    );
    for api in &apis {
        let usage = api.get("/v1/usage").await.unwrap();
        assert_eq!(
            (usage.header("x-ratelimit-limit"), &usage.body["plan"]),
            ("777", &json!("gold"))
        );
        assert_eq!(
            usage.body["limits"],
            json!({"concurrent_jobs": 3, "eval_items_per_month": 1, "storage_bytes": 40960,
                "predict_items_per_month": 1, "generated_events_per_month": 1, "embeddings_per_month": 1})
        );
    }
    // Omitted options keep their values; without options the command prints the plan.
    let changed = world
        .stack
        .operate(&[
            "plan",
            "set",
            "gold",
            "--requests-per-minute",
            "55",
            "--eval-items-per-month",
            "0",
        ])
        .await
        .unwrap();
    assert_eq!(
        world.stack.operate(&["plan", "set", "gold"]).await.unwrap(),
        changed
    );
    assert_eq!(
        json!([
            changed["requests_per_minute"],
            changed["eval_items_per_month"],
            changed["concurrent_jobs"]
        ]),
        json!([55, 0, 3])
    );
    for api in &apis {
        assert_eq!(
            api.get("/v1/me").await.unwrap().header("x-ratelimit-limit"),
            "55"
        );
    }
    let refused = world.submit(&one_prediction()).await;
    assert_eq!(
        (refused.status, &refused.body["error"]["details"]["max"]),
        (429, &json!(0)),
        "{}",
        refused.body
    );
    // Two commands create the same plan concurrently.
    let make = || async {
        world
            .stack
            .operate(&[&["plan", "set", "new"] as &[&str], &numbers].concat())
            .await
            .unwrap()
    };
    let (a, b) = tokio::join!(make(), make());
    assert_eq!(a, b);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_migration_changes_nothing() {
    let world = world().await;
    let first = world.stack.operate(&["migrate"]).await.unwrap();
    assert_eq!(world.stack.operate(&["migrate"]).await.unwrap(), first);
}

#[test]
fn startup_reports_all_setting_errors() {
    let binaries = ground().binaries.clone();
    for (program, command) in [(&binaries.api, "serve"), (&binaries.worker, "run")] {
        let env = BTreeMap::from([
            ("ASSAY_LISTEM", "x"),
            ("ASSAY_ADMIN_LISTEN", "nowhere"),
            ("ASSAY_DRAIN_SECONDS", "0"),
        ]);
        let output = Command::new(program)
            .arg(command)
            .envs(&env)
            .output()
            .unwrap();
        assert!(!output.status.success());
        let stderr = String::from_utf8(output.stderr).unwrap();
        for name in [
            "ASSAY_LISTEM: there is no such setting",
            "ASSAY_ADMIN_LISTEN:",
            "ASSAY_DRAIN_SECONDS:",
            "ASSAY_DATABASE_URL: is required",
            "ASSAY_REDIS_URL: is required",
        ] {
            assert!(stderr.contains(name), "{stderr}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn occupied_port_error_names_setting() {
    let world = shared_world().await;
    let taken = world.stack.apis[0].listen.unwrap().to_string();
    let mut env = BTreeMap::from([
        ("ASSAY_REDIS_URL", "redis://127.0.0.1:1"),
        ("ASSAY_ADMIN_LISTEN", "127.0.0.1:0"),
    ]);
    env.extend([
        ("ASSAY_DATABASE_URL", world.stack.database.api_url.as_str()),
        ("ASSAY_LISTEN", taken.as_str()),
    ]);
    let output = Command::new(&world.stack.ground.binaries.api)
        .arg("serve")
        .envs(&env)
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains(&format!("cannot listen on {taken}")) && stderr.contains("ASSAY_LISTEN"),
        "{stderr}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn start_waits_for_unavailable_database() {
    let mut world = world().await;
    let link = Link::to_postgres(&world.stack.ground.servers).unwrap();
    link.refuse(Ending::Closed);
    let database = &mut world.stack.database;
    let direct = database.clone();
    database.api_url = link.postgres_url(&direct.api_url, &direct.name);
    database.worker_url = link.postgres_url(&direct.worker_url, &direct.name);
    let started = [
        world.stack.launch_api().unwrap(),
        world.stack.launch_worker().unwrap(),
    ];
    for process in &started {
        wait_until("failed attempt to connect", async || {
            assert!(process.guarded.try_wait().is_none(), "the process ended");
            let log = std::fs::read_to_string(&process.log).unwrap_or_default();
            log.contains("database unavailable, retrying")
        })
        .await;
    }
    link.mend();
    for process in &started {
        process.ready().await.unwrap();
    }
}
