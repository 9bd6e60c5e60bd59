//! Real external engines, MLServer and Triton from PyPI: they return the embedded engine's
//! results, and their failures affect no other model.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use assay_proto::v1;
use assay_proto::v1::serving_service_client::ServingServiceClient;
use assay_tests::client::{Client, Response};
use assay_tests::databases::fresh_name;
use assay_tests::servers::{Guarded, GuardedCommand};
use assay_tests::stack::{StackSize, free_address};
use assay_tests::wait::wait_timeout;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::clients::{MissingTool, prepare, python_with, run};
use crate::harness::{
    Expect, World, field_errors, ground, long_test, one_prediction, string, wait_until, with_token,
    world_with,
};
use crate::packages::{publish, with_model};
use crate::serving::{self, package, sequence, sequence_message, totals};

/// The embedded engine's model, which has the same weights as the external ones.
const EMBEDDED: &str = "embedded";

/// The largest difference between two engines' numbers.
const TOLERANCE: f64 = 1e-5;

/// The item that makes the faulty models fail.
const TRIGGER: &str = "trigger";

/// The environment variable by which a launched engine's processes are found.
const MARKER: &str = "TEST_ENGINE";

/// The models' profiles in each engine.
const PROFILES: [&str; 2] = ["codes", "ids"];

#[derive(Clone, Copy)]
enum Kind {
    MlServer,
    Triton,
}

impl Kind {
    /// Returns the name in `ASSAY_ENGINES` and in the package names.
    fn name(self) -> &'static str {
        match self {
            Self::MlServer => "mlserver",
            Self::Triton => "triton",
        }
    }

    /// Returns a Python interpreter with the engine, which it installs on first use.
    fn python(self) -> Result<PathBuf, MissingTool> {
        if matches!(self, Self::Triton) {
            let mut check = std::process::Command::new("python3");
            check.arg(sources().join("triton_engine.py")).arg("--check");
            run(&mut check, "python3 cannot run Triton")?;
        }
        let requirements = format!("requirements-{}.txt", self.name());
        python_with(self.name(), &sources().join(requirements))
    }
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("engines")
}

/// A running external engine.
struct External {
    guarded: Guarded,
    address: SocketAddr,
    log: PathBuf,
    marker: String,
}

