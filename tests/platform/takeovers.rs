//! Reclaimed jobs: no write of an earlier attempt is accepted, in any state of the job; and a job
//! that kills every worker fails in the end and does not delay others.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use assay_core::WorkerId;
use assay_core::model::job::FailureCode;
use assay_core::store::work::{self, Claim};
use assay_core::store::{self, PgPool, PoolProfile, leases};
use assay_tests::client::Client;
use assay_tests::stack::{Process, StackSize};
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};

use crate::harness::{
    World, large_prediction, one_prediction, org, scrape, string, succeed, wait_until, world_with,
};

/// Jobs that are reclaimed together.
const ROUND: usize = 25;

/// Jobs of a round that the first worker scores. Their results share a statement.
const SCORED: usize = ROUND.div_ceil(3);

/// A job's state when the write of its first attempt arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Late {
    Waiting,
    Running,
    Ended,
}

/// A trigger that blocks every worker before it writes an attempt's end, with its old
/// snapshot, while the advisory lock is held. The claim, the sweep and the test's own statements
/// are not blocked.
const GATE: &str = "
    create function wait_at_the_gate() returns trigger language plpgsql as $$
    begin
        if current_setting('application_name') = 'assay-worker' and current_query() like '%ended_at = clock_timestamp()%' then
            perform pg_advisory_xact_lock_shared(7);
        end if;
        return null;
    end $$;
    create trigger gate before update on jobs for each statement execute function wait_at_the_gate();";

/// A trigger that keeps leases valid, so that the API reclaims no job when a worker is slow.
const ENDLESS_LEASES: &str = "
    create function never_expire() returns trigger language plpgsql as $$
    begin
        new.seen_at := 'infinity';
        return new;
    end $$;
    create trigger endless before insert or update on workers for each row execute function never_expire();";

struct Takeovers {
    world: World,
    /// The connection that holds the advisory lock while the gate is closed.
    gate: PgConnection,
    owner: PgConnection,
    pool: PgPool,
    first: WorkerId,
    second: WorkerId,
    fenced: usize,
    /// The rows written by the second attempt, by job.
    written: BTreeMap<String, Value>,
}

