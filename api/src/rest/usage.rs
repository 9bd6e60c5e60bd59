//! Handler of `GET /v1/usage`.

use assay_core::model::permissions::UsageReader;
use assay_core::model::usage::Usage;
use axum::Json;
use axum::extract::State;

use super::extract::Permitted;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::usage;

/// Get the current usage
///
/// Returns the usage of the organization in the current calendar month, UTC, and the limits of its
/// plan.
///
/// Requires an API key or a session token.
#[utoipa::path(
    get,
    path = "/v1/usage",
    operation_id = "getUsage",
    tag = "usage",
    security(("api_key" = ["usage:read"]), ("session" = [])),
    responses(
        (status = 200, description = "The usage of the current month.", body = Usage),
    ),
)]
pub(super) async fn get(
    State(app): State<App>,
    Permitted(caller): Permitted<UsageReader>,
) -> Result<Json<Usage>, Failure> {
    Ok(Json(usage::get(&app, &caller).await?))
}
