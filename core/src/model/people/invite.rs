//! Invites to an organization.

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::cursor::Cursor;
use crate::model::ids::{InviteId, OrgId, UserId};
use crate::model::scope::Role;
use crate::model::timestamp::Timestamp;
use crate::model::validation;

/// An invite to an organization. It is accepted when the user with this address signs in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Invite {
    /// The id of the invite.
    pub id: InviteId,
    /// The id of the organization.
    pub org_id: OrgId,
    /// The normalized email address of the invited user.
    #[schema(value_type = validation::Email)]
    pub email: String,
    /// The role that the user gets.
    pub role: Role,
    /// The id of the user who created the invite.
    pub invited_by: UserId,
    /// The time at which the invite was created.
    pub created_at: Timestamp,
    /// The time at which the invite expires, 14 days after its creation.
    pub expires_at: Timestamp,
    /// The time at which the invite was accepted. Null unless it was.
    pub accepted_at: Option<Timestamp>,
    /// The id of the user who accepted the invite. Null unless it was accepted.
    pub accepted_by: Option<UserId>,
    /// The time at which the invite was revoked. Null unless it was.
    pub revoked_at: Option<Timestamp>,
}

/// The most open invites that an organization has.
pub const OPEN_MAX: i64 = 200;

/// One page of invites, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Invites {
    /// The invites of the page: open ones, and those that were accepted or revoked or have expired.
    #[schema(max_items = 200)]
    pub invites: Vec<Invite>,
    /// The `cursor` of the next page. Null on the last page.
    pub next_cursor: Option<Cursor>,
}
