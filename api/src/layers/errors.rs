//! Error responses: renders handlers' and layers' failures, and translates the statuses that
//! tonic itself returns.

use std::sync::Arc;

use assay_core::{Code, Error};
use axum::response::{IntoResponse as _, Response};
use http::HeaderMap;
use tonic::Status;
use tonic_types::StatusExt as _;

use crate::http::error_response::{self, Failure, PendingFailure};
use crate::http::protocol::Protocol;
use crate::http::request_context::RequestContext;
use crate::limits::request_memory;

/// Returns the response to a request whose handler panicked.
pub(super) fn handler_panicked() -> Response {
    Failure::from(Error::internal("a handler panicked")).into_response()
}

/// Renders a response that carries a failure, and logs its cause. Returns the response with the
/// error's code, or `ok`.
pub(super) fn render(
    mut response: Response,
    protocol: Protocol,
    context: &RequestContext,
) -> (Response, String) {
    let pending = response
        .extensions_mut()
        .remove::<PendingFailure>()
        .map(|PendingFailure(failure)| failure);
    match pending.or_else(|| translate(response.headers()).map(Arc::new)) {
        Some(failure) => {
            error_response::log_cause(&failure.error, context);
            let (mut head, _) = response.into_parts();
            let mut rendered = error_response::render(
                &failure,
                std::mem::take(&mut head.headers),
                protocol,
                context,
            );
            // The extensions hold, among others, the memory that is charged until the response has
            // been read.
            rendered.extensions_mut().extend(head.extensions);
            (rendered, failure.error.code.as_str().to_owned())
        }
        None => {
            // gRPC handlers have rendered their error already; its reason is the code.
            let reason = response
                .extensions()
                .get::<Status>()
                .and_then(Status::get_details_error_info);
            let code = reason.map_or_else(|| String::from("ok"), |info| info.reason.to_lowercase());
            (response, code)
        }
    }
}

/// Returns the gRPC status in a response's headers without messages.
pub(super) fn grpc_status(headers: &HeaderMap) -> Option<tonic::Code> {
    let status = headers
        .get(Status::GRPC_STATUS)?
        .to_str()
        .ok()?
        .parse()
        .ok()?;
    Some(tonic::Code::from_i32(status))
}

/// Returns that status's message, or an empty string.
fn grpc_message(headers: &HeaderMap) -> &str {
    headers
        .get(Status::GRPC_MESSAGE)
        .and_then(|message| message.to_str().ok())
        .unwrap_or_default()
}

/// Translates a status that tonic returned by itself into this API's failure.
///
/// tonic's messages say little, and it reports a message that cannot be decoded as a server
/// error. A status without details is tonic's: this API's have details.
fn translate(headers: &HeaderMap) -> Option<Failure> {
    let status =
        grpc_status(headers).filter(|_| !headers.contains_key(Status::GRPC_STATUS_DETAILS))?;
    match status {
        // The gRPC specification requires this status for this error, although it is the client's.
        tonic::Code::Internal if grpc_message(headers).contains("compressed-flag") => {
            let error = Error::new(
                Code::InvalidRequest,
                "The message is marked as compressed; send grpc-encoding: identity, uncompressed.",
            );
            Some(Failure {
                grpc_status: Some(tonic::Code::Internal),
                ..error.into()
            })
        }
        tonic::Code::Internal => {
            Some(Error::new(Code::InvalidRequest, "The message cannot be decoded.").into())
        }
        tonic::Code::OutOfRange => Some(
            Error::new(
                Code::PayloadTooLarge,
                "The message is larger than this operation accepts.",
            )
            .into(),
        ),
        tonic::Code::Unavailable => Some(request_memory::no_room().into()),
        tonic::Code::Unimplemented => {
            let error = Error::new(
                Code::NotFound,
                "There is no such service, method or compression.",
            );
            Some(Failure {
                grpc_status: Some(tonic::Code::Unimplemented),
                ..error.into()
            })
        }
        _ => None,
    }
}
