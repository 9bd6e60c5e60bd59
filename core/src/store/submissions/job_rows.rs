//! A submission's rows, and the statement that inserts many submissions' rows.

use std::collections::HashMap;

use sqlx::types::Json;

use super::locked_orgs::UsedLimits;
use super::new_job::{NewEval, NewJob, NewPrediction, NewTask, StoredAs};
use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId};
use crate::model::job::{JobRow, JobStatus, JobType};
use crate::model::queue::FirstEstimate;
use crate::model::timestamp::Timestamp;
use crate::store::PgConnection;
use crate::store::job_notifications::JobNotification;
use crate::store::suite::SuiteRow;

/// A `jobs` row to insert.
struct NewRow<'a> {
    job: &'a NewJob,
    id: &'a JobId,
    r#type: JobType,
    suite: Option<&'a SuiteRow>,
    /// The prediction, if that is the job's type.
    prediction: Option<&'a NewPrediction>,
    /// The prediction job whose output the job waits for. Then the job has no own input, and
    /// no idempotency key.
    needs_job_id: Option<&'a JobId>,
    created_at: Timestamp,
    n_submitted: i64,
    eval_items: i64,
    predict_items: i64,
}

impl NewJob {
    /// Returns the submission's rows. Their times are increasing.
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
    /// Returns the input, unless it is another job's output.
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

    /// Returns the job's cost in the queue, in items.
    fn cost(&self) -> i64 {
        match self.needs_job_id {
            None => self.job.task.cost(),
            Some(_) => self.eval_items.max(1),
        }
    }

    /// Returns an estimate for the job, in microseconds since 1970.
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

/// Runs a statement that reads rows as columns, each an array: `"name": "$1::type[]" = value;`. The values,
/// their parameters and the names in `unnest` come from one list. Another parameter is between two of them.
macro_rules! columns {
    (
        |$row:ident| $rows:ident,
        $before:literal unnest $after:literal,
        "id": $first_place:literal = $first:expr;
        $($name:literal: $place:literal = $value:expr;)*
        $other:ident;
        $($later_name:literal: $later_place:literal = $later_value:expr;)*
    ) => {
        sqlx::query!(
            $before
                + "unnest(\n                " + $first_place
                $(+ ",\n                " + $place)*
                $(+ ",\n                " + $later_place)*
                + "\n            ) as n(\n                id"
                $(+ ",\n                " + $name)*
                $(+ ",\n                " + $later_name)*
                + "\n            )" + $after,
            &$rows.iter().map(|$row| $first).collect::<Vec<_>>() as _,
            $(&$rows.iter().map(|$row| $value).collect::<Vec<_>>() as _,)*
            $other,
            $(&$rows.iter().map(|$row| $later_value).collect::<Vec<_>>() as _,)*
        )
    };
}

/// Runs the statement that inserts rows. `$columns` are the rows' columns, see `columns`.
macro_rules! insert_rows {
    (|$row:ident| $rows:ident, $($columns:tt)+) => {
        columns!(
            |$row| $rows,
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
            from "# unnest r#"
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
            $($columns)+
        )
    };
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
    let limits = |row: &NewRow<'_>| orgs.get(&row.job.org_id);
    let notified = insert_rows!(
        |row| rows,
        "id": "$1::text[]" = row.id.as_str();
        "org_id": "$2::text[]" = row.job.org_id.as_str();
        "request_id": "$3::text[]" = row.job.request_id.as_str();
        "label": "$4::text[]" = row.job.label.as_deref();
        "hfm_sha": "$5::text[]" = row.job.hfm_sha.as_str();
        "suite_id": "$6::text[]" = row.suite.map(|suite| suite.suite_id.as_str());
        "suite_version": "$7::text[]" = row.suite.map(|suite| suite.version.as_str());
        "input_key": "$8::text[]" = row.input_key();
        "upload_id": "$9::text[]" = row.upload_id();
        "idempotency_key": "$10::text[]" = row.idempotency_key();
        "request_sha256": "$11::bytea[]" = row.request_sha256();
        "body": "$12::bytea[]" = row.body();
        "n_submitted": "$13::bigint[]" = row.n_submitted;
        "eval_items": "$14::bigint[]" = row.eval_items;
        "elapsed_us": "$15::bigint[]" = row.job.elapsed_us;
        "created_us": "$16::bigint[]" = row.created_at.unix_micros();
        "period_us": "$17::bigint[]" = limits(row).map_or(0, |limits| limits.period_start.unix_micros());
        "trace_id": "$18::text[]" = row.job.span.trace_id.to_string();
        "parent_span_id": "$19::text[]" = row.job.client_span.map(|span| span.to_string());
        "span_id": "$20::text[]" = row.job.is_exported.then(|| row.job.span.span_id.to_string());
        "active_max": "$21::bigint[]" = limits(row).and_then(|limits| limits.active_max);
        notifies;
        "type": "$23::text[]" = row.r#type.as_str();
        "predict_items": "$24::bigint[]" = row.predict_items;
        "served_model": "$25::jsonb[]" = row.prediction.map(|prediction| Json(&prediction.model));
        "parameters": "$26::jsonb[]" = row.prediction.map(|prediction| Json(&prediction.options));
        "output_upload_id": "$27::text[]" = row.prediction.map(|prediction| prediction.output_upload_id.as_str());
        "needs_job_id": "$28::text[]" = row.needs_job_id.map(JobId::as_str);
        "eval_job_id": "$29::text[]" = row.eval_job_id().map(JobId::as_str);
        "metadata": "$30::jsonb[]" = row.job.metadata.as_ref().map(Json);
        "cost": "$31::bigint[]" = row.cost();
        "estimated_end_at_us": "$32::bigint[]" = row.estimated(|estimate| estimate.end_seconds);
        "estimated_end_by_us": "$33::bigint[]" = row.estimated(|estimate| estimate.end_by_seconds);
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

/// Returns the row for a job that was just inserted.
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
