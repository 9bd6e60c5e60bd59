//! Deletes rows after their retention period. Each statement deletes a bounded row count, so that
//! none holds its locks for long.

use sqlx::PgExecutor;

use super::cleanup::BATCH;
use crate::model::error::Result;
use crate::model::ids::OrgId;
use crate::model::job::JobStatus;
use crate::model::timestamp::Timestamp;
use crate::store::{PgConnection, audit, delivery, event, usage};

/// Returns organizations in id order, after the given id.
pub async fn orgs_after(db: impl PgExecutor<'_>, after: &str) -> Result<Vec<OrgId>> {
    let orgs = sqlx::query_scalar!(
        r#"
        select id as "id: OrgId"
        from orgs
        where id > $1
        order by id
        limit $2
        "#,
        after,
        BATCH as i64
    )
    .fetch_all(db)
    .await?;
    Ok(orgs)
}

/// An organization's finished job.
pub struct OldJob {
    /// The job's id.
    pub id: String,
    /// Its submission's time.
    pub created_at: Timestamp,
}

/// Returns an organization's jobs in a status that were submitted more than `days` ago, oldest
/// first, after the given time.
pub async fn old_jobs(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    status: JobStatus,
    days: u32,
    after: Option<Timestamp>,
) -> Result<Vec<OldJob>> {
    let jobs = sqlx::query_as!(
        OldJob,
        r#"
        select
            id,
            created_at as "created_at: Timestamp"
        from jobs
        where org_id = $1
          and status = $2
          and created_at < now() - $3::float8 * interval '1 day'
          and created_at > coalesce($4::timestamptz, '-infinity')
        order by created_at
        limit $5
        "#,
        org_id.as_str(),
        status as JobStatus,
        f64::from(days),
        after as Option<Timestamp>,
        BATCH as i64
    )
    .fetch_all(db)
    .await?;
    Ok(jobs)
}

/// Deletes finished jobs with their attempts and their usage ledger rows. Keeps jobs that
/// have objects in the artifact store, that count for an allowance, or whose suite has sealed
/// items.
pub async fn delete_jobs(db: impl PgExecutor<'_>, job_ids: &[String]) -> Result<u64> {
    let done = sqlx::query!(
        "
        /* all tenants: cleanup deletes old rows of every organization */
        with gone as (
            select j.id
            from jobs j
            where j.id = any($1)
              and j.finished_at is not null
              and j.cleaned_up_at is not null
              and j.scores_key is null
              and j.final_at is null
              -- Allowances count these rows, and the figures of sealed items need the job.
              and not exists (select from stored_item_scores s where s.job_id = j.id)
              and not exists (select from suite_disclosures d where d.job_id = j.id)
              and not exists (
                  select from suites s
                  where s.suite_id = j.suite_id
                    and s.version = j.suite_version
                    and s.n_sealed > 0
              )
            for update of j skip locked
        ), attempts as (
            delete from job_attempts a using gone g where a.job_id = g.id
        ), ledger as (
            delete from usage_ledger l using gone g where l.job_id = g.id
        )
        delete from jobs j
        using gone g
        where j.id = g.id
        ",
        job_ids
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}

/// The row kinds, other than jobs, that are deleted when they are old.
#[derive(Debug, Clone, Copy)]
pub enum OldRows {
    /// Sessions that ended or expired.
    Sessions,
    /// Revoked API keys.
    Keys,
    /// Invites that were accepted, revoked or replaced, or that expired.
    Invites,
    /// Domain claims that expired unverified.
    DomainClaims,
    /// Uploads whose objects were removed and that no stored job names.
    Uploads,
    /// Audit log entries.
    AuditEntries,
    /// One organization's events.
    Events,
    /// Events that all organizations have.
    SharedEvents,
    /// Events as they are sent to webhooks, with their deliveries.
    WebhookPayloads,
    /// A day's requests.
    UsageDays,
}

impl OldRows {
    /// Returns the kind as a Prometheus metric's label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Keys => "keys",
            Self::Invites => "invites",
            Self::DomainClaims => "domain_claims",
            Self::Uploads => "uploads",
            Self::AuditEntries => "audit_entries",
            Self::Events => "events",
            Self::SharedEvents => "shared_events",
            Self::WebhookPayloads => "webhook_payloads",
            Self::UsageDays => "usage_days",
        }
    }
}

