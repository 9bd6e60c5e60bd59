//! `/v1/auth/email`. These routes need no credential.

use assay_core::model::auth::{SignIn, SignInRequest, SignInRequested, SignedIn};
use axum::Json;
use axum::extract::{Request, State};
use http::StatusCode;

use super::extract::{SMALL, json_body};
use super::input::Fields;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::http::request_context::RequestContext;
use crate::ops::auth;

/// Ask for a sign-in link
///
/// Sends a mail with a link that is valid for 15 minutes and for one use. While the mailbox has live links, at most one mail in 30 s and
/// five in 15 minutes are sent. The response is the same whether or not the address is known, and whether or not a mail is sent.
#[utoipa::path(post, path = "/v1/auth/email", operation_id = "requestSignIn", tag = "auth", security(()), request_body = SignInRequest,
    responses((status = 202, description = "The request was accepted.", body = SignInRequested)))]
pub(super) async fn request(
    State(app): State<App>,
    request: Request,
) -> Result<(StatusCode, Json<SignInRequested>), Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let email = fields.text("email");
    fields.finish()?;
    Ok((
        StatusCode::ACCEPTED,
        Json(auth::request(&app, &email).await?),
    ))
}

/// Sign in
///
/// Makes a session of a link's token, once, and ends the other links of the address. At the first sign-in the address becomes a person. Open invites to it are
/// accepted, and organizations joined that have its domain and let its people join.
#[utoipa::path(post, path = "/v1/auth/email/verify", operation_id = "signIn", tag = "auth", security(()), request_body = SignIn,
    responses(
        (status = 201, description = "The session, with its token.", body = SignedIn),
        (status = 401, description = "The link, or another one of the address, was used; or it is older than 15 minutes; or it does not exist."),
    ))]
pub(super) async fn verify(
    State(app): State<App>,
    call: RequestContext,
    request: Request,
) -> Result<(StatusCode, Json<SignedIn>), Failure> {
    let body = json_body(request, SMALL).await?;
    let mut fields = Fields::read(&body)?;
    let token = fields.text("token");
    fields.finish()?;
    Ok((
        StatusCode::CREATED,
        Json(auth::verify(&app, call.origin(), &token).await?),
    ))
}
