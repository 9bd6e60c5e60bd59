//! Pages of other origins: which may call, and what of an answer they may read. Without the setting there is nothing here.

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

use crate::http::origin::Origin;

/// What a page may send beyond what every page may: of REST, of gRPC-web.
const SENT: [&str; 7] = [
    "idempotency-key",
    "x-org-id",
    "x-request-id",
    "traceparent",
    "grpc-timeout",
    "x-grpc-web",
    "x-user-agent",
];

/// What a page may read beyond what every page may.
const READ: [&str; 8] = [
    "x-request-id",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "idempotency-replayed",
    "grpc-status",
    "grpc-message",
    "grpc-status-details-bin",
];

/// How long a browser need not ask again.
const PREFLIGHT_MAX_AGE: Duration = Duration::from_secs(3600);

/// What browsers are told about these origins. Nothing, when there are none.
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
                .chain(SENT.map(HeaderName::from_static))
                .collect::<Vec<_>>(),
        )
        .expose_headers(
            [ALLOW, RETRY_AFTER]
                .into_iter()
                .chain(READ.map(HeaderName::from_static))
                .collect::<Vec<_>>(),
        )
        .max_age(PREFLIGHT_MAX_AGE);
    Some(layer)
}

/// The layer. The library's takes every `OPTIONS` for a browser's question; what is none is for the routes to refuse.
pub async fn cors(
    State(rules): State<Option<CorsLayer>>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let is_question =
        request.method() == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let by_page =
        headers.contains_key(ORIGIN) && (is_question || request.method() != Method::OPTIONS);
    match rules {
        Some(rules) if by_page => rules.layer(next).oneshot(request).await.into_response(),
        _ => next.run(request).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_scheme_and_a_host() {
        for good in [
            "https://app.example.org",
            "http://localhost:3000",
            "http://127.0.0.1:8080",
            "*",
        ] {
            assert!(good.parse::<Origin>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "app.example.org",
            "https://app.example.org/",
            "https://App.example.org",
            "https://a/b",
            "https://*.example.org/x",
        ] {
            assert!(bad.parse::<Origin>().is_err(), "{bad}");
        }
    }
}
