//! An attempt's statements. The attempt number is the fencing token: every write by an attempt is
//! conditional on it.
//!
//! They change jobs by their ids. `status || ''` keeps the planner from scanning an index on the
//! status instead, which seems small when few jobs have the status.

use std::time::Duration;

use serde::Serialize;
use sqlx::types::Json;
use sqlx::{PgExecutor, PgPool};

use super::allowance_holders::named_holders;
use super::item_scores::ItemScoresIn;
use super::leases::ATTEMPT_TIMEOUT;
use crate::model::ceiling::{Ceiling, ShareOfCeiling};
use crate::model::error::{Error, Result};
use crate::model::ids::{JobId, OrgId, UploadId, WorkerId};
use crate::model::job::{ATTEMPTS_MAX, EvalResult, FailureCode, ITEM_SCORES_DAYS, JobType};
use crate::model::prediction::{OUTPUT_DAYS, PredictResult};
use crate::model::receipt::NewReceipt;
use crate::model::served_model::ServedModel;
use crate::model::serving::PredictOptions;
use crate::model::skill::{Skill, SuiteSkill};
use crate::model::slices::{FieldSlices, StoredSlices};
use crate::model::span_context::SpanContext;
use crate::model::suite::{NamedVersion, SuiteId};
use crate::model::timestamp::Timestamp;
use crate::model::upload::PartObject;
use crate::model::upload::{ContentEncoding, ContentType, UploadKind};
use crate::store::{PgConnection, suite, upload, usage};
use assay_eval::clusters::Average;
use assay_eval::score::{Figures, Sealed};
use assay_eval::skill::SkillBaseline;
use assay_eval::suite::SequencePaths;
use assay_eval::{Answer, Clip, DisclosurePolicy, Metric, QuantileLevels, SCORER, Scoring};

/// The time that a job waits for its notification before a worker that polls claims it.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(1);

/// The time without a dispatcher that can send notifications after which workers that poll choose
/// among all waiting jobs.
const NOTIFIER_TIMEOUT: Duration = Duration::from_secs(2);

/// The wait after a job's first attempt. Each further wait is longer by
/// `RETRY_DELAY_FACTOR`.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The ratio between consecutive waits.
const RETRY_DELAY_FACTOR: f64 = 8.0;

/// A job claimed by a worker.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The job's id.
    pub job_id: JobId,
    /// The job's organization.
    pub org_id: OrgId,
    /// This attempt's number, which fences all its writes.
    pub attempt: i32,
    /// The work.
    pub task: ClaimedTask,
    /// The predictions or sequences, if they are stored with the job.
    pub body: Option<Vec<u8>>,
    /// The object key for other inline predictions or sequences.
    pub input_key: Option<String>,
    /// The upload, if the predictions or sequences are not inline.
    pub upload_id: Option<UploadId>,
    /// Prediction or sequence count.
    pub n_submitted: i64,
    /// The submission's time.
    pub created_at: Timestamp,
    /// The start of the current wait: the submission, or the last attempt's end.
    pub waited_since: Timestamp,
    /// This attempt's start, by the database's clock.
    pub started_at: Timestamp,
    /// The job trace's id, 32 hex digits.
    pub trace_id: String,
    /// The span id that stored the job, 16 hex digits. `None` if the trace is not exported.
    pub span_id: Option<String>,
    /// The holders whose allowances the submission uses, sorted.
    pub holders: Vec<String>,
    /// `true` if one of them is a holder of the publisher's allowances, too, or the publisher's creator.
    /// `None` if the suite is the operator's.
    pub by_publisher: Option<bool>,
    /// `true` if the operator has removed the suite's version. There is nothing to score or to predict.
    pub is_suite_removed: bool,
}

/// A claimed job's work.
#[derive(Debug, Clone)]
pub enum ClaimedTask {
    /// To score predictions for this suite version.
    Eval(NamedVersion),
    /// To rank items for sequences.
    Predict(Box<ClaimedPrediction>),
}

/// A claimed prediction job's work.
#[derive(Debug, Clone)]
pub struct ClaimedPrediction {
    /// The model.
    pub model: ServedModel,
    /// The options of the operation.
    pub options: PredictOptions,
    /// The suite version whose items are the input, if there is one.
    pub suite: Option<NamedVersion>,
    /// The upload id that the output becomes.
    pub output_upload_id: UploadId,
    /// The eval that waits for the output.
    pub eval_job_id: Option<JobId>,
}

impl Claim {
    /// Returns the job's type.
    pub const fn job_type(&self) -> JobType {
        match self.task {
            ClaimedTask::Eval(_) => JobType::Eval,
            ClaimedTask::Predict(_) => JobType::Predict,
        }
    }

    /// Returns an eval's suite.
    ///
    /// # Errors
    /// If the job is not an eval.
    pub fn suite(&self) -> Result<&NamedVersion> {
        match &self.task {
            ClaimedTask::Eval(suite) => Ok(suite),
            ClaimedTask::Predict(_) => Err(Error::internal("a prediction job is not scored")),
        }
    }

