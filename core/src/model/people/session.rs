//! A user's sessions.

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::ids::{RequestId, SessionId};
use crate::model::timestamp::Timestamp;

/// A session of the caller without its token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Session {
    /// The id of the session.
    pub id: SessionId,
    /// The time at which the user signed in.
    pub created_at: Timestamp,
    /// The time at which the session was last used, exact to about a minute.
    pub last_used_at: Timestamp,
    /// The time at which the session ends if it is not used again: 7 days after its last use, and
    /// at most 30 days after the sign-in.
    pub expires_at: Timestamp,
    /// The network address of the client at the last use, exact to about a minute. An IPv6 address
    /// is cut to its first 64 bits. Null in a session that the operator created and that was not
    /// used yet.
    pub address: Option<String>,
    /// The `User-Agent` of the client at the last use, at most 200 characters. Null if the client
    /// sent none.
    pub user_agent: Option<String>,
    /// `true` if this is the session that calls.
    pub current: bool,
}

/// The live sessions of the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Sessions {
    /// The live sessions, the newest first, at most 100.
    pub sessions: Vec<Session>,
}

/// A request's client, as its session records it.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// The id of the request.
    pub request_id: &'a RequestId,
    /// The network address of the client.
    pub address: &'a str,
    /// The client's `User-Agent`, if it sent one.
    pub user_agent: Option<&'a str>,
}
