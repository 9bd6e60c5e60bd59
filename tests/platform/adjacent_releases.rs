//! The previous and the current release on one database, as during an upgrade without downtime.

use std::path::Path;
use std::process::Command;

use assay_core::store::{self, PoolProfile, migrations};
use assay_tests::binaries;
use assay_tests::client::Client;
use assay_tests::servers::Servers;
use assay_tests::stack::{Ground, Process, StackSize, operate};
use serde_json::json;
use sqlx::SqlStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

use crate::clients::{MissingTool, prepare};
use crate::harness::{
    Expect, World, ground, long_test, one_prediction, skip, skip_before_first_release, string,
    world_of_earlier_release, world_on,
};

/// Runs git in this repository. Returns `None` if it fails.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .args(arguments)
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the previous release's commit: `TEST_BEFORE` if set, otherwise the commit where
/// this branch left main, or HEAD's parent. Returns `None`, and says why on standard error, if
/// the history does not contain it, or if its databases cannot be upgraded.
fn previous_commit() -> Option<String> {
    let Some(before) = std::env::var("TEST_BEFORE").ok().or_else(commit_before) else {
        skip("the history has no previous commit");
        return None;
    };
    let edited = edited_migrations(&before);
    let is_released = git(&["show", &format!("{before}:CHANGELOG.md")])
        .is_some_and(|changelog| changelog.lines().any(is_dated_section));
    if let (Some(first), false) = (edited.first(), is_released) {
        skip_before_first_release(&format!(
            "{first} of {before} was edited, as is allowed before the first release"
        ));
        return None;
    }
    // After the first release, the test fails if another migration was edited.
    if edited
        .iter()
        .any(|path| path == "migrations/0001_roles.sql")
    {
        skip(&format!("{before} has another baseline of the migrations"));
        return None;
    }
    Some(before)
}

fn commit_before() -> Option<String> {
    let head = git(&["rev-parse", "HEAD"])?;
    git(&["merge-base", "HEAD", "origin/main"])
        .filter(|base| *base != head)
        .or_else(|| git(&["rev-parse", "--verify", "HEAD~1"]))
}

/// Returns the commit's migrations that have changed or are missing.
fn edited_migrations(before: &str) -> Vec<String> {
    let arguments = [
        "diff",
        "--name-only",
        "--no-renames",
        "--diff-filter=DMT",
        before,
        "--",
        "migrations",
    ];
    let paths = git(&arguments).unwrap_or_default();
    paths.lines().map(str::to_owned).collect()
}

/// Returns `true` if a changelog line is a release's heading, which has a date.
fn is_dated_section(line: &str) -> bool {
    line.strip_prefix("## ").is_some_and(|heading| {
        heading.split_whitespace().any(|word| {
            let date = word.trim_matches(['(', ')']);
            date.split('-').map(str::len).eq([4, 2, 2])
                && date
                    .bytes()
                    .all(|byte| byte == b'-' || byte.is_ascii_digit())
        })
    })
}

#[test]
fn dated_sections_are_releases() {
    for (line, is_release) in [
        ("## Unreleased", false),
        ("## 1.0.0 - 2027-01-31", true),
        ("## [1.0.0] (2027-01-31)", true),
        ("## 1.0.0-rc-01", false),
        ("On 2027-01-31", false),
        ("### 2027-01-31", false),
    ] {
        assert_eq!(is_dated_section(line), is_release, "{line}");
    }
}

