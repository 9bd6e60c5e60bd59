//! Compares `job_model`'s model with the real statements: random sequences from its actions run on
//! PostgreSQL, and after each action both must have the same state. One fixed seed, 64
//! sequences; `JOB_SEQUENCES` sets another number.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use assay_core::model::job::{FailureCode, JobStatus};
use assay_core::store::work::{self, Claim};
use assay_core::store::{self, PgPool, PoolProfile};
use assay_core::store::{job_notifications, leases};
use assay_core::{JobId, WorkerId};
use assay_tests::client::Client;
use assay_tests::demo_suite;
use assay_tests::stack::StackSize;
use proptest::test_runner::{TestCaseError, TestRunner};
use proptest_state_machine::ReferenceStateMachine;
use serde_json::{Value, json};

use crate::harness::{World, long_test, one_prediction, string, succeed, world_with};
use crate::job_model::{Action, Holder, JOBS, Job, Jobs, State, WORKERS, Write};
use crate::job_proofs::{Shortest, config, count_step, differ};

/// The installation: an API whose dispatcher never leads, and no worker. Only the test changes
/// jobs.
struct Real {
    /// Keeps the processes alive. They stop when it is dropped.
    _world: World,
    key: Client,
    owner: PgPool,
    api: PgPool,
    worker: PgPool,
    /// For each action kind, how often it had an effect and without one.
    seen: Mutex<BTreeMap<String, [usize; 2]>>,
    shortest: Shortest,
}

/// One sequence's jobs, workers and claims.
struct Run<'a> {
    real: &'a Real,
    workers: [WorkerId; WORKERS],
    ids: [Option<JobId>; JOBS],
    claims: BTreeMap<(usize, u8), Claim>,
    /// The jobs' stored rows after the last step.
    rows: Vec<String>,
}

fn failed(error: impl Debug) -> TestCaseError {
    TestCaseError::fail(format!("{error:?}"))
}

impl Real {
    async fn new() -> Self {
        let world = world_with(StackSize {
            workers: 0,
            ..StackSize::default()
        })
        .await;
        let database = &world.stack.database;
        let pool = |url: &str| store::pool(url, 2, "test", PoolProfile::OPERATOR).unwrap();
        let owner = pool(&database.owner_url);
        let api = pool(&database.api_url);
        let worker = pool(&database.worker_url);
        world.widen_plans().await;
        Self {
            key: world.key(),
            _world: world,
            owner,
            api,
            worker,
            seen: Mutex::default(),
            shortest: Shortest::default(),
        }
    }

    async fn run(
        &self,
        actions: &[Action],
        counter: Option<Arc<AtomicUsize>>,
    ) -> Result<(), TestCaseError> {
        // Finishes the jobs that a failed sequence left open.
        let clear = "update jobs set status = 'cancelled', finished_at = now(), worker_id = null, deadline_at = null where finished_at is null";
        sqlx::raw_sql(clear)
            .execute(&self.owner)
            .await
            .map_err(failed)?;
        let workers = std::array::from_fn(|_| WorkerId::random().unwrap());
        let mut run = Run {
            real: self,
            workers,
            ids: std::array::from_fn(|_| None),
            claims: BTreeMap::new(),
            rows: Vec::new(),
        };
        for worker in &run.workers {
            leases::renew_lease(&self.worker, worker, 4)
                .await
                .map_err(failed)?;
        }
        let mut state = Jobs::START;
        for (at, action) in actions.iter().enumerate() {
            count_step(counter.as_ref());
            state = run
                .step(state, *action)
                .await
                .inspect_err(|_| self.shortest.note(&actions[..=at]))?;
        }
        // Every job must finish from the state that the sequence reached.
        for action in Jobs::completion(&state) {
            state = run.step(state, action).await?;
        }
        let open = state
            .jobs
            .iter()
            .flatten()
            .filter(|job| !job.status.is_final())
            .count();
        let sql = "select (select count(*) from jobs where status in ('queued', 'running')),
                   (select coalesce(sum(eval_items), 0)::bigint from usage),
                   (select coalesce(sum(case kind when 'charge' then eval_items else -eval_items end), 0)::bigint from usage_ledger)";
        let (really_open, used, ledger): (i64, i64, i64) = sqlx::query_as(sql)
            .fetch_one(&self.owner)
            .await
            .map_err(failed)?;
        if (really_open, open, used) != (0, 0, ledger) {
            return Err(differ("at the end", &(really_open, used, ledger), &state));
        }
        Ok(())
    }

