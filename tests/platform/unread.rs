//! Responses that nobody reads, and the largest valid requests, of every operation over both
//! protocols: the memory of the API process stays within twice its budget.
//!
//! With `TEST_UNREAD_HONEST=1`, the binaries are optimized, and an honest caller works meanwhile: its
//! response times are printed next to those without a flood.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use h2::client::SendRequest;
use http::Request;
use prost_reflect::MethodDescriptor;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::floods::{honest, p99, resident};
use crate::harness::{Expect, World, long_test, one_prediction, optimized_world, org, string};
use crate::parity::{encoded, mirrored};
use crate::routes::{
    Class, ROUTES, Resource, Route, TERMS, world_for_routes, world_for_routes_from,
};

/// The number of unread responses.
const UNREAD: usize = 120;

/// The number of streams on a connection, below the server's limit.
const STREAMS: usize = 40;

/// The number of large requests in flight.
const LARGE_REQUESTS: usize = 40;

/// An API process's memory budget, in bytes: the default of `ASSAY_REQUEST_MEMORY_MIB`.
const BUDGET: u64 = 192 * 1024 * 1024;

/// A request without its connection.
#[derive(Clone)]
struct Call {
    name: String,
    method: http::Method,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

impl Call {
    /// Returns a route's calls over REST and gRPC.
    fn of(
        route: &Route,
        rpcs: &[&MethodDescriptor],
        token: &str,
        id: &str,
        body: &Value,
    ) -> Vec<Self> {
        let body = fresh(body);
        let rest = Self {
            name: format!("{} {}", route.method, route.path),
            method: route.method.parse().unwrap(),
            path: route.path_of(id),
            headers: vec![
                authorization(token),
                ("content-type", "application/json".into()),
            ],
            body: match &body {
                Value::Null => Bytes::new(),
                body => body.to_string().into(),
            },
        };
        let grpc = rpcs.iter().map(|rpc| {
            let path = format!("/{}/{}", rpc.parent_service().full_name(), rpc.name());
            Self::rpc(path, token, &encoded(rpc, route, id, &body))
        });
        std::iter::once(rest).chain(grpc).collect()
    }

    /// Returns a call over gRPC with this message.
    fn rpc(path: String, token: &str, message: &[u8]) -> Self {
        let mut frame = vec![0];
        frame.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
        frame.extend_from_slice(message);
        Self {
            name: path.clone(),
            method: http::Method::POST,
            path,
            headers: vec![
                authorization(token),
                ("content-type", "application/grpc".into()),
                ("te", "trailers".into()),
            ],
            body: frame.into(),
        }
    }

    fn request(&self) -> Request<()> {
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(format!("http://assay{}", self.path));
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        request.body(()).unwrap()
    }
}

fn authorization(token: &str) -> (&'static str, String) {
    ("authorization", format!("Bearer {token}"))
}

/// Returns the body with an idempotency key that no other request has.
fn fresh(body: &Value) -> Value {
    let mut body = body.clone();
    if body.get("idempotency_key").is_some() {
        body["idempotency_key"] = json!(assay_core::UserId::random().unwrap().to_string());
    }
    body
}

/// Opens an HTTP/2 connection whose streams have this initial window.
async fn connect(world: &World, window: u32) -> SendRequest<Bytes> {
    let address = world.stack.apis[0].listen.unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let handshake = h2::client::Builder::new()
        .initial_window_size(window)
        .handshake::<_, Bytes>(stream);
    let (client, connection) = handshake.await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client.ready().await.unwrap()
}

/// Sends the call `count` times, on connections whose streams accept no data. Returns the highest
/// memory that the process has until all responses have begun and their producers rest.
async fn memory_of_unread(world: &World, call: &Call, count: usize) -> u64 {
    let api = &world.stack.apis[0];
    let mut clients = Vec::new();
    let mut open = Vec::new();
    for at in 0..count {
        if at % STREAMS == 0 {
            clients.push(connect(world, 0).await);
        }
        let client = clients.last().unwrap().clone();
        let Ok(mut client) = client.ready().await else {
            continue;
        };
        let Ok((response, mut body)) = client.send_request(call.request(), call.body.is_empty())
        else {
            continue;
        };
        if !call.body.is_empty() {
            // The server's window lets it arrive. A refused stream takes no data.
            let _ = body.send_data(call.body.clone(), true);
        }
        open.push((response, body));
    }
    let (responses, bodies): (Vec<_>, Vec<_>) = open.into_iter().unzip();
    // A request waits up to 5 s for memory, and up to 30 s for a job to change.
    let begun = tokio::time::timeout(Duration::from_secs(8), join_all(responses));
    let mut begun = std::pin::pin!(begun);
    let mut highest = resident(api);
    let held = loop {
        tokio::select! {
            held = &mut begun => break held,
            () = tokio::time::sleep(Duration::from_millis(20)) => highest = highest.max(resident(api)),
        }
    };
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        highest = highest.max(resident(api));
    }
    drop((held, bodies));
    highest
}

