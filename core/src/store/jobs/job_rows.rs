//! The rows of a submission, and the statement that inserts those of many submissions.

use std::collections::HashMap;

use sqlx::types::Json;

use super::job_notifications::JobNotification;
use super::new_job::{NewEval, NewJob, NewPrediction, NewTask, StoredAs};
use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId};
use crate::model::job::{JobRow, JobStatus, JobType};
use crate::model::queue::FirstEstimate;
use crate::model::timestamp::Timestamp;
use crate::store::PgConnection;
use crate::store::suite::SuiteRow;

/// The use that an organization has made of its limits, with the jobs that were accepted so far.
pub(super) struct UsedLimits {
    /// The time of the next job. It is later than that of every earlier job of the organization.
    pub(super) next_created_at: Timestamp,
    /// The start of the current month.
    pub(super) period_start: Timestamp,
    /// The number of active jobs, or more. `None` if it is unknown.
    pub(super) active_max: Option<i64>,
    /// The number of jobs that were accepted by this transaction.
    pub(super) accepted: i64,
    pub(super) eval_items: i64,
    pub(super) predict_items: i64,
    /// `true` if the row of the month exists and is locked. Requests that are served at once charge
    /// predict items without the other locks, and may create the row.
    pub(super) month_is_locked: bool,
    pub(super) bytes: i64,
}

/// A row of `jobs` to insert.
struct NewRow<'a> {
    job: &'a NewJob,
    id: &'a JobId,
    r#type: JobType,
    suite: Option<&'a SuiteRow>,
    /// The prediction, if that is the type of the job.
    prediction: Option<&'a NewPrediction>,
    /// The prediction job whose output the job waits for. Then the job has no input of its own, and
    /// no idempotency key.
    needs_job_id: Option<&'a JobId>,
    created_at: Timestamp,
    n_submitted: i64,
    eval_items: i64,
    predict_items: i64,
}

impl NewJob {
    /// Returns the rows of the submission. Their times are increasing.
    fn rows(&self, created_at: Timestamp) -> Vec<NewRow<'_>> {
        let prediction = match &self.task {
            NewTask::Eval(eval) => return vec![self.eval_row(&self.id, eval, created_at)],
            NewTask::Predict(prediction) => prediction,
        };
        let mut rows = vec![NewRow {
            job: self,
            id: &self.id,
            r#type: JobType::Predict,
            suite: prediction.suite.as_deref(),
            prediction: Some(prediction),
            needs_job_id: None,
            created_at,
            n_submitted: self.n_submitted,
            eval_items: 0,
            predict_items: self.predict_items(),
        }];
        rows.extend(prediction.evaluation.as_ref().map(|(id, eval)| NewRow {
            needs_job_id: Some(&self.id),
            ..self.eval_row(id, eval, created_at.plus_micros(1))
        }));
        rows
    }

    fn eval_row<'a>(
        &'a self,
        id: &'a JobId,
        eval: &'a NewEval,
        created_at: Timestamp,
    ) -> NewRow<'a> {
        let NewEval {
            suite,
            charged_items,
        } = eval;
        NewRow {
            job: self,
            id,
            r#type: JobType::Eval,
            suite: Some(suite),
            prediction: None,
            needs_job_id: None,
            created_at,
            n_submitted: self.n_submitted,
            eval_items: *charged_items,
            predict_items: 0,
        }
    }
}

impl<'a> NewRow<'a> {
    /// Returns the input, unless it is the output of another job.
    fn input(&self) -> Option<&'a StoredAs> {
        self.needs_job_id.is_none().then_some(&self.job.input)
    }

    fn input_key(&self) -> Option<&'a str> {
        match self.input()? {
            StoredAs::Object(key) => Some(key),
            _ => None,
        }
    }

    fn upload_id(&self) -> Option<&'a str> {
        match self.input()? {
            StoredAs::Upload(upload_id) => Some(upload_id.as_str()),
            _ => None,
        }
    }

    fn body(&self) -> Option<&'a [u8]> {
        match self.input()? {
            StoredAs::Row(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn idempotency_key(&self) -> Option<&'a str> {
        self.input().and(self.job.idempotency_key.as_deref())
    }

    fn request_sha256(&self) -> &'a [u8] {
        let digest = self.input().and(self.job.request_sha256.as_ref());
        digest.map_or(&[], |sha256| sha256)
    }

    /// Returns the cost of the job in the queue, in items.
    fn cost(&self) -> i64 {
        match self.needs_job_id {
            None => self.job.task.cost(),
            Some(_) => self.eval_items.max(1),
        }
    }

    /// Returns one of the estimates of the job, in microseconds since 1970.
    fn estimated(&self, seconds: fn(&FirstEstimate) -> Option<f64>) -> Option<i64> {
        let estimate = self.needs_job_id.is_none().then_some(&self.job.estimate)?;
        let micros = (seconds(estimate)? * 1e6) as i64;
        Some(self.created_at.plus_micros(micros).unix_micros())
    }

    fn eval_job_id(&self) -> Option<&'a JobId> {
        let (id, _) = self.prediction?.evaluation.as_ref()?;
        Some(id)
    }
}

