//! `/v1/orgs`

use assay_core::org::Org;
use assay_core::principal::{Owner, Person};
use axum::Json;
use axum::extract::{Request, State};
use http::StatusCode;

use super::extract::{Id, Permitted, SMALL, json_body};
use super::input::Fields;
use crate::app::App;
use crate::ops::orgs;
use crate::render::Failure;

pub(super) async fn create(
    State(app): State<App>,
    Permitted(person): Permitted<Person>,
    request: Request,
) -> Result<(StatusCode, Json<Org>), Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let name = fields.text("name");
    fields.finish()?;
    Ok((StatusCode::CREATED, Json(orgs::create(&app, &person, &name).await?)))
}

pub(super) async fn update(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(org_id): Id,
    request: Request,
) -> Result<Json<Org>, Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let (name, data_use) = (fields.optional_text("name"), fields.optional_text("data_use"));
    fields.finish()?;
    Ok(Json(orgs::update(&app, &owner, &org_id, name.as_deref(), data_use.as_deref()).await?))
}