    /// Returns the context for the span that stored the job.
    pub fn span_context(&self) -> Option<SpanContext> {
        SpanContext::read(&self.trace_id, self.span_id.as_deref()?)
    }
}

/// Claims a queued job. Returns `None` if it is no longer queued.
pub async fn claim(
    db: impl PgExecutor<'_>,
    worker_id: &WorkerId,
    job_id: &JobId,
) -> Result<Option<Claim>> {
    let claims = claim_all(db, worker_id, std::slice::from_ref(job_id)).await?;
    Ok(claims.into_iter().next())
}

/// Claims jobs after their notification: those that are still queued.
pub async fn claim_all(
    db: impl PgExecutor<'_>,
    worker_id: &WorkerId,
    job_ids: &[JobId],
) -> Result<Vec<Claim>> {
    let job_ids: Vec<&str> = job_ids.iter().map(JobId::as_str).collect();
    claim_jobs(db, worker_id, Some(&job_ids)).await
}

/// Claims the longest-waiting job among those whose notification was sent at least
/// `NOTIFICATION_TIMEOUT` ago. If no dispatcher could send notifications within `NOTIFIER_TIMEOUT`,
/// claims the longest-waiting job overall.
pub async fn claim_next(db: impl PgExecutor<'_>, worker_id: &WorkerId) -> Result<Option<Claim>> {
    let claims = claim_jobs(db, worker_id, None).await?;
    Ok(claims.into_iter().next())
}

async fn claim_jobs(
    db: impl PgExecutor<'_>,
    worker_id: &WorkerId,
    job_ids: Option<&[&str]>,
) -> Result<Vec<Claim>> {
    let claims = sqlx::query!(
        r#"
        /* all tenants: a worker runs jobs of every organization */
        with claimed as (
            update jobs
            set
                status = 'running',
                attempts = attempts + 1,
                started_at = clock_timestamp(),
                worker_id = $1,
                progress = 0,
                deadline_at = clock_timestamp() + $3::float8 * interval '1 second'
            where id = any(coalesce(
                $2::text[],
                -- Without ids: the longest-waiting job whose notification is late. While no
                -- dispatcher can send notifications, the longest-waiting job of all.
                array(
                    select id
                    from (
                        select *
                        from (
                            select id
                            from jobs
                            where status = 'queued'
                              and dispatched_at < now() - $5::float8 * interval '1 second'
                              and available_at <= now()
                              and org_id <> all(
                                  array(select o.id from orgs o where o.suspended_at is not null)
                              )
                              and not exists (
                                  select from suites s
                                  where s.suite_id = jobs.suite_id
                                    and s.version = jobs.suite_version
                                    and s.scorer_min > $7
                              )
                            order by dispatched_at
                            limit 1
                            for update skip locked
                        ) notified
                        union all
                        select *
                        from (
                            select id
                            from jobs
                            where (
                                    select q.notified_at < now() - $6::float8 * interval '1 second'
                                    from queue_snapshots q
                                )
                              and status = 'queued'
                              and available_at <= now() - $5::float8 * interval '1 second'
                              and org_id <> all(
                                  array(select o.id from orgs o where o.suspended_at is not null)
                              )
                              and not exists (
                                  select from suites s
                                  where s.suite_id = jobs.suite_id
                                    and s.version = jobs.suite_version
                                    and s.scorer_min > $7
                              )
                            order by available_at, created_at
                            limit 1
                            for update skip locked
                        ) not_notified
                    ) late
                    limit 1
                )
            ))
              -- Another worker may have claimed it while this statement waited for the row.
              and status || '' = 'queued'
              and available_at <= now()
              and attempts < $4
              and org_id <> all(array(select o.id from orgs o where o.suspended_at is not null))
              and not exists (
                  select from suites s
                  where s.suite_id = jobs.suite_id
                    and s.version = jobs.suite_version
                    and s.scorer_min > $7
              )
            returning *
        ), noted as (
            insert into job_attempts (org_id, job_id, attempt, worker_id, started_at, cost)
            select org_id, id, attempts, $1, started_at, cost
            from claimed
        )
        select
            claimed.id as "job_id: JobId",
            claimed.org_id as "org_id: OrgId",
            attempts as attempt,
            type as "type: JobType",
            claimed.suite_id as "suite_id: SuiteId",
            suite_version,
            served_model as "served_model: Json<ServedModel>",
            parameters as "parameters: Json<PredictOptions>",
            output_upload_id as "output_upload_id: UploadId",
            eval_job_id as "eval_job_id: JobId",
            (
                select p.body
                from stored_predictions p
                where p.job_id = claimed.id
            ) as body,
            input_key,
            upload_id as "upload_id: UploadId",
            n_submitted,
            created_at as "created_at: Timestamp",
            started_at as "started_at!: Timestamp",
            trace_id,
            span_id,
            array(
                select d.holder
                from suite_disclosures d
                where d.job_id = claimed.id
                  and d.org_id = claimed.org_id
                  and d.kind = 'submission'
                order by d.holder
            ) as "recorded_holders!",
            (
                select h.creator
                from org_allowance_holders h
                where h.org_id = claimed.org_id
                  and h.shares_creator
            ) as creator,
            (
                select h.domains
                from org_allowance_holders h
                where h.org_id = claimed.org_id
            ) as "domains!",
            publisher.org_id as "publisher?: OrgId",
            publisher.creator as "publisher_creator?",
            publisher.domains as "publisher_domains?",
            case
                when attempts = 1 then created_at
                else coalesce(
                    (
                        select max(a.ended_at)
                        from job_attempts a
                        where a.job_id = claimed.id
                    ),
                    created_at
                )
            end as "waited_since!: Timestamp",
            exists(
                select from suites s
                where s.suite_id = claimed.suite_id
                  and s.version = claimed.suite_version
                  and s.removed_at is not null
            ) as "is_suite_removed!"
        from claimed
        left join suite_owners o on o.suite_id = claimed.suite_id
        left join org_allowance_holders publisher on publisher.org_id = o.org_id
        "#,
        worker_id.as_str(),
        job_ids as _,
        ATTEMPT_TIMEOUT.as_secs_f64(),
        ATTEMPTS_MAX,
        NOTIFICATION_TIMEOUT.as_secs_f64(),
        NOTIFIER_TIMEOUT.as_secs_f64(),
        SCORER
    )
    .fetch_all(db)
    .await?;
    let incomplete = || Error::internal("a job has no suite or no model");
    claims
        .into_iter()
        .map(|row| {
            let suite = row
                .suite_id
                .zip(row.suite_version)
                .map(|(suite_id, version)| NamedVersion { suite_id, version });
            let task = match row.r#type {
                JobType::Eval => ClaimedTask::Eval(suite.ok_or_else(incomplete)?),
                JobType::Predict => ClaimedTask::Predict(Box::new(ClaimedPrediction {
                    model: row.served_model.ok_or_else(incomplete)?.0,
                    options: row.parameters.ok_or_else(incomplete)?.0,
                    suite,
                    output_upload_id: row.output_upload_id.ok_or_else(incomplete)?,
                    eval_job_id: row.eval_job_id,
                })),
            };
            // Submissions to a suite without limits record no holders.
            let holders = if row.recorded_holders.is_empty() {
                named_holders(&row.org_id, row.creator.as_deref(), &row.domains)
            } else {
                row.recorded_holders
            };
            // All organizations that the publisher's creator founded count, whatever their plans are.
            let by_publisher = row.publisher.map(|org_id| {
                let domains = row.publisher_domains.unwrap_or_default();
                named_holders(&org_id, row.publisher_creator.as_deref(), &domains)
                    .iter()
                    .any(|holder| holders.contains(holder))
            });
            Ok(Claim {
                holders,
                by_publisher,
                is_suite_removed: row.is_suite_removed,
                job_id: row.job_id,
                org_id: row.org_id,
                attempt: row.attempt,
                task,
                body: row.body,
                input_key: row.input_key,
                upload_id: row.upload_id,
                n_submitted: row.n_submitted,
                created_at: row.created_at,
                waited_since: row.waited_since,
                started_at: row.started_at,
                trace_id: row.trace_id,
                span_id: row.span_id,
            })
        })
        .collect()
}

