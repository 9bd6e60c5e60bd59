//! Domains that organizations claim.

use std::collections::HashSet;
use std::sync::LazyLock;

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::cursor::Cursor;
use crate::model::error::Result;
use crate::model::ids::{OrgId, UserId};
use crate::model::timestamp::Timestamp;
use crate::model::{random, validation};
use assay_eval::FieldError;

/// Where anybody can have an e-mail address; a domain a line.
static PUBLIC_MAIL: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    include_str!("public_mail_domains.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect()
});

/// A domain that is known to be the organization's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ClaimedDomain {
    /// The organization.
    pub org_id: OrgId,
    /// In ASCII, as IDNA writes it.
    #[schema(value_type = validation::Domain)]
    pub domain: String,
    /// Who claimed it.
    pub claimed_by: UserId,
    /// Since when it is known.
    pub verified_at: Timestamp,
    /// When it was claimed.
    pub created_at: Timestamp,
    /// Whether people with an address of this domain become members when they sign in.
    pub auto_join: bool,
}

/// A page of domains, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Domains {
    /// Those that were verified.
    #[schema(max_items = 200)]
    pub domains: Vec<ClaimedDomain>,
    /// Where the next page begins; null at the end.
    pub next_cursor: Option<Cursor>,
}

/// The domain that is to be claimed.
#[derive(ToSchema)]
pub struct DomainCreate {
    /// A name below a public suffix, such as `example.org`; not one at which anybody can have an e-mail address.
    #[schema(format = "hostname", max_length = 238)]
    pub domain: String,
}

/// What is to change of a domain.
#[derive(ToSchema)]
pub struct DomainUpdate {
    /// Whether people with an address of this domain become members when they sign in.
    pub auto_join: bool,
}

/// Answer of a claim: what to do so that it can be verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct DomainClaim {
    /// In ASCII, as IDNA writes it.
    #[schema(value_type = validation::Domain)]
    pub domain: String,
    /// What the domain's name server must show.
    pub record: DomainRecord,
    /// Until when it can be verified.
    pub expires_at: Timestamp,
}

/// A record of a name server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct DomainRecord {
    /// Always `TXT`.
    pub r#type: &'static str,
    /// Its name.
    pub name: String,
    /// Its text.
    pub value: String,
}

/// Answer of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct DomainVerification {
    /// Whether the record is there.
    pub verified: bool,
    /// The domain, once it is verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub domain: Option<ClaimedDomain>,
}

impl DomainRecord {
    /// The record that proves a claim.
    pub fn new(domain: &str, token: &str) -> Self {
        Self {
            r#type: "TXT",
            name: format!("_svc-challenge.{domain}"),
            value: format!("svc-domain-verification={token}"),
        }
    }
}

/// After how many checks in a row that do not find the record of a verified domain nobody joins by it any more.
pub const MISSES_MAX: i32 = 3;

/// A new token of a claim. It is no secret: everybody can look it up.
pub fn token() -> Result<String> {
    random::base62(32)
}

/// A domain that an organization may claim, in its one form: a name below a public suffix, and not one at which anybody
/// can have an address.
pub fn claimable(field: &str, value: &str) -> Result<String, FieldError> {
    let domain = validation::domain(field, value)?;
    if psl::domain(domain.as_bytes()).is_none() {
        let message =
            format!("{domain} is open to everybody's registrations; claim a domain below it");
        return Err(FieldError::new(field, "public_suffix", message));
    }
    if is_public_mail(&domain) {
        return Err(FieldError::new(
            field,
            "public_mail",
            format!("anybody can have an e-mail address at {domain}; it cannot be claimed"),
        ));
    }
    if DomainRecord::new(&domain, "").name.len() > validation::DOMAIN_MAX {
        return Err(FieldError::new(
            field,
            "range",
            "is too long: the name of the record that proves the claim would not fit",
        ));
    }
    Ok(domain)
}

/// The domain that was registered, of a claimable domain: `example.co.uk` of `a.b.example.co.uk`. Who owns it can verify any
/// number of domains below it.
pub fn registrable(domain: &str) -> &str {
    psl::domain_str(domain).unwrap_or(domain)
}

/// Whether the domain, or one that it is below, is a public mail provider's.
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
    fn what_belongs_to_everybody_cannot_be_claimed() {
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
    fn domains_below_one_registration_are_one() {
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
    fn the_list_is_in_the_form_in_which_it_is_asked() {
        assert!(PUBLIC_MAIL.len() > 4_000);
        for name in PUBLIC_MAIL.iter() {
            assert_eq!(validation::domain("domain", name).as_deref(), Ok(*name));
        }
    }
}
