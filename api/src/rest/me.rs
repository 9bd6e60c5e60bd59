//! `GET /v1/me`

use assay_core::org::Me;
use assay_core::principal::Caller;
use axum::Json;
use axum::extract::State;

use super::extract::Permitted;
use crate::app::App;
use crate::ops::me;
use crate::render::Failure;

pub(super) async fn get(State(app): State<App>, Permitted(caller): Permitted<Caller>) -> Result<Json<Me>, Failure> {
    Ok(Json(me::get(&app, &caller).await?))
}
