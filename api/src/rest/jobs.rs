//! `/v1/jobs`

use assay_core::job::Job;
use assay_core::principal::Caller;
use axum::Json;
use axum::extract::State;

use super::extract::{Id, Permitted};
use crate::app::App;
use crate::ops::jobs;
use crate::render::Failure;
use crate::trace_document::TraceDocument;

pub(super) async fn get(State(app): State<App>, Permitted(caller): Permitted<Caller>, Id(job_id): Id) -> Result<Json<Job>, Failure> {
    Ok(Json(jobs::get(&app, &caller, &job_id).await?))
}

pub(super) async fn trace(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
    Id(job_id): Id,
) -> Result<Json<TraceDocument>, Failure> {
    Ok(Json(jobs::trace(&app, &caller, &job_id).await?))
}
