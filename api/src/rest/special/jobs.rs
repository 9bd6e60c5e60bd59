//! `/v1/jobs`: the stream of a job, its trace, and its output.

use assay_core::model::permissions::JobReader;
use assay_core::{Code, Error};
use axum::Json;
use axum::body::Body;
use axum::extract::Request;
use axum::response::sse::Event;
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, TryStreamExt as _};
use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG};
use http::{HeaderValue, StatusCode};

use super::sse;
use crate::app::App;
use crate::http::byte_range::RequestedRange;
use crate::http::error_response::Failure;
use crate::http::request_context::RequestContext;
use crate::layers::telemetry;
use crate::ops::{job_output, jobs};

/// Streams the states of a job as server-sent events.
pub async fn watch_job(
    app: App,
    caller: JobReader,
    [job_id]: [String; 1],
    request: Request,
) -> Result<Response, Failure> {
    let context = RequestContext::find(request.extensions())?;
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

/// Returns the trace of a job.
pub async fn get_job_trace(
    app: App,
    caller: JobReader,
    [job_id]: [String; 1],
    _: Request,
) -> Result<Response, Failure> {
    Ok(Json(jobs::trace(&app, &caller, &job_id).await?).into_response())
}

/// Streams the output of a job, or a part.
pub async fn stream_job_output(
    app: App,
    caller: JobReader,
    [job_id]: [String; 1],
    request: Request,
) -> Result<Response, Failure> {
    let context = RequestContext::find(request.extensions())?;
    let output = job_output::find(&app, &caller, &job_id).await?;
    let bytes = output.bytes;
    let etag = format!("\"{}\"", output.sha256);
    let (status, range) = match RequestedRange::read(request.headers(), bytes, &etag) {
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
