//! Drafts as the API stores and reads them.

use std::time::Duration;

use sqlx::PgExecutor;
use sqlx::types::Json;

use crate::model::draft::{
    Draft, DraftError, DraftFailure, DraftFile, DraftReport, DraftStatus, DraftSummary,
};
use crate::model::error::{Error, Result};
use crate::model::ids::{DraftId, OrgId, SuiteId};
use crate::model::timestamp::Timestamp;
use crate::store::PgConnection;

/// The time in which a draft must be checked.
const CHECK_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// A draft's row.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are those of Draft, flat")]
pub struct DraftRow {
    pub id: DraftId,
    pub org_id: OrgId,
    /// `expired` after `expires_at`, even if the stored status was not updated yet.
    pub status: DraftStatus,
    pub suite_id: SuiteId,
    pub version: String,
    pub definition_hmac: String,
    pub visibility: Option<String>,
    pub created_by: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub checked_at: Option<Timestamp>,
    pub published_at: Option<Timestamp>,
    pub was_published: Option<bool>,
    pub error_code: Option<DraftFailure>,
    pub error_message: Option<String>,
    pub report: Option<Json<DraftReport>>,
    pub content_id: Option<i64>,
}

impl DraftRow {
    /// Returns the draft as callers see it.
    pub fn into_draft(mut self, files: Vec<DraftFile>) -> Draft {
        let report = self.report.take().map(|Json(report)| report);
        Draft {
            draft_summary: self.into_summary(),
            files,
            report,
            opening_key: None,
        }
    }

    /// Returns the draft as a listing shows it.
    pub fn into_summary(self) -> DraftSummary {
        let Self {
            id,
            org_id,
            status,
            suite_id,
            version,
            definition_hmac,
            visibility: _,
            created_by,
            created_at,
            expires_at,
            checked_at,
            published_at,
            was_published,
            error_code,
            error_message,
            report: _,
            content_id: _,
        } = self;
        DraftSummary {
            id,
            org_id,
            status,
            suite_id,
            version,
            definition_hmac,
            created_by,
            created_at,
            expires_at,
            checked_at,
            published_at,
            was_published,
            error: error_code.map(|code| DraftError {
                code,
                message: error_message.unwrap_or_default(),
            }),
        }
    }
}

/// Selects drafts as callers see them. The first argument is the report, `$rest` follows `from drafts`.
macro_rules! select_drafts {
    ($report:literal, $rest:literal, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            DraftRow,
            r#"
            select
                id as "id: DraftId",
                org_id as "org_id: OrgId",
                (
                    case
                        when status in ('open', 'ready') and expires_at <= now() then 'expired'
                        else status
                    end
                ) as "status!: DraftStatus",
                suite_id as "suite_id: SuiteId",
                version,
                definition_hmac,
                visibility,
                created_by,
                created_at as "created_at: Timestamp",
                expires_at as "expires_at: Timestamp",
                checked_at as "checked_at: Timestamp",
                published_at as "published_at: Timestamp",
                was_published,
                error_code as "error_code: DraftFailure",
                error_message,
                "# + $report + r#" as "report: Json<DraftReport>",
                content_id
            from drafts
            "# + $rest,
            $($argument),+
        )
    };
}

/// A new draft's columns.
pub struct NewDraft<'a> {
    /// The draft's id, made by the caller.
    pub id: &'a DraftId,
    /// The suite that it can become a version of.
    pub suite_id: &'a SuiteId,
    /// The version.
    pub version: &'a str,
    /// The keyed `suite.toml` hash, in lower-case hex.
    pub definition_hmac: &'a str,
    /// The visibility in `suite.toml`.
    pub visibility: Option<&'a str>,
    /// The user or key that creates it.
    pub created_by: &'a str,
    /// Its files' bytes so far.
    pub received_bytes: i64,
    /// The caller's idempotency key, and the keyed request hash.
    pub idempotency: Option<(&'a str, &'a [u8])>,
}

/// Locks creating and checking drafts for the organization until the transaction ends.
pub async fn lock_opening(db: &mut PgConnection, org_id: &OrgId) -> Result<()> {
    sqlx::query!(
        "select pg_advisory_xact_lock(hashtextextended('drafts of ' || $1, 0))",
        org_id.as_str()
    )
    .execute(db)
    .await?;
    Ok(())
}

/// The figures that limit an organization's drafts.
#[derive(Debug, Clone, Copy)]
pub struct DraftCounts {
    /// Count: drafts that are not published.
    pub open: i64,
    /// The first of these drafts' expiry, if there is one.
    pub first_expires_at: Option<Timestamp>,
    /// Count: drafts that are being checked.
    pub checking: i64,
    /// Count: checks that began in the last hour.
    pub checks: i64,
    /// The time at which the first of these checks is an hour old, if there is one.
    pub check_at: Option<Timestamp>,
    /// Bytes that were received for drafts whose files were not deleted.
    pub received_bytes: i64,
    /// The database's time.
    pub now: Timestamp,
}

