//! Sign-in by email.

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::ids::UserId;
use crate::model::text_enum::text_enum;
use crate::model::timestamp::Timestamp;
use crate::model::validation;

text_enum! {
    /// The users who can sign up. Existing users can always sign in.
    pub enum SignUp {
        /// Every user can sign up.
        Open = "open",
        /// Users with an open invite can sign up.
        Invited = "invited",
        /// Users with an open invite, or with an address in a verified domain, can sign up.
        Domains = "domains",
    }
}

/// The confirmation of a request for a sign-in link. It is the same for known and unknown
/// addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SignInRequested {
    /// The address in its normalized form: trimmed, in lower case, the domain in ASCII as IDNA
    /// writes it.
    #[schema(value_type = validation::Email)]
    pub email: String,
    /// The time at which the link expires, 15 minutes after the request.
    pub expires_at: Timestamp,
}

/// A sign-in link that works, and the client that requested it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingLink {
    /// The address that the link signs in.
    pub email: String,
    /// The request's time.
    pub requested_at: Timestamp,
    /// The client's network address that requested the link.
    pub address: Option<String>,
    /// That client's `User-Agent`, if it sent one.
    pub user_agent: Option<String>,
}

/// A new session with its token.
// Without `Debug`, so that the token cannot be logged.
#[derive(Serialize, ToSchema)]
pub struct SignedIn {
    /// The session token, `svc_sess_` and 38 letters or digits. No other response contains it.
    #[schema(pattern = "^svc_sess_[0-9A-Za-z]{38}$", format = Password)]
    pub token: String,
    /// The latest time at which the session ends, 30 days after the sign-in. It ends earlier if it
    /// is unused for 7 days.
    pub expires_at: Timestamp,
    /// The id of the user who has signed in.
    pub user_id: UserId,
}
