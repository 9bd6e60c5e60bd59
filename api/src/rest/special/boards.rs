//! `GET /v1/suites/{suite_id}/board`: a page that caches may keep, as JSON or as CSV.

use assay_core::model::board::{Board, BoardVisibility};
use assay_core::model::permissions::SuiteVisitor;
use assay_core::{Error, Result, Timestamp};
use assay_exports::{BoardRow, board_csv};
use axum::Json;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderValue, StatusCode};

use crate::app::App;
use crate::generated::inputs;
use crate::http::error_response::Failure;
use crate::ops::boards;
use crate::rest::extract::prefers;
use crate::rest::input::Query;

const CSV: &str = "text/csv";

/// Returns a board page in the form that the client accepts, or 304 if the client has it.
pub async fn get_leaderboard(
    app: App,
    visitor: SuiteVisitor,
    [suite_id]: [String; 1],
    request: Request,
) -> Result<Response, Failure> {
    let mut query = Query::read(request.uri());
    let input = inputs::GetLeaderboard::read(&mut query);
    query.finish()?;
    let wants_csv = prefers(request.headers(), CSV);
    let board = boards::get(&app, &visitor, &suite_id, input).await?;
    let computed = board.as_of.map_or(0, Timestamp::unix_micros);
    let removed = board.removed.first();
    let removed = removed.map_or(0, |removal| removal.removed_at.unix_micros());
    // A tag names a form too: a client that has the JSON does not have the CSV.
    let form = if wants_csv { "-csv" } else { "" };
    let (version, status) = (&board.suite_version, &board.status);
    let n_removed = board.n_removed;
    let etag = format!("\"{version}-{computed}-{status}-{n_removed}-{removed}{form}\"");
    let cache = match board.visibility {
        BoardVisibility::Public => "public, max-age=60",
        BoardVisibility::Credential => "private, max-age=10",
    };
    let fields = [
        (ETAG, etag.clone()),
        (CACHE_CONTROL, cache.to_owned()),
        (VARY, "accept".to_owned()),
    ];
    let is_known = request
        .headers()
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|tag| tag.trim() == "*" || tag.trim().trim_start_matches("W/") == etag);
    Ok(if is_known {
        (StatusCode::NOT_MODIFIED, fields).into_response()
    } else if wants_csv {
        let media_type = HeaderValue::from_static("text/csv; charset=utf-8; header=present");
        (fields, [(CONTENT_TYPE, media_type)], csv(board)?).into_response()
    } else {
        (fields, Json(board)).into_response()
    })
}

/// Returns the page's rows as CSV.
fn csv(board: Board) -> Result<String> {
    let rows = board.entries.into_iter().map(|row| {
        let row = serde_json::to_value(row).and_then(serde_json::from_value::<BoardRow>);
        row.map_err(Error::internal)
    });
    Ok(board_csv(&rows.collect::<Result<Vec<_>>>()?))
}
