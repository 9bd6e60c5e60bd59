//! The model of `job_model` and the real statements, side by side: random sequences of its actions on PostgreSQL, and after
//! each of them the same state. One seed, 64 sequences; `JOB_SEQUENCES` for more.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use assay_core::model::job::{FailureCode, JobStatus};
use assay_core::store::dispatch;
use assay_core::store::work::{self, Claim};
use assay_core::store::{self, PgPool, PoolProfile};
use assay_core::{JobId, WorkerId};
use assay_tests::client::Client;
use assay_tests::demo_suite;
use assay_tests::stack::Plan;
use proptest::test_runner::{TestCaseError, TestRunner};
use proptest_state_machine::ReferenceStateMachine;
use serde_json::{Value, json};

use crate::harness::{World, one_prediction, result, text, world_of};
use crate::job_model::{Action, Holder, JOBS, Job, Jobs, State, WORKERS, Write};
use crate::job_proofs::{Shortest, config, counted, differ};

/// The installation: an api whose dispatcher never leads, and no worker. All that happens is what the test does.
struct Real {
    /// Its processes end with it.
    _world: World,
    key: Client,
    owner: PgPool,
    api: PgPool,
    worker: PgPool,
    /// How often each kind of action had an effect, and how often it had none.
    seen: Mutex<BTreeMap<String, [usize; 2]>>,
    shortest: Shortest,
}

/// One sequence's jobs, workers and claims.
struct Run<'a> {
    real: &'a Real,
    workers: [WorkerId; WORKERS],
    ids: [Option<JobId>; JOBS],
    claims: BTreeMap<(usize, u8), Claim>,
    /// All that is kept of the jobs, after the last step.
    rows: Vec<String>,
}

fn broken(error: impl Debug) -> TestCaseError {
    TestCaseError::fail(format!("{error:?}"))
}

