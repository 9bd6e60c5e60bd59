//! Invites.

use sqlx::PgExecutor;

use super::{PgConnection, unique_violation};
use crate::invite::Invite;
use crate::org::Role;
use crate::page::Page;
use crate::{InviteId, OrgId, Result, Timestamp, UserId};

/// The invites of an organization on a page, newest first.
pub async fn list(db: impl PgExecutor<'_>, org_id: &OrgId, page: &Page) -> Result<Vec<Invite>> {
    let invites = sqlx::query_as!(
        Invite,
        r#"select id as "id: InviteId", org_id as "org_id: OrgId", email, role as "role: Role", invited_by as "invited_by: UserId",
                  created_at as "created_at: Timestamp", expires_at as "expires_at: Timestamp", accepted_at as "accepted_at: Timestamp",
                  accepted_by as "accepted_by: UserId", revoked_at as "revoked_at: Timestamp"
           from invites where org_id = $1 and (created_at, id) < (coalesce($2::timestamptz, 'infinity'), coalesce($3, ''))
           order by created_at desc, id desc limit $4"#,
        org_id.as_str(),
        page.at as Option<Timestamp>,
        page.id.as_deref(),
        page.rows()
    )
    .fetch_all(db)
    .await?;
    Ok(invites)
}

/// Locks the creation of invites of the organization until the transaction ends, and returns how many open invites it has.
pub async fn lock_open(db: &mut PgConnection, org_id: &OrgId) -> Result<i64> {
    sqlx::query!("select pg_advisory_xact_lock(hashtextextended('invites of ' || $1, 0))", org_id.as_str()).execute(&mut *db).await?;
    // A second statement: the first one sees the rows of before it waited.
    let open = sqlx::query_scalar!(
        r#"select count(*) as "open!" from invites
           where org_id = $1 and accepted_at is null and revoked_at is null and replaced_at is null and expires_at > now()"#,
        org_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok(open)
}

/// What is stored of a new invite.
pub struct NewInvite<'a> {
    /// Its id.
    pub id: &'a InviteId,
    /// Who is invited, in the one form of addresses.
    pub email: &'a str,
    /// What they will be.
    pub role: Role,
    /// Who invites them.
    pub invited_by: &'a UserId,
}

/// Whether the person with this address is a member already.
pub async fn is_member(db: impl PgExecutor<'_>, org_id: &OrgId, email: &str) -> Result<bool> {
    let found = sqlx::query_scalar!(
        r#"select exists(select from memberships m join users u on u.id = m.user_id where m.org_id = $1 and u.email = $2) as "found!""#,
        org_id.as_str(),
        email
    )
    .fetch_one(db)
    .await?;
    Ok(found)
}

/// Stores a new invite of two weeks. `None` when an open one for the address is there. One that has expired makes room.
pub async fn insert(db: &mut PgConnection, org_id: &OrgId, new: &NewInvite<'_>) -> Result<Option<Invite>> {
    let NewInvite { id, email, role, invited_by } = new;
    sqlx::query!(
        "update invites set replaced_at = now()
         where org_id = $1 and email = $2 and accepted_at is null and revoked_at is null and replaced_at is null and expires_at <= now()",
        org_id.as_str(),
        email
    )
    .execute(&mut *db)
    .await?;
    let invite = sqlx::query_as!(
        Invite,
        r#"insert into invites (id, org_id, email, role, invited_by, expires_at) values ($2, $1, $3, $4, $5, now() + interval '14 days')
           returning id as "id: InviteId", org_id as "org_id: OrgId", email, role as "role: Role", invited_by as "invited_by: UserId",
                  created_at as "created_at: Timestamp", expires_at as "expires_at: Timestamp", accepted_at as "accepted_at: Timestamp",
                  accepted_by as "accepted_by: UserId", revoked_at as "revoked_at: Timestamp""#,
        org_id.as_str(),
        id.as_str(),
        email,
        role.as_str(),
        invited_by.as_str()
    )
    .fetch_one(db)
    .await;
    match invite {
        Err(error) if unique_violation(&error) == Some("invites_open_key") => Ok(None),
        invite => Ok(Some(invite?)),
    }
}

/// Revokes an invite. Doing it again changes nothing: the first moment stays. `None` when there is no such invite, or it
/// was accepted.
pub async fn revoke(db: impl PgExecutor<'_>, org_id: &OrgId, invite_id: &InviteId) -> Result<Option<Invite>> {
    let invite = sqlx::query_as!(
        Invite,
        r#"update invites set revoked_at = coalesce(revoked_at, now()), replaced_at = null
           where org_id = $1 and id = $2 and accepted_at is null
           returning id as "id: InviteId", org_id as "org_id: OrgId", email, role as "role: Role", invited_by as "invited_by: UserId",
                  created_at as "created_at: Timestamp", expires_at as "expires_at: Timestamp", accepted_at as "accepted_at: Timestamp",
                  accepted_by as "accepted_by: UserId", revoked_at as "revoked_at: Timestamp""#,
        org_id.as_str(),
        invite_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(invite)
}

/// Whether there is such an invite.
pub async fn exists(db: impl PgExecutor<'_>, org_id: &OrgId, invite_id: &InviteId) -> Result<bool> {
    let found = sqlx::query_scalar!(
        r#"select exists(select from invites where org_id = $1 and id = $2) as "found!""#,
        org_id.as_str(),
        invite_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok(found)
}
