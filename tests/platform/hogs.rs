//! Twenty organizations that take all that they can, and one that works as people do: it gets what it asks for.
//!
//! `TEST_HOG_SECONDS` sets how long: 5 s unless it is given, 60 in a campaign, whose binaries are optimized, and which also holds the
//! ratio of the times.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use assay_tests::client::{Answer, Client};
use assay_tests::stack::Plan;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::harness::{
    World, one_prediction, optimized_world_of, org, retry_unavailable, text, with, world_of,
};

/// The number of hostile organizations.
const HOGS: u8 = 20;

/// Sends the request again after 503, and counts how often.
async fn insist(mut send: impl AsyncFnMut() -> Answer, refused: &mut u32) -> Answer {
    let counted = async || {
        let response = send().await;
        *refused += u32::from(response.status == 503);
        response
    };
    retry_unavailable(counted).await
}

/// The times of an honest caller, by what it did.
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

/// Reads, submits and uploads, again and again.
async fn work(client: &Client, predictions: &Value, until: Instant) -> Times {
    let mut times = Times::default();
    let line = format!("{}\n", predictions[0]);
    while Instant::now() < until {
        for path in [
            "/v1/suites/suite:lunch/items?limit=50",
            "/v1/jobs?limit=5",
            "/v1/me",
        ] {
            let began = Instant::now();
            let answer = insist(async || client.get(path).await.unwrap(), &mut times.refused).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.body);
            times.reads.push(began.elapsed());
        }
        let began = Instant::now();
        let body = json!({"suite_id": "suite:lunch", "predictions": predictions});
        let answer = insist(
            async || client.post("/v1/evals", &body).await.unwrap(),
            &mut times.refused,
        )
        .await;
        assert_eq!(answer.status, 202, "{}", answer.body);
        times.submissions.push(began.elapsed());
        let began = Instant::now();
        let new = json!({"kind": "predictions"});
        let upload = insist(
            async || client.post("/v1/uploads", &new).await.unwrap(),
            &mut times.refused,
        )
        .await;
        assert_eq!(upload.status, 201, "{}", upload.body);
        let path = format!("/v1/uploads/{}", text(&upload.body["id"]));
        let part = || {
            client
                .request("PUT", &format!("{path}/parts/1"))
                .body(line.clone())
        };
        let sent = insist(
            async || client.send(part()).await.unwrap(),
            &mut times.refused,
        )
        .await;
        assert_eq!(sent.status, 200, "{}", sent.body);
        let complete = || client.request("POST", &format!("{path}/complete"));
        let completed = insist(
            async || client.send(complete()).await.unwrap(),
            &mut times.refused,
        )
        .await;
        assert_eq!(completed.status, 200, "{}", completed.body);
        times.uploads.push(began.elapsed());
        sleep(Duration::from_millis(20)).await;
    }
    times
}

/// Sends the beginning of a request from this address, and the rest as slowly as it may come.
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

/// One hostile organization: parts and submissions that do not end, and as many large pages as it may have.
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
        let (client, url, key) = (
            client.clone(),
            format!("http://{api}/v1/suites/suite:lunch/items?limit=200"),
            key.clone(),
        );
        attacks.spawn(async move {
            loop {
                drop(client.get(&url).bearer_auth(&key).send().await);
                // As long as it is refused it asks less often; it is another who is measured.
                sleep(Duration::from_millis(250)).await;
            }
        });
    }
    attacks.join_all().await;
}

fn report(told: &str, times: &mut Times) -> [Duration; 3] {
    let p99s = [
        p99(&mut times.reads),
        p99(&mut times.submissions),
        p99(&mut times.uploads),
    ];
    let [reads, submissions, uploads] = p99s.map(|time| time.as_millis());
    println!(
        "{told}: p99 of {} reads {reads} ms, of {} submissions {submissions} ms, of {} uploads {uploads} ms; {} times 503",
        times.reads.len(),
        times.submissions.len(),
        times.uploads.len(),
        times.refused
    );
    p99s
}

async fn hogs_of(world: &World) -> JoinSet<()> {
    let api = world.stack.apis[0].listen.unwrap();
    let mut hogs = JoinSet::new();
    for number in 0..HOGS {
        let hostile = org(&world.stack, "free").await;
        let (client, new) = (world.client(&hostile.key), json!({"kind": "predictions"}));
        let upload =
            retry_unavailable(async || client.post("/v1/uploads", &new).await.unwrap()).await;
        hogs.spawn(hog(
            api,
            IpAddr::from([127, 11, 0, number + 1]),
            hostile.key,
            text(&upload.body["id"]),
        ));
    }
    hogs
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_greedy_organizations_leave_room_for_one_that_works() {
    let campaign = std::env::var("TEST_HOG_SECONDS")
        .ok()
        .map(|text| text.parse().unwrap());
    let time = Duration::from_secs(campaign.unwrap_or(5));
    let world = match campaign {
        Some(_) => optimized_world_of(Plan::default()).await,
        None => world_of(with("ASSAY_POOL_WAIT_MS", "1000")).await,
    };
    world.widen_plan("team").await;
    let (key, predictions) = (world.key(), one_prediction());
    work(&key, &predictions, Instant::now() + Duration::from_secs(1)).await;
    let mut quiet = work(&key, &predictions, Instant::now() + time).await;
    let quiet = report("quiet", &mut quiet);
    let mut hogs = hogs_of(&world).await;
    // All their submissions and parts are under way.
    sleep(Duration::from_secs(3)).await;
    let mut attacked = work(&key, &predictions, Instant::now() + time).await;
    let attacked = report("attacked", &mut attacked);
    hogs.shutdown().await;
    if campaign.is_some() {
        for (quiet, attacked) in quiet.into_iter().zip(attacked) {
            assert!(
                attacked <= quiet.max(Duration::from_millis(10)) * 3,
                "{quiet:?} became {attacked:?}"
            );
        }
    }
}
