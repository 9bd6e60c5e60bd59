//! Invites to an organization, and the limits on their number.

use std::time::Duration;

use sqlx::PgExecutor;

use crate::model::cursor::Page;
use crate::model::error::Result;
use crate::model::ids::{InviteId, OrgId, UserId};
use crate::model::invite::Invite;
use crate::model::org::Role;
use crate::model::timestamp::Timestamp;
use crate::store::{PgConnection, lock_name, unique_violation};

/// Returns a page with an organization's invites, newest first.
pub async fn list(db: impl PgExecutor<'_>, org_id: &OrgId, page: &Page) -> Result<Vec<Invite>> {
    let invites = sqlx::query_as!(
        Invite,
        r#"
        select
            id as "id: InviteId",
            org_id as "org_id: OrgId",
            email,
            role as "role: Role",
            invited_by as "invited_by: UserId",
            created_at as "created_at: Timestamp",
            expires_at as "expires_at: Timestamp",
            accepted_at as "accepted_at: Timestamp",
            accepted_by as "accepted_by: UserId",
            revoked_at as "revoked_at: Timestamp"
        from invites
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
    Ok(invites)
}

/// Locks creating invites for the organization until the transaction ends, and returns its open
/// invite count.
pub async fn lock_open(db: &mut PgConnection, org_id: &OrgId) -> Result<i64> {
    sqlx::query!(
        "select pg_advisory_xact_lock(hashtextextended('invites of ' || $1, 0))",
        org_id.as_str()
    )
    .execute(&mut *db)
    .await?;
    // A second statement, because the first one sees the snapshot from before it waited for the
    // lock.
    let open = sqlx::query_scalar!(
        r#"
        select count(*) as "open!"
        from invites
        where org_id = $1
          and accepted_at is null
          and revoked_at is null
          and replaced_at is null
          and expires_at > now()
        "#,
        org_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok(open)
}

/// A new invite's columns.
pub struct NewInvite<'a> {
    /// The invite's id, made by the caller.
    pub id: &'a InviteId,
    /// The invited address, normalized.
    pub email: &'a str,
    /// The future member's role.
    pub role: Role,
    /// The user who invites.
    pub invited_by: &'a UserId,
}

/// Returns `true` if the user with this address is a member already.
pub async fn is_member(db: impl PgExecutor<'_>, org_id: &OrgId, email: &str) -> Result<bool> {
    let found = sqlx::query_scalar!(
        r#"
        select exists(
            select from memberships m
            join users u on u.id = m.user_id
            where m.org_id = $1
              and u.email = $2
        ) as "found!"
        "#,
        org_id.as_str(),
        email
    )
    .fetch_one(db)
    .await?;
    Ok(found)
}

/// Days in which an invite can be accepted.
pub const LIFETIME_DAYS: i32 = 14;

/// The time over which invites are counted for the daily limit.
const DAILY_WINDOW: Duration = Duration::from_secs(24 * 60 * 60);

/// The used part of the daily invite limit.
pub struct DailyInvites {
    /// The largest invite count in 24 hours.
    pub max: i64,
    /// Invites in the last 24 hours.
    pub used: i64,
    /// The time at which the oldest one stops counting, or now if there is none.
    pub resets_at: Timestamp,
    /// Seconds until `resets_at`.
    pub seconds: i32,
}

/// The largest invite count in 24 hours: on the plan `free`, on `free` with a verified domain,
/// and on other plans.
const INVITES_PER_DAY: [i64; 3] = [20, 200, 1_000];

/// Counts the invites in the last 24 hours, and locks the count until the transaction ends. An
/// organization on the plan `free` without a verified domain shares its limit with those that the
/// same user created.
pub async fn lock_daily(db: &mut PgConnection, org_id: &OrgId) -> Result<DailyInvites> {
    let org = sqlx::query!(
        r#"
        select
            plan = 'free' as "is_free!",
            created_by,
            exists(
                select from domain_claims c
                where c.org_id = $1
                  and c.verified_at is not null
            ) as "has_domain!"
        from orgs o
        where o.id = $1
        "#,
        org_id.as_str()
    )
    .fetch_one(&mut *db)
    .await?;
    let [free, with_domain, paid] = INVITES_PER_DAY;
    let (max, sharing) = match (org.is_free, org.has_domain) {
        (false, _) => (paid, None),
        (true, true) => (with_domain, None),
        (true, false) => (free, org.created_by),
    };
    lock_name(
        &mut *db,
        &format!("invites:{}", sharing.as_deref().unwrap_or(org_id.as_str())),
    )
    .await?;
    let used = sqlx::query!(
        r#"
        select
            count(*) as "used!",
            coalesce(min(created_at) + $3::float8 * interval '1 second', now())
                as "resets_at!: Timestamp",
            coalesce(
                ceil(extract(
                    epoch from min(created_at) + $3::float8 * interval '1 second' - now()
                )),
                0
            )::int as "seconds!"
        from invites
        where (
              org_id = $1
              or org_id in (select id from orgs where created_by = $2 and plan = 'free')
          )
          and created_at > now() - $3::float8 * interval '1 second'
        "#,
        org_id.as_str(),
        sharing,
        DAILY_WINDOW.as_secs_f64()
    )
    .fetch_one(db)
    .await?;
    Ok(DailyInvites {
        max,
        used: used.used,
        resets_at: used.resets_at,
        seconds: used.seconds,
    })
}

/// Stores a new invite, which is open for [`LIFETIME_DAYS`] days. Returns `None` if the address has
/// an open invite. An expired one is replaced.
pub async fn insert(
    db: &mut PgConnection,
    org_id: &OrgId,
    new: &NewInvite<'_>,
) -> Result<Option<Invite>> {
    let NewInvite {
        id,
        email,
        role,
        invited_by,
    } = new;
    sqlx::query!(
        "
        update invites
        set replaced_at = now()
        where org_id = $1
          and email = $2
          and accepted_at is null
          and revoked_at is null
          and replaced_at is null
          and expires_at <= now()
        ",
        org_id.as_str(),
        email
    )
    .execute(&mut *db)
    .await?;
    let invite = sqlx::query_as!(
        Invite,
        r#"
        insert into invites (id, org_id, email, role, invited_by, expires_at)
        values ($2, $1, $3, $4, $5, now() + $6::integer * interval '1 day')
        returning
            id as "id: InviteId",
            org_id as "org_id: OrgId",
            email,
            role as "role: Role",
            invited_by as "invited_by: UserId",
            created_at as "created_at: Timestamp",
            expires_at as "expires_at: Timestamp",
            accepted_at as "accepted_at: Timestamp",
            accepted_by as "accepted_by: UserId",
            revoked_at as "revoked_at: Timestamp"
        "#,
        org_id.as_str(),
        id.as_str(),
        email,
        role.as_str(),
        invited_by.as_str(),
        LIFETIME_DAYS
    )
    .fetch_one(db)
    .await;
    match invite {
        Err(error) if unique_violation(&error) == Some("invites_open_key") => Ok(None),
        invite => Ok(Some(invite?)),
    }
}

/// Revokes an invite. Idempotent: the first revocation time stays. Returns `None` if there is no
/// such invite, or if it was accepted.
pub async fn revoke(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    invite_id: &InviteId,
) -> Result<Option<Invite>> {
    let invite = sqlx::query_as!(
        Invite,
        r#"
        update invites
        set
            revoked_at = coalesce(revoked_at, now()),
            replaced_at = null
        where org_id = $1
          and id = $2
          and accepted_at is null
        returning
            id as "id: InviteId",
            org_id as "org_id: OrgId",
            email,
            role as "role: Role",
            invited_by as "invited_by: UserId",
            created_at as "created_at: Timestamp",
            expires_at as "expires_at: Timestamp",
            accepted_at as "accepted_at: Timestamp",
            accepted_by as "accepted_by: UserId",
            revoked_at as "revoked_at: Timestamp"
        "#,
        org_id.as_str(),
        invite_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(invite)
}

/// Revokes the open invites that a member created and those to the member's own address, because
/// the member could return by any. Returns them, with the time.
pub async fn revoke_of_member(
    db: &mut PgConnection,
    org_id: &OrgId,
    user_id: &UserId,
) -> Result<Vec<(InviteId, Timestamp)>> {
    let revoked = sqlx::query!(
        r#"
        update invites
        set revoked_at = now()
        where org_id = $1
          and (invited_by = $2 or email = (select email from users where id = $2))
          and accepted_at is null
          and revoked_at is null
          and replaced_at is null
        returning
            id as "id: InviteId",
            revoked_at as "revoked_at!: Timestamp"
        "#,
        org_id.as_str(),
        user_id.as_str()
    )
    .fetch_all(db)
    .await?;
    let revoked = revoked.into_iter().map(|row| (row.id, row.revoked_at));
    Ok(revoked.collect())
}

/// Locks an invite until the transaction ends. Returns `true` if it was revoked, or `None` if the
/// organization has no such invite.
pub async fn lock_revoked(
    db: &mut PgConnection,
    org_id: &OrgId,
    invite_id: &InviteId,
) -> Result<Option<bool>> {
    let is_revoked = sqlx::query_scalar!(
        r#"
        select revoked_at is not null as "is_revoked!"
        from invites
        where org_id = $1
          and id = $2
        for no key update
        "#,
        org_id.as_str(),
        invite_id.as_str()
    );
    Ok(is_revoked.fetch_optional(db).await?)
}
