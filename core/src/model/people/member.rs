//! An organization's members.

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::cursor::Cursor;
use crate::model::ids::{KeyId, UserId};
use crate::model::scope::Role;
use crate::model::timestamp::Timestamp;
use crate::model::validation;

/// A user in an organization.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Member {
    /// The id of the user.
    pub user_id: UserId,
    /// The normalized email address of the user.
    #[schema(value_type = validation::Email)]
    pub email: String,
    /// The role of the user.
    pub role: Role,
    /// The time at which the user joined.
    pub created_at: Timestamp,
    /// The ids of the API keys that the user created and that are live, the oldest first.
    /// The keys belong to the organization and keep working after the member is removed.
    pub live_keys: Vec<KeyId>,
}

/// One page of members, the longest membership first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Members {
    /// The members of the page, the longest membership first.
    #[schema(max_items = 200)]
    pub members: Vec<Member>,
    /// The `cursor` of the next page. Null on the last page.
    pub next_cursor: Option<Cursor>,
}
