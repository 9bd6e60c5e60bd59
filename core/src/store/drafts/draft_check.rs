//! The checks and publications that the checker claims, one after the other.

use std::time::Duration;

use sqlx::types::Json;

use crate::model::draft::{DraftFailure, DraftReport, DraftStatus};
use crate::model::error::Result;
use crate::model::ids::{DraftId, OrgId, SuiteId};
use crate::store::PgConnection;

/// The time for which a claim holds. The checker renews it meanwhile.
pub const CLAIM_DURATION: Duration = Duration::from_secs(60);

/// Attempts after which a check or publication has failed: it ended its process each time.
pub const ATTEMPTS_MAX: i32 = 3;

/// The time in which a checked draft must be published.
const PUBLICATION_TIMEOUT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// A claimed check or publication.
#[derive(Debug, Clone)]
pub struct ClaimedDraft {
    /// The draft.
    pub id: DraftId,
    /// Its organization.
    pub org_id: OrgId,
    /// `checking` or `publishing`.
    pub status: DraftStatus,
    /// The suite that it can become a version of.
    pub suite_id: SuiteId,
    /// The definition's keyed hash, in lower-case hex.
    pub definition_hmac: String,
    /// The escrow row that lists its files.
    pub manifest_id: Option<String>,
    /// The content that its check has stored.
    pub content_id: Option<i64>,
    /// Attempts, with this one.
    pub attempts: i32,
    /// The fencing token: a later claim has another one.
    pub claim: String,
}

/// Claims the check or publication that has waited longest. A claim that expired is claimed again.
///
/// An organization has one check at a time, so organizations alternate.
pub async fn claim(db: &mut PgConnection, claim: &str) -> Result<Option<ClaimedDraft>> {
    let claimed = sqlx::query_as!(
        ClaimedDraft,
        r#"
        /* all tenants: the checker checks the drafts of every organization */
        update drafts
        set claim = $1,
            claimed_until = now() + $2::float8 * interval '1 second',
            attempts = attempts + 1
        where id = (
            select id
            from drafts
            where status in ('checking', 'publishing')
              and (claimed_until is null or claimed_until < now())
            order by coalesce(publish_requested_at, check_requested_at)
            limit 1
            for no key update skip locked
        )
        returning
            id as "id: DraftId",
            org_id as "org_id: OrgId",
            status as "status: DraftStatus",
            suite_id as "suite_id: SuiteId",
            definition_hmac,
            manifest_id,
            content_id,
            attempts,
            claim as "claim!"
        "#,
        claim,
        CLAIM_DURATION.as_secs_f64()
    )
    .fetch_optional(db)
    .await?;
    Ok(claimed)
}

/// The limits of an organization's plan for suites.
#[derive(Debug, Clone, Copy)]
pub struct DraftPlan {
    /// The most suites.
    pub suites: i64,
    /// The most items in a version.
    pub suite_items: i64,
    /// The most bytes in published suites and checked drafts.
    pub suite_bytes: i64,
    /// The bytes that these have.
    pub used_bytes: i64,
}

impl DraftPlan {
    /// Returns the free bytes.
    pub fn free_bytes(&self) -> i64 {
        self.suite_bytes.saturating_sub(self.used_bytes).max(0)
    }
}

