//! Organizations, users, and the memberships and sessions that are created for them.

use sqlx::PgExecutor;

use super::session::LIFETIME_DAYS;
use crate::model::error::Result;
use crate::model::error_details::OrgChoice;
use crate::model::ids::{OrgId, SessionId, UserId};
use crate::model::org::{DataUse, Org, Role};
use crate::model::secret::SecretHash;
use crate::model::timestamp::Timestamp;
use crate::store::PgConnection;

/// The most organizations that are listed for a user.
pub const LISTED_MAX: i64 = 200;

/// Returns a user's organizations, the oldest membership first; at most [`LISTED_MAX`].
pub async fn for_user(db: impl PgExecutor<'_>, user_id: &UserId) -> Result<Vec<Org>> {
    let orgs = sqlx::query_as!(
        Org,
        r#"
        /* all tenants: lists the organizations of a user */
        select
            o.id as "id: OrgId",
            o.name,
            o.plan,
            o.data_use as "data_use: DataUse",
            m.role as "role: Role",
            o.created_at as "created_at: Timestamp",
            o.handle
        from memberships m
        join orgs o on o.id = m.org_id
        where m.user_id = $1
        order by m.created_at, m.org_id
        limit $2
        "#,
        user_id.as_str(),
        LISTED_MAX
    )
    .fetch_all(db)
    .await?;
    Ok(orgs)
}

/// The largest organization count in an error that asks the user to choose one.
const CHOICES_MAX: i64 = 20;

/// Returns organizations from which a user can choose; at most `CHOICES_MAX`.
pub async fn choices(db: impl PgExecutor<'_>, user_id: &UserId) -> Result<Vec<OrgChoice>> {
    let orgs = sqlx::query_as!(
        OrgChoice,
        r#"
        /* all tenants: lists the organizations of a user */
        select
            o.id as "id: OrgId",
            o.name
        from memberships m
        join orgs o on o.id = m.org_id
        where m.user_id = $1
        order by m.by_invite, m.created_at, m.org_id
        limit $2
        "#,
        user_id.as_str(),
        CHOICES_MAX
    )
    .fetch_all(db)
    .await?;
    Ok(orgs)
}

/// Stores a new organization, and returns it as its owner sees it. `created_by` is the user who
/// creates it for themselves, or `None` if the operator does.
pub async fn insert(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    name: &str,
    plan: &str,
    created_by: Option<&UserId>,
) -> Result<Org> {
    let org = sqlx::query_as!(
        Org,
        r#"
        insert into orgs (id, name, plan, created_by)
        values ($1, $2, $3, $4)
        returning
            id as "id: OrgId",
            name,
            plan,
            data_use as "data_use: DataUse",
            'owner' as "role!: Role",
            created_at as "created_at: Timestamp",
            handle
        "#,
        org_id.as_str(),
        name,
        plan,
        created_by.map(UserId::as_str)
    )
    .fetch_one(db)
    .await?;
    Ok(org)
}

/// An organization's settings that its owners can change.
pub struct OrgSettings {
    /// The name.
    pub name: String,
    /// The permitted use for the organization's data.
    pub data_use: DataUse,
    /// The handle, once it is set.
    pub handle: Option<String>,
}

/// Returns an organization's settings, and locks them until the transaction ends.
pub async fn lock_settings(db: impl PgExecutor<'_>, org_id: &OrgId) -> Result<Option<OrgSettings>> {
    let settings = sqlx::query_as!(
        OrgSettings,
        r#"
        select
            name,
            data_use as "data_use: DataUse",
            handle
        from orgs
        where id = $1
        for no key update
        "#,
        org_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(settings)
}

/// Changes an organization, and returns it as its owner sees it. `None` leaves a column unchanged.
/// Returns `None` if there is no such organization.
pub async fn update(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    name: Option<&str>,
    data_use: Option<DataUse>,
    handle: Option<&str>,
) -> Result<Option<Org>> {
    let org = sqlx::query_as!(
        Org,
        r#"
        update orgs
        set
            name = coalesce($2, name),
            data_use = coalesce($3, data_use),
            handle = coalesce($4, handle)
        where id = $1
        returning
            id as "id: OrgId",
            name,
            plan,
            data_use as "data_use: DataUse",
            'owner' as "role!: Role",
            created_at as "created_at: Timestamp",
            handle
        "#,
        org_id.as_str(),
        name,
        data_use.map(DataUse::as_str),
        handle
    )
    .fetch_optional(db)
    .await?;
    Ok(org)
}

/// Locks a handle until the transaction ends, so that neither an organization nor a suite of the operator
/// takes it at the same time.
pub async fn lock_handle(db: &mut PgConnection, handle: &str) -> Result<()> {
    sqlx::query!(
        "select pg_advisory_xact_lock(hashtextextended('handle ' || $1, 0))",
        handle
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Returns `true` if an organization has this handle, or had it when it was deleted.
pub async fn is_handle(db: impl PgExecutor<'_>, handle: &str) -> Result<bool> {
    let is = sqlx::query_scalar!(
        r#"select exists(select from orgs where handle = $1) as "is!""#,
        handle
    );
    Ok(is.fetch_one(db).await?)
}

/// Returns `true` if a suite of the operator has an id that begins with this handle.
pub async fn is_in_operator_suite(db: impl PgExecutor<'_>, handle: &str) -> Result<bool> {
    let is = sqlx::query_scalar!(
        r#"
        select exists(
            select from suite_owners
            where org_id is null
              and starts_with(suite_id, 'suite:' || $1 || '.')
        ) as "is!"
        "#,
        handle
    );
    Ok(is.fetch_one(db).await?)
}

/// Returns the verified domains with this label, each with its organization.
pub async fn domains_with_label(
    db: impl PgExecutor<'_>,
    label: &str,
) -> Result<Vec<(OrgId, String)>> {
    let rows = sqlx::query!(
        r#"
        /* all tenants: a verified domain reserves the handle of its name */
        select
            org_id as "org_id: OrgId",
            domain
        from domain_claims
        where verified_at is not null
          and $1 = any(string_to_array(domain, '.'))
        "#,
        label
    )
    .fetch_all(db)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.org_id, row.domain))
        .collect())
}

