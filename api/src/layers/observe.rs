//! The outermost layer: gives a request its id, renders whatever failed, adds the headers that every answer carries,
//! and writes the one log line and the metrics.

use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use assay_core::{Code, Error, RequestId, telemetry};
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use ipnet::IpNet;
use tonic::Status;
use tonic_types::StatusExt;

use super::{Call, Peer};
use crate::app::App;
use crate::limits::Allowance;
use crate::render::{self, Failure, Pending, Wire};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The layer.
pub async fn observe(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let wire = Wire::of(request.headers());
    let operation = operation(&request, wire);
    let client_request_id = client_request_id(request.headers());
    let peer = request.extensions().get::<Peer>();
    let address = peer.map_or_else(|| Arc::from("unknown"), |Peer(peer)| client(*peer, request.headers(), &app.settings.trusted_proxies));
    let Ok(request_id) = RequestId::random() else {
        // Without randomness there is neither an id nor a way to go on.
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let method = request.method().clone();
    request.extensions_mut().insert(Call { request_id: request_id.clone(), began, address: Arc::clone(&address) });

    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let response = answered.unwrap_or_else(|_| Failure::from(Error::internal("a handler panicked")).into_response());
    let (mut response, code) = finished(response, wire, &request_id);

    let allowance = match response.extensions().get::<Allowance>() {
        Some(allowance) => *allowance,
        None => app.limits.address(&address).await,
    };
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(request_id.as_str()) {
        headers.insert(REQUEST_ID, value);
    }
    headers.insert(LIMIT, allowance.limit.into());
    headers.insert(REMAINING, allowance.remaining.into());
    headers.insert(RESET, allowance.reset.into());

    let seconds = began.elapsed().as_secs_f64();
    metrics::counter!(telemetry::REQUESTS, "wire" => wire.as_str(), "operation" => operation.clone(), "code" => code.clone()).increment(1);
    metrics::histogram!(telemetry::REQUEST_SECONDS, "wire" => wire.as_str(), "operation" => operation.clone()).record(seconds);
    tracing::info!(%request_id, client_request_id, wire = wire.as_str(), operation, %method, status = response.status().as_u16(), code, seconds, "request");
    response
}

/// Renders what failed, and names the outcome.
fn finished(mut response: Response, wire: Wire, request_id: &RequestId) -> (Response, String) {
    let pending = response.extensions_mut().remove::<Pending>().map(|Pending(failure)| failure);
    match pending.or_else(|| translated(response.headers()).map(Arc::new)) {
        Some(failure) => {
            render::log_cause(&failure.error, request_id);
            let (mut head, _) = response.into_parts();
            let mut rendered = render::render(&failure, std::mem::take(&mut head.headers), wire, request_id);
            if let Some(allowance) = head.extensions.get::<Allowance>() {
                rendered.extensions_mut().insert(*allowance);
            }
            (rendered, failure.error.code.as_str().to_owned())
        }
        None => {
            // Handlers of gRPC have rendered their error themselves; its reason is the code.
            let reason = response.extensions().get::<Status>().and_then(StatusExt::get_details_error_info);
            let code = reason.map_or_else(|| String::from("ok"), |info| info.reason.to_lowercase());
            (response, code)
        }
    }
}

/// The gRPC status of an answer without messages.
fn grpc_status(headers: &HeaderMap) -> Option<tonic::Code> {
    let status = headers.get(Status::GRPC_STATUS)?.to_str().ok()?.parse().ok()?;
    Some(tonic::Code::from_i32(status))
}

/// What tonic itself refuses, in our words. It says little, and calls a message that it cannot decode a fault of the
/// server. Our own statuses have details.
fn translated(headers: &HeaderMap) -> Option<Failure> {
    let status = grpc_status(headers).filter(|_| !headers.contains_key(Status::GRPC_STATUS_DETAILS))?;
    match status {
        tonic::Code::Internal => Some(Error::new(Code::InvalidRequest, "The message cannot be decoded.").into()),
        tonic::Code::OutOfRange => Some(Error::new(Code::PayloadTooLarge, "The message is larger than this operation takes.").into()),
        tonic::Code::Unimplemented => {
            let error = Error::new(Code::NotFound, "There is no such service, method or compression.");
            Some(Failure { grpc_status: Some(tonic::Code::Unimplemented), ..error.into() })
        }
        _ => None,
    }
}

/// The operation's name from a closed set: the route's template, or the full name of an rpc that there is.
fn operation(request: &Request, wire: Wire) -> String {
    match (wire, request.extensions().get::<MatchedPath>()) {
        (Wire::Rest, Some(path)) => format!("{} {}", known(request.method()), path.as_str()),
        (Wire::Grpc | Wire::GrpcWeb, _) if crate::grpc::is_method(request.uri().path()) => request.uri().path()[1..].to_owned(),
        _ => String::from("unknown"),
    }
}

/// A method that we know, for callers may send any word.
fn known(method: &Method) -> &str {
    match *method {
        Method::GET | Method::HEAD | Method::POST | Method::PATCH | Method::PUT | Method::DELETE | Method::OPTIONS => method.as_str(),
        _ => "other",
    }
}

/// The caller's own id of the request, if it is well formed: it is logged and never echoed as ours.
pub fn client_request_id(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(REQUEST_ID)?.to_str().ok()?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    ((1..=128).contains(&text.len()) && text.bytes().all(allowed)).then(|| text.to_owned())
}

/// The client's address: that of the peer, or what trusted proxies say, read from the right, where they append.
pub fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> Arc<str> {
    let trusted = |address: &IpAddr| trusted.iter().any(|network| network.contains(address));
    let forwarded = headers.get_all("x-forwarded-for").iter();
    let hops: Vec<&str> = forwarded.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).collect();
    let mut client = peer.to_canonical();
    for hop in hops.into_iter().rev() {
        // What cannot be read ends the chain: what stands before it could be anybody's invention.
        match forwarded_address(hop) {
            Some(hop) if trusted(&client) => client = hop,
            _ => break,
        }
    }
    match client {
        IpAddr::V4(address) => Arc::from(address.to_string()),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Arc::from(format!("{a:x}:{b:x}:{c:x}:{d:x}::"))
        }
    }
}

/// An address as proxies write it: `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]:4711`.
fn forwarded_address(hop: &str) -> Option<IpAddr> {
    let hop = hop.trim();
    let bare = hop.strip_prefix('[').and_then(|hop| hop.strip_suffix(']')).unwrap_or(hop).parse::<IpAddr>().ok();
    bare.or_else(|| hop.parse::<SocketAddr>().ok().map(|address| address.ip())).map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_write_addresses_in_several_ways() {
        for (hop, expected) in [
            (" 192.0.2.1 ", Some("192.0.2.1")),
            ("192.0.2.1:4711", Some("192.0.2.1")),
            ("::ffff:192.0.2.1", Some("192.0.2.1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("[2001:db8::1]:4711", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("[[2001:db8::1]]", None),
            ("2001:db8::1]", None),
            ("192.0.2.1:471x", None),
            ("unknown", None),
        ] {
            assert_eq!(forwarded_address(hop), expected.map(|text| text.parse().unwrap()), "{hop}");
        }
    }
}
