//! `GET /v1/usage`

use assay_core::model::permissions::Caller;
use assay_core::model::usage::Usage;
use axum::Json;
use axum::extract::State;

use super::extract::Permitted;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::usage;

/// Tell the usage
///
/// What the organization has used of its plan in the present calendar month (UTC), and what the plan grants.
#[utoipa::path(get, path = "/v1/usage", operation_id = "getUsage", tag = "usage", security(("api_key" = []), ("session" = [])),
    responses((status = 200, description = "The month so far.", body = Usage)))]
pub(super) async fn get(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
) -> Result<Json<Usage>, Failure> {
    Ok(Json(usage::get(&app, &caller).await?))
}