    fn note(&self, state: &State, action: Action, had_effect: bool) {
        let name = match action {
            Action::Finish { write, .. } if action.is_late(state) => format!("late {write:?}"),
            action => format!("{action:?}")
                .split(' ')
                .next()
                .unwrap_or_default()
                .to_owned(),
        };
        self.seen.lock().unwrap().entry(name).or_default()[usize::from(!had_effect)] += 1;
    }
}

impl Run<'_> {
    /// Applies an action to the model and to the real system, and compares them.
    async fn step(&mut self, before: State, action: Action) -> Result<State, TestCaseError> {
        let after = Jobs::default().step(before, action);
        let had_effect = self.act(&before, action).await?;
        self.stop_the_clock().await?;
        let rows = self.rows().await?;
        let rows_before = std::mem::replace(&mut self.rows, rows);
        // Live attempts and leases are not in the jobs' rows, so the rows cannot show a lease
        // renewal's effect or a lost attempt.
        let visible = |state: &State| {
            state.jobs.map(|job| {
                job.map(|job| Job {
                    live_attempts: 0,
                    ..job
                })
            })
        };
        let expected = visible(&before) != visible(&after);
        let is_invisible = matches!(
            action,
            Action::LoseAttempt { .. } | Action::ExpireLease { .. } | Action::RenewLease { .. }
        );
        if !is_invisible && had_effect != expected {
            return Err(differ(
                &format!("{action:?} reported a wrong effect"),
                &had_effect,
                &expected,
            ));
        }
        if !expected {
            self.real.note(&before, action, false);
            let changed = self.rows != rows_before;
            return if changed {
                Err(differ(
                    &format!("{action:?} changed a row"),
                    &self.rows,
                    &rows_before,
                ))
            } else {
                Ok(after)
            };
        }
        for (job, row) in after.jobs.iter().enumerate() {
            let real = self
                .job(job, row.map_or(0, |row| row.live_attempts))
                .await?;
            if real != *row {
                return Err(differ(
                    &format!("after {action:?} job {job} differs"),
                    &real,
                    row,
                ));
            }
        }
        self.real.note(&before, action, true);
        Ok(after)
    }

    /// Applies an action to the real system. Returns `true` if the system reports an effect.
    async fn act(&mut self, state: &State, action: Action) -> Result<bool, TestCaseError> {
        let key = &self.real.key;
        let api = &self.real.api;
        let db = &self.real.worker;
        let done = match action {
            Action::Submit { job } => {
                let body =
                    json!({"suite_id": demo_suite::SUITE_ID, "predictions": one_prediction()});
                let response = key.post("/v1/evals", &body).await.map_err(failed)?;
                self.ids[job] = Some(string(&response.body["id"]).parse().map_err(failed)?);
                response.status == 202
            }
            Action::Cancel { job } => {
                let response = key
                    .send(key.request("POST", &format!("/v1/jobs/{}/cancel", self.id(job))))
                    .await
                    .map_err(failed)?;
                if ![200, 409].contains(&response.status) {
                    return Err(failed(response));
                }
                response.status == 200
            }
            Action::Claim { worker, job } => {
                let claim = work::claim(db, &self.workers[worker], self.id(job))
                    .await
                    .map_err(failed)?;
                let claimed = claim.is_some();
                self.claims
                    .extend(claim.map(|claim| ((job, claim.attempt as u8), claim)));
                claimed
            }
            Action::Finish {
                write,
                job,
                attempt,
            } => {
                let claim = &self.claims[&(job, attempt)];
                match write {
                    Write::Succeed => succeed(db, claim, f64::from(attempt)).await,
                    Write::Fail(code) => work::fail(db, claim, code, "x", &[]).await,
                    Write::Requeue => {
                        work::requeue(db, claim, FailureCode::Internal, "x", &[]).await
                    }
                }
                .map_err(failed)?
            }
            Action::LoseAttempt { .. } => true,
            Action::OrphanUnknownClaims { worker } => {
                // Simulates that the time in which the response may be in flight has passed.
                let worker_id = &self.workers[worker];
                let held = state
                    .jobs
                    .iter()
                    .enumerate()
                    .filter(|(_, job)| job.is_some_and(|job| !job.is_orphaned()));
                let held: Vec<&str> = held.map(|(job, _)| self.id(job).as_str()).collect();
                let past = "update jobs set started_at = started_at - interval '11 seconds' where worker_id = $1 and id <> all($2)";
                sqlx::query(past)
                    .bind(worker_id.as_str())
                    .bind(&held)
                    .execute(&self.real.owner)
                    .await
                    .map_err(failed)?;
                leases::orphan_unknown_claims(db, worker_id, &held)
                    .await
                    .map_err(failed)?
                    > 0
            }
            Action::ExpireLease { worker } => {
                self.time_passes(
                    "update workers set seen_at = now() - interval '11 seconds' where id = $1",
                    self.workers[worker].as_str(),
                )
                .await?
            }
            Action::RenewLease { worker } => leases::renew_lease(db, &self.workers[worker], 4)
                .await
                .map(|()| true)
                .map_err(failed)?,
            Action::PassDeadline { job } => {
                let sql = "update jobs set deadline_at = now() - interval '1 second' where id = $1 and status = 'running' and deadline_at > now()";
                self.time_passes(sql, self.id(job).as_str()).await?
            }
            Action::EndBackoff { job } => {
                let sql = "update jobs set available_at = created_at where id = $1 and status = 'queued' and available_at > now()";
                self.time_passes(sql, self.id(job).as_str()).await?
            }
            Action::Sweep {
                include_expired_leases,
            } => {
                let mut transaction = api.begin().await.map_err(failed)?;
                let swept = leases::sweep(&mut transaction, include_expired_leases)
                    .await
                    .map_err(failed)?;
                transaction.commit().await.map_err(failed)?;
                !swept.is_empty()
            }
        };
        Ok(done)
    }

    fn id(&self, job: usize) -> &JobId {
        self.ids[job].as_ref().unwrap()
    }

    async fn time_passes(&self, sql: &'static str, id: &str) -> Result<bool, TestCaseError> {
        let done = sqlx::query(sql)
            .bind(id)
            .execute(&self.real.owner)
            .await
            .map_err(failed)?;
        Ok(done.rows_affected() > 0)
    }

    /// Prevents leases and delays from expiring by themselves on a slow machine: they expire only
    /// when the model says so.
    async fn stop_the_clock(&self) -> Result<(), TestCaseError> {
        let ids: Vec<&str> = self.ids.iter().flatten().map(JobId::as_str).collect();
        let sql = "with renewed as (update workers set seen_at = 'infinity' where seen_at > now() - interval '10 seconds')
                   update jobs j set available_at = 'infinity' from job_attempts a
                   where j.id = any($1) and j.status = 'queued' and a.job_id = j.id and a.attempt = j.attempts
                     and j.available_at > a.ended_at + interval '0.9 seconds' * power(2, j.attempts - 1)";
        sqlx::query(sql)
            .bind(&ids)
            .execute(&self.real.owner)
            .await
            .map_err(failed)?;
        Ok(())
    }

    /// Returns the jobs' stored rows without their start times.
    async fn rows(&self) -> Result<Vec<String>, TestCaseError> {
        let ids: Vec<&str> = self.ids.iter().flatten().map(JobId::as_str).collect();
        let sql = "select (to_jsonb(j) - 'started_at' || jsonb_build_object('attempts', (select jsonb_agg(a order by attempt) from job_attempts a
                          where a.job_id = j.id), 'ledger', (select jsonb_agg(l order by kind) from usage_ledger l where l.job_id = j.id)))::text
                   from jobs j where id = any($1) order by id";
        sqlx::query_scalar(sql)
            .bind(&ids)
            .fetch_all(&self.real.owner)
            .await
            .map_err(failed)
    }

    /// Returns a job's real state in the model's terms. `live_attempts` comes from the model,
    /// as only the test knows it.
    async fn job(&self, job: usize, live_attempts: u8) -> Result<Option<Job>, TestCaseError> {
        let Some(id) = &self.ids[job] else {
            return Ok(None);
        };
        let rest_job = self
            .real
            .key
            .get(&format!("/v1/jobs/{id}"))
            .await
            .map_err(failed)?
            .body;
        let sql = "select jsonb_build_object('status', status, 'attempts', attempts, 'holder', worker_id, 'failure', error_code,
                     'overdue', coalesce(deadline_at < now(), false), 'due', status <> 'queued' or available_at <= now(), 'result', result->'value',
                     'charges', (select count(*) from usage_ledger l where l.job_id = j.id and kind = 'charge'),
                     'refunds', (select count(*) from usage_ledger l where l.job_id = j.id and kind = 'refund'),
                     'started', (select count(*) from job_attempts a where a.job_id = j.id),
                     'open', (select count(*) from job_attempts a where a.job_id = j.id and ended_at is null))
                   from jobs j where id = $1";
        let row: Value = sqlx::query_scalar(sql)
            .bind(id.as_str())
            .fetch_one(&self.real.owner)
            .await
            .map_err(failed)?;
        let runs = row["status"] == "running";
        let agree = [
            rest_job["status"] == row["status"],
            rest_job["attempts"] == row["attempts"],
            rest_job["result"]["value"] == row["result"],
            rest_job["error"]["code"] == row["failure"],
            row["charges"] == 1,
            row["started"] == row["attempts"],
            row["open"] == u8::from(runs),
        ];
        if agree.contains(&false) {
            return Err(differ("the stored job and the response", &row, &rest_job));
        }
        let number = |name: &str| row[name].as_f64().map(|number| number as u8);
        let holder = |worker: &str| {
            self.workers
                .iter()
                .position(|id| id.as_str() == worker)
                .map_or(Holder::Nobody, Holder::Worker)
        };
        let status: JobStatus = string(&row["status"]).parse().map_err(failed)?;
        Ok(Some(Job {
            status,
            attempts: number("attempts").unwrap_or_default(),
            holder: row["holder"].as_str().map(holder),
            overdue: row["overdue"] == true,
            due: row["due"] == true,
            failure: row["failure"].as_str().map(|code| code.parse().unwrap()),
            result: number("result"),
            times_finished: u8::from(status.is_final()),
            refunds: number("refunds").unwrap_or_default(),
            live_attempts,
        }))
    }
}

