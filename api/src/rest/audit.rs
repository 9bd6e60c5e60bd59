//! Handlers of `/v1/audit`.

use assay_core::model::audit::{AuditEntries, AuditType};
use assay_core::model::cursor::PAGE;
use assay_core::model::ids::AuditId;
use assay_core::model::permissions::Owner;
use assay_core::model::validation::{self, PageSize};
use assay_core::{Error, Result};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Uri};

use super::extract::{Permitted, prefers};
use super::input::Query;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::http::request_context::RequestContext;
use crate::layers::telemetry;
use crate::ops::audit::{self, AuditQuery};

const NDJSON: &str = "application/x-ndjson";

/// List the audit log
///
/// Returns who changed what in the organization, the newest entry first: keys, members, invites,
/// domains, settings, terms, sign-ins and the plan. An entry is stored in the transaction of its
/// change. A refused request has none. Entries are kept for 400 days. To get the next page, send
/// `next_before` as `before`, until it is absent.
///
/// With `Accept: application/x-ndjson`, the response has all entries, one JSON object a line.
///
/// Requires the session token of an owner.
#[utoipa::path(
    get,
    path = "/v1/audit",
    operation_id = "listAuditEntries",
    tag = "audit",
    security(("session" = ["owner"])),
    params(
        ("type" = inline(Option<AuditType>), Query, description = "Return only changes of this kind."),
        (
            "actor_id" = inline(Option<validation::Text>),
            Query,
            description = "Return only changes that this user or API key made.",
        ),
        (
            "target_id" = inline(Option<validation::Text>),
            Query,
            description = "Return only changes of the resource with this id.",
        ),
        (
            "limit" = inline(Option<PageSize<{ PAGE.0 }, { PAGE.1 }>>),
            Query,
            description = "The maximum number of entries on the page.",
        ),
        (
            "before" = Option<AuditId>,
            Query,
            description = "Return only entries before this one: the `next_before` of the previous page.",
        ),
    ),
    responses(
        (
            status = 200,
            description = "A page of entries, or all entries.",
            content((AuditEntries = "application/json"), (String = "application/x-ndjson")),
        ),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    context: RequestContext,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Failure> {
    let mut query = Query::read(&uri);
    let filter = AuditQuery {
        r#type: query.string("type"),
        actor_id: query.string("actor_id"),
        target_id: query.string("target_id"),
        limit: query.integer("limit"),
        before: query.string("before"),
    };
    query.finish()?;
    if !prefers(&headers, NDJSON) {
        return Ok(Json(audit::list(&app, &owner, filter).await?).into_response());
    }
    let lines = audit::export(app, &owner, filter)
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
