//! The erasure of a user.

use crate::model::audit::{Actor, AuditType, Change, TargetType};
use crate::model::error::Result;
use crate::model::event::EventType;
use crate::model::ids::{OrgId, UserId};
use crate::model::org::Role;
use crate::model::validation::mailbox;
use crate::store::{PgConnection, audit, event, org};

/// An organization that would be left without an owner.
pub struct SoleOwnership {
    /// The organization's id.
    pub org_id: OrgId,
    /// The organization's name.
    pub name: String,
}

/// Locks the address, its user's organizations, and the user, until the transaction ends.
/// Returns `None` if no user has the address.
pub async fn lock_user(db: &mut PgConnection, email: &str) -> Result<Option<UserId>> {
    org::lock_address(db, email).await?;
    let found = org::find_user(&mut *db, email).await?;
    let Some(user_id) = found else {
        return Ok(None);
    };
    // Organizations first, in id order, as in all transactions that lock both.
    sqlx::query!(
        "
        /* all tenants: the operator erases a user in every organization */
        select from orgs
        where id in (select org_id from memberships where user_id = $1)
        order by id
        for no key update
        ",
        user_id.as_str()
    )
    .execute(&mut *db)
    .await?;
    // Waits for transactions that have stored something in the user's name.
    let user_id = sqlx::query_scalar!(
        r#"select id as "id: UserId" from users where email = $1 for update"#,
        email
    );
    Ok(user_id.fetch_optional(db).await?)
}

/// Returns the organizations whose only owner is this user. They are locked.
pub async fn sole_ownerships(
    db: &mut PgConnection,
    user_id: &UserId,
) -> Result<Vec<SoleOwnership>> {
    let orgs = sqlx::query_as!(
        SoleOwnership,
        r#"
        /* all tenants: the operator erases a user in every organization */
        select
            o.id as "org_id: OrgId",
            o.name
        from memberships m
        join orgs o on o.id = m.org_id
        where m.user_id = $1
          and m.role = 'owner'
          and not exists (
              select from memberships x
              where x.org_id = m.org_id
                and x.role = 'owner'
                and x.user_id <> m.user_id
          )
        order by o.id
        "#,
        user_id.as_str()
    );
    Ok(orgs.fetch_all(db).await?)
}

/// Row counts that a user's erasure deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Erased {
    /// The user's memberships.
    pub memberships: u64,
    /// The user's sessions.
    pub sessions: u64,
    /// Invites to the address.
    pub invites: u64,
    /// The address's sign-in links.
    pub sign_in_links: u64,
}

impl std::ops::AddAssign for Erased {
    fn add_assign(&mut self, other: Self) {
        let Self {
            memberships,
            sessions,
            invites,
            sign_in_links,
        } = other;
        self.memberships += memberships;
        self.sessions += sessions;
        self.invites += invites;
        self.sign_in_links += sign_in_links;
    }
}

