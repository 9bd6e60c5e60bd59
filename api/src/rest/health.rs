//! `GET /health`

use axum::Json;
use axum::extract::State;

use crate::app::App;
use crate::ops::health::{self, Health};

/// Tell the build
///
/// That the api answers, and as which build. It needs no credential, is not counted as a request and is never limited.
#[utoipa::path(get, path = "/health", operation_id = "getHealth", tag = "health", security(()),
    responses((status = 200, description = "The api answers.", body = Health)))]
pub(super) async fn get(State(app): State<App>) -> Json<Health> {
    Json(health::get(&app))
}
