//! `/v1/auth/email`. These routes need no credential.

use assay_core::auth::{SignIn, SignInRequest, SignInRequested, SignedIn};
use axum::Json;
use axum::extract::{Request, State};
use http::StatusCode;

use super::extract::{SMALL, json_body};
use super::input::Fields;
use crate::app::App;
use crate::layers::Call;
use crate::ops::auth;
use crate::render::Failure;

/// Ask for a sign-in link
///
/// Sends a mail with a link that holds for 15 minutes and for one use. The answer is the same whether or not the address
/// is known, and whether or not it has had enough mails for now.
#[utoipa::path(post, path = "/v1/auth/email", operation_id = "requestSignIn", tag = "auth", security(()), request_body = SignInRequest,
    responses((status = 202, description = "The mail is on its way.", body = SignInRequested)))]
pub(super) async fn request(State(app): State<App>, request: Request) -> Result<(StatusCode, Json<SignInRequested>), Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let email = fields.text("email");
    fields.finish()?;
    Ok((StatusCode::ACCEPTED, Json(auth::request(&app, &email).await?)))
}

/// Sign in
///
/// Makes a session of a link's token, once. At the first sign-in the address becomes a person. Open invites to it are
/// accepted, and organizations joined that have its domain and let its people join.
#[utoipa::path(post, path = "/v1/auth/email/verify", operation_id = "signIn", tag = "auth", security(()), request_body = SignIn,
    responses(
        (status = 201, description = "The session, with its token.", body = SignedIn),
        (status = 401, description = "The link was used, or is older than 15 minutes, or there never was such a one."),
    ))]
pub(super) async fn verify(State(app): State<App>, call: Call, request: Request) -> Result<(StatusCode, Json<SignedIn>), Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let token = fields.text("token");
    fields.finish()?;
    Ok((StatusCode::CREATED, Json(auth::verify(&app, &call.address, &token).await?)))
}
