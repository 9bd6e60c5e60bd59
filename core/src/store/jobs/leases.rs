//! Worker processes' leases, and the sweep that reclaims jobs whose lease or time limit has
//! expired.

use std::time::Duration;

use assay_eval::SCORER;
use sqlx::PgExecutor;

use super::dependent_evals;
use crate::model::error::Result;
use crate::model::ids::{JobId, WorkerId};
use crate::model::job::{ATTEMPTS_MAX, JobType};
use crate::model::timestamp::Timestamp;
use crate::store::{PgConnection, usage};

/// The time after which a worker process that has not renewed its lease counts as dead.
pub const LEASE_DURATION: Duration = Duration::from_secs(10);

/// An attempt's time limit.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// The most jobs that one sweep reclaims.
const SWEEP_BATCH: i64 = 500;

/// Renews a worker process's lease with this many slots, or creates it.
pub async fn renew_lease(db: impl PgExecutor<'_>, worker_id: &WorkerId, slots: u32) -> Result<()> {
    sqlx::query!(
        "
        insert into workers (id, seen_at, slots, scorer)
        values ($1, now(), $2, $3)
        on conflict (id) do update
            set seen_at = now()
        ",
        worker_id.as_str(),
        i32::try_from(slots).unwrap_or(i32::MAX),
        SCORER
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Orphans jobs that the worker owns in the database but is not running: the response to the claim
/// was lost, or the final write failed. Skips claims younger than the lease, because their response
/// may still be in flight. The next sweep reclaims the orphaned jobs.
pub async fn orphan_unknown_claims(
    db: impl PgExecutor<'_>,
    worker_id: &WorkerId,
    running: &[&str],
) -> Result<u64> {
    let done = sqlx::query!(
        "
        /* all tenants: a worker runs jobs of every organization */
        update jobs
        -- No worker has this id. A running job must have one: see jobs_running_is_held.
        set worker_id = 'nobody'
        where status = 'running'
          and worker_id = $1
          and started_at < now() - $3::float8 * interval '1 second'
          and id <> all($2)
        ",
        worker_id.as_str(),
        running as &[&str],
        LEASE_DURATION.as_secs_f64()
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}

/// Deletes a worker process's lease. The next sweep reclaims the jobs that it still owns.
pub async fn delete_lease(db: impl PgExecutor<'_>, worker_id: &WorkerId) -> Result<()> {
    sqlx::query!("delete from workers where id = $1", worker_id.as_str())
        .execute(db)
        .await?;
    Ok(())
}

/// A job that the sweep reclaimed.
pub struct ReclaimedJob {
    /// The job's id.
    pub job_id: JobId,
    /// The type of the job.
    pub r#type: JobType,
    /// The attempt number that was ended.
    pub attempt: i32,
    /// Set if the attempt exceeded its time limit. Otherwise its worker is gone.
    pub overdue: bool,
    /// Set if no attempt was left and the job failed. Otherwise it is queued again.
    pub failed: bool,
    /// Set if the job was a prediction that failed, and an eval that waited for it failed with it.
    pub eval_failed: bool,
    /// The attempt's start.
    pub started_at: Timestamp,
    /// The time at which the sweep ended the attempt.
    pub ended_at: Timestamp,
    /// The job trace's id, 32 hex digits.
    pub trace_id: String,
    /// The span id that stored the job, 16 hex digits. `None` if the trace is not exported.
    pub span_id: Option<String>,
}

/// Reclaims jobs whose worker is gone or that exceeded their time limit: requeues them, or fails
/// and refunds them if no attempt is left.
///
/// An expired lease counts as a dead worker only if `leases_expire` is set. Just after a database
/// outage, no worker can have renewed its lease, so the caller does not set it.
pub async fn sweep(db: &mut PgConnection, leases_expire: bool) -> Result<Vec<ReclaimedJob>> {
    let mut reclaimed = sqlx::query_as!(
        ReclaimedJob,
        r#"
        /* all tenants: the sweep reclaims jobs of every organization */
        with stuck as (
            select
                j.id,
                j.type,
                j.attempts,
                j.deadline_at < now() as overdue,
                j.started_at,
                j.trace_id,
                j.span_id
            from jobs j
            where j.status = 'running'
              and (
                  -- Its time limit has passed, or its worker is gone. Without leases_expire ($4), a
                  -- worker with a row counts as alive.
                  j.deadline_at < now()
                  or not exists (
                      select from workers w
                      where w.id = j.worker_id
                        and (w.seen_at > now() - $1::float8 * interval '1 second' or not $4)
                  )
              )
            order by j.deadline_at
            limit $2
            for update of j skip locked
        ), ended as (
            update job_attempts a
            set
                ended_at = now(),
                outcome = case when s.overdue then 'timeout' else 'lost' end
            from stuck s
            where a.job_id = s.id
              and a.attempt = s.attempts
        ), released as (
            update jobs j
            set
                status = 'queued',
                started_at = null,
                deadline_at = null,
                worker_id = null,
                dispatched_at = null,
                available_at = now()
            from stuck s
            where j.id = s.id
              and s.attempts < $3
        ), failed as (
            update jobs j
            set
                status = 'failed',
                finished_at = now(),
                deadline_at = null,
                worker_id = null,
                error_code = case when s.overdue then 'timeout' else 'internal' end,
                error_message = case when s.overdue then $5 else $6 end
            from stuck s
            where j.id = s.id
              and s.attempts >= $3
        )
        select
            id as "job_id: JobId",
            type as "type: JobType",
            attempts as attempt,
            overdue as "overdue!",
            attempts >= $3 as "failed!",
            false as "eval_failed!",
            started_at as "started_at!: Timestamp",
            now() as "ended_at!: Timestamp",
            trace_id,
            span_id
        from stuck
        "#,
        LEASE_DURATION.as_secs_f64(),
        SWEEP_BATCH,
        ATTEMPTS_MAX,
        leases_expire,
        format!(
            "The last attempt at the job took longer than {} minutes.",
            ATTEMPT_TIMEOUT.as_secs() / 60
        ),
        "The last attempt at the job lost its worker."
    )
    .fetch_all(&mut *db)
    .await?;
    let failed: Vec<&str> = reclaimed
        .iter()
        .filter(|reclaimed| reclaimed.failed)
        .map(|reclaimed| reclaimed.job_id.as_str())
        .collect();
    if failed.is_empty() {
        return Ok(reclaimed);
    }
    usage::refund(db, &failed).await?;
    let predictions: Vec<&str> = reclaimed
        .iter()
        .filter(|reclaimed| reclaimed.failed && reclaimed.r#type == JobType::Predict)
        .map(|reclaimed| reclaimed.job_id.as_str())
        .collect();
    if !predictions.is_empty() {
        let ended_evals = dependent_evals::ended_by(db, &predictions).await?;
        for reclaimed in &mut reclaimed {
            reclaimed.eval_failed = ended_evals.contains(&reclaimed.job_id);
        }
    }
    Ok(reclaimed)
}
