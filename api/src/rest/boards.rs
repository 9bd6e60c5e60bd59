//! Handlers of boards and their entries.

use assay_core::Timestamp;
use assay_core::model::board::{
    BOARD_PAGE, Board, BoardCursor, BoardVisibility, ENTRIES_PAGE, Entries, Entry, EntryCreate,
};

use assay_core::model::ids::{EntryId, JobId};
use assay_core::model::permissions::{BoardReader, Credential, EvalSubmitter, JobReader};
use assay_core::model::suite::SuiteId;
use assay_core::model::validation::PageSize;
use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse as _, Response};
use http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, StatusCode, Uri};

use super::extract::{Id, Permitted, SMALL_BODY_MAX, read_json_body};
use super::input::{Fields, Query};
use crate::app::App;
use crate::http::error_response::Failure;
use crate::ops::boards::{self, BoardQuery, NewEntryFields};

/// Enter a job on a board
///
/// Puts a succeeded job on the board of its suite. This publishes `name`, `url`, the name of the
/// organization, the figures of the job and the number of submissions. The operator can open a board
/// to everyone. At most three jobs can enter a board, and withdrawn entries count: an entry cannot
/// be exchanged for a better one. Organizations of one domain, and those on the plan `free` that one
/// user created, share the three.
///
/// Requires an API key, or the session token of a member.
#[utoipa::path(
    post,
    path = "/v1/jobs/{job_id}/board",
    operation_id = "createEntry",
    tag = "boards",
    security(("api_key" = ["evals:write"]), ("session" = ["member"])),
    params(
        ("job_id" = JobId, Path, description = "The id of the job."),
    ),
    request_body = EntryCreate,
    responses(
        (status = 201, description = "The entry.", body = Entry),
        (status = 404, description = "The organization has no such eval."),
        (
            status = 409,
            description =
                "The job cannot enter: `details.reason` is `no_board`, `not_succeeded`, \
                 `not_final`, `board_closed`, `max_entries`, `entered` or `name_taken`, or the job \
                 was scored on another version than the current one.",
        ),
    ),
)]
pub(super) async fn enter(
    State(app): State<App>,
    Permitted(submitter): Permitted<EvalSubmitter>,
    Id(job_id): Id,
    request: Request,
) -> Result<(StatusCode, Json<Entry>), Failure> {
    let body = read_json_body(&app, request, SMALL_BODY_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let name = fields.string("name");
    let url = fields.optional_string("url");
    fields.finish()?;
    let new = NewEntryFields {
        name: &name,
        url: url.as_deref(),
        marks_final: false,
    };
    let entry = boards::enter(&app, &submitter, &job_id, new).await?;
    Ok((StatusCode::CREATED, Json(entry)))
}

/// Withdraw an entry
///
/// Before the board closes, the entry is left out of the board. Afterwards its row stays with its
/// figures and loses its name. A withdrawn entry counts towards the three of the organization, and
/// cannot be entered again. Withdrawing it again changes nothing.
///
/// Requires an API key, or the session token of a member.
#[utoipa::path(
    delete,
    path = "/v1/entries/{entry_id}",
    operation_id = "deleteEntry",
    tag = "boards",
    security(("api_key" = ["evals:write"]), ("session" = ["member"])),
    params(
        ("entry_id" = EntryId, Path, description = "The id of the entry."),
    ),
    responses(
        (status = 200, description = "The withdrawn entry.", body = Entry),
        (status = 404, description = "The organization has no such entry."),
    ),
)]
pub(super) async fn withdraw(
    State(app): State<App>,
    Permitted(submitter): Permitted<EvalSubmitter>,
    Id(entry_id): Id,
) -> Result<Json<Entry>, Failure> {
    Ok(Json(boards::withdraw(&app, &submitter, &entry_id).await?))
}

