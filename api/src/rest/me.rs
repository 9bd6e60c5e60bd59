//! Handler of `GET /v1/me`.

use assay_core::model::org::Me;
use assay_core::model::permissions::Caller;
use axum::Json;
use axum::extract::State;

use super::extract::Permitted;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::me;

/// Get the caller
///
/// Returns the kind of the credential, the organization that it resolves to, and the organizations
/// of the caller. A user gets all of their organizations. An API key gets its own organization
/// only, with the role `member`.
///
/// Requires an API key or a session token.
#[utoipa::path(
    get,
    path = "/v1/me",
    operation_id = "getMe",
    tag = "me",
    security(("api_key" = []), ("session" = [])),
    responses(
        (status = 200, description = "The caller.", body = Me),
    ),
)]
pub(super) async fn get(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
) -> Result<Json<Me>, Failure> {
    Ok(Json(me::get(&app, &caller).await?))
}
