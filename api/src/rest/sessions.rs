//! `/v1/session`

use assay_core::principal::Person;
use axum::extract::State;
use http::StatusCode;

use super::extract::Permitted;
use crate::app::App;
use crate::ops::sessions;
use crate::render::Failure;

/// End the session
///
/// The session that calls is refused from then on, everywhere.
#[utoipa::path(delete, path = "/v1/session", operation_id = "endSession", tag = "auth", security(("session" = ["person"])),
    responses((status = 204, description = "The session has ended.")))]
pub(super) async fn end(State(app): State<App>, Permitted(person): Permitted<Person>) -> Result<StatusCode, Failure> {
    sessions::end(&app, &person).await?;
    Ok(StatusCode::NO_CONTENT)
}
