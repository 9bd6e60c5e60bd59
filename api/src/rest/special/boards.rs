//! `GET /v1/suites/{suite_id}/board`: a page that caches may keep.

use assay_core::Timestamp;
use assay_core::model::board::BoardVisibility;
use assay_core::model::permissions::SuiteVisitor;
use axum::Json;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH};

use crate::app::App;
use crate::generated::inputs;
use crate::http::error_response::Failure;
use crate::ops::boards;
use crate::rest::input::Query;

/// Returns a page of a board, or 304 if the client has it.
pub async fn get_leaderboard(
    app: App,
    visitor: SuiteVisitor,
    [suite_id]: [String; 1],
    request: Request,
) -> Result<Response, Failure> {
    let mut query = Query::read(request.uri());
    let input = inputs::GetLeaderboard::read(&mut query);
    query.finish()?;
    let board = boards::get(&app, &visitor, &suite_id, input).await?;
    let computed = board.as_of.map_or(0, Timestamp::unix_micros);
    let removed = board.removed.first();
    let removed = removed.map_or(0, |removal| removal.removed_at.unix_micros());
    let etag = format!(
        "\"{}-{computed}-{}-{}-{removed}\"",
        board.suite_version, board.status, board.n_removed
    );
    let cache = match board.visibility {
        BoardVisibility::Public => "public, max-age=60",
        BoardVisibility::Credential => "private, max-age=10",
    };
    let fields = [(ETAG, etag.clone()), (CACHE_CONTROL, cache.to_owned())];
    let is_known = request
        .headers()
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
