//! `GET /v1/suites/{suite_id}/opening/{file}`: the response is a file.

use assay_core::model::permissions::SuiteVisitor;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use futures_util::TryStreamExt as _;
use http::HeaderValue;
use http::header::CONTENT_TYPE;

use crate::app::App;
use crate::http::error_response::Failure;
use crate::http::request_context::RequestContext;
use crate::layers::{memory, telemetry};
use crate::ops::receipts;
use crate::rest::input::Query;

/// Streams a file of a retired suite.
pub async fn stream_suite_opening(
    app: App,
    visitor: SuiteVisitor,
    [suite_id, file]: [String; 2],
    request: Request,
) -> Result<Response, Failure> {
    let context = RequestContext::find(request.extensions())?;
    let room = memory::reservation(request.extensions())?;
    let mut query = Query::read(request.uri());
    let version = query.string("version");
    query.finish()?;
    let (version, address) = (version.as_deref(), &context.address);
    let lines =
        receipts::opened_file(&app, &visitor, &suite_id, version, &file, address, room).await?;
    let lines = lines.inspect_err(move |error| telemetry::record_stream_error(error, &context));
    let media_type = HeaderValue::from_static("application/x-ndjson");
    Ok(([(CONTENT_TYPE, media_type)], Body::from_stream(lines)).into_response())
}