impl Erased {
    /// Returns `true` if nothing was erased.
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

/// Erases an address's sign-in links. Must come first, because a sign-in locks its link before
/// the address.
pub async fn erase_links(db: &mut PgConnection, email: &str) -> Result<Erased> {
    let links = sqlx::query!("delete from sign_in_links where email = $1", email)
        .execute(db)
        .await?;
    Ok(Erased {
        sign_in_links: links.rows_affected(),
        ..Erased::default()
    })
}

/// Erases the invites to an address and its email count.
pub async fn erase_address(db: &mut PgConnection, email: &str) -> Result<Erased> {
    let invites = sqlx::query!(
        "
        /* all tenants: the operator erases the invites of every organization */
        delete from invites where email = $1
        ",
        email
    )
    .execute(&mut *db)
    .await?
    .rows_affected();
    sqlx::query!(
        "
        /* all tenants: the operator erases the address in the audit log of every organization */
        update audit_entries
        set changes = changes - 'email'
        where changes -> 'email' ->> 'after' = $1
        ",
        email
    )
    .execute(&mut *db)
    .await?;
    sqlx::query!("delete from mailed where email = $1", mailbox(email))
        .execute(db)
        .await?;
    Ok(Erased {
        invites,
        ..Erased::default()
    })
}

/// Erases a user: deletes memberships, sessions and provider accounts, and replaces the address by one that no mailbox
/// has. Rows that the user created belong to organizations and keep the user's id. The caller holds [`lock_user`]'s
/// locks.
pub async fn erase_user(db: &mut PgConnection, user_id: &UserId) -> Result<Erased> {
    let user = user_id.as_str();
    let memberships = delete_memberships(db, user_id).await?;
    sqlx::query!(
        "
        /* all tenants: the operator erases a user in every organization */
        update audit_entries
        set
            email = null,
            address = null
        where user_id = $1
        ",
        user
    )
    .execute(&mut *db)
    .await?;
    erase_in_events(db, user).await?;
    sqlx::query!(
        "
        /* all tenants: the operator erases a user in every organization */
        delete from offboardings where user_id = $1
        ",
        user
    )
    .execute(&mut *db)
    .await?;
    sqlx::query!("delete from mail_preferences where user_id = $1", user)
        .execute(&mut *db)
        .await?;
    sqlx::query!("delete from identities where user_id = $1", user)
        .execute(&mut *db)
        .await?;
    sqlx::query!("delete from device_logins where approved_by = $1", user)
        .execute(&mut *db)
        .await?;
    let sessions = sqlx::query!("delete from sessions where user_id = $1", user)
        .execute(&mut *db)
        .await?
        .rows_affected();
    // It has no "@", so no sign-in and no invite can name it.
    sqlx::query!(
        "update users set email = 'erased ' || id where id = $1",
        user
    )
    .execute(db)
    .await?;
    Ok(Erased {
        memberships,
        sessions,
        ..Erased::default()
    })
}

/// Deletes a user's memberships with their events and audit entries. Returns their count.
async fn delete_memberships(db: &mut PgConnection, user_id: &UserId) -> Result<u64> {
    let user = user_id.as_str();
    let orgs = sqlx::query_scalar!(
        r#"
        /* all tenants: the operator erases a user in every organization */
        select org_id as "org_id: OrgId"
        from memberships
        where user_id = $1
        "#,
        user
    )
    .fetch_all(&mut *db)
    .await?;
    for org_id in &orgs {
        event::insert_member(db, org_id, EventType::MemberRemoved, user_id).await?;
    }
    let memberships = sqlx::query!(
        r#"
        /* all tenants: the operator erases a user in every organization */
        delete from memberships
        where user_id = $1
        returning
            org_id as "org_id: OrgId",
            role as "role: Role"
        "#,
        user
    )
    .fetch_all(&mut *db)
    .await?;
    for membership in &memberships {
        let removed = Change::new(AuditType::MemberRemoved, TargetType::Member, user).field(
            "role",
            membership.role,
            (),
        );
        audit::record(db, &membership.org_id, &Actor::OPERATOR, &[removed]).await?;
    }
    Ok(memberships.len() as u64)
}

/// Erases a user's address in events, and deletes the events as they are sent to webhooks.
async fn erase_in_events(db: &mut PgConnection, user: &str) -> Result<()> {
    // Otherwise an event with the address could be stored for a webhook afterwards.
    sqlx::query!(
        "
        /* all tenants: the operator erases a user in every organization */
        select w.id
        from webhooks w
        where w.org_id in (
            select e.org_id
            from events e
            where e.data is not null
              and e.data ->> 'user_id' = $1
        )
        order by w.id
        for no key update
        ",
        user
    )
    .fetch_all(&mut *db)
    .await?;
    sqlx::query!(
        "
        /* all tenants: the operator erases a user in every organization */
        delete from webhook_payloads where user_id = $1
        ",
        user
    )
    .execute(&mut *db)
    .await?;
    sqlx::query!(
        "
        /* all tenants: the operator erases a user in every organization */
        update events
        set data = data || jsonb_build_object('email', 'erased ' || $1::text)
        where data is not null
          and data ->> 'user_id' = $1
          and data ? 'email'
        ",
        user
    )
    .execute(&mut *db)
    .await?;
    Ok(())
}
