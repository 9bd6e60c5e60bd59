//! Pages of other origins in a real browser, which call the API over gRPC-web with the connect
//! library.

use std::process::Command;

use assay_tests::demo_suite;
use assay_tests::wait::wait_timeout;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::Html;
use axum::routing::{get, post};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::chromium::{Chromium, Window};
use crate::clients::{MissingTool, node_with, prepare, run};
use crate::harness::{World, string, with_setting, world_with};

const HTML: &str = r#"<!doctype html><meta charset="utf-8"><title>A page</title><script type="module" src="/page.js"></script>"#;

/// The tools for a page: a browser, and the page's script bundled with its imports.
#[derive(Clone)]
struct Tools {
    chromium: Chromium,
    script: Bytes,
}

fn tools() -> Result<Tools, MissingTool> {
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

/// A message from the page, and the channel for the reply that the page waits for.
struct Message {
    step: String,
    value: Value,
    reply_to: oneshot::Sender<Value>,
}

/// A site with one page, which reports each step to the test. The site is the page's origin.
struct Site {
    origin: String,
    messages: mpsc::Receiver<Message>,
    window: Option<Window>,
}

impl Site {
    /// Starts the site under a host name. The API has a numeric address, so that neither origin nor
    /// site are those of the API.
    async fn start(script: Bytes) -> Self {
        let (sender, messages) = mpsc::channel(1);
        let report = async move |body: String| {
            let body: Value = serde_json::from_str(&body).unwrap();
            let (reply_to, reply) = oneshot::channel();
            let message = Message {
                step: string(&body["step"]),
                value: body["value"].clone(),
                reply_to,
            };
            // A failed test has closed the channel.
            let _ = sender.send(message).await;
            reply.await.unwrap_or_default().to_string()
        };
        // Concatenated protobuf messages merge into one set with all files.
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
            .route("/tell", post(report));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://localhost:{}", listener.local_addr().unwrap().port());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self {
            origin,
            messages,
            window: None,
        }
    }

    /// Opens the page and sends it a task.
    async fn open(&mut self, chromium: &Chromium, world: &World, task: &str) {
        self.window = Some(chromium.open(&world.stack.ground.servers, &self.origin));
        let ready = self.step("ready").await;
        println!("{}", ready.value);
        let instructions = json!({
            "task": task, "api": world.stack.url(), "key": world.org.key, "session": world.org.session, "org": world.org.id,
            "suite": demo_suite::SUITE_ID,
        });
        ready.reply_to.send(instructions).unwrap();
    }

    /// Waits for the page's next message, which must report this step. The page continues
    /// after the reply.
    async fn step(&mut self, step: &str) -> Message {
        let message = tokio::time::timeout(wait_timeout(), self.messages.recv()).await;
        let log = || self.window.as_ref().map(Window::log).unwrap_or_default();
        let message = message
            .unwrap_or_else(|_| panic!("the page did not reach {step:?}:\n{}", log()))
            .unwrap();
        let value = message
            .value
            .as_str()
            .map_or_else(|| message.value.to_string(), str::to_owned);
        assert_eq!(message.step, step, "{value}\n{}", log());
        message
    }

    /// Like [`Site::step`], and replies at once.
    async fn acknowledge(&mut self, step: &str) -> Value {
        let message = self.step(step).await;
        message.reply_to.send(Value::Null).unwrap();
        message.value
    }
}

/// Checks the headers that a page can read from every response.
fn assert_readable(headers: &Value) {
    assert!(
        string(&headers["x-request-id"]).starts_with("req_"),
        "{headers}"
    );
    for name in [
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ] {
        assert!(
            string(&headers[name]).parse::<u64>().is_ok(),
            "{name}: {headers}"
        );
    }
}

/// Checks that a stream reported a running job and then its final status.
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

/// Counts the browser's preflight requests in the API's log.
fn preflights(world: &World) -> usize {
    let log = std::fs::read_to_string(&world.stack.apis[0].log).unwrap();
    log.lines().filter(|line| line.contains("OPTIONS")).count()
}

/// Checks that the errors that the page received are those of REST.
async fn assert_same_errors(world: &World, mistakes: &Value, cancelled: &str) {
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
        let grpc = &mistakes[name];
        let rest = &rest.body["error"];
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
async fn allowed_origin_uses_api_over_grpc_web() {
    let Some(Tools { chromium, script }) = prepare(tools).await else {
        return;
    };
    let mut site = Site::start(script).await;
    let world = world_with(with_setting("ASSAY_CORS_ORIGINS", &site.origin)).await;
    let held = world.hold_answers().await;
    site.open(&chromium, &world, "all").await;

    let signed_in = site.acknowledge("signed in").await;
    assert_eq!(
        json!([signed_in["principal"], signed_in["org_id"]]),
        json!(["session", world.org.id])
    );
    assert_readable(&signed_in["headers"]);
    assert!(
        preflights(&world) > 0,
        "the browser sends a preflight request"
    );

    assert_eq!(site.acknowledge("cancelled").await, "cancelled");
    let cancelled = site.acknowledge("watched").await;
    assert_watched(&cancelled, "cancelled");

    // The page has read from the stream while the job is blocked.
    let running = site.step("running").await;
    drop(held);
    running.reply_to.send(Value::Null).unwrap();
    let scored = site.acknowledge("scored").await;
    assert_watched(&scored, "succeeded");
    let job = world.wait_until_finished(&string(&running.value)).await;
    assert_eq!(
        scored["job"],
        json!({"id": job["id"], "status": "succeeded", "label": "page"})
    );
    let result = crate::clients::as_javascript_writes(job["result"].clone());
    assert_eq!(
        (&scored["result"], &result["n_submitted"]),
        (&result, &json!(400))
    );

    let mistakes = site.acknowledge("mistakes").await;
    assert_same_errors(&world, &mistakes, &string(&cancelled["id"])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_origin_reads_and_submits_nothing() {
    let Some(Tools { chromium, script }) = prepare(tools).await else {
        return;
    };
    let mut ours = Site::start(script.clone()).await;
    let mut another = Site::start(script).await;
    let world = world_with(with_setting("ASSAY_CORS_ORIGINS", &ours.origin)).await;

    another.open(&chromium, &world, "probe").await;
    let refused = json!({"created": "Unknown", "rest": "TypeError", "unasked": "TypeError", "opaque": "opaque 0"});
    assert_eq!(another.acknowledge("probed").await, refused);
    assert!(
        preflights(&world) > 0,
        "the browser sends a preflight request"
    );
    assert_eq!(
        world.key().get("/v1/jobs").await.unwrap().body["jobs"],
        json!([])
    );

    // The same page from an allowed origin.
    ours.open(&chromium, &world, "probe").await;
    let allowed = json!({"created": "queued", "rest": 200, "unasked": 200, "opaque": "opaque 0"});
    assert_eq!(ours.acknowledge("probed").await, allowed);
    assert_eq!(
        world.key().get("/v1/jobs").await.unwrap().body["jobs"]
            .as_array()
            .unwrap()
            .len(),
        1
    );

    // The other page when all origins are allowed.
    let open = world_with(with_setting("ASSAY_CORS_ORIGINS", "*")).await;
    another.open(&chromium, &open, "probe").await;
    assert_eq!(another.acknowledge("probed").await, allowed);
}
