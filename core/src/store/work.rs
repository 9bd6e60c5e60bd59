//! The workers' statements. They act for all organizations; a job is fenced by the number of its attempt.

use std::time::Duration;

use serde::Serialize;
use sqlx::types::Json;
use sqlx::{PgExecutor, PgPool};

use super::dispatch;
use crate::model::error::{Error, Result};
use crate::model::ids::{JobId, OrgId, UploadId, WorkerId};
use crate::model::job::{ATTEMPTS_MAX, EvalResult, FailureCode, ITEM_SCORES_DAYS, SealedFigures};
use crate::model::suite::SuiteId;
use crate::model::timestamp::Timestamp;
use crate::model::upload::{ContentEncoding, ContentType};
use crate::runtime::trace_export::SpanContext;
use crate::runtime::upload_reader::PartObject;
use assay_eval::{Answer, Clip, DisclosurePolicy, Metric, Scoring};

/// How long an attempt may take.
pub const DEADLINE: Duration = Duration::from_secs(15 * 60);

/// Renews a process's lease.
pub async fn renew_lease(db: impl PgExecutor<'_>, worker_id: &WorkerId) -> Result<()> {
    sqlx::query!("insert into workers (id, seen_at) values ($1, now()) on conflict (id) do update set seen_at = now()", worker_id.as_str())
        .execute(db)
        .await?;
    Ok(())
}

/// Gives up what the process holds by the database's account and not by its own: a claim whose answer was lost, or an
/// end that could not be written. A claim of the last moments may just not have arrived. The next sweep takes it back,
/// by the rules for all that is taken back.
pub async fn orphan_unknown_claims(
    db: impl PgExecutor<'_>,
    worker_id: &WorkerId,
    held: &[&str],
) -> Result<u64> {
    let done = sqlx::query!(
        "update jobs set worker_id = 'nobody'
         where status = 'running' and worker_id = $1 and started_at < now() - $3::float8 * interval '1 second' and id <> all($2)",
        worker_id.as_str(),
        held as &[&str],
        dispatch::LEASE.as_secs_f64()
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}

/// Ends a process's lease: what it still holds is taken back by the next sweep.
pub async fn delete_lease(db: impl PgExecutor<'_>, worker_id: &WorkerId) -> Result<()> {
    sqlx::query!("delete from workers where id = $1", worker_id.as_str())
        .execute(db)
        .await?;
    Ok(())
}

/// A job in a worker's hands.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The job.
    pub job_id: JobId,
    /// Whose it is.
    pub org_id: OrgId,
    /// The number of this attempt: the fence of all that it writes.
    pub attempt: i32,
    /// The suite.
    pub suite_id: SuiteId,
    /// The version that the job keeps.
    pub suite_version: String,
    /// Where the submission is kept, if it came inline.
    pub input_key: Option<String>,
    /// The upload that it is, otherwise.
    pub upload_id: Option<UploadId>,
    /// How many predictions it has.
    pub n_submitted: i64,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// Since when it waited: then, or when its last attempt ended.
    pub waited_since: Timestamp,
    /// When this attempt began, by the database's clock.
    pub started_at: Timestamp,
    /// The trace that it belongs to, 32 hex digits.
    pub trace_id: String,
    /// The span in whose name it was stored, 16 hex digits.
    pub span_id: Option<String>,
}

impl Claim {
    /// Its span_context in its trace.
    pub fn span_context(&self) -> Option<SpanContext> {
        SpanContext::read(&self.trace_id, self.span_id.as_deref()?)
    }
}

/// Claims a waiting job whose bell was heard. `None` when it does not wait any more.
pub async fn claim(
    db: impl PgExecutor<'_>,
    worker_id: &WorkerId,
    job_id: &JobId,
) -> Result<Option<Claim>> {
    begin(db, worker_id, Some(job_id)).await
}

/// Claims the job that waits longest, of those whose bell should have been heard by now.
pub async fn claim_next(db: impl PgExecutor<'_>, worker_id: &WorkerId) -> Result<Option<Claim>> {
    begin(db, worker_id, None).await
}

async fn begin(
    db: impl PgExecutor<'_>,
    worker_id: &WorkerId,
    job_id: Option<&JobId>,
) -> Result<Option<Claim>> {
    let claim = sqlx::query_as!(
        Claim,
        r#"with claimed as (
             update jobs set status = 'running', attempts = attempts + 1, started_at = clock_timestamp(), worker_id = $1, progress = 0,
                    deadline_at = clock_timestamp() + $3::float8 * interval '1 second'
             where id = coalesce($2, (
                 select id from jobs where status = 'queued' and available_at <= now() - interval '1 second'
                     and org_id <> all(array(select o.id from orgs o where o.suspended_at is not null))
                 order by available_at, created_at limit 1 for update skip locked
             )) and status = 'queued' and available_at <= now() and attempts < $4
               and org_id <> all(array(select o.id from orgs o where o.suspended_at is not null))
             returning *
         ), noted as (
             insert into job_attempts (org_id, job_id, attempt, worker_id, started_at)
             select org_id, id, attempts, $1, started_at from claimed
         )
         select id as "job_id: JobId", org_id as "org_id: OrgId", attempts as attempt, suite_id as "suite_id: SuiteId", suite_version,
                input_key, upload_id as "upload_id: UploadId", n_submitted, created_at as "created_at: Timestamp", started_at as "started_at!: Timestamp", trace_id, span_id,
                coalesce((select max(a.ended_at) from job_attempts a where a.job_id = claimed.id), created_at) as "waited_since!: Timestamp"
         from claimed"#,
        worker_id.as_str(),
        job_id.map(JobId::as_str),
        DEADLINE.as_secs_f64(),
        ATTEMPTS_MAX
    )
    .fetch_optional(db)
    .await?;
    Ok(claim)
}

