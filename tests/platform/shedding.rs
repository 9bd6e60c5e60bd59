//! Overload: no organization exhausts shared resources, overdue requests are rejected before they
//! start, jobs can always be read and cancelled, and slow or idle connections are closed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use assay_proto::v1;
use assay_proto::v1::job_service_client::JobServiceClient;
use assay_tests::client::{Client, Response};
use assay_tests::stack::StackSize;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::harness::{
    Expect, Org, World, in_time, long_test, one_prediction, org, string, wait_until, with_setting,
    with_token, world_with,
};

/// Maximum request count of one organization in progress: half the seven connections to
/// PostgreSQL that serve such requests.
const IN_PROGRESS_MAX: i64 = 4;

/// Counts the requests that create keys and are blocked by [`hold`]: one waits for the
/// organization's row, the others for the lock that serializes the creation of keys.
const BLOCKED: &str = "select count(*) from pg_stat_activity
    where datname = current_database() and wait_event_type = 'Lock'
      and (query like '%insert into api_keys%' or query like '%keys of %')";

async fn world() -> World {
    world_with(StackSize {
        workers: 0,
        ..with_setting("ASSAY_POOL_WAIT_MS", "200")
    })
    .await
}

/// Locks these organizations until the returned connection is closed, so that creating a key
/// blocks.
async fn hold(world: &World, orgs: &[&Org]) -> PgConnection {
    let mut database = world.database().await;
    sqlx::raw_sql("begin").execute(&mut database).await.unwrap();
    let ids: Vec<&str> = orgs.iter().map(|org| org.id.as_str()).collect();
    sqlx::query("select from orgs where id = any($1) for update")
        .bind(ids)
        .execute(&mut database)
        .await
        .unwrap();
    database
}

/// Sends concurrent requests that create keys, and returns the first response to each.
async fn make_keys(client: Client, count: usize) -> Vec<Response> {
    let client = client.without_retries();
    let body = json!({"name": "one of many"});
    let made = join_all((0..count).map(|_| client.post("/v1/keys", &body))).await;
    made.into_iter().map(Result::unwrap).collect()
}

