//! Every job acknowledged with 202 reaches exactly one final state, even if workers, the API or
//! Redis crash.

use std::time::Duration;

use assay_core::WorkerId;
use assay_core::model::job::FailureCode;
use assay_core::store::{self, PgPool, PoolProfile, leases, work};
use assay_tests::stack::StackSize;
use assay_tests::wait::wait_timeout;
use serde_json::{Value, json};
use sqlx::Connection as _;

use crate::harness::{
    Expect, World, large_prediction, one_prediction, string, succeed, wait_until, world,
    world_on_own_servers, world_with,
};

/// Counts the results, the attempts and the ledger rows.
async fn counts(world: &World) -> (i64, i64, i64) {
    let sql = "select (select count(*) from jobs where result is not null), (select count(*) from job_attempts), (select count(*) from usage_ledger)";
    sqlx::query_as(sql)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap()
}

/// Returns the outcome of each attempt at the only job.
async fn outcomes(world: &World) -> Vec<String> {
    sqlx::query_scalar("select outcome from job_attempts order by attempt")
        .fetch_all(&mut world.database().await)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_worker_loses_nothing() {
    let world = world().await;
    let hold = world.hold_answers().await;
    let queued = world.submit(&one_prediction()).await;
    let job_id = string(&queued.body["id"]);
    world.wait_for_status(&job_id, "running").await;
    world.stack.workers[0].guarded.signal(libc::SIGKILL);
    hold.close().await.unwrap();
    let _second = world.stack.launch_worker().unwrap();
    let job = world.wait_until_finished(&job_id).await;
    assert_eq!(
        (&job["status"], &job["attempts"]),
        (&"succeeded".into(), &2.into())
    );
    assert_eq!(
        counts(&world).await,
        (1, 2, 1),
        "one result, two attempts, one charge"
    );
    // The job starts again when the worker's lease ends, long before the attempt's
    // deadline.
    assert_eq!(outcomes(&world).await, ["lost", "succeeded"]);
    let trace = world
        .key()
        .get(&format!("/v1/jobs/{job_id}/trace"))
        .await
        .unwrap();
    let attempts = trace
        .body
        .to_string()
        .matches("\"name\":\"attempt\"")
        .count();
    assert_eq!(attempts, 2, "both attempts are spans of one trace");
}

#[tokio::test(flavor = "multi_thread")]
async fn late_write_changes_nothing() {
    let world = world().await;
    let hold = world.hold_answers().await;
    let queued = world.submit(&one_prediction()).await;
    let job_id = string(&queued.body["id"]);
    world.wait_for_status(&job_id, "running").await;
    // The worker freezes while it runs the job, so its lease expires.
    world.stack.workers[0].guarded.signal(libc::SIGSTOP);
    world.wait_for_status(&job_id, "queued").await;
    let waiting = world
        .key()
        .get(&format!("/v1/jobs/{job_id}"))
        .await
        .unwrap();
    assert_eq!(
        (&waiting.body["started_at"], &waiting.body["attempts"]),
        (&Value::Null, &1.into())
    );
    hold.close().await.unwrap();
    let _second = world.stack.launch_worker().unwrap();
    let job = world.wait_until_finished(&job_id).await;
    world.stack.workers[0].guarded.signal(libc::SIGCONT);
    let log = &world.stack.workers[0].log;
    wait_until("rejection of the late write", async || {
        let log = std::fs::read_to_string(log).unwrap();
        log.contains("\"result\":\"fenced\"") || log.contains("\"result\":\"lost\"")
    })
    .await;
    let after = world
        .key()
        .get(&format!("/v1/jobs/{job_id}"))
        .await
        .unwrap();
    assert_eq!(after.body, job);
    assert_eq!(counts(&world).await, (1, 2, 1));
}

/// Starts a world without workers, for tests that act as the worker. Returns it with a connection
/// pool and the id of a worker with a lease.
async fn without_workers() -> (World, PgPool, WorkerId) {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let pool = store::pool(
        &world.stack.database.worker_url,
        2,
        "test",
        PoolProfile::WORK,
    )
    .unwrap();
    let worker_id = WorkerId::random().unwrap();
    leases::renew_lease(&pool, &worker_id, 4).await.unwrap();
    (world, pool, worker_id)
}

#[tokio::test(flavor = "multi_thread")]
async fn earlier_attempt_cannot_write() {
    let (world, pool, worker_id) = without_workers().await;
    let job_id = string(&world.submit(&one_prediction()).await.body["id"]);
    let first = work::claim(&pool, &worker_id, &job_id.parse().unwrap())
        .await
        .unwrap()
        .unwrap();
    assert!(
        work::claim(&pool, &worker_id, &first.job_id)
            .await
            .unwrap()
            .is_none(),
        "a job is claimed once"
    );
    sqlx::raw_sql("update jobs set deadline_at = now()")
        .execute(&mut world.database().await)
        .await
        .unwrap();
    world.wait_for_status(&job_id, "queued").await;
    let refused = async || {
        assert!(!work::owns_job(&pool, &first, 0.5).await.unwrap());
        assert!(!succeed(&pool, &first, 1.0).await.unwrap());
        assert!(
            !work::fail(&pool, &first, FailureCode::Internal, "x", &[])
                .await
                .unwrap()
        );
        assert!(
            !work::requeue(&pool, &first, FailureCode::Internal, "x", &[])
                .await
                .unwrap()
        );
    };
    refused().await;
    let second = work::claim(&pool, &worker_id, &first.job_id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((first.attempt, second.attempt), (1, 2));
    refused().await;
    assert!(succeed(&pool, &second, 1.0).await.unwrap());
    refused().await;
    let job = world.wait_until_finished(&job_id).await;
    assert_eq!(
        (&job["status"], &job["attempts"]),
        (&"succeeded".into(), &2.into())
    );
    assert_eq!(counts(&world).await, (1, 2, 1));
}

/// A claim whose response was lost is requeued, but only until all attempts are used up.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_claim_is_reclaimed() {
    let (world, pool, worker_id) = without_workers().await;
    let job_id = string(&world.submit(&one_prediction()).await.body["id"]);
    for attempt in 1..=4 {
        world.wait_for_status(&job_id, "queued").await;
        let claim = work::claim(&pool, &worker_id, &job_id.parse().unwrap())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(claim.attempt, attempt);
        // The response to the claim was lost; the process is alive and renews its lease.
        leases::renew_lease(&pool, &worker_id, 4).await.unwrap();
        assert_eq!(
            leases::orphan_unknown_claims(&pool, &worker_id, &[])
                .await
                .unwrap(),
            0,
            "the response may be in flight"
        );
        sqlx::raw_sql("update jobs set started_at = now() - interval '11 seconds'")
            .execute(&mut world.database().await)
            .await
            .unwrap();
        assert_eq!(
            leases::orphan_unknown_claims(&pool, &worker_id, &[&job_id])
                .await
                .unwrap(),
            0,
            "a known claim stays"
        );
        assert_eq!(
            leases::orphan_unknown_claims(&pool, &worker_id, &[])
                .await
                .unwrap(),
            1
        );
    }
    let job = world.wait_until_finished(&job_id).await;
    assert_eq!(
        (&job["status"], &job["attempts"], &job["error"]["code"]),
        (&"failed".into(), &4.into(), &"internal".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_organization_does_not_block_others() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    world.submit(&one_prediction()).await;
    let other = crate::harness::org(&world.stack, "team").await;
    world.widen_plans().await;
    let earlier = json!({"suite_id": "suite:lunch", "predictions": one_prediction()});
    let earlier = world.client(&other.key).post("/v1/evals", &earlier).await;
    assert_eq!(earlier.unwrap().status, 202);
    let mut hold = world.database().await;
    sqlx::raw_sql("begin").execute(&mut hold).await.unwrap();
    sqlx::query("select from org_submissions where org_id = $1 for update")
        .bind(&world.org.id)
        .execute(&mut hold)
        .await
        .unwrap();
    let client = world.key().without_retries();
    let body = json!({"suite_id": "suite:lunch", "predictions": one_prediction()});
    let stuck = tokio::spawn({
        let body = body.clone();
        async move {
            futures_util::future::join_all((0..40).map(|_| client.post("/v1/evals", &body))).await
        }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    for _ in 0..10 {
        let other = world.client(&other.key);
        other.get("/v1/me").await.expect_status(200);
        other.post("/v1/evals", &body).await.expect_status(202);
    }
    for response in stuck.await.unwrap() {
        let response = response.unwrap();
        assert_eq!(
            (
                response.status,
                crate::harness::error_code(&response),
                response.header("retry-after")
            ),
            (503, "unavailable".to_owned(), "1")
        );
    }
    hold.close().await.unwrap();
    world.submit(&one_prediction()).await.expect_status(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_job_removes_submission() {
    let world = world().await;
    world.submit_and_wait(&one_prediction()).await;
    let job = world.submit_and_wait(&large_prediction()).await;
    let key: String = sqlx::query_scalar("select input_key from jobs where input_key is not null")
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    let file = world
        .stack
        .ground
        .servers
        .folder()
        .join(format!("{}-artifacts", world.stack.database.name))
        .join(key);
    assert!(file.exists());
    sqlx::raw_sql("update jobs set finished_at = now() - interval '2 minutes'")
        .execute(&mut world.database().await)
        .await
        .unwrap();
    // A new process looks for removable objects when it starts.
    let _second = world.stack.launch_api().unwrap();
    wait_until("removal", async || !file.exists()).await;
    let mut database = world.database().await;
    wait_until("removal of the rows", async || {
        let stored: i64 = sqlx::query_scalar("select count(*) from stored_predictions")
            .fetch_one(&mut database)
            .await
            .unwrap();
        stored == 0
    })
    .await;
    let after = world
        .key()
        .get(&format!("/v1/jobs/{}", string(&job["id"])))
        .await
        .unwrap();
    assert_eq!(after.body["result"], job["result"]);
}

/// Item scores of an earlier attempt are removed, those of the job stay.
#[tokio::test(flavor = "multi_thread")]
async fn orphaned_item_scores_are_removed() {
    let world = world().await;
    crate::feedback::publish(&world, "1").await;
    let job = crate::feedback::submit_and_wait(&world, &world.org.key, &one_prediction()).await;
    let id = string(&job["id"]);
    let first = crate::feedback::move_scores_to_artifact_store(&world, &job).await;
    let second = first.with_file_name(format!("{id}.2.scores"));
    // Simulates that the first attempt's worker died after it stored the scores, before it finished
    // the job.
    std::fs::copy(&first, &second).unwrap();
    let sql = "update stored_item_scores set scores_key = replace(scores_key, '.1.', '.2.');
               update jobs set attempts = 2, scores_key = replace(scores_key, '.1.', '.2.'), finished_at = now() - interval '2 minutes'";
    sqlx::raw_sql(sql)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let _second = world.stack.launch_api().unwrap();
    wait_until("removal", async || !first.exists()).await;
    assert!(second.exists());
    world
        .key()
        .get(&format!("/v1/jobs/{id}/items"))
        .await
        .expect_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_refuses_different_artifact_folder() {
    let mut world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let other = world.stack.ground.servers.folder().join("nothing-here");
    world.stack.set("ASSAY_ARTIFACTS", &other.to_string_lossy());
    let worker = world.stack.launch_worker().unwrap();
    assert!(
        worker
            .guarded
            .wait(wait_timeout())
            .is_some_and(|ended| !ended.success())
    );
    assert!(
        std::fs::read_to_string(&worker.log)
            .unwrap()
            .contains("set ASSAY_ARTIFACTS to the same value")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn exhausted_job_fails_with_refund() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let queued = world.submit(&one_prediction()).await;
    let job_id = string(&queued.body["id"]);
    // Four workers claim the job and never renew their leases.
    for attempt in 1..=4 {
        world.wait_for_status(&job_id, "queued").await;
        let claim = "with claimed as (update jobs set status = 'running', attempts = attempts + 1, started_at = now(), worker_id = 'wrk_gone',
                     deadline_at = now() + interval '15 minutes' where status = 'queued' returning *)
                     insert into job_attempts (org_id, job_id, attempt, worker_id, started_at) select org_id, id, attempts, worker_id, now() from claimed";
        assert_eq!(
            sqlx::query(claim)
                .execute(&mut world.database().await)
                .await
                .unwrap()
                .rows_affected(),
            1,
            "attempt {attempt}"
        );
    }
    let job = world.wait_until_finished(&job_id).await;
    assert_eq!(
        (&job["status"], &job["attempts"], &job["error"]["code"]),
        (&"failed".into(), &4.into(), &"internal".into())
    );
    let left: i64 = sqlx::query_scalar("select sum(eval_items)::bigint from usage")
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(left, 0, "an internal failure refunds the charge");
    // The trace exists although no worker survived to write it.
    world
        .key()
        .get(&format!("/v1/jobs/{job_id}/trace"))
        .await
        .expect_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn overdue_job_is_reclaimed_from_live_worker() {
    let world = world_with(StackSize {
        workers: 2,
        ..StackSize::default()
    })
    .await;
    let hold = world.hold_answers().await;
    let queued = world.submit(&one_prediction()).await;
    let job_id = string(&queued.body["id"]);
    world.wait_for_status(&job_id, "running").await;
    // Moves the 15-minute deadline into the past.
    sqlx::raw_sql("update jobs set deadline_at = now() - interval '1 second'")
        .execute(&mut world.database().await)
        .await
        .unwrap();
    wait_until("second attempt", async || counts(&world).await.1 == 2).await;
    hold.close().await.unwrap();
    assert_eq!(world.wait_until_finished(&job_id).await["attempts"], 2);
    assert_eq!(outcomes(&world).await, ["timeout", "succeeded"]);
}

/// Redis is unavailable first, then recovers with no data.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_finish_without_redis() {
    let Some(world) = world_on_own_servers(|_| StackSize {
        workers: 2,
        ..StackSize::default()
    })
    .await
    else {
        return;
    };
    let servers = &world.stack.ground.servers;
    world.submit_and_wait(&one_prediction()).await;

    servers.redis_stop().unwrap();
    // A request that waited for Redis would get no response before Redis starts again.
    let queued = world.submit(&one_prediction()).await.expect_status(202);
    assert_eq!(queued.header("x-ratelimit-limit"), "1000");
    assert_eq!(
        world.wait_until_finished(&string(&queued.body["id"])).await["attempts"],
        1
    );

    // Redis recovers without data.
    let waiting = world.submit(&one_prediction()).await;
    servers.redis_start().unwrap();
    assert_eq!(
        world
            .wait_until_finished(&string(&waiting.body["id"]))
            .await["status"],
        "succeeded"
    );
    for _ in 0..20 {
        world.submit_and_wait(&one_prediction()).await;
    }
    assert_eq!(counts(&world).await, (23, 23, 23), "each job runs once");
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_shutdown_finishes_running_job() {
    let world = world().await;
    let hold = world.hold_answers().await;
    let queued = world.submit(&one_prediction()).await;
    let job_id = string(&queued.body["id"]);
    world.wait_for_status(&job_id, "running").await;
    let worker = &world.stack.workers[0].guarded;
    worker.signal(libc::SIGTERM);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(worker.try_wait().is_none(), "the worker waits for its job");
    hold.close().await.unwrap();
    let job = world.wait_until_finished(&job_id).await;
    assert_eq!(
        (&job["status"], &job["attempts"]),
        (&"succeeded".into(), &1.into())
    );
    let ended = worker.wait(wait_timeout()).unwrap();
    assert!(ended.success(), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_timeout_requeues_job_at_once() {
    let world = world_with(crate::harness::with_setting("ASSAY_DRAIN_SECONDS", "1")).await;
    let hold = world.hold_answers().await;
    let queued = world.submit(&one_prediction()).await;
    let job_id = string(&queued.body["id"]);
    world.wait_for_status(&job_id, "running").await;
    world.stack.workers[0].guarded.signal(libc::SIGTERM);
    let ended = world.stack.workers[0].guarded.wait(wait_timeout()).unwrap();
    assert!(ended.success(), "{ended:?}");
    // A worker whose lease is gone owns no job, so the sweep does not wait for the lease to expire.
    let leases: i64 = sqlx::query_scalar("select count(*) from workers")
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(leases, 0);
    world.wait_for_status(&job_id, "queued").await;
    hold.close().await.unwrap();
    let _second = world.stack.launch_worker().unwrap();
    assert_eq!(world.wait_until_finished(&job_id).await["attempts"], 2);
    assert_eq!(outcomes(&world).await, ["lost", "succeeded"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn api_shutdown_finishes_open_request() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let world = world().await;
    let api = &world.stack.apis[0];
    let body = json!({"suite_id": "suite:lunch", "predictions": one_prediction()}).to_string();
    let mut socket = tokio::net::TcpStream::connect(api.listen.unwrap())
        .await
        .unwrap();
    let head = format!(
        "POST /v1/evals HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         expect: 100-continue\r\n\r\n",
        world.org.key,
        body.len()
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    // The process asks for the body once the handler reads it.
    let mut interim = Vec::new();
    while !interim.ends_with(b"\r\n\r\n") {
        assert_ne!(socket.read_buf(&mut interim).await.unwrap(), 0);
    }
    assert!(interim.starts_with(b"HTTP/1.1 100"), "{interim:?}");
    api.guarded.signal(libc::SIGTERM);
    wait_until("the end of the listener", async || {
        tokio::net::TcpStream::connect(api.listen.unwrap())
            .await
            .is_err()
    })
    .await;
    socket.write_all(body.as_bytes()).await.unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 202"), "{response}");
    assert!(api.guarded.wait(wait_timeout()).unwrap().success());
    let jobs: i64 = sqlx::query_scalar("select count(*) from jobs")
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(jobs, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn api_shutdown_answers_one_more_request_of_each_connection() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const REQUEST: &[u8] = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n";
    let world = world().await;
    let api = &world.stack.apis[0];
    let connect = async || {
        tokio::net::TcpStream::connect(api.listen.unwrap())
            .await
            .unwrap()
    };
    let mut kept = connect().await;
    kept.write_all(REQUEST).await.unwrap();
    let mut first = Vec::new();
    while !first.ends_with(b"}") {
        assert_ne!(kept.read_buf(&mut first).await.unwrap(), 0);
    }
    let first = String::from_utf8(first).unwrap();
    assert!(!first.contains("connection: close"), "{first}");
    let mut without_request = connect().await;
    let mut idle = connect().await;
    // The process has accepted all three when it answers the last one.
    idle.write_all(REQUEST).await.unwrap();
    assert_ne!(idle.read(&mut [0; 4096]).await.unwrap(), 0);
    api.guarded.signal(libc::SIGTERM);
    wait_until("the end of the listener", async || {
        tokio::net::TcpStream::connect(api.listen.unwrap())
            .await
            .is_err()
    })
    .await;
    for connection in [&mut kept, &mut without_request] {
        connection.write_all(REQUEST).await.unwrap();
        let mut response = String::new();
        connection.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        assert!(response.contains("connection: close"), "{response}");
    }
    assert_eq!(idle.read(&mut [0]).await.unwrap(), 0, "it is closed");
    assert!(api.guarded.wait(wait_timeout()).unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_run_each_job_once() {
    let world = world_with(StackSize {
        apis: 2,
        workers: 2,
        ..StackSize::default()
    })
    .await;
    let client = world.key();
    let body = json!({"suite_id": "suite:lunch", "predictions": one_prediction()});
    let mut done = 0;
    for _ in 0..5 {
        let all =
            futures_util::future::join_all((0..40).map(|_| client.post("/v1/evals", &body))).await;
        for response in all {
            let response = response.unwrap();
            assert_eq!(response.status, 202, "{}", response.body);
            assert_eq!(
                world
                    .wait_until_finished(&string(&response.body["id"]))
                    .await["attempts"],
                1
            );
            done += 1;
        }
    }
    assert_eq!(counts(&world).await, (done, done, done));
    let workers: i64 = sqlx::query_scalar("select count(distinct worker_id) from job_attempts")
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(workers, 2);
}
