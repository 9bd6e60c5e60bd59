//! The dispatcher's statements. They act for all organizations.

use std::time::Duration;

use sqlx::PgExecutor;

use super::{PgConnection, PgPool};
use crate::model::error::Result;
use crate::model::ids::JobId;
use crate::model::job::ATTEMPTS_MAX;
use crate::model::timestamp::Timestamp;

/// The channel on which the api says that there is something to dispatch.
pub const CHANNEL: &str = "assay_jobs";

/// The channel on which the database says which job has changed.
pub const CHANGED_CHANNEL: &str = "assay_job_changed";

/// The advisory lock that makes one dispatcher the leader for a round: the letters "assay".
const LEADER: i64 = 0x61_73_73_61_79;

/// A worker that was not heard of for this long is taken for dead.
pub const LEASE: Duration = Duration::from_secs(10);

/// Among how many of the jobs that wait longest organizations take turns. A backlog of any length costs a round no more
/// than this.
const FAIR_SHARE_WINDOW: i64 = 5_000;

/// How many stuck jobs one sweep takes.
const SWEEP: i64 = 500;

/// Says to all dispatchers that there is something to do.
pub async fn notify(db: impl PgExecutor<'_>) -> Result<()> {
    sqlx::query!("select pg_notify($1, '')", CHANNEL)
        .execute(db)
        .await?;
    Ok(())
}

/// Whether this transaction leads now. The lock ends with the transaction.
pub async fn try_lead(db: &mut PgConnection) -> Result<bool> {
    let leads = sqlx::query_scalar!(
        r#"select pg_try_advisory_xact_lock($1) as "leads!""#,
        LEADER
    )
    .fetch_one(db)
    .await?;
    Ok(leads)
}

/// A job that was taken back.
pub struct Swept {
    /// The job.
    pub job_id: JobId,
    /// The attempt that was given up.
    pub attempt: i32,
    /// Whether its time was over; otherwise its worker was gone.
    pub overdue: bool,
    /// Whether no try was left; otherwise it waits again.
    pub failed: bool,
    /// When the attempt began.
    pub started_at: Timestamp,
    /// When it was given up.
    pub ended_at: Timestamp,
    /// The trace that it belongs to, 32 hex digits.
    pub trace_id: String,
    /// The span in whose name it was stored, 16 hex digits.
    pub span_id: Option<String>,
}

/// Takes back jobs whose worker is gone or whose time is over: they wait again, or fail when no try is left, and then
/// the charge is given back. A worker that is there but was not heard of is taken for dead only if `silence_counts`:
/// just after the database was away, nobody can have been heard of.
pub async fn sweep(db: &mut PgConnection, silence_counts: bool) -> Result<Vec<Swept>> {
    let swept = sqlx::query_as!(
        Swept,
        r#"with stuck as (
             select j.id, j.attempts, j.deadline_at < now() as overdue, j.started_at, j.trace_id, j.span_id
             from jobs j
             where j.status = 'running'
               and (j.deadline_at < now()
                    or not exists (select from workers w where w.id = j.worker_id
                                   and (w.seen_at > now() - $1::float8 * interval '1 second' or not $4)))
             order by j.deadline_at limit $2 for update of j skip locked
         ), ended as (
             update job_attempts a set ended_at = now(), outcome = case when s.overdue then 'timeout' else 'lost' end
             from stuck s where a.job_id = s.id and a.attempt = s.attempts
         ), released as (
             update jobs j set status = 'queued', started_at = null, deadline_at = null, worker_id = null, dispatched_at = null, available_at = now()
             from stuck s where j.id = s.id and s.attempts < $3
         ), failed as (
             update jobs j set status = 'failed', finished_at = now(), deadline_at = null, worker_id = null,
                    error_code = case when s.overdue then 'timeout' else 'internal' end,
                    error_message = case when s.overdue then 'The job took longer than fifteen minutes in each of its tries.'
                                         else 'The job did not survive any of its tries.' end
             from stuck s where j.id = s.id and s.attempts >= $3
         )
         select id as "job_id: JobId", attempts as attempt, overdue as "overdue!", attempts >= $3 as "failed!",
                started_at as "started_at!: Timestamp", now() as "ended_at!: Timestamp", trace_id, span_id
         from stuck"#,
        LEASE.as_secs_f64(),
        SWEEP,
        ATTEMPTS_MAX,
        silence_counts
    )
    .fetch_all(&mut *db)
    .await?;
    let failed: Vec<&str> = swept
        .iter()
        .filter(|swept| swept.failed)
        .map(|swept| swept.job_id.as_str())
        .collect();
    if !failed.is_empty() {
        refund(db, &failed).await?;
    }
    Ok(swept)
}