impl Real {
    async fn new() -> Self {
        let world = world_of(Plan {
            workers: 0,
            ..Plan::default()
        })
        .await;
        let database = &world.stack.database;
        let pool = |url: &str| store::pool(url, 2, "test", PoolProfile::OPERATOR).unwrap();
        let (owner, api, worker) = (
            pool(&database.owner_url),
            pool(&database.api_url),
            pool(&database.worker_url),
        );
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
        // What a sequence that failed left open is not this one's business.
        let clear = "update jobs set status = 'cancelled', finished_at = now(), worker_id = null, deadline_at = null where finished_at is null";
        sqlx::raw_sql(clear)
            .execute(&self.owner)
            .await
            .map_err(broken)?;
        let workers = std::array::from_fn(|_| WorkerId::random().unwrap());
        let mut run = Run {
            real: self,
            workers,
            ids: std::array::from_fn(|_| None),
            claims: BTreeMap::new(),
            rows: Vec::new(),
        };
        for worker in &run.workers {
            work::renew_lease(&self.worker, worker)
                .await
                .map_err(broken)?;
        }
        let mut state = Jobs::START;
        for (at, action) in actions.iter().enumerate() {
            counted(counter.as_ref());
            state = run
                .step(state, *action)
                .await
                .inspect_err(|_| self.shortest.note(&actions[..=at]))?;
        }
        // Nothing is left behind: from wherever it is, every job comes to its end.
        for action in Jobs::way_out(&state) {
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
            .map_err(broken)?;
        if (really_open, open, used) != (0, 0, ledger) {
            return Err(differ("at the end", &(really_open, used, ledger), &state));
        }
        Ok(())
    }

    fn note(&self, state: &State, action: Action, had_effect: bool) {
        let name = match action {
            Action::End { write, .. } if action.is_late(state) => format!("late {write:?}"),
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
    /// Does it to both, and compares.
    async fn step(&mut self, before: State, action: Action) -> Result<State, TestCaseError> {
        let after = Jobs::default().step(before, action);
        let had_effect = self.act(&before, action).await?;
        self.stop_the_clock().await?;
        let rows = self.rows().await?;
        let rows_before = std::mem::replace(&mut self.rows, rows);
        // Hands and leases are no rows; whether a beat or a death had an effect cannot be seen in the jobs.
        let visible = |state: &State| state.jobs.map(|job| job.map(|job| Job { hands: 0, ..job }));
        let expected = visible(&before) != visible(&after);
        let beside_the_jobs = matches!(
            action,
            Action::Forget { .. } | Action::Silence { .. } | Action::Beat { .. }
        );
        if !beside_the_jobs && had_effect != expected {
            return Err(differ(
                &format!("{action:?} was answered as if it had had an effect"),
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
            let real = self.job(job, row.map_or(0, |row| row.hands)).await?;
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

    /// Does it to the real system; whether it says that it did.
    async fn act(&mut self, state: &State, action: Action) -> Result<bool, TestCaseError> {
        let (key, api, db) = (&self.real.key, &self.real.api, &self.real.worker);
        let done = match action {
            Action::Submit { job } => {
                let body =
                    json!({"suite_id": demo_suite::SUITE_ID, "predictions": one_prediction()});
                let answer = key.post("/v1/evals", &body).await.map_err(broken)?;
                self.ids[job] = Some(text(&answer.body["id"]).parse().map_err(broken)?);
                answer.status == 202
            }
            Action::Cancel { job } => {
                let answer = key
                    .send(key.request("POST", &format!("/v1/jobs/{}/cancel", self.id(job))))
                    .await
                    .map_err(broken)?;
                if ![200, 409].contains(&answer.status) {
                    return Err(broken(answer));
                }
                answer.status == 200
            }
            Action::Claim { worker, job } => {
                let claim = work::claim(db, &self.workers[worker], self.id(job))
                    .await
                    .map_err(broken)?;
                let claimed = claim.is_some();
                self.claims
                    .extend(claim.map(|claim| ((job, claim.attempt as u8), claim)));
                claimed
            }
            Action::End {
                write,
                job,
                attempt,
            } => {
                let claim = &self.claims[&(job, attempt)];
                match write {
                    Write::Succeed => {
                        work::succeed(db, claim, &result(f64::from(attempt)), None, &[]).await
                    }
                    Write::Fail(code) => work::fail(db, claim, code, "x", &[]).await,
                    Write::Release => {
                        work::requeue(db, claim, FailureCode::Internal, "x", &[]).await
                    }
                }
                .map_err(broken)?
            }
            Action::Forget { .. } => true,
            Action::Disown { worker } => {
                // The moment in which an answer may still be on its way has passed.
                let worker_id = &self.workers[worker];
                let held = state
                    .jobs
                    .iter()
                    .enumerate()
                    .filter(|(_, job)| job.is_some_and(|job| !job.forgotten()));
                let held: Vec<&str> = held.map(|(job, _)| self.id(job).as_str()).collect();
                let past = "update jobs set started_at = started_at - interval '11 seconds' where worker_id = $1 and id <> all($2)";
                sqlx::query(past)
                    .bind(worker_id.as_str())
                    .bind(&held)
                    .execute(&self.real.owner)
                    .await
                    .map_err(broken)?;
                work::orphan_unknown_claims(db, worker_id, &held)
                    .await
                    .map_err(broken)?
                    > 0
            }
            Action::Silence { worker } => {
                self.time_passes(
                    "update workers set seen_at = now() - interval '11 seconds' where id = $1",
                    self.workers[worker].as_str(),
                )
                .await?
            }
            Action::Beat { worker } => work::renew_lease(db, &self.workers[worker])
                .await
                .map(|()| true)
                .map_err(broken)?,
            Action::Deadline { job } => {
                let sql = "update jobs set deadline_at = now() - interval '1 second' where id = $1 and status = 'running' and deadline_at > now()";
                self.time_passes(sql, self.id(job).as_str()).await?
            }
            Action::Pause { job } => {
                let sql = "update jobs set available_at = created_at where id = $1 and status = 'queued' and available_at > now()";
                self.time_passes(sql, self.id(job).as_str()).await?
            }
            Action::Sweep { silence_counts } => {
                let mut transaction = api.begin().await.map_err(broken)?;
                let swept = dispatch::sweep(&mut transaction, silence_counts)
                    .await
                    .map_err(broken)?;
                transaction.commit().await.map_err(broken)?;
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
            .map_err(broken)?;
        Ok(done.rows_affected() > 0)
    }

    /// However slow the machine is: leases and pauses end when the model says so.
    async fn stop_the_clock(&self) -> Result<(), TestCaseError> {
        let ids: Vec<&str> = self.ids.iter().flatten().map(JobId::as_str).collect();
        let sql = "with beats as (update workers set seen_at = 'infinity' where seen_at > now() - interval '10 seconds')
                   update jobs j set available_at = 'infinity' from job_attempts a
                   where j.id = any($1) and j.status = 'queued' and a.job_id = j.id and a.attempt = j.attempts
                     and j.available_at > a.ended_at + interval '0.9 seconds' * power(2, j.attempts - 1)";
        sqlx::query(sql)
            .bind(&ids)
            .execute(&self.real.owner)
            .await
            .map_err(broken)?;
        Ok(())
    }

    /// All that is kept of the jobs, but for the clock.
    async fn rows(&self) -> Result<Vec<String>, TestCaseError> {
        let ids: Vec<&str> = self.ids.iter().flatten().map(JobId::as_str).collect();
        let sql = "select (to_jsonb(j) - 'started_at' || jsonb_build_object('attempts', (select jsonb_agg(a order by attempt) from job_attempts a
                          where a.job_id = j.id), 'ledger', (select jsonb_agg(l order by kind) from usage_ledger l where l.job_id = j.id)))::text
                   from jobs j where id = any($1) order by id";
        sqlx::query_scalar(sql)
            .bind(&ids)
            .fetch_all(&self.real.owner)
            .await
            .map_err(broken)
    }

    /// A job as it really is, in the model's terms. What is in whose hands is the test's own doing.
    async fn job(&self, job: usize, hands: u8) -> Result<Option<Job>, TestCaseError> {
        let Some(id) = &self.ids[job] else {
            return Ok(None);
        };
        let told = self
            .real
            .key
            .get(&format!("/v1/jobs/{id}"))
            .await
            .map_err(broken)?
            .body;
        let sql = "select jsonb_build_object('status', status, 'attempts', attempts, 'holder', worker_id, 'failure', error_code,
                     'overdue', coalesce(deadline_at < now(), false), 'due', status <> 'queued' or available_at <= now(), 'result', result->'value',
                     'charges', (select count(*) from usage_ledger l where l.job_id = j.id and kind = 'charge'),
                     'refunds', (select count(*) from usage_ledger l where l.job_id = j.id and kind = 'refund'),
                     'begun', (select count(*) from job_attempts a where a.job_id = j.id),
                     'open', (select count(*) from job_attempts a where a.job_id = j.id and ended_at is null))
                   from jobs j where id = $1";
        let row: Value = sqlx::query_scalar(sql)
            .bind(id.as_str())
            .fetch_one(&self.real.owner)
            .await
            .map_err(broken)?;
        let runs = row["status"] == "running";
        let agree = [
            told["status"] == row["status"],
            told["attempts"] == row["attempts"],
            told["result"]["value"] == row["result"],
            told["error"]["code"] == row["failure"],
            row["charges"] == 1,
            row["begun"] == row["attempts"],
            row["open"] == u8::from(runs),
        ];
        if agree.contains(&false) {
            return Err(differ("what is kept and told of one job", &row, &told));
        }
        let number = |name: &str| row[name].as_f64().map(|number| number as u8);
        let holder = |worker: &str| {
            self.workers
                .iter()
                .position(|id| id.as_str() == worker)
                .map_or(Holder::Nobody, Holder::Worker)
        };
        let status: JobStatus = text(&row["status"]).parse().map_err(broken)?;
        Ok(Some(Job {
            status,
            attempts: number("attempts").unwrap_or_default(),
            holder: row["holder"].as_str().map(holder),
            overdue: row["overdue"] == true,
            due: row["due"] == true,
            failure: row["failure"].as_str().map(|code| code.parse().unwrap()),
            result: number("result"),
            ends: u8::from(status.is_final()),
            refunds: number("refunds").unwrap_or_default(),
            hands,
        }))
    }
}

#[test]
fn the_real_system_does_what_the_model_does() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    // What is dropped after a failure wants one, too.
    let _entered = runtime.enter();
    let cases = std::env::var("JOB_SEQUENCES").map_or(64, |cases| cases.parse().unwrap());
    let began = std::time::Instant::now();
    let real = runtime.block_on(Real::new());
    // Whoever leads a round sweeps and rings. Nobody does, as long as this transaction lasts.
    let mut leader = runtime.block_on(real.owner.begin()).unwrap();
    while !runtime.block_on(dispatch::try_lead(&mut leader)).unwrap() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let outcome = TestRunner::new(config(cases)).run(
        &Jobs::sequential_strategy(10..40),
        |(_, actions, counter)| runtime.block_on(real.run(&actions, counter)),
    );
    if let Err(error) = outcome {
        panic!("{error}\nthe shortest: {:?}", real.shortest.get());
    }
    let seen = real.seen.lock().unwrap();
    println!(
        "{cases} sequences, {} steps, {:?}; [with, without effect]: {seen:?}",
        seen.values().flatten().sum::<usize>(),
        began.elapsed()
    );
    for kind in [
        "Submit", "Cancel", "Claim", "End", "Disown", "Deadline", "Pause", "Sweep",
    ] {
        assert!(seen[kind][0] > 0, "no {kind} had an effect");
    }
    for late in [
        "late Succeed",
        "late Fail(InvalidPredictions)",
        "late Release",
    ] {
        assert!(seen[late][1] > 5, "too few: {late}");
    }
    assert!(
        seen["End"][1] > 0 && seen["Claim"][1] > 0 && seen["Cancel"][1] > 0,
        "nothing was refused"
    );
    runtime.block_on(leader.rollback()).unwrap();
}
