//! Handlers of `/v1/jobs`.

use assay_core::model::job::{JOBS_PAGE, Job, JobItems, JobStatus, JobType, Jobs};
use assay_core::model::permissions::{Caller, Submitter};
use assay_core::model::suite_items::{ITEMS_PAGE, ItemCursor};
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
/// Returns the jobs of the organization, the newest first. To get the next page, send `next_before`
/// as `before`, until it is absent. No two jobs of an organization have the same `created_at`, so
/// that paging neither skips nor repeats a job.
///
/// Requires an API key or a session token.
#[utoipa::path(
    get,
    path = "/v1/jobs",
    operation_id = "listJobs",
    tag = "jobs",
    security(("api_key" = []), ("session" = [])),
    params(
        ("type" = inline(Option<JobType>), Query, description = "Return only jobs of this type."),
        (
            "status" = inline(Option<JobStatus>),
            Query,
            description = "Return only jobs in this state.",
        ),
        (
            "limit" = inline(Option<PageSize<{ JOBS_PAGE.0 }, { JOBS_PAGE.1 }>>),
            Query,
            description = "The maximum number of jobs on the page.",
        ),
        (
            "before" = inline(Option<Timestamp>),
            Query,
            description =
                "Return only jobs that were created before this time: the `next_before` of the \
                 previous page.",
        ),
    ),
    responses(
        (status = 200, description = "A page of jobs.", body = Jobs),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
    uri: Uri,
) -> Result<Json<Jobs>, Failure> {
    let mut query = Query::read(&uri);
    let filter = Filter {
        r#type: query.string("type"),
        status: query.string("status"),
        limit: query.integer("limit"),
        before: query.string("before"),
    };
    query.finish()?;
    Ok(Json(jobs::list(&app, &caller, filter).await?))
}

/// Cancel a job
///
/// A queued or running job is `cancelled` at once, and its worker stops. The charge is refunded if
/// the job was cancelled before its first attempt.
///
/// Requires an API key, or the session token of a member.
#[utoipa::path(
    post,
    path = "/v1/jobs/{job_id}/cancel",
    operation_id = "cancelJob",
    tag = "jobs",
    security(("api_key" = []), ("session" = ["member"])),
    params(
        ("job_id" = JobId, Path, description = "The id of the job."),
    ),
    responses(
        (status = 200, description = "The cancelled job.", body = Job),
        (status = 404, description = "The organization has no such job."),
        (status = 409, description = "The job has finished."),
    ),
)]
pub(super) async fn cancel(
    State(app): State<App>,
    Permitted(submitter): Permitted<Submitter>,
    Id(job_id): Id,
) -> Result<Json<Job>, Failure> {
    Ok(Json(jobs::cancel(&app, &submitter, &job_id).await?))
}

/// Mark a job as final
///
/// At most three succeeded jobs of a version of a suite with sealed items can be final.
/// Organizations of one domain, and those on the plan `free` that one user created, share the
/// three. After the suite has closed, the figures of the sealed items are disclosed as
/// `result.sealed` of the final jobs, and of no others. A mark cannot be removed; marking a job
/// again changes nothing.
///
/// Requires an API key, or the session token of a member.
#[utoipa::path(
    post,
    path = "/v1/jobs/{job_id}/final",
    operation_id = "finalizeJob",
    tag = "jobs",
    security(("api_key" = []), ("session" = ["member"])),
    params(
        ("job_id" = JobId, Path, description = "The id of the job."),
    ),
    responses(
        (status = 200, description = "The final job.", body = Job),
        (status = 404, description = "The organization has no such job."),
        (
            status = 409,
            description =
                "The job has not succeeded, its suite has no sealed items or has closed, or three \
                 jobs are final.",
        ),
    ),
)]
pub(super) async fn finalize(
    State(app): State<App>,
    Permitted(submitter): Permitted<Submitter>,
    Id(job_id): Id,
) -> Result<Json<Job>, Failure> {
    Ok(Json(jobs::finalize(&app, &submitter, &job_id).await?))
}

/// Get a job
///
/// Returns the job as it is. With `wait`, the response is delayed until the job has finished, at
/// most by that many seconds.
///
/// Requires an API key or a session token.
#[utoipa::path(
    get,
    path = "/v1/jobs/{job_id}",
    operation_id = "getJob",
    tag = "jobs",
    security(("api_key" = []), ("session" = [])),
    params(
        ("job_id" = JobId, Path, description = "The id of the job."),
        (
            "wait" = Option<i64>,
            Query,
            description = "The longest wait for the job to finish, in seconds. The default is 0.",
            minimum = 0,
            maximum = 30,
        ),
    ),
    responses(
        (status = 200, description = "The job.", body = Job),
        (status = 404, description = "The organization has no such job."),
    ),
)]
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

/// Get the trace of a job
///
/// Returns the trace of a job that has succeeded or failed in OTLP/JSON, which an OpenTelemetry
/// collector accepts unchanged. Its spans are the request, the wait in the queue, each attempt with
/// its phases, and the score. It contains no predictions and no answers.
///
/// Requires an API key or a session token.
#[utoipa::path(
    get,
    path = "/v1/jobs/{job_id}/trace",
    operation_id = "getJobTrace",
    tag = "jobs",
    security(("api_key" = []), ("session" = [])),
    params(
        ("job_id" = JobId, Path, description = "The id of the job."),
    ),
    responses(
        (
            status = 200,
            description = "The trace.",
            body = ref("#/components/schemas/TraceDocument"),
        ),
        (
            status = 404,
            description =
                "The organization has no such job, or the job has neither succeeded nor failed.",
        ),
    ),
)]
pub(super) async fn trace(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
    Id(job_id): Id,
) -> Result<Json<TraceDocument>, Failure> {
    Ok(Json(jobs::trace(&app, &caller, &job_id).await?))
}

/// List the item scores of a job
///
/// Returns the item scores of a succeeded job, in the order of the suite's items. Item scores are
/// stored for 30 days, and only for jobs that predict at least one item in 1,000. To get the next
/// page, send `next_cursor` as `cursor`, until it is null.
///
/// Requires an API key or a session token.
#[utoipa::path(
    get,
    path = "/v1/jobs/{job_id}/items",
    operation_id = "listJobItems",
    tag = "jobs",
    security(("api_key" = []), ("session" = [])),
    params(
        ("job_id" = JobId, Path, description = "The id of the job."),
        (
            "limit" = inline(Option<PageSize<{ ITEMS_PAGE.0 }, { ITEMS_PAGE.1 }>>),
            Query,
            description = "The maximum number of item scores on the page.",
        ),
        (
            "cursor" = inline(Option<ItemCursor>),
            Query,
            description =
                "The `next_cursor` of the previous page. If absent, the first page is returned.",
        ),
    ),
    responses(
        (status = 200, description = "A page of item scores.", body = JobItems),
        (
            status = 403,
            description = "It is also returned if the suite has no `per_item_feedback`.",
        ),
        (status = 404, description = "The organization has no such job."),
        (
            status = 409,
            description = "The job has not succeeded, or its item scores are not stored.",
        ),
    ),
)]
pub(super) async fn items(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
    Id(job_id): Id,
    uri: Uri,
) -> Result<Json<JobItems>, Failure> {
    let mut query = Query::read(&uri);
    let cursor = query.string("cursor");
    let limit = query.integer("limit");
    query.finish()?;
    Ok(Json(
        jobs::items(&app, &caller, &job_id, cursor.as_deref(), limit).await?,
    ))
}
