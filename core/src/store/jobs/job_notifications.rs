//! Queued job notifications. The dispatcher picks the jobs whose notifications are sent to the
//! workers through Redis.

use std::time::Duration;

use sqlx::PgExecutor;

use crate::model::error::Result;
use crate::model::ids::JobId;
use crate::model::timestamp::Timestamp;
use crate::store::PgConnection;

/// The PostgreSQL channel that wakes the dispatchers up when a job was submitted.
pub const SUBMITTED_CHANNEL: &str = "assay_jobs";

/// The PostgreSQL channel on which a trigger publishes each job whose status has changed: its id,
/// and unless it has finished, a space and its status.
pub const CHANGED_CHANNEL: &str = "assay_job_changed";

/// The notification in [`CHANGED_CHANNEL`] about an event that all organizations have.
pub const ALL_ORGS: &str = "orgs";

/// The advisory lock that makes one dispatcher the leader for a round: the letters "assay".
const LEADER: i64 = 0x61_73_73_61_79;

/// The most notifications that one round repeats.
const REPEATED_MAX: i64 = 128;

/// The time after which a notification that led to no claim is repeated.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// Notifies all dispatchers that a job was submitted.
pub async fn notify(db: impl PgExecutor<'_>) -> Result<()> {
    sqlx::query!("select pg_notify($1, '')", SUBMITTED_CHANNEL)
        .execute(db)
        .await?;
    Ok(())
}

/// Tries to make this transaction the round's leader. The lock is released with the
/// transaction.
pub async fn try_lead(db: &mut PgConnection) -> Result<bool> {
    let leads = sqlx::query_scalar!(
        r#"select pg_try_advisory_xact_lock($1) as "leads!""#,
        LEADER
    )
    .fetch_one(db)
    .await?;
    Ok(leads)
}

/// A notification to send for a queued job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobNotification {
    /// The job's id.
    pub job_id: JobId,
    /// The notification count for the job, with this one.
    pub dispatch_no: i32,
    /// The time at which the job was picked.
    pub dispatched_at: Timestamp,
    /// Set if the predictions are stored with the job. Scoring such a job takes less than a
    /// millisecond.
    pub is_small: bool,
}

/// Records the notifications for these waiting jobs, and for jobs whose notification led to no
/// claim within `NOTIFICATION_TIMEOUT`, and returns them. Jobs that no longer wait are left out.
///
/// Recorded before they are sent: a job whose notification is lost in between is found by a worker
/// that polls.
pub async fn record(db: impl PgExecutor<'_>, chosen: &[JobId]) -> Result<Vec<JobNotification>> {
    let ids: Vec<&str> = chosen.iter().map(JobId::as_str).collect();
    let mut rows = sqlx::query!(
        r#"
        /* all tenants: the dispatcher serves every organization */
        with chosen as (
            select j.id, c.position
            from jobs j
            join unnest($1::text[]) with ordinality as c(id, position) on c.id = j.id
            where j.status || '' = 'queued'
              and j.dispatched_at is null
            for update of j skip locked
        ), repeated as (
            select id
            from jobs
            where status = 'queued'
              and dispatched_at < now() - $2::float8 * interval '1 second'
              and available_at <= now()
              and org_id <> all(array(select o.id from orgs o where o.suspended_at is not null))
            order by dispatched_at
            limit $3
            for update skip locked
        ), to_notify as (
            select id, position
            from chosen
            union all
            select id, 0
            from repeated
        )
        update jobs j
        set
            dispatched_at = now(),
            dispatch_no = j.dispatch_no + 1
        from to_notify t
        where j.id = t.id
        returning
            j.id as "job_id: JobId",
            j.dispatch_no,
            j.dispatched_at as "dispatched_at!: Timestamp",
            j.type = 'eval' and j.input_key is null and j.upload_id is null as "is_small!",
            t.position as "position!"
        "#,
        &ids as &[&str],
        NOTIFICATION_TIMEOUT.as_secs_f64(),
        REPEATED_MAX
    )
    .fetch_all(db)
    .await?;
    rows.sort_by_key(|row| row.position);
    let notifications = rows.into_iter().map(|row| JobNotification {
        job_id: row.job_id,
        dispatch_no: row.dispatch_no,
        dispatched_at: row.dispatched_at,
        is_small: row.is_small,
    });
    Ok(notifications.collect())
}

/// Marks every queued job as not notified, because Redis lost its data.
pub async fn reset_notifications(db: impl PgExecutor<'_>) -> Result<u64> {
    let done = sqlx::query!(
        "
        /* all tenants: the dispatcher serves every organization */
        update jobs
        set dispatched_at = null
        where status = 'queued'
          and dispatched_at is not null
        "
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}
