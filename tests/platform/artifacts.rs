//! Storage for submissions and uploads: a bucket instead of a folder, and bounded memory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use assay_tests::stack::{Process, Stack, StackSize};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use serde_json::{Value, json};

use crate::harness::{
    Expect, World, ground, list_files, one_prediction, string, wait_until, world, world_with,
};
use crate::predictions::{accepted, predicted, prediction_world, uploaded_sequences};
use crate::uploads::{complete, open, put, submit, uploaded};

/// Starts an S3-compatible server on loopback with a bucket `assay`, whose upload_objects are files
/// in `folder`. The server stops with the test.
pub async fn start_s3(folder: &Path, secret: &str) -> String {
    start_failing_s3(folder, secret, Arc::new(AtomicBool::new(true))).await
}

/// Like [`start_s3`], but fails every request while `works` is false.
pub async fn start_failing_s3(folder: &Path, secret: &str, works: Arc<AtomicBool>) -> String {
    std::fs::create_dir_all(folder.join("assay")).unwrap();
    let mut service = S3ServiceBuilder::new(s3s_fs::FileSystem::new(folder).unwrap());
    service.set_auth(SimpleAuth::from_single("access", secret));
    let service = service.build();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service.clone();
            let works = Arc::clone(&works);
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let service = service.clone();
                let works = Arc::clone(&works);
                async move {
                    if !works.load(Ordering::Relaxed) {
                        return Err(std::io::Error::other("out of order"));
                    }
                    service
                        .call(request.map(s3s::Body::from))
                        .await
                        .map_err(std::io::Error::other)
                }
            });
            tokio::spawn(async move {
                let _ = auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    format!("http://{address}")
}

/// Returns a plan that stores all artifacts in a bucket at `location`.
pub fn bucket_plan(endpoint: &str, location: &str) -> StackSize {
    let env = [
        ("ASSAY_ARTIFACTS", location),
        ("AWS_ENDPOINT", endpoint),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "access"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ];
    StackSize {
        env: env
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        ..StackSize::default()
    }
}

/// Lists the names of all files under a folder that are upload_objects of uploads.
fn upload_objects(folder: &Path) -> Vec<String> {
    let names = list_files(folder)
        .into_iter()
        .map(|file| file.to_string_lossy().into_owned());
    names.filter(|name| name.contains("/upl_")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn bucket_stores_all_artifacts() {
    let folder = ground().servers.folder().join("bucket");
    let endpoint = start_s3(&folder, "secret").await;
    let world = world_with(bucket_plan(&endpoint, "s3://assay/some/place")).await;
    let inline = world.submit_and_wait(&one_prediction()).await;
    assert_eq!(inline["status"], "succeeded", "{inline}");
    let key = world.key();
    let upload_id = open(&key, json!({"kind": "predictions"})).await;
    // Large enough that the store receives it in several pieces.
    let mut lines = format!("{}\n", one_prediction()[0]);
    lines.push_str(&"\n".repeat(12 << 20));
    let (first, second) = lines.split_at(11 << 20);
    for (number, part) in [(2, "x"), (1, first), (2, second)] {
        put(&key, &upload_id, number, part.to_owned())
            .await
            .expect_status(200);
    }
    assert_eq!(
        upload_objects(&folder.join("assay/some/place")).len(),
        2,
        "the replaced part is removed"
    );
    let done = complete(&key, &upload_id).await.expect_status(200);
    assert_eq!(done.body["n_items"], 1, "{}", done.body);
    let job = world
        .wait_until_finished(&string(&submit(&key, &upload_id).await.body["id"]))
        .await;
    assert_eq!(job["result"], inline["result"]);
    key.delete(&format!("/v1/uploads/{upload_id}"))
        .await
        .expect_status(204);
    wait_until("removal", async || upload_objects(&folder).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_refuses_bucket_without_api_marker() {
    let folder = ground().servers.folder().join("other-bucket");
    let endpoint = start_s3(&folder, "secret").await;
    let mut plan = bucket_plan(&endpoint, "s3://assay/a");
    plan.workers = 0;
    let mut stack = Stack::start(&ground(), plan).await.unwrap();
    stack.set("ASSAY_ARTIFACTS", "s3://assay/b");
    let worker = stack.launch_worker().unwrap();
    assert!(worker.ready().await.is_err());
    let log = std::fs::read_to_string(&worker.log).unwrap();
    assert!(
        log.contains("s3://assay/b is not the artifact store of an API"),
        "{log}"
    );
}

/// Returns the peak resident memory of a process, in MiB.
fn peak_memory(process: &Process) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", process.guarded.pid())).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        / 1024
}

/// Returns one mebibyte of predictions for unknown items, two kilobytes each: the worst case for a
/// worker.
fn mebibyte(from: usize) -> String {
    let ranking = (0..160)
        .map(|at| format!("\"dish-{at:04}\""))
        .collect::<Vec<_>>()
        .join(",");
    let line =
        |at: usize| format!("{{\"item_id\":\"stranger-{at:012}\",\"prediction\":[{ranking}]}}\n");
    let each = line(0).len();
    let mut lines: String = (from..from + (1 << 20) / each).map(line).collect();
    lines.push_str(&" ".repeat((1 << 20) - lines.len() - 1));
    lines.push('\n');
    lines
}

/// Uploads and scores predictions with the given size. Returns the memory_growth of the API's and
/// the worker's peak memory, in MiB.
async fn memory_growth(world: &World, mebibytes: usize) -> (u64, u64) {
    let key = world.key();
    let fields = json!({"kind": "predictions"});
    let small = uploaded(&key, fields.clone(), mebibyte(0).as_bytes()).await;
    world
        .wait_until_finished(&string(&submit(&key, &small).await.body["id"]))
        .await;
    let api = &world.stack.apis[0];
    let worker = &world.stack.workers[0];
    let before = (peak_memory(api), peak_memory(worker));
    let start = std::time::Instant::now();
    let upload_id = open(&key, fields).await;
    for (at, from) in (0..mebibytes).step_by(64).enumerate() {
        let pieces =
            (from..mebibytes.min(from + 64)).map(|at| Ok::<_, std::io::Error>(mebibyte(at * 1000)));
        put(
            &key,
            &upload_id,
            at + 1,
            reqwest::Body::wrap_stream(futures_util::stream::iter(pieces)),
        )
        .await
        .expect_status(200);
    }
    let sent = start.elapsed();
    let done = complete(&key, &upload_id).await.expect_status(200);
    let completed = start.elapsed();
    let job = key
        .wait_until_finished(&string(&submit(&key, &upload_id).await.body["id"]), &|_| {})
        .await
        .unwrap();
    assert_eq!(job["result"]["n_unmatched"], done.body["n_items"], "{job}");
    let grown = (peak_memory(api) - before.0, peak_memory(worker) - before.1);
    eprintln!(
        "{mebibytes} MiB, {} predictions: sent {sent:?}, completed {:?}, scored {:?}; growth in MiB (api, worker) {grown:?}",
        done.body["n_items"],
        completed - sent,
        start.elapsed() - completed
    );
    grown
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_of_256_mib_uses_64_mib() {
    let world = world().await;
    let (api, worker) = memory_growth(&world, 256).await;
    assert!(
        api <= 64 && worker <= 64,
        "api {api} MiB, worker {worker} MiB"
    );
}

/// Run manually: `cargo test --release -p assay-tests --test platform -- --ignored --nocapture
/// gibibyte`
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a gibibyte of disk"]
async fn upload_of_one_gibibyte_uses_64_mib() {
    let world = world().await;
    let (api, worker) = memory_growth(&world, 1024).await;
    assert!(
        api <= 64 && worker <= 64,
        "api {api} MiB, worker {worker} MiB"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn prediction_of_10000_sequences_uses_32_mib() {
    let world = prediction_world(1).await;
    let key = world.key();
    let sequences = |n: usize| -> Vec<Value> {
        (0..n)
            .map(|at| {
                let events: Vec<_> = (0..100)
                    .map(|event| json!({"item_id": format!("dish-{:02}", (at + event * 5) % 24)}))
                    .collect();
                json!({"sequence_id": format!("s{at}"), "events": events})
            })
            .collect()
    };
    let small = uploaded_sequences(&key, &sequences(64)).await;
    predicted(&world, json!({"input_ref": small})).await;
    let worker = &world.stack.workers[0];
    let before = peak_memory(worker);
    let large = uploaded_sequences(&key, &sequences(10_000)).await;
    let job = accepted(&key, json!({"input_ref": large})).await;
    let job = key
        .wait_until_finished(&string(&job["id"]), &|_| {})
        .await
        .unwrap();
    assert_eq!(
        (&job["status"], &job["result"]["n"]),
        (&json!("succeeded"), &json!(10_000)),
        "{job}"
    );
    let grown = peak_memory(worker) - before;
    eprintln!("10,000 sequences of 100 events: growth of the worker {grown} MiB");
    assert!(grown <= 32, "{grown} MiB");
}
