//! Handlers of `/v1/events`.

use assay_core::Result;
use assay_core::model::cursor::PAGE;
use assay_core::model::event::{EventCursor, EventType, Events};
use assay_core::model::permissions::Caller;
use assay_core::model::validation::PageSize;
use axum::extract::State;
use axum::{Extension, Json};
use http::Uri;

use super::extract::Permitted;
use super::input::Query;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::limits::request_memory::SharedReservation;
use crate::ops::events::{self, EventQuery};

/// List events
///
/// Returns what happened in the organization, the oldest event first: finished jobs, published
/// suites, reached limits, and changes of keys and members. Events are kept for 30 days. To get the
/// next page, send `next_cursor` as `cursor`. It is never null: later events follow on its page.
///
/// With `wait`, the response comes as soon as there is an event, and otherwise, with an empty page,
/// after that many seconds. So a program behind a firewall hears of events without polling.
///
/// An API key sees the events whose data its scopes permit: `job.*` with `jobs:read`,
/// `usage.threshold` with `usage:read`, `suite.published` with `suites:read`, and all others with
/// all scopes.
///
/// Requires an API key or a session token.
#[utoipa::path(
    get,
    path = "/v1/events",
    operation_id = "listEvents",
    tag = "events",
    security(("api_key" = []), ("session" = [])),
    params(
        (
            "type" = inline(Option<EventType>),
            Query,
            description = "Return only events of this type.",
        ),
        (
            "limit" = inline(Option<PageSize<{ PAGE.0 }, { PAGE.1 }>>),
            Query,
            description = "The maximum number of events on the page.",
        ),
        (
            "cursor" = inline(Option<EventCursor>),
            Query,
            description =
                "The `next_cursor` of the previous page. If absent, the page begins with the \
                 oldest event.",
        ),
        (
            "wait" = Option<u32>,
            Query,
            description = "The number of seconds to wait for an event.",
            minimum = 0,
            maximum = 30,
        ),
    ),
    responses(
        (status = 200, description = "A page of events.", body = Events),
        (
            status = 403,
            description =
                "It is also returned if the key may not see events of the requested `type`.",
        ),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Permitted(caller): Permitted<Caller>,
    Extension(room): Extension<SharedReservation>,
    uri: Uri,
) -> Result<Json<Events>, Failure> {
    let mut query = Query::read(&uri);
    let events = EventQuery {
        r#type: query.string("type"),
        limit: query.integer("limit"),
        cursor: query.string("cursor"),
        wait: query.integer("wait"),
    };
    query.finish()?;
    Ok(Json(events::list(&app, &caller, events, &room).await?))
}
