//! The suite that a bundle becomes.

use time::OffsetDateTime;

use crate::arguments::NewSuite;
use crate::commands::suite_definition::NewDefinition;

/// The parts of a bundle that became a suite.
pub struct Imported {
    pub definition: NewDefinition,
    /// The bytes of the table that the definition names.
    pub table: Vec<u8>,
    /// The parts that were read, for people.
    pub read: Vec<String>,
    /// The parts that were not read, with the reason.
    pub not_read: Vec<String>,
}

/// The user's choices.
pub struct Choice {
    /// The column with the answers, if it is named.
    pub answer: Option<String>,
    pub new: NewSuite,
    /// The name of the bundle.
    pub bundle_name: String,
}

/// Returns the current time.
#[expect(clippy::disallowed_methods, reason = "a client has no database")]
pub fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}
