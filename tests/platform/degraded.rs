//! Unavailable dependencies: the platform returns 503 in time, loses nothing, and recovers by
//! itself.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use assay_proto::v1;
use assay_proto::v1::me_service_client::MeServiceClient;
use assay_tests::binaries::Binaries;
use assay_tests::client::Response;
use assay_tests::stack::StackSize;
use serde_json::json;
use sqlx::Connection as _;

use crate::artifacts::{bucket_plan, start_failing_s3};
use crate::harness::{
    Expect, World, ground, in_time, large_prediction, list_files, long_test, one_prediction,
    own_ground, own_ground_of, pause, string, wait_until, with_token, world_on, world_with,
};
use crate::uploads::{complete, open, put, submit};

fn assert_unavailable(response: &Response) {
    response.expect_error(503, "unavailable");
    assert!(
        response
            .header("retry-after")
            .parse::<u32>()
            .is_ok_and(|seconds| seconds > 0),
        "{:?}",
        response.header("retry-after")
    );
}

/// Checks that every request returns 503 over REST and gRPC while the database is unavailable, and
/// that the process's own endpoints still respond.
async fn assert_database_unavailable(world: &World) {
    let session = world.owner().without_retries();
    let cases = [
        ("GET", "/v1/me", json!(null)),
        ("GET", "/v1/jobs", json!(null)),
        ("GET", "/v1/jobs/job_0000000000000000000000", json!(null)),
        (
            "POST",
            "/v1/evals",
            json!({"suite_id": "suite:lunch", "predictions": one_prediction()}),
        ),
        ("POST", "/v1/keys", json!({"name": "x"})),
        (
            "POST",
            "/v1/auth/email",
            json!({"email": "ada@example.org"}),
        ),
    ];
    for (method, path, body) in cases {
        let response = session
            .send(session.request(method, path).json(&body))
            .await
            .unwrap();
        assert_unavailable(&response);
    }
    let mut client = MeServiceClient::new(world.channel().await);
    let request = with_token(v1::GetMeRequest {}, &world.org.key);
    let refused = in_time("a gRPC response", client.get_me(request))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    assert!(refused.metadata().contains_key("retry-after"));
    // It uses no dependency.
    world.anonymous().get("/health").await.expect_status(200);
    assert_eq!(
        (probe(world, "livez").await, probe(world, "readyz").await),
        (200, 503)
    );
}

