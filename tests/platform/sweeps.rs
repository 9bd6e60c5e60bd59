//! Ten thousand orphaned jobs: the sweep requeues or fails all in batches, and delays no
//! other request.

use std::time::{Duration, Instant};

use assay_tests::client::Client;
use assay_tests::stack::StackSize;
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::harness::{
    Expect, World, large_prediction, one_prediction, org, string, wait_until, world_with,
};

/// Inserts running jobs of seven kinds: with an expired lease, of an unknown worker, of a live
/// worker but past the deadline, each with attempts left or without, and healthy ones.
const STUCK: &str = "
    insert into workers (id, seen_at, slots) values ('wrk_silent', now() - interval '1 minute', 1), ('wrk_lives', 'infinity', 1);
    with kinds as (
        select n, n % 7 as kind, case when n % 7 in (3, 4, 5) then 4 else 1 + n % 3 end as tries from generate_series(0, 11666) n
    ), stuck as (
        insert into jobs select r.* from jobs j, kinds k, jsonb_populate_record(null::jobs, to_jsonb(j) - 'metadata' || jsonb_build_object(
            'id', 'job_stuck' || k.n, 'label', k.kind, 'status', 'running', 'attempts', k.tries, 'created_at', j.created_at - (k.n + 1) * interval '1 ms',
            'started_at', now() - interval '5 minutes',
            'deadline_at', now() + case when k.kind in (2, 4, 5) then interval '-1 minute' else interval '10 minutes' end,
            'worker_id', case when k.kind in (0, 3) then 'wrk_silent' when k.kind in (1, 4) then 'wrk_gone' else 'wrk_lives' end)) r
        returning id, org_id, attempts, worker_id, started_at
    ), charged as (
        insert into usage_ledger (org_id, job_id, kind, eval_items, period_start)
        select s.org_id, s.id, 'charge', 1, u.period_start from stuck s join usage u on u.org_id = s.org_id
    ), tried as (
        insert into job_attempts (org_id, job_id, attempt, worker_id, started_at, ended_at, outcome)
        select org_id, id, attempt, worker_id, started_at, case when attempt < attempts then now() end, case when attempt < attempts then 'lost' end
        from stuck, generate_series(1, attempts) attempt
    )
    update usage u set eval_items = u.eval_items + (select count(*) from kinds);";

/// Returns, for each kind, the job count and everything that the sweep writes.
async fn kinds(database: &mut PgConnection) -> Vec<(String, i64, Value)> {
    let sql = "select label, count(*), jsonb_agg(distinct jsonb_build_array(status, error_code, worker_id is null and deadline_at is null,
                 case when label in ('3', '4', '5') then attempts = 4 else attempts = 1 + substr(id, 10)::int % 3 end,
                 (select count(*) from usage_ledger l where l.job_id = j.id and kind = 'refund'),
                 (select count(*) from job_attempts a where a.job_id = j.id) = attempts,
                 (select outcome from job_attempts a where a.job_id = j.id and attempt = j.attempts)))
               from jobs j where id like 'job_stuck%' group by label order by label";
    sqlx::query_as(sql).fetch_all(database).await.unwrap()
}

