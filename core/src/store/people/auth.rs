//! Sign-in links and sign-ins: one transaction's statements, in the order in which they are used.

use std::time::Duration;

use sqlx::PgExecutor;

use crate::model::auth::{PendingLink, SignUp};
use crate::model::error::Result;
use crate::model::ids::{InviteId, OrgId, UserId};
use crate::model::org::Role;
use crate::model::secret::SecretHash;
use crate::model::session::Origin;
use crate::model::timestamp::Timestamp;
use crate::model::validation::mailbox;
use crate::store::PgConnection;

/// An address's largest live link count. A request beyond it sends no email: the live
/// links outlast the wait until one expires, so that the mailbox always holds a link that
/// works.
const LIVE_LINKS_MAX: i64 = 5;

/// The time for which a link works.
pub const LINK_LIFETIME: Duration = Duration::from_secs(15 * 60);

/// The shortest time between two links for an address.
const LINK_INTERVAL: Duration = Duration::from_secs(30);

/// Days for which an expired link is stored.
const EXPIRED_LINK_DAYS: i32 = 1;

/// The largest invite count and notices that are sent to an address in `NOTICES_WINDOW`.
const NOTICES_MAX: i64 = 5;

/// The time over which invites and notices to an address are counted.
const NOTICES_WINDOW: Duration = Duration::from_secs(60 * 60);

/// The result when a link is requested.
pub struct Link {
    /// The time at which the link expires. Set even if the link is not sent.
    pub expires_at: Timestamp,
    /// The email to send.
    pub mail: LinkMail,
}

/// The email that a request for a link sends.
pub enum LinkMail {
    /// No email. The mailbox has a live link, or the address may not sign in.
    None,
    /// An email with the link.
    Link,
    /// An email with the link, which says that no other email follows before `next_at`.
    LastLink {
        /// The next link's earliest time.
        next_at: Timestamp,
    },
}

/// Returns `true` if an address may sign in: it belongs to an existing user, or it may sign up.
pub async fn may_sign_in(
    db: &mut PgConnection,
    email: &str,
    domain: &str,
    sign_up: SignUp,
) -> Result<bool> {
    let may = sqlx::query_scalar!(
        r#"
        /* all tenants: an address may sign up by the invite or domain of any organization */
        select (
            -- Open sign-up.
            $3
            or exists(select from users where email = $1)
            or exists(
                select from invites
                where email = $1
                  and accepted_at is null
                  and revoked_at is null
                  and replaced_at is null
                  and expires_at > now()
            )
            or (
                $4
                and exists(
                    select from domain_claims
                    where domain = $2
                      and verified_at is not null
                )
            )
        ) as "may!"
        "#,
        email,
        domain,
        sign_up == SignUp::Open,
        sign_up == SignUp::Domains
    );
    Ok(may.fetch_one(db).await?)
}

fn lock_name(email: &str) -> String {
    format!("sign-in:{}", mailbox(email))
}

