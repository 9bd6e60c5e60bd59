//! Submission of a job: the statements of one transaction, in the order of their use.
//!
//! This module also decides quotas, as an exception to the rule that `store` only returns what it
//! finds. A submission is one transaction, which locks the organization's row first. The checks are
//! exact only under that lock, and the job, its charge and its allowance must be stored together or
//! not at all.

use super::allowance::{self, Decision, Use};
use super::leases::ATTEMPT_TIMEOUT;
use super::{PgConnection, storage, upload, usage};
use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId, UploadId};
use crate::model::job::{ATTEMPTS_MAX, FailureCode, JobRow, JobStatus, JobType};
use crate::model::org::Plan;
use crate::model::span_context::{SpanContext, SpanId};
use crate::model::suite::{Allowance, SuiteId};
use crate::model::timestamp::Timestamp;

/// The columns of a new job, and the inputs of its checks.
pub struct NewJob<'a> {
    /// The job's id, made by the caller.
    pub id: &'a JobId,
    /// The id of the request that creates it.
    pub request_id: &'a str,
    /// The caller's label of the job.
    pub label: Option<&'a str>,
    /// The build of the scoring library.
    pub hfm_sha: &'a str,
    /// The suite that it is scored against.
    pub suite_id: &'a SuiteId,
    /// The current version of the suite, which the job keeps.
    pub suite_version: &'a str,
    /// The object key of inline predictions.
    pub input_key: Option<&'a str>,
    /// The upload, if the predictions are not inline.
    pub upload_id: Option<&'a UploadId>,
    /// Number of predictions.
    pub n_submitted: i64,
    /// Number of items that the job is charged for.
    pub charged_items: i64,
    /// The suite's allowance, if it counts or shares submissions.
    pub allowance: Option<Allowance<'a>>,
    /// The caller's idempotency key, if any.
    pub idempotency_key: Option<&'a str>,
    /// The digest of the request that the idempotency key stands for.
    pub request_sha256: &'a [u8],
    /// Microseconds since the start of the request.
    pub elapsed_us: i64,
    /// The span that stores the job.
    pub stored_as: SpanContext,
    /// Set if the trace is exported. Otherwise the row does not name the span, and workers export
    /// no spans of the job.
    pub is_exported: bool,
    /// The client's span, if it sent one.
    pub client_span: Option<SpanId>,
}

/// The result of a submission. Everything but `Accepted` creates no job and charges nothing.
pub enum Submitted {
    /// A new job.
    Accepted(Box<JobRow>),
    /// The idempotency key belongs to an earlier job.
    Repeated {
        /// The earlier job.
        job_id: JobId,
        /// The digest of the earlier request.
        request_sha256: Vec<u8>,
    },
    /// The upload was deleted or has expired.
    UploadGone,
    /// Cleanup abandoned the submission before it was stored.
    Abandoned,
    /// The organization's storage quota is used up.
    StorageFull {
        /// Bytes that the organization stores.
        used: i64,
        /// The latest time at which space becomes free.
        resets_at: Timestamp,
        /// Seconds until `resets_at`.
        seconds: u32,
    },
    /// The suite's submissions of the day are used up.
    DayFull {
        /// Submissions per day.
        max: i64,
        /// The start of the next day (UTC).
        resets_at: Timestamp,
        /// Seconds until `resets_at`.
        seconds: u32,
    },
    /// The submissions that the suite's version permits are used up for good.
    SuiteUsedUp {
        /// Submissions for the version.
        max: i64,
    },
    /// The limit of active jobs is reached.
    JobsFull {
        /// Active jobs of the organization.
        active: i64,
        /// The latest time at which the oldest of them ends.
        resets_at: Timestamp,
    },
    /// The items left for the month do not suffice.
    MonthFull {
        /// The start of the next month (UTC).
        resets_at: Timestamp,
        /// Seconds until `resets_at`.
        seconds: u32,
    },
}

/// Returns the job of an organization's idempotency key, with the digest of its request.
pub async fn repeated(
    db: impl sqlx::PgExecutor<'_>,
    org_id: &OrgId,
    key: &str,
) -> Result<Option<(JobId, Vec<u8>)>> {
    let row = sqlx::query!(
        r#"
        select
            id as "id: JobId",
            request_sha256
        from jobs
        where org_id = $1
          and idempotency_key = $2
        "#,
        org_id.as_str(),
        key
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| (row.id, row.request_sha256)))
}

