//! Links to sign in with, and what a sign-in does: the statements of one transaction, in the order in which they are used.

use sqlx::PgExecutor;

use super::PgConnection;
use crate::secret::SecretHash;
use crate::{OrgId, Result, Timestamp, UserId};

/// What became of the request for a link.
pub struct Link {
    /// When the link ends, or would.
    pub expires_at: Timestamp,
    /// Whether there is one. There is none when enough mails went to the address already.
    pub made: bool,
}

/// Makes a link for an address, and counts the mail that will carry it; neither when enough mails went there already.
pub async fn insert_link(db: &mut PgConnection, email: &str, token: &SecretHash) -> Result<Link> {
    let made = count_mail(&mut *db, email).await?;
    let expires_at = sqlx::query_scalar!(
        r#"with link as (
             insert into sign_in_links (token_hash, email, expires_at) select $1, $2, now() + interval '15 minutes' where $3
         )
         select now() + interval '15 minutes' as "expires_at!: Timestamp""#,
        token.as_bytes(),
        email,
        made
    )
    .fetch_one(db)
    .await?;
    Ok(Link { expires_at, made })
}

/// Counts a mail to an address: `false` when five went there within the last hour.
pub async fn count_mail(db: impl PgExecutor<'_>, email: &str) -> Result<bool> {
    // One statement: whoever comes second waits for the row and sees what the first one wrote.
    let done = sqlx::query!(
        "insert into mailed as m (email, sent_at, empty_at) values ($1, array[clock_timestamp()], clock_timestamp() + interval '1 hour')
         on conflict (email) do update
             set sent_at = array(select at from unnest(m.sent_at) at where at > clock_timestamp() - interval '1 hour') || clock_timestamp(),
                 empty_at = clock_timestamp() + interval '1 hour'
             where (select count(*) from unnest(m.sent_at) at where at > clock_timestamp() - interval '1 hour') < 5",
        email
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Uses a link up, and returns whose it was. `None` when there is no such link, or it was used, or it has expired.
pub async fn use_link(db: &mut PgConnection, token: &SecretHash) -> Result<Option<String>> {
    let email = sqlx::query_scalar!(
        "update sign_in_links set used_at = now() where token_hash = $1 and used_at is null and expires_at > now() returning email",
        token.as_bytes()
    )
    .fetch_optional(db)
    .await?;
    Ok(email)
}

/// Consumes the open invites of an address: its person becomes a member of each organization that invited them. Who is
/// one already stays what they are.
pub async fn accept_invites(db: &mut PgConnection, email: &str, user_id: &UserId) -> Result<()> {
    sqlx::query!(
        "with accepted as (
             update invites set accepted_at = now(), accepted_by = $2
             where email = $1 and accepted_at is null and revoked_at is null and replaced_at is null and expires_at > now()
             returning org_id, role
         )
         insert into memberships (org_id, user_id, role) select org_id, $2, role from accepted
         on conflict (org_id, user_id) do nothing",
        email,
        user_id.as_str()
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Makes a person a member of the organization that owns their address's domain and takes in whoever has one. An owner
/// who ended their membership has the last word.
pub async fn join_by_domain(db: &mut PgConnection, domain: &str, user_id: &UserId) -> Result<Option<OrgId>> {
    let joined = sqlx::query_scalar!(
        r#"insert into memberships (org_id, user_id, role)
           select c.org_id, $2, 'member' from domain_claims c
           where c.domain = $1 and c.verified_at is not null and c.auto_join
             and not exists (select from offboardings o where o.org_id = c.org_id and o.user_id = $2)
           on conflict (org_id, user_id) do nothing
           returning org_id as "org_id: OrgId""#,
        domain,
        user_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(joined)
}

/// Deletes sign-in links that expired a day ago, and counts of emails of more than an hour ago.
pub async fn forget(db: &mut PgConnection) -> Result<()> {
    sqlx::query!("delete from sign_in_links where expires_at < now() - interval '1 day'").execute(&mut *db).await?;
    sqlx::query!("delete from mailed where empty_at < now()").execute(db).await?;
    Ok(())
}
