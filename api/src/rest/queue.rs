//! Handler of `GET /v1/queue`.

use assay_core::model::permissions::JobReader;
use assay_core::model::queue::Queue;
use axum::Json;
use axum::extract::State;

use super::extract::Permitted;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::queue;

/// Get the totals of the queue
///
/// Returns the totals of the queue over all organizations. They are measured once a second, and show
/// no figure of a single organization. `queue` of a job has its place and the estimate of its end.
///
/// Requires an API key or a session token.
#[utoipa::path(
    get,
    path = "/v1/queue",
    operation_id = "getQueue",
    tag = "queue",
    security(("api_key" = ["jobs:read"]), ("session" = [])),
    responses(
        (status = 200, description = "The totals of the queue.", body = Queue),
    ),
)]
pub(super) async fn get(
    State(app): State<App>,
    Permitted(caller): Permitted<JobReader>,
) -> Result<Json<Queue>, Failure> {
    Ok(Json(queue::get(&app, &caller)?))
}
