//! API keys of an organization.

use sqlx::PgExecutor;

use super::PgConnection;
use crate::model::cursor::Page;
use crate::model::error::Result;
use crate::model::ids::{KeyId, OrgId, UserId};
use crate::model::key::{ApiKey, KeyChange, NewKey};
use crate::model::scope::{Scope, Scopes};
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
            scopes as "scopes!: Scopes",
            created_by as "created_by: UserId",
            created_at as "created_at: Timestamp",
            expires_at as "expires_at: Timestamp",
            last_used_at as "last_used_at: Timestamp",
            last_used_address,
            replaces as "replaces: KeyId",
            replaced_by as "replaced_by: KeyId",
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

/// The live keys of an organization at a time.
pub struct LiveKeys {
    /// The number of keys that are neither revoked nor expired.
    pub count: i64,
    /// The time of the database.
    pub now: Timestamp,
}

/// Locks the creation of keys of the organization until the transaction ends, and returns its live
/// keys.
pub async fn lock_live(db: &mut PgConnection, org_id: &OrgId) -> Result<LiveKeys> {
    sqlx::query!(
        "select pg_advisory_xact_lock(hashtextextended('keys of ' || $1, 0))",
        org_id.as_str()
    )
    .execute(&mut *db)
    .await?;
    // A second statement, because the first one sees the snapshot from before it waited for the
    // lock.
    let live = sqlx::query_as!(
        LiveKeys,
        r#"
        select
            count(*) as "count!",
            clock_timestamp() as "now!: Timestamp"
        from api_keys
        where org_id = $1
          and revoked_at is null
          and coalesce(expires_at > clock_timestamp(), true)
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
        insert into api_keys (
            id,
            org_id,
            name,
            prefix,
            secret_hash,
            created_by,
            scopes,
            expires_at,
            replaces
        )
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        returning
            id as "id: KeyId",
            org_id as "org_id: OrgId",
            name,
            prefix,
            scopes as "scopes!: Scopes",
            created_by as "created_by: UserId",
            created_at as "created_at: Timestamp",
            expires_at as "expires_at: Timestamp",
            last_used_at as "last_used_at: Timestamp",
            last_used_address,
            replaces as "replaces: KeyId",
            replaced_by as "replaced_by: KeyId",
            revoked_at as "revoked_at: Timestamp"
        "#,
        new.id.as_str(),
        org_id.as_str(),
        new.name,
        new.secret.prefix(),
        hash.as_bytes(),
        new.created_by.as_str(),
        new.scopes.column() as Option<&[Scope]>,
        new.expires_at as Option<Timestamp>,
        new.replaces.as_ref().map(KeyId::as_str)
    )
    .fetch_one(db)
    .await?;
    Ok(key)
}

/// Locks a key until the transaction ends. Returns the key and the time of the database after the
/// lock, or `None` if the organization has no such key.
pub async fn lock(
    db: &mut PgConnection,
    org_id: &OrgId,
    key_id: &KeyId,
) -> Result<Option<(ApiKey, Timestamp)>> {
    let key = sqlx::query_as!(
        ApiKey,
        r#"
        select
            id as "id: KeyId",
            org_id as "org_id: OrgId",
            name,
            prefix,
            scopes as "scopes!: Scopes",
            created_by as "created_by: UserId",
            created_at as "created_at: Timestamp",
            expires_at as "expires_at: Timestamp",
            last_used_at as "last_used_at: Timestamp",
            last_used_address,
            replaces as "replaces: KeyId",
            replaced_by as "replaced_by: KeyId",
            revoked_at as "revoked_at: Timestamp"
        from api_keys
        where org_id = $1
          and id = $2
        for no key update
        "#,
        org_id.as_str(),
        key_id.as_str()
    )
    .fetch_optional(&mut *db)
    .await?;
    let Some(key) = key else { return Ok(None) };
    // A second statement, because the first one may have waited for the lock.
    let now = sqlx::query_scalar!(r#"select clock_timestamp() as "now!: Timestamp""#)
        .fetch_one(db)
        .await?;
    Ok(Some((key, now)))
}

/// Changes a key. The caller holds the lock on it.
pub async fn update(
    db: &mut PgConnection,
    org_id: &OrgId,
    key_id: &KeyId,
    change: &KeyChange,
) -> Result<ApiKey> {
    let KeyChange {
        name,
        scopes,
        expires_at,
        replaced_by,
        revoke,
    } = change;
    let key = sqlx::query_as!(
        ApiKey,
        r#"
        update api_keys
        set
            name = coalesce($3, name),
            scopes = case when $4 then $5::text[] else scopes end,
            expires_at = coalesce($6, expires_at),
            replaced_by = coalesce($7, replaced_by),
            revoked_at = case when $8 then coalesce(revoked_at, clock_timestamp()) else revoked_at end
        where org_id = $1
          and id = $2
        returning
            id as "id: KeyId",
            org_id as "org_id: OrgId",
            name,
            prefix,
            scopes as "scopes!: Scopes",
            created_by as "created_by: UserId",
            created_at as "created_at: Timestamp",
            expires_at as "expires_at: Timestamp",
            last_used_at as "last_used_at: Timestamp",
            last_used_address,
            replaces as "replaces: KeyId",
            replaced_by as "replaced_by: KeyId",
            revoked_at as "revoked_at: Timestamp"
        "#,
        org_id.as_str(),
        key_id.as_str(),
        name.as_deref(),
        scopes.is_some(),
        scopes.as_ref().and_then(Scopes::column) as Option<&[Scope]>,
        *expires_at as Option<Timestamp>,
        replaced_by.as_ref().map(KeyId::as_str),
        *revoke
    )
    .fetch_one(db)
    .await?;
    Ok(key)
}
