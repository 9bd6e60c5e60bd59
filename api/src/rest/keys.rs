//! `/v1/keys`

use assay_core::key::{ApiKey, ApiKeyCreated, ApiKeys};
use assay_core::principal::{Member, Session, TermsAccepted};
use axum::Json;
use axum::extract::{Request, State};
use http::StatusCode;

use super::extract::{Id, Permitted, SMALL, json_body};
use super::input::Fields;
use crate::app::App;
use crate::ops::keys;
use crate::render::Failure;

pub(super) async fn list(State(app): State<App>, Permitted(session): Permitted<Session>) -> Result<Json<ApiKeys>, Failure> {
    Ok(Json(keys::list(&app, &session).await?))
}

pub(super) async fn create(
    State(app): State<App>,
    Permitted(member): Permitted<TermsAccepted<Member>>,
    request: Request,
) -> Result<(StatusCode, Json<ApiKeyCreated>), Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let name = fields.text("name");
    fields.finish()?;
    Ok((StatusCode::CREATED, Json(keys::create(&app, &member, &name).await?)))
}

pub(super) async fn revoke(State(app): State<App>, Permitted(member): Permitted<Member>, Id(key_id): Id) -> Result<Json<ApiKey>, Failure> {
    Ok(Json(keys::revoke(&app, &member, &key_id).await?))
}
