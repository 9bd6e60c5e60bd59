//! The ways in which a call to an engine fails, and their errors.

use std::error::Error as _;

use assay_core::model::error::Error;
use assay_inference::ids;
use assay_inference::tensors::InvalidMessage;
use tonic::{Code, ConnectError, Status, TimeoutExpired};

/// Maximum length of an engine's text in a cause, in characters.
const TEXT_MAX: usize = 500;

/// A call's effect on its engine's circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The engine works.
    Success,
    /// The engine failed.
    Failure,
    /// The call says nothing about the engine.
    None,
}

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// No permit was free.
    Saturated,
    /// The circuit breaker is open.
    CircuitOpen,
    /// The engine did not respond within the deadline.
    Timeout(String),
    /// The engine could not be reached, or reported that it is unavailable.
    Unavailable(String),
    /// The engine has too many calls, and said when to send the call again: it works.
    Shed(String),
    /// The engine lacks a resource.
    Exhausted(String),
    /// The engine rejected the call because of its content.
    Rejected(String),
    /// The engine responded with another status.
    Status(String),
    /// The engine returned a result that is not one.
    Invalid(String),
}

impl Failure {
    /// Returns the failure for a call that ended with this status.
    pub fn from_status(status: &Status) -> Self {
        let text = || {
            let mut text = format!("{:?}: {}", status.code(), status.message());
            if let Some(source) = status.source() {
                text = format!("{text} ({source})");
            }
            shortened(text)
        };
        match status.code() {
            _ if has_source::<TimeoutExpired>(status) => Self::Timeout(text()),
            // A status with a source is not the engine's: the connection failed.
            _ if status.source().is_some() => Self::Unavailable(text()),
            Code::Unavailable => Self::Unavailable(text()),
            Code::ResourceExhausted if sheds_load(status) => Self::Shed(text()),
            Code::ResourceExhausted => Self::Exhausted(text()),
            // Engines that end a call at its deadline report one or the other. This client does not cancel
            // calls whose status it reads.
            Code::DeadlineExceeded | Code::Cancelled => Self::Timeout(text()),
            Code::InvalidArgument
            | Code::OutOfRange
            | Code::FailedPrecondition
            | Code::NotFound
            | Code::AlreadyExists => Self::Rejected(text()),
            _ => Self::Status(text()),
        }
    }

    /// Returns the effect on the engine's circuit breaker. `is_late` if the call had little of
    /// its time left when it was sent.
    pub fn effect(&self, is_late: bool) -> Effect {
        match self {
            // The circuit would waste the capacity that an engine with too many calls has.
            Self::Shed(_) | Self::Saturated | Self::CircuitOpen => Effect::None,
            Self::Timeout(_) if is_late => Effect::None,
            // The engine's other models are not affected.
            Self::Rejected(_) => Effect::Success,
            Self::Timeout(_)
            | Self::Unavailable(_)
            | Self::Exhausted(_)
            | Self::Status(_)
            | Self::Invalid(_) => Effect::Failure,
        }
    }

    /// Returns the `outcome` label's value.
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::Saturated => "saturated",
            Self::CircuitOpen => "circuit_open",
            Self::Timeout(_) => "timeout",
            Self::Unavailable(_) => "unavailable",
            Self::Shed(_) | Self::Exhausted(_) => "exhausted",
            Self::Rejected(_) => "rejected",
            Self::Status(_) => "error",
            Self::Invalid(_) => "invalid",
        }
    }

    /// Returns the request's error. Only its cause has the engine's text.
    pub fn into_error(self, engine: &str) -> Error {
        match self {
            // They have no cause, because they can be as frequent as requests.
            Self::Saturated => Error::overloaded(
                "The model has too many requests in progress. Retry with backoff.",
            ),
            Self::CircuitOpen => {
                Error::overloaded("The model is temporarily unavailable. Retry with backoff.")
            }
            Self::Timeout(text)
            | Self::Unavailable(text)
            | Self::Shed(text)
            | Self::Exhausted(text) => Error::unavailable(format!("engine {engine}: {text}")),
            Self::Rejected(text) | Self::Status(text) => {
                Error::internal(format!("engine {engine}: {text}"))
            }
            Self::Invalid(text) => {
                Error::internal(format!("engine {engine}: invalid result: {text}"))
            }
        }
    }
}

impl From<InvalidMessage> for Failure {
    fn from(invalid: InvalidMessage) -> Self {
        Self::Invalid(invalid.to_string())
    }
}

/// Returns `true` if the call was never sent, because no connection could be opened.
pub fn is_unsent(status: &Status) -> bool {
    has_source::<ConnectError>(status)
}

