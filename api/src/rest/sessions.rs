//! `/v1/session` and `/v1/sessions`

use assay_core::SessionId;
use assay_core::model::permissions::Person;
use assay_core::model::session::Sessions;
use axum::Json;
use axum::extract::State;
use http::StatusCode;

use super::extract::{Id, Permitted};
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::sessions;

/// End the session
///
/// The session that calls is refused from then on, everywhere.
#[utoipa::path(delete, path = "/v1/session", operation_id = "endSession", tag = "auth", security(("session" = ["person"])),
    responses((status = 204, description = "The session has ended.")))]
pub(super) async fn end_current(
    State(app): State<App>,
    Permitted(person): Permitted<Person>,
) -> Result<StatusCode, Failure> {
    sessions::end_current(&app, &person).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List your sessions
///
/// The live sessions of the caller, the newest first, with the address and the program that used each last. A user has at most 100 live
/// sessions; a sign-in beyond that ends the one that was unused for longest.
#[utoipa::path(get, path = "/v1/sessions", operation_id = "listSessions", tag = "auth", security(("session" = ["person"])),
    responses((status = 200, description = "The live sessions.", body = Sessions)))]
pub(super) async fn list(
    State(app): State<App>,
    Permitted(person): Permitted<Person>,
) -> Result<Json<Sessions>, Failure> {
    Ok(Json(sessions::list(&app, &person).await?))
}

/// End a session
///
/// The session is refused from then on, everywhere. Ending it again changes nothing.
#[utoipa::path(delete, path = "/v1/sessions/{session_id}", operation_id = "deleteSession", tag = "auth",
    security(("session" = ["person"])), params(("session_id" = SessionId, Path, description = "The session.")),
    responses(
        (status = 204, description = "The session has ended."),
        (status = 404, description = "The caller has no such session."),
    ))]
pub(super) async fn end(
    State(app): State<App>,
    Permitted(person): Permitted<Person>,
    Id(session_id): Id,
) -> Result<StatusCode, Failure> {
    sessions::end(&app, &person, &session_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// End all other sessions
///
/// Ends all sessions of the caller except the one that calls.
#[utoipa::path(delete, path = "/v1/sessions", operation_id = "deleteOtherSessions", tag = "auth", security(("session" = ["person"])),
    responses((status = 204, description = "All other sessions have ended.")))]
pub(super) async fn end_others(
    State(app): State<App>,
    Permitted(person): Permitted<Person>,
) -> Result<StatusCode, Failure> {
    sessions::end_others(&app, &person).await?;
    Ok(StatusCode::NO_CONTENT)
}
