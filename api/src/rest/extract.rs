//! From a request to what operations want, with every refusal in the contract's form.

use std::time::Duration;

use assay_core::model::permissions::{Credential, Permit};
use assay_core::{BestEffort as _, Code, Error, Result};
use axum::extract::{FromRequestParts, OptionalFromRequestParts, RawPathParams, Request};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::http::error_response::Failure;
use crate::http::not_found::nothing;
use crate::http::request_context::RequestContext;
use crate::layers::memory;
use crate::limits::request_memory::Held;

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// How much of a body that was refused is read nevertheless.
const DISCARD_MAX: usize = 64 * 1024 * 1024;

/// Largest body of a request that carries no predictions.
pub const SMALL: usize = 64 * 1024;

/// The proof that an operation asks for, or 403.
pub struct Permitted<P>(pub P);

impl<P: Permit, S: Sync> FromRequestParts<S> for Permitted<P> {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let credential = parts
            .extensions
            .get::<Credential>()
            .ok_or_else(|| Error::internal("a route without authentication"))?;
        Ok(Self(P::permit(credential)?))
    }
}

/// The route's parameters, in order. One that is not UTF-8 names nothing.
pub struct Ids<const N: usize>(pub [String; N]);

impl<S: Send + Sync, const N: usize> FromRequestParts<S> for Ids<N> {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let parameters = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|_| nothing())?;
        let ids: Vec<_> = parameters
            .iter()
            .map(|(_, value)| value.to_owned())
            .collect();
        Ok(Self(ids.try_into().map_err(|_| nothing())?))
    }
}

/// The route's one parameter.
pub struct Id(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let Ids([id]) = Ids::from_request_parts(parts, state).await?;
        Ok(Self(id))
    }
}

impl<S: Sync> FromRequestParts<S> for RequestContext {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let call = parts.extensions.get::<Self>().cloned();
        Ok(call.ok_or_else(|| Error::internal("a request without an id"))?)
    }
}

/// The header `Idempotency-Key`, if it is there.
pub struct IdempotencyKey(pub String);

impl<S: Sync> OptionalFromRequestParts<S> for IdempotencyKey {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Failure> {
        Ok(Self::of(&parts.headers)?)
    }
}

impl IdempotencyKey {
    /// Reads the header.
    pub fn of(headers: &HeaderMap) -> Result<Option<Self>> {
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
        let text = value.to_str().map_err(|_| {
            Error::new(
                Code::InvalidRequest,
                "The header Idempotency-Key must be visible ASCII.",
            )
        })?;
        Ok(Some(Self(text.to_owned())))
    }
}

fn too_large(max: usize) -> Error {
    Error::new(
        Code::PayloadTooLarge,
        format!("The body is larger than the {max} bytes that this operation takes."),
    )
}

/// The length that a body is announced with.
pub fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Reads a JSON body of at most `max` bytes. A larger announced length is refused before anything is read.
pub async fn json_body(request: Request, max: usize) -> Result<Bytes> {
    let (parts, body) = request.into_parts();
    let announced = announced(&parts.headers);
    if announced.is_some_and(|length| length > max as u64) {
        // Whoever asked first has not sent anything, and will not.
        if !parts.headers.contains_key(EXPECT) {
            tokio::spawn(discard(
                body.into_data_stream(),
                memory::held(&parts.extensions)?,
            ));
        }
        return Err(too_large(max));
    }
    if !is_json(&parts.headers) {
        return Err(Error::new(
            Code::InvalidRequest,
            "The body must be JSON: Content-Type: application/json",
        ));
    }
    let late = |_| {
        Error::new(
            Code::InvalidRequest,
            "The body did not arrive within 30 seconds.",
        )
    };
    // One copy of the whole, into which each frame goes as it arrives.
    let mut whole = BytesMut::with_capacity(
        announced
            .and_then(|length| usize::try_from(length).ok())
            .unwrap_or(0),
    );
    let collect = async {
        let mut body = Limited::new(body, max);
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                whole.extend_from_slice(&data);
            }
        }
        Ok(())
    };
    let collected: std::result::Result<(), axum::BoxError> =
        tokio::time::timeout(BODY_TIMEOUT, collect)
            .await
            .map_err(late)?;
    match collected {
        Ok(()) => Ok(whole.freeze()),
        Err(error) if error.is::<LengthLimitError>() || is_length_limit(error.as_ref()) => {
            Err(too_large(max))
        }
        Err(_) => Err(Error::new(Code::InvalidRequest, "The body broke off.")),
    }
}

/// Reads on for a while, into nothing: many clients look at the answer only when they have sent all, and take a closed
/// connection for a broken one.
pub async fn discard<E>(mut body: impl Stream<Item = Result<Bytes, E>> + Unpin, held: Held) {
    let read = async {
        let mut left = DISCARD_MAX;
        while let Some(Ok(piece)) = body.next().await {
            let Some(less) = left.checked_sub(piece.len()) else {
                break;
            };
            left = less;
            // It is not in memory any more.
            held.set(0);
        }
    };
    tokio::time::timeout(BODY_TIMEOUT, read)
        .await
        .best_effort("waiting for the end of a body that was refused");
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

/// Whether the header `Content-Type` says JSON.
pub fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
    else {
        return false;
    };
    let mut parts = value.split(';').map(str::trim);
    let json = parts
        .next()
        .is_some_and(|media_type| media_type.eq_ignore_ascii_case("application/json"));
    // JSON has one encoding.
    json && parts.all(|parameter| {
        parameter.is_empty() || parameter.to_ascii_lowercase().replace('"', "") == "charset=utf-8"
    })
}
