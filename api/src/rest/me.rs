//! `GET /v1/me`

use assay_core::model::org::Me;
use assay_core::model::permissions::Caller;
use axum::Json;
use axum::extract::State;

use super::extract::Permitted;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::me;

/// Tell who calls
///
/// The kind of the credential, the organization that it resolves to, and the organizations of the caller. A key lists its
/// own organization only, with the role `member`; a person lists all of theirs.
#[utoipa::path(get, path = "/v1/me", operation_id = "getMe", tag = "me", security(("api_key" = []), ("session" = [])),
    responses((status = 200, description = "Who calls.", body = Me)))]
pub(super) async fn get(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
) -> Result<Json<Me>, Failure> {
    Ok(Json(me::get(&app, &caller).await?))
}