/// Checks the limits of a submission and records its predictions, before they are written to the
/// artifact store. The caller commits if it returns `None`, and rolls back otherwise.
///
/// Only the stored bytes are checked exactly. The other limits are read without locks, so that most
/// rejected submissions cost no write. [`submit`] checks them exactly.
pub async fn reserve(
    db: &mut PgConnection,
    org_id: &OrgId,
    plan: &Plan,
    new: &NewJob<'_>,
    bytes: i64,
) -> Result<Option<Submitted>> {
    let at = super::now(&mut *db).await?;
    if let Some(allowance) = &new.allowance {
        let holders = allowance::holders(db, org_id).await?;
        match allowance::decide(db, holders, allowance, at).await? {
            Decision::UsedUp { max } => return Ok(Some(Submitted::SuiteUsedUp { max })),
            Decision::DayUsedUp { max, resets_at } => {
                return Ok(Some(Submitted::DayFull {
                    max,
                    resets_at,
                    seconds: at.seconds_until(resets_at),
                }));
            }
            Decision::Granted(_) => {}
        }
    }
    let (active, resets_at) = active(db, org_id).await?;
    if active >= plan.concurrent_jobs {
        return Ok(Some(Submitted::JobsFull { active, resets_at }));
    }
    if !usage::fits(
        &mut *db,
        org_id,
        new.charged_items,
        at,
        plan.eval_items_per_month,
    )
    .await?
    {
        let resets_at = usage::next_month(db, at).await?;
        return Ok(Some(Submitted::MonthFull {
            resets_at,
            seconds: at.seconds_until(resets_at),
        }));
    }
    storage::reserve(db, org_id, new.id, bytes).await?;
    let used = storage::used(&mut *db, org_id).await?;
    if used > plan.storage_bytes {
        let (resets_at, seconds) = storage::frees_at(db, org_id).await?;
        return Ok(Some(Submitted::StorageFull {
            used: used - bytes,
            resets_at,
            seconds,
        }));
    }
    Ok(None)
}

/// Stores the job and its charge, or neither. The caller commits if it is accepted, and rolls back
/// otherwise.
pub async fn submit(
    db: &mut PgConnection,
    org_id: &OrgId,
    plan: &Plan,
    new: &NewJob<'_>,
) -> Result<Submitted> {
    // The lock serializes the submissions of the organization. The following checks are separate
    // statements, because a statement that waited for the lock would still see the snapshot from
    // before the wait.
    let created_at = lock(db, org_id).await?;
    let Some(job) = insert(db, org_id, new, created_at).await? else {
        let key = new.idempotency_key.unwrap_or_default();
        let found = repeated(db, org_id, key).await?;
        let (job_id, request_sha256) = found.ok_or_else(|| {
            crate::model::error::Error::internal("the job of a repeated idempotency key is gone")
        })?;
        return Ok(Submitted::Repeated {
            job_id,
            request_sha256,
        });
    };
    if let Some(upload_id) = new.upload_id
        && !upload::lock_usable(db, org_id, upload_id).await?
    {
        return Ok(Submitted::UploadGone);
    }
    if new.input_key.is_some() && !storage::accept(db, org_id, new.id).await? {
        return Ok(Submitted::Abandoned);
    }
    if let Some(allowance) = &new.allowance {
        match allowance::permit(db, org_id, allowance, created_at).await? {
            Decision::UsedUp { max } => return Ok(Submitted::SuiteUsedUp { max }),
            Decision::DayUsedUp { max, resets_at } => {
                return Ok(Submitted::DayFull {
                    max,
                    resets_at,
                    seconds: created_at.seconds_until(resets_at),
                });
            }
            Decision::Granted(holders) => {
                let suite_id = new.suite_id;
                let version = new.suite_version;
                allowance::record(
                    db,
                    org_id,
                    &holders,
                    Use::Submission(new.id),
                    suite_id,
                    version,
                    created_at,
                )
                .await?;
            }
        }
    }
    let (active, resets_at) = active(db, org_id).await?;
    if active > plan.concurrent_jobs {
        return Ok(Submitted::JobsFull {
            active: active - 1,
            resets_at,
        });
    }
    if !usage::charge(
        db,
        org_id,
        new.id,
        new.charged_items,
        created_at,
        plan.eval_items_per_month,
    )
    .await?
    {
        let resets_at = usage::next_month(db, created_at).await?;
        return Ok(Submitted::MonthFull {
            resets_at,
            seconds: created_at.seconds_until(resets_at),
        });
    }
    Ok(Submitted::Accepted(Box::new(job)))
}

