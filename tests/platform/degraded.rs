//! What the platform needs is away: it says so in time, loses nothing, and goes on by itself when it is back.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use assay_proto::v1;
use assay_proto::v1::me_service_client::MeServiceClient;
use assay_tests::binaries::Binaries;
use assay_tests::client::Answer;
use assay_tests::stack::Plan;
use serde_json::json;
use sqlx::Connection as _;

use crate::artifacts::{in_bucket, s3_while};
use crate::harness::{
    PATIENCE, STALL, World, code, files, ground, one_prediction, own_ground, own_ground_of, text,
    until, with_token, world_of, world_on,
};
use crate::uploads::{complete, open, put, submit};

fn assert_unavailable(answer: &Answer) {
    assert_eq!(
        (answer.status, code(answer)),
        (503, "unavailable".to_owned()),
        "{}",
        answer.body
    );
    assert!(
        answer
            .header("retry-after")
            .parse::<u32>()
            .is_ok_and(|seconds| seconds > 0),
        "{:?}",
        answer.header("retry-after")
    );
}

/// Everybody is told in two seconds that the service is not there, on both wires; whoever asks the process itself is not.
async fn assert_away(world: &World) {
    let session = world.owner();
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
        let began = Instant::now();
        let answer = session
            .send(session.request(method, path).json(&body))
            .await
            .unwrap();
        assert!(
            began.elapsed() < STALL,
            "{method} {path} took {:?}",
            began.elapsed()
        );
        assert_unavailable(&answer);
    }
    let began = Instant::now();
    let refused = MeServiceClient::new(world.channel().await)
        .get_me(with_token(v1::GetMeRequest {}, &world.org.key))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    assert!(refused.metadata().contains_key("retry-after") && began.elapsed() < STALL);
    assert_eq!(
        world.anonymous().get("/health").await.unwrap().status,
        200,
        "it asks nobody"
    );
    assert_eq!(
        (probe(world, "livez").await, probe(world, "readyz").await),
        (200, 503)
    );
}

/// What the api says to the operator's probe.
async fn probe(world: &World, path: &str) -> u16 {
    let url = format!("http://{}/{path}", world.stack.apis[0].admin);
    let asked = tokio::time::timeout(Duration::from_secs(5), reqwest::get(url)).await;
    asked.map_or(0, |answer| answer.unwrap().status().as_u16())
}