/// Returns `true` if an attempt still owns its job. If so, stores its progress if that has grown.
pub async fn owns_job(db: impl PgExecutor<'_>, claim: &Claim, progress: f64) -> Result<bool> {
    let owns = sqlx::query_scalar!(
        r#"
        /* all tenants: the job id and the attempt number fence the write */
        with held as (
            select id
            from jobs
            where id = $1
              and status || '' = 'running'
              and attempts = $2
        ), noted as (
            update jobs
            set progress = $3
            where id = $1
              and status || '' = 'running'
              and attempts = $2
              and progress < $3
        )
        select exists(select from held) as "holds!"
        "#,
        claim.job_id.as_str(),
        claim.attempt,
        progress
    )
    .fetch_one(db)
    .await?;
    Ok(owns)
}

/// An upload's format.
pub struct UploadForm {
    /// The prediction format.
    pub content_type: ContentType,
    /// The predictions' compression.
    pub content_encoding: ContentEncoding,
}

/// Returns an upload's format, and its parts by number.
pub async fn upload(
    db: &PgPool,
    org_id: &OrgId,
    upload_id: &UploadId,
) -> Result<(UploadForm, Vec<PartObject>)> {
    let form = sqlx::query_as!(
        UploadForm,
        r#"
        select
            content_type as "content_type: ContentType",
            content_encoding as "content_encoding: ContentEncoding"
        from uploads
        where org_id = $1
          and id = $2
        "#,
        org_id.as_str(),
        upload_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok((form, upload::part_objects(db, org_id, upload_id).await?))
}

/// An attempt's phase, as offsets from its start in microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Phase {
    /// The phase's name.
    pub name: &'static str,
    /// Microseconds until the phase starts.
    pub start_us: i64,
    /// Microseconds until the phase ends.
    pub end_us: i64,
}

