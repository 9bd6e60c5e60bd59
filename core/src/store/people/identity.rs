//! Accounts at OpenID Connect providers, and the users who sign in with them.

use sqlx::PgExecutor;

use crate::model::error::Result;
use crate::model::identity::{Identity, LinkedAccount};
use crate::model::ids::UserId;
use crate::model::timestamp::Timestamp;

/// A user with their address.
pub struct IdentifiedUser {
    /// The id of the user.
    pub id: UserId,
    /// The user's address, which can differ from the account's.
    pub email: String,
}

/// Returns the user who is linked to an account, and records the account's use.
pub async fn user(db: impl PgExecutor<'_>, identity: &Identity) -> Result<Option<IdentifiedUser>> {
    let user = sqlx::query_as!(
        IdentifiedUser,
        r#"
        update identities i
        set used_at = now()
        from users u
        where i.issuer = $1
          and i.subject = $2
          and u.id = i.user_id
        returning
            u.id as "id: UserId",
            u.email
        "#,
        identity.issuer,
        identity.subject
    )
    .fetch_optional(db)
    .await?;
    Ok(user)
}

/// Returns the accounts that sign a user in, the first one first.
pub async fn for_user(db: impl PgExecutor<'_>, user_id: &UserId) -> Result<Vec<LinkedAccount>> {
    let accounts = sqlx::query_as!(
        LinkedAccount,
        r#"
        select
            issuer,
            subject,
            created_at as "created_at: Timestamp",
            used_at as "used_at: Timestamp"
        from identities
        where user_id = $1
        order by created_at, issuer, subject
        "#,
        user_id.as_str()
    )
    .fetch_all(db)
    .await?;
    Ok(accounts)
}

/// Removes a user's account. Idempotent.
pub async fn unlink(
    db: impl PgExecutor<'_>,
    user_id: &UserId,
    issuer: &str,
    subject: &str,
) -> Result<()> {
    sqlx::query!(
        "
        delete from identities
        where user_id = $1
          and issuer = $2
          and subject = $3
        ",
        user_id.as_str(),
        issuer,
        subject
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Links an account to a user, unless it is linked already.
pub async fn link(db: impl PgExecutor<'_>, identity: &Identity, user_id: &UserId) -> Result<()> {
    sqlx::query!(
        "
        insert into identities (issuer, subject, user_id)
        values ($1, $2, $3)
        on conflict (issuer, subject) do nothing
        ",
        identity.issuer,
        identity.subject,
        user_id.as_str()
    )
    .execute(db)
    .await?;
    Ok(())
}
