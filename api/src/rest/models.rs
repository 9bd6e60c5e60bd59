//! Handlers of `/v1/models`.

use assay_core::model::catalog::{ModelCard, Models};
use assay_core::model::permissions::ModelReader;
use axum::Json;
use axum::extract::State;

use super::extract::{Id, Permitted};
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::models;

/// List models
///
/// Returns the catalog, by id. Each model has the version that was published last. An organization
/// sees the platform's models and its own; of two with the same id, its own.
///
/// Requires an API key or a session token.
#[utoipa::path(
    get,
    path = "/v1/models",
    operation_id = "listModels",
    tag = "models",
    security(("api_key" = ["models:read"]), ("session" = [])),
    responses(
        (status = 200, description = "All models, by id.", body = Models),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Permitted(caller): Permitted<ModelReader>,
) -> Result<Json<Models>, Failure> {
    Ok(Json(models::list(&app, &caller).await?))
}

/// Get the card of a model
///
/// The id of a model is stable: a retrain that changes its behaviour changes the version, and a
/// change that breaks clients gets a new id.
///
/// Requires an API key or a session token.
#[utoipa::path(
    get,
    path = "/v1/models/{model_id}",
    operation_id = "getModel",
    tag = "models",
    security(("api_key" = ["models:read"]), ("session" = [])),
    params(
        ("model_id" = String, Path, description = "The id of the model.", example = "next-small"),
    ),
    responses(
        (status = 200, description = "The card of the model.", body = ModelCard),
        (status = 404, description = "There is no such model."),
    ),
)]
pub(super) async fn get(
    State(app): State<App>,
    Permitted(caller): Permitted<ModelReader>,
    Id(model_id): Id,
) -> Result<Json<ModelCard>, Failure> {
    Ok(Json(models::get(&app, &caller, &model_id).await?))
}
