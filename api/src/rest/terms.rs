//! Handlers of `/v1/terms`.

use assay_core::model::permissions::{Caller, Owner};
use assay_core::model::terms::{Terms, TermsAccept};
use axum::Json;
use axum::extract::{Request, State};

use super::extract::{Permitted, SMALL_BODY_MAX, read_json_body};
use super::input::Fields;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::terms;

/// Get the terms
///
/// Returns the current terms, and their acceptance by the organization.
///
/// Requires an API key or a session token.
#[utoipa::path(
    get,
    path = "/v1/terms",
    operation_id = "getTerms",
    tag = "terms",
    security(("api_key" = []), ("session" = [])),
    responses(
        (status = 200, description = "The current terms.", body = Terms),
        (status = 404, description = "The installation has no terms."),
    ),
)]
pub(super) async fn get(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
) -> Result<Json<Terms>, Failure> {
    Ok(Json(terms::get(&app, &caller).await?))
}

/// Accept the terms
///
/// Accepts the current terms for the organization. If the installation has terms, an organization
/// must accept them before it creates keys or submits. Accepting them again changes nothing.
///
/// Requires the session token of an owner.
#[utoipa::path(
    post,
    path = "/v1/terms/accept",
    operation_id = "acceptTerms",
    tag = "terms",
    security(("session" = ["owner"])),
    request_body = TermsAccept,
    responses(
        (status = 200, description = "The accepted terms.", body = Terms),
        (status = 404, description = "The installation has no terms."),
        (status = 409, description = "The version is not the current one."),
    ),
)]
pub(super) async fn accept(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    request: Request,
) -> Result<Json<Terms>, Failure> {
    let body = read_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let version = fields.string("version");
    fields.finish()?;
    Ok(Json(terms::accept(&app, &owner, &version).await?))
}
