//! Pages of other origins in a real browser, which call by gRPC-web with connect.

use std::process::Command;
use std::time::Duration;

use assay_tests::demo_suite;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::Html;
use axum::routing::{get, post};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::chromium::{Chromium, Window};
use crate::clients::{Missing, made, node_with, run};
use crate::harness::{World, text, with, world_of};

/// How long the browser may take for a step.
const PATIENCE: Duration = Duration::from_secs(30);

const HTML: &str = r#"<!doctype html><meta charset="utf-8"><title>A page</title><script type="module" src="/page.js"></script>"#;

/// What the page needs: a browser, and its script with all that the script imports.
#[derive(Clone)]
struct Tools {
    chromium: Chromium,
    script: Bytes,
}

fn tools() -> Result<Tools, Missing> {
    let folder = node_with(
        "browser",
        &["package.json", "package-lock.json", ".npmrc", "page.mjs"],
    )?;
    let mut bundle = Command::new("node");
    bundle
        .arg(folder.join("node_modules/esbuild/bin/esbuild"))
        .arg(folder.join("page.mjs"));
    bundle.args([
        "--bundle",
        "--format=esm",
        "--target=es2022",
        "--log-level=warning",
    ]);
    let script = run(&mut bundle, "esbuild does not bundle the page's script")?
        .stdout
        .into();
    Ok(Tools {
        chromium: Chromium::find()?,
        script,
    })
}

/// What a page says, and where it waits for the answer.
struct Said {
    step: String,
    value: Value,
    answer: oneshot::Sender<Value>,
}

/// A site with one page, which tells the test what it does. The site is the page's origin.
struct Site {
    origin: String,
    said: mpsc::Receiver<Said>,
    window: Option<Window>,
}

impl Site {
    /// By name, for the api's address is a number: neither the origin nor the site is the api's.
    async fn start(script: Bytes) -> Self {
        let (sender, said) = mpsc::channel(1);
        let tell = async move |body: String| {
            let body: Value = serde_json::from_str(&body).unwrap();
            let (answer, answered) = oneshot::channel();
            let said = Said {
                step: text(&body["step"]),
                value: body["value"].clone(),
                answer,
            };
            // A test that has failed listens no more.
            let _ = sender.send(said).await;
            answered.await.unwrap_or_default().to_string()
        };
        // One after the other they are one message: of all files.
        let descriptors = [
            assay_proto::DESCRIPTORS,
            tonic_types::pb::FILE_DESCRIPTOR_SET,
        ]
        .concat();
        let routes = Router::new()
            .route("/", get(Html(HTML)))
            .route(
                "/page.js",
                get(([(CONTENT_TYPE, "text/javascript")], script)),
            )
            .route("/descriptors", get(descriptors))
            .route("/tell", post(tell));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://localhost:{}", listener.local_addr().unwrap().port());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self {
            origin,
            said,
            window: None,
        }
    }

    /// Opens the page and gives it something to do.
    async fn open(&mut self, chromium: &Chromium, world: &World, task: &str) {
        self.window = Some(chromium.open(&world.stack.ground.servers, &self.origin));
        let ready = self.step("ready").await;
        println!("{}", ready.value);
        let told = json!({
            "task": task, "api": world.stack.url(), "key": world.org.key, "session": world.org.session, "org": world.org.id,
            "suite": demo_suite::SUITE_ID,
        });
        ready.answer.send(told).unwrap();
    }

    /// Waits for the page to say this, and nothing else. It goes on when it is answered.
    async fn step(&mut self, step: &str) -> Said {
        let said = tokio::time::timeout(PATIENCE, self.said.recv()).await;
        let log = || self.window.as_ref().map(Window::log).unwrap_or_default();
        let said = said
            .unwrap_or_else(|_| panic!("the page does not come to {step:?}:\n{}", log()))
            .unwrap();
        let value = said
            .value
            .as_str()
            .map_or_else(|| said.value.to_string(), str::to_owned);
        assert_eq!(said.step, step, "{value}\n{}", log());
        said
    }

    /// The same, where there is nothing to do before the page goes on.
    async fn seen(&mut self, step: &str) -> Value {
        let said = self.step(step).await;
        said.answer.send(Value::Null).unwrap();
        said.value
    }
}

/// The headers that every answer has, as the page read them.
fn assert_readable(headers: &Value) {
    assert!(
        text(&headers["x-request-id"]).starts_with("req_"),
        "{headers}"
    );
    for name in [
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ] {
        assert!(
            text(&headers[name]).parse::<u64>().is_ok(),
            "{name}: {headers}"
        );
    }
}

/// A stream that told of a running job, and then of its end.
fn assert_watched(seen: &Value, end: &str) {
    assert!(
        seen["statuses"]
            .as_array()
            .unwrap()
            .ends_with(&[json!("running"), json!(end)]),
        "{seen}"
    );
    assert_eq!(seen["status"], "0");
    assert_readable(&seen["headers"]);
}

