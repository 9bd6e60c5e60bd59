//! Messages of `InviteService`.

use assay_core::model::invite::{Invite, Invites};

use super::timestamp;
use crate::v1;

impl From<Invite> for v1::Invite {
    fn from(invite: Invite) -> Self {
        let Invite {
            id,
            org_id,
            email,
            role,
            invited_by,
            created_at,
            expires_at,
            accepted_at,
            accepted_by,
            revoked_at,
        } = invite;
        Self {
            id: id.into(),
            org_id: org_id.into(),
            email,
            role: role.to_string(),
            invited_by: invited_by.into(),
            created_at: Some(timestamp(created_at)),
            expires_at: Some(timestamp(expires_at)),
            accepted_at: accepted_at.map(timestamp),
            accepted_by: accepted_by.map(Into::into),
            revoked_at: revoked_at.map(timestamp),
        }
    }
}

impl From<Invites> for v1::ListInvitesResponse {
    fn from(listing: Invites) -> Self {
        let Invites {
            invites,
            next_cursor,
        } = listing;
        Self {
            invites: invites.into_iter().map(Into::into).collect(),
            next_cursor: next_cursor.map(|cursor| cursor.to_string()),
        }
    }
}
