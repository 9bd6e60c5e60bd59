//! Messages of `SessionService`.

use assay_core::model::session::{Session, Sessions};

use super::timestamp;
use crate::v1;

impl From<Session> for v1::Session {
    fn from(session: Session) -> Self {
        let Session {
            id,
            created_at,
            last_used_at,
            expires_at,
            address,
            user_agent,
            current,
        } = session;
        Self {
            id: id.into(),
            created_at: Some(timestamp(created_at)),
            last_used_at: Some(timestamp(last_used_at)),
            expires_at: Some(timestamp(expires_at)),
            address,
            user_agent,
            current,
        }
    }
}

impl From<Sessions> for v1::ListSessionsResponse {
    fn from(listing: Sessions) -> Self {
        let Sessions { sessions } = listing;
        Self {
            sessions: sessions.into_iter().map(Into::into).collect(),
        }
    }
}
