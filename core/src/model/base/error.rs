//! The platform's error type and its closed code set.
//!
//! The table in [`Code`] maps a code to its HTTP and gRPC status. The API renders errors, in one
//! place.

use std::borrow::Cow;
use std::error::Error as StdError;

use assay_eval::prediction::{Malformed, Rejected};

pub use assay_eval::FieldError;

use crate::model::error_details::{Details, Resource};
use crate::model::random::RandomError;

/// The result of every fallible platform operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error code from a closed set. Clients may branch on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The request is malformed.
    InvalidRequest,
    /// A field is missing, has the wrong type or is out of range.
    ValidationFailed,
    /// The request body is larger than the operation accepts.
    PayloadTooLarge,
    /// The request has no credential.
    Unauthenticated,
    /// The API key or session token is not valid.
    InvalidToken,
    /// The API key was revoked.
    KeyRevoked,
    /// The credential is valid, but the action is not allowed.
    Forbidden,
    /// The operation requires a session token; an API key is not enough.
    SessionRequired,
    /// The credential resolves to no organization.
    OrgRequired,
    /// The caller's organization has no such resource.
    NotFound,
    /// The resource exists already, or the request names a stale version.
    Conflict,
    /// The resource's state does not allow the action.
    InvalidState,
    /// A limit of the plan or of the suite is reached.
    QuotaExceeded,
    /// The rate limit is reached.
    RateLimited,
    /// The server failed, not the client.
    Internal,
    /// The service is temporarily unavailable. Clients retry with backoff.
    Unavailable,
}

impl Code {
    /// Every code, in the documented table's order.
    pub const ALL: [Self; 16] = [
        Self::InvalidRequest,
        Self::ValidationFailed,
        Self::PayloadTooLarge,
        Self::Unauthenticated,
        Self::InvalidToken,
        Self::KeyRevoked,
        Self::Forbidden,
        Self::SessionRequired,
        Self::OrgRequired,
        Self::NotFound,
        Self::Conflict,
        Self::InvalidState,
        Self::QuotaExceeded,
        Self::RateLimited,
        Self::Internal,
        Self::Unavailable,
    ];

    /// Returns the name, the HTTP status and the canonical gRPC status.
    const fn row(self) -> (&'static str, u16, i32) {
        match self {
            Self::InvalidRequest => ("invalid_request", 400, 3),
            Self::ValidationFailed => ("validation_failed", 422, 3),
            Self::PayloadTooLarge => ("payload_too_large", 413, 8),
            Self::Unauthenticated => ("unauthenticated", 401, 16),
            Self::InvalidToken => ("invalid_token", 401, 16),
            Self::KeyRevoked => ("key_revoked", 401, 16),
            Self::Forbidden => ("forbidden", 403, 7),
            Self::SessionRequired => ("session_required", 403, 7),
            Self::OrgRequired => ("org_required", 403, 7),
            Self::NotFound => ("not_found", 404, 5),
            Self::Conflict => ("conflict", 409, 6),
            Self::InvalidState => ("invalid_state", 409, 9),
            Self::QuotaExceeded => ("quota_exceeded", 429, 8),
            Self::RateLimited => ("rate_limited", 429, 8),
            Self::Internal => ("internal", 500, 13),
            Self::Unavailable => ("unavailable", 503, 14),
        }
    }

    /// Returns the code's name, as in the JSON field `code`.
    pub const fn as_str(self) -> &'static str {
        self.row().0
    }

    /// Returns the code's HTTP status.
    pub const fn http_status(self) -> u16 {
        self.row().1
    }

    /// Returns the code's canonical gRPC status, as a number.
    pub const fn grpc_status(self) -> i32 {
        self.row().2
    }
}

