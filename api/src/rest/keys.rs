//! Handlers of `/v1/keys`.

use assay_core::KeyId;
use assay_core::model::cursor::{Cursor, PAGE};
use assay_core::model::key::{ApiKey, ApiKeyCreate, ApiKeyCreated, ApiKeys};
use assay_core::model::permissions::{Member, Session, TermsAccepted};
use assay_core::model::validation::PageSize;
use axum::Json;
use axum::extract::{Request, State};
use http::{StatusCode, Uri};

use super::extract::{Id, Permitted, SMALL_BODY_MAX, read_json_body};
use super::input::{Fields, page_query};
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::keys;

/// List API keys
///
/// Returns the API keys of the organization, the newest first. The list contains revoked keys. It
/// never contains secrets. To get the next page, send `next_cursor` as `cursor`, until it is null.
///
/// Requires a session token.
#[utoipa::path(
    get,
    path = "/v1/keys",
    operation_id = "listKeys",
    tag = "keys",
    security(("session" = [])),
    params(
        (
            "limit" = inline(Option<PageSize<{ PAGE.0 }, { PAGE.1 }>>),
            Query,
            description = "The maximum number of keys on the page.",
        ),
        (
            "cursor" = inline(Option<Cursor>),
            Query,
            description =
                "The `next_cursor` of the previous page. If absent, the first page is returned.",
        ),
    ),
    responses(
        (status = 200, description = "A page of keys.", body = ApiKeys),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Permitted(session): Permitted<Session>,
    uri: Uri,
) -> Result<Json<ApiKeys>, Failure> {
    Ok(Json(keys::list(&app, &session, page_query(&uri)?).await?))
}

/// Create an API key
///
/// The response is the only one that contains the secret. The key belongs to the organization, not
/// to the user who creates it. If the connection fails before the response arrives, the key may
/// exist although nobody knows its secret: revoke it with `DELETE /v1/keys/{key_id}`.
///
/// Requires the session token of a member. The organization must have accepted the terms.
#[utoipa::path(
    post,
    path = "/v1/keys",
    operation_id = "createKey",
    tag = "keys",
    security(("session" = ["member"])),
    request_body = ApiKeyCreate,
    responses(
        (status = 201, description = "The new key with its secret.", body = ApiKeyCreated),
        (
            status = 403,
            description = "It is also returned if the organization has not accepted the terms.",
        ),
        (status = 409, description = "The organization has 100 live keys."),
    ),
)]
pub(super) async fn create(
    State(app): State<App>,
    Permitted(member): Permitted<TermsAccepted<Member>>,
    request: Request,
) -> Result<(StatusCode, Json<ApiKeyCreated>), Failure> {
    let body = read_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let name = fields.string("name");
    fields.finish()?;
    Ok((
        StatusCode::CREATED,
        Json(keys::create(&app, &member, &name).await?),
    ))
}

/// Revoke an API key
///
/// From then on, the key fails with 401 `key_revoked`. The revoked key is listed for 90 days,
/// unless the operator sets another time. Revoking it again changes nothing.
///
/// Requires the session token of a member.
#[utoipa::path(
    delete,
    path = "/v1/keys/{key_id}",
    operation_id = "revokeKey",
    tag = "keys",
    security(("session" = ["member"])),
    params(
        ("key_id" = KeyId, Path, description = "The id of the key."),
    ),
    responses(
        (status = 200, description = "The revoked key.", body = ApiKey),
        (status = 404, description = "The organization has no such key."),
    ),
)]
pub(super) async fn revoke(
    State(app): State<App>,
    Permitted(member): Permitted<Member>,
    Id(key_id): Id,
) -> Result<Json<ApiKey>, Failure> {
    Ok(Json(keys::revoke(&app, &member, &key_id).await?))
}