/// Replaces the suites' items by many large ones, and submits jobs with the longest labels and
/// metadata, so that pages are as large as they can be.
async fn fill(world: &World) {
    let sql = "
        update suite_items set input = json_build_object('text', repeat('x', 260000));
        insert into suite_items (content_id, ordinal, item_id, input)
            select content_id, n, 'filler-' || n, json_build_object('text', repeat('x', 260000))
            from (
                select content_id, count(*)::integer as items
                from suite_items
                group by content_id
            ) suite, generate_series(suite.items, 299) n;
        update suites set n_items = (
            select count(*) from suite_items i where i.content_id = suites.content_id
        );
        update opened_answers set answer = to_json(repeat('x', 260000));
        insert into opened_answers (suite_id, suite_version, ordinal, item_id, answer)
            select suite_id, suite_version, n, 'filler-' || n, to_json(repeat('x', 260000))
            from (
                select suite_id, suite_version, max(ordinal) + 1 as items
                from opened_answers
                group by suite_id, suite_version
            ) suite, generate_series(suite.items, 299) n;
    ";
    let mut database = world.database().await;
    sqlx::raw_sql(sql).execute(&mut database).await.unwrap();
    let metadata: serde_json::Map<String, Value> = (0..16)
        .map(|number| (format!("{number:064}"), json!("😀".repeat(512))))
        .collect();
    let eval = json!({
        "suite_id": "suite:lunch",
        "predictions": one_prediction(),
        "label": "😀".repeat(200),
        "metadata": metadata,
    });
    let key = world.key();
    for _ in 0..20 {
        let submitted = join_all((0..10).map(|_| key.post("/v1/evals", &eval))).await;
        for response in submitted {
            let response = response.unwrap();
            assert_eq!(response.status, 202, "{}", response.body);
        }
    }
}

/// Returns a token that the route permits.
fn token<'a>(world: &'a World, route: &Route) -> &'a str {
    match route.class() {
        Class::Session | Class::Member | Class::Owner | Class::Person => &world.org.session,
        _ => &world.org.key,
    }
}

