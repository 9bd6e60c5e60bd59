//! Messages of `MemberService`.

use assay_core::model::member::{Member, Members};

use super::timestamp;
use crate::v1;

impl From<Member> for v1::Member {
    fn from(member: Member) -> Self {
        let Member {
            user_id,
            email,
            role,
            created_at,
            live_keys,
        } = member;
        Self {
            user_id: user_id.into(),
            email,
            role: role.to_string(),
            created_at: Some(timestamp(created_at)),
            live_keys: live_keys.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Members> for v1::ListMembersResponse {
    fn from(listing: Members) -> Self {
        let Members {
            members,
            next_cursor,
        } = listing;
        Self {
            members: members.into_iter().map(Into::into).collect(),
            next_cursor: next_cursor.map(|cursor| cursor.to_string()),
        }
    }
}
