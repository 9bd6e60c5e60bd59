//! Signing in by e-mail.

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::ids::UserId;
use crate::model::timestamp::Timestamp;
use crate::model::validation;
use crate::text_enum;

text_enum! {
    /// Who may sign up. Existing users always sign in.
    pub enum SignUp {
        /// Everybody.
        Open = "open",
        /// Those who have an open invite.
        Invited = "invited",
        /// Also those whose address has a domain that an organization has verified.
        Domains = "domains",
    }
}

/// Who wants to sign in.
#[derive(ToSchema)]
pub struct SignInRequest {
    /// Where the link is to go.
    #[schema(value_type = validation::Email)]
    pub email: String,
}

/// Answer of the request for a link. It is the same whether or not the address is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SignInRequested {
    /// The address in its one form.
    #[schema(value_type = validation::Email)]
    pub email: String,
    /// When the link ends.
    pub expires_at: Timestamp,
}

/// What the mail brought.
#[derive(ToSchema)]
pub struct SignIn {
    /// The token that stands behind `#token=` in the link.
    #[schema(min_length = 1)]
    pub token: String,
}

/// A session that has just begun. No `Debug`: it holds a secret.
#[derive(Serialize, ToSchema)]
pub struct SignedIn {
    /// The session's token, in this answer only.
    #[schema(pattern = "^svc_sess_[0-9A-Za-z]{38}$", format = Password)]
    pub token: String,
    /// When the session ends at the latest.
    pub expires_at: Timestamp,
    /// The person.
    pub user_id: UserId,
}
