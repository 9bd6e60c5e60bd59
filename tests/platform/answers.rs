//! Only the worker can read answers.

use assay_tests::databases;
use assay_tests::stack::StackSize;
use serde_json::json;

use crate::harness::{self, Expect, shared_world, shared_world_without_workers, world};

#[tokio::test(flavor = "multi_thread")]
async fn api_role_cannot_read_answers() {
    let world = shared_world().await;
    let mut api = databases::connect(&world.stack.database.api_url)
        .await
        .unwrap();
    for sql in [
        "select * from suite_answers",
        "select answer from suite_answers limit 1",
        "copy suite_answers to stdout",
        "delete from suite_answers",
    ] {
        let refused = sqlx::raw_sql(sql)
            .execute(&mut api)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("permission denied for table suite_answers"),
            "{sql}: {refused}"
        );
    }
    // Nor can it assume a role that can read them.
    for sql in [
        "set role assay_worker",
        "grant select on suite_answers to assay_api",
        "set role postgres",
    ] {
        assert!(sqlx::raw_sql(sql).execute(&mut api).await.is_err(), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn api_refuses_role_that_reads_answers() {
    let ground = harness::ground();
    let mut world = world().await;
    world.stack.database.api_url = world.stack.database.owner_url.clone();
    let api = world.stack.launch_api().unwrap();
    let refused = api.ready().await.unwrap_err().to_string();
    assert!(refused.contains("can read the answers"), "{refused}");
    assert!(
        refused.contains("in role assay_api"),
        "the message names the remedy: {refused}"
    );
    drop(ground);
}

#[tokio::test(flavor = "multi_thread")]
async fn api_refuses_role_that_can_become_worker() {
    let mut world = world().await;
    let role = format!("{}_both", world.stack.database.name);
    let make =
        format!("create role {role} login noinherit password 'x' in role assay_api, assay_worker");
    sqlx::raw_sql(sqlx::AssertSqlSafe(make))
        .execute(&mut world.database().await)
        .await
        .unwrap();
    world.stack.database.api_url =
        world
            .stack
            .ground
            .servers
            .postgres_url_as(&role, "x", &world.stack.database.name);
    let refused = world
        .stack
        .launch_api()
        .unwrap()
        .ready()
        .await
        .unwrap_err()
        .to_string();
    // Without own privileges the role cannot even read the schema version.
    assert!(
        refused.contains("can read the answers") || refused.contains("permission denied"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn old_schema_prevents_startup() {
    let world = harness::world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let mut database = world.database().await;
    sqlx::query(
        "delete from _sqlx_migrations where version = (select max(version) from _sqlx_migrations)",
    )
    .execute(&mut database)
    .await
    .unwrap();
    for process in [
        world.stack.launch_api().unwrap(),
        world.stack.launch_worker().unwrap(),
    ] {
        let error = process.ready().await.unwrap_err().to_string();
        assert!(error.contains("run assay-api migrate"), "{error}");
    }
    // A running process becomes unready.
    let url = format!("http://{}", world.stack.apis[0].admin);
    let admin = assay_tests::client::Client::new(url, None).without_retries();
    admin.get("/readyz").await.expect_status(503);
    admin.get("/livez").await.expect_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_contain_no_answers() {
    let world = shared_world().await;
    let items = world
        .key()
        .get("/v1/suites/suite:lunch/items?limit=1000")
        .await
        .unwrap();
    for item in items.body["items"].as_array().unwrap() {
        let keys: std::collections::BTreeSet<_> = item
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(keys, ["groups", "input", "item_id"].into());
    }
    let job = world
        .submit_and_wait(&json!([{"item_id": "person-00/day-0", "prediction": []}]))
        .await;
    let trace = world
        .key()
        .get(&format!("/v1/jobs/{}/trace", job["id"].as_str().unwrap()))
        .await
        .unwrap();
    assert!(!job.to_string().contains("\"answer") && !trace.body.to_string().contains("\"answer"));
}

#[tokio::test(flavor = "multi_thread")]
async fn api_refuses_grant_on_answer_column() {
    let world = harness::world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    for table in ["suite_answers (answer)", "sealed_results (value)"] {
        let (table, column) = table.split_once(' ').unwrap();
        let role = format!("{}_api", world.stack.database.name);
        let change = |verb: &str, to: &str| {
            sqlx::AssertSqlSafe(format!("{verb} select {column} on {table} {to} {role}"))
        };
        sqlx::raw_sql(change("grant", "to"))
            .execute(&mut world.database().await)
            .await
            .unwrap();
        let refused = world
            .stack
            .launch_api()
            .unwrap()
            .ready()
            .await
            .unwrap_err()
            .to_string();
        assert!(refused.contains("can read the answers"), "{refused}");
        sqlx::raw_sql(change("revoke", "from"))
            .execute(&mut world.database().await)
            .await
            .unwrap();
    }
    world.stack.launch_api().unwrap().ready().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_update_only_their_columns() {
    let world = shared_world_without_workers().await;
    let mut api = databases::connect(&world.stack.database.api_url)
        .await
        .unwrap();
    let mut worker = databases::connect(&world.stack.database.worker_url)
        .await
        .unwrap();
    for (table, columns) in [
        (
            "jobs",
            [
                "result",
                "org_id",
                "n_submitted",
                "attempts",
                "progress",
                "suite_id",
            ]
            .as_slice(),
        ),
        ("usage", &["org_id", "period_start"]),
        ("usage_ledger", &["eval_items"]),
        ("uploads", &["org_id", "sha256", "created_at", "kind"]),
        ("upload_parts", &["org_id", "upload_id"]),
        ("domain_claims", &["org_id", "domain"]),
        ("users", &["id", "created_at"]),
        (
            "orgs",
            &["plan", "created_by", "suspended_at", "deleted_at"],
        ),
        ("operator_log", &["outcome"]),
    ] {
        for column in columns {
            let sql = format!("update {table} set {column} = {column}");
            let refused = sqlx::raw_sql(sqlx::AssertSqlSafe(sql.clone()))
                .execute(&mut api)
                .await
                .unwrap_err()
                .to_string();
            assert!(
                refused.contains(&format!("permission denied for table {table}")),
                "{sql}: {refused}"
            );
        }
    }
    for sql in [
        "update jobs set org_id = org_id",
        "update jobs set n_submitted = 0",
        "update jobs set final_at = now()",
        "update usage set org_id = org_id",
        "update job_attempts set worker_id = worker_id",
        "select name from orgs",
        "update orgs set suspended_at = null",
        "select * from operator_log",
    ] {
        let refused = sqlx::raw_sql(sql)
            .execute(&mut worker)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("permission denied for table"),
            "{sql}: {refused}"
        );
    }
}