/// An attempt's disclosed result.
#[derive(Debug, Clone)]
pub struct SuccessfulAttempt {
    /// The job's id.
    pub job_id: JobId,
    /// The attempt's number.
    pub attempt: i32,
    /// The result.
    pub result: EvalResult,
    /// The item scores, if they are stored.
    pub item_scores: Option<ItemScoresIn>,
    /// The attempt's phases.
    pub phases: Vec<Phase>,
    /// The parts of the job's receipt that the database does not have.
    pub receipt: NewReceipt,
}

/// Finishes jobs with their disclosed results, and stores their receipts' statements. Returns
/// `false` for each attempt that is no longer the job's current one, and writes nothing for it.
///
/// A submission's number is the largest among its holders': each holder counts its scored
/// submissions to the suite's version.
pub async fn succeed_all(
    db: impl PgExecutor<'_>,
    attempts: &[SuccessfulAttempt],
) -> Result<Vec<bool>> {
    let job_ids: Vec<&str> = attempts.iter().map(|done| done.job_id.as_str()).collect();
    let numbers: Vec<i32> = attempts.iter().map(|done| done.attempt).collect();
    let results: Vec<_> = attempts.iter().map(|done| Json(&done.result)).collect();
    let phases: Vec<_> = attempts.iter().map(|done| Json(&done.phases)).collect();
    let scores_keys: Vec<_> = attempts
        .iter()
        .map(|done| match &done.item_scores {
            Some(ItemScoresIn::Object(key)) => Some(key.as_str()),
            Some(ItemScoresIn::Row(_)) | None => None,
        })
        .collect();
    let bodies: Vec<_> = attempts
        .iter()
        .map(|done| match &done.item_scores {
            Some(ItemScoresIn::Row(bytes)) => Some(&**bytes),
            Some(ItemScoresIn::Object(_)) | None => None,
        })
        .collect();
    let receipts = || attempts.iter().map(|done| &done.receipt);
    let receipt_ids: Vec<_> = receipts().map(|receipt| receipt.id.as_str()).collect();
    let digests: Vec<_> = receipts()
        .map(|receipt| receipt.predictions_sha256.as_slice())
        .collect();
    let nonces: Vec<_> = receipts().map(|receipt| receipt.nonce.as_str()).collect();
    let salts: Vec<_> = receipts().map(|receipt| receipt.salt.as_slice()).collect();
    let (held_jobs, holders): (Vec<&str>, Vec<&str>) = attempts
        .iter()
        .flat_map(|done| {
            let holders = done.receipt.holders.iter();
            holders.map(|holder| (done.job_id.as_str(), holder.as_str()))
        })
        .unzip();
    let done = sqlx::query_scalar!(
        r#"
        /* all tenants: the job ids and the attempt numbers fence the write */
        with scored as (
            select *
            from unnest(
                $1::text[],
                $2::integer[],
                $3::jsonb[],
                $4::jsonb[],
                $5::text[],
                $6::bytea[],
                $8::text[],
                $9::bytea[],
                $10::text[],
                $11::bytea[]
            ) as s(
                job_id,
                attempt,
                result,
                phases,
                scores_key,
                body,
                receipt_id,
                predictions_sha256,
                nonce,
                salt
            )
        ), done as (
            update jobs j
            set
                status = 'succeeded',
                result = s.result,
                scores_key = s.scores_key,
                finished_at = clock_timestamp(),
                worker_id = null,
                deadline_at = null
            from scored s
            where j.id = s.job_id
              and j.status || '' = 'running'
              and j.attempts = s.attempt
            returning
                j.id,
                j.org_id,
                j.attempts,
                j.finished_at,
                j.suite_id,
                j.suite_version,
                j.result,
                s.phases,
                s.scores_key,
                s.body,
                s.receipt_id,
                s.predictions_sha256,
                s.nonce,
                s.salt
        ), held as (
            select
                d.id,
                d.suite_id,
                d.suite_version,
                h.holder,
                row_number() over (
                    partition by h.holder, d.suite_id, d.suite_version
                    order by d.id
                ) as place,
                count(*) over (partition by h.holder, d.suite_id, d.suite_version) as n
            from done d
            join unnest($12::text[], $13::text[]) as h(job_id, holder) on h.job_id = d.id
        ), counted as (
            insert into suite_allowances as a (holder, suite_id, suite_version, n_scored)
            select
                holder,
                suite_id,
                suite_version,
                count(*)
            from held
            group by holder, suite_id, suite_version
            -- In a fixed order, so that two transactions that share several do not deadlock.
            order by holder, suite_id, suite_version
            on conflict (holder, suite_id, suite_version) do update
                set n_scored = a.n_scored + excluded.n_scored
            returning
                holder,
                suite_id,
                suite_version,
                n_scored
        ), numbered as (
            select
                h.id,
                max(c.n_scored - h.n + h.place)::integer as submission_number
            from held h
            join counted c using (holder, suite_id, suite_version)
            group by h.id
        ), new_salts as (
            insert into receipt_salts as s (org_id, suite_id, suite_version, salt)
            select distinct on (d.org_id, d.suite_id, d.suite_version)
                d.org_id,
                d.suite_id,
                d.suite_version,
                d.salt
            from done d
            where not exists (
                select from receipt_salts e
                where e.org_id = d.org_id
                  and e.suite_id = d.suite_id
                  and e.suite_version = d.suite_version
            )
            order by d.org_id, d.suite_id, d.suite_version
            -- Another transaction may have inserted it since this statement began.
            on conflict (org_id, suite_id, suite_version) do update
                set salt = s.salt
            returning
                org_id,
                suite_id,
                suite_version,
                salt
        ), stated as (
            insert into receipts (
                id,
                org_id,
                job_id,
                suite_id,
                suite_version,
                figures,
                payload,
                predictions_sha256,
                submission_number,
                issued_at
            )
            select
                d.receipt_id,
                d.org_id,
                d.id,
                d.suite_id,
                d.suite_version,
                f.figures,
                receipt_payload(
                    d.receipt_id,
                    d.org_id,
                    d.id,
                    coalesce(s.salt, n.salt),
                    c.commitment,
                    d.predictions_sha256,
                    m.submission_number,
                    d.result,
                    f.figures,
                    f.value_scope,
                    d.finished_at,
                    d.finished_at,
                    d.nonce,
                    nullif(u.cluster, 'none'),
                    u.average
                ),
                d.predictions_sha256,
                m.submission_number,
                d.finished_at
            from done d
            join suite_commitments c using (suite_id, suite_version)
            join suites u on u.suite_id = d.suite_id and u.version = d.suite_version
            join numbered m on m.id = d.id
            left join receipt_salts s
                on s.org_id = d.org_id
                and s.suite_id = d.suite_id
                and s.suite_version = d.suite_version
            left join new_salts n
                on n.org_id = d.org_id
                and n.suite_id = d.suite_id
                and n.suite_version = d.suite_version
            cross join lateral (
                select
                    case
                        when starts_with(d.result ->> 'release', 'sealed(') then 'open'
                        else 'all'
                    end as figures,
                    case
                        when starts_with(d.result ->> 'release', 'ladder(') then 'best_so_far'
                        else 'this_submission'
                    end as value_scope
            ) f
        ), stored as (
            insert into stored_item_scores (org_id, job_id, scores_key, body, expires_at)
            select
                org_id,
                id,
                scores_key,
                body,
                finished_at + $7::integer * interval '1 day'
            from done
            where num_nonnulls(scores_key, body) = 1
        ), ended as (
            update job_attempts a
            set
                ended_at = clock_timestamp(),
                outcome = 'succeeded',
                phases = d.phases
            from done d
            where a.job_id = d.id
              and a.attempt = d.attempts
        )
        select id as "id!: JobId"
        from done
        "#,
        &job_ids as &[&str],
        &numbers,
        &results as _,
        &phases as _,
        &scores_keys as _,
        &bodies as _,
        ITEM_SCORES_DAYS,
        &receipt_ids as &[&str],
        &digests as &[&[u8]],
        &nonces as &[&str],
        &salts as &[&[u8]],
        &held_jobs as &[&str],
        &holders as &[&str]
    )
    .fetch_all(db)
    .await?;
    Ok(attempts
        .iter()
        .map(|attempt| done.contains(&attempt.job_id))
        .collect())
}

