//! The terms of an installation, and who accepted them.

use serde::Serialize;

use crate::{Timestamp, UserId};

/// The terms that hold now, as the operator configured them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentTerms {
    /// Their version.
    pub version: String,
    /// Where they can be read.
    pub url: String,
}

/// The terms as an organization sees them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Terms {
    /// Their version.
    pub version: String,
    /// Where they can be read.
    pub url: String,
    /// When the organization accepted this version.
    pub accepted_at: Option<Timestamp>,
    /// Who accepted it for the organization.
    pub accepted_by: Option<UserId>,
}
