//! `GET /health`

use axum::Json;
use axum::extract::State;

use crate::app::App;
use crate::ops::health::{self, Health};

pub(super) async fn get(State(app): State<App>) -> Json<Health> {
    Json(health::get(&app))
}
