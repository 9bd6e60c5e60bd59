//! The `/v1/usage` endpoints, and the counting of requests.

use assay_core::Timestamp;
use assay_proto::v1;
use assay_proto::v1::usage_service_client::UsageServiceClient;
use assay_tests::client::Client;
use assay_tests::stack::StackSize;
use assay_tests::wait::wait_timeout;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

use crate::disclosure;
use crate::harness::{
    Expect, avoid_midnight, field_error, field_errors, one_prediction, org, own_ground, pause,
    string, wait_until, with_token, world, world_on, world_with,
};

#[tokio::test(flavor = "multi_thread")]
async fn usage_shows_month_totals_and_limits() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    world.submit(&one_prediction()).await;
    let usage = world.key().get("/v1/usage").await.unwrap().body;
    let start = string(&usage["period_start"]);
    let end = string(&usage["period_end"]);
    assert!(
        start.ends_with("-01T00:00:00.000000Z")
            && end.ends_with("-01T00:00:00.000000Z")
            && start < end,
        "{start} {end}"
    );
    assert_eq!(
        (&usage["org_id"], &usage["plan"], &usage["active_jobs"]),
        (&json!(world.org.id), &json!("team"), &json!(1))
    );
    let limits = &usage["limits"];
    assert_eq!(
        json!([
            limits["concurrent_jobs"],
            limits["eval_items_per_month"],
            limits["storage_bytes"],
            limits["embeddings_per_month"]
        ]),
        json!([50, 2_000_000, 53_687_091_200_i64, 2_000_000])
    );
    assert_eq!(
        usage["totals"],
        json!({"eval_items": 1, "requests": 2, "predict_items": 0, "generated_events": 0, "embeddings": 0}),
        "this request counts, too"
    );
    let other = org(&world.stack, "free").await;
    let theirs = world
        .client(&other.key)
        .get("/v1/usage")
        .await
        .unwrap()
        .body;
    assert_eq!(
        (&theirs["totals"]["eval_items"], &theirs["active_jobs"]),
        (&json!(0), &json!(0))
    );

    let grpc = UsageServiceClient::new(world.channel().await)
        .get_usage(with_token(v1::GetUsageRequest {}, &world.org.key))
        .await
        .unwrap();
    let grpc = grpc.into_inner().usage.unwrap();
    assert_eq!(
        (grpc.org_id, grpc.plan, grpc.active_jobs),
        (world.org.id.clone(), "team".to_owned(), 1)
    );
    assert_eq!(grpc.period_end.unwrap(), end.parse().unwrap());
    let totals = grpc.totals.unwrap();
    let limits = grpc.limits.unwrap();
    assert_eq!(
        (
            totals.eval_items,
            totals.requests,
            limits.concurrent_jobs,
            limits.eval_items_per_month
        ),
        (1, 3, 50, 2_000_000)
    );
}

