//! `GET /v1/usage`

use assay_core::principal::Caller;
use assay_core::usage::Usage;
use axum::Json;
use axum::extract::State;

use super::extract::Permitted;
use crate::app::App;
use crate::ops::usage;
use crate::render::Failure;

pub(super) async fn get(State(app): State<App>, Permitted(caller): Permitted<Caller>) -> Result<Json<Usage>, Failure> {
    Ok(Json(usage::get(&app, &caller).await?))
}
