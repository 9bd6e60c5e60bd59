//! `/v1/suites`

use assay_core::model::permissions::Caller;
use assay_core::model::suite::{ITEMS_PAGE, ItemCursor, SuiteId, SuiteItems, Suites};
use assay_core::model::validation::PageSize;
use axum::Json;
use axum::extract::State;
use http::Uri;

use super::extract::{Id, Permitted};
use super::input::Query;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::suites;

/// List suites
///
/// The current version of each suite. Suites belong to the platform: every organization sees them all.
#[utoipa::path(get, path = "/v1/suites", operation_id = "listSuites", tag = "suites", security(("api_key" = []), ("session" = [])),
    responses((status = 200, description = "All suites, by id.", body = Suites)))]
pub(super) async fn list(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
) -> Result<Json<Suites>, Failure> {
    Ok(Json(suites::list(&app, &caller).await?))
}

/// Read the items of a suite
///
/// One page in the order of publication, which never changes. Answers are in no page of any suite. Page on with
/// `next_cursor` until it is null; a cursor names the suite's version, so that paging ends in the version that it began in.
#[utoipa::path(get, path = "/v1/suites/{suite_id}/items", operation_id = "listSuiteItems", tag = "suites",
    security(("api_key" = []), ("session" = [])),
    params(
        ("suite_id" = SuiteId, Path, description = "The suite."),
        ("cursor" = inline(Option<ItemCursor>), Query, description = "`next_cursor` of the page before; without it, the first page."),
        ("limit" = inline(Option<PageSize<{ ITEMS_PAGE.0 }, { ITEMS_PAGE.1 }>>), Query, description = "Size of the page."),
    ),
    responses((status = 200, description = "A page of items.", body = SuiteItems), (status = 404, description = "No such suite.")))]
pub(super) async fn items(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
    Id(suite_id): Id,
    uri: Uri,
) -> Result<Json<SuiteItems>, Failure> {
    let mut query = Query::read(&uri);
    let (cursor, limit) = (query.text("cursor"), query.integer("limit"));
    query.finish()?;
    Ok(Json(
        suites::items(&app, &caller, &suite_id, cursor.as_deref(), limit).await?,
    ))
}
