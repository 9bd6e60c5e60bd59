//! `/v1/models`

use assay_core::model::{ModelCard, Models};
use assay_core::principal::Caller;
use axum::Json;
use axum::extract::State;

use super::extract::{Id, Permitted};
use crate::app::App;
use crate::ops::models;
use crate::render::Failure;

pub(super) async fn list(State(app): State<App>, Permitted(caller): Permitted<Caller>) -> Result<Json<Models>, Failure> {
    Ok(Json(models::list(&app, &caller).await?))
}

pub(super) async fn get(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
    Id(model_id): Id,
) -> Result<Json<ModelCard>, Failure> {
    Ok(Json(models::get(&app, &caller, &model_id).await?))
}
