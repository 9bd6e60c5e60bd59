//! Syntax of a request's first line and headers: 400, 414 or 431 before anything else is looked at.
//!
//! hyper rejects by itself what it cannot read, without a body and without our headers. So its limits are above ours.

use std::str::FromStr as _;

use assay_core::{Code, Error};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, StatusCode, Version};

use crate::http::error_response::Failure;
use crate::http::header_limits::{MAX_HEADERS, MAX_HEADERS_BYTES};
use crate::http::protocol::Protocol;

/// Largest request target (path and query) in bytes.
pub const MAX_TARGET_BYTES: usize = 8 * 1024;

/// Headers that identify the caller or the body. A proxy that reads another one of two would see another request.
const ONCE: [HeaderName; 3] = [
    AUTHORIZATION,
    CONTENT_TYPE,
    HeaderName::from_static("x-org-id"),
];

/// The layer.
pub async fn check_syntax(request: Request, next: Next) -> Response {
    match fault(&request) {
        None => next.run(request).await,
        Some(failure) => failure.into_response(),
    }
}

/// What is wrong with the head of a request, if anything.
fn fault(request: &Request) -> Option<Failure> {
    let headers = request.headers();
    if request
        .uri()
        .path_and_query()
        .is_some_and(|target| target.as_str().len() > MAX_TARGET_BYTES)
    {
        return Some(rejected(
            StatusCode::URI_TOO_LONG,
            format!("Path and query may have {MAX_TARGET_BYTES} bytes together."),
        ));
    }
    if headers.len() > MAX_HEADERS || size(headers) > MAX_HEADERS_BYTES {
        let message = format!(
            "A request may have {MAX_HEADERS} headers, of {MAX_HEADERS_BYTES} bytes together."
        );
        return Some(rejected(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            message,
        ));
    }
    if let Some(name) = ONCE
        .iter()
        .find(|name| headers.get_all(*name).iter().nth(1).is_some())
    {
        return Some(rejected(
            StatusCode::BAD_REQUEST,
            format!("Send the header `{name}` once."),
        ));
    }
    // A client that maps REST's headers to metadata would lose its idempotency without a word.
    if Protocol::of(headers) != Protocol::Rest && headers.contains_key("idempotency-key") {
        let message = "Send the idempotency key as the field `idempotency_key` of the message, not as metadata.";
        return Some(rejected(StatusCode::BAD_REQUEST, message.into()));
    }
    // In HTTP/2 the pseudo-header `:authority` takes its place, and in HTTP/1.0 it is optional.
    if request.version() == Version::HTTP_11 && !has_one_host(headers) {
        return Some(rejected(
            StatusCode::BAD_REQUEST,
            "Send the header `Host` once: a host, and a port if there is one.".into(),
        ));
    }
    None
}

fn rejected(status: StatusCode, message: String) -> Failure {
    Failure {
        status: Some(status),
        ..Error::new(Code::InvalidRequest, message).into()
    }
}

fn size(headers: &HeaderMap) -> usize {
    headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 32)
        .sum()
}

fn has_one_host(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    // A target without an authority has an empty one.
    host.is_empty()
        || host
            .to_str()
            .is_ok_and(|host| !host.contains('@') && Authority::from_str(host).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_one_authority() {
        let read = |hosts: &[&str]| {
            has_one_host(
                &hosts
                    .iter()
                    .map(|host| (HOST, host.parse().unwrap()))
                    .collect(),
            )
        };
        for good in [
            "",
            "example.org",
            "example.org:8080",
            "127.0.0.1:80",
            "[::1]:8080",
            "EXAMPLE.org.",
        ] {
            assert!(read(&[good]), "{good}");
        }
        for bad in [
            &[][..],
            &["a", "a"],
            &["a", "b"],
            &["a b"],
            &["user@a"],
            &["a/b"],
            &["a, b"],
        ] {
            assert!(!read(bad), "{bad:?}");
        }
    }
}
