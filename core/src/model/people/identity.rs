//! Accounts at OpenID Connect providers.

use crate::model::timestamp::Timestamp;

/// The account that a provider has authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The provider's URL, the claim `iss`.
    pub issuer: String,
    /// The account's id at the provider, the claim `sub`.
    pub subject: String,
    /// The account's address, if the provider has verified it.
    pub verified_email: Option<String>,
}

/// An account that signs a user in.
pub struct LinkedAccount {
    /// The provider's URL.
    pub issuer: String,
    /// The account's id at the provider.
    pub subject: String,
    /// The time at which the account was linked.
    pub created_at: Timestamp,
    /// The last sign-in's time.
    pub used_at: Timestamp,
}
