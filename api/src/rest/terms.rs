//! `/v1/terms`

use assay_core::model::permissions::{Caller, Owner};
use assay_core::model::terms::{Terms, TermsAccept};
use axum::Json;
use axum::extract::{Request, State};

use super::extract::{Permitted, SMALL, json_body};
use super::input::Fields;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::terms;

/// Read the terms
///
/// The version that holds now, and whether the organization accepted it.
#[utoipa::path(get, path = "/v1/terms", operation_id = "getTerms", tag = "terms", security(("api_key" = []), ("session" = [])),
    responses((status = 200, description = "The terms.", body = Terms), (status = 404, description = "This installation has no terms.")))]
pub(super) async fn get(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
) -> Result<Json<Terms>, Failure> {
    Ok(Json(terms::get(&app, &caller).await?))
}

/// Accept the terms
///
/// For the organization. Where there are terms, keys are made and predictions submitted only after that. Doing it again
/// changes nothing.
#[utoipa::path(post, path = "/v1/terms/accept", operation_id = "acceptTerms", tag = "terms", security(("session" = ["owner"])),
    request_body = TermsAccept,
    responses(
        (status = 200, description = "The terms, accepted.", body = Terms),
        (status = 404, description = "This installation has no terms."),
        (status = 409, description = "This is not the version that holds now."),
    ))]
pub(super) async fn accept(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    request: Request,
) -> Result<Json<Terms>, Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let version = fields.text("version");
    fields.finish()?;
    Ok(Json(terms::accept(&app, &owner, &version).await?))
}
