//! `/v1/auth/email`. These routes need no credential.

use assay_core::auth::{SignInRequested, SignedIn};
use axum::Json;
use axum::extract::{Request, State};
use http::StatusCode;

use super::extract::{SMALL, json_body};
use super::input::Fields;
use crate::app::App;
use crate::layers::Call;
use crate::ops::auth;
use crate::render::Failure;

pub(super) async fn request(State(app): State<App>, request: Request) -> Result<(StatusCode, Json<SignInRequested>), Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let email = fields.text("email");
    fields.finish()?;
    Ok((StatusCode::ACCEPTED, Json(auth::request(&app, &email).await?)))
}

pub(super) async fn verify(State(app): State<App>, call: Call, request: Request) -> Result<(StatusCode, Json<SignedIn>), Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let token = fields.text("token");
    fields.finish()?;
    Ok((StatusCode::CREATED, Json(auth::verify(&app, &call.address, &token).await?)))
}
