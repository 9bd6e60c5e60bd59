//! Handlers of `/v1/jobs`.

use assay_core::model::job::{JOBS_PAGE, Job, JobEvent, JobItems, JobStatus, JobType, Jobs};
use assay_core::model::permissions::{EvalSubmitter, JobCanceller, JobReader};
use assay_core::model::suite::SuiteId;
use assay_core::model::suite_items::{ITEMS_PAGE, ItemCursor};
use assay_core::model::validation::{self, PageSize};
use assay_core::{Code, Error, JobId, Timestamp};
use axum::body::Body;
use axum::extract::State;
use axum::response::sse::Event;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use futures_util::{StreamExt as _, TryStreamExt as _};
use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};

use super::extract::{Id, Permitted};
use super::input::Query;
use super::sse;
use crate::app::App;
use crate::http::byte_range::RequestedRange;
use crate::http::error_response::Failure;
use crate::http::request_context::RequestContext;
use crate::layers::telemetry;
use crate::limits::request_memory::SharedReservation;
use crate::ops::job_output;
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
    security(("api_key" = ["jobs:read"]), ("session" = [])),
    params(
        ("type" = inline(Option<JobType>), Query, description = "Return only jobs of this type."),
        (
            "status" = inline(Option<JobStatus>),
            Query,
            description = "Return only jobs in this state.",
        ),
        (
            "suite_id" = inline(Option<SuiteId>),
            Query,
            description = "Return only jobs of this suite.",
        ),
        (
            "label" = inline(Option<validation::Text>),
            Query,
            description = "Return only jobs with exactly this label.",
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
    Permitted(caller): Permitted<JobReader>,
    Extension(room): Extension<SharedReservation>,
    uri: Uri,
) -> Result<Json<Jobs>, Failure> {
    let mut query = Query::read(&uri);
    let filter = Filter {
        r#type: query.string("type"),
        status: query.string("status"),
        suite_id: query.string("suite_id"),
        label: query.string("label"),
        limit: query.integer("limit"),
        before: query.string("before"),
    };
    query.finish()?;
    Ok(Json(jobs::list(&app, &caller, filter, &room).await?))
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
    security(("api_key" = ["jobs:cancel"]), ("session" = ["member"])),
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
    Permitted(canceller): Permitted<JobCanceller>,
    Id(job_id): Id,
) -> Result<Json<Job>, Failure> {
    Ok(Json(jobs::cancel(&app, &canceller, &job_id).await?))
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
    security(("api_key" = ["evals:write"]), ("session" = ["member"])),
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
    Permitted(submitter): Permitted<EvalSubmitter>,
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
    security(("api_key" = ["jobs:read"]), ("session" = [])),
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
    Permitted(caller): Permitted<JobReader>,
    Id(job_id): Id,
    uri: Uri,
) -> Result<Json<Job>, Failure> {
    let mut query = Query::read(&uri);
    let wait = query.integer("wait");
    query.finish()?;
    Ok(Json(jobs::get(&app, &caller, &job_id, wait).await?))
}

/// Follow a job
///
/// Streams server-sent events: the job as it is and after each change, as `data` of an event without a
/// name. The stream ends after the final state. A comment every 10 s shows that it is alive. A change
/// that the next one follows quickly can be skipped; the final state never is. An error during the
/// stream is the event `error`, and ends it.
///
/// Requires an API key or a session token.
#[utoipa::path(
    get,
    path = "/v1/jobs/{job_id}/events",
    operation_id = "watchJob",
    tag = "jobs",
    security(("api_key" = ["jobs:read"]), ("session" = [])),
    params(
        ("job_id" = JobId, Path, description = "The id of the job."),
    ),
    responses(
        (
            status = 200,
            description = "The states of the job, one event each.",
            body = JobEvent,
            content_type = "text/event-stream",
        ),
        (status = 404, description = "The organization has no such job."),
    ),
)]
pub(super) async fn events(
    State(app): State<App>,
    Permitted(caller): Permitted<JobReader>,
    Id(job_id): Id,
    context: RequestContext,
) -> Result<Response, Failure> {
    let changes = jobs::watch(app, caller, &job_id).await?;
    let events = changes.map(move |change| {
        let event = match change {
            Ok(Some(job)) => Event::default().json_data(job),
            Ok(None) => Ok(Event::default().comment("")),
            Err(error) => return Ok(sse::error(&error, &context)),
        };
        Ok(event.unwrap_or_else(|error| sse::error(&Error::internal(error), &context)))
    });
    Ok(sse::response(events))
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
    security(("api_key" = ["jobs:read"]), ("session" = [])),
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
    Permitted(caller): Permitted<JobReader>,
    Id(job_id): Id,
) -> Result<Json<TraceDocument>, Failure> {
    Ok(Json(jobs::trace(&app, &caller, &job_id).await?))
}

