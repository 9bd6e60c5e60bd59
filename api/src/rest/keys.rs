//! `/v1/keys`

use assay_core::KeyId;
use assay_core::model::cursor::{Cursor, PAGE};
use assay_core::model::key::{ApiKey, ApiKeyCreate, ApiKeyCreated, ApiKeys};
use assay_core::model::permissions::{Member, Session, TermsAccepted};
use assay_core::model::validation::PageSize;
use axum::Json;
use axum::extract::{Request, State};
use http::{StatusCode, Uri};

use super::extract::{Id, Permitted, SMALL, json_body};
use super::input::{Fields, page_query};
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::keys;

/// List API keys
///
/// Keys of the organization, newest first, revoked ones too; never their secrets. Page on with `next_cursor` until it is null.
#[utoipa::path(get, path = "/v1/keys", operation_id = "listKeys", tag = "keys", security(("session" = [])),
    params(
        ("limit" = inline(Option<PageSize<{ PAGE.0 }, { PAGE.1 }>>), Query, description = "Size of the page."),
        ("cursor" = inline(Option<Cursor>), Query, description = "`next_cursor` of the page before; without it, the first page."),
    ),
    responses((status = 200, description = "A page of keys.", body = ApiKeys)))]
pub(super) async fn list(
    State(app): State<App>,
    Permitted(session): Permitted<Session>,
    uri: Uri,
) -> Result<Json<ApiKeys>, Failure> {
    Ok(Json(keys::list(&app, &session, page_query(&uri)?).await?))
}

/// Create an API key
///
/// A key belongs to the organization, not to the person who made it. Its secret is in this answer and nowhere else: keep
/// it. An unexpected end of the connection may leave a key that nobody knows; revoke it.
#[utoipa::path(post, path = "/v1/keys", operation_id = "createKey", tag = "keys", security(("session" = ["member"])),
    request_body = ApiKeyCreate,
    responses(
        (status = 201, description = "The key, with its secret.", body = ApiKeyCreated),
        (status = 403, description = "Or the organization has not accepted the terms."),
        (status = 409, description = "The organization has 100 live keys."),
    ))]
pub(super) async fn create(
    State(app): State<App>,
    Permitted(member): Permitted<TermsAccepted<Member>>,
    request: Request,
) -> Result<(StatusCode, Json<ApiKeyCreated>), Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let name = fields.text("name");
    fields.finish()?;
    Ok((
        StatusCode::CREATED,
        Json(keys::create(&app, &member, &name).await?),
    ))
}

/// Revoke an API key
///
/// The key is refused from then on with `key_revoked`; its row stays. Doing it again changes nothing.
#[utoipa::path(delete, path = "/v1/keys/{key_id}", operation_id = "revokeKey", tag = "keys", security(("session" = ["member"])),
    params(("key_id" = KeyId, Path, description = "The key.")),
    responses(
        (status = 200, description = "The key, revoked.", body = ApiKey),
        (status = 404, description = "No such key in the organization."),
    ))]
pub(super) async fn revoke(
    State(app): State<App>,
    Permitted(member): Permitted<Member>,
    Id(key_id): Id,
) -> Result<Json<ApiKey>, Failure> {
    Ok(Json(keys::revoke(&app, &member, &key_id).await?))
}