#[tokio::test(flavor = "multi_thread")]
async fn while_postgres_is_away_everybody_is_told_so_in_time_and_then_it_goes_on() {
    let Some(ground) = own_ground() else { return };
    let world = world_on(&ground, Plan::default()).await;
    let hold = world.hold_answers().await;
    let job_id = text(&world.submit(&one_prediction()).await.body["id"]);
    world.until_status(&job_id, "running").await;
    ground.servers.postgres_stop().unwrap();
    drop(hold);
    assert_away(&world).await;
    // Long enough that every lease has run out.
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_away(&world).await;
    ground.servers.postgres_start().unwrap();
    until("an answer", PATIENCE, async || {
        world.key().get("/v1/me").await.unwrap().status == 200
    })
    .await;
    assert_eq!(probe(&world, "readyz").await, 200);
    let job = world.ended(&job_id).await;
    assert_eq!(job["status"], "succeeded", "{job}");
    assert_eq!(
        world.scored(&one_prediction()).await["result"],
        job["result"]
    );
    let charged: i64 = sqlx::query_scalar("select count(*) from usage_ledger")
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(charged, 2, "each once, and nothing for what was refused");
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_that_hangs_is_as_good_as_none() {
    let Some(ground) = own_ground() else { return };
    let world = world_on(&ground, Plan::default()).await;
    world.scored(&one_prediction()).await;
    ground.servers.postgres_signal(libc::SIGSTOP).unwrap();
    let hung = async {
        let session = world.owner();
        for _ in 0..20 {
            let began = Instant::now();
            assert_unavailable(&session.get("/v1/me").await.unwrap());
            assert!(began.elapsed() < STALL, "{:?}", began.elapsed());
        }
    };
    hung.await;
    assert_eq!(probe(&world, "livez").await, 200);
    ground.servers.postgres_signal(libc::SIGCONT).unwrap();
    until("an answer", PATIENCE, async || {
        world.key().get("/v1/me").await.unwrap().status == 200
    })
    .await;
    assert_eq!(world.scored(&one_prediction()).await["status"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_object_store_is_away_nothing_is_half_accepted_and_jobs_are_tried_again() {
    let folder = ground().servers.folder().join("failing-bucket");
    let works = Arc::new(AtomicBool::new(true));
    let endpoint = s3_while(&folder, "secret", Arc::clone(&works)).await;
    let world = world_of(in_bucket(&endpoint, "s3://assay/some/place")).await;
    let key = world.key();
    let upload_id = open(&key, json!({"kind": "predictions"})).await;
    assert_eq!(
        put(&key, &upload_id, 1, format!("{}\n", one_prediction()[0]))
            .await
            .status,
        200
    );
    // A job that is accepted just before, and read just after.
    let hold = world.hold_answers().await;
    let first = text(&world.submit(&one_prediction()).await.body["id"]);
    world.until_status(&first, "running").await;
    let waiting: Vec<String> = futures_util::future::join_all(
        (0..8).map(|_| async { text(&world.submit(&one_prediction()).await.body["id"]) }),
    )
    .await;
    works.store(false, Ordering::Relaxed);
    hold.close().await.unwrap();
    let refused = world.submit_once(&one_prediction()).await;
    assert_unavailable(&refused);
    assert_unavailable(&put(&key, &upload_id, 2, "{}\n".to_owned()).await);
    assert_unavailable(&complete(&key, &upload_id).await);
    let released = "select count(*) from job_attempts where outcome = 'released'";
    until("an attempt that broke", PATIENCE, async || {
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
        let job = world.ended(job_id).await;
        assert_eq!(job["status"], "succeeded", "{job}");
        attempts += job["attempts"].as_i64().unwrap();
    }
    assert!(attempts > 9, "some were tried again");
    // What was refused goes on where it stopped.
    assert_eq!(complete(&key, &upload_id).await.status, 200);
    let job = world
        .ended(&text(&submit(&key, &upload_id).await.body["id"]))
        .await;
    assert_eq!(job["status"], "succeeded", "{job}");
    let charges: i64 = sqlx::query_scalar("select count(*) from usage_ledger")
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(charges, 10, "nothing for what was refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_disk_is_full_nothing_is_half_written() {
    // No file of this api's may be longer than a mebibyte: a longer one breaks off in the middle, as on a full disk.
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
    let world = world_on(&ground, Plan::default()).await;
    let key = world.key();
    let small = world.scored(&one_prediction()).await;
    let artifacts = ground
        .servers
        .folder()
        .join(format!("{}-artifacts", world.stack.database.name));
    let before = files(&artifacts);

    let large: Vec<_> = (0..30_000)
        .map(|i| json!({"item_id": format!("nobody-{i:08}"), "prediction": ["ramen", "curry"]}))
        .collect();
    let refused = world.submit_once(&json!(large)).await;
    assert_unavailable(&refused);
    let upload_id = open(&key, json!({"kind": "predictions"})).await;
    // One that is written at once, and one that is written in pieces.
    assert_unavailable(&put(&key, &upload_id, 1, "\n".repeat(3 << 20)).await);
    assert_unavailable(&put(&key, &upload_id, 1, "\n".repeat(12 << 20)).await);
    let upload = key.get(&format!("/v1/uploads/{upload_id}")).await.unwrap();
    assert_eq!(upload.body["parts"], json!([]), "{}", upload.body);
    let jobs = key.get("/v1/jobs").await.unwrap();
    assert_eq!(
        jobs.body["jobs"].as_array().unwrap().len(),
        1,
        "nothing was made of what was refused"
    );
    let charged: i64 = sqlx::query_scalar("select sum(eval_items)::bigint from usage")
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(charged, 1);
    let left: Vec<_> = files(&artifacts)
        .into_iter()
        .filter(|file| !before.contains(file))
        .collect();
    assert_eq!(left, Vec::<PathBuf>::new(), "no half of anything is left");

    // What finds room goes on.
    assert_eq!(
        put(&key, &upload_id, 1, format!("{}\n", one_prediction()[0]))
            .await
            .status,
        200
    );
    assert_eq!(complete(&key, &upload_id).await.status, 200);
    let job = world
        .ended(&text(&submit(&key, &upload_id).await.body["id"]))
        .await;
    assert_eq!(job["result"], small["result"], "{job}");
}
