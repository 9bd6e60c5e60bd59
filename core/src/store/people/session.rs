//! A user's sessions. A session belongs to the user, not to an organization.

use sqlx::PgExecutor;

use crate::model::error::Result;
use crate::model::ids::{OrgId, SessionId, UserId};
use crate::model::session::{Origin, Session};
use crate::model::timestamp::Timestamp;
use crate::store::PgConnection;

/// A user's largest live session count. A sign-in beyond it ends the session that was
/// unused for longest.
const SESSIONS_MAX: i64 = 100;

/// Days after which an unused session ends.
pub const IDLE_DAYS: i32 = 7;

/// Days after which a session ends even if it is used.
pub const LIFETIME_DAYS: i32 = 30;

/// Returns a user's live sessions, newest first. `current` is the caller's session.
pub async fn list(
    db: impl PgExecutor<'_>,
    user_id: &UserId,
    current: &SessionId,
) -> Result<Vec<Session>> {
    let sessions = sqlx::query_as!(
        Session,
        r#"
        select
            id as "id: SessionId",
            created_at as "created_at: Timestamp",
            last_used_at as "last_used_at: Timestamp",
            least(expires_at, last_used_at + $4::integer * interval '1 day')
                as "expires_at!: Timestamp",
            address,
            user_agent,
            id = $2 as "current!"
        from sessions
        where user_id = $1
          and ended_at is null
          and expires_at > now()
          and last_used_at > now() - $4::integer * interval '1 day'
        order by created_at desc, id
        limit $3
        "#,
        user_id.as_str(),
        current.as_str(),
        SESSIONS_MAX,
        IDLE_DAYS
    )
    .fetch_all(db)
    .await?;
    Ok(sessions)
}

/// Ends a user's session. Idempotent. Returns whether this call ended it, or `None` if the user
/// has no such session.
pub async fn end(
    db: impl PgExecutor<'_>,
    user_id: &UserId,
    session_id: &SessionId,
) -> Result<Option<bool>> {
    let was_open = sqlx::query_scalar!(
        r#"
        with before as (
            select id, ended_at
            from sessions
            where user_id = $1
              and id = $2
            for update
        )
        update sessions s
        set ended_at = coalesce(s.ended_at, now())
        from before b
        where s.id = b.id
        returning b.ended_at is null as "was_open!"
        "#,
        user_id.as_str(),
        session_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(was_open)
}

/// Ends all a user's sessions except one, and returns those that it ended.
pub async fn end_others(
    db: impl PgExecutor<'_>,
    user_id: &UserId,
    kept: &SessionId,
) -> Result<Vec<SessionId>> {
    let ended = sqlx::query_scalar!(
        r#"
        update sessions
        set ended_at = now()
        where user_id = $1
          and id <> $2
          and ended_at is null
        returning id as "id: SessionId"
        "#,
        user_id.as_str(),
        kept.as_str()
    )
    .fetch_all(db)
    .await?;
    Ok(ended)
}

/// Ends a user's live sessions beyond `SESSIONS_MAX`, the longest unused first. Returns
/// those that it ended.
pub async fn end_excess(db: &mut PgConnection, user_id: &UserId) -> Result<Vec<SessionId>> {
    let ended = sqlx::query_scalar!(
        r#"
        update sessions
        set ended_at = now()
        where id in (
            select id
            from sessions
            where user_id = $1
              and ended_at is null
              and expires_at > now()
              and last_used_at > now() - $3::integer * interval '1 day'
            order by last_used_at desc, created_at desc
            offset $2
        )
        returning id as "id: SessionId"
        "#,
        user_id.as_str(),
        SESSIONS_MAX,
        IDLE_DAYS
    )
    .fetch_all(db)
    .await?;
    Ok(ended)
}

/// Records a session's use: its time, its origin, and the organization that was chosen, if
/// any.
pub async fn touch(
    db: impl PgExecutor<'_>,
    session_id: &SessionId,
    chosen: Option<&OrgId>,
    origin: Origin<'_>,
) -> Result<()> {
    sqlx::query!(
        "
        update sessions
        set
            last_used_at = now(),
            org_id = coalesce($1, org_id),
            address = $3,
            user_agent = $4
        where id = $2
        ",
        chosen.map(OrgId::as_str),
        session_id.as_str(),
        origin.address,
        origin.user_agent
    )
    .execute(db)
    .await?;
    Ok(())
}
