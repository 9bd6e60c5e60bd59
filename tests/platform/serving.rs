//! The synchronous serving operations on a real engine: results, limits, charges and failures.

use std::path::{Path, PathBuf};
use std::time::Duration;

use assay_core::OrgId;
use assay_core::model::serving::{Unit, Units};
use assay_core::store::serving::{self as charges, Charged, Key};
use assay_core::store::{self, PoolProfile};
use assay_proto::v1;
use assay_proto::v1::serving_service_client::ServingServiceClient;
use assay_proto::v1::stream_generate_response::Part;
use assay_tests::client::{Client, Response};
use assay_tests::stack::StackSize;
use assay_tests::wait::wait_timeout;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::harness::{
    Expect, World, error_code, field_errors, org, scrape, string, wait_until, with_token,
    world_with,
};
use crate::packages::{publish, with_model};

/// The model's id in `tests/engines/packages/embedded`.
const MODEL: &str = "embedded";

/// Returns the folder of a package in `tests/engines/packages`.
pub fn package(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("engines/packages")
        .join(name)
}

/// Starts a world with an engine and a model.
pub async fn serving_world() -> World {
    let world = world_with(StackSize {
        workers: 0,
        engines: 1,
        ..StackSize::default()
    })
    .await;
    let published = publish(&world, &package("embedded"), None).await.unwrap();
    assert_eq!(published["published"], true);
    world
}

/// Returns a sequence with these items.
pub fn sequence(sequence_id: &str, item_ids: &[&str]) -> Value {
    let events: Vec<_> = item_ids
        .iter()
        .map(|item_id| json!({"item_id": item_id}))
        .collect();
    json!({"sequence_id": sequence_id, "events": events})
}

fn some_sequence() -> Value {
    sequence("p7", &["dish-03", "dish-11"])
}

async fn call(client: &Client, operation: &str, body: &Value) -> Response {
    let path = format!("/v1/models/{MODEL}/{operation}");
    client.post(&path, body).await.unwrap()
}

/// Calls an operation that must succeed, and returns the body.
async fn served(client: &Client, operation: &str, body: &Value) -> Value {
    let response = call(client, operation, body).await.expect_status(200);
    response.body
}

/// Returns the charged predict items, generated events and embeddings.
pub async fn totals(world: &World) -> (i64, i64, i64) {
    let usage = world.key().get("/v1/usage").await.unwrap().body;
    let total = |name: &str| usage["totals"][name].as_i64().unwrap();
    (
        total("predict_items"),
        total("generated_events"),
        total("embeddings"),
    )
}

/// Kills the engine and waits until it is gone.
fn kill_engine(world: &mut World) -> std::net::SocketAddr {
    let engine = world.stack.engines.remove(0);
    let listen = engine.listen.unwrap();
    engine.guarded.signal(libc::SIGKILL);
    assert!(engine.guarded.wait(wait_timeout()).is_some());
    listen
}