fn assert_saturated(response: &Response) {
    response.expect_error(503, "unavailable");
    assert_eq!(response.header("retry-after"), "1", "{}", response.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn blocked_org_does_not_delay_others() {
    // Others may wait for a connection because the machine is busy.
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let other = org(&world.stack, "team").await;
    let held = hold(&world, &[&world.org]).await;
    let mut database = world.database().await;
    let stuck = tokio::spawn(make_keys(world.owner(), 60));
    let observed = tokio::spawn(async move {
        let mut in_progress_max = 0;
        while !stuck.is_finished() {
            let in_progress: i64 = sqlx::query_scalar(BLOCKED)
                .fetch_one(&mut database)
                .await
                .unwrap();
            in_progress_max = in_progress_max.max(in_progress);
            sleep(Duration::from_millis(20)).await;
        }
        (stuck.await.unwrap(), in_progress_max)
    });
    sleep(Duration::from_millis(300)).await;
    for _ in 0..10 {
        assert_eq!(
            make_keys(world.client(&other.session), 1).await[0].status,
            201
        );
    }
    let (refused, in_progress_max) = observed.await.unwrap();
    assert!(
        (1..=IN_PROGRESS_MAX).contains(&in_progress_max),
        "{in_progress_max} requests were in progress at once"
    );
    refused.iter().for_each(assert_saturated);
    let saturated = |response: &Response| {
        response.body["error"]["message"]
            .to_string()
            .contains("requests of your organization are in progress")
    };
    assert!(
        refused.iter().any(saturated),
        "no request was rejected before it started"
    );
    held.close().await.unwrap();
    assert_eq!(make_keys(world.owner(), 1).await[0].status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn saturated_api_still_reads_and_cancels_jobs() {
    let world = world().await;
    let second = org(&world.stack, "team").await;
    let third = org(&world.stack, "team").await;
    let asking = org(&world.stack, "team").await;
    let client = world.client(&asking.key);
    let body = json!({"suite_id": "suite:lunch", "predictions": one_prediction()});
    let job_id = string(&client.post("/v1/evals", &body).await.unwrap().body["id"]);
    let channel = world.channel().await;
    let held = hold(&world, &[&world.org, &second, &third]).await;
    // A blocked request ends after two seconds, so they are repeated.
    let saturates = Arc::new(AtomicBool::new(true));
    let stuck = [&world.org, &second, &third].map(|org| {
        let (client, saturates) = (world.client(&org.session), Arc::clone(&saturates));
        tokio::spawn(async move {
            let mut refused = Vec::new();
            while saturates.load(Ordering::Relaxed) {
                refused.extend(make_keys(client.clone(), 40).await);
            }
            refused
        })
    });
    // The session is looked up with the connections of other requests.
    let by_session = world.client(&asking.session).without_retries();
    let saturation = async || {
        wait_until("saturation", async || {
            let response = by_session.get("/v1/me").await.unwrap();
            if response.status == 503 {
                assert_saturated(&response);
            }
            response.status == 503
        })
        .await;
    };
    saturation().await;
    let path = format!("/v1/jobs/{job_id}");
    assert_eq!(client.get(&path).await.unwrap().body["status"], "queued");
    client.get("/v1/jobs").await.expect_status(200);
    let ask = with_token(
        v1::GetJobRequest {
            job_id: job_id.clone(),
            wait: None,
        },
        &asking.key,
    );
    let mut jobs = JobServiceClient::new(channel);
    in_time("the job over gRPC", jobs.get_job(ask))
        .await
        .unwrap();
    let cancelled = client
        .send(client.request("POST", &format!("{path}/cancel")))
        .await
        .expect_status(200);
    assert_eq!(cancelled.body["status"], "cancelled");
    saturation().await;
    client.get("/v1/me").await.expect_status(200);
    saturates.store(false, Ordering::Relaxed);
    for stuck in stuck {
        stuck.await.unwrap().iter().for_each(assert_saturated);
    }
    held.close().await.unwrap();
    world
        .client(&asking.session)
        .get("/v1/me")
        .await
        .expect_status(200);
}

/// Opens a TCP connection to the API.
async fn connect(world: &World) -> TcpStream {
    TcpStream::connect(world.stack.apis[0].listen.unwrap())
        .await
        .unwrap()
}

/// Sends bytes and returns the first part of the response.
async fn send_and_receive(stream: &mut TcpStream, head: &str) -> String {
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut response = vec![0; 64 * 1024];
    let length = in_time("a response", stream.read(&mut response))
        .await
        .unwrap();
    String::from_utf8_lossy(&response[..length]).into_owned()
}

/// Waits until the server closes a connection on which `byte` is sent each second.
async fn closed(what: &str, stream: TcpStream, byte: Option<&'static str>) {
    let (mut read, mut write) = stream.into_split();
    let sending = async {
        while let Some(byte) = byte {
            sleep(Duration::from_secs(1)).await;
            if write.write_all(byte.as_bytes()).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    let mut rest = Vec::new();
    in_time(what, async {
        tokio::select! {
            // A reset ends the connection, too.
            _ = read.read_to_end(&mut rest) => {}
            () = sending => {}
        }
    })
    .await;
}

const HEALTH: &str = "GET /health HTTP/1.1\r\nHost: assay\r\n\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn slow_and_idle_connections_are_closed() {
    long_test!("waits until idle connections are closed, after 75 s");
    let world = &world().await;
    // Slow connections are closed after at most 30 s, idle ones after 75 s. So the order of their
    // ends shows which timeout closed them.
    let ends = Mutex::new(Vec::new());
    let ended = |what| ends.lock().unwrap().push(what);
    let (headers_timeout, mut after_headers_timeout) = tokio::sync::watch::channel(false);
    let mut before_slow_head = headers_timeout.subscribe();
    let silent = async {
        closed("no bytes are sent", connect(world).await, None).await;
        ended("silent");
        headers_timeout.send_replace(true);
    };
    let slow_head = async {
        let mut stream = connect(world).await;
        stream
            .write_all(b"GET /health HTTP/1.1\r\nX: ")
            .await
            .unwrap();
        closed("request headers arrive byte by byte", stream, Some("x")).await;
        ended("slow");
    };
    let slow_second_head = async {
        let mut stream = connect(world).await;
        assert!(
            send_and_receive(&mut stream, HEALTH)
                .await
                .starts_with("HTTP/1.1 200")
        );
        before_slow_head.wait_for(|is_over| *is_over).await.unwrap();
        stream.write_all(b"G").await.unwrap();
        let what = "the second request's headers arrive byte by byte";
        closed(what, stream, Some("x")).await;
        ended("slow");
    };
    let slow_body = async {
        let mut stream = connect(world).await;
        let key = &world.org.session;
        let head = format!(
            "POST /v1/keys HTTP/1.1\r\nHost: assay\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n "
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        closed("a body arrives byte by byte", stream, Some(" ")).await;
        ended("slow");
    };
    let idle = async {
        let mut stream = connect(world).await;
        assert!(
            send_and_receive(&mut stream, HEALTH)
                .await
                .starts_with("HTTP/1.1 200")
        );
        // An idle connection outlives the timeout of request headers.
        after_headers_timeout
            .wait_for(|is_over| *is_over)
            .await
            .unwrap();
        assert!(
            send_and_receive(&mut stream, HEALTH)
                .await
                .starts_with("HTTP/1.1 200")
        );
        closed("an idle connection", stream, None).await;
        ended("idle");
    };
    let idle_http2 = async {
        idle_http2(world).await;
        ended("idle HTTP/2");
    };
    let unread = async {
        assert_unread_stream_is_reset(world).await;
        ended("slow");
    };
    let all = async {
        tokio::join!(
            silent,
            slow_head,
            slow_second_head,
            slow_body,
            idle,
            idle_http2,
            unread
        );
    };
    // Sends a request each second. The connection is older than all others, and outlives them.
    let used = async {
        let mut stream = connect(world).await;
        loop {
            let response = send_and_receive(&mut stream, HEALTH).await;
            assert!(response.starts_with("HTTP/1.1 200"), "{response}");
            sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        biased;
        () = used => {}
        () = all => {}
    }
    let ends = ends.into_inner().unwrap();
    let idle = ends.iter().position(|end| *end == "idle").unwrap();
    let closed_before = |what| ends[..idle].iter().filter(|end| **end == what).count();
    assert_eq!(
        (closed_before("silent"), closed_before("slow")),
        (1, 4),
        "{ends:?}"
    );
    let silent = ends.iter().position(|end| *end == "silent");
    let idle_http2 = ends.iter().position(|end| *end == "idle HTTP/2");
    assert!(silent < idle_http2, "{ends:?}");
    world.key().get("/v1/me").await.expect_status(200);
}

/// Asserts that the server sends GOAWAY on an idle HTTP/2 connection and closes it.
async fn idle_http2(world: &World) {
    let (mut client, connection) = h2::client::handshake(connect(world).await).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::get("http://assay/health").body(()).unwrap();
    let (response, _) = client.send_request(request, true).unwrap();
    assert_eq!(response.await.unwrap().status(), 200);
    // Dropping the handle would close the connection.
    in_time("the end of an idle HTTP/2 connection", connection)
        .await
        .unwrap()
        .unwrap();
    drop(client);
}

/// Asserts that a client that watches a job without reading is disconnected, and that a reading
/// client is not.
async fn assert_unread_stream_is_reset(world: &World) {
    let job_id = string(&world.submit(&one_prediction()).await.body["id"]);
    let watch = v1::WatchJobRequest { job_id };
    let mut reads = JobServiceClient::new(world.channel().await)
        .watch_job(with_token(watch.clone(), &world.org.key))
        .await
        .unwrap()
        .into_inner();
    let message = prost::Message::encode_to_vec(&watch);
    let mut body = vec![0];
    body.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend_from_slice(&message);
    let (client, connection) = h2::client::Builder::new()
        .initial_window_size(8)
        .handshake::<_, bytes::Bytes>(connect(world).await)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::post("http://assay/assay.v1.JobService/WatchJob")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("authorization", format!("Bearer {}", world.org.key))
        .body(())
        .unwrap();
    let (response, mut send) = client
        .ready()
        .await
        .unwrap()
        .send_request(request, false)
        .unwrap();
    send.send_data(body.into(), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    let reset = async {
        loop {
            if let Err(error) = body.data().await.unwrap() {
                return error.reason();
            }
        }
    };
    let reason = in_time("the reset of an unread response", reset).await;
    assert_eq!(reason, Some(h2::Reason::CANCEL));
    assert!(!connection.is_finished());
    assert!(reads.message().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_stream_is_reset_connection_remains() {
    long_test!("waits until an unread response is reset, after 30 s");
    let world = world().await;
    let handshake = h2::client::Builder::new()
        .initial_window_size(0)
        .handshake::<_, bytes::Bytes>(connect(&world).await);
    let (mut client, connection) = handshake.await.unwrap();
    let connection = tokio::spawn(connection);
    let unread = http::Request::get("http://assay/docs/swagger-ui-bundle.js")
        .body(())
        .unwrap();
    let (response, _) = client.send_request(unread, true).unwrap();
    let mut body = response.await.unwrap().into_body();
    let mut responses = 0;
    let going_on = async {
        loop {
            sleep(Duration::from_secs(3)).await;
            let head = http::Request::head("http://assay/health").body(()).unwrap();
            let (response, _) = client.send_request(head, true).unwrap();
            assert_eq!(response.await.unwrap().status(), 200);
            responses += 1;
        }
    };
    let reset = in_time("the reset of the unread stream", async {
        tokio::select! {
            reset = body.data() => reset,
            () = going_on => None,
        }
    })
    .await;
    assert_eq!(
        reset.unwrap().unwrap_err().reason(),
        Some(h2::Reason::CANCEL)
    );
    assert!(responses > 0, "the stream is reset at once");
    assert!(!connection.is_finished());
    let head = http::Request::head("http://assay/health").body(()).unwrap();
    assert_eq!(
        client
            .send_request(head, true)
            .unwrap()
            .0
            .await
            .unwrap()
            .status(),
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_without_memory_are_rejected() {
    // A third of a MiB: memory for 14 requests of one address.
    let world = world_with(StackSize {
        workers: 0,
        ..with_setting("ASSAY_REQUEST_MEMORY_MIB", "1")
    })
    .await;
    let handshake = h2::client::Builder::new()
        .initial_window_size(0)
        .handshake::<_, bytes::Bytes>(connect(&world).await);
    let (client, connection) = handshake.await.unwrap();
    let connection = tokio::spawn(connection);
    let mut responses = FuturesUnordered::new();
    for _ in 0..100 {
        let request = http::Request::get("http://assay/docs/swagger-ui-bundle.js")
            .body(())
            .unwrap();
        let (response, _) = client
            .clone()
            .ready()
            .await
            .unwrap()
            .send_request(request, true)
            .unwrap();
        responses.push(response);
    }
    let mut refused = 0;
    // Their streams stay open, so that they hold their memory.
    let mut unread = Vec::new();
    in_time("the refusal of most streams", async {
        while refused <= 70 {
            match responses.next().await.expect("most streams are refused") {
                Err(error) => {
                    assert_eq!(error.reason(), Some(h2::Reason::REFUSED_STREAM));
                    refused += 1;
                }
                Ok(response) => {
                    let status = response.status();
                    assert!([200, 503].contains(&status.as_u16()), "{status}");
                    unread.push(response);
                }
            }
        }
    })
    .await;
    assert!(!connection.is_finished());
    // The other requests leave their places to this one.
    drop((unread, responses));
    world.key().get("/v1/me").await.expect_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_per_address_are_bounded() {
    let world = world_with(StackSize {
        workers: 0,
        ..with_setting("ASSAY_CONNECTIONS_PER_ADDRESS", "5")
    })
    .await;
    let api = world.stack.apis[0].listen.unwrap();
    let from = async |address: [u8; 4]| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((address, 0).into()).unwrap();
        let mut stream = socket.connect(api).await.unwrap();
        let mut head = [0; 12];
        // A connection that is closed immediately may be reset before the write.
        let _ = stream.write_all(HEALTH.as_bytes()).await;
        let read = stream.read_exact(&mut head).await;
        read.is_ok_and(|_| &head == b"HTTP/1.1 200")
            .then_some(stream)
    };
    let mut open = Vec::new();
    for _ in 0..5 {
        open.push(from([127, 3, 0, 1]).await.unwrap());
    }
    assert!(from([127, 3, 0, 1]).await.is_none(), "a sixth connection");
    assert!(from([127, 3, 0, 2]).await.is_some(), "of another address");
    open.pop();
    wait_until("room for a connection", async || {
        from([127, 3, 0, 1]).await.is_some()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn excess_headers_are_rejected() {
    let world = world().await;
    let head = |count: usize, length: usize| {
        let headers: String = (0..count)
            .map(|i| format!("X-{i}: {}\r\n", "y".repeat(length)))
            .collect();
        format!("GET /health HTTP/1.1\r\nHost: assay\r\n{headers}\r\n")
    };
    for (count, length, status) in [(90, 10, "200"), (200, 10, "431"), (50, 100_000, "431")] {
        let mut stream = connect(&world).await;
        // The request may be rejected before it is sent completely.
        let _ = stream.write_all(head(count, length).as_bytes()).await;
        let mut response = vec![0; 12];
        let read = in_time("a response", stream.read_exact(&mut response)).await;
        let status_line = String::from_utf8_lossy(&response).into_owned();
        assert!(
            read.is_err() && status != "200" || status_line.ends_with(status),
            "{count} headers of {length}: {status_line}"
        );
    }
    let (mut client, connection) = h2::client::handshake(connect(&world).await).await.unwrap();
    tokio::spawn(connection);
    for (length, expected) in [(1_000, 200), (20_000, 431)] {
        let request = http::Request::get("http://assay/health")
            .header("x-long", "y".repeat(length))
            .body(())
            .unwrap();
        let (response, _) = client.send_request(request, true).unwrap();
        assert_eq!(response.await.unwrap().status(), expected, "{length}");
    }
    world.key().get("/v1/me").await.expect_status(200);
}
