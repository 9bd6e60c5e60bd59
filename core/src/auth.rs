//! Signing in by e-mail.

use serde::Serialize;

use crate::{Timestamp, UserId};

/// Answer of the request for a link. It is the same whether or not the address is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SignInRequested {
    /// The address in its one form.
    pub email: String,
    /// When the link ends.
    pub expires_at: Timestamp,
}

/// A session that has just begun. No `Debug`: it holds a secret.
#[derive(Serialize)]
pub struct SignedIn {
    /// The session's token, in this answer only.
    pub token: String,
    /// When the session ends at the latest.
    pub expires_at: Timestamp,
    /// The person.
    pub user_id: UserId,
}
