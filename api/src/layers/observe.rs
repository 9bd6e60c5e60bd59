//! The outermost layer: assigns the request id, renders errors, sets every response's headers,
//! and records telemetry.
//!
//! Each duty is its own module. They are one layer because their steps' order crosses
//! the layers' nesting: the outcome is recorded after errors are rendered and before the headers
//! are set, and the time until the record is dropped includes both. As separate layers, a client
//! that disconnects while the headers are being set would count as one that got no response.

use std::panic::AssertUnwindSafe;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use http::StatusCode;

use super::errors;
use super::request_id;
use super::response_headers;
use super::telemetry::RequestObserver;
use crate::app::App;

/// Handles a request from its arrival until its response is ready to be sent.
pub async fn observe(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let Ok(context) = request_id::new_context(&request, &app.settings.trusted_proxies) else {
        // Without randomness there is no request id, and nothing else works either.
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    request.extensions_mut().insert(context.clone());
    let mut observer = RequestObserver::new(app.spans.clone(), &request, context.clone());

    let response = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let response = response.unwrap_or_else(|_| errors::handler_panicked());
    let (mut response, code) = errors::render(response, observer.protocol(), &context);
    // Recorded before the next await: the request has a response, even if the client disconnects
    // now.
    observer.set_outcome(&response, code);

    let has_tls = app.settings.public_url.starts_with("https://");
    let protocol = observer.protocol();
    response_headers::set(&app.limits.rate, &context, protocol, has_tls, &mut response).await;
    response
}