/// An error with a public part, which is sent to the caller, and a private cause, which is only
/// logged.
///
/// [`Display`](std::fmt::Display) writes the public part. [`Error::log_text`] adds the cause.
#[derive(Debug)]
pub struct Error {
    /// The code, from a closed set.
    pub code: Code,
    /// A message for people that says how to correct the request. It never contains SQL, library
    /// messages or secrets.
    pub message: Cow<'static, str>,
    /// Details that a client can act on.
    pub details: Option<Details>,
    /// The seconds after which a retry can succeed.
    pub retry_after: Option<u32>,
    /// The resource kind that the error is about. Set for `not_found` and `invalid_state`.
    pub resource: Option<Resource>,
    /// The private cause, for logs and for the operator.
    pub cause: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Creates an error that has a code and a message only.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            details: None,
            retry_after: None,
            resource: None,
            cause: None,
        }
    }

    /// Creates an error for a server failure. The caller does not see the cause.
    pub fn internal(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let message = "Something went wrong on our side. Retry with the same idempotency key and \
                       quote the request id.";
        Self::new(Code::Internal, message).with_cause(cause)
    }

    /// Creates an error for a dependency that is temporarily unavailable.
    pub fn unavailable(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let message = "The service is temporarily unavailable. Retry with backoff.";
        Self::new(Code::Unavailable, message)
            .with_retry_after(1)
            .with_cause(cause)
    }

    /// Creates an error for a server that is overloaded, by this caller or in total.
    ///
    /// It has no cause, so it is not logged: a caller that sends too many requests would fill the
    /// logs. Prometheus metrics count these responses.
    pub fn overloaded(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Unavailable, message).with_retry_after(1)
    }

    /// Creates an error for a resource that the caller's organization does not have.
    pub fn not_found(resource: Resource) -> Self {
        Self::not_found_with(resource, format!("No such {}.", resource.as_str()))
    }

    /// Creates the same error as [`Error::not_found`] with another message.
    pub fn not_found_with(resource: Resource, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::NotFound, message).with_resource(resource)
    }

    /// Creates an error for a resource whose state does not allow the action.
    pub fn invalid_state(resource: Resource, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::InvalidState, message).with_resource(resource)
    }

    /// Creates an error for field errors; there must be at least one.
    pub fn fields(fields: Vec<FieldError>) -> Self {
        let message = match fields.as_slice() {
            [only] => format!("{}: {}", only.field, only.message),
            [first, rest @ ..] => format!(
                "{}: {} (and {} more)",
                first.field,
                first.message,
                rest.len()
            ),
            [] => String::from("The request is not valid."),
        };
        Self::new(Code::ValidationFailed, message).with_details(Details::Fields { fields })
    }

    /// Creates an error for one field error.
    pub fn field(
        field: impl Into<String>,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        FieldError::new(field, reason, message).into()
    }

    /// Adds details that a client can act on.
    #[must_use]
    pub fn with_details(mut self, details: Details) -> Self {
        self.details = Some(details);
        self
    }

    /// Adds the seconds after which a retry can succeed.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Adds the resource kind that the error is about.
    #[must_use]
    pub fn with_resource(mut self, resource: Resource) -> Self {
        self.resource = Some(resource);
        self
    }

    /// Adds the private cause.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Returns the error for one among several requests that share a statement. It has no details.
    #[must_use]
    pub fn shared(&self) -> Self {
        let mut copy = Self::new(self.code, self.message.clone()).with_cause(self.log_text());
        copy.retry_after = self.retry_after;
        copy
    }

    /// Returns the code, the message and the private cause, for logs.
    pub fn log_text(&self) -> String {
        match &self.cause {
            Some(cause) => format!("{self} ({cause})"),
            None => self.to_string(),
        }
    }

    /// Returns the private cause, or the message if there is none. It is for the operator, who may
    /// see the cause.
    pub fn cause_or_message(&self) -> String {
        self.cause
            .as_ref()
            .map_or_else(|| self.message.to_string(), ToString::to_string)
    }
}

impl From<FieldError> for Error {
    fn from(field_error: FieldError) -> Self {
        Self::fields(vec![field_error])
    }
}

