//! Uploads and their parts.

use sqlx::PgExecutor;

use super::PgConnection;
use crate::model::error::Result;
use crate::model::ids::{OrgId, UploadId};
use crate::model::timestamp::Timestamp;
use crate::model::upload::{
    ContentEncoding, ContentType, Part, UploadFailure, UploadKind, UploadRow, UploadStatus,
};
use crate::runtime::upload_reader::PartObject;

/// Selects uploads as callers see them; what follows `from uploads` is the statement's own.
macro_rules! select_uploads {
    ($rest:literal, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            UploadRow,
            r#"select id as "id: UploadId", org_id as "org_id: OrgId", kind as "kind: UploadKind",
                  (case when status in ('pending', 'ready') and expires_at <= now() then 'expired' else status end) as "status!: UploadStatus",
                  content_type as "content_type: ContentType", content_encoding as "content_encoding: ContentEncoding", bytes, sha256, n_items,
                  created_at as "created_at: Timestamp", expires_at as "expires_at: Timestamp", completed_at as "completed_at: Timestamp",
                  error_code as "error_code: UploadFailure", error_message
           from uploads "# + $rest,
            $($argument),+
        )
    };
}

/// What is stored of a new upload.
pub struct NewUpload<'a> {
    /// Its id, made by the caller.
    pub id: &'a UploadId,
    /// What it will hold.
    pub kind: UploadKind,
    /// How the predictions will be written.
    pub content_type: ContentType,
    /// How they will be compressed.
    pub content_encoding: ContentEncoding,
    /// How many bytes will be sent.
    pub bytes: Option<i64>,
    /// Their SHA-256, in lower case hex.
    pub sha256: Option<&'a str>,
}

/// From here to the end of the transaction nobody else opens an upload for the organization.
pub async fn lock_opening(db: &mut PgConnection, org_id: &OrgId) -> Result<()> {
    sqlx::query!(
        "select pg_advisory_xact_lock(hashtextextended('opening for ' || $1, 0))",
        org_id.as_str()
    )
    .execute(db)
    .await?;
    Ok(())
}

/// How many uploads of the organization wait for their parts, and when the first of them expires: the moment, and in how
/// many seconds.
pub async fn open(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
) -> Result<(i64, Option<(Timestamp, u32)>)> {
    let row = sqlx::query!(
        r#"select count(*) as "open!", min(expires_at) as "first: Timestamp", now() as "now!: Timestamp"
           from uploads where org_id = $1 and status = 'pending' and deleted_at is null and expires_at > now()"#,
        org_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok((
        row.open,
        row.first.map(|first| (first, row.now.seconds_until(first))),
    ))
}

/// Stores a new upload, which must be completed within 24 hours.
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
        "insert into uploads (id, org_id, kind, content_type, content_encoding, bytes, sha256, expires_at)
         values ($2, $1, $3, $4, $5, $6, $7, now() + interval '24 hours')",
        org_id.as_str(),
        id.as_str(),
        *kind as UploadKind,
        *content_type as ContentType,
        *content_encoding as ContentEncoding,
        *bytes,
        *sha256
    )
    .execute(&mut *db)
    .await?;
    let row = find(db, org_id, id).await?;
    row.ok_or_else(|| {
        crate::model::error::Error::internal("an upload that was just stored is gone")
    })
}

/// An upload of the organization.
pub async fn find(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    upload_id: &UploadId,
) -> Result<Option<UploadRow>> {
    let row = select_uploads!(
        "where org_id = $1 and id = $2 and deleted_at is null",
        org_id.as_str(),
        upload_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(row)
}

/// An upload of the organization, which nobody else changes until the end of the transaction.
pub async fn lock(
    db: &mut PgConnection,
    org_id: &OrgId,
    upload_id: &UploadId,
) -> Result<Option<UploadRow>> {
    let row = select_uploads!(
        "where org_id = $1 and id = $2 and deleted_at is null for update",
        org_id.as_str(),
        upload_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(row)
}

/// The parts that were received, by number.
pub async fn parts(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    upload_id: &UploadId,
) -> Result<Vec<Part>> {
    let parts = sqlx::query_as!(
        Part,
        r#"select number, bytes, sha256, received_at as "received_at: Timestamp"
           from upload_parts where org_id = $1 and upload_id = $2 order by number"#,
        org_id.as_str(),
        upload_id.as_str()
    )
    .fetch_all(db)
    .await?;
    Ok(parts)
}

/// The same as objects. No two of an upload's parts ever had the same name.
pub async fn part_objects(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    upload_id: &UploadId,
) -> Result<Vec<PartObject>> {
    let parts = sqlx::query_as!(
        PartObject,
        "select number, object_key, bytes from upload_parts where org_id = $1 and upload_id = $2 order by number",
        org_id.as_str(),
        upload_id.as_str()
    )
    .fetch_all(db)
    .await?;
    Ok(parts)
}

/// How many bytes of an upload were received.
pub struct Received {
    /// Those of one part, if it was received before.
    pub part: i64,
    /// Those of all others.
    pub others: i64,
}

/// How many bytes were received, of one part and of the others.
pub async fn received(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    upload_id: &UploadId,
    number: i32,
) -> Result<Received> {
    let received = sqlx::query_as!(
        Received,
        r#"select coalesce(sum(bytes) filter (where number = $3), 0)::bigint as "part!",
                  coalesce(sum(bytes) filter (where number <> $3), 0)::bigint as "others!"
           from upload_parts where org_id = $1 and upload_id = $2"#,
        org_id.as_str(),
        upload_id.as_str(),
        number
    )
    .fetch_one(db)
    .await?;
    Ok(received)
}

/// Notes a part that was received, and returns the name of the object that it replaces. The upload is locked.
pub async fn put_part(
    db: &mut PgConnection,
    org_id: &OrgId,
    upload_id: &UploadId,
    part: &PartObject,
    sha256: &str,
) -> Result<(Part, Option<String>)> {
    let PartObject {
        number,
        object_key,
        bytes,
    } = part;
    let row = sqlx::query!(
        r#"with before as (
             select object_key from upload_parts where org_id = $1 and upload_id = $2 and number = $3
         )
         insert into upload_parts (org_id, upload_id, number, object_key, bytes, sha256) values ($1, $2, $3, $4, $5, $6)
         on conflict (upload_id, number) do update
             set object_key = excluded.object_key, bytes = excluded.bytes, sha256 = excluded.sha256, received_at = excluded.received_at
         returning received_at as "received_at: Timestamp", (select object_key from before) as replaced"#,
        org_id.as_str(),
        upload_id.as_str(),
        number,
        object_key,
        bytes,
        sha256
    )
    .fetch_one(db)
    .await?;
    let part = Part {
        number: *number,
        bytes: *bytes,
        sha256: sha256.to_owned(),
        received_at: row.received_at,
    };
    Ok((part, row.replaced))
}

/// What was found in an upload that was read through.
pub struct ReadThrough<'a> {
    /// Its length.
    pub bytes: i64,
    /// The number of its predictions.
    pub n_items: i64,
    /// The digest of its content.
    pub digest: &'a [u8; 32],
}

