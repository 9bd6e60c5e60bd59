//! `/v1/suites`

use assay_core::principal::Caller;
use assay_core::suite::{SuiteItems, Suites};
use axum::Json;
use axum::extract::State;
use http::Uri;

use super::extract::{Id, Permitted};
use super::input::Query;
use crate::app::App;
use crate::ops::suites;
use crate::render::Failure;

pub(super) async fn list(State(app): State<App>, Permitted(caller): Permitted<Caller>) -> Result<Json<Suites>, Failure> {
    Ok(Json(suites::list(&app, &caller).await?))
}

pub(super) async fn items(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
    Id(suite_id): Id,
    uri: Uri,
) -> Result<Json<SuiteItems>, Failure> {
    let mut query = Query::read(&uri);
    let (cursor, limit) = (query.text("cursor"), query.integer("limit"));
    query.finish()?;
    Ok(Json(suites::items(&app, &caller, &suite_id, cursor.as_deref(), limit).await?))
}
