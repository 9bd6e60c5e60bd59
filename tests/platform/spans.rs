//! The traces that an OpenTelemetry Collector receives. The collector writes them to a file.

use std::collections::{BTreeMap, HashSet};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use assay_core::Timestamp;
use assay_core::model::span_context::SpanContext;
use assay_core::runtime::settings::{Common, Reader};
use assay_core::runtime::trace_export::{Sampling, Span, SpanKind, Spans};
use assay_tests::client::Client;
use assay_tests::databases;
use assay_tests::servers::{Guarded, GuardedCommand};
use assay_tests::stack::StackSize;
use assay_tests::wait::wait_timeout;
use opentelemetry_proto::tonic::trace::v1::TracesData;
use serde_json::{Value, json};

use crate::clients::{go_program, prepare};
use crate::harness::{
    Expect, World, ground, one_prediction, pause, string, wait_until, with_token, world_with,
};

/// A running collector.
pub struct Collector {
    _process: Guarded,
    /// The endpoint of OTLP over gRPC.
    pub grpc: String,
    /// The endpoint of OTLP over HTTP.
    pub http: String,
    /// The file of received traces, one export per line.
    pub file: PathBuf,
}

impl Collector {
    /// Starts a collector. Returns `None` if there is no Go to build it with.
    pub async fn start() -> Option<Self> {
        let program = prepare(|| go_program("collector")).await?;
        let folder = ground()
            .servers
            .folder()
            .join(databases::fresh_name("collector"));
        std::fs::create_dir(&folder).unwrap();
        let [grpc, http] = std::array::from_fn(|_| {
            TcpListener::bind("127.0.0.1:0")
                .unwrap()
                .local_addr()
                .unwrap()
        });
        let file = folder.join("traces.ndjson");
        let config = json!({
            "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": grpc.to_string()}, "http": {"endpoint": http.to_string()}}}},
            "exporters": {"file": {"path": file, "flush_interval": "100ms"}},
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["file"]}},
            },
        });
        std::fs::write(folder.join("config.yaml"), config.to_string()).unwrap();
        let mut command = GuardedCommand::new(program);
        command.args = vec![
            "--config".into(),
            format!("file:{}", folder.join("config.yaml").display()).into(),
        ];
        command.log = Some(folder.join("collector.log"));
        command.run_folder = Some(ground().servers.folder().to_path_buf());
        let process = Guarded::spawn(&command).unwrap();
        wait_until("the collector", async || {
            tokio::net::TcpStream::connect(grpc).await.is_ok()
        })
        .await;
        Some(Self {
            _process: process,
            grpc: format!("http://{grpc}"),
            http: format!("http://{http}"),
            file,
        })
    }

    /// Returns everything that the collector has written.
    pub fn text(&self) -> String {
        std::fs::read_to_string(&self.file).unwrap_or_default()
    }

    /// Returns all spans of a trace, each with the name of its service.
    fn spans(&self, trace_id: &str) -> Vec<(String, Value)> {
        let mut spans = Vec::new();
        for line in self.text().lines() {
            // The last line may be incomplete.
            let Ok(export) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            for resource in export["resourceSpans"].as_array().into_iter().flatten() {
                let service = attribute(&resource["resource"], "service.name");
                for span in resource["scopeSpans"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .flat_map(|scope| scope["spans"].as_array().unwrap())
                {
                    if span["traceId"] == trace_id {
                        spans.push((service.clone(), span.clone()));
                    }
                }
            }
        }
        spans
    }
}

fn attribute(of: &Value, key: &str) -> String {
    let found = of["attributes"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|attribute| attribute["key"] == key);
    let value = found.map_or(&Value::Null, |attribute| &attribute["value"]);
    let value = ["stringValue", "intValue", "doubleValue"]
        .into_iter()
        .map(|kind| &value[kind])
        .find(|value| !value.is_null());
    value.map_or_else(String::new, |value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    })
}

async fn exporting(collector: &Collector, workers: usize) -> World {
    world_with(StackSize {
        workers,
        env: [("ASSAY_OTLP_ENDPOINT".to_owned(), collector.grpc.clone())].into(),
        ..StackSize::default()
    })
    .await
}

