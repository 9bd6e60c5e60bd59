//! Responses to paths and methods that do not exist.

use assay_core::{Code, Error};
use http::StatusCode;

use super::error_response::Failure;

/// A path that does not take the method.
pub async fn method_not_allowed() -> Failure {
    let error = Error::new(
        Code::InvalidRequest,
        "This path does not take this method; the header Allow says which it takes.",
    );
    Failure {
        status: Some(StatusCode::METHOD_NOT_ALLOWED),
        ..error.into()
    }
}

/// What answers when nothing else does.
pub async fn not_found() -> Failure {
    nothing().into()
}

/// What a path that leads nowhere is answered with.
pub fn nothing() -> Error {
    Error::new(Code::NotFound, "There is nothing at this path.")
}
