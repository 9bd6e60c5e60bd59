//! Handler of `GET /health`.

use axum::Json;
use axum::extract::State;

use crate::app::App;
use crate::ops::health::{self, Health};

/// Get the build of the API
///
/// The response says that the API accepts requests. It does not check the dependencies. The request
/// is neither counted nor rate-limited.
///
/// Requires no credential.
#[utoipa::path(
    get,
    path = "/health",
    operation_id = "getHealth",
    tag = "health",
    security(()),
    responses(
        (status = 200, description = "The API accepts requests.", body = Health),
    ),
)]
pub(super) async fn get(State(app): State<App>) -> Json<Health> {
    Json(health::get(&app))
}