#[test]
fn real_system_matches_model() {
    long_test!("runs many random sequences of events on a real installation");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    // Values that are dropped after a failure need a runtime too.
    let _entered = runtime.enter();
    let cases = std::env::var("JOB_SEQUENCES").map_or(64, |cases| cases.parse().unwrap());
    let start = std::time::Instant::now();
    let real = runtime.block_on(Real::new());
    // A round's leader sweeps and notifies. This transaction keeps the leadership, so no API
    // does.
    let mut leader = runtime.block_on(real.owner.begin()).unwrap();
    // On a busy machine it is idle for longer than operators' transactions may be.
    let stay = "set local idle_in_transaction_session_timeout = 0";
    let stay = sqlx::raw_sql(stay).execute(&mut *leader);
    runtime.block_on(stay).unwrap();
    while !runtime
        .block_on(job_notifications::try_lead(&mut leader))
        .unwrap()
    {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let outcome = TestRunner::new(config(cases)).run(
        &Jobs::sequential_strategy(10..40),
        |(_, actions, counter)| runtime.block_on(real.run(&actions, counter)),
    );
    if let Err(error) = outcome {
        panic!("{error}\nshortest failure: {:?}", real.shortest.get());
    }
    let seen = real.seen.lock().unwrap();
    println!(
        "{cases} sequences, {} steps, {:?}; [with, without effect]: {seen:?}",
        seen.values().flatten().sum::<usize>(),
        start.elapsed()
    );
    for kind in [
        "Submit",
        "Cancel",
        "Claim",
        "Finish",
        "OrphanUnknownClaims",
        "PassDeadline",
        "EndBackoff",
        "Sweep",
    ] {
        assert!(seen[kind][0] > 0, "no {kind} had an effect");
    }
    for late in [
        "late Succeed",
        "late Fail(InvalidPredictions)",
        "late Requeue",
    ] {
        assert!(seen[late][1] > 5, "too few: {late}");
    }
    assert!(
        seen["Finish"][1] > 0 && seen["Claim"][1] > 0 && seen["Cancel"][1] > 0,
        "nothing was rejected"
    );
    runtime.block_on(leader.rollback()).unwrap();
}