/// Returns a client that sends its own `traceparent`.
fn client(collector: &Collector) -> Spans {
    let given = [
        ("ASSAY_OTLP_ENDPOINT", collector.grpc.as_str()),
        ("ASSAY_DATABASE_URL", "-"),
        ("ASSAY_REDIS_URL", "-"),
    ];
    let mut reader = Reader::new(given.map(|(name, value)| (name.to_owned(), value.to_owned())));
    Spans::open(
        "client",
        &Common::read(&mut reader, "client"),
        Sampling::Upstream,
    )
    .unwrap()
}

/// Returns the spans by service, name and distinguishing attribute, and asserts that they form one
/// tree.
fn tree(
    spans: &[(String, Value)],
    root: SpanContext,
) -> BTreeMap<(String, String, String), (String, Value)> {
    let ids: HashSet<String> = spans
        .iter()
        .map(|(_, span)| string(&span["spanId"]))
        .collect();
    assert_eq!(
        ids.len(),
        spans.len(),
        "each span is exported once: {spans:#?}"
    );
    let name_of = |id: &str| {
        spans
            .iter()
            .find(|(_, span)| span["spanId"] == id)
            .map(|(_, span)| string(&span["name"]))
    };
    let mut named = BTreeMap::new();
    for (service, span) in spans {
        let parent = span["parentSpanId"].as_str().unwrap_or_default();
        let parent = if span["spanId"] == root.span_id.to_string() {
            assert_eq!(parent, "", "the root");
            String::new()
        } else {
            name_of(parent).unwrap_or_else(|| panic!("no parent: {span}"))
        };
        let time = |name: &str| string(&span[name]).parse::<u128>().unwrap();
        assert!(
            time("startTimeUnixNano") <= time("endTimeUnixNano"),
            "{span}"
        );
        named.insert(
            (
                service.clone(),
                string(&span["name"]),
                attribute(span, "assay.attempt"),
            ),
            (parent, span.clone()),
        );
    }
    assert_eq!(named.len(), spans.len(), "{spans:#?}");
    named
}