impl From<RandomError> for Error {
    fn from(error: RandomError) -> Self {
        Self::internal(error)
    }
}

impl From<Malformed> for Error {
    fn from(Malformed(message): Malformed) -> Self {
        Self::new(Code::InvalidRequest, message)
    }
}

impl From<Rejected> for Error {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::Malformed(malformed) => malformed.into(),
            Rejected::Fields(fields) => Self::fields(fields),
        }
    }
}

impl From<assay_eval::Corrupt> for Error {
    fn from(corrupt: assay_eval::Corrupt) -> Self {
        Self::internal(corrupt)
    }
}

/// The field errors of a request, which are reported together.
#[derive(Debug, Default)]
pub struct Errors(Vec<FieldError>);

impl Errors {
    /// Adds a field error.
    pub fn push(&mut self, error: FieldError) {
        self.0.push(error);
    }

    /// Returns the value, or adds the field error and returns the default.
    pub fn take<T: Default>(&mut self, value: Result<T, FieldError>) -> T {
        value.unwrap_or_else(|error| {
            self.push(error);
            T::default()
        })
    }

    /// Returns the value, or adds its field errors and returns the default.
    ///
    /// # Errors
    /// An error that has no field errors.
    pub fn take_all<T: Default>(&mut self, value: Result<T>) -> Result<T> {
        match value {
            Err(Error {
                details: Some(Details::Fields { fields }),
                ..
            }) => {
                self.extend(fields);
                Ok(T::default())
            }
            other => other,
        }
    }

    /// Ends the validation.
    ///
    /// # Errors
    /// All field errors, if there is one.
    pub fn finish(self) -> Result<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(self.into())
        }
    }
}

impl From<Errors> for Error {
    fn from(Errors(fields): Errors) -> Self {
        Self::fields(fields)
    }
}

impl Extend<FieldError> for Errors {
    fn extend<I: IntoIterator<Item = FieldError>>(&mut self, errors: I) {
        self.0.extend(errors);
    }
}

/// Writes the public part only, so that an error can be formatted anywhere.
impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause
            .as_deref()
            .map(|cause| cause as &(dyn StdError + 'static))
    }
}

/// Operations whose failure is logged and otherwise ignored.
pub trait BestEffort {
    /// Logs the error with its cause, if there is one, and continues.
    ///
    /// `operation` names the operation as a short noun phrase, such as "sending the last emails".
    fn best_effort(self, operation: &'static str);
}

impl<T, E: Into<Box<dyn StdError + Send + Sync>>> BestEffort for std::result::Result<T, E> {
    fn best_effort(self, operation: &'static str) {
        let Err(error) = self else { return };
        let error: Box<dyn StdError + Send + Sync> = error.into();
        let error = error
            .downcast_ref()
            .map_or_else(|| error.to_string(), Error::log_text);
        tracing::warn!(operation, error, "best-effort operation failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_distinct_names_and_error_statuses() {
        let names: std::collections::HashSet<_> =
            Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(names.len(), 16);
        assert!(
            Code::ALL
                .iter()
                .all(|code| (400..=503).contains(&code.http_status())
                    && (1..=16).contains(&code.grpc_status()))
        );
    }

    #[test]
    fn message_counts_further_field_errors() {
        let error = Error::fields(vec![
            FieldError::required("name"),
            FieldError::new("nmae", "unknown_field", "no such field"),
        ]);
        assert_eq!(error.message, "name: this field is required (and 1 more)");
    }

    #[test]
    fn display_does_not_contain_the_cause() {
        let error = Error::unavailable("connection to 10.0.0.5 refused");
        let public = "unavailable: The service is temporarily unavailable. Retry with backoff.";
        assert_eq!(error.to_string(), public);
        assert_eq!(
            error.log_text(),
            format!("{public} (connection to 10.0.0.5 refused)")
        );
        assert_eq!(error.cause_or_message(), "connection to 10.0.0.5 refused");
    }
}