/// Finishes a job with its open items' figures, and stores the sealed ones' where
/// only workers can read them. Returns `false`, and writes nothing, if the attempt is no longer the
/// job's current one.
pub async fn succeed_with_sealed(
    pool: &PgPool,
    claim: &Claim,
    attempt: SuccessfulAttempt,
    sealed: &Sealed,
) -> Result<bool> {
    let suite = claim.suite()?;
    let mut transaction = pool.begin().await?;
    let done = succeed_all(&mut *transaction, &[attempt]).await? == [true];
    if done {
        let Sealed {
            n,
            n_missing,
            figures:
                Figures {
                    value,
                    estimate,
                    clusters,
                    slices,
                    ceiling,
                    share_of_ceiling,
                    skill,
                    ..
                },
            ..
        } = sealed;
        let count = |count: i64| i32::try_from(count).unwrap_or(i32::MAX);
        sqlx::query!(
            "
            insert into sealed_results (
                org_id,
                job_id,
                suite_id,
                suite_version,
                n,
                value,
                stderr,
                ci95,
                ci_method,
                n_missing,
                n_clusters,
                design_effect,
                slices,
                ceiling,
                share_of_ceiling,
                skill
            )
            values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
            ",
            claim.org_id.as_str(),
            claim.job_id.as_str(),
            suite.suite_id.as_str(),
            suite.version,
            count(*n),
            value,
            estimate.map(|estimate| estimate.stderr),
            estimate.map(|estimate| Vec::from(estimate.ci95)) as _,
            estimate.map(|estimate| estimate.method),
            count(*n_missing),
            clusters.map(|clusters| count(clusters.n)),
            clusters.and_then(|clusters| clusters.design_effect),
            Json(
                slices
                    .iter()
                    .cloned()
                    .map(FieldSlices::from)
                    .collect::<Vec<_>>()
            ) as _,
            ceiling.map(|ceiling| Json(Ceiling::from(ceiling))) as _,
            share_of_ceiling.map(|share| Json(ShareOfCeiling::from(share))) as _,
            skill.clone().map(|skill| Json(Skill::from(skill))) as _
        )
        .execute(&mut *transaction)
        .await?;
    }
    transaction.commit().await?;
    Ok(done)
}