/// Opens unread responses of every operation over both protocols. Returns the growth of the process's
/// memory above `quiet` in MiB for each call, the largest first.
async fn flood_every_operation(world: &World, quiet: u64) -> Vec<(u64, String)> {
    let (unary, streamed) = (
        mirrored(|method| !method.is_server_streaming()),
        mirrored(MethodDescriptor::is_server_streaming),
    );
    let mut grown = Vec::new();
    // Before the flood, which reaches the organization's limits.
    let mut ids = Vec::new();
    for route in ROUTES.iter() {
        ids.push(match route.resource {
            Resource::OpenedFile => "suite:retired/opening/items.ndjson".into(),
            resource => world.create_resource(&world.org, resource).await,
        });
    }
    for (route, id) in ROUTES.iter().zip(&ids) {
        // Ends the caller's session or organization.
        if ["/v1/session", "/v1/sessions"].contains(&route.path) && route.method == "DELETE" {
            continue;
        }
        let line = format!("{} {}", route.method, route.path);
        let rpcs: Vec<_> = [&unary, &streamed]
            .into_iter()
            .filter_map(|rpcs| rpcs.get(&line))
            .filter(|rpc| !rpc.is_client_streaming())
            .collect();
        for call in Call::of(route, &rpcs, token(world, route), id, &route.body_of(id)) {
            let highest = memory_of_unread(world, &call, UNREAD).await;
            grown.push((highest.saturating_sub(quiet) >> 20, call.name));
        }
    }
    grown.sort_unstable_by(|a, b| b.cmp(a));
    grown
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_of_every_operation_stay_within_budget() {
    long_test!("opens 120 unread responses of each operation");
    let measures_honest = std::env::var_os("TEST_UNREAD_HONEST").is_some();
    let (world, _name_server) = if measures_honest {
        world_for_routes_from(optimized_world).await
    } else {
        world_for_routes().await
    };
    fill(&world).await;
    let honest_org = org(&world.stack, "team").await;
    let client = world.client(&honest_org.key);
    let honest_until = async |ends: &dyn Fn() -> bool| {
        if measures_honest {
            honest(&client, ends).await
        } else {
            Vec::new()
        }
    };
    if measures_honest {
        world.widen_plan("team").await;
        let owner = world.client(&honest_org.session);
        let version = json!({"version": TERMS.0});
        owner
            .post("/v1/terms/accept", &version)
            .await
            .expect_status(200);
    }
    let until = Instant::now() + Duration::from_secs(30);
    let before = honest_until(&|| until <= Instant::now()).await;
    let quiet = resident(&world.stack.apis[0]);
    let began = Instant::now();
    let is_over = AtomicBool::new(false);
    let flood = async {
        let grown = flood_every_operation(&world, quiet).await;
        is_over.store(true, Ordering::Relaxed);
        grown
    };
    let ends = || is_over.load(Ordering::Relaxed);
    let (mut grown, during) = tokio::join!(flood, honest_until(&ends));
    println!(
        "{} calls in {:.0} s, start {} MiB; most above it: {:?}",
        grown.len(),
        began.elapsed().as_secs_f64(),
        quiet >> 20,
        &grown[..5]
    );
    if measures_honest {
        println!(
            "honest caller: p99 {:?} of {} requests without a flood, {:?} of {} during it",
            p99(&before),
            before.len(),
            p99(&during),
            during.len()
        );
    }
    assert!(grown.len() > ROUTES.len(), "both protocols are measured");
    grown.retain(|(grown, _)| *grown > (2 * BUDGET) >> 20);
    assert_eq!(grown, [], "MiB above the start");
}

/// The valid requests that take the most memory, by their route.
fn large_requests() -> Vec<(&'static str, Value)> {
    let sequence = |number: usize| {
        json!({
            "sequence_id": number.to_string(),
            "events": vec![json!({"item_id": "i"}); 700],
        })
    };
    let sequences: Vec<Value> = (0..64).map(sequence).collect();
    vec![
        (
            "/v1/models/{model_id}/predict",
            json!({"sequences": sequences}),
        ),
        (
            "/v1/models/{model_id}/generate",
            json!({"sequences": sequences, "n_events": 1}),
        ),
        (
            "/v1/models/{model_id}/embed",
            json!({"sequences": sequences}),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn large_requests_stay_within_budget() {
    long_test!("sends the largest requests of each operation, 40 at once");
    let (world, _name_server) = world_for_routes().await;
    let quiet = resident(&world.stack.apis[0]);
    let unary = mirrored(|method| !method.is_server_streaming());
    for (path, body) in large_requests() {
        let route = ROUTES.iter().find(|route| route.path == path).unwrap();
        let line = format!("{} {}", route.method, route.path);
        for call in Call::of(route, &[&unary[&line]], &world.org.key, "embedded", &body) {
            let highest = memory_of_unread(&world, &call, LARGE_REQUESTS).await;
            let grown = highest.saturating_sub(quiet);
            println!("{}: {} MiB above the start", call.name, grown >> 20);
            assert!(grown <= 2 * BUDGET, "{}: {} MiB", call.name, grown >> 20);
        }
    }
}

/// One mebibyte with half a million empty elements, from which prost would make 70 MiB.
#[tokio::test(flavor = "multi_thread")]
async fn message_of_empty_elements_is_refused_before_it_is_decoded() {
    let (world, _name_server) = world_for_routes().await;
    let api = &world.stack.apis[0];
    let quiet = resident(api);
    let message: Vec<u8> = [0x12, 0].repeat(512 * 1024);
    for rpc in ["Predict", "Generate", "Embed", "StreamGenerate"] {
        let path = format!("/assay.v1.ServingService/{rpc}");
        let call = Call::rpc(path, &world.org.key, &message);
        let highest = memory_of_unread(&world, &call, LARGE_REQUESTS).await;
        let grown = highest.saturating_sub(quiet);
        // The frames themselves are 40 MiB.
        assert!(grown < BUDGET / 2, "{rpc}: {} MiB", grown >> 20);
    }
}

/// Pages that end by bytes return each item once.
#[tokio::test(flavor = "multi_thread")]
async fn pages_of_large_items_end_by_bytes() {
    let world = crate::harness::world().await;
    let sql = "update suite_items i set input = json_build_object('text', repeat('x', 260000)) from suites s where s.content_id = i.content_id and s.suite_id = 'suite:lunch'";
    let mut database = world.database().await;
    sqlx::raw_sql(sql).execute(&mut database).await.unwrap();
    let client = world.key();
    let (mut cursor, mut ids, mut pages) = (None::<String>, Vec::new(), 0);
    loop {
        let query = cursor.map_or_else(String::new, |cursor| format!("&cursor={cursor}"));
        let path = format!("/v1/suites/suite:lunch/items?limit=1000{query}");
        let page = client.get(&path).await.expect_status(200);
        let items = page.body["items"].as_array().unwrap();
        assert!(!items.is_empty() && items.len() <= 17, "{}", items.len());
        ids.extend(items.iter().map(|item| string(&item["item_id"])));
        pages += 1;
        match page.body["next_cursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
    let n_items = world
        .key()
        .get("/v1/suites/suite:lunch")
        .await
        .unwrap()
        .body["n_items"]
        .clone();
    assert_eq!((json!(ids.len()), distinct.len()), (n_items, ids.len()));
    assert!(pages > 1);
}
