//! Responses to paths and methods that do not exist.

use assay_core::{Code, Error};
use http::StatusCode;

use super::error_response::Failure;

/// Responds with 405 to a method that the path does not support.
pub async fn method_not_allowed() -> Failure {
    let error = Error::new(
        Code::InvalidRequest,
        "This path does not support this method. The header `Allow` lists the methods that it supports.",
    );
    Failure {
        status: Some(StatusCode::METHOD_NOT_ALLOWED),
        ..error.into()
    }
}

/// Responds with 404 to a path without a route.
pub async fn not_found() -> Failure {
    not_found_error().into()
}

/// Returns the error for a path without a route.
pub fn not_found_error() -> Error {
    Error::new(Code::NotFound, "There is nothing at this path.")
}
