//! `/v1/domains`

use assay_core::model::cursor::{Cursor, PAGE};
use assay_core::model::email_domain::{
    ClaimedDomain, DomainClaim, DomainCreate, DomainUpdate, DomainVerification, Domains,
};
use assay_core::model::permissions::{Owner, Session};
use assay_core::model::validation::{self, PageSize};
use axum::Json;
use axum::extract::{Request, State};
use http::{StatusCode, Uri};

use super::extract::{Id, Permitted, SMALL, json_body};
use super::input::{Fields, page_query};
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::domains;

/// List domains
///
/// Verified domains of the organization, by name. Page on with `next_cursor` until it is null.
#[utoipa::path(get, path = "/v1/domains", operation_id = "listDomains", tag = "domains", security(("session" = [])),
    params(
        ("limit" = inline(Option<PageSize<{ PAGE.0 }, { PAGE.1 }>>), Query, description = "Size of the page."),
        ("cursor" = inline(Option<Cursor>), Query, description = "`next_cursor` of the page before; without it, the first page."),
    ),
    responses((status = 200, description = "A page of domains.", body = Domains)))]
pub(super) async fn list(
    State(app): State<App>,
    Permitted(session): Permitted<Session>,
    uri: Uri,
) -> Result<Json<Domains>, Failure> {
    Ok(Json(
        domains::list(&app, &session, page_query(&uri)?).await?,
    ))
}

/// Claim a domain
///
/// Says which record its name server must show, so that it can be verified within seven days. A claim reserves nothing;
/// claiming again gives the same record, and seven more days.
#[utoipa::path(post, path = "/v1/domains", operation_id = "claimDomain", tag = "domains", security(("session" = ["owner"])),
    request_body = DomainCreate,
    responses(
        (status = 201, description = "The claim.", body = DomainClaim),
        (status = 409, description = "The domain is somebody's already, perhaps this organization's."),
    ))]
pub(super) async fn claim(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    request: Request,
) -> Result<(StatusCode, Json<DomainClaim>), Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let domain = fields.text("domain");
    fields.finish()?;
    Ok((
        StatusCode::CREATED,
        Json(domains::claim(&app, &owner, &domain).await?),
    ))
}

/// Verify a domain
///
/// Looks whether the record is there. One that is not there yet is no error: `verified` is false. Keep the record: it is looked up
/// again every week, and if it is missing three times in a row, `auto_join` is disabled until the domain is verified again. If
/// another organization has verified the domain and its record is gone, the domain passes to yours.
#[utoipa::path(post, path = "/v1/domains/{domain}/verify", operation_id = "verifyDomain", tag = "domains", security(("session" = ["owner"])),
    params(("domain" = validation::Domain, Path, description = "The domain.")),
    responses(
        (status = 200, description = "Whether the domain is the organization's now.", body = DomainVerification),
        (status = 404, description = "The organization has no claim to the domain."),
        (status = 409, description = "Another organization has verified it first."),
    ))]
pub(super) async fn verify(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(domain): Id,
) -> Result<Json<DomainVerification>, Failure> {
    Ok(Json(domains::verify(&app, &owner, &domain).await?))
}

/// Change a domain
///
/// With `auto_join`, people with an address of the domain become members when they sign in.
#[utoipa::path(patch, path = "/v1/domains/{domain}", operation_id = "updateDomain", tag = "domains", security(("session" = ["owner"])),
    params(("domain" = validation::Domain, Path, description = "The domain.")), request_body = DomainUpdate,
    responses(
        (status = 200, description = "The domain as it is now.", body = ClaimedDomain),
        (status = 404, description = "The organization has not verified the domain."),
        (status = 409, description = "The record of the domain was missing three times in a row: nobody can join by it until it is verified again."),
    ))]
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
    Ok(Json(
        domains::update(&app, &owner, &domain, auto_join).await?,
    ))
}

/// Give a domain up
///
/// Its claim ends, verified or not. Who joined by it stays a member.
#[utoipa::path(delete, path = "/v1/domains/{domain}", operation_id = "releaseDomain", tag = "domains", security(("session" = ["owner"])),
    params(("domain" = validation::Domain, Path, description = "The domain.")),
    responses(
        (status = 204, description = "The domain is not the organization's any more."),
        (status = 404, description = "The organization has no claim to the domain."),
    ))]
pub(super) async fn release(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(domain): Id,
) -> Result<StatusCode, Failure> {
    domains::release(&app, &owner, &domain).await?;
    Ok(StatusCode::NO_CONTENT)
}