/// A prediction job output's part.
#[derive(Debug, Clone)]
pub struct OutputPart {
    /// The part's object.
    pub object: PartObject,
    /// The SHA-256 of the part, 64 lower-case hex digits.
    pub sha256: String,
}

/// A prediction job's output, which is written completely.
#[derive(Debug, Clone)]
pub struct Output {
    /// Its parts, in number order.
    pub parts: Vec<OutputPart>,
    /// Its prediction digest, which identifies it as a submission.
    pub digest: [u8; 32],
}

/// Finishes a prediction job: its output becomes an upload that is ready, and the eval that waits
/// for it becomes available. Sequences without a prediction are refunded. Returns `false`, and
/// writes nothing, if the attempt is no longer the job's current one.
///
/// `result` gets the time at which the output is deleted.
pub async fn succeed_prediction(
    pool: &PgPool,
    claim: &Claim,
    output: &Output,
    result: impl FnOnce(Timestamp) -> PredictResult,
    phases: &[Phase],
) -> Result<bool> {
    let org_id = claim.org_id.as_str();
    let mut transaction = pool.begin().await?;
    // The lock makes two attempts write one after the other. Both would insert the same upload.
    let expires_at = sqlx::query_scalar!(
        r#"
        select clock_timestamp() + $4::integer * interval '1 day' as "expires_at!: Timestamp"
        from jobs
        where org_id = $1
          and id = $2
          and status || '' = 'running'
          and attempts = $3
        for update
        "#,
        org_id,
        claim.job_id.as_str(),
        claim.attempt,
        OUTPUT_DAYS
    )
    .fetch_optional(&mut *transaction)
    .await?;
    let Some(expires_at) = expires_at else {
        transaction.rollback().await?;
        return Ok(false);
    };
    let result = result(expires_at);
    // Before the output, which locks the organization's storage: submissions lock their usage
    // first, too.
    if result.n_failed > 0 {
        usage::refund_predict_items(
            &mut transaction,
            &claim.org_id,
            &claim.job_id,
            result.n_failed,
        )
        .await?;
    }
    insert_output(&mut transaction, claim, output, &result).await?;
    sqlx::query!(
        "
        with done as (
            update jobs
            set
                status = 'succeeded',
                result = $4,
                finished_at = clock_timestamp(),
                worker_id = null,
                deadline_at = null
            where org_id = $1
              and id = $2
        )
        update job_attempts
        set
            ended_at = clock_timestamp(),
            outcome = 'succeeded',
            phases = $5
        where org_id = $1
          and job_id = $2
          and attempt = $3
        ",
        org_id,
        claim.job_id.as_str(),
        claim.attempt,
        Json(&result) as _,
        Json(phases) as _
    )
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(true)
}

/// Stores a prediction job's output as an upload.
async fn insert_output(
    db: &mut PgConnection,
    claim: &Claim,
    output: &Output,
    result: &PredictResult,
) -> Result<()> {
    let org_id = claim.org_id.as_str();
    let upload_id = result.output_ref.as_str();
    sqlx::query!(
        "
        insert into uploads (
            id,
            org_id,
            kind,
            status,
            content_type,
            content_encoding,
            bytes,
            sha256,
            n_items,
            digest,
            expires_at,
            completed_at
        )
        values ($2, $1, $3, 'ready', $4, $5, $6, $7, $8, $9, $10, clock_timestamp())
        ",
        org_id,
        upload_id,
        UploadKind::Predictions as UploadKind,
        ContentType::Ndjson as ContentType,
        ContentEncoding::Identity as ContentEncoding,
        result.output_bytes,
        result.output_sha256,
        result.n,
        &output.digest,
        result.expires_at as Timestamp
    )
    .execute(&mut *db)
    .await?;
    let parts = || output.parts.iter().map(|part| &part.object);
    let numbers: Vec<i32> = parts().map(|part| part.number).collect();
    let keys: Vec<&str> = parts().map(|part| part.object_key.as_str()).collect();
    let bytes: Vec<i64> = parts().map(|part| part.bytes).collect();
    let digests: Vec<&str> = output.parts.iter().map(|part| &*part.sha256).collect();
    sqlx::query!(
        "
        insert into upload_parts (org_id, upload_id, number, object_key, bytes, sha256)
        select $1, $2, number, object_key, bytes, sha256
        from unnest($3::integer[], $4::text[], $5::bigint[], $6::text[])
            as p(number, object_key, bytes, sha256)
        ",
        org_id,
        upload_id,
        &numbers,
        &keys as &[&str],
        &bytes,
        &digests as &[&str]
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Finishes a job with an error, and refunds the charge if [`FailureCode::is_refunded`]. Returns
/// `false`, and writes nothing, if the attempt is no longer the job's current one.
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
        "
        /* all tenants: the job id and the attempt number fence the write */
        with done as (
            update jobs
            set
                status = 'failed',
                error_code = $3,
                error_message = $4,
                finished_at = clock_timestamp(),
                worker_id = null,
                deadline_at = null
            where id = $1
              and status || '' = 'running'
              and attempts = $2
            returning id, attempts
        )
        update job_attempts a
        set
            ended_at = clock_timestamp(),
            outcome = $5,
            phases = $6
        from done d
        where a.job_id = d.id
          and a.attempt = d.attempts
        ",
        claim.job_id.as_str(),
        claim.attempt,
        code as FailureCode,
        message,
        outcome,
        Json(phases) as _
    )
    .execute(&mut *transaction)
    .await?;
    if done.rows_affected() == 1 && code.is_refunded() {
        usage::refund(&mut transaction, &[claim.job_id.as_str()]).await?;
    }
    transaction.commit().await?;
    Ok(done.rows_affected() == 1)
}