/// Returns `true` if the status says when to send the call again.
fn sheds_load(status: &Status) -> bool {
    let value = status.metadata().get(ids::RETRY_PUSHBACK_HEADER);
    value
        .and_then(|value| value.to_str().ok())
        .is_some_and(|milliseconds| milliseconds.parse::<u32>().is_ok())
}

fn has_source<E: std::error::Error + 'static>(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<E>() {
            return true;
        }
        source = error.source();
    }
    false
}

fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(TEXT_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_core::model::error::Code as ErrorCode;

    #[test]
    fn status_decides_between_503_and_500() {
        for (code, expected) in [
            (Code::Unavailable, ErrorCode::Unavailable),
            (Code::ResourceExhausted, ErrorCode::Unavailable),
            (Code::DeadlineExceeded, ErrorCode::Unavailable),
            (Code::Cancelled, ErrorCode::Unavailable),
            (Code::Internal, ErrorCode::Internal),
            (Code::InvalidArgument, ErrorCode::Internal),
            (Code::NotFound, ErrorCode::Internal),
            (Code::Unknown, ErrorCode::Internal),
        ] {
            let error =
                Failure::from_status(&Status::new(code, "engine text")).into_error("default");
            assert_eq!(error.code, expected, "{code:?}");
            assert!(!error.to_string().contains("engine text"));
            assert!(error.cause_or_message().contains("engine text"));
            let retry_after = (expected == ErrorCode::Unavailable).then_some(1);
            assert_eq!(error.retry_after, retry_after);
        }
    }

    /// Returns all statuses, and each one's effect on the circuit breaker.
    fn effects() -> [(Code, Effect); 17] {
        [
            (Code::Ok, Effect::Failure),
            (Code::Cancelled, Effect::Failure),
            (Code::Unknown, Effect::Failure),
            (Code::InvalidArgument, Effect::Success),
            (Code::DeadlineExceeded, Effect::Failure),
            (Code::NotFound, Effect::Success),
            (Code::AlreadyExists, Effect::Success),
            (Code::PermissionDenied, Effect::Failure),
            (Code::ResourceExhausted, Effect::Failure),
            (Code::FailedPrecondition, Effect::Success),
            (Code::Aborted, Effect::Failure),
            (Code::OutOfRange, Effect::Success),
            (Code::Unimplemented, Effect::Failure),
            (Code::Internal, Effect::Failure),
            (Code::Unavailable, Effect::Failure),
            (Code::DataLoss, Effect::Failure),
            (Code::Unauthenticated, Effect::Failure),
        ]
    }

    #[test]
    fn every_status_has_its_effect() {
        for (number, (code, effect)) in effects().into_iter().enumerate() {
            assert_eq!(code as usize, number);
            let failure = Failure::from_status(&Status::new(code, "text"));
            assert_eq!(failure.effect(false), effect, "{code:?}");
        }
    }

    #[test]
    fn late_timeout_and_shed_call_have_no_effect() {
        let late = Failure::from_status(&Status::deadline_exceeded("text"));
        assert_eq!(late.effect(true), Effect::None);
        for (value, effect) in [
            ("250", Effect::None),
            ("0", Effect::None),
            ("-1", Effect::Failure),
            ("soon", Effect::Failure),
        ] {
            let mut status = Status::resource_exhausted("text");
            let value = value.parse().unwrap();
            status
                .metadata_mut()
                .insert(ids::RETRY_PUSHBACK_HEADER, value);
            assert_eq!(Failure::from_status(&status).effect(false), effect);
        }
    }

    #[test]
    fn refused_call_has_retry_after_and_no_cause() {
        for failure in [Failure::Saturated, Failure::CircuitOpen] {
            let error = failure.into_error("default");
            assert_eq!(
                (error.code, error.retry_after),
                (ErrorCode::Unavailable, Some(1))
            );
            assert!(error.cause.is_none());
        }
    }

    #[test]
    fn failed_connection_is_unsent() {
        let refused = ConnectError("refused".into());
        let status = Status::from_error(Box::new(refused));
        assert!(is_unsent(&status));
        assert!(!is_unsent(&Status::unavailable("draining")));
        let broken = std::io::Error::other("broken pipe");
        let status = Status::from_error(Box::new(broken));
        assert!(!is_unsent(&status));
        assert!(matches!(
            Failure::from_status(&status),
            Failure::Unavailable(_)
        ));
    }

    #[test]
    fn long_text_is_shortened() {
        let status = Status::internal("é".repeat(10_000));
        let Failure::Status(text) = Failure::from_status(&status) else {
            panic!("{status}");
        };
        assert_eq!(text.chars().count(), TEXT_MAX + 1);
    }
}
