//! The error of an operator's command.

use assay_core::Error;
use assay_core::model::random::RandomError;
use assay_core::runtime::process_error::ProcessError;
use assay_core::runtime::settings::BadSettings;
use assay_eval::FieldError;

/// The reason why a command failed. Its text is for the operator at a terminal.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The command was refused. The text says why, and what to do.
    #[error("{0}")]
    Refused(String),
    /// Settings are missing or invalid.
    #[error(transparent)]
    Settings(#[from] BadSettings),
    /// A process or its store could not be started.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The database or another dependency failed.
    #[error("{}", .0.cause_or_message())]
    Failed(Box<Error>),
}

impl From<FieldError> for CommandError {
    fn from(FieldError { field, message, .. }: FieldError) -> Self {
        Self::Refused(format!("{field}: {message}"))
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        Self::Failed(Box::new(error))
    }
}

impl From<RandomError> for CommandError {
    fn from(error: RandomError) -> Self {
        Error::from(error).into()
    }
}

impl From<sqlx::Error> for CommandError {
    fn from(error: sqlx::Error) -> Self {
        Error::from(error).into()
    }
}

/// The result of a command.
pub type Result<T> = std::result::Result<T, CommandError>;

/// Returns the error of a command that was refused.
pub fn refused(message: impl Into<String>) -> CommandError {
    CommandError::Refused(message.into())
}