impl Takeovers {
    async fn new() -> Self {
        let env = [
            ("ASSAY_WORKER_SLOTS", ROUND.to_string()),
            ("ASSAY_DATABASE_CONNECTIONS", "40".to_owned()),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value)).into();
        let world = world_with(StackSize {
            env,
            ..StackSize::default()
        })
        .await;
        world.widen_plans().await;
        let gate = world.database().await;
        let mut owner = world.database().await;
        for sql in [GATE, ENDLESS_LEASES] {
            sqlx::raw_sql(sql).execute(&mut owner).await.unwrap();
        }
        let pool = store::pool(
            &world.stack.database.worker_url,
            4,
            "test",
            PoolProfile::WORK,
        )
        .unwrap();
        let first = worker_id(&world.stack.workers[0]).parse().unwrap();
        // The second worker is the test itself.
        let second = WorkerId::random().unwrap();
        leases::renew_lease(&pool, &second, 4).await.unwrap();
        Self {
            world,
            gate,
            owner,
            pool,
            first,
            second,
            fenced: 0,
            written: BTreeMap::new(),
        }
    }

    /// Reclaims a round of jobs from the worker, and releases the worker's writes when the jobs are
    /// in the state `late`.
    async fn round(&mut self, late: Late) {
        sqlx::query("select pg_advisory_lock(7)")
            .execute(&mut self.gate)
            .await
            .unwrap();
        // Without its lease, which the round before deleted, the API would reclaim the worker's jobs.
        wait_until("the renewal of the lease", async || {
            let leases = "select count(*) from workers where id = $1";
            let leases = sqlx::query_scalar::<_, i64>(leases).bind(self.first.as_str());
            leases.fetch_one(&mut self.owner).await.unwrap() == 1
        })
        .await;
        let jobs = self.submit().await;
        // Results of jobs that were scored share a statement, so not each waits itself.
        let waiting = "select (select count(*) from pg_locks where locktype = 'advisory' and not granted
                               and database = (select oid from pg_database where datname = current_database())),
                              (select count(*) from jobs where status = 'queued')";
        wait_until("all writes at the gate", async || {
            sqlx::query_as::<_, (i64, i64)>(waiting)
                .fetch_one(&mut self.owner)
                .await
                .unwrap()
                == ((ROUND - SCORED + 1) as i64, 0)
        })
        .await;
        match late {
            Late::Waiting => {
                self.take_over(&jobs, false).await;
                self.release_first_writes(&jobs).await;
                let claims = self.take_over(&jobs, true).await;
                self.end(claims).await;
            }
            Late::Running => {
                let claims = self.take_over(&jobs, true).await;
                self.release_first_writes(&jobs).await;
                self.end(claims).await;
            }
            Late::Ended => {
                let claims = self.take_over(&jobs, true).await;
                self.end(claims).await;
                self.release_first_writes(&jobs).await;
            }
        }
    }

    /// Submits jobs in groups of three: the worker scores the first; the second fails, because its
    /// input is missing; the third is requeued, because its input cannot be read.
    async fn submit(&self) -> Vec<String> {
        let worker = &self.world.stack.workers[0].guarded;
        worker.signal(libc::SIGSTOP);
        let mut jobs = Vec::new();
        for number in 0..ROUND {
            let job_id = string(&self.world.submit(&large_prediction()).await.body["id"]);
            let file = input(&self.world, &job_id).await;
            if number % 3 > 0 {
                std::fs::remove_file(&file).unwrap();
            }
            if number % 3 == 2 {
                std::os::unix::fs::symlink(&file, &file).unwrap();
            }
            jobs.push(job_id);
        }
        worker.signal(libc::SIGCONT);
        jobs
    }

    /// In one transaction, expires the first worker's lease, sweeps its jobs, and claims them for
    /// the second worker if `claimed`, or postpones them.
    async fn take_over(&mut self, jobs: &[String], claimed: bool) -> Vec<Claim> {
        let mut transaction = self.owner.begin().await.unwrap();
        // The worker's renewal inserts again the row that the round before deleted. Without the
        // lock this could happen between the deletion, which finds no row, and the sweep, which
        // would find a live worker.
        sqlx::query("lock table workers in share row exclusive mode")
            .execute(&mut *transaction)
            .await
            .unwrap();
        sqlx::query("delete from workers where id = $1")
            .bind(self.first.as_str())
            .execute(&mut *transaction)
            .await
            .unwrap();
        leases::sweep(&mut transaction, true).await.unwrap();
        let available = if claimed { "now()" } else { "'infinity'" };
        let wait = format!(
            "update jobs set available_at = {available} where id = any($1) and status = 'queued'"
        );
        let waiting = sqlx::query(sqlx::AssertSqlSafe(wait))
            .bind(jobs)
            .execute(&mut *transaction)
            .await
            .unwrap()
            .rows_affected();
        assert_eq!(waiting, ROUND as u64, "all jobs were requeued");
        let mut claims = Vec::new();
        for job_id in jobs.iter().filter(|_| claimed) {
            claims.extend(
                work::claim(&mut *transaction, &self.second, &job_id.parse().unwrap())
                    .await
                    .unwrap(),
            );
        }
        transaction.commit().await.unwrap();
        assert!(claims.iter().all(|claim| claim.attempt == 2));
        assert_eq!(claims.len(), if claimed { ROUND } else { 0 });
        claims
    }

    /// Opens the gate and asserts that the blocked writes change nothing.
    async fn release_first_writes(&mut self, jobs: &[String]) {
        let before = self.rows(jobs).await;
        sqlx::query("select pg_advisory_unlock(7)")
            .execute(&mut self.gate)
            .await
            .unwrap();
        self.fenced += ROUND;
        wait_until("the end of the late attempts", async || {
            self.outcomes().len() >= self.fenced
        })
        .await;
        assert_eq!(self.rows(jobs).await, before, "a late write was accepted");
    }

    /// Returns all stored rows of the jobs.
    async fn rows(&mut self, jobs: &[String]) -> Vec<Value> {
        let sql = "select jsonb_build_object('job', j, 'attempts', (select jsonb_agg(a order by attempt) from job_attempts a where a.job_id = j.id),
                          'ledger', (select jsonb_agg(l order by kind) from usage_ledger l where l.job_id = j.id))
                   from jobs j where id = any($1) order by id";
        sqlx::query_scalar(sql)
            .bind(jobs)
            .fetch_all(&mut self.owner)
            .await
            .unwrap()
    }

    /// Finishes the second worker's attempts, each with a distinct outcome.
    async fn end(&mut self, claims: Vec<Claim>) {
        for claim in claims {
            let number = self.written.len();
            let (accepted, written) = match number % 5 {
                3 => {
                    let fail = work::fail(
                        &self.pool,
                        &claim,
                        FailureCode::InvalidPredictions,
                        "x",
                        &[],
                    )
                    .await;
                    (fail.unwrap(), json!({"failed": "invalid_predictions"}))
                }
                4 => (
                    work::fail(&self.pool, &claim, FailureCode::Internal, "x", &[])
                        .await
                        .unwrap(),
                    json!({"failed": "internal"}),
                ),
                _ => {
                    let value = number as f64;
                    (
                        succeed(&self.pool, &claim, value).await.unwrap(),
                        json!({"succeeded": value}),
                    )
                }
            };
            assert!(accepted, "the second attempt is the current one");
            self.written.insert(claim.job_id.to_string(), written);
        }
    }

    /// Returns job, attempt and outcome of the finished attempts in the worker's log.
    fn outcomes(&self) -> Vec<(String, i64, String)> {
        let log = std::fs::read_to_string(&self.world.stack.workers[0].log).unwrap();
        // The last line may be incomplete.
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let ends = lines.filter(|line| line["message"] == "job");
        ends.map(|line| {
            (
                string(&line["job_id"]),
                line["attempt"].as_i64().unwrap(),
                string(&line["result"]),
            )
        })
        .collect()
    }
}

