//! An organization's members.

use sqlx::PgExecutor;

use crate::model::cursor::Page;
use crate::model::error::Result;
use crate::model::ids::{KeyId, OrgId, UserId};
use crate::model::member::Member;
use crate::model::org::Role;
use crate::model::timestamp::Timestamp;
use crate::store::PgConnection;

/// Returns a page with an organization's members, the oldest membership first.
pub async fn list(db: impl PgExecutor<'_>, org_id: &OrgId, page: &Page) -> Result<Vec<Member>> {
    let members = sqlx::query_as!(
        Member,
        r#"
        select
            m.user_id as "user_id: UserId",
            u.email,
            m.role as "role: Role",
            m.created_at as "created_at: Timestamp",
            coalesce(k.ids, array[]::text[]) as "live_keys!: Vec<KeyId>"
        from memberships m
        join users u on u.id = m.user_id
        left join (
            select
                created_by,
                array_agg(id order by created_at, id) as ids
            from api_keys
            where org_id = $1
              and revoked_at is null
              and coalesce(expires_at > now(), true)
            group by created_by
        ) k on k.created_by = m.user_id
        where m.org_id = $1
          and (m.created_at, m.user_id) > (coalesce($2::timestamptz, '-infinity'), coalesce($3, ''))
        order by m.created_at, m.user_id
        limit $4
        "#,
        org_id.as_str(),
        page.at as Option<Timestamp>,
        page.id.as_deref(),
        page.rows()
    )
    .fetch_all(db)
    .await?;
    Ok(members)
}

/// Returns an organization's member, or `None` if the user is none.
pub async fn find(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    user_id: &UserId,
) -> Result<Option<Member>> {
    let member = sqlx::query_as!(
        Member,
        r#"
        select
            m.user_id as "user_id: UserId",
            u.email,
            m.role as "role: Role",
            m.created_at as "created_at: Timestamp",
            array(
                select k.id
                from api_keys k
                where k.org_id = $1
                  and k.created_by = $2
                  and k.revoked_at is null
                  and coalesce(k.expires_at > now(), true)
                order by k.created_at, k.id
            ) as "live_keys!: Vec<KeyId>"
        from memberships m
        join users u on u.id = m.user_id
        where m.org_id = $1
          and m.user_id = $2
        "#,
        org_id.as_str(),
        user_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(member)
}

/// Locks the organization until the transaction ends, and returns its owners. The lock serializes
/// concurrent demotions. Locking the membership rows instead could deadlock, and would lock rows
/// that are no longer owners'.
pub async fn lock_owners(db: &mut PgConnection, org_id: &OrgId) -> Result<Vec<UserId>> {
    sqlx::query!(
        "select from orgs where id = $1 for no key update",
        org_id.as_str()
    )
    .execute(&mut *db)
    .await?;
    let owners = sqlx::query_scalar!(
        r#"
        select user_id as "user_id: UserId"
        from memberships
        where org_id = $1
          and role = 'owner'
        "#,
        org_id.as_str()
    )
    .fetch_all(db)
    .await?;
    Ok(owners)
}

/// Locks an owner's role until the transaction ends, so that the rows that they create now
/// cannot appear after their removal or demotion. Returns `false` if the user is no longer an
/// owner.
pub async fn lock_owner(db: &mut PgConnection, org_id: &OrgId, user_id: &UserId) -> Result<bool> {
    let locked = sqlx::query!(
        "
        select from memberships
        where org_id = $1
          and user_id = $2
          and role = 'owner'
        for share
        ",
        org_id.as_str(),
        user_id.as_str()
    );
    Ok(locked.fetch_optional(db).await?.is_some())
}

/// Returns a member's role, and locks it until the transaction ends. Returns `None` if the
/// organization has no such member.
pub async fn lock_role(
    db: &mut PgConnection,
    org_id: &OrgId,
    user_id: &UserId,
) -> Result<Option<Role>> {
    let role = sqlx::query_scalar!(
        r#"
        select role as "role: Role"
        from memberships
        where org_id = $1
          and user_id = $2
        for no key update
        "#,
        org_id.as_str(),
        user_id.as_str()
    );
    Ok(role.fetch_optional(db).await?)
}

/// Changes a member's role. Returns `None` if the organization has no such member.
pub async fn set_role(
    db: &mut PgConnection,
    org_id: &OrgId,
    user_id: &UserId,
    role: Role,
) -> Result<Option<Member>> {
    sqlx::query!(
        "
        update memberships
        set role = $3
        where org_id = $1
          and user_id = $2
        ",
        org_id.as_str(),
        user_id.as_str(),
        role as Role
    )
    .execute(&mut *db)
    .await?;
    find(db, org_id, user_id).await
}

/// Ends a membership and records the offboarding. Returns the member's role, or `None` if the
/// user was not a member.
pub async fn remove(
    db: &mut PgConnection,
    org_id: &OrgId,
    user_id: &UserId,
) -> Result<Option<Role>> {
    let role = sqlx::query_scalar!(
        r#"
        with gone as (
            delete from memberships
            where org_id = $1
              and user_id = $2
            returning org_id, user_id, role
        )
        insert into offboardings (org_id, user_id)
        select
            org_id,
            user_id
        from gone
        on conflict (org_id, user_id) do update
            set created_at = excluded.created_at
        returning (select role from gone) as "role!: Role"
        "#,
        org_id.as_str(),
        user_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(role)
}
