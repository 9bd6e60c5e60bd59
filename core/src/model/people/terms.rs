//! An installation's terms, and their acceptance.

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::ids::UserId;
use crate::model::timestamp::Timestamp;

/// The current terms, as the operator has configured them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentTerms {
    /// The version of the terms.
    pub version: String,
    /// The URL of the terms.
    pub url: String,
}

/// The current terms as an organization sees them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Terms {
    /// The version of the terms.
    pub version: String,
    /// The URL of the terms.
    #[schema(format = "uri")]
    pub url: String,
    /// The time at which the organization accepted this version. Null until it has.
    pub accepted_at: Option<Timestamp>,
    /// The id of the user who accepted this version for the organization. Null until somebody has.
    pub accepted_by: Option<UserId>,
}