#[tokio::test(flavor = "multi_thread")]
async fn results_equal_golden_values() {
    let world = serving_world().await;
    let golden = std::fs::read_to_string(package("embedded").join("golden.json")).unwrap();
    let golden: Value = serde_json::from_str(&golden).unwrap();
    for request in golden["requests"].as_array().unwrap() {
        let operation = request["operation"].as_str().unwrap();
        let body = served(&world.key(), operation, &request["request"]).await;
        assert_eq!(
            (
                &body["model_id"],
                &body["model_version"],
                &body["operation"]
            ),
            (&json!(MODEL), &json!("1"), &json!(operation))
        );
        let pairs = request["response"]["data"].as_array().unwrap().iter();
        for (golden, computed) in pairs.zip(body["data"].as_array().unwrap()) {
            for field in [
                "sequence_id",
                "prediction",
                "n_events",
                "n_used",
                "n_unknown",
                "cold",
            ] {
                assert_eq!(golden[field], computed[field], "{field}");
            }
            let scores = golden["scores"].as_array().unwrap().iter();
            for (golden, computed) in scores.zip(computed["scores"].as_array().unwrap()) {
                match (golden.as_f64(), computed.as_f64()) {
                    (Some(golden), Some(computed)) => assert!((golden - computed).abs() < 1e-5),
                    (golden, computed) => assert_eq!(golden, computed),
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn response_has_version_time_and_charge() {
    let world = serving_world().await;
    let body = json!({"sequences": [some_sequence(), sequence("cold", &[])], "top_k": 3});
    let response = call(&world.key(), "predict", &body)
        .await
        .expect_status(200);
    assert_eq!(response.header("x-model-version"), "1");
    let time: f64 = response.header("x-engine-time-ms").parse().unwrap();
    assert!(time > 0.0);
    assert_eq!(response.body["usage"], json!({"predict_items": 2}));
    assert_eq!(
        response.body["data"][0]["scores"].as_array().unwrap().len(),
        3
    );
    assert_eq!(response.body["data"][1]["cold"], true);
    let body = json!({"sequences": [some_sequence()], "n_events": 3, "n_continuations": 2});
    let generated = served(&world.owner(), "generate", &body).await;
    assert_eq!(generated["usage"], json!({"generated_events": 6}));
    served(
        &world.key(),
        "embed",
        &json!({"sequences": [some_sequence()]}),
    )
    .await;
    assert_eq!(totals(&world).await, (2, 6, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn sequence_has_same_result_in_any_request() {
    let world = serving_world().await;
    let sequences: Vec<Value> = (0..64)
        .map(|at| {
            let items: Vec<String> = (0..at % 15)
                .map(|item| format!("dish-{:02}", (at * 7 + item * 3) % 27))
                .collect();
            let items: Vec<&str> = items.iter().map(String::as_str).collect();
            sequence(&format!("s{at}"), &items)
        })
        .collect();
    let together = served(&world.key(), "predict", &json!({"sequences": sequences})).await;
    let alone = sequences.iter().map(async |sequence| {
        let body = json!({"sequences": [sequence]});
        served(&world.key(), "predict", &body).await["data"][0].clone()
    });
    assert_eq!(together["data"], json!(join_all(alone).await));
    let mut grpc = ServingServiceClient::new(world.channel().await);
    let message = v1::PredictRequest {
        model_id: MODEL.into(),
        sequences: sequences.iter().map(sequence_message).collect(),
        ..v1::PredictRequest::default()
    };
    let response = grpc
        .predict(with_token(message, &world.org.key))
        .await
        .unwrap()
        .into_inner();
    assert!(response.engine_time_ms > 0.0);
    let data = response.predictions.unwrap().data;
    for (rest, grpc) in together["data"].as_array().unwrap().iter().zip(data) {
        let (ids, scores): (Vec<_>, Vec<_>) = grpc
            .prediction
            .into_iter()
            .map(|scored| (scored.item_id, scored.score))
            .unzip();
        assert_eq!(
            (&rest["prediction"], &rest["scores"]),
            (&json!(ids), &json!(scores))
        );
        assert_eq!((&rest["exact"], grpc.exact), (&json!(true), Some(true)));
    }
}

/// Returns a sequence without options as a message.
pub fn sequence_message(sequence: &Value) -> v1::Sequence {
    let events = sequence["events"].as_array().unwrap().iter();
    v1::Sequence {
        sequence_id: string(&sequence["sequence_id"]),
        events: events
            .map(|event| v1::SequenceEvent {
                item_id: string(&event["item_id"]),
                ..v1::SequenceEvent::default()
            })
            .collect(),
        options: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_sorted_cut_and_skipped() {
    let world = serving_world().await;
    let key = world.key();
    let data = async |sequence: Value| {
        served(&key, "predict", &json!({"sequences": [sequence]})).await["data"][0].clone()
    };
    let result = |data: &Value| (data["prediction"].clone(), data["scores"].clone());
    let plain = data(sequence("p", &["dish-01", "dish-02", "dish-03"])).await;
    let timed = json!({"sequence_id": "p", "events": [
        {"item_id": "dish-03", "ts": "2999-01-03T00:00:00Z"}, {"item_id": "dish-01", "ts": "1999-01-01T00:00:00Z"},
        {"item_id": "dish-02", "ts": "2026-01-02T00:00:00.5+02:00"}]});
    assert_eq!(data(timed).await, plain);
    let unknown = data(sequence("p", &["dish-01", "haggis", "dish-02", "dish-03"])).await;
    assert_eq!(result(&unknown), result(&plain));
    assert_eq!(
        (&unknown["n_unknown"], &unknown["n_used"]),
        (&json!(1), &json!(3))
    );
    let items: Vec<String> = (0..20).map(|at| format!("dish-{:02}", at % 9)).collect();
    let items: Vec<&str> = items.iter().map(String::as_str).collect();
    let long = data(sequence("p", &items)).await;
    assert_eq!(
        (&long["n_events"], &long["n_used"]),
        (&json!(20), &json!(12))
    );
    assert_eq!(
        result(&long),
        result(&data(sequence("p", &items[8..])).await)
    );
    for (body, field, reason) in [
        (
            json!({"sequences": [sequence("p", &items)], "on_long": "refuse"}),
            "sequences[0].events",
            "too_long",
        ),
        (
            json!({"sequences": [some_sequence(), sequence("p", &["dish-01", "haggis"])], "on_unknown": "refuse"}),
            "sequences[1].events[1].item_id",
            "unknown_item",
        ),
        (
            json!({"sequences": [{"sequence_id": "p", "events": [
                {"item_id": "haggis", "ts": "2026-11-24T00:00:00Z"},
                {"item_id": "dish-01", "ts": "2026-11-23T00:00:00Z"},
            ]}], "on_unknown": "refuse"}),
            "sequences[0].events",
            "unknown_item",
        ),
    ] {
        let refused = call(&key, "predict", &body).await;
        assert_eq!(
            field_errors(&refused),
            [(field.to_owned(), reason.to_owned())]
        );
    }
    assert_eq!(
        totals(&world).await.0,
        5,
        "refused requests are not charged"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn continuations_follow_from_seed() {
    let world = serving_world().await;
    let body = |sequences: Value, seed: Value| json!({"sequences": sequences, "mode": "sample", "seed": seed, "n_continuations": 3, "temperature": 2});
    let one = json!([some_sequence()]);
    let drawn = served(&world.key(), "generate", &body(one.clone(), Value::Null)).await;
    let seed = string(&drawn["seed"]);
    let repeated = served(&world.key(), "generate", &body(one.clone(), json!(seed))).await;
    assert_eq!(repeated["data"], drawn["data"]);
    let among = json!([sequence("other", &["dish-05"]), some_sequence()]);
    let among = served(&world.key(), "generate", &body(among, json!(seed))).await;
    assert_eq!(among["data"][1], drawn["data"][0]);
    let differs = served(
        &world.key(),
        "generate",
        &body(one.clone(), json!("18446744073709551615")),
    )
    .await;
    assert_ne!(differs["data"], drawn["data"]);
    let beam =
        json!({"sequences": one, "n_events": 4, "n_continuations": 10, "exclude_seen": true});
    let beam = served(&world.key(), "generate", &beam).await;
    assert_eq!(beam["seed"], Value::Null);
    let continuations = beam["data"][0]["continuations"].as_array().unwrap();
    assert_eq!(continuations.len(), 10);
    let scores: Vec<f64> = continuations
        .iter()
        .map(|one| one["score"].as_f64().unwrap())
        .collect();
    assert!(scores.is_sorted_by(|one, other| one >= other), "{scores:?}");
    for continuation in continuations {
        let mut items: Vec<_> = continuation["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| string(&event["item_id"]))
            .collect();
        items.extend(["dish-03".into(), "dish-11".into()]);
        items.sort();
        items.dedup();
        assert_eq!(items.len(), 6, "no item is repeated");
    }
}

/// Requests a stream of continuations.
pub async fn stream(client: &Client, model: &str, body: &Value) -> reqwest::Response {
    let path = format!("/v1/models/{model}/generate");
    let request = client.request("POST", &path).json(body);
    let request = request.header("Accept", "text/html, Text/Event-Stream; q=0.9");
    request.send().await.unwrap()
}

/// Returns the names and the data of server-sent events.
pub fn server_sent_events(stream: &str) -> Vec<(String, Value)> {
    let events = stream.split_terminator("\n\n");
    events
        .map(|event| {
            let (name, data) = event.split_once("\ndata: ").unwrap();
            let name = name.strip_prefix("event: ").unwrap();
            (name.to_owned(), serde_json::from_str(data).unwrap())
        })
        .collect()
}

/// Returns the events of all continuations as a stream has them, in any order.
pub fn streamed_events(data: &Value) -> Vec<Value> {
    let mut events = Vec::new();
    for data in data.as_array().unwrap() {
        for (at, continuation) in data["continuations"].as_array().unwrap().iter().enumerate() {
            for event in continuation["events"].as_array().unwrap() {
                events.push(
                    json!({"sequence_id": data["sequence_id"], "continuation": at, "event": event}),
                );
            }
        }
    }
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_has_the_events_of_the_response() {
    let world = serving_world().await;
    let key = world.key();
    let sequences = json!([some_sequence(), sequence("cold", &[])]);
    let mut grpc = ServingServiceClient::new(world.channel().await);
    for (mode, n_continuations) in [("sample", 3), ("beam", 1)] {
        let body = json!({"sequences": sequences, "n_events": 4, "mode": mode,
            "n_continuations": n_continuations, "seed": "11"});
        let whole = served(&key, "generate", &body).await;
        let before = totals(&world).await.1;
        let response = stream(&key, MODEL, &body).await;
        assert_eq!(response.status(), 200);
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(
            ["content-type", "x-model-version", "cache-control"].map(header),
            ["text/event-stream", "1", "no-store"].map(str::to_owned)
        );
        let events = server_sent_events(&response.text().await.unwrap());
        let ((name, done), events) = events.split_last().unwrap();
        assert_eq!((name.as_str(), done), ("done", &whole));
        assert!(events.iter().all(|(name, _)| name == "event"));
        let events: Vec<Value> = events.iter().map(|(_, data)| data.clone()).collect();
        assert_eq!(events, streamed_events(&whole["data"]));
        assert_eq!(totals(&world).await.1 - before, 8 * n_continuations);

        let message = v1::GenerateRequest {
            model_id: MODEL.into(),
            sequences: vec![
                sequence_message(&sequences[0]),
                sequence_message(&sequences[1]),
            ],
            n_events: Some(4),
            n_continuations: Some(n_continuations),
            mode: Some(mode.into()),
            seed: Some(11),
            ..v1::GenerateRequest::default()
        };
        let request = with_token(message, &world.org.key);
        let mut parts = grpc.stream_generate(request).await.unwrap().into_inner();
        let mut found = Vec::new();
        let done = loop {
            match parts.message().await.unwrap().unwrap().part.unwrap() {
                Part::Done(done) => break done,
                Part::Event(event) => {
                    let generated = event.event.unwrap();
                    let generated = json!({"item_id": generated.item_id, "type": generated.r#type});
                    found.push(json!({"sequence_id": event.sequence_id,
                        "continuation": event.continuation, "event": generated}));
                }
            }
        };
        assert_eq!(found, events);
        assert!(parts.message().await.unwrap().is_none());
        let generations = done.generations.unwrap();
        assert_eq!(generations.data.len(), 2);
        assert_eq!(
            generations.usage.unwrap().generated_events,
            8 * n_continuations
        );
    }
    let nobody = with_token(v1::GenerateRequest::default(), "nobody");
    let refused = grpc.stream_generate(nobody).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unauthenticated);
    let beams = json!({"sequences": sequences, "n_continuations": 2});
    let unknown = json!({"sequences": [sequence("p", &["haggis"])], "on_unknown": "refuse"});
    for (body, field) in [
        (beams, "n_continuations"),
        (unknown, "sequences[0].events[0].item_id"),
    ] {
        let before = totals(&world).await;
        let response = stream(&key, MODEL, &body).await;
        assert_eq!(response.status(), 422, "{field}");
        let body: Value = response.json().await.unwrap();
        let fields = &body["error"]["details"]["fields"];
        assert_eq!(fields[0]["field"], field, "{body}");
        assert_eq!(totals(&world).await, before);
    }
    let path = format!("/v1/models/{MODEL}/generate");
    let body = json!({"sequences": sequences, "n_continuations": 2});
    for accepted in ["*/*", "application/json, text/event-stream"] {
        let plain = key.request("POST", &path).json(&body);
        key.send(plain.header("Accept", accepted))
            .await
            .expect_status(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_stream_is_charged_once() {
    let world = serving_world().await;
    let key = world.key();
    let body = json!({"sequences": [some_sequence()], "mode": "sample"});
    let path = format!("/v1/models/{MODEL}/generate");
    let mut streams = Vec::new();
    for replayed in [None, Some("true")] {
        let request = key.request("POST", &path).json(&body);
        let request = request.header("Accept", "text/event-stream");
        let request = request.header("Idempotency-Key", "stream");
        let response = request.send().await.unwrap();
        let header = response.headers().get("idempotency-replayed");
        assert_eq!(header.map(|value| value.to_str().unwrap()), replayed);
        streams.push(response.text().await.unwrap());
        assert_eq!(totals(&world).await.1, 5);
    }
    assert_eq!(streams[0], streams[1]);
    // A client that disconnects before the first event is not charged.
    world.stack.engines[0].guarded.signal(libc::SIGSTOP);
    let request = key.request("POST", &path).json(&body);
    let request = request.header("Accept", "text/event-stream");
    let lost = request.timeout(Duration::from_millis(300)).send().await;
    assert!(lost.is_err());
    wait_until("refund", async || totals(&world).await.1 == 5).await;
    world.stack.engines[0].guarded.signal(libc::SIGCONT);
}

/// Streams that clients do not read hold neither the engine nor its permits, and their number is
/// limited.
#[tokio::test(flavor = "multi_thread")]
async fn unread_streams_leave_the_engine_free() {
    let world = serving_world().await;
    world.widen_plans().await;
    // The estimate of a busy machine would refuse so many events.
    let fast = "update models set package = jsonb_set(package, '{sequence_us}', '1')";
    sqlx::raw_sql(fast)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let sequences: Vec<Value> = (0..16)
        .map(|at| sequence(&format!("{at:0>250}"), &["dish-03"]))
        .collect();
    let message = v1::GenerateRequest {
        model_id: MODEL.into(),
        sequences: sequences.iter().map(sequence_message).collect(),
        n_events: Some(50),
        n_continuations: Some(10),
        mode: Some("sample".into()),
        ..v1::GenerateRequest::default()
    };
    let mut unread = Vec::new();
    for _ in 0..4 {
        // The streams of one connection share its flow control.
        let mut grpc = ServingServiceClient::new(world.channel().await);
        let request = with_token(message.clone(), &world.org.key);
        let mut parts = grpc.stream_generate(request).await.unwrap().into_inner();
        assert!(parts.message().await.unwrap().is_some());
        unread.push(parts);
    }
    let mut grpc = ServingServiceClient::new(world.channel().await);
    let request = || with_token(message.clone(), &world.org.key);
    let refused = grpc.stream_generate(request()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    let body = json!({"sequences": [some_sequence()]});
    served(&world.key(), "predict", &body).await;
    drop(unread);
    wait_until("another stream", async || {
        grpc.clone().stream_generate(request()).await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_versions_take_effect_at_once() {
    let world = serving_world().await;
    let body = json!({"sequences": [some_sequence()]});
    let version = async |body: &Value| {
        let body = served(&world.key(), "predict", body).await;
        string(&body["model_version"])
    };
    assert_eq!(version(&body).await, "1");
    let next = |version: &'static str| {
        with_model(&world, "embedded", |model| {
            model["version"] = json!(version);
        })
    };
    publish(&world, &next("2"), None).await.unwrap();
    assert_eq!(version(&body).await, "2");
    publish(&world, &next("own"), Some(&world.org.id))
        .await
        .unwrap();
    assert_eq!(version(&body).await, "own");
    publish(&world, &next("3"), None).await.unwrap();
    assert_eq!(version(&body).await, "own");
    // Of two versions with one name, the organization's own counts.
    let pinned = json!({"sequences": [some_sequence()], "model_version": "2"});
    assert_eq!(version(&pinned).await, "2");
    let keyed = async || {
        let path = format!("/v1/models/{MODEL}/predict");
        let client = world.key();
        let request = client.request("POST", &path).json(&body);
        let request = request.header("Idempotency-Key", "k");
        let response = client.send(request).await.unwrap();
        let version = response.header("x-model-version").to_owned();
        (version, response.header("idempotency-replayed").to_owned())
    };
    assert_eq!(keyed().await, ("own".into(), String::new()));
    publish(&world, &next("own-2"), Some(&world.org.id))
        .await
        .unwrap();
    assert_eq!(keyed().await, ("own-2".into(), "true".into()));
    assert_eq!(totals(&world).await.0, 6);
    let only_embeds = |version: &'static str| {
        with_model(&world, "embedded", |model| {
            model["version"] = json!(version);
            model["endpoints"] = json!(["embed"]);
        })
    };
    for (own, body) in [("2", &pinned), ("4", &body)] {
        let published = publish(&world, &only_embeds(own), Some(&world.org.id)).await;
        published.unwrap();
        call(&world.key(), "predict", body)
            .await
            .expect_error(409, "invalid_state");
    }
    assert_eq!(totals(&world).await.0, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn vectors_have_both_encodings() {
    use base64::Engine as _;
    let world = serving_world().await;
    let body = json!({"sequences": [some_sequence()]});
    let numbers = served(&world.key(), "embed", &body).await;
    assert_eq!(numbers["dim"], 16);
    let numbers: Vec<f32> =
        serde_json::from_value(numbers["data"][0]["embedding"].clone()).unwrap();
    let length: f32 = numbers.iter().map(|number| number * number).sum();
    assert!((length - 1.0).abs() < 1e-5, "{length}");
    let body = json!({"sequences": [some_sequence()], "encoding_format": "base64"});
    let text = string(&served(&world.key(), "embed", &body).await["data"][0]["embedding"]);
    let bytes = base64::prelude::BASE64_STANDARD.decode(text).unwrap();
    let decoded: Vec<f32> = bytes
        .chunks(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    assert_eq!(decoded, numbers);
    let mean = json!({"sequences": [some_sequence()], "pooling": "mean", "normalize": false});
    let mean: Vec<f32> = serde_json::from_value(
        served(&world.key(), "embed", &mean).await["data"][0]["embedding"].clone(),
    )
    .unwrap();
    assert_ne!(mean, numbers);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_requests_name_their_fields() {
    let world = serving_world().await;
    let good = json!([some_sequence()]);
    for (operation, body, field, reason) in [
        ("predict", json!({}), "sequences", "required"),
        ("predict", json!({"sequences": []}), "sequences", "range"),
        ("predict", json!({"sequences": {}}), "sequences", "type"),
        (
            "predict",
            json!({"sequences": good, "top_k": 501}),
            "top_k",
            "range",
        ),
        (
            "generate",
            json!({"sequences": [{"sequence_id": "s", "events": [], "options": ["dish-01"]}]}),
            "sequences[0].options",
            "unknown_field",
        ),
        (
            "embed",
            json!({"sequences": [{"sequence_id": "s", "events": [], "options": ["dish-01"]}]}),
            "sequences[0].options",
            "unknown_field",
        ),
        (
            "predict",
            json!({"sequences": good, "topk": 5}),
            "topk",
            "unknown_field",
        ),
        (
            "predict",
            json!({"sequences": good, "model_version": "99"}),
            "model_version",
            "not_found",
        ),
        (
            "predict",
            json!({"sequences": good, "model_version": "\0"}),
            "model_version",
            "not_found",
        ),
        (
            "predict",
            json!({"sequences": [sequence("p", &["x".repeat(10_000).as_str()])]}),
            "sequences[0].events[0].item_id",
            "range",
        ),
        (
            "predict",
            json!({"sequences": [sequence("p", &vec!["dish-01"; 10_001])]}),
            "sequences[0].events",
            "range",
        ),
        (
            "predict",
            json!({"sequences": [{"sequence_id": "p", "events": [{"item_id": "dish-01", "ts": "NaN"}]}]}),
            "sequences[0].events[0].ts",
            "type",
        ),
        (
            "generate",
            json!({"sequences": good, "n_events": 0}),
            "n_events",
            "range",
        ),
        (
            "generate",
            json!({"sequences": good, "seed": "-1"}),
            "seed",
            "range",
        ),
        (
            "generate",
            json!({"sequences": good, "temperature": "hot"}),
            "temperature",
            "type",
        ),
        (
            "embed",
            json!({"sequences": good, "pooling": "max"}),
            "pooling",
            "unknown_value",
        ),
    ] {
        let response = call(&world.key(), operation, &body)
            .await
            .expect_status(422);
        assert_eq!(
            field_errors(&response),
            [(field.to_owned(), reason.to_owned())]
        );
    }
    let many: Vec<_> = (0..65).map(|at| sequence(&format!("s{at}"), &[])).collect();
    let large = json!({"sequences": [sequence("p", &["dish-01"])], "model_version": "x".repeat(1024 * 1024)});
    for body in [json!({"sequences": many}), large] {
        call(&world.key(), "predict", &body)
            .await
            .expect_error(413, "payload_too_large");
    }
    assert_eq!(totals(&world).await, (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn unserved_models_are_refused() {
    let world = serving_world().await;
    crate::models::publish(&world, &crate::models::file())
        .await
        .unwrap();
    let only_embed = with_model(&world, "embedded", |model| {
        model["id"] = json!("only-embed");
        model["endpoints"] = json!(["embed"]);
    });
    // The golden requests are predictions, which the engine computes whatever the card offers.
    publish(&world, &only_embed, None).await.unwrap();
    let body = json!({"sequences": [some_sequence()]});
    for (model, status, code, reason) in [
        ("nothing", 404, "not_found", None),
        ("next-1", 409, "invalid_state", Some("no_engine")),
        (
            "only-embed",
            409,
            "invalid_state",
            Some("endpoint_not_offered"),
        ),
    ] {
        let response = world
            .key()
            .post(&format!("/v1/models/{model}/predict"), &body)
            .await
            .expect_error(status, code);
        let details = &response.body["error"]["details"]["reason"];
        assert_eq!(details.as_str(), reason, "{model}");
    }
    let viewer = world.member("viewer").await;
    call(&viewer, "predict", &body).await.expect_status(403);
    assert_eq!(totals(&world).await, (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn quota_holds_under_concurrent_requests() {
    let world = serving_world().await;
    sqlx::raw_sql(
        "update plans set requests_per_minute = 100000, predict_items_per_month = 100, generated_events_per_month = 100,
            embeddings_per_month = 100 where plan = 'team'",
    )
    .execute(&mut world.database().await)
    .await
    .unwrap();
    for (operation, limit, body) in [
        (
            "predict",
            "predict_items_per_month",
            json!({"sequences": [some_sequence(), sequence("q", &[]), sequence("r", &[])]}),
        ),
        (
            "generate",
            "generated_events_per_month",
            json!({"sequences": [some_sequence()], "n_events": 3}),
        ),
        (
            "embed",
            "embeddings_per_month",
            json!({"sequences": [some_sequence(), sequence("q", &[]), sequence("r", &[])]}),
        ),
    ] {
        let calls = (0..40).map(async |_| call(&world.key(), operation, &body).await);
        let responses = join_all(calls).await;
        let served = responses
            .iter()
            .filter(|response| response.status == 200)
            .count();
        assert_eq!(served, 33, "{operation}: three units each, of 100");
        for response in responses.iter().filter(|response| response.status != 200) {
            assert_eq!(error_code(response), "quota_exceeded");
            let details = &response.body["error"]["details"];
            assert_eq!(
                (&details["limit"], &details["max"]),
                (&json!(limit), &json!(100))
            );
        }
    }
    assert_eq!(totals(&world).await, (99, 99, 99));
}

#[tokio::test(flavor = "multi_thread")]
async fn idempotency_key_is_charged_once() {
    let world = serving_world().await;
    let body = json!({"sequences": [some_sequence()], "mode": "sample"});
    let post = async |key: &str, body: &Value| {
        let path = format!("/v1/models/{MODEL}/generate");
        let client = world.key();
        let request = client
            .request("POST", &path)
            .header("Idempotency-Key", key)
            .json(body);
        client.send(request).await.unwrap()
    };
    // Two repetitions are free. Who repeats more often pays for the work.
    for (requests, free, charged) in [(3, 2, 5), (17, 0, 90)] {
        let responses = join_all((0..requests).map(|_| post("one", &body))).await;
        let replayed = |response: &&Response| response.header("idempotency-replayed") == "true";
        assert_eq!(responses.iter().filter(replayed).count(), free);
        for response in &responses {
            assert_eq!((response.status, &response.body), (200, &responses[0].body));
        }
        assert_eq!(totals(&world).await.1, charged);
    }
    let other = post(
        "one",
        &json!({"sequences": [sequence("q", &[])], "mode": "sample"}),
    )
    .await;
    assert_eq!(
        field_errors(&other),
        [("Idempotency-Key".into(), "conflict".into())]
    );
    post("", &body).await.expect_status(422);
    // A key of the day before is charged again.
    sqlx::raw_sql("update serve_keys set created_at = now() - interval '24 hours'")
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let later = post("one", &body).await.expect_status(200);
    assert_eq!(later.header("idempotency-replayed"), "");
    assert_eq!(totals(&world).await.1, 95);
}

/// The first request with a key fails while a repetition of it is computed: whichever ends first, the
/// result is charged once.
#[tokio::test(flavor = "multi_thread")]
async fn repetition_of_a_refunded_request_is_charged() {
    let world = serving_world().await;
    let body = json!({"sequences": [some_sequence()]});
    let request = || {
        let path = format!("/v1/models/{MODEL}/predict");
        let client = world.key();
        let request = client.request("POST", &path).json(&body);
        (client, request.header("Idempotency-Key", "k"))
    };
    world.stack.engines[0].guarded.signal(libc::SIGSTOP);
    let (client, first) = request();
    let first = tokio::spawn(async move { client.send(first).await });
    wait_until("charge", async || totals(&world).await.0 == 1).await;
    let (client, repetition) = request();
    let repetition = tokio::spawn(async move { client.send(repetition).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    first.abort();
    wait_until("refund", async || totals(&world).await.0 == 0).await;
    world.stack.engines[0].guarded.signal(libc::SIGCONT);
    let response = repetition.await.unwrap().unwrap();
    assert_eq!(
        (response.status, response.header("idempotency-replayed")),
        (200, "")
    );
    assert_eq!(totals(&world).await.0, 1);

    let url = &world.stack.database.owner_url;
    let pool = store::pool(url, 2, "test", PoolProfile::WORK).unwrap();
    let mut db = pool.acquire().await.unwrap();
    let org_id: OrgId = world.org.id.parse().unwrap();
    let key = Key {
        key: "other",
        request_sha256: &[7; 32],
    };
    let units = Units {
        unit: Unit::PredictItems,
        n: 5,
    };
    let before = Charged::Before { is_same: true };
    let charged = charges::charge_once(&mut db, &org_id, key, units, 100, None).await;
    let Charged::New(charge) = charged.unwrap() else {
        panic!("not charged");
    };
    for _ in 0..2 {
        let repeated = charges::charge_repeated(&mut db, &org_id, key, units, 100).await;
        assert_eq!(repeated.unwrap(), before);
    }
    charges::refund(&pool, &org_id, &charge, Some(key.key))
        .await
        .unwrap();
    assert_eq!(totals(&world).await.0, 6);
    let later = charges::charge_once(&mut db, &org_id, key, units, 100, None).await;
    assert_eq!(later.unwrap(), before);
    let other = Key {
        request_sha256: &[8; 32],
        ..key
    };
    let repeated = charges::charge_repeated(&mut db, &org_id, other, units, 100).await;
    assert_eq!(repeated.unwrap(), Charged::Before { is_same: false });
    let new = Key { key: "new", ..key };
    let full = charges::charge_repeated(&mut db, &org_id, new, units, 10).await;
    assert!(matches!(full.unwrap(), Charged::MonthFull { .. }));
    assert_eq!(totals(&world).await.0, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_engine_returns_503_and_recovers() {
    let mut world = serving_world().await;
    let body = json!({"sequences": [some_sequence()]});
    let before = served(&world.key(), "predict", &body).await;
    let listen = kill_engine(&mut world);
    for _ in 0..8 {
        let response = call(&world.key().without_retries(), "predict", &body)
            .await
            .expect_error(503, "unavailable");
        assert_eq!(response.header("retry-after"), "1");
    }
    assert_eq!(totals(&world).await.0, 1, "failed requests are refunded");
    world.key().get("/v1/models").await.expect_status(200);
    let engine = world.stack.launch_engine(listen).unwrap();
    engine.ready().await.unwrap();
    world.stack.engines.push(engine);
    wait_until("the engine serves again", async || {
        call(&world.key(), "predict", &body).await.status == 200
    })
    .await;
    assert_eq!(served(&world.key(), "predict", &body).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_engine_returns_503_within_deadline() {
    let world = world_with(StackSize {
        workers: 0,
        engines: 1,
        env: [("ASSAY_SERVE_DEADLINE".to_owned(), "1".to_owned())].into(),
        ..StackSize::default()
    })
    .await;
    publish(&world, &package("embedded"), None).await.unwrap();
    let body = json!({"sequences": [some_sequence()]});
    served(&world.key(), "predict", &body).await;
    world.stack.engines[0].guarded.signal(libc::SIGSTOP);
    call(&world.key().without_retries(), "predict", &body)
        .await
        .expect_error(503, "unavailable");
    // The API waited until the deadline instead of refusing the call.
    let metrics = scrape(&world.stack.apis[0]).await;
    let waited = metrics.lines().any(|line| {
        line.starts_with("assay_engine_client_calls_total") && line.contains("outcome=\"timeout\"")
    });
    assert!(waited, "{metrics}");
    // A client that does not wait for the response is refunded as well.
    let request = world
        .key()
        .request("POST", &format!("/v1/models/{MODEL}/predict"))
        .json(&body);
    assert!(
        request
            .timeout(Duration::from_millis(300))
            .send()
            .await
            .is_err()
    );
    wait_until("refund", async || totals(&world).await.0 == 1).await;
    world.stack.engines[0].guarded.signal(libc::SIGCONT);
    wait_until("the engine serves again", async || {
        call(&world.key(), "predict", &body).await.status == 200
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn adapted_model_is_visible_to_its_organization() {
    let world = serving_world().await;
    let other = org(&world.stack, "team").await;
    let adapted = with_model(&world, "embedded", |model| {
        model["status"] = json!("adapted");
    });
    publish(&world, &adapted, Some(&world.org.id))
        .await
        .unwrap();
    let own = with_model(&world, "embedded", |model| model["id"] = json!("private"));
    publish(&world, &own, Some(&world.org.id)).await.unwrap();
    let theirs = world.client(&other.key);
    let card = |client: Client, id: &'static str| async move {
        client.get(&format!("/v1/models/{id}")).await.unwrap()
    };
    let mine = card(world.key(), MODEL).await.body;
    assert_eq!(
        (&mine["adapted"], &mine["status"]),
        (&json!(true), &json!("adapted"))
    );
    assert!(mine["adapted_at"].is_string());
    let base = card(theirs.clone(), MODEL).await.body;
    assert_eq!(
        (&base["adapted"], &base["status"]),
        (&json!(false), &json!("beta"))
    );
    card(world.key(), "private").await.expect_status(200);
    card(theirs.clone(), "private").await.expect_status(404);
    let ids = |listed: Value| -> Vec<String> {
        listed["models"]
            .as_array()
            .unwrap()
            .iter()
            .map(|model| string(&model["id"]))
            .collect()
    };
    assert_eq!(
        ids(world.key().get("/v1/models").await.unwrap().body),
        [MODEL, "private"]
    );
    assert_eq!(ids(theirs.get("/v1/models").await.unwrap().body), [MODEL]);
    let body = json!({"sequences": [some_sequence()]});
    for operation in ["predict", "generate", "embed"] {
        let path = format!("/v1/models/private/{operation}");
        world.key().post(&path, &body).await.expect_status(200);
        theirs
            .post(&path, &body)
            .await
            .expect_error(404, "not_found");
    }
    let mut grpc = ServingServiceClient::new(world.channel().await);
    let message = v1::EmbedRequest {
        model_id: "private".into(),
        sequences: vec![sequence_message(&some_sequence())],
        ..v1::EmbedRequest::default()
    };
    let status = grpc
        .embed(with_token(message, &other.key))
        .await
        .unwrap_err();
    assert_eq!(status.code(), tonic::Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn histories_are_never_logged() {
    let world = serving_world().await;
    let canary = "canary-4711";
    let sequence = json!({"sequence_id": canary, "events": [{"item_id": canary, "type": canary}, {"item_id": "dish-01"}], "options": [canary]});
    let body = json!({"sequences": [sequence]});
    for operation in ["predict", "generate", "embed"] {
        call(&world.key(), operation, &body).await;
    }
    call(
        &world.key(),
        "predict",
        &json!({"sequences": [sequence], "on_unknown": "refuse"}),
    )
    .await;
    for process in world.stack.apis.iter().chain(&world.stack.engines) {
        let log = std::fs::read_to_string(&process.log).unwrap();
        assert!(!log.is_empty() && !log.contains(canary), "{log}");
        assert!(!crate::harness::scrape(process).await.contains(canary));
    }
}
