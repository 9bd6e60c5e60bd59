//! Domain claims and verified domains.

use std::time::Duration;

use sqlx::PgExecutor;

use crate::model::cursor::Page;
use crate::model::email_domain::{ClaimedDomain, MISSES_MAX};
use crate::model::error::Result;
use crate::model::ids::{OrgId, UserId};
use crate::model::timestamp::Timestamp;
use crate::store::{PgConnection, unique_violation};

/// Returns a page with an organization's verified domains, by name.
pub async fn list(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    page: &Page,
) -> Result<Vec<ClaimedDomain>> {
    let domains = sqlx::query_as!(
        ClaimedDomain,
        r#"
        select
            org_id as "org_id: OrgId",
            domain,
            claimed_by as "claimed_by: UserId",
            verified_at as "verified_at!: Timestamp",
            created_at as "created_at: Timestamp",
            auto_join
        from domain_claims
        where org_id = $1
          and verified_at is not null
          and domain > coalesce($2, '')
        order by domain
        limit $3
        "#,
        org_id.as_str(),
        page.id.as_deref(),
        page.rows()
    )
    .fetch_all(db)
    .await?;
    Ok(domains)
}

/// Days for which a domain claim can be verified.
const CLAIM_DAYS: i32 = 7;

/// A domain claim that is not verified.
pub struct Claim {
    /// The value that the DNS record must have.
    pub token: String,
    /// The time until which the claim can be verified.
    pub expires_at: Timestamp,
}

/// Claims a domain for `CLAIM_DAYS` days. Claiming it again keeps the token, unless it has
/// expired. Returns `None` if the organization has verified the domain already.
pub async fn claim(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    domain: &str,
    token: &str,
    claimed_by: &UserId,
) -> Result<Option<Claim>> {
    let claim = sqlx::query_as!(
        Claim,
        r#"
        insert into domain_claims as c (org_id, domain, token, claimed_by, expires_at)
        values ($1, $2, $3, $4, now() + $5::integer * interval '1 day')
        on conflict (org_id, domain) do update
            -- Claiming again renews an open claim; an expired one is replaced.
            set
                token = case when c.expires_at > now() then c.token else excluded.token end,
                claimed_by = case
                    when c.expires_at > now() then c.claimed_by
                    else excluded.claimed_by
                end,
                created_at = case
                    when c.expires_at > now() then c.created_at
                    else excluded.created_at
                end,
                expires_at = excluded.expires_at
            where c.verified_at is null
        returning
            token,
            expires_at as "expires_at: Timestamp"
        "#,
        org_id.as_str(),
        domain,
        token,
        claimed_by.as_str(),
        CLAIM_DAYS
    )
    .fetch_optional(db)
    .await?;
    Ok(claim)
}

/// A domain claim's status.
pub enum ClaimStatus {
    /// Not verified yet. Carries the token that the record must have.
    Pending(String),
    /// Verified: the domain is the organization's.
    Verified {
        /// The verified domain.
        domain: ClaimedDomain,
        /// The value that the DNS record must have.
        token: String,
        /// Consecutive checks that did not find the record.
        misses: i32,
    },
}

/// Returns the organization's claim to a domain, or `None` if there is none or it has expired.
pub async fn find(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    domain: &str,
) -> Result<Option<ClaimStatus>> {
    let row = sqlx::query!(
        r#"
        select
            token,
            claimed_by as "claimed_by: UserId",
            verified_at as "verified_at: Timestamp",
            created_at as "created_at: Timestamp",
            auto_join,
            misses
        from domain_claims
        where org_id = $1
          and domain = $2
          and (verified_at is not null or expires_at > now())
        "#,
        org_id.as_str(),
        domain
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| match row.verified_at {
        None => ClaimStatus::Pending(row.token),
        Some(verified_at) => ClaimStatus::Verified {
            domain: ClaimedDomain {
                org_id: org_id.clone(),
                domain: domain.to_owned(),
                claimed_by: row.claimed_by,
                verified_at,
                created_at: row.created_at,
                auto_join: row.auto_join,
            },
            token: row.token,
            misses: row.misses,
        },
    }))
}

