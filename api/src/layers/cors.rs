//! CORS: which pages from other origins may call the API, and which response headers they may read.
//! Without `ASSAY_CORS_ORIGINS`, responses have no CORS headers.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{
    ACCESS_CONTROL_REQUEST_METHOD, ALLOW, AUTHORIZATION, CONTENT_TYPE, ORIGIN, RETRY_AFTER,
};
use http::{HeaderName, Method};
use tower::{Layer as _, ServiceExt as _};
use tower_http::cors::{AllowOrigin, Any, CorsLayer};

use crate::http::error_response::SHOULD_RETRY;
use crate::http::origin::Origin;

/// REST and gRPC-web request headers that pages may set, in addition to `Authorization` and
/// `Content-Type`.
const REQUEST_HEADERS: [&str; 7] = [
    "idempotency-key",
    "x-org-id",
    "x-request-id",
    "traceparent",
    "grpc-timeout",
    "x-grpc-web",
    "x-user-agent",
];

/// Response headers that pages may read, in addition to `Allow`, `Retry-After` and `X-Should-Retry`.
const RESPONSE_HEADERS: [&str; 13] = [
    "x-request-id",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-key-expires-at",
    "idempotency-replayed",
    "x-model-version",
    "x-engine-time-ms",
    "content-range",
    "etag",
    "grpc-status",
    "grpc-message",
    "grpc-status-details-bin",
];

/// Time for which a browser may cache the response to a preflight request.
const PREFLIGHT_MAX_AGE: Duration = Duration::from_secs(3600);

/// Returns the CORS rules for these origins, or `None` if there are none.
pub fn rules(origins: &[Origin]) -> Option<CorsLayer> {
    let allowed = match origins {
        [] => return None,
        origins if origins.contains(&Origin::All) => AllowOrigin::from(Any),
        origins => AllowOrigin::list(origins.iter().filter_map(|origin| match origin {
            Origin::All => None,
            Origin::One(origin) => Some(origin.clone()),
        })),
    };
    let layer = CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([
            Method::GET,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
        ])
        .allow_headers(
            [AUTHORIZATION, CONTENT_TYPE]
                .into_iter()
                .chain(REQUEST_HEADERS.map(HeaderName::from_static))
                .collect::<Vec<_>>(),
        )
        .expose_headers(
            [ALLOW, RETRY_AFTER, SHOULD_RETRY]
                .into_iter()
                .chain(RESPONSE_HEADERS.map(HeaderName::from_static))
                .collect::<Vec<_>>(),
        )
        .max_age(PREFLIGHT_MAX_AGE);
    Some(layer)
}

/// Applies the rules to pages' requests. `CorsLayer` takes every `OPTIONS` request for a
/// preflight; those without its headers go to the routes, which refuse them.
pub async fn cors(
    State(rules): State<Option<CorsLayer>>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let is_preflight =
        request.method() == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let is_from_page =
        headers.contains_key(ORIGIN) && (is_preflight || request.method() != Method::OPTIONS);
    match rules {
        Some(rules) if is_from_page => rules.layer(next).oneshot(request).await.into_response(),
        _ => next.run(request).await,
    }
}
