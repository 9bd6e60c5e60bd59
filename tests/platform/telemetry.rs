//! Telemetry of running processes: Prometheus metrics, logs and readiness.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use assay_core::model::secret::{Secret, SecretKind};
use assay_core::runtime::prometheus::{ALL, Binary, Kind};
use assay_tests::client::Client;
use assay_tests::stack::{Process, StackSize};
use assay_tests::wait::wait_timeout;
use futures_util::stream;
use prost_reflect::DescriptorPool;
use serde_json::json;

use crate::clients::{MissingTool, prepare};
use crate::harness::{
    Expect, World, long_test, one_prediction, scrape, string, wait_until, world, world_with,
};
use crate::receiver::Receiver;
use crate::routes::{ROUTES, world_for_routes};
use crate::webhooks::Webhook;

/// Returns the folder with Prometheus and promtool.
pub async fn prometheus() -> Option<PathBuf> {
    prepare(|| {
        assay_tests::servers::prometheus(&|line| eprintln!("{line}"))
            .map_err(|trouble| MissingTool(trouble.to_string()))
    })
    .await
}

/// An expected count: the process, the metric, its labels and its value.
type Count<'a> = (
    &'a Process,
    &'static str,
    &'static [(&'static str, &'static str)],
    f64,
);

/// One series of the scraped text.
#[derive(Debug)]
struct Series {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// Parses all series. Label values must contain neither quotes nor commas.
fn read(metrics: &str) -> Vec<Series> {
    let series = |line: &str| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let pairs = labels
            .trim_end_matches('}')
            .split("\",")
            .filter(|pair| !pair.is_empty());
        let labels = pairs
            .map(|pair| pair.split_once("=\"").unwrap())
            .map(|(key, value)| (key.to_owned(), value.trim_end_matches('"').to_owned()));
        Series {
            name: name.to_owned(),
            labels: labels.collect(),
            value: value.parse().unwrap(),
        }
    };
    metrics
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(series)
        .collect()
}

/// Asserts that every series is in the metric table, with its labels and their values, and that
/// every series that starts at zero is exported.
pub fn assert_in_the_table(metrics: &str, binary: Binary) {
    let mut seen = BTreeSet::new();
    for mut series in read(metrics)
        .into_iter()
        .filter(|series| !series.name.starts_with("process_"))
    {
        let is = |name: &str, kind| {
            series.name == name
                || kind == Kind::Histogram
                    && ["_bucket", "_sum", "_count"]
                        .iter()
                        .any(|end| series.name == format!("{name}{end}"))
        };
        let instrument = ALL
            .iter()
            .find(|instrument| is(instrument.name, instrument.kind))
            .unwrap_or_else(|| panic!("{series:?}"));
        assert!(
            instrument.is_exported_by(binary),
            "{series:?} is not a metric of {binary:?}"
        );
        assert_eq!(
            series.labels.remove("le").is_some(),
            series.name.ends_with("_bucket"),
            "{series:?}"
        );
        let labels: BTreeSet<&str> = instrument.labels.iter().map(|(label, _)| *label).collect();
        assert_eq!(
            series
                .labels
                .keys()
                .map(String::as_str)
                .collect::<BTreeSet<_>>(),
            labels,
            "{series:?}"
        );
        for (label, values) in instrument.labels {
            assert!(
                values.is_empty() || values.contains(&series.labels[*label].as_str()),
                "{series:?}"
            );
        }
        seen.insert(instrument.name);
    }
    for instrument in ALL
        .iter()
        .filter(|instrument| instrument.is_exported_by(binary))
    {
        assert!(
            seen.contains(instrument.name),
            "{} is not exported",
            instrument.name
        );
    }
    for name in [
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_max_fds",
        "process_start_time_seconds",
    ] {
        assert!(metrics.contains(&format!("\n{name} ")), "{name}");
    }
}

