//! Clients that hold memory: connections that read nothing, send slowly, or send messages that
//! expand. The process's memory stays bounded, an honest caller is served meanwhile, and the memory
//! is returned.
//!
//! `TEST_FLOOD_CONNECTIONS` and `TEST_FLOOD_SECONDS` set the attacker count for each attack kind
//! and the duration: 1000 and 60 in a campaign. With either set, the binaries are optimized, the
//! test also checks that memory is returned, and it prints the honest caller's response times.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use assay_tests::client::Client;
use assay_tests::stack::Process;
use bytes::Bytes;
use futures_util::future::join_all;
use h2::client::SendRequest;
use http::Request;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::harness::{World, long_test, one_prediction, optimized_world, with_setting, world_with};

/// The maximum resident memory of an API process in bytes: half the chart's limit.
const MEMORY_MAX: u64 = 512 * 1024 * 1024;

/// The number of times, ten a second, that the memory is read after the clients have disconnected
/// until it has returned. A fifth more than the idle process's memory may remain.
const RETURN_READS: u32 = 600;

/// The maximum gRPC message size in bytes.
const MESSAGE: usize = 5 * 1024 * 1024;

fn number_from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

fn connections() -> usize {
    number_from_env("TEST_FLOOD_CONNECTIONS").unwrap_or(100) as usize
}

fn duration() -> Duration {
    Duration::from_secs(number_from_env("TEST_FLOOD_SECONDS").unwrap_or(8))
}

fn is_campaign() -> bool {
    number_from_env("TEST_FLOOD_CONNECTIONS")
        .or(number_from_env("TEST_FLOOD_SECONDS"))
        .is_some()
}

/// Returns a process's resident memory, in bytes.
pub fn resident(process: &Process) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", process.guarded.pid())).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 1024
}

/// The data that each connection in an attack needs.
#[derive(Clone)]
struct Target {
    api: SocketAddr,
    key: Arc<str>,
    upload_id: Arc<str>,
    /// A 5 MiB message with 2.6 million empty predictions. All connections share it: a
    /// thousand copies would take the cores from the honest caller, which runs in this process.
    giant: Bytes,
}

fn giant() -> Bytes {
    let mut frame = vec![0];
    frame.extend_from_slice(&(MESSAGE as u32).to_be_bytes());
    frame.extend([0x12, 0].repeat(MESSAGE / 2));
    Bytes::from(frame)
}

/// Connects from one among many addresses.
async fn connect(target: &Target, number: usize) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    // 150 connections from each address, below the limit per address.
    socket.bind(SocketAddr::from(([127, 9, 0, 1 + (number / 150) as u8], 0)))?;
    socket.connect(target.api).await
}

/// Opens an HTTP/2 connection with this initial window, which is driven in the background.
async fn http2(target: &Target, number: usize, window: u32) -> Option<SendRequest<Bytes>> {
    let stream = connect(target, number).await.ok()?;
    let handshake = h2::client::Builder::new()
        .initial_window_size(window)
        .handshake::<_, Bytes>(stream);
    let (client, connection) = handshake.await.ok()?;
    tokio::spawn(async move { drop(connection.await) });
    client.ready().await.ok()
}

/// Sends requests without bodies until the connection accepts no more, reads no response,
/// and keeps the connection in use.
async fn read_nothing(target: Target, number: usize, path: &'static str) {
    let Some(mut client) = http2(&target, number, 0).await else {
        return;
    };
    let mut open = Vec::new();
    loop {
        while let Ok(Ok(ready)) = timeout(Duration::from_millis(500), client.clone().ready()).await
        {
            client = ready;
            let request = Request::get(format!("http://assay{path}"))
                .header("authorization", format!("Bearer {}", target.key));
            let Ok((response, _)) = client.send_request(request.body(()).unwrap(), true) else {
                return;
            };
            open.push(response);
            if open.len() % 100 == 99 {
                break;
            }
        }
        sleep(Duration::from_secs(3)).await;
        let Ok(mut ready) = client.clone().ready().await else {
            return;
        };
        let Ok(_) =
            ready.send_request(Request::head("http://assay/health").body(()).unwrap(), true)
        else {
            return;
        };
    }
}

async fn docs(target: Target, number: usize) {
    read_nothing(target, number, "/docs/swagger-ui-bundle.js").await;
}

async fn pages(target: Target, number: usize) {
    read_nothing(target, number, "/v1/suites/suite:lunch/items?limit=200").await;
}

/// Reads a large response very slowly over HTTP/1.1.
async fn read_slowly(target: Target, number: usize) {
    let Ok(mut stream) = connect(&target, number).await else {
        return;
    };
    let request = b"GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: assay\r\n\r\n";
    if stream.write_all(request).await.is_err() {
        return;
    }
    let mut some = [0; 64];
    while stream.read_exact(&mut some).await.is_ok() {
        sleep(Duration::from_secs(1)).await;
    }
}

