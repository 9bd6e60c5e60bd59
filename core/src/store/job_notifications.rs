//! Notifications of queued jobs. The dispatcher picks the jobs whose notifications are sent to the
//! workers through Redis.

use std::time::Duration;

use sqlx::PgExecutor;

use super::PgConnection;
use crate::model::error::Result;
use crate::model::ids::JobId;
use crate::model::timestamp::Timestamp;

/// The PostgreSQL channel that wakes the dispatchers up when a job was submitted.
pub const SUBMITTED_CHANNEL: &str = "assay_jobs";

/// The PostgreSQL channel on which a trigger publishes each job whose status has changed: its id,
/// and unless it has finished, a space and its status.
pub const CHANGED_CHANNEL: &str = "assay_job_changed";

/// The advisory lock that makes one dispatcher the leader for a round: the letters "assay".
const LEADER: i64 = 0x61_73_73_61_79;

/// The number of longest-waiting jobs among which organizations alternate. It bounds the cost of a
/// round, whatever the length of the backlog.
const FAIR_SHARE_WINDOW: i64 = 5_000;

/// The time after which a notification that led to no claim is repeated.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// Notifies all dispatchers that a job was submitted.
pub async fn notify(db: impl PgExecutor<'_>) -> Result<()> {
    sqlx::query!("select pg_notify($1, '')", SUBMITTED_CHANNEL)
        .execute(db)
        .await?;
    Ok(())
}

/// Tries to make this transaction the leader of the round. The lock is released with the
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
    /// The number of notifications for the job, with this one.
    pub dispatch_no: i32,
    /// The time at which the job was picked.
    pub dispatched_at: Timestamp,
    /// Set if the predictions are stored with the job. Scoring such a job takes less than a
    /// millisecond.
    pub is_small: bool,
}

/// Picks at most `room` queued jobs that were not notified, or whose notification led to no claim
/// within `NOTIFICATION_TIMEOUT`, and records the notification. Organizations alternate: each
/// one's first job comes before any one's second. Returns `None` if another process leads the round.
///
/// Recorded before they are sent: a job whose notification is lost in between is found by a worker
/// that polls.
pub async fn pick_jobs_to_notify(
    db: impl PgExecutor<'_>,
    room: usize,
) -> Result<Option<Vec<JobNotification>>> {
    let mut rows = sqlx::query!(
        r#"
        /* all tenants: the dispatcher serves every organization */
        with leader as materialized (
            select pg_try_advisory_xact_lock($4) as leads
        ), suspended as (
            select array(select id from orgs where suspended_at is not null) as ids
        ), waiting as (
            (
                select id, org_id, created_at, dispatched_at
                from jobs
                where (select leads from leader)
                  and status = 'queued'
                  and dispatched_at is null
                  and available_at <= now()
                  and org_id <> all((select ids from suspended)::text[])
                order by available_at, created_at
                limit $2
            )
            union all
            (
                select id, org_id, created_at, dispatched_at
                from jobs
                where (select leads from leader)
                  and status = 'queued'
                  and dispatched_at < now() - $3::float8 * interval '1 second'
                  and available_at <= now()
                  and org_id <> all((select ids from suspended)::text[])
                order by dispatched_at
                limit $1
            )
        ), turns as (
            -- Each organization's first job comes before any organization's second.
            select
                id,
                created_at,
                dispatched_at,
                row_number() over (partition by org_id order by created_at) as turn
            from waiting
        ), chosen as (
            select j.id, t.turn, t.created_at
            from jobs j
            join turns t on t.id = j.id
            -- The leader of the round before may have picked the job after this statement started.
            where j.dispatched_at is not distinct from t.dispatched_at
            order by t.turn, t.created_at
            limit $1
            for update of j skip locked
        ), picked as (
            update jobs j
            set
                dispatched_at = now(),
                dispatch_no = j.dispatch_no + 1
            from chosen c
            where j.id = c.id
            returning
                j.id,
                j.dispatch_no,
                j.dispatched_at,
                j.type = 'eval' and j.input_key is null and j.upload_id is null as is_small,
                c.turn,
                c.created_at
        )
        select
            l.leads as "leads!",
            p.id as "id?: JobId",
            p.dispatch_no as "dispatch_no?",
            p.dispatched_at as "dispatched_at?: Timestamp",
            p.is_small as "is_small?",
            p.turn as "turn?",
            p.created_at as "created_at?: Timestamp"
        from leader l
        left join picked p on true
        "#,
        i64::try_from(room).unwrap_or(i64::MAX),
        FAIR_SHARE_WINDOW,
        NOTIFICATION_TIMEOUT.as_secs_f64(),
        LEADER
    )
    .fetch_all(db)
    .await?;
    if !rows.iter().all(|row| row.leads) {
        return Ok(None);
    }
    rows.sort_by_key(|row| (row.turn, row.created_at));
    let notifications = rows.into_iter().filter_map(|row| {
        Some(JobNotification {
            job_id: row.id?,
            dispatch_no: row.dispatch_no?,
            dispatched_at: row.dispatched_at?,
            is_small: row.is_small?,
        })
    });
    Ok(Some(notifications.collect()))
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
