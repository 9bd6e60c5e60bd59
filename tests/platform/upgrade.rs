//! The release before and this one, side by side on one database: what an upgrade without a pause goes through.

use std::path::Path;
use std::process::Command;

use assay_tests::binaries;
use assay_tests::client::Client;
use assay_tests::servers::Servers;
use assay_tests::stack::{Ground, Plan, Process, operate};
use serde_json::json;

use crate::clients::{Missing, made};
use crate::harness::{PATIENCE, STALL, World, ground, one_prediction, text, world_on};

/// The commit before: where this branch left main, or the last one but one; none where the history does not go back to it, or
/// where `TEST_UPGRADE` does not ask for it, because its build takes minutes. `TEST_BEFORE` asks for another one.
fn before() -> Option<String> {
    if let Ok(named) = std::env::var("TEST_BEFORE") {
        return Some(named);
    }
    std::env::var_os("TEST_UPGRADE")?;
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
            .args(arguments)
            .output()
            .ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let head = git(&["rev-parse", "HEAD"])?;
    git(&["merge-base", "HEAD", "origin/main"])
        .filter(|base| *base != head)
        .or_else(|| git(&["rev-parse", "--verify", "HEAD~1"]))
}

/// Jobs that are submitted at this api, and end well.
async fn flow(world: &World, api: &Process, jobs: usize) {
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
            .unwrap();
        assert_eq!(queued.status, 202, "{}", queued.body);
        ids.push(text(&queued.body["id"]));
    }
    for id in ids {
        let job = key.finished(&id, PATIENCE, &|_| {}).await.unwrap();
        assert_eq!(
            (&job["status"], &job["attempts"]),
            (&json!("succeeded"), &json!(1)),
            "{job}"
        );
        assert_eq!(
            key.get(&format!("/v1/jobs/{id}/trace"))
                .await
                .unwrap()
                .status,
            200
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_release_before_and_this_one_work_side_by_side_on_one_database() {
    let new = ground().binaries.clone();
    let Some(before) = before() else {
        eprintln!(
            "SKIPPED: TEST_UPGRADE=1 does not ask for it, or the history has no commit before this one"
        );
        return;
    };
    let Some(old) =
        made(move || binaries::build_of(&before).map_err(|trouble| Missing(trouble.to_string())))
            .await
    else {
        return;
    };
    let servers = Servers::start(&|line| eprintln!("{line}")).unwrap();
    // The release before, with its own schema.
    let ground = std::sync::Arc::new(Ground::new(servers, old));
    let mut world = world_on(&ground, Plan::default()).await;
    world.widen_plans().await;
    flow(&world, &world.stack.apis[0], 5).await;
    // Its processes go on when the schema is this one's.
    operate(&new.api, &world.stack.operator_env(), &["migrate"])
        .await
        .unwrap();
    flow(&world, &world.stack.apis[0], 5).await;
    // This one's come beside them: whoever takes a submission, whoever scores it.
    let (api, worker) = (
        world.stack.launch_as_api(&new.api).unwrap(),
        world.stack.launch_as_worker(&new.worker).unwrap(),
    );
    api.ready().await.unwrap();
    worker.ready().await.unwrap();
    tokio::join!(
        flow(&world, &world.stack.apis[0], 20),
        flow(&world, &api, 20)
    );
    let by: i64 = sqlx::query_scalar("select count(distinct worker_id) from job_attempts")
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(by, 2, "both workers had a part");
    // What one has taken, the other scores.
    world.stack.workers.clear();
    flow(&world, &world.stack.apis[0], 5).await;
    let old_worker = world.stack.launch_worker().unwrap();
    old_worker.ready().await.unwrap();
    drop(worker);
    flow(&world, &api, 5).await;
    // The release before leaves while callers go on; then this one is alone.
    let worker = world.stack.launch_as_worker(&new.worker).unwrap();
    worker.ready().await.unwrap();
    let leaving = async {
        for process in [&world.stack.apis[0], &old_worker] {
            process.guarded.stop();
        }
    };
    tokio::join!(flow(&world, &api, 20), leaving);
    world.stack.apis.clear();
    flow(&world, &api, 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_waits_for_who_holds_a_table_and_nobody_waits_behind_it() {
    let world = world_on(&ground(), Plan::default()).await;
    let mut database = world.database().await;
    // As it was before the newest column.
    sqlx::raw_sql(
        "alter table jobs drop column span_id; delete from _sqlx_migrations where version = 16",
    )
    .execute(&mut database)
    .await
    .unwrap();
    let mut dump = world.database().await;
    sqlx::raw_sql("begin; lock table jobs in access share mode")
        .execute(&mut dump)
        .await
        .unwrap();
    let (api, env) = (ground().binaries.api.clone(), world.stack.operator_env());
    let migration = tokio::spawn(async move { operate(&api, &env, &["migrate"]).await });
    for _ in 0..20 {
        let began = std::time::Instant::now();
        assert_eq!(world.key().get("/v1/jobs").await.unwrap().status, 200);
        assert!(began.elapsed() < STALL);
        tokio::time::sleep(std::time::Duration::from_millis(250)).await;
    }
    assert!(!migration.is_finished(), "it cannot have the table yet");
    sqlx::Connection::close(dump).await.unwrap();
    migration.await.unwrap().unwrap();
    assert_eq!(world.scored(&one_prediction()).await["status"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_takes_a_schema_that_is_newer_than_itself() {
    let world = world_on(&ground(), Plan::default()).await;
    let newer = "insert into _sqlx_migrations (version, description, success, checksum, execution_time) values (9999, 'to come', true, '', 0)";
    sqlx::query(newer)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    world.stack.operate(&["migrate"]).await.unwrap();
    let (api, worker) = (
        world.stack.launch_api().unwrap(),
        world.stack.launch_worker().unwrap(),
    );
    api.ready().await.unwrap();
    worker.ready().await.unwrap();
    flow(&world, &api, 2).await;
}
