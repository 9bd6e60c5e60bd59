//! Claimed domains.

use sqlx::PgExecutor;

use super::unique_violation;
use crate::domain::ClaimedDomain;
use crate::{OrgId, Result, Timestamp, UserId};

/// The verified domains of an organization, by name.
pub async fn list(db: impl PgExecutor<'_>, org_id: &OrgId) -> Result<Vec<ClaimedDomain>> {
    let domains = sqlx::query_as!(
        ClaimedDomain,
        r#"select org_id as "org_id: OrgId", domain, claimed_by as "claimed_by: UserId", verified_at as "verified_at!: Timestamp",
                  created_at as "created_at: Timestamp", auto_join
           from domain_claims where org_id = $1 and verified_at is not null order by domain"#,
        org_id.as_str()
    )
    .fetch_all(db)
    .await?;
    Ok(domains)
}

/// A claim that is not verified.
pub struct Claim {
    /// What the record must show.
    pub token: String,
    /// Until when.
    pub expires_at: Timestamp,
}

/// Claims a domain for a week. Who claims it again keeps the token, unless that has expired. `None` when the domain is
/// verified, for whomever.
pub async fn claim(db: impl PgExecutor<'_>, org_id: &OrgId, domain: &str, token: &str, claimed_by: &UserId) -> Result<Option<Claim>> {
    let claim = sqlx::query_as!(
        Claim,
        r#"insert into domain_claims as c (org_id, domain, token, claimed_by, expires_at)
           select $1, $2, $3, $4, now() + interval '7 days'
           where not exists (select from domain_claims v where v.domain = $2 and v.verified_at is not null)
           on conflict (org_id, domain) do update
               set token = case when c.expires_at > now() then c.token else excluded.token end,
                   claimed_by = case when c.expires_at > now() then c.claimed_by else excluded.claimed_by end,
                   created_at = case when c.expires_at > now() then c.created_at else excluded.created_at end,
                   expires_at = excluded.expires_at
               where c.verified_at is null
           returning token, expires_at as "expires_at: Timestamp""#,
        org_id.as_str(),
        domain,
        token,
        claimed_by.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(claim)
}

/// A claim as it stands.
pub enum Standing {
    /// It can be verified with this token.
    Pending(String),
    /// It was.
    Verified(ClaimedDomain),
}

/// The organization's claim of a domain. `None` when there is none, or it has expired.
pub async fn find(db: impl PgExecutor<'_>, org_id: &OrgId, domain: &str) -> Result<Option<Standing>> {
    let row = sqlx::query!(
        r#"select token, claimed_by as "claimed_by: UserId", verified_at as "verified_at: Timestamp", created_at as "created_at: Timestamp", auto_join
           from domain_claims where org_id = $1 and domain = $2 and (verified_at is not null or expires_at > now())"#,
        org_id.as_str(),
        domain
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| match row.verified_at {
        None => Standing::Pending(row.token),
        Some(verified_at) => Standing::Verified(ClaimedDomain {
            org_id: org_id.clone(),
            domain: domain.to_owned(),
            claimed_by: row.claimed_by,
            verified_at,
            created_at: row.created_at,
            auto_join: row.auto_join,
        }),
    }))
}

/// What became of a verification.
pub enum Verified {
    /// The domain is the organization's.
    Owned(ClaimedDomain),
    /// Another organization was faster.
    Taken,
    /// The claim that was looked at is not there any more.
    Gone,
}

/// Notes that a claim with this token was proved. Doing it again changes nothing.
pub async fn verify(db: impl PgExecutor<'_>, org_id: &OrgId, domain: &str, token: &str) -> Result<Verified> {
    let owned = sqlx::query_as!(
        ClaimedDomain,
        r#"update domain_claims set verified_at = coalesce(verified_at, now()) where org_id = $1 and domain = $2 and token = $3
           returning org_id as "org_id: OrgId", domain, claimed_by as "claimed_by: UserId", verified_at as "verified_at!: Timestamp",
                  created_at as "created_at: Timestamp", auto_join"#,
        org_id.as_str(),
        domain,
        token
    )
    .fetch_optional(db)
    .await;
    match owned {
        Err(error) if unique_violation(&error) == Some("domain_claims_verified_key") => Ok(Verified::Taken),
        owned => Ok(owned?.map_or(Verified::Gone, Verified::Owned)),
    }
}

/// Says whether people with an address of the domain become members. `None` when the organization has no such domain.
pub async fn set_auto_join(db: impl PgExecutor<'_>, org_id: &OrgId, domain: &str, auto_join: bool) -> Result<Option<ClaimedDomain>> {
    let domain = sqlx::query_as!(
        ClaimedDomain,
        r#"update domain_claims set auto_join = $3 where org_id = $1 and domain = $2 and verified_at is not null
           returning org_id as "org_id: OrgId", domain, claimed_by as "claimed_by: UserId", verified_at as "verified_at!: Timestamp",
                  created_at as "created_at: Timestamp", auto_join"#,
        org_id.as_str(),
        domain,
        auto_join
    )
    .fetch_optional(db)
    .await?;
    Ok(domain)
}

/// Gives a domain up, verified or not. `false` when the organization has no such claim.
pub async fn remove(db: impl PgExecutor<'_>, org_id: &OrgId, domain: &str) -> Result<bool> {
    let done = sqlx::query!("delete from domain_claims where org_id = $1 and domain = $2", org_id.as_str(), domain).execute(db).await?;
    Ok(done.rows_affected() == 1)
}
