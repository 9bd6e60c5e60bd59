//! `/v1/members`

use assay_core::member::{Member, Members};
use assay_core::principal::{Owner, Session};
use axum::Json;
use axum::extract::{Request, State};
use http::StatusCode;

use super::extract::{Id, Permitted, SMALL, json_body};
use super::input::Fields;
use crate::app::App;
use crate::ops::members;
use crate::render::Failure;

pub(super) async fn list(State(app): State<App>, Permitted(session): Permitted<Session>) -> Result<Json<Members>, Failure> {
    Ok(Json(members::list(&app, &session).await?))
}

pub(super) async fn set_role(
    State(app): State<App>,
    Permitted(owner): Permitted<Owner>,
    Id(user_id): Id,
    request: Request,
) -> Result<Json<Member>, Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let role = fields.text("role");
    fields.finish()?;
    Ok(Json(members::set_role(&app, &owner, &user_id, &role).await?))
}

pub(super) async fn remove(State(app): State<App>, Permitted(owner): Permitted<Owner>, Id(user_id): Id) -> Result<StatusCode, Failure> {
    members::remove(&app, &owner, &user_id).await?;
    Ok(StatusCode::NO_CONTENT)
}