/// Counts an organization's drafts.
pub async fn counts(db: impl PgExecutor<'_>, org_id: &OrgId) -> Result<DraftCounts> {
    let counts = sqlx::query_as!(
        DraftCounts,
        r#"
        select
            count(*) filter (where is_open) as "open!",
            min(expires_at) filter (where status in ('open', 'ready') and expires_at > now()) as "first_expires_at: Timestamp",
            count(*) filter (where status = 'checking') as "checking!",
            count(*) filter (where check_requested_at > now() - interval '1 hour') as "checks!",
            min(check_requested_at) filter (where check_requested_at > now() - interval '1 hour') + interval '1 hour'
                as "check_at: Timestamp",
            coalesce(sum(received_bytes) filter (where removed_at is null and checked_at is null), 0)::bigint as "received_bytes!",
            now() as "now!: Timestamp"
        from (
            select
                *,
                status in ('checking', 'publishing', 'in_review') or (status in ('open', 'ready') and expires_at > now()) as is_open
            from drafts
            where org_id = $1
        ) d
        "#,
        org_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok(counts)
}

/// Stores a new draft, which must be checked within a day.
pub async fn insert(db: &mut PgConnection, org_id: &OrgId, new: &NewDraft<'_>) -> Result<()> {
    let NewDraft {
        id,
        suite_id,
        version,
        definition_hmac,
        visibility,
        created_by,
        received_bytes,
        idempotency,
    } = new;
    let (key, hmac) = idempotency.unzip();
    sqlx::query!(
        "
        insert into drafts (
            id,
            org_id,
            suite_id,
            version,
            definition_hmac,
            visibility,
            created_by,
            received_bytes,
            idempotency_key,
            request_hmac,
            expires_at
        )
        values ($2, $1, $3, $4, $5, $6, $7, $8, $9, $10, now() + $11::float8 * interval '1 second')
        ",
        org_id.as_str(),
        id.as_str(),
        suite_id.as_str(),
        version,
        definition_hmac,
        *visibility,
        created_by,
        received_bytes,
        key,
        hmac,
        CHECK_TIMEOUT.as_secs_f64()
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Returns the draft that an idempotency key created, and the keyed request hash.
pub async fn find_repeated(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    idempotency_key: &str,
) -> Result<Option<(DraftId, Vec<u8>)>> {
    let row = sqlx::query!(
        r#"
        select
            id as "id: DraftId",
            request_hmac as "request_hmac!"
        from drafts
        where org_id = $1
          and idempotency_key = $2
        "#,
        org_id.as_str(),
        idempotency_key
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| (row.id, row.request_hmac)))
}

/// Returns the organization's draft.
pub async fn find(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    draft_id: &DraftId,
) -> Result<Option<DraftRow>> {
    let row = select_drafts!(
        "report",
        "
        where org_id = $1
          and id = $2
          and status <> 'deleted'
        ",
        org_id.as_str(),
        draft_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(row)
}

/// Returns the organization's draft without its report, and locks it until the transaction ends.
pub async fn lock(
    db: &mut PgConnection,
    org_id: &OrgId,
    draft_id: &DraftId,
) -> Result<Option<DraftRow>> {
    let row = select_drafts!(
        "null::json",
        "
        where org_id = $1
          and id = $2
          and status <> 'deleted'
        for no key update
        ",
        org_id.as_str(),
        draft_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(row)
}

/// Returns the organization's draft's state.
pub async fn status(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    draft_id: &DraftId,
) -> Result<Option<DraftStatus>> {
    let status = sqlx::query_scalar!(
        r#"
        select status as "status: DraftStatus"
        from drafts
        where org_id = $1
          and id = $2
          and status <> 'deleted'
        "#,
        org_id.as_str(),
        draft_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(status)
}

/// Returns at most `limit` of the organization's drafts, the newest first, that were created before the given one. The reports are left out.
pub async fn list(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    status: Option<DraftStatus>,
    before: Option<&DraftId>,
    limit: i64,
) -> Result<Vec<DraftRow>> {
    let rows = select_drafts!(
        "null::json",
        "
        where org_id = $1
          and status <> 'deleted'
          and (
              $2::text is null
              or $2 = case when status in ('open', 'ready') and expires_at <= now() then 'expired' else status end
          )
          and (
              $3::text is null
              or (created_at, id) < (select b.created_at, b.id from drafts b where b.org_id = $1 and b.id = $3)
          )
        order by created_at desc, id desc
        limit $4
        ",
        org_id.as_str(),
        status as Option<DraftStatus>,
        before.map(DraftId::as_str),
        limit
    )
    .fetch_all(db)
    .await?;
    Ok(rows)
}

/// Returns a draft's files, by name. `parts` counts received parts.
pub async fn files(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    draft_id: &DraftId,
) -> Result<Vec<DraftFile>> {
    let files = sqlx::query_as!(
        DraftFile,
        r#"
        select
            name,
            sum(bytes)::bigint as "bytes!",
            count(*) as "parts!"
        from draft_parts
        where org_id = $1
          and draft_id = $2
        group by name
        order by name
        "#,
        org_id.as_str(),
        draft_id.as_str()
    )
    .fetch_all(db)
    .await?;
    Ok(files)
}

/// Returns a content's item count.
pub async fn n_items(db: impl PgExecutor<'_>, content_id: i64) -> Result<i32> {
    let n_items = sqlx::query_scalar!(
        "select n_items from suite_contents where id = $1",
        content_id
    );
    Ok(n_items.fetch_one(db).await?)
}

/// A received part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartRow {
    /// The file's name.
    pub name: String,
    /// The part's number, from 1.
    pub number: i32,
    /// The random id under which its chunks are stored.
    pub part_id: String,
}

/// Returns a draft's parts, by file and number.
pub async fn parts(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    draft_id: &DraftId,
) -> Result<Vec<PartRow>> {
    let parts = sqlx::query_as!(
        PartRow,
        "
        select name, number, part_id
        from draft_parts
        where org_id = $1
          and draft_id = $2
        order by name, number
        ",
        org_id.as_str(),
        draft_id.as_str()
    )
    .fetch_all(db)
    .await?;
    Ok(parts)
}

/// Records a part whose chunks are stored. It replaces an earlier one with its number.
pub async fn put_part(
    db: &mut PgConnection,
    org_id: &OrgId,
    draft_id: &DraftId,
    part: &PartRow,
    bytes: i64,
) -> Result<()> {
    sqlx::query!(
        "
        insert into draft_parts (org_id, draft_id, name, number, part_id, bytes)
        values ($1, $2, $3, $4, $5, $6)
        on conflict (draft_id, name, number) do update
            set part_id = excluded.part_id,
                bytes = excluded.bytes
        ",
        org_id.as_str(),
        draft_id.as_str(),
        part.name,
        part.number,
        part.part_id,
        bytes
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Charges bytes to a draft before they are stored. Returns `false` if the draft no longer waits for files.
pub async fn charge(
    db: &mut PgConnection,
    org_id: &OrgId,
    draft_id: &DraftId,
    bytes: i64,
) -> Result<bool> {
    let done = sqlx::query!(
        "
        update drafts
        set received_bytes = received_bytes + $3
        where org_id = $1
          and id = $2
          and status = 'open'
          and expires_at > now()
        ",
        org_id.as_str(),
        draft_id.as_str(),
        bytes
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Requests an open draft's check. The escrow row with this id lists its files.
pub async fn request_check(
    db: &mut PgConnection,
    org_id: &OrgId,
    draft_id: &DraftId,
    manifest_id: &str,
) -> Result<()> {
    let done = sqlx::query!(
        "
        update drafts
        set status = 'checking',
            manifest_id = $3,
            check_requested_at = clock_timestamp()
        where org_id = $1
          and id = $2
          and status = 'open'
        ",
        org_id.as_str(),
        draft_id.as_str(),
        manifest_id
    )
    .execute(db)
    .await?;
    changed(done.rows_affected())
}

/// Requests a ready draft's publication, or, before that, the operator's review.
pub async fn request_publication(
    db: &mut PgConnection,
    org_id: &OrgId,
    draft_id: &DraftId,
    needs_review: bool,
) -> Result<()> {
    let done = sqlx::query!(
        "
        update drafts
        set status = case when $3 then 'in_review' else 'publishing' end,
            publish_requested_at = clock_timestamp()
        where org_id = $1
          and id = $2
          and status = 'ready'
        ",
        org_id.as_str(),
        draft_id.as_str(),
        needs_review
    )
    .execute(db)
    .await?;
    changed(done.rows_affected())
}

/// Deletes a draft. The checker deletes its files and its content.
pub async fn delete(db: &mut PgConnection, org_id: &OrgId, draft_id: &DraftId) -> Result<()> {
    let done = sqlx::query!(
        "
        update drafts
        set status = 'deleted'
        where org_id = $1
          and id = $2
          and status not in ('publishing', 'published', 'deleted')
        ",
        org_id.as_str(),
        draft_id.as_str()
    )
    .execute(db)
    .await?;
    changed(done.rows_affected())
}

/// Returns an error unless one row was changed: the caller had locked it.
fn changed(rows: u64) -> Result<()> {
    if rows == 1 {
        Ok(())
    } else {
        Err(Error::internal("a locked draft was changed"))
    }
}