/// Returns an organization's limits for suites.
pub async fn plan(db: &mut PgConnection, org_id: &OrgId) -> Result<DraftPlan> {
    let plan = sqlx::query_as!(
        DraftPlan,
        r#"
        select
            p.suites as "suites!",
            p.suite_items as "suite_items!",
            p.suite_bytes as "suite_bytes!",
            coalesce((select sum(c.bytes) from suite_contents c where c.org_id = $1), 0)::bigint as "used_bytes!"
        from orgs o
        join plan_limits p on p.plan = o.plan
        where o.id = $1
        "#,
        org_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok(plan)
}

/// Locks the publications of an organization until the transaction ends, and returns its number of suites other than this one.
pub async fn lock_publication(
    db: &mut PgConnection,
    org_id: &OrgId,
    suite_id: &SuiteId,
) -> Result<i64> {
    sqlx::query!(
        "select pg_advisory_xact_lock(hashtextextended('suites of ' || $1, 0))",
        org_id.as_str()
    )
    .execute(&mut *db)
    .await?;
    let others = sqlx::query_scalar!(
        r#"
        select count(*) as "others!"
        from suite_owners
        where org_id = $1
          and suite_id <> $2
          and removed_at is null
        "#,
        org_id.as_str(),
        suite_id.as_str()
    );
    Ok(others.fetch_one(db).await?)
}

/// Renews a claim. Returns `false` if it is lost: the draft was deleted, or claimed again.
pub async fn renew(db: &mut PgConnection, draft: &ClaimedDraft) -> Result<bool> {
    let done = sqlx::query!(
        "
        update drafts
        set claimed_until = now() + $4::float8 * interval '1 second'
        where org_id = $1
          and id = $2
          and claim = $3
          and status in ('checking', 'publishing')
        ",
        draft.org_id.as_str(),
        draft.id.as_str(),
        draft.claim,
        CLAIM_DURATION.as_secs_f64()
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Ends a claim, so that the draft can be claimed again at once.
pub async fn release(db: &mut PgConnection, draft: &ClaimedDraft) -> Result<()> {
    sqlx::query!(
        "
        update drafts
        set claimed_until = null
        where org_id = $1
          and id = $2
          and claim = $3
        ",
        draft.org_id.as_str(),
        draft.id.as_str(),
        draft.claim
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Ends a check that found no errors. Returns `false` if the claim is lost.
pub async fn finish_ready(
    db: &mut PgConnection,
    draft: &ClaimedDraft,
    content_id: i64,
    report: &DraftReport,
) -> Result<bool> {
    let done = sqlx::query!(
        "
        update drafts
        set status = 'ready',
            content_id = $4,
            report = $5,
            checked_at = clock_timestamp(),
            expires_at = clock_timestamp() + $6::float8 * interval '1 second',
            claim = null,
            claimed_until = null,
            attempts = 0
        where org_id = $1
          and id = $2
          and claim = $3
          and status = 'checking'
        ",
        draft.org_id.as_str(),
        draft.id.as_str(),
        draft.claim,
        content_id,
        Json(report) as _,
        PUBLICATION_TIMEOUT.as_secs_f64()
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Ends a check or publication that has failed. Returns `false` if the claim is lost.
pub async fn finish_failed(
    db: &mut PgConnection,
    draft: &ClaimedDraft,
    code: DraftFailure,
    message: &str,
    report: Option<&DraftReport>,
) -> Result<bool> {
    let done = sqlx::query!(
        "
        update drafts
        set status = 'failed',
            error_code = $4,
            error_message = $5,
            report = coalesce($6::jsonb::json, report),
            checked_at = coalesce(checked_at, clock_timestamp()),
            claim = null,
            claimed_until = null
        where org_id = $1
          and id = $2
          and claim = $3
          and status in ('checking', 'publishing')
        ",
        draft.org_id.as_str(),
        draft.id.as_str(),
        draft.claim,
        code as DraftFailure,
        message,
        report.map(Json) as _
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Ends a publication. Returns `false` if the claim is lost.
pub async fn finish_published(
    db: &mut PgConnection,
    draft: &ClaimedDraft,
    was_published: bool,
) -> Result<bool> {
    let done = sqlx::query!(
        "
        update drafts
        set status = 'published',
            published_at = clock_timestamp(),
            was_published = $4,
            claim = null,
            claimed_until = null
        where org_id = $1
          and id = $2
          and claim = $3
          and status = 'publishing'
        ",
        draft.org_id.as_str(),
        draft.id.as_str(),
        draft.claim,
        was_published
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// A draft whose files and unpublished content are to be deleted.
#[derive(Debug, Clone)]
pub struct EndedDraft {
    /// The draft.
    pub id: DraftId,
    /// Its organization.
    pub org_id: OrgId,
    /// The content that its check has stored.
    pub content_id: Option<i64>,
    /// `true` if a version has the content.
    pub is_content_published: bool,
}

/// Marks overdue drafts as expired, and returns at most `limit` drafts that have ended and whose files or content remain.
pub async fn ended(db: &mut PgConnection, limit: i64) -> Result<Vec<EndedDraft>> {
    sqlx::query!(
        "
        /* all tenants: drafts of every organization expire */
        update drafts
        set status = 'expired'
        where status in ('open', 'ready')
          and expires_at <= now()
          and removed_at is null
        "
    )
    .execute(&mut *db)
    .await?;
    let ended = sqlx::query_as!(
        EndedDraft,
        r#"
        /* all tenants: drafts of every organization expire */
        select
            d.id as "id: DraftId",
            d.org_id as "org_id: OrgId",
            d.content_id,
            exists(select from suites s where s.content_id = d.content_id) as "is_content_published!"
        from drafts d
        where d.removed_at is null
          and (
              d.status in ('deleted', 'expired', 'failed')
              -- Another draft has published the same content before.
              or (d.status = 'published' and d.was_published)
          )
        order by d.expires_at
        limit $1
        "#,
        limit
    )
    .fetch_all(db)
    .await?;
    Ok(ended)
}

/// Records that a draft's files and unpublished content were deleted.
pub async fn mark_removed(
    db: &mut PgConnection,
    draft: &EndedDraft,
    keeps_content: bool,
) -> Result<()> {
    sqlx::query!(
        "
        update drafts
        set removed_at = now(),
            content_id = case when $3 then content_id end
        where org_id = $1
          and id = $2
        ",
        draft.org_id.as_str(),
        draft.id.as_str(),
        keeps_content
    )
    .execute(db)
    .await?;
    Ok(())
}
