//! Too much at once: nobody takes what all need, what is late already is refused before it is begun, jobs can be asked
//! after and cancelled all the while, and whoever is slow or silent is cut off.

use std::time::{Duration, Instant};

use assay_proto::v1;
use assay_proto::v1::job_service_client::JobServiceClient;
use assay_tests::client::{Answer, Client};
use assay_tests::stack::Plan;
use futures_util::future::join_all;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::harness::{
    Org, STALL, World, code, one_prediction, org, text, with, with_token, world_of,
};

async fn world() -> World {
    world_of(Plan {
        workers: 0,
        ..with("ASSAY_POOL_WAIT_MS", "200")
    })
    .await
}

/// Holds what making a key of these organizations waits for, until the connection is closed.
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

/// Many requests that wait for it.
async fn make_keys(client: Client, count: usize) -> Vec<Answer> {
    let body = json!({"name": "one of many"});
    let made = join_all((0..count).map(|_| client.post("/v1/keys", &body))).await;
    made.into_iter().map(Result::unwrap).collect()
}

fn assert_refused(answer: &Answer) {
    assert_eq!(
        (answer.status, code(answer), answer.header("retry-after")),
        (503, "unavailable".to_owned(), "1"),
        "{}",
        answer.body
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_organization_whose_requests_do_not_end_holds_up_nobody_else() {
    let world = world().await;
    let other = org(&world.stack, "team").await;
    let held = hold(&world, &[&world.org]).await;
    let stuck = tokio::spawn(make_keys(world.owner(), 60));
    sleep(Duration::from_millis(300)).await;
    for _ in 0..10 {
        let began = Instant::now();
        assert_eq!(
            make_keys(world.client(&other.session), 1).await[0].status,
            201
        );
        assert!(began.elapsed() < STALL, "{:?}", began.elapsed());
    }
    let refused = stuck.await.unwrap();
    refused.iter().for_each(assert_refused);
    let crowded = |answer: &&Answer| {
        answer.body["error"]["message"]
            .to_string()
            .contains("requests of your organization are under way")
    };
    assert!(
        refused.iter().filter(crowded).count() > 30,
        "most of them were not even begun"
    );
    held.close().await.unwrap();
    assert_eq!(make_keys(world.owner(), 1).await[0].status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_all_is_at_work_jobs_can_still_be_asked_after_and_cancelled() {
    let world = world().await;
    let (second, third, asking) = (
        org(&world.stack, "team").await,
        org(&world.stack, "team").await,
        org(&world.stack, "team").await,
    );
    let client = world.client(&asking.key);
    let body = json!({"suite_id": "suite:lunch", "predictions": one_prediction()});
    let job_id = text(&client.post("/v1/evals", &body).await.unwrap().body["id"]);
    let channel = world.channel().await;
    let held = hold(&world, &[&world.org, &second, &third]).await;
    let stuck = [&world.org, &second, &third]
        .map(|org| tokio::spawn(make_keys(world.client(&org.session), 40)));
    sleep(Duration::from_millis(300)).await;
    let began = Instant::now();
    assert_refused(&client.get("/v1/me").await.unwrap());
    let refused_in = began.elapsed();
    assert!(refused_in < STALL, "{refused_in:?}");
    let began = Instant::now();
    let path = format!("/v1/jobs/{job_id}");
    assert_eq!(client.get(&path).await.unwrap().body["status"], "queued");
    assert_eq!(client.get("/v1/jobs").await.unwrap().status, 200);
    let ask = with_token(
        v1::GetJobRequest {
            job_id: job_id.clone(),
            wait: None,
        },
        &asking.key,
    );
    JobServiceClient::new(channel).get_job(ask).await.unwrap();
    let cancelled = client
        .send(client.request("POST", &format!("{path}/cancel")))
        .await
        .unwrap();
    assert_eq!(
        (cancelled.status, &cancelled.body["status"]),
        (200, &"cancelled".into())
    );
    assert!(began.elapsed() < STALL, "{:?}", began.elapsed());
    assert_refused(&client.get("/v1/me").await.unwrap());
    for stuck in stuck {
        stuck.await.unwrap().iter().for_each(assert_refused);
    }
    held.close().await.unwrap();
    assert_eq!(client.get("/v1/me").await.unwrap().status, 200);
}

/// A connection of our own making.
async fn connect(world: &World) -> TcpStream {
    TcpStream::connect(world.stack.apis[0].listen.unwrap())
        .await
        .unwrap()
}

/// Sends this and returns what comes back within a moment.
async fn ask(stream: &mut TcpStream, head: &str) -> String {
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 64 * 1024];
    let length = timeout(Duration::from_secs(10), stream.read(&mut answer))
        .await
        .unwrap()
        .unwrap();
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

/// When the server closes a connection, while `send` goes on sending.
async fn closed(stream: TcpStream, byte: Option<&'static str>) -> Duration {
    let began = Instant::now();
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
    tokio::select! {
        // That it is reset is an end as well.
        _ = read.read_to_end(&mut rest) => began.elapsed(),
        () = sending => Duration::ZERO,
        () = sleep(Duration::from_secs(120)) => panic!("it is still open"),
    }
}

const HEALTH: &str = "GET /health HTTP/1.1\r\nHost: assay\r\n\r\n";

/// Asserts that something took this long, give or take what a busy machine needs.
fn assert_about(what: &str, took: Duration, seconds: u64) {
    assert!(
        (seconds.saturating_sub(1)..=seconds + 20).contains(&took.as_secs()),
        "{what}: {took:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_the_slow_and_the_silent_are_closed_in_time() {
    let world = &world().await;
    let silent = async {
        assert_about(
            "nothing is said",
            closed(connect(world).await, None).await,
            10,
        );
    };
    let slow_head = async {
        let mut stream = connect(world).await;
        stream
            .write_all(b"GET /health HTTP/1.1\r\nX: ")
            .await
            .unwrap();
        assert_about(
            "a head comes byte by byte",
            closed(stream, Some("x")).await,
            10,
        );
    };
    let slow_second_head = async {
        let mut stream = connect(world).await;
        assert!(ask(&mut stream, HEALTH).await.starts_with("HTTP/1.1 200"));
        sleep(Duration::from_secs(12)).await;
        stream.write_all(b"G").await.unwrap();
        assert_about(
            "the second head comes byte by byte",
            closed(stream, Some("x")).await,
            10,
        );
    };
    let slow_body = async {
        let mut stream = connect(world).await;
        let key = &world.org.session;
        let head = format!(
            "POST /v1/keys HTTP/1.1\r\nHost: assay\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n "
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        assert_about(
            "a body comes byte by byte",
            closed(stream, Some(" ")).await,
            5,
        );
    };
    let idle = async {
        let mut stream = connect(world).await;
        assert!(ask(&mut stream, HEALTH).await.starts_with("HTTP/1.1 200"));
        // Longer than a head may take.
        sleep(Duration::from_secs(20)).await;
        assert!(ask(&mut stream, HEALTH).await.starts_with("HTTP/1.1 200"));
        assert_about("nothing is asked", closed(stream, None).await, 75);
    };
    tokio::join!(
        silent,
        slow_head,
        slow_second_head,
        slow_body,
        idle,
        idle_http2(world),
        unread(world)
    );
    assert_eq!(world.key().get("/v1/me").await.unwrap().status, 200);
}

/// An HTTP/2 connection on which nothing is asked any more is told to go.
async fn idle_http2(world: &World) {
    let (mut client, connection) = h2::client::handshake(connect(world).await).await.unwrap();
    let began = Instant::now();
    let connection = tokio::spawn(connection);
    let request = http::Request::get("http://assay/health").body(()).unwrap();
    let (answer, _) = client.send_request(request, true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 200);
    // The handle would end the connection if it were dropped.
    timeout(Duration::from_secs(120), connection)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_about("nothing is asked over HTTP/2", began.elapsed(), 75);
    drop(client);
}

/// One who watches a job and reads nothing is cut off; one who reads what comes is not.
async fn unread(world: &World) {
    let job_id = text(&world.submit(&one_prediction()).await.body["id"]);
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
    let began = Instant::now();
    let connection = tokio::spawn(connection);
    let request = http::Request::post("http://assay/assay.v1.JobService/WatchJob")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("authorization", format!("Bearer {}", world.org.key))
        .body(())
        .unwrap();
    let (answer, mut send) = client
        .ready()
        .await
        .unwrap()
        .send_request(request, false)
        .unwrap();
    send.send_data(body.into(), true).unwrap();
    let mut body = answer.await.unwrap().into_body();
    let reset = async {
        loop {
            if let Err(error) = body.data().await.unwrap() {
                return error.reason();
            }
        }
    };
    assert_eq!(
        timeout(Duration::from_secs(120), reset).await.unwrap(),
        Some(h2::Reason::CANCEL)
    );
    assert_about("a response is not read", began.elapsed(), 30);
    assert!(!connection.is_finished());
    assert!(reads.message().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_stream_is_reset_while_its_connection_goes_on() {
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
    let began = Instant::now();
    let going_on = async {
        loop {
            sleep(Duration::from_secs(3)).await;
            let head = http::Request::head("http://assay/health").body(()).unwrap();
            let (response, _) = client.send_request(head, true).unwrap();
            assert_eq!(response.await.unwrap().status(), 200);
        }
    };
    tokio::select! {
        reset = body.data() => assert_eq!(reset.unwrap().unwrap_err().reason(), Some(h2::Reason::CANCEL)),
        () = going_on => {}
        () = sleep(Duration::from_secs(120)) => panic!("it is still open"),
    }
    assert_about("the stream is not read", began.elapsed(), 30);
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
async fn streams_without_memory_are_refused_and_leave_nothing() {
    // A third of a mebibyte: room for 14 requests of one address.
    let world = world_of(Plan {
        workers: 0,
        ..with("ASSAY_REQUEST_MEMORY_MIB", "1")
    })
    .await;
    let handshake = h2::client::Builder::new()
        .initial_window_size(0)
        .handshake::<_, bytes::Bytes>(connect(&world).await);
    let (client, connection) = handshake.await.unwrap();
    let connection = tokio::spawn(connection);
    let mut responses = Vec::new();
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
    // Longer than requests wait for room, shorter than responses may stay unread.
    sleep(Duration::from_secs(12)).await;
    let mut refused = 0;
    for response in responses {
        match timeout(Duration::from_millis(1), response).await {
            Ok(Err(error)) => {
                assert_eq!(error.reason(), Some(h2::Reason::REFUSED_STREAM));
                refused += 1;
            }
            Ok(Ok(response)) => assert!(
                [200, 503].contains(&response.status().as_u16()),
                "{}",
                response.status()
            ),
            // It waits until the responses before it are read.
            Err(_) => {}
        }
    }
    assert!(refused > 70, "{refused}");
    assert!(!connection.is_finished());
    assert_eq!(world.key().get("/v1/me").await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn address_has_a_bounded_number_of_connections() {
    let world = world_of(Plan {
        workers: 0,
        ..with("ASSAY_CONNECTIONS_PER_ADDRESS", "5")
    })
    .await;
    let api = world.stack.apis[0].listen.unwrap();
    let from = async |address: [u8; 4]| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((address, 0).into()).unwrap();
        let mut stream = socket.connect(api).await.unwrap();
        let mut head = [0; 12];
        // One that is closed at once may be reset before anything is written.
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
    let began = Instant::now();
    while from([127, 3, 0, 1]).await.is_none() {
        assert!(began.elapsed() < Duration::from_secs(10));
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_has_more_headers_than_any_needs() {
    let world = world().await;
    let head = |count: usize, length: usize| {
        let headers: String = (0..count)
            .map(|i| format!("X-{i}: {}\r\n", "y".repeat(length)))
            .collect();
        format!("GET /health HTTP/1.1\r\nHost: assay\r\n{headers}\r\n")
    };
    for (count, length, status) in [(90, 10, "200"), (200, 10, "431"), (50, 100_000, "431")] {
        let mut stream = connect(&world).await;
        // It may be refused before it is sent whole.
        let _ = stream.write_all(head(count, length).as_bytes()).await;
        let mut answer = vec![0; 12];
        let read = timeout(Duration::from_secs(10), stream.read_exact(&mut answer))
            .await
            .unwrap();
        let told = String::from_utf8_lossy(&answer).into_owned();
        assert!(
            read.is_err() && status != "200" || told.ends_with(status),
            "{count} headers of {length}: {told}"
        );
    }
    let (mut client, connection) = h2::client::handshake(connect(&world).await).await.unwrap();
    tokio::spawn(connection);
    for (length, expected) in [(1_000, 200), (20_000, 431)] {
        let request = http::Request::get("http://assay/health")
            .header("x-long", "y".repeat(length))
            .body(())
            .unwrap();
        let (answer, _) = client.send_request(request, true).unwrap();
        assert_eq!(answer.await.unwrap().status(), expected, "{length}");
    }
    assert_eq!(world.key().get("/v1/me").await.unwrap().status, 200);
}
