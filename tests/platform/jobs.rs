//! `/v1/jobs`: listing, waiting, cancelling.

use std::time::Duration;

use assay_proto::v1;
use assay_proto::v1::job_service_client::JobServiceClient;
use assay_tests::client::Client;
use assay_tests::stack::StackSize;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;
use serde_json::{Value, json};

use crate::harness::{
    Expect, World, before_longest_wait, error_code, field_error, field_errors, one_prediction, org,
    shared_world, shared_world_without_workers, string, wait_until, with_token, world, world_with,
};

fn body() -> Value {
    json!({"suite_id": "suite:lunch", "predictions": one_prediction()})
}

async fn ids(client: &Client, query: &str) -> Vec<String> {
    let page = client
        .get(&format!("/v1/jobs{query}"))
        .await
        .expect_status(200);
    page.body["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| string(&job["id"]))
        .collect()
}

async fn cancel(client: &Client, job_id: &str) -> assay_tests::client::Response {
    client
        .send(client.request("POST", &format!("/v1/jobs/{job_id}/cancel")))
        .await
        .unwrap()
}

async fn used(world: &World) -> i64 {
    sqlx::query_scalar("select coalesce(sum(eval_items), 0)::bigint from usage")
        .fetch_one(&mut world.database().await)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_list_each_job_once_newest_first() {
    let world = world_with(StackSize {
        apis: 2,
        ..StackSize::default()
    })
    .await;
    sqlx::raw_sql("update plans set concurrent_jobs = 1000, requests_per_minute = 100000")
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let body = body();
    let clients: Vec<_> = world
        .stack
        .apis
        .iter()
        .map(|api| {
            Client::new(
                format!("http://{}", api.listen.unwrap()),
                Some(&world.org.key),
            )
        })
        .collect();
    let made = stream::iter((0..300).map(|i| clients[i % 2].post("/v1/evals", &body)))
        .buffer_unordered(30);
    let mut made: Vec<_> = made
        .map(|response| response.unwrap().body)
        .map(|job| (string(&job["created_at"]), string(&job["id"])))
        .collect()
        .await;
    made.sort_by(|a, b| b.cmp(a));
    let expected: Vec<_> = made.into_iter().map(|(_, id)| id).collect();
    for limit in [7, 200] {
        let mut seen = Vec::new();
        let mut before = String::new();
        loop {
            let page = world
                .key()
                .get(&format!("/v1/jobs?limit={limit}{before}"))
                .await
                .unwrap();
            seen.extend(
                page.body["jobs"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|job| string(&job["id"])),
            );
            match page.body.get("next_before") {
                None => break,
                Some(next) => before = format!("&before={}", string(next)),
            }
        }
        assert!(
            seen == expected,
            "limit {limit}: {} of {}",
            seen.len(),
            expected.len()
        );
    }
    assert_eq!(ids(&world.key(), "").await.len(), 50, "the default limit");
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_filters_and_isolates_organizations() {
    let world = shared_world().await;
    let job = world.submit_and_wait(&one_prediction()).await;
    let id = string(&job["id"]);
    for (query, expected) in [
        ("?status=succeeded", 1),
        ("?status=queued", 0),
        ("?type=eval", 1),
        ("?type=predict", 0),
        ("?type=eval&status=failed", 0),
    ] {
        assert_eq!(ids(&world.key(), query).await.len(), expected, "{query}");
    }
    assert!(
        ids(
            &world.key(),
            &format!("?before={}", string(&job["created_at"]))
        )
        .await
        .is_empty(),
        "`before` is exclusive"
    );
    assert_eq!(ids(&world.member("viewer").await, "").await, [id]);
    let other = org(&world.stack, "free").await;
    let stranger = world.client(&other.key);
    assert!(ids(&stranger, "").await.is_empty());
    let listed = world.key().get("/v1/jobs").await.unwrap();
    assert_eq!(
        listed.body["jobs"][0], job,
        "a listing returns complete jobs"
    );
    assert!(listed.body.get("next_before").is_none());
}

/// Copies the queued job: 5 times for each combination: status, suite and label. The copies that
/// have succeeded get the result from the job that has.
const COPIES: &str = "
    insert into workers (id, seen_at, slots) values ('wrk_lives', 'infinity', 1);
    with kinds as (
        select row_number() over (order by hashtext(n || status || suite_id || label)) as place, *
        from generate_series(1, 5) n,
            unnest(array['queued', 'running', 'succeeded', 'failed', 'cancelled']) status,
            unnest(array['suite:lunch', 'suite:dinner']) suite_id,
            unnest(array['', 'a', 'A']) label
    )
    insert into jobs
    select r.*
    from jobs q
    join jobs done on done.status = 'succeeded'
    cross join kinds k
    cross join jsonb_populate_record(
        null::jobs,
        to_jsonb(q) - 'metadata' || jsonb_build_object(
            'id', 'job_copy' || k.place,
            'created_at', q.created_at - k.place * interval '1 ms',
            'status', k.status,
            'suite_id', k.suite_id,
            'label', nullif(k.label, ''),
            'worker_id', case when k.status = 'running' then 'wrk_lives' end,
            'deadline_at', case when k.status = 'running' then now() + interval '10 minutes' end,
            'started_at', case when k.status <> 'queued' then now() end,
            'finished_at', case when k.status in ('succeeded', 'failed', 'cancelled') then now() end,
            'result', case when k.status = 'succeeded' then done.result end,
            'error_code', case when k.status = 'failed' then 'internal' end,
            'error_message', case when k.status = 'failed' then 'x' end
        )
    ) r
    where q.status = 'queued'";

/// Returns all jobs in a listing, read in pages.
async fn all(client: &Client, query: &str) -> Vec<Value> {
    let mut jobs: Vec<Value> = Vec::new();
    let mut before = String::new();
    loop {
        let path = format!("/v1/jobs?limit=7{query}{before}");
        let page = client.get(&path).await.expect_status(200);
        jobs.extend(page.body["jobs"].as_array().unwrap().clone());
        match page.body.get("next_before") {
            None => break,
            Some(next) => before = format!("&before={}", string(next)),
        }
    }
    for job in &mut jobs {
        // The estimates change all the time.
        job.as_object_mut().unwrap().remove("queue");
    }
    jobs
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_filters_by_suite_and_label() {
    let mut world = world().await;
    crate::feedback::publish(&world, "1").await;
    world.submit_and_wait(&one_prediction()).await;
    world.stack.workers.clear();
    world.submit(&one_prediction()).await;
    sqlx::raw_sql(COPIES)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    world.widen_plans().await;
    let key = world.key();
    let whole = all(&key, "").await;
    assert_eq!(whole.len(), 152);
    let mut found = 0;
    for suite_id in ["", "suite:lunch", "suite:dinner", "suite:none"] {
        for label in ["", "a", "A", "b"] {
            for status in ["", "queued", "running", "succeeded", "failed", "cancelled"] {
                for r#type in ["", "eval", "predict"] {
                    let filters = [
                        ("suite_id", suite_id),
                        ("label", label),
                        ("status", status),
                        ("type", r#type),
                    ];
                    let given = filters.into_iter().filter(|(_, value)| !value.is_empty());
                    let query: String = given
                        .map(|(name, value)| format!("&{name}={value}"))
                        .collect();
                    let fits = |job: &&Value| {
                        filters.into_iter().all(|(name, value)| {
                            let of = match name {
                                "suite_id" => &job["versions"]["suite_id"],
                                name => &job[name],
                            };
                            value.is_empty() || of == value
                        })
                    };
                    let expected: Vec<Value> = whole.iter().filter(fits).cloned().collect();
                    assert_eq!(all(&key, &query).await, expected, "{query}");
                    found += expected.len();
                }
            }
        }
    }
    // Each job by all or its own suite, label and status, and by all types or its own.
    assert_eq!(found, 2016);
    assert!(
        all(
            &world.client(&org(&world.stack, "team").await.key),
            "&suite_id=suite:lunch"
        )
        .await
        .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_listing_returns_all_field_errors() {
    let world = shared_world_without_workers().await;
    let response = world
        .key()
        .get("/v1/jobs?type=x&status=y&limit=201&before=yesterday&suite_id=lunch&label=%20")
        .await
        .expect_status(422);
    assert_eq!(
        field_errors(&response),
        [
            field_error("type", "unknown_value"),
            field_error("status", "unknown_value"),
            field_error("suite_id", "format"),
            field_error("label", "required"),
            field_error("before", "format"),
            field_error("limit", "range")
        ]
    );
    let response = world.key().get("/v1/jobs?stauts=queued").await.unwrap();
    assert_eq!(
        field_errors(&response),
        [field_error("stauts", "unknown_field")]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_returns_when_job_finishes() {
    let world = world().await;
    let hold = world.hold_answers().await;
    let job_id = string(&world.submit(&one_prediction()).await.body["id"]);
    // A wait that ends before the job returns the job as it is.
    let path = format!("/v1/jobs/{job_id}");
    let client = world.key();
    let early = client.get(&format!("{path}?wait=1")).await.unwrap();
    assert_ne!(early.body["status"], "succeeded");
    sqlx::Connection::close(hold).await.unwrap();
    // The worker has the answers now, so a lock on them no longer holds its jobs.
    let worker = &world.stack.workers[0].guarded;
    let finished = before_longest_wait(&client, async || {
        worker.signal(libc::SIGSTOP);
        let job_id = string(&world.submit(&one_prediction()).await.body["id"]);
        let waiting = client.clone();
        let waiting = tokio::spawn(async move {
            let path = format!("/v1/jobs/{job_id}?wait=30");
            waiting.get(&path).await.unwrap()
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!waiting.is_finished(), "the request does not wait");
        worker.signal(libc::SIGCONT);
        waiting.await.unwrap()
    })
    .await;
    assert_eq!(finished.body["status"], "succeeded");
    for bad in ["31", "-1", "soon"] {
        world
            .key()
            .get(&format!("/v1/jobs/{job_id}?wait={bad}"))
            .await
            .expect_status(422);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_queued_job_is_refunded() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let job_id = string(&world.submit(&one_prediction()).await.body["id"]);
    assert_eq!(used(&world).await, 1);
    let refused = cancel(&world.member("viewer").await, &job_id).await;
    assert_eq!(error_code(&refused), "forbidden");
    let cancelled = cancel(&world.key(), &job_id).await.expect_status(200);
    assert_eq!(cancelled.body["status"], "cancelled");
    assert!(cancelled.body["finished_at"].is_string() && cancelled.body.get("trace_url").is_none());
    assert_eq!(used(&world).await, 0);
    cancel(&world.key(), &job_id)
        .await
        .expect_error(409, "invalid_state");
    assert_eq!(used(&world).await, 0, "refunded once");
    let _worker = world.stack.launch_worker().unwrap();
    world.submit_and_wait(&one_prediction()).await;
    assert_eq!(
        world
            .key()
            .get(&format!("/v1/jobs/{job_id}"))
            .await
            .unwrap()
            .body,
        cancelled.body,
        "no worker claims it"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_running_job_stays_charged() {
    let world = world().await;
    let hold = world.hold_answers().await;
    let job_id = string(&world.submit(&one_prediction()).await.body["id"]);
    world.wait_for_status(&job_id, "running").await;
    let cancelled = cancel(&world.owner(), &job_id).await.expect_status(200);
    assert_eq!(cancelled.body["status"], "cancelled");
    assert_eq!(cancelled.body["attempts"], 1);
    sqlx::Connection::close(hold).await.unwrap();
    world.submit_and_wait(&one_prediction()).await;
    assert_eq!(
        world
            .key()
            .get(&format!("/v1/jobs/{job_id}"))
            .await
            .unwrap()
            .body,
        cancelled.body,
        "the late write is rejected"
    );
    assert_eq!(used(&world).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_job_cannot_be_cancelled() {
    let world = shared_world_without_workers().await;
    let job_id = string(&world.submit(&one_prediction()).await.body["id"]);
    let other = org(&world.stack, "free").await;
    for id in [job_id.as_str(), "job_0", "nonsense"] {
        let response = cancel(&world.client(&other.key), id)
            .await
            .expect_error(404, "not_found");
        assert_eq!(response.body["error"]["message"], "No such job.");
    }
    assert_eq!(
        world
            .key()
            .get(&format!("/v1/jobs/{job_id}"))
            .await
            .unwrap()
            .body["status"],
        "queued"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn list_and_cancel_match_grpc() {
    let world = shared_world_without_workers().await;
    let mut expected = Vec::new();
    for _ in 0..3 {
        expected.insert(0, string(&world.submit(&one_prediction()).await.body["id"]));
    }
    let mut jobs = JobServiceClient::new(world.channel().await);
    let request = |limit, before| {
        with_token(
            v1::ListJobsRequest {
                r#type: None,
                status: Some("queued".into()),
                suite_id: Some("suite:lunch".into()),
                label: None,
                limit,
                before,
            },
            &world.org.key,
        )
    };
    let first = jobs
        .list_jobs(request(Some(2), None))
        .await
        .unwrap()
        .into_inner();
    let second = jobs
        .list_jobs(request(Some(2), first.next_before))
        .await
        .unwrap()
        .into_inner();
    let seen: Vec<_> = first
        .jobs
        .iter()
        .chain(&second.jobs)
        .map(|job| job.id.clone())
        .collect();
    assert_eq!((seen, second.next_before), (expected.clone(), None));
    let one = v1::CancelJobRequest {
        job_id: expected[0].clone(),
    };
    let cancelled = jobs
        .cancel_job(with_token(one.clone(), &world.org.key))
        .await
        .unwrap()
        .into_inner()
        .job
        .unwrap();
    assert_eq!(cancelled.status, "cancelled");
    let again = jobs
        .cancel_job(with_token(one, &world.org.key))
        .await
        .unwrap_err();
    assert_eq!(again.code(), tonic::Code::FailedPrecondition);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_jobs_have_distinct_timestamps() {
    let world = shared_world().await;
    let body = body();
    let client = world.key();
    let all = join_all((0..40).map(|_| client.post("/v1/evals", &body))).await;
    let timestamps: std::collections::HashSet<_> = all
        .into_iter()
        .map(|response| string(&response.unwrap().body["created_at"]))
        .collect();
    assert_eq!(timestamps.len(), 40);
}

/// Returns a stream's text until it contains `end` or is over.
async fn read_until(response: &mut reqwest::Response, end: &str) -> String {
    let mut text = String::new();
    while !text.contains(end)
        && let Some(chunk) = response.chunk().await.unwrap()
    {
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_job_end_with_its_final_state() {
    let world = world().await;
    let hold = world.hold_answers().await;
    let job_id = string(&world.submit(&one_prediction()).await.body["id"]);
    world.wait_for_status(&job_id, "running").await;
    let key = world.key();
    let path = format!("/v1/jobs/{job_id}/events");
    let mut response = key.request("GET", &path).send().await.unwrap();
    let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(
        (
            response.status().as_u16(),
            header("content-type"),
            header("cache-control")
        ),
        (200, "text/event-stream".to_owned(), "no-store".to_owned())
    );
    let first = read_until(&mut response, "\n\n").await;
    let first: Value = serde_json::from_str(first.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(
        (&first["id"], &first["status"]),
        (&json!(job_id), &json!("running"))
    );
    // Nothing changes: the next line is a comment.
    let heartbeat =
        before_longest_wait(&key, async || read_until(&mut response, "\n\n").await).await;
    assert_eq!(heartbeat, ": \n\n");
    sqlx::Connection::close(hold).await.unwrap();
    let rest = read_until(&mut response, "never").await;
    let last = rest.trim_end().rsplit("data: ").next().unwrap();
    let job = key.get(&format!("/v1/jobs/{job_id}")).await.unwrap();
    assert_eq!(serde_json::from_str::<Value>(last).unwrap(), job.body);
    assert_eq!(job.body["status"], "succeeded");
    key.get("/v1/jobs/job_0000000000000000000000/events")
        .await
        .expect_error(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_streams_changes_until_job_finishes() {
    let world = world().await;
    let hold = world.hold_answers().await;
    let job_id = string(&world.submit(&one_prediction()).await.body["id"]);
    world.wait_for_status(&job_id, "running").await;
    let mut jobs = JobServiceClient::new(world.channel().await);
    let request = |token| {
        with_token(
            v1::WatchJobRequest {
                job_id: job_id.clone(),
            },
            token,
        )
    };
    let mut watched = jobs
        .watch_job(request(&world.org.key))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        watched
            .message()
            .await
            .unwrap()
            .unwrap()
            .job
            .unwrap()
            .status,
        "running"
    );
    // Nothing changes: the next message is a heartbeat.
    let heartbeat =
        before_longest_wait(&world.key(), async || watched.message().await.unwrap()).await;
    assert_eq!(heartbeat.unwrap().job, None);
    sqlx::Connection::close(hold).await.unwrap();
    let ended = watched.message().await.unwrap().unwrap().job.unwrap();
    let rest = world
        .key()
        .get(&format!("/v1/jobs/{job_id}"))
        .await
        .unwrap()
        .body;
    assert_eq!(
        (ended.status.as_str(), ended.result.unwrap().value),
        ("succeeded", rest["result"]["value"].as_f64().unwrap())
    );
    assert_eq!(watched.message().await.unwrap(), None, "the stream closes");
    // Watching a finished job returns it once.
    let mut again = jobs
        .watch_job(request(&world.org.session))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        again.message().await.unwrap().unwrap().job.unwrap().status,
        "succeeded"
    );
    assert_eq!(again.message().await.unwrap(), None);
    let other = org(&world.stack, "free").await;
    assert_eq!(
        jobs.watch_job(request(&other.key))
            .await
            .unwrap_err()
            .code(),
        tonic::Code::NotFound
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_key_ends_its_watch() {
    let world = shared_world_without_workers().await;
    let job_id = string(&world.submit(&one_prediction()).await.body["id"]);
    let made = world
        .owner()
        .post("/v1/keys", &json!({"name": "watcher"}))
        .await
        .unwrap();
    let mut jobs = JobServiceClient::new(world.channel().await);
    let request = with_token(
        v1::WatchJobRequest {
            job_id: job_id.clone(),
        },
        &string(&made.body["key"]),
    );
    let mut watched = jobs.watch_job(request).await.unwrap().into_inner();
    assert_eq!(
        watched
            .message()
            .await
            .unwrap()
            .unwrap()
            .job
            .unwrap()
            .status,
        "queued"
    );
    let path = format!("/v1/keys/{}", string(&made.body["id"]));
    world.owner().delete(&path).await.unwrap();
    cancel(&world.key(), &job_id).await.expect_status(200);
    assert_eq!(
        watched.message().await.unwrap_err().code(),
        tonic::Code::Unauthenticated
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_session_ends_its_watch() {
    let world = shared_world_without_workers().await;
    let job_id = string(&world.submit(&one_prediction()).await.body["id"]);
    let mut jobs = JobServiceClient::new(world.channel().await);
    let request = with_token(
        v1::WatchJobRequest {
            job_id: job_id.clone(),
        },
        &world.org.session,
    );
    let mut watched = jobs.watch_job(request).await.unwrap().into_inner();
    assert_eq!(
        watched
            .message()
            .await
            .unwrap()
            .unwrap()
            .job
            .unwrap()
            .status,
        "queued"
    );
    let idle = "update sessions set last_used_at = now() - interval '8 days' where org_id = $1";
    sqlx::query(idle)
        .bind(&world.org.id)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    cancel(&world.key(), &job_id).await.expect_status(200);
    assert_eq!(
        watched.message().await.unwrap_err().code(),
        tonic::Code::Unauthenticated
    );
}

/// Counts the jobs whose transaction has also recorded their notification. A row that no later
/// transaction has updated has the same transaction id as the predictions that were stored with it.
const STORED_WITH_NOTIFICATION: &str = "
    select count(*)
    from jobs j
    join stored_predictions p on p.job_id = j.id
    where j.xmin = p.xmin
      and j.dispatched_at is not null
      and j.dispatch_no = 1";

#[tokio::test(flavor = "multi_thread")]
async fn job_is_stored_with_its_notification() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let mut database = world.database().await;
    // The dispatcher's first round finds out how much room the queue has.
    wait_until("a job is stored with its notification", async || {
        world.submit(&one_prediction()).await;
        let stored: i64 = sqlx::query_scalar(STORED_WITH_NOTIFICATION)
            .fetch_one(&mut database)
            .await
            .unwrap();
        stored > 0
    })
    .await;
}
