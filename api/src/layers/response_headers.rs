//! Every response's headers: the request id, the rate limit, the caller's key expiry,
//! `Cache-Control`, and what browsers must not do.

use axum::response::Response;
use http::header::{CACHE_CONTROL, STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderName, HeaderValue};

use super::auth::ExpiresSoonAt;
use super::request_id::X_REQUEST_ID;
use crate::http::protocol::Protocol;
use crate::http::request_context::RequestContext;
use crate::limits::{Allowance, Limits};

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const KEY_EXPIRES_AT: HeaderName = HeaderName::from_static("x-key-expires-at");

/// The time for which a browser uses TLS alone (RFC 6797).
const ONE_YEAR: &str = "max-age=31536000";

/// Sets the headers. `has_tls` says that the public address begins with `https://`. The allowance is the one that a layer stored in the extensions, otherwise the
/// client address's.
pub(super) async fn set(
    limits: &Limits,
    context: &RequestContext,
    protocol: Protocol,
    has_tls: bool,
    response: &mut Response,
) {
    let allowance = match response.extensions().get::<Allowance>() {
        Some(allowance) => *allowance,
        None => limits.address_allowance(&context.address).await,
    };
    let expires_soon_at = response.extensions().get::<ExpiresSoonAt>();
    let expires_soon_at = expires_soon_at.map(|ExpiresSoonAt(at)| at.to_string());
    let headers = response.headers_mut();
    if let Some(at) = expires_soon_at.and_then(|at| HeaderValue::try_from(at).ok()) {
        headers.insert(KEY_EXPIRES_AT, at);
    }
    if let Ok(value) = HeaderValue::from_str(context.request_id.as_str()) {
        headers.insert(X_REQUEST_ID, value);
    }
    headers.insert(LIMIT, allowance.limit.into());
    headers.insert(REMAINING, allowance.remaining.into());
    headers.insert(RESET, allowance.reset.into());
    // A response belongs to one caller and may hold a secret. Responses that are the same for
    // everybody set the header themselves.
    if matches!(protocol, Protocol::Rest | Protocol::Page) {
        headers
            .entry(CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-store"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if has_tls {
            headers.insert(
                STRICT_TRANSPORT_SECURITY,
                HeaderValue::from_static(ONE_YEAR),
            );
        }
    }
}
