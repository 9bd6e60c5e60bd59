//! Grants, with which other organizations see a suite and submit to it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::ids::{GrantId, SuiteId};
use crate::model::text_enum::text_enum;
use crate::model::timestamp::Timestamp;

/// The most grants that a suite has.
pub const GRANTS_MAX: i64 = 1000;

/// Organizations that can accept a link: default and maximum.
pub const USES: (i64, i32) = (1, 100);

/// Days until a link expires: default and maximum.
pub const LINK_DAYS: (i64, i32) = (14, 30);

text_enum! {
    /// A grant's kind.
    pub enum GrantKind {
        /// An organization.
        Org = "org",
        /// All organizations that have verified a domain.
        Domain = "domain",
        /// The organizations that accept a link.
        Link = "link",
    }
}

/// A right to see a suite and to submit to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Grant {
    /// The id of the grant.
    pub id: GrantId,
    /// The id of the suite.
    pub suite_id: SuiteId,
    /// The kind of the grant.
    pub kind: GrantKind,
    /// The organization that has the grant. Null unless the kind is `org`.
    pub org_id: Option<String>,
    /// The name of the organization. Null unless it accepted a link.
    pub org_name: Option<String>,
    /// The verified domain that the organizations need. Null unless the kind is `domain`.
    pub domain: Option<String>,
    /// The number of organizations that can accept the link. Null unless the kind is `link`.
    #[schema(minimum = 1, maximum = 100)]
    pub max_uses: Option<i64>,
    /// The number of organizations that have accepted the link. Null unless the kind is `link`.
    #[schema(minimum = 0, maximum = 100)]
    pub uses: Option<i64>,
    /// The time until which the link can be accepted. Null unless the kind is `link`.
    pub expires_at: Option<Timestamp>,
    /// The user or key that created the grant. Null if the operator did.
    pub created_by: Option<String>,
    /// The time at which the grant was created.
    pub created_at: Timestamp,
}

/// A new grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct GrantCreated {
    /// The grant without its token.
    #[serde(flatten)]
    pub grant: Grant,
    /// The secret of the link: only in the response that creates it. Absent unless the kind is `link`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, min_length = 47, max_length = 47)]
    pub token: Option<String>,
}

/// A suite's grants, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Grants {
    /// The grants, the newest first.
    #[schema(max_items = 1000)]
    pub grants: Vec<Grant>,
}

/// A link that members of other organizations accept.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantLink {
    /// The number of organizations that can accept it. The default is 1.
    #[schema(minimum = 1, maximum = 100)]
    pub max_uses: Option<i64>,
    /// The number of days until it expires. The default is 14.
    #[schema(minimum = 1, maximum = 30)]
    pub expires_in_days: Option<i64>,
}
