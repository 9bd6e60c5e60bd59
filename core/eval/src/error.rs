//! This crate's two errors: a field error in a submission, and stored data that cannot be
//! read.

use serde::Serialize;

/// One thing that is wrong with one request field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// The field's path, such as `predictions[3].item_id`.
    pub field: String,
    /// The error kind, from a small stable set: `required`, `type`, `range`, `format`,
    /// `unknown_field`, …
    pub reason: &'static str,
    /// An explanation for people: what is wrong and what is expected.
    pub message: String,
}

impl FieldError {
    /// Creates a field's error.
    pub fn new(field: impl Into<String>, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            reason,
            message: message.into(),
        }
    }

    /// Creates the error for a required field that is missing.
    pub fn required(field: impl Into<String>) -> Self {
        Self::new(field, "required", "this field is required")
    }
}

/// Returns a text in quotes for a message. Of a long one, it has the first 100 characters.
pub(crate) fn quoted(text: &str) -> String {
    const SHOWN_MAX: usize = 100;
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// Stored data that was checked when it was written and cannot be read now. The message is for the
/// operator's log only.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Corrupt(pub String);

impl Corrupt {
    /// Creates the error with a message for the log.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}
