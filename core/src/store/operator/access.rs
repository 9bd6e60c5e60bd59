//! The revocation of keys and sessions.

use crate::model::error::Result;
use crate::model::ids::{KeyId, OrgId, SessionId, UserId};
use crate::store::PgConnection;

/// Returns a key's organization. Returns `None` if there is no such key.
pub async fn org_of_key(db: &mut PgConnection, key_id: &KeyId) -> Result<Option<OrgId>> {
    let org_id = sqlx::query_scalar!(
        r#"
        /* all tenants: the operator names a key by its id alone */
        select org_id as "org_id: OrgId"
        from api_keys
        where id = $1
        "#,
        key_id.as_str()
    );
    Ok(org_id.fetch_optional(db).await?)
}

/// Ends all a user's live sessions, and returns them.
pub async fn end_sessions(db: &mut PgConnection, user_id: &UserId) -> Result<Vec<SessionId>> {
    let ended = sqlx::query_scalar!(
        r#"
        update sessions
        set ended_at = clock_timestamp()
        where user_id = $1
          and ended_at is null
        returning id as "id: SessionId"
        "#,
        user_id.as_str()
    );
    Ok(ended.fetch_all(db).await?)
}

/// Ends a session. Returns its user, and whether this call ended it, or `None` if there is no such
/// session.
pub async fn end_session(
    db: &mut PgConnection,
    session_id: &SessionId,
) -> Result<Option<(UserId, bool)>> {
    let row = sqlx::query!(
        r#"
        with before as (
            select id, ended_at
            from sessions
            where id = $1
            for update
        )
        update sessions s
        set ended_at = coalesce(s.ended_at, clock_timestamp())
        from before b
        where s.id = b.id
        returning
            s.user_id as "user_id: UserId",
            b.ended_at is null as "was_open!"
        "#,
        session_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| (row.user_id, row.was_open)))
}
