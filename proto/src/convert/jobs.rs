//! Messages of `JobService`.

use assay_core::model::job::{
    EvalResult, ItemScore, Job, JobError, JobItems, JobResult, Jobs, SealedFigures, Versions,
};
use assay_core::model::prediction::{PredictResult, PredictionUsage};

use super::timestamp;
use crate::v1;

impl From<Job> for v1::Job {
    fn from(job: Job) -> Self {
        let Job {
            id,
            org_id,
            r#type,
            status,
            request_id,
            label,
            metadata,
            versions,
            attempts,
            progress,
            created_at,
            started_at,
            finished_at,
            r#final,
            eval_job_id,
            queue,
            result,
            error,
            trace_url,
        } = job;
        let (result, predict_result) = match result {
            Some(JobResult::Eval(result)) => (Some(result.into()), None),
            Some(JobResult::Predict(result)) => (None, Some(result.into())),
            None => (None, None),
        };
        Self {
            id: id.into(),
            org_id: org_id.into(),
            r#type: r#type.to_string(),
            status: status.to_string(),
            request_id,
            label,
            metadata: metadata.into(),
            versions: Some(versions.into()),
            attempts,
            progress,
            created_at: Some(timestamp(created_at)),
            started_at: started_at.map(timestamp),
            finished_at: finished_at.map(timestamp),
            r#final,
            eval_job_id: eval_job_id.map(Into::into),
            queue: queue.map(Into::into),
            result,
            predict_result,
            error: error.map(Into::into),
            trace_url,
        }
    }
}

impl From<Jobs> for v1::ListJobsResponse {
    fn from(page: Jobs) -> Self {
        let Jobs { jobs, next_before } = page;
        Self {
            jobs: jobs.into_iter().map(Into::into).collect(),
            next_before: next_before.map(timestamp),
        }
    }
}

impl From<Versions> for v1::Versions {
    fn from(versions: Versions) -> Self {
        let Versions {
            hfm_sha,
            suite_id,
            suite_version,
            model_id,
            model_version,
        } = versions;
        Self {
            hfm_sha,
            suite_id: suite_id.map(Into::into).unwrap_or_default(),
            suite_version,
            model_id,
            model_version,
        }
    }
}

impl From<EvalResult> for v1::EvalResult {
    fn from(result: EvalResult) -> Self {
        let EvalResult {
            hfm_sha,
            metric,
            n,
            n_submitted,
            n_unmatched,
            n_missing,
            suite_id,
            suite_version,
            value,
            stderr,
            ci95,
            ci_method,
            metrics,
            release,
            sealed,
        } = result;
        Self {
            hfm_sha,
            metric,
            n,
            n_submitted,
            n_unmatched,
            n_missing,
            suite_id,
            suite_version,
            value,
            stderr,
            ci95: ci95.map(Vec::from).unwrap_or_default(),
            ci_method,
            metrics: metrics.into_iter().collect(),
            release,
            sealed: sealed.map(Into::into),
        }
    }
}

impl From<PredictResult> for v1::PredictResult {
    fn from(result: PredictResult) -> Self {
        let PredictResult {
            model_id,
            model_version,
            operation,
            engine,
            hfm_sha,
            n,
            n_failed,
            n_truncated,
            n_unknown,
            n_cold,
            usage: PredictionUsage { predict_items },
            output_ref,
            output_bytes,
            output_sha256,
            expires_at,
            eval_job_id,
        } = result;
        Self {
            model_id,
            model_version,
            operation: operation.to_string(),
            engine,
            hfm_sha,
            n,
            n_failed,
            n_truncated,
            n_unknown,
            n_cold,
            usage: Some(v1::PredictionUsage { predict_items }),
            output_ref,
            output_bytes,
            output_sha256,
            expires_at: Some(timestamp(expires_at)),
            eval_job_id,
        }
    }
}

impl From<SealedFigures> for v1::SealedFigures {
    fn from(figures: SealedFigures) -> Self {
        let SealedFigures {
            value,
            stderr,
            ci95,
            n,
        } = figures;
        Self {
            value,
            stderr,
            ci95: ci95.map(Vec::from).unwrap_or_default(),
            n,
        }
    }
}

impl From<JobError> for v1::JobError {
    fn from(error: JobError) -> Self {
        let JobError { code, message } = error;
        Self {
            code: code.to_string(),
            message,
        }
    }
}

impl From<JobItems> for v1::ListJobItemsResponse {
    fn from(page: JobItems) -> Self {
        let JobItems {
            job_id,
            suite_id,
            suite_version,
            items,
            n_items,
            next_cursor,
        } = page;
        let item = |item| {
            let ItemScore { item_id, score } = item;
            v1::ItemScore { item_id, score }
        };
        Self {
            job_id: job_id.into(),
            suite_id: suite_id.into(),
            suite_version,
            items: items.into_iter().map(item).collect(),
            n_items,
            next_cursor: next_cursor.map(|cursor| cursor.to_string()),
        }
    }
}