/// Sends a submission with a credential: half at once, the rest at 2 KiB a second.
async fn send_slowly(target: Target, number: usize) {
    let Ok(mut stream) = connect(&target, number).await else {
        return;
    };
    let head = format!(
        "POST /v1/evals HTTP/1.1\r\nHost: assay\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {MESSAGE}\r\n\r\n",
        target.key
    );
    if stream.write_all(head.as_bytes()).await.is_err() {
        return;
    }
    let piece = [b' '; 100 * 1024];
    // 2.5 of 5 MB at once.
    for _ in 0..25 {
        if stream.write_all(&piece).await.is_err() {
            return;
        }
    }
    while stream.write_all(&piece[..2048]).await.is_ok() {
        sleep(Duration::from_secs(1)).await;
    }
}

/// Sends a body without a credential, at one byte a second.
async fn send_slowly_unknown(target: Target, number: usize) {
    let Ok(mut stream) = connect(&target, number).await else {
        return;
    };
    let head = "POST /v1/auth/email HTTP/1.1\r\nHost: assay\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n";
    if stream.write_all(head.as_bytes()).await.is_err()
        || stream.write_all(&[b' '; 50_000]).await.is_err()
    {
        return;
    }
    while stream.write_all(b" ").await.is_ok() {
        sleep(Duration::from_secs(1)).await;
    }
}

fn rpc(path: &str, key: &str) -> Request<()> {
    let request = Request::post(format!("http://assay{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    request
        .header("authorization", format!("Bearer {key}"))
        .body(())
        .unwrap()
}

async fn send_giants(target: Target, number: usize) {
    loop {
        let Some(mut client) = http2(&target, number, 65_535).await else {
            return;
        };
        let Ok((response, mut body)) =
            client.send_request(rpc("/assay.v1.EvalService/CreateEval", &target.key), false)
        else {
            return;
        };
        if body.send_data(target.giant.clone(), true).is_err() {
            return;
        }
        drop(timeout(Duration::from_secs(20), response).await);
        sleep(Duration::from_millis(200)).await;
    }
}

/// Opens streams and sends nothing on them.
async fn open_silent_streams(target: Target, number: usize) {
    let Some(mut client) = http2(&target, number, 65_535).await else {
        return;
    };
    let mut open = Vec::new();
    for at in 0..95 {
        let path = match at % 3 {
            0 => "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            1 => "/assay.v1.UploadService/UploadPredictions",
            _ => "/assay.v1.EvalService/CreateEval",
        };
        let Ok(Ok(ready)) = timeout(Duration::from_secs(5), client.clone().ready()).await else {
            break;
        };
        client = ready;
        let Ok(stream) = client.send_request(rpc(path, &target.key), false) else {
            return;
        };
        open.push(stream);
    }
    std::future::pending::<()>().await;
}

/// Sends an upload part: 4.6 of 60 MB at once, the rest at 2 KiB a second.
async fn send_parts(target: Target, number: usize) {
    let Ok(mut stream) = connect(&target, number).await else {
        return;
    };
    let head = format!(
        "PUT /v1/uploads/{}/parts/{} HTTP/1.1\r\nHost: assay\r\nAuthorization: Bearer {}\r\nContent-Length: 60000000\r\n\r\n",
        target.upload_id,
        number + 1,
        target.key
    );
    if stream.write_all(head.as_bytes()).await.is_err() {
        return;
    }
    let piece = [b' '; 100 * 1024];
    for _ in 0..45 {
        if stream.write_all(&piece).await.is_err() {
            return;
        }
    }
    while stream.write_all(&piece[..2048]).await.is_ok() {
        sleep(Duration::from_secs(1)).await;
    }
}

/// Acts as an honest caller: reads and submits in a loop until `ends`, and retries after 503.
/// Returns the sorted times until each request succeeded.
pub async fn honest(client: &Client, ends: impl Fn() -> bool) -> Vec<Duration> {
    let mut took = Vec::new();
    while !ends() {
        for at in 0..10 {
            let start = Instant::now();
            let response = match at {
                0 => client
                    .post(
                        "/v1/evals",
                        &json!({"suite_id": "suite:lunch", "predictions": one_prediction()}),
                    )
                    .await
                    .unwrap(),
                1..5 => client
                    .get("/v1/suites/suite:lunch/items?limit=200")
                    .await
                    .unwrap(),
                5..9 => client.get("/v1/jobs?limit=5").await.unwrap(),
                _ => client.get("/v1/me").await.unwrap(),
            };
            assert!(
                [200, 202].contains(&response.status),
                "{} {}",
                response.status,
                response.body
            );
            took.push(start.elapsed());
            sleep(Duration::from_millis(10)).await;
        }
    }
    took.sort_unstable();
    took
}

/// Returns the 99th percentile among sorted times.
pub fn p99(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() * 99 / 100]
}

/// Runs one attack kind while an honest caller works, and checks the process's memory.
async fn flood<F: Future<Output = ()> + Send + 'static>(
    world: &World,
    quiet: u64,
    attack_name: &str,
    target: &Target,
    attack: impl Fn(Target, usize) -> F,
) {
    let allowed_after = quiet + quiet / 5;
    let api = &world.stack.apis[0];
    let before = resident(api);
    // The attackers have their own threads, so that the honest caller does not wait for them.
    let machine = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let mut attackers = JoinSet::new();
    for number in 0..connections() {
        attackers.spawn_on(attack(target.clone(), number), machine.handle());
    }
    let until = Instant::now() + duration();
    let highest = async {
        let mut highest = before;
        while Instant::now() < until {
            highest = highest.max(resident(api));
            sleep(Duration::from_millis(100)).await;
        }
        highest
    };
    let key = world.key();
    let (highest, took) = tokio::join!(highest, honest(&key, || until <= Instant::now()));
    attackers.shutdown().await;
    machine.shutdown_background();
    let left = Instant::now();
    let mut after = resident(api);
    for _ in 0..RETURN_READS {
        if after <= allowed_after {
            break;
        }
        sleep(Duration::from_millis(100)).await;
        after = resident(api);
    }
    let mib = |bytes: u64| bytes >> 20;
    println!(
        "{attack_name}: {} MiB before, {} at most, {} after {:.1} s; {} honest requests, p99 {} ms",
        mib(before),
        mib(highest),
        mib(after),
        left.elapsed().as_secs_f64(),
        took.len(),
        p99(&took).as_millis()
    );
    assert!(highest < MEMORY_MAX, "{attack_name}: {} MiB", mib(highest));
    assert!(
        !is_campaign() || after <= allowed_after,
        "{attack_name}: {} MiB are still held",
        mib(after)
    );
}

