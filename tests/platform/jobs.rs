//! `/v1/jobs`: listing, waiting, cancelling.

use std::time::{Duration, Instant};

use assay_proto::v1;
use assay_proto::v1::job_service_client::JobServiceClient;
use assay_tests::client::Client;
use assay_tests::stack::Plan;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;
use serde_json::{Value, json};

use crate::harness::{
    STALL, World, code, fault, faults, one_prediction, org, text, with_token, world, world_of,
};

fn body() -> Value {
    json!({"suite_id": "suite:lunch", "predictions": one_prediction()})
}

async fn ids(client: &Client, query: &str) -> Vec<String> {
    let page = client.get(&format!("/v1/jobs{query}")).await.unwrap();
    assert_eq!(page.status, 200, "{}", page.body);
    page.body["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| text(&job["id"]))
        .collect()
}

async fn cancel(client: &Client, job_id: &str) -> assay_tests::client::Answer {
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
async fn pages_are_newest_first_and_hold_every_job_once() {
    let world = world_of(Plan {
        apis: 2,
        ..Plan::default()
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
        .map(|answer| answer.unwrap().body)
        .map(|job| (text(&job["created_at"]), text(&job["id"])))
        .collect()
        .await;
    made.sort_by(|a, b| b.cmp(a));
    let expected: Vec<_> = made.into_iter().map(|(_, id)| id).collect();
    for limit in [7, 200] {
        let (mut seen, mut before) = (Vec::new(), String::new());
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
                    .map(|job| text(&job["id"])),
            );
            match page.body.get("next_before") {
                None => break,
                Some(next) => before = format!("&before={}", text(next)),
            }
        }
        assert!(
            seen == expected,
            "limit {limit}: {} of {}",
            seen.len(),
            expected.len()
        );
    }
    assert_eq!(ids(&world.key(), "").await.len(), 50, "the default");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_is_filtered_and_shows_ones_own_jobs_only() {
    let world = world().await;
    let job = world.scored(&one_prediction()).await;
    let id = text(&job["id"]);
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
            &format!("?before={}", text(&job["created_at"]))
        )
        .await
        .is_empty(),
        "before, not at"
    );
    assert_eq!(ids(&world.member("viewer").await, "").await, [id]);
    let other = org(&world.stack, "free").await;
    let stranger = world.client(&other.key);
    assert!(ids(&stranger, "").await.is_empty());
    let listed = world.key().get("/v1/jobs").await.unwrap();
    assert_eq!(
        listed.body["jobs"][0], job,
        "a listing shows what the job itself shows"
    );
    assert!(listed.body.get("next_before").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_listing_is_told_at_once() {
    let world = world_of(Plan {
        workers: 0,
        ..Plan::default()
    })
    .await;
    let answer = world
        .key()
        .get("/v1/jobs?type=x&status=y&limit=201&before=yesterday")
        .await
        .unwrap();
    assert_eq!(answer.status, 422);
    assert_eq!(
        faults(&answer),
        [
            fault("type", "unknown_value"),
            fault("status", "unknown_value"),
            fault("before", "format"),
            fault("limit", "range")
        ]
    );
    let answer = world.key().get("/v1/jobs?stauts=queued").await.unwrap();
    assert_eq!(faults(&answer), [fault("stauts", "unknown_field")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_answers_as_soon_as_the_job_ends() {
    let world = world().await;
    let hold = world.hold_answers().await;
    let job_id = text(&world.submit(&one_prediction()).await.body["id"]);
    let began = Instant::now();
    let path = format!("/v1/jobs/{job_id}");
    let early = world.key().get(&format!("{path}?wait=1")).await.unwrap();
    assert!(
        began.elapsed() >= Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    assert_ne!(early.body["status"], "succeeded");
    let client = world.key();
    let waiting =
        tokio::spawn(async move { client.get(&format!("{path}?wait=30")).await.unwrap() });
    tokio::time::sleep(Duration::from_millis(300)).await;
    sqlx::Connection::close(hold).await.unwrap();
    let began = Instant::now();
    assert_eq!(waiting.await.unwrap().body["status"], "succeeded");
    assert!(began.elapsed() < STALL, "{:?}", began.elapsed());
    for bad in ["31", "-1", "soon"] {
        assert_eq!(
            world
                .key()
                .get(&format!("/v1/jobs/{job_id}?wait={bad}"))
                .await
                .unwrap()
                .status,
            422,
            "{bad}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_job_is_cancelled_and_given_back() {
    let world = world_of(Plan {
        workers: 0,
        ..Plan::default()
    })
    .await;
    let job_id = text(&world.submit(&one_prediction()).await.body["id"]);
    assert_eq!(used(&world).await, 1);
    let refused = cancel(&world.member("viewer").await, &job_id).await;
    assert_eq!(code(&refused), "forbidden");
    let cancelled = cancel(&world.key(), &job_id).await;
    assert_eq!(
        (cancelled.status, &cancelled.body["status"]),
        (200, &"cancelled".into())
    );
    assert!(cancelled.body["finished_at"].is_string() && cancelled.body.get("trace_url").is_none());
    assert_eq!(used(&world).await, 0);
    let again = cancel(&world.key(), &job_id).await;
    assert_eq!(
        (again.status, code(&again)),
        (409, "invalid_state".to_owned())
    );
    assert_eq!(used(&world).await, 0, "given back once");
    let _worker = world.stack.launch_worker().unwrap();
    world.scored(&one_prediction()).await;
    assert_eq!(
        world
            .key()
            .get(&format!("/v1/jobs/{job_id}"))
            .await
            .unwrap()
            .body,
        cancelled.body,
        "no worker takes it up"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_is_cancelled_its_worker_stops_and_its_charge_stays() {
    let world = world().await;
    let hold = world.hold_answers().await;
    let job_id = text(&world.submit(&one_prediction()).await.body["id"]);
    world.until_status(&job_id, "running").await;
    let cancelled = cancel(&world.owner(), &job_id).await;
    assert_eq!(
        (
            cancelled.status,
            &cancelled.body["status"],
            &cancelled.body["attempts"]
        ),
        (200, &"cancelled".into(), &1.into())
    );
    sqlx::Connection::close(hold).await.unwrap();
    world.scored(&one_prediction()).await;
    assert_eq!(
        world
            .key()
            .get(&format!("/v1/jobs/{job_id}"))
            .await
            .unwrap()
            .body,
        cancelled.body,
        "the late write is refused"
    );
    assert_eq!(used(&world).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_organizations_job_cannot_be_cancelled() {
    let world = world_of(Plan {
        workers: 0,
        ..Plan::default()
    })
    .await;
    let job_id = text(&world.submit(&one_prediction()).await.body["id"]);
    let other = org(&world.stack, "free").await;
    for id in [job_id.as_str(), "job_0", "nonsense"] {
        let answer = cancel(&world.client(&other.key), id).await;
        assert_eq!(
            (
                answer.status,
                code(&answer),
                text(&answer.body["error"]["message"])
            ),
            (404, "not_found".to_owned(), "No such job.".to_owned())
        );
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
async fn listing_and_cancelling_are_the_same_over_grpc() {
    let world = world_of(Plan {
        workers: 0,
        ..Plan::default()
    })
    .await;
    let mut expected = Vec::new();
    for _ in 0..3 {
        expected.insert(0, text(&world.submit(&one_prediction()).await.body["id"]));
    }
    let mut jobs = JobServiceClient::new(world.channel().await);
    let ask = |limit, before| {
        with_token(
            v1::ListJobsRequest {
                r#type: None,
                status: Some("queued".into()),
                limit,
                before,
            },
            &world.org.key,
        )
    };
    let first = jobs
        .list_jobs(ask(Some(2), None))
        .await
        .unwrap()
        .into_inner();
    let second = jobs
        .list_jobs(ask(Some(2), first.next_before))
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
async fn no_two_jobs_of_an_organization_share_a_moment() {
    let world = world().await;
    let body = body();
    let client = world.key();
    let all = join_all((0..40).map(|_| client.post("/v1/evals", &body))).await;
    let moments: std::collections::HashSet<_> = all
        .into_iter()
        .map(|answer| text(&answer.unwrap().body["created_at"]))
        .collect();
    assert_eq!(moments.len(), 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_job_is_told_after_each_change_and_the_stream_closes_at_its_end() {
    let world = world().await;
    let hold = world.hold_answers().await;
    let job_id = text(&world.submit(&one_prediction()).await.body["id"]);
    world.until_status(&job_id, "running").await;
    let mut jobs = JobServiceClient::new(world.channel().await);
    let ask = |token| {
        with_token(
            v1::WatchJobRequest {
                job_id: job_id.clone(),
            },
            token,
        )
    };
    let mut watched = jobs
        .watch_job(ask(&world.org.key))
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
    let began = Instant::now();
    assert_eq!(watched.message().await.unwrap().unwrap().job, None);
    assert!(
        (9..15).contains(&began.elapsed().as_secs()),
        "{:?}",
        began.elapsed()
    );
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
    assert_eq!(watched.message().await.unwrap(), None, "it closes");
    // One that has ended is told once.
    let mut again = jobs
        .watch_job(ask(&world.org.session))
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
        jobs.watch_job(ask(&other.key)).await.unwrap_err().code(),
        tonic::Code::NotFound
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_revoked_sees_no_further_change() {
    let world = world_of(Plan {
        workers: 0,
        ..Plan::default()
    })
    .await;
    let job_id = text(&world.submit(&one_prediction()).await.body["id"]);
    let made = world
        .owner()
        .post("/v1/keys", &json!({"name": "watcher"}))
        .await
        .unwrap();
    let mut jobs = JobServiceClient::new(world.channel().await);
    let ask = with_token(
        v1::WatchJobRequest {
            job_id: job_id.clone(),
        },
        &text(&made.body["key"]),
    );
    let mut watched = jobs.watch_job(ask).await.unwrap().into_inner();
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
    let path = format!("/v1/keys/{}", text(&made.body["id"]));
    world
        .owner()
        .send(world.owner().request("DELETE", &path))
        .await
        .unwrap();
    assert_eq!(cancel(&world.key(), &job_id).await.status, 200);
    assert_eq!(
        watched.message().await.unwrap_err().code(),
        tonic::Code::Unauthenticated
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_session_ends_its_watch() {
    let world = world_of(Plan {
        workers: 0,
        ..Plan::default()
    })
    .await;
    let job_id = text(&world.submit(&one_prediction()).await.body["id"]);
    let mut jobs = JobServiceClient::new(world.channel().await);
    let ask = with_token(
        v1::WatchJobRequest {
            job_id: job_id.clone(),
        },
        &world.org.session,
    );
    let mut watched = jobs.watch_job(ask).await.unwrap().into_inner();
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
    let idle = "update sessions set last_used_at = now() - interval '8 days'";
    sqlx::query(idle)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(cancel(&world.key(), &job_id).await.status, 200);
    assert_eq!(
        watched.message().await.unwrap_err().code(),
        tonic::Code::Unauthenticated
    );
}
