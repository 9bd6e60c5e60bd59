//! The queue's snapshot: its order and the workers' measured speed, as one process has
//! stored them for all.

use std::time::Duration;

use sqlx::PgExecutor;

use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId};
use crate::model::queue::{Speed, WaitSeconds};
use crate::model::timestamp::Timestamp;
use crate::store::PgConnection;

/// The shortest time between two snapshots.
const INTERVAL: Duration = Duration::from_secs(1);

/// The measured jobs' age.
const MEASURED: Duration = Duration::from_secs(60 * 60);

/// The measured attempt count, the latest first.
const MEASURED_MAX: i64 = 2_000;

/// The advisory lock for the process that stores a snapshot: the letters "queue".
const STORING: i64 = 0x71_75_65_75_65;

/// The sort key for a job that workers were notified about: it is before all jobs that wait for a
/// notification.
pub const NOTIFIED_SORT_KEY: f64 = f64::NEG_INFINITY;

/// The queue at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// Queued jobs that could start.
    pub queued: i64,
    /// The number of running jobs.
    pub running: i64,
    /// Live workers' slot count.
    pub slots: i64,
    /// The oldest job's age that could start, in seconds. Zero without one.
    pub oldest_seconds: f64,
    /// Finished jobs' measurements.
    pub measured: Measured,
    /// The remaining run time for jobs that workers run or were notified about, in seconds.
    pub busy_seconds: f64,
    /// The first jobs that wait for a worker, in queue order: those that workers were notified about,
    /// then the others.
    pub order: Vec<Place>,
    /// The cost per organization over its active and waiting jobs, if it has any.
    pub costs: Vec<(OrgId, i64)>,
}

/// A waiting job's place.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// The job's id.
    pub job_id: JobId,
    /// The job's sort key, in items per weight unit, or [`NOTIFIED_SORT_KEY`].
    pub sort_key: f64,
    /// The run time for jobs until this one that wait for a notification, in seconds.
    pub seconds_through: f64,
}

/// Measurements over the last hour's jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Measured {
    /// The workers' speed. `None` if no job has succeeded.
    pub speed: Option<Speed>,
    /// The median time from a notification to the job's start, in seconds. `None` if no job has
    /// started.
    pub start_seconds: Option<f64>,
    /// The quantile from which `estimated_end_by` is computed, over the actual time from the submission
    /// to the end, divided by the time that was estimated first. `None` with too few jobs.
    pub end_by_ratio: Option<f64>,
    /// The waiting times. `None` if no job has started.
    pub wait_seconds: Option<WaitSeconds>,
}

/// An attempt that is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredAttempt {
    /// The job's cost, in items.
    pub cost: i64,
    /// The time that the job waited for the attempt, in seconds.
    pub waited: f64,
    /// The time from the worker's notification to the start, in seconds, if there was one.
    pub started_after: Option<f64>,
    /// The attempt's duration, in seconds, if the job has succeeded.
    pub ran: Option<f64>,
    /// The ratio between the actual time until the end to the time that was estimated first.
    pub ratio: Option<f64>,
}

/// Returns the latest attempts in the last hour.
pub async fn measured_attempts(db: impl PgExecutor<'_>) -> Result<Vec<MeasuredAttempt>> {
    let attempts = sqlx::query_as!(
        MeasuredAttempt,
        r#"
        /* all tenants: the speed of the workers is that of every organization's jobs */
        select
            a.cost,
            greatest(extract(epoch from a.started_at - j.available_at), 0)::float8 as "waited!",
            case
                when a.started_at >= j.dispatched_at and isfinite(j.dispatched_at)
                then extract(epoch from a.started_at - j.dispatched_at)
            end::float8 as started_after,
            case
                when j.status = 'succeeded' then extract(epoch from a.ended_at - a.started_at)
            end::float8 as ran,
            case
                when j.status = 'succeeded' and j.first_estimated_end_at > j.created_at
                then extract(epoch from j.finished_at - j.created_at)
                    / extract(epoch from j.first_estimated_end_at - j.created_at)
            end::float8 as ratio
        from (
            select job_id, attempt, cost, started_at, ended_at
            from job_attempts
            where started_at > now() - $1::float8 * interval '1 second'
            order by started_at desc
            limit $2
        ) a
        join jobs j on j.id = a.job_id and j.attempts = a.attempt
        "#,
        MEASURED.as_secs_f64(),
        MEASURED_MAX
    )
    .fetch_all(db)
    .await?;
    Ok(attempts)
}

/// Tries to make this transaction the one that stores the next snapshot. Returns `false` if another
/// process does, or if the last snapshot is too young.
pub async fn try_begin(db: &mut PgConnection) -> Result<bool> {
    let begun = sqlx::query_scalar!(
        r#"
        select pg_try_advisory_xact_lock($2) as "begun!"
        from queue_snapshots
        where as_of is null
           or as_of <= clock_timestamp() - $1::float8 * interval '1 second'
        "#,
        INTERVAL.as_secs_f64(),
        STORING
    )
    .fetch_optional(db)
    .await?;
    Ok(begun == Some(true))
}