/// Whether an attempt still holds its job. If so, its progress is noted where there is some.
pub async fn owns_job(db: impl PgExecutor<'_>, claim: &Claim, progress: f64) -> Result<bool> {
    let holds = sqlx::query_scalar!(
        r#"with held as (
             select id from jobs where id = $1 and status = 'running' and attempts = $2
         ), noted as (
             update jobs set progress = $3 where id = $1 and status = 'running' and attempts = $2 and progress < $3
         )
         select exists(select from held) as "holds!""#,
        claim.job_id.as_str(),
        claim.attempt,
        progress
    )
    .fetch_one(db)
    .await?;
    Ok(holds)
}

/// How an upload is written.
pub struct UploadForm {
    /// The form of the predictions.
    pub content_type: ContentType,
    /// How they are compressed.
    pub content_encoding: ContentEncoding,
}

/// How a job's upload is written, and its parts by number.
pub async fn upload(
    db: &PgPool,
    claim: &Claim,
    upload_id: &UploadId,
) -> Result<(UploadForm, Vec<PartObject>)> {
    let form = sqlx::query_as!(
        UploadForm,
        r#"select content_type as "content_type: ContentType", content_encoding as "content_encoding: ContentEncoding"
           from uploads where org_id = $1 and id = $2"#,
        claim.org_id.as_str(),
        upload_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok((
        form,
        super::upload::part_objects(db, &claim.org_id, upload_id).await?,
    ))
}

/// A part of an attempt, as offsets from its start in microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Phase {
    /// What was done.
    pub name: &'static str,
    /// When it began.
    pub start_us: i64,
    /// When it ended.
    pub end_us: i64,
}

/// Ends a job with its result, as it is released, and, if they were kept, the name of its items' scores. `false`: the attempt was fenced
/// out, and nothing was written.
pub async fn succeed(
    db: impl PgExecutor<'_>,
    claim: &Claim,
    result: &EvalResult,
    scores_key: Option<&str>,
    phases: &[Phase],
) -> Result<bool> {
    let done = sqlx::query!(
        "with done as (
             update jobs set status = 'succeeded', result = $3, scores_key = $5, finished_at = clock_timestamp(),
                    worker_id = null, deadline_at = null
             where id = $1 and status = 'running' and attempts = $2
             returning id, org_id, attempts, finished_at
         ), stored as (
             insert into stored_item_scores (org_id, job_id, scores_key, expires_at)
             select org_id, id, $5, finished_at + $6::integer * interval '1 day' from done where $5 is not null
         )
         update job_attempts a set ended_at = clock_timestamp(), outcome = 'succeeded', phases = $4
         from done d where a.job_id = d.id and a.attempt = d.attempts",
        claim.job_id.as_str(),
        claim.attempt,
        Json(result) as _,
        Json(phases) as _,
        scores_key,
        ITEM_SCORES_DAYS
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Ends a job with the figures of its open items, and stores those of the sealed ones where only workers can read them.
/// Returns `false` if the attempt was fenced: then nothing is written.
pub async fn succeed_with_sealed(
    pool: &PgPool,
    claim: &Claim,
    result: &EvalResult,
    sealed: &SealedFigures,
    scores_key: Option<&str>,
    phases: &[Phase],
) -> Result<bool> {
    let mut transaction = pool.begin().await?;
    let done = succeed(&mut *transaction, claim, result, scores_key, phases).await?;
    if done {
        sqlx::query!(
            "insert into sealed_results (org_id, job_id, suite_id, suite_version, n, value, stderr, ci95)
             values ($1, $2, $3, $4, $5, $6, $7, $8)",
            claim.org_id.as_str(),
            claim.job_id.as_str(),
            claim.suite_id.as_str(),
            claim.suite_version,
            i32::try_from(sealed.n).unwrap_or(i32::MAX),
            sealed.value,
            sealed.stderr,
            sealed.ci95.map(Vec::from) as _
        )
        .execute(&mut *transaction)
        .await?;
    }
    transaction.commit().await?;
    Ok(done)
}

/// Ends a job with an error. When the fault is ours, the charge is given back. `false`: the attempt was fenced out.
pub async fn fail(
    pool: &PgPool,
    claim: &Claim,
    code: FailureCode,
    message: &str,
    phases: &[Phase],
) -> Result<bool> {
    let outcome = if code == FailureCode::Timeout {
        "timeout"
    } else {
        "failed"
    };
    let mut transaction = pool.begin().await?;
    let done = sqlx::query!(
        "with done as (
             update jobs set status = 'failed', error_code = $3, error_message = $4, finished_at = clock_timestamp(),
                    worker_id = null, deadline_at = null
             where id = $1 and status = 'running' and attempts = $2
             returning id, attempts
         )
         update job_attempts a set ended_at = clock_timestamp(), outcome = $5, phases = $6
         from done d where a.job_id = d.id and a.attempt = d.attempts",
        claim.job_id.as_str(),
        claim.attempt,
        code as FailureCode,
        message,
        outcome,
        Json(phases) as _
    )
    .execute(&mut *transaction)
    .await?;
    if done.rows_affected() == 1 && code.is_ours() {
        dispatch::refund(&mut transaction, &[claim.job_id.as_str()]).await?;
    }
    transaction.commit().await?;
    Ok(done.rows_affected() == 1)
}