/// Submits jobs at this API process and asserts that they succeed.
async fn submit_jobs(world: &World, api: &Process, jobs: usize) {
    let key = Client::new(
        format!("http://{}", api.listen.unwrap()),
        Some(&world.org.key),
    );
    let mut ids = Vec::new();
    for _ in 0..jobs {
        let queued = key
            .post(
                "/v1/evals",
                &json!({"suite_id": "suite:lunch", "predictions": one_prediction()}),
            )
            .await
            .expect_status(202);
        ids.push(string(&queued.body["id"]));
    }
    for id in ids {
        let job = key.wait_until_finished(&id, &|_| {}).await.unwrap();
        assert_eq!(
            (&job["status"], &job["attempts"]),
            (&json!("succeeded"), &json!(1)),
            "{job}"
        );
        key.get(&format!("/v1/jobs/{id}/trace"))
            .await
            .expect_status(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn previous_and_current_release_share_database() {
    long_test!("builds the previous commit");
    let new = ground().binaries.clone();
    let Some(before) = previous_commit() else {
        return;
    };
    let Some(old) = prepare(move || {
        binaries::build_of(&before).map_err(|trouble| MissingTool(trouble.to_string()))
    })
    .await
    else {
        return;
    };
    let servers = Servers::start(&|line| eprintln!("{line}")).unwrap();
    // The previous release, with its own schema.
    let ground = std::sync::Arc::new(Ground::new(servers, old));
    let plan = StackSize {
        apis: 0,
        workers: 0,
        ..StackSize::default()
    };
    let mut world = world_of_earlier_release(&ground, plan).await;
    // Without the settings that it does not know.
    let api = world.stack.launch_as_api(&ground.binaries.api, &[]);
    world.stack.apis.push(api.unwrap());
    world.stack.apis[0].ready().await.unwrap();
    world
        .stack
        .workers
        .push(world.stack.launch_worker().unwrap());
    world.stack.workers[0].ready().await.unwrap();
    world.widen_plans().await;
    submit_jobs(&world, &world.stack.apis[0], 5).await;
    // Its processes continue on the current schema.
    operate(&new.api, &world.stack.operator_env(), &["migrate"])
        .await
        .unwrap();
    submit_jobs(&world, &world.stack.apis[0], 5).await;
    // Current processes join them; any API process accepts a submission, any worker scores it.
    let api = world.stack.launch_as_api(&new.api, &[]).unwrap();
    let worker = world.stack.launch_as_worker(&new.worker, &[]).unwrap();
    api.ready().await.unwrap();
    worker.ready().await.unwrap();
    tokio::join!(
        submit_jobs(&world, &world.stack.apis[0], 20),
        submit_jobs(&world, &api, 20)
    );
    let by: i64 = sqlx::query_scalar("select count(distinct worker_id) from job_attempts")
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(by, 2, "both workers had a part");
    // A job accepted by one release is scored by the other.
    world.stack.workers.clear();
    submit_jobs(&world, &world.stack.apis[0], 5).await;
    let old_worker = world.stack.launch_worker().unwrap();
    old_worker.ready().await.unwrap();
    drop(worker);
    submit_jobs(&world, &api, 5).await;
    // The previous release stops while callers continue; then only the current one runs.
    let worker = world.stack.launch_as_worker(&new.worker, &[]).unwrap();
    worker.ready().await.unwrap();
    let leaving = async {
        for process in [&world.stack.apis[0], &old_worker] {
            process.guarded.stop();
        }
    };
    tokio::join!(submit_jobs(&world, &api, 20), leaving);
    world.stack.apis.clear();
    submit_jobs(&world, &api, 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_migration_blocks_nobody() {
    let world = world_on(&ground(), StackSize::default()).await;
    let mut dump = world.database().await;
    sqlx::raw_sql("begin; lock table jobs in access share mode")
        .execute(&mut dump)
        .await
        .unwrap();
    let mut next = Migrator::with_migrations(vec![Migration::new(
        9998,
        "next".into(),
        MigrationType::Simple,
        SqlStr::from_static("alter table jobs add column next text"),
        false,
    )]);
    next.set_ignore_missing(true);
    let pool = store::pool(
        &world.stack.database.owner_url,
        1,
        "test",
        PoolProfile::OPERATOR,
    )
    .unwrap();
    let mut migration = std::pin::pin!(migrations::apply(&pool, &next));
    let requests = async {
        for _ in 0..20 {
            world.key().get("/v1/jobs").await.expect_status(200);
            tokio::time::sleep(std::time::Duration::from_millis(250)).await;
        }
    };
    tokio::select! {
        done = &mut migration => panic!("the table is still locked: {done:?}"),
        () = requests => {}
    }
    sqlx::Connection::close(dump).await.unwrap();
    migration.await.unwrap();
    assert_eq!(
        world.submit_and_wait(&one_prediction()).await["status"],
        "succeeded"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn older_build_accepts_newer_schema() {
    let world = world_on(&ground(), StackSize::default()).await;
    let newer = "insert into _sqlx_migrations (version, description, success, checksum, execution_time) values (9999, 'to come', true, '', 0)";
    sqlx::query(newer)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    world.stack.operate(&["migrate"]).await.unwrap();
    let api = world.stack.launch_api().unwrap();
    let worker = world.stack.launch_worker().unwrap();
    api.ready().await.unwrap();
    worker.ready().await.unwrap();
    submit_jobs(&world, &api, 2).await;
}
