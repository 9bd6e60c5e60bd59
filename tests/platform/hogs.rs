//! Twenty hostile organizations that use as many resources as they can, and an honest one that is
//! still served.
//!
//! `TEST_HOG_SECONDS` sets the duration: 5 s by default, 60 in a campaign. A campaign uses
//! optimized binaries. The response times are printed.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use assay_tests::client::{Client, Response};
use assay_tests::stack::StackSize;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::harness::{
    Expect, World, in_time, long_test, one_prediction, optimized_world, org, string, with_setting,
    world_with,
};

/// The hostile organization count.
const HOGS: u8 = 20;

/// Sends the request until it is not refused with 503, and counts the refusals.
async fn retry_and_count(mut send: impl AsyncFnMut() -> Response, refused: &mut u32) -> Response {
    in_time("a response other than 503", async {
        loop {
            let response = send().await;
            if response.status != 503 {
                return response;
            }
            *refused += 1;
            sleep(Duration::from_millis(100)).await;
        }
    })
    .await
}

/// The honest caller's response times, by request kind.
#[derive(Default)]
struct Times {
    reads: Vec<Duration>,
    submissions: Vec<Duration>,
    uploads: Vec<Duration>,
    refused: u32,
}

fn p99(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

/// Reads, submits and uploads in a loop.
async fn work(client: &Client, predictions: &Value, until: Instant) -> Times {
    let mut times = Times::default();
    let line = format!("{}\n", predictions[0]);
    while Instant::now() < until {
        for path in [
            "/v1/suites/suite:lunch/items?limit=50",
            "/v1/jobs?limit=5",
            "/v1/me",
        ] {
            let start = Instant::now();
            retry_and_count(async || client.get(path).await.unwrap(), &mut times.refused)
                .await
                .expect_status(200);
            times.reads.push(start.elapsed());
        }
        let start = Instant::now();
        let body = json!({"suite_id": "suite:lunch", "predictions": predictions});
        retry_and_count(
            async || client.post("/v1/evals", &body).await.unwrap(),
            &mut times.refused,
        )
        .await
        .expect_status(202);
        times.submissions.push(start.elapsed());
        let start = Instant::now();
        let new = json!({"kind": "predictions"});
        let upload = retry_and_count(
            async || client.post("/v1/uploads", &new).await.unwrap(),
            &mut times.refused,
        )
        .await
        .expect_status(201);
        let path = format!("/v1/uploads/{}", string(&upload.body["id"]));
        let part = || {
            client
                .request("PUT", &format!("{path}/parts/1"))
                .body(line.clone())
        };
        retry_and_count(
            async || client.send(part()).await.unwrap(),
            &mut times.refused,
        )
        .await
        .expect_status(200);
        let complete = || client.request("POST", &format!("{path}/complete"));
        retry_and_count(
            async || client.send(complete()).await.unwrap(),
            &mut times.refused,
        )
        .await
        .expect_status(200);
        times.uploads.push(start.elapsed());
        sleep(Duration::from_millis(20)).await;
    }
    times
}

/// Sends the headers of a request from this address, and the body at 1,100 bytes a second.
async fn trickle(api: SocketAddr, from: IpAddr, head: String) {
    loop {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        let Ok(mut stream) = socket.connect(api).await else {
            return;
        };
        if stream.write_all(head.as_bytes()).await.is_ok() {
            let piece = [b' '; 1100];
            while stream.write_all(&piece).await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        }
        sleep(Duration::from_millis(500)).await;
    }
}

/// Runs one hostile organization: parts and submissions that never complete, and as many large
/// pages as it may read.
async fn hog(api: SocketAddr, from: IpAddr, key: String, upload_id: String) {
    let mut attacks = JoinSet::new();
    for number in 1..=4 {
        let path = format!("/v1/uploads/{upload_id}/parts/{number}");
        let head = format!(
            "PUT {path} HTTP/1.1\r\nHost: assay\r\nAuthorization: Bearer {key}\r\nContent-Length: 60000000\r\n\r\n"
        );
        attacks.spawn(trickle(api, from, head));
    }
    for _ in 0..28 {
        let head = format!(
            "POST /v1/evals HTTP/1.1\r\nHost: assay\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: 5000000\r\n\r\n"
        );
        attacks.spawn(trickle(api, from, head));
    }
    let client = reqwest::Client::builder()
        .local_address(from)
        .build()
        .unwrap();
    for _ in 0..4 {
        let client = client.clone();
        let url = format!("http://{api}/v1/suites/suite:lunch/items?limit=200");
        let key = key.clone();
        attacks.spawn(async move {
            loop {
                drop(client.get(&url).bearer_auth(&key).send().await);
                // Limits the load from rejected requests: only the honest caller is measured.
                sleep(Duration::from_millis(250)).await;
            }
        });
    }
    attacks.join_all().await;
}

fn report(phase: &str, times: &mut Times) {
    let p99s = [
        p99(&mut times.reads),
        p99(&mut times.submissions),
        p99(&mut times.uploads),
    ];
    let [reads, submissions, uploads] = p99s.map(|time| time.as_millis());
    println!(
        "{phase}: p99 of {} reads {reads} ms, of {} submissions {submissions} ms, of {} uploads {uploads} ms; {} times 503",
        times.reads.len(),
        times.submissions.len(),
        times.uploads.len(),
        times.refused
    );
}

async fn hogs_of(world: &World) -> JoinSet<()> {
    let api = world.stack.apis[0].listen.unwrap();
    let mut hogs = JoinSet::new();
    for number in 0..HOGS {
        let hostile = org(&world.stack, "free").await;
        let client = world.client(&hostile.key);
        let new = json!({"kind": "predictions"});
        let upload = client.post("/v1/uploads", &new).await.unwrap();
        hogs.spawn(hog(
            api,
            IpAddr::from([127, 11, 0, number + 1]),
            hostile.key,
            string(&upload.body["id"]),
        ));
    }
    hogs
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_organizations_do_not_starve_others() {
    long_test!("runs many hostile organizations at their limits");
    let campaign = std::env::var("TEST_HOG_SECONDS")
        .ok()
        .map(|text| text.parse().unwrap());
    let time = Duration::from_secs(campaign.unwrap_or(5));
    let world = match campaign {
        Some(_) => optimized_world(StackSize::default()).await,
        None => world_with(with_setting("ASSAY_POOL_WAIT_MS", "1000")).await,
    };
    world.widen_plan("team").await;
    let key = world.key().without_retries();
    let predictions = one_prediction();
    work(&key, &predictions, Instant::now() + Duration::from_secs(1)).await;
    let mut quiet = work(&key, &predictions, Instant::now() + time).await;
    report("quiet", &mut quiet);
    let mut hogs = hogs_of(&world).await;
    // Waits until all their submissions and parts are in progress.
    sleep(Duration::from_secs(3)).await;
    let mut attacked = work(&key, &predictions, Instant::now() + time).await;
    report("attacked", &mut attacked);
    hogs.shutdown().await;
}
