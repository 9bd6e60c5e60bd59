//! Disclosure policies and allowances over REST and gRPC. They prevent clients from computing
//! answers from scores.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use assay_core::WorkerId;
use assay_core::model::job::FailureCode;
use assay_core::store::leases;
use assay_core::store::work::{self, Claim};
use assay_core::store::{self, PgPool, PoolProfile, allowance};
use assay_eval::Ladder;
use assay_eval::score::Figures;
use assay_proto::v1;
use assay_proto::v1::eval_service_client::EvalServiceClient;
use assay_proto::v1::job_service_client::JobServiceClient;
use assay_proto::v1::prediction_value::Value as Prediction;
use assay_tests::client::{Client, Response};
use assay_tests::stack::StackSize;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tonic_types::StatusExt as _;

use crate::harness::{
    Expect, World, avoid_midnight, org, scrape, string, submit_until_succeeded, successful_attempt,
    wait_until, with_setting, with_token, world, world_with,
};

/// Each suite's item count. With 37, no two shares agree in their first four digits.
const N: usize = 37;

/// Publishes `suite:NAME` with the metric accuracy and these additional `suite.toml` lines. Item
/// `i7` has the answer `a7`. A trivial submission is correct for one item.
pub async fn publish(
    world: &World,
    name: &str,
    version: u32,
    more: &str,
) -> Result<String, String> {
    let answers: Vec<Value> = (0..N).map(|at| json!(format!("a{at}"))).collect();
    let suite_toml = format!(
        "suite_id = \"suite:{name}\"\nversion = \"{version}\"\nmetric = \"accuracy\"\n{more}\n"
    );
    publish_answers(world, name, &suite_toml, &answers).await
}

/// Publishes `suite:NAME` with this `suite.toml`. Item `i7` has the eighth answer.
pub async fn publish_answers(
    world: &World,
    name: &str,
    suite_toml: &str,
    answers: &[Value],
) -> Result<String, String> {
    let folder = write_suite(world, name, suite_toml, answers);
    publish_folder(world, &folder).await?;
    Ok(format!("suite:{name}"))
}

/// Writes a suite's folder.
pub fn write_suite(world: &World, name: &str, suite_toml: &str, answers: &[Value]) -> PathBuf {
    let folder = world
        .stack
        .ground
        .servers
        .folder()
        .join(format!("{}-{name}", world.stack.database.name));
    let line = |at: usize, field: &str, value: &Value| {
        format!("{}\n", json!({"item_id": format!("i{at}"), field: value}))
    };
    let items: String = (0..answers.len())
        .map(|at| line(at, "input", &json!({})))
        .collect();
    let answers: String = answers
        .iter()
        .enumerate()
        .map(|(at, answer)| line(at, "answer", answer))
        .collect();
    write_files(&folder, suite_toml, &items, &answers);
    folder
}

/// Writes a suite's files with these contents.
pub fn write_files(folder: &Path, suite_toml: &str, items: &str, answers: &str) {
    std::fs::create_dir_all(folder).unwrap();
    for (file, text) in [
        ("suite.toml", suite_toml),
        ("items.ndjson", items),
        ("answers.ndjson", answers),
    ] {
        std::fs::write(folder.join(file), text).unwrap();
    }
}

/// Publishes the suite in a folder.
pub async fn publish_folder(world: &World, folder: &Path) -> Result<(), String> {
    let published = ["suite", "publish", folder.to_str().unwrap()];
    let published = world.stack.operate(&published).await;
    published.map(drop).map_err(|refused| refused.to_string())
}

/// Returns item ids and labels. The first `right` are correct.
fn labels(right: usize) -> impl Iterator<Item = (String, String)> {
    (0..N).map(move |at| {
        (
            format!("i{at}"),
            if at < right {
                format!("a{at}")
            } else {
                "b".to_owned()
            },
        )
    })
}

/// Returns a submission with `right` correct predictions.
fn body(suite_id: &str, right: usize) -> Value {
    let predictions: Vec<_> = labels(right)
        .map(|(item_id, label)| json!({"item_id": item_id, "prediction": [label, "x"]}))
        .collect();
    json!({"suite_id": suite_id, "predictions": predictions, "label": right.to_string()})
}