/// List entries
///
/// Returns the entries of the organization, the newest first. To get the next page, send
/// `next_before` as `before`, until it is absent.
///
/// Requires an API key or a session token.
#[utoipa::path(
    get,
    path = "/v1/entries",
    operation_id = "listEntries",
    tag = "boards",
    security(("api_key" = ["jobs:read"]), ("session" = [])),
    params(
        (
            "suite_id" = inline(Option<SuiteId>),
            Query,
            description = "Return only entries for this suite.",
        ),
        (
            "limit" = inline(Option<PageSize<{ ENTRIES_PAGE.0 }, { ENTRIES_PAGE.1 }>>),
            Query,
            description = "The maximum number of entries on the page.",
        ),
        (
            "before" = inline(Option<Timestamp>),
            Query,
            description =
                "Return only entries that were entered before this time: the `next_before` of the \
                 previous page.",
        ),
    ),
    responses(
        (status = 200, description = "A page of entries.", body = Entries),
    ),
)]
pub(super) async fn list_entries(
    State(app): State<App>,
    Permitted(caller): Permitted<JobReader>,
    uri: Uri,
) -> Result<Json<Entries>, Failure> {
    let mut query = Query::read(&uri);
    let suite_id = query.string("suite_id");
    let limit = query.integer("limit");
    let before = query.string("before");
    query.finish()?;
    Ok(Json(
        boards::list_entries(&app, &caller, suite_id, limit, before).await?,
    ))
}

/// Get a board
///
/// Returns the leaderboard of a version of a suite. It ranks only what the data separate: each pair
/// of entries is tested on the same items, the tests are corrected together, and entries of one tier
/// are ordered by name, not by value. A board that is computed at its close shows no entries before.
/// To get the next page, send `next_cursor` as `cursor`, until it is null; all pages show one
/// computation.
///
/// Requires an API key or a session token, unless the board is public.
#[utoipa::path(
    get,
    path = "/v1/suites/{suite_id}/board",
    operation_id = "getBoard",
    tag = "boards",
    security((), ("api_key" = ["suites:read"]), ("session" = [])),
    params(
        ("suite_id" = SuiteId, Path, description = "The id of the suite."),
        (
            "version" = inline(Option<String>),
            Query,
            description = "The version of the suite. If absent, the current version.",
        ),
        (
            "limit" = inline(Option<PageSize<{ BOARD_PAGE.0 }, { BOARD_PAGE.1 }>>),
            Query,
            description = "The maximum number of entries on the page.",
        ),
        (
            "cursor" = inline(Option<BoardCursor>),
            Query,
            description =
                "The `next_cursor` of the previous page. If absent, the first page is returned.",
        ),
    ),
    responses(
        (
            status = 200,
            description = "A page of the board.",
            body = Board,
            headers(
                ("ETag" = String, description = "The computation. Send it as `If-None-Match`."),
            ),
        ),
        (status = 304, description = "The board has not changed since the computation that `If-None-Match` names."),
        (status = 404, description = "There is no such suite or version, or it has no board."),
    ),
)]
pub(super) async fn get(
    State(app): State<App>,
    credential: Option<Extension<Credential>>,
    Id(suite_id): Id,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let reader = BoardReader::of(credential.as_deref())?;
    let mut query = Query::read(&uri);
    let page = BoardQuery {
        version: query.string("version"),
        limit: query.integer("limit"),
        cursor: query.string("cursor"),
    };
    query.finish()?;
    let board = boards::get(&app, &reader, &suite_id, page).await?;
    let computed = board.as_of.map_or(0, Timestamp::unix_micros);
    let etag = format!("\"{}-{computed}-{}\"", board.suite_version, board.status);
    let cache = match board.visibility {
        BoardVisibility::Public => "public, max-age=60",
        BoardVisibility::Credential => "private, max-age=10",
    };
    let fields = [(ETAG, etag.clone()), (CACHE_CONTROL, cache.to_owned())];
    let is_known = headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|tag| tag.trim() == "*" || tag.trim().trim_start_matches("W/") == etag);
    Ok(if is_known {
        (StatusCode::NOT_MODIFIED, fields).into_response()
    } else {
        (fields, Json(board)).into_response()
    })
}