/// Returns the sum of all series with this name with these labels.
pub async fn sum(process: &Process, name: &str, labels: &[(&str, &str)]) -> f64 {
    let fits = |series: &Series| {
        series.name == name
            && labels
                .iter()
                .all(|(label, value)| series.labels.get(*label).is_some_and(|is| is == value))
    };
    read(&scrape(process).await)
        .iter()
        .filter(|series| fits(series))
        .map(|series| series.value)
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn scraped_metrics_match_table_and_promtool() {
    let world = world_with(StackSize {
        engines: 1,
        ..StackSize::default().with_local_receivers()
    })
    .await;
    assert_eq!(
        world.submit_and_wait(&one_prediction()).await["status"],
        "succeeded"
    );
    world.anonymous().get("/v1/me").await.unwrap();
    world.owner().get("/v1/keys").await.unwrap();
    // Both processes call the engine.
    let package = crate::serving::package("embedded");
    crate::packages::publish(&world, &package, None)
        .await
        .unwrap();
    let mut body = json!({"sequences": [{"sequence_id": "p", "events": []}]});
    let predict = "/v1/models/embedded/predict";
    world.key().post(predict, &body).await.expect_status(200);
    body["model_id"] = json!("embedded");
    let job = world.key().post("/v1/predictions", &body).await.unwrap();
    let job = world.wait_until_finished(&string(&job.body["id"])).await;
    assert_eq!(job["status"], "succeeded");
    // Gauges that are sampled every few seconds have been sampled.
    wait_until("the resource metrics", async || {
        sum(&world.stack.apis[0], "assay_workers", &[]).await == 1.0
    })
    .await;
    wait_until("the metrics of the worker", async || {
        sum(&world.stack.workers[0], "assay_redis_up", &[]).await == 1.0
    })
    .await;
    // The API and the deliverer both deliver.
    let deliverer = world.stack.launch_deliverer().unwrap();
    deliverer.ready().await.unwrap();
    let receiver = Receiver::start().await;
    let webhook = Webhook::create(&world.owner(), &receiver.url("/"), &["ping"]).await;
    let log = world.stack.launch_log().unwrap();
    log.ready().await.unwrap();
    for process in [&world.stack.apis[0], &deliverer] {
        wait_until("an attempt of each process", async || {
            webhook.ping().await;
            sum(process, "assay_webhook_attempts_total", &[]).await > 0.0
        })
        .await;
    }
    for (process, binary) in [
        (&world.stack.apis[0], Binary::Api),
        (&world.stack.workers[0], Binary::Worker),
        (&deliverer, Binary::Deliverer),
        (&log, Binary::Log),
    ] {
        let metrics = scrape(process).await;
        assert_in_the_table(&metrics, binary);
        let Some(folder) = prometheus().await else {
            continue;
        };
        let mut check = Command::new(folder.join("promtool"));
        let mut check = check
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        check
            .stdin
            .take()
            .unwrap()
            .write_all(metrics.as_bytes())
            .unwrap();
        let output = check.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.trim().is_empty(),
            "{binary:?}: {said}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_jobs_and_attempts_are_counted() {
    let world = world().await;
    let api = &world.stack.apis[0];
    let worker = &world.stack.workers[0];
    let hold = world.hold_answers().await;
    let other = crate::harness::org(&world.stack, "free").await;
    let free = world.client(&other.key);
    let body = json!({"suite_id": "suite:lunch", "predictions": one_prediction()});
    let mut jobs = Vec::new();
    for status in [202, 202, 429] {
        let response = free.post("/v1/evals", &body).await.expect_status(status);
        jobs.push(response.body["id"].clone());
    }
    for job_id in &jobs[..2] {
        free.post(&format!("/v1/jobs/{}/cancel", string(job_id)), &json!(null))
            .await
            .expect_status(200);
    }
    sqlx::Connection::close(hold).await.unwrap();
    assert_eq!(
        world.submit_and_wait(&one_prediction()).await["status"],
        "succeeded"
    );
    for token in [
        None,
        Some("svc_live_nonsense"),
        Some(other.session.as_str()),
    ] {
        Client::new(world.stack.url(), token)
            .get("/v1/me")
            .await
            .unwrap();
    }
    let counted: [Count; 13] = [
        (api, "assay_jobs_submitted_total", &[("type", "eval")], 3.0),
        (
            api,
            "assay_jobs_finished_total",
            &[("outcome", "cancelled")],
            2.0,
        ),
        (
            worker,
            "assay_jobs_finished_total",
            &[("outcome", "succeeded")],
            1.0,
        ),
        (
            worker,
            "assay_job_attempts_total",
            &[("result", "succeeded")],
            1.0,
        ),
        (worker, "assay_job_duration_seconds_count", &[], 1.0),
        (
            api,
            "assay_quota_decisions_total",
            &[("limit", "concurrent_jobs"), ("decision", "refused")],
            1.0,
        ),
        (
            api,
            "assay_quota_decisions_total",
            &[("limit", "concurrent_jobs"), ("decision", "admitted")],
            3.0,
        ),
        (
            api,
            "assay_quota_decisions_total",
            &[("limit", "eval_items_per_month"), ("decision", "admitted")],
            3.0,
        ),
        (
            api,
            "assay_auth_decisions_total",
            &[("plan", "none"), ("decision", "unauthenticated")],
            1.0,
        ),
        (
            api,
            "assay_auth_decisions_total",
            &[("plan", "none"), ("decision", "invalid_token")],
            1.0,
        ),
        (
            api,
            "assay_auth_decisions_total",
            &[("plan", "free"), ("decision", "accepted")],
            6.0,
        ),
        (
            api,
            "assay_ratelimit_decisions_total",
            &[("plan", "free"), ("decision", "admitted")],
            6.0,
        ),
        (
            api,
            "assay_requests_total",
            &[("operation", "POST /v1/evals"), ("outcome", "client_error")],
            1.0,
        ),
    ];
    for (process, name, labels, expected) in counted {
        assert_eq!(
            sum(process, name, labels).await,
            expected,
            "{name} {labels:?}"
        );
    }
    // The worker notices that it no longer owns the job.
    wait_until("the attempts", async || {
        let attempts = sum(worker, "assay_job_attempts_total", &[]).await;
        sum(worker, "assay_worker_slots", &[("state", "busy")]).await == 0.0
            && attempts == sum(worker, "assay_job_run_seconds_count", &[]).await
    })
    .await;
    assert_eq!(sum(api, "assay_requests_in_flight", &[]).await, 0.0);
}

/// Inserts organizations, each with a key, and returns their clients.
async fn organizations(world: &World, count: usize) -> Vec<Client> {
    let mut database = world.database().await;
    let mut clients = Vec::new();
    for at in 0..count {
        let secret = Secret::random(SecretKind::ApiKey).unwrap();
        let sql = "with org as (insert into orgs (id, name, plan) values ($1, 'One of many', (array['free', 'dev', 'team'])[1 + $3::integer % 3]))
                   insert into api_keys (id, org_id, name, prefix, secret_hash, created_by)
                   select $2, $1, 'ci', $4, $5, id from users limit 1";
        let insert = sqlx::query(sql)
            .bind(format!("org_many{at}"))
            .bind(format!("key_many{at}"))
            .bind(i32::try_from(at).unwrap());
        insert
            .bind(secret.prefix().to_owned())
            .bind(secret.hash().as_bytes().to_vec())
            .execute(&mut database)
            .await
            .unwrap();
        clients.push(world.client(&secret.into_text()));
    }
    clients
}

/// The rpcs with an HTTP route of their own: `CreateEval`, `CreatePrediction`, `ListSuiteItems` and `ListDraftItems`.
const OWN_ROUTES: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn thousand_orgs_stay_below_4500_series() {
    long_test!("creates a thousand organizations");
    let (world, _name_server) = world_for_routes().await;
    let clients = organizations(&world, 1_000).await;
    let pool = DescriptorPool::decode(assay_proto::DESCRIPTORS).unwrap();
    let rpcs: Vec<String> = pool
        .services()
        .flat_map(|service| {
            service
                .methods()
                .map(|rpc| format!("/{}/{}", rpc.parent_service().full_name(), rpc.name()))
                .collect::<Vec<_>>()
        })
        .collect();
    let grpc = reqwest::Client::builder()
        .http2_prior_knowledge()
        .build()
        .unwrap();
    let mut clients = clients.iter().cycle();
    // Two kinds of calls to each route, each by another organization; and calls with other and
    // unknown methods.
    for route in ROUTES.iter().filter(|route| route.path != "/v1/session") {
        for body in [route.body_of("nonsense"), json!({"nonsense": true})] {
            let client = clients.next().unwrap();
            client
                .send(route.request_with(client, "nonsense", &body))
                .await
                .unwrap();
            let options = world.anonymous();
            for method in ["OPTIONS", "HEAD", "BREW", "TRACE", "DELETE"] {
                options
                    .send(options.request(method, &route.path_of("nonsense")))
                    .await
                    .unwrap();
            }
        }
        world
            .anonymous()
            .send(route.request(&world.anonymous(), "nonsense"))
            .await
            .unwrap();
    }
    for (at, rpc) in rpcs.iter().enumerate() {
        for (kind, client) in [
            ("application/grpc", &grpc),
            ("application/grpc-web+proto", &reqwest::Client::new()),
        ] {
            for message in [vec![0_u8; 5], b"nonsense".to_vec()] {
                let token = clients.next().unwrap().token().unwrap().to_owned();
                let request = client
                    .post(format!("{}{rpc}", world.stack.url()))
                    .header("content-type", kind)
                    .header("te", "trailers")
                    .body(message);
                let response = request
                    .bearer_auth(token)
                    .timeout(wait_timeout())
                    .send()
                    .await
                    .unwrap();
                assert_eq!(response.status(), 200, "{rpc}");
            }
        }
        let client = clients.next().unwrap();
        client.get(&format!("/nowhere/{at}")).await.unwrap();
        // With the wrong protocol for the path.
        for method in ["GET", "PUT", "DELETE"] {
            client.send(client.request(method, rpc)).await.unwrap();
        }
    }
    // The remaining organizations.
    for client in clients.take(1_000) {
        client.get("/v1/me").await.expect_status(200);
    }
    let metrics = scrape(&world.stack.apis[0]).await;
    for word in [
        "org_", "key_many", "usr_", "job_0", "req_", "nonsense", "BREW", "nowhere", "@",
    ] {
        assert!(
            !metrics.contains(&format!("\"{word}")) && !metrics.contains(&format!("/{word}")),
            "{word} occurs in a label"
        );
    }
    let series = read(&metrics);
    // Series that could still appear: each operation with each outcome, each code on each protocol.
    let operations: BTreeSet<_> = series
        .iter()
        .filter(|series| series.name == "assay_requests_total")
        .map(|series| (&series.labels["protocol"], &series.labels["operation"]))
        .collect();
    let of = |name: &str| series.iter().filter(|series| series.name == name).count();
    let to_come = operations.len() * 3 - of("assay_requests_total") + 3 * 18
        - of("assay_request_errors_total");
    println!(
        "{} series, {} operations, {to_come} more possible",
        series.len(),
        operations.len()
    );
    assert!(
        operations.len() > 36 + 2 * rpcs.len()
            // The rpcs with an HTTP route of their own are also counted for each wrong method.
            && operations.len() < ROUTES.len() + 3 + 3 * OWN_ROUTES + 2 * rpcs.len(),
        "more operations than routes and rpcs: {operations:?}"
    );
    assert!(
        series.len() + to_come <= 4_500,
        "{} and {to_come}",
        series.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn aborted_request_is_logged_and_counted() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let job = world.submit(&one_prediction()).await;
    let waiting = world
        .key()
        .request(
            "GET",
            &format!("/v1/jobs/{}?wait=30", string(&job.body["id"])),
        )
        .timeout(Duration::from_millis(500));
    assert!(waiting.send().await.is_err());
    let api = &world.stack.apis[0];
    wait_until("the counter", async || {
        sum(
            api,
            "assay_request_errors_total",
            &[("code", "client_gone")],
        )
        .await
            == 1.0
    })
    .await;
    assert_eq!(sum(api, "assay_requests_in_flight", &[]).await, 0.0);
    let log = std::fs::read_to_string(&api.log).unwrap();
    let line = log
        .lines()
        .find(|line| line.contains("client_gone"))
        .unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(
        (
            &line["message"],
            &line["status"],
            string(&line["trace_id"]).len()
        ),
        (&json!("request"), &json!(499), 32),
        "{line}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn client_deadline_is_no_server_error() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let job = world.submit(&one_prediction()).await;
    let waiting = world
        .key()
        .request(
            "GET",
            &format!("/v1/jobs/{}?wait=30", string(&job.body["id"])),
        )
        .header("grpc-timeout", "300m");
    let key = world.key().without_retries();
    key.send(waiting).await.expect_status(503);
    let api = &world.stack.apis[0];
    let of = async |outcome| {
        sum(
            api,
            "assay_requests_total",
            &[("operation", "GET /v1/jobs/{job_id}"), ("outcome", outcome)],
        )
        .await
    };
    assert_eq!(
        (of("client_error").await, of("server_error").await),
        (1.0, 0.0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_process_is_alive_not_ready() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    // A body whose second half arrives late.
    let (send, receive) = tokio::sync::mpsc::unbounded_channel();
    let halves = stream::unfold(receive, async |mut receive| {
        receive
            .recv()
            .await
            .map(|half: &str| (Ok::<_, std::io::Error>(half), receive))
    });
    let request = world
        .owner()
        .request("POST", "/v1/keys")
        .header("content-type", "application/json");
    let waiting = tokio::spawn(request.body(reqwest::Body::wrap_stream(halves)).send());
    send.send("{\"name\": ").unwrap();
    let api = &world.stack.apis[0];
    wait_until("the request", async || {
        sum(api, "assay_requests_in_flight", &[]).await == 1.0
    })
    .await;
    let admin = Client::new(format!("http://{}", api.admin), None).without_retries();
    admin.get("/readyz").await.expect_status(200);
    api.guarded.stop();
    wait_until("the drain", async || {
        admin.get("/readyz").await.unwrap().status == 503
    })
    .await;
    assert_eq!(
        (
            admin.get("/livez").await.unwrap().status,
            string(&admin.get("/readyz").await.unwrap().body)
        ),
        (200, "draining\n".to_owned())
    );
    send.send("\"ci\"}").unwrap();
    drop(send);
    assert_eq!(
        waiting.await.unwrap().unwrap().status(),
        201,
        "the request in progress completes"
    );
}
