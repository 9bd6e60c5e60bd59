//! Many concurrent streams on one port: streams on one connection block neither each other nor
//! REST. Idle and reset streams block nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use assay_proto::v1;
use assay_proto::v1::job_service_client::JobServiceClient;
use assay_proto::v1::me_service_client::MeServiceClient;
use assay_proto::v1::suite_service_client::SuiteServiceClient;
use assay_tests::stack::StackSize;
use futures_util::future::join_all;
use serde_json::json;
use tokio::net::TcpStream;
use tonic::Streaming;
use tonic::transport::Channel;

use crate::harness::{
    Expect, World, in_time, one_prediction, org, retry_unavailable_rpc, string, wait_until,
    with_token, world_with,
};

async fn world() -> World {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    world.widen_plans().await;
    world
}

/// Sends REST requests in a loop until `stop` is set, at least ten. Returns how many
/// responses arrived before `stop` was set.
async fn read(world: &World, stop: Arc<AtomicBool>) -> usize {
    let client = world.key();
    let mut meanwhile = 0;
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) || sent < 10 {
        client.get("/v1/me").await.expect_status(200);
        meanwhile += usize::from(!stop.load(Ordering::Relaxed));
        sent += 1;
    }
    meanwhile
}

#[tokio::test(flavor = "multi_thread")]
async fn hundred_streams_do_not_block_rest() {
    let world = world().await;
    let channel = world.channel().await;
    let job_id = string(&world.submit(&one_prediction()).await.body["id"]);
    let stop = Arc::new(AtomicBool::new(false));
    let calls = async {
        // Small responses, large ones, and streams that stay open, all on one connection.
        let each = (0..100).map(|i| {
            let channel = channel.clone();
            let key = &world.org.key;
            let job_id = job_id.clone();
            async move {
                for _ in 0..30 {
                    match i % 3 {
                        0 => {
                            let mut client = MeServiceClient::new(channel.clone());
                            retry_unavailable_rpc(async || {
                                client.get_me(with_token(v1::GetMeRequest {}, key)).await
                            })
                            .await;
                        }
                        1 => {
                            let request = v1::ListSuiteItemsRequest {
                                suite_id: "suite:lunch".into(),
                                cursor: None,
                                limit: Some(40),
                            };
                            let mut client = SuiteServiceClient::new(channel.clone());
                            let page = retry_unavailable_rpc(async || {
                                client
                                    .list_suite_items(with_token(request.clone(), key))
                                    .await
                            })
                            .await;
                            assert_eq!(page.items.len(), 40);
                        }
                        _ => {
                            let request = v1::WatchJobRequest {
                                job_id: job_id.clone(),
                            };
                            let mut client = JobServiceClient::new(channel.clone());
                            let update = retry_unavailable_rpc(async || {
                                let request = with_token(request.clone(), key);
                                let mut updates = client.watch_job(request).await?.into_inner();
                                updates.message().await.map(tonic::Response::new)
                            })
                            .await;
                            assert!(update.unwrap().job.is_some());
                        }
                    }
                }
            }
        });
        join_all(each).await;
        stop.store(true, Ordering::Relaxed);
    };
    let ((), meanwhile) = tokio::join!(calls, read(&world, Arc::clone(&stop)));
    println!("{meanwhile} REST responses during 3,000 calls by 100 streams");
    // Requests that wait for the streams get no response before their end.
    assert!(meanwhile > 1, "{meanwhile}");
}