/// Deletes at most [`BATCH`] rows that ended more than `days` ago. Returns their number.
pub async fn delete_old(db: &mut PgConnection, rows: OldRows, days: u32) -> Result<u64> {
    match rows {
        OldRows::Sessions => delete_sessions(db, days).await,
        OldRows::Keys => delete_keys(db, days).await,
        OldRows::Invites => delete_invites(db, days).await,
        OldRows::DomainClaims => delete_domain_claims(db, days).await,
        OldRows::Uploads => delete_uploads(db, days).await,
        OldRows::Events => event::delete_old(db, days, BATCH as i64).await,
        OldRows::SharedEvents => event::delete_old_shared(db, days, BATCH as i64).await,
        OldRows::WebhookPayloads => delivery::delete_old(db, days, BATCH as i64).await,
        OldRows::AuditEntries => audit::delete_old(db, days, BATCH as i64).await,
        OldRows::UsageDays => usage::delete_old_days(db, days, BATCH as i64).await,
    }
}

async fn delete_uploads(db: &mut PgConnection, days: u32) -> Result<u64> {
    let done = sqlx::query!(
        "
        /* all tenants: cleanup deletes old rows of every organization */
        delete from uploads
        where id in (
            select u.id
            from uploads u
            where u.removed_at < now() - $1::float8 * interval '1 day'
              and not exists (select from jobs j where j.upload_id = u.id)
            order by u.removed_at
            limit $2
            for update skip locked
        )
        ",
        f64::from(days),
        BATCH as i64
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}

async fn delete_sessions(db: &mut PgConnection, days: u32) -> Result<u64> {
    let done = sqlx::query!(
        "
        delete from sessions
        where id in (
            select id
            from sessions
            where expires_at < now() - $1::float8 * interval '1 day'
              or ended_at < now() - $1::float8 * interval '1 day'
            limit $2
            for update skip locked
        )
        ",
        f64::from(days),
        BATCH as i64
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}

async fn delete_keys(db: &mut PgConnection, days: u32) -> Result<u64> {
    let done = sqlx::query!(
        "
        /* all tenants: cleanup deletes old rows of every organization */
        delete from api_keys
        where id in (
            select id
            from api_keys
            where revoked_at < now() - $1::float8 * interval '1 day'
               or expires_at < now() - $1::float8 * interval '1 day'
            limit $2
            for update skip locked
        )
        ",
        f64::from(days),
        BATCH as i64
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}

async fn delete_invites(db: &mut PgConnection, days: u32) -> Result<u64> {
    let done = sqlx::query!(
        "
        /* all tenants: cleanup deletes old rows of every organization */
        delete from invites
        where id in (
            select id
            from invites
            where coalesce(
                accepted_at,
                revoked_at,
                replaced_at,
                expires_at
            ) < now() - $1::float8 * interval '1 day'
            order by coalesce(accepted_at, revoked_at, replaced_at, expires_at)
            limit $2
            for update skip locked
        )
        ",
        f64::from(days),
        BATCH as i64
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}

async fn delete_domain_claims(db: &mut PgConnection, days: u32) -> Result<u64> {
    let done = sqlx::query!(
        "
        /* all tenants: cleanup deletes old rows of every organization */
        delete from domain_claims
        where (org_id, domain) in (
            select org_id, domain
            from domain_claims
            where verified_at is null
              and expires_at < now() - $1::float8 * interval '1 day'
            order by expires_at
            limit $2
            for update skip locked
        )
        ",
        f64::from(days),
        BATCH as i64
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}
