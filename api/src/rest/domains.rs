//! `/v1/domains`

use assay_core::domain::{ClaimedDomain, DomainClaim, DomainVerification, Domains};
use assay_core::principal::{Owner, Session};
use axum::Json;
use axum::extract::{Request, State};
use http::StatusCode;

use super::extract::{Id, Permitted, SMALL, json_body};
use super::input::Fields;
use crate::app::App;
use crate::ops::domains;
use crate::render::Failure;

pub(super) async fn list(State(app): State<App>, Permitted(session): Permitted<Session>) -> Result<Json<Domains>, Failure> {
    Ok(Json(domains::list(&app, &session).await?))
}

pub(super) async fn claim(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    request: Request,
) -> Result<(StatusCode, Json<DomainClaim>), Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let domain = fields.text("domain");
    fields.finish()?;
    Ok((StatusCode::CREATED, Json(domains::claim(&app, &owner, &domain).await?)))
}

pub(super) async fn verify(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(domain): Id,
) -> Result<Json<DomainVerification>, Failure> {
    Ok(Json(domains::verify(&app, &owner, &domain).await?))
}

pub(super) async fn update(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(domain): Id,
    request: Request,
) -> Result<Json<ClaimedDomain>, Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let auto_join = fields.optional_flag("auto_join");
    fields.finish()?;
    Ok(Json(domains::update(&app, &owner, &domain, auto_join).await?))
}

pub(super) async fn release(State(app): State<App>, Permitted(owner): Permitted<Owner>, Id(domain): Id) -> Result<StatusCode, Failure> {
    domains::release(&app, &owner, &domain).await?;
    Ok(StatusCode::NO_CONTENT)
}
