//! Uploads and their parts.

mod received_parts;

use std::time::Duration;

use sqlx::PgExecutor;

use crate::model::error::Result;
use crate::model::ids::{OrgId, UploadId};
use crate::model::timestamp::Timestamp;
use crate::model::upload::{
    ContentEncoding, ContentType, UploadFailure, UploadKind, UploadRow, UploadStatus,
};
use crate::store::PgConnection;

use self::received_parts::delete_parts;
pub use self::received_parts::{Received, part_objects, parts, put_part, received};

/// Selects uploads as callers see them. `$rest` follows `from uploads`.
macro_rules! select_uploads {
    ($rest:literal, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            UploadRow,
            r#"
            select
                id as "id: UploadId",
                org_id as "org_id: OrgId",
                kind as "kind: UploadKind",
                (
                    case
                        when status in ('pending', 'ready') and expires_at <= now() then 'expired'
                        else status
                    end
                ) as "status!: UploadStatus",
                content_type as "content_type: ContentType",
                content_encoding as "content_encoding: ContentEncoding",
                bytes,
                sha256,
                n_items,
                created_at as "created_at: Timestamp",
                expires_at as "expires_at: Timestamp",
                completed_at as "completed_at: Timestamp",
                error_code as "error_code: UploadFailure",
                error_message
            from uploads
            "# + $rest,
            $($argument),+
        )
    };
}

/// The time in which an upload must be completed.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// A new upload's columns.
pub struct NewUpload<'a> {
    /// The upload's id, made by the caller.
    pub id: &'a UploadId,
    /// The content that it will hold.
    pub kind: UploadKind,
    /// The prediction format.
    pub content_type: ContentType,
    /// The predictions' compression.
    pub content_encoding: ContentEncoding,
    /// The declared byte count, if any.
    pub bytes: Option<i64>,
    /// The bytes' declared SHA-256, in lower-case hex, if any.
    pub sha256: Option<&'a str>,
}