/// Requeues a job, or fails it with `code` if no attempt is left. The waits grow (1 s, 8 s, 64 s),
/// so that a broken dependency has time to recover. Returns `false`, and writes nothing, if the
/// attempt is no longer the job's current one.
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
        "
        /* all tenants: the job id and the attempt number fence the write */
        with done as (
            update jobs
            set
                status = 'queued',
                started_at = null,
                worker_id = null,
                deadline_at = null,
                dispatched_at = null,
                available_at = clock_timestamp()
                    + $5::float8 * interval '1 second' * power($6::float8, $2::integer - 1)
            where id = $1
              and status || '' = 'running'
              and attempts = $2
            returning id, attempts
        )
        update job_attempts a
        set
            ended_at = clock_timestamp(),
            outcome = $3,
            phases = $4
        from done d
        where a.job_id = d.id
          and a.attempt = d.attempts
        ",
        claim.job_id.as_str(),
        claim.attempt,
        outcome,
        Json(phases) as _,
        RETRY_DELAY.as_secs_f64(),
        RETRY_DELAY_FACTOR
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Returns the sequence's places in a suite version's items.
///
/// # Errors
/// If the suite is not about sequences.
pub async fn sequence_paths(
    db: impl PgExecutor<'_>,
    suite: &NamedVersion,
) -> Result<SequencePaths> {
    let row = sqlx::query!(
        "
        select
            sequence_events,
            sequence_options
        from suites
        where suite_id = $1
          and version = $2
        ",
        suite.suite_id.as_str(),
        suite.version
    )
    .fetch_one(db)
    .await?;
    suite::sequence_paths(row.sequence_events, row.sequence_options)
        .ok_or_else(|| Error::internal("the suite of a prediction job is not about sequences"))
}

/// A suite version's properties that a worker needs.
pub struct SuiteScoring {
    /// The scoring and disclosure rules.
    pub scoring: Scoring,
    /// Number of items, open and sealed.
    pub n_items: usize,
    /// Sealed item count.
    pub n_sealed: usize,
    /// The slices that are scored, by field, with those of hidden fields.
    pub slices: Vec<StoredSlices>,
    /// The options of each answer, in their order; empty if the suite names none.
    pub labels: Vec<String>,
    /// The baseline of the skill, and the group field within which it is computed.
    pub skill: Option<(SkillBaseline, Option<String>)>,
    /// The exact noise floors of the open and of the sealed items.
    pub floors: [Option<f64>; 2],
    /// The levels of predicted quantiles, if predictions are quantiles.
    pub quantiles: Option<QuantileLevels>,
}

