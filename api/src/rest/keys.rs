//! Handlers of `/v1/keys`.

use assay_core::KeyId;
use assay_core::model::cursor::{Cursor, PAGE};
use assay_core::model::key::{
    ApiKey, ApiKeyCreate, ApiKeyCreated, ApiKeyRotate, ApiKeyUpdate, ApiKeys,
};
use assay_core::model::permissions::{Member, Session, TermsAccepted};
use assay_core::model::validation::PageSize;
use axum::Json;
use axum::extract::{Request, State};
use http::{StatusCode, Uri};

use super::extract::{Id, Permitted, SMALL_BODY_MAX, read_json_body, read_optional_json_body};
use super::input::{Fields, page_query};
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::keys::{self, KeyFields};

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
/// A key can have less than all scopes and a time at which it expires. Members of the organization
/// can restrict it further later, but never extend it.
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
    let key = KeyFields {
        name: Some(fields.string("name")),
        scopes: fields.optional_strings("scopes"),
        expires_at: fields.optional_string("expires_at"),
    };
    fields.finish()?;
    Ok((
        StatusCode::CREATED,
        Json(keys::create(&app, &member, key).await?),
    ))
}

/// Update an API key
///
/// Renames a live key, narrows its scopes, or brings its expiry forward. At least one field is
/// required. Scopes cannot be added and the expiry cannot be postponed: create another key, or
/// rotate this one.
///
/// Requires the session token of a member.
#[utoipa::path(
    patch,
    path = "/v1/keys/{key_id}",
    operation_id = "updateKey",
    tag = "keys",
    security(("session" = ["member"])),
    params(
        ("key_id" = KeyId, Path, description = "The id of the key."),
    ),
    request_body = ApiKeyUpdate,
    responses(
        (status = 200, description = "The key after the update.", body = ApiKey),
        (status = 404, description = "The organization has no such key."),
        (status = 409, description = "The key was revoked or has expired."),
    ),
)]
pub(super) async fn update(
    State(app): State<App>,
    Permitted(member): Permitted<Member>,
    Id(key_id): Id,
    request: Request,
) -> Result<Json<ApiKey>, Failure> {
    let body = read_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let key = KeyFields {
        name: fields.optional_string("name"),
        scopes: fields.optional_strings("scopes"),
        expires_at: fields.optional_string("expires_at"),
    };
    fields.finish()?;
    Ok(Json(keys::update(&app, &member, &key_id, key).await?))
}

/// Rotate an API key
///
/// Creates a key with the same name and scopes, which replaces this key. The response is the only
/// one that contains its secret. This key keeps working for `overlap_hours`, so that programs can be
/// changed one after the other, and expires then. If this key expires, the new key does too: it
/// lives as long as this key from its creation to its expiry.
///
/// If the connection fails before the response arrives, rotate the key in `replaced_by`.
///
/// Requires the session token of a member. The organization must have accepted the terms.
#[utoipa::path(
    post,
    path = "/v1/keys/{key_id}/rotate",
    operation_id = "rotateKey",
    tag = "keys",
    security(("session" = ["member"])),
    params(
        ("key_id" = KeyId, Path, description = "The id of the key."),
    ),
    request_body = Option<ApiKeyRotate>,
    responses(
        (status = 201, description = "The new key with its secret.", body = ApiKeyCreated),
        (
            status = 403,
            description = "It is also returned if the organization has not accepted the terms.",
        ),
        (status = 404, description = "The organization has no such key."),
        (
            status = 409,
            description =
                "The key was revoked, has expired or has been replaced, or the organization has \
                 100 live keys.",
        ),
    ),
)]
pub(super) async fn rotate(
    State(app): State<App>,
    Permitted(member): Permitted<TermsAccepted<Member>>,
    Id(key_id): Id,
    request: Request,
) -> Result<(StatusCode, Json<ApiKeyCreated>), Failure> {
    let body = read_optional_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let overlap_hours = fields.optional_integer("overlap_hours");
    fields.finish()?;
    Ok((
        StatusCode::CREATED,
        Json(keys::rotate(&app, &member, &key_id, overlap_hours).await?),
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