/// Locks the organization's submissions, and returns the timestamp of the new job. It is later than
/// that of every earlier job of the organization.
async fn lock(db: &mut PgConnection, org_id: &OrgId) -> Result<Timestamp> {
    let at = sqlx::query_scalar!(
        r#"
        insert into org_submissions as s (org_id, last_created_at)
        values ($1, clock_timestamp())
        on conflict (org_id) do update
            set last_created_at = greatest(
                clock_timestamp(),
                s.last_created_at + interval '1 microsecond'
            )
        returning last_created_at as "at: Timestamp"
        "#,
        org_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok(at)
}

async fn insert(
    db: &mut PgConnection,
    org_id: &OrgId,
    new: &NewJob<'_>,
    created_at: Timestamp,
) -> Result<Option<JobRow>> {
    let NewJob {
        id,
        request_id,
        label,
        hfm_sha,
        suite_id,
        suite_version,
        input_key,
        upload_id,
        n_submitted,
        charged_items: _,
        allowance: _,
        idempotency_key,
        request_sha256,
        elapsed_us,
        stored_as,
        is_exported,
        client_span,
    } = new;
    let row = sqlx::query_as!(
        JobRow,
        r#"
        insert into jobs (
            id,
            org_id,
            type,
            request_id,
            label,
            hfm_sha,
            suite_id,
            suite_version,
            input_key,
            n_submitted,
            idempotency_key,
            request_sha256,
            created_at,
            available_at,
            requested_at,
            trace_id,
            parent_span_id,
            upload_id,
            span_id
        )
        values (
            $2,
            $1,
            'eval',
            $3,
            $4,
            $5,
            $6,
            $7,
            $8,
            $9,
            $10,
            $11,
            $12::timestamptz,
            $12,
            $12 - $13::bigint * interval '1 microsecond',
            $14,
            $15,
            $16,
            $17
        )
        on conflict (org_id, idempotency_key) where idempotency_key is not null do nothing
        returning
            id as "id: JobId",
            org_id as "org_id: OrgId",
            type as "type: JobType",
            status as "status: JobStatus",
            request_id,
            label,
            hfm_sha,
            suite_id as "suite_id: SuiteId",
            suite_version,
            attempts,
            created_at as "created_at: Timestamp",
            started_at as "started_at: Timestamp",
            finished_at as "finished_at: Timestamp",
            false as "is_final!",
            result as "result: _",
            null::jsonb as "sealed: _",
            case when status = 'running' then progress end as progress,
            error_code as "error_code: FailureCode",
            error_message
        "#,
        org_id.as_str(),
        id.as_str(),
        request_id,
        *label,
        hfm_sha,
        suite_id.as_str(),
        suite_version,
        *input_key,
        n_submitted,
        *idempotency_key,
        request_sha256,
        created_at as Timestamp,
        elapsed_us,
        stored_as.trace_id.to_string(),
        client_span.map(|span| span.to_string()),
        upload_id.map(UploadId::as_str),
        is_exported.then(|| stored_as.span_id.to_string())
    )
    .fetch_optional(db)
    .await?;
    Ok(row)
}

/// Returns the number of active jobs of the organization, and the latest time at which the oldest
/// of them finishes: all attempts that are left, each at its full length. Without active jobs that
/// is now.
async fn active(db: &mut PgConnection, org_id: &OrgId) -> Result<(i64, Timestamp)> {
    let row = sqlx::query!(
        r#"
        select
            count(*) as "active!",
            coalesce(
                -- Attempts that are left, with the running one, each at its full length.
                (
                    array_agg(
                        coalesce(started_at, now())
                        + $2::float8 * interval '1 second'
                        * ($3 - attempts + (status = 'running')::integer)
                        order by created_at
                    )
                )[1],
                now()
            ) as "resets_at!: Timestamp"
        from jobs
        where org_id = $1
          and status in ('queued', 'running')
        "#,
        org_id.as_str(),
        ATTEMPT_TIMEOUT.as_secs_f64(),
        ATTEMPTS_MAX
    )
    .fetch_one(db)
    .await?;
    Ok((row.active, row.resets_at))
}
