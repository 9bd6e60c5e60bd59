//! Handlers of `/v1/session` and `/v1/sessions`.

use assay_core::SessionId;
use assay_core::model::permissions::User;
use assay_core::model::session::Sessions;
use axum::Json;
use axum::extract::State;
use http::StatusCode;

use super::extract::{Id, Permitted};
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::sessions;

/// End the current session
///
/// Ends the session that calls, at once and in all processes.
///
/// Requires a session token. The user need not belong to an organization.
#[utoipa::path(
    delete,
    path = "/v1/session",
    operation_id = "endSession",
    tag = "auth",
    security(("session" = ["person"])),
    responses(
        (status = 204, description = "The session has ended."),
    ),
)]
pub(super) async fn end_current(
    State(app): State<App>,
    Permitted(user): Permitted<User>,
) -> Result<StatusCode, Failure> {
    sessions::end_current(&app, &user).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List sessions
///
/// Returns the live sessions of the caller, the newest first, with the network address and program
/// of their last use. A user has at most 100 live sessions; a sign-in beyond that ends the session
/// that was unused for longest.
///
/// Requires a session token. The user need not belong to an organization.
#[utoipa::path(
    get,
    path = "/v1/sessions",
    operation_id = "listSessions",
    tag = "auth",
    security(("session" = ["person"])),
    responses(
        (status = 200, description = "The live sessions.", body = Sessions),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Permitted(user): Permitted<User>,
) -> Result<Json<Sessions>, Failure> {
    Ok(Json(sessions::list(&app, &user).await?))
}

/// End a session
///
/// Ends a session of the caller, at once and in all processes. Ending it again changes nothing.
///
/// Requires a session token. The user need not belong to an organization.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{session_id}",
    operation_id = "deleteSession",
    tag = "auth",
    security(("session" = ["person"])),
    params(
        ("session_id" = SessionId, Path, description = "The id of the session."),
    ),
    responses(
        (status = 204, description = "The session has ended."),
        (status = 404, description = "The caller has no such session."),
    ),
)]
pub(super) async fn end(
    State(app): State<App>,
    Permitted(user): Permitted<User>,
    Id(session_id): Id,
) -> Result<StatusCode, Failure> {
    sessions::end(&app, &user, &session_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// End all other sessions
///
/// Ends all sessions of the caller except the one that calls, at once and in all processes.
///
/// Requires a session token. The user need not belong to an organization.
#[utoipa::path(
    delete,
    path = "/v1/sessions",
    operation_id = "deleteOtherSessions",
    tag = "auth",
    security(("session" = ["person"])),
    responses(
        (status = 204, description = "All other sessions have ended."),
    ),
)]
pub(super) async fn end_others(
    State(app): State<App>,
    Permitted(user): Permitted<User>,
) -> Result<StatusCode, Failure> {
    sessions::end_others(&app, &user).await?;
    Ok(StatusCode::NO_CONTENT)
}
