//! Sessions of a user.

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::ids::SessionId;
use crate::model::timestamp::Timestamp;

/// A session of the caller, without its token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Session {
    /// `ses_…`
    pub id: SessionId,
    /// When the user signed in.
    pub created_at: Timestamp,
    /// When it was last used, to about a minute.
    pub last_used_at: Timestamp,
    /// When it ends if it is not used again: 7 days after its last use, at most 30 days after the sign-in.
    pub expires_at: Timestamp,
    /// The client's address at its last use, to about a minute; the first 64 bits of an IPv6 address. Null until a session that the
    /// operator created is used.
    pub address: Option<String>,
    /// The `User-Agent` of the same request, at most 200 characters; null if it sent none.
    pub user_agent: Option<String>,
    /// Whether this is the session that calls.
    pub current: bool,
}

/// The live sessions of the caller, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Sessions {
    /// All of them, at most 100.
    pub sessions: Vec<Session>,
}

/// Where a request comes from, as its session shows it.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// The client's address.
    pub address: &'a str,
    /// Its `User-Agent`.
    pub user_agent: Option<&'a str>,
}
