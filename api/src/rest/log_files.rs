//! The public files of the receipt keys and of the transparency log.

use axum::Router;
use axum::extract::{Path, State};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use crate::app::App;
use crate::http::error_response::Failure;
use crate::http::not_found;
use crate::layers;
use crate::ops::receipts::{self, LogFile};

/// Returns the routes of the public files of keys and of the log. They are formats of other
/// standards, without a counterpart in gRPC and in the OpenAPI document.
pub(super) fn routes(app: &App) -> Router<App> {
    Router::new()
        .route("/.well-known/jwks.json", get(jwk_set))
        .route("/log/{*path}", get(log_file))
        .route_layer(from_fn_with_state(
            app.clone(),
            layers::rate_limit::limit_files,
        ))
}

/// `GET /.well-known/jwks.json`: the receipt keys (RFC 7517).
async fn jwk_set(State(app): State<App>) -> Result<Response, Failure> {
    let body = receipts::jwk_set(&app).await?;
    let fields = [
        (CONTENT_TYPE, "application/jwk-set+json"),
        (CACHE_CONTROL, "public, max-age=300"),
    ];
    Ok((fields, body).into_response())
}

/// `GET /log/{*path}`: a file of the transparency log (C2SP tlog-tiles).
async fn log_file(State(app): State<App>, Path(path): Path<String>) -> Result<Response, Failure> {
    let (bytes, media_type, cache) = match receipts::log_file(&app, &path).await? {
        Some(LogFile::Checkpoint(bytes)) => (bytes, "text/plain; charset=utf-8", "max-age=5"),
        Some(LogFile::Tile(bytes)) => (
            bytes,
            "application/octet-stream",
            "public, max-age=31536000, immutable",
        ),
        None => return Ok(not_found::not_found().await.into_response()),
    };
    let fields = [(CONTENT_TYPE, media_type), (CACHE_CONTROL, cache)];
    Ok((fields, bytes).into_response())
}
