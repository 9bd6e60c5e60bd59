//! Email domains that organizations claim, and the DNS records that prove the claims.

use std::collections::HashSet;
use std::sync::LazyLock;

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::cursor::Cursor;
use crate::model::ids::{OrgId, UserId};
use crate::model::random::{self, RandomError};
use crate::model::timestamp::Timestamp;
use crate::model::validation;
use assay_eval::FieldError;

/// Public email providers' domains, from a file with one domain per line.
static PUBLIC_MAIL: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    include_str!("public_mail_domains.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect()
});

/// A domain that the organization has verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ClaimedDomain {
    /// The id of the organization.
    pub org_id: OrgId,
    /// The domain, in ASCII as IDNA writes it.
    #[schema(value_type = validation::Domain)]
    pub domain: String,
    /// The id of the user who claimed the domain.
    pub claimed_by: UserId,
    /// The time at which the domain was verified.
    pub verified_at: Timestamp,
    /// The time at which the domain was claimed.
    pub created_at: Timestamp,
    /// If `true`, users with an address of the domain become members when they sign in.
    pub auto_join: bool,
}

/// One page of verified domains, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Domains {
    /// The verified domains of the page, by name.
    #[schema(max_items = 200)]
    pub domains: Vec<ClaimedDomain>,
    /// The `cursor` of the next page. Null on the last page.
    pub next_cursor: Option<Cursor>,
}

/// A domain claim that is not verified yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct DomainClaim {
    /// The domain, in ASCII as IDNA writes it.
    #[schema(value_type = validation::Domain)]
    pub domain: String,
    /// The DNS record that proves the claim.
    pub record: DomainRecord,
    /// The time until which the claim can be verified, 7 days after the claim.
    pub expires_at: Timestamp,
}

/// A DNS record that proves a domain claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct DomainRecord {
    /// The type of the record, always `TXT`.
    pub r#type: &'static str,
    /// The name of the record: `_svc-challenge.` and the domain.
    pub name: String,
    /// The text of the record.
    pub value: String,
}

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct DomainVerification {
    /// `true` if the domain belongs to the organization now.
    pub verified: bool,
    /// The domain. Present if `verified` is `true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub domain: Option<ClaimedDomain>,
}

impl DomainRecord {
    /// Returns the record that proves the claim with this token.
    pub fn new(domain: &str, token: &str) -> Self {
        Self {
            r#type: "TXT",
            name: format!("_svc-challenge.{domain}"),
            value: format!("svc-domain-verification={token}"),
        }
    }
}

/// Consecutive checks without a verified domain's record after which `auto_join` is
/// disabled.
pub const MISSES_MAX: i32 = 3;

/// Returns a new token for a domain claim. It is not secret, because the DNS record is public.
pub fn token() -> Result<String, RandomError> {
    random::base62(32)
}

/// Validates a domain that an organization claims, and returns its normalized form.
///
/// # Errors
/// A field error if it is not a domain below a public suffix, if it belongs to a public email
/// provider, or if it is too long for the claim's DNS record.
pub fn claimable(field: &str, value: &str) -> Result<String, FieldError> {
    let domain = validation::domain(field, value)?;
    if psl::domain(domain.as_bytes()).is_none() {
        let message = format!("{domain} is a public suffix; claim a domain below it");
        return Err(FieldError::new(field, "public_suffix", message));
    }
    if is_public_mail(&domain) {
        return Err(FieldError::new(
            field,
            "public_mail",
            format!("{domain} belongs to a public email provider and cannot be claimed"),
        ));
    }
    if DomainRecord::new(&domain, "").name.len() > validation::DOMAIN_MAX {
        return Err(FieldError::new(
            field,
            "range",
            "is too long for the DNS record that proves the claim",
        ));
    }
    Ok(domain)
}

/// Returns a claimable domain's registered domain: `example.co.uk` for `a.b.example.co.uk`.
///
/// Its owner can verify arbitrarily many domains below it.
pub fn registrable(domain: &str) -> &str {
    psl::domain_str(domain).unwrap_or(domain)
}

/// Returns `true` if the domain or a parent domain belongs to a public email provider.
fn is_public_mail(domain: &str) -> bool {
    let mut rest = Some(domain);
    while let Some(name) = rest {
        if PUBLIC_MAIL.contains(name) {
            return true;
        }
        rest = name.split_once('.').map(|(_, parent)| parent);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_domains_cannot_be_claimed() {
        for own in [
            "example.org",
            "mail.example.co.uk",
            "acme.github.io",
            "Bücher.example",
            "notgmail.com",
        ] {
            assert!(claimable("domain", own).is_ok(), "{own}");
        }
        for (public, reason) in [
            ("gmail.com", "public_mail"),
            ("a.b.GMAIL.com.", "public_mail"),
            ("proton.me", "public_mail"),
            ("hey.com", "public_mail"),
            ("com", "public_suffix"),
            ("co.uk", "public_suffix"),
            ("github.io", "public_suffix"),
            ("localhost", "public_suffix"),
            ("127.0.0.1", "format"),
            ("", "required"),
        ] {
            assert_eq!(
                claimable("domain", public).unwrap_err().reason,
                reason,
                "{public}"
            );
        }
        let long = [
            &"a".repeat(63) as &str,
            &"b".repeat(63),
            &"c".repeat(63),
            &"d".repeat(40),
            "example",
        ]
        .join(".");
        assert_eq!(claimable("domain", &long).unwrap_err().reason, "range");
    }

    #[test]
    fn subdomains_share_registered_domain() {
        for (domain, registered) in [
            ("example.org", "example.org"),
            ("a.b.example.co.uk", "example.co.uk"),
            ("acme.github.io", "acme.github.io"),
            ("x.acme.github.io", "acme.github.io"),
        ] {
            assert_eq!(registrable(domain), registered);
        }
    }

    #[test]
    fn public_email_list_is_normalized() {
        assert!(PUBLIC_MAIL.len() > 4_000);
        for name in PUBLIC_MAIL.iter() {
            assert_eq!(validation::domain("domain", name).as_deref(), Ok(*name));
        }
    }
}
