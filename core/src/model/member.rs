//! Members of an organization.

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::cursor::Cursor;
use crate::model::ids::{KeyId, UserId};
use crate::model::org::Role;
use crate::model::timestamp::Timestamp;
use crate::model::validation;

/// A person in an organization.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Member {
    /// `usr_…`
    pub user_id: UserId,
    /// Their address.
    #[schema(value_type = validation::Email)]
    pub email: String,
    /// What they may do.
    pub role: Role,
    /// When they joined.
    pub created_at: Timestamp,
    /// API keys that they created and that are not revoked, the oldest first. The keys belong to the organization and keep working when
    /// the member is removed.
    pub live_keys: Vec<KeyId>,
}

/// What is to change of a member.
#[derive(ToSchema)]
pub struct MemberUpdate {
    /// What the member may do from now on.
    pub role: Role,
}

/// A page of members, the longest membership first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Members {
    /// The members.
    #[schema(max_items = 200)]
    pub members: Vec<Member>,
    /// Where the next page begins; null at the end.
    pub next_cursor: Option<Cursor>,
}