/// Submits and reads jobs until `stop`. Returns how many responses arrived before it.
async fn submit_and_read(client: Client, stop: tokio::sync::watch::Receiver<bool>) -> usize {
    let body = json!({"suite_id": "suite:lunch", "predictions": one_prediction()});
    let mut responses = 0;
    while !*stop.borrow() {
        let queued = client.post("/v1/evals", &body).await.expect_status(202);
        responses += usize::from(!*stop.borrow());
        client
            .get(&format!("/v1/jobs/{}", string(&queued.body["id"])))
            .await
            .expect_status(200);
        responses += usize::from(!*stop.borrow());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    responses
}

/// Returns the numbers of requeued and failed jobs of each sweep in the API's log.
fn sweeps(world: &World) -> Vec<(i64, i64)> {
    let log = std::fs::read_to_string(&world.stack.apis[0].log).unwrap();
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .filter_map(|line| Some((line["requeued"].as_i64()?, line["failed"].as_i64()?)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn sweep_of_10000_jobs_blocks_nobody() {
    let world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    world.widen_plans().await;
    let other = org(&world.stack, "team").await;
    let other = world.client(&other.key);
    // The original of all copies. Its predictions are in the artifact store, so that the copies have
    // them, too.
    world.submit(&large_prediction()).await;
    let mut database = world.database().await;
    sqlx::raw_sql(STUCK).execute(&mut database).await.unwrap();

    let began = Instant::now();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let users = [other.clone(), world.key()]
        .map(|client| tokio::spawn(submit_and_read(client, stopped.clone())));
    let running = "select count(*) from jobs where status = 'running' and label <> '6'";
    wait_until("the end of the sweep", async || {
        sqlx::query_scalar::<_, i64>(running)
            .fetch_one(&mut database)
            .await
            .unwrap()
            == 0
    })
    .await;
    let took = began.elapsed();
    stop.send_replace(true);
    for user in users {
        let responses = user.await.unwrap();
        println!("10,001 jobs in {took:?}; {responses} responses meanwhile");
        // A user who waits for the sweep gets the first response after it.
        assert!(responses > 1, "{responses}");
    }

    let back = |outcome: &str| json!([["queued", null, true, true, 0, true, outcome]]);
    let failed =
        |code: &str, outcome: &str| json!([["failed", code, true, true, 1, true, outcome]]);
    let expected = [
        back("lost"),
        back("lost"),
        back("timeout"),
        failed("internal", "lost"),
        failed("timeout", "timeout"),
        failed("timeout", "timeout"),
        json!([["running", null, false, true, 0, true, null]]),
    ];
    let kinds = kinds(&mut database).await;
    for ((kind, count, seen), expected) in kinds.iter().zip(&expected) {
        assert_eq!(
            (seen, *count),
            (
                expected,
                if ["5", "6"].contains(&kind.as_str()) {
                    1666
                } else {
                    1667
                }
            ),
            "kind {kind}"
        );
    }
    assert_eq!(kinds.len(), expected.len());
    let sweeps = sweeps(&world);
    assert!(
        sweeps.len() >= 21
            && sweeps
                .iter()
                .all(|(released, failed)| released + failed <= 500),
        "the sweep ran in batches: {sweeps:?}"
    );
    let all = sweeps
        .iter()
        .fold((0, 0), |all, sweep| (all.0 + sweep.0, all.1 + sweep.1));
    assert_eq!(all, (5001, 5000), "each was taken back once");
    let sql = "select sum(eval_items)::bigint - (select sum(case kind when 'charge' then eval_items else -eval_items end)::bigint from usage_ledger) from usage";
    assert_eq!(
        sqlx::query_scalar::<_, i64>(sql)
            .fetch_one(&mut database)
            .await
            .unwrap(),
        0
    );

    // Five thousand jobs of one organization are queued: another organization's job still runs, and
    // then theirs.
    let _worker = world.stack.launch_worker().unwrap();
    let body = json!({"suite_id": "suite:lunch", "predictions": one_prediction()});
    let queued = other.post("/v1/evals", &body).await.unwrap();
    let job = other
        .wait_until_finished(&string(&queued.body["id"]), &|_| {})
        .await
        .unwrap();
    assert_eq!(
        (&job["status"], &job["attempts"]),
        (&"succeeded".into(), &1.into())
    );
    let done = "select count(*) from jobs where id like 'job_stuck%' and status = 'succeeded'";
    wait_until("the first job", async || {
        sqlx::query_scalar::<_, i64>(done)
            .fetch_one(&mut database)
            .await
            .unwrap()
            > 100
    })
    .await;
}
