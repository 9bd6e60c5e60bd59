//! Extractors: the proof, path parameters, headers and body that operations need. Every rejection
//! has the error format of the API.

use std::time::Duration;

use assay_core::model::openapi_schema;
use assay_core::model::permissions::{Credential, Proof};
use assay_core::{BestEffort as _, Code, Error, Result};
use axum::extract::{FromRequestParts, RawPathParams, Request};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use http_body::Body as _;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use mime::Mime;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::app::App;
use crate::http::error_response::Failure;
use crate::http::not_found::not_found_error;
use crate::http::request_context::RequestContext;
use crate::layers::memory;
use crate::limits::request_memory::SharedReservation;
use crate::ops::submissions::IDEMPOTENCY_KEY_MAX;

/// Longest time in which a body must arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Number of bytes that are read of a body after its request was rejected.
const DRAIN_MAX: usize = 64 * 1024 * 1024;

/// Maximum size of a body without predictions, in bytes.
pub const SMALL_BODY_MAX: usize = 64 * 1024;

/// The proof of the permission that an operation requires. A credential without it is rejected.
pub struct Permitted<P>(pub P);

impl<P: Proof, S: Sync> FromRequestParts<S> for Permitted<P> {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let credential = parts
            .extensions
            .get::<Credential>()
            .ok_or_else(|| Error::internal("the route has no authentication"))?;
        Ok(Self(P::from_credential(credential)?))
    }
}

/// The path parameters, in the order of the path. A parameter that is not UTF-8 cannot name a
/// resource, so it is rejected with 404.
pub struct Ids<const N: usize>(pub [String; N]);

impl<S: Send + Sync, const N: usize> FromRequestParts<S> for Ids<N> {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let parameters = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|_| not_found_error())?;
        let ids: Vec<_> = parameters
            .iter()
            .map(|(_, value)| value.to_owned())
            .collect();
        Ok(Self(ids.try_into().map_err(|_| not_found_error())?))
    }
}

impl<S: Sync> FromRequestParts<S> for RequestContext {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        Ok(Self::find(&parts.extensions)?)
    }
}

/// The value of the header `Idempotency-Key`.
pub struct IdempotencyKey(pub String);

/// The OpenAPI schema of an [`IdempotencyKey`].
pub struct IdempotencyKeySchema;

impl PartialSchema for IdempotencyKeySchema {
    fn schema() -> RefOr<Schema> {
        openapi_schema::text(
            "1 to 128 visible ASCII characters, with spaces between them.",
            "^[!-~]([ -~]{0,126}[!-~])?$",
            IDEMPOTENCY_KEY_MAX,
            "my-first",
        )
    }
}

impl ToSchema for IdempotencyKeySchema {}

impl IdempotencyKey {
    /// Returns the key, or `None` if the header is absent.
    ///
    /// # Errors
    /// If the header is repeated, or is not visible ASCII. Operations check the length.
    pub fn from_headers(headers: &HeaderMap) -> Result<Option<Self>> {
        let mut values = headers
            .get_all(HeaderName::from_static("idempotency-key"))
            .iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        if values.next().is_some() {
            return Err(Error::field(
                "Idempotency-Key",
                "duplicate",
                "must be given once",
            ));
        }
        let key = value.to_str().map_err(|_| {
            Error::new(
                Code::InvalidRequest,
                "The header Idempotency-Key must be visible ASCII.",
            )
        })?;
        Ok(Some(Self(key.to_owned())))
    }
}

fn body_too_large(max: usize) -> Error {
    Error::new(
        Code::PayloadTooLarge,
        format!("The body is larger than the {max} bytes that this operation accepts."),
    )
}

/// Returns the length that the header `Content-Length` announces, if it is a number.
pub fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Returns `true` if a request names this media type in `Accept`, and does not name JSON.
pub fn prefers(headers: &HeaderMap, media_type: &str) -> bool {
    let names = |media_type: &str| {
        let accepted = headers.get_all(ACCEPT).into_iter();
        accepted
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|range| range.split(';').next())
            .any(|range| range.trim().eq_ignore_ascii_case(media_type))
    };
    names(media_type) && !names("application/json")
}

