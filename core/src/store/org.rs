//! Organizations, people and sessions.

use sqlx::PgExecutor;

use super::PgConnection;
use crate::model::error::Result;
use crate::model::ids::{OrgId, SessionId, UserId};
use crate::model::org::{DataUse, Org, OrgChoice, Role};
use crate::model::secret::SecretHash;
use crate::model::timestamp::Timestamp;

/// The largest number of organizations that are listed for a user.
pub const LISTED_MAX: i64 = 200;

/// The organizations that a user belongs to, the oldest membership first; at most [`LISTED_MAX`].
pub async fn of_user(db: impl PgExecutor<'_>, user_id: &UserId) -> Result<Vec<Org>> {
    let orgs = sqlx::query_as!(
        Org,
        r#"select o.id as "id: OrgId", o.name, o.plan, o.data_use as "data_use: DataUse", m.role as "role: Role", o.created_at as "created_at: Timestamp"
           from memberships m join orgs o on o.id = m.org_id
           where m.user_id = $1 order by m.created_at, m.org_id limit $2"#,
        user_id.as_str(),
        LISTED_MAX
    )
    .fetch_all(db)
    .await?;
    Ok(orgs)
}

/// Organizations among which a user chooses: as many as fit into an error.
pub async fn choices(db: impl PgExecutor<'_>, user_id: &UserId) -> Result<Vec<OrgChoice>> {
    let orgs = sqlx::query_as!(
        OrgChoice,
        r#"select o.id as "id: OrgId", o.name from memberships m join orgs o on o.id = m.org_id
           where m.user_id = $1 order by m.by_invite, m.created_at, m.org_id limit 20"#,
        user_id.as_str()
    )
    .fetch_all(db)
    .await?;
    Ok(orgs)
}

/// Stores a new organization, and returns it as its owner sees it. `created_by` is the user who creates it for themselves;
/// none, if the operator does.
pub async fn insert(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    name: &str,
    plan: &str,
    created_by: Option<&UserId>,
) -> Result<Org> {
    let org = sqlx::query_as!(
        Org,
        r#"insert into orgs (id, name, plan, created_by) values ($1, $2, $3, $4)
           returning id as "id: OrgId", name, plan, data_use as "data_use: DataUse", 'owner' as "role!: Role", created_at as "created_at: Timestamp""#,
        org_id.as_str(),
        name,
        plan,
        created_by.map(UserId::as_str)
    )
    .fetch_one(db)
    .await?;
    Ok(org)
}

/// Changes an organization, and returns it as its owner sees it. What is not given stays. `None` when there is none.
pub async fn update(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    name: Option<&str>,
    data_use: Option<DataUse>,
) -> Result<Option<Org>> {
    let org = sqlx::query_as!(
        Org,
        r#"update orgs set name = coalesce($2, name), data_use = coalesce($3, data_use) where id = $1
           returning id as "id: OrgId", name, plan, data_use as "data_use: DataUse", 'owner' as "role!: Role", created_at as "created_at: Timestamp""#,
        org_id.as_str(),
        name,
        data_use.map(DataUse::as_str)
    )
    .fetch_optional(db)
    .await?;
    Ok(org)
}

