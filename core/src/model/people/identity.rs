//! Accounts of OpenID Connect providers.

use crate::model::timestamp::Timestamp;

/// The account that a provider has authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The URL of the provider, the claim `iss`.
    pub issuer: String,
    /// The id of the account at the provider, the claim `sub`.
    pub subject: String,
    /// The address of the account, if the provider has verified it.
    pub verified_email: Option<String>,
}

/// An account that signs a user in.
pub struct LinkedAccount {
    /// The URL of the provider.
    pub issuer: String,
    /// The id of the account at the provider.
    pub subject: String,
    /// The time at which the account was linked.
    pub created_at: Timestamp,
    /// The time of its last sign-in.
    pub used_at: Timestamp,
}
