//! Responses with server-sent events.

use std::convert::Infallible;

use assay_core::Error;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::Stream;
use http::HeaderValue;
use http::header::CACHE_CONTROL;

use crate::http::error_response;
use crate::http::request_context::RequestContext;
use crate::layers::telemetry;

/// Returns the response with a stream of events.
pub(super) fn response(
    events: impl Stream<Item = Result<Event, Infallible>> + Send + 'static,
) -> Response {
    let mut response = Sse::new(events).into_response();
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies that collect responses, as nginx does, would delay the events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Returns the event `error`, which ends a stream, and records the error.
pub(super) fn error(error: &Error, context: &RequestContext) -> Event {
    telemetry::record_stream_error(error, context);
    let body = error_response::json(error, &context.request_id);
    Event::default().event("error").data(body)
}
