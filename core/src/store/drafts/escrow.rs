//! Draft files. The API's role can insert them, and the checker's role can read and delete them.

use bytes::{BufMut as _, BytesMut};

use crate::model::error::{Error, Result};
use crate::model::ids::{DraftId, OrgId};
use crate::store::PgConnection;

/// A chunk's maximum size, in bytes.
pub const CHUNK_MAX: usize = 1024 * 1024;

/// A part's place, which all its chunks have.
#[derive(Debug, Clone, Copy)]
pub struct ChunkPlace<'a> {
    /// The draft.
    pub draft_id: &'a DraftId,
    /// The file's name.
    pub name: &'a str,
    /// The part's random id.
    pub part_id: &'a str,
    /// The definition's keyed hash, in lower-case hex.
    pub definition_hmac: &'a str,
}

/// The bytes before a binary copy's rows: the signature, no flags, no extension.
const COPY_HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// A chunk's column count.
const COLUMNS: i16 = 7;

/// Stores a part from the chunk with number `first` on, in chunks of at most [`CHUNK_MAX`] bytes, and returns the next number.
///
/// PostgreSQL can log statement parameters, so the data are none: they are copied.
pub async fn insert(
    db: &mut PgConnection,
    org_id: &OrgId,
    place: ChunkPlace<'_>,
    first: i32,
    data: &[u8],
) -> Result<i32> {
    let ChunkPlace {
        draft_id,
        name,
        part_id,
        definition_hmac,
    } = place;
    let mut copy = db
        .copy_in_raw(
            "copy escrow_chunks (org_id, draft_id, name, part_id, seq, definition_hmac, data) from stdin (format binary)",
        )
        .await?;
    let mut header = COPY_HEADER;
    let mut seq = first;
    // An empty part has one chunk too.
    let mut chunks = data.chunks(CHUNK_MAX);
    let mut next = Some(chunks.next().unwrap_or_default());
    while let Some(chunk) = next {
        let mut row = BytesMut::with_capacity(chunk.len() + 1024);
        row.put_slice(std::mem::take(&mut header));
        row.put_i16(COLUMNS);
        for text in [org_id.as_str(), draft_id.as_str(), name, part_id] {
            put_field(&mut row, text.as_bytes())?;
        }
        put_field(&mut row, &seq.to_be_bytes())?;
        put_field(&mut row, definition_hmac.as_bytes())?;
        put_field(&mut row, chunk)?;
        if let Err(error) = copy.send(row.freeze()).await {
            copy.abort("a chunk was not sent").await?;
            return Err(error.into());
        }
        seq += 1;
        next = chunks.next();
    }
    // The rows end.
    copy.send((-1_i16).to_be_bytes().as_slice()).await?;
    copy.finish().await?;
    Ok(seq)
}

/// Writes a row's field: its length, then its bytes.
fn put_field(row: &mut BytesMut, bytes: &[u8]) -> Result<()> {
    row.put_i32(i32::try_from(bytes.len()).map_err(Error::internal)?);
    row.put_slice(bytes);
    Ok(())
}

/// Returns the chunk with this number in a draft's part, or `None` after the last one. A chunk that belongs to another organization, file or
/// definition does not count.
pub async fn chunk(
    db: &mut PgConnection,
    org_id: &OrgId,
    place: ChunkPlace<'_>,
    seq: i32,
) -> Result<Option<Vec<u8>>> {
    let data = sqlx::query_scalar!(
        r#"
        select data as "data!"
        from escrow_chunks
        where org_id = $1
          and draft_id = $2
          and name = $3
          and part_id = $4
          and definition_hmac = $5
          and seq = $6
        "#,
        org_id.as_str(),
        place.draft_id.as_str(),
        place.name,
        place.part_id,
        place.definition_hmac,
        seq
    )
    .fetch_optional(db)
    .await?;
    Ok(data)
}

/// Returns the first chunk of each part with this name that belongs to a draft, with the id of the part. An attacker who can insert rows can
/// add some, so the caller chooses by their content.
pub async fn rows_named(
    db: &mut PgConnection,
    org_id: &OrgId,
    draft_id: &DraftId,
    name: &str,
) -> Result<Vec<(String, Vec<u8>)>> {
    let rows = sqlx::query!(
        r#"
        select part_id as "part_id!", data as "data!"
        from escrow_chunks
        where org_id = $1
          and draft_id = $2
          and name = $3
          and seq = 0
        order by part_id
        limit 10
        "#,
        org_id.as_str(),
        draft_id.as_str(),
        name
    )
    .fetch_all(db)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.part_id, row.data))
        .collect())
}

/// Deletes a draft's files.
pub async fn delete(db: &mut PgConnection, org_id: &OrgId, draft_id: &DraftId) -> Result<()> {
    sqlx::query!(
        "
        delete from escrow_chunks
        where org_id = $1
          and draft_id = $2
        ",
        org_id.as_str(),
        draft_id.as_str()
    )
    .execute(&mut *db)
    .await?;
    sqlx::query!(
        "
        delete from draft_parts
        where org_id = $1
          and draft_id = $2
        ",
        org_id.as_str(),
        draft_id.as_str()
    )
    .execute(db)
    .await?;
    Ok(())
}
