//! Handlers of `/v1/suites`.

use assay_core::model::permissions::SuiteReader;
use assay_core::model::suite::{Suite, SuiteId, Suites};
use assay_core::model::suite_items::{ITEMS_PAGE, ItemCursor, SuiteItems};
use assay_core::model::validation::PageSize;
use axum::extract::State;
use axum::{Extension, Json};
use http::Uri;

use super::extract::{Id, Permitted};
use super::input::Query;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::limits::request_memory::SharedReservation;
use crate::ops::suites::{self, JSON_PAGE};

/// List suites
///
/// Returns all suites, by id. Each suite has its current version. Every organization sees all
/// suites.
///
/// Requires an API key or a session token.
#[utoipa::path(
    get,
    path = "/v1/suites",
    operation_id = "listSuites",
    tag = "suites",
    security(("api_key" = ["suites:read"]), ("session" = [])),
    responses(
        (status = 200, description = "All suites, by id.", body = Suites),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Permitted(caller): Permitted<SuiteReader>,
) -> Result<Json<Suites>, Failure> {
    Ok(Json(suites::list(&app, &caller).await?))
}

/// Get a suite
///
/// Returns the suite in its current version.
///
/// Requires an API key or a session token.
#[utoipa::path(
    get,
    path = "/v1/suites/{suite_id}",
    operation_id = "getSuite",
    tag = "suites",
    security(("api_key" = ["suites:read"]), ("session" = [])),
    params(
        ("suite_id" = SuiteId, Path, description = "The id of the suite."),
    ),
    responses(
        (status = 200, description = "The suite.", body = Suite),
        (status = 404, description = "There is no such suite."),
    ),
)]
pub(super) async fn get(
    State(app): State<App>,
    Permitted(caller): Permitted<SuiteReader>,
    Id(suite_id): Id,
) -> Result<Json<Suite>, Failure> {
    Ok(Json(suites::get(&app, &caller, &suite_id).await?))
}

/// List the items of a suite
///
/// Returns the items in the order of publication, which never changes. No response contains an
/// answer. To get the next page, send `next_cursor` as `cursor`, until it is null. A cursor names
/// the version of the suite. Paging therefore ends in the version that it began with, even if a new
/// version is published meanwhile.
///
/// Requires an API key or a session token.
#[utoipa::path(
    get,
    path = "/v1/suites/{suite_id}/items",
    operation_id = "listSuiteItems",
    tag = "suites",
    security(("api_key" = ["suites:read"]), ("session" = [])),
    params(
        ("suite_id" = SuiteId, Path, description = "The id of the suite."),
        (
            "cursor" = inline(Option<ItemCursor>),
            Query,
            description =
                "The `next_cursor` of the previous page. If absent, the first page is returned.",
        ),
        (
            "limit" = inline(Option<PageSize<{ ITEMS_PAGE.0 }, { ITEMS_PAGE.1 }>>),
            Query,
            description =
                "The maximum number of items on the page. A page ends earlier at about 4 MiB.",
        ),
    ),
    responses(
        (status = 200, description = "A page of items.", body = SuiteItems),
        (status = 404, description = "There is no such suite."),
    ),
)]
pub(super) async fn items(
    State(app): State<App>,
    Permitted(caller): Permitted<SuiteReader>,
    Extension(room): Extension<SharedReservation>,
    Id(suite_id): Id,
    uri: Uri,
) -> Result<Json<SuiteItems>, Failure> {
    let mut query = Query::read(&uri);
    let cursor = query.string("cursor");
    let limit = query.integer("limit");
    query.finish()?;
    let cursor = cursor.as_deref();
    Ok(Json(
        suites::items(&app, &caller, &suite_id, cursor, limit, JSON_PAGE, &room).await?,
    ))
}