/// Inserts the accepted jobs with their predictions and charges, and advances the time of the last
/// submission of their organizations.
pub(super) async fn insert(
    db: &mut PgConnection,
    jobs: &[NewJob],
    accepted: &[(usize, Timestamp)],
    orgs: &HashMap<OrgId, UsedLimits>,
    notifies: bool,
) -> Result<Vec<JobNotification>> {
    if accepted.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<NewRow<'_>> = accepted
        .iter()
        .flat_map(|(index, created_at)| jobs[*index].rows(*created_at))
        .collect();
    // One array for each column.
    let of_job =
        |text: fn(&NewJob) -> &str| rows.iter().map(|row| text(row.job)).collect::<Vec<&str>>();
    let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    let org_ids = of_job(|job| job.org_id.as_str());
    let types: Vec<&str> = rows.iter().map(|row| row.r#type.as_str()).collect();
    let request_ids = of_job(|job| &job.request_id);
    let labels: Vec<_> = rows.iter().map(|row| row.job.label.as_deref()).collect();
    let metadata: Vec<_> = rows
        .iter()
        .map(|row| row.job.metadata.as_ref().map(Json))
        .collect();
    let hfm_shas = of_job(|job| &job.hfm_sha);
    let suite_ids: Vec<_> = rows
        .iter()
        .map(|row| Some(row.suite?.suite_id.as_str()))
        .collect();
    let suite_versions: Vec<_> = rows
        .iter()
        .map(|row| Some(row.suite?.version.as_str()))
        .collect();
    let input_keys: Vec<_> = rows.iter().map(NewRow::input_key).collect();
    let upload_ids: Vec<_> = rows.iter().map(NewRow::upload_id).collect();
    let keys: Vec<_> = rows.iter().map(NewRow::idempotency_key).collect();
    let digests: Vec<_> = rows.iter().map(NewRow::request_sha256).collect();
    let bodies: Vec<_> = rows.iter().map(NewRow::body).collect();
    let n_submitted: Vec<_> = rows.iter().map(|row| row.n_submitted).collect();
    let eval_items: Vec<_> = rows.iter().map(|row| row.eval_items).collect();
    let predict_items: Vec<_> = rows.iter().map(|row| row.predict_items).collect();
    let costs: Vec<_> = rows.iter().map(NewRow::cost).collect();
    let estimated_end_at: Vec<_> = rows
        .iter()
        .map(|row| row.estimated(|estimate| estimate.end_seconds))
        .collect();
    let estimated_end_by: Vec<_> = rows
        .iter()
        .map(|row| row.estimated(|estimate| estimate.end_by_seconds))
        .collect();
    let elapsed_us: Vec<_> = rows.iter().map(|row| row.job.elapsed_us).collect();
    let created_at: Vec<_> = rows
        .iter()
        .map(|row| row.created_at.unix_micros())
        .collect();
    let trace_ids: Vec<_> = rows
        .iter()
        .map(|row| row.job.span.trace_id.to_string())
        .collect();
    let parent_span_ids: Vec<_> = rows
        .iter()
        .map(|row| row.job.client_span.map(|span| span.to_string()))
        .collect();
    let span_ids: Vec<_> = rows
        .iter()
        .map(|row| {
            row.job
                .is_exported
                .then(|| row.job.span.span_id.to_string())
        })
        .collect();
    let period_start: Vec<_> = rows
        .iter()
        .map(|row| orgs.get(&row.job.org_id))
        .map(|limits| limits.map_or(0, |limits| limits.period_start.unix_micros()))
        .collect();
    let active_max: Vec<_> = rows
        .iter()
        .map(|row| orgs.get(&row.job.org_id)?.active_max)
        .collect();
    let served_models: Vec<_> = rows
        .iter()
        .map(|row| Some(Json(&row.prediction?.model)))
        .collect();
    let parameters: Vec<_> = rows
        .iter()
        .map(|row| Some(Json(&row.prediction?.options)))
        .collect();
    let output_upload_ids: Vec<_> = rows
        .iter()
        .map(|row| Some(row.prediction?.output_upload_id.as_str()))
        .collect();
    let needs_job_ids: Vec<_> = rows
        .iter()
        .map(|row| row.needs_job_id.map(JobId::as_str))
        .collect();
    let eval_job_ids: Vec<_> = rows
        .iter()
        .map(|row| row.eval_job_id().map(JobId::as_str))
        .collect();
    let notified = sqlx::query!(
        r#"
        /* all tenants: one transaction stores the jobs of several organizations */
        with new as (
            select
                n.*,
                timestamptz 'epoch' + n.created_us * interval '1 microsecond' as created_at,
                timestamptz 'epoch' + n.period_us * interval '1 microsecond' as period_start,
                n.needs_job_id is null as is_ready,
                -- Larger jobs wait for a free slot.
                $22::boolean and n.type = 'eval' and n.body is not null as is_notified
            from unnest(
                $1::text[],
                $2::text[],
                $3::text[],
                $4::text[],
                $5::text[],
                $6::text[],
                $7::text[],
                $8::text[],
                $9::text[],
                $10::text[],
                $11::bytea[],
                $12::bytea[],
                $13::bigint[],
                $14::bigint[],
                $15::bigint[],
                $16::bigint[],
                $17::bigint[],
                $18::text[],
                $19::text[],
                $20::text[],
                $21::bigint[],
                $23::text[],
                $24::bigint[],
                $25::jsonb[],
                $26::jsonb[],
                $27::text[],
                $28::text[],
                $29::text[],
                $30::jsonb[],
                $31::bigint[],
                $32::bigint[],
                $33::bigint[]
            ) as n(
                id,
                org_id,
                request_id,
                label,
                hfm_sha,
                suite_id,
                suite_version,
                input_key,
                upload_id,
                idempotency_key,
                request_sha256,
                body,
                n_submitted,
                eval_items,
                elapsed_us,
                created_us,
                period_us,
                trace_id,
                parent_span_id,
                span_id,
                active_max,
                type,
                predict_items,
                served_model,
                parameters,
                output_upload_id,
                needs_job_id,
                eval_job_id,
                metadata,
                cost,
                estimated_end_at_us,
                estimated_end_by_us
            )
        ), job as (
            insert into jobs (
                id,
                org_id,
                type,
                request_id,
                label,
                metadata,
                hfm_sha,
                suite_id,
                suite_version,
                model_id,
                model_version,
                served_model,
                parameters,
                output_upload_id,
                needs_job_id,
                eval_job_id,
                input_key,
                upload_id,
                n_submitted,
                idempotency_key,
                request_sha256,
                created_at,
                available_at,
                requested_at,
                trace_id,
                parent_span_id,
                span_id,
                dispatched_at,
                dispatch_no,
                cost,
                first_estimated_end_at,
                first_estimated_end_by
            )
            select
                id,
                org_id,
                type,
                request_id,
                label,
                metadata,
                hfm_sha,
                suite_id,
                suite_version,
                served_model ->> 'id',
                served_model ->> 'version',
                served_model,
                parameters,
                output_upload_id,
                needs_job_id,
                eval_job_id,
                input_key,
                upload_id,
                n_submitted,
                idempotency_key,
                request_sha256,
                created_at,
                -- The trigger jobs_finish_dependent makes a job that waits for another one available.
                case when is_ready then created_at else timestamptz '9999-12-31 00:00:00+00' end,
                created_at - elapsed_us * interval '1 microsecond',
                trace_id,
                parent_span_id,
                span_id,
                case when is_notified then now() end,
                case when is_notified then 1 else 0 end,
                cost,
                timestamptz 'epoch' + estimated_end_at_us * interval '1 microsecond',
                timestamptz 'epoch' + estimated_end_by_us * interval '1 microsecond'
            from new
            returning id, type, dispatched_at, dispatch_no, input_key, upload_id
        ), body as (
            insert into stored_predictions (org_id, job_id, bytes, accepted_at, body)
            select
                org_id,
                id,
                length(body),
                created_at,
                body
            from new
            where body is not null
        ), charge as (
            insert into usage as u (org_id, period_start, eval_items, predict_items)
            select
                org_id,
                period_start,
                sum(eval_items),
                sum(predict_items)
            from new
            group by org_id, period_start
            on conflict (org_id, period_start) do update
                set
                    eval_items = u.eval_items + excluded.eval_items,
                    predict_items = u.predict_items + excluded.predict_items
        ), ledger as (
            insert into usage_ledger (
                org_id,
                job_id,
                kind,
                eval_items,
                predict_items,
                period_start
            )
            select
                org_id,
                id,
                'charge',
                eval_items,
                predict_items,
                period_start
            from new
        ), last_submission as (
            update org_submissions s
            set
                last_created_at = n.last_created_at,
                active_max = n.active_max,
                active_max_at = n.last_created_at
            from (
                select
                    org_id,
                    max(created_at) as last_created_at,
                    max(active_max) as active_max
                from new
                group by org_id
            ) n
            where s.org_id = n.org_id
        )
        select
            id as "id: JobId",
            dispatch_no,
            dispatched_at as "dispatched_at!: Timestamp",
            type = 'eval' and input_key is null and upload_id is null as "is_small!"
        from job
        where dispatched_at is not null
        "#,
        &ids as _,
        &org_ids as _,
        &request_ids as _,
        &labels as _,
        &hfm_shas as _,
        &suite_ids as _,
        &suite_versions as _,
        &input_keys as _,
        &upload_ids as _,
        &keys as _,
        &digests as _,
        &bodies as _,
        &n_submitted,
        &eval_items,
        &elapsed_us,
        &created_at,
        &period_start,
        &trace_ids,
        &parent_span_ids as _,
        &span_ids as _,
        &active_max as _,
        notifies,
        &types as _,
        &predict_items,
        &served_models as _,
        &parameters as _,
        &output_upload_ids as _,
        &needs_job_ids as _,
        &eval_job_ids as _,
        &metadata as _,
        &costs,
        &estimated_end_at as _,
        &estimated_end_by as _
    )
    .fetch_all(db)
    .await?;
    let notifications = notified.into_iter().map(|row| JobNotification {
        job_id: row.id,
        dispatch_no: row.dispatch_no,
        dispatched_at: row.dispatched_at,
        is_small: row.is_small,
    });
    Ok(notifications.collect())
}

/// Returns the row of a job that was just inserted.
pub(super) fn row(job: &NewJob, created_at: Timestamp) -> JobRow {
    let (r#type, suite, prediction) = match &job.task {
        NewTask::Eval(eval) => (JobType::Eval, Some(&eval.suite), None),
        NewTask::Predict(prediction) => (
            JobType::Predict,
            prediction.suite.as_ref(),
            Some(&**prediction),
        ),
    };
    let eval_job_id = prediction.and_then(|prediction| prediction.evaluation.as_ref());
    JobRow {
        id: job.id.clone(),
        org_id: job.org_id.clone(),
        r#type,
        status: JobStatus::Queued,
        request_id: job.request_id.clone(),
        label: job.label.clone(),
        metadata: job.metadata.clone().map(Json),
        hfm_sha: job.hfm_sha.clone(),
        suite_id: suite.map(|suite| suite.suite_id.clone()),
        suite_version: suite.map(|suite| suite.version.clone()),
        model_id: prediction.map(|prediction| prediction.model.id.clone()),
        model_version: prediction.map(|prediction| prediction.model.version.clone()),
        eval_job_id: eval_job_id.map(|(id, _)| id.clone()),
        attempts: 0,
        created_at,
        started_at: None,
        finished_at: None,
        is_final: false,
        result: None,
        sealed: None,
        progress: None,
        error_code: None,
        error_message: None,
        cost: job.task.cost(),
        is_notified: false,
        waits_for_job: false,
    }
}
