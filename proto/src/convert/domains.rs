//! Messages of `DomainService`.

use assay_core::model::email_domain::{
    ClaimedDomain, DomainClaim, DomainRecord, DomainVerification, Domains,
};

use super::timestamp;
use crate::v1;

impl From<ClaimedDomain> for v1::ClaimedDomain {
    fn from(claimed: ClaimedDomain) -> Self {
        let ClaimedDomain {
            org_id,
            domain,
            claimed_by,
            verified_at,
            created_at,
            auto_join,
        } = claimed;
        Self {
            org_id: org_id.into(),
            domain,
            claimed_by: claimed_by.into(),
            verified_at: Some(timestamp(verified_at)),
            created_at: Some(timestamp(created_at)),
            auto_join,
        }
    }
}

impl From<Domains> for v1::ListDomainsResponse {
    fn from(listing: Domains) -> Self {
        let Domains {
            domains,
            next_cursor,
        } = listing;
        Self {
            domains: domains.into_iter().map(Into::into).collect(),
            next_cursor: next_cursor.map(|cursor| cursor.to_string()),
        }
    }
}

impl From<DomainClaim> for v1::DomainClaim {
    fn from(claim: DomainClaim) -> Self {
        let DomainClaim {
            domain,
            record,
            expires_at,
        } = claim;
        let DomainRecord {
            r#type,
            name,
            value,
        } = record;
        let record = v1::DomainRecord {
            r#type: r#type.to_owned(),
            name,
            value,
        };
        Self {
            domain,
            record: Some(record),
            expires_at: Some(timestamp(expires_at)),
        }
    }
}

impl From<DomainVerification> for v1::VerifyDomainResponse {
    fn from(verification: DomainVerification) -> Self {
        let DomainVerification { verified, domain } = verification;
        Self {
            verified,
            domain: domain.map(Into::into),
        }
    }
}
