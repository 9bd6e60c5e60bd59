//! `/v1/jobs`

use assay_core::job::{Job, JobItems, Jobs};
use assay_core::principal::{Caller, Submitter};
use axum::Json;
use axum::extract::State;
use http::Uri;

use super::extract::{Id, Permitted};
use super::input::Query;
use crate::app::App;
use crate::ops::jobs::{self, Filter};
use crate::render::Failure;
use crate::trace_document::TraceDocument;

pub(super) async fn list(State(app): State<App>, Permitted(caller): Permitted<Caller>, uri: Uri) -> Result<Json<Jobs>, Failure> {
    let mut query = Query::read(&uri);
    let filter =
        Filter { r#type: query.text("type"), status: query.text("status"), limit: query.integer("limit"), before: query.text("before") };
    query.finish()?;
    Ok(Json(jobs::list(&app, &caller, filter).await?))
}

pub(super) async fn cancel(
    State(app): State<App>,
    Permitted(submitter): Permitted<Submitter>,
    Id(job_id): Id,
) -> Result<Json<Job>, Failure> {
    Ok(Json(jobs::cancel(&app, &submitter, &job_id).await?))
}

pub(super) async fn get(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
    Id(job_id): Id,
    uri: Uri,
) -> Result<Json<Job>, Failure> {
    let mut query = Query::read(&uri);
    let wait = query.integer("wait");
    query.finish()?;
    Ok(Json(jobs::get(&app, &caller, &job_id, wait).await?))
}

pub(super) async fn trace(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
    Id(job_id): Id,
) -> Result<Json<TraceDocument>, Failure> {
    Ok(Json(jobs::trace(&app, &caller, &job_id).await?))
}

pub(super) async fn items(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
    Id(job_id): Id,
    uri: Uri,
) -> Result<Json<JobItems>, Failure> {
    let mut query = Query::read(&uri);
    let (cursor, limit) = (query.text("cursor"), query.integer("limit"));
    query.finish()?;
    Ok(Json(jobs::items(&app, &caller, &job_id, cursor.as_deref(), limit).await?))
}
