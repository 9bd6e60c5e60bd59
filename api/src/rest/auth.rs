//! Handlers of `/v1/auth/email`. They require no credential.

use assay_core::model::auth::{SignIn, SignInRequest, SignInRequested, SignedIn};
use axum::Json;
use axum::extract::{Request, State};
use http::StatusCode;

use super::extract::{SMALL_BODY_MAX, read_json_body};
use super::input::Fields;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::http::request_context::RequestContext;
use crate::ops::auth;

/// Request a sign-in link by email
///
/// The link is valid once, for 15 minutes. While a mailbox has live links, it receives at most one
/// sign-in email in 30 seconds and five in 15 minutes. The response is the same whether or not the
/// address is known, and whether or not an email is sent. Requests are rate-limited by the network
/// address of the client. Exchange the token of the link with `POST /v1/auth/email/verify`.
///
/// Requires no credential.
#[utoipa::path(
    post,
    path = "/v1/auth/email",
    operation_id = "requestSignIn",
    tag = "auth",
    security(()),
    request_body = SignInRequest,
    responses(
        (status = 202, description = "The request was accepted.", body = SignInRequested),
    ),
)]
pub(super) async fn request(
    State(app): State<App>,
    context: RequestContext,
    request: Request,
) -> Result<(StatusCode, Json<SignInRequested>), Failure> {
    let body = read_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let email = fields.string("email");
    fields.finish()?;
    Ok((
        StatusCode::ACCEPTED,
        Json(auth::request(&app, context.origin(), &email).await?),
    ))
}

/// Exchange the token of a sign-in link for a session
///
/// The first sign-in of an address creates its user. Each sign-in ends the other links of the
/// address, accepts its open invites, and joins the organization that has verified its domain and
/// set `auto_join`. An invalid token fails with 401 `invalid_token`, and counts as a failed
/// authentication of the network address of the client.
///
/// Requires no credential.
#[utoipa::path(
    post,
    path = "/v1/auth/email/verify",
    operation_id = "signIn",
    tag = "auth",
    security(()),
    request_body = SignIn,
    responses(
        (status = 201, description = "The new session with its token.", body = SignedIn),
        (
            status = 401,
            description =
                "The link does not exist, is older than 15 minutes, or ended because it or \
                 another link of the address was used.",
        ),
    ),
)]
pub(super) async fn verify(
    State(app): State<App>,
    context: RequestContext,
    request: Request,
) -> Result<(StatusCode, Json<SignedIn>), Failure> {
    let body = read_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let token = fields.string("token");
    fields.finish()?;
    Ok((
        StatusCode::CREATED,
        Json(auth::verify(&app, context.origin(), &token).await?),
    ))
}
