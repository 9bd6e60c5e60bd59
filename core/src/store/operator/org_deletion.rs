//! The deletion of an organization.

use std::collections::HashMap;

use sqlx::AssertSqlSafe;

use crate::model::error::Result;
use crate::model::ids::OrgId;
use crate::store::{PgConnection, usage};

/// Row counts that an organization's deletion affected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Deleted {
    /// Jobs that were cancelled.
    pub jobs_cancelled: u64,
    /// Jobs that were reduced to the columns that accounting needs.
    pub jobs_cleared: u64,
    /// API keys that were deleted.
    pub keys: u64,
    /// Memberships that were deleted.
    pub memberships: u64,
    /// Invites that were deleted.
    pub invites: u64,
    /// Domain claims that were deleted.
    pub domains: u64,
    /// Uploads that were marked as deleted.
    pub uploads: u64,
}

/// Marks an organization as deleted: after the transaction nothing is stored for it and no user
/// joins it. The caller holds the lock on it and its writers.
pub async fn mark_deleted(db: &mut PgConnection, org_id: &OrgId) -> Result<()> {
    sqlx::query!(
        "
        update orgs
        set
            suspended_at = coalesce(suspended_at, clock_timestamp()),
            deleted_at = coalesce(deleted_at, clock_timestamp())
        where id = $1
        ",
        org_id.as_str()
    )
    .execute(db)
    .await?;
    Ok(())
}