/// Reads a JSON body as [`read_json_body`] does, or returns an empty object if there is no body.
pub async fn read_optional_json_body(app: &App, request: Request, max: usize) -> Result<Bytes> {
    if request.body().is_end_stream() {
        return Ok(Bytes::from_static(b"{}"));
    }
    read_json_body(app, request, max).await
}

/// Reads a JSON body of at most `max` bytes. A larger `Content-Length` is rejected before the body
/// is read.
pub async fn read_json_body(app: &App, request: Request, max: usize) -> Result<Bytes> {
    let (parts, body) = request.into_parts();
    let length = content_length(&parts.headers);
    if length.is_some_and(|length| length > max as u64) {
        // A client that waits for `100 Continue` has not sent the body, and will not.
        if !parts.headers.contains_key(EXPECT) {
            app.request_tasks.spawn(drain(
                body.into_data_stream(),
                memory::reservation(&parts.extensions)?,
            ));
        }
        return Err(body_too_large(max));
    }
    if !is_json(&parts.headers) {
        return Err(Error::new(
            Code::InvalidRequest,
            "The body must be JSON: Content-Type: application/json",
        ));
    }
    let timed_out = |_| {
        Error::new(
            Code::InvalidRequest,
            "The body did not arrive within 30 seconds.",
        )
    };
    // Each frame is copied once, into the buffer of the body.
    let mut buffer = BytesMut::with_capacity(
        length
            .and_then(|length| usize::try_from(length).ok())
            .unwrap_or(0),
    );
    let collect = async {
        let mut body = Limited::new(body, max);
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                buffer.extend_from_slice(&data);
            }
        }
        Ok(())
    };
    let collected: std::result::Result<(), axum::BoxError> =
        tokio::time::timeout(BODY_TIMEOUT, collect)
            .await
            .map_err(timed_out)?;
    match collected {
        Ok(()) => Ok(buffer.freeze()),
        Err(error) if error.is::<LengthLimitError>() || is_length_limit(error.as_ref()) => {
            Err(body_too_large(max))
        }
        Err(_) => Err(Error::new(Code::InvalidRequest, "The body is incomplete.")),
    }
}

/// Reads and drops the rest of a rejected body, within limits. Many clients read the response only
/// after they have sent the whole body, and report a connection that closes earlier as broken.
pub async fn drain<E>(
    mut body: impl Stream<Item = Result<Bytes, E>> + Unpin,
    reservation: SharedReservation,
) {
    let read = async {
        let mut left = DRAIN_MAX;
        while let Some(Ok(chunk)) = body.next().await {
            let Some(rest) = left.checked_sub(chunk.len()) else {
                break;
            };
            left = rest;
            // The chunk is dropped, so it occupies no memory.
            reservation.set(0);
        }
    };
    tokio::time::timeout(BODY_TIMEOUT, read)
        .await
        .best_effort("draining a rejected body");
}

fn is_length_limit(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<LengthLimitError>() {
            return true;
        }
        next = error.source();
    }
    false
}

/// Returns `true` if the header `Content-Type` names JSON, without a charset or with UTF-8.
pub fn is_json(headers: &HeaderMap) -> bool {
    let media_type = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse::<Mime>().ok());
    media_type.is_some_and(|media_type| {
        let is_json = media_type.type_() == mime::APPLICATION
            && media_type.subtype() == mime::JSON
            && media_type.suffix().is_none();
        // JSON has no other encoding (RFC 8259, section 8.1).
        let is_utf8 = |(name, value): (mime::Name<'_>, mime::Name<'_>)| {
            name == mime::CHARSET && value == mime::UTF_8
        };
        is_json && media_type.params().all(is_utf8)
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn json_is_recognized_by_media_type() {
        for (value, expected) in [
            ("application/json", true),
            ("Application/JSON", true),
            ("application/json; charset=utf-8", true),
            ("application/json;charset=\"UTF-8\"", true),
            ("application/json; charset=iso-8859-1", false),
            ("application/json; version=1", false),
            ("application/problem+json", false),
            ("application/jsonx", false),
            ("text/json", false),
            ("json", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(value))]);
            assert_eq!(is_json(&headers), expected, "{value}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}
