//! The terms of an installation, and who accepted them.

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::ids::UserId;
use crate::model::timestamp::Timestamp;

/// The terms that hold now, as the operator configured them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentTerms {
    /// Their version.
    pub version: String,
    /// Where they can be read.
    pub url: String,
}

/// Which terms are accepted.
#[derive(ToSchema)]
pub struct TermsAccept {
    /// The version that was read.
    #[schema(min_length = 1)]
    pub version: String,
}

/// The terms as an organization sees them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Terms {
    /// Their version.
    pub version: String,
    /// Where they can be read.
    #[schema(format = "uri")]
    pub url: String,
    /// When the organization accepted this version.
    pub accepted_at: Option<Timestamp>,
    /// Who accepted it for the organization.
    pub accepted_by: Option<UserId>,
}
