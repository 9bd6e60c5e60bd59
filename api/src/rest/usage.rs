//! Handlers of `/v1/usage`.

use assay_core::model::date::Date;
use assay_core::model::permissions::UsageReader;
use assay_core::model::usage::{Usage, UsageDays};
use axum::Json;
use axum::extract::State;
use http::Uri;

use super::extract::Permitted;
use super::input::Query;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::usage;

/// Get the current usage
///
/// Returns the usage of the organization in the current calendar month, UTC, the limits of its plan,
/// and the submissions of the current day for each suite.
///
/// Requires an API key or a session token.
#[utoipa::path(
    get,
    path = "/v1/usage",
    operation_id = "getUsage",
    tag = "usage",
    security(("api_key" = ["usage:read"]), ("session" = [])),
    responses(
        (status = 200, description = "The usage of the current month.", body = Usage),
    ),
)]
pub(super) async fn get(
    State(app): State<App>,
    Permitted(caller): Permitted<UsageReader>,
) -> Result<Json<Usage>, Failure> {
    Ok(Json(usage::get(&app, &caller).await?))
}

/// List the usage by day
///
/// Returns the usage of the organization on each day of a range, UTC, also on days without any. The
/// range has at most 92 days. Refunds count for the day of their charge: the charges of all days of
/// a month, minus their refunds, are the total of the month. Jobs that are no longer stored, and
/// requests of more than 400 days ago, are left out.
///
/// Requires an API key or a session token.
#[utoipa::path(
    get,
    path = "/v1/usage/days",
    operation_id = "listUsageDays",
    tag = "usage",
    security(("api_key" = ["usage:read"]), ("session" = [])),
    params(
        (
            "from" = inline(Option<Date>),
            Query,
            description =
                "The first day of the range, at most 91 days before `to`. If absent, 29 days \
                 before `to`.",
        ),
        (
            "to" = inline(Option<Date>),
            Query,
            description = "The last day of the range. If absent, the current day.",
        ),
    ),
    responses(
        (status = 200, description = "The usage on each day of the range.", body = UsageDays),
    ),
)]
pub(super) async fn days(
    State(app): State<App>,
    Permitted(caller): Permitted<UsageReader>,
    uri: Uri,
) -> Result<Json<UsageDays>, Failure> {
    let mut query = Query::read(&uri);
    let from = query.string("from");
    let to = query.string("to");
    query.finish()?;
    Ok(Json(
        usage::days(&app, &caller, from.as_deref(), to.as_deref()).await?,
    ))
}
