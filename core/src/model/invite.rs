//! Invites to an organization.

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::cursor::Cursor;
use crate::model::ids::{InviteId, OrgId, UserId};
use crate::model::org::Role;
use crate::model::timestamp::Timestamp;
use crate::model::validation;

/// An invite. It is consumed when the person with this address signs in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Invite {
    /// `inv_…`
    pub id: InviteId,
    /// The organization.
    pub org_id: OrgId,
    /// Who is invited.
    #[schema(value_type = validation::Email)]
    pub email: String,
    /// What they will be.
    pub role: Role,
    /// Who invited them.
    pub invited_by: UserId,
    /// When.
    pub created_at: Timestamp,
    /// Until when it can be consumed.
    pub expires_at: Timestamp,
    /// When it was consumed.
    pub accepted_at: Option<Timestamp>,
    /// By whom.
    pub accepted_by: Option<UserId>,
    /// When it was taken back.
    pub revoked_at: Option<Timestamp>,
}

/// Whom to invite.
#[derive(ToSchema)]
pub struct InviteCreate {
    /// Their address.
    #[schema(value_type = validation::Email)]
    pub email: String,
    /// What they will be; `member` if it is not given.
    pub role: Option<Role>,
}

/// How many open invites an organization may have.
pub const OPEN_MAX: i64 = 200;

/// A page of invites, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Invites {
    /// Open ones, and those that were consumed or revoked or have expired.
    #[schema(max_items = 200)]
    pub invites: Vec<Invite>,
    /// Where the next page begins; null at the end.
    pub next_cursor: Option<Cursor>,
}
