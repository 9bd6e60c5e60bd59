//! `/v1/invites`

use assay_core::invite::{Invite, Invites};
use assay_core::principal::Owner;
use axum::Json;
use axum::extract::{Request, State};
use http::StatusCode;

use super::extract::{Id, Permitted, SMALL, json_body};
use super::input::Fields;
use crate::app::App;
use crate::ops::invites;
use crate::render::Failure;

pub(super) async fn list(State(app): State<App>, Permitted(owner): Permitted<Owner>) -> Result<Json<Invites>, Failure> {
    Ok(Json(invites::list(&app, &owner).await?))
}

pub(super) async fn create(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    request: Request,
) -> Result<(StatusCode, Json<Invite>), Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let (email, role) = (fields.text("email"), fields.optional_text("role"));
    fields.finish()?;
    Ok((StatusCode::CREATED, Json(invites::create(&app, &owner, &email, role.as_deref()).await?)))
}

pub(super) async fn revoke(State(app): State<App>, Permitted(owner): Permitted<Owner>, Id(invite_id): Id) -> Result<Json<Invite>, Failure> {
    Ok(Json(invites::revoke(&app, &owner, &invite_id).await?))
}