/// Returns a probe's status on the API's admin port.
async fn probe(world: &World, path: &str) -> u16 {
    let url = format!("http://{}/{path}", world.stack.apis[0].admin);
    let response = in_time("a response of the admin port", reqwest::get(url)).await;
    response.unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_postgres_returns_503_then_recovers() {
    let Some(ground) = own_ground() else { return };
    let world = world_on(&ground, StackSize::default()).await;
    let hold = world.hold_answers().await;
    let job_id = string(&world.submit(&one_prediction()).await.body["id"]);
    world.wait_for_status(&job_id, "running").await;
    ground.servers.postgres_stop().unwrap();
    drop(hold);
    assert_database_unavailable(&world).await;
    // Long enough for every lease to expire.
    pause("all leases to expire", Duration::from_secs(11)).await;
    assert_database_unavailable(&world).await;
    ground.servers.postgres_start().unwrap();
    wait_until("recovery", async || {
        world.key().get("/v1/me").await.unwrap().status == 200
    })
    .await;
    assert_eq!(probe(&world, "readyz").await, 200);
    let job = world.wait_until_finished(&job_id).await;
    assert_eq!(job["status"], "succeeded", "{job}");
    assert_eq!(
        world.submit_and_wait(&one_prediction()).await["result"],
        job["result"]
    );
    let charged: i64 = sqlx::query_scalar("select count(*) from usage_ledger")
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(
        charged, 2,
        "each job is charged once, and rejected submissions are not charged"
    );
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn unresponsive_postgres_returns_503() {
    long_test!("waits for the timeouts of statements");
    let Some(ground) = own_ground() else { return };
    let world = world_on(&ground, StackSize::default()).await;
    world.submit_and_wait(&one_prediction()).await;
    ground.servers.postgres_signal(libc::SIGSTOP).unwrap();
    let unresponsive = async {
        let session = world.owner().without_retries();
        for _ in 0..20 {
            assert_unavailable(&session.get("/v1/me").await.unwrap());
        }
    };
    unresponsive.await;
    assert_eq!(probe(&world, "livez").await, 200);
    ground.servers.postgres_signal(libc::SIGCONT).unwrap();
    wait_until("recovery", async || {
        world.key().get("/v1/me").await.unwrap().status == 200
    })
    .await;
    assert_eq!(
        world.submit_and_wait(&one_prediction()).await["status"],
        "succeeded"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_object_store_retries_jobs() {
    let folder = ground().servers.folder().join("failing-bucket");
    let works = Arc::new(AtomicBool::new(true));
    let endpoint = start_failing_s3(&folder, "secret", Arc::clone(&works)).await;
    let world = world_with(bucket_plan(&endpoint, "s3://assay/some/place")).await;
    let key = world.key();
    let upload_id = open(&key, json!({"kind": "predictions"})).await;
    put(&key, &upload_id, 1, format!("{}\n", one_prediction()[0]))
        .await
        .expect_status(200);
    // Jobs that are accepted before the outage, and read after it.
    let hold = world.hold_answers().await;
    let first = string(&world.submit(&large_prediction()).await.body["id"]);
    world.wait_for_status(&first, "running").await;
    let waiting: Vec<String> = futures_util::future::join_all(
        (0..8).map(|_| async { string(&world.submit(&large_prediction()).await.body["id"]) }),
    )
    .await;
    works.store(false, Ordering::Relaxed);
    hold.close().await.unwrap();
    let refused = world.submit_once(&large_prediction()).await;
    assert_unavailable(&refused);
    let key = key.without_retries();
    assert_unavailable(&put(&key, &upload_id, 2, "{}\n".to_owned()).await);
    assert_unavailable(&complete(&key, &upload_id).await);
    let released = "select count(*) from job_attempts where outcome = 'released'";
    wait_until("requeued attempt", async || {
        sqlx::query_scalar::<_, i64>(released)
            .fetch_one(&mut world.database().await)
            .await
            .unwrap()
            > 0
    })
    .await;
    works.store(true, Ordering::Relaxed);
    let mut attempts = 0;
    for job_id in waiting.iter().chain([&first]) {
        let job = world.wait_until_finished(job_id).await;
        assert_eq!(job["status"], "succeeded", "{job}");
        attempts += job["attempts"].as_i64().unwrap();
    }
    assert!(attempts > 9, "some jobs were retried");
    // A rejected upload can continue.
    complete(&key, &upload_id).await.expect_status(200);
    let job = world
        .wait_until_finished(&string(&submit(&key, &upload_id).await.body["id"]))
        .await;
    assert_eq!(job["status"], "succeeded", "{job}");
    let charges: i64 = sqlx::query_scalar("select count(*) from usage_ledger")
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(charges, 10, "rejected submissions are not charged");
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_writes_nothing_partial() {
    // Limits each file's size that this API writes to 1 MiB. A longer write fails in the
    // middle, as on a full disk.
    let binaries = ground().binaries.clone();
    let api = ground().servers.folder().join("api-short-of-room");
    let script = format!(
        "#!/bin/sh\ntrap '' XFSZ\nulimit -f 2048\nexec '{}' \"$@\"\n",
        binaries.api.display()
    );
    std::fs::write(&api, script).unwrap();
    std::fs::set_permissions(&api, std::fs::Permissions::from_mode(0o755)).unwrap();
    let Some(ground) = own_ground_of(Binaries { api, ..binaries }) else {
        return;
    };
    let world = world_on(&ground, StackSize::default()).await;
    let key = world.key().without_retries();
    let small = world.submit_and_wait(&one_prediction()).await;
    let artifacts = ground
        .servers
        .folder()
        .join(format!("{}-artifacts", world.stack.database.name));
    let before = list_files(&artifacts);

    let large: Vec<_> = (0..30_000)
        .map(|i| json!({"item_id": format!("nobody-{i:08}"), "prediction": ["ramen", "curry"]}))
        .collect();
    let refused = world.submit_once(&json!(large)).await;
    assert_unavailable(&refused);
    let upload_id = open(&key, json!({"kind": "predictions"})).await;
    // The first is written at once, the second in pieces.
    assert_unavailable(&put(&key, &upload_id, 1, "\n".repeat(3 << 20)).await);
    assert_unavailable(&put(&key, &upload_id, 1, "\n".repeat(12 << 20)).await);
    let upload = key.get(&format!("/v1/uploads/{upload_id}")).await.unwrap();
    assert_eq!(upload.body["parts"], json!([]), "{}", upload.body);
    let jobs = key.get("/v1/jobs").await.unwrap();
    assert_eq!(
        jobs.body["jobs"].as_array().unwrap().len(),
        1,
        "a rejected submission creates no job"
    );
    let charged: i64 = sqlx::query_scalar("select sum(eval_items)::bigint from usage")
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(charged, 1);
    let left: Vec<_> = list_files(&artifacts)
        .into_iter()
        .filter(|file| !before.contains(file))
        .collect();
    assert_eq!(left, Vec::<PathBuf>::new(), "no partial file is left");

    // A smaller write succeeds.
    put(&key, &upload_id, 1, format!("{}\n", one_prediction()[0]))
        .await
        .expect_status(200);
    complete(&key, &upload_id).await.expect_status(200);
    let job = world
        .wait_until_finished(&string(&submit(&key, &upload_id).await.body["id"]))
        .await;
    assert_eq!(job["result"], small["result"], "{job}");
}
