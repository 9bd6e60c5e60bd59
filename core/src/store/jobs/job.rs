//! Jobs as their organization sees them.

use std::collections::HashMap;

use sqlx::types::Json;
use sqlx::{PgExecutor, PgPool};

use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId, UploadId};
use crate::model::job::{FailureCode, JobResult, JobRow, JobStatus, JobType, SealedFigures};
use crate::model::metadata::Metadata;
use crate::model::suite::SuiteId;
use crate::model::timestamp::Timestamp;
use crate::store::usage;

/// Selects jobs as callers see them. `$rest` follows `from jobs`.
macro_rules! select_jobs {
    ($rest:literal, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            JobRow,
            r#"
            select
                id as "id: JobId",
                org_id as "org_id: OrgId",
                type as "type: JobType",
                status as "status: JobStatus",
                request_id,
                label,
                metadata as "metadata: Json<Metadata>",
                hfm_sha,
                suite_id as "suite_id: SuiteId",
                suite_version,
                model_id,
                model_version,
                eval_job_id as "eval_job_id: JobId",
                attempts,
                created_at as "created_at: Timestamp",
                started_at as "started_at: Timestamp",
                finished_at as "finished_at: Timestamp",
                final_at is not null as "is_final!",
                result as "result: Json<JobResult>",
                (
                    -- The view has no row before the suite has closed.
                    select jsonb_build_object(
                        'value', c.value,
                        'stderr', c.stderr,
                        'ci95', c.ci95,
                        'n', c.n,
                        'n_clusters', c.n_clusters,
                        'design_effect', c.design_effect,
                        'slices', c.slices,
                        'ceiling', c.ceiling,
                        'share_of_ceiling', c.share_of_ceiling,
                        'skill', c.skill
                    )
                    from closed_sealed_results c
                    where c.org_id = jobs.org_id
                      and c.job_id = jobs.id
                ) as "sealed: Json<SealedFigures>",
                case when status = 'running' then progress end as progress,
                error_code as "error_code: FailureCode",
                error_message,
                cost,
                dispatched_at is not null as "is_notified!",
                needs_job_id is not null and available_at > now() as "waits_for_job!"
            from jobs
            "# + $rest,
            $($argument),+
        )
    };
}

/// Returns jobs. Each belongs to the organization that it is paired with.
pub async fn find_all(
    db: impl PgExecutor<'_>,
    jobs: &[(OrgId, JobId)],
) -> Result<HashMap<(OrgId, JobId), JobRow>> {
    let (org_ids, job_ids): (Vec<&str>, Vec<&str>) = jobs
        .iter()
        .map(|(org_id, job_id)| (org_id.as_str(), job_id.as_str()))
        .unzip();
    let rows = select_jobs!(
        "
        -- The primary key finds them. An index on the organization would find all of its jobs.
        join unnest($1::text[], $2::text[]) as wanted(by_org, job_id) on org_id || '' = by_org and id = job_id
        ",
        &org_ids as &[&str],
        &job_ids as &[&str]
    )
    .fetch_all(db)
    .await?;
    let by_key = |row: JobRow| ((row.org_id.clone(), row.id.clone()), row);
    Ok(rows.into_iter().map(by_key).collect())
}

/// The most jobs in an organization that are searched for a request.
const SEARCHED: i64 = 100_000;

/// Returns the job that a request submitted, if it is one of the newest `SEARCHED` of the
/// organization. There is no request index, because every submission would have to maintain it.
pub async fn find_by_request(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    request_id: &str,
) -> Result<Option<JobId>> {
    let job_id = sqlx::query_scalar!(
        r#"
        select id as "id: JobId"
        from (
            select id, request_id
            from jobs
            where org_id = $1
            order by created_at desc
            limit $3
        ) newest
        where request_id = $2
        "#,
        org_id.as_str(),
        request_id,
        SEARCHED
    )
    .fetch_optional(db)
    .await?;
    Ok(job_id)
}

/// A page's jobs.
#[derive(Debug, Clone, Copy)]
pub struct Filter<'a> {
    /// Only jobs with this type.
    pub r#type: Option<JobType>,
    /// Only jobs in this status.
    pub status: Option<JobStatus>,
    /// Only jobs of this suite.
    pub suite_id: Option<&'a SuiteId>,
    /// Only jobs with this label.
    pub label: Option<&'a str>,
    /// Only jobs submitted before this time.
    pub before: Option<Timestamp>,
}