/// Returns a suite version's scoring and disclosure rules.
pub async fn scoring(
    db: impl PgExecutor<'_>,
    suite_id: &SuiteId,
    version: &str,
) -> Result<SuiteScoring> {
    let suite = sqlx::query!(
        r#"
        select
            metric,
            release,
            clip,
            average,
            quantiles,
            ladder_start,
            ladder_step,
            ladder_levels,
            n_items,
            n_sealed,
            labels,
            skill as "skill: Json<SuiteSkill>",
            (
                select f.value
                from suite_floors f
                where f.content_id = s.content_id
                  and not f.is_sealed
            ) as open_floor,
            (
                select f.value
                from suite_floors f
                where f.content_id = s.content_id
                  and f.is_sealed
            ) as sealed_floor,
            array(
                select jsonb_set(f.field, '{groups}', coalesce(h.groups, f.field -> 'groups'))
                from jsonb_array_elements(s.slices) with ordinality as f(field, place)
                left join suite_hidden_groups h
                    on h.content_id = s.content_id
                    and h.field = f.field ->> 'field'
                order by f.place
            ) as "slices!: Vec<Json<StoredSlices>>"
        from suites s
        where suite_id = $1
          and version = $2
        "#,
        suite_id.as_str(),
        version
    )
    .fetch_one(db)
    .await?;
    let metric = Metric::published(&suite.metric)?;
    let policy = DisclosurePolicy::published(&suite.release)?;
    let clip = match suite.clip.as_deref() {
        Some([low, high]) => Clip::new(*low, *high),
        _ => None,
    };
    let ladder = suite::ladder(suite.ladder_start, suite.ladder_step, suite.ladder_levels);
    let count = |count: i32| usize::try_from(count).unwrap_or(0);
    let n_items = count(suite.n_items);
    let n_sealed = count(suite.n_sealed);
    let skill = suite.skill.map(|Json(SuiteSkill { baseline, within })| {
        SkillBaseline::published(&baseline).map(|baseline| (baseline, within))
    });
    Ok(SuiteScoring {
        labels: suite.labels,
        skill: skill.transpose()?,
        floors: [suite.open_floor, suite.sealed_floor],
        scoring: Scoring {
            metric,
            clip,
            average: Average::published(&suite.average)?,
            policy,
            ladder,
        },
        n_items,
        n_sealed,
        slices: suite.slices.into_iter().map(|Json(field)| field).collect(),
        quantiles: suite::quantile_levels(&suite.quantiles)?,
    })
}

/// Returns a version's retest: each item's id, and its answers as a JSON array. Empty without a retest.
pub async fn retest(
    db: impl PgExecutor<'_>,
    suite_id: &SuiteId,
    version: &str,
) -> Result<Vec<(String, String)>> {
    let rows = sqlx::query!(
        r#"
        select
            item_id,
            answers::text as "answers!"
        from suite_retest
        where content_id = (select content_id from suites where suite_id = $1 and version = $2)
        order by ordinal
        "#,
        suite_id.as_str(),
        version
    )
    .fetch_all(db)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.item_id, row.answers))
        .collect())
}

/// Returns a version's catalog: each id with its popularity, in the order of the file. Empty without a
/// catalog.
pub async fn catalog(
    db: impl PgExecutor<'_>,
    suite_id: &SuiteId,
    version: &str,
) -> Result<Vec<(String, f64)>> {
    let rows = sqlx::query!(
        "
        select
            id,
            popularity
        from suite_catalog
        where content_id = (select content_id from suites where suite_id = $1 and version = $2)
        order by ordinal
        ",
        suite_id.as_str(),
        version
    )
    .fetch_all(db)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.id, row.popularity))
        .collect())
}

/// The longest wait for the next answer row. All the suite's jobs in the process wait for the
/// answers, so a connection that is dead without having been closed must not block them until their
/// time limit.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// An item of the answers' table, without its answer.
pub struct AnsweredItem<'a> {
    /// The item's id.
    pub item_id: &'a str,
    /// Set if the item is sealed.
    pub is_sealed: bool,
    /// The number of its cluster among those of all items, if the suite has clusters.
    pub cluster: Option<u32>,
    /// The code of its slice by each field.
    pub slices: &'a [u8],
    /// The number of people behind its answer, if it is known.
    pub n_people: Option<u32>,
    /// The number of its group within which the skill is computed.
    pub skill_group: Option<u32>,
}

/// Reads a suite version's answers in publication order, and calls `each` with every item and its
/// answer.
pub async fn answers(
    db: impl PgExecutor<'_>,
    suite_id: &SuiteId,
    version: &str,
    metric: Metric,
    mut each: impl FnMut(AnsweredItem<'_>, &Answer<'_>) -> Result<()>,
) -> Result<()> {
    use futures_util::TryStreamExt as _;

    let mut rows = sqlx::query!(
        r#"
        select
            item_id,
            answer::text as "answer!",
            sealed,
            cluster,
            slices,
            n,
            skill_group
        from suite_answers
        where content_id = (select content_id from suites where suite_id = $1 and version = $2)
        order by ordinal
        "#,
        suite_id.as_str(),
        version
    )
    .fetch(db);
    while let Some(row) = tokio::time::timeout(ANSWER_TIMEOUT, rows.try_next())
        .await
        .map_err(Error::unavailable)??
    {
        // The message is discarded, because it may quote the answer.
        let answer = Answer::parse(&row.answer, &metric).map_err(|_| {
            Error::internal("a published suite has an answer that does not fit its metric")
        })?;
        let item = AnsweredItem {
            item_id: &row.item_id,
            is_sealed: row.sealed,
            cluster: row.cluster.map(i32::unsigned_abs),
            slices: row.slices.as_deref().unwrap_or_default(),
            n_people: row.n.map(i32::unsigned_abs),
            skill_group: row.skill_group.map(i32::unsigned_abs),
        };
        each(item, &answer)?;
    }
    Ok(())
}
