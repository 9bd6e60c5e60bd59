//! Handlers of `/v1/orgs`.

use assay_core::OrgId;
use assay_core::model::org::{Org, OrgCreate, OrgUpdate};
use assay_core::model::permissions::{Owner, User};
use axum::Json;
use axum::extract::{Request, State};
use http::StatusCode;

use super::extract::{Id, Permitted, SMALL_BODY_MAX, read_json_body};
use super::input::Fields;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::orgs;

/// Create an organization
///
/// The organization is on the plan `free`, and the caller is its owner. The session keeps acting
/// for the organization that it acted for; name the new one in `X-Org-Id`. A user creates at most
/// 20 organizations. If sign-up is not open, only users who own an organization can create one;
/// others get 403.
///
/// Requires a session token. The user need not belong to an organization.
#[utoipa::path(
    post,
    path = "/v1/orgs",
    operation_id = "createOrg",
    tag = "orgs",
    security(("session" = ["person"])),
    request_body = OrgCreate,
    responses(
        (status = 201, description = "The new organization.", body = Org),
        (status = 409, description = "The caller has created 20 organizations."),
    ),
)]
pub(super) async fn create(
    State(app): State<App>,
    Permitted(user): Permitted<User>,
    request: Request,
) -> Result<(StatusCode, Json<Org>), Failure> {
    let body = read_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let name = fields.string("name");
    fields.finish()?;
    Ok((
        StatusCode::CREATED,
        Json(orgs::create(&app, &user, &name).await?),
    ))
}

/// Update the organization
///
/// Updates the organization that the session acts for. Absent fields remain unchanged; at least one
/// is required.
///
/// Requires the session token of an owner.
#[utoipa::path(
    patch,
    path = "/v1/orgs/{org_id}",
    operation_id = "updateOrg",
    tag = "orgs",
    security(("session" = ["owner"])),
    params(
        (
            "org_id" = OrgId,
            Path,
            description = "The id of the organization that the session acts for.",
        ),
    ),
    request_body = OrgUpdate,
    responses(
        (status = 200, description = "The organization after the update.", body = Org),
        (
            status = 404,
            description = "There is no such organization, or the session does not act for it.",
        ),
    ),
)]
pub(super) async fn update(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(org_id): Id,
    request: Request,
) -> Result<Json<Org>, Failure> {
    let body = read_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let name = fields.optional_string("name");
    let data_use = fields.optional_string("data_use");
    fields.finish()?;
    Ok(Json(
        orgs::update(&app, &owner, &org_id, name.as_deref(), data_use.as_deref()).await?,
    ))
}
