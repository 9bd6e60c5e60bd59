//! `/v1/jobs`

use assay_core::model::job::{JOBS_PAGE, Job, JobItems, JobStatus, JobType, Jobs};
use assay_core::model::permissions::{Caller, Submitter};
use assay_core::model::suite::{ITEMS_PAGE, ItemCursor};
use assay_core::model::validation::PageSize;
use assay_core::{JobId, Timestamp};
use axum::Json;
use axum::extract::State;
use http::Uri;

use super::extract::{Id, Permitted};
use super::input::Query;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::jobs::{self, Filter};
use crate::ops::trace_document::TraceDocument;

/// List jobs
///
/// The organization's jobs, newest first. Page on with `next_before`; its absence means the end. No two jobs share a
/// `created_at`, so that paging neither skips nor repeats one.
#[utoipa::path(get, path = "/v1/jobs", operation_id = "listJobs", tag = "jobs", security(("api_key" = []), ("session" = [])),
    params(
        ("type" = inline(Option<JobType>), Query, description = "Only jobs of this type."),
        ("status" = inline(Option<JobStatus>), Query, description = "Only jobs in this state."),
        ("limit" = inline(Option<PageSize<{ JOBS_PAGE.0 }, { JOBS_PAGE.1 }>>), Query, description = "Size of the page."),
        ("before" = inline(Option<Timestamp>), Query, description = "Only jobs created before this: `next_before` of the page before."),
    ),
    responses((status = 200, description = "A page of jobs.", body = Jobs)))]
pub(super) async fn list(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
    uri: Uri,
) -> Result<Json<Jobs>, Failure> {
    let mut query = Query::read(&uri);
    let filter = Filter {
        r#type: query.text("type"),
        status: query.text("status"),
        limit: query.integer("limit"),
        before: query.text("before"),
    };
    query.finish()?;
    Ok(Json(jobs::list(&app, &caller, filter).await?))
}

/// Cancel a job
///
/// A job that waits or runs is `cancelled` at once; a worker that holds it stops. What was charged is given back if the
/// job had not begun.
#[utoipa::path(post, path = "/v1/jobs/{job_id}/cancel", operation_id = "cancelJob", tag = "jobs",
    security(("api_key" = []), ("session" = ["member"])), params(("job_id" = JobId, Path, description = "The job.")),
    responses(
        (status = 200, description = "The job, cancelled.", body = Job),
        (status = 404, description = "No such job in the organization."),
        (status = 409, description = "The job has ended."),
    ))]
pub(super) async fn cancel(
    State(app): State<App>,
    Permitted(submitter): Permitted<Submitter>,
    Id(job_id): Id,
) -> Result<Json<Job>, Failure> {
    Ok(Json(jobs::cancel(&app, &submitter, &job_id).await?))
}

/// Mark a job as final
///
/// Of a suite with sealed items, at most three succeeded jobs can be final. After the suite has closed, the figures of the sealed
/// items of these jobs, and of no others, appear as `result.sealed`. A mark cannot be taken back; marking a job again changes
/// nothing.
#[utoipa::path(post, path = "/v1/jobs/{job_id}/final", operation_id = "finalizeJob", tag = "jobs",
    security(("api_key" = []), ("session" = ["member"])), params(("job_id" = JobId, Path, description = "The job.")),
    responses(
        (status = 200, description = "The job, final.", body = Job),
        (status = 404, description = "No such job in the organization."),
        (status = 409, description = "The job has not succeeded, its suite has no sealed items or has closed, or three jobs are final."),
    ))]
pub(super) async fn finalize(
    State(app): State<App>,
    Permitted(submitter): Permitted<Submitter>,
    Id(job_id): Id,
) -> Result<Json<Job>, Failure> {
    Ok(Json(jobs::finalize(&app, &submitter, &job_id).await?))
}

/// Read a job
///
/// With `wait` the answer comes as soon as the job has ended, after that many seconds at the latest: then with the job as
/// it stands.
#[utoipa::path(get, path = "/v1/jobs/{job_id}", operation_id = "getJob", tag = "jobs", security(("api_key" = []), ("session" = [])),
    params(
        ("job_id" = JobId, Path, description = "The job."),
        ("wait" = Option<i64>, Query, description = "How many seconds to wait for the job's end.", minimum = 0, maximum = 30),
    ),
    responses((status = 200, description = "The job.", body = Job), (status = 404, description = "No such job in the organization.")))]
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

/// Read a job's trace
///
/// OTLP/JSON, as any OpenTelemetry collector takes it: the request, the wait in the queue, each attempt with its phases,
/// and the score. It is there once the job has succeeded or failed. It holds no predictions and no answers.
#[utoipa::path(get, path = "/v1/jobs/{job_id}/trace", operation_id = "getJobTrace", tag = "jobs",
    security(("api_key" = []), ("session" = [])), params(("job_id" = JobId, Path, description = "The job.")),
    responses(
        (status = 200, description = "The trace.", body = ref("#/components/schemas/TraceDocument")),
        (status = 404, description = "No such job in the organization, or it has not run."),
    ))]
pub(super) async fn trace(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
    Id(job_id): Id,
) -> Result<Json<TraceDocument>, Failure> {
    Ok(Json(jobs::trace(&app, &caller, &job_id).await?))
}

/// Read the scores of a job's items
///
/// In the suite's order, a page at a time; only where the suite gives feedback on single items. Never an answer.
#[utoipa::path(get, path = "/v1/jobs/{job_id}/items", operation_id = "listJobItems", tag = "jobs",
    security(("api_key" = []), ("session" = [])),
    params(
        ("job_id" = JobId, Path, description = "The job."),
        ("limit" = inline(Option<PageSize<{ ITEMS_PAGE.0 }, { ITEMS_PAGE.1 }>>), Query, description = "Size of the page."),
        ("cursor" = inline(Option<ItemCursor>), Query, description = "`next_cursor` of the page before."),
    ),
    responses(
        (status = 200, description = "A page of scores.", body = JobItems),
        (status = 403, description = "Or the suite does not give feedback on single items."),
        (status = 404, description = "No such job in the organization."),
        (status = 409, description = "The job has not succeeded, or nothing is stored of its items any more."),
    ))]
pub(super) async fn items(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
    Id(job_id): Id,
    uri: Uri,
) -> Result<Json<JobItems>, Failure> {
    let mut query = Query::read(&uri);
    let (cursor, limit) = (query.text("cursor"), query.integer("limit"));
    query.finish()?;
    Ok(Json(
        jobs::items(&app, &caller, &job_id, cursor.as_deref(), limit).await?,
    ))
}
