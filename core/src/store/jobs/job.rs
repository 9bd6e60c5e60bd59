//! Jobs as their organization sees them.

use std::collections::HashMap;

use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor, PgPool};

use super::allowance::{self, Use};
use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId, UploadId};
use crate::model::job::{
    FINAL_JOBS_MAX, FailureCode, JobResult, JobRow, JobStatus, JobType, SealedFigures,
};
use crate::model::metadata::Metadata;
use crate::model::suite::SuiteId;
use crate::model::timestamp::Timestamp;
use crate::store::{now, usage};

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
                        'design_effect', c.design_effect
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

/// An eval's item scores, and the conditions under which they may be read.
pub struct Feedback {
    /// The job's status.
    pub status: JobStatus,
    /// The suite that the job is scored against.
    pub suite_id: SuiteId,
    /// The version of the suite.
    pub suite_version: String,
    /// `true` if the suite's version allows reading single items' scores.
    pub per_item_feedback: bool,
    /// The version's item count.
    pub n_items: i32,
    /// The item scores, if they are stored with the job.
    pub scores_body: Option<Vec<u8>>,
    /// The item scores' object key, if they are in the artifact store.
    pub scores_key: Option<String>,
}

/// Returns the location and conditions of an organization's eval item scores.
pub async fn feedback(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    job_id: &JobId,
) -> Result<Option<Feedback>> {
    let found = sqlx::query_as!(
        Feedback,
        r#"
        select
            j.status as "status: JobStatus",
            s.suite_id as "suite_id: SuiteId",
            s.version as suite_version,
            s.per_item_feedback,
            s.n_items,
            i.body as "scores_body?",
            j.scores_key
        from jobs j
        join suites s on s.suite_id = j.suite_id and s.version = j.suite_version
        left join stored_item_scores i on i.org_id = j.org_id and i.job_id = j.id
        where j.org_id = $1
          and j.id = $2
          and j.type = 'eval'
        "#,
        org_id.as_str(),
        job_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(found)
}

/// A job's properties that a comparison needs.
#[derive(Debug, Clone)]
pub struct ComparedJob {
    /// The job's id.
    pub job_id: JobId,
    /// The job's status.
    pub status: JobStatus,
    /// The suite that the job is scored against.
    pub suite_id: SuiteId,
    /// The version of the suite.
    pub suite_version: String,
    /// The version's metric.
    pub metric: String,
    /// The version's disclosure policy.
    pub release: String,
    /// The submissions that the version permits an organization, per day and for good. `None` if
    /// unlimited.
    pub max_submissions_per_day: Option<i32>,
    #[expect(missing_docs, reason = "see max_submissions_per_day")]
    pub max_submissions: Option<i32>,
    /// Items that the scores cover: those that are not sealed.
    pub n_items: i32,
    /// `true` if the items are in clusters.
    pub is_clustered: bool,
    /// The job's score, if it succeeded.
    pub value: Option<f64>,
    /// `true` if the score has a standard error.
    pub has_stderr: bool,
    /// The item scores, if they are stored with the job.
    pub scores_body: Option<Vec<u8>>,
    /// The item scores' object key, if they are in the artifact store.
    pub scores_key: Option<String>,
}

/// Returns the jobs that are evals of the organization.
pub async fn compared(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    job_ids: [&JobId; 2],
) -> Result<Vec<ComparedJob>> {
    let ids = job_ids.map(JobId::as_str);
    let found = sqlx::query_as!(
        ComparedJob,
        r#"
        select
            j.id as "job_id: JobId",
            j.status as "status: JobStatus",
            s.suite_id as "suite_id: SuiteId",
            s.version as suite_version,
            s.metric,
            s.release,
            s.max_submissions_per_day,
            s.max_submissions,
            s.n_items - s.n_sealed as "n_items!",
            s.n_clusters is not null as "is_clustered!",
            (j.result ->> 'value')::float8 as value,
            (j.result ->> 'stderr') is not null as "has_stderr!",
            i.body as "scores_body?",
            j.scores_key
        from jobs j
        join suites s on s.suite_id = j.suite_id and s.version = j.suite_version
        left join stored_item_scores i on i.org_id = j.org_id and i.job_id = j.id
        where j.org_id = $1
          and j.id = any($2)
          and j.type = 'eval'
        "#,
        org_id.as_str(),
        &ids as &[&str]
    )
    .fetch_all(db)
    .await?;
    Ok(found)
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

/// The result when a job is marked as final.
pub enum Finalized {
    /// The job is final, now or since before.
    Done,
    /// The organization has no such job.
    Missing,
    /// The job is no eval.
    NotEval,
    /// The job has not succeeded. Carries its status.
    NotSucceeded(JobStatus),
    /// The job's suite has no sealed items.
    NotSealed,
    /// The job's suite has closed. Carries the close time.
    Closed(Timestamp),
    /// The final job limit is reached.
    Full,
}

/// Marks a job as final: its sealed figures are disclosed after its suite has closed. Idempotent.
/// `db` must be in a transaction, which the caller commits.
///
/// The database's clock decides, read after all locks are held, so that no job is marked after the
/// close.
pub async fn finalize(db: &mut PgConnection, org_id: &OrgId, job_id: &JobId) -> Result<Finalized> {
    let job = sqlx::query!(
        r#"
        select
            j.type as "type: JobType",
            j.status as "status: JobStatus",
            s.suite_id as "suite_id?: SuiteId",
            s.version as "suite_version?",
            j.final_at is not null as "is_final!",
            s.n_sealed > 0 as "is_sealed?",
            s.closes_at as "closes_at?: Timestamp",
            s.closes_at <= clock_timestamp() as is_closed
        from jobs j
        left join suites s on s.suite_id = j.suite_id and s.version = j.suite_version
        where j.org_id = $1
          and j.id = $2
        "#,
        org_id.as_str(),
        job_id.as_str()
    )
    .fetch_optional(&mut *db)
    .await?;
    let Some(job) = job else {
        return Ok(Finalized::Missing);
    };
    if job.is_final {
        return Ok(Finalized::Done);
    }
    if job.r#type != JobType::Eval {
        return Ok(Finalized::NotEval);
    }
    let (Some(suite_id), Some(suite_version), Some(true), Some(closes_at)) = (
        job.suite_id,
        job.suite_version,
        job.is_sealed,
        job.closes_at,
    ) else {
        return Ok(Finalized::NotSealed);
    };
    if job.is_closed == Some(true) {
        return Ok(Finalized::Closed(closes_at));
    }
    if job.status != JobStatus::Succeeded {
        return Ok(Finalized::NotSucceeded(job.status));
    }
    let holders = allowance::holders_since_submission(db, org_id, job_id).await?;
    allowance::lock(db, &holders, &suite_id, &suite_version).await?;
    // A concurrent call may have marked the job before this one got the lock.
    let is_final = sqlx::query_scalar!(
        r#"
        select final_at is not null as "is_final!"
        from jobs
        where org_id = $1
          and id = $2
        "#,
        org_id.as_str(),
        job_id.as_str()
    );
    if is_final.fetch_one(&mut *db).await? {
        return Ok(Finalized::Done);
    }
    let most = sqlx::query_scalar!(
        r#"
        /* all tenants: all organizations that share an allowance count towards it */
        select count(*) as "finals!"
        from suite_disclosures d
        join jobs j on j.id = d.job_id
        where d.holder = any($1)
          and d.suite_id = $2
          and d.suite_version = $3
          and d.kind = 'final'
          and j.final_at is not null
        group by d.holder
        order by 1 desc
        limit 1
        "#,
        &holders,
        suite_id.as_str(),
        suite_version
    )
    .fetch_optional(&mut *db)
    .await?;
    if most.unwrap_or(0) >= FINAL_JOBS_MAX {
        return Ok(Finalized::Full);
    }
    let done = sqlx::query!(
        "
        with present as materialized (
            select clock_timestamp() as at
        )
        update jobs j
        set final_at = p.at
        from present p
        where j.org_id = $1
          and j.id = $2
          and j.final_at is null
          and p.at < $3
        ",
        org_id.as_str(),
        job_id.as_str(),
        closes_at as Timestamp
    )
    .execute(&mut *db)
    .await?;
    if done.rows_affected() == 1 {
        // The job counts for all holders, also if they came to share an allowance after its
        // submission.
        let at = now(&mut *db).await?;
        allowance::record(
            db,
            org_id,
            &holders,
            Use::Final(job_id),
            &suite_id,
            &suite_version,
            at,
        )
        .await?;
    }
    Ok(if done.rows_affected() == 1 {
        Finalized::Done
    } else {
        Finalized::Closed(closes_at)
    })
}
