//! API keys of an organization.

use sqlx::PgExecutor;

use super::PgConnection;
use crate::model::cursor::Page;
use crate::model::error::Result;
use crate::model::ids::{KeyId, OrgId, UserId};
use crate::model::key::{ApiKey, NewKey};
use crate::model::timestamp::Timestamp;

/// Returns a page of the keys of an organization, newest first.
pub async fn list(db: impl PgExecutor<'_>, org_id: &OrgId, page: &Page) -> Result<Vec<ApiKey>> {
    let keys = sqlx::query_as!(
        ApiKey,
        r#"
        select
            id as "id: KeyId",
            org_id as "org_id: OrgId",
            name,
            prefix,
            created_by as "created_by: UserId",
            created_at as "created_at: Timestamp",
            last_used_at as "last_used_at: Timestamp",
            revoked_at as "revoked_at: Timestamp"
        from api_keys
        where org_id = $1
          and (created_at, id) < (coalesce($2::timestamptz, 'infinity'), coalesce($3, ''))
        order by created_at desc, id desc
        limit $4
        "#,
        org_id.as_str(),
        page.at as Option<Timestamp>,
        page.id.as_deref(),
        page.rows()
    )
    .fetch_all(db)
    .await?;
    Ok(keys)
}

/// Locks the creation of keys of the organization until the transaction ends, and returns the
/// number of its live keys.
pub async fn lock_live(db: &mut PgConnection, org_id: &OrgId) -> Result<i64> {
    sqlx::query!(
        "select pg_advisory_xact_lock(hashtextextended('keys of ' || $1, 0))",
        org_id.as_str()
    )
    .execute(&mut *db)
    .await?;
    // A second statement, because the first one sees the snapshot from before it waited for the
    // lock.
    let live = sqlx::query_scalar!(
        r#"
        select count(*) as "live!"
        from api_keys
        where org_id = $1
          and revoked_at is null
        "#,
        org_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok(live)
}

/// Stores a new key, of which only the prefix and the hash are stored.
pub async fn insert(db: impl PgExecutor<'_>, org_id: &OrgId, new: &NewKey) -> Result<ApiKey> {
    let hash = new.secret.hash();
    let key = sqlx::query_as!(
        ApiKey,
        r#"
        insert into api_keys (id, org_id, name, prefix, secret_hash, created_by)
        values ($1, $2, $3, $4, $5, $6)
        returning
            id as "id: KeyId",
            org_id as "org_id: OrgId",
            name,
            prefix,
            created_by as "created_by: UserId",
            created_at as "created_at: Timestamp",
            last_used_at as "last_used_at: Timestamp",
            revoked_at as "revoked_at: Timestamp"
        "#,
        new.id.as_str(),
        org_id.as_str(),
        new.name,
        new.secret.prefix(),
        hash.as_bytes(),
        new.created_by.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok(key)
}

/// Revokes a key. Idempotent: the first time of revocation stays. Returns `None` if the
/// organization has no such key.
pub async fn revoke(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    key_id: &KeyId,
) -> Result<Option<ApiKey>> {
    let key = sqlx::query_as!(
        ApiKey,
        r#"
        update api_keys
        set revoked_at = coalesce(revoked_at, now())
        where org_id = $1
          and id = $2
        returning
            id as "id: KeyId",
            org_id as "org_id: OrgId",
            name,
            prefix,
            created_by as "created_by: UserId",
            created_at as "created_at: Timestamp",
            last_used_at as "last_used_at: Timestamp",
            revoked_at as "revoked_at: Timestamp"
        "#,
        org_id.as_str(),
        key_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(key)
}
