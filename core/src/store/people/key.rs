//! An organization's API keys.

use sqlx::PgExecutor;

use crate::model::audit::{Actor, AuditType, Change};
use crate::model::cursor::Page;
use crate::model::error::Result;
use crate::model::event::EventType;
use crate::model::ids::{KeyId, OrgId, UserId};
use crate::model::key::{ApiKey, EXPIRY_ANNOUNCED, KeyChange, NewKey};
use crate::model::scope::{Scope, Scopes};
use crate::model::timestamp::Timestamp;
use crate::store::{PgConnection, audit, event, now};

/// Queries keys as their organization sees them. The columns stand between `$before` and `$after`.
macro_rules! query_keys {
    ($before:literal, $after:literal, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            ApiKey,
            $before
                + r#"
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
            "# + $after,
            $($argument),+
        )
    };
}

/// Returns an organization's key, also a revoked one.
pub async fn find(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    key_id: &KeyId,
) -> Result<Option<ApiKey>> {
    let key = query_keys!(
        r#"
        select
            "#,
        r#"
        from api_keys
        where org_id = $1
          and id = $2
        "#,
        org_id.as_str(),
        key_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(key)
}

/// Returns a page with an organization's keys, newest first.
pub async fn list(db: impl PgExecutor<'_>, org_id: &OrgId, page: &Page) -> Result<Vec<ApiKey>> {
    let keys = query_keys!(
        r#"
        select
            "#,
        r#"
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

/// An organization's live keys at a time.
pub struct LiveKeys {
    /// Keys that are neither revoked nor expired.
    pub count: i64,
    /// The database's time.
    pub now: Timestamp,
}

/// Locks creating keys for the organization until the transaction ends, and returns its live
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
    live(db, org_id).await
}

/// Returns the organization's live keys.
pub async fn live(db: impl PgExecutor<'_>, org_id: &OrgId) -> Result<LiveKeys> {
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

/// Stores a new key; only the prefix and the hash are stored.
pub async fn insert(db: impl PgExecutor<'_>, org_id: &OrgId, new: &NewKey) -> Result<ApiKey> {
    let hash = new.secret.hash();
    let key = query_keys!(
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
            "#,
        "",
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

/// Stores a new key, with its audit log entry and its event.
pub async fn create(
    db: &mut PgConnection,
    org_id: &OrgId,
    new: &NewKey,
    actor: &Actor,
) -> Result<ApiKey> {
    let key = insert(&mut *db, org_id, new).await?;
    let created = Change::key(AuditType::KeyCreated, &key.id)
        .field("name", (), &key.name)
        .field("scopes", (), &key.scopes)
        .field("expires_at", (), key.expires_at);
    audit::record(db, org_id, actor, &[created]).await?;
    event::insert(db, org_id, EventType::KeyCreated, &key).await?;
    Ok(key)
}

/// Revokes a key, with its audit log entry and its event. Revoking it again changes nothing.
/// Returns `None` if the organization has no such key.
pub async fn revoke(
    db: &mut PgConnection,
    org_id: &OrgId,
    key_id: &KeyId,
    actor: &Actor,
) -> Result<Option<ApiKey>> {
    let Some((key, _)) = lock(&mut *db, org_id, key_id).await? else {
        return Ok(None);
    };
    if key.revoked_at.is_some() {
        return Ok(Some(key));
    }
    let revoked = KeyChange {
        revoke: true,
        ..KeyChange::default()
    };
    let key = update(&mut *db, org_id, key_id, &revoked).await?;
    let revoked =
        Change::key(AuditType::KeyRevoked, key_id).field("revoked_at", (), key.revoked_at);
    audit::record(db, org_id, actor, &[revoked]).await?;
    event::insert(db, org_id, EventType::KeyRevoked, &key).await?;
    Ok(Some(key))
}

/// Locks a key until the transaction ends. Returns the key and the database's time after the
/// lock, or `None` if the organization has no such key.
pub async fn lock(
    db: &mut PgConnection,
    org_id: &OrgId,
    key_id: &KeyId,
) -> Result<Option<(ApiKey, Timestamp)>> {
    let key = query_keys!(
        r#"
        select
            "#,
        r#"
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
    Ok(Some((key, now(db).await?)))
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
    let key = query_keys!(
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
            "#,
        "",
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

/// The days before a key's expiry at which notices are sent.
const NOTICE_DAYS: [i32; 3] = [14, 7, 1];

/// Records that notices about expiring keys are sent, and returns these keys; at most `limit`. A
/// notice is sent once, and only if its day came after the key's creation. Keys that were replaced
/// or revoked have none.
pub async fn take_expiring(db: &mut PgConnection, limit: i64) -> Result<Vec<(OrgId, KeyId)>> {
    let rows = sqlx::query!(
        r#"
        /* all tenants: sends the notices of every organization */
        with due as (
            select k.id, d.days
            from api_keys k
            join orgs o on o.id = k.org_id
            cross join lateral (
                select min(days) as days
                from unnest($1::integer[]) as n (days)
                where k.expires_at <= now() + days * interval '1 day'
                  and k.created_at < k.expires_at - days * interval '1 day'
            ) d
            where k.expires_at between now() and now() + $3::float8 * interval '1 second'
              and k.revoked_at is null
              and k.replaced_by is null
              and o.suspended_at is null
              and d.days < coalesce(k.expiry_notice_days, d.days + 1)
            order by k.id
            limit $2
            for update of k skip locked
        )
        update api_keys k
        set expiry_notice_days = d.days
        from due d
        where k.id = d.id
        returning
            k.org_id as "org_id: OrgId",
            k.id as "id: KeyId"
        "#,
        &NOTICE_DAYS,
        limit,
        EXPIRY_ANNOUNCED.as_secs_f64()
    )
    .fetch_all(db)
    .await?;
    let keys = rows.into_iter().map(|row| (row.org_id, row.id));
    Ok(keys.collect())
}

/// Returns the addresses that get key notices: the organization's owners', and those of the keys'
/// creators who are members.
pub async fn notified_addresses(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    creators: &[&UserId],
) -> Result<Vec<String>> {
    let creators: Vec<&str> = creators.iter().map(|user_id| user_id.as_str()).collect();
    let addresses = sqlx::query_scalar!(
        "
        select u.email
        from memberships m
        join users u on u.id = m.user_id
        where m.org_id = $1
          and (m.role = 'owner' or m.user_id = any($2))
        order by u.email
        ",
        org_id.as_str(),
        &creators as &[&str]
    )
    .fetch_all(db)
    .await?;
    Ok(addresses)
}
