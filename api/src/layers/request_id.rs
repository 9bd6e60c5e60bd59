//! A request's id, and the context that is stored with it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use assay_core::{RequestId, Result};
use axum::extract::Request;
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderName};
use ipnet::IpNet;

use crate::http::client_address;
use crate::http::protocol::Protocol;
use crate::http::request_context::{ChildSpans, Peer, RequestContext};
use crate::http::theme::Theme;
use crate::http::traceparent::Trace;

/// The request id's header, in requests the client's and in responses the API's.
pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The most characters of a `User-Agent` that are stored.
const USER_AGENT_MAX: usize = 200;

/// Returns the context for a request that has just arrived, with a new request id.
///
/// # Errors
/// If the operating system provides no randomness.
pub(super) fn new_context(request: &Request, trusted_proxies: &[IpNet]) -> Result<RequestContext> {
    let received_at = Instant::now();
    let request_id = RequestId::random()?;
    let headers = request.headers();
    let client = |peer: IpAddr| client_address::client(peer, headers, trusted_proxies);
    Ok(RequestContext {
        request_id,
        protocol: Protocol::of(request),
        received_at,
        trace: Trace::of(headers),
        address: request
            .extensions()
            .get::<Peer>()
            .map_or_else(|| Arc::from("unknown"), |Peer(peer)| client(*peer)),
        theme: Theme::of(headers),
        user_agent: user_agent(headers),
        child_spans: ChildSpans::default(),
    })
}

/// Returns the request id that the client sent, if it is well formed. It is logged, and never
/// returned as the API's own.
pub fn client_request_id(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(X_REQUEST_ID)?.to_str().ok()?;
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    // A secret that is sent here by mistake must not be logged.
    ((1..=128).contains(&text.len()) && text.bytes().all(is_allowed) && !text.contains("svc_"))
        .then(|| text.to_owned())
}

/// Returns the client's first [`USER_AGENT_MAX`] `User-Agent` characters, if it is visible
/// ASCII.
fn user_agent(headers: &HeaderMap) -> Option<Arc<str>> {
    let text: String = headers
        .get(USER_AGENT)?
        .to_str()
        .ok()?
        .trim()
        .chars()
        .take(USER_AGENT_MAX)
        .collect();
    // A secret that is sent here by mistake must not be stored.
    (!text.is_empty() && !text.contains("svc_")).then(|| Arc::from(text))
}