#[tokio::test(flavor = "multi_thread")]
async fn retried_job_is_one_span_tree() {
    let Some(collector) = Collector::start().await else {
        return;
    };
    let mut world = exporting(&collector, 1).await;
    let spans = client(&collector);
    let root = SpanContext::new();
    let began = Timestamp::now();
    let parent = format!("00-{}-{}-01", root.trace_id, root.span_id);

    let hold = world.hold_answers().await;
    let request = world
        .key()
        .request("POST", "/v1/evals")
        .header("traceparent", parent);
    let body = json!({"suite_id": "suite:lunch", "predictions": one_prediction()});
    let queued = world.key().send(request.json(&body)).await.unwrap();
    let job_id = string(&queued.body["id"]);
    world.wait_for_status(&job_id, "running").await;
    world.stack.workers[0].guarded.signal(libc::SIGKILL);
    world.stack.workers[0] = world.stack.launch_worker().unwrap();
    sqlx::Connection::close(hold).await.unwrap();
    assert_eq!(world.wait_until_finished(&job_id).await["attempts"], 2);
    let whole = Span {
        name: "evaluate".into(),
        kind: SpanKind::Client,
        parent: None,
        ..Span::internal(root, root.span_id, "", began, Timestamp::now())
    };
    spans.export(root.trace_id, || whole);
    spans.close().await;

    let trace_id = root.trace_id.to_string();
    wait_until("the complete trace", async || {
        collector.spans(&trace_id).len() >= 12
    })
    .await;
    let tree = tree(&collector.spans(&trace_id), root);
    let actual: Vec<_> = tree
        .iter()
        .map(|((service, name, attempt), (parent, _))| {
            [service, name, attempt, parent].map(String::as_str)
        })
        .collect();
    let expected = [
        ["assay-api", "POST /v1/evals", "", "evaluate"],
        ["assay-api", "authenticate", "", "POST /v1/evals"],
        ["assay-api", "limit", "", "POST /v1/evals"],
        // The worker was killed; the process that reclaimed the job exports its attempt's
        // span.
        ["assay-api", "process jobs", "1", "send jobs"],
        ["assay-api", "send jobs", "", "POST /v1/evals"],
        ["assay-worker", "fetch input", "", "process jobs"],
        ["assay-worker", "load answers", "", "process jobs"],
        ["assay-worker", "persist", "", "process jobs"],
        ["assay-worker", "process jobs", "2", "send jobs"],
        ["assay-worker", "score", "", "process jobs"],
        ["assay-worker", "store item scores", "", "process jobs"],
        ["client", "evaluate", "", ""],
    ];
    assert_eq!(actual, expected);
    let span = |service: &str, name: &str, attempt: &str| {
        &tree[&(service.to_owned(), name.to_owned(), attempt.to_owned())].1
    };
    let lost = span("assay-api", "process jobs", "1");
    assert_eq!(
        (&lost["status"]["code"], attribute(lost, "error.type")),
        (&json!(2), "lost".to_owned()),
        "{lost}"
    );
    let done = span("assay-worker", "process jobs", "2");
    assert_eq!(
        (
            done["kind"].as_i64(),
            attribute(done, "messaging.message.id")
        ),
        (Some(5), job_id.clone()),
        "{done}"
    );
    let request = span("assay-api", "POST /v1/evals", "");
    let attributes = [
        "http.route",
        "http.request.method",
        "http.response.status_code",
        "assay.request.id",
    ]
    .map(|key| attribute(request, key));
    assert_eq!(attributes[..3], ["/v1/evals", "POST", "202"]);
    assert_eq!(attributes[3], string(&queued.body["request_id"]));

    // The request's and the job's log lines contain the same trace id.
    let api = std::fs::read_to_string(&world.stack.apis[0].log).unwrap();
    let lines = api
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let request_lines: Vec<_> = lines
        .filter(|line| {
            line["message"] == "request" && line["request_id"] == queued.body["request_id"]
        })
        .collect();
    assert!(
        matches!(request_lines.as_slice(), [line] if line["trace_id"] == trace_id),
        "{request_lines:?}"
    );
    let worker = std::fs::read_to_string(&world.stack.workers[0].log).unwrap();
    let lines = worker
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let job_lines: Vec<_> = lines
        .filter(|line| line["message"] == "job" && line["job_id"] == job_id)
        .collect();
    assert!(
        matches!(job_lines.as_slice(), [line] if line["trace_id"] == trace_id && line["result"] == "succeeded"),
        "{job_lines:?}"
    );

    // The tenant's trace document parses as OpenTelemetry's types, and a collector accepts it.
    let document = world
        .key()
        .get(&format!("/v1/jobs/{job_id}/trace"))
        .await
        .unwrap()
        .body;
    let read: TracesData = serde_json::from_value(document.clone()).unwrap();
    let spans: Vec<_> = read
        .resource_spans
        .iter()
        .flat_map(|resource| &resource.scope_spans)
        .flat_map(|scope| &scope.spans)
        .collect();
    assert_eq!(
        spans.iter().filter(|span| span.name == "attempt").count(),
        2
    );
    assert!(
        spans
            .iter()
            .all(|span| span.trace_id == root.trace_id.to_bytes()
                && span.span_id.len() == 8
                && span.start_time_unix_nano > 0)
    );
    let sent = reqwest::Client::new()
        .post(format!("{}/v1/traces", collector.http))
        .json(&document)
        .send()
        .await
        .unwrap();
    assert_eq!(
        (sent.status().as_u16(), sent.text().await.unwrap()),
        (200, "{\"partialSuccess\":{}}".to_owned())
    );
    wait_until("the document", async || {
        collector.text().contains("gen_ai.evaluation.result")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rpc_span_follows_conventions() {
    let Some(collector) = Collector::start().await else {
        return;
    };
    let world = exporting(&collector, 0).await;
    let mut client =
        assay_proto::v1::job_service_client::JobServiceClient::new(world.channel().await);
    let span_context = SpanContext::new();
    let mut request = with_token(
        assay_proto::v1::GetJobRequest {
            job_id: "job_0".into(),
            ..Default::default()
        },
        &world.org.key,
    );
    request.metadata_mut().insert(
        "traceparent",
        format!("00-{}-{}-00", span_context.trace_id, span_context.span_id)
            .parse()
            .unwrap(),
    );
    assert_eq!(
        client.get_job(request).await.unwrap_err().code(),
        tonic::Code::NotFound
    );
    let trace_id = span_context.trace_id.to_string();
    wait_until("the spans", async || collector.spans(&trace_id).len() >= 3).await;
    let spans = collector.spans(&trace_id);
    let (_, span) = spans.iter().find(|(_, span)| span["kind"] == 2).unwrap();
    assert_eq!(
        (string(&span["name"]), string(&span["parentSpanId"])),
        (
            "assay.v1.JobService/GetJob".to_owned(),
            span_context.span_id.to_string()
        )
    );
    let attributes = [
        "rpc.system.name",
        "rpc.method",
        "rpc.response.status_code",
        "assay.error.code",
    ]
    .map(|key| attribute(span, key));
    assert_eq!(
        attributes,
        [
            "grpc",
            "assay.v1.JobService/GetJob",
            "NOT_FOUND",
            "not_found"
        ]
    );
    assert!(
        span["status"]["code"].as_i64().unwrap_or(0) != 2,
        "a client error is no error of the server span: {span}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn all_processes_sample_the_same_traces() {
    let Some(collector) = Collector::start().await else {
        return;
    };
    let env = [
        ("ASSAY_OTLP_ENDPOINT", collector.grpc.as_str()),
        ("ASSAY_TRACE_SHARE", "0.5"),
    ];
    let env = env
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let world = world_with(StackSize {
        apis: 2,
        env,
        ..StackSize::default()
    })
    .await;
    let apis: Vec<_> = world
        .stack
        .addresses()
        .into_iter()
        .map(|url| Client::new(url, Some(&world.org.key)))
        .collect();
    // Low last bits, which a caller could expect to be sampled.
    let traces: Vec<_> = (0..24)
        .map(|number| format!("{:032x}", (number + 1_u128) << 64 | 1))
        .collect();
    for trace_id in &traces {
        let header = format!("00-{trace_id}-00f067aa0ba902b7-01");
        // One process stores the job, the other one serves a request in the same trace.
        let request = apis[0]
            .request("POST", "/v1/evals")
            .header("traceparent", &header);
        let queued = apis[0]
            .send(
                request.json(&json!({"suite_id": "suite:lunch", "predictions": one_prediction()})),
            )
            .await
            .expect_status(202);
        world.wait_until_finished(&string(&queued.body["id"])).await;
        apis[1]
            .send(
                apis[1]
                    .request("GET", "/v1/me")
                    .header("traceparent", &header),
            )
            .await
            .expect_status(200);
    }
    // Longer than the export delay of spans.
    pause("the export of spans", Duration::from_secs(6)).await;
    let mut taken = 0;
    for trace_id in &traces {
        let spans = collector.spans(trace_id);
        let named = |name: &str| spans.iter().any(|(_, span)| span["name"] == name);
        let exported = [
            named("POST /v1/evals"),
            named("GET /v1/me"),
            spans.iter().any(|(service, _)| service == "assay-worker"),
        ];
        assert!(
            exported == [true; 3] || exported == [false; 3],
            "{trace_id}: {exported:?}"
        );
        taken += usize::from(exported[0]);
    }
    assert!((1..24).contains(&taken), "{taken} of 24");
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_callers_start_own_traces() {
    let Some(collector) = Collector::start().await else {
        return;
    };
    let world = exporting(&collector, 0).await;
    let trace_id = SpanContext::new().trace_id.to_string();
    for client in [world.anonymous(), world.client("svc_live_guess")] {
        let request = client
            .request("GET", "/v1/me")
            .header("traceparent", format!("00-{trace_id}-00f067aa0ba902b7-01"));
        client.send(request).await.expect_status(401);
    }
    wait_until("two links", async || {
        collector.text().matches("00f067aa0ba902b7").count() >= 2
    })
    .await;
    assert_eq!(
        collector.spans(&trace_id).len(),
        0,
        "no span joined the trace"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unavailable_collector_delays_nothing() {
    // First the collector accepts connections and never responds, then it is gone.
    let mut listener = Some(TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.as_ref().unwrap().local_addr().unwrap();
    for hangs in [true, false] {
        let mut world = world_with(StackSize {
            env: [(
                "ASSAY_OTLP_ENDPOINT".to_owned(),
                format!("http://{address}"),
            )]
            .into(),
            ..StackSize::default()
        })
        .await;
        assert_eq!(
            world.submit_and_wait(&one_prediction()).await["status"],
            "succeeded"
        );
        for process in world
            .stack
            .apis
            .drain(..)
            .chain(world.stack.workers.drain(..))
        {
            process.guarded.stop();
            assert!(
                process
                    .guarded
                    .wait(wait_timeout())
                    .is_some_and(|status| status.success()),
                "hangs: {hangs}"
            );
        }
        // The collector hangs until both have exited.
        drop(listener.take());
    }
}
