//! `/v1/orgs`

use assay_core::OrgId;
use assay_core::model::org::{Org, OrgCreate, OrgUpdate};
use assay_core::model::permissions::{Owner, Person};
use axum::Json;
use axum::extract::{Request, State};
use http::StatusCode;

use super::extract::{Id, Permitted, SMALL, json_body};
use super::input::Fields;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::orgs;

/// Create an organization
///
/// On the plan `free`, with the caller as its owner. The session goes on acting for the organization that it acted for,
/// if there is one: name the new one in `X-Org-Id`.
#[utoipa::path(post, path = "/v1/orgs", operation_id = "createOrg", tag = "orgs", security(("session" = ["person"])),
    request_body = OrgCreate,
    responses(
        (status = 201, description = "The organization.", body = Org),
        (status = 409, description = "The caller owns too many organizations to make one more."),
    ))]
pub(super) async fn create(
    State(app): State<App>,
    Permitted(person): Permitted<Person>,
    request: Request,
) -> Result<(StatusCode, Json<Org>), Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let name = fields.text("name");
    fields.finish()?;
    Ok((
        StatusCode::CREATED,
        Json(orgs::create(&app, &person, &name).await?),
    ))
}

/// Change the organization
///
/// The one that the session acts for. What is not given stays.
#[utoipa::path(patch, path = "/v1/orgs/{org_id}", operation_id = "updateOrg", tag = "orgs", security(("session" = ["owner"])),
    params(("org_id" = OrgId, Path, description = "The organization that the session acts for.")), request_body = OrgUpdate,
    responses(
        (status = 200, description = "The organization as it is now.", body = Org),
        (status = 404, description = "No such organization, or not the one that the session acts for."),
    ))]
pub(super) async fn update(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(org_id): Id,
    request: Request,
) -> Result<Json<Org>, Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let (name, data_use) = (
        fields.optional_text("name"),
        fields.optional_text("data_use"),
    );
    fields.finish()?;
    Ok(Json(
        orgs::update(&app, &owner, &org_id, name.as_deref(), data_use.as_deref()).await?,
    ))
}
