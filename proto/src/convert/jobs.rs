//! Messages of `JobService` whose fields differ from those of their resource.

use assay_core::model::job::{Job, JobResult, Versions};

use super::IntoProto as _;
use crate::v1;

/// The two kinds of results have fields of their own in a message.
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
            r#type: r#type.into(),
            status: status.into(),
            request_id,
            label,
            metadata: metadata.into(),
            versions: Some(versions.into()),
            attempts,
            progress,
            created_at: Some(created_at.into_proto()),
            started_at: started_at.into_proto(),
            finished_at: finished_at.into_proto(),
            r#final,
            eval_job_id: eval_job_id.into_proto(),
            queue: queue.map(Into::into),
            result,
            predict_result,
            error: error.map(Into::into),
            trace_url,
        }
    }
}

/// A message has an empty `suite_id` instead of none.
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
