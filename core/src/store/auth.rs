//! Links to sign in with, and what a sign-in does: the statements of one transaction, in the order in which they are used.

use sqlx::PgExecutor;

use super::PgConnection;
use crate::model::auth::SignUp;
use crate::model::error::Result;
use crate::model::ids::{OrgId, UserId};
use crate::model::secret::SecretHash;
use crate::model::timestamp::Timestamp;

/// Live links that an address can have. A request beyond that sends no mail: the links in the mailbox outlive the wait until one of
/// them expires, so that there is always a link to sign in with.
const LIVE_LINKS_MAX: i64 = 5;

/// The outcome of a request for a link.
pub struct Link {
    /// When the link expires, or would expire.
    pub expires_at: Timestamp,
    /// Whether the link is to be sent.
    pub mail: LinkMail,
}

/// What is sent for a request for a link.
pub enum LinkMail {
    /// Nothing: the mailbox has a live link.
    None,
    /// The link.
    Link,
    /// The link, and that no mail follows before this time.
    LastLink {
        /// When the next link can be sent.
        next_at: Timestamp,
    },
}

/// Whether an address may sign in: it is an existing user's, or it may sign up.
pub async fn may_sign_in(
    db: &mut PgConnection,
    email: &str,
    domain: &str,
    sign_up: SignUp,
) -> Result<bool> {
    let may = sqlx::query_scalar!(
        r#"select ($3 or exists(select from users where email = $1)
                   or exists(select from invites where email = $1 and accepted_at is null and revoked_at is null
                             and replaced_at is null and expires_at > now())
                   or ($4 and exists(select from domain_claims where domain = $2 and verified_at is not null))) as "may!""#,
        email,
        domain,
        sign_up == SignUp::Open,
        sign_up == SignUp::Domains
    );
    Ok(may.fetch_one(db).await?)
}

fn lock_name(email: &str) -> String {
    format!("sign-in:{email}")
}

/// Stores a link for an address, to be sent if the address may sign in. A link that is not to be sent is stored as expired, so that the
/// request does the same work whatever is known of the address.
pub async fn insert_link(
    db: &mut PgConnection,
    email: &str,
    token: &SecretHash,
    may_sign_in: bool,
) -> Result<Link> {
    super::lock_name(&mut *db, &lock_name(email)).await?;
    let row = sqlx::query!(
        r#"with live as (
             select count(*) as links, max(created_at) as newest, min(expires_at) as first_expiry
             from sign_in_links where email = $2 and used_at is null and expires_at > clock_timestamp()
         ),
         decision as (
             select links, first_expiry, clock_timestamp() as at,
                    $4 and links < $3 and coalesce(newest <= clock_timestamp() - interval '30 seconds', true) as sends
             from live
         ),
         link as (
             insert into sign_in_links (token_hash, email, created_at, expires_at)
             select $1, $2, at, case when sends then at + interval '15 minutes' else at end from decision
         )
         select sends as "sends!", at + interval '15 minutes' as "expires_at!: Timestamp",
                case when links = $3 - 1 then first_expiry end as "next_at: Timestamp"
         from decision"#,
        token.as_bytes(),
        email,
        LIVE_LINKS_MAX,
        may_sign_in
    )
    .fetch_one(db)
    .await?;
    let mail = match (row.sends, row.next_at) {
        (false, _) => LinkMail::None,
        (true, None) => LinkMail::Link,
        (true, Some(next_at)) => LinkMail::LastLink { next_at },
    };
    Ok(Link {
        expires_at: row.expires_at,
        mail,
    })
}

/// Counts the mail of an invite to an address: `false` when five went there within the last hour.
pub async fn count_invite_mail(db: impl PgExecutor<'_>, email: &str) -> Result<bool> {
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

/// Uses a link, ends the other links of its address, and returns the address. `None` when there is no such link, or it was used or
/// ended, or it has expired.
///
/// Ending the others also makes room for the next mail: whoever uses a link has shown that the mailbox is theirs.
pub async fn use_link(db: &mut PgConnection, token: &SecretHash) -> Result<Option<String>> {
    let email = sqlx::query_scalar!(
        "select email from sign_in_links where token_hash = $1 and used_at is null",
        token.as_bytes()
    );
    let Some(email) = email.fetch_optional(&mut *db).await? else {
        return Ok(None);
    };
    // Two links of one address that are used at once would otherwise wait for each other's rows.
    super::lock_name(&mut *db, &lock_name(&email)).await?;
    let used = sqlx::query!(
        "update sign_in_links set used_at = clock_timestamp()
         where token_hash = $1 and used_at is null and expires_at > clock_timestamp()",
        token.as_bytes()
    );
    if used.execute(&mut *db).await?.rows_affected() == 0 {
        return Ok(None);
    }
    sqlx::query!(
        "update sign_in_links set used_at = clock_timestamp() where email = $1 and used_at is null",
        email
    )
    .execute(db)
    .await?;
    Ok(Some(email))
}

/// Consumes the open invites of an address: its person becomes a member of each organization that invited them. Who is
/// one already stays what they are. An invite counts as such unless the organization owns the domain of the address.
pub async fn accept_invites(
    db: &mut PgConnection,
    email: &str,
    domain: &str,
    user_id: &UserId,
) -> Result<()> {
    sqlx::query!(
        "with accepted as (
             update invites set accepted_at = now(), accepted_by = $2
             where email = $1 and accepted_at is null and revoked_at is null and replaced_at is null and expires_at > now()
             returning org_id, role
         )
         insert into memberships (org_id, user_id, role, by_invite)
         select org_id, $2, role,
                not exists (select from domain_claims c where c.org_id = a.org_id and c.domain = $3 and c.verified_at is not null)
         from accepted a
         on conflict (org_id, user_id) do nothing",
        email,
        user_id.as_str(),
        domain
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Makes a person a member of the organization that owns their address's domain and takes in whoever has one. An owner
/// who ended their membership has the last word.
pub async fn join_by_domain(
    db: &mut PgConnection,
    domain: &str,
    user_id: &UserId,
) -> Result<Option<OrgId>> {
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
    sqlx::query!("delete from sign_in_links where expires_at < now() - interval '1 day'")
        .execute(&mut *db)
        .await?;
    sqlx::query!("delete from mailed where empty_at < now()")
        .execute(db)
        .await?;
    Ok(())
}
