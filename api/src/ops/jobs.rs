//! `/v1/jobs`

use assay_core::job::Job;
use assay_core::principal::Caller;
use assay_core::{Error, JobId, Result, store};

use crate::app::App;
use crate::trace_document::{self, TraceDocument};

fn missing() -> Error {
    Error::not_found("job")
}

/// A job of the organization.
pub async fn get(app: &App, caller: &Caller, job_id: &str) -> Result<Job> {
    let job_id: JobId = job_id.parse().map_err(|_| missing())?;
    let row = store::job::find(&app.db, caller.org_id(), &job_id).await?.ok_or_else(missing)?;
    Ok(row.into_job(&app.settings.public_url))
}

/// The trace of a job that has run.
pub async fn trace(app: &App, caller: &Caller, job_id: &str) -> Result<TraceDocument> {
    let job = get(app, caller, job_id).await?;
    if job.trace_url.is_none() {
        return Err(Error::not_found("trace: the job has not run"));
    }
    let head = store::trace::find(&app.db, caller.org_id(), &job.id).await?.ok_or_else(missing)?;
    let attempts = store::trace::attempts(&app.db, caller.org_id(), &job.id).await?;
    Ok(trace_document::of(&job, &head, &attempts))
}