/// Returns at most `limit` of the organization's jobs, newest first. Each statement reads an index
/// in page order. The rows that it reads in vain are prediction jobs; an organization has few, or
/// some; with a label, they are jobs with this label.
pub async fn list(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    filter: Filter<'_>,
    limit: u32,
) -> Result<Vec<JobRow>> {
    let limit = i64::from(limit);
    match filter {
        Filter {
            r#type: Some(JobType::Predict),
            ..
        } => list_predictions(db, org_id, filter, limit).await,
        Filter {
            label: Some(label), ..
        } => list_with_label(db, org_id, label, filter, limit).await,
        Filter {
            suite_id: Some(suite_id),
            ..
        } => list_with_suite(db, org_id, suite_id, filter, limit).await,
        Filter {
            status: Some(status),
            ..
        } => list_with_status(db, org_id, status, filter, limit).await,
        Filter { .. } => list_all(db, org_id, filter, limit).await,
    }
}

/// Returns prediction jobs that match the whole filter.
async fn list_predictions(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    filter: Filter<'_>,
    limit: i64,
) -> Result<Vec<JobRow>> {
    let rows = select_jobs!(
        "
        where org_id = $1
          and type = 'predict'
          and ($2::text is null or status = $2)
          and created_at < coalesce($3::timestamptz, 'infinity')
          and ($5::text is null or suite_id = $5)
          and ($6::text is null or label = $6)
        order by created_at desc
        limit $4
        ",
        org_id.as_str(),
        filter.status as Option<JobStatus>,
        filter.before as Option<Timestamp>,
        limit,
        filter.suite_id.map(SuiteId::as_str),
        filter.label
    )
    .fetch_all(db)
    .await?;
    Ok(rows)
}

/// Returns jobs with a label that match the rest of the filter.
async fn list_with_label(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    label: &str,
    filter: Filter<'_>,
    limit: i64,
) -> Result<Vec<JobRow>> {
    let rows = select_jobs!(
        "
        where org_id = $1
          and label = $2
          and created_at < coalesce($3::timestamptz, 'infinity')
          and ($5::text is null or type = $5)
          and ($6::text is null or suite_id = $6)
          and ($7::text is null or status = $7)
        order by created_at desc
        limit $4
        ",
        org_id.as_str(),
        label,
        filter.before as Option<Timestamp>,
        limit,
        filter.r#type as Option<JobType>,
        filter.suite_id.map(SuiteId::as_str),
        filter.status as Option<JobStatus>
    )
    .fetch_all(db)
    .await?;
    Ok(rows)
}

/// Returns a suite's jobs with the type and the status of the filter.
///
/// One branch for each final status, because an index on the suite and the status has the page's
/// order for one status only. The index has no active jobs: of these an organization has few, and
/// each status change would cost another entry.
async fn list_with_suite(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    suite_id: &SuiteId,
    filter: Filter<'_>,
    limit: i64,
) -> Result<Vec<JobRow>> {
    let rows = select_jobs!(
        "
        join (
            select b.id as page_id
            from (
                (
                    select id, created_at
                    from jobs
                    where org_id = $1
                      and suite_id = $2
                      and status in ('queued', 'running')
                      and ($6::text is null or status = $6)
                      and created_at < coalesce($3::timestamptz, 'infinity')
                      and ($5::text is null or type = $5)
                    order by created_at desc
                    limit $4
                )
                union all
                (
                    select id, created_at
                    from jobs
                    where org_id = $1
                      and suite_id = $2
                      and status = 'succeeded'
                      and coalesce($6, 'succeeded') = 'succeeded'
                      and created_at < coalesce($3, 'infinity')
                      and ($5 is null or type = $5)
                    order by created_at desc
                    limit $4
                )
                union all
                (
                    select id, created_at
                    from jobs
                    where org_id = $1
                      and suite_id = $2
                      and status = 'failed'
                      and coalesce($6, 'failed') = 'failed'
                      and created_at < coalesce($3, 'infinity')
                      and ($5 is null or type = $5)
                    order by created_at desc
                    limit $4
                )
                union all
                (
                    select id, created_at
                    from jobs
                    where org_id = $1
                      and suite_id = $2
                      and status = 'cancelled'
                      and coalesce($6, 'cancelled') = 'cancelled'
                      and created_at < coalesce($3, 'infinity')
                      and ($5 is null or type = $5)
                    order by created_at desc
                    limit $4
                )
            ) b
            order by b.created_at desc
            limit $4
        ) page on page_id = id
        where org_id = $1
        order by created_at desc
        ",
        org_id.as_str(),
        suite_id.as_str(),
        filter.before as Option<Timestamp>,
        limit,
        filter.r#type as Option<JobType>,
        filter.status as Option<JobStatus>
    )
    .fetch_all(db)
    .await?;
    Ok(rows)
}