/// What the browser asked before it let a page call, by the api's log.
fn questions(world: &World) -> usize {
    let log = std::fs::read_to_string(&world.stack.apis[0].log).unwrap();
    log.lines().filter(|line| line.contains("OPTIONS")).count()
}

/// The page's mistakes are what REST says of them.
async fn assert_told_alike(world: &World, mistakes: &Value, cancelled: &str) {
    let key = world.key();
    let cancel = key.request("POST", &format!("/v1/jobs/{cancelled}/cancel"));
    for (name, status, rest) in [
        (
            "field",
            "INVALID_ARGUMENT",
            key.post(
                "/v1/evals",
                &json!({"suite_id": "", "label": "x".repeat(1000)}),
            )
            .await
            .unwrap(),
        ),
        (
            "state",
            "FAILED_PRECONDITION",
            key.send(cancel).await.unwrap(),
        ),
        (
            "stream",
            "NOT_FOUND",
            key.get("/v1/jobs/job_0000000000000000000000")
                .await
                .unwrap(),
        ),
        (
            "credential",
            "UNAUTHENTICATED",
            world.client("nobody").get("/v1/me").await.unwrap(),
        ),
    ] {
        let (grpc, rest) = (&mistakes[name], &rest.body["error"]);
        assert_eq!(
            json!([grpc["status"], grpc["code"], grpc["message"]]),
            json!([status, rest["code"], rest["message"]])
        );
        assert_eq!(grpc["fields"], rest["details"]["fields"], "{name}");
        assert_readable(&grpc["headers"]);
        assert_eq!(grpc["request_id"], grpc["headers"]["x-request-id"]);
    }
    assert!(
        mistakes["field"]["fields"].as_array().unwrap().len() > 1,
        "{mistakes}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_origin_submits_watches_reads_cancels_and_reads_errors_over_grpc_web() {
    let Some(Tools { chromium, script }) = made(tools).await else {
        return;
    };
    let mut site = Site::start(script).await;
    let world = world_of(with("ASSAY_CORS_ORIGINS", &site.origin)).await;
    let held = world.hold_answers().await;
    site.open(&chromium, &world, "all").await;

    let signed_in = site.seen("signed in").await;
    assert_eq!(
        json!([signed_in["principal"], signed_in["org_id"]]),
        json!(["session", world.org.id])
    );
    assert_readable(&signed_in["headers"]);
    assert!(questions(&world) > 0, "the browser asks first");

    assert_eq!(site.seen("cancelled").await, "cancelled");
    let cancelled = site.seen("watched").await;
    assert_watched(&cancelled, "cancelled");

    // The page has read from the stream while the job cannot go on.
    let running = site.step("running").await;
    drop(held);
    running.answer.send(Value::Null).unwrap();
    let scored = site.seen("scored").await;
    assert_watched(&scored, "succeeded");
    let job = world.ended(&text(&running.value)).await;
    assert_eq!(
        scored["job"],
        json!({"id": job["id"], "status": "succeeded", "label": "page"})
    );
    let result = crate::clients::as_javascript_writes(job["result"].clone());
    assert_eq!(
        (&scored["result"], &result["n_submitted"]),
        (&result, &json!(400))
    );

    let mistakes = site.seen("mistakes").await;
    assert_told_alike(&world, &mistakes, &text(&cancelled["id"])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_an_origin_that_is_not_configured_reads_nothing_and_submits_nothing() {
    let Some(Tools { chromium, script }) = made(tools).await else {
        return;
    };
    let (mut ours, mut another) = (Site::start(script.clone()).await, Site::start(script).await);
    let world = world_of(with("ASSAY_CORS_ORIGINS", &ours.origin)).await;

    another.open(&chromium, &world, "probe").await;
    let refused = json!({"created": "Unknown", "rest": "TypeError", "unasked": "TypeError", "opaque": "opaque 0"});
    assert_eq!(another.seen("probed").await, refused);
    assert!(questions(&world) > 0, "the browser asks first");
    assert_eq!(
        world.key().get("/v1/jobs").await.unwrap().body["jobs"],
        json!([])
    );

    // The same page where it may.
    ours.open(&chromium, &world, "probe").await;
    let allowed = json!({"created": "queued", "rest": 200, "unasked": 200, "opaque": "opaque 0"});
    assert_eq!(ours.seen("probed").await, allowed);
    assert_eq!(
        world.key().get("/v1/jobs").await.unwrap().body["jobs"]
            .as_array()
            .unwrap()
            .len(),
        1
    );

    // And the other one where all may.
    let open = world_of(with("ASSAY_CORS_ORIGINS", "*")).await;
    another.open(&chromium, &open, "probe").await;
    assert_eq!(another.seen("probed").await, allowed);
}
