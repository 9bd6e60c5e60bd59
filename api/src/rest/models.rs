//! `/v1/models`

use assay_core::model::catalog::{ModelCard, Models};
use assay_core::model::permissions::Caller;
use axum::Json;
use axum::extract::State;

use super::extract::{Id, Permitted};
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::models;

/// List models
///
/// The catalog: each model in its version published last. Models belong to the platform: every organization sees them all.
#[utoipa::path(get, path = "/v1/models", operation_id = "listModels", tag = "models", security(("api_key" = []), ("session" = [])),
    responses((status = 200, description = "All models, by id.", body = Models)))]
pub(super) async fn list(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
) -> Result<Json<Models>, Failure> {
    Ok(Json(models::list(&app, &caller).await?))
}

/// Read a model's card
///
/// Ids are stable: a retrain that changes behaviour is a new `version`, what would break a client is a new id.
#[utoipa::path(get, path = "/v1/models/{model_id}", operation_id = "getModel", tag = "models", security(("api_key" = []), ("session" = [])),
    params(("model_id" = String, Path, description = "The model.", example = "next-small")),
    responses((status = 200, description = "The card.", body = ModelCard), (status = 404, description = "No such model.")))]
pub(super) async fn get(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
    Id(model_id): Id,
) -> Result<Json<ModelCard>, Failure> {
    Ok(Json(models::get(&app, &caller, &model_id).await?))
}