/// Returns the cost of each organization's jobs that wait for a notification.
pub async fn waiting_costs(db: impl PgExecutor<'_>) -> Result<Vec<(OrgId, i64)>> {
    let costs = sqlx::query!(
        r#"
        /* all tenants: the queue holds jobs of every organization */
        select
            org_id as "org_id: OrgId",
            sum(cost)::bigint as "cost!"
        from jobs
        where status = 'queued'
          and dispatched_at is null
        group by org_id
        "#
    )
    .fetch_all(db)
    .await?;
    Ok(costs
        .into_iter()
        .map(|row| (row.org_id, row.cost))
        .collect())
}

/// Returns the first jobs that workers were notified about and have not claimed, at most `limit`.
pub async fn notified_jobs(db: impl PgExecutor<'_>, limit: usize) -> Result<Vec<JobId>> {
    let ids = sqlx::query_scalar!(
        r#"
        /* all tenants: the queue holds jobs of every organization */
        select id as "id: JobId"
        from jobs
        where status = 'queued'
          and dispatched_at > '-infinity'
        order by dispatched_at, created_at, id
        limit $1
        "#,
        i64::try_from(limit).unwrap_or(i64::MAX)
    )
    .fetch_all(db)
    .await?;
    Ok(ids)
}

/// Stores a snapshot, with this statement's time.
pub async fn store(db: impl PgExecutor<'_>, snapshot: &Snapshot) -> Result<()> {
    let Snapshot {
        queued,
        running,
        slots,
        oldest_seconds,
        measured,
        busy_seconds,
        order,
        costs,
    } = snapshot;
    let job_ids: Vec<&str> = order.iter().map(|place| place.job_id.as_str()).collect();
    let sort_keys: Vec<f64> = order.iter().map(|place| place.sort_key).collect();
    let seconds_through: Vec<f64> = order.iter().map(|place| place.seconds_through).collect();
    let (org_ids, org_costs): (Vec<&str>, Vec<i64>) = costs
        .iter()
        .map(|(org_id, cost)| (org_id.as_str(), *cost))
        .unzip();
    sqlx::query!(
        "
        update queue_snapshots
        set
            as_of = clock_timestamp(),
            queued = $1,
            running = $2,
            slots = $3,
            oldest_seconds = $4,
            items_per_second = $5,
            overhead_seconds = $6,
            start_seconds = $7,
            end_by_ratio = $8,
            wait_p50 = $9,
            wait_p95 = $10,
            busy_seconds = $11,
            job_ids = $12,
            sort_keys = $13,
            seconds_through = $14,
            org_ids = $15,
            org_costs = $16
        ",
        queued,
        running,
        slots,
        oldest_seconds,
        measured.speed.map(|speed| speed.items_per_second),
        measured.speed.map(|speed| speed.overhead_seconds),
        measured.start_seconds,
        measured.end_by_ratio,
        measured.wait_seconds.map(|wait| wait.p50),
        measured.wait_seconds.map(|wait| wait.p95),
        busy_seconds,
        &job_ids as &[&str],
        &sort_keys,
        &seconds_through,
        &org_ids as &[&str],
        &org_costs
    )
    .execute(db)
    .await?;
    Ok(())
}

/// A snapshot that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredSnapshot {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// The time at which it was stored, by the database's clock.
    pub as_of: Timestamp,
    /// The time at which it was read, by the database's clock.
    pub read_at: Timestamp,
}

/// Returns the snapshot if it was stored after `known`.
pub async fn read(
    db: impl PgExecutor<'_>,
    known: Option<Timestamp>,
) -> Result<Option<StoredSnapshot>> {
    let row = sqlx::query!(
        r#"
        select
            clock_timestamp() as "read_at!: Timestamp",
            as_of as "as_of!: Timestamp",
            queued,
            running,
            slots,
            oldest_seconds,
            items_per_second,
            overhead_seconds,
            start_seconds,
            end_by_ratio,
            wait_p50,
            wait_p95,
            busy_seconds,
            job_ids as "job_ids: Vec<JobId>",
            sort_keys,
            seconds_through,
            org_ids as "org_ids: Vec<OrgId>",
            org_costs
        from queue_snapshots
        where as_of > coalesce($1::timestamptz, '-infinity')
        "#,
        known as Option<Timestamp>
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| {
        let places = row
            .job_ids
            .into_iter()
            .zip(row.sort_keys)
            .zip(row.seconds_through);
        let snapshot = Snapshot {
            queued: row.queued,
            running: row.running,
            slots: row.slots,
            oldest_seconds: row.oldest_seconds,
            measured: Measured {
                speed: row.items_per_second.zip(row.overhead_seconds).map(
                    |(items_per_second, overhead_seconds)| Speed {
                        items_per_second,
                        overhead_seconds,
                    },
                ),
                start_seconds: row.start_seconds,
                end_by_ratio: row.end_by_ratio,
                wait_seconds: row
                    .wait_p50
                    .zip(row.wait_p95)
                    .map(|(p50, p95)| WaitSeconds { p50, p95 }),
            },
            busy_seconds: row.busy_seconds,
            order: places
                .map(|((job_id, sort_key), seconds_through)| Place {
                    job_id,
                    sort_key,
                    seconds_through,
                })
                .collect(),
            costs: row.org_ids.into_iter().zip(row.org_costs).collect(),
        };
        StoredSnapshot {
            snapshot,
            as_of: row.as_of,
            read_at: row.read_at,
        }
    }))
}
