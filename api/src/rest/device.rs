//! Handlers of `/v1/auth/device`. They require no credential.

use assay_core::model::device::{
    DeviceLogin, DeviceLoginCreate, DeviceLoginPoll, DeviceLoginResult,
};
use axum::Json;
use axum::extract::{Request, State};
use http::StatusCode;

use super::extract::{SMALL_BODY_MAX, read_json_body};
use super::input::Fields;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::http::request_context::RequestContext;
use crate::ops::device;

/// Start a device login
///
/// Starts the login of a program that has no browser, as in RFC 8628. The program shows
/// `verification_url` and `user_code`, or opens `verification_url_complete`. A user signs in on that
/// page, compares the code, and approves an API key or denies the login. Meanwhile the program polls
/// `POST /v1/auth/device/token`. Requests are rate-limited by the network address of the client.
///
/// Requires no credential.
#[utoipa::path(
    post,
    path = "/v1/auth/device",
    operation_id = "createDeviceLogin",
    tag = "auth",
    security(()),
    request_body = DeviceLoginCreate,
    responses(
        (status = 201, description = "The new login with its codes.", body = DeviceLogin),
    ),
)]
pub(super) async fn create(
    State(app): State<App>,
    context: RequestContext,
    request: Request,
) -> Result<(StatusCode, Json<DeviceLogin>), Failure> {
    let body = read_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let client_name = fields.string("client_name");
    fields.finish()?;
    Ok((
        StatusCode::CREATED,
        Json(device::create(&app, context.origin(), &client_name).await?),
    ))
}

/// Poll a device login
///
/// Returns the state of the login. The first poll after the approval creates the API key and returns
/// it. If that response is lost, the key can be fetched again for a minute. A poll that comes sooner
/// than `interval` after the one before fails with 429. An unknown code fails with 401
/// `invalid_token`, and counts as a failed authentication of the network address of the client.
///
/// Requires no credential.
#[utoipa::path(
    post,
    path = "/v1/auth/device/token",
    operation_id = "pollDeviceLogin",
    tag = "auth",
    security(()),
    request_body = DeviceLoginPoll,
    responses(
        (status = 200, description = "The state of the login.", body = DeviceLoginResult),
        (
            status = 401,
            description =
                "The code does not exist, is older than 10 minutes, or its key was fetched more \
                 than a minute ago.",
        ),
        (
            status = 403,
            description = "The organization was suspended during the request.",
        ),
        (
            status = 409,
            description = "The organization has 100 live keys. Poll again after one was revoked.",
        ),
    ),
)]
pub(super) async fn poll(
    State(app): State<App>,
    context: RequestContext,
    request: Request,
) -> Result<Json<DeviceLoginResult>, Failure> {
    let body = read_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let device_code = fields.string("device_code");
    fields.finish()?;
    Ok(Json(
        device::poll(&app, context.origin(), &device_code).await?,
    ))
}
