//! What was answered with 202 ends, once, whatever dies.

use std::time::{Duration, Instant};

use assay_core::WorkerId;
use assay_core::model::job::FailureCode;
use assay_core::store::{self, PgPool, PoolProfile, work};
use assay_tests::stack::Plan;
use serde_json::{Value, json};
use sqlx::Connection as _;

use crate::harness::{
    STALL, World, one_prediction, result, text, until, world, world_alone, world_of,
};

/// Jobs, attempts and ledger rows: what there is exactly one of, and how often it was tried.
async fn counts(world: &World) -> (i64, i64, i64) {
    let sql = "select (select count(*) from jobs where result is not null), (select count(*) from job_attempts), (select count(*) from usage_ledger)";
    sqlx::query_as(sql)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_killed_in_the_middle_of_a_job_loses_nothing() {
    let world = world().await;
    let hold = world.hold_answers().await;
    let queued = world.submit(&one_prediction()).await;
    let job_id = text(&queued.body["id"]);
    world.until_status(&job_id, "running").await;
    let killed = Instant::now();
    world.stack.workers[0].guarded.signal(libc::SIGKILL);
    hold.close().await.unwrap();
    let _second = world.stack.launch_worker().unwrap();
    let job = world.ended(&job_id).await;
    assert!(
        killed.elapsed() < Duration::from_secs(30),
        "{:?}",
        killed.elapsed()
    );
    assert_eq!(
        (&job["status"], &job["attempts"]),
        (&"succeeded".into(), &2.into())
    );
    assert_eq!(
        counts(&world).await,
        (1, 2, 1),
        "one result, two tries, one charge"
    );
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
    assert_eq!(attempts, 2, "both tries are spans of the one trace");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_write_of_a_worker_that_was_given_up_changes_nothing() {
    let world = world().await;
    let hold = world.hold_answers().await;
    let queued = world.submit(&one_prediction()).await;
    let job_id = text(&queued.body["id"]);
    world.until_status(&job_id, "running").await;
    // The worker freezes with the job in its hands; its lease runs out.
    world.stack.workers[0].guarded.signal(libc::SIGSTOP);
    world.until_status(&job_id, "queued").await;
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
    let job = world.ended(&job_id).await;
    world.stack.workers[0].guarded.signal(libc::SIGCONT);
    let log = &world.stack.workers[0].log;
    until(
        "the end of the late attempt",
        Duration::from_secs(10),
        async || {
            let log = std::fs::read_to_string(log).unwrap();
            log.contains("\"outcome\":\"fenced\"") || log.contains("\"outcome\":\"lost\"")
        },
    )
    .await;
    let after = world
        .key()
        .get(&format!("/v1/jobs/{job_id}"))
        .await
        .unwrap();
    assert_eq!(after.body, job);
    assert_eq!(counts(&world).await, (1, 2, 1));
}

/// A world without workers, with a pool and the id of a process that has a lease: tests play the worker by hand.
async fn by_hand() -> (World, PgPool, WorkerId) {
    let world = world_of(Plan {
        workers: 0,
        ..Plan::default()
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
    work::renew_lease(&pool, &worker_id).await.unwrap();
    (world, pool, worker_id)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_write_of_an_earlier_attempt_is_refused() {
    let (world, pool, worker_id) = by_hand().await;
    let job_id = text(&world.submit(&one_prediction()).await.body["id"]);
    let first = work::claim(&pool, &worker_id, &job_id.parse().unwrap())
        .await
        .unwrap()
        .unwrap();
    assert!(
        work::claim(&pool, &worker_id, &first.job_id)
            .await
            .unwrap()
            .is_none(),
        "it is claimed once"
    );
    sqlx::raw_sql("update jobs set deadline_at = now()")
        .execute(&mut world.database().await)
        .await
        .unwrap();
    world.until_status(&job_id, "queued").await;
    let refused = async || {
        assert!(!work::owns_job(&pool, &first, 0.5).await.unwrap());
        assert!(
            !work::succeed(&pool, &first, &result(1.0), None, &[])
                .await
                .unwrap()
        );
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
    assert!(
        work::succeed(&pool, &second, &result(1.0), None, &[])
            .await
            .unwrap()
    );
    refused().await;
    let job = world.ended(&job_id).await;
    assert_eq!(
        (&job["status"], &job["attempts"]),
        (&"succeeded".into(), &2.into())
    );
    assert_eq!(counts(&world).await, (1, 2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_its_worker_does_not_know_of_is_taken_back_and_not_for_ever() {
    let (world, pool, worker_id) = by_hand().await;
    let job_id = text(&world.submit(&one_prediction()).await.body["id"]);
    for attempt in 1..=4 {
        world.until_status(&job_id, "queued").await;
        let claim = work::claim(&pool, &worker_id, &job_id.parse().unwrap())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(claim.attempt, attempt);
        // The answer was lost; the process lives and renews its lease.
        work::renew_lease(&pool, &worker_id).await.unwrap();
        assert_eq!(
            work::orphan_unknown_claims(&pool, &worker_id, &[])
                .await
                .unwrap(),
            0,
            "it may be on its way"
        );
        sqlx::raw_sql("update jobs set started_at = now() - interval '11 seconds'")
            .execute(&mut world.database().await)
            .await
            .unwrap();
        assert_eq!(
            work::orphan_unknown_claims(&pool, &worker_id, &[&job_id])
                .await
                .unwrap(),
            0,
            "what is held is held"
        );
        assert_eq!(
            work::orphan_unknown_claims(&pool, &worker_id, &[])
                .await
                .unwrap(),
            1
        );
    }
    let job = world.ended(&job_id).await;
    assert_eq!(
        (&job["status"], &job["attempts"], &job["error"]["code"]),
        (&"failed".into(), &4.into(), &"internal".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_of_one_organization_is_nobody_elses_trouble() {
    let world = world_of(Plan {
        workers: 0,
        ..Plan::default()
    })
    .await;
    world.submit(&one_prediction()).await;
    let other = crate::harness::org(&world.stack, "team").await;
    let mut hold = world.database().await;
    sqlx::raw_sql("begin; select * from org_submissions for update")
        .execute(&mut hold)
        .await
        .unwrap();
    let client = world.key();
    let body = json!({"suite_id": "suite:lunch", "predictions": one_prediction()});
    let stuck = tokio::spawn(async move {
        futures_util::future::join_all((0..40).map(|_| client.post("/v1/evals", &body))).await
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    for _ in 0..10 {
        let began = Instant::now();
        assert_eq!(
            world.client(&other.key).get("/v1/me").await.unwrap().status,
            200
        );
        assert!(began.elapsed() < STALL, "{:?}", began.elapsed());
    }
    for answer in stuck.await.unwrap() {
        let answer = answer.unwrap();
        assert_eq!(
            (
                answer.status,
                crate::harness::code(&answer),
                answer.header("retry-after")
            ),
            (503, "unavailable".to_owned(), "1")
        );
    }
    hold.close().await.unwrap();
    assert_eq!(world.submit(&one_prediction()).await.status, 202);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_is_removed_after_its_job_has_ended() {
    let world = world().await;
    let job = world.scored(&one_prediction()).await;
    let key: String = sqlx::query_scalar("select input_key from jobs")
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
    // A process that has just begun looks at once.
    let _second = world.stack.launch_api().unwrap();
    until("the removal", Duration::from_secs(10), async || {
        !file.exists()
    })
    .await;
    let after = world
        .key()
        .get(&format!("/v1/jobs/{}", text(&job["id"])))
        .await
        .unwrap();
    assert_eq!(after.body["result"], job["result"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn scores_that_an_earlier_attempt_kept_are_removed_and_those_of_the_job_stay() {
    let world = world().await;
    crate::feedback::publish(&world, "1").await;
    let job = crate::feedback::scored(&world, &world.org.key, &one_prediction()).await;
    let id = text(&job["id"]);
    let folder = world.stack.ground.servers.folder().join(format!(
        "{}-artifacts/{}",
        world.stack.database.name, world.org.id
    ));
    let (first, second) = (
        folder.join(format!("{id}.1.scores")),
        folder.join(format!("{id}.2.scores")),
    );
    // As if the first attempt's worker had died between keeping the scores and ending the job.
    std::fs::copy(&first, &second).unwrap();
    let sql = "update jobs set attempts = 2, scores_key = replace(scores_key, '.1.', '.2.'), finished_at = now() - interval '2 minutes'";
    sqlx::raw_sql(sql)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    let _second = world.stack.launch_api().unwrap();
    until("the removal", Duration::from_secs(10), async || {
        !first.exists()
    })
    .await;
    assert!(second.exists());
    assert_eq!(
        world
            .key()
            .get(&format!("/v1/jobs/{id}/items"))
            .await
            .unwrap()
            .status,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_does_not_work_on_another_folder_than_the_api() {
    let mut world = world_of(Plan {
        workers: 0,
        ..Plan::default()
    })
    .await;
    let other = world.stack.ground.servers.folder().join("nothing-here");
    world.stack.set("ASSAY_ARTIFACTS", &other.to_string_lossy());
    let worker = world.stack.launch_worker().unwrap();
    assert!(
        worker
            .guarded
            .wait(Duration::from_secs(20))
            .is_some_and(|ended| !ended.success())
    );
    assert!(
        std::fs::read_to_string(&worker.log)
            .unwrap()
            .contains("set ASSAY_ARTIFACTS to that one")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_survives_no_try_fails_and_is_given_back() {
    let world = world_of(Plan {
        workers: 0,
        ..Plan::default()
    })
    .await;
    let queued = world.submit(&one_prediction()).await;
    let job_id = text(&queued.body["id"]);
    // Four workers take it and are never heard of again.
    for attempt in 1..=4 {
        world.until_status(&job_id, "queued").await;
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
            "try {attempt}"
        );
    }
    let job = world.ended(&job_id).await;
    assert_eq!(
        (&job["status"], &job["attempts"], &job["error"]["code"]),
        (&"failed".into(), &4.into(), &"internal".into())
    );
    let left: i64 = sqlx::query_scalar("select sum(eval_items)::bigint from usage")
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(left, 0, "the fault is ours: the charge is given back");
    assert_eq!(
        world
            .key()
            .get(&format!("/v1/jobs/{job_id}/trace"))
            .await
            .unwrap()
            .status,
        200,
        "there is a trace although nobody lived to write one"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_time_is_over_is_taken_back_from_a_live_worker() {
    let world = world_of(Plan {
        workers: 2,
        ..Plan::default()
    })
    .await;
    let hold = world.hold_answers().await;
    let queued = world.submit(&one_prediction()).await;
    let job_id = text(&queued.body["id"]);
    world.until_status(&job_id, "running").await;
    // Fifteen minutes pass, by the database's account.
    sqlx::raw_sql("update jobs set deadline_at = now() - interval '1 second'")
        .execute(&mut world.database().await)
        .await
        .unwrap();
    until("the second try", Duration::from_secs(10), async || {
        counts(&world).await.1 == 2
    })
    .await;
    hold.close().await.unwrap();
    assert_eq!(world.ended(&job_id).await["attempts"], 2);
    let outcomes: Vec<String> =
        sqlx::query_scalar("select outcome from job_attempts order by attempt")
            .fetch_all(&mut world.database().await)
            .await
            .unwrap();
    assert_eq!(outcomes, ["timeout", "succeeded"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_flow_while_redis_is_away_and_when_it_forgot_everything() {
    let Some(world) = world_alone(|_| Plan {
        workers: 2,
        ..Plan::default()
    })
    .await
    else {
        return;
    };
    let servers = &world.stack.ground.servers;
    world.scored(&one_prediction()).await;

    servers.redis_stop().unwrap();
    let began = Instant::now();
    let queued = world.submit(&one_prediction()).await;
    assert_eq!(queued.status, 202, "{}", queued.body);
    assert!(
        began.elapsed() < STALL,
        "a request does not wait for Redis: {:?}",
        began.elapsed()
    );
    assert_eq!(queued.header("x-ratelimit-limit"), "1000");
    assert_eq!(world.ended(&text(&queued.body["id"])).await["attempts"], 1);

    // It comes back with nothing in it.
    let waiting = world.submit(&one_prediction()).await;
    servers.redis_start().unwrap();
    assert_eq!(
        world.ended(&text(&waiting.body["id"])).await["status"],
        "succeeded"
    );
    for _ in 0..20 {
        world.scored(&one_prediction()).await;
    }
    assert_eq!(counts(&world).await, (23, 23, 23), "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_told_to_end_finishes_what_it_has_begun() {
    let world = world().await;
    let hold = world.hold_answers().await;
    let queued = world.submit(&one_prediction()).await;
    let job_id = text(&queued.body["id"]);
    world.until_status(&job_id, "running").await;
    let worker = &world.stack.workers[0].guarded;
    worker.signal(libc::SIGTERM);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(worker.try_wait().is_none(), "it waits for its job");
    hold.close().await.unwrap();
    let job = world.ended(&job_id).await;
    assert_eq!(
        (&job["status"], &job["attempts"]),
        (&"succeeded".into(), &1.into())
    );
    let ended = worker.wait(Duration::from_secs(5)).unwrap();
    assert!(ended.success(), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_cannot_finish_in_time_is_taken_over_at_once() {
    let world = world_of(crate::harness::with("ASSAY_DRAIN_SECONDS", "1")).await;
    let hold = world.hold_answers().await;
    let queued = world.submit(&one_prediction()).await;
    let job_id = text(&queued.body["id"]);
    world.until_status(&job_id, "running").await;
    world.stack.workers[0].guarded.signal(libc::SIGTERM);
    let ended = world.stack.workers[0]
        .guarded
        .wait(Duration::from_secs(5))
        .unwrap();
    assert!(ended.success(), "{ended:?}");
    let began = Instant::now();
    world.until_status(&job_id, "queued").await;
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "not only when the lease has run out"
    );
    hold.close().await.unwrap();
    let _second = world.stack.launch_worker().unwrap();
    assert_eq!(world.ended(&job_id).await["attempts"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_that_is_told_to_end_answers_what_it_has_begun() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let world = world().await;
    let api = &world.stack.apis[0];
    let body = json!({"suite_id": "suite:lunch", "predictions": one_prediction()}).to_string();
    let mut socket = tokio::net::TcpStream::connect(api.listen.unwrap())
        .await
        .unwrap();
    let head = format!(
        "POST /v1/evals HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        world.org.key,
        body.len()
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    api.guarded.signal(libc::SIGTERM);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(
        tokio::net::TcpStream::connect(api.listen.unwrap())
            .await
            .is_err(),
        "nothing new is taken"
    );
    socket.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    assert!(api.guarded.wait(Duration::from_secs(5)).unwrap().success());
    let worked: i64 = sqlx::query_scalar("select count(*) from jobs")
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    assert_eq!(worked, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_side_by_side_share_the_jobs_and_do_each_once() {
    let world = world_of(Plan {
        apis: 2,
        workers: 2,
        ..Plan::default()
    })
    .await;
    let client = world.key();
    let body = json!({"suite_id": "suite:lunch", "predictions": one_prediction()});
    let mut done = 0;
    for _ in 0..5 {
        let all =
            futures_util::future::join_all((0..40).map(|_| client.post("/v1/evals", &body))).await;
        for answer in all {
            let answer = answer.unwrap();
            assert_eq!(answer.status, 202, "{}", answer.body);
            assert_eq!(world.ended(&text(&answer.body["id"])).await["attempts"], 1);
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
