//! Handlers of `/v1/domains`.

use assay_core::model::cursor::{Cursor, PAGE};
use assay_core::model::email_domain::{
    ClaimedDomain, DomainClaim, DomainCreate, DomainUpdate, DomainVerification, Domains,
};
use assay_core::model::permissions::{Owner, Session};
use assay_core::model::validation::{self, PageSize};
use axum::Json;
use axum::extract::{Request, State};
use http::{StatusCode, Uri};

use super::extract::{Id, Permitted, SMALL_BODY_MAX, read_json_body};
use super::input::{Fields, page_query};
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::domains;

/// List verified domains
///
/// Returns the verified domains of the organization, by name. To get the next page, send
/// `next_cursor` as `cursor`, until it is null.
///
/// Requires a session token.
#[utoipa::path(
    get,
    path = "/v1/domains",
    operation_id = "listDomains",
    tag = "domains",
    security(("session" = [])),
    params(
        (
            "limit" = inline(Option<PageSize<{ PAGE.0 }, { PAGE.1 }>>),
            Query,
            description = "The maximum number of domains on the page.",
        ),
        (
            "cursor" = inline(Option<Cursor>),
            Query,
            description =
                "The `next_cursor` of the previous page. If absent, the first page is returned.",
        ),
    ),
    responses(
        (status = 200, description = "A page of domains.", body = Domains),
    ),
)]
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
/// The response names the DNS record that proves the claim. Create the record, then call
/// `POST /v1/domains/{domain}/verify`. A domain claim is valid for 7 days and reserves nothing.
/// Claiming again returns the same record and another 7 days.
///
/// Requires the session token of an owner.
#[utoipa::path(
    post,
    path = "/v1/domains",
    operation_id = "claimDomain",
    tag = "domains",
    security(("session" = ["owner"])),
    request_body = DomainCreate,
    responses(
        (status = 201, description = "The domain claim.", body = DomainClaim),
        (
            status = 409,
            description = "The domain is already verified, by this or another organization.",
        ),
    ),
)]
pub(super) async fn claim(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    request: Request,
) -> Result<(StatusCode, Json<DomainClaim>), Failure> {
    let body = read_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let domain = fields.string("domain");
    fields.finish()?;
    Ok((
        StatusCode::CREATED,
        Json(domains::claim(&app, &owner, &domain).await?),
    ))
}

/// Verify a domain claim
///
/// Looks up the DNS record. A missing record is not an error: `verified` is `false`. Keep the
/// record: the server looks the record of a verified domain up again every week, and disables
/// `auto_join` after three misses in a row, until the domain is verified again. If another
/// organization has verified the domain and its record is gone, the domain passes to the caller's
/// organization.
///
/// Requires the session token of an owner.
#[utoipa::path(
    post,
    path = "/v1/domains/{domain}/verify",
    operation_id = "verifyDomain",
    tag = "domains",
    security(("session" = ["owner"])),
    params(
        ("domain" = validation::Domain, Path, description = "The claimed domain."),
    ),
    responses(
        (status = 200, description = "The result of the verification.", body = DomainVerification),
        (status = 404, description = "The organization has no claim to the domain."),
        (status = 409, description = "Another organization has verified the domain."),
    ),
)]
pub(super) async fn verify(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(domain): Id,
) -> Result<Json<DomainVerification>, Failure> {
    Ok(Json(domains::verify(&app, &owner, &domain).await?))
}

/// Update a verified domain
///
/// With `auto_join`, users with an address of the domain become members when they sign in.
///
/// Requires the session token of an owner.
#[utoipa::path(
    patch,
    path = "/v1/domains/{domain}",
    operation_id = "updateDomain",
    tag = "domains",
    security(("session" = ["owner"])),
    params(
        ("domain" = validation::Domain, Path, description = "The verified domain."),
    ),
    request_body = DomainUpdate,
    responses(
        (status = 200, description = "The domain after the update.", body = ClaimedDomain),
        (status = 404, description = "The organization has not verified the domain."),
        (
            status = 409,
            description =
                "The DNS record was missing three times in a row. Verify the domain again first \
                 (`POST /v1/domains/{domain}/verify`).",
        ),
    ),
)]
pub(super) async fn update(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(domain): Id,
    request: Request,
) -> Result<Json<ClaimedDomain>, Failure> {
    let body = read_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let auto_join = fields.optional_boolean("auto_join");
    fields.finish()?;
    Ok(Json(
        domains::update(&app, &owner, &domain, auto_join).await?,
    ))
}

/// Release a domain claim
///
/// Releases the claim, verified or not. Users who joined through the domain remain members.
///
/// Requires the session token of an owner.
#[utoipa::path(
    delete,
    path = "/v1/domains/{domain}",
    operation_id = "releaseDomain",
    tag = "domains",
    security(("session" = ["owner"])),
    params(
        ("domain" = validation::Domain, Path, description = "The claimed domain, verified or not."),
    ),
    responses(
        (status = 204, description = "The domain claim was released."),
        (status = 404, description = "The organization has no claim to the domain."),
    ),
)]
pub(super) async fn release(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(domain): Id,
) -> Result<StatusCode, Failure> {
    domains::release(&app, &owner, &domain).await?;
    Ok(StatusCode::NO_CONTENT)
}
