//! The two errors of this crate: what is wrong with a field of a submission, and stored data that cannot be read.

use serde::Serialize;

/// One thing that is wrong with one field of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// Where: a path such as `predictions[3].item_id`.
    pub field: String,
    /// What kind of fault, from a small stable vocabulary: `required`, `type`, `range`, `format`, `unknown_field`, …
    pub reason: &'static str,
    /// What to do, for humans.
    pub message: String,
}

impl FieldError {
    /// A fault of a field.
    pub fn new(field: impl Into<String>, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            reason,
            message: message.into(),
        }
    }

    /// The fault of a required field that is not there.
    pub fn required(field: impl Into<String>) -> Self {
        Self::new(field, "required", "this field is required")
    }
}

/// Stored data that this crate wrote or checked earlier and cannot read now. The message is for the operator's log only.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Corrupt(pub String);

impl Corrupt {
    /// An error with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}