/// Returns the suites of the usage, as id, submissions of the day and daily limit.
async fn suites(client: &Client) -> Value {
    let usage = client.get("/v1/usage").await.expect_status(200);
    let suites = usage.body["suites"].as_array().unwrap().iter();
    suites
        .map(|suite| {
            let resets_at = string(&suite["resets_at"]);
            assert!(
                resets_at.ends_with("T00:00:00.000000Z")
                    && resets_at > Timestamp::now().to_string(),
                "{resets_at}"
            );
            json!([
                suite["suite_id"],
                suite["submissions_today"],
                suite["max_submissions_per_day"]
            ])
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_shows_submissions_of_the_day_by_suite() {
    avoid_midnight().await;
    let world = world().await;
    let key = world.key();
    let daily = disclosure::publish(&world, "daily", 1, "max_submissions_per_day = 3");
    let daily = daily.await.unwrap();
    assert_eq!(suites(&key).await, json!([[daily, 0, 3]]));
    let a = disclosure::submit_and_wait(&key, &daily, 20).await;
    let b = disclosure::submit_and_wait(&key, &daily, 15).await;
    let comparison = json!({"job_a": a["id"], "job_b": b["id"]});
    for _ in 0..2 {
        // A repeated comparison uses nothing.
        key.post("/v1/comparisons", &comparison)
            .await
            .expect_status(200);
    }
    world.submit_and_wait(&one_prediction()).await;
    let job = world.submit_and_wait(&one_prediction()).await;
    assert_eq!(
        suites(&key).await,
        json!([[daily, 3, 3], ["suite:lunch", 2, null]])
    );
    let refused =
        json!({"suite_id": daily, "predictions": [{"item_id": "i0", "prediction": ["a"]}]});
    // The figure is the one that the limit counts.
    key.post("/v1/evals", &refused).await.expect_status(429);
    let other = org(&world.stack, "team").await;
    assert_eq!(
        suites(&world.client(&other.key)).await,
        json!([[daily, 0, 3]])
    );
    // A cancelled job does not count, nor does one of the day before.
    let changes = [
        (
            "update jobs set status = 'cancelled', result = null where id = $1",
            &a["id"],
        ),
        (
            "update jobs set created_at = created_at - interval '1 day' where id = $1",
            &job["id"],
        ),
    ];
    for (sql, id) in changes {
        let change = sqlx::query(sql).bind(string(id));
        change.execute(&mut world.database().await).await.unwrap();
    }
    assert_eq!(
        suites(&key).await,
        json!([[daily, 1, 3], ["suite:lunch", 1, null]])
    );
}

/// Returns the days of a usage, as date, items, refunded items and jobs.
async fn days(client: &Client, query: &str) -> Vec<Value> {
    let response = client
        .get(&format!("/v1/usage/days{query}"))
        .await
        .expect_status(200);
    let days = response.body["days"].as_array().unwrap().iter();
    days.map(|day| {
        json!([
            day["date"],
            day["eval_items"],
            day["eval_items_refunded"],
            day["jobs"]
        ])
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_listed_by_day() {
    avoid_midnight().await;
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let key = world.key();
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(string(&world.submit(&one_prediction()).await.body["id"]));
    }
    for id in &ids[..2] {
        let cancel = key.request("POST", &format!("/v1/jobs/{id}/cancel"));
        key.send(cancel).await.expect_status(200);
    }
    // Two of the jobs were submitted 29 days ago. One of these was refunded today.
    let age = "update usage_ledger set created_at = created_at - interval '29 days'
               where job_id in ($1, $2) and kind = 'charge'";
    sqlx::query(age)
        .bind(&ids[0])
        .bind(&ids[2])
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let date = |age: i64| {
        Timestamp::now()
            .plus_micros(-age * 86_400_000_000)
            .to_string()[..10]
            .to_owned()
    };
    let (today, first) = (date(0), date(29));
    let listed = days(&key, "").await;
    assert_eq!(listed.len(), 30, "the last 30 days");
    for (age, day) in listed.iter().rev().enumerate() {
        let date = date(age as i64);
        let expected = match age {
            0 | 29 => json!([date, 2, 1, 2]),
            _ => json!([date, 0, 0, 0]),
        };
        assert_eq!(*day, expected);
    }
    assert_eq!(days(&key, &format!("?from={first}")).await, listed);
    assert_eq!(days(&key, &format!("?to={today}")).await, listed);
    let until_yesterday = days(&key, &format!("?from={}&to={}", date(92), date(1))).await;
    assert_eq!(until_yesterday.len(), 92);
    assert_eq!(until_yesterday[63], listed[0]);
    assert_eq!(
        days(&key, &format!("?from={today}&to={today}")).await,
        [json!([today, 2, 1, 2])]
    );
    let other = world.client(&org(&world.stack, "team").await.key);
    assert_eq!(
        days(&other, &format!("?from={today}&to={today}")).await,
        [json!([today, 0, 0, 0])]
    );
    for (query, field, reason) in [
        (
            format!("?from={}&to={}", date(92), date(0)),
            "from",
            "range",
        ),
        (format!("?from={}&to={}", date(0), date(1)), "from", "range"),
        (format!("?from={}", date(-1)), "from", "range"),
        ("?from=2026-02-30".to_owned(), "from", "format"),
        ("?to=2026-01-31T00:00:00Z".to_owned(), "to", "format"),
        ("?since=2026-01-31".to_owned(), "since", "unknown_field"),
    ] {
        let refused = key
            .get(&format!("/v1/usage/days{query}"))
            .await
            .expect_status(422);
        assert_eq!(
            field_errors(&refused),
            vec![field_error(field, reason)],
            "{query}"
        );
    }
    // Requests are counted for the day of their flush.
    let yesterday = "insert into usage_request_days (org_id, date, requests)
                     values ($1, (now() at time zone 'UTC')::date - 1, 7)";
    sqlx::query(yesterday)
        .bind(&world.org.id)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let month = key.get("/v1/usage").await.unwrap().body["totals"]["requests"].clone();
    let listed = key.get("/v1/usage/days").await.unwrap().body["days"].clone();
    assert_eq!(
        json!([listed[28]["requests"], listed[29]["requests"]]),
        json!([7, month.as_i64().unwrap() + 1])
    );
    let grpc = UsageServiceClient::new(world.channel().await)
        .list_usage_days(with_token(
            v1::ListUsageDaysRequest {
                from: Some(first),
                to: None,
            },
            &world.org.key,
        ))
        .await
        .unwrap()
        .into_inner();
    let last = grpc.days.last().unwrap();
    assert_eq!(
        (
            grpc.days.len(),
            last.date.as_str(),
            last.eval_items,
            last.jobs
        ),
        (30, today.as_str(), 2, 2)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn request_counts_survive_their_processes() {
    let mut world = world_with(StackSize {
        apis: 2,
        workers: 0,
        ..StackSize::default()
    })
    .await;
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
    for i in 0..20 {
        clients[i % 2].get("/v1/me").await.unwrap();
    }
    // Requests rejected for their credential's class count; requests without a credential belong to
    // no organization.
    clients[0].get("/v1/keys").await.unwrap();
    world.anonymous().get("/v1/me").await.unwrap();
    // A process flushes its counts when it shuts down.
    let first = world.stack.apis.remove(0);
    first.guarded.signal(libc::SIGTERM);
    assert!(first.guarded.wait(wait_timeout()).unwrap().success());
    let mut polls = 0;
    wait_until("all requests are counted", async || {
        polls += 1;
        clients[1].get("/v1/usage").await.unwrap().body["totals"]["requests"] == 21 + polls
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_never_shows_more_requests_than_were_sent() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    world.widen_plans().await;
    let sent = AtomicI64::new(0);
    let began = Instant::now();
    let send = async |reads: bool| {
        let client = world.key();
        while began.elapsed() < Duration::from_secs(8) {
            sent.fetch_add(1, Ordering::SeqCst);
            let response = client
                .get(if reads { "/v1/usage" } else { "/v1/me" })
                .await
                .unwrap();
            let shown = response.body["totals"]["requests"].as_i64().unwrap_or(0);
            let sent = sent.load(Ordering::SeqCst);
            assert!(
                shown <= sent,
                "{shown} requests are reported, {sent} were sent"
            );
        }
    };
    futures_util::future::join_all((0..8).map(|client| send(client < 4))).await;
}

/// Starts a proxy to PostgreSQL that can drop all connections.
async fn database_proxy(socket: std::path::PathBuf) -> (u16, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (drops, dropped) = watch::channel(false);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let socket = socket.clone();
            let mut dropped = dropped.clone();
            tokio::spawn(async move {
                let Ok(mut database) = UnixStream::connect(socket).await else {
                    return;
                };
                tokio::select! {
                    _ = tokio::io::copy_bidirectional::<TcpStream, UnixStream>(&mut client, &mut database) => {}
                    _ = dropped.wait_for(|dropped| *dropped) => {}
                }
            });
        }
    });
    (port, drops)
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_commit_result_counts_requests_once() {
    let Some(ground) = own_ground() else { return };
    let mut world = world_on(
        &ground,
        StackSize {
            apis: 0,
            workers: 0,
            ..StackSize::default()
        },
    )
    .await;
    let (port, drops) =
        database_proxy(ground.servers.postgres_socket().unwrap().to_path_buf()).await;
    let url = world
        .stack
        .database
        .api_url
        .split('?')
        .next()
        .unwrap()
        .replace("localhost:5432", &format!("127.0.0.1:{port}"));
    world.stack.database.api_url = url;
    let api = world.stack.launch_api().unwrap();
    api.ready().await.unwrap();
    world.stack.apis.push(api);
    // Commits that count requests take two seconds, enough time to lose their result.
    let slow = "create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(2); return null; end';
                create constraint trigger slow after insert or update on usage_requests deferrable initially deferred
                    for each row execute function slow()";
    sqlx::raw_sql(slow)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    for _ in 0..5 {
        world.key().get("/v1/me").await.expect_status(200);
    }
    let committing = "select count(*) from pg_stat_activity where state = 'active' and query ilike 'commit%' and wait_event = 'PgSleep'";
    let mut database = world.database().await;
    wait_until("a slow commit", async || {
        sqlx::query_scalar::<_, i64>(committing)
            .fetch_one(&mut database)
            .await
            .unwrap()
            == 1
    })
    .await;
    drops.send_replace(true);
    let stored = "select coalesce(sum(requests), 0)::bigint from usage_requests";
    wait_until("the commit with the lost result", async || {
        sqlx::query_scalar::<_, i64>(stored)
            .fetch_one(&mut database)
            .await
            .unwrap()
            > 0
    })
    .await;
    sqlx::raw_sql("drop trigger slow on usage_requests")
        .execute(&mut database)
        .await
        .unwrap();
    drops.send_replace(false);
    wait_until("a response", async || {
        world.key().get("/v1/me").await.unwrap().status == 200
    })
    .await;
    pause("nothing to happen", Duration::from_secs(3)).await;
    // Requests that found no database are not counted.
    assert_eq!(
        sqlx::query_scalar::<_, i64>(stored)
            .fetch_one(&mut database)
            .await
            .unwrap(),
        6
    );
}
