//! The received parts of uploads.

use sqlx::PgExecutor;

use crate::model::error::Result;
use crate::model::ids::{OrgId, UploadId};
use crate::model::timestamp::Timestamp;
use crate::model::upload::{Part, PartObject};
use crate::store::PgConnection;

/// Returns the received parts by number.
pub async fn parts(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    upload_id: &UploadId,
) -> Result<Vec<Part>> {
    let parts = sqlx::query_as!(
        Part,
        r#"
        select
            number,
            bytes,
            sha256,
            received_at as "received_at: Timestamp"
        from upload_parts
        where org_id = $1
          and upload_id = $2
        order by number
        "#,
        org_id.as_str(),
        upload_id.as_str()
    )
    .fetch_all(db)
    .await?;
    Ok(parts)
}

/// Returns the received parts' objects by number. No two upload parts ever had the same
/// object key.
pub async fn part_objects(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    upload_id: &UploadId,
) -> Result<Vec<PartObject>> {
    let parts = sqlx::query_as!(
        PartObject,
        "
        select
            number,
            object_key,
            bytes
        from upload_parts
        where org_id = $1
          and upload_id = $2
        order by number
        ",
        org_id.as_str(),
        upload_id.as_str()
    )
    .fetch_all(db)
    .await?;
    Ok(parts)
}

/// An upload's received bytes.
pub struct Received {
    /// One part's bytes, if it was received before.
    pub part: i64,
    /// All other parts' bytes.
    pub others: i64,
}

/// Returns one part's received bytes and the others'.
pub async fn received(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    upload_id: &UploadId,
    number: i32,
) -> Result<Received> {
    let received = sqlx::query_as!(
        Received,
        r#"
        select
            coalesce(sum(bytes) filter (where number = $3), 0)::bigint as "part!",
            coalesce(sum(bytes) filter (where number <> $3), 0)::bigint as "others!"
        from upload_parts
        where org_id = $1
          and upload_id = $2
        "#,
        org_id.as_str(),
        upload_id.as_str(),
        number
    )
    .fetch_one(db)
    .await?;
    Ok(received)
}

/// Records a received part, and returns the object key that it replaces. The upload is
/// locked.
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
        r#"
        with before as (
            select object_key
            from upload_parts
            where org_id = $1
              and upload_id = $2
              and number = $3
        )
        insert into upload_parts (org_id, upload_id, number, object_key, bytes, sha256)
        values ($1, $2, $3, $4, $5, $6)
        on conflict (upload_id, number) do update
            set
                object_key = excluded.object_key,
                bytes = excluded.bytes,
                sha256 = excluded.sha256,
                received_at = excluded.received_at
        returning
            received_at as "received_at: Timestamp",
            (select object_key from before) as replaced
        "#,
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

/// Deletes the received parts. The upload is locked.
pub(super) async fn delete_parts(
    db: &mut PgConnection,
    org_id: &OrgId,
    upload_id: &UploadId,
) -> Result<()> {
    sqlx::query!(
        "delete from upload_parts where org_id = $1 and upload_id = $2",
        org_id.as_str(),
        upload_id.as_str()
    )
    .execute(db)
    .await?;
    Ok(())
}
