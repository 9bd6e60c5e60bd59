//! The job queue's depth, for Prometheus metrics.

use sqlx::PgExecutor;

use super::leases::{ATTEMPT_TIMEOUT, LEASE_DURATION};
use crate::model::error::Result;

/// The most queued jobs that are counted. It bounds a sample's cost.
const COUNTED_MAX: i64 = 100_000;

/// The active job count, and their longest waiting and running times.
pub struct QueueDepth {
    /// Queued jobs, counted up to `COUNTED_MAX`.
    pub queued: f64,
    /// Seconds for which the longest-waiting job could have been started.
    pub queued_seconds: f64,
    /// Running jobs.
    pub running: f64,
    /// Seconds for which the longest-running job has been running.
    pub running_seconds: f64,
    /// Workers whose lease has not expired.
    pub workers: f64,
}

/// Measures the queue's depth.
pub async fn measure(db: impl PgExecutor<'_>) -> Result<QueueDepth> {
    // Each subquery reads the start of an index over active jobs, or a bounded part. Suspended
    // organizations' jobs, and evals that wait for a prediction job, are excluded, because they do not
    // wait for workers.
    let depth = sqlx::query_as!(
        QueueDepth,
        r#"
        /* all tenants: the queue holds jobs of every organization */
        with suspended as (
            select array(select id from orgs where suspended_at is not null) as ids
        )
        select
            (
                select count(*)
                from (
                    select from jobs
                    where status = 'queued'
                      and (needs_job_id is null or available_at <= now())
                      and org_id <> all((select ids from suspended)::text[])
                    limit $3
                ) waiting
            )::float8 as "queued!",
            coalesce(
                (
                    select greatest(extract(epoch from now() - min(available_at)), 0)
                    from jobs
                    where status = 'queued'
                      and (needs_job_id is null or available_at <= now())
                      and org_id <> all((select ids from suspended)::text[])
                ),
                0
            )::float8 as "queued_seconds!",
            (select count(*) from jobs where status = 'running')::float8 as "running!",
            coalesce(
                (
                    select extract(epoch from now() - min(deadline_at)) + $2::float8
                    from jobs
                    where status = 'running'
                ),
                0
            )::float8 as "running_seconds!",
            (
                select count(*)
                from workers
                where seen_at > now() - $1::float8 * interval '1 second'
            )::float8 as "workers!"
        "#,
        LEASE_DURATION.as_secs_f64(),
        ATTEMPT_TIMEOUT.as_secs_f64(),
        COUNTED_MAX
    )
    .fetch_one(db)
    .await?;
    Ok(depth)
}