/// Returns the file of a job's input.
async fn input(world: &World, job_id: &str) -> PathBuf {
    let sql = "select input_key from jobs where id = $1";
    let key: String = sqlx::query_scalar(sql)
        .bind(job_id)
        .fetch_one(&mut world.database().await)
        .await
        .unwrap();
    world
        .stack
        .ground
        .servers
        .folder()
        .join(format!("{}-artifacts", world.stack.database.name))
        .join(key)
}

/// Returns the id of a worker process.
fn worker_id(worker: &Process) -> String {
    let log = std::fs::read_to_string(&worker.log).unwrap();
    let mut lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .find_map(|line| line["worker_id"].as_str().map(str::to_owned))
        .unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn late_writes_of_reclaimed_jobs_are_fenced() {
    let began = Instant::now();
    let mut takeovers = Takeovers::new().await;
    let before = [Late::Waiting, Late::Running].repeat(3);
    for late in before.into_iter().chain([Late::Ended; 6]) {
        takeovers.round(late).await;
    }
    assert_eq!(takeovers.written.len(), 300);

    // Each fenced write is logged once and counted.
    let mut outcomes = takeovers.outcomes();
    outcomes.sort();
    let fenced: Vec<_> = takeovers
        .written
        .keys()
        .map(|job_id| (job_id.clone(), 1, "fenced".to_owned()))
        .collect();
    assert_eq!(outcomes, fenced);
    let metrics = scrape(&takeovers.world.stack.workers[0]).await;
    assert!(
        metrics.contains("assay_fenced_writes_total 300\n")
            && metrics.contains("assay_job_attempts_total{result=\"fenced\"} 300\n")
    );

    let sql = "select j.id, j.attempts, jsonb_build_object(j.status, coalesce(j.result->'value', to_jsonb(j.error_code))),
                      array(select outcome from job_attempts a where a.job_id = j.id order by attempt),
                      (select count(*) from usage_ledger l where l.job_id = j.id and kind = 'refund') from jobs j";
    let rows: Vec<(String, i32, Value, Vec<String>, i64)> = sqlx::query_as(sql)
        .fetch_all(&mut takeovers.owner)
        .await
        .unwrap();
    assert_eq!(rows.len(), 300);
    for (job_id, attempts, end, outcomes, refunds) in rows {
        let written = &takeovers.written[&job_id];
        let outcome = if written.get("failed").is_some() {
            "failed"
        } else {
            "succeeded"
        };
        assert_eq!(
            (attempts, &end, outcomes),
            (2, written, vec!["lost".to_owned(), outcome.to_owned()])
        );
        assert_eq!(refunds, i64::from(written["failed"] == "internal"));
    }
    let used: i64 = sqlx::query_scalar("select sum(eval_items)::bigint from usage")
        .fetch_one(&mut takeovers.owner)
        .await
        .unwrap();
    assert_eq!(used, 240, "a fifth was given back");
    println!("300 reclaimed jobs in {:?}", began.elapsed());
}

async fn submit(client: &Client, jobs: usize) -> Vec<String> {
    let body = json!({"suite_id": "suite:lunch", "predictions": one_prediction()});
    let queued = join_all((0..jobs).map(|_| client.post("/v1/evals", &body))).await;
    queued
        .into_iter()
        .map(|queued| string(&queued.unwrap().body["id"]))
        .collect()
}

async fn succeeded(client: &Client, jobs: &[String]) {
    for job_id in jobs {
        let job = client.wait_until_finished(job_id, &|_| {}).await.unwrap();
        assert_eq!(job["status"], "succeeded", "{job}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn poison_job_fails_without_delaying_others() {
    let mut world = world_with(StackSize {
        workers: 0,
        ..StackSize::default()
    })
    .await;
    world.widen_plans().await;
    let other = org(&world.stack, "team").await;
    let own = world.key();
    let other = world.client(&other.key);
    let poison = string(&world.submit(&large_prediction()).await.body["id"]);
    // Reading the input never ends, until the worker is killed.
    let file = input(&world, &poison).await;
    std::fs::remove_file(&file).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(&file)
            .status()
            .unwrap()
            .success()
    );
    for _ in 0..2 {
        let worker = world.stack.launch_worker().unwrap();
        world.stack.workers.push(worker);
    }
    let mut database = world.database().await;
    let mut under_way = Vec::new();
    for attempt in 1..=4 {
        let mut holder = None::<String>;
        wait_until("the next worker that claims the job", async || {
            let sql =
                "select worker_id from jobs where id = $1 and attempts = $2 and status = 'running'";
            holder = sqlx::query_scalar(sql)
                .bind(&poison)
                .bind(attempt)
                .fetch_optional(&mut database)
                .await
                .unwrap();
            holder.is_some()
        })
        .await;
        let holder = holder.unwrap();
        for client in [&own, &other] {
            succeeded(client, &submit(client, 10).await).await;
        }
        // They have finished during this attempt of the poison job, not after it.
        let running: i32 =
            sqlx::query_scalar("select attempts from jobs where id = $1 and status = 'running'")
                .bind(&poison)
                .fetch_one(&mut database)
                .await
                .unwrap();
        assert_eq!(running, attempt);
        // Some jobs are running when the worker is killed.
        under_way.push((submit(&own, 10).await, submit(&other, 10).await));
        let at = world
            .stack
            .workers
            .iter()
            .position(|worker| worker_id(worker) == holder)
            .unwrap();
        let fresh = world.stack.launch_worker().unwrap();
        let victim = std::mem::replace(&mut world.stack.workers[at], fresh);
        victim.guarded.signal(libc::SIGKILL);
        if attempt > 1 {
            // One lease expires by itself; the others are shortened.
            sqlx::query("delete from workers where id = $1")
                .bind(&holder)
                .execute(&mut database)
                .await
                .unwrap();
        }
    }
    let job = own.wait_until_finished(&poison, &|_| {}).await.unwrap();
    assert_eq!(
        (&job["status"], &job["attempts"], &job["error"]["code"]),
        (&"failed".into(), &4.into(), &"internal".into())
    );
    for (of_own, of_other) in &under_way {
        succeeded(&own, of_own).await;
        succeeded(&other, of_other).await;
    }
    let sql = "select count(*), count(*) filter (where status = 'succeeded'), (select sum(eval_items)::bigint from usage) from jobs where id <> $1";
    let others: (i64, i64, i64) = sqlx::query_as(sql)
        .bind(&poison)
        .fetch_one(&mut database)
        .await
        .unwrap();
    assert_eq!(
        others,
        (160, 160, 160),
        "all other jobs succeeded and were charged; the poison job is refunded"
    );
    let outcomes: Vec<String> =
        sqlx::query_scalar("select outcome from job_attempts where job_id = $1 order by attempt")
            .bind(&poison)
            .fetch_all(&mut database)
            .await
            .unwrap();
    assert_eq!(outcomes, ["lost"; 4]);
}
