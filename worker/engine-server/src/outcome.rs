//! Call outcomes: the status that the caller gets, and the Prometheus metric.

use assay_core::runtime::prometheus;
use assay_engine::Refusal;
use assay_inference::ids;
use assay_inference::tensors::InvalidMessage;
use tonic::Status;
use tonic::metadata::MetadataValue;

use crate::package::LoadError;
use crate::pool::NotAdmitted;

/// The reason why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The call is malformed.
    Invalid(InvalidMessage),
    /// The call names no package, or another version than the package's.
    UnknownPackage,
    /// The package could not be loaded.
    NotLoaded(LoadError),
    /// The call was not admitted.
    NotAdmitted(NotAdmitted),
    /// The deadline is exceeded.
    Late,
    /// A sequence could not be computed.
    Failed(Refusal),
    /// A sequence has no result.
    MissingResult,
}

impl From<InvalidMessage> for Failure {
    fn from(error: InvalidMessage) -> Self {
        Self::Invalid(error)
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        Self::NotLoaded(error)
    }
}

impl From<NotAdmitted> for Failure {
    fn from(error: NotAdmitted) -> Self {
        Self::NotAdmitted(error)
    }
}

impl Failure {
    /// Returns the status that the caller gets. Its text contains no item from the call.
    pub fn status(&self) -> Status {
        match self {
            Self::Invalid(error) => Status::invalid_argument(error.to_string()),
            Self::UnknownPackage => Status::not_found(
                "The name must be that of a package, and the version must be its version.",
            ),
            Self::NotLoaded(error) => {
                let text = error.to_string();
                match error {
                    LoadError::NotFound => Status::not_found(text),
                    LoadError::Invalid { .. } | LoadError::TooLarge { .. } => {
                        Status::failed_precondition(text)
                    }
                    LoadError::NoMemory => shed(&text),
                    LoadError::Unavailable(_) => Status::unavailable(text),
                    LoadError::Internal => Status::internal(text),
                }
            }
            Self::NotAdmitted(NotAdmitted::TooLarge) => {
                Status::invalid_argument("The call is too large. Send fewer sequences.")
            }
            Self::NotAdmitted(NotAdmitted::Saturated) => {
                shed("The engine is saturated. Retry with backoff.")
            }
            Self::Late => Status::deadline_exceeded("The deadline is exceeded."),
            // They are package properties: the engine computes other packages.
            Self::Failed(refusal @ (Refusal::NoItemTable | Refusal::NotFinite)) => {
                Status::failed_precondition(refusal.to_string())
            }
            Self::Failed(refusal) => Status::internal(refusal.to_string()),
            Self::MissingResult => Status::internal("A sequence could not be computed."),
        }
    }

    /// Returns the `outcome` label's value.
    fn outcome(&self) -> &'static str {
        match self {
            Self::Invalid(_) | Self::NotAdmitted(NotAdmitted::TooLarge) => "invalid",
            Self::UnknownPackage | Self::NotLoaded(LoadError::NotFound) => "not_found",
            Self::NotLoaded(LoadError::Invalid { .. } | LoadError::TooLarge { .. })
            | Self::Failed(Refusal::NoItemTable) => "invalid_package",
            Self::NotAdmitted(NotAdmitted::Saturated) | Self::NotLoaded(LoadError::NoMemory) => {
                "saturated"
            }
            Self::NotLoaded(LoadError::Unavailable(_)) => "unavailable",
            Self::Late => "deadline",
            Self::Failed(_) | Self::MissingResult | Self::NotLoaded(LoadError::Internal) => {
                "internal"
            }
        }
    }
}

/// Returns the status for a call that the engine could compute later. The trailer shows clients
/// that the engine works.
fn shed(text: &str) -> Status {
    let mut status = Status::resource_exhausted(text);
    status.metadata_mut().insert(
        ids::RETRY_PUSHBACK_HEADER,
        MetadataValue::from_static(ids::RETRY_PUSHBACK),
    );
    status
}

/// Counts a call when it is dropped: also if its caller is gone.
pub struct Counted {
    outcome: &'static str,
}

impl Counted {
    /// Starts counting. A call that is dropped before it has a result was cancelled.
    pub fn new() -> Self {
        Self {
            outcome: "cancelled",
        }
    }

    /// Sets the outcome.
    pub fn set<T>(&mut self, result: &Result<T, Failure>) {
        self.outcome = match result {
            Ok(_) => "ok",
            Err(failure) => failure.outcome(),
        };
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        metrics::counter!(prometheus::ENGINE_CALLS, "outcome" => self.outcome).increment(1);
    }
}