/// Another organization that has verified the domain.
pub struct Holder {
    /// The organization's id.
    pub org_id: OrgId,
    /// The value that its DNS record must have.
    pub token: String,
}

/// Returns the other organization that has verified the domain, if there is one.
pub async fn other_holder(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    domain: &str,
) -> Result<Option<Holder>> {
    let holder = sqlx::query_as!(
        Holder,
        r#"
        /* all tenants: another organization may have verified the domain */
        select
            org_id as "org_id: OrgId",
            token
        from domain_claims
        where org_id <> $1
          and domain = $2
          and verified_at is not null
        "#,
        org_id.as_str(),
        domain
    );
    Ok(holder.fetch_optional(db).await?)
}

/// Removes the verified claim by an organization whose record is gone. A claim with a newer token
/// stays: then `false` is returned.
pub async fn remove_verified(
    db: &mut PgConnection,
    holder: &OrgId,
    domain: &str,
    token: &str,
) -> Result<bool> {
    let done = sqlx::query!(
        "
        delete from domain_claims
        where org_id = $1
          and domain = $2
          and token = $3
          and verified_at is not null
        ",
        holder.as_str(),
        domain,
        token
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Locks a claim until the transaction ends. Returns `true` if the organization has verified it.
pub async fn lock_verified(db: &mut PgConnection, org_id: &OrgId, domain: &str) -> Result<bool> {
    let is_verified = sqlx::query_scalar!(
        r#"
        select verified_at is not null as "is_verified!"
        from domain_claims
        where org_id = $1
          and domain = $2
        for update
        "#,
        org_id.as_str(),
        domain
    );
    Ok(is_verified.fetch_optional(db).await?.unwrap_or(false))
}

/// The result of a verification.
pub enum Verified {
    /// The domain is the organization's.
    Owned(ClaimedDomain),
    /// Another organization has verified the domain meanwhile.
    Taken,
    /// The claim that was checked no longer exists.
    Gone,
}

/// Records that a claim with this token was proved. Proving it again resets the miss count.
pub async fn verify(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    domain: &str,
    token: &str,
) -> Result<Verified> {
    let owned = sqlx::query_as!(
        ClaimedDomain,
        r#"
        update domain_claims
        set
            verified_at = coalesce(verified_at, now()),
            misses = 0,
            check_at = null
        where org_id = $1
          and domain = $2
          and token = $3
        returning
            org_id as "org_id: OrgId",
            domain,
            claimed_by as "claimed_by: UserId",
            verified_at as "verified_at!: Timestamp",
            created_at as "created_at: Timestamp",
            auto_join
        "#,
        org_id.as_str(),
        domain,
        token
    )
    .fetch_optional(db)
    .await;
    match owned {
        Err(error) if unique_violation(&error) == Some("domain_claims_verified_key") => {
            Ok(Verified::Taken)
        }
        owned => Ok(owned?.map_or(Verified::Gone, Verified::Owned)),
    }
}

/// Sets whether users with an address in the domain become members. Returns the domain, and whether
/// they became members before. Returns `None` if the
/// organization has no such verified domain, or if its record was missing too often for `auto_join`
/// to be enabled.
pub async fn set_auto_join(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    domain: &str,
    auto_join: bool,
) -> Result<Option<(ClaimedDomain, bool)>> {
    let row = sqlx::query!(
        r#"
        with before as (
            select auto_join
            from domain_claims
            where org_id = $1
              and domain = $2
            for update
        )
        update domain_claims c
        set auto_join = $3
        from before b
        where c.org_id = $1
          and c.domain = $2
          and c.verified_at is not null
          and (not $3 or c.misses < $4)
        returning
            c.org_id as "org_id: OrgId",
            c.domain,
            c.claimed_by as "claimed_by: UserId",
            c.verified_at as "verified_at!: Timestamp",
            c.created_at as "created_at: Timestamp",
            c.auto_join,
            b.auto_join as joined_before
        "#,
        org_id.as_str(),
        domain,
        auto_join,
        MISSES_MAX
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| {
        let domain = ClaimedDomain {
            org_id: row.org_id,
            domain: row.domain,
            claimed_by: row.claimed_by,
            verified_at: row.verified_at,
            created_at: row.created_at,
            auto_join: row.auto_join,
        };
        (domain, row.joined_before)
    }))
}

/// Releases a domain claim, verified or not. Returns `false` if the organization has no such claim.
pub async fn remove(db: impl PgExecutor<'_>, org_id: &OrgId, domain: &str) -> Result<bool> {
    let done = sqlx::query!(
        "delete from domain_claims where org_id = $1 and domain = $2",
        org_id.as_str(),
        domain
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The time for which the process that looks a record up keeps other processes from doing so.
const CHECK_LEASE_DURATION: Duration = Duration::from_secs(60);

/// The time until the next look-up after one whose result is unknown.
const CHECK_RETRY_DELAY: Duration = Duration::from_secs(60 * 60);

/// A verified domain whose record is to be looked up again.
pub struct DueCheck {
    /// The organization that verified it.
    pub org_id: OrgId,
    /// The domain in ASCII.
    pub domain: String,
    /// The value that the DNS record must have.
    pub token: String,
    /// The lease's end. It also fences the check's result.
    pub lease: Timestamp,
}

/// Leases at most `limit` verified domains whose record was last looked up more than `days` ago.
pub async fn lease_due(db: impl PgExecutor<'_>, days: i32, limit: i64) -> Result<Vec<DueCheck>> {
    let due = sqlx::query_as!(
        DueCheck,
        r#"
        /* all tenants: the domains of every organization are checked */
        with due as (
            select org_id, domain
            from domain_claims
            where verified_at is not null
              and coalesce(check_at, verified_at + $1::integer * interval '1 day') <= now()
            order by coalesce(check_at, verified_at)
            limit $2
            for update skip locked
        )
        update domain_claims c
        set check_at = clock_timestamp() + $3::float8 * interval '1 second'
        from due d
        where c.org_id = d.org_id
          and c.domain = d.domain
        returning
            c.org_id as "org_id: OrgId",
            c.domain,
            c.token,
            c.check_at as "lease!: Timestamp"
        "#,
        days,
        limit,
        CHECK_LEASE_DURATION.as_secs_f64()
    );
    Ok(due.fetch_all(db).await?)
}

/// Records whether the record was found. Returns the consecutive miss count, and whether this
/// check disabled `auto_join`. Returns `None` if the lease has expired or the claim is gone.
pub async fn record_check(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    due: &DueCheck,
    is_found: bool,
    days: i32,
) -> Result<Option<(i32, bool)>> {
    let row = sqlx::query!(
        r#"
        with before as (
            select auto_join
            from domain_claims
            where org_id = $1
              and domain = $2
              and token = $3
              and check_at = $4
            for update
        )
        update domain_claims c
        set
            misses = case when $5 then 0 else c.misses + 1 end,
            auto_join = c.auto_join and ($5 or c.misses + 1 < $7),
            check_at = clock_timestamp() + $6::integer * interval '1 day'
        from before b
        where c.org_id = $1
          and c.domain = $2
          and c.verified_at is not null
        returning
            c.misses,
            (b.auto_join and not c.auto_join) as "is_disabled!"
        "#,
        org_id.as_str(),
        due.domain,
        due.token,
        due.lease as Timestamp,
        is_found,
        days,
        MISSES_MAX
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| (row.misses, row.is_disabled)))
}

/// Postpones a check by `CHECK_RETRY_DELAY`, because the name server did not say whether the
/// record exists.
pub async fn postpone_check(db: impl PgExecutor<'_>, org_id: &OrgId, due: &DueCheck) -> Result<()> {
    sqlx::query!(
        "
        update domain_claims
        set check_at = clock_timestamp() + $4::float8 * interval '1 second'
        where org_id = $1
          and domain = $2
          and check_at = $3
        ",
        org_id.as_str(),
        due.domain,
        due.lease as Timestamp,
        CHECK_RETRY_DELAY.as_secs_f64()
    )
    .execute(db)
    .await?;
    Ok(())
}
