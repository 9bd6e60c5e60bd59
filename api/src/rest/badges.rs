//! The badges of receipts.

use axum::Router;
use axum::extract::{Path, State};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};

use crate::app::App;
use crate::http::error_response::Failure;
use crate::http::not_found;
use crate::layers;
use crate::ops::receipts;

/// Returns the route of badges. They are images, without a counterpart in gRPC and in the OpenAPI document.
pub(super) fn routes(app: &App) -> Router<App> {
    Router::new()
        .route("/badges/{file}", get(badge))
        .route_layer(from_fn_with_state(
            app.clone(),
            layers::rate_limit::limit_files,
        ))
}

/// `GET /badges/{receipt_id}.svg`: the badge of a receipt that a public board shows.
async fn badge(State(app): State<App>, Path(file): Path<String>) -> Result<Response, Failure> {
    let badge = match file.strip_suffix(".svg") {
        Some(receipt_id) => receipts::badge(&app, receipt_id).await?,
        None => None,
    };
    let Some(badge) = badge else {
        return Ok(not_found::not_found().await.into_response());
    };
    let fields = [
        (CONTENT_TYPE, "image/svg+xml"),
        (CACHE_CONTROL, "public, max-age=60"),
        (
            CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'",
        ),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok((fields, badge).into_response())
}