/// Records that the upload was read through, and can be submitted for so many hours. It is locked.
pub async fn ready(
    db: &mut PgConnection,
    org_id: &OrgId,
    upload_id: &UploadId,
    read: &ReadThrough<'_>,
    hours: u32,
) -> Result<()> {
    let ReadThrough {
        bytes,
        n_items,
        digest,
    } = read;
    sqlx::query!(
        "update uploads set status = 'ready', bytes = $3, n_items = $4, digest = $5, completed_at = now(),
                expires_at = now() + $6::float8 * interval '1 hour'
         where org_id = $1 and id = $2 and status = 'pending'",
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

/// The upload is not what it should be; its parts count no more. It is locked.
pub async fn fail(
    db: &mut PgConnection,
    org_id: &OrgId,
    upload_id: &UploadId,
    code: UploadFailure,
    message: &str,
) -> Result<()> {
    sqlx::query!(
        "update uploads set status = 'failed', error_code = $3, error_message = $4, failed_at = now()
         where org_id = $1 and id = $2 and status = 'pending'",
        org_id.as_str(),
        upload_id.as_str(),
        code as UploadFailure,
        message
    )
    .execute(&mut *db)
    .await?;
    forget_parts(db, org_id, upload_id).await
}

/// Whether a job that waits or runs needs the upload.
pub async fn is_needed(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    upload_id: &UploadId,
) -> Result<bool> {
    let needed = sqlx::query_scalar!(
        r#"select exists(select from jobs where org_id = $1 and upload_id = $2 and status in ('queued', 'running')) as "needed!""#,
        org_id.as_str(),
        upload_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok(needed)
}

/// The upload is there no more. It is locked.
pub async fn delete(db: &mut PgConnection, org_id: &OrgId, upload_id: &UploadId) -> Result<()> {
    sqlx::query!(
        "update uploads set deleted_at = now() where org_id = $1 and id = $2",
        org_id.as_str(),
        upload_id.as_str()
    )
    .execute(&mut *db)
    .await?;
    forget_parts(db, org_id, upload_id).await
}

async fn forget_parts(db: &mut PgConnection, org_id: &OrgId, upload_id: &UploadId) -> Result<()> {
    sqlx::query!(
        "delete from upload_parts where org_id = $1 and upload_id = $2",
        org_id.as_str(),
        upload_id.as_str()
    )
    .execute(db)
    .await?;
    Ok(())
}

/// An upload as an input of jobs.
pub struct InputRow {
    /// How many predictions it holds.
    pub n_items: i64,
    /// The digest of its content.
    pub digest: Vec<u8>,
    /// Whether it can be submitted now. One that was dropped or has expired still tells what was once submitted.
    pub usable: bool,
}

/// An upload of the organization that was ready once.
pub async fn input(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    upload_id: &UploadId,
) -> Result<Option<InputRow>> {
    let row = sqlx::query_as!(
        InputRow,
        r#"select n_items as "n_items!", digest as "digest!",
                  (status = 'ready' and deleted_at is null and expires_at > now()) as "usable!"
           from uploads where org_id = $1 and id = $2 and n_items is not null and digest is not null"#,
        org_id.as_str(),
        upload_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(row)
}

/// Whether the upload can be submitted; if so nobody takes it away before the end of the transaction.
pub async fn hold(db: &mut PgConnection, org_id: &OrgId, upload_id: &UploadId) -> Result<bool> {
    let held = sqlx::query!(
        "select id from uploads where org_id = $1 and id = $2 and status = 'ready' and deleted_at is null and expires_at > now() for share",
        org_id.as_str(),
        upload_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(held.is_some())
}