/// Runs a few connections for each attack, so that the code and the files that they touch count as
/// the idle process's memory.
async fn warm_up(world: &World, target: &Target) {
    let until = Instant::now() + Duration::from_secs(1);
    honest(&world.key(), || until <= Instant::now()).await;
    let mut attackers = JoinSet::new();
    for number in 0..5 {
        attackers.spawn(docs(target.clone(), number));
        attackers.spawn(pages(target.clone(), number));
        attackers.spawn(read_slowly(target.clone(), number));
        attackers.spawn(send_slowly(target.clone(), number));
        attackers.spawn(send_slowly_unknown(target.clone(), number));
        attackers.spawn(send_giants(target.clone(), number));
        attackers.spawn(open_silent_streams(target.clone(), number));
        attackers.spawn(send_parts(target.clone(), number));
    }
    sleep(Duration::from_secs(3)).await;
    attackers.shutdown().await;
    // The allocator returns freed pages after ten seconds.
    sleep(duration() / 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_stays_bounded_under_floods() {
    long_test!("floods an API process for a minute");
    let plan = with_setting("ASSAY_CONNECTIONS_PER_ADDRESS", "200");
    let world = if is_campaign() {
        optimized_world(plan).await
    } else {
        world_with(plan).await
    };
    world.widen_plan("team").await;
    let hostile = crate::harness::org(&world.stack, "free").await;
    let client = world.client(&hostile.key);
    let upload = client
        .post("/v1/uploads", &json!({"kind": "predictions"}))
        .await
        .unwrap();
    let target = Target {
        api: world.stack.apis[0].listen.unwrap(),
        key: hostile.key.as_str().into(),
        upload_id: upload.body["id"].as_str().unwrap().into(),
        giant: giant(),
    };
    warm_up(&world, &target).await;
    let quiet = resident(&world.stack.apis[0]);
    flood(&world, quiet, "docs, nothing read", &target, docs).await;
    flood(&world, quiet, "pages, nothing read", &target, pages).await;
    flood(&world, quiet, "read slowly", &target, read_slowly).await;
    flood(&world, quiet, "sent slowly", &target, send_slowly).await;
    flood(
        &world,
        quiet,
        "sent slowly, no credential",
        &target,
        send_slowly_unknown,
    )
    .await;
    flood(&world, quiet, "giant messages", &target, send_giants).await;
    flood(
        &world,
        quiet,
        "silent streams",
        &target,
        open_silent_streams,
    )
    .await;
    flood(&world, quiet, "slow parts", &target, send_parts).await;
    let key = world.key();
    let at_work = join_all((0..20).map(|_| key.get("/v1/me"))).await;
    assert!(
        at_work
            .into_iter()
            .all(|response| response.unwrap().status == 200)
    );
}