/// Puts a job back to wait, or fails it with `code` when no try is left. Each try waits longer for the next: 1 s, 8 s,
/// 64 s, which what is broken may need to be mended. `false`: the attempt was fenced out.
pub async fn requeue(
    pool: &PgPool,
    claim: &Claim,
    code: FailureCode,
    message: &str,
    phases: &[Phase],
) -> Result<bool> {
    if claim.attempt >= ATTEMPTS_MAX {
        return fail(pool, claim, code, message, phases).await;
    }
    let outcome = if code == FailureCode::Timeout {
        "timeout"
    } else {
        "released"
    };
    let done = sqlx::query!(
        "with done as (
             update jobs set status = 'queued', started_at = null, worker_id = null, deadline_at = null, dispatched_at = null,
                    available_at = clock_timestamp() + interval '1 second' * power(8, $2::integer - 1)
             where id = $1 and status = 'running' and attempts = $2
             returning id, attempts
         )
         update job_attempts a set ended_at = clock_timestamp(), outcome = $3, phases = $4
         from done d where a.job_id = d.id and a.attempt = d.attempts",
        claim.job_id.as_str(),
        claim.attempt,
        outcome,
        Json(phases) as _
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// What a worker needs to know of a suite's version.
pub struct SuiteScoring {
    /// How it is scored and disclosed.
    pub scoring: Scoring,
    /// Number of items, open and sealed.
    pub n_items: usize,
    /// Number of sealed items.
    pub n_sealed: usize,
}

/// How a suite's version is scored and disclosed.
pub async fn scoring(
    db: impl PgExecutor<'_>,
    suite_id: &SuiteId,
    version: &str,
) -> Result<SuiteScoring> {
    let suite = sqlx::query!(
        "select metric, release, clip, ladder_start, ladder_step, ladder_levels, n_items, n_sealed
         from suites where suite_id = $1 and version = $2",
        suite_id.as_str(),
        version
    )
    .fetch_one(db)
    .await?;
    let (metric, policy) = (
        Metric::published(&suite.metric)?,
        DisclosurePolicy::published(&suite.release)?,
    );
    let clip = match suite.clip.as_deref() {
        Some([low, high]) => Clip::new(*low, *high),
        _ => None,
    };
    let ladder = super::suite::ladder(suite.ladder_start, suite.ladder_step, suite.ladder_levels);
    let count = |count: i32| usize::try_from(count).unwrap_or(0);
    let (n_items, n_sealed) = (count(suite.n_items), count(suite.n_sealed));
    Ok(SuiteScoring {
        scoring: Scoring {
            metric,
            clip,
            policy,
            ladder,
        },
        n_items,
        n_sealed,
    })
}

/// How long the next answer may take. All jobs of the suite in the process wait for the answers, so that a connection that is
/// dead without having been closed must not hold them until their deadline.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The answers of a suite's version in the order of publication, each given to `each` as it arrives, with
/// whether its item is sealed.
pub async fn answers(
    db: impl PgExecutor<'_>,
    suite_id: &SuiteId,
    version: &str,
    metric: Metric,
    mut each: impl FnMut(&str, &Answer<'_>, bool) -> Result<()>,
) -> Result<()> {
    use futures_util::TryStreamExt as _;

    let mut rows = sqlx::query!(
        r#"select item_id, answer::text as "answer!", sealed from suite_answers where suite_id = $1 and version = $2 order by ordinal"#,
        suite_id.as_str(),
        version
    )
    .fetch(db);
    while let Some(row) = tokio::time::timeout(ANSWER_TIMEOUT, rows.try_next())
        .await
        .map_err(Error::unavailable)??
    {
        // The message of a bad answer may quote it, so it goes nowhere.
        let answer = Answer::parse(&row.answer, &metric).map_err(|_| {
            Error::internal("a published suite has an answer that does not fit its metric")
        })?;
        each(&row.item_id, &answer, row.sealed)?;
    }
    Ok(())
}
