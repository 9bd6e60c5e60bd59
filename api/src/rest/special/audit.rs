//! `GET /v1/audit`: a page as JSON, or all entries as a file.

use assay_core::model::permissions::Owner;
use assay_core::{Error, Result};
use axum::Json;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use http::HeaderValue;
use http::header::CONTENT_TYPE;

use crate::app::App;
use crate::generated::inputs;
use crate::http::error_response::Failure;
use crate::http::request_context::RequestContext;
use crate::layers::telemetry;
use crate::ops::audit;
use crate::rest::extract::prefers;
use crate::rest::input::Query;

const NDJSON: &str = "application/x-ndjson";

/// Lists the entries in the form that the client accepts.
pub async fn list_audit_entries(
    app: App,
    owner: Owner,
    request: Request,
) -> Result<Response, Failure> {
    let context = RequestContext::find(request.extensions())?;
    let mut query = Query::read(request.uri());
    let input = inputs::ListAuditEntries::read(&mut query);
    query.finish()?;
    if !prefers(request.headers(), NDJSON) {
        return Ok(Json(audit::list(&app, &owner, input).await?).into_response());
    }
    let lines = audit::export(app, &owner, input)
        .await?
        .and_then(|entry| async move {
            let mut line = serde_json::to_vec(&entry).map_err(Error::internal)?;
            line.push(b'\n');
            Ok(Bytes::from(line))
        })
        .inspect_err(move |error| telemetry::record_stream_error(error, &context));
    let mut response = Response::new(Body::from_stream(lines));
    let media_type = HeaderValue::from_static(NDJSON);
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    Ok(response)
}