/// Get the output of a prediction job
///
/// Streams the output of a succeeded prediction job as NDJSON: one line for each sequence, in the
/// order of the input. A line has `item_id` (if the job predicts a suite) or `sequence_id`, and
/// `prediction` with `scores`, or `error` with `code` and `message` if the sequence failed. The output
/// expires after 7 days. To delete it earlier, delete the upload `output_ref`.
///
/// The header `Range` requests a part of the output, such as `bytes=1000-`, with status 206. Several
/// ranges are not supported: the whole output is returned.
///
/// Requires an API key or a session token.
#[utoipa::path(
    get,
    path = "/v1/jobs/{job_id}/output",
    operation_id = "getJobOutput",
    tag = "jobs",
    security(("api_key" = ["jobs:read"]), ("session" = [])),
    params(
        ("job_id" = JobId, Path, description = "The id of the job."),
        (
            "Range" = Option<String>,
            Header,
            description = "The bytes to return.",
            example = "bytes=0-",
        ),
    ),
    responses(
        (
            status = 200,
            description = "The output, one JSON object a line.",
            body = String,
            content_type = "application/x-ndjson",
        ),
        (
            status = 206,
            description = "The requested part of the output.",
            body = String,
            content_type = "application/x-ndjson",
        ),
        (
            status = 404,
            description =
                "The organization has no such job, the job is an eval, or the output has expired \
                 or was deleted.",
        ),
        (status = 409, description = "The job has not succeeded."),
        (
            status = 416,
            description = "The output does not have the requested bytes.",
        ),
    ),
)]
pub(super) async fn output(
    State(app): State<App>,
    Permitted(caller): Permitted<JobReader>,
    Id(job_id): Id,
    context: RequestContext,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let output = job_output::find(&app, &caller, &job_id).await?;
    let bytes = output.bytes;
    let etag = format!("\"{}\"", output.sha256);
    let (status, range) = match RequestedRange::read(&headers, bytes, &etag) {
        RequestedRange::Whole => (StatusCode::OK, 0..bytes),
        RequestedRange::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
        RequestedRange::Unsatisfiable => {
            let message = format!("The output has {bytes} bytes, and none of the requested ones.");
            let failure = Failure {
                status: Some(StatusCode::RANGE_NOT_SATISFIABLE),
                ..Error::new(Code::InvalidRequest, message).into()
            };
            let mut response = failure.into_response();
            let content_range = header(format!("bytes */{bytes}"))?;
            response.headers_mut().insert(CONTENT_RANGE, content_range);
            return Ok(response);
        }
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/x-ndjson"),
    );
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(ETAG, header(etag)?);
    headers.insert(CONTENT_LENGTH, (range.end - range.start).into());
    if status == StatusCode::PARTIAL_CONTENT {
        let content_range = format!("bytes {}-{}/{bytes}", range.start, range.end - 1);
        headers.insert(CONTENT_RANGE, header(content_range)?);
    }
    let pieces = output
        .stream(&app, range)
        .inspect_err(move |error| telemetry::record_stream_error(error, &context));
    *response.body_mut() = Body::from_stream(pieces);
    Ok(response)
}

fn header(value: String) -> Result<HeaderValue, Error> {
    value.try_into().map_err(Error::internal)
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
    security(("api_key" = ["jobs:read"]), ("session" = [])),
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
    Permitted(caller): Permitted<JobReader>,
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
