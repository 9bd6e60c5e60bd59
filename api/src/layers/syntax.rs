//! Checks the syntax in the request line and the headers: 400, 414, 415 or 431 before the route is handled.
//!
//! hyper's own refusals have neither an error body nor the API's headers. So its limits are higher
//! than this layer's.

use std::str::FromStr as _;

use assay_core::{Code, Error};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};

use crate::http::error_response::Failure;
use crate::http::header_limits::{MAX_HEADERS, MAX_HEADERS_BYTES};
use crate::http::protocol::Protocol;

/// Largest path and query size together, in bytes.
pub const MAX_TARGET_BYTES: usize = 8 * 1024;

/// The content coding for a body that has none.
const IDENTITY: &str = "identity";

/// Headers that identify the caller or the body. If there were two, a proxy could read another one
/// than the API.
const UNIQUE_HEADERS: [HeaderName; 3] = [
    AUTHORIZATION,
    CONTENT_TYPE,
    HeaderName::from_static("x-org-id"),
];

/// Refuses a request whose target or headers are malformed or too large.
pub async fn check_syntax(request: Request, next: Next) -> Response {
    match check(&request) {
        None => next.run(request).await,
        Some(failure) => {
            let is_encoded = failure.status == Some(StatusCode::UNSUPPORTED_MEDIA_TYPE);
            let mut response = failure.into_response();
            if is_encoded {
                let headers = response.headers_mut();
                headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(IDENTITY));
            }
            response
        }
    }
}

/// Returns the first error in a request's target or headers.
fn check(request: &Request) -> Option<Failure> {
    let headers = request.headers();
    if request
        .uri()
        .path_and_query()
        .is_some_and(|target| target.as_str().len() > MAX_TARGET_BYTES)
    {
        return Some(refusal(
            StatusCode::URI_TOO_LONG,
            format!("Path and query must have at most {MAX_TARGET_BYTES} bytes together."),
        ));
    }
    if headers.len() > MAX_HEADERS || size(headers) > MAX_HEADERS_BYTES {
        let message = format!(
            "A request must have at most {MAX_HEADERS} headers, of {MAX_HEADERS_BYTES} bytes together."
        );
        return Some(refusal(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            message,
        ));
    }
    if let Some(name) = UNIQUE_HEADERS
        .iter()
        .find(|name| headers.get_all(*name).iter().nth(1).is_some())
    {
        return Some(refusal(
            StatusCode::BAD_REQUEST,
            format!("Send the header `{name}` once."),
        ));
    }
    // gRPC has its own header for message compression.
    if matches!(Protocol::of(request), Protocol::Rest | Protocol::Page)
        && let Some(coding) = other_coding(headers)
    {
        let message = format!(
            "The body has the content coding `{coding}`. Send it without one; the content of an upload may be a compressed file."
        );
        return Some(refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    // gRPC does not read this header. A client that sends it as metadata would lose its idempotency
    // unnoticed.
    if matches!(Protocol::of(request), Protocol::Grpc | Protocol::GrpcWeb)
        && headers.contains_key("idempotency-key")
    {
        let message = "Send the idempotency key as the field `idempotency_key` of the message, not as metadata.";
        return Some(refusal(StatusCode::BAD_REQUEST, message.into()));
    }
    // HTTP/2 has the pseudo-header `:authority` instead, and HTTP/1.0 does not require `Host`.
    if request.version() == Version::HTTP_11 && !has_one_host(headers) {
        return Some(refusal(
            StatusCode::BAD_REQUEST,
            "Send the header `Host` once: a host, and a port if there is one.".into(),
        ));
    }
    None
}

fn refusal(status: StatusCode, message: String) -> Failure {
    Failure {
        status: Some(status),
        ..Error::new(Code::InvalidRequest, message).into()
    }
}

/// Returns the first `Content-Encoding` header's value with a coding, as RFC 9110, section 8.4
/// defines them.
fn other_coding(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(CONTENT_ENCODING).iter();
    let texts = values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let is_coding = |coding: &str| !coding.is_empty() && !coding.eq_ignore_ascii_case(IDENTITY);
    texts
        .into_iter()
        .find(|text| text.split(',').any(|coding| is_coding(coding.trim())))
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
    // The header is empty if the target URI has no authority.
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
        let accepts = |hosts: &[&str]| {
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
            assert!(accepts(&[good]), "{good}");
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
            assert!(!accepts(bad), "{bad:?}");
        }
    }
}
