//! Members of an organization.

use serde::Serialize;

use crate::org::Role;
use crate::{Timestamp, UserId};

/// A person in an organization.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Member {
    /// `usr_…`
    pub user_id: UserId,
    /// Their address.
    pub email: String,
    /// What they may do.
    pub role: Role,
    /// When they joined.
    pub created_at: Timestamp,
}

/// Answer of the listing of members, the longest membership first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Members {
    /// All of them.
    pub members: Vec<Member>,
}