/// Stores a link for an address, to be sent if the address may sign in and its mailbox has not had too many.
/// A link that is not sent is stored as expired, so that the request does the same work for known and
/// unknown addresses.
pub async fn insert_link(
    db: &mut PgConnection,
    email: &str,
    token: &SecretHash,
    may_sign_in: bool,
    origin: Origin<'_>,
) -> Result<Link> {
    crate::store::lock_name(&mut *db, &lock_name(email)).await?;
    let row = sqlx::query!(
        r#"
        with live as (
            select
                count(*) as links,
                max(created_at) as newest,
                min(expires_at) as first_expiry
            from sign_in_links
            where mailbox = $9
              and used_at is null
              and expires_at > clock_timestamp()
        ), decision as (
            select
                links,
                first_expiry,
                clock_timestamp() as at,
                $4
                and links < $3
                and coalesce(newest <= clock_timestamp() - $5::float8 * interval '1 second', true)
                    as sends
            from live
        ), link as (
            insert into sign_in_links (token_hash, email, created_at, expires_at, address, user_agent, mailbox)
            select
                $1,
                $2,
                at,
                case when sends then at + $6::float8 * interval '1 second' else at end,
                $7,
                $8,
                $9
            from decision
        )
        select
            sends as "sends!",
            at + $6::float8 * interval '1 second' as "expires_at!: Timestamp",
            case when links = $3 - 1 then first_expiry end as "next_at: Timestamp"
        from decision
        "#,
        token.as_bytes(),
        email,
        LIVE_LINKS_MAX,
        may_sign_in,
        LINK_INTERVAL.as_secs_f64(),
        LINK_LIFETIME.as_secs_f64(),
        origin.address,
        origin.user_agent,
        mailbox(email)
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

/// Returns a link that works, with the client that requested it.
pub async fn find_link(db: impl PgExecutor<'_>, token: &SecretHash) -> Result<Option<PendingLink>> {
    let link = sqlx::query_as!(
        PendingLink,
        r#"
        select
            email,
            created_at as "requested_at: Timestamp",
            address,
            user_agent
        from sign_in_links
        where token_hash = $1
          and used_at is null
          and expires_at > clock_timestamp()
        "#,
        token.as_bytes()
    )
    .fetch_optional(db)
    .await?;
    Ok(link)
}

/// Counts an email to an address that another user can cause: an invite, or a key's notice. A
/// mailbox's sub-addresses count together. Returns `false` if `NOTICES_MAX` were sent to it within
/// `NOTICES_WINDOW`.
pub async fn count_notice(db: impl PgExecutor<'_>, email: &str) -> Result<bool> {
    // One statement: a concurrent one waits for the row and then sees the committed count.
    let done = sqlx::query!(
        "
        insert into mailed as m (email, sent_at, empty_at)
        values ($1, array[clock_timestamp()], clock_timestamp() + $2::float8 * interval '1 second')
        on conflict (email) do update
            set
                sent_at = array(
                    select at
                    from unnest(m.sent_at) at
                    where at > clock_timestamp() - $2::float8 * interval '1 second'
                ) || clock_timestamp(),
                empty_at = clock_timestamp() + $2::float8 * interval '1 second'
            where (
                select count(*)
                from unnest(m.sent_at) at
                where at > clock_timestamp() - $2::float8 * interval '1 second'
            ) < $3
        ",
        mailbox(email),
        NOTICES_WINDOW.as_secs_f64(),
        NOTICES_MAX
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Uses a link, ends its address's other links, and returns the address. Returns `None` if
/// there is no such link, or if it was used, ended or has expired.
///
/// Ending the others makes room for the next email: using a link proves that the mailbox is
/// the user's.
pub async fn use_link(db: &mut PgConnection, token: &SecretHash) -> Result<Option<String>> {
    let email = sqlx::query_scalar!(
        "
        select email
        from sign_in_links
        where token_hash = $1
          and used_at is null
        ",
        token.as_bytes()
    );
    let Some(email) = email.fetch_optional(&mut *db).await? else {
        return Ok(None);
    };
    // Two links for one address that are used at the same time would otherwise deadlock.
    crate::store::lock_name(&mut *db, &lock_name(&email)).await?;
    let used = sqlx::query!(
        "
        update sign_in_links
        set used_at = clock_timestamp()
        where token_hash = $1
          and used_at is null
          and expires_at > clock_timestamp()
        ",
        token.as_bytes()
    );
    if used.execute(&mut *db).await?.rows_affected() == 0 {
        return Ok(None);
    }
    sqlx::query!(
        "
        update sign_in_links
        set used_at = clock_timestamp()
        where email = $1
          and used_at is null
        ",
        email
    )
    .execute(db)
    .await?;
    Ok(Some(email))
}

/// An invite that a sign-in has accepted.
pub struct AcceptedInvite {
    /// The id of the invite.
    pub id: InviteId,
    /// The organization that invited the user.
    pub org_id: OrgId,
    /// The role that the invite offers.
    pub role: Role,
    /// `true` if the user was no member before.
    pub is_new_member: bool,
}

/// Accepts an address's open invites: its user becomes a member of each organization that
/// invited them. An existing membership does not change. A new membership is recorded as begun by
/// an invite unless the organization owns the address's domain.
pub async fn accept_invites(
    db: &mut PgConnection,
    email: &str,
    domain: &str,
    user_id: &UserId,
) -> Result<Vec<AcceptedInvite>> {
    let accepted = sqlx::query_as!(
        AcceptedInvite,
        r#"
        /* all tenants: a sign-in accepts the invites of every organization */
        with accepted as (
            update invites
            set
                accepted_at = now(),
                accepted_by = $2
            where email = $1
              and accepted_at is null
              and revoked_at is null
              and replaced_at is null
              and expires_at > now()
            returning id, org_id, role
        ), joined as (
            insert into memberships (org_id, user_id, role, by_invite)
            select
                org_id,
                $2,
                role,
                not exists (
                    select from domain_claims c
                    where c.org_id = a.org_id
                      and c.domain = $3
                      and c.verified_at is not null
                )
            from accepted a
            on conflict (org_id, user_id) do nothing
            returning org_id
        )
        select
            a.id as "id: InviteId",
            a.org_id as "org_id: OrgId",
            a.role as "role: Role",
            exists(select from joined j where j.org_id = a.org_id) as "is_new_member!"
        from accepted a
        order by a.org_id
        "#,
        email,
        user_id.as_str(),
        domain
    )
    .fetch_all(db)
    .await?;
    Ok(accepted)
}

/// Makes a user a member of the organization that owns their address's domain, if it lets
/// users join by domain. A user whose membership an owner ended does not join again.
pub async fn join_by_domain(
    db: &mut PgConnection,
    domain: &str,
    user_id: &UserId,
) -> Result<Option<OrgId>> {
    let joined = sqlx::query_scalar!(
        r#"
        /* all tenants: the domain of an address determines the organization */
        insert into memberships (org_id, user_id, role)
        select
            c.org_id,
            $2,
            'member'
        from domain_claims c
        where c.domain = $1
          and c.verified_at is not null
          and c.auto_join
          and not exists (
              select from offboardings o
              where o.org_id = c.org_id
                and o.user_id = $2
          )
        on conflict (org_id, user_id) do nothing
        returning org_id as "org_id: OrgId"
        "#,
        domain,
        user_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(joined)
}

/// Deletes sign-in links that expired more than `EXPIRED_LINK_DAYS` days ago, and expired email
/// counts.
pub async fn delete_expired(db: &mut PgConnection) -> Result<()> {
    sqlx::query!(
        "
        delete from sign_in_links
        where expires_at < now() - $1::integer * interval '1 day'
        ",
        EXPIRED_LINK_DAYS
    )
    .execute(&mut *db)
    .await?;
    sqlx::query!("delete from mailed where empty_at < now()")
        .execute(db)
        .await?;
    Ok(())
}