/// How much there is to do, and for how long it has been.
pub struct Depth {
    /// Jobs that wait, counted up to 100,000.
    pub queued: f64,
    /// How long the one that waits longest could have been begun, in seconds.
    pub queued_seconds: f64,
    /// Jobs that run.
    pub running: f64,
    /// How long the one that runs longest has been running, in seconds.
    pub running_seconds: f64,
    /// Workers whose lease is alive.
    pub workers: f64,
}

/// The queue's depth.
pub async fn depth(db: &PgPool) -> Result<Depth> {
    // Each of these reads the head of an index of the jobs that have not ended, or a bounded part of it. Jobs of suspended
    // organizations wait for the operator, not for workers.
    let depth = sqlx::query_as!(
        Depth,
        r#"with suspended as (select array(select id from orgs where suspended_at is not null) as ids)
           select (select count(*) from (select from jobs where status = 'queued' and org_id <> all((select ids from suspended)::text[])
                                         limit 100000) waiting)::float8 as "queued!",
                  coalesce((select greatest(extract(epoch from now() - min(available_at)), 0) from jobs
                            where status = 'queued' and org_id <> all((select ids from suspended)::text[])), 0)::float8
                      as "queued_seconds!",
                  (select count(*) from jobs where status = 'running')::float8 as "running!",
                  coalesce((select extract(epoch from now() - min(deadline_at)) + $2::float8 from jobs where status = 'running'), 0)::float8
                      as "running_seconds!",
                  (select count(*) from workers where seen_at > now() - $1::float8 * interval '1 second')::float8 as "workers!""#,
        LEASE.as_secs_f64(),
        super::work::DEADLINE.as_secs_f64()
    )
    .fetch_one(db)
    .await?;
    Ok(depth)
}

/// Gives jobs' charges back to the months that they were charged to. Doing it again changes nothing.
pub async fn refund(db: &mut PgConnection, job_ids: &[&str]) -> Result<()> {
    // In one statement: until the transaction ends, submissions of these organizations wait.
    sqlx::query!(
        "with refund as (
             insert into usage_ledger (org_id, job_id, kind, eval_items, period_start)
             select org_id, job_id, 'refund', eval_items, period_start from usage_ledger where job_id = any($1) and kind = 'charge'
             on conflict do nothing
             returning org_id, period_start, eval_items
         )
         update usage u set eval_items = u.eval_items - r.eval_items
         from (select org_id, period_start, sum(eval_items)::bigint as eval_items from refund group by org_id, period_start) r
         where u.org_id = r.org_id and u.period_start = r.period_start",
        job_ids as &[&str]
    )
    .execute(db)
    .await?;
    Ok(())
}

/// A job whose bell is to be rung.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobNotification {
    /// The job.
    pub job_id: JobId,
    /// How often it was rung, with this time.
    pub dispatch_no: i32,
    /// When it was chosen.
    pub dispatched_at: Timestamp,
}

/// Chooses at most `room` waiting jobs whose bell was not rung, or not answered for two minutes, and notes that it is.
/// Organizations take turns: each one's first job comes before any one's second.
pub async fn pick_jobs_to_notify(db: &mut PgConnection, room: i64) -> Result<Vec<JobNotification>> {
    let mut rows = sqlx::query!(
        r#"with suspended as (
             select array(select id from orgs where suspended_at is not null) as ids
         ), waiting as (
             (select id, org_id, created_at from jobs
              where status = 'queued' and dispatched_at is null and available_at <= now()
                and org_id <> all((select ids from suspended)::text[])
              order by available_at, created_at limit $2)
             union all
             (select id, org_id, created_at from jobs
              where status = 'queued' and dispatched_at < now() - interval '2 minutes' and available_at <= now()
                and org_id <> all((select ids from suspended)::text[])
              order by dispatched_at limit $1)
         ), turns as (
             select id, created_at, row_number() over (partition by org_id order by created_at) as turn from waiting
         ), chosen as (
             select j.id, t.turn, t.created_at from jobs j join turns t on t.id = j.id
             order by t.turn, t.created_at limit $1 for update of j skip locked
         )
         update jobs j set dispatched_at = now(), dispatch_no = j.dispatch_no + 1
         from chosen c where j.id = c.id
         returning j.id as "id: JobId", j.dispatch_no, now() as "dispatched_at!: Timestamp", c.turn as "turn!",
                   c.created_at as "created_at: Timestamp""#,
        room,
        FAIR_SHARE_WINDOW
    )
    .fetch_all(db)
    .await?;
    rows.sort_by_key(|row| (row.turn, row.created_at));
    Ok(rows
        .into_iter()
        .map(|row| JobNotification {
            job_id: row.id,
            dispatch_no: row.dispatch_no,
            dispatched_at: row.dispatched_at,
        })
        .collect())
}

/// Redis forgot: every waiting job's bell is to be rung again.
pub async fn reset_notifications(db: &PgPool) -> Result<u64> {
    let done = sqlx::query!(
        "update jobs set dispatched_at = null where status = 'queued' and dispatched_at is not null"
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}