/// Returns an organization's name, or `None` if there is no such organization or it was
/// deleted.
pub async fn find_name(db: impl PgExecutor<'_>, org_id: &OrgId) -> Result<Option<String>> {
    let name = sqlx::query_scalar!(
        "select name from orgs where id = $1 and deleted_at is null",
        org_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(name)
}

/// Returns an existing organization's name.
pub async fn name(db: impl PgExecutor<'_>, org_id: &OrgId) -> Result<String> {
    let name = sqlx::query_scalar!("select name from orgs where id = $1", org_id.as_str())
        .fetch_one(db)
        .await?;
    Ok(name)
}

/// Returns `true` if the user owns an organization.
pub async fn owns_any(db: impl PgExecutor<'_>, user_id: &UserId) -> Result<bool> {
    let owns = sqlx::query_scalar!(
        r#"
        /* all tenants: the user may own any organization */
        select exists(select from memberships where user_id = $1 and role = 'owner') as "owns!"
        "#,
        user_id.as_str()
    );
    Ok(owns.fetch_one(db).await?)
}

/// Returns how many organizations a user has created, including those that now have another owner.
/// Locks the count until the transaction ends, so that one user's concurrent requests are
/// serialized.
pub async fn lock_created(db: &mut PgConnection, user_id: &UserId) -> Result<i64> {
    // An advisory lock, because a lock on the user's row needs the privilege to update it.
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

/// Returns the user with this normalized address. A new user gets the id `fresh`. Until the
/// transaction ends, the address cannot be erased.
pub async fn user(db: &mut PgConnection, email: &str, fresh: &UserId) -> Result<UserId> {
    sqlx::query!(
        "select pg_advisory_xact_lock_shared(hashtextextended('user ' || $1, 0))",
        email
    )
    .execute(&mut *db)
    .await?;
    let inserted = sqlx::query_scalar!(
        r#"
        insert into users (id, email)
        values ($1, $2)
        on conflict (email) do nothing
        returning id as "id: UserId"
        "#,
        fresh.as_str(),
        email
    );
    if let Some(id) = inserted.fetch_optional(&mut *db).await? {
        return Ok(id);
    }
    // A separate statement: the one before may have waited for another transaction's insert,
    // which its snapshot does not contain.
    let found = sqlx::query_scalar!(
        r#"select id as "id: UserId" from users where email = $1"#,
        email
    );
    Ok(found.fetch_one(db).await?)
}

/// Locks an address until the transaction ends, so that no user signs in with it.
pub async fn lock_address(db: &mut PgConnection, email: &str) -> Result<()> {
    sqlx::query!(
        "select pg_advisory_xact_lock(hashtextextended('user ' || $1, 0))",
        email
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Returns an existing user's address.
pub async fn email(db: impl PgExecutor<'_>, user_id: &UserId) -> Result<String> {
    let email = sqlx::query_scalar!("select email from users where id = $1", user_id.as_str())
        .fetch_one(db)
        .await?;
    Ok(email)
}

/// Returns the user with this address, if there is one.
pub async fn find_user(db: impl PgExecutor<'_>, email: &str) -> Result<Option<UserId>> {
    let id = sqlx::query_scalar!(
        r#"select id as "id: UserId" from users where email = $1"#,
        email
    )
    .fetch_optional(db)
    .await?;
    Ok(id)
}

/// Adds a user to an organization.
pub async fn add_member(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    user_id: &UserId,
    role: Role,
) -> Result<()> {
    sqlx::query!(
        "
        insert into memberships (org_id, user_id, role)
        values ($1, $2, $3)
        ",
        org_id.as_str(),
        user_id.as_str(),
        role as Role
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Returns the organization's oldest owner, or `None` if there is no such organization.
pub async fn oldest_owner(db: impl PgExecutor<'_>, org_id: &OrgId) -> Result<Option<UserId>> {
    let id = sqlx::query_scalar!(
        r#"
        select user_id as "id: UserId"
        from memberships
        where org_id = $1
          and role = 'owner'
        order by created_at, user_id
        limit 1
        "#,
        org_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(id)
}

/// Returns `true` if the user is a member of the organization.
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

/// Stores a new session, and returns its end: [`LIFETIME_DAYS`] days from now.
pub async fn insert_session(
    db: impl PgExecutor<'_>,
    org_id: Option<&OrgId>,
    session_id: &SessionId,
    user_id: &UserId,
    token: &SecretHash,
) -> Result<Timestamp> {
    let ends = sqlx::query_scalar!(
        r#"
        insert into sessions (id, user_id, token_hash, org_id, expires_at)
        values ($1, $2, $3, $4, now() + $5::integer * interval '1 day')
        returning expires_at as "expires_at: Timestamp"
        "#,
        session_id.as_str(),
        user_id.as_str(),
        token.as_bytes(),
        org_id.map(OrgId::as_str),
        LIFETIME_DAYS
    )
    .fetch_one(db)
    .await?;
    Ok(ends)
}
