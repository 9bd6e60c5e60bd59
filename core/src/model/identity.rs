//! Accounts of OpenID Connect providers.

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