async fn submitted(client: &Client, suite_id: &str, right: usize) -> Response {
    let body = body(suite_id, right);
    client.post("/v1/evals", &body).await.unwrap()
}

/// Submits over REST, waits until the job succeeds, and returns it.
pub async fn submit_and_wait(client: &Client, suite_id: &str, right: usize) -> Value {
    submit_until_succeeded(client, &body(suite_id, right)).await
}

/// Returns the same submission as a gRPC message.
fn message_of(suite_id: &str, right: usize) -> v1::CreateEvalRequest {
    let one = |(item_id, label): (String, String)| {
        let ids = vec![label, "x".to_owned()];
        v1::Prediction {
            item_id,
            prediction: Some(v1::PredictionValue {
                value: Some(Prediction::Ranking(v1::Ranking { ids })),
            }),
        }
    };
    v1::CreateEvalRequest {
        suite_id: suite_id.to_owned(),
        predictions: labels(right).map(one).collect(),
        ..Default::default()
    }
}

/// Submits over gRPC, waits until the job is finished, and returns its result.
async fn submit_and_wait_by_grpc(world: &World, suite_id: &str, right: usize) -> v1::EvalResult {
    let mut evals = EvalServiceClient::new(world.channel().await);
    let job = evals
        .create_eval(with_token(message_of(suite_id, right), &world.org.key))
        .await
        .unwrap()
        .into_inner()
        .job
        .unwrap();
    world.wait_until_finished(&job.id).await;
    let request = v1::GetJobRequest {
        job_id: job.id,
        wait: None,
    };
    let mut jobs = JobServiceClient::new(world.channel().await);
    jobs.get_job(with_token(request, &world.org.key))
        .await
        .unwrap()
        .into_inner()
        .job
        .unwrap()
        .result
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn rounded_figures_match_grpc() {
    let world = world().await;
    let exact = publish(&world, "exact", 1, "release = \"exact\"")
        .await
        .unwrap();
    let rounded = publish(&world, "rounded", 1, "release = \"rounded(2)\"")
        .await
        .unwrap();
    let exact_result = submit_and_wait(&world.key(), &exact, 20).await;
    let rounded_result = submit_and_wait(&world.key(), &rounded, 20).await;
    let exact_result = &exact_result["result"];
    let rounded_result = &rounded_result["result"];
    assert_eq!(
        (&exact_result["release"], &rounded_result["release"]),
        (&json!("exact"), &json!("rounded(2)"))
    );
    assert_eq!(
        (&exact_result["value"], &rounded_result["value"]),
        (&json!(20.0 / 37.0), &json!(0.54))
    );
    let round = |figure: &Value| {
        json!(
            format!("{:.2}", figure.as_f64().unwrap())
                .parse::<f64>()
                .unwrap()
        )
    };
    assert_eq!(rounded_result["stderr"], round(&exact_result["stderr"]));
    assert_eq!(
        rounded_result["ci95"],
        json!([
            round(&exact_result["ci95"][0]),
            round(&exact_result["ci95"][1])
        ])
    );
    let others: serde_json::Map<_, _> = exact_result["metrics"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, figure)| (name.clone(), round(figure)))
        .collect();
    assert!(others.len() > 4 && rounded_result["metrics"] != exact_result["metrics"]);
    assert_eq!(rounded_result["metrics"], Value::Object(others));
    for same in [
        "n",
        "n_submitted",
        "n_unmatched",
        "n_missing",
        "metric",
        "ci_method",
        "suite_version",
    ] {
        assert_eq!(rounded_result[same], exact_result[same], "{same}");
    }
    let r = submit_and_wait_by_grpc(&world, &rounded, 20).await;
    assert_eq!(
        json!([r.value, r.stderr, r.ci95, r.ci_method, r.metrics, r.release]),
        json!([
            rounded_result["value"],
            rounded_result["stderr"],
            rounded_result["ci95"],
            rounded_result["ci_method"],
            rounded_result["metrics"],
            rounded_result["release"]
        ])
    );
    let suites = world.key().get("/v1/suites").await.unwrap().body;
    let releases: Vec<_> = suites["suites"]
        .as_array()
        .unwrap()
        .iter()
        .map(|suite| string(&suite["release"]))
        .collect();
    assert_eq!(releases, ["exact", "exact", "rounded(2)"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ladder_discloses_only_best_level() {
    let world = world_with(with_setting("ASSAY_LOG", "debug")).await;
    world.widen_plans().await;
    let suite_id = publish(&world, "ladder", 1, "release = \"ladder(0.1)\"")
        .await
        .unwrap();
    let mut values = Vec::new();
    let mut pages = String::new();
    // The first score, a worse one, a better one within the level, another one within the level, a
    // far worse one, and a perfect one.
    for (at, right) in [20, 19, 23, 22, 10, 37].into_iter().enumerate() {
        if at % 2 == 1 {
            let r = submit_and_wait_by_grpc(&world, &suite_id, right).await;
            assert_eq!(
                (
                    r.stderr,
                    r.ci95.len(),
                    r.ci_method,
                    r.metrics.len(),
                    r.release.as_str()
                ),
                (None, 0, None, 0, "ladder(0.1)")
            );
            values.push(r.value);
            continue;
        }
        let job = submit_and_wait(&world.key(), &suite_id, right).await;
        let r = &job["result"];
        assert_eq!(
            json!([r["stderr"], r["ci95"], r["ci_method"], r["metrics"]]),
            json!([null, null, null, {}])
        );
        assert_eq!(
            (&r["release"], &r["n_submitted"]),
            (&json!("ladder(0.1)"), &json!(37))
        );
        values.push(r["value"].as_f64().unwrap());
        let trace = world
            .key()
            .get(&format!("/v1/jobs/{}/trace", string(&job["id"])))
            .await
            .expect_status(200);
        let items = world
            .key()
            .get(&format!("/v1/jobs/{}/items", string(&job["id"])))
            .await
            .expect_error(403, "forbidden");
        pages += &format!("{job}{}{}", trace.body, items.body);
    }
    // The grid starts at the best trivial submission, which is correct for 1 in 37 items.
    assert_eq!(values, [0.5271, 0.5271, 0.5271, 0.5271, 0.5271, 0.9271]);

    // Stored data and logs contain no exact score either.
    pages += &world.key().get("/v1/jobs").await.unwrap().body.to_string();
    let rows = "select string_agg(row, ' ') from (select jobs::text as row from jobs union all select job_attempts::text from job_attempts
                union all select suite_allowances::text from suite_allowances
                union all select suite_disclosures::text from suite_disclosures) rows";
    pages += &sqlx::query_scalar::<_, String>(rows)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    for process in world.stack.apis.iter().chain(&world.stack.workers) {
        pages += &std::fs::read_to_string(&process.log).unwrap();
        pages += &scrape(process).await;
    }
    assert!(pages.contains("ladder(0.1)") && pages.contains("gen_ai.evaluation.score.value"));
    for right in [20, 19, 22, 23, 10] {
        // Nine digits, because fewer occur by chance among the durations in logs and metrics.
        let exact = &(right as f64 / N as f64).to_string()[..11];
        let at = pages
            .find(exact)
            .map(|at| &pages[at.saturating_sub(200)..at + 20]);
        assert!(at.is_none(), "{exact}: {at:?}");
    }

    // No item scores are stored, not even temporarily.
    let stored = "select count(*) from stored_item_scores s join jobs j on j.id = s.job_id or j.scores_key is not null";
    assert_eq!(
        sqlx::query_scalar::<_, i64>(stored)
            .fetch_one(&mut world.database().await)
            .await
            .unwrap(),
        0
    );
    let artifacts = std::process::Command::new("find")
        .arg(world.stack.artifacts())
        .args(["-type", "f"])
        .output()
        .unwrap();
    let files = String::from_utf8(artifacts.stdout).unwrap();
    assert!(
        files.contains(".assay-artifacts") && !files.contains("scores"),
        "{files}"
    );
    // The grid is public.
    let listed = world.key().get("/v1/suites").await.unwrap().body;
    let suite = listed["suites"]
        .as_array()
        .unwrap()
        .iter()
        .find(|suite| suite["suite_id"] == *suite_id)
        .unwrap();
    assert_eq!(
        suite["ladder"],
        json!({"start": 0.0271, "step": 0.1, "levels": 9})
    );

    // Another organization has its own ladder, and so has another version.
    let other = world.client(&org(&world.stack, "team").await.key);
    assert_eq!(
        submit_and_wait(&other, &suite_id, 10).await["result"]["value"],
        0.2271
    );
    assert_eq!(
        submit_and_wait(&world.key(), &suite_id, 10).await["result"]["value"],
        0.9271
    );
    publish(&world, "ladder", 2, "release = \"ladder(0.1)\"")
        .await
        .unwrap();
    assert_eq!(
        submit_and_wait(&world.key(), &suite_id, 10).await["result"]["value"],
        0.2271
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_jobs_climb_in_sequence() {
    let world = world_with(StackSize {
        workers: 2,
        ..StackSize::default()
    })
    .await;
    world.widen_plans().await;
    let suite_id = publish(&world, "ladder", 1, "release = \"ladder(0.05)\"")
        .await
        .unwrap();
    let ladder = Ladder {
        start: 0.0271,
        step: 0.05,
        levels: 19,
    };
    let key = world.key();
    // Blocking all jobs where they read answers makes them finish at about the same time.
    let held = world.hold_answers().await;
    let jobs = join_all((0..20).map(|at| submitted(&key, &suite_id, at * 7 % 20 + 15))).await;
    // A worker runs four at a time. On a busy machine a blocked job may end before the eighth starts.
    wait_until("running jobs at both workers", async || {
        let running = "select count(*) from jobs where status = 'running'";
        sqlx::query_scalar::<_, i64>(running)
            .fetch_one(&mut world.database().await)
            .await
            .unwrap()
            > 4
    })
    .await;
    drop(held);
    let mut finished = join_all(
        jobs.iter()
            .map(|job| world.wait_until_finished(job.body["id"].as_str().unwrap())),
    )
    .await;
    finished.sort_by_key(|job| string(&job["finished_at"]));
    let mut level = 0;
    for job in &finished {
        let right: f64 = string(&job["label"]).parse().unwrap();
        let before = level;
        level = ladder.climb(level, right / N as f64);
        assert_eq!(
            job["result"]["value"],
            ladder.value(level),
            "after level {before}: {job}"
        );
    }
    let values: HashSet<_> = finished
        .iter()
        .map(|job| job["result"]["value"].to_string())
        .collect();
    assert!((1..8).contains(&values.len()), "{values:?}");
}

/// A worker that the test controls.
struct ManualWorker {
    pool: PgPool,
    worker_id: WorkerId,
}

impl ManualWorker {
    async fn new(world: &World) -> Self {
        let pool = store::pool(
            &world.stack.database.worker_url,
            2,
            "test",
            PoolProfile::WORK,
        )
        .unwrap();
        let worker_id = WorkerId::random().unwrap();
        leases::renew_lease(&pool, &worker_id, 4).await.unwrap();
        Self { pool, worker_id }
    }

    async fn claim(&self, job: &Response) -> Claim {
        leases::renew_lease(&self.pool, &self.worker_id, 4)
            .await
            .unwrap();
        work::claim(
            &self.pool,
            &self.worker_id,
            &string(&job.body["id"]).parse().unwrap(),
        )
        .await
        .unwrap()
        .unwrap()
    }

    async fn succeed(&self, claim: &Claim, value: f64) -> bool {
        let (ladder, policy) = (
            Ladder {
                start: 0.0,
                step: 0.1,
                levels: 10,
            },
            "ladder(0.1)".parse().unwrap(),
        );
        let figures = Figures {
            value,
            estimate: None,
            metrics: [].into(),
            public_metrics: [].into(),
            clusters: None,
            slices: Vec::new(),
            ceiling: None,
            share_of_ceiling: None,
            skill: None,
        };
        allowance::succeed_on_ladder(
            &self.pool,
            claim,
            ladder,
            policy,
            figures,
            successful_attempt(claim, value),
        )
        .await
        .unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fenced_attempt_does_not_climb() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let worker = ManualWorker::new(&world).await;
    let suite_id = publish(&world, "ladder", 1, "release = \"ladder(0.1)\"")
        .await
        .unwrap();
    let level = async || {
        let level = sqlx::query_scalar::<_, i32>(
            "select level from suite_allowances where suite_id = 'suite:ladder'",
        );
        level.fetch_one(&mut world.database().await).await.unwrap()
    };
    let job = submitted(&world.key(), &suite_id, 1).await;
    let first = worker.claim(&job).await;
    sqlx::raw_sql("update jobs set deadline_at = now()")
        .execute(&mut world.database().await)
        .await
        .unwrap();
    world
        .wait_for_status(&string(&job.body["id"]), "queued")
        .await;
    assert!(!worker.succeed(&first, 0.9).await);
    assert_eq!(level().await, 0);
    let second = worker.claim(&job).await;
    assert!(!worker.succeed(&first, 0.9).await);
    assert!(worker.succeed(&second, 0.42).await);
    assert_eq!(level().await, 4);
    assert!(!worker.succeed(&second, 0.9).await, "the job is finished");
    assert_eq!(level().await, 4);
    assert_eq!(
        world.wait_until_finished(&string(&job.body["id"])).await["result"]["value"],
        0.4
    );

    let job = submitted(&world.key(), &suite_id, 1).await;
    let claim = worker.claim(&job).await;
    world
        .key()
        .post(
            &format!("/v1/jobs/{}/cancel", string(&job.body["id"])),
            &json!({}),
        )
        .await
        .unwrap();
    assert!(!worker.succeed(&claim, 0.9).await, "the job was cancelled");
    assert_eq!(level().await, 4);
    assert_eq!(
        world
            .wait_until_finished(&string(&job.body["id"]))
            .await
            .get("result"),
        None
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn daily_cap_counts_only_scorable_jobs() {
    avoid_midnight().await;
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let key = world.key();
    let worker = ManualWorker::new(&world).await;
    let suite_id = publish(&world, "daily", 1, "max_submissions_per_day = 2")
        .await
        .unwrap();
    let free = publish(&world, "free", 1, "").await.unwrap();
    let listed = key.get("/v1/suites").await.unwrap().body;
    let limits: Vec<_> = listed["suites"]
        .as_array()
        .unwrap()
        .iter()
        .map(|suite| suite["max_submissions_per_day"].clone())
        .collect();
    assert_eq!(limits, [json!(2), Value::Null, Value::Null]);

    let cancelled = submitted(&key, &suite_id, 1).await;
    key.post(
        &format!("/v1/jobs/{}/cancel", string(&cancelled.body["id"])),
        &json!({}),
    )
    .await
    .unwrap();
    let failed = submitted(&key, &suite_id, 1).await;
    assert!(
        work::fail(
            &worker.pool,
            &worker.claim(&failed).await,
            FailureCode::InvalidPredictions,
            "x",
            &[]
        )
        .await
        .unwrap()
    );
    let keyed = || {
        key.request("POST", "/v1/evals")
            .header("idempotency-key", "k")
            .json(&body(&suite_id, 3))
    };
    let first = key.send(keyed()).await.expect_status(202);
    submitted(&key, &suite_id, 4).await.expect_status(202);

    let usage = key.get("/v1/usage").await.unwrap().body["totals"]["eval_items"].clone();
    let refused = submitted(&key, &suite_id, 5)
        .await
        .expect_error(429, "quota_exceeded");
    let message = "suite:daily allows 2 submissions and comparisons a day for an organization and all that share its allowance. The next day \
                   begins at midnight UTC.";
    assert_eq!(refused.body["error"]["message"], message);
    let midnight = "select to_char(date_trunc('day', now() at time zone 'UTC') + interval '1 day', 'YYYY-MM-DD\"T\"00:00:00.000000\"Z\"'),
                    extract(epoch from date_trunc('day', now() at time zone 'UTC') + interval '1 day' - now() at time zone 'UTC')::float8";
    let (midnight, seconds): (String, f64) = sqlx::query_as(midnight)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(
        refused.body["error"]["details"],
        json!({"limit": "submissions_per_day", "max": 2, "resets_at": midnight})
    );
    assert!((refused.header("retry-after").parse::<f64>().unwrap() - seconds).abs() < 60.0);
    assert_eq!(
        key.get("/v1/usage").await.unwrap().body["totals"]["eval_items"],
        usage,
        "nothing was charged"
    );
    let jobs = "select count(*) from jobs where suite_id = 'suite:daily'";
    assert_eq!(
        sqlx::query_scalar::<_, i64>(jobs)
            .fetch_one(&mut world.database().await)
            .await
            .unwrap(),
        4
    );

    let mut evals = EvalServiceClient::new(world.channel().await);
    let status = evals
        .create_eval(with_token(message_of(&suite_id, 5), &world.org.key))
        .await
        .unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (tonic::Code::ResourceExhausted, message)
    );
    assert_eq!(
        status.get_details_error_info().unwrap().reason,
        "QUOTA_EXCEEDED"
    );
    assert_eq!(
        status.get_details_quota_failure().unwrap().violations[0].subject,
        "submissions_per_day"
    );
    assert!(
        status
            .get_details_retry_info()
            .unwrap()
            .retry_delay
            .unwrap()
            .as_secs()
            > 0
    );

    // A replayed request returns the same job; other suites and other organizations are not
    // affected.
    let again = key.send(keyed()).await.expect_status(202);
    assert_eq!(again.body["id"], first.body["id"]);
    submitted(&key, &free, 1).await.expect_status(202);
    let other = world.client(&org(&world.stack, "team").await.key);
    submitted(&other, &suite_id, 1).await.expect_status(202);
    // All versions count together, against the current one's limit.
    publish(&world, "daily", 2, "max_submissions_per_day = 3")
        .await
        .unwrap();
    submitted(&key, &suite_id, 6).await.expect_status(202);
    submitted(&key, &suite_id, 7).await.expect_status(429);
    // The day's submissions before do not count.
    let yesterday = "update suite_disclosures set created_at = created_at - interval '1 day'
                     where job_id in (select id from jobs where label in ('3', '4'))";
    sqlx::raw_sql(yesterday)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let statuses = [
        submitted(&key, &suite_id, 8).await,
        submitted(&key, &suite_id, 9).await,
        submitted(&key, &suite_id, 10).await,
    ];
    assert_eq!(statuses.map(|response| response.status), [202, 202, 429]);
}

#[tokio::test(flavor = "multi_thread")]
async fn contradictory_protection_returns_field_errors() {
    let world = world().await;
    for (more, expected) in [
        (
            "release = \"rounded(0)\"",
            "suite.toml:4: release: expected exact; rounded(d) with d from 1 to 6; ladder(step)",
        ),
        (
            "release = \"ladder(1.5)\"",
            "suite.toml:4: release: expected exact",
        ),
        (
            "release = 2",
            "suite.toml:4: release: must be a string in quotes",
        ),
        (
            "release = \"ladder(0.1)\"\nper_item_feedback = true",
            "suite.toml:5: per_item_feedback: with release = \"ladder(0.1)\" the scores of single items must not be disclosed",
        ),
        (
            "release = \"rounded(2)\"\nper_item_feedback = true",
            "suite.toml:5: per_item_feedback: with release = \"rounded(2)\"",
        ),
        (
            "max_submissions_per_day = 0",
            "suite.toml:4: max_submissions_per_day: must be an integer from 1 to",
        ),
        (
            "max_submissions_per_day = 3000000000",
            "suite.toml:4: max_submissions_per_day: must be an integer from 1 to",
        ),
        (
            "max_submissions_per_day = 1.5",
            "suite.toml:4: max_submissions_per_day: must be an integer",
        ),
        (
            "max_submissions = 0",
            "suite.toml:4: max_submissions: must be an integer from 1 to",
        ),
        (
            "access = \"friends\"",
            "suite.toml:4: access: expected one of: everyone, verified_domain, granted",
        ),
        (
            "clip = [0.0, 1.0]",
            "suite.toml:4: clip: is for rmse, mae, log_loss, kl, pinball and wis, not for accuracy",
        ),
        (
            "release = \"sealed(0.5)\"",
            "suite.toml:4: closes_at: sealed items need the time at which the suite closes",
        ),
        (
            "release = \"sealed(0.5)\"\ncloses_at = 2030-01-01T00:00:00Z",
            "suite.toml:4: seal_seed: selects the sealed items",
        ),
        (
            "release = \"sealed(0.5)\"\ncloses_at = 2030-01-01T00:00:00\nseal_seed = \"x\"",
            "suite.toml:5: closes_at: must be a time with an offset",
        ),
        (
            "release = \"sealed(0.5)\"\ncloses_at = \"2030-01-01T00:00:00Z\"\nseal_seed = \"x\"",
            "suite.toml:5: closes_at: must be a time with an offset and without quotes",
        ),
        (
            "closes_at = 2030-01-01T00:00:00Z",
            "suite.toml:4: closes_at: is for release = \"sealed(fraction)\" or a board, not for \"exact\" without a board",
        ),
        (
            "board = \"closed\"",
            "suite.toml:4: board: expected one of: off, live, at_close",
        ),
        (
            "board = \"at_close\"",
            "suite.toml:4: board: \"at_close\" needs closes_at",
        ),
        (
            "release = \"ladder(0.1)\"\nboard = \"live\"",
            "suite.toml:5: board: a live board would disclose what release = \"ladder(0.1)\" hides",
        ),
        (
            "release = \"sealed(0.5)\"\nseal_seed = \"x\"\ncloses_at = 2030-01-01T00:00:00Z\nboard = \"live\"",
            "suite.toml:7: board: a live board would disclose what release = \"sealed(0.5)\" hides",
        ),
        (
            "board = \"off\"\ncloses_at = 2030-01-01T00:00:00Z",
            "suite.toml:5: closes_at: is for release",
        ),
        (
            "seal_seed = \"x\"",
            "suite.toml:4: seal_seed: is for release = \"sealed(fraction)\", not for \"exact\"",
        ),
    ] {
        let refused = publish(&world, "refused", 1, more).await.unwrap_err();
        assert!(refused.contains(expected), "{more}: {refused}");
    }
    publish(
        &world,
        "kept",
        1,
        "release = \"rounded(2)\"\nmax_submissions_per_day = 5",
    )
    .await
    .unwrap();
    publish(
        &world,
        "kept",
        1,
        "max_submissions_per_day = 5\nrelease = \"rounded(2)\"",
    )
    .await
    .unwrap();
    for more in [
        "release = \"rounded(3)\"\nmax_submissions_per_day = 5",
        "release = \"rounded(2)\"\nmax_submissions_per_day = 6",
        "",
    ] {
        let refused = publish(&world, "kept", 1, more).await.unwrap_err();
        assert!(
            refused.contains("a published version never changes"),
            "{more}: {refused}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_scores_protected_folder_exactly() {
    let world = world().await;
    publish(
        &world,
        "own",
        1,
        "release = \"ladder(0.1)\"\nmax_submissions_per_day = 1",
    )
    .await
    .unwrap();
    let folder = world
        .stack
        .ground
        .servers
        .folder()
        .join(format!("{}-own", world.stack.database.name));
    let predictions: String = labels(20)
        .map(|(item_id, label)| format!("{}\n", json!({"item_id": item_id, "prediction": label})))
        .collect();
    std::fs::write(folder.join("predictions.ndjson"), predictions).unwrap();
    let worker = &world.stack.ground.binaries.worker;
    let scored = std::process::Command::new(worker)
        .args([
            "score",
            "--suite",
            folder.to_str().unwrap(),
            "--predictions",
            folder.join("predictions.ndjson").to_str().unwrap(),
        ])
        .output()
        .unwrap();
    let printed: Value = serde_json::from_slice(&scored.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&scored.stderr)));
    assert_eq!(printed["value"], json!(20.0 / 37.0));
}