/// The handling of an organization's rows in a table when the organization is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Erasure {
    /// Deletes them, and with them the rows that cascade.
    Delete,
    /// Removes what accounting does not need, by this statement.
    Update(&'static str),
    /// Keeps them for this reason.
    Keep(&'static str),
}

/// Reduces jobs to what accounting needs.
const CLEAR_JOBS: &str = "
    update jobs
    set
        label = null,
        metadata = null,
        idempotency_key = null,
        request_id = '',
        request_sha256 = '',
        trace_id = '',
        parent_span_id = null,
        span_id = null,
        scores_key = null,
        served_model = case when finished_at is null then served_model end,
        parameters = case when parameters is not null then '{}'::jsonb end,
        error_message = null,
        result = case when status = 'succeeded' then '{}'::jsonb end
    where org_id = $1
      and request_id <> ''
";

/// Marks uploads as deleted, and removes what their content can be recognized by.
const CLEAR_UPLOADS: &str = "
    update uploads
    set
        deleted_at = coalesce(deleted_at, now()),
        sha256 = null,
        digest = case when digest is not null then ''::bytea end,
        error_message = null
    where org_id = $1
      and (deleted_at is null or sha256 is not null or digest <> '' or error_message is not null)
";

/// Withdraws the entries of boards, and removes their names.
const CLEAR_BOARD_ENTRIES: &str = "
    update board_entries
    set
        withdrawn_at = coalesce(withdrawn_at, clock_timestamp()),
        name = id,
        name_key = id,
        name_shown = id,
        url = null,
        entered_by = '',
        removed_reason = case when removed_at is not null then 'The organization was deleted.' end,
        revision = revision + 1
    where org_id = $1
      and name <> id
";

/// Clears the drafts. The checker deletes the content of those that are not published, and the operator's command that
/// of the others.
const CLEAR_DRAFTS: &str = "
    update drafts
    set
        status = case when status = 'published' then status else 'deleted' end,
        version = '',
        definition_hmac = '',
        visibility = null,
        claim = null,
        report = null,
        error_message = null,
        created_by = '',
        idempotency_key = null,
        request_hmac = null
    where org_id = $1
      and created_by <> ''
";

/// Removes the texts of the organization's suites. Others keep the scores on them.
const CLEAR_SUITES: &str = "
    update suite_owners
    set
        metadata = '{}',
        errata = '[]'
    where org_id = $1
      and (metadata <> '{}' or errata <> '[]')
";

/// The tables with rows of organizations, in the order of deletion. The parameter of a statement is the
/// organization.
pub const ORG_TABLES: &[(&str, Erasure)] = &[
    ("job_attempts", Erasure::Delete),
    ("sealed_results", Erasure::Delete),
    ("receipts", Erasure::Delete),
    ("receipt_salts", Erasure::Delete),
    ("stored_item_scores", Erasure::Delete),
    ("jobs", Erasure::Update(CLEAR_JOBS)),
    ("uploads", Erasure::Update(CLEAR_UPLOADS)),
    ("upload_parts", Erasure::Delete),
    ("board_entries", Erasure::Update(CLEAR_BOARD_ENTRIES)),
    ("board_predictions", Erasure::Delete),
    ("stored_predictions", Erasure::Delete),
    // After the parts and the predictions, whose deletion updates it.
    ("org_storage", Erasure::Delete),
    ("serve_keys", Erasure::Delete),
    ("org_models", Erasure::Delete),
    ("api_keys", Erasure::Delete),
    ("invites", Erasure::Delete),
    ("domain_claims", Erasure::Delete),
    ("suite_grants", Erasure::Delete),
    ("suite_retirements", Erasure::Delete),
    ("offboardings", Erasure::Delete),
    ("device_logins", Erasure::Delete),
    (
        "sessions",
        Erasure::Update("update sessions set org_id = null where org_id = $1"),
    ),
    ("memberships", Erasure::Delete),
    // After the memberships, whose users could create further ones.
    ("webhooks", Erasure::Delete),
    ("webhook_payloads", Erasure::Delete),
    ("events", Erasure::Delete),
    ("usage_thresholds", Erasure::Delete),
    ("usage_request_days", Erasure::Delete),
    ("audit_entries", Erasure::Delete),
    ("usage", Erasure::Keep("accounting")),
    ("usage_ledger", Erasure::Keep("accounting")),
    ("usage_requests", Erasure::Keep("accounting")),
    (
        "org_submissions",
        Erasure::Keep("a time and a number of jobs, without content"),
    ),
    (
        "suite_disclosures",
        Erasure::Keep(
            "what other organizations of the same holder may still submit depends on them",
        ),
    ),
    ("suite_owners", Erasure::Update(CLEAR_SUITES)),
    // Deleted afterwards, in batches: that of versions by `delete_removed`, and the other content by the checker.
    (
        "suite_contents",
        Erasure::Update("update suite_contents set metadata = '{}' where org_id = $1"),
    ),
    ("escrow_chunks", Erasure::Delete),
    ("draft_parts", Erasure::Delete),
    ("drafts", Erasure::Update(CLEAR_DRAFTS)),
    (
        "terms_acceptances",
        Erasure::Keep("evidence of the acceptance"),
    ),
];

/// Deletes an organization except for the rows that accounting needs: its months, its ledger, and
/// its jobs without the callers' data and results. Deleting it again deletes the rows that are
/// left. The organization is locked and marked as deleted. The API removes the artifact store's
/// objects later.
pub async fn delete_org(db: &mut PgConnection, org_id: &OrgId) -> Result<Deleted> {
    let org = org_id.as_str();
    let cancelled = sqlx::query!(
        r#"
        with done as (
            update jobs
            set
                status = 'cancelled',
                finished_at = clock_timestamp(),
                worker_id = null,
                deadline_at = null
            where org_id = $1
              and status in ('queued', 'running')
            returning id, attempts
        )
        select
            id as "id!",
            attempts
        from done
        "#,
        org
    )
    .fetch_all(&mut *db)
    .await?;
    let never_started: Vec<&str> = cancelled
        .iter()
        .filter(|job| job.attempts == 0)
        .map(|job| job.id.as_str())
        .collect();
    usage::refund(db, &never_started).await?;
    let mut affected = HashMap::new();
    for (table, erasure) in ORG_TABLES {
        let statement = match erasure {
            Erasure::Delete => format!("delete from {table} where org_id = $1"),
            Erasure::Update(statement) => (*statement).to_owned(),
            Erasure::Keep(_) => continue,
        };
        // Only constants are part of the statement.
        let done = sqlx::query(AssertSqlSafe(statement)).bind(org);
        affected.insert(*table, done.execute(&mut *db).await?.rows_affected());
    }
    sqlx::query!(
        "update orgs set name = 'Deleted organization' where id = $1",
        org
    )
    .execute(db)
    .await?;
    let rows = |table| affected.get(table).copied().unwrap_or_default();
    Ok(Deleted {
        jobs_cancelled: cancelled.len() as u64,
        jobs_cleared: rows("jobs"),
        keys: rows("api_keys"),
        memberships: rows("memberships"),
        invites: rows("invites"),
        domains: rows("domain_claims"),
        uploads: rows("uploads"),
    })
}