/// Returns jobs in a status with the type of the filter.
async fn list_with_status(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    status: JobStatus,
    filter: Filter<'_>,
    limit: i64,
) -> Result<Vec<JobRow>> {
    let rows = select_jobs!(
        "
        where org_id = $1
          and status = $2
          and created_at < coalesce($3::timestamptz, 'infinity')
          and ($5::text is null or type = $5)
        order by created_at desc
        limit $4
        ",
        org_id.as_str(),
        status as JobStatus,
        filter.before as Option<Timestamp>,
        limit,
        filter.r#type as Option<JobType>
    )
    .fetch_all(db)
    .await?;
    Ok(rows)
}

/// Returns jobs with the type of the filter.
async fn list_all(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    filter: Filter<'_>,
    limit: i64,
) -> Result<Vec<JobRow>> {
    let rows = select_jobs!(
        "
        where org_id = $1
          and created_at < coalesce($2::timestamptz, 'infinity')
          and ($4::text is null or type = $4)
        order by created_at desc
        limit $3
        ",
        org_id.as_str(),
        filter.before as Option<Timestamp>,
        limit,
        filter.r#type as Option<JobType>
    )
    .fetch_all(db)
    .await?;
    Ok(rows)
}

/// A prediction job's output, and the job's state.
pub struct OutputRow {
    /// The type of the job.
    pub r#type: JobType,
    /// The job's status.
    pub status: JobStatus,
    /// The upload id that the output is.
    pub upload_id: Option<UploadId>,
    /// `true` if the upload is ready, and neither deleted nor expired.
    pub is_stored: bool,
    /// The size of the output.
    pub bytes: Option<i64>,
    /// The SHA-256 of the output, 64 lower-case hex digits.
    pub sha256: Option<String>,
}

/// Returns the output of an organization's job.
pub async fn output(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    job_id: &JobId,
) -> Result<Option<OutputRow>> {
    let row = sqlx::query_as!(
        OutputRow,
        r#"
        select
            j.type as "type: JobType",
            j.status as "status: JobStatus",
            j.output_upload_id as "upload_id: UploadId",
            coalesce(
                u.status = 'ready' and u.deleted_at is null and u.expires_at > now(),
                false
            ) as "is_stored!",
            u.bytes as "bytes?",
            u.sha256 as "sha256?"
        from jobs j
        left join uploads u on u.org_id = j.org_id and u.id = j.output_upload_id
        where j.org_id = $1
          and j.id = $2
        "#,
        org_id.as_str(),
        job_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(row)
}

/// Cancels a queued or running job. Refunds the charge if no attempt ever started. Returns `false`
/// if the organization has no such job, or if it is in a terminal state.
pub async fn cancel(pool: &PgPool, org_id: &OrgId, job_id: &JobId) -> Result<bool> {
    let mut transaction = pool.begin().await?;
    let attempts = sqlx::query_scalar!(
        "
        with done as (
            update jobs
            set
                status = 'cancelled',
                finished_at = clock_timestamp(),
                worker_id = null,
                deadline_at = null
            where org_id = $1
              and id = $2
              and status in ('queued', 'running')
            returning id, attempts
        ), ended as (
            update job_attempts a
            set
                ended_at = clock_timestamp(),
                outcome = 'cancelled'
            from done d
            where a.job_id = d.id
              and a.attempt = d.attempts
              and a.ended_at is null
        )
        select attempts
        from done
        ",
        org_id.as_str(),
        job_id.as_str()
    )
    .fetch_optional(&mut *transaction)
    .await?;
    if attempts == Some(0) {
        usage::refund(&mut transaction, &[job_id.as_str()]).await?;
    }
    transaction.commit().await?;
    Ok(attempts.is_some())
}