/// Watches a job, and returns the stream and its first status. Retries after `UNAVAILABLE`, as
/// clients should.
async fn watch(
    channel: Channel,
    key: &str,
    job_id: &str,
) -> (Streaming<v1::WatchJobResponse>, String) {
    let mut client = JobServiceClient::new(channel);
    loop {
        let request = v1::WatchJobRequest {
            job_id: job_id.to_owned(),
        };
        let mut watch = retry_unavailable_rpc(async || {
            client.watch_job(with_token(request.clone(), key)).await
        })
        .await;
        match watch.message().await {
            Ok(first) => return (watch, first.unwrap().job.unwrap().status),
            Err(status) => assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_streams_do_not_block_others() {
    let world = world().await;
    let mut watches = Vec::new();
    let mut jobs = Vec::new();
    // An organization watches 50 jobs at once.
    for _ in 0..20 {
        let org = org(&world.stack, "team").await;
        let client = world.client(&org.key);
        let eval = json!({"suite_id": "suite:lunch", "predictions": one_prediction()});
        let submitted = client.post("/v1/evals", &eval).await.unwrap();
        let job_id = string(&submitted.body["id"]);
        let channel = world.channel().await;
        let opening = (0..50).map(|_| watch(channel.clone(), &org.key, &job_id));
        for (stream, first) in join_all(opening).await {
            assert_eq!(first, "queued");
            let again = (channel.clone(), org.key.clone(), job_id.clone());
            watches.push(last_status(stream, again));
        }
        jobs.push((client, job_id));
    }
    assert_eq!(watches.len(), 1000);
    let meanwhile = async {
        // All streams are open until the job ends.
        read(&world, Arc::new(AtomicBool::new(true))).await;
        let (client, job_id) = &jobs[0];
        let first = client.without_retries();
        // A busy API can end a stream, which is then opened again; so one more can have its place.
        wait_until("the refusal of one more stream", async || {
            let one_more = first.request("GET", &format!("/v1/jobs/{job_id}/events"));
            one_more.send().await.unwrap().status() == 503
        })
        .await;
        for (key, job_id) in &jobs {
            let path = format!("/v1/jobs/{job_id}/cancel");
            let cancelled = key.send(key.request("POST", &path)).await.unwrap();
            // A repeated request finds the job cancelled.
            assert!(matches!(cancelled.status, 200 | 409));
        }
    };
    // Every stream reports the end.
    let ((), ends) = tokio::join!(meanwhile, join_all(watches));
    assert!(ends.iter().all(|status| status == "cancelled"));
}

/// Reads a job's stream until the job has finished, and returns its last status. Opens the stream
/// again if the API ends it with `UNAVAILABLE`.
async fn last_status(
    mut stream: Streaming<v1::WatchJobResponse>,
    (channel, key, job_id): (Channel, String, String),
) -> String {
    let mut last = None;
    loop {
        match stream.message().await {
            Ok(Some(change)) => last = change.job.map(|job| job.status).or(last),
            Ok(None) => return last.unwrap(),
            Err(status) => {
                assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
                let again = watch(channel.clone(), &key, &job_id).await;
                (stream, last) = (again.0, Some(again.1));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reset_streams_do_not_block_others() {
    let world = world().await;
    let address = world.stack.apis[0].listen.unwrap();
    let mut opened = 0_u64;
    // In a loop, as the API closes such a client's connection.
    for _ in 0..20 {
        let (mut client, connection) =
            h2::client::handshake(TcpStream::connect(address).await.unwrap())
                .await
                .unwrap();
        let connection = tokio::spawn(connection);
        for _ in 0..10_000 {
            let request = http::Request::post(format!("http://{address}/assay.v1.MeService/GetMe"));
            let request = request
                .header("content-type", "application/grpc")
                .header("authorization", format!("Bearer {}", world.org.key));
            let Ok(ready) = client.clone().ready().await else {
                break;
            };
            client = ready;
            let Ok((_, mut stream)) = client.send_request(request.body(()).unwrap(), false) else {
                break;
            };
            stream.send_reset(h2::Reason::CANCEL);
            opened += 1;
        }
        drop(client);
        let ended = in_time("the end of the connection", connection)
            .await
            .unwrap();
        println!("{opened} streams so far: {ended:?}");
    }
    assert!(opened > 1000, "{opened}");
    read(&world, Arc::new(AtomicBool::new(true))).await;
    wait_until("gRPC is served", async || {
        MeServiceClient::new(world.channel().await)
            .get_me(with_token(v1::GetMeRequest {}, &world.org.key))
            .await
            .is_ok()
    })
    .await;
}