/// The name of an organization. `None` if there is none, or it was deleted.
pub async fn find_name(db: impl PgExecutor<'_>, org_id: &OrgId) -> Result<Option<String>> {
    let name = sqlx::query_scalar!(
        "select name from orgs where id = $1 and deleted_at is null",
        org_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(name)
}

/// The name of an organization.
pub async fn name(db: impl PgExecutor<'_>, org_id: &OrgId) -> Result<String> {
    let name = sqlx::query_scalar!("select name from orgs where id = $1", org_id.as_str())
        .fetch_one(db)
        .await?;
    Ok(name)
}

/// Whether a user owns an organization.
pub async fn owns_any(db: impl PgExecutor<'_>, user_id: &UserId) -> Result<bool> {
    let owns = sqlx::query_scalar!(
        r#"select exists(select from memberships where user_id = $1 and role = 'owner') as "owns!""#,
        user_id.as_str()
    );
    Ok(owns.fetch_one(db).await?)
}

/// How many organizations a user has created, whoever owns them now. Until the transaction ends nobody else can count them, so
/// that two requests of one user create one after the other.
pub async fn lock_created(db: &mut PgConnection, user_id: &UserId) -> Result<i64> {
    // An advisory lock, because one on the user's row needs a right to update it.
    sqlx::query!(
        "select pg_advisory_xact_lock(hashtextextended('organizations of ' || $1, 0))",
        user_id.as_str()
    )
    .execute(&mut *db)
    .await?;
    let created = sqlx::query_scalar!(
        r#"select count(*) as "created!" from orgs where created_by = $1"#,
        user_id.as_str()
    );
    Ok(created.fetch_one(db).await?)
}

/// The user with this address; `fresh` is their id if they are new. The address must be in its one form. Until the transaction ends
/// the address is not erased.
pub async fn user(db: &mut PgConnection, email: &str, fresh: &UserId) -> Result<UserId> {
    sqlx::query!(
        "select pg_advisory_xact_lock_shared(hashtextextended('user ' || $1, 0))",
        email
    )
    .execute(&mut *db)
    .await?;
    let inserted = sqlx::query_scalar!(
        r#"insert into users (id, email) values ($1, $2) on conflict (email) do nothing returning id as "id: UserId""#,
        fresh.as_str(),
        email
    );
    if let Some(id) = inserted.fetch_optional(&mut *db).await? {
        return Ok(id);
    }
    // A statement of its own: the one before may have waited for the insert of another transaction, which it does not see.
    let found = sqlx::query_scalar!(
        r#"select id as "id: UserId" from users where email = $1"#,
        email
    );
    Ok(found.fetch_one(db).await?)
}

/// Locks an address until the transaction ends: nobody signs in with it meanwhile.
pub async fn lock_address(db: &mut PgConnection, email: &str) -> Result<()> {
    sqlx::query!(
        "select pg_advisory_xact_lock(hashtextextended('user ' || $1, 0))",
        email
    )
    .execute(db)
    .await?;
    Ok(())
}

/// The address of a user.
pub async fn email(db: impl PgExecutor<'_>, user_id: &UserId) -> Result<String> {
    let email = sqlx::query_scalar!("select email from users where id = $1", user_id.as_str())
        .fetch_one(db)
        .await?;
    Ok(email)
}

/// The person with this address, if there is one.
pub async fn find_user(db: impl PgExecutor<'_>, email: &str) -> Result<Option<UserId>> {
    let id = sqlx::query_scalar!(
        r#"select id as "id: UserId" from users where email = $1"#,
        email
    )
    .fetch_optional(db)
    .await?;
    Ok(id)
}

/// Makes a person a member.
pub async fn add_member(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    user_id: &UserId,
    role: Role,
) -> Result<()> {
    sqlx::query!(
        "insert into memberships (org_id, user_id, role) values ($1, $2, $3)",
        org_id.as_str(),
        user_id.as_str(),
        role as Role
    )
    .execute(db)
    .await?;
    Ok(())
}

/// An owner of the organization, the oldest. `None` when there is no such organization.
pub async fn oldest_owner(db: impl PgExecutor<'_>, org_id: &OrgId) -> Result<Option<UserId>> {
    let id = sqlx::query_scalar!(
        r#"select user_id as "id: UserId" from memberships where org_id = $1 and role = 'owner' order by created_at, user_id limit 1"#,
        org_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(id)
}

/// Whether a person is a member.
pub async fn is_member(db: impl PgExecutor<'_>, org_id: &OrgId, user_id: &UserId) -> Result<bool> {
    let found = sqlx::query_scalar!(
        r#"select exists(select from memberships where org_id = $1 and user_id = $2) as "found!""#,
        org_id.as_str(),
        user_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok(found)
}

/// Stores a new session of at most 30 days, and returns when it ends.
pub async fn insert_session(
    db: impl PgExecutor<'_>,
    org_id: Option<&OrgId>,
    session_id: &SessionId,
    user_id: &UserId,
    token: &SecretHash,
) -> Result<Timestamp> {
    let ends = sqlx::query_scalar!(
        r#"insert into sessions (id, user_id, token_hash, org_id, expires_at) values ($1, $2, $3, $4, now() + interval '30 days')
           returning expires_at as "expires_at: Timestamp""#,
        session_id.as_str(),
        user_id.as_str(),
        token.as_bytes(),
        org_id.map(OrgId::as_str)
    )
    .fetch_one(db)
    .await?;
    Ok(ends)
}