/// Locks creating uploads for the organization until the transaction ends.
pub async fn lock_opening(db: &mut PgConnection, org_id: &OrgId) -> Result<()> {
    sqlx::query!(
        "select pg_advisory_xact_lock(hashtextextended('opening for ' || $1, 0))",
        org_id.as_str()
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Returns the organization's pending upload count, and the first one's expiry:
/// its time, and the seconds until then.
pub async fn open(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
) -> Result<(i64, Option<(Timestamp, u32)>)> {
    let row = sqlx::query!(
        r#"
        select
            count(*) as "open!",
            min(expires_at) as "first: Timestamp",
            now() as "now!: Timestamp"
        from uploads
        where org_id = $1
          and status = 'pending'
          and deleted_at is null
          and expires_at > now()
        "#,
        org_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok((
        row.open,
        row.first.map(|first| (first, row.now.seconds_until(first))),
    ))
}

/// Stores a new upload, which must be completed within `COMPLETION_TIMEOUT`.
pub async fn insert(
    db: &mut PgConnection,
    org_id: &OrgId,
    new: &NewUpload<'_>,
) -> Result<UploadRow> {
    let NewUpload {
        id,
        kind,
        content_type,
        content_encoding,
        bytes,
        sha256,
    } = new;
    sqlx::query!(
        "
        insert into uploads (
            id,
            org_id,
            kind,
            content_type,
            content_encoding,
            bytes,
            sha256,
            expires_at
        )
        values ($2, $1, $3, $4, $5, $6, $7, now() + $8::float8 * interval '1 second')
        ",
        org_id.as_str(),
        id.as_str(),
        *kind as UploadKind,
        *content_type as ContentType,
        *content_encoding as ContentEncoding,
        *bytes,
        *sha256,
        COMPLETION_TIMEOUT.as_secs_f64()
    )
    .execute(&mut *db)
    .await?;
    let row = find(db, org_id, id).await?;
    row.ok_or_else(|| {
        crate::model::error::Error::internal("an upload that was just stored is gone")
    })
}

/// Returns the organization's upload.
pub async fn find(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    upload_id: &UploadId,
) -> Result<Option<UploadRow>> {
    let row = select_uploads!(
        "
        where org_id = $1
          and id = $2
          and deleted_at is null
        ",
        org_id.as_str(),
        upload_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(row)
}

/// Returns the time of an organization's upload, by which listings are ordered, also if it was
/// deleted.
pub async fn created_at(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    upload_id: &UploadId,
) -> Result<Option<Timestamp>> {
    let created_at = sqlx::query_scalar!(
        r#"
        select created_at as "created_at: Timestamp"
        from uploads
        where org_id = $1
          and id = $2
        "#,
        org_id.as_str(),
        upload_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(created_at)
}

/// A page's uploads.
#[derive(Debug, Clone, Copy, Default)]
pub struct Filter<'a> {
    /// Only uploads in this status.
    pub status: Option<UploadStatus>,
    /// The upload's time and id that the page follows.
    pub before: Option<(Timestamp, &'a UploadId)>,
}

/// Returns at most `limit` of the organization's uploads, newest first. Each statement reads an
/// index in page order. The rows that it reads in vain are overdue uploads, which cleanup has not
/// marked as expired yet.
pub async fn list(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    filter: Filter<'_>,
    limit: i64,
) -> Result<Vec<UploadRow>> {
    let Filter { status, before } = filter;
    let (at, id) = before.unzip();
    let rows = match status {
        None => {
            select_uploads!(
                "
                where org_id = $1
                  and deleted_at is null
                  and (created_at, id) < (coalesce($2::timestamptz, 'infinity'), coalesce($3, ''))
                order by created_at desc, id desc
                limit $4
                ",
                org_id.as_str(),
                at as Option<Timestamp>,
                id.map(UploadId::as_str),
                limit
            )
            .fetch_all(db)
            .await?
        }
        Some(UploadStatus::Expired) => {
            select_uploads!(
                "
                join (
                    select b.id as page_id
                    from (
                        (
                            select id, created_at
                            from uploads
                            where org_id = $1
                              and deleted_at is null
                              and status = 'expired'
                              and (created_at, id) < (coalesce($2::timestamptz, 'infinity'), coalesce($3, ''))
                            order by created_at desc, id desc
                            limit $4
                        )
                        union all
                        (
                            select id, created_at
                            from uploads
                            where org_id = $1
                              and deleted_at is null
                              and status in ('pending', 'ready')
                              and expires_at <= now()
                              and (created_at, id) < (coalesce($2, 'infinity'), coalesce($3, ''))
                            order by created_at desc, id desc
                            limit $4
                        )
                    ) b
                    order by b.created_at desc, b.id desc
                    limit $4
                ) page on page_id = id
                where org_id = $1
                order by created_at desc, id desc
                ",
                org_id.as_str(),
                at as Option<Timestamp>,
                id.map(UploadId::as_str),
                limit
            )
            .fetch_all(db)
            .await?
        }
        Some(status) => {
            select_uploads!(
                "
                where org_id = $1
                  and deleted_at is null
                  and status = $5
                  and (status = 'failed' or expires_at > now())
                  and (created_at, id) < (coalesce($2::timestamptz, 'infinity'), coalesce($3, ''))
                order by created_at desc, id desc
                limit $4
                ",
                org_id.as_str(),
                at as Option<Timestamp>,
                id.map(UploadId::as_str),
                limit,
                status as UploadStatus
            )
            .fetch_all(db)
            .await?
        }
    };
    Ok(rows)
}

/// Returns the organization's upload, and locks it until the transaction ends.
pub async fn lock(
    db: &mut PgConnection,
    org_id: &OrgId,
    upload_id: &UploadId,
) -> Result<Option<UploadRow>> {
    let row = select_uploads!(
        "
        where org_id = $1
          and id = $2
          and deleted_at is null
        for update
        ",
        org_id.as_str(),
        upload_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(row)
}

/// An upload's content that was read completely.
pub struct UploadContent<'a> {
    /// Its length.
    pub bytes: i64,
    /// Prediction or sequence count.
    pub n_items: i64,
    /// The content's digest.
    pub digest: &'a [u8; 32],
}

/// Records that the upload was read completely, and can be submitted for `hours` hours. The upload
/// is locked.
pub async fn mark_ready(
    db: &mut PgConnection,
    org_id: &OrgId,
    upload_id: &UploadId,
    read: &UploadContent<'_>,
    hours: u32,
) -> Result<()> {
    let UploadContent {
        bytes,
        n_items,
        digest,
    } = read;
    sqlx::query!(
        "
        update uploads
        set
            status = 'ready',
            bytes = $3,
            n_items = $4,
            digest = $5,
            completed_at = now(),
            expires_at = now() + $6::float8 * interval '1 hour'
        where org_id = $1
          and id = $2
          and status = 'pending'
        ",
        org_id.as_str(),
        upload_id.as_str(),
        bytes,
        n_items,
        *digest,
        f64::from(hours)
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Records that the upload is invalid, and deletes its parts. The upload is locked.
pub async fn fail(
    db: &mut PgConnection,
    org_id: &OrgId,
    upload_id: &UploadId,
    code: UploadFailure,
    message: &str,
) -> Result<()> {
    sqlx::query!(
        "
        update uploads
        set
            status = 'failed',
            error_code = $3,
            error_message = $4,
            failed_at = now()
        where org_id = $1
          and id = $2
          and status = 'pending'
        ",
        org_id.as_str(),
        upload_id.as_str(),
        code as UploadFailure,
        message
    )
    .execute(&mut *db)
    .await?;
    delete_parts(db, org_id, upload_id).await
}

/// Returns `true` if an active job needs the upload.
pub async fn is_needed(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    upload_id: &UploadId,
) -> Result<bool> {
    let needed = sqlx::query_scalar!(
        r#"
        select exists(
            select from jobs
            where org_id = $1
              and upload_id = $2
              and status in ('queued', 'running')
        ) as "needed!"
        "#,
        org_id.as_str(),
        upload_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok(needed)
}

/// Marks the upload as deleted, and deletes its parts. The upload is locked.
pub async fn delete(db: &mut PgConnection, org_id: &OrgId, upload_id: &UploadId) -> Result<()> {
    sqlx::query!(
        "
        update uploads
        set deleted_at = now()
        where org_id = $1
          and id = $2
        ",
        org_id.as_str(),
        upload_id.as_str()
    )
    .execute(&mut *db)
    .await?;
    delete_parts(db, org_id, upload_id).await
}

/// An upload as jobs' input.
pub struct InputRow {
    /// Its content's kind.
    pub kind: UploadKind,
    /// Prediction or sequence count.
    pub n_items: i64,
    /// The content's digest.
    pub digest: Vec<u8>,
    /// `true` if it can be submitted now. A deleted or expired upload's other fields still
    /// identify an earlier submission.
    pub usable: bool,
}

/// Returns the organization's upload that was ready at some time.
pub async fn input(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    upload_id: &UploadId,
) -> Result<Option<InputRow>> {
    let row = sqlx::query_as!(
        InputRow,
        r#"
        select
            kind as "kind: UploadKind",
            n_items as "n_items!",
            digest as "digest!",
            (status = 'ready' and deleted_at is null and expires_at > now()) as "usable!"
        from uploads
        where org_id = $1
          and id = $2
          and n_items is not null
          and digest is not null
        "#,
        org_id.as_str(),
        upload_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(row)
}

/// Returns `true` if the upload can be submitted, and then locks it against deletion until the
/// transaction ends.
pub async fn lock_usable(
    db: &mut PgConnection,
    org_id: &OrgId,
    upload_id: &UploadId,
) -> Result<bool> {
    let locked = sqlx::query!(
        "
        select id
        from uploads
        where org_id = $1
          and id = $2
          and status = 'ready'
          and deleted_at is null
          and expires_at > now()
        for share
        ",
        org_id.as_str(),
        upload_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(locked.is_some())
}