impl External {
    /// Starts an engine and waits until its models are ready.
    async fn start(kind: Kind, python: PathBuf) -> Self {
        let ground = ground();
        let folder = ground.servers.folder();
        let marker = fresh_name(kind.name());
        let address = free_address().unwrap();
        let log = folder.join(format!("{marker}.log"));
        let models = folder.join(&marker);
        std::fs::create_dir(&models).unwrap();
        let mut command = GuardedCommand::new(python);
        let launcher = sources().join(format!("{}_engine.py", kind.name()));
        command.args = vec![launcher.into(), address.port().to_string().into()];
        if matches!(kind, Kind::Triton) {
            command.args.push(models.clone().into());
        }
        command.env = [
            (MARKER, marker.as_str()),
            ("PYTHONDONTWRITEBYTECODE", "1"),
            // Longer than the test, so that a slow response never arrives.
            ("SLOW_SECONDS", "600"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .into();
        // MLServer reads settings from files in its working folder.
        command.current_dir = Some(models);
        command.log = Some(log.clone());
        command.run_folder = Some(folder.to_path_buf());
        // Triton's launcher kills the server after eight seconds.
        command.grace = Duration::from_secs(20);
        let engine = Self {
            guarded: Guarded::spawn(&command).unwrap(),
            address,
            log,
            marker,
        };
        wait_until(kind.name(), async || {
            let is_running = engine.guarded.try_wait().is_none();
            assert!(
                is_running,
                "{} did not start:\n{}",
                kind.name(),
                engine.log()
            );
            engine.log().contains(r#"{"ready": true"#)
        })
        .await;
        engine
    }

    fn log(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Returns the engine's process ids that still run.
    fn processes(&self) -> Vec<u32> {
        let marker = format!("{MARKER}={}", self.marker);
        let is_marked = |pid: &u32| {
            // A process that has ended, and a zombie, have no environment.
            let variables = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            variables
                .split(|byte| *byte == 0)
                .any(|variable| variable == marker.as_bytes())
        };
        std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(is_marked)
            .collect()
    }

    /// Waits until no engine process is left. Kills those that outlive the first one, as a
    /// container's end does: a Triton Python backend process sometimes does not notice it.
    async fn wait_until_gone(&self) {
        assert!(
            self.guarded.wait(wait_timeout()).is_some(),
            "{}",
            self.log()
        );
        for pid in self.processes() {
            let killed = std::process::Command::new("kill")
                .args(["-KILL", &pid.to_string()])
                .output();
            assert!(killed.is_ok(), "{killed:?}");
        }
        wait_until("end of all processes", async || self.processes().is_empty()).await;
    }
}

impl Drop for External {
    fn drop(&mut self) {
        // A killed Triton launcher cannot remove the shared memory.
        let prefix = format!("assay_triton_{}_", self.guarded.pid());
        for region in std::fs::read_dir("/dev/shm")
            .into_iter()
            .flatten()
            .flatten()
        {
            if region.file_name().to_string_lossy().starts_with(&prefix)
                && self.processes().is_empty()
            {
                let _ = std::fs::remove_file(region.path());
            }
        }
    }
}

/// Starts an engine, and a world that names it. Returns `None` if it cannot be installed.
async fn world_and_engine(kind: Kind, deadline: &str) -> Option<(World, External)> {
    let python = prepare(move || kind.python()).await?;
    let engine = External::start(kind, python).await;
    let engines = format!("{}=http://{}", kind.name(), engine.address);
    let plan = StackSize {
        engines: 1,
        env: [
            ("ASSAY_ENGINES", engines.as_str()),
            ("ASSAY_SERVE_DEADLINE", deadline),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into(),
        ..StackSize::default()
    };
    let world = world_with(plan).await;
    world.widen_plans().await;
    publish(&world, &package(EMBEDDED), None).await.unwrap();
    for model in models(kind) {
        publish(&world, &package(&model), None).await.unwrap();
    }
    Some((world, engine))
}

/// Returns the ids of an engine's models.
fn models(kind: Kind) -> [String; 2] {
    PROFILES.map(|profile| format!("{}-{profile}", kind.name()))
}

async fn call(client: &Client, model: &str, operation: &str, body: &Value) -> Response {
    let path = format!("/v1/models/{model}/{operation}");
    client.post(&path, body).await.unwrap()
}

/// Calls an operation that must succeed, and returns the body. A busy machine may exceed a
/// deadline.
async fn served(client: &Client, model: &str, operation: &str, body: &Value) -> Value {
    let response = call(client, model, operation, body)
        .await
        .expect_status(200);
    response.body
}

/// Asserts that two values are equal, with a tolerance for numbers.
fn assert_close(context: &str, one: &Value, other: &Value) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            // Most external engines do not say whether a ranking is exact.
            let names = |object: &serde_json::Map<String, Value>| -> Vec<String> {
                let names = object.keys().filter(|name| *name != "exact");
                names.cloned().collect()
            };
            assert_eq!(names(one), names(other), "{context}");
            for (name, value) in one.iter().filter(|(name, _)| *name != "exact") {
                assert_close(&format!("{context}.{name}"), value, &other[name]);
            }
        }
        (Value::Array(one), Value::Array(other)) => {
            assert_eq!(one.len(), other.len(), "{context}: {one:?} {other:?}");
            for (at, (one, other)) in one.iter().zip(other).enumerate() {
                assert_close(&format!("{context}[{at}]"), one, other);
            }
        }
        (Value::Number(one), Value::Number(other)) => {
            let difference = one.as_f64().unwrap() - other.as_f64().unwrap();
            assert!(difference.abs() < TOLERANCE, "{context}: {one} {other}");
        }
        (one, other) => assert_eq!(one, other, "{context}"),
    }
}

/// All kinds of sequences: short, longer than the context, empty, unknown and partly unknown.
fn sequences() -> Vec<Value> {
    let long: Vec<String> = (0..20)
        .map(|at| format!("dish-{:02}", at * 4 % 27))
        .collect();
    let long: Vec<&str> = long.iter().map(String::as_str).collect();
    vec![
        sequence("short", &["dish-03", "拉麺", "dish-11"]),
        sequence("long", &long),
        sequence("cold", &[]),
        sequence("unknown", &["haggis", "stew"]),
        sequence("partly", &["haggis", "dish-09", "stew", "dish-10", "7"]),
    ]
}

fn with_options() -> Value {
    let mut sequences = sequences();
    sequences[0]["options"] = json!(["stew", "dish-20", "7", "haggis", "dish-03", "x".repeat(512)]);
    sequences[2]["options"] = json!(["crème brûlée", "dish-05"]);
    sequences[3]["options"] = json!(["haggis"]);
    json!(sequences)
}

/// The requests whose results are the same on all engines and with both profiles.
fn requests() -> Vec<(&'static str, Value)> {
    let (all, optional) = (json!(sequences()), with_options());
    let mut unknown = sequence("p", &["dish-01"]);
    unknown["options"] = json!(["stew", "haggis"]);
    let mut seen = sequence("p", &["dish-01"]);
    seen["options"] = json!(["dish-01"]);
    let refused = json!([sequence("p", &["dish-01", "haggis"])]);
    let too_long = json!([sequence("p", &["dish-01"; 13])]);
    vec![
        ("predict", json!({"sequences": all})),
        (
            "predict",
            json!({"sequences": all, "top_k": 3, "exclude_seen": true}),
        ),
        ("predict", json!({"sequences": all, "top_k": 500})),
        ("predict", json!({"sequences": optional})),
        (
            "predict",
            json!({"sequences": optional, "top_k": 2, "exclude_seen": true}),
        ),
        ("predict", json!({"sequences": [unknown]})),
        (
            "predict",
            json!({"sequences": [seen], "exclude_seen": true}),
        ),
        (
            "predict",
            json!({"sequences": refused, "on_unknown": "refuse"}),
        ),
        (
            "predict",
            json!({"sequences": too_long, "on_long": "refuse"}),
        ),
        ("embed", json!({"sequences": all})),
        ("embed", json!({"sequences": all, "normalize": false})),
        (
            "generate",
            json!({"sequences": all, "n_events": 3, "n_continuations": 4}),
        ),
        (
            "generate",
            json!({"sequences": all, "n_events": 4, "exclude_seen": true}),
        ),
    ]
}

fn samples() -> [Value; 2] {
    let all = json!(sequences());
    let request =
        json!({"sequences": all, "mode": "sample", "seed": "18446744073709551615", "n_events": 4});
    let [mut one, mut other] = [request.clone(), request];
    one["n_continuations"] = json!(3);
    other["temperature"] = json!(0.4);
    other["exclude_seen"] = json!(true);
    [one, other]
}

async fn check_results(world: &World, kind: Kind) {
    let key = world.key();
    let [codes, ids] = models(kind);
    for (operation, body) in requests() {
        let embedded = call(&key, EMBEDDED, operation, &body).await;
        for model in [&codes, &ids] {
            let external = call(&key, model, operation, &body).await;
            let context = format!("{model} {operation} {body}");
            assert_eq!(
                external.status, embedded.status,
                "{context}: {}",
                external.body
            );
            if embedded.status == 200 {
                for field in ["data", "usage", "operation", "model_version"] {
                    assert_close(&context, &external.body[field], &embedded.body[field]);
                }
            } else {
                assert_eq!(embedded.status, 422, "{}", embedded.body);
                assert_eq!(
                    field_errors(&external),
                    field_errors(&embedded),
                    "{context}"
                );
            }
        }
    }
    let mean = json!({"sequences": sequences(), "pooling": "mean"});
    let embedded = served(&key, EMBEDDED, "embed", &mean).await;
    let external = served(&key, &ids, "embed", &mean).await;
    assert_close("mean", &external["data"], &embedded["data"]);
    // The bare network returns the last position's state only.
    call(&key, &codes, "embed", &mean)
        .await
        .expect_error(409, "invalid_state");
}

async fn check_samples(world: &World, kind: Kind) {
    let key = world.key();
    let [codes, ids] = models(kind);
    for body in samples() {
        let embedded = served(&key, EMBEDDED, "generate", &body).await;
        let external = served(&key, &codes, "generate", &body).await;
        assert_eq!(external["seed"], embedded["seed"]);
        assert_close(&codes, &external["data"], &embedded["data"]);
        // An engine that reads ids returns a ranking, which does not have the code order.
        // Its samples differ from the network's, and depend on the seed in the same way.
        let together = served(&key, &ids, "generate", &body).await;
        for (sequence, together) in sequences().iter().zip(together["data"].as_array().unwrap()) {
            let mut alone = body.clone();
            alone["sequences"] = json!([sequence]);
            let alone = served(&key, &ids, "generate", &alone).await;
            assert_close(&ids, &alone["data"][0], together);
        }
    }
    // A sampled item's score is its prediction's score.
    let short = json!([sequences()[0]]);
    let body = json!({"sequences": short, "mode": "sample", "n_events": 1, "n_continuations": 5, "seed": "3"});
    let drawn = served(&key, &ids, "generate", &body).await;
    let ranked = served(
        &key,
        EMBEDDED,
        "predict",
        &json!({"sequences": short, "top_k": 500}),
    )
    .await;
    let ranked = &ranked["data"][0];
    for continuation in drawn["data"][0]["continuations"].as_array().unwrap() {
        let items = ranked["prediction"].as_array().unwrap().iter();
        let mut scored = items.zip(ranked["scores"].as_array().unwrap());
        let item_id = &continuation["events"][0]["item_id"];
        let (_, score) = scored.find(|(item, _)| *item == item_id).unwrap();
        assert_close("score", &continuation["score"], score);
    }
}

async fn check_grpc(world: &World, model: &str) {
    let key = world.key();
    let mut grpc = ServingServiceClient::new(world.channel().await);
    let (body, messages) = (json!({"sequences": sequences()}), || {
        sequences().iter().map(sequence_message).collect::<Vec<_>>()
    });
    let predict = with_token(
        v1::PredictRequest {
            model_id: model.into(),
            sequences: messages(),
            ..v1::PredictRequest::default()
        },
        &world.org.key,
    );
    let predicted = grpc.predict(predict).await.unwrap().into_inner();
    let predicted = predicted.predictions.unwrap().data.into_iter().map(|data| {
        let (ids, scores): (Vec<_>, Vec<_>) = data
            .prediction
            .into_iter()
            .map(|scored| (scored.item_id, scored.score))
            .unzip();
        json!({"sequence_id": data.sequence_id, "prediction": ids, "scores": scores, "n_events": data.n_events,
            "n_used": data.n_used, "n_unknown": data.n_unknown, "cold": data.cold})
    });
    let rest = served(&key, model, "predict", &body).await;
    assert_close(model, &predicted.collect(), &rest["data"]);
    let generate = with_token(
        v1::GenerateRequest {
            model_id: model.into(),
            sequences: messages(),
            ..v1::GenerateRequest::default()
        },
        &world.org.key,
    );
    let generated = grpc.generate(generate).await.unwrap().into_inner();
    let generated = generated.generations.unwrap().data.into_iter().map(|data| {
        let continuations = data.continuations.into_iter().map(|continuation| {
            let events = continuation.events.into_iter();
            let events: Value = events
                .map(|event| json!({"item_id": event.item_id, "type": event.r#type}))
                .collect();
            json!({"events": events, "score": continuation.score})
        });
        continuations.collect::<Value>()
    });
    let rest = served(&key, model, "generate", &body).await;
    for (generated, rest) in generated.zip(rest["data"].as_array().unwrap()) {
        assert_close(model, &generated, &rest["continuations"]);
    }
    let embed = with_token(
        v1::EmbedRequest {
            model_id: model.into(),
            sequences: messages(),
            ..v1::EmbedRequest::default()
        },
        &world.org.key,
    );
    let embedded = grpc.embed(embed).await.unwrap().into_inner();
    let embedded = embedded.embeddings.unwrap().data.into_iter();
    let rest = served(&key, model, "embed", &body).await;
    for (embedded, rest) in embedded.zip(rest["data"].as_array().unwrap()) {
        assert_close(model, &json!(embedded.embedding), &rest["embedding"]);
    }
}

/// Publishes changed packages, which the engine contradicts.
async fn check_publication(world: &World, kind: Kind) {
    let [codes, ids] = models(kind);
    for model in [&codes, &ids] {
        let next = |change: fn(&mut Value)| {
            with_model(world, model, |card| {
                card["version"] = json!("1");
                card["id"] = json!("changed");
                change(card);
            })
        };
        let other_scores = next(|_| ());
        let path = other_scores.join("golden.json");
        let mut golden: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let score = &mut golden["requests"][1]["response"]["data"][1]["scores"][0];
        *score = json!(score.as_f64().unwrap() + 2e-4);
        std::fs::write(path, golden.to_string()).unwrap();
        for (folder, message) in [
            (
                other_scores,
                "golden.json: requests[1]: data[1].scores[0] is",
            ),
            (
                next(|card| card["serving"]["name"] = json!("nothing")),
                "the metadata of the model in the engine",
            ),
        ] {
            let refused = publish(world, &folder, None).await.unwrap_err();
            assert!(refused.contains(message), "{message}: {refused}");
        }
    }
    let changed = |change: fn(&mut Value)| {
        with_model(world, &codes, |card| {
            card["id"] = json!("changed");
            change(card);
        })
    };
    for (folder, message) in [
        (
            changed(|card| card["embedding_dim"] = json!(17)),
            "the output `embedding` has the shape [-1, 16]; it must be [-1, 17]",
        ),
        (
            changed(|card| card["serving"]["name"] = json!("ids")),
            "the input `codes` is not among",
        ),
    ] {
        let refused = publish(world, &folder, None).await.unwrap_err();
        assert!(refused.contains(message), "{message}: {refused}");
    }
    world
        .key()
        .get("/v1/models/changed")
        .await
        .expect_status(404);
}

/// Calls a model that returns its best items, which cannot rank options.
async fn check_top_k(world: &World, kind: Kind) {
    let [codes, _] = models(kind);
    let folder = with_model(world, &codes, |card| {
        card["id"] = json!("best");
        card["serving"]["operations"]["predict"] = json!("topk");
    });
    let path = folder.join("golden.json");
    let mut golden: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    golden["requests"][1] = golden["requests"][0].clone();
    std::fs::write(path, golden.to_string()).unwrap();
    publish(world, &folder, None).await.unwrap();
    let key = world.key();
    for body in [
        json!({"sequences": sequences()}),
        json!({"sequences": sequences(), "top_k": 4, "exclude_seen": true}),
    ] {
        let embedded = served(&key, EMBEDDED, "predict", &body).await;
        let best = served(&key, "best", "predict", &body).await;
        assert_close("best", &best["data"], &embedded["data"]);
    }
    let body = json!({"sequences": with_options()});
    call(&key, "best", "predict", &body)
        .await
        .expect_error(409, "invalid_state");
}

async fn check_job(world: &World, model: &str) {
    // More than one call with 64 sequences.
    let many: Vec<Value> = (0..70)
        .map(|at| {
            let mut sequence = sequences()[at % 5].clone();
            sequence["sequence_id"] = json!(format!("s{at}"));
            sequence
        })
        .collect();
    let before = totals(world).await;
    let parameters = json!({"top_k": 4});
    let body = json!({"model_id": model, "sequences": many, "parameters": parameters});
    let job = world
        .key()
        .post("/v1/predictions", &body)
        .await
        .expect_status(202);
    let id = string(&job.body["id"]);
    let job = world.wait_until_finished(&id).await;
    assert_eq!(job["status"], "succeeded", "{job}");
    let result = &job["result"];
    for (field, n) in [
        ("n", 70),
        ("n_failed", 0),
        ("n_cold", 28),
        ("n_truncated", 14),
    ] {
        assert_eq!(result[field], n, "{field}: {result}");
    }
    assert_eq!(totals(world).await.0, before.0 + 70);
    let output = world
        .key()
        .get(&format!("/v1/jobs/{id}/output"))
        .await
        .unwrap();
    let output = string(&output.body);
    let lines: Vec<Value> = output
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 70);
    let body = json!({"sequences": sequences(), "top_k": 4});
    let embedded = served(&world.key(), EMBEDDED, "predict", &body).await;
    for (at, line) in lines.iter().enumerate() {
        assert_eq!(line["sequence_id"], format!("s{at}"));
        for field in ["prediction", "scores"] {
            assert_close(field, &line[field], &embedded["data"][at % 5][field]);
        }
    }
}

/// Streams samples, which are computed with one call for each event.
async fn check_stream(world: &World, model: &str) {
    let key = world.key();
    for body in samples() {
        let whole = served(&key, model, "generate", &body).await;
        let response = serving::stream(&key, model, &body).await;
        assert_eq!(response.status(), 200);
        let events = serving::server_sent_events(&response.text().await.unwrap());
        let ((name, done), events) = events.split_last().unwrap();
        assert_eq!(name, "done");
        assert_close(model, done, &whole);
        let position = |event: &Value| {
            let continuation = event["continuation"].as_u64().unwrap();
            (string(&event["sequence_id"]), continuation)
        };
        let mut found: Vec<Value> = events.iter().map(|(_, event)| event.clone()).collect();
        // One step's events come before the next one's.
        let firsts = found.iter().take(sequences().len()).map(position);
        let firsts: std::collections::BTreeSet<_> = firsts.collect();
        assert_eq!(firsts.len(), sequences().len());
        let mut expected = serving::streamed_events(&whole["data"]);
        found.sort_by_key(position);
        expected.sort_by_key(position);
        assert_eq!(found, expected);
    }
}

/// Kills the engine after a stream's first event, which ends with an error and is refunded.
async fn check_killed_during_stream(world: &World, engine: &External, model: &str) {
    let key = world.key();
    let sequences: Vec<Value> = (0..64)
        .map(|at| sequence(&format!("s{at}"), &["dish-03"]))
        .collect();
    let before = totals(world).await;
    // The longest stream that the deadline admits, so that it has not ended before the engine is killed.
    let mut n_events = 50;
    let mut response = loop {
        let body = json!({"sequences": sequences, "mode": "sample", "n_events": n_events});
        let response = serving::stream(&key, model, &body).await;
        // A request that would exceed the deadline by the engine's measured speed is refused.
        if response.status() != 413 || n_events == 1 {
            break response;
        }
        n_events /= 2;
    };
    assert_eq!(response.status(), 200);
    let mut text = response.chunk().await.unwrap().unwrap().to_vec();
    engine.guarded.signal(libc::SIGKILL);
    while let Some(chunk) = response.chunk().await.unwrap() {
        text.extend(chunk);
    }
    let events = serving::server_sent_events(std::str::from_utf8(&text).unwrap());
    let ((name, error), events) = events.split_last().unwrap();
    assert_eq!(
        (name.as_str(), &error["error"]["code"]),
        ("error", &json!("unavailable"))
    );
    assert!(string(&error["error"]["request_id"]).starts_with("req_"));
    let n_all = n_events * sequences.len();
    assert!((1..n_all).contains(&events.len()), "{}", events.len());
    assert!(events.iter().all(|(name, _)| name == "event"));
    assert_eq!(totals(world).await, before);
}

async fn conforms(kind: Kind) {
    let Some((mut world, engine)) = world_and_engine(kind, "30").await else {
        return;
    };
    check_results(&world, kind).await;
    check_samples(&world, kind).await;
    for model in models(kind) {
        check_grpc(&world, &model).await;
        check_job(&world, &model).await;
    }
    check_publication(&world, kind).await;
    check_top_k(&world, kind).await;
    for model in models(kind) {
        check_stream(&world, &model).await;
    }
    check_killed(&mut world, &engine, &models(kind)).await;
}

/// Publishes a model's package again, but names a faulty engine model.
async fn publish_faulty(world: &World, kind: Kind, name: &str) {
    let (profile, _) = name.split_once('-').unwrap();
    let folder = with_model(world, &format!("{}-{profile}", kind.name()), |card| {
        card["id"] = json!(name);
        card["serving"]["name"] = json!(name);
    });
    publish(world, &folder, None).await.unwrap();
}

fn plain() -> Value {
    sequence("plain", &["dish-05", "dish-06"])
}

/// A request with a sequence that makes faulty models fail, and another.
fn triggering() -> Value {
    json!({"sequences": [plain(), sequence("faulty", &["dish-01", TRIGGER])]})
}

/// Asserts that the healthy models work. Successful calls also keep the circuit breaker closed.
async fn check_healthy(world: &World, models: &[String], expected: &Value) {
    let body = json!({"sequences": [plain()]});
    for model in models {
        let healthy = served(&world.key(), model, "predict", &body).await;
        assert_close(model, &healthy["data"][0], expected);
    }
}

/// Calls a faulty model, together with other callers. Only the fault's caller gets an error,
/// and is refunded.
async fn check_invalid(world: &World, model: &str, operation: &str) {
    let key = world.key();
    let (trigger, body) = (triggering(), json!({"sequences": [plain()]}));
    let expected = served(&key, EMBEDDED, operation, &body).await;
    let before = totals(world).await;
    let faulty = async {
        let response = call(&key, model, operation, &trigger)
            .await
            .expect_error(500, "internal");
        assert!(!response.body.to_string().contains("on purpose"));
    };
    let others = join_all([0, 1].map(|_| served(&key, model, operation, &body)));
    let ((), others) = tokio::join!(faulty, others);
    for other in others {
        assert_close(model, &other["data"], &expected["data"]);
    }
    let charged = match operation {
        "predict" => (before.0 + 2, before.1, before.2),
        _ => (before.0, before.1, before.2 + 2),
    };
    assert_eq!(totals(world).await, charged, "{model} {operation}");
}

/// Calls a model that does not respond. Until the deadline, other engines respond.
async fn check_unresponsive(world: &World, model: &str) {
    let key = world.key();
    let body = json!({"sequences": [plain()]});
    let before = totals(world).await;
    let trigger = triggering();
    let faulty = async {
        let response = call(&key.without_retries(), model, "predict", &trigger)
            .await
            .expect_error(503, "unavailable");
        assert_eq!(response.header("retry-after"), "1");
    };
    let others = async {
        for _ in 0..3 {
            served(&key, EMBEDDED, "predict", &body).await;
        }
    };
    tokio::join!(faulty, others);
    assert_eq!(totals(world).await.0, before.0 + 3, "{model}");
}

async fn failures_stay_local(kind: Kind) {
    let Some((world, engine)) = world_and_engine(kind, "1").await else {
        return;
    };
    let healthy = models(kind);
    let body = json!({"sequences": [plain()]});
    let expected = served(&world.key(), EMBEDDED, "predict", &body).await["data"][0].clone();
    for profile in PROFILES {
        for fault in ["wrong-shape", "nan", "missing-row", "error"] {
            let model = format!("{profile}-{fault}");
            publish_faulty(&world, kind, &model).await;
            for operation in ["predict", "embed"] {
                check_invalid(&world, &model, operation).await;
                check_healthy(&world, &healthy, &expected).await;
            }
        }
        for fault in ["slow", "hanging"] {
            let model = format!("{profile}-{fault}");
            publish_faulty(&world, kind, &model).await;
            check_unresponsive(&world, &model).await;
            check_healthy(&world, &healthy, &expected).await;
            // The model itself works again as well.
            check_healthy(&world, &[model], &expected).await;
        }
    }
    engine.guarded.stop();
    engine.wait_until_gone().await;
}

/// Kills the engine. Its models are unavailable, and everything else works.
async fn check_killed(world: &mut World, engine: &External, models: &[String]) {
    let body = json!({"sequences": [plain()]});
    let expected = served(&world.key(), EMBEDDED, "predict", &body).await["data"][0].clone();
    check_killed_during_stream(world, engine, &models[0]).await;
    engine.wait_until_gone().await;
    let before = totals(world).await;
    let key = world.key().without_retries();
    for model in models {
        for operation in ["predict", "generate", "embed"] {
            for _ in 0..3 {
                call(&key, model, operation, &body)
                    .await
                    .expect_error(503, "unavailable");
            }
        }
    }
    assert_eq!(totals(world).await, before, "failed requests are refunded");
    check_healthy(world, &[EMBEDDED.to_owned()], &expected).await;
    let eval = world.submit_and_wait(&one_prediction()).await;
    assert_eq!(eval["status"], "succeeded", "{eval}");
}

#[tokio::test(flavor = "multi_thread")]
async fn mlserver_has_results_of_embedded_engine() {
    long_test!("installs an external engine and starts it");
    conforms(Kind::MlServer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn triton_has_results_of_embedded_engine() {
    long_test!("installs an external engine and starts it");
    conforms(Kind::Triton).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mlserver_failures_affect_no_other_model() {
    long_test!("installs an external engine and starts it");
    failures_stay_local(Kind::MlServer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn triton_failures_affect_no_other_model() {
    long_test!("installs an external engine and starts it");
    failures_stay_local(Kind::Triton).await;
}
